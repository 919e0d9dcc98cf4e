"""Split the reduction of a statement with few results into partial results, so that threads and vectors have work.

Before: ``s += f[k]`` over K points.  After: ``p[c] += f[c*T + t]`` over chunks of T points, then ``s += p[c]``.
The chunk depends on sizes only, so the result is the same at any number of threads ("rfactor" in the literature:
Suriana, Adams, Kamil, "Parallel associative reductions in Halide", CGO 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.code_limits import CHUNK, ENOUGH_TASKS, MAX_PARTS, STREAM_ROWS
from polyc.ir.expr import Index, index_names, reads
from polyc.ir.loaded_ranges import expected_trips, find_loaded_ranges
from polyc.ir.program import Statement
from polyc.poly.ranges import Ranges, known_shape
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder, Split
from polyc.scheduler.rewriting.rules.analysis import is_matrix_product

MINIMUM_POINTS = 1 << 17
"""Points below which one thread is faster than a second pass."""

CHUNK_POINTS = 1 << 15
"""Points that each partial result covers."""

VECTOR_TASK, TILE_TASK = 64, 512
"""Results of one piece: where vectors run over results, and where register tiles of a contraction do."""

LONG_DEPTH, STREAM_DEPTH = 1024, 256
"""Points that each part of a sum of register tiles keeps: its results are written and read once more.  Where rows only stream
past, each part may be shorter."""


def split_reduction(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Rfactor: long reductions have partial results for threads."""
    split = find_split(s, builder.ranges)
    if split is None or split.is_taken(s):
        return None
    return builder.rfactor(s, split, "part"), f"partial results over chunks of {split.size} of {split.index}"


def find_split(s: Statement, ranges: Ranges) -> Split | None:
    if s.reduction is None or not s.reduction_indices or ranges.statements[s.name].guards:
        return None
    if any(r.tensor == s.target for r in reads(s.value)):
        return None  # a recurrence: its parts would wait for the whole
    extents = ranges.statements[s.name].indices
    loaded = find_loaded_ranges(s.reduction.op, s.value, s.indices, s.reduction_indices)
    segments = {i for i, r in loaded.items() if r.is_partition}
    trips = expected_trips(loaded, {i: trip_count(extents[i].extent) for i in s.indices})
    sides = (s.left_indices, s.reduction_indices)
    known = (known_shape(extents[i] for i in names) is not None for names in sides)
    results, points = (prod(trips[i] for i in names) if k else None for names, k in zip(sides, known, strict=True))
    is_few = results is not None and results < ENOUGH_TASKS
    cuttable = [i for i in s.reduction_indices if is_few or i not in segments]  # of many segments none is long, on average
    if not cuttable or not segments.isdisjoint(s.left_indices):
        return None
    # Chunks of an index that some operand has consecutive in memory would share its cache lines.
    along = {e.name for r in reads(s.value) if r.subscripts and isinstance(e := r.subscripts[-1], Index)}
    longest = max(cuttable, key=lambda i: (i not in along and trips[i] >= ENOUGH_TASKS // 2, trips[i]))
    if results is not None and results >= ENOUGH_TASKS:
        return None if points is None else _split_many(s, longest, results, points, trips, ranges)
    if (results is None and s.left_indices) or results == 0 or (points is not None and points < MINIMUM_POINTS):
        return None
    return Split(longest, _chunk_size(CHUNK_POINTS, longest, s, trips), extents[longest], len(s.left_indices))


def _split_many(
    s: Statement, longest: str, results: int, points: int, trips: Mapping[str, int], ranges: Ranges
) -> Split | None:
    """Cut long sums whose results make too few tasks for threads: by sizes alone, whatever the number of threads."""
    operands = dict.fromkeys(reads(s.value))
    is_tiled = is_matrix_product(s, list(operands), ranges)
    least = LONG_DEPTH if is_tiled else STREAM_DEPTH
    if points < MAX_PARTS * least or results * points < MINIMUM_POINTS * ENOUGH_TASKS:
        return None
    if not s.has_plain_left:
        return None
    # Vectors run along what moves with the sum: a value of each row (its maximum, its mean) does not say which way.
    moving = [r for r in operands if not index_names(*r.subscripts).isdisjoint(s.reduction_indices)]
    along = {e.name for r in moving if r.subscripts and isinstance(e := r.subscripts[-1], Index)}
    columns = [trip_count(ranges.statements[s.name].indices[i].extent) for i in along & set(s.left_indices)]
    task = TILE_TASK if is_tiled else VECTOR_TASK if columns else 1
    if is_tiled and columns and max(columns) < CHUNK and results <= STREAM_ROWS * max(columns):
        task = CHUNK * STREAM_ROWS  # rows of an operand pass by few rows of results, in one piece
    if results // task >= ENOUGH_TASKS:
        return None
    depth = max(least, points // (2 * ENOUGH_TASKS))
    size = _chunk_size(depth, longest, s, trips)
    interval = ranges.statements[s.name].indices[longest]
    # Results of one chunk lie together, as vectors over results want.
    return Split(longest, size, interval) if 2 * size <= trip_count(interval.extent) else None


def _chunk_size(points: int, index: str, s: Statement, trips: Mapping[str, int]) -> int:
    """Iterations of `index` that make so many points together with the other reduction indices."""
    others = (trips[i] for i in s.reduction_indices if i != index)
    size = max(1, points // prod(max(1, n) for n in others))
    return size - size % 64 if size > 64 else size
