"""What ranges that data bounds ask of the data, for the reference interpreter alone: checked before anything is computed."""

from __future__ import annotations

import numpy as np

from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.ir.expr import index_names
from polyc.ir.interpret_forms import Box
from polyc.ir.interpret_values import Array, Scope, enter_box, evaluate_points
from polyc.ir.program import RangeClause, Statement
from polyc.ir.segments import is_segmented, loaded_clauses, segment_reads, too_large_terms


def check_loaded_ranges(s: Statement, scope: Scope, box: Box) -> None:
    """Raise `ArgumentError` where a bound leaves the range that its index has anyway, or segments are none: they lie side by
    side, and where their values are assigned, on all elements."""
    for clause in loaded_clauses(s.where):
        named = {n: box[n] for n in box if n in index_names(clause.lower, clause.upper)}
        local = enter_box(scope, named)
        extents = tuple(max(0, end - begin) for begin, end in named.values())
        lower, upper = (np.broadcast_to(evaluate_points(e, local), extents) for e in (clause.lower, clause.upper))
        first, end = box[clause.index]
        segments = segment_reads(clause)
        if segments is None:
            for violated, *_ in (found for e in (clause.lower, clause.upper) for found in too_large_terms(e, scope.types)):
                too_large = np.broadcast_to(evaluate_points(violated, local), extents)
                _refuse(too_large, "argument-range", "has a bound that 64 bits may not hold", clause, named)
            outside = (lower < upper) & ((lower < first) | (upper > end))
            _refuse(outside, "argument-range", f"leaves its range {first}:{end}", clause, named)
            continue
        _refuse((lower < first) | (upper > end), "argument-segments", f"leaves its range {first}:{end}", clause, named)
        _refuse(upper < lower, "argument-segments", "has a segment that ends before it begins", clause, named)
        if is_segmented(s) and segments[2] not in s.left_indices:
            axis = list(named).index(segments[2])
            if extents[axis] == 0:
                ends = np.full(extents[:axis] + extents[axis + 1 :], end > first)
            else:
                ends = (lower.take(0, axis) != first) | (upper.take(-1, axis) != end)
            others = {n: interval for n, interval in named.items() if n != segments[2]}
            _refuse(ends, "argument-segments", f"leaves elements of {first}:{end} without a segment", clause, others)


def _refuse(bad: Array, code: str, what: str, clause: RangeClause, named: Box) -> None:
    if not bad.any():
        return
    place = [int(p) + low for p, (low, _) in zip(np.argwhere(bad)[0], named.values(), strict=True)]
    at = ", ".join(f"{n} = {p}" for n, p in zip(named, place, strict=True))
    raise ArgumentError(Diagnostic(code, f"the range of {clause.index} {what}" + (f", at {at}" if at else ""), clause.span))
