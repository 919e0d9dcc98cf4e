"""The reference interpreter: runs a `Program` straight from its statements, in NumPy.

It shares no code with range inference, scheduler or code generation, so that it can judge them.  Ranges come from
`interpret_ranges`, the meaning of operators from `numeric`, values of expressions over whole iteration spaces from
`interpret_values`; this file combines them into the targets.  Recurrences are in `interpret_recurrence`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, RangeError
from polyc.ir.advice import help_repeated, help_twice, help_unwritten
from polyc.ir.components import Component, order_components
from polyc.ir.expr import Expr, Index, Read, Size, evaluate, rewrite, walk
from polyc.ir.halves import narrow, round_to, widen
from polyc.ir.interpret_forms import Box, Interval
from polyc.ir.interpret_ranges import ConcreteRanges, complete_sizes, solve_ranges
from polyc.ir.interpret_segments import check_loaded_ranges
from polyc.ir.interpret_statement import execution_conditions
from polyc.ir.interpret_values import (
    Array,
    Scope,
    check_bounds,
    enter_box,
    evaluate_points,
    numpy_type,
    restrict_scope,
    split_box,
)
from polyc.ir.numeric import REDUCE, quiet
from polyc.ir.program import Monoid, Program, Statement, integer_parameters, tuple_components
from polyc.ir.rounding import Noise
from polyc.ir.types import DType


def interpret(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    out: Mapping[str, np.ndarray] | None = None,
    float_as: np.dtype | type | None = None,
    noise: Noise | None = None,
) -> dict[str, np.ndarray]:
    """Results by the user's name of the return; inputs and `out` are not changed.

    `arrays`: inputs by parameter name.  `sizes`: symbols that no input shape gives.  `out`: for accumulated results, what the
    array holds before the call, by the name of the return.  A result holds exactly the inferred range of its indices, its
    element 0 being the lower bound, or the declared shape.

    Arithmetic is done in the program's own element types, that on 16-bit floats in f32 with one rounding where an element is
    stored or explicitly cast; sums and products in f32 are carried in f64 and rounded once.  `float_as=np.float64` evaluates
    all f32 arithmetic in f64 instead (an oracle for the rounding of the f32 result); 16-bit results are then f64 as well.
    `noise` adds rounding errors by chance.

    Raises ArgumentError (shapes, sizes, bounds that data gives), ArgumentTypeError (element types), RangeError (ranges that
    cannot be found, reads outside a tensor, elements never or twice written), BoundsError (data-dependent subscripts outside).
    """
    from polyc.ir.interpret_recurrence import run_recurrence  # which is written in terms of this module

    wide = None if float_as is None else np.dtype(float_as)
    outputs = dict(out or {})
    values = bind_sizes(program, arrays, sizes or {}, outputs)
    ranges = solve_ranges(program, values)
    _check_extents(program, ranges)
    tensors = _take_inputs(program, arrays, values, wide)
    tensors |= _take_accumulated(program, outputs, ranges, wide)
    scope = Scope({}, values, tensors, ranges.tensors, program.types, {t.name: t.base for t in program.tensors}, wide)
    scope = replace(scope, noise=noise)
    for s in program.statements:
        check_loaded_ranges(s, scope, ranges.statements[s.name])
    components = order_components(program)
    last_use = _last_uses(components, {r.version for r in program.returns})
    with quiet():
        for position, component in enumerate(components):
            if component.is_recurrence:
                temporaries = {t.name for t in program.tensors if t.role == "temporary"}
                run_recurrence(component, scope, tensors, ranges, temporaries)
            else:
                (version,) = component.versions
                is_temporary = program.tensor(version).role == "temporary"
                computed = _run_version(version, component.statements, scope, ranges, is_temporary)
                tensors[version] = round_to(computed, program.types[version])
            for name in [n for n, p in last_use.items() if p == position]:
                tensors.pop(name, None)
    return {r.name: _take_result(tensors[r.version], program.types[r.version], wide) for r in program.returns}


def _take_result(values: Array, dtype: DType, float_as: np.dtype | None) -> Array:
    if dtype.is_storage and float_as is None:
        return narrow(values, dtype)
    return np.array(values, copy=True)


def bind_sizes(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    out: Mapping[str, np.ndarray] | None = None,
) -> dict[str, int]:
    """Values of all size symbols, defined ones included, from the shapes of the inputs (and of `out`) and from `sizes`.

    Raises ArgumentError where an input is missing, a rank is wrong, two shapes disagree, or a symbol gets no value.
    """
    given: list[tuple[str, tuple[Expr, ...], np.ndarray]] = []
    for name in program.parameters:
        if name not in arrays:
            raise ArgumentError(Diagnostic("argument-missing", f"no array was given for the parameter {name}"))
        tensor = program.tensor(name)
        if arrays[name].ndim != tensor.rank:
            message = f"{name} has {tensor.rank} dimensions, the array given has {arrays[name].ndim}"
            raise ArgumentError(Diagnostic("argument-rank", message, tensor.span))
        given.append((name, tensor.shape or (), arrays[name]))
    for result in program.returns:
        if result.initial is not None and out is not None and result.name in out:
            given.append((result.name, program.tensor(result.initial).shape or (), out[result.name]))
    values = dict(sizes)
    origin = {name: "the size given" for name in sizes}
    for name in integer_parameters(program):
        number = int(arrays[name])
        if number < 0 or values.setdefault(name, number) != number:
            wanted = f"{values[name]}, the size given" if number >= 0 else "0 or more"
            raise ArgumentError(Diagnostic("argument-size", f"{name} is {number}, and must be {wanted}"))
        origin.setdefault(name, "the number given")
    for name, shape, array in given:
        for dimension, (extent, actual) in enumerate(zip(shape, array.shape, strict=False)):
            if isinstance(extent, Size):
                here = f"dimension {dimension} of {name}"
                if values.setdefault(extent.name, actual) != actual:
                    message = f"{extent.name} is {values[extent.name]} ({origin[extent.name]}) but {here} is {actual}"
                    raise ArgumentError(Diagnostic("argument-shape", message))
                origin.setdefault(extent.name, here)
    missing = [name for name in program.sizes if name not in values]
    if missing:
        message = f"the size {missing[0]} does not follow from the shapes of the arrays"
        raise ArgumentError(Diagnostic("argument-size", message, help=f"give it: {missing[0]}=…"))
    values = complete_sizes(program, values)
    for name, shape, array in given:
        for dimension, (extent, actual) in enumerate(zip(shape, array.shape, strict=False)):
            if evaluate(extent, values) != actual:
                message = f"dimension {dimension} of {name} should be {evaluate(extent, values)}, but is {actual}"
                raise ArgumentError(Diagnostic("argument-shape", message))
    return values


def _take_array(name: str, array: np.ndarray, dtype: DType, float_as: np.dtype | None) -> Array:
    wanted = numpy_type(dtype, float_as)
    if array.dtype not in (dtype.numpy, wanted):
        raise ArgumentTypeError(Diagnostic("argument-type-dtype", f"{name} is {dtype}, the array given is {array.dtype}"))
    return (widen(array) if dtype.is_storage else array).astype(wanted, copy=False)


def _take_inputs(
    program: Program, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], float_as: np.dtype | None
) -> dict[str, Array]:
    return {n: _take_array(n, arrays[n], program.tensor(n).dtype, float_as) for n in program.parameters}


def _take_accumulated(
    program: Program, out: Mapping[str, np.ndarray], ranges: ConcreteRanges, float_as: np.dtype | None
) -> dict[str, Array]:
    taken = {}
    for result in program.returns:
        if result.initial is None:
            continue
        if result.name not in out:
            message = f"{result.name} is accumulated into: the array to add to is missing"
            raise ArgumentError(Diagnostic("argument-missing-out", message, help=f"give it as out={{'{result.name}': …}}"))
        shape = shape_of(ranges.tensors[result.initial])
        if out[result.name].shape != shape:
            message = f"out array {result.name} should have the shape {shape}, but has {out[result.name].shape}"
            raise ArgumentError(Diagnostic("argument-shape", message))
        dtype = program.tensor(result.initial).dtype
        taken[result.initial] = _take_array(result.name, out[result.name], dtype, float_as)
    return taken


def _last_uses(components: list[Component], kept: set[str]) -> dict[str, int]:
    """Position of the component after which a version that is not `kept` is dead."""
    last: dict[str, int] = {}
    for position, component in enumerate(components):
        for s in component.statements:
            roots = [s.value, *s.subscripts, *execution_conditions(s)] + ([s.reduction.init] if s.reduction else [])
            for root in roots:
                last |= {node.tensor: position for node in walk(root) if isinstance(node, Read)}
            last.setdefault(s.target, position)
    return {name: position for name, position in last.items() if name not in kept}


def _check_extents(program: Program, ranges: ConcreteRanges) -> None:
    """No result may have a negative extent, which the computed subscripts of no points at all can give."""
    for result in program.returns:
        for d, (lower, upper) in enumerate(ranges.tensors[result.version]):
            if upper < lower:
                message = f"dimension {d} of {result.name} would have extent {upper - lower}"
                raise RangeError(Diagnostic("range-negative", message, None, "the inputs are too small for this operator"))


def shape_of(interval: tuple[Interval, ...]) -> tuple[int, ...]:
    """Extents of the array for a version; the span of no elements may be negative."""
    return tuple(max(0, upper - lower) for lower, upper in interval)


# --- Statements ------------------------------------------------------------------------------------------------------


def _run_version(
    version: str, writers: tuple[Statement, ...], scope: Scope, ranges: ConcreteRanges, is_temporary: bool
) -> Array:
    """All elements of a version whose writers do not read it."""
    shape = shape_of(scope.ranges[version])
    dtype = numpy_type(scope.types[version], scope.float_as)
    result = np.zeros(shape, dtype)
    if (
        len(writers) == 1
        and writers[0].has_plain_left
        and not (writers[0].reduction is None and execution_conditions(writers[0]))
    ):
        return _run_statement(writers[0], scope, ranges.statements[writers[0].name], np.ones(shape, np.bool_), result)
    written = np.zeros(shape, np.bool_)
    for s in writers:
        region = find_region(s, scope, ranges.statements[s.name], len(writers) == 1)
        check_overlap(s, scope, region, written)
        result = _run_statement(s, scope, ranges.statements[s.name], region, result)
        written |= region
    check_written(version, writers[-1], scope, written, is_temporary)
    return result


def find_region(s: Statement, scope: Scope, box: Box, is_alone: bool) -> Array:
    """The elements that are the statement's to define; raises RangeError where an assignment defines one twice."""
    shape = shape_of(scope.ranges[s.target])
    if s.reduction is not None and is_alone:
        return np.ones(shape, np.bool_)
    count = np.zeros(shape, np.int64)
    conditions = execution_conditions(s) if s.reduction is None else []
    left = set(s.left_indices) if s.reduction is not None else set(box)
    for piece in split_box({n: b for n, b in box.items() if n in left}):
        local = enter_box(scope, piece)
        for condition in conditions:
            local = restrict_scope(local, evaluate_points(condition, local))
        np.add.at(count, _chosen_positions(s, local, piece, shape), 1)
    if s.reduction is None and (count > 1).any():
        element = _describe_element(s.target, np.argwhere(count > 1)[0], scope)
        message = f"{element} is written by several points of this statement"
        raise RangeError(Diagnostic("range-written-twice", message, s.span, help_repeated(s.span)))
    return count > 0


def _chosen_positions(s: Statement, scope: Scope, piece: Box, shape: tuple[int, ...]) -> tuple[Array, ...]:
    extents = tuple(upper - lower for lower, upper in piece.values())
    places = _element_positions(s, scope, extents, shape)
    if scope.mask is None:
        return places
    chosen = np.broadcast_to(scope.mask, extents)
    return tuple(p[chosen] for p in places)


def _describe_element(version: str, position: Array, scope: Scope) -> str:
    point = [str(int(p) + lower) for p, (lower, _) in zip(position, scope.ranges[version], strict=True)]
    return f"{scope.names[version]}({', '.join(point)})" if point else scope.names[version]


def check_overlap(s: Statement, scope: Scope, region: Array, written: Array) -> None:
    """Two statements of one version may not define the same element."""
    twice = np.logical_and(region, written)
    if twice.any():
        element = _describe_element(s.target, np.argwhere(twice)[0], scope)
        message = f"{element} is written by this statement and by one above"
        raise RangeError(Diagnostic("range-written-twice", message, s.span, help_twice(s.span)))


def check_written(version: str, last: Statement, scope: Scope, written: Array, is_temporary: bool) -> None:
    """Every element of a version must have a value; of a temporary those that are read, which is seen then."""
    if is_temporary and not written.all():
        scope.holes[version] = np.logical_not(written)
    elif not written.all():
        element = _describe_element(version, np.argwhere(np.logical_not(written))[0], scope)
        message = f"{element} is never written"
        raise RangeError(Diagnostic("range-unwritten", message, last.span, help_unwritten(last.span)))


def _run_statement(s: Statement, scope: Scope, box: Box, region: Array, before: Array) -> Array:
    """`before` with the elements of `region` as the statement defines them."""
    dtype = before.dtype
    if s.reduction is None:
        for piece in split_box(box):
            _combine_piece(s, scope, piece, before)
        return before
    if s.reduction.monoid is not None:
        np.copyto(before, _fold_tuples(s, s.reduction.monoid, scope, box, before.shape), where=region)
        return before
    target = _evaluate_initial(s, scope, accumulator_type(dtype, s.reduction.op))
    for piece in split_box(box):
        _combine_piece(s, scope, piece, target)
    if scope.noise is not None:
        target = scope.noise.round_total(target, scope.types[s.target], s.reduction.op, s.name)
    np.copyto(before, target.astype(dtype, copy=False), where=region)
    return before


def _fold_tuples(s: Statement, monoid: Monoid, scope: Scope, box: Box, shape: tuple[int, ...]) -> Array:
    """The component of a user's monoid that `s` writes, point after point."""
    assert s.reduction is not None
    states = [np.full(shape, c.value, numpy_type(c.dtype, scope.float_as)) for c in monoid.identity]
    for piece in split_box(box):
        local = enter_box(scope, piece)
        extents = tuple(upper - lower for lower, upper in piece.values())
        for condition in execution_conditions(s):
            local = restrict_scope(local, evaluate_points(condition, local))
        here = _slices(s.subscripts, piece, scope.ranges[s.target])
        order = [list(piece).index(e.name) for e in s.subscripts if isinstance(e, Index)]
        order += [k for k in range(len(extents)) if k not in order]
        values = []
        for expr, constant in zip(tuple_components(s), monoid.identity, strict=True):
            value = np.broadcast_to(evaluate_points(expr, local), extents)
            if local.mask is not None:
                value = np.where(np.broadcast_to(local.mask, extents), value, np.asarray(constant.value, value.dtype))
            rows = value.transpose(order)
            values.append(rows.reshape((*rows.shape[: len(shape)], prod(rows.shape[len(shape) :]))))
        for point in range(values[0].shape[-1]):
            old = [state[here] for state in states]
            new = combine_arrays(monoid, old, [v[..., point] for v in values], scope)
            for state, value in zip(states, new, strict=True):
                state[here] = value
    return states[s.reduction.component]


def combine_arrays(monoid: Monoid, left: list[Array], right: list[Array], scope: Scope) -> list[Array]:
    """``left ∘ right`` element by element, for arrays of one shape."""
    shape = left[0].shape
    axes = {f"axis.{d}": np.arange(n).reshape([-1 if k == d else 1 for k in range(len(shape))]) for d, n in enumerate(shape)}
    arrays = {f"{side}.{k}": a for side, group in (("left", left), ("right", right)) for k, a in enumerate(group)}
    interval = tuple((0, n) for n in shape)
    names = {n: n for n in arrays}
    local = Scope(axes, {}, arrays, dict.fromkeys(arrays, interval), monoid.types, names, scope.float_as, noise=scope.noise)
    subscripts = tuple(map(Index, axes))

    def read(node: Expr) -> Expr | None:
        return replace(node, subscripts=subscripts) if isinstance(node, Read) else None

    return [np.broadcast_to(evaluate_points(rewrite(r, read), local), shape) for r in monoid.results]


def _evaluate_initial(s: Statement, scope: Scope, dtype: np.dtype) -> Array:
    """The initial value at every element of the version."""
    assert s.reduction is not None
    interval = scope.ranges[s.target]
    target = np.empty(shape_of(interval), dtype)
    names = s.element_names
    for piece in split_box(dict(zip(names, interval, strict=True))):
        here = tuple(slice(piece[n][0] - low, piece[n][1] - low) for n, (low, _) in zip(names, interval, strict=True))
        extents = tuple(upper - lower for lower, upper in piece.values())
        target[here] = np.broadcast_to(evaluate_points(s.reduction.init, enter_box(scope, piece)), extents)
    return target


def accumulator_type(dtype: np.dtype, op: str) -> np.dtype:
    """Sums and products of f32 are carried in f64, of c64 in c128."""
    if dtype == np.complex64 and op in ("add", "mul"):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if dtype == np.float32 and op in ("add", "mul") else dtype


def _combine_piece(s: Statement, scope: Scope, piece: Box, target: Array) -> None:
    local = enter_box(scope, piece)
    extents = tuple(upper - lower for lower, upper in piece.values())
    for condition in execution_conditions(s):
        local = restrict_scope(local, evaluate_points(condition, local))
    value = np.broadcast_to(evaluate_points(s.value, local), extents)
    if scope.noise is not None and s.reduction is not None:
        value = scope.noise.round_terms(value, scope.types[s.target], s.reduction.op, s.name)
    interval = scope.ranges[s.target]
    if not s.has_plain_left or (s.reduction is None and local.mask is not None):
        places = _element_positions(s, local, extents, target.shape)
        if local.mask is not None:
            chosen = np.broadcast_to(local.mask, extents)
            places, value = tuple(p[chosen] for p in places), value[chosen]
        if s.reduction is None:
            target[places] = value
        else:
            REDUCE[s.reduction.op].at(target, places, value.astype(target.dtype))
        return
    here = _slices(s.subscripts, piece, interval)
    order = [list(piece).index(e.name) for e in s.subscripts if isinstance(e, Index)]
    if s.reduction is None:
        target[here] = value.transpose(order)
        return
    ufunc = REDUCE[s.reduction.op]
    rest = tuple(k for k in range(len(extents)) if k not in order)
    kept = sorted(order)
    if prod(extents[k] for k in rest) == 0:
        return
    if local.mask is not None:  # masked points have no value at all: fold the others one axis position at a time
        chosen = np.broadcast_to(local.mask, extents)
        value = np.where(chosen, value.astype(target.dtype), neutral(s.reduction.op, target.dtype))
    folded = ufunc.reduce(value, axis=rest, dtype=target.dtype) if rest else value.astype(target.dtype)
    target[here] = ufunc(target[here], folded.transpose([kept.index(k) for k in order]))


def neutral(op: str, dtype: np.dtype) -> Any:
    """The identity of a monoid."""
    if op in ("add", "or"):
        return dtype.type(0)
    if op in ("mul", "and"):
        return dtype.type(1)
    if dtype.kind == "f":
        return dtype.type(-np.inf if op == "max" else np.inf)
    if dtype.kind == "b":
        return dtype.type(op == "min")
    info = np.iinfo(dtype)
    return dtype.type(info.min if op == "max" else info.max)


def _element_positions(s: Statement, scope: Scope, extents: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, ...]:
    interval = scope.ranges[s.target]
    places = []
    for dimension, (sub, (lower, upper)) in enumerate(zip(s.subscripts, interval, strict=True)):
        position = np.broadcast_to(evaluate_points(sub, scope), extents)
        check_bounds(scope, s.target, dimension, sub, position, lower, upper, s)
        places.append(position - lower)
    return tuple(places)


def _slices(subscripts: tuple[Expr, ...], piece: Box, interval: tuple[Interval, ...]) -> tuple[slice, ...]:
    cuts = []
    for sub, (origin, _) in zip(subscripts, interval, strict=True):
        assert isinstance(sub, Index)
        lower, upper = piece[sub.name]
        cuts.append(slice(lower - origin, upper - origin))
    return tuple(cuts)
