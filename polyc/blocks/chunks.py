"""Chunks of results from those of inputs: a block ends where what it needs of a chunked input ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import accumulate, pairwise
from math import prod

from polyc.blocks.plan import Chunks, evaluate_all, name_axes
from polyc.blocks.programs import keep_results
from polyc.ir.expr import size_names
from polyc.ir.program import Program
from polyc.poly.block_model import make_model
from polyc.poly.block_regions import BlockClass, Widened, derive_class
from polyc.poly.ranges import Interval, Ranges


def propose_chunks(
    program: Program,
    ranges: Ranges,
    sizes: Mapping[str, int],
    results: Sequence[str],
    shape: Sequence[int],
    inputs: Mapping[str, Chunks],
    n_alone: int = 0,
) -> tuple[Chunks, tuple[Widened, ...]]:
    """Chunks for `results` of one `shape`, where no extent is 0, and what of tensors each block needs all of; `inputs` are the
    chunks of arrays that have any.

    A dimension is cut as the largest array that moves with it is: where the middle of what an element needs passes from one
    chunk to the next.  One that moves with no chunked dimension stays whole, and so does each of the first `n_alone` where the
    dimension of the array moves with another one as well (a window's index)."""
    program = keep_results(program, results)
    trial: Chunks = tuple((1,) * min(n, 2) for n in shape)  # only to have axes
    axes = name_axes(program, trial)
    model = make_model(program, ranges, results, axes)
    example = dict(sizes)
    for axis, extent in zip(axes, shape, strict=True):
        if axis is not None:
            example[axis.first], example[axis.count] = extent // 2, 1
    found = derive_class(model, example)
    chunks: list[tuple[int, ...]] = []
    for d, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        others = {a.first for a in axes if a is not None and a is not axis} if d < n_alone else set()
        place = None if axis is None else _find_chunked(found, axis.first, others, inputs)
        if axis is None or place is None:
            chunks.append((extent,))
        else:
            interval = found.tensors[place[0]][place[1]]
            middle = partial(_middle, interval, example, axis.first)
            lengths = inputs[place[0]][place[1]]
            if sum(lengths) == extent and middle(1) - middle(0) == 2:  # a window around the element, whatever its sides
                chunks.append(lengths)
            else:
                chunks.append(_cut(extent, [2 * e for e in accumulate(lengths)][:-1], middle))
    return tuple(chunks), found.widened


def _find_chunked(found: BlockClass, first: str, others: Set[str], inputs: Mapping[str, Chunks]) -> tuple[str, int] | None:
    """The dimension of an array in several chunks that moves with an axis of the results, of the largest such array; None where
    one of them moves with one of `others`, too."""
    places = [
        (prod(sum(c) for c in chunks), len(chunks[d]), name, d)
        for name, chunks in inputs.items()
        for d, interval in enumerate(found.tensors.get(name, ()))
        if len(chunks[d]) > 1 and first in size_names(interval.lower)
    ]
    if any(not others.isdisjoint(size_names(found.tensors[name][d].lower)) for _, _, name, d in places):
        return None
    best = max(places, key=lambda p: (p[0], p[1]), default=None)
    return None if best is None else (best[2], best[3])


def _middle(interval: Interval, example: Mapping[str, int], name: str, first: int) -> int:
    """Twice the middle of what the element at `first` needs."""
    values = {**example, name: first}
    return int(2 * evaluate_all(interval.lower, values) + evaluate_all(interval.extent, values) - 1)


def _cut(extent: int, ends: Sequence[int], middle: Callable[[int], int]) -> tuple[int, ...]:
    """Chunks of 0:extent that end where the monotone function `middle` passes one of `ends`."""
    is_rising = middle(extent - 1) >= middle(0)
    bounds = {0, extent}
    for end in ends:
        low, high = 0, extent
        while low < high:
            at = (low + high) // 2
            has_passed = middle(at) >= end if is_rising else middle(at) < end
            low, high = (low, at) if has_passed else (at + 1, high)
        bounds.add(low)
    ordered = sorted(bounds)
    return tuple(b - a for a, b in pairwise(ordered))
