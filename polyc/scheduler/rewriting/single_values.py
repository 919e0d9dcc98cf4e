"""Write reductions that combine one value with what was there as the assignments that they are.

Before: ``y.1[i] = y[i] + sum over nothing of a[i]``.  After: ``y.1[i] = y[i] + a[i]``, which can be inlined into its reader.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.ir.expr import Call, Index, reads, substitute
from polyc.ir.program import Condition, Program, RangeClause, Statement
from polyc.poly.ranges import Ranges


def assign_single_values(program: Program, ranges: Ranges) -> Program:
    """The program without reductions over no index that start from another version."""
    writers = program.writers()
    statements = [_assignment(s) if _is_single(s, ranges) and len(writers[s.target]) == 1 else s for s in program.statements]
    return replace(program, statements=tuple(statements))


def _is_single(s: Statement, ranges: Ranges) -> bool:
    if s.reduction is None or s.reduction.monoid is not None or s.reduction_indices or not reads(s.reduction.init):
        return False
    if not s.has_plain_left or any(isinstance(w, (Condition, RangeClause)) for w in s.where):
        return False
    own = ranges.statements[s.name].indices
    return tuple(own[e.name] for e in s.subscripts if isinstance(e, Index)) == ranges.tensors[s.target]


def _assignment(s: Statement) -> Statement:
    assert s.reduction is not None
    element = dict(zip(s.element_names, s.subscripts, strict=True))
    value = Call(s.reduction.op, (substitute(s.reduction.init, element), s.value), s.span)
    return replace(s, value=value, reduction=None)
