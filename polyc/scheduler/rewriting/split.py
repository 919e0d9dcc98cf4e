"""Split the reduction of a statement with few results into partial results, so that threads and vectors have work.

Before: ``s += f[k]`` over K points.  After: ``p[c] += f[c*T + t]`` over chunks of T points, then ``s += p[c]``.
The chunk depends on sizes only, so the result is the same at any number of threads ("rfactor" in the literature:
Suriana, Adams, Kamil, "Parallel associative reductions in Halide", CGO 2017).
"""

from __future__ import annotations

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    ceil_div,
    ge,
    identity_of,
    index_names,
    int_const,
    lt,
    reads,
    substitute,
)
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.simplify import simplify_int
from polyc.poly.domains import map_domain, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count

FEW_RESULTS = 16
"""Statements with at least this many result elements are parallel over those."""

MINIMUM_POINTS = 1 << 17
"""Points below which one thread is faster than a second pass."""

CHUNK_POINTS = 1 << 15
"""Points that each partial result covers."""

ENOUGH_TASKS = 16
"""Pieces of the results that feed the threads of common machines; with fewer, long sums are cut."""

VECTOR_TASK, TILE_TASK = 64, 512
"""Results of one piece: where vectors run over results, and where register tiles of a contraction do."""

MINIMUM_DEPTH, LONG_DEPTH, STREAM_DEPTH = 4096, 1024, 256
"""Points of a sum of register tiles from which it is cut, and that each part keeps: its results are written and read once
more.  Where rows only stream past, each part may be shorter."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Cut `index` into chunks of `size`.  `outside`: results of one chunk lie together, as vectors over results want."""

    index: str
    size: int
    outside: bool


def split_reductions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Two-stage reductions for statements with few results and many points."""
    statements: list[Statement] = []
    tensors = list(program.tensors)
    own, intervals = dict(ranges.statements), dict(ranges.tensors)
    remarks: list[Remark] = []
    for s in program.statements:
        cut = _find_cut(s, ranges)
        if cut is None:
            statements.append(s)
            continue
        partial, whole, tensor, added = _split(s, cut, program, ranges)
        statements += [partial, whole]
        tensors.append(tensor)
        own.update(added)
        intervals[tensor.name] = tuple(added[partial.name].indices[i] for i in partial.left_indices)
        remarks.append(Remark("passed", "split", f"partial results over chunks of {cut.size} of {cut.index}", s.name, s.span))
    if not remarks:
        return program, ranges, remarks
    new = replace(program, statements=tuple(statements), tensors=tuple(tensors))
    return new, replace(ranges, statements=own, tensors=intervals), remarks


def _volume(s: Statement, names: tuple[str, ...], ranges: Ranges) -> int | None:
    """Product of extents; None if one is symbolic."""
    volume = 1
    for i in names:
        extent = ranges.statements[s.name].indices[i].extent
        if not isinstance(extent, Const):
            return None
        volume *= int(extent.value)
    return volume


def _find_cut(s: Statement, ranges: Ranges) -> _Cut | None:
    if s.reduction is None or not s.reduction_indices or ranges.statements[s.name].guards:
        return None
    if any(r.tensor == s.target for r in reads(s.value)):
        return None  # a recurrence: its parts would wait for the whole
    results, points = _volume(s, s.left_indices, ranges), _volume(s, s.reduction_indices, ranges)
    extents = ranges.statements[s.name].indices
    # Chunks of an index that some operand has consecutive in memory would share its cache lines.
    along = {e.name for r in reads(s.value) if r.subscripts and isinstance(e := r.subscripts[-1], Index)}
    trips = {i: trip_count(extents[i].extent) for i in s.reduction_indices}
    longest = max(s.reduction_indices, key=lambda i: (i not in along and trips[i] >= ENOUGH_TASKS // 2, trips[i]))
    if results is not None and results >= FEW_RESULTS:
        return None if points is None else _cut_many(s, longest, results, points, ranges)
    if (results is None and s.left_indices) or results == 0:
        return None
    if points is not None and points < MINIMUM_POINTS:
        return None
    return _Cut(longest, _chunk_size(CHUNK_POINTS, longest, s, ranges), False)


def _cut_many(s: Statement, longest: str, results: int, points: int, ranges: Ranges) -> _Cut | None:
    """Cut long sums whose results make too few tasks for threads: by sizes alone, whatever the number of threads."""
    operands = dict.fromkeys(reads(s.value))
    is_tiled = _has_rows_and_columns(s, list(operands), ranges)
    if points < (MINIMUM_DEPTH if is_tiled else 4 * STREAM_DEPTH) or results * points < MINIMUM_POINTS * FEW_RESULTS:
        return None
    if not s.has_plain_left:
        return None
    # Vectors run along what moves with the sum: a value of each row (its maximum, its mean) does not say which way.
    moving = [r for r in operands if not index_names(*r.subscripts).isdisjoint(s.reduction_indices)]
    along = {e.name for r in moving if r.subscripts and isinstance(e := r.subscripts[-1], Index)}
    if is_tiled:
        tasks = results // TILE_TASK
    elif along & set(s.left_indices):
        tasks = results // VECTOR_TASK
    else:
        tasks = results
    if tasks >= ENOUGH_TASKS:
        return None
    depth = max(LONG_DEPTH if is_tiled else STREAM_DEPTH, points // (2 * ENOUGH_TASKS))
    size = _chunk_size(depth, longest, s, ranges)
    return _Cut(longest, size, True) if 2 * size <= trip_count(ranges.statements[s.name].indices[longest].extent) else None


def _has_rows_and_columns(s: Statement, operands: list[Read], ranges: Ranges) -> bool:
    """Whether each of two operands moves with left indices that leave the other one alone: register tiles then."""
    if len(operands) != 2:
        return False
    first, second = (index_names(*r.subscripts) for r in operands)
    left = {i for i in s.left_indices if ranges.statements[s.name].indices[i].extent != Const(1)}
    return bool(left & (first - second)) and bool(left & (second - first))


def _chunk_size(points: int, index: str, s: Statement, ranges: Ranges) -> int:
    """Iterations of `index` that make so many points together with the other reduction indices."""
    own = ranges.statements[s.name]
    for i in s.reduction_indices:
        if i != index:
            points //= max(1, trip_count(own.indices[i].extent))
    size = max(1, points)
    return size - size % 64 if size > 64 else size


def _split(
    s: Statement, cut: _Cut, program: Program, ranges: Ranges
) -> tuple[Statement, Statement, Tensor, dict[str, StatementRanges]]:
    assert s.reduction is not None
    own = ranges.statements[s.name]
    index, size = cut.index, cut.size
    interval = own.indices[index]
    chunk, inner = f"{index}.chunk", f"{index}.in"
    n_chunks = simplify_int(ceil_div(interval.extent, size))
    target = program.tensor(s.target)
    left = s.left_indices
    name = program.free_name(f"{s.target}.part.{s.name}")
    tensor = Tensor(name, target.dtype, len(left) + 1, None, "temporary", f"{target.base}.part", s.span)
    inside = {inner: Interval(int_const(0), int_const(size))} if size > 1 or len(s.reduction_indices) == 1 else {}
    point: Expr = Index(chunk) * size
    for i in inside:
        point = point + Index(i)
    point = simplify_int(point + interval.lower)
    others = tuple(i for i in s.reduction_indices if i != index)
    element = (chunk, *left) if cut.outside else (*left, chunk)
    partial = Statement(
        program.free_name(f"{s.name}_part"),
        tensor.name,
        tuple(map(Index, element)),
        (*element, *inside, *others),
        substitute(s.value, {index: point}),
        Reduction(s.reduction.op, identity_of(s.reduction.op, target.dtype)),
        (),
        s.span,
    )
    whole = Statement(
        s.name,
        s.target,
        s.subscripts,
        (*left, chunk),
        Read(tensor.name, tuple(map(Index, element))),
        s.reduction,
        (),
        s.span,
    )
    chunks = Interval(int_const(0), n_chunks)
    values: list[Expr] = [point if i == index else Index(i) for i in s.indices]
    bounds = [b for i in inside for b in (ge(Index(i), 0), lt(Index(i), size))]
    partial_domain = map_domain(own.domain, partial.name, partial.indices, values, bounds)
    partial_ranges = StatementRanges(
        {
            **{i: own.indices[i] for i in left},
            chunk: chunks,
            **inside,
            **{i: own.indices[i] for i in others},
        },
        partial_domain,
    )
    whole_domain = project_domain(partial_domain, partial.indices, s.name, whole.indices)
    whole_ranges = StatementRanges({**{i: own.indices[i] for i in left}, chunk: chunks}, whole_domain)
    return partial, whole, tensor, {partial.name: partial_ranges, s.name: whole_ranges}
