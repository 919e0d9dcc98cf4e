"""Bounds that read are conditions in the value: a reduction combines its identity at the points that they leave out.

Before: ``y[i] += v[p] * x[c[p]] where p in ptr[i]:ptr[i + 1]``.
After: ``y[i] += ptr[i] <= p && p < ptr[i + 1] ? v[p] * x[c[p]] : 0`` over the box of all i and p.
An assignment to elements of segments, ``w[p] = e[p] - m[i]``, has one point for each element (the call has checked that): it
is the maximum of its value and what is below all numbers, which keeps NaN and -0.0 as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from polyc.ir.expr import Call, Expr, Select, all_hold, identity_of, type_of
from polyc.ir.program import Program, RangeClause, Reduction, Statement, Where, order_components
from polyc.ir.segments import loaded_clauses, loaded_conditions
from polyc.ir.types import DType
from polyc.records import replace

Ends = Callable[[str, str], tuple[Expr, Expr]]
"""Where the range of an index begins and ends, by the names of a statement and of the index."""


def lower_loaded_bounds(program: Program, ends: Ends) -> Program:
    """Points that bounds with reads leave out combine the identity of their reduction."""
    if not any(any(loaded_clauses(s.where)) for s in program.statements):
        return program
    return replace(program, statements=tuple(_lower(s, program, ends) for s in program.statements))


def _lower(s: Statement, program: Program, ends: Ends) -> Statement:
    if not any(loaded_clauses(s.where)):
        return s
    inside = all_hold(list(loaded_conditions(s.where)))
    s = replace(s, where=tuple(c for w in s.where for c in _without_loads(w, s, ends)))
    if s.reduction is None:
        op = "or" if type_of(s.value, program.types).kind == "b" else "max"
        s = replace(s, reduction=Reduction(op, identity_of(op, type_of(s.value, program.types)), once=True))
    return combine_where(s, inside, program.types)


def combine_where(s: Statement, inside: Expr, types: Mapping[str, DType]) -> Statement:
    """A reduction that combines its identity where `inside` does not hold; `types` of tensors by name."""
    assert s.reduction is not None
    if s.reduction.monoid is None:
        nothing = identity_of(s.reduction.op, type_of(s.value, types))
        return replace(s, value=Select(inside, s.value, nothing, s.value.span))
    assert isinstance(s.value, Call)
    identities = order_components(s.reduction.monoid.identity, s.reduction.component)
    return replace(s, value=replace(s.value, args=tuple(map(Select, [inside] * len(identities), s.value.args, identities))))


def _without_loads(clause: Where, s: Statement, ends: Ends) -> tuple[Where, ...]:
    """The clause, but for bounds that read; in the place of one that says which elements are written the whole range."""
    if clause not in list(loaded_clauses(s.where)):
        return (clause,)
    assert isinstance(clause, RangeClause)
    if clause.index not in s.left_indices:
        return ()
    lower, upper = ends(s.name, clause.index)
    return (replace(clause, lower=lower, upper=upper),)
