"""Blocks of columns as long as the sizes of a call let them be, where a sum of any length reads them.

Before: ``for x < W by 1024 { for k < K by 6 { for t < min(W - x, 1024) by 64 { T(x + t) } } }``, each tile T a sum over c < C.
After: ``for B in B(C):B(C) + 1 { for x < W/B { for k < K by 6 { for t in x * B:min(W, x * B + B) by 64 { T(t) } } } }``,
where B is computed from C at the call: what a block of columns reads stays in the second-level cache while the tiles of all k
pass, and long rows of results are written one after the other.  A constant would be for one C: for sums over 3 channels blocks
of 1024 are too short (64 results of 454×472: 7.2 ms, now 5.2; AMD, Zen 4), and for those over 256 they do not fit.

Tiles keep the order that they have at each t, and no element that is written is accessed at two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.ir.access import Access, accesses_in, expressions_in, writes_in
from polyc.ir.dependence import carries_dependence
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Select,
    gt,
    int_const,
    maximum,
    mentions,
    minimum,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, LoopNest, Node
from polyc.ir.simplify import simplify
from polyc.ir.walk import Scope, make_nest, perfect_nest, rewrite_nest, substitute_nodes
from polyc.machine import Level, Machine, Share
from polyc.records import dataclass, replace

BLOCKS_PER_CORE = 4
"""Blocks that are left for each core to share out, if they are no shorter than those that were planned."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A loop over blocks, the loops inside of it, and the loop over the tiles of a block."""

    blocks: Loop
    between: tuple[Loop, ...]
    tiles: Loop

    @property
    def around(self) -> tuple[Loop, ...]:
        return (self.blocks, *self.between, self.tiles)


def fit_blocks(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with blocks for which the sizes of a call say how long they are, where these decide what a block reads."""
    buffers = {b.name: b for b in nest.buffers}

    def fit(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        found = _find_blocks(node)
        return None if found is None else _fit(found, buffers, target)

    return rewrite_nest(nest, fit)


def _find_blocks(loop: Loop) -> _Blocks | None:
    """The tiles that a loop over blocks holds, and nothing else."""
    if loop.step == 1 or loop.stream is not None or loop.lower != int_const(0):
        return None
    (_, *inside), _ = perfect_nest(loop)
    for n, tiles in enumerate(inside):
        if tiles.kind != "serial" or tiles.registers:
            return None
        is_inside = n and 1 < tiles.step < loop.step and loop.step % tiles.step == 0 and tiles.lower == int_const(0)
        if is_inside and tiles.upper == simplify(minimum(loop.upper - Index(loop.var), loop.step)):
            return _Blocks(loop, tuple(inside[:n]), tiles)
        if mentions(tiles.lower, loop.var) or mentions(tiles.upper, loop.var):
            return None
    return None


def _fit(found: _Blocks, buffers: Mapping[str, Buffer], target: Machine) -> Loop | None:
    """The loop over blocks of a length that depends on sizes; None where it does not, or where tiles depend on each other."""
    blocks, tiles = found.blocks, found.tiles
    x, t = Index(blocks.var), Index(tiles.var)

    body = substitute_nodes(tiles.body, {tiles.var: t - x})
    if any(mentions(e, blocks.var) for e in expressions_in(body)):
        return None
    accesses = list(accesses_in(body))
    written = {a.buffer for a in accesses if a.is_write}
    if any(buffers[name].may_alias or buffers[name].space != "argument" for name in written):
        return None
    column = _bytes_of_column(found, [a for a in accesses if a.buffer not in written], buffers)
    if column is None or isinstance(column, Const):
        return None
    # Between two tiles that change places, the loops between may be at any iterations.
    if carries_dependence(tiles, list(accesses_in(body, Scope(found.between))), buffers):
        return None
    size, length = _block_size(found, column, target), Index(f"{blocks.var}.size")
    first = x * length
    last = minimum(blocks.upper, first + length)
    count = simplify(blocks.upper + length - 1) // length
    outer = replace(blocks, upper=count, step=1, least_part=min(blocks.least_part, 1))
    nest = make_nest((outer, *found.between, replace(tiles, lower=first, upper=simplify(last))), body)
    return Loop(length.name, size, simplify(size + 1), 1, "serial", nest)


def _bytes_of_column(found: _Blocks, read: Sequence[Access], buffers: Mapping[str, Buffer]) -> Expr | None:
    """What sums read for a column of a block again and again, while a loop around its tiles passes that they do not move with:
    of the array of which that is most."""
    sizes: list[Expr] = []
    for access in read:
        moving = {v for s in access.subscripts for v in _variables(s)}
        if found.tiles.var not in moving or all(loop.var in moving for loop in found.between):
            continue
        size: Expr = int_const(buffers[access.buffer].dtype.itemsize)
        for loop in (n for n in access.scope.loops if n.kind == "serial" and n.var in moving and _is_summed(n)):
            size = size * (loop.upper - loop.lower)
        sizes.append(simplify(size))
    distinct = list(dict.fromkeys(sizes))
    return maximum(*distinct) if distinct else None


def _variables(expr: Expr) -> set[str]:
    return set(index_coefficients(expr) or {})


def _is_summed(loop: Loop) -> bool:
    """Whether a loop inside of a tile moves nothing that is written."""
    return not any(loop.var in _variables(s) for w in writes_in(loop.body) for s in w.subscripts)


def _block_size(found: _Blocks, column: Expr, target: Machine) -> Expr:
    """Columns of a block, whole tiles."""
    blocks, tiles = found.blocks, found.tiles
    tile = maximum(column, 1) * tiles.step
    is_long = gt(tile, target.room(Level.L1, Share.HALF))
    panels, rows = (target.room(Level.L2, share) for share in (Share.HALF, Share.EIGHTH))
    room = Select(is_long, int_const(panels), int_const(rows))
    n_tiles: Expr = room // tile
    if blocks.kind == "parallel":
        share = blocks.upper // (tiles.step * BLOCKS_PER_CORE * target.cores)
        n_tiles = minimum(n_tiles, maximum(share, blocks.step // tiles.step))
    return simplify(maximum(n_tiles, 1) * tiles.step)
