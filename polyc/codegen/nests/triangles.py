"""Sums over tiles that the border of a triangle cuts: whole tiles in registers, and the rest row by row.

Before: ``for k in 0:n { for i in max(c2 - c1, 0):6 { vector j in 0:min(c1 + i - c2 + 1, 64) { S[i, j] += … } } }``.
After: ``if (c1 - c2 + 1 >= 64 and c2 <= c1) for k { unroll i in 0:6 { vector j in 0:64 … } } else for i { for k { … } }``.

Where the sum's own index decides, as in ``for k in 0:c1 + 6 { for i in max(k - c1, 0):6 … }``, its range is cut instead: up
to ``c1`` all rows are there.  Every element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.codegen.nests.scalars import is_initial
from polyc.codegen.nests.tiles import hardest
from polyc.ir.access import moves, reads_in, writes_in, written_in
from polyc.ir.expr import Const, Expr, all_hold, ge, index_names, int_const, le, mentions, minimum, operands_of
from polyc.ir.facts import Span, interior, is_empty, span_of
from polyc.ir.loops import If, Loop, LoopKind, Node, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_bodies
from polyc.records import dataclass, replace


def split_triangles(body: Body, aliased: frozenset[str] = frozenset()) -> Body:
    """The same nodes with the sums over tiles that are not boxes written for whole tiles and for others.

    Initial values just before such a sum go with it.  `aliased`: buffers that may be the same memory as others, whose elements
    keep their order."""
    result: list[Node] = []
    for node in body:
        found = _find(node, aliased) if isinstance(node, Loop) else None
        if found is None:
            result.append(map_bodies(node, lambda inside: split_triangles(inside, aliased)))
            continue
        targets = written_in(found.updates)
        initial: list[Node] = []
        while result and is_initial(result[-1], targets):
            initial.insert(0, result.pop())
        result += _write(found, tuple(initial))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A loop that sums over a tile, and what makes all of the tile run."""

    loops: tuple[Loop, ...]
    """The loop of the sum, and the ones inside, outermost first."""
    updates: Body
    irregular: frozenset[Expr]
    """Bounds inside that move with the sum or with other loops over the tile."""
    fixed: tuple[Expr, ...]
    moving: tuple[Span, ...]
    """Conditions under which the tile is whole: those of outer loops, and the iterations of the sum where others hold."""


def _find(loop: Loop, aliased: frozenset[str]) -> _Sum | None:
    if loop.kind != "serial" or loop.tile is not None:
        return None
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(inside := loops[-1].body[0], Loop):
        loops.append(inside)
    updates, inner = loops[-1].body, loops[1:]
    tiles = [n for n in inner if _size(n) is not None]
    sums = {n.var for n in loops if n not in tiles}
    variables = {n.var for n in loops}
    if not tiles or not _is_sum(updates, sums, aliased):
        return None
    if any(n.kind == "parallel" or index_names(n.lower, n.upper) & (variables - {loop.var}) for n in inner if n not in tiles):
        return None
    ranges: dict[str, tuple[Expr, Expr]] = {n.var: (int_const(0), int_const((_size(n) or 1) - 1)) for n in tiles}
    bounds: list[tuple[Expr, Expr]] = []
    for n in tiles:
        bounds += [(a, le(a, 0)) for a in operands_of(n.lower, "max") if n.tile is not None and not isinstance(a, Const)]
        bounds += [(a, ge(a, _size(n) or 1)) for a in operands_of(n.upper, "min") if mentions(a, *variables)]
    tests: dict[Expr, None] = {}
    for bound, test in bounds:
        at_worst = hardest(test, ranges) if mentions(bound, *ranges) else test
        if at_worst is None or mentions(at_worst, *sums - {loop.var}):
            return None
        tests[simplify(at_worst)] = None
    left = [t for t in tests if not (isinstance(t, Const) and t.value)]
    moving = [t for t in left if mentions(t, loop.var)]
    spans = tuple(s for t in moving if (s := span_of(t, loop.var)) is not None)
    if not bounds or any(isinstance(t, Const) for t in left) or len(spans) < len(moving) or (moving and loop.step != 1):
        return None
    return _Sum(tuple(loops), updates, frozenset(a for a, _ in bounds), tuple(t for t in left if t not in moving), spans)


def _is_sum(body: Body, sums: set[str], aliased: frozenset[str]) -> bool:
    """Whether nothing but the elements of updates, which stay the same, is written and read."""
    targets = {n.buffer for n in body if isinstance(n, Update)}
    if len(targets) < len(body) or not aliased.isdisjoint(targets) or not targets.isdisjoint(r.tensor for r in reads_in(body)):
        return False
    return not any(moves(u, var) for u in writes_in(body) for var in sums)


def _write(found: _Sum, initial: Body) -> Iterator[Node]:
    loop = found.loops[0]
    whole, rest = [_make_whole(n, found) for n in found.loops], _take_rows_out(found.loops)
    begin, end = interior(loop, found.moving)
    parts: list[Node] = []
    for lower, upper, loops in ((loop.lower, begin, rest), (begin, end, whole), (end, loop.upper, rest)):
        if not is_empty(lower, upper):
            over = [replace(n, lower=lower, upper=upper) if n.var == loop.var else n for n in loops]
            parts.append(_nest(over, found.updates))
    if not found.fixed:
        yield from (*initial, *parts)
        return
    yield If(all_hold(found.fixed), (*initial, *parts), (*initial, _nest(rest, found.updates)))


def _nest(loops: Sequence[Loop], body: Body) -> Loop:
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    (outer,) = body
    assert isinstance(outer, Loop)
    return outer


def _make_whole(loop: Loop, found: _Sum) -> Loop:
    """A loop where all of the tile runs."""
    size = _size(loop)
    if size is None or loop is found.loops[0]:
        return loop
    bounds = [a for a in operands_of(loop.upper, "min") if a not in found.irregular and not isinstance(a, Const)]
    upper: Expr = int_const(size)
    for bound in bounds:
        upper = minimum(bound, upper)
    kind: LoopKind = "vector" if loop.kind == "vector" else "unroll"
    return replace(loop, kind=kind, lower=int_const(0), upper=simplify(upper), max_trip=size, tile=None, interleave=1)


def _take_rows_out(loops: Sequence[Loop]) -> list[Loop]:
    """The loops with the rows whose bounds, or whose vectors, differ outside of the sum, one after the other."""
    rows = [n for n in loops[1:] if _size(n) is not None and n.kind != "vector"]
    tiles = {n.var for n in loops[1:] if _size(n) is not None}
    if any(index_names(n.lower, n.upper) & (tiles | {loops[0].var}) for n in rows):
        return list(loops)
    return [*(replace(n, kind="serial", max_trip=None, tile=None) for n in rows), *(n for n in loops if n not in rows)]


def _size(loop: Loop) -> int | None:
    """Iterations of the whole tile, for a loop over one."""
    return loop.tile if loop.tile is not None else loop.max_trip if loop.kind in ("unroll", "vector") else None
