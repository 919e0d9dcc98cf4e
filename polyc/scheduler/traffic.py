"""The model of memory traffic behind all estimates: where bytes that are used again are found, and what it costs to move them.

Everything follows from a *footprint*: the bytes that are touched between two uses of one element.  The first level that has
room for them gives the element back; each level has rates, in bytes per cycle of one core, which were measured on the kernels
whose choices they decide.  `contraction` asks for streams of operands, `overlap_costs` and `distribute` for tensors that one
statement passes to the next.  Rough on purpose: it only has to rank choices.  Functions give cycles of one core unless their
name says bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from math import gcd

from polyc.target import Target


class Level(IntEnum):
    """Where bytes are found, nearest first."""

    L1 = 1
    L2 = 2
    L3 = 3
    MEMORY = 4


HELD = 0.7
"""Part of a cache that is left for what is used again: the rest streams past, or falls into sets that are full."""

L3_SHARE = 32 << 20
"""Most bytes that one core may count on in the last-level cache: virtual machines report that of the whole machine."""

READ = {Level.L1: float("inf"), Level.L2: 40.0, Level.L3: 12.0, Level.MEMORY: 12.0}
"""Bytes per cycle in order; loads from the first level are part of the arithmetic."""

READ_STRIDED = {Level.L1: float("inf"), Level.L2: 26.0, Level.L3: 5.0, Level.MEMORY: 5.0}
"""By lines that no prefetcher foresees."""

ASKED_AHEAD = {Level.L3: 20.0, Level.MEMORY: 8.0}
"""By lines that the steps of a sum ask for ahead (`codegen`'s `steps_ahead`): tiles of 4 x 4 vectors of 64 bytes, which read
five lines in 16 cycles, wait for hardly any of them."""

ASKED_LINES, ASKED_STEPS = 6, 64
"""Most lines of a step, and fewest steps, for which that is done."""

WRITTEN = {Level.L1: float("inf"), Level.L2: float("inf"), Level.L3: 8.0, Level.MEMORY: 4.0}
"""Bytes of results: each line is read before it is written, and goes back later.  Near caches take them meanwhile."""

PASSED = {Level.L1: float("inf"), Level.L2: 20.0, Level.L3: 6.0, Level.MEMORY: 10 / 3}
"""Bytes that one statement writes and another one reads: a line of memory moves three times."""

PAGE = 4096
"""Bytes whose addresses choose the set of a first-level cache: that cache has one way for each so many bytes."""


def room_bytes(level: Level, target: Target) -> float:
    """Bytes that stay in a cache until they are used again."""
    match level:
        case Level.L1:
            return HELD * target.l1
        case Level.L2:
            return HELD * target.l2
        case Level.L3:
            return min(HELD * target.l3, L3_SHARE)
        case Level.MEMORY:
            return float("inf")


def find_level(footprint: float, target: Target, stride: int = 0, run: float = 0) -> Level:
    """The level that holds `footprint` bytes.  `stride`: bytes between steps where lines do not follow each other, `run`: bytes
    that one step reads in order."""
    for level in Level:
        is_near = level <= Level.L2
        size = target.l1 if level is Level.L1 else target.l2
        if footprint <= room_bytes(level, target) and not (is_near and collides(footprint, stride, size, target, run)):
            return level
    raise AssertionError("memory holds everything")


def pass_cycles(size: float, between: float, target: Target) -> float:
    """Writing `size` bytes, and reading them again after `between` bytes."""
    return size / PASSED[find_level(between, target)]


def write_cycles(footprint: float, run: float, target: Target) -> float:
    """Writing `footprint` bytes of results once, `run` bytes at a time: the line at an end of a run may be moved once more."""
    return footprint * (1 + 0.5 * target.cache_line / run) / WRITTEN[find_level(footprint, target)]


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that one step of a register tile reads of an operand, and where they come from."""

    bytes: float
    rate: float
    """Bytes per cycle; infinite where the first-level cache holds them."""

    @property
    def cycles(self) -> float:
        return self.bytes / self.rate

    @property
    def far_cycles(self) -> float:
        """The same where they come from beyond the second-level cache, else 0."""
        return self.cycles if self.rate <= READ[Level.L3] else 0.0


def stream(bytes_per_step: float, footprint: float, target: Target, stride: int = 0, run: float = 0) -> Stream:
    """A stream over `footprint` bytes that is repeated; `stride` and `run` as in `find_level`."""
    level = find_level(footprint, target, stride, run)
    is_strided = bool(run if level <= Level.L2 else stride)
    return Stream(bytes_per_step, (READ_STRIDED if is_strided else READ)[level])


def asked_ahead(found: Stream, width: float, steps: int, size: float, target: Target) -> Stream:
    """The stream `found` of `width` bytes far apart in each of so many steps, over an operand of `size` bytes, where generated
    code asks for it ahead."""
    if not target.cache_line <= width <= ASKED_LINES * target.cache_line or steps < ASKED_STEPS or size <= target.l2:
        return found
    rate = ASKED_AHEAD[max(Level.L3, find_level(size, target))]
    return replace(found, rate=max(found.rate, rate))


def collides(footprint: float, stride: int, size: int, target: Target, run: float = 0) -> bool:
    """Whether runs of lines that start `stride` bytes apart fall into so few sets of a cache that it cannot hold them."""
    if stride < target.cache_line:
        return False
    ways = l1_ways(target) if size == target.l1 else 8
    sets = size // (ways * target.cache_line)
    step = 1 if stride % target.cache_line else gcd(stride // target.cache_line, sets)
    reached = sets // step * min(step, max(1, run // target.cache_line))
    return footprint / target.cache_line > 1.25 * reached * ways


def l1_ways(target: Target) -> int:
    """Lines that a set of the first-level cache holds."""
    return max(8, target.l1 // PAGE)


def lines_in_a_set(addresses: Iterable[int], target: Target) -> int:
    """The most of the lines at these addresses that fall into one set of the first-level cache."""
    lines = {a // target.cache_line for a in addresses}
    return max(Counter(line % (PAGE // target.cache_line) for line in lines).values(), default=0)
