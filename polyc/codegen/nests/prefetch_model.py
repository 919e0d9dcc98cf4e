"""What the prefetching policies know of a machine: latencies in iterations and bytes, and what its prefetchers follow.

Measured on one thread of AMD Zen 4 and Zen 5 (docs/decisions/0820); sizes of caches are those of the target.
"""

from __future__ import annotations

from polyc.target import Target

ROW_LINES = 8
"""Cache lines at the begin of a row that are requested; hardware goes on with a longer row by itself."""

MOST_ROWS_AHEAD = 64
PART_OF_L1, PART_OF_L2 = 4, 4
"""The parts of the two caches that what is requested and not used yet may take."""


def rows_ahead(size: int, target: Target) -> int:
    """How many iterations ahead their rows, `size` bytes for each, are requested."""
    return max(1, min(MOST_ROWS_AHEAD, target.l1 // PART_OF_L1 // max(1, size)))


# -- windows

MOST_STEP = 4
"""Elements from lane to lane up to which all elements in between are loaded."""

MOST_TERMS = 64
"""Terms of a sum for each element, above which arithmetic hides the latency."""

MOST_PIECES = 8
"""Pieces of rows that are requested in one iteration."""

LEAST_L1 = 48 << 10
"""The first-level cache of cores whose vectors of whole lines outrun their prefetcher (Zen 5)."""


def window_ahead(is_stepping: bool) -> tuple[int, int]:
    """How many bytes ahead what windows read is requested, and how many lines of it at most."""
    return (12288, 32) if is_stepping else (1536, ROW_LINES)


def follows_steps(target: Target) -> bool:
    """Whether hardware follows windows in steps as fast as they are computed."""
    return target.vector_bits // 8 >= target.cache_line and target.l1 < LEAST_L1


# -- steps of sums

STEPS_AHEAD = 16
"""Steps ahead: as many cycles as the third-level cache takes, in tiles of few products."""

LEAST_STEPS = 64
"""Steps of a sum below which most of what is requested is never read."""

STEP_LINES = 6
"""Cache lines of a step, one more instruction for each."""


def is_step(size: int, target: Target) -> bool:
    """Whether a step that reads so many bytes is worth requests."""
    return target.cache_line <= size <= STEP_LINES * target.cache_line


# -- rows that are read in several passes

LEAST_ROW = 512
"""Bytes of a row below which hardware is beyond its end before it is read."""

BYTES_AHEAD = 32 << 10
"""Bytes of whole rows that are requested ahead, one row at least."""


def is_row(size: int, target: Target) -> bool:
    """Whether the next row of so many bytes can wait in the second-level cache, and is not there already."""
    return LEAST_ROW <= size <= target.l2 // PART_OF_L2


def near_row(target: Target) -> int:
    """Bytes of rows that are worth a second request, to the first-level cache."""
    return target.l1 // 8


def short_row(target: Target) -> int:
    """Bytes of rows that a pass of little arithmetic requests."""
    return int(target.l1 * 0.75)


def near_array(target: Target) -> int:
    """Bytes of arrays that the last-level cache has plenty of room for: rows come to the first-level cache in time."""
    return target.l3 // 4


def held_array(target: Target) -> int:
    """Bytes of arrays that the last-level cache holds; from memory, hardware is faster than a pass of little arithmetic."""
    return target.l3 // 2


# -- panels and windows that are copied before tiles read them

LEAST_PANEL = 4096
"""Bytes of a panel below which requests cost as much as waiting."""

MOST_ROWS = 4
"""Rows that are requested at the same time, one more instruction for each in a step of a sum."""


def tiles_asking(size: int, target: Target) -> int:
    """How many of the last tiles, which read `size` bytes each, leave what they request in the second-level cache."""
    return max(1, target.l2 // 2 // max(1, size))


# -- blocks of transposing copies

BLOCKS_AHEAD = 8192
"""Bytes that are requested ahead: one block of this size, several of smaller ones."""

STRIPS_AHEAD = 12288
"""The same of strips of whole lines: the lines of two or three strips of 64 rows."""

ROWS_AHEAD = 4096
"""The same of blocks of whole rows, to either cache."""

NEXT_STRIPS = 2
"""Strips ahead of long rows that come to the first-level cache."""

FOLLOWED_ROWS = 16
"""Rows side by side that hardware follows."""
