"""Adjoints of reductions by a monoid of the user, by the rule of exclusive scans from both sides.

    a reduction        ``T[e] = v[e, 0] ∘ v[e, 1] ∘ …``
    its adjoint        of ``v[e, r]``: that of ``L ∘ v[e, r] ∘ R`` for the adjoint of T[e], where L combines the values before r
                       and R those behind it

So any associative function has a derivative, whether what it does can be undone or not (Bruun, Larsen, Henriksen, Oancea,
"Reverse-mode AD of multi-reduce and scan in Futhark", IFL 2023).  At both ends L or R is left out, not an identity, whose
derivative may be NaN (that of ``logaddexp`` at -inf).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from polyc.gradients.adjoints import Conditions, Scene
from polyc.gradients.inversion import upper_end
from polyc.gradients.rules import is_differentiable, refuse
from polyc.ir.expr import Call, Expr, Index, Read, eq, gt, index_names, int_const, lt, rewrite, substitute
from polyc.ir.program import (
    Condition,
    RangeClause,
    Reduction,
    Statement,
    Tensor,
    Where,
    order_components,
    tuple_components,
)
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.ranges import Interval
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Scans:
    """The values before each point, and behind it: `tensors` and `statements` that make them, a read of each component."""

    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    before: tuple[Read, ...]
    behind: tuple[Read, ...]


def scan(s: Statement, intervals: Mapping[str, Interval], name: Callable[[str], str]) -> Scans:
    """Of what a statement combines; `name` makes free names."""
    assert s.reduction is not None
    assert s.reduction.monoid is not None
    monoid, values = s.reduction.monoid, tuple_components(s)
    index, own = _reduced_index(s), "before"
    while own in s.indices:
        own += "_"
    moved = {index: Index(own)}
    indices = (*s.left_indices, index)
    element = tuple(map(Index, indices))
    where: list[Where] = [RangeClause(i, b.lower, upper_end(b)) for i, b in intervals.items()]
    where += [w for w in s.where if isinstance(w, Condition)]
    where.append(RangeClause(own, intervals[index].lower, upper_end(intervals[index])))
    there = [substitute(v, moved) for v in values]
    tensors: list[Tensor] = []
    statements: list[Statement] = []
    sides: list[tuple[Read, ...]] = []
    for side, compare in (("before", lt), ("behind", gt)):
        for k, identity in enumerate(monoid.identity):
            target = name(f"{s.target}.{side}")
            tensors.append(Tensor(target, identity.dtype, len(indices), None, "temporary", target, s.span))
            value = Call("tuple", order_components(there, k))
            only = (*where, Condition(compare(Index(own), Index(index))))
            reduction = Reduction("combine", identity, monoid, k)
            statements.append(Statement(f"S_{target}", target, element, (*indices, own), value, reduction, only, s.span))
        sides.append(tuple(Read(t.name, element, s.span) for t in tensors[-len(values) :]))
    return Scans(tuple(tensors), tuple(statements), *sides)


def _reduced_index(s: Statement) -> str:
    """The index that a statement combines values along; UnsupportedError where that is none, or several, or data decides."""
    reduced = s.reduction_indices
    bounds = [e for w in s.where if isinstance(w, (Condition, RangeClause)) for e in w.expressions]
    is_bounded = any(index_names(e) and not index_names(e).isdisjoint(reduced) for e in bounds) or any(
        isinstance(w, RangeClause) and w.index in reduced and index_names(*w.expressions) for w in s.where
    )
    if len(reduced) != 1 or not s.has_plain_left or is_bounded or any(loaded_clauses(s.where)):
        message = (
            "the derivative of a monoid of one's own is supported along one index, over a range that no other index bounds"
        )
        raise refuse(message, s.span, "combine along one index at a time, through tensors between")
    return reduced[0]


def contributions(
    s: Statement, intervals: Mapping[str, Interval], scans: Scans, cotangent: Expr
) -> Iterator[tuple[Expr, Expr, Conditions]]:
    """For the values that a statement combines: a component, its cotangent, and the conditions under which that is not 0."""
    assert s.reduction is not None
    assert s.reduction.monoid is not None
    monoid, values = s.reduction.monoid, tuple_components(s)
    index = Index(_reduced_index(s))
    interval = intervals[index.name]
    is_first = eq(index, interval.lower)
    is_last = eq(index, simplify(upper_end(interval) - int_const(1)))
    types: dict[str, DType] = {f"value.{k}": c.dtype for k, c in enumerate(monoid.identity)}
    own = tuple(Read(name, ()) for name in types)
    active = [n for n, dtype in types.items() if is_differentiable(dtype)]
    for reads in (scans.before, scans.behind):
        types |= {r.tensor: c.dtype for r, c in zip(reads, monoid.identity, strict=True)}
    scene = Scene(active, types, {})

    def actual(expr: Expr) -> Expr:
        return rewrite(expr, lambda node: values[own.index(node)] if isinstance(node, Read) and node in own else None)

    for first in (True, False):
        for last in (True, False):
            combined: Sequence[Expr] = own if first else monoid.combine(scans.before, own)
            combined = combined if last else monoid.combine(combined, scans.behind)
            at: Conditions = ((is_first, first), (is_last, last))
            for c in scene.contributions(combined[s.reduction.component], cotangent, at):
                conditions = tuple((actual(e), holds) for e, holds in c.conditions)
                yield values[own.index(c.read)], actual(c.value), conditions
