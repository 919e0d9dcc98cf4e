"""Quantised numbers: integers that stand for ``(number - zero point) * scale``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.frontends.onnx import byte_words
from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.terms import Operand, Term, call, cast, maximum, minimum, select
from polyc.ir.expr import identity_of
from polyc.ir.types import F32, I32, U8, DType

Parameter = Callable[[Sequence[Term]], Term]
"""A scale or zero point, for the element at these subscripts."""


def per_axis(b: Builder, v: Value, shape: Sequence[int], axis: int, block: int = 0) -> Parameter:
    """The element of `v` for each element of `shape`: one for all, one along `axis`, or one for each `block` along it."""
    rank = len(shape)
    if v.size == 1 and not (block and v.rank == rank):
        return lambda i: v[(0,) * v.rank]
    axis = b.axis(axis, rank)
    if block:
        expected = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
        if v.shape != expected:
            b.refuse(f"scales of shape {v.shape} where {expected} is expected")
        return lambda i: v[(*i[:axis], i[axis] // block, *i[axis + 1 :])]
    if v.shape != (shape[axis],):
        b.refuse(f"scales of shape {v.shape} for axis {axis} of a tensor of shape {tuple(shape)}")
    return lambda i: v[i[axis]]


def scalar(b: Builder, v: Value, what: str) -> Term:
    """The only element of `v`."""
    if v.size != 1:
        b.refuse(f"{what} of shape {v.shape}")
    return v[(0,) * v.rank]


def quantize(value: Term, zero: Operand, dtype: DType) -> Term:
    """A number that is already divided by the scale as an element of `dtype`: rounded to even, moved, saturated."""
    low, high = identity_of("max", dtype).value, identity_of("min", dtype).value
    moved = call("rint", value)
    if isinstance(zero, Term):
        moved = moved + cast(zero, value.dtype)
    return cast(minimum(maximum(moved, float(low)), float(high)), dtype)


def centered(value: Term, zero: Term | None) -> Term:
    """``value - zero`` as int32."""
    number = cast(value, I32)
    return number if zero is None else number - cast(zero, I32)


def dequantize(value: Term, scale: Term, zero: Term | None) -> Term:
    """The number that `value` stands for, of the scale's type."""
    return cast(centered(value, zero), scale.dtype) * scale


def product(b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None, of: DType = I32) -> Value:
    """The matrix product of quantised tensors, without their scales, in int32: ``[…, M, N]``.

    Zero points are one for all; of `x`, one for each row ``[M]`` or ``[…, M, 1]``; of `y`, for each column ``[N]`` or
    ``[…, 1, N]``.  Vectors are rows and columns, as for `MatMul`, and keep that dimension here."""
    if x.rank == 0 or y.rank == 0:
        b.refuse("a matrix product with a scalar")
    x = b.view(x, (1, *x.shape)) if x.rank == 1 else x
    y = b.view(y, (*y.shape, 1)) if y.rank == 1 else y
    if x.shape[-1] != y.shape[-2]:
        b.refuse(f"matrices of shapes {x.shape} and {y.shape}")
    batch = b.broadcast(x.shape[:-2], y.shape[:-2])
    m, n = x.shape[-2], y.shape[-1]
    rows, columns = _along(b, x_zero, m, is_row=True), _along(b, y_zero, n, is_row=False)

    if of == I32 and x.shape[-1] >= byte_words.BYTES and byte_words.are_bytes(x, y):
        return byte_words.sum_products(b, x, y, x_zero, y_zero, rows, columns)

    def body(*i: Term) -> Operand:
        front, row, column, k = i[:-3], i[-3], i[-2], i[-1]
        left = centered(x.spread((*front, row, k)), None if rows is None else rows((*front, row, column)))
        right = centered(y.spread((*front, k, column)), None if columns is None else columns((*front, row, column)))
        return left * right

    return b.reduce("add", (*batch, m, n), (x.shape[-1],), of, body)


def _along(b: Builder, zero: Value | None, extent: int, is_row: bool) -> Parameter | None:
    """A zero point as a function of the subscripts of the product."""
    if zero is None:
        return None
    if zero.size == 1:
        return lambda i: zero[(0,) * zero.rank]
    if zero.shape == (extent,):
        return lambda i: zero[i[-2] if is_row else i[-1]]
    if zero.rank >= 2 and zero.shape[-1 if is_row else -2] == 1:
        return lambda i: zero.spread(i)
    b.refuse(f"a zero point of shape {zero.shape}")


def requantize(b: Builder, sums: Value, factor: Parameter, zero: Value | None, dtype: DType) -> Value:
    """Sums of products times `factor`, as `dtype`."""
    origin = None if zero is None else scalar(b, zero, "a zero point")

    def body(*i: Term) -> Operand:
        number = cast(sums[i], F32) * factor(i)
        return quantize(number, 0 if origin is None else origin, dtype)

    return b.map(sums.shape, dtype, body)


def squeeze_vectors(b: Builder, y: Value, x_rank: int, y_rank: int) -> Value:
    """The product of vectors has no dimension for them."""
    shape = list(y.shape)
    if y_rank == 1:
        shape.pop(-1)
    if x_rank == 1:
        shape.pop(-1 if y_rank == 1 else -2)
    return b.view(y, shape)


def quantize_dynamically(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """The tensor as uint8, its scale and its zero point."""
    high = b.reduce("max", (), x.shape, F32, lambda *i: x[i])
    low = b.reduce("min", (), x.shape, F32, lambda *i: x[i])
    extent = b.map((), F32, lambda: maximum(high[()], 0.0) - minimum(low[()], 0.0))
    scale = b.map((), F32, lambda: select(extent[()] == 0, 1.0, extent[()]) / 255.0)
    zero = b.map((), U8, lambda: cast(call("rint", minimum(maximum(-(minimum(low[()], 0.0) / scale[()]), 0.0), 255.0)), U8))
    y = b.map(x.shape, U8, lambda *i: quantize(x[i] / scale[()], zero[()], U8))
    return y, scale, zero
