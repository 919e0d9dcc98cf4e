"""Loops of a nest whose iterations, one after the other, are operations on rows of elements.

Such a loop only assigns and combines elements, and each element that it writes belongs to one iteration, in which alone it is
read; or it combines all of a row into one element, which nothing else in it reads.  Then each of its statements may run for all
iterations before the next one does, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.ir.expr import Call, Cast, Const, Expr, Read, mentions, reads
from polyc.ir.loops import Buffer, Loop, Store, Update
from polyc.ir.simplify import difference, growth
from polyc.records import dataclass

Place = tuple[str, tuple[Expr, ...]]
"""A buffer and subscripts."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the iterations of a loop touch by one read or target: elements `step` apart along `dimension`, or the same one
    (None)."""

    dimension: int | None
    step: int


def find_rows(loop: Loop, buffers: Mapping[str, Buffer], is_host: Callable[[Expr], bool]) -> dict[Place, Row] | None:
    """The row of each read and target in `loop`; None where it has to run one iteration after the other.

    `is_host`: whether an expression is made of loop variables, parameters and 64-bit constants alone."""
    rows: dict[Place, Row] = {}

    def add(place: Place) -> bool:
        if place in rows:
            return True
        if not all(map(is_host, place[1])):
            return False
        steps = {d: growth(s, loop.var) for d, s in enumerate(place[1]) if mentions(s, loop.var)}
        if len(steps) > 1 or any(step is None or step < 1 for step in steps.values()):
            return False
        dimension, step = next(iter(steps.items()), (None, 0))
        rows[place] = Row(dimension, step or 0)
        return True

    def is_row(expr: Expr) -> bool:
        if is_host(expr):
            return not mentions(expr, loop.var)
        match expr:
            case Const():
                return True
            case Read():
                return add((expr.tensor, expr.subscripts))
            case Cast():
                return is_row(expr.value)
            case Call():
                return all(map(is_row, expr.args))
            case _:
                return False

    statements = [node for node in loop.body if isinstance(node, (Store, Update))]
    if loop.step != 1 or not statements or len(statements) != len(loop.body):
        return None
    if not all(is_row(s.value) and add((s.buffer, s.subscripts)) for s in statements):
        return None
    touched = [place for s in statements for place in ((s.buffer, s.subscripts), *_places_in(s))]
    for s in statements:
        target = s.buffer, s.subscripts
        if any(_may_meet(place, target, rows, buffers) for place in rows if place != target):
            return None
        is_sum = isinstance(s, Update) and any(rows[p].dimension is not None for p in _places_in(s))
        if rows[target].dimension is None and not (is_sum and touched.count(target) == 1):
            return None
    return rows


def _places_in(statement: Store | Update) -> list[Place]:
    return [(r.tensor, r.subscripts) for r in reads(statement.value)]


def _may_meet(a: Place, b: Place, rows: Mapping[Place, Row], buffers: Mapping[str, Buffer]) -> bool:
    """Whether an iteration may touch at one place an element that this or another one touches at the other."""
    if a[0] != b[0]:
        first, second = buffers[a[0]], buffers[b[0]]
        return first.place == second.place or first.name in second.may_alias or second.name in first.may_alias
    for d, (s, t) in enumerate(zip(a[1], b[1], strict=True)):
        apart = int(s.value) - int(t.value) if isinstance(s, Const) and isinstance(t, Const) else difference(s, t)
        if apart and (rows[b].dimension != d or apart % rows[b].step):
            return False
    return True
