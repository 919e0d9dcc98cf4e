"""Turn arrays of pixels: blocks of each channel are turned first, and then interleaved.

Before: ``for y { for c < 3 { vector x { Y[x, y, c] = X[c, y, x] } } }``.
After: ``for y by 32 { for x by 16 { for c < 3 { for x' < 16 { vector y' < 32 { B[x', c, y'] = X[c, y + y', x + x'] } } }
for x' < 16 { for c < 3 { vector y' < 32 { Y[x + x', y + y', c] = B[x', c, y'] } } } } }``.

The elements that follow each other in the result are of few channels and then of rows that lie across the operand: vectors
along either hit every third element or every row.  The first loops become blocks that are turned in registers, the second
ones vectors that are interleaved (`transposes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.codegen.nests.copies import copy_nest
from polyc.codegen.nests.staging import is_plain, trip_count
from polyc.codegen.nests.transposes import MAX_COLUMNS, MAX_INTERLEAVED, MIN_LANES, ROW_BYTES
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Expr, Index, Read, int_const, mentions, reads
from polyc.ir.loops import Buffer, Loop, Node, Store
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, rewrite_nodes
from polyc.records import dataclass, replace

_Make = Callable[[Expr, int], Body]

VECTORS = 1
"""Vectors of pixels in a block."""


@dataclass(frozen=True, slots=True)
class _Pixels:
    """A copy to pixels: `others` outside, and the loops over `channels`, over pixels that follow each other in the result
    (`along`), and over elements that follow each other in an operand (`across`)."""

    others: tuple[Loop, ...]
    channels: Loop
    along: Loop
    across: Loop
    store: Store


def turn_pixels(body: Body, buffers: tuple[Buffer, ...]) -> tuple[Body, tuple[Buffer, ...]]:
    """The nest with copies to pixels that lie across their operand in blocks, and its buffers."""
    by_name = {b.name: b for b in buffers}
    made: dict[str, Buffer] = {}

    def turn(node: Node, scope: Scope) -> Node | Body | None:
        nest = copy_nest(node, by_name)
        if nest is None:
            return None
        found = _find_pixels(*nest, by_name)
        if found is not None:
            block = _make_block(found, by_name[found.store.buffer])
            if made.setdefault(block.name, block) == block:
                return _in_blocks(found, block)
        return node

    body = rewrite_nodes(body, turn)
    return body, (*buffers, *made.values())


def _find_pixels(loops: list[Loop], store: Store, buffers: Mapping[str, Buffer]) -> _Pixels | None:
    target, place = buffers[store.buffer], Read(store.buffer, store.subscripts)
    motions = {n.var: stride_of(place, target, n.var) for n in loops}
    trips = {n.var: trip_count(n) for n in loops}
    size = target.dtype.itemsize
    across = next((n for n in loops if n.kind == "vector" and n.lanes >= MIN_LANES), None)
    channels = next((n for n in loops if motions[n.var] == size and 2 <= trips[n.var] <= MAX_INTERLEAVED), None)
    if across is None or channels is None or across is channels:
        return None
    pixel = size * trips[channels.var]
    along = next((n for n in loops if motions[n.var] == pixel and n is not channels and trips[n.var] >= MIN_LANES), None)
    if along is None or along is across:
        return None
    inner = (channels, along, across)
    if any(not is_plain(n, motions, trips) for n in inner):
        return None
    if any(mentions(e, n.var) for other in loops for e in (other.lower, other.upper) for n in inner):
        return None
    for read in reads(store.value):
        source = buffers[read.tensor]
        step = stride_of(read, source, along.var)
        if stride_of(read, source, across.var) == source.dtype.itemsize and (step is None or abs(step) > source.dtype.itemsize):
            return _Pixels(tuple(n for n in loops if n not in inner), channels, along, across, store)
    return None


def _make_block(pixels: _Pixels, target: Buffer) -> Buffer:
    size = target.dtype.itemsize
    n_across, n_along = min(MAX_COLUMNS, ROW_BYTES // size), VECTORS * pixels.across.lanes
    shape = (n_across, trip_count(pixels.channels), n_along)
    strides = (shape[1] * n_along * size, n_along * size, size)
    shape_, strides_ = (tuple(map(int_const, numbers)) for numbers in (shape, strides))
    return Buffer(f"{target.name}.pixels", target.dtype, shape_, strides_, "thread")


def _in_blocks(pixels: _Pixels, block: Buffer) -> Body:
    n_across, n_along = min(MAX_COLUMNS, ROW_BYTES // block.dtype.itemsize), VECTORS * pixels.across.lanes

    def inside(y: Expr, n_y: int) -> Body:
        return _cut(pixels.across, n_across, lambda x, n_x: _turn_block(pixels, block, (y, n_y), (x, n_x)))

    body = _cut(pixels.along, n_along, inside)
    for loop in reversed(pixels.others):
        body = (replace(loop, body=body),)
    return body


def _cut(loop: Loop, size: int, make: _Make) -> Body:
    """The iterations of `loop` by `size`, and what is left of them; `make` is given where a part begins, and its length."""
    trip, variable = trip_count(loop), f"{loop.var}_group"
    whole = trip - trip % size
    parts: Body = ()
    if whole:
        parts = (Loop(variable, int_const(0), int_const(whole), size, "serial", make(Index(variable), size)),)
    return (*parts, *make(int_const(whole), trip - whole)) if trip > whole else parts


def _turn_block(pixels: _Pixels, block: Buffer, along: tuple[Expr, int], across: tuple[Expr, int]) -> Body:
    (y, n_y), (x, n_x) = along, across
    names: dict[str, Expr] = {
        pixels.along.var: simplify(y + Index(pixels.along.var)),
        pixels.across.var: simplify(x + Index(pixels.across.var)),
    }
    store = with_values(pixels.store, names)
    place = tuple(Index(n.var) for n in (pixels.across, pixels.channels, pixels.along))
    rows = replace(pixels.across, upper=int_const(n_x), kind="serial", lanes=1, interleave=1, max_trip=None)
    lanes = pixels.across.lanes
    vector = replace(pixels.along, upper=int_const(n_y), kind="vector", lanes=lanes, interleave=1, max_trip=n_y)
    channels = replace(pixels.channels, kind="serial", max_trip=None)
    put = replace(store, buffer=block.name, subscripts=place)
    take = replace(store, value=Read(block.name, place))
    first = replace(channels, body=(replace(rows, body=(replace(vector, body=(put,)),)),))
    second = replace(rows, body=(replace(channels, body=(replace(vector, body=(take,)),)),))
    return first, second
