"""Values of expressions at many points at once, for the reference interpreter: over boxes, or over flat lists of points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import prod
from typing import Any, assert_never

import numpy as np

from polyc.diagnostics import BoundsError, Diagnostic, RangeError
from polyc.ir.advice import help_outside, help_unwritten
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, type_of, walk
from polyc.ir.halves import narrow, round_to, widen
from polyc.ir.interpret_forms import Box, Interval
from polyc.ir.numeric import APPLY
from polyc.ir.program import Statement
from polyc.ir.rounding import FUNCTION_ULPS, Noise, is_rounded, roundings_of
from polyc.ir.types import C64, F32, DType
from polyc.records import dataclass, replace

POINTS_AT_ONCE = 1 << 21
"""Points of an iteration space evaluated together: 16 MiB per 8-byte intermediate value."""

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Waiting:
    """Which elements of tensors in the making are there, and what the points of one evaluation miss."""

    ready: dict[str, Array]
    """Per version: whether each element has its final value."""
    offsets: dict[str, int]
    """Per version: number of its element 0 in one numbering of all elements."""
    missing: Array
    """Per point the number of one element that it needs and that is not there; -1: none."""


@dataclass(frozen=True, slots=True)
class Scope:
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
    holes: dict[str, Array] = field(default_factory=dict)
    """Of temporaries with elements that no statement writes: which ones.  To read one is an error."""
    waiting: Waiting | None = None
    """Set while a recurrence is evaluated, over flat lists of points."""
    noise: Noise | None = None


def numpy_type(dtype: DType, float_as: np.dtype | None) -> np.dtype:
    """The type of the arrays that stand for values of `dtype`: 16-bit floats are computed with in f32."""
    if float_as is not None and dtype == C64:
        return np.result_type(float_as, np.complex64)
    return float_as if float_as is not None and dtype.computed == F32 else dtype.computed.numpy


def split_box(box: Box) -> Iterator[Box]:
    """The box in pieces of at most `POINTS_AT_ONCE` points, cut along the leading dimensions first."""
    pending = [box]
    while pending:
        piece = pending.pop()
        extents = {n: upper - lower for n, (lower, upper) in piece.items()}
        total = prod(extents.values())
        wide = next((n for n, e in extents.items() if e > 1), None)
        if total <= POINTS_AT_ONCE or wide is None:
            yield piece
            continue
        lower, upper = piece[wide]
        step = max(1, POINTS_AT_ONCE // (total // extents[wide]))
        cuts = [(k, min(k + step, upper)) for k in range(lower, upper, step)]
        pending.extend({**piece, wide: cut} for cut in reversed(cuts))


def enter_box(scope: Scope, piece: Box) -> Scope:
    rank = len(piece)
    axes = {
        name: np.arange(lower, upper, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(rank)])
        for axis, (name, (lower, upper)) in enumerate(piece.items())
    }
    return replace(scope, indices=axes, mask=None)


def evaluate_points(expr: Expr, scope: Scope) -> Array:
    """Values at all points of the scope, as an array that broadcasts to the iteration space."""
    match expr:
        case Const():
            literal = int(expr.value) if expr.dtype.is_integer else expr.value
            return np.asarray(literal, expr.dtype.computed.numpy).astype(numpy_type(expr.dtype, scope.float_as))
        case Index():
            return scope.indices[expr.name]
        case Size():
            return np.asarray(scope.sizes[expr.name], np.int64)
        case Read():
            positions = []
            interval = scope.ranges[expr.tensor]
            for dimension, (sub, (lower, upper)) in enumerate(zip(expr.subscripts, interval, strict=True)):
                value = evaluate_points(sub, scope)
                check_bounds(scope, expr.tensor, dimension, sub, value, lower, upper, expr)
                positions.append(_clamp(value, lower, upper) - lower)
            return _gather(scope, expr, positions)
        case Pad():
            return _evaluate_pad(expr, scope)
        case Call("mul" | "truediv", (a, b)) if _is_real_part_of(b, scope) or (expr.op == "mul" and _is_real_part_of(a, scope)):
            return _round(expr, _scale_complex(expr, scope), scope)
        case Call():
            args = [evaluate_points(a, scope) for a in expr.args]
            if scope.noise is not None and roundings_of(expr) >= FUNCTION_ULPS:  # it may as well be that of a neighbour
                args = [scope.noise.round(a, type_of(e, scope.types)) for a, e in zip(args, expr.args, strict=True)]
            return _round(expr, np.asarray(APPLY[expr.op](*args)), scope)
        case Select():
            condition = evaluate_points(expr.condition, scope)
            then = evaluate_points(expr.then, restrict_scope(scope, condition))
            other = evaluate_points(expr.other, restrict_scope(scope, np.logical_not(condition)))
            return np.where(condition, then, other)
        case Cast():
            value = evaluate_points(expr.value, scope)
            if expr.dtype.is_storage and type_of(expr.value, scope.types) != expr.dtype:
                value = widen(narrow(value, expr.dtype))
            result = value.astype(numpy_type(expr.dtype, scope.float_as))
            if scope.noise is None or not is_rounded(expr.dtype):
                return result
            is_exact = value.astype(expr.dtype.computed.numpy) == value
            return np.where(is_exact, result, scope.noise.round(result, expr.dtype))
        case _:
            assert_never(expr)


def _round(call: Call, value: Array, scope: Scope) -> Array:
    if scope.noise is None or value.dtype.kind not in "fc":
        return value
    return scope.noise.round(value, type_of(call, scope.types), roundings_of(call))


def _is_real_part_of(expr: Expr, scope: Scope) -> bool:
    """Whether a complex number is a real one that is converted where it stands."""
    match expr:
        case Const():
            return expr.dtype.is_complex
        case Cast():
            source = type_of(expr.value, scope.types)
            return expr.dtype.is_complex and (not source.is_complex or _is_real_part_of(expr.value, scope))
        case Call("complex", (_, Const(0))):
            return True
        case Call("add" | "sub", (a, b)):
            return _is_real_part_of(a, scope) and _is_real_part_of(b, scope)
    return False


def _scale_complex(expr: Call, scope: Scope) -> Array:
    """A complex number times, or divided by, a real one, which does to both parts what it does to real numbers."""
    z, x = (evaluate_points(a, scope) for a in expr.args)
    if not _is_real_part_of(expr.args[1], scope):
        z, x = x, z
    apply = APPLY[expr.op]
    parts = np.broadcast_arrays(apply(z.real, x.real), apply(z.imag, x.real))
    result = np.empty(parts[0].shape, np.result_type(z, x))
    result.real, result.imag = parts
    return result


def restrict_scope(scope: Scope, condition: Array) -> Scope:
    return replace(scope, mask=condition if scope.mask is None else np.logical_and(scope.mask, condition))


def _evaluate_pad(expr: Pad, scope: Scope) -> Array:
    interval = scope.ranges[expr.read.tensor]
    subscripts = [evaluate_points(sub, scope) for sub in expr.read.subscripts]
    if expr.mode != "value":
        positions = []
        for d, (value, (lower, upper)) in enumerate(zip(subscripts, interval, strict=True)):
            if upper <= lower:
                check_bounds(scope, expr.read.tensor, d, expr.read.subscripts[d], value, lower, upper, expr.read)
            positions.append(_place_inside(value - lower, max(upper - lower, 1), expr.mode))
        return _gather(scope, expr.read, positions)
    inside: Array = np.asarray(True)
    for value, (lower, upper) in zip(subscripts, interval, strict=True):
        inside = np.logical_and(inside, np.logical_and(value >= lower, value < upper))
    padding = evaluate_points(expr.value, restrict_scope(scope, np.logical_not(inside)))
    padding = round_to(padding, scope.types[expr.read.tensor])
    positions = [_clamp(v, lower, upper) - lower for v, (lower, upper) in zip(subscripts, interval, strict=True)]
    return np.where(inside, _gather(restrict_scope(scope, inside), expr.read, positions), padding)


def _place_inside(position: Array, extent: int, mode: str) -> Array:
    """The position whose element stands for one that may be outside ``0 <= position < extent``."""
    if mode == "clamp":
        return np.clip(position, 0, extent - 1)
    if mode == "wrap":
        return position % extent
    if mode == "symmetric":
        folded = position % (2 * extent)
        return np.minimum(folded, 2 * extent - 1 - folded)
    period = max(2 * (extent - 1), 1)
    folded = position % period
    return np.where(folded < extent, folded, period - folded)


def _clamp(value: Array, lower: int, upper: int) -> Array:
    return np.minimum(np.maximum(value, lower), max(upper - 1, lower))


def _gather(scope: Scope, read: Read, positions: list[Array]) -> Array:
    """``tensor[positions]``; an array without elements gives zeros (only points that do not count can ask it)."""
    tensor = read.tensor
    array, waiting = scope.tensors[tensor], scope.waiting
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*(p.shape for p in positions)), array.dtype)
    if tensor in scope.holes:
        _check_holes(scope, read, positions)
    if waiting is not None and tensor in waiting.ready:
        flat = np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*positions)), array.shape) if positions else 0)
        absent = np.logical_not(waiting.ready[tensor].ravel()[flat])
        if scope.mask is not None:
            absent = np.logical_and(absent, scope.mask)
        number = np.broadcast_to(flat + waiting.offsets[tensor], waiting.missing.shape)
        np.copyto(waiting.missing, number, where=np.broadcast_to(absent, waiting.missing.shape))
    return np.asarray(array[tuple(positions)])


def _check_holes(scope: Scope, read: Read, positions: list[Array]) -> None:
    """Every point that counts must read an element that a statement writes."""
    absent = scope.holes[read.tensor][tuple(positions)]
    if scope.mask is not None:
        absent = np.logical_and(absent, scope.mask)
    shape = np.broadcast_shapes(absent.shape, *(axis.shape for axis in scope.indices.values()))
    if not absent.any() or 0 in shape:
        return
    first = np.unravel_index(int(np.argmax(np.broadcast_to(absent, shape))), shape)
    place = [
        int(np.broadcast_to(p, shape)[first]) + low for p, (low, _) in zip(positions, scope.ranges[read.tensor], strict=True)
    ]
    element = f"{scope.names[read.tensor]}({', '.join(map(str, place))})"
    raise RangeError(Diagnostic("range-unwritten", f"{element} is never written", read.span, help_unwritten(read.span)))


def check_bounds(
    scope: Scope, tensor: str, dimension: int, sub: Expr, value: Array, lower: int, upper: int, node: Read | Statement
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
        help = "check the index values, or clamp the subscript with min and max"
        raise BoundsError(Diagnostic("bounds-subscript", message, node.span, help))
    raise RangeError(Diagnostic("range-out-of-bounds", message, node.span, help_outside(node.span)))
