"""Blocks for transposing copies: the loop along contiguous memory becomes short and moves inside the vector loop.

Before: ``for k { vector j { P[k, j] = B[j, k] } }``, where each vector of B is gathered from as many rows.
After: ``for k0 step 16 { vector j { unroll k1 < 16 { P[k0 + k1, j] = B[j, k0 + k1] } } }`` and the rest of k: the emitter loads
whole rows of B and transposes them in registers.

The rest joins the last block where the extent is a constant, unless the vectors of both together are too many to be expanded.
Of other extents the last block is moved back to end with the loop, and those below one block are put together from blocks of 8,
4, 2 and 1.  Tiles of results of any size that are whole have nests of their own, in which `prefetch_blocks` asks for the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.code_limits import FULL_ROW, MAX_ITEMS, MAX_STRIDE, MINIMUM_LANES
from polyc.codegen.nests.copies import copy_nest, lies_across, strides_of, trip_count
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Const, Expr, Index, all_hold, ge, int_const, lt, operands_of, reads
from polyc.ir.loops import Buffer, If, Loop, LoopKind, LoopNest, Node, Store, do_bounds_depend, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, make_nest, rewrite_nest
from polyc.machine.memory import LINE
from polyc.records import replace


def block_transposes(nest: LoopNest, streamed: frozenset[str] = frozenset()) -> LoopNest:
    """Strip-mine loops of copies along which a vector loop reads contiguously, and move the strips inside it.

    Blocks that write `streamed` results are no longer than their vectors: a line that is written by several vectors is then
    complete before the processor's buffers for such lines are full (docs/decisions/0420)."""
    by_name = {b.name: b for b in nest.buffers}

    def block(node: Node, scope: Scope) -> Body | None:
        copy = copy_nest(node, by_name)
        return None if copy is None else _block_copy(*copy, by_name, streamed)

    return rewrite_nest(nest, block)


def _block_copy(loops: list[Loop], store: Store, buffers: Mapping[str, Buffer], streamed: frozenset[str]) -> Body | None:
    """The copy in blocks; None if nothing in it lies across the vectors, or the loops cannot be brought into order."""
    vector = next((loop for loop in loops if loop.kind == "vector"), None)
    if vector is None or vector.lanes < MINIMUM_LANES:
        return None
    if (short := _find_interleaved(loops, vector, store, buffers)) is not None:
        return _interleave(loops, vector, short, store)
    loops = _turn(loops, vector, store, buffers)
    loops = [_narrow(loop) if loop.kind == "vector" else loop for loop in loops]
    vector = next(loop for loop in loops if loop.kind == "vector")
    along, itemsize = _loop_along(loops, vector, store, buffers)
    if along is None:
        return None
    first, last = sorted((loops.index(along), loops.index(vector)))
    if last + 1 < len(loops) or do_bounds_depend(loops[first + 1 :], along.var, vector.var):
        return None
    block = min(FULL_ROW, LINE // itemsize)
    if store.buffer in streamed:
        block = min(block, vector.lanes)
    others, inside = [loop for loop in loops if loop is not along and loop is not vector], list[Loop]()
    if others and along.kind == "serial" and _goes_on(others[-1], along, vector, store, buffers):
        others, inside = others[:-1], others[-1:]
    body = _strip_mine(along, vector, store, block, inside)
    if buffers[store.buffer].space == "argument" and (whole := _whole_tiles(along, vector)) is not None:
        condition, lines, across = whole
        body = (If(condition, _strip_mine(lines, across, store, block, inside), body),)
    return make_nest(others, body)


def _whole_tiles(along: Loop, vector: Loop) -> tuple[Expr, Loop, Loop] | None:
    """When a tile is whole, and both loops over it then: the next tile can be asked for.  None where that is known."""
    conditions: list[Expr] = []
    found: list[Loop] = []
    for loop in (along, vector):
        ends = operands_of(loop.upper, "min")
        size = next((e for e in ends if isinstance(e, Const)), None)
        if size is None or (len(ends) > 1 and loop.lower != int_const(0)):
            return None
        conditions += [ge(e, size) for e in ends if e is not size]
        found.append(replace(loop, upper=size))
    return (all_hold(conditions), found[0], found[1]) if conditions else None


def _goes_on(loop: Loop, along: Loop, vector: Loop, store: Store, buffers: Mapping[str, Buffer]) -> bool:
    """Whether `loop` goes on with a line of the result of which `vector` writes a part."""
    target = buffers[store.buffer]
    written = 0 if vector.max_trip is None else vector.max_trip * target.dtype.itemsize
    if loop.kind != "serial" or not 0 < written < LINE or do_bounds_depend((along, vector), loop.var):
        return False
    return stride_of(store, target, loop.var) == written


def _narrow(vector: Loop) -> Loop:
    """A vector loop with no more lanes than the power of two from its iterations on, where these are less than a vector."""
    trip = vector.max_trip
    if trip is None or vector.upper != int_const(trip) or not 0 < trip <= vector.lanes // 2:
        return vector
    return replace(vector, lanes=max(MINIMUM_LANES, 1 << (trip - 1).bit_length()))


def _find_interleaved(loops: list[Loop], vector: Loop, store: Store, buffers: Mapping[str, Buffer]) -> Loop | None:
    """The loop over a few neighbouring elements that vectors of the store lie apart, as red, green and blue of pixels do."""
    target = buffers[store.buffer]
    size = target.dtype.itemsize
    if do_bounds_depend(loops[loops.index(vector) + 1 :], vector.var):
        return None
    for loop in loops:
        count, strides = trip_count(loop), strides_of(store, target, (loop, vector))
        is_short = loop.kind in ("serial", "unroll") and loop.step == 1 and 2 <= count <= MAX_STRIDE
        if is_short and strides == {loop.var: size, vector.var: count * size} and not do_bounds_depend(loops, loop.var):
            return loop
    return None


def _interleave(loops: list[Loop], vector: Loop, short: Loop, store: Store) -> Body:
    """The nest with `short` expanded inside of `vector`, which comes last."""
    count = trip_count(short)
    is_small = vector.max_trip is not None and -(-vector.max_trip // vector.lanes) * count <= MAX_ITEMS
    others = [loop for loop in loops if loop is not vector and loop is not short]
    vector = replace(vector, interleave=1, max_trip=vector.max_trip if is_small else None)
    return make_nest([*others, vector, replace(short, kind="unroll", max_trip=count)], (store,))


def _turn(loops: list[Loop], vector: Loop, store: Store, buffers: Mapping[str, Buffer]) -> list[Loop]:
    """The loops with the vectors along the memory of the store, where they lie across it and along the memory of a read.

    A vector loop keeps its number of lanes; loops of less than `MINIMUM_LANES` iterations stay as they are."""
    target = buffers[store.buffer]
    for loop in reversed(loops):
        if loop.kind not in ("serial", "unroll") or loop.step != 1 or not lies_across(store, target, loop.var, vector.var):
            continue
        if not any(lies_across(r, buffers[r.tensor], vector.var, loop.var) for r in reads(store.value)):
            continue
        trip = trip_count(loop) or None
        if trip is not None and trip < MINIMUM_LANES:
            continue
        turned = {
            loop.var: replace(loop, kind="vector", lanes=vector.lanes, max_trip=trip),
            vector.var: replace(vector, kind="serial", lanes=1, interleave=1, max_trip=None),
        }
        return [turned.get(other.var, other) for other in loops]
    return loops


def _loop_along(loops: list[Loop], vector: Loop, store: Store, buffers: Mapping[str, Buffer]) -> tuple[Loop | None, int]:
    """The loop that reads along memory while the vector loop reads across, and the bytes of an element (the widest such)."""
    best: tuple[Loop | None, int] = (None, 0)
    for loop in reversed(loops):
        # Threads may share the rows of a copy that has no other loop: its blocks then.
        is_shared = loop.kind == "parallel" and len(loops) == 2
        if (loop.kind not in ("serial", "unroll") and not is_shared) or loop.step != 1:
            continue
        across = [b for r in reads(store.value) if lies_across(r, b := buffers[r.tensor], loop.var, vector.var)]
        itemsize = max((b.dtype.itemsize for b in across), default=0)
        if itemsize > best[1]:
            best = loop, itemsize
    return best


def _strip_mine(along: Loop, vector: Loop, store: Store, block: int, inside: Sequence[Loop]) -> Body:
    """``for along { vector { store } }`` in blocks of `block` iterations of `along`, each in the loops `inside`."""
    lower, upper, name = along.lower, along.upper, f"{along.var}_0"
    trip = simplify(upper - lower)
    kind: LoopKind = "parallel" if along.kind == "parallel" else "serial"
    whole = replace(along, var=name, step=block, kind=kind, max_trip=None, least_part=-(-along.least_part // block))

    def single(start: Expr, count: int) -> Node:
        (node,) = make_nest(inside, (_unroll(vector, store, along.var, simplify(start), count),))
        return node

    def strips(end: Expr) -> Loop:
        return replace(whole, upper=end, body=(single(Index(name), block),))

    if isinstance(trip, Const):
        n = int(trip.value)
        if n < 2 * block:
            return (single(lower, n),) if n > 0 else ()
        n_whole = n // block - (1 if n % block and (not _fits(vector, block) or _fits(vector, block + n % block)) else 0)
        middle = simplify(lower + n_whole * block)
        return (strips(middle), single(middle, n - n_whole * block)) if n % block else (strips(middle),)
    middle = simplify(upper - trip % block)
    last = If(lt(middle, upper), (single(upper - block, block),))
    # Where the extent is below one block, its binary digits say which sizes there are, the largest first.
    sizes = [1 << k for k in reversed(range(block.bit_length() - 1))]
    few = tuple(If(ge(trip % (2 * n), n), (single(upper - trip % (2 * n), n),)) for n in sizes)
    return (If(ge(trip, block), (strips(middle), last), (If(lt(lower, upper), few),)),)


def _fits(vector: Loop, count: int) -> bool:
    """Whether all vectors of a block of `count` columns are expanded."""
    trip = known_length(vector) if vector.lower == int_const(0) else None
    return trip is not None and -(-trip // vector.lanes) * count <= MAX_ITEMS


def _unroll(vector: Loop, store: Store, variable: str, start: Expr, count: int) -> Loop:
    """`vector` around `count` copies of the store, for `variable` from `start` on."""
    names = {variable: start if count == 1 else simplify(start + Index(variable))}
    store = with_values(store, names)
    trip = known_length(vector) if vector.lower == int_const(0) else None
    vector = replace(vector, max_trip=trip if _fits(vector, count) else None, interleave=1)
    if count == 1:
        return replace(vector, body=(store,))
    copies = Loop(variable, int_const(0), int_const(count), 1, "unroll", (store,), max_trip=count)
    return replace(vector, body=(copies,))
