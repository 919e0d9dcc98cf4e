"""Sums over tiles that the border of a triangle cuts: whole tiles in registers, and the rest row by row.

Before: ``for k in 0:n { for i in max(c2 - c1, 0):6 { vector j in 0:min(c1 + i - c2 + 1, 64) { S[i, j] += … } } }``.
After: ``if (c1 - c2 + 1 >= 64 and c2 <= c1) for k { unroll i in 0:6 { vector j in 0:64 … } } else for i { for k { … } }``.

Where the sum's own index decides, as in ``for k in 0:c1 + 6 { for i in max(k - c1, 0):6 … }``, its range is cut instead: up
to ``c1`` all rows are there.  Every element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.codegen.nests.scalars import is_initial
from polyc.codegen.nests.tiles import hardest
from polyc.ir.expr import Const, Expr, all_hold, ge, index_names, int_const, le, mentions, minimum, operands_of, reads
from polyc.ir.facts import Span, interior, is_empty, span_of
from polyc.ir.loops import If, Loop, Node, Update
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
        targets = {u.buffer for u in found.updates}
        initial: list[Node] = []
        while result and is_initial(result[-1], targets):
            initial.insert(0, result.pop())
        result += _write(found, tuple(initial))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Sum:
    """A loop that sums over a tile, and what makes all of the tile run."""

    loop: Loop
    tiles: tuple[Loop, ...]
    updates: tuple[Update, ...]
    irregular: tuple[Expr, ...]
    """Bounds inside that move with the sum or with other loops over the tile."""
    fixed: tuple[Expr, ...]
    moving: tuple[Span, ...]
    """Conditions under which the tile is whole: those of outer loops, and the iterations of the sum where others hold."""


def _find(loop: Loop, aliased: frozenset[str]) -> _Sum | None:
    if loop.kind != "serial" or loop.tile is not None:
        return None
    inner: list[Loop] = []
    node = loop
    while len(node.body) == 1 and isinstance(node.body[0], Loop):
        node = node.body[0]
        inner.append(node)
    updates = [u for u in node.body if isinstance(u, Update)]
    tiles = [n for n in inner if _size(n) is not None]
    sums = {loop.var, *(n.var for n in inner if _size(n) is None)}
    inside = sums | {n.var for n in tiles}
    if not tiles or len(updates) < len(node.body) or not _is_sum(updates, sums, aliased):
        return None
    if any(n.kind == "parallel" or index_names(n.lower, n.upper) & (inside - {loop.var}) for n in inner if n not in tiles):
        return None
    ranges: dict[str, tuple[Expr, Expr]] = {n.var: (int_const(0), int_const((_size(n) or 1) - 1)) for n in tiles}
    irregular: list[Expr] = []
    tests: dict[Expr, None] = {}
    for n in tiles:
        lowers = [] if n.tile is None else [a for a in operands_of(n.lower, "max") if not isinstance(a, Const)]
        uppers = [a for a in operands_of(n.upper, "min") if mentions(a, *inside)]
        irregular += [*lowers, *uppers]
        for bound, test in (
            *((a, le(a, 0)) for a in lowers),
            *((a, ge(a, (_size(n) or 1))) for a in uppers),
        ):
            at_worst: Expr | None = hardest(test, ranges) if mentions(bound, *ranges) else test
            if at_worst is None or mentions(at_worst, *sums - {loop.var}):
                return None
            tests[simplify(at_worst)] = None
    left = [t for t in tests if not (isinstance(t, Const) and t.value)]
    if not irregular or any(isinstance(t, Const) for t in left):
        return None
    moving = [t for t in left if mentions(t, loop.var)]
    spans = tuple(s for t in moving if (s := span_of(t, loop.var)) is not None)
    if len(spans) < len(moving) or (moving and loop.step != 1):
        return None
    fixed = tuple(t for t in left if t not in moving)
    return _Sum(loop, tuple(tiles), tuple(updates), tuple(irregular), fixed, spans)


def _is_sum(updates: list[Update], sums: set[str], aliased: frozenset[str]) -> bool:
    """Whether nothing but the updates' own elements, which stay the same, is written and read."""
    targets = {u.buffer for u in updates}
    if len(targets) < len(updates) or not aliased.isdisjoint(targets):
        return False
    for u in updates:
        if index_names(*u.subscripts) & sums or any(r.tensor in targets for e in (u.value, *u.subscripts) for r in reads(e)):
            return False
    return True


def _write(found: _Sum, initial: Body) -> Iterator[Node]:
    loop = found.loop
    whole, rest = _make_whole(loop, found), _take_rows_out(found)
    begin, end = interior(loop, found.moving)
    ranges = ((loop.lower, begin, rest), (begin, end, whole), (end, loop.upper, rest))
    parts = [_over(part, loop.var, lower, upper) for lower, upper, part in ranges if not is_empty(lower, upper)]
    if not found.fixed:
        yield from (*initial, *parts)
        return
    yield If(all_hold(list(found.fixed)), (*initial, *parts), (*initial, rest))


def _make_whole(node: Node, found: _Sum) -> Node:
    """The nest where all of the tile runs."""
    if not isinstance(node, Loop):
        return node
    body = tuple(_make_whole(n, found) for n in node.body)
    if node not in found.tiles:
        return replace(node, body=body)
    size = _size(node)
    assert size is not None
    upper: Expr = int_const(size)
    for atom in operands_of(node.upper, "min"):
        if atom not in found.irregular and not isinstance(atom, Const):
            upper = minimum(atom, upper)
    node = replace(node, lower=int_const(0), upper=simplify(upper), max_trip=size, tile=None, interleave=1, body=body)
    return node if node.kind == "vector" else replace(node, kind="unroll")


def _take_rows_out(found: _Sum) -> Loop:
    """The nest with the rows whose bounds, or whose vectors, differ outside of the sum, one after the other."""
    loop, sums = found.loop, {found.loop.var}
    rows = [n for n in found.tiles if n.kind != "vector"]
    if any(index_names(n.lower, n.upper) & (sums | {t.var for t in found.tiles}) for n in rows):
        return loop
    chain: list[Loop] = []
    node: Node = loop
    while isinstance(node, Loop):
        chain.append(node)
        body = node.body
        node = body[0]
    result: Body = body
    for n in reversed([*rows, *(c for c in chain if c not in rows)]):
        result = (replace(n, kind="serial", max_trip=None, tile=None, body=result) if n in rows else replace(n, body=result),)
    (outer,) = result
    assert isinstance(outer, Loop)
    return outer


def _over(node: Node, variable: str, lower: Expr, upper: Expr) -> Node:
    """The nest with another range of one of its loops."""
    if not isinstance(node, Loop):
        return node
    if node.var == variable:
        return replace(node, lower=lower, upper=upper)
    return replace(node, body=tuple(_over(n, variable, lower, upper) for n in node.body))


def _size(loop: Loop) -> int | None:
    """Iterations of the whole tile, for a loop over one."""
    return loop.tile if loop.tile is not None else loop.max_trip if loop.kind in ("unroll", "vector") else None
