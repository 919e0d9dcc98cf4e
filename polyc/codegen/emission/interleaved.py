"""Stores whose lanes lie between each other's: whole vectors of them, put together in registers.

Before: ``vector j { Y[2j] = a ; Y[2j+1] = b }``, each of which stores every second element, under masks or lane by lane.
After: both values, interleaved, and two contiguous stores; at the end of a loop under masks that are interleaved, too.
"""

from __future__ import annotations

from polyc.code_limits import MAX_STRIDE, WORD
from polyc.codegen.emission.accesses import element_pointer
from polyc.codegen.emission.context import Context, State, byte_offset
from polyc.codegen.emission.expressions import eval_value
from polyc.codegen.emission.linear import Linear, constant_of, split_lane
from polyc.codegen.emission.predicates import as_mask, eval_predicates
from polyc.codegen.writer import shuffles, vectors
from polyc.ir.expr import reads
from polyc.ir.loops import Node, Store


def find_interleaved(state: State, ctx: Context, body: tuple[Node, ...]) -> dict[int, Store]:
    """The stores that `body` begins with, by their place among the elements of each step, if together they fill vectors; none
    where they do not, or where one could read what another one writes."""
    first = body[0]
    if ctx.lane is None or not isinstance(first, Store) or state.by_name[first.buffer].space == "register":
        return {}
    stride, start = _place(state, ctx, first)
    count = 0 if stride is None else stride // state.by_name[first.buffer].dtype.itemsize
    if not 2 <= count <= min(len(body), MAX_STRIDE):
        return {}
    buffer = state.by_name[first.buffer]
    if buffer.dtype.itemsize < WORD and not state.target.has_masks and eval_predicates(state, ctx) != (None, None):
        return {}
    near = {buffer.name, *buffer.may_alias, *(b.name for b in state.nest.buffers if buffer.name in b.may_alias)}
    found: dict[int, Store] = {}
    for node in body[:count]:
        if not isinstance(node, Store) or node.buffer != first.buffer or node.streamed:
            return {}
        if any(r.tensor in near for r in reads(node.value)):
            return {}
        step, place = _place(state, ctx, node)
        if step != stride or _without_constant(place) != _without_constant(start):
            return {}
        found[place.get((), 0) - start.get((), 0)] = node
    places = sorted(found)
    item = buffer.dtype.itemsize
    if stride != count * item or [p - places[0] for p in places] != [item * n for n in range(count)]:
        return {}
    return {n: found[place] for n, place in enumerate(places)}


def emit_interleaved(state: State, ctx: Context, stores: dict[int, Store]) -> None:
    """Emit stores that `find_interleaved` has found: all of their values, then whole vectors of them."""
    fn, buffer = state.fn, state.by_name[stores[0].buffer]
    values = {n: fn.splat(eval_value(state, ctx, node.value), ctx.lanes) for n, node in stores.items()}
    for node in stores.values():
        state.invalidate(ctx, buffer.name, node.subscripts)
    pointer = element_pointer(state, ctx, buffer, _place(state, ctx, stores[0])[1])
    guard = eval_predicates(state, ctx)
    parts = shuffles.interleave(fn, [values[n] for n in range(len(values))])
    places = [vectors.offset_pointer(fn, pointer, n * ctx.lanes * buffer.dtype.itemsize) for n in range(len(parts))]
    if guard[1] is None and not state.target.has_masks:
        with fn.when(guard[0]):
            for place, part in zip(places, parts, strict=True):
                vectors.store_contiguous(fn, buffer.dtype, place, part, None)
        return
    mask = as_mask(state, ctx, guard)
    for number, (place, part) in enumerate(zip(places, parts, strict=True)):
        active = None if mask is None else shuffles.interleaved_mask(fn, state.target, mask, len(parts), number)
        place = vectors.pointer_or_spare(fn, guard[0], place) if state.target.has_masks else place
        vectors.store_contiguous(fn, buffer.dtype, place, part, active)


def _place(state: State, ctx: Context, node: Store) -> tuple[int | None, Linear]:
    """Bytes from lane to lane, if that is a number, and where lane 0 lies."""
    split = split_lane(byte_offset(ctx, state.by_name[node.buffer], node.subscripts), ctx.lane)
    return (None, {}) if split is None else (constant_of(split[1]), dict(split[0]))


def _without_constant(place: Linear) -> Linear:
    return {atom: factor for atom, factor in place.items() if atom != ()}
