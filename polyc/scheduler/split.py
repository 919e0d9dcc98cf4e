"""Split the reduction of a statement with few results into partial results, so that threads and vectors have work.

Before: ``s += f[k]`` over K points.  After: ``p[c] += f[c*T + t]`` over chunks of T points, then ``s += p[c]``.
The chunk depends on sizes only, so the result is the same at any number of threads ("rfactor" in the literature:
Suriana, Adams, Kamil, "Parallel associative reductions in Halide", CGO 2017).
"""

from __future__ import annotations

from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Index, Read, identity_of, int_const, reads, simplify_int, substitute
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.poly.domains import map_domain, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.scheduler.accesses import trip_count

FEW_RESULTS = 16
"""Statements with at least this many result elements are parallel over those."""

MINIMUM_POINTS = 1 << 17
"""Points below which one thread is faster than a second pass."""

CHUNK_POINTS = 1 << 15
"""Points that each partial result covers."""


def split_reductions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Two-stage reductions for statements with few results and many points."""
    statements: list[Statement] = []
    tensors = list(program.tensors)
    own, intervals = dict(ranges.statements), dict(ranges.tensors)
    remarks: list[Remark] = []
    for s in program.statements:
        index = _index_to_split(s, ranges)
        if index is None:
            statements.append(s)
            continue
        partial, whole, tensor, added = _split(s, index, program, ranges)
        statements += [partial, whole]
        tensors.append(tensor)
        own.update(added)
        intervals[tensor.name] = tuple(added[partial.name].indices[i] for i in partial.left_indices)
        chunk = own[partial.name].indices[partial.indices[len(s.left_indices) + 1]].extent
        assert isinstance(chunk, Const)
        remarks.append(Remark("passed", "split", f"partial results over chunks of {chunk.value} of {index}", s.name, s.span))
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


def _index_to_split(s: Statement, ranges: Ranges) -> str | None:
    if s.reduction is None or not s.reduction_indices or ranges.statements[s.name].guards:
        return None
    if any(r.tensor == s.target for r in reads(s.value)):
        return None  # a recurrence: its parts would wait for the whole
    results, points = _volume(s, s.left_indices, ranges), _volume(s, s.reduction_indices, ranges)
    if (results is None and s.left_indices) or (results is not None and (results >= FEW_RESULTS or results == 0)):
        return None
    if points is not None and points < MINIMUM_POINTS:
        return None
    extents = ranges.statements[s.name].indices
    return max(s.reduction_indices, key=lambda i: trip_count(extents[i].extent))


def _split(
    s: Statement, index: str, program: Program, ranges: Ranges
) -> tuple[Statement, Statement, Tensor, dict[str, StatementRanges]]:
    assert s.reduction is not None
    own = ranges.statements[s.name]
    interval = own.indices[index]
    rest = 1
    for i in s.reduction_indices:
        if i != index:
            rest *= max(1, trip_count(own.indices[i].extent))
    size = max(1, CHUNK_POINTS // rest)
    if size > 64:
        size -= size % 64
    chunk, inner = f"{index}.chunk", f"{index}.in"
    n_chunks = simplify_int(Call("floordiv", (Call("add", (interval.extent, int_const(size - 1))), int_const(size))))
    target = program.tensor(s.target)
    left = s.left_indices
    tensor = Tensor(f"{s.target}.part.{s.name}", target.dtype, len(left) + 1, None, "temporary", f"{target.base}.part", s.span)
    point: Expr = Call("add", (Call("mul", (Index(chunk), int_const(size))), Index(inner)))
    point = simplify_int(Call("add", (point, interval.lower)))
    others = tuple(i for i in s.reduction_indices if i != index)
    partial = Statement(
        f"{s.name}_part",
        tensor.name,
        (*(Index(i) for i in left), Index(chunk)),
        (*left, chunk, inner, *others),
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
        Read(tensor.name, (*(Index(i) for i in left), Index(chunk))),
        s.reduction,
        (),
        s.span,
    )
    chunks = Interval(int_const(0), n_chunks)
    values: list[Expr] = [point if i == index else Index(i) for i in s.indices]
    inside = [Call("ge", (Index(inner), int_const(0))), Call("lt", (Index(inner), int_const(size)))]
    partial_domain = map_domain(own.domain, partial.name, partial.indices, values, inside)
    partial_ranges = StatementRanges(
        {
            **{i: own.indices[i] for i in left},
            chunk: chunks,
            inner: Interval(int_const(0), int_const(size)),
            **{i: own.indices[i] for i in others},
        },
        partial_domain,
    )
    whole_domain = project_domain(partial_domain, partial.indices, s.name, whole.indices)
    whole_ranges = StatementRanges({**{i: own.indices[i] for i in left}, chunk: chunks}, whole_domain)
    return partial, whole, tensor, {partial.name: partial_ranges, s.name: whole_ranges}
