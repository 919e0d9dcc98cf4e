"""Normalisations: by moments that are given (batch), or those of rows, groups and neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, select
from polyc.ir.types import F32, F64, DType


@operator("BatchNormalization", since=7)
def batch_normalization_7(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Value:
    if any(b.node.outputs[1:]):
        b.refuse("it is in training mode")
    return normalize_by(b, x, scale, bias, mean, var, epsilon, per_element=not spatial)


@operator("BatchNormalization", since=14)
def batch_normalization(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Value, ...]:
    if not training_mode:
        return (normalize_by(b, x, scale, bias, mean, var, epsilon),)
    b.require_float(x)
    if x.rank == 0:
        b.refuse("a tensor without channels")
    x = with_channels(b, x)
    others = (x.shape[0], *x.shape[2:])
    number, count = x.dtype.computed, max(1, prod(others))

    def element(c: Term, *r: Term) -> Term:
        return x[(r[0], c, *r[1:])]

    sums = b.reduce("add", (x.shape[1],), others, number, element)
    center = b.map(sums.shape, number, lambda c: sums[c] / count)
    squares = b.reduce("add", (x.shape[1],), others, number, lambda c, *r: square(element(c, *r) - center[c]))
    spread = b.map(sums.shape, number, lambda c: squares[c] / count)
    y = normalize_by(b, x, scale, bias, center, spread, epsilon)

    def blend(old: Value, new: Value) -> Value:
        kept = old.dtype.computed
        return b.map(old.shape, old.dtype, lambda c: old[c] * momentum + cast(new[c], kept) * (1 - momentum))

    return y, blend(mean, center), blend(var, spread)


def with_channels(b: Builder, x: Value) -> Value:
    """A vector has one channel."""
    return b.view(x, (*x.shape, 1)) if x.rank == 1 else x


def normalize_by(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    var: Value,
    epsilon: float,
    per_element: bool = False,
) -> Value:
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` as one product and one sum for each element; the numbers are for each
    channel (dimension 1), or for each element of an image."""
    b.require_float(x, scale, bias, mean, var)
    shape = x.shape
    x = with_channels(b, x)
    of = x.shape[1:] if per_element else x.shape[1:2]
    if any(v.size != prod(of) for v in (scale, bias, mean, var)):
        b.refuse(f"numbers of shape {scale.shape} for a tensor of shape {shape}")
    scale, bias, mean, var = (b.view(v, of) for v in (scale, bias, mean, var))
    number = wider(x.dtype, var.dtype)

    def of_channel(v: Value, *i: Term) -> Term:
        return cast(v[i], number)

    factor = b.map(of, number, lambda *i: of_channel(scale, *i) / call("sqrt", of_channel(var, *i) + epsilon))
    shift = b.map(of, number, lambda *i: of_channel(bias, *i) - of_channel(mean, *i) * factor[i])

    def body(*i: Term) -> Operand:
        at = i[1:] if per_element else i[1:2]
        return cast(cast(x[i], number) * factor[at] + shift[at], x.dtype.computed)

    return b.view(b.map(x.shape, x.dtype, body), shape)


def wider(a: DType, other: DType) -> DType:
    """The type to compute in."""
    return F64 if F64 in (a, other) else F32


def square(x: Term) -> Term:
    return x * x


def find_moments(
    b: Builder, left: Sequence[int], over: Sequence[int], number: DType, epsilon: float, element: Callable[..., Term]
) -> tuple[Value, Value]:
    """The means of ``element(*i, *r)`` over all r of the box `over`, and one over the deviations, for all i of `left`."""
    n, rank = max(1, prod(over)), len(left)
    sums = b.reduce("add", left, over, number, element)
    means = b.map(left, number, lambda *i: sums[i] / n)
    squares = b.reduce("add", left, over, number, lambda *i: square(element(*i) - means[i[:rank]]))
    return means, b.map(left, number, lambda *i: 1 / call("sqrt", squares[i] / n + epsilon))


@operator("InstanceNormalization", since=6)
def instance_normalization(b: Builder, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    b.require_float(x, scale, bias)
    if x.rank < 3 or scale.shape != x.shape[1:2] or bias.shape != scale.shape:
        b.refuse(f"scales of shape {scale.shape} for a tensor of shape {x.shape}")
    number = x.dtype.computed
    means, inverse = find_moments(b, x.shape[:2], x.shape[2:], number, epsilon, lambda *i: x[i])

    def body(*i: Term) -> Operand:
        n, c = i[:2]
        return (x[i] - means[n, c]) * (inverse[n, c] * cast(scale[c], number)) + cast(bias[c], number)

    return b.map(x.shape, x.dtype, body)


@operator("GroupNormalization", since=18)
def group_normalization_18(b: Builder, x: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5) -> Value:
    return _normalize_groups(b, x, scale, bias, num_groups, epsilon, per_group=True)


@operator("GroupNormalization", since=21)
def group_normalization(
    b: Builder, x: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    return _normalize_groups(b, x, scale, bias, num_groups, epsilon, per_group=False)


def _normalize_groups(b: Builder, x: Value, scale: Value, bias: Value, n_groups: int, epsilon: float, per_group: bool) -> Value:
    """Scales are for each group, or for each channel."""
    b.require_float(x, scale, bias)
    if x.rank < 2 or n_groups < 1 or x.shape[1] % n_groups:
        b.contradict(f"{n_groups} groups of a tensor of shape {x.shape}")
    n_scales = n_groups if per_group else x.shape[1]
    if scale.shape != (n_scales,) or bias.shape != (n_scales,):
        b.contradict(f"{n_scales} scales are expected, not {scale.shape}")
    number, in_group = x.dtype.computed, x.shape[1] // n_groups

    def element(n: Term, g: Term, c: Term, *i: Term) -> Term:
        return x[(n, g * in_group + c, *i)]

    means, inverse = find_moments(b, (x.shape[0], n_groups), (in_group, *x.shape[2:]), number, epsilon, element)

    def body(n: Term, g: Term, c: Term, *i: Term) -> Operand:
        at = g if per_group else g * in_group + c
        factor = inverse[n, g] * cast(scale[at], number)
        return (element(n, g, c, *i) - means[n, g]) * factor + cast(bias[at], number)

    y = b.map((x.shape[0], n_groups, in_group, *x.shape[2:]), x.dtype, body)
    return b.view(y, x.shape)


def normalize_rows(
    b: Builder, x: Value, scale: Value, bias: Value | None, epsilon: float, dtype: DType, has_mean: bool, axis: int
) -> tuple[Value, Value, Value]:
    """Rows from `axis` on in standard form, times `scale`, plus `bias`; their means, and one over their deviations (without a
    mean: over the roots of their mean squares)."""
    number = wider(x.dtype, F32)
    left, over = x.shape[:axis], x.shape[axis:]
    n = max(1, prod(over))
    if b.broadcast(x.shape, scale.shape) != x.shape:
        b.refuse(f"a scale of shape {scale.shape} for {x.shape}")
    if bias is not None and b.broadcast(x.shape, bias.shape) != x.shape:
        b.refuse(f"a bias of shape {bias.shape} for {x.shape}")
    if has_mean:
        sums = b.reduce("add", left, over, number, lambda *i: cast(x[i], number))
        means = b.map(left, number, lambda *i: sums[i] / n)
    else:
        means = b.map(left, number, lambda *i: constant(0, number))

    def deviation(i: Sequence[Term]) -> Term:
        value = cast(x[tuple(i)], number)
        return value - means[tuple(i[:axis])] if has_mean else value

    squares = b.reduce("add", left, over, number, lambda *i: square(deviation(i)))
    inverse = b.map(left, number, lambda *i: 1 / call("sqrt", squares[i] / n + epsilon))

    def body(*i: Term) -> Operand:
        value = deviation(i) * inverse[i[:axis]] * cast(scale.spread(i), number)
        value = value if bias is None else value + cast(bias.spread(i), number)
        return cast(value, dtype.computed)

    return b.map(x.shape, dtype, body), means, inverse


def with_ones(b: Builder, x: Value, rank: int, dtype: DType) -> Value:
    """One number for each row, with dimensions of one element in the place of the row's."""
    return b.view(b.map(x.shape, dtype, lambda *i: cast(x[i], dtype.computed)), (*x.shape, *(1,) * (rank - x.rank)))


@operator("LayerNormalization", since=17)
def layer_normalization(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Value, ...]:
    """By deviations from the mean; the operator's function takes the square of the mean from the mean of the squares, which
    leaves no digit where the mean is a thousand deviations."""
    b.require_float(x, scale)
    stashed = find_dtype(stash_type)
    if stashed is None or not stashed.is_float:
        b.refuse(f"means of element type {stash_type}")
    y, means, inverse = normalize_rows(b, x, scale, bias, epsilon, x.dtype, True, b.axis(axis, x.rank))
    return y, with_ones(b, means, x.rank, stashed), with_ones(b, inverse, x.rank, stashed)


@operator("RMSNormalization", since=23)
def rms_normalization(
    b: Builder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Rows over their root of the mean square."""
    b.require_float(x, scale)
    number = wider(x.dtype, F32)
    axis = b.axis(axis, x.rank)
    left, over = x.shape[:axis], x.shape[axis:]
    n = max(1, prod(over))
    sums = b.reduce("add", left, over, number, lambda *i: square(cast(x[i], number)))
    inverse = b.map(left, number, lambda *i: 1 / call("sqrt", sums[i] / n + epsilon))
    if b.broadcast(x.shape, scale.shape) != x.shape:
        b.refuse(f"a scale of shape {scale.shape} for a tensor of shape {x.shape}")
    last = scale.dtype.computed

    def body(*i: Term) -> Operand:
        normal = cast(cast(x[i], number) * inverse[i[:axis]], x.dtype)
        return cast(cast(normal, last) * scale.spread(i), x.dtype.computed)

    return b.map(x.shape, scale.dtype if scale.dtype == x.dtype else x.dtype, body)


@operator("LRN")
def local_response_normalization(
    b: Builder, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """Divided by a power of the sum of squares over `size` neighbouring channels."""
    b.require_float(x)
    if x.rank < 2 or size < 1:
        b.contradict(f"{size} channels of a tensor of shape {x.shape}")
    source = x if x.source is None else b.map(x.shape, x.dtype, lambda *i: x[i])
    number, before = x.dtype.computed, (size - 1) // 2

    def body(*i: Term) -> Operand:
        n, c, rest, k = i[0], i[1], i[2:-1], i[-1]
        return square(source.padded((n, c + k - before, *rest)))

    sums = b.reduce("add", x.shape, (size,), number, body)
    return b.map(x.shape, x.dtype, lambda *i: x[i] / call("pow", sums[i] * (alpha / size) + bias, beta))


@operator("LpNormalization")
def lp_normalization(b: Builder, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """Over the norm along one axis; 0 where that is 0."""
    b.require_float(x)
    if p not in (1, 2):
        b.refuse(f"p is {p}")
    axis = b.axis(axis, x.rank)
    number = x.dtype.computed
    left = (*x.shape[:axis], *x.shape[axis + 1 :])

    def power(*i: Term) -> Operand:
        value = x[(*i[:axis], i[-1], *i[axis:-1])]
        return square(value) if p == 2 else call("abs", value)

    sums = b.reduce("add", left, (x.shape[axis],), number, power)
    norms = sums if p == 1 else b.map(left, number, lambda *i: call("sqrt", sums[i]))

    def body(*i: Term) -> Operand:
        norm = norms[(*i[:axis], *i[axis + 1 :])]
        return select(norm == 0, 0, x[i] / norm)

    return b.map(x.shape, x.dtype, body)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(b: Builder, x: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    b.require_float(x)
    over = b.axes(axes, x.rank)
    kept = [d for d in range(x.rank) if d not in over]
    number, left = x.dtype.computed, tuple(x.shape[d] for d in kept)
    extents = tuple(x.shape[d] for d in over)
    n = max(1, prod(extents))

    def element(i: Sequence[Term]) -> Term:
        at = dict(zip((*kept, *over), i, strict=True))
        return x[tuple(at[d] for d in range(x.rank))]

    sums = b.reduce("add", left, extents, number, lambda *i: element(i))
    means = b.map(left, number, lambda *i: sums[i] / n)
    squares = b.reduce("add", left, extents, number, lambda *i: square(element(i) - means[i[: len(kept)]]))
    deviations = b.map(left, number, lambda *i: call("sqrt", squares[i] / n) + 1e-9)

    def body(*i: Term) -> Operand:
        row = tuple(i[d] for d in kept)
        return (x[i] - means[row]) / deviations[row]

    return b.map(x.shape, x.dtype, body)
