"""Estimated cycles of a sum of products under a choice of vector, register tile and copies, on one core.

What streams through the caches is the matter of `traffic`.  Rough on purpose: it only has to rank choices.  Constants were
measured on the kernels that they rank; what depends on the machine comes from `Target`.  Each function returns cycles unless
its name says bytes.
"""

from __future__ import annotations

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

LOAD = 0.02
"""What a load costs besides its port: between tiles of the same arithmetic the one with fewer loads is a little faster."""

SHARPNESS = 7
"""Exponent of the mean in which arithmetic, loads and latency are the time of a step: what is not far below the longest of them
delays it, too.  AMD, Zen 4, vectors of 256 bits, where 8 accumulators just cover the latency: of the peak 4 x 2 vectors reach
0.91, 5 x 2 0.94, 6 x 2 and 4 x 3 0.98, 12 x 1 0.87 (13 loads for 12 products), 3 x 2 0.75; the mean is within 4 % of these."""

ROW_PARTS, LANE_PARTS = 3, 2
"""Parts of a tile in which code generation runs the rows, and the vectors, that the ends of loops leave of it."""

LINE_STRADDLE = 0.1
"""Per vector that is read in place: arrays of others start anywhere in a cache line."""

KNOWN_MASK, ROW_MASK = 0.2, 0.5
"""Per vector that is read in place under a constant mask, and under one for each part of a row."""

SMALL_STEPS = (2, 3, 4)
"""Elements between lanes that are read by whole vectors and shuffles."""

SHUFFLE = 0.5
"""Per vector."""

NOT_HIDDEN = 0.1
"""Part of the time that streams from beyond the second-level cache take which arithmetic does not hide: each row of a tile
starts anew, and other cores want the same cache."""

COPIED_ROW = 8.0
"""Per row of a copy that adds borders: its tests and the masks of its ends."""

BORDER_SLOWDOWN = 0.8
"""Part by which a tile with tests in it takes longer."""


def step_cycles(rows: int, vectors: int, broadcasts: int, loads: float, target: Target, straddles: bool) -> float:
    """One step of the reduction in a register tile whose operands are in the first-level cache."""
    n = loads * (1.3 if straddles else 1.0) + broadcasts
    waits = (rows * vectors / target.fma_per_cycle, n / target.loads_per_cycle, float(target.fma_latency))
    return float(sum(w**SHARPNESS for w in waits) ** (1 / SHARPNESS)) + LOAD * n


def partial_panels(rows: int, vectors: int, broadcasts: int, target: Target) -> list[float]:
    """By the vectors that the end of a loop leaves of a tile, from none to all but for a mask: their time as a part of that of
    the whole tile.  They run by halves, and what half of these have room for, by as many."""
    if not target.has_masks:  # all vectors are computed
        return [0.0] + [1.0] * vectors
    times = [step_cycles(rows, n, broadcasts, n, target, False) for n in range(1, vectors + 1)]
    size = -(-vectors // LANE_PARTS)

    def part(n: int) -> float:
        taken = size
        while taken > 1 and n <= -(-taken // LANE_PARTS):
            taken = -(-taken // LANE_PARTS)
        return times[taken - 1] / times[-1]

    found = [0.0]
    for n in range(1, vectors + 1):
        found.append(part(n) if n <= size else found[size] + found[n - size])
    return found


def store_cycles(rows: int, vectors: int, lanes: int, stride: int, row_stride: int, itemsize: int) -> float:
    """Writing a register tile; strides in elements along the lanes and along the rows (0: rows are not neighbours)."""
    if stride == 1:
        return 1.0 * rows * vectors
    if row_stride == 1 and rows >= 2:
        return TRANSPOSED_STORE * vectors * (1.0 if vectors <= 2 else 1.7)
    return rows * vectors * lanes * (FAR_STORE if stride * itemsize >= FAR_STRIDE else NEAR_STORE)
