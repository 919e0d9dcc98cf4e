"""Tensors at another resolution: by tables, as all places are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import numpy as np

from polyc.frontends.onnx import interpolation
from polyc.frontends.onnx.builder import Body, Builder, Value
from polyc.frontends.onnx.interpolation import Taps
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, clamp, constant, maximum, minimum, select
from polyc.ir.expr import identity_of
from polyc.ir.types import F32, DType

MAX_UNROLLED = 16
"""Elements that one output is made of in one expression; more are a reduction."""


@operator("Upsample", since=7)
def upsample_7(b: Builder, x: Value, *, scales: Sequence[float], mode: str = "nearest") -> Value:
    return _resize_by(b, x, scales, mode)


@operator("Upsample", since=9)
@operator("Resize", since=10)
def resize_10(b: Builder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _resize_by(b, x, [float(s) for s in b.value(scales).reshape(-1)], mode)


def _resize_by(b: Builder, x: Value, scales: Sequence[float], mode: str) -> Value:
    """`Resize` before version 11: places are o / scale; the nearest element is that before, or when shrinking that behind."""
    if len(scales) != x.rank:
        b.refuse(f"{len(scales)} scales for a tensor of rank {x.rank}")
    nearest = ["ceil" if s < 1 else "floor" for s in scales]
    lengths = [_scale_extent(n, s) for s, n in zip(scales, x.shape, strict=True)]
    axes = [_Axis(n, m, float(s), "asymmetric", r) for n, m, s, r in zip(x.shape, lengths, scales, nearest, strict=True)]
    return _resize(b, x, axes, mode, _Options())


@operator("Resize", since=11)
def resize(
    b: Builder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    which = [b.axis(int(a), x.rank) for a in axes] if axes else list(range(x.rank))
    lengths, factors = list(x.shape), [1.0] * x.rank
    factor_list = [] if scales is None or scales.size == 0 else [float(s) for s in b.value(scales).reshape(-1)]
    size_list = [] if sizes is None or sizes.size == 0 else list(b.integers(sizes))
    if len(factor_list) == len(which):
        for d, s in zip(which, factor_list, strict=True):
            factors[d] = s
            lengths[d] = _scale_extent(x.shape[d], s)
    elif len(size_list) == len(which):
        asked = [m / max(x.shape[d], 1) for d, m in zip(which, size_list, strict=True)]
        if keep_aspect_ratio_policy in ("not_larger", "not_smaller"):
            same = min(asked) if keep_aspect_ratio_policy == "not_larger" else max(asked)
            asked = [same] * len(asked)
            size_list = [int(same * x.shape[d] + 0.5) for d in which]
        elif keep_aspect_ratio_policy != "stretch":
            b.refuse(f"keep_aspect_ratio_policy is {keep_aspect_ratio_policy}")
        for d, m, s in zip(which, size_list, asked, strict=True):
            lengths[d], factors[d] = m, s
    else:
        b.refuse(f"{len(factor_list)} scales and {len(size_list)} sizes for {len(which)} axes")
    regions: list[tuple[float, float] | None] = [None] * x.rank
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(which):
            b.refuse("tf_crop_and_resize without a region for each axis")
        numbers = [float(v) for v in b.value(roi).reshape(-1)]
        for k, d in enumerate(which):
            regions[d] = (numbers[k], numbers[len(which) + k])
    numbered = zip(x.shape, lengths, factors, regions, strict=True)
    steps = [_Axis(n, m, s, coordinate_transformation_mode, nearest_mode, r) for n, m, s, r in numbered]
    options = _Options(bool(antialias), cubic_coeff_a, bool(exclude_outside), extrapolation_value)
    return _resize(b, x, steps, mode, options)


def _scale_extent(n: int, scale: float) -> int:
    """The extent of a result, as ONNX's shape inference and other runtimes find it: 6 times the float32 next to 7 / 6 is 7."""
    return int(np.floor(np.float32(n) * np.float32(scale)))


class _Axis:
    """One dimension: its extent, that of the result, their ratio, and how places are found."""

    def __init__(
        self, n: int, length: int, scale: float, coordinates: str, nearest: str, region: tuple[float, float] | None = None
    ) -> None:
        self.n, self.length, self.scale, self.coordinates, self.nearest, self.region = (
            n,
            length,
            scale,
            coordinates,
            nearest,
            region,
        )

    @property
    def is_identity(self) -> bool:
        is_whole = self.region is None or (isclose(self.region[0], 0, abs_tol=1e-9) and isclose(self.region[1], 1))
        return self.length == self.n and isclose(self.scale, 1.0) and is_whole

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        return interpolation.place_outputs(self.coordinates, self.n, self.length, self.scale, self.region)


class _Options:
    def __init__(self, antialias: bool = False, a: float = -0.75, exclude: bool = False, extrapolated: float = 0.0) -> None:
        self.antialias, self.a, self.exclude, self.extrapolated = antialias, a, exclude, extrapolated


def _resize(b: Builder, x: Value, axes: Sequence[_Axis], mode: str, options: _Options) -> Value:
    if any(a.length < 0 or a.scale <= 0 for a in axes if a.length):
        b.refuse(f"scales {tuple(a.scale for a in axes)}")
    shape = tuple(a.length for a in axes)
    b.check_size(shape, x.dtype)
    if 0 in shape:
        return b.map(shape, x.dtype, lambda *_: constant(0, x.dtype))
    if 0 in x.shape:
        b.refuse("an empty tensor is resized to one with elements")
    try:
        if mode == "nearest":
            return _resize_nearest(b, x, axes, options)
        if mode not in ("linear", "cubic"):
            b.refuse(f"mode is {mode}")
        return _resize_smoothly(b, x, axes, mode, options)
    except ValueError as error:
        b.refuse(str(error))


def _resize_nearest(b: Builder, x: Value, axes: Sequence[_Axis], options: _Options) -> Value:
    """One dimension after the other, the last one first: what comes behind it are copies of whole rows."""
    outside: list[Value | None] = [None] * len(axes)
    result = x
    for d in reversed(range(len(axes))):
        a = axes[d]
        if a.is_identity:
            continue
        places, beyond = a.places()
        outside[d] = b.array(beyond) if beyond.any() else None
        result = _pick(b, result, d, interpolation.nearest_elements(places, a.nearest, a.n))
    if all(o is None for o in outside) and result is not x:
        return result
    return b.map(result.shape, x.dtype, lambda *i: _extrapolate(result[i], outside, i, options))


def _pick(b: Builder, x: Value, axis: int, elements: np.ndarray) -> Value:
    """``y[…, o, …] = x[…, elements[o], …]``."""
    shape = (*x.shape[:axis], len(elements), *x.shape[axis + 1 :])
    times = len(elements) // x.shape[axis]
    if np.array_equal(elements, np.arange(x.shape[axis] * times) // max(times, 1)):
        steps = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
        return b.view(b.map(steps, x.dtype, lambda *i: x[(*i[: axis + 1], *i[axis + 2 :])]), shape)
    at = subscript_of(b, elements, x.shape[axis])
    return b.map(shape, x.dtype, lambda *i: x[(*i[:axis], at(i[axis]), *i[axis + 1 :])])


def _extrapolate(value: Term, outside: Sequence[Value | None], i: Sequence[Term], options: _Options) -> Term:
    for table, s in zip(outside, i, strict=True):
        if table is not None:
            value = select(table[s], constant(options.extrapolated, value.dtype), value)
    return value


def subscript_of(b: Builder, elements: np.ndarray, n: int) -> Body:
    """The subscript ``elements[o]`` as a function of o: a division where it is one, else read from a table."""
    found = interpolation.as_division(elements, n)
    if found is not None:
        a, c, d = found
        return lambda o: (o * a + c) // d if d > 1 else o * a + c
    table = b.array(elements)
    return lambda o: clamp(table[o], 0, n - 1)


def _resize_smoothly(b: Builder, x: Value, axes: Sequence[_Axis], mode: str, options: _Options) -> Value:
    """One dimension after the other, the last one first: then the others are sums of whole rows."""
    number = x.dtype.computed if x.dtype.is_float else F32
    result, is_first = x, True
    outside: list[Value | None] = [None] * len(axes)
    todo = [d for d in reversed(range(len(axes))) if not axes[d].is_identity]
    for d in todo:
        places, beyond = axes[d].places()
        outside[d] = b.array(beyond) if beyond.any() else None
        taps = _find_taps(places, beyond, axes[d], mode, options)
        result = _apply_taps(b, result, d, taps, number)
        is_first = False
    if is_first:
        return b.map(x.shape, x.dtype, lambda *i: x[i])
    if result.dtype == x.dtype and all(o is None for o in outside):
        return result
    return b.map(result.shape, x.dtype, lambda *i: _convert(_extrapolate(result[i], outside, i, options), x.dtype))


def _find_taps(places: np.ndarray, beyond: np.ndarray, a: _Axis, mode: str, options: _Options) -> Taps:
    if options.antialias and a.scale < 1:
        kernel = interpolation.triangle if mode == "linear" else interpolation.keys_kernel(options.a)
        return interpolation.antialias_taps(places, beyond, a.n, a.scale, kernel, 1 if mode == "linear" else 2, options.exclude)
    if mode == "linear":
        return interpolation.linear_taps(places, beyond, a.n, options.exclude)
    return interpolation.cubic_taps(places, beyond, a.n, options.a, options.exclude)


def _apply_taps(b: Builder, x: Value, axis: int, taps: Taps, number: DType) -> Value:
    """``y[…, o, …] = Σ weights[o, k] * x[…, elements[o, k], …]``."""
    shape = (*x.shape[:axis], len(taps.elements), *x.shape[axis + 1 :])
    n_taps = taps.elements.shape[1]
    n = x.shape[axis]
    weights = taps.weights.astype(number.numpy)
    if n_taps <= MAX_UNROLLED:
        subscripts = [subscript_of(b, taps.elements[:, k], n) for k in range(n_taps)]
        columns = [b.array(np.ascontiguousarray(weights[:, k])) for k in range(n_taps)]

        def body(*i: Term) -> Operand:
            total: Term | None = None
            for s, column in zip(subscripts, columns, strict=True):
                part = cast(x[(*i[:axis], s(i[axis]), *i[axis + 1 :])], number) * column[i[axis]]
                total = part if total is None else total + part
            assert total is not None
            return total

        return b.map(shape, number, body)
    elements, table = b.array(taps.elements), b.array(weights)

    def term(*i: Term) -> Operand:
        o, k = i[axis], i[-1]
        at = clamp(elements[o, k], 0, n - 1)
        return cast(x[(*i[:axis], at, *i[axis + 1 : -1])], number) * table[o, k]

    return b.reduce("add", shape, (n_taps,), number, term)


def _convert(value: Term, dtype: DType) -> Term:
    """`value` as an element of `dtype`: integers are rounded to even, and saturated."""
    if not dtype.is_integer:
        return cast(value, dtype.computed)
    low, high = identity_of("max", dtype).value, identity_of("min", dtype).value
    return cast(minimum(maximum(call("rint", value), float(low)), float(high)), dtype)
