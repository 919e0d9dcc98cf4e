"""Products of several operands are summed a few operands at a time.

    before  ``y[i,l] += a[i,j] * b[j,k] * c[k,l]``                               over J * K terms
    after   ``t[i,k] += a[i,j] * b[j,k]  ;  y[i,l] += t[i,k] * c[k,l]``          with sums of J and of K terms

Any sum and product of which the product distributes over the sum will do: ``+`` and ``*``, the largest or smallest of ``+``,
``||`` and ``&&``.  An operand is any expression; what counts are its indices.  The order comes from opt_einsum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

from polyc.code_limits import UNKNOWN_EXTENT
from polyc.diagnostics import Remark
from polyc.ir.contraction_paths import find_path
from polyc.ir.expr import Call, Cast, Expr, Index, Read, identity_of, index_names, operands_of, type_of
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.types import DType
from polyc.poly.domains import is_box, project_domain
from polyc.poly.ranges import Ranges, StatementRanges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.blocks import Change, Edit, change_statements, is_simple

DISTRIBUTIVE = {"add": "mul", "max": "add", "min": "add", "or": "and"}
"""The product that distributes over a sum."""

GAIN = 1.5
"""Terms as written over those of all steps, from which on these are worth their temporaries."""

ELEMENT_COST = 8
"""Terms that count for an element of a temporary: it is written, and read again."""


@dataclass(frozen=True, slots=True)
class _Operand:
    value: Expr
    indices: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Step:
    """`operands` are multiplied and summed over what is not in `kept`."""

    operands: tuple[int, ...]
    """Positions: those of the statement first, then the results of the steps before."""
    indices: frozenset[str]
    kept: frozenset[str]


def order_contractions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Sums of products in the order of fewest terms, where that is far fewer than as written."""
    types = {t.name: t.dtype for t in program.tensors}

    def change(s: Statement, edit: Edit) -> Change | None:
        found = _find_steps(s, program, ranges, types)
        if found is None:
            return None
        operands, fixed, steps = found
        made = _split(s, operands, fixed, steps, edit, type_of(s.value, types).computed)
        return made, f"the product of {len(operands)} operands in {s.target} is summed in {len(steps)} steps"

    return change_statements("order-contractions", change, program, ranges)


def _find_steps(
    s: Statement, program: Program, ranges: Ranges, types: Mapping[str, DType]
) -> tuple[list[_Operand], list[Expr], list[_Step]] | None:
    """Operands that move along the sum, those that do not, and the steps; None where the statement stays."""
    own = ranges.statements[s.name]
    if s.reduction is None or s.reduction.monoid is not None or s.reduction.op not in DISTRIBUTIVE:
        return None
    if not is_simple(s, ranges) or own.region is not None or len(program.writers()[s.target]) != 1:
        return None
    # Integers wrap around: what is added to the largest one need not be the largest, and a sum of no terms is the least number.
    if s.reduction.op in ("max", "min") and not type_of(s.value, types).is_float:
        return None
    summed = set(s.reduction_indices)
    operands: list[_Operand] = []
    fixed: list[Expr] = []
    for factor in operands_of(s.value, DISTRIBUTIVE[s.reduction.op]):
        indices = frozenset(index_names(factor))
        if indices.isdisjoint(summed):
            fixed.append(factor)
        else:
            operands.append(_Operand(factor, indices))
    whole = frozenset().union(*(o.indices for o in operands))
    if len(operands) < 2 or any(o.indices == whole for o in operands):
        return None
    if not is_box(own.domain, own.indices, s.indices):
        return None
    trips: dict[str, int] = {}
    for i in s.indices:
        n = estimate_extent(own.indices[i].extent, ranges.typical)
        if n == 0:
            return None
        trips[i] = UNKNOWN_EXTENT if n is None else n
    left = whole - summed
    steps = _order(operands, left, trips)
    written = prod(trips[i] for i in whole)
    cost = sum(_points(step.indices, trips) for step in steps) + ELEMENT_COST * sum(
        _points(step.kept, trips) for step in steps[:-1]
    )
    return (operands, fixed, steps) if len(steps) > 1 and GAIN * cost <= written else None


def _points(indices: frozenset[str], trips: Mapping[str, int]) -> int:
    return prod(trips[i] for i in indices)


def _order(operands: Sequence[_Operand], left: frozenset[str], trips: Mapping[str, int]) -> list[_Step]:
    """Operands with indices of their own are summed over these first; then the path of opt_einsum."""
    steps: list[_Step] = []
    first = list(range(len(operands)))  # of the operands behind each position
    remaining: list[tuple[int, frozenset[str]]] = []
    for n, o in enumerate(operands):
        others = left.union(*(p.indices for m, p in enumerate(operands) if m != n))
        if o.indices <= others:
            remaining.append((n, o.indices))
            continue
        remaining.append((len(first), o.indices & others))
        first.append(n)
        steps.append(_Step((n,), o.indices, o.indices & others))
    for used in find_path([sorted(indices) for _, indices in remaining], sorted(left), trips):
        group = [remaining[p] for p in used]
        remaining = [r for p, r in enumerate(remaining) if p not in used]
        needed = left.union(*(indices for _, indices in remaining))
        seen = frozenset().union(*(indices for _, indices in group))
        remaining.append((len(first), seen & needed))
        positions = sorted((n for n, _ in group), key=first.__getitem__)
        first.append(first[positions[0]])
        steps.append(_Step(tuple(positions), seen, seen & needed))
    return steps


def _split(
    s: Statement, operands: list[_Operand], fixed: list[Expr], steps: list[_Step], edit: Edit, dtype: DType
) -> list[Statement]:
    """One statement a step; the last is `s`, with what does not move along the sum."""
    assert s.reduction is not None
    own, combine = edit.own[s.name], DISTRIBUTIVE[s.reduction.op]
    start = Reduction(s.reduction.op, identity_of(s.reduction.op, dtype))
    values = [o.value for o in operands]
    orders = [tuple(i for i in s.indices if i in o.indices) for o in operands]
    statements = []
    for number, step in enumerate(steps[:-1]):
        used = dict.fromkeys(i for n in step.operands for i in orders[n])
        kept = tuple(i for i in used if i in step.kept)
        indices = (*kept, *(i for i in used if i not in step.kept))
        name, target = f"{s.name}_product{number}", f"{s.target}.product{number}"
        value = reduce(lambda a, b: Call(combine, (a, b)), (values[n] for n in step.operands))
        edit.tensors.append(Tensor(target, dtype, len(kept), None, "temporary", target, s.span))
        edit.intervals[target] = tuple(own.indices[i] for i in kept)
        domain = project_domain(own.domain, s.indices, name, indices)
        edit.own[name] = StatementRanges({i: own.indices[i] for i in indices}, domain)
        reduction = start if len(indices) > len(kept) else None
        element = tuple(map(Index, kept))
        statements.append(Statement(name, target, element, indices, value, reduction, (), s.span))
        values.append(Read(target, element))
        orders.append(kept)
    gone = frozenset().union(*(step.indices - step.kept for step in steps[:-1]))
    indices = tuple(i for i in s.indices if i not in gone)
    value = reduce(lambda a, b: Call(combine, (a, b)), [*(values[n] for n in steps[-1].operands), *fixed])
    domain = project_domain(own.domain, s.indices, s.name, indices)
    edit.own[s.name] = StatementRanges({i: own.indices[i] for i in indices}, domain)
    last = replace(s, indices=indices, value=value, where=())
    return [*statements, last if last.reduction_indices else _without_sum(last, edit.program.tensor(s.target).dtype)]


def _without_sum(s: Statement, dtype: DType) -> Statement:
    """An assignment in the place of a sum of one term."""
    assert s.reduction is not None
    value = s.value
    if s.reduction.init != identity_of(s.reduction.op, dtype):
        value = Call(s.reduction.op, (s.reduction.init, value))
    return replace(s, value=Cast(value, dtype) if dtype.is_storage else value, reduction=None)
