"""Quantised operators of onnxruntime (domain ``com.microsoft``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.contrib import DOMAIN
from polyc.frontends.onnx.families.pool import average_pool, global_average_pool
from polyc.frontends.onnx.families.quantize import dequantize_linear, quantize_linear
from polyc.frontends.onnx.quantities import (
    dequantize,
    per_axis,
    product,
    quantize,
    quantize_dynamically,
    scalar,
    squeeze_vectors,
)
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, select
from polyc.ir.types import F32, DType

Combine = Callable[[Term, Term], Term]


@operator("QuantizeLinear", domain=DOMAIN)
def contrib_quantize_linear(b: Builder, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1) -> Value:
    result: Value = quantize_linear(b, x, scale, zero, axis=axis)
    return result


@operator("DequantizeLinear", domain=DOMAIN)
def contrib_dequantize_linear(b: Builder, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1) -> Value:
    result: Value = dequantize_linear(b, x, scale, zero, axis=axis)
    return result


def _number(b: Builder, x: Value, scale: Value, zero: Value | None) -> Callable[[Sequence[Term]], Term]:
    """The number that an element of a larger shape stands for."""
    factor, origin = scalar(b, scale, "a scale"), None if zero is None else scalar(b, zero, "a zero point")
    return lambda i: dequantize(x.spread(i), factor, origin)


def _store(
    b: Builder, shape: Sequence[int], dtype: DType, scale: Value, zero: Value | None, body: Callable[..., Term]
) -> Value:
    """Numbers as quantised ones."""
    divisor = scalar(b, scale, "a scale")
    origin: Operand = 0 if zero is None else scalar(b, zero, "a zero point")
    return b.map(shape, dtype, lambda *i: quantize(body(*i) / divisor, origin, dtype))


def _binary(name: str, combine: Combine) -> None:
    @operator(name, domain=DOMAIN)
    def apply(
        b: Builder,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        y: Value,
        y_scale: Value,
        y_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
    ) -> Value:
        left, right = _number(b, x, x_scale, x_zero), _number(b, y, y_scale, y_zero)
        shape = b.broadcast(x.shape, y.shape)
        return _store(b, shape, x.dtype, scale, zero, lambda *i: combine(left(i), right(i)))


_binary("QLinearAdd", lambda x, y: x + y)
_binary("QLinearMul", lambda x, y: x * y)


@operator("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(
    b: Builder, x: Value, x_scale: Value, x_zero: Value | None, scale: Value, zero: Value | None = None
) -> Value:
    number = _number(b, x, x_scale, x_zero)
    return _store(b, x.shape, x.dtype, scale, zero, lambda *i: call("sigmoid", number(i)))


@operator("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(
    b: Builder, x: Value, x_scale: Value, x_zero: Value | None, scale: Value, zero: Value | None = None, *, alpha: float = 0.01
) -> Value:
    number = _number(b, x, x_scale, x_zero)

    def body(*i: Term) -> Term:
        value = number(i)
        return select(value < 0, value * alpha, value)

    return _store(b, x.shape, x.dtype, scale, zero, body)


@operator("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """Over one axis, or before version 13 over all dimensions from `axis` on."""
    d = b.axis(axis, x.rank)
    over = x.shape[d:] if opset < 13 else (x.shape[d],)
    left = x.shape[:d] if opset < 13 else (*x.shape[:d], *x.shape[d + 1 :])
    number = _number(b, x, x_scale, x_zero)

    def element(i: Sequence[Term]) -> Term:
        return number(i) if opset < 13 else number((*i[:d], i[-1], *i[d:-1]))

    def row(i: Sequence[Term]) -> tuple[Term, ...]:
        return tuple(i[:d]) if opset < 13 else (*i[:d], *i[d + 1 :])

    best = b.reduce("max", left, over, F32, lambda *i: element(i))
    sums = b.reduce("add", left, over, F32, lambda *i: call("exp", element(i) - best[i[: len(left)]]))
    return _store(b, x.shape, x.dtype, scale, zero, lambda *i: call("exp", number(i) - best[row(i)]) / sums[row(i)])


@operator("QLinearConcat", domain=DOMAIN)
def qlinear_concat(b: Builder, scale: Value, zero: Value, *parts: Value, axis: int) -> Value:
    """Triples of tensor, scale and zero point, one behind the other."""
    triples = [parts[k : k + 3] for k in range(0, len(parts), 3)]
    if not triples or len(triples[-1]) != 3 or any(v is None for t in triples for v in t):
        b.refuse(f"{len(parts)} inputs")
    first = triples[0][0]
    d = b.axis(axis, first.rank)
    divisor, origin = scalar(b, scale, "a scale"), scalar(b, zero, "a zero point")
    pieces = []
    at = 0
    for x, x_scale, x_zero in triples:
        number = _number(b, x, x_scale, x_zero)
        pieces.append(
            (
                x.shape,
                lambda *i, at=at: (*i[:d], i[d] + at, *i[d + 1 :]),
                lambda *i, number=number: quantize(number(i) / divisor, origin, first.dtype),
            )
        )
        at += x.shape[d]
    return b.parts((*first.shape[:d], at, *first.shape[d + 1 :]), first.dtype, pieces)


@operator("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    scale: Value,
    zero: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    if channels_last:
        b.refuse("channels that stand last")
    number = _number(b, x, x_scale, x_zero)
    image = b.map(x.shape, F32, lambda *i: number(i))
    means: Value = average_pool(
        b,
        image,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return _store(b, means.shape, x.dtype, scale, zero, lambda *i: means[i])


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(
    b: Builder, x: Value, x_scale: Value, x_zero: Value, scale: Value, zero: Value, *, channels_last: int = 0
) -> Value:
    if x.rank < 3:
        b.refuse(f"a pooling of a tensor of rank {x.rank}")
    number = _number(b, x, x_scale, x_zero)
    shape = (x.shape[0], x.shape[-1], *x.shape[1:-1]) if channels_last else x.shape
    image = b.map(shape, F32, lambda n, c, *i: number((n, *i, c) if channels_last else (n, c, *i)))
    means: Value = global_average_pool(b, image)
    result = (x.shape[0], *(1,) * (x.rank - 2), x.shape[1 if not channels_last else -1]) if channels_last else means.shape

    def body(*i: Term) -> Term:
        return means[(i[0], i[-1], *i[1:-1])] if channels_last else means[i]

    return _store(b, result, x.dtype, scale, zero, body)


@operator("QGemm", domain=DOMAIN)
def qgemm(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    y: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    scale: Value | None = None,
    zero: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """``alpha * x @ y + bias`` with an int32 bias in the scale of the product; as numbers without `scale`."""
    if x.rank != 2 or y.rank != 2:
        b.refuse(f"matrices of shapes {x.shape} and {y.shape}")
    if transA:
        source = x
        x = b.map((x.shape[1], x.shape[0]), x.dtype, lambda i, j: source[j, i])
    if transB:
        other = y
        y = b.map((y.shape[1], y.shape[0]), y.dtype, lambda i, j: other[j, i])
    sums = product(b, x, y, x_zero, y_zero)
    columns = per_axis(b, y_scale, sums.shape, 1)
    factor = scalar(b, x_scale, "a scale")

    def number(*i: Term) -> Term:
        total = sums[i] if bias is None else sums[i] + bias.spread(i)
        return cast(total, F32) * (factor * columns(i) * alpha)

    if scale is None:
        return b.map(sums.shape, F32, number)
    return _store(b, sums.shape, x.dtype if zero is None else zero.dtype, scale, zero, number)


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    b: Builder,
    x: Value,
    y: Value,
    x_scale: Value,
    y_scale: Value,
    x_zero: Value | None = None,
    y_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    return _scaled_product(b, x, y, x_scale, y_scale, x_zero, y_zero, bias)


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(
    b: Builder, x: Value, y: Value, y_scale: Value, y_zero: Value | None = None, bias: Value | None = None
) -> Value:
    """The product of numbers, which are quantised first, and quantised ones."""
    if x.dtype != F32 or x.size == 0:
        b.refuse(f"element type {x.dtype.label}, {x.size} elements")
    quantized, scale, zero = quantize_dynamically(b, x)
    return _scaled_product(b, quantized, y, scale, y_scale, zero, y_zero, bias)


def _scaled_product(
    b: Builder,
    x: Value,
    y: Value,
    x_scale: Value,
    y_scale: Value,
    x_zero: Value | None,
    y_zero: Value | None,
    bias: Value | None,
) -> Value:
    sums = product(b, x, y, x_zero, y_zero)
    columns, factor = per_axis(b, y_scale, sums.shape, -1), scalar(b, x_scale, "a scale")

    def number(*i: Term) -> Operand:
        value = cast(sums[i], F32) * (factor * columns(i))
        return value if bias is None else value + bias.spread(i)

    return squeeze_vectors(b, b.map(sums.shape, F32, number), x.rank, y.rank)
