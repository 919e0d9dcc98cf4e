"""Reductions into elements that data chooses: a table for each of a few parts of the points, and the sum of the tables.

Before: ``H[k[i]] += w[i]`` over N points.  After: ``p[c, 0, k[c*T + t]] += w[c*T + t]`` over as many parts as the machine model
has cores, then ``H[m] += p[c, 0, m]``.  Parts write different elements whatever the data are, so threads may have one each; the
tables are combined in their order, so the result is the same at any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Read, ge, identity_of, int_const, lt, reads, substitute
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.simplify import simplify_int
from polyc.poly.domains import box_domain, map_domain
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.target import Target

MINIMUM_POINTS = 1 << 18
"""Points below which one thread is faster than a second pass."""

SHARE = 8
"""A part has at least so many points for each element of its table."""

ENOUGH_TASKS = 16
"""Where so many rows of results are independent of the data, threads take those."""

MOST_PARTS = 64

APART, LARGE = 128, 1024
"""Bytes between tables, so that no pair of cache lines lies in both, and size from which a shared line hardly matters."""


@dataclass(frozen=True, slots=True)
class _Cut:
    index: str
    parts: int
    size: int
    spread: int
    """Tables for which there is room in each part: the first is used, the others keep small ones apart."""


def split_tables(program: Program, ranges: Ranges, target: Target) -> tuple[Program, Ranges, list[Remark]]:
    """Private tables for the statements that gain by them."""
    statements: list[Statement] = []
    tensors = list(program.tensors)
    own, intervals = dict(ranges.statements), dict(ranges.tensors)
    remarks: list[Remark] = []
    for s in program.statements:
        cut = _find_cut(s, program, ranges, target)
        if cut is None:
            statements.append(s)
            continue
        part, whole, tensor, added = _split(s, cut, program, ranges)
        statements += [part, whole]
        tensors.append(tensor)
        own.update(added)
        gap = Interval(int_const(0), int_const(cut.spread))
        intervals[tensor.name] = (Interval(int_const(0), int_const(cut.parts)), gap, *ranges.tensors[s.target])
        message = f"{cut.parts} tables for parts of {cut.size} values of {cut.index}, which are added up"
        remarks.append(Remark("passed", "private-tables", message, s.name, s.span))
    if not remarks:
        return program, ranges, remarks
    new = replace(program, statements=tuple(statements), tensors=tuple(tensors))
    return new, replace(ranges, statements=own, tensors=intervals), remarks


def _find_cut(s: Statement, program: Program, ranges: Ranges, target: Target) -> _Cut | None:
    by_data = [e for e in s.subscripts if reads(e)]
    tensor, own = program.tensor(s.target), ranges.statements[s.name]
    if s.reduction is None or s.reduction.op == "combine" or not by_data or target.cores < 2:
        return None
    if tensor.dtype.is_storage or tensor.dtype.is_complex or len(program.writers()[s.target]) != 1 or own.region is not None:
        return None
    if any(r.tensor == s.target for e in (*s.subscripts, s.value) for r in reads(e)):
        return None
    table = ranges.tensors[s.target]
    extents = {i: own.indices[i].extent for i in s.indices}
    is_known = all(isinstance(e, Const) for e in (*extents.values(), *(t.extent for t in table)))
    if not is_known or any(t.lower != int_const(0) for t in table):
        return None
    trips = {i: int(e.value) for i, e in extents.items() if isinstance(e, Const)}
    plain = {e.name for e in s.subscripts if isinstance(e, Index)}
    free = [i for i in s.indices if i not in plain]
    last = s.subscripts[-1]
    rows = prod(trips[i] for i in plain if Index(i) != last)  # vectors run along the last one
    if not free or prod(trips.values()) < MINIMUM_POINTS or rows >= ENOUGH_TASKS:
        return None
    longest = max(free, key=lambda i: trips[i])
    parts = min(target.cores, MOST_PARTS)
    size = -(-trips[longest] // parts)
    elements = prod(int(t.extent.value) for t in table if isinstance(t.extent, Const))
    if size * (parts - 1) >= trips[longest] or prod(trips.values()) < SHARE * parts * elements:
        return None
    size_in_bytes = max(1, elements) * tensor.dtype.itemsize
    return _Cut(longest, parts, size, 1 if size_in_bytes >= LARGE else -(-(size_in_bytes + APART) // size_in_bytes))


def _split(
    s: Statement, cut: _Cut, program: Program, ranges: Ranges
) -> tuple[Statement, Statement, Tensor, dict[str, StatementRanges]]:
    assert s.reduction is not None
    own, target = ranges.statements[s.name], program.tensor(s.target)
    chunk, inner = f"{cut.index}.chunk", f"{cut.index}.in"
    name = program.free_name(f"{s.target}.part.{s.name}")
    tensor = Tensor(name, target.dtype, len(s.subscripts) + 2, None, "temporary", f"{target.base}.part", s.span)
    inside: Expr = Index(chunk) * cut.size + Index(inner)
    point = simplify_int(inside + own.indices[cut.index].lower)

    def move(expr: Expr) -> Expr:
        return substitute(expr, {cut.index: point})

    subscripts = (Index(chunk), int_const(0), *map(move, s.subscripts))
    others = [i for i in s.indices if i != cut.index]
    indices = (chunk, inner, *others)
    start = Reduction(s.reduction.op, identity_of(s.reduction.op, target.dtype))
    part = Statement(program.free_name(f"{s.name}_part"), name, subscripts, indices, move(s.value), start, (), s.span)
    values = [point if i == cut.index else Index(i) for i in s.indices]
    bounds = [ge(Index(inner), 0), lt(Index(inner), cut.size)]
    chunks = Interval(int_const(0), int_const(cut.parts))
    part_ranges = StatementRanges(
        {chunk: chunks, inner: Interval(int_const(0), int_const(cut.size)), **{i: own.indices[i] for i in others}},
        map_domain(own.domain, part.name, indices, values, bounds),
        tuple(_move_guard(g, s, part, move, target.base) for g in own.guards),
    )
    elements = s.element_names
    whole_indices = (*elements, chunk)
    value = Read(name, (Index(chunk), int_const(0), *map(Index, elements)))
    whole = replace(s, subscripts=tuple(map(Index, elements)), indices=whole_indices, value=value, where=())
    whole_intervals = {**dict(zip(elements, ranges.tensors[s.target], strict=True)), chunk: chunks}
    domain = box_domain(s.name, whole_indices, whole_intervals, ranges.parameters)
    return part, whole, tensor, {part.name: part_ranges, s.name: StatementRanges(whole_intervals, domain)}


def _move_guard(
    guard: GuardedSubscript, s: Statement, part: Statement, move: Callable[[Expr], Expr], base: str
) -> GuardedSubscript:
    condition = None if guard.condition is None else move(guard.condition)
    if guard.read == Read(s.target, s.subscripts):
        written = Read(part.target, part.subscripts, guard.read.span)
        return GuardedSubscript(written, guard.dimension + 2, condition, (base, guard.dimension))
    read = move(guard.read)
    assert isinstance(read, Read)
    return replace(guard, read=read, condition=condition)
