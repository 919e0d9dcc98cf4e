"""Transpose copies to a few interleaved channels in two steps: blocks of each channel first, by way of a buffer.

Before: ``for y { for c < 3 { vector x { Y[x, y, c] = X[c, y, x] } } }``.
After: ``for y by 32 { for x by 16 { for c < 3 { for x' < 16 { vector y' < 32 { B[x', c, y'] = X[c, y + y', x + x'] } } }
for x' < 16 { for c < 3 { vector y' < 32 { Y[x + x', y + y', c] = B[x', c, y'] } } } } }``.

The elements that follow each other in the result are of few channels and then of rows that lie across the operand: vectors
along either hit every third element or every row.  The first loops become blocks that are transposed in registers, the second
ones vectors that are interleaved (`transposes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.code_limits import FULL_ROW, MAX_STRIDE, MINIMUM_LANES
from polyc.codegen.nests.buffers import row_major_strides
from polyc.codegen.nests.copies import copy_nest, is_plain, lies_across, strides_of, trip_count
from polyc.ir.access import with_values
from polyc.ir.expr import Expr, Index, Read, int_const, reads
from polyc.ir.loops import Buffer, Loop, LoopNest, Node, Store, do_bounds_depend
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import Body, Scope, make_nest, rewrite_nest
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class _Channels:
    """A copy to channels: `others` outside, and the loops over `channels`, over elements that follow each other in the result
    (`along`), and over those that follow each other in an operand (`across`); and a buffer for a block."""

    others: list[Loop]
    channels: Loop
    along: Loop
    across: Loop
    store: Store
    stage: Buffer


def transpose_channels(nest: LoopNest) -> LoopNest:
    """The nest with copies to channels that lie across their operand in blocks."""
    by_name = {b.name: b for b in nest.buffers}
    made: dict[str, Buffer] = {}

    def transpose(node: Node, scope: Scope) -> Node | Body | None:
        copy = copy_nest(node, by_name)
        found = None if copy is None else _find_channels(*copy, by_name)
        if found is not None and made.setdefault(found.stage.name, found.stage) == found.stage:
            return _in_blocks(found)
        return None if copy is None else node

    changed = rewrite_nest(nest, transpose)
    return replace(changed, buffers=(*nest.buffers, *made.values()))


def _find_channels(loops: list[Loop], store: Store, buffers: Mapping[str, Buffer]) -> _Channels | None:
    result = buffers[store.buffer]
    size = result.dtype.itemsize
    strides = strides_of(store, result, loops)
    across = next((n for n in loops if n.kind == "vector" and n.lanes >= MINIMUM_LANES), None)
    channels = next((n for n in loops if strides[n.var] == size and 2 <= trip_count(n) <= MAX_STRIDE), None)
    if across is None or channels is None or across is channels:
        return None
    pixel = size * trip_count(channels)
    along = next((n for n in loops if strides[n.var] == pixel and n is not channels and trip_count(n) >= MINIMUM_LANES), None)
    if along is None or along is across:
        return None
    inner = (channels, along, across)
    if not all(is_plain(n, strides[n.var]) for n in inner) or do_bounds_depend(loops, *(n.var for n in inner)):
        return None
    if not any(lies_across(r, buffers[r.tensor], across.var, along.var) for r in reads(store.value)):
        return None
    shape = tuple(int_const(n) for n in (min(FULL_ROW, LINE // size), trip_count(channels), across.lanes))
    stage = Buffer(f"{result.name}.pixels", result.dtype, shape, row_major_strides(shape, size), "thread")
    return _Channels([n for n in loops if n not in inner], channels, along, across, store, stage)


def _in_blocks(found: _Channels) -> Body:
    n_across, _, n_along = (constant_of(e) or 0 for e in found.stage.shape)

    def row_of_blocks(y: Expr, n_y: int) -> Body:
        return _cut(found.across, n_across, lambda x, n_x: _transpose_block(found, (y, n_y), (x, n_x)))

    return make_nest(found.others, _cut(found.along, n_along, row_of_blocks))


def _cut(loop: Loop, size: int, make: Callable[[Expr, int], Body]) -> Body:
    """The iterations of `loop` by `size`, and what is left of them; `make` is given where a part begins, and its length."""
    trip, variable = trip_count(loop), f"{loop.var}_group"
    whole = trip - trip % size
    parts: Body = ()
    if whole:
        parts = (Loop(variable, int_const(0), int_const(whole), size, "serial", make(Index(variable), size)),)
    return (*parts, *make(int_const(whole), trip - whole)) if trip > whole else parts


def _transpose_block(found: _Channels, along: tuple[Expr, int], across: tuple[Expr, int]) -> Body:
    (y, n_y), (x, n_x) = along, across
    names: dict[str, Expr] = {
        found.along.var: simplify(y + Index(found.along.var)),
        found.across.var: simplify(x + Index(found.across.var)),
    }
    store = with_values(found.store, names)
    place = tuple(Index(n.var) for n in (found.across, found.channels, found.along))
    rows = replace(found.across, upper=int_const(n_x), kind="serial", lanes=1, interleave=1, max_trip=None)
    vector = replace(found.along, upper=int_const(n_y), kind="vector", lanes=found.across.lanes, interleave=1, max_trip=n_y)
    channels = replace(found.channels, kind="serial", max_trip=None)
    put = replace(vector, body=(replace(store, buffer=found.stage.name, subscripts=place),))
    take = replace(vector, body=(replace(store, value=Read(found.stage.name, place)),))
    return replace(channels, body=(replace(rows, body=(put,)),)), replace(rows, body=(replace(channels, body=(take,)),))
