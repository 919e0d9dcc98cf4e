"""What the regions of blocks meet: which chunks, which parts of them, and the tasks that cut these."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, repeat
from math import prod
from typing import Any

import numpy as np

from polyc.api.block_memory import Job, Jobs
from polyc.api.block_tasks import Box, Region, take_parts
from polyc.blocks.plan import Chunks, NotPlanned

SMALL = 8
"""Parts of a chunk that are cut by one task are together at most so great a part of it: all stay until the last is used."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a region meets along one dimension: for each chunk its number, the part of it that is taken (None: all), and the
    place of that in the region."""

    extent: int
    chunks: tuple[int, ...]
    taken: tuple[tuple[int, int] | None, ...]
    places: tuple[tuple[int, int], ...]


def split_regions(chunks: Chunks, box: Sequence[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[Meeting, ...]]:
    """For each block what its region meets along each dimension."""
    dimensions = [_split_dimension(lengths, low, extent) for lengths, (low, extent) in zip(chunks, box, strict=True)]
    return zip(*dimensions, strict=True) if dimensions else repeat(())


def _split_dimension(lengths: Sequence[int], lows: np.ndarray, extents: np.ndarray) -> list[Meeting]:
    ends = np.cumsum(np.array(lengths, dtype=np.int64)).tolist()
    known: dict[tuple[int, int], Meeting] = {}
    found = []
    for low, extent in zip(lows.tolist(), extents.tolist(), strict=True):
        if (low, extent) not in known:
            known[low, extent] = _meet_chunks(lengths, ends, low, extent)
        found.append(known[low, extent])
    return found


def _meet_chunks(lengths: Sequence[int], ends: Sequence[int], low: int, extent: int) -> Meeting:
    if extent and not 0 <= low <= low + extent <= ends[-1]:
        raise NotPlanned(f"a block whose sums have no terms needs the elements from {low} up to {low + extent}")
    k, at, high = bisect_right(ends, low), low, low + extent
    chunks: list[int] = []
    taken: list[tuple[int, int] | None] = []
    places: list[tuple[int, int]] = []
    while at < high:
        start, stop = ends[k] - lengths[k], min(ends[k], high)
        if stop > at:
            chunks.append(k)
            taken.append(None if (at, stop) == (start, ends[k]) else (at - start, stop - start))
            places.append((at - low, stop - low))
            at = stop
        k += 1
    return Meeting(extent, tuple(chunks), tuple(taken), tuple(places))


Source = tuple[Any, int | None, Box | None]
"""Where a part of a chunk is: the key of a task; which of the arrays that it gives, None where it gives one; and the part of
that, None where it is all."""


class Parts:
    """The parts of chunks that blocks need, each once for all blocks that need the same.

    Blocks take great parts from the chunk itself.  Others are cut, so that they do not keep the chunk in memory, nor are sent
    with it: small ones (halos) of a chunk by one task, each of the rest by one of its own."""

    def __init__(self, name: str, jobs: Jobs) -> None:
        self.name, self.jobs = name, jobs
        self.layer: dict[Any, Any] = {}
        self._known: dict[Any, Source] = {}
        self._regions: dict[Any, Region] = {}
        self._small: dict[Any, tuple[Any, list[Box], int]] = {}  # by chunk: the task that is filled, and elements left

    def meet(
        self, array: str, chunks: Chunks, itemsize: int, blocks: Iterable[tuple[Meeting, ...]]
    ) -> Iterator[tuple[Region, list[Any]]]:
        """For each block its region, and the keys of what is put together in it."""
        for meetings in blocks:
            sources: list[Source] = []
            for place, part in zip(product(*(m.chunks for m in meetings)), product(*(m.taken for m in meetings)), strict=True):
                key = (array, *place)
                if not any(part):
                    sources.append((key, None, None))
                else:
                    extents = [lengths[k] for lengths, k in zip(chunks, place, strict=True)]
                    sources.append(self._known.get((key, part)) or self._cut(key, part, extents, itemsize))
            taken = tuple((member, box) for _, member, box in sources)
            where = tuple((m.extent, m.places) for m in meetings), taken
            region = self._regions.get(where)
            if region is None:
                places = tuple(product(*(m.places for m in meetings)))
                region = self._regions[where] = Region(tuple(m.extent for m in meetings), places, taken)
            yield region, [key for key, _, _ in sources]

    def _cut(self, key: Any, part: Sequence[tuple[int, int] | None], extents: Sequence[int], itemsize: int) -> Source:
        box = tuple((0, n) if p is None else p for p, n in zip(part, extents, strict=True))
        whole, size = prod(extents), prod(stop - start for start, stop in box)
        source: Source
        if 2 * size > whole:
            source = key, None, box
        else:
            own, boxes, left = self._small.get(key, (None, [], 0))
            if own is None or left < size:
                own, boxes, left = (self.name, len(self.layer)), [], whole // SMALL
                self.layer[own] = take_parts, key, boxes
                self.jobs[own] = Job(0)
                if size <= left:
                    self._small[key] = own, boxes, left
            boxes.append(box)
            if own == self._small.get(key, (None,))[0]:
                self._small[key] = own, boxes, left - size
            self.jobs[own] = Job(self.jobs[own].result + size * itemsize)
            source = own, len(boxes) - 1, None
        self._known[key, part] = source
        return source
