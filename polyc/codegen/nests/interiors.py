"""Run the interior of a vector loop without the tests of its borders.

Before: ``vector for j in 0:n { Y[i, j] = (i >= 1 && j >= 1 ? X[i - 1, j - 1] : 0) + (j < n - 1 ? X[i, j + 1] : 0) }``.
After: ``if (i >= 1) { vector for j in 0:1 {…} ; vector for j in 1:n - 1 { Y[i, j] = X[i - 1, j - 1] + X[i, j + 1] } ;
vector for j in n - 1:n {…} } else { vector for j in 0:n {…} }``: inside, windows over neighbours are plain loads.
Every element is computed once, by the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.ir.access import moves
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    Select,
    Size,
    all_hold,
    evaluate,
    maximum,
    mentions,
    minimum,
    operands_of,
    reads,
    walk,
)
from polyc.ir.facts import Span, assume, hold, interior, pieces, range_of, slack_of, span_of
from polyc.ir.loops import If, Loop, Node, Store, Update, known_length
from polyc.ir.simplify import difference, linear_form, simplify
from polyc.ir.walk import Body, Scope, node_expressions, rewrite_nodes
from polyc.records import dataclass, replace
from polyc.target import Target

MINIMUM_TRIP = 64
"""Iterations of a loop that is worth being written several times, if its lanes lie side by side or there are mask registers."""

MINIMUM_COPY = 16
"""The same where elements from elsewhere stand in for what lies outside: lanes would read them one by one."""

MOST_PROVED = 4096
"""Iterations at which two subscripts are compared."""


@dataclass(frozen=True, slots=True)
class _Tests:
    """Comparisons that hold inside: those that stay the same in the loop, and where each of the others does."""

    fixed: tuple[Expr, ...]
    moving: Mapping[Expr, Span]


def split_interiors(body: Body, target: Target) -> Body:
    """The same nodes with vector loops over chosen reads split into borders and interior."""

    def split(node: Node, scope: Scope) -> Body | None:
        if not isinstance(node, Loop) or (tests := _find_tests(node, target)) is None:
            return None
        return _split_loop(node, tests)

    return rewrite_nodes(body, split)


def _find_tests(loop: Loop, target: Target) -> _Tests | None:
    """The tests of a loop that is worth it; None for any other."""
    if loop.kind != "vector" or loop.registers or loop.initial or loop.step != 1:
        return None
    fixed: dict[Expr, None] = {}
    moving: dict[Expr, Span] = {}
    for node in loop.body:
        if not isinstance(node, (Store, Update)) or not moves(node, loop.var):
            return None
        if _is_masked_copy(node.value):
            continue
        for atom in _guards_of_reads(node.value):
            if not mentions(atom, loop.var):
                fixed[atom] = None
                continue
            if (span := span_of(atom, loop.var)) is not None:
                moving[atom] = span
    tests = _Tests(tuple(fixed), moving)
    return tests if (fixed or moving) and _is_long(loop, tests, target) else None


def _is_long(loop: Loop, tests: _Tests, target: Target) -> bool:
    """Whether a loop is worth being written several times."""
    has_stand_ins = all(isinstance(node, Store) and _is_mirrored_copy(node.value) for node in loop.body)
    trip = known_length(loop)
    if trip is not None and not has_stand_ins and not target.has_masks and _reads_apart(loop):
        begin, end = interior(loop, tests.moving.values())
        inside = difference(end, begin)
        if inside is not None and inside >= loop.lanes:
            return True
    if loop.max_trip is not None and not has_stand_ins:
        return False
    return trip is None or trip >= (MINIMUM_COPY if has_stand_ins else MINIMUM_TRIP)


def _reads_apart(loop: Loop) -> bool:
    """Whether lanes of chosen reads do not lie side by side: tests have them read one by one, or under shuffled masks."""
    chosen = (e for node in loop.body for root in node_expressions(node) for e in walk(root) if isinstance(e, Select))
    for subscript in (s for e in chosen for read in reads(e.then) for s in read.subscripts):
        form = linear_form(subscript)
        if form is None or abs(form.get(Index(loop.var), 0)) > 1:
            return True
    return False


def _guards_of_reads(value: Expr) -> Iterator[Expr]:
    """Comparisons of integers, all of which hold where a selection takes a read that it guards."""
    for node in walk(value):
        if isinstance(node, Select) and reads(node.then) and not reads(node.condition):
            yield from (a for a in operands_of(node.condition, "and") if slack_of(a) is not None)


def _split_loop(loop: Loop, tests: _Tests) -> Body:
    loop = replace(loop, max_trip=None)
    inside, border = (assume(loop.body, hold(known), _is_masked_copy) for known in ({*tests.fixed, *tests.moving}, tests.fixed))
    if not tests.moving:
        return (If(all_hold(tests.fixed), (replace(loop, body=border),), (loop,)),)
    begin, end = interior(loop, tests.moving.values())
    parts: list[Node] = []
    for part in pieces(loop, (loop.lower, begin, border), (begin, end, inside), (end, loop.upper, border)):
        trip = simplify(part.upper - part.lower)
        most = range_of(trip)[1] if part.body is inside else _most_at_border(loop, tests, part.lower == loop.lower)
        few = most is not None and most <= loop.lanes // 2
        parts.append(replace(part, kind="serial" if few else "vector"))
    if not tests.fixed:
        return tuple(parts)
    outside: Body = (loop,)
    if isinstance(begin, Const) and isinstance(end, Const):
        whole = tuple(_take_stand_ins(node, tests, loop.var, int(begin.value), int(end.value)) for node in loop.body)
        if whole != loop.body:
            outside = tuple(pieces(loop, (loop.lower, begin, loop.body), (begin, end, whole), (end, loop.upper, loop.body)))
    return (If(all_hold(tests.fixed), tuple(parts), outside),)


def _most_at_border(loop: Loop, tests: _Tests, is_first: bool) -> int | None:
    """Iterations in front of the interior, or behind it, at most; None where nothing is known."""
    spans = tests.moving.values()
    if is_first:
        lower = simplify(maximum(loop.lower, *(s.lower for s in spans if s.lower is not None)))
        gaps = [e - loop.lower for e in operands_of(lower, "max")]
    else:
        upper = simplify(minimum(loop.upper, *(s.upper for s in spans if s.upper is not None)))
        gaps = [loop.upper - e for e in operands_of(upper, "min")]
    found = [range_of(simplify(gap))[1] for gap in gaps]
    return None if None in found else max(0, *(n for n in found if n is not None))


def _is_masked_copy(value: Expr) -> bool:
    """Whether a value is a copy with a border of one value: masks do that."""
    return isinstance(value, Select) and not _is_mirrored_copy(value)


def _is_mirrored_copy(value: Expr) -> bool:
    """Whether other elements of the same tensor stand in for those outside."""
    return (
        isinstance(value, Select)
        and isinstance(value.then, Read)
        and isinstance(value.other, Read)
        and value.then.tensor == value.other.tensor
    )


def _take_stand_ins(node: Node, tests: _Tests, var: str, begin: int, end: int) -> Node:
    """A copy in whose rows some of the fixed tests fail, where the moving ones hold: it takes a row that stands in."""
    if not isinstance(node, Store) or not isinstance(node.value, Select) or not _is_mirrored_copy(node.value):
        return node
    atoms = operands_of(node.value.condition, "and")
    if not set(tests.fixed) <= set(atoms) or not set(atoms) <= {*tests.fixed, *tests.moving} or end - begin > MOST_PROVED:
        return node
    then, other = node.value.then, node.value.other
    assert isinstance(then, Read)
    assert isinstance(other, Read)
    subscripts = []
    for inside, stand_in in zip(then.subscripts, other.subscripts, strict=True):
        if mentions(stand_in, var):
            if any(isinstance(n, (Size, Read)) or (isinstance(n, Index) and n.name != var) for n in walk(stand_in)):
                return node
            if any(isinstance(n, (Size, Read)) or (isinstance(n, Index) and n.name != var) for n in walk(inside)):
                return node
            if any(evaluate(inside, {var: v}) != evaluate(stand_in, {var: v}) for v in range(begin, end)):
                return node
            stand_in = inside
        subscripts.append(stand_in)
    return replace(node, value=replace(other, subscripts=tuple(subscripts)))
