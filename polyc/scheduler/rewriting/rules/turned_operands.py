"""Operands of short sums lie in memory along what vectors run along.

    before  ``w[j,k] = f(j, k)  ;  y[i,j] += w[j,k] * x[i,2j+k]``                      few k
    after   ``w[k,j] = f(j, k)  ;  y[i,j] += w[k,j] * x[i,2j+k]``

A vector along a row of few weights is added up for every result; one along j would take its elements from as many rows.  A
temporary changes its layout, an input that is read often is copied.  What does not move
all other operands of a sum is a row or a column of a product, which is copied into panels.
"""

from __future__ import annotations

from math import prod

from polyc.code_limits import CLEARLY
from polyc.diagnostics import Remark
from polyc.ir.expr import Index, Read, index_names, padded_reads, reads
from polyc.ir.program import Program, Statement, all_reads
from polyc.machine import Machine
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.accesses import find_motions, trip_count
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.reindexing import map_reads, relayout
from polyc.scheduler.tiling import lane_cost


def turn_operands(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Temporaries of short sums lie along the index of vectors."""
    remarks: list[Remark] = []
    for first in [s for s in program.statements if s.reduction is not None and s.reduction.monoid is None]:
        for read in dict.fromkeys(reads(first.value)):
            (s,) = (s for s in program.statements if s.name == first.name)
            if (found := _turn(s, read, program, ranges, target)) is not None:
                program, ranges, message = found
                remarks.append(Remark("passed", "turn-operands", message, s.name, s.span))
    return program, ranges, remarks


def _turn(s: Statement, read: Read, program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, str] | None:
    """The layout of an operand that its sum reads best, and a remark; None where that is no gain for all of them."""
    names = [e.name for e in read.subscripts if isinstance(e, Index)]
    if len(names) < max(2, len(read.subscripts)) or len(set(names)) < len(names) or ranges.statements[s.name].guards:
        return None
    trips, lanes = _trips(s, ranges), target.lanes(program.tensor(s.target).dtype.itemsize)
    role, is_short = program.tensor(read.tensor).role, names[-1] in s.reduction_indices and trips[names[-1]] <= 2 * lanes
    is_plain = read in {*reads(s.value)} - {*padded_reads(s.value)} and read.tensor != s.target
    if role not in ("temporary", "input") or not is_short or not is_plain:
        return None
    others = [i for r in reads(s.value) if r != read and names[-1] in (i := index_names(*r.subscripts))]
    touching = {x.name for x in program.statements if read.tensor in (x.target, *(r.tensor for r in all_reads(x)))}
    counted = touching if role == "temporary" else {s.name}
    best: tuple[Program, Ranges, str] | None = None
    least = CLEARLY * _operations(counted, program, ranges, target)
    for n, index in enumerate(names[:-1]):
        order = (*(d for d in range(len(names)) if d != n), n)
        is_shared = index in s.left_indices and all(index in moving for moving in others)
        found = None if not is_shared else _relayout(s, read, order, program, ranges)
        if found is not None:
            copied = 0 if role == "temporary" else prod(trips[i] for i in names)
            operations = _operations(counted, *found, target) + target.loops.far_element * copied
            if operations < least:
                message = f"{program.tensor(read.tensor).base} lies along {index}, beside a short sum over {names[-1]}"
                best, least = (*found, message), operations
    return best


def _relayout(
    s: Statement, read: Read, order: tuple[int, ...], program: Program, ranges: Ranges
) -> tuple[Program, Ranges] | None:
    """The dimensions of a temporary in another order everywhere, or those of an input in a copy for one statement."""
    tensor, writers = program.tensor(read.tensor), program.writers().get(read.tensor, [])
    if tensor.role == "temporary":
        is_plain = all(w.has_plain_left and ranges.statements[w.name].region is None for w in writers)
        is_plain = is_plain and not any(r.tensor == tensor.name for w in writers for r in all_reads(w))  # no recurrence
        return relayout(program, ranges, {tensor.name: [(d,) for d in order]}) if is_plain else None
    builder = ProgramBuilder(program, ranges)
    points = builder.points(s).project([e.name for d in order if isinstance(e := read.subscripts[d], Index)])
    names = builder.free_name(f"{tensor.name}.turned"), builder.free_name(f"{s.name}_{tensor.name}_turned")
    turned, made = builder.materialise(read, points, names, tensor, s, f"{tensor.base}.turned")
    new = replace(s, value=map_reads(s.value, lambda r: turned if r == read else r, tensor.name))
    return builder.replace([s], [*made, new])


def _trips(s: Statement, ranges: Ranges) -> dict[str, int]:
    extents = ranges.statements[s.name].indices
    return {i: trip_count(extents[i].extent) if n is None else max(1, n) for i, n in ranges.trips(s.name).items()}


def _operations(names: set[str], program: Program, ranges: Ranges, target: Machine) -> float:
    """Loads and stores of statements with vectors along their best indices."""
    total = 0.0
    for s in (s for s in program.statements if s.name in names):
        trips, lanes = _trips(s, ranges), target.lanes(program.tensor(s.target).dtype.itemsize)
        motions = find_motions(s.target, s.subscripts, s.value)
        costs = [lane_cost(motions, i, trips, s.reduction_indices, lanes) for i in s.indices]
        total += prod(trips.values()) / lanes * min(costs, default=0.0)
    return total
