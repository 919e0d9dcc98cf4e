"""Values between elements, at places that are computed: grids, and regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, clamp, maximum, minimum, select
from polyc.ir.types import BOOL, I64

MAX_TAPS = 64
"""Elements that one sample is made of, in one expression."""


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

    if taps**rank > MAX_TAPS:
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
