"""Estimated cycles of a sum of products under a choice of vector, register tile and copies, on one core.

Rough on purpose: it only has to rank choices.  Constants were measured on the kernels that they rank; what depends on the
machine comes from `Target`.  Each function returns cycles unless its name says bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from polyc.target import Target

TRANSPOSING_COPY, PLAIN_COPY, SCATTERED_COPY = 0.45, 0.15, 3.0
"""Per element of a copy: through register transposes, along memory on both sides, one element at a time."""

COPY_START = 150
"""For the loops around a copy."""

TILE_START = 14
"""For addresses, first loads and the last additions of one register tile."""

TRANSPOSED_STORE = 40
"""Per vector of a tile whose rows, not lanes, are consecutive in memory: shuffles and masked stores of 16 rows."""

NEAR_STORE, FAR_STORE, FAR_STRIDE = 1.0, 4.0, 2048
"""Per element of a store along a longer stride, below and from that many bytes (sets of the cache collide)."""

L2_BYTES, L2_STRIDED_BYTES, L3_BYTES, L3_STRIDED_BYTES = 40.0, 26.0, 12.0, 5.0
"""Bytes per cycle of one core from each cache; strided: by lines that no prefetcher foresees."""

WRITE_BYTES, FAR_WRITE_BYTES = 8.0, 4.0
"""Bytes of results per cycle of one core that go to the last cache, and to memory: each line is read before it is written."""

LOAD = 0.02
"""What a load costs besides its port: between tiles of the same arithmetic the one with fewer loads is a little faster."""

LINE_STRADDLE = 0.1
"""Per vector that is read in place: arrays of others start anywhere in a cache line."""

PAGE = 4096
"""Bytes whose addresses choose the set of a first-level cache: that cache has one way for each so many bytes."""

BORDER_SLOWDOWN = 0.8
"""Part by which a tile with tests in it takes longer."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that one step of a register tile reads of an operand, and where they come from."""

    bytes: float
    rate: float
    """Bytes per cycle; infinite where the first-level cache holds them."""

    @property
    def cycles(self) -> float:
        return self.bytes / self.rate


def stream(bytes_per_step: float, footprint: float, target: Target, stride: int = 0, run: float = 0) -> Stream:
    """A stream over `footprint` bytes that is repeated; `stride`: bytes between steps where lines do not follow each other,
    `run`: bytes that one step reads in order."""
    if footprint <= 0.7 * target.l1 and not collides(footprint, stride, target.l1, target, run):
        return Stream(bytes_per_step, float("inf"))
    if footprint <= 0.7 * target.l2 and not collides(footprint, stride, target.l2, target, run):
        return Stream(bytes_per_step, L2_STRIDED_BYTES if run else L2_BYTES)
    return Stream(bytes_per_step, L3_STRIDED_BYTES if stride else L3_BYTES)


def collides(footprint: float, stride: int, size: int, target: Target, run: float = 0) -> bool:
    """Whether runs of lines that start `stride` bytes apart fall into so few sets of a cache that it cannot hold them."""
    if stride < target.cache_line:
        return False
    ways = max(8, target.l1 // PAGE) if size == target.l1 else 8
    sets = size // (ways * target.cache_line)
    step = 1 if stride % target.cache_line else gcd(stride // target.cache_line, sets)
    reached = sets // step * min(step, max(1, run // target.cache_line))
    return footprint / target.cache_line > 1.25 * reached * ways


def step_cycles(rows: int, vectors: int, target: Target, straddles: bool) -> float:
    """One step of the reduction in a register tile whose operands are in the first-level cache."""
    loads = vectors * (1.3 if straddles else 1.0) + rows
    return max(rows * vectors / target.fma_per_cycle, loads / 2, float(target.fma_latency)) + LOAD * loads


def store_cycles(rows: int, vectors: int, lanes: int, stride: int, row_stride: int, itemsize: int) -> float:
    """Writing a register tile; strides in elements along the lanes and along the rows (0: rows are not neighbours)."""
    if stride == 1:
        return 1.0 * rows * vectors
    if row_stride == 1 and rows >= 2:
        return TRANSPOSED_STORE * vectors * (1.0 if vectors <= 2 else 1.7)
    return rows * vectors * lanes * (FAR_STORE if stride * itemsize >= FAR_STRIDE else NEAR_STORE)


def write_cycles(footprint: float, run: float, target: Target) -> float:
    """Writing `footprint` bytes of results once, `run` bytes at a time: the line at an end of a run may be moved once more."""
    if footprint <= 0.7 * target.l2:
        return 0.0
    rate = WRITE_BYTES if footprint <= 0.7 * target.l3 else FAR_WRITE_BYTES
    return footprint * (1 + 0.5 * target.cache_line / run) / rate


def moved_cycles(footprint: float, target: Target) -> float:
    """Writing a copy of `footprint` bytes at once, and reading it again: nothing where the second-level cache keeps it."""
    written = write_cycles(footprint, footprint, target)
    return written + footprint / L3_BYTES if written else 0.0
