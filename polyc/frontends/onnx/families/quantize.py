"""Quantised tensors: to and from numbers, and products and convolutions of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.frontends.onnx import byte_words
from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.families.conv import check_filters, convolve_terms
from polyc.frontends.onnx.quantities import (
    Parameter,
    centered,
    dequantize,
    per_axis,
    product,
    quantize,
    quantize_dynamically,
    requantize,
    scalar,
    squeeze_vectors,
)
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, cast, constant
from polyc.frontends.onnx.windows import Windows, place_windows
from polyc.ir.types import F32, I32, U8


@operator("QuantizeLinear", since=10)
def quantize_linear(
    b: Builder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """``x / scale + zero``, rounded to even and saturated."""
    dtype = zero.dtype if zero is not None else find_dtype(output_dtype) if output_dtype else U8
    if dtype is None or not dtype.is_integer or dtype.bits > 16:
        b.refuse(f"quantised numbers of type {dtype.label if dtype else output_dtype}")
    number = find_dtype(precision) if precision else scale.dtype
    if number is None or not number.is_float:
        b.refuse("a scale that is no floating point number")
    number = number.computed
    scales = per_axis(b, scale, x.shape, axis, block_size)
    zeros = None if zero is None else per_axis(b, zero, x.shape, axis, block_size)

    def body(*i: Term) -> Operand:
        value = cast(x[i], number) / cast(scales(i), number)
        return quantize(value, 0 if zeros is None else zeros(i), dtype)

    return b.map(x.shape, dtype, body)


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    b: Builder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """``(x - zero) * scale``."""
    dtype = find_dtype(output_dtype) if output_dtype else scale.dtype
    if dtype is None or not dtype.is_float or not x.dtype.is_integer:
        b.refuse("a type that compiled code does not have")
    scales = per_axis(b, scale, x.shape, axis, block_size)
    zeros = None if zero is None else per_axis(b, zero, x.shape, axis, block_size)

    def body(*i: Term) -> Operand:
        return cast(dequantize(x[i], scales(i), None if zeros is None else zeros(i)), dtype.computed)

    return b.map(x.shape, dtype, body)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Scale and zero point such that all numbers, and 0, are in the range of uint8."""
    if x.dtype != F32 or x.size == 0:
        b.refuse(f"element type {x.dtype.label}, {x.size} elements")
    return quantize_dynamically(b, x)


@operator("MatMulInteger", since=10)
def matmul_integer(b: Builder, x: Value, y: Value, x_zero: Value | None = None, y_zero: Value | None = None) -> Value:
    return squeeze_vectors(b, product(b, x, y, x_zero, y_zero), x.rank, y.rank)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    scale: Value,
    zero: Value,
) -> Value:
    sums = product(b, x, y, x_zero, y_zero)
    divisor = scalar(b, scale, "a scale")
    rows, columns = _scale_along(b, x_scale, sums.shape, True), _scale_along(b, y_scale, sums.shape, False)

    def factor(i: Sequence[Term]) -> Term:
        return cast(rows(i), F32) * cast(columns(i), F32) / cast(divisor, F32)

    return squeeze_vectors(b, requantize(b, sums, factor, zero, zero.dtype), x.rank, y.rank)


def _scale_along(b: Builder, v: Value, shape: Sequence[int], is_row: bool) -> Parameter:
    if v.size == 1:
        return lambda i: v[(0,) * v.rank]
    d = len(shape) - (2 if is_row else 1)
    if v.shape == (shape[d],):
        return lambda i: v[i[d]]
    if v.rank >= 2 and b.broadcast(v.shape, tuple(shape)) == tuple(shape):
        return v.spread
    b.refuse(f"scales of shape {v.shape} for a product of shape {tuple(shape)}")


@operator("ConvInteger", since=10)
def conv_integer(
    b: Builder,
    x: Value,
    w: Value,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    kernel = check_filters(b, x, w, group, kernel_shape)
    windows = place_windows(b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    origin = None if x_zero is None else scalar(b, x_zero, "a zero point of the image")
    zeros = None if w_zero is None else per_axis(b, w_zero, w.shape, 0)
    return _convolve_integers(b, x, w, x_zero, w_zero, origin, zeros, None, windows, group)


def _convolve_integers(
    b: Builder,
    x: Value,
    w: Value,
    x_zero: Value | None,
    w_zero: Value | None,
    origin: Term | None,
    zeros: Parameter | None,
    bias: Value | None,
    windows: Windows,
    group: int,
) -> Value:
    """A convolution of integers with these zero points; its padding stands for the number 0: it is what `origin` is."""
    channels = w.shape[1]
    fits = channels > 1 and (group == 1 or channels % byte_words.BYTES == 0)
    if fits and byte_words.are_bytes(x, w) and byte_words.is_zero(w, w_zero, to_unsigned=False):
        return _convolve_bytes(b, x, w, x_zero, origin, bias, windows, group)
    image = b.map(x.shape, I32, lambda *i: centered(x[i], origin))
    return convolve_terms(b, image, w, lambda *i: centered(w[i], None if zeros is None else zeros(i)), bias, windows, group)


def _convolve_bytes(
    b: Builder,
    x: Value,
    w: Value,
    x_zero: Value | None,
    origin: Term | None,
    bias: Value | None,
    windows: Windows,
    group: int,
) -> Value:
    """The convolution of `x` with filters whose zero point is that of signed bytes; channels stand in words (those of a group
    in words of their own)."""
    in_group = w.shape[1]
    front = (x.shape[0], -1, *x.shape[2:])
    image = byte_words.store_words(b, front, x.shape[1], lambda c, n, *i: byte_words.unsigned(x, x[(n, c, *i)]))
    filters = byte_words.store_words(
        b, (w.shape[0], -1, *w.shape[2:]), in_group, lambda c, m, *k: byte_words.signed(w, w[(m, c, *k)])
    )
    zero = byte_words.moved_zero(x, origin, to_unsigned=True)
    outside: Operand = zero * byte_words.ONES
    if x_zero is None or x_zero.known is not None:
        value = (0 if x_zero is None else int(x_zero.known.reshape(-1)[0])) + (0 if x.dtype == U8 else 128)  # type: ignore[union-attr]
        outside = int(np.int32(np.uint32(value * byte_words.ONES)))
    y = convolve_terms(
        b, image, filters, lambda *i: filters[i], bias, windows, group, multiply=byte_words.multiply_words, outside=outside
    )
    if byte_words.is_zero(x, x_zero, to_unsigned=True):
        return y
    over = filters.shape[1:]
    total = b.reduce(
        "add",
        (w.shape[0],),
        over,
        I32,
        lambda m, *i: byte_words.multiply_words(constant(byte_words.ONES, I32), filters[(m, *i)]),
    )
    return b.map(y.shape, I32, lambda *i: y[i] - zero * total[i[1]])


@operator("QLinearConv", since=10)
def qlinear_conv(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    scale: Value,
    zero: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    kernel = check_filters(b, x, w, group, kernel_shape)
    windows = place_windows(b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    origin, zeros = scalar(b, x_zero, "a zero point of the image"), per_axis(b, w_zero, w.shape, 0)
    sums = _convolve_integers(b, x, w, x_zero, w_zero, origin, zeros, bias, windows, group)
    factors, of_image, divisor = per_axis(b, w_scale, w.shape, 0), scalar(b, x_scale, "a scale"), scalar(b, scale, "a scale")
    return requantize(b, sums, lambda i: of_image * factors(i[1:2]) / divisor, zero, zero.dtype)
