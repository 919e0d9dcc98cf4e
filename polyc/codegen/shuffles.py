"""Strided and transposed access by whole rows: contiguous loads and stores with shuffles between them.

A gather costs about one load per lane.  Where the lanes are a few elements apart, or where a block of lanes and unrolled
copies covers whole rows, contiguous accesses and two-source shuffles do the same work several times faster.  Nothing outside
the elements asked for is touched: the last part of a strided load ends at its last element.
"""

from __future__ import annotations

from polyc.codegen import vectors
from polyc.codegen.builder import Function, Val, zero_val
from polyc.ir.types import DType
from polyc.target import Target

MAX_STRIDE = 4
"""Elements between lanes up to which all elements in between are loaded."""


def is_small_stride(target: Target, dtype: DType, step: int, is_masked: bool) -> bool:
    """Whether lanes `step` bytes apart are accessed through all elements in between; `is_masked`: not all may be."""
    if step % dtype.itemsize or not 2 <= abs(step) // dtype.itemsize <= MAX_STRIDE:
        return False
    return target.has_masks or not is_masked


def load_strided(
    fn: Function, dtype: DType, pointer: Val, lanes: int, stride: int, mask: Val | None, epoch: str, other: Val | None = None
) -> Val:
    """Every `stride`-th element (2 … 4, or down) from `pointer`; inactive lanes give `other` (or 0)."""
    reach = abs(stride)
    places = [lane * reach for lane in range(lanes)]
    if stride < 0:
        places.reverse()
        pointer = vectors.offset_pointer(fn, pointer, -places[0] * dtype.itemsize)
    starts = [part * lanes for part in range(reach - 1)] + [(reach - 1) * (lanes - 1)]
    total: Val | None = None
    chosen: dict[int, int] = {}
    for number, start in enumerate(starts):
        inside = {lane: place - start for lane, place in enumerate(places) if min(place // lanes, reach - 1) == number}
        part_mask = None
        if mask is not None:
            owner = {place: lane for lane, place in inside.items()}
            part_mask = fn.shuffle(mask, zero_val("i1", lanes), [owner.get(e, lanes) for e in range(lanes)])
        first = vectors.offset_pointer(fn, pointer, start * dtype.itemsize)
        part = vectors.load_contiguous(fn, dtype, first, lanes, part_mask, epoch)
        if total is None:
            total, chosen = part, inside
            continue
        picks = [lanes + inside[lane] if lane in inside else chosen.get(lane, -1) for lane in range(lanes)]
        total = fn.shuffle(total, part, picks)
        chosen = {lane: lane for lane in chosen | inside}  # from the first shuffle on, lanes are in their places
    assert total is not None
    if mask is not None and other is not None and other != zero_val(other.type, other.lanes):
        total = fn.select(mask, total, other)
    return total


def store_strided(fn: Function, dtype: DType, pointer: Val, value: Val, stride: int, mask: Val | None) -> None:
    """Every `stride`-th element (2 … 4, or down) from `pointer`, by masked stores of whole parts."""
    lanes, reach = value.lanes, abs(stride)
    value = vectors.to_memory(fn, value)
    places = [lane * reach for lane in range(lanes)]
    if stride < 0:
        places.reverse()
        pointer = vectors.offset_pointer(fn, pointer, -places[0] * dtype.itemsize)
    active = mask if mask is not None else fn.splat(Val("true", "i1"), lanes)
    for start in range(0, reach * lanes, lanes):
        owner = {place - start: lane for lane, place in enumerate(places) if 0 <= place - start < lanes}
        spread = fn.shuffle(value, None, [owner.get(e, -1) for e in range(lanes)])
        part_mask = fn.shuffle(active, zero_val("i1", lanes), [owner.get(e, lanes) for e in range(lanes)])
        first = vectors.offset_pointer(fn, pointer, start * dtype.itemsize)
        vectors.store_contiguous(fn, dtype, first, spread, part_mask)
