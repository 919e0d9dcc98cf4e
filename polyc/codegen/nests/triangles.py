"""Sums over tiles that the border of a triangle cuts: whole tiles in registers, and the rest row by row.

Before: ``for k in 0:n { for i in max(c2 - c1, 0):6 { vector j in 0:min(c1 + i - c2 + 1, 64) { S[i, j] += … } } }``.
After: ``if (c1 - c2 + 1 >= 64 and c2 <= c1) for k { unroll i in 0:6 { vector j in 0:64 … } } else for i { for k { … } }``.

Where the sum's own index decides, as in ``for k in 0:c1 + 6 { for i in max(k - c1, 0):6 … }``, its range is cut instead: up
to ``c1`` all rows are there.  Every element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.codegen.nests.scalars import is_initial
from polyc.ir.access import moves, reads_in, writes_in, written_in
from polyc.ir.expr import Const, Expr, all_hold, index_names, int_const, mentions
from polyc.ir.facts import Span, fill_tile, hardest, hold, interior, is_empty, span_of, tile_tests
from polyc.ir.loops import If, Loop, LoopKind, Node, Update, tile_size
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Body, make_nest, map_bodies, perfect_nest
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
    tests: tuple[Expr, ...]
    """That no bound that moves with the sum, or with other loops over the tile, cuts it."""
    fixed: tuple[Expr, ...]
    moving: tuple[Span, ...]
    """Conditions under which these hold: those of outer loops, and the iterations of the sum where others do."""


def _find(loop: Loop, aliased: frozenset[str]) -> _Sum | None:
    if loop.kind != "serial" or loop.tile is not None:
        return None
    loops, updates = perfect_nest(loop)
    inner = loops[1:]
    tiles = [n for n in inner if tile_size(n) is not None]
    sums = {n.var for n in loops if n not in tiles}
    variables = {n.var for n in loops}
    tests = [t for n in tiles for t in tile_tests(n) if t.op == "le" or mentions(t, *variables)]
    if not tests or not _is_sum(updates, sums, aliased):
        return None
    if any(n.kind == "parallel" or index_names(n.lower, n.upper) & (variables - {loop.var}) for n in inner if n not in tiles):
        return None
    ranges: dict[str, tuple[Expr, Expr]] = {n.var: (int_const(0), int_const((tile_size(n) or 1) - 1)) for n in tiles}
    conditions: dict[Expr, None] = {}
    for test in tests:
        at_worst = hardest(test, ranges) if mentions(test, *ranges) else simplify(test)
        if at_worst is None or at_worst == Const(False, BOOL) or mentions(at_worst, *sums - {loop.var}):
            return None
        if not isinstance(at_worst, Const):
            conditions[at_worst] = None
    moving = [t for t in conditions if mentions(t, loop.var)]
    spans = tuple(s for t in moving if (s := span_of(t, loop.var)) is not None)
    if len(spans) < len(moving) or (moving and loop.step != 1):
        return None
    return _Sum(loops, updates, tuple(tests), tuple(t for t in conditions if t not in moving), spans)


def _is_sum(body: Body, sums: set[str], aliased: frozenset[str]) -> bool:
    """Whether nothing but the elements of updates, which stay the same, is written and read."""
    targets = {n.buffer for n in body if isinstance(n, Update)}
    if len(targets) < len(body) or not aliased.isdisjoint(targets) or not targets.isdisjoint(r.tensor for r in reads_in(body)):
        return False
    return not any(moves(u, var) for u in writes_in(body) for var in sums)


def _write(found: _Sum, initial: Body) -> Iterator[Node]:
    loop = found.loops[0]
    whole, rest = [_expand(fill_tile(n, hold(found.tests))) for n in found.loops], _take_rows_out(found.loops)
    begin, end = interior(loop, found.moving)
    parts: list[Node] = []
    for lower, upper, loops in ((loop.lower, begin, rest), (begin, end, whole), (end, loop.upper, rest)):
        if not is_empty(lower, upper):
            over = [replace(n, lower=lower, upper=upper) if n.var == loop.var else n for n in loops]
            parts += make_nest(over, found.updates)
    if not found.fixed:
        yield from (*initial, *parts)
        return
    yield If(all_hold(found.fixed), (*initial, *parts), (*initial, *make_nest(rest, found.updates)))


def _expand(loop: Loop) -> Loop:
    """A loop over a whole tile as copies or vectors."""
    size = tile_size(loop)
    kind: LoopKind = "vector" if loop.kind == "vector" else "unroll"
    return loop if size is None else replace(loop, kind=kind, max_trip=size, tile=None, interleave=1)


def _take_rows_out(loops: Sequence[Loop]) -> list[Loop]:
    """The loops with the rows whose bounds, or whose vectors, differ outside of the sum, one after the other."""
    rows = [n for n in loops[1:] if tile_size(n) is not None and n.kind != "vector"]
    tiles = {n.var for n in loops[1:] if tile_size(n) is not None}
    if any(index_names(n.lower, n.upper) & (tiles | {loops[0].var}) for n in rows):
        return list(loops)
    return [*(replace(n, kind="serial", max_trip=None, tile=None) for n in rows), *(n for n in loops if n not in rows)]
