"""Windows of several dimensions are combined along one dimension at a time.

    before  ``y[h,w] += x[2h+i, 2w+j] * k[i]``                                  over windows of I * J values
    after   ``r[u,w] += x[u, 2w+j]  ;  y[h,w] += r[2h+i, w] * k[i]``            with sums of J and of I values

Neighbouring windows share partial results: 7×7 values cost 7 and 7 operations where windows follow each other element by
element.  Any monoid will do.  The index ``i`` of the window and ``h`` of the result must stand in the same combination ``u``
of both everywhere; in sums, factors that move with ``i`` alone wait for the second pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import gcd, prod
from operator import mul

from polyc.code_limits import MAX_STRIDE
from polyc.ir.expr import Expr, Index, Read, identity_of, index_names, map_children, mentions, operands_of, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.simplify import constant_of, linear_form, simplify, simplify_int
from polyc.poly.domains import extend_domain
from polyc.poly.ranges import Interval, known_shape
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import Change, ProgramBuilder
from polyc.scheduler.rewriting.rules.analysis import is_whole_box

GAIN = 1.2
"""Estimated operations as written over those in two passes, from which on these are worth a temporary."""

INSIDE = 1.3
"""The same for an inner axis instead of an outer one."""

FAR_COST = 2.0
"""Operations that count for one whose lanes read elements too far from each other for whole vectors."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """``stride * outer + step * inner``, of an index of the result and one of the window.

    `value` is over `position`, the index that takes the place of both, and `late` are factors for the second pass."""

    outer: str
    inner: str
    stride: int
    step: int
    value: Expr
    late: tuple[Expr, ...]

    @property
    def position(self) -> str:
        return f"{self.outer}.window"

    @property
    def point(self) -> Expr:
        return simplify_int(self.at(Index(self.outer), Index(self.inner)))

    def at(self, outer: Expr, inner: Expr) -> Expr:
        return self.stride * outer + self.step * inner


def separate_windows(s: Statement, builder: ProgramBuilder) -> Change | None:
    """Windows are combined along one dimension at a time."""
    if not is_whole_box(s, builder.program, builder.ranges):
        return None
    rest, made, messages = s, list[Statement](), list[str]()
    while (axis := _choose_axis(rest, builder, _shared_loads(s, builder.program))) is not None:
        rest, last = _split(rest, axis, builder)
        made.append(last)
        messages.append(f"windows of {s.target} are combined along {axis.inner} behind their other dimensions")
    return ([*made, rest], messages) if made else None


def _choose_axis(s: Statement, builder: ProgramBuilder, loads: float | None) -> _Axis | None:
    """The axis along which windows are combined last, with the fewest operations; None where none of them has the gain.

    `loads`: those for each element of a window, where others share them (`_shared_loads`)."""
    own, summed = builder.own[s.name], s.reduction_indices
    shape = known_shape(own.indices[i] for i in summed)
    if s.reduction is None or s.reduction.monoid is not None or len(summed) < 2 or not shape or not all(shape):
        return None
    numbers, far = dict(zip(summed, shape, strict=True)), _far_indices(s)
    written = (FAR_COST if far else 1.0) * prod(numbers.values())
    best, least = None, written / GAIN if loads is None else (1 + loads) * written / GAIN
    # What was just written is read at other offsets along rows: the outermost axis keeps most between the two passes.
    for outer in s.left_indices:
        for inner in s.reduction_indices:
            axis = _find_axis(s, outer, inner)
            if axis is None or not _has_no_gaps(axis, own.indices[outer].extent, numbers[inner]):
                continue
            first, last = _passes(axis, own.indices[outer].extent, numbers, far)
            first /= prod(
                constant_of(own.indices[i].extent) or 1 for i in s.left_indices if i not in _left_of(s, axis) and i != outer
            )
            cost = first + last if loads is None else (1 + loads) * first + 1 + 2 * last
            if cost <= least:
                best, least = axis, cost / INSIDE
    return best


def _shared_loads(s: Statement, program: Program) -> float | None:
    """The arrays that `s` and other reductions read together, for each of these reductions; None where no other one reads what
    `s` reads."""
    arrays = {r.tensor for r in reads(s.value)}
    together = {s.target: arrays}
    others = {o.target: {r.tensor for r in reads(o.value)} for o in program.statements if o.reduction is not None}
    while found := {t: read for t, read in others.items() if t not in together and read & arrays}:
        together |= found
        arrays = arrays.union(*found.values())
    return len(arrays) / len(together) if len(together) > 1 else None


def _find_axis(s: Statement, outer: str, inner: str) -> _Axis | None:
    """The axis of these two indices, if they stand in one combination of both wherever one of them does."""
    early: list[Expr] = []
    late: list[Expr] = []
    for factor in operands_of(s.value, "mul") if s.reduction is not None and s.reduction.op == "add" else [s.value]:
        named = index_names(factor)
        is_late = inner in named and outer not in named and named.isdisjoint(set(s.reduction_indices) - {inner})
        (late if is_late else early).append(factor)
    steps = set[tuple[int, int] | None]()

    def note(e: Expr) -> Expr:
        steps.add(_steps(e, outer, inner))
        return e

    for factor in early:
        _map_positions(factor, note)
    step = next(iter(steps - {(0, 0)}), None)
    if step is None or min(step) <= 0 or len(steps - {(0, 0)}) > 1:
        return None
    unit = gcd(*step)
    axis = _Axis(outer, inner, step[0] // unit, step[1] // unit, s.value, tuple(late))
    difference = unit * (Index(axis.position) - axis.point)

    def redirect(e: Expr) -> Expr:
        return e if _steps(e, outer, inner) == (0, 0) else simplify(e + difference)

    return replace(axis, value=reduce(mul, (_map_positions(factor, redirect) for factor in early)))


def _map_positions(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` with the largest integer expressions in it that are linear forms changed."""
    return change(expr) if linear_form(expr) is not None else map_children(expr, lambda e: _map_positions(e, change))


def _steps(expr: Expr, outer: str, inner: str) -> tuple[int, int] | None:
    """Coefficients of both indices in a linear form; None where one of them stands inside of another term."""
    form = linear_form(expr) or {}
    if any(mentions(term, outer, inner) for term in form if not isinstance(term, (int, Index))):
        return None
    return form.get(Index(outer), 0), form.get(Index(inner), 0)


def _has_no_gaps(axis: _Axis, extent: Expr, window: int) -> bool:
    """Whether every position between the first and the last is one of some window."""
    if axis.step == 1:
        return axis.stride <= window
    return axis.stride == 1 and axis.step <= (constant_of(extent) or 0)


def _far_indices(s: Statement) -> set[str]:
    """Indices of the result along which the last subscript of a read takes wide steps."""
    steps = [index_coefficients(e) or {} for read in reads(s.value) for e in read.subscripts[-1:]]
    return {i for found in steps for i, c in found.items() if i in s.left_indices and abs(c) > MAX_STRIDE}


def _passes(axis: _Axis, extent: Expr, counts: dict[str, int], far: set[str]) -> tuple[float, float]:
    """Operations of the first pass and of the last one for each element of the result."""
    window, n = counts[axis.inner], constant_of(extent)
    per_element = (axis.stride * (n - 1) + axis.step * (window - 1) + 1) / n if n else float(axis.stride)
    first = per_element * prod(counts.values()) / window * (FAR_COST if far - {axis.outer} else 1.0)
    return first, window * (FAR_COST if axis.outer in far else 1.0)


def _split(s: Statement, axis: _Axis, builder: ProgramBuilder) -> tuple[Statement, Statement]:
    """The pass over all other dimensions of the windows, and the one along the axis."""
    assert s.reduction is not None
    own, left = builder.own[s.name], _left_of(s, axis)
    others = [i for i in s.reduction_indices if i != axis.inner]
    outer, inner = own.indices[axis.outer], own.indices[axis.inner]
    last = axis.at(outer.extent - 1, inner.extent - 1)
    positions = Interval(simplify(axis.at(outer.lower, inner.lower)), simplify(last + 1))
    intervals = own.indices | {axis.position: positions}
    start = Reduction(s.reduction.op, identity_of(s.reduction.op, builder.tensor(s.target).dtype))
    first = builder.define(s, "part", left, axis.value, others, start, intervals)
    points = extend_domain(own.domain, s.indices, first.name, first.indices, axis.position, axis.point)
    builder.own[first.name] = replace(builder.own[first.name], domain=points)
    read = Read(first.target, tuple(axis.point if i == axis.position else Index(i) for i in left))
    value = reduce(mul, axis.late, read)
    kept = (*s.left_indices, axis.inner)
    return first, builder.change(s, builder.points(s).project(kept), value=value)


def _left_of(s: Statement, axis: _Axis) -> tuple[str, ...]:
    """The indices of what the first pass computes: those of the result that it depends on, with the position."""
    named = index_names(axis.value)
    moved = (axis.position if i == axis.outer else i for i in s.left_indices)
    return tuple(i for i in moved if i in named)
