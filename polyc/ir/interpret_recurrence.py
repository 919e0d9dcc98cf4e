"""Recurrences in the reference interpreter: elements are computed as soon as the elements they need are there.

Dataflow over flat lists of points: all points that miss nothing are evaluated together; a point that misses an element waits
for it.  No order of loops is assumed, so that this judges every schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polyc.diagnostics import Diagnostic, RangeError, UnsupportedError
from polyc.ir.components import Component
from polyc.ir.expr import Expr
from polyc.ir.halves import round_to
from polyc.ir.interpret import accumulator_type, check_overlap, check_written, find_region, neutral, shape_of
from polyc.ir.interpret_forms import Box
from polyc.ir.interpret_ranges import ConcreteRanges
from polyc.ir.interpret_statement import execution_conditions
from polyc.ir.interpret_values import (
    Array,
    Scope,
    Waiting,
    check_bounds,
    enter_box,
    evaluate_points,
    numpy_type,
    restrict_scope,
)
from polyc.ir.monoid_recurrence import describe_monoid_recurrence
from polyc.ir.numeric import REDUCE
from polyc.ir.program import Statement

_EVALUATED_AT_ONCE = 1 << 18


@dataclass(slots=True, eq=False)
class _Points:
    """Values to combine into one version: those of a statement, or of its initial value."""

    statement: Statement
    value: Expr
    indices: dict[str, Array]
    elements: Array
    """Flat position of the element that each point goes into."""
    op: str | None


@dataclass(slots=True, eq=False)
class _State:
    scope: Scope
    """Its tensors hold the final values of elements that are ready."""
    sums: dict[str, Array]
    open: dict[str, Array]
    """Per version and element: how many values are still to be combined into it."""


def run_recurrence(
    component: Component, scope: Scope, tensors: dict[str, Array], ranges: ConcreteRanges, temporaries: set[str]
) -> None:
    """Compute all versions of the component into `tensors`; raises RangeError where elements need each other in a circle."""
    groups: list[_Points] = []
    waiting = Waiting({}, {}, np.empty(0, np.int64))
    state = _State(replace(scope, tensors={**tensors}, waiting=waiting), {}, {})
    offset = 0
    for version in component.versions:
        writers = tuple(s for s in component.statements if s.target == version)
        shape = shape_of(scope.ranges[version])
        dtype = numpy_type(scope.types[version], scope.float_as)
        tensors[version] = np.zeros(shape, dtype)
        written = np.zeros(shape, np.bool_)
        types = [accumulator_type(dtype, s.reduction.op) for s in writers if s.reduction is not None]
        state.sums[version] = np.zeros(shape, np.result_type(dtype, *types))
        state.open[version] = np.zeros(shape, np.int64)
        for s in writers:
            if s.reduction is not None and s.reduction.monoid is not None:
                raise UnsupportedError(describe_monoid_recurrence(s))
            region = find_region(s, scope, ranges.statements[s.name], len(writers) == 1)
            check_overlap(s, scope, region, written)
            written |= region
            if s.reduction is not None:
                state.sums[version][region] = neutral(s.reduction.op, state.sums[version].dtype)
                groups.append(_initial_points(s, s.reduction.init, scope, region))
            groups.append(_statement_points(s, scope, ranges.statements[s.name], shape))
        check_written(version, writers[-1], scope, written, version in temporaries)
        waiting.ready[version], waiting.offsets[version] = np.zeros(shape, np.bool_), offset
        offset += int(np.prod(shape))
    state.scope = replace(state.scope, tensors={**scope.tensors, **{v: tensors[v] for v in component.versions}})
    for group in groups:
        np.add.at(state.open[group.statement.target].ravel(), group.elements, 1)
    _run_dataflow(groups, state, offset)


def _statement_points(s: Statement, scope: Scope, box: Box, shape: tuple[int, ...]) -> _Points:
    extents = tuple(upper - lower for lower, upper in box.values())
    local = enter_box(scope, box)
    for condition in execution_conditions(s):
        local = restrict_scope(local, evaluate_points(condition, local))
    chosen = np.broadcast_to(True if local.mask is None else local.mask, extents)
    indices = {name: np.broadcast_to(axis, extents)[chosen] for name, axis in local.indices.items()}
    flat = replace(scope, indices=indices)
    positions = []
    for d, (sub, (lower, upper)) in enumerate(zip(s.subscripts, scope.ranges[s.target], strict=True)):
        value = np.broadcast_to(evaluate_points(sub, flat), (int(chosen.sum()),))
        check_bounds(flat, s.target, d, sub, value, lower, upper, s)
        positions.append(value - lower)
    elements = np.ravel_multi_index(tuple(positions), shape) if positions else np.zeros(int(chosen.sum()), np.int64)
    return _Points(s, s.value, indices, np.asarray(elements), None if s.reduction is None else s.reduction.op)


def _initial_points(s: Statement, init: Expr, scope: Scope, region: Array) -> _Points:
    places = np.nonzero(region) if region.ndim else ()
    interval = scope.ranges[s.target]
    names = s.element_names
    indices = {n: p.astype(np.int64) + low for n, p, (low, _) in zip(names, places, interval, strict=True)}
    assert s.reduction is not None
    return _Points(s, init, indices, np.flatnonzero(region), s.reduction.op)


def _run_dataflow(groups: list[_Points], state: _State, n_elements: int) -> None:
    """Evaluate what misses nothing until nothing is left."""
    begins = np.cumsum([0, *(group.elements.size for group in groups)])
    parked = _Parked(np.full(n_elements, -1, np.int64), np.full(int(begins[-1]), -1, np.int64))
    pending = np.arange(begins[-1])
    while pending.size:
        finished: list[Array] = []
        for n, group in enumerate(groups):
            first, last = np.searchsorted(pending, begins[n : n + 2])
            points = pending[first:last] - begins[n]
            for start in range(0, points.size, _EVALUATED_AT_ONCE):
                part = points[start : start + _EVALUATED_AT_ONCE]
                missing = _evaluate_group(group, part, state, finished)
                late = missing >= 0
                parked.park(missing[late], part[late] + begins[n])
        pending = np.sort(parked.wake(np.unique(np.concatenate(finished))))
    left = np.flatnonzero(parked.latest >= 0)
    if left.size:
        point = int(parked.wake(left[:1]).min())
        n = int(np.searchsorted(begins, point, side="right")) - 1
        group = groups[n]
        where = ", ".join(f"{name} = {int(axis[point - begins[n]])}" for name, axis in group.indices.items())
        message = f"this statement needs a value that needs itself, at {where}"
        help = "a recurrence reads elements that other statements, or earlier points, have computed; check the ranges"
        raise RangeError(Diagnostic("range-circular", message, group.statement.span, help))


@dataclass(slots=True, eq=False)
class _Parked:
    """Points, numbered through all groups, that wait for an element each: a list for each element, linked through arrays."""

    latest: Array
    """Per element the last point that was parked for it, -1 where none waits."""
    before: Array
    """Per point the one that was parked for the same element before it, or -1."""

    def park(self, elements: Array, points: Array) -> None:
        if not points.size:
            return
        order = np.argsort(elements, kind="stable")
        elements, points = elements[order], points[order]
        is_first = np.diff(elements, prepend=-1) != 0
        self.before[points[1:]] = points[:-1]
        self.before[points[is_first]] = self.latest[elements[is_first]]
        is_last = np.diff(elements, append=-1) != 0
        self.latest[elements[is_last]] = points[is_last]

    def wake(self, elements: Array) -> Array:
        """The points that wait for `elements`, which nobody waits for then."""
        found: list[Array] = [np.empty(0, np.int64)]
        points = self.latest[elements]
        self.latest[elements] = -1
        while (points := points[points >= 0]).size:
            found.append(points)
            points = self.before[points]
        return np.concatenate(found)


def _evaluate_group(group: _Points, points: Array, state: _State, finished: list[Array]) -> Array:
    """Combine the values of those `points` that miss nothing; per point the element it misses, or -1."""
    waiting = state.scope.waiting
    assert waiting is not None
    waiting.missing = np.full(points.size, -1, np.int64)
    scope = replace(state.scope, indices={n: axis[points] for n, axis in group.indices.items()})
    value = np.broadcast_to(evaluate_points(group.value, scope), (points.size,))
    missing = waiting.missing
    version = group.statement.target
    dtype, noise = scope.types[version], scope.noise
    if noise is not None:
        value = noise.round_terms(value, dtype, group.op, group.statement.name)
    here = missing < 0
    elements = group.elements[points[here]]
    sums, left = state.sums[version].reshape(-1), state.open[version].reshape(-1)
    if group.op is None:
        sums[elements] = value[here]
    else:
        REDUCE[group.op].at(sums, elements, value[here].astype(sums.dtype))
    np.subtract.at(left, elements, 1)
    done = np.unique(elements[left[elements] == 0])
    final = state.scope.tensors[version].reshape(-1)
    total = sums[done] if noise is None else noise.round_total(sums[done], dtype, group.op, group.statement.name)
    final[done] = round_to(total.astype(final.dtype), dtype)
    waiting.ready[version].reshape(-1)[done] = True
    finished.append(done + waiting.offsets[version])
    return missing
