"""Tensors at another resolution, and parts of them: by tables for places that are known, by computed subscripts for others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import isclose, prod

import numpy as np

from polyc.frontends.onnx import interpolation
from polyc.frontends.onnx.builder import Body, Builder, Value
from polyc.frontends.onnx.interpolation import Taps
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, clamp, constant, maximum, minimum, select
from polyc.ir.expr import identity_of
from polyc.ir.types import BOOL, F32, I64, DType

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
    lengths = [int(np.floor(np.float64(np.float32(s)) * n)) for s, n in zip(scales, x.shape, strict=True)]
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
            lengths[d] = int(np.floor(s * x.shape[d]))
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


@operator("GridSample", since=16)
def grid_sample(
    b: Builder, x: Value, grid: Value, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Value:
    """Elements at the places that `grid` holds: -1 is the start of a dimension, 1 its end; the last dimension comes first."""
    b.require_float(x, grid)
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        b.refuse(f"a grid of shape {grid.shape} for a tensor of shape {x.shape}")
    if padding_mode not in ("zeros", "border", "reflection"):
        b.refuse(f"padding_mode is {padding_mode}")
    kinds = {"linear": (0, 1), "bilinear": (0, 1), "nearest": (0,), "cubic": (-1, 0, 1, 2), "bicubic": (-1, 0, 1, 2)}
    if mode not in kinds:
        b.refuse(f"mode is {mode}")
    offsets = kinds[mode]
    spatial, output = x.shape[2:], grid.shape[1:-1]
    shape = (*x.shape[:2], *output)
    if 0 in spatial:
        b.refuse("an empty tensor is sampled")
    number = x.dtype.computed

    def place(d: int, i: Sequence[Term]) -> Term:
        """Where in dimension d of the input the sample lies."""
        at, n = cast(grid[(*i, rank - 1 - d)], number), spatial[d]
        return (at + 1) / 2 * (n - 1) if align_corners else ((at + 1) * n - 1) / 2

    def element(d: int, position: Term) -> Term:
        """The subscript of an element that may be outside; -1 where there is none."""
        n = spatial[d]
        if padding_mode == "border":
            return clamp(position, 0, n - 1)
        if padding_mode == "zeros":
            return select((position >= 0) & (position < n), position, -1)
        if n == 1:
            return clamp(position, 0, 0)
        period = 2 * (n - 1) if align_corners else 2 * n
        folded = position % period
        return select(folded < n, folded, (period if align_corners else period - 1) - folded)

    nearest = len(offsets) == 1
    elements: list[Value] = []
    weights: list[Value] = []
    for d in range(rank):
        places = b.map((x.shape[0], *output), number, lambda *i, d=d: place(d, i))
        for k in offsets:
            elements.append(
                b.map(
                    places.shape,
                    I64,
                    lambda *i, d=d, k=k, p=places: element(d, cast(call("rint" if nearest else "floor", p[i]), I64) + k),
                )
            )
            if not nearest:
                weights.append(
                    b.map(places.shape, number, lambda *i, k=k, p=places: _weight(p[i] - call("floor", p[i]), k, len(offsets)))
                )
    taps = len(offsets)

    def sample(i: Sequence[Term], chosen: Sequence[int]) -> Term:
        at = (i[0], *i[2:])
        subscripts = [elements[d * taps + k][at] for d, k in enumerate(chosen)]
        value = x[(i[0], i[1], *(maximum(s, 0) for s in subscripts))]
        if padding_mode == "zeros":
            held = subscripts[0] >= 0
            for s in subscripts[1:]:
                held = held & (s >= 0)
            value = select(held, value, 0)
        if not nearest:
            factor = weights[chosen[0]][at]
            for d, k in enumerate(chosen[1:], 1):
                factor = factor * weights[d * taps + k][at]
            value = value * factor
        return value

    def body(*i: Term) -> Operand:
        total: Term | None = None
        for chosen in product(range(taps), repeat=rank):
            part = sample(i, chosen)
            total = part if total is None else total + part
        assert total is not None
        return total

    if taps**rank > 4 * MAX_UNROLLED:
        b.refuse(f"{taps**rank} elements for each sample")
    return b.map(shape, x.dtype, body)


def _weight(ratio: Term, offset: int, n_taps: int) -> Term:
    """Of the element at `offset` from the one before, which lies `ratio` back: by the line, or Keys' cubic with -0.75."""
    if n_taps == 2:
        return ratio if offset else 1 - ratio
    a = -0.75
    x = ratio - offset if offset <= 0 else offset - ratio
    if offset in (0, 1):
        return (x * (a + 2) - (a + 3)) * x * x + 1
    return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a


@operator("RoiAlign", since=10)
def roi_align_10(
    b: Builder,
    x: Value,
    rois: Value,
    batch: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    return _roi_align(b, x, rois, batch, mode, (output_height, output_width), sampling_ratio, spatial_scale, 0.0)


@operator("RoiAlign", since=16)
def roi_align(
    b: Builder,
    x: Value,
    rois: Value,
    batch: Value,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    offset = {"half_pixel": 0.5, "output_half_pixel": 0.0}.get(coordinate_transformation_mode)
    if offset is None:
        b.refuse(f"coordinate_transformation_mode is {coordinate_transformation_mode}")
    return _roi_align(b, x, rois, batch, mode, (output_height, output_width), sampling_ratio, spatial_scale, offset)


def _roi_align(
    b: Builder,
    x: Value,
    rois: Value,
    batch: Value,
    mode: str,
    output: tuple[int, int],
    n_samples: int,
    spatial_scale: float,
    offset: float,
) -> Value:
    """Regions in bins; each bin is the mean (or maximum) of samples between elements."""
    b.require_float(x, rois)
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1] or mode not in ("avg", "max"):
        b.refuse(f"regions of shape {rois.shape} in a tensor of shape {x.shape}, mode {mode}")
    if n_samples < 1:
        b.refuse("the number of samples depends on the regions (sampling_ratio is 0)")
    if 0 in x.shape[2:]:
        b.refuse("an empty tensor is sampled")
    number, n_rois = x.dtype.computed, rois.shape[0]

    def starts(r: Term, d: int) -> Term:
        return cast(rois[r, 1 - d], number) * spatial_scale - offset

    def bins(r: Term, d: int) -> Term:
        extent = cast(rois[r, 3 - d], number) * spatial_scale - offset - starts(r, d)
        return (extent if offset else maximum(extent, 1.0)) / output[d]

    lows, highs, ratios, insides = [], [], [], []
    for d in range(2):
        n = x.shape[2 + d]
        shape = (n_rois, output[d], n_samples)
        places = b.map(
            shape,
            number,
            lambda r, o, s, d=d: starts(r, d) + cast(o, number) * bins(r, d) + (cast(s, number) + 0.5) * bins(r, d) / n_samples,
        )
        insides.append(b.map(shape, BOOL, lambda *i, p=places, n=n: (p[i] >= -1.0) & (p[i] <= float(n))))
        bounded = b.map(shape, number, lambda *i, p=places, n=n: minimum(maximum(p[i], 0.0), float(n - 1)))
        lows.append(b.map(shape, I64, lambda *i, p=bounded, n=n: clamp(cast(call("floor", p[i]), I64), 0, n - 1)))
        highs.append(b.map(shape, I64, lambda *i, p=lows[-1], n=n: clamp(p[i] + 1, 0, n - 1)))
        ratios.append(b.map(shape, number, lambda *i, p=bounded: p[i] - call("floor", p[i])))

    def body(r: Term, c: Term, h: Term, w: Term, s: Term, t: Term) -> Operand:
        at = ((r, h, s), (r, w, t))
        image = batch[r]
        corners = []
        for up in product((0, 1), repeat=2):
            places = [(highs if u else lows)[d][at[d]] for d, u in enumerate(up)]
            factors = [ratios[d][at[d]] if u else 1 - ratios[d][at[d]] for d, u in enumerate(up)]
            corners.append(x[(cast(image, I64), c, *places)] * (factors[0] * factors[1]))
        total = corners[0]
        for part in corners[1:]:
            total = total + part if mode == "avg" else maximum(total, part)
        return select(insides[0][at[0]] & insides[1][at[1]], total, 0)

    pooled = (n_rois, x.shape[1], *output)
    if mode == "max":
        return b.reduce("max", pooled, (n_samples, n_samples), x.dtype, body)
    sums = b.reduce("add", pooled, (n_samples, n_samples), number, body)
    return b.map(pooled, x.dtype, lambda *i: sums[i] / (n_samples * n_samples))


@operator("AffineGrid", since=20)
def affine_grid(b: Builder, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """``theta`` times the places of the elements of an image, for `GridSample`."""
    b.require_float(theta)
    extents = b.integers(size)[2:]
    rank = len(extents)
    if theta.rank != 3 or theta.shape[1:] != (rank, rank + 1):
        b.refuse(f"theta of shape {theta.shape} for {rank} dimensions")
    number = theta.dtype.computed
    tables = []
    for n in extents:
        step = np.arange(n, dtype=np.float64)
        places = (2 * step / max(n - 1, 1) - 1) if align_corners else (2 * step + 1) / max(n, 1) - 1
        tables.append(b.array(places.astype(number.numpy)))

    def body(n: Term, *i: Term) -> Operand:
        at, row = i[:-1], i[-1]
        total = theta[n, row, rank]
        for k in range(rank):
            total = total + theta[n, row, k] * tables[rank - 1 - k][at[rank - 1 - k]]
        return total

    return b.map((theta.shape[0], *extents, rank), theta.dtype, body)


@operator("CenterCropPad", since=18)
def center_crop_pad(b: Builder, x: Value, shape: Value, *, axes: Sequence[int] | None = None) -> Value:
    extents, wanted = list(x.shape), b.integers(shape)
    which = b.distinct_axes(axes, x.rank) if axes is not None else list(range(x.rank))
    if len(wanted) != len(which):
        b.contradict(f"{len(wanted)} extents for {len(which)} axes")
    for a, n in zip(which, wanted, strict=True):
        extents[a] = n
    if any(n < 0 for n in extents) or x.rank == 0:
        b.refuse(f"the result would have extents {tuple(extents)}")
    shifts = [(m - n) // 2 if n <= m else -((n - m) // 2) for m, n in zip(x.shape, extents, strict=True)]
    is_padded = any(n > m for m, n in zip(x.shape, extents, strict=True))
    if prod(x.shape) == 0:
        return b.map(extents, x.dtype, lambda *_: constant(0, x.dtype))
    source = x if x.source is None or not is_padded else b.map(x.shape, x.dtype, lambda *i: x[i])

    def body(*i: Term) -> Operand:
        at = [s + k for s, k in zip(i, shifts, strict=True)]
        return source.padded(at) if is_padded else source[tuple(at)]

    return b.map(extents, x.dtype, body)
