"""Sums over tiles that the border of a triangle cuts: whole tiles in registers, and the rest row by row.

Before: ``for k in 0:n { for i in max(c2 - c1, 0):6 { vector j in 0:min(c1 + i - c2 + 1, 64) { S[i, j] += … } } }``.
After: ``if (c1 - c2 + 1 >= 64 and c2 <= c1) for k { unroll i in 0:6 { vector j in 0:64 … } } else for i { for k { … } }``.

Where the sum's own index decides, as in ``for k in 0:c1 + 6 { for i in max(k - c1, 0):6 … }``, its range is cut instead: up
to ``c1`` all rows are there.  Every element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.codegen.nests.scalars import is_initial
from polyc.ir.access import moves, reads_in, writes_in, written_in
from polyc.ir.expr import Const, Expr, all_hold, int_const, mentions
from polyc.ir.facts import fill_tile, hardest, hold, interior, is_empty, span_of, tile_tests
from polyc.ir.loops import If, Loop, LoopKind, Node, Update, do_bounds_depend, tile_size
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Body, make_nest, map_bodies, perfect_nest
from polyc.records import replace


def split_triangles(body: Body, aliased: frozenset[str] = frozenset()) -> Body:
    """The same nodes with the sums over tiles that are not boxes written for whole tiles and for others.

    Initial values just before such a sum go with it.  `aliased`: buffers that may be the same memory as others, whose elements
    keep their order."""
    result: list[Node] = []
    for node in body:
        made = _split(node, aliased) if isinstance(node, Loop) else None
        if made is None:
            result.append(map_bodies(node, lambda inside: split_triangles(inside, aliased)))
            continue
        conditions, parts, rest = made
        initial: list[Node] = []
        while conditions and result and is_initial(result[-1], written_in(rest)):
            initial.insert(0, result.pop())
        result += (If(all_hold(conditions), (*initial, *parts), (*initial, *rest)),) if conditions else parts
    return tuple(result)


def _split(loop: Loop, aliased: frozenset[str]) -> tuple[list[Expr], Body, Body] | None:
    """Tests of what is outside of a loop that sums over a tile, its pieces where they hold, and the loop elsewhere."""
    if loop.kind != "serial" or loop.tile is not None:
        return None
    loops, updates = perfect_nest(loop)
    tiles = [n for n in loops[1:] if tile_size(n) is not None]
    sums = {n.var for n in loops if n not in tiles}
    variables = {n.var for n in loops}
    tests = [t for n in tiles for t in tile_tests(n) if t.op == "le" or mentions(t, *variables)]
    if not tests or not _is_sum(updates, sums, aliased):
        return None
    others = [n for n in loops[1:] if n not in tiles]
    if any(n.kind == "parallel" for n in others) or do_bounds_depend(others, *(variables - {loop.var})):
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
    spans = [s for t in moving if (s := span_of(t, loop.var)) is not None]
    if len(spans) < len(moving) or (moving and loop.step != 1):
        return None
    whole, rest = [_expand(fill_tile(n, hold(tests))) for n in loops], _take_rows_out(loops, tiles)
    begin, end = interior(loop, spans)
    parts: list[Node] = []
    for lower, upper, around in ((loop.lower, begin, rest), (begin, end, whole), (end, loop.upper, rest)):
        if not is_empty(lower, upper):
            over = [replace(n, lower=lower, upper=upper) if n.var == loop.var else n for n in around]
            parts += make_nest(over, updates)
    return [t for t in conditions if t not in moving], tuple(parts), make_nest(rest, updates)


def _is_sum(body: Body, sums: set[str], aliased: frozenset[str]) -> bool:
    """Whether nothing but the elements of updates, which stay the same, is written and read."""
    targets = {n.buffer for n in body if isinstance(n, Update)}
    if len(targets) < len(body) or not aliased.isdisjoint(targets) or not targets.isdisjoint(r.tensor for r in reads_in(body)):
        return False
    return not any(moves(u, var) for u in writes_in(body) for var in sums)


def _expand(loop: Loop) -> Loop:
    """A loop over a whole tile as copies or vectors."""
    size = tile_size(loop)
    kind: LoopKind = "vector" if loop.kind == "vector" else "unroll"
    return loop if size is None else replace(loop, kind=kind, max_trip=size, tile=None, interleave=1)


def _take_rows_out(loops: Sequence[Loop], tiles: Sequence[Loop]) -> list[Loop]:
    """The loops with the rows one after the other: outside of the sum, unless its index or a tile says which rows there are."""
    rows = {n.var for n in tiles if n.kind != "vector"}
    plain = [replace(n, kind="serial", max_trip=None, tile=None) if n.var in rows else n for n in loops]
    is_inside = do_bounds_depend([n for n in tiles if n.var in rows], loops[0].var, *(m.var for m in tiles))
    return plain if is_inside else sorted(plain, key=lambda n: n.var not in rows)
