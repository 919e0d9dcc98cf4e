"""Blocks of columns as long as the sizes of a call let them be, where a sum of any length reads them.

Before: ``for x < W by 1024 { for k < K by 6 { for t < min(W - x, 1024) by 64 { T(x + t) } } }``, each tile T a sum over c < C.
After: ``for B in B(C):B(C) + 1 { for x < W/B { for k < K by 6 { for t in x * B:min(W, x * B + B) by 64 { T(t) } } } }``,
where B is computed from C at the call: what a block of columns reads stays in the second-level cache while the tiles of all k
pass, and long rows of results are written one after the other.  A constant would be for one C, and a schedule tree has no tiles
of symbolic sizes.

Tiles keep the order that they have at each t, and no element that is written is accessed at two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polyc.ir.access import Access, accesses_in, expressions_in, writes_in
from polyc.ir.dependence import carries_dependence
from polyc.ir.expr import Const, Expr, Index, Select, gt, int_const, maximum, mentions, minimum
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, do_bounds_depend
from polyc.ir.simplify import simplify
from polyc.ir.walk import Scope, make_nest, perfect_nest, rewrite_nest, substitute_nodes
from polyc.machine import Level, Machine, Share
from polyc.records import replace


def fit_blocks(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with blocks for which the sizes of a call say how long they are, where these decide what a block reads."""
    buffers = {b.name: b for b in nest.buffers}

    def fit(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        loops = _find_blocks(node)
        return _fit(loops, buffers, target) if loops else None

    return rewrite_nest(nest, fit)


def _find_blocks(loop: Loop) -> tuple[Loop, ...]:
    """A loop over blocks, the loops inside of it, and the loop over the tiles of a block, if they hold nothing else."""
    if loop.step == 1 or loop.stream is not None or loop.lower != int_const(0):
        return ()
    loops, _ = perfect_nest(loop)
    for n, tiles in enumerate(loops[1:], 1):
        if tiles.kind != "serial" or tiles.registers:
            return ()
        is_inside = n > 1 and 1 < tiles.step < loop.step and loop.step % tiles.step == 0 and tiles.lower == int_const(0)
        if is_inside and tiles.upper == simplify(minimum(loop.upper - Index(loop.var), loop.step)):
            return loops[: n + 1]
        if do_bounds_depend((tiles,), loop.var):
            return ()
    return ()


def _fit(loops: tuple[Loop, ...], buffers: Mapping[str, Buffer], target: Machine) -> Loop | None:
    """The loop over blocks of a length that depends on sizes; None where it does not, or where tiles depend on each other."""
    blocks, *between, tiles = loops
    body = substitute_nodes(tiles.body, {tiles.var: Index(tiles.var) - Index(blocks.var)})
    if any(mentions(e, blocks.var) for e in expressions_in(body)):
        return None
    # Between two tiles that change places, the loops between may be at any iterations.
    accesses = list(accesses_in(body, Scope(tuple(between))))
    written = {a.buffer for a in accesses if a.is_write}
    if any(buffers[name].may_alias or buffers[name].space != "argument" for name in written):
        return None
    column = _bytes_of_column(tiles, between, [a for a in accesses if a.buffer not in written], buffers)
    if column is None or isinstance(column, Const) or carries_dependence(tiles, accesses, buffers):
        return None
    size, length = _block_size(blocks, tiles, column, target), Index(f"{blocks.var}.size")
    first = Index(blocks.var) * length
    outer = replace(blocks, upper=simplify(blocks.upper + length - 1) // length, step=1, least_part=min(blocks.least_part, 1))
    inner = replace(tiles, lower=first, upper=simplify(minimum(blocks.upper, first + length)))
    return Loop(length.name, size, simplify(size + 1), 1, "serial", make_nest((outer, *between, inner), body))


def _bytes_of_column(
    tiles: Loop, between: Sequence[Loop], read: Sequence[Access], buffers: Mapping[str, Buffer]
) -> Expr | None:
    """What sums read for a column of a block again and again, while a loop around its tiles passes that they do not move with:
    of the array of which that is most."""
    sizes: dict[Expr, None] = {}
    for access in read:
        moving = _moving(access.subscripts)
        if tiles.var in moving and not all(loop.var in moving for loop in between):
            size: Expr = int_const(buffers[access.buffer].dtype.itemsize)
            for loop in access.scope.loops[len(between) :]:
                if loop.kind == "serial" and loop.var in moving - _moving(
                    e for w in writes_in(loop.body) for e in w.subscripts
                ):
                    size = size * (loop.upper - loop.lower)
            sizes[simplify(size)] = None
    return maximum(*sizes) if sizes else None


def _moving(subscripts: Iterable[Expr]) -> set[str]:
    return {v for s in subscripts for v in index_coefficients(s) or ()}


def _block_size(blocks: Loop, tiles: Loop, column: Expr, target: Machine) -> Expr:
    """Columns of a block, whole tiles."""
    tile = maximum(column, 1) * tiles.step
    is_long = gt(tile, target.room(Level.L1, Share.HALF))
    panels, rows = (target.room(Level.L2, share) for share in (Share.HALF, Share.EIGHTH))
    room = Select(is_long, int_const(panels), int_const(rows))
    n_tiles: Expr = room // tile
    if blocks.kind == "parallel":
        share = blocks.upper // (tiles.step * target.threads.parts_per_core * target.cores)
        n_tiles = minimum(n_tiles, maximum(share, blocks.step // tiles.step))
    return simplify(maximum(n_tiles, 1) * tiles.step)
