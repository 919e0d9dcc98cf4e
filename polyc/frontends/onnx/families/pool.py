"""Poolings: a reduction over each window, or over all spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, select
from polyc.frontends.onnx.windows import Windows, per_dimension, place_windows, read_window, stored
from polyc.ir.expr import identity_of
from polyc.ir.types import BOOL, I64, U8, DType


@operator("AveragePool")
def average_pool(
    b: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    b.require_float(x)
    w = _windows(b, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    sums = _reduce_windows(b, "add", x, w)
    scales = count_elements(b, w, bool(count_include_pad), x.dtype.computed)
    return b.map(sums.shape, x.dtype, lambda *i: sums[i] / scales(i[2:]))


def count_elements(b: Builder, w: Windows, includes_padding: bool, dtype: DType) -> Callable[[Sequence[Term]], Term]:
    """The number of elements that the window of each output holds.

    What stands outside of the input (with `includes_padding`, of the padded input) does not count."""
    tables: list[Value | None] = []
    number = 1
    for n, k, s, d, p, q, o in zip(w.input, w.kernel, w.strides, w.dilations, w.before, w.after, w.output, strict=True):
        at = np.arange(o)[:, None] * s + np.arange(k) * d - p
        held = (at >= -p) & (at < n + q) if includes_padding else (at >= 0) & (at < n)
        counts = np.maximum(held.sum(axis=1), 1)
        if counts.size == 0 or counts.min() == counts.max():
            number *= int(counts[0]) if counts.size else 1
            tables.append(None)
        else:
            tables.append(b.array(counts.astype(dtype.numpy)))

    def count(outputs: Sequence[Term]) -> Term:
        total = constant(number, dtype)
        factors = [t[o] for t, o in zip(tables, outputs, strict=True) if t is not None]
        for f in factors:
            total = f if number == 1 and f is factors[0] else total * f
        return total

    return count


@operator("LpPool", since=2)
def lp_pool(
    b: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    b.require_float(x)
    w = _windows(b, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    return _p_norm(b, x, w, p)


def _p_norm(b: Builder, x: Value, w: Windows, p: int) -> Value:
    if p < 1:
        b.refuse(f"a norm of degree {p}")
    number = x.dtype.computed
    x = stored(b, x) if w.reaches_outside else x

    def power(*i: Term) -> Operand:
        n, c, out, k = i[0], i[1], i[2 : 2 + w.rank], i[2 + w.rank :]
        value = read_window(x, w, (n, c), out, k)
        return value * value if p == 2 else call("abs", value) if p == 1 else call("pow", call("abs", value), float(p))

    sums = b.reduce("add", (*x.shape[:2], *w.output), w.kernel, number, power)
    if p == 1:
        return b.map(sums.shape, x.dtype, lambda *i: sums[i])
    if p == 2:
        return b.map(sums.shape, x.dtype, lambda *i: call("sqrt", sums[i]))
    return b.map(sums.shape, x.dtype, lambda *i: call("pow", sums[i], 1.0 / p))


@operator("MaxPool")
def max_pool(
    b: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    """The positions are those of the first greatest element of each window, in the flattened input (with `storage_order`, its
    spatial dimensions are flattened with the first one fastest)."""
    if x.dtype == BOOL:
        b.refuse(f"element type {x.dtype.label}")
    w = _windows(b, x, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    best = _reduce_windows(b, "max", x, w)
    if len(b.node.outputs) < 2 or not b.node.outputs[1]:
        return (best,)
    x = stored(b, x) if w.reaches_outside else x
    none = identity_of("min", I64).value

    def position(*i: Term) -> Operand:
        n, c, out, k = i[0], i[1], i[2 : 2 + w.rank], i[2 + w.rank :]
        value, greatest = read_window(x, w, (n, c), out, k), best[i[: 2 + w.rank]]
        places = w.positions(out, k)
        dims = list(zip(places, w.input, strict=True))
        where = n * x.shape[1] + c
        flat: Operand = 0
        for s, extent in dims if not storage_order else reversed(dims):
            flat = s if isinstance(flat, int) else flat * extent + s
        held = value == greatest
        if x.dtype.is_float:
            held = held | (value != value)
        if w.reaches_outside:
            for s, extent in dims:
                held = held & (s >= 0) & (s < extent)
        return select(held, where * prod(w.input) + flat, none)

    return best, b.reduce("min", best.shape, w.kernel, I64, position)


def _windows(
    b: Builder,
    x: Value,
    kernel: Sequence[int],
    auto_pad: str,
    ceil_mode: int,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Windows:
    if x.rank < 3 or not kernel:
        b.refuse(f"a pooling of a tensor of rank {x.rank} with kernel_shape {tuple(kernel)}")
    return place_windows(
        b, x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, ceil_mode=ceil_mode
    )


def _reduce_windows(b: Builder, op: str, x: Value, w: Windows) -> Value:
    x = stored(b, x) if w.reaches_outside else x
    outside = identity_of(op, x.dtype).value

    def body(*i: Term) -> Operand:
        return read_window(x, w, i[:2], i[2 : 2 + w.rank], i[2 + w.rank :], outside)

    dtype = x.dtype.computed if op == "add" else x.dtype
    return b.reduce(op, (*x.shape[:2], *w.output), w.kernel, dtype, body)


@operator("GlobalAveragePool")
def global_average_pool(b: Builder, x: Value) -> Value:
    b.require_float(x)
    sums = _reduce_all(b, "add", x)
    count = max(1, prod(x.shape[2:]))
    return b.map(sums.shape, x.dtype, lambda *i: sums[i] / count)


@operator("GlobalMaxPool")
def global_max_pool(b: Builder, x: Value) -> Value:
    return _reduce_all(b, "max", x)


@operator("GlobalLpPool", since=2)
def global_lp_pool(b: Builder, x: Value, *, p: int = 2) -> Value:
    b.require_float(x)
    if x.rank < 3 or p < 1:
        b.refuse(f"a norm of degree {p} over a tensor of rank {x.rank}")
    spatial = x.shape[2:]
    ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
    return _p_norm(b, x, Windows(spatial, spatial, ones, ones, zeros, zeros, ones), p)


def _reduce_all(b: Builder, op: str, x: Value) -> Value:
    if x.rank < 3:
        b.refuse(f"a pooling of a tensor of rank {x.rank}")
    rank = x.rank - 2
    dtype = x.dtype.computed if op == "add" else x.dtype
    left = (*x.shape[:2], *(1,) * rank)
    return b.reduce(op, left, x.shape[2:], dtype, lambda *i: x[(*i[:2], *i[2 + rank :])])


@operator("MaxUnpool", since=9)
def max_unpool(
    b: Builder,
    x: Value,
    positions: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Each element where it came from, 0 elsewhere.  Positions are in a tensor of the shape that the attributes give; with
    `output_shape` that tensor stands at the start of the result."""
    rank = x.rank - 2
    b.require_float(x)
    if rank < 1 or positions.shape != x.shape or len(kernel_shape) != rank:
        b.refuse(f"values of shape {x.shape}, positions of shape {positions.shape} and kernel_shape {tuple(kernel_shape)}")
    stride = per_dimension(b, "strides", strides, rank, 1)
    ends = per_dimension(b, "pads", pads, 2 * rank, 0)
    spatial = tuple(
        (n - 1) * s - p - q + k
        for n, s, p, q, k in zip(x.shape[2:], stride, ends[:rank], ends[rank:], kernel_shape, strict=True)
    )
    inner = (*x.shape[:2], *spatial)
    whole = inner if output_shape is None else b.integers(output_shape)
    if len(whole) != x.rank or any(m < n for m, n in zip(whole, inner, strict=True)):
        b.refuse(f"output_shape {whole} is smaller than {inner}")
    size = prod(inner)
    # Several windows may name one element; they then hold the same value.
    start = b.map((size,), x.dtype, lambda _: constant(float("-inf"), x.dtype))
    clear = b.map((size,), U8, lambda _: constant(0, U8))

    def place(*i: Term) -> list[Operand]:
        return [cast(positions[i], I64)]

    values = b.accumulate("max", start, x.shape, place, lambda *i: x[i])
    hits = b.accumulate("max", clear, x.shape, place, lambda *_: constant(1, U8))
    found = b.map((size,), x.dtype, lambda i: select(hits[i] != 0, values[i], 0))
    result = b.view(found, inner)
    if whole == inner:
        return result

    def widen(*i: Term) -> Operand:
        held: Term | None = None
        for s, n, m in zip(i, inner, whole, strict=True):
            if n != m:
                held = s < n if held is None else held & (s < n)
        assert held is not None
        return select(held, result[i], 0)

    return b.map(whole, x.dtype, widen)
