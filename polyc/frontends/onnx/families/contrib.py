"""Operators of onnxruntime (domain ``com.microsoft``) that exported and optimised models carry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.families.conv import check_filters, convolve
from polyc.frontends.onnx.families.norm import normalize_rows, with_ones
from polyc.frontends.onnx.recurrent_layers import find_activations
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, maximum, minimum
from polyc.frontends.onnx.windows import place_windows
from polyc.ir.types import F32, I32, I64

DOMAIN = "com.microsoft"


@operator("FusedConv", domain=DOMAIN)
def fused_conv(
    b: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    added: Value | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """``activation(conv(x, w) + bias + added)``."""
    b.require_float(x)
    kernel = check_filters(b, x, w, group, kernel_shape)
    windows = place_windows(b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    y = convolve(b, x, w, bias, windows, group)
    if added is not None and added.shape != y.shape:
        b.refuse(f"{added.shape} is added to {y.shape}")
    if added is None and not activation:
        return y
    function = _activation(b, activation, activation_params)
    return b.map(y.shape, y.dtype, lambda *i: function(y[i] if added is None else y[i] + added[i]))


def _activation(b: Builder, name: str, parameters: Sequence[float]) -> Callable[[Term], Term]:
    if not name:
        return lambda x: x
    if name == "Clip":
        low, high = parameters
        return lambda x: minimum(maximum(x, float(low)), float(high))
    (found,) = find_activations(b, [name], list(parameters[:1]), list(parameters[1:2]))
    return found


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(
    b: Builder,
    x: Value,
    y: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    """``alpha * x @ y``, each transposed before."""
    b.require_float(x, y)
    if x.rank < 2 or y.rank < 2:
        b.refuse(f"matrices of shapes {x.shape} and {y.shape}")
    left, left_shape = _as_matrices(x, bool(transA), bool(transBatchA))
    right, right_shape = _as_matrices(y, bool(transB), bool(transBatchB))
    if left_shape[-1] != right_shape[-2]:
        b.refuse(f"matrices of shapes {x.shape} and {y.shape}")
    batch = b.broadcast(left_shape[:-2], right_shape[:-2])
    shape, number = (*batch, left_shape[-2], right_shape[-1]), x.dtype.computed

    def own(i: Sequence[Term], extents: Sequence[int]) -> list[Operand]:
        tail = i[len(i) - len(extents) :]
        return [0 if n == 1 else s for s, n in zip(tail, extents, strict=True)]

    def body(*i: Term) -> Operand:
        front, m, n, k = i[:-3], i[-3], i[-2], i[-1]
        return left(*own(front, left_shape[:-2]), m, k) * right(*own(front, right_shape[:-2]), k, n)

    if alpha == 1.0:
        return b.reduce("add", shape, (left_shape[-1],), x.dtype, body)
    sums = b.reduce("add", shape, (left_shape[-1],), number, body)
    return b.map(shape, x.dtype, lambda *i: sums[i] * alpha)


def _as_matrices(x: Value, is_transposed: bool, batch_is_last: bool) -> tuple[Callable[..., Term], tuple[int, ...]]:
    """Elements and shape of `x` with its dimensions in the order that the product wants."""
    order = list(range(x.rank))
    if batch_is_last:  # the first dimension stands behind those of the batch
        order = [*order[1:-1], 0, order[-1]]
    if is_transposed:
        order[-2], order[-1] = order[-1], order[-2]

    def read(*i: Operand) -> Term:
        at: list[Operand] = [0] * x.rank
        for d, s in zip(order, i, strict=True):
            at[d] = s
        return x[tuple(at)]

    return read, tuple(x.shape[d] for d in order)


def gelu(x: Term) -> Term:
    """``x · Φ(x)``."""
    return x * 0.5 * (call("erf", x * sqrt(0.5)) + 1)


def fast_gelu(x: Term) -> Term:
    """`gelu` by the hyperbolic tangent (Hendrycks and Gimpel 2016)."""
    return x * 0.5 * (call("tanh", (x + x * x * x * 0.044715) * 0.7978845608028654) + 1)


@operator("Gelu", domain=DOMAIN)
def contrib_gelu(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return b.map(x.shape, x.dtype, lambda *i: gelu(x[i]))


@operator("BiasGelu", domain=DOMAIN)
def bias_gelu(b: Builder, x: Value, bias: Value) -> Value:
    b.require_float(x)
    return b.map(b.broadcast(x.shape, bias.shape), x.dtype, lambda *i: gelu(x.spread(i) + bias.spread(i)))


@operator("FastGelu", domain=DOMAIN)
def contrib_fast_gelu(b: Builder, x: Value, bias: Value | None = None) -> Value:
    b.require_float(x)
    if bias is not None and b.broadcast(x.shape, bias.shape) != x.shape:
        b.refuse(f"a bias of shape {bias.shape} for {x.shape}")
    return b.map(x.shape, x.dtype, lambda *i: fast_gelu(x[i] if bias is None else x[i] + bias.spread(i)))


@operator("QuickGelu", domain=DOMAIN)
def quick_gelu(b: Builder, x: Value, *, alpha: float = 1.702) -> Value:
    b.require_float(x)
    return b.map(x.shape, x.dtype, lambda *i: x[i] * call("sigmoid", x[i] * alpha))


# --- Normalisations ----------------------------------------------------------------------------------------------------


@operator("SimplifiedLayerNormalization", since=1)
def simplified_layer_normalization(
    b: Builder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Value, Value]:
    b.require_float(x, scale)
    d = b.axis(axis, x.rank)
    y, _, inverse = normalize_rows(b, x, scale, None, epsilon, scale.dtype, False, d)
    return y, with_ones(b, inverse, x.rank, F32)


def _skip(
    b: Builder, x: Value, skip: Value, scale: Value, shift: Value | None, bias: Value | None, epsilon: float, has_mean: bool
) -> tuple[Value, ...]:
    """The normalised sum of `x`, `skip` and `bias`, means, inverse deviations, and the sum."""
    b.require_float(x, skip, scale)
    if b.broadcast(x.shape, skip.shape) != x.shape:
        b.refuse(f"{skip.shape} is added to {x.shape}")

    def add(*i: Term) -> Operand:
        value = x[i] + skip.spread(i)
        return value if bias is None else value + bias.spread(i)

    sums = b.map(x.shape, x.dtype, add)
    y, means, inverse = normalize_rows(b, sums, scale, shift, epsilon, x.dtype, has_mean, x.rank - 1)
    return y, with_ones(b, means, x.rank, F32), with_ones(b, inverse, x.rank, F32), sums


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(
    b: Builder,
    x: Value,
    skip: Value,
    scale: Value,
    shift: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    return _skip(b, x, skip, scale, shift, bias, epsilon, True)


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(
    b: Builder, x: Value, skip: Value, scale: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> tuple[Value, ...]:
    return _skip(b, x, skip, scale, None, bias, epsilon, False)


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    b: Builder,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    scale: Value,
    shift: Value,
    mask: Value | None = None,
    positions: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Value, ...]:
    """The normalised sum of three embeddings of each word; how many words of each sequence count; the sum."""
    tables = [t for t in (word_table, position_table, segment_table) if t is not None]
    if words.rank != 2 or any(t.rank != 2 or t.shape[1] != word_table.shape[1] for t in tables):
        b.refuse(f"words of shape {words.shape} in tables of shapes {[t.shape for t in tables]}")
    batch, length = words.shape
    size, dtype = word_table.shape[1], word_table.dtype

    def add(n: Term, i: Term, d: Term) -> Operand:
        place = i if positions is None else cast(positions[n if positions.shape[0] > 1 else 0, i], I64)
        value = word_table[cast(words[n, i], I64), d] + position_table[place, d]
        if segments is not None and segment_table is not None:
            value = value + segment_table[cast(segments[n, i], I64), d]
        return value

    sums = b.map((batch, length, size), dtype, add)
    y, _, _ = normalize_rows(b, sums, scale, shift, epsilon, dtype, True, 2)
    if mask is None:
        counts = b.map((batch,), I32, lambda _: constant(0, I32))
    else:
        counts = b.reduce("add", (batch,), (length,), I32, lambda n, i: cast(mask[n, i], I32))
    return y, counts, sums
