"""Steps of a recurrence after which a point of it stays as it is: where all that a step carries is kept, as data decides.

    ``for t { vector p { z[p] = |z[p]| > 2 ? z[p] : z[p] * z[p] + c[p]; n[p] = |z[p]| > 2 ? n[p] : t } }``

Where ``|z[p]| > 2`` holds at the beginning of a step, the step leaves ``z[p]`` and ``n[p]``, so that the test holds at the next
one, and so on.  The step is run on symbols: what a place holds at its end, over what places held at its beginning, with
the tests decided so that places keep their values.  What other places get then must be made of kept ones, and be the same at
each step.  Points need nothing of each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from polyc.code_limits import MAX_NODES
from polyc.ir.access import touched_in, window_of, with_values, written_in
from polyc.ir.dependence import iterations_apart
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    int_const,
    mentions,
    operands_of,
    reads,
    rewrite,
    walk,
)
from polyc.ir.facts import assume_value, fold
from polyc.ir.loops import Loop, LoopNest, Node, Store
from polyc.ir.simplify import growth, simplify
from polyc.ir.types import BOOL
from polyc.records import dataclass

MOST_TESTS = 8


@dataclass(frozen=True, slots=True)
class Steady:
    """Where `test` holds at the beginning of a step, all steps from `n_steps` later on leave that point as it is."""

    points: Loop
    """The row: vectors of points, the whole body of a step."""
    test: Expr
    n_steps: int


def find_steady(loop: Loop, nest: LoopNest) -> Steady | None:
    """For a loop over steps; None where these are no rows of points, where points need each other, or where none stays."""
    point = _find_row(loop, nest)
    if point is None:
        return None
    stores = [node for node in point.body if isinstance(node, Store)]
    if len(stores) < len(point.body) or not any(isinstance(e, Select) for s in stores for e in walk(s.value)):
        return None
    if not _are_apart(point.body, loop.var, point.var):
        return None
    values = _run(stores)
    if values is None:
        return None
    windows = {place: window_of(place, loop.var) for place in values}
    if 0 in windows.values():
        return None
    before = {place: with_values(place, {loop.var: Index(loop.var) - 1}) for place in values}
    known: dict[Expr, bool] = {before[p]: True for p, v in values.items() if before[p] in operands_of(v, "or")}
    states = {*before.values()}
    while len(known) <= MOST_TESTS and (test := _next_test(values.values(), known, loop.var, states)) is not None:
        known |= dict([test])
    decided = {place: _decide(value, known) for place, value in values.items()}
    kept = {before[p] for p, v in decided.items() if v == before[p] or (known.get(before[p]) and v == Const(True, BOOL))}

    def is_same(e: Expr) -> bool:
        """Whether it has one value from a step with these outcomes on."""
        rest = _without(e, kept)
        return not mentions(rest, loop.var) and not any(r.tensor in written for r in reads(rest))

    written = {s.buffer for s in stores}
    if not known or not kept or not all(map(is_same, (*known, *decided.values()))):
        return None
    tests = [e if outcome else Call("not", (e,)) for e, outcome in known.items()]
    return Steady(point, all_hold(tests), max(windows.values()))


def _find_row(loop: Loop, nest: LoopNest) -> Loop | None:
    """The vectors of points that are the whole body of a serial loop, the same ones at each step."""
    if loop.kind != "serial" or loop.step != 1 or loop.registers or loop.initial or len(loop.body) != 1:
        return None
    row, written, touched = loop.body[0], written_in(loop.body), touched_in(loop.body)
    if not isinstance(row, Loop) or row.kind != "vector" or row.registers or row.initial:
        return None
    ends = (loop.lower, loop.upper, row.lower, row.upper)
    is_alone = not any(touched & {*b.may_alias} for b in nest.buffers if b.name in touched)
    is_fixed = not any(mentions(e, loop.var) or any(r.tensor in written for r in reads(e)) for e in ends)
    return row if is_alone and is_fixed else None


def _are_apart(body: Sequence[Node], step: str, point: str) -> bool:
    """Whether each point has elements of its own in all that the body writes."""
    stores = [node for node in body if isinstance(node, Store)]
    for name in {s.buffer for s in stores}:
        places = [s.subscripts for s in stores if s.buffer == name]
        places += [r.subscripts for s in stores for e in (s.value, *s.subscripts) for r in reads(e) if r.tensor == name]
        own = [d for d, e in enumerate(places[0]) if growth(e, point) and not mentions(e, step) and not reads(e)]
        if not any(len({simplify(p[d]) for p in places}) == 1 for d in own):
            return False
    return True


def _run(stores: Sequence[Store]) -> dict[Read, Expr] | None:
    """What the places that a step writes hold at its end, over what they held before; None where that is not known."""
    values: dict[Read, Expr] = {}
    places = list(dict.fromkeys(_place(s.buffer, s.subscripts) for s in stores))
    names = {p.tensor for p in places}

    def is_known(place: Read) -> bool:
        others = (p for p in places if p.tensor == place.tensor and p != place)
        is_plain = not any(map(reads, place.subscripts))
        return is_plain and all(iterations_apart(p.subscripts, place.subscripts, "") is None for p in others)

    def resolve(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node.tensor not in names:
            return None
        place = _place(node.tensor, node.subscripts)
        read.append(place)
        return values.get(place, place)

    for s in stores:
        read: list[Read] = []
        value = rewrite(s.value, resolve)
        if not all(map(is_known, read)) or any(True for _ in islice(walk(value), MAX_NODES, None)):
            return None
        values[_place(s.buffer, s.subscripts)] = value
    return values if all(map(is_known, places)) else None


def _place(buffer: str, subscripts: Sequence[Expr]) -> Read:
    return Read(buffer, tuple(map(simplify, subscripts)))


def _decide(value: Expr, known: dict[Expr, bool]) -> Expr:
    value = assume_value(value, known.get)
    return fold(value, known.get) if isinstance(value, (Call, Read)) and (value in known or _is_logical(value)) else value


def _is_logical(value: Expr) -> bool:
    return isinstance(value, Call) and value.op in ("and", "or", "not")


def _without(e: Expr, places: Collection[Expr]) -> Expr:
    return rewrite(e, lambda n: int_const(0) if n in places else None)


def _next_test(
    values: Iterable[Expr], known: dict[Expr, bool], step: str, states: Collection[Expr]
) -> tuple[Expr, bool] | None:
    """A test that still chooses between what a place held before, which is to be taken, and another value."""
    for value in values:
        for e in walk(assume_value(value, known.get)):
            if isinstance(e, Select) and not mentions(_without(e.condition, states), step):
                for arm, outcome in ((e.then, True), (e.other, False)):
                    if arm in states:
                        test = e.condition
                        while isinstance(test, Call) and test.op == "not":
                            (test,), outcome = test.args, not outcome
                        return test, outcome
    return None
