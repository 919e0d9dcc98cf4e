"""The reference interpreter: runs a `Program` straight from its statements, in NumPy.

It shares no code with range inference, scheduler or code generation, so that it can judge them.  Ranges come from
`interpret_ranges`, the meaning of operators from `numeric`; this file evaluates expressions over whole iteration spaces at
once (one array axis per index, broadcast, in pieces that fit in memory) and combines them into the targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, assert_never

import numpy as np

from polyc.diagnostics import (
    ArgumentError,
    ArgumentTypeError,
    BoundsError,
    Diagnostic,
    RangeError,
    UnsupportedError,
)
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, evaluate, walk
from polyc.ir.interpret_ranges import (
    Box,
    ConcreteRanges,
    Interval,
    complete_sizes,
    execution_conditions,
    order_statements,
    solve_ranges,
)
from polyc.ir.numeric import APPLY, REDUCE, quiet
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType

_POINTS_AT_ONCE = 1 << 21
"""Points of an iteration space evaluated together: 16 MiB per 8-byte intermediate value."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What an expression is evaluated in."""

    indices: Mapping[str, Array]
    """Values of each index along its own axis; all broadcast against each other."""
    sizes: Mapping[str, int]
    tensors: Mapping[str, Array]
    ranges: Mapping[str, tuple[Interval, ...]]
    types: Mapping[str, DType]
    names: Mapping[str, str]
    """The user's name of each tensor version, for messages."""
    float_as: np.dtype | None
    mask: Array | None = field(default=None)
    """Points that count; None: all.  Elsewhere reads are clamped and values have no meaning."""


def interpret(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    out: Mapping[str, np.ndarray] | None = None,
    float_as: np.dtype | type | None = None,
) -> dict[str, np.ndarray]:
    """Results by the user's name of the return; inputs and `out` are not changed.

    `arrays`: inputs by parameter name.  `sizes`: symbols that no input shape gives.  `out`: for accumulated results, what the
    array holds before the call, by the name of the return.  A result holds exactly the inferred range of its indices, its
    element 0 being the lower bound, or the declared shape.

    Arithmetic is done in the program's own element types; sums and products in f32 are carried in f64 and rounded once.
    `float_as=np.float64` evaluates all f32 arithmetic in f64 instead (an oracle for the rounding of the f32 result).

    Raises ArgumentError (shapes, sizes), ArgumentTypeError (element types), RangeError (ranges that cannot be found, reads
    outside a tensor), BoundsError (data-dependent reads outside), UnsupportedError (recurrences).
    """
    wide = None if float_as is None else np.dtype(float_as)
    outputs = dict(out or {})
    values = bind_sizes(program, arrays, sizes or {}, outputs)
    ranges = solve_ranges(program, values)
    tensors = _take_inputs(program, arrays, values, wide)
    tensors |= _take_accumulated(program, outputs, ranges, wide)
    scope = _Scope({}, values, tensors, ranges.tensors, program.types, {t.name: t.base for t in program.tensors}, wide)
    last_use = _last_uses(program)
    with quiet():
        for position, statement in enumerate(order_statements(program)):
            tensors[statement.target] = _run_statement(statement, scope, ranges.statements[statement.name])
            for name in [n for n, p in last_use.items() if p == position]:
                tensors.pop(name, None)
    return {r.name: np.array(tensors[r.version], copy=True) for r in program.returns}


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


def _numpy_type(dtype: DType, float_as: np.dtype | None) -> np.dtype:
    return float_as if float_as is not None and dtype.name == "f32" else dtype.numpy


def _take_array(name: str, array: np.ndarray, dtype: DType, float_as: np.dtype | None) -> Array:
    wanted = _numpy_type(dtype, float_as)
    if array.dtype not in (dtype.numpy, wanted):
        raise ArgumentTypeError(Diagnostic("argument-type-dtype", f"{name} is {dtype}, the array given is {array.dtype}"))
    return array.astype(wanted, copy=False)


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
        shape = tuple(upper - lower for lower, upper in ranges.tensors[result.initial])
        if out[result.name].shape != shape:
            message = f"out array {result.name} should have the shape {shape}, but has {out[result.name].shape}"
            raise ArgumentError(Diagnostic("argument-shape", message))
        dtype = program.tensor(result.initial).dtype
        taken[result.initial] = _take_array(result.name, out[result.name], dtype, float_as)
    return taken


def _last_uses(program: Program) -> dict[str, int]:
    """Position of the statement after which a temporary is dead."""
    kept = {r.version for r in program.returns}
    last: dict[str, int] = {}
    for position, s in enumerate(order_statements(program)):
        roots = [s.value, *s.subscripts] + ([s.reduction.init] if s.reduction else [])
        roots += execution_conditions(s)
        for root in roots:
            last |= {node.tensor: position for node in walk(root) if isinstance(node, Read)}
        last.setdefault(s.target, position)
    return {name: position for name, position in last.items() if name not in kept}


# --- Statements ------------------------------------------------------------------------------------------------------


def _run_statement(s: Statement, scope: _Scope, box: Box) -> Array:
    """All elements of the target version."""
    interval = scope.ranges[s.target]
    shape = tuple(upper - lower for lower, upper in interval)
    dtype = _numpy_type(scope.types[s.target], scope.float_as)
    plain = [e.name for e in s.subscripts if isinstance(e, Index)]
    is_plain = len(plain) == len(s.subscripts) and len(set(plain)) == len(plain)
    if s.reduction is None:
        if execution_conditions(s):
            message = f"a condition leaves elements of {scope.names[s.target]} without a value"
            raise UnsupportedError(Diagnostic("unsupported-partial-assignment", message, s.span))
        target = np.zeros(shape, dtype)
    else:
        dtype = _accumulator_type(dtype, s.reduction.op)
        target = np.empty(shape, dtype)
        left = dict(zip(plain, interval, strict=True)) if is_plain else {n: box[n] for n in s.left_indices}
        if not is_plain and left and any(isinstance(node, Index) for node in walk(s.reduction.init)):
            message = "the initial value of a scattered reduction cannot depend on an index"
            raise UnsupportedError(Diagnostic("unsupported-initial-value", message, s.span))
        for piece in _split_box(left if is_plain else {}):
            local = _enter(scope, piece)
            here = _slices(s.subscripts, piece, interval) if is_plain else (slice(None),) * len(shape)
            axes = [list(piece).index(n) for n in plain] if is_plain else []
            value = _evaluate(s.reduction.init, local)
            extents = tuple(upper - lower for lower, upper in piece.values())
            target[here] = np.broadcast_to(value, extents).transpose(axes) if is_plain else value
    for piece in _split_box(box):
        _combine_piece(s, scope, piece, target, is_plain)
    return target.astype(_numpy_type(scope.types[s.target], scope.float_as), copy=False)


def _accumulator_type(dtype: np.dtype, op: str) -> np.dtype:
    return np.dtype(np.float64) if dtype == np.float32 and op in ("add", "mul") else dtype


def _combine_piece(s: Statement, scope: _Scope, piece: Box, target: Array, is_plain: bool) -> None:
    local = _enter(scope, piece)
    extents = tuple(upper - lower for lower, upper in piece.values())
    for condition in execution_conditions(s):
        local = _under(local, _evaluate(condition, local))
    value = np.broadcast_to(_evaluate(s.value, local), extents)
    interval = scope.ranges[s.target]
    if not is_plain:
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
        value = np.where(chosen, value.astype(target.dtype), _neutral(s.reduction.op, target.dtype))
    folded = ufunc.reduce(value, axis=rest, dtype=target.dtype) if rest else value.astype(target.dtype)
    target[here] = ufunc(target[here], folded.transpose([kept.index(k) for k in order]))


def _neutral(op: str, dtype: np.dtype) -> Any:
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


def _element_positions(s: Statement, scope: _Scope, extents: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Array, ...]:
    interval = scope.ranges[s.target]
    places = []
    for dimension, (sub, (lower, upper)) in enumerate(zip(s.subscripts, interval, strict=True)):
        position = np.broadcast_to(_evaluate(sub, scope), extents)
        _check_bounds(scope, s.target, dimension, sub, position, lower, upper, s)
        places.append(position - lower)
    return tuple(places)


def _split_box(box: Box) -> Iterator[Box]:
    """The box in pieces of at most `_POINTS_AT_ONCE` points, cut along the leading dimensions first."""
    pending = [box]
    while pending:
        piece = pending.pop()
        extents = {n: upper - lower for n, (lower, upper) in piece.items()}
        total = prod(extents.values())
        wide = next((n for n, e in extents.items() if e > 1), None)
        if total <= _POINTS_AT_ONCE or wide is None:
            yield piece
            continue
        lower, upper = piece[wide]
        step = max(1, _POINTS_AT_ONCE // (total // extents[wide]))
        cuts = [(k, min(k + step, upper)) for k in range(lower, upper, step)]
        pending.extend({**piece, wide: cut} for cut in reversed(cuts))


def _enter(scope: _Scope, piece: Box) -> _Scope:
    rank = len(piece)
    axes = {
        name: np.arange(lower, upper, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(rank)])
        for axis, (name, (lower, upper)) in enumerate(piece.items())
    }
    return replace(scope, indices=axes, mask=None)


def _slices(subscripts: tuple[Expr, ...], piece: Box, interval: tuple[Interval, ...]) -> tuple[slice, ...]:
    cuts = []
    for sub, (origin, _) in zip(subscripts, interval, strict=True):
        assert isinstance(sub, Index)
        lower, upper = piece[sub.name]
        cuts.append(slice(lower - origin, upper - origin))
    return tuple(cuts)


# --- Expressions -----------------------------------------------------------------------------------------------------


def _evaluate(expr: Expr, scope: _Scope) -> Array:
    """Values at all points of the scope, as an array that broadcasts to the iteration space."""
    match expr:
        case Const():
            literal = int(expr.value) if expr.dtype.is_integer else expr.value
            return np.asarray(literal, expr.dtype.numpy).astype(_numpy_type(expr.dtype, scope.float_as))
        case Index():
            return scope.indices[expr.name]
        case Size():
            return np.asarray(scope.sizes[expr.name], np.int64)
        case Read():
            positions = []
            interval = scope.ranges[expr.tensor]
            for dimension, (sub, (lower, upper)) in enumerate(zip(expr.subscripts, interval, strict=True)):
                value = _evaluate(sub, scope)
                _check_bounds(scope, expr.tensor, dimension, sub, value, lower, upper, expr)
                positions.append(_clamp(value, lower, upper) - lower)
            return _gather(scope.tensors[expr.tensor], positions)
        case Pad():
            return _evaluate_pad(expr, scope)
        case Call():
            return np.asarray(APPLY[expr.op](*(_evaluate(a, scope) for a in expr.args)))
        case Select():
            condition = _evaluate(expr.condition, scope)
            then = _evaluate(expr.then, _under(scope, condition))
            other = _evaluate(expr.other, _under(scope, np.logical_not(condition)))
            return np.where(condition, then, other)
        case Cast():
            return _evaluate(expr.value, scope).astype(_numpy_type(expr.dtype, scope.float_as))
        case _:
            assert_never(expr)


def _under(scope: _Scope, condition: Array) -> _Scope:
    return replace(scope, mask=condition if scope.mask is None else np.logical_and(scope.mask, condition))


def _evaluate_pad(expr: Pad, scope: _Scope) -> Array:
    interval = scope.ranges[expr.read.tensor]
    subscripts = [_evaluate(sub, scope) for sub in expr.read.subscripts]
    inside: Array = np.asarray(True)
    for value, (lower, upper) in zip(subscripts, interval, strict=True):
        inside = np.logical_and(inside, np.logical_and(value >= lower, value < upper))
    padding = _evaluate(expr.value, _under(scope, np.logical_not(inside)))
    positions = [_clamp(v, lower, upper) - lower for v, (lower, upper) in zip(subscripts, interval, strict=True)]
    return np.where(inside, _gather(scope.tensors[expr.read.tensor], positions), padding)


def _clamp(value: Array, lower: int, upper: int) -> Array:
    return np.minimum(np.maximum(value, lower), max(upper - 1, lower))


def _gather(array: Array, positions: list[Array]) -> Array:
    """``array[positions]``; an array without elements gives zeros (only points that do not count can ask it)."""
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*(p.shape for p in positions)), array.dtype)
    return np.asarray(array[tuple(positions)])


def _check_bounds(
    scope: _Scope, tensor: str, dimension: int, sub: Expr, value: Array, lower: int, upper: int, node: Read | Statement
) -> None:
    """Every point that counts must have ``lower <= value < upper``."""
    outside = np.logical_or(value < lower, value >= upper)
    if not outside.any() and value.ndim == 0 and not scope.indices:
        return
    if scope.mask is not None:
        outside = np.logical_and(outside, scope.mask)
    shape = np.broadcast_shapes(outside.shape, *(axis.shape for axis in scope.indices.values()))
    if not outside.any() or 0 in shape:
        return
    first = np.unravel_index(int(np.argmax(np.broadcast_to(outside, shape))), shape)
    found = int(np.broadcast_to(value, shape)[first])
    point = ", ".join(f"{n} = {int(np.broadcast_to(axis, shape)[first])}" for n, axis in scope.indices.items())
    message = f"subscript {dimension} of {scope.names[tensor]} is {found}, outside its range {lower} to {upper - 1}" + (
        f", at {point}" if point else ""
    )
    if any(isinstance(n, Read) for n in walk(sub)):
        raise BoundsError(Diagnostic("bounds-subscript", message, node.span))
    raise RangeError(Diagnostic("range-out-of-bounds", message, node.span))
