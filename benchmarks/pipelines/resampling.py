"""Pictures at other sizes: resized, in pyramids and wavelets, and as grids of cells."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.pipelines import in_halide, in_halide_others, in_halide_pyramids
from benchmarks.pipelines.pipeline import Pipeline, text, uniform, whole

# -- resizing by p/q: each pixel is a mean of so many, weighted by a kernel that has been widened where the picture shrinks


def cubic(d: np.ndarray) -> np.ndarray:
    return np.where(d < 1, (1.5 * d - 2.5) * d * d + 1, np.where(d < 2, ((2.5 - 0.5 * d) * d - 4) * d + 2, 0))


def lanczos(d: np.ndarray) -> np.ndarray:
    return np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0)


KERNELS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray], str]] = {
    "cubic": (2, cubic, "d < 1.0 ? (1.5 * d - 2.5) * d * d + 1.0 : d < 2.0 ? ((2.5 - 0.5 * d) * d - 4.0) * d + 2.0 : 0.0"),
    "lanczos": (3, lanczos, "d == 0.0 ? 1.0 : d < 3.0 ? 3.0 * sinpi(d) * sinpi(d / 3.0) / (9.869604401 * d * d) : 0.0"),
}
"""Radius, and the weight at a distance."""
FACTORS = {"quarter": (1, 4), "half": (1, 2), "twice": (2, 1), "3.3": (33, 10)}

RESIZE = string.Template("""
def resize(float(C, H, W) X) -> (Y) {
  u(y, t) = $weight
      where d = fabs(float($down * ($begin_y + t) - (2 * y + 1) * $q + $p)) / $unit, y in 0:H*$p/$q, t in 0:$taps
  n(y) +=! u(y, t)
  v(x, t) = $weight
      where d = fabs(float($down * ($begin_x + t) - (2 * x + 1) * $q + $p)) / $unit, x in 0:W*$p/$q, t in 0:$taps
  m(x) +=! v(x, t)
  $passes
}
""")
ROWS = "{to}(c, y, x) +=! u(y, t) / n(y) * pad({of}(c, $begin_y + t, x), clamp)"
COLUMNS = "{to}(c, y, x) +=! v(x, t) / m(x) * pad({of}(c, y, $begin_x + t), clamp)"


def taps_of(factor: str, kernel: str) -> tuple[int, int, int, int]:
    """The factor as p/q, the kernel's radius in pixels, and their number."""
    p, q = FACTORS[factor]
    radius = KERNELS[kernel][0] * max(1, q // p)
    return p, q, radius, 2 * radius


def resize_text(factor: str, kernel: str) -> str:
    """Rows first where the picture shrinks, columns first where it grows: the fewest sums."""
    p, q, radius, taps = taps_of(factor, kernel)
    begin = {f"begin_{i}": f"((2 * {i} + 1) * {q} + {p - 1 - 2 * p * radius}) / {2 * p}" for i in "yx"}
    passes = (ROWS, COLUMNS) if p < q else (COLUMNS, ROWS)
    lines = "\n  ".join(
        string.Template(s.format(to=t, of=o)).substitute(begin) for s, t, o in zip(passes, "RY", "XR", strict=True)
    )
    unit = f"{2.0 * max(p, q)}"  # of distances from the middle: a source's pixels where it grows, the result's where it shrinks
    return RESIZE.substitute(begin, weight=KERNELS[kernel][2], p=p, q=q, taps=taps, down=2 * p, unit=unit, passes=lines)


def weights_of(n: int, factor: str, kernel: str) -> tuple[np.ndarray, np.ndarray]:
    """For each pixel of a row of the result, what stands for it in a row of `n`, and with which weights."""
    p, q, radius, taps = taps_of(factor, kernel)
    i = np.arange(n * p // q)[:, None]
    begin = ((2 * i + 1) * q + p - 1 - 2 * p * radius) // (2 * p)
    places = begin + np.arange(taps)
    w = KERNELS[kernel][1](np.abs(2 * p * places - (2 * i + 1) * q + p) / (2 * max(p, q)))
    return np.clip(places, 0, n - 1), w / w.sum(1, keepdims=True)


def resize(X: np.ndarray, factor: str, kernel: str) -> np.ndarray:
    (rows, u), (columns, v) = (weights_of(n, factor, kernel) for n in X.shape[1:])
    tall = sum(u[:, t, None] * X[:, rows[:, t]] for t in range(u.shape[1]))
    return sum(v[:, t] * tall[:, :, columns[:, t]] for t in range(v.shape[1]))


def resize_pipeline(factor: str, kernel: str) -> Pipeline:
    """The larger picture has the size of all of them."""
    p, q = FACTORS[factor]

    def given(h: int, w: int) -> tuple[int, int, int]:
        return (3, h, w) if p < q else (3, h * q // p, w * q // p)

    def found(h: int, w: int) -> tuple[int, ...]:
        return 3, *(n * p // q for n in given(h, w)[1:])

    return Pipeline(
        f"resize_{factor}_{kernel}",
        f"resized by {p}/{q}, {kernel}",
        resize_text(factor, kernel),
        lambda X: resize(X, factor, kernel),
        lambda rng, h, w: {"X": uniform(rng, *given(h, w))},
        found,
        halide=in_halide.resize((p, q), taps_of(factor, kernel)[2], getattr(in_halide, kernel)),
    )


# -- pyramids


def down(a: np.ndarray) -> np.ndarray:
    for axis in (-2, -1):
        n = a.shape[axis]
        taps = [np.take(a, np.clip(np.arange(0, n, 2) + t, 0, n - 1), axis) for t in (-1, 0, 1, 2)]
        a = (taps[0] + 3 * (taps[1] + taps[2]) + taps[3]) / 8
    return a


def up(a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    for axis in (-1, -2):
        i = np.arange(shape[axis])
        near = np.clip(i // 2 - 1 + 2 * (i % 2), 0, a.shape[axis] - 1)
        a = 0.75 * np.take(a, i // 2, axis) + 0.25 * np.take(a, near, axis)
    return a


def interpolate_text(levels: int = 10) -> str:
    """Colours times opacity at all levels; from the coarsest one on, what is not opaque is filled from below."""
    lines = [
        "def interpolate(float(4, H, W) X) -> (Y) {",
        "  D0(c, y, x) = X(c, y, x) * X(3, y, x) where c in 0:3",
        "  D0(3, y, x) = X(3, y, x)",
        *(f"  D{n + 1} = halve(D{n})" for n in range(levels - 1)),
        f"  I{levels - 1}(c, y, x) = D{levels - 1}(c, y, x)",
        *(f"  I{n} = fill(D{n}, I{n + 1})" for n in reversed(range(levels - 1))),
        "  Y(c, y, x) = I0(c, y, x) / I0(3, y, x) where c in 0:3",
        "}",
    ]
    return "\n".join(lines) + text("interpolate")


def interpolate(X: np.ndarray, levels: int = 10) -> np.ndarray:
    stack = [np.concatenate([X[:3] * X[3], X[3:]])]
    for _ in range(levels - 1):
        a = stack[-1]
        for axis in (1, 2):
            n = a.shape[axis]
            taps = [np.take(a, np.clip(np.arange(0, n, 2) + t, 0, n - 1), axis) for t in (-1, 0, 1)]
            a = (taps[0] + 2 * taps[1] + taps[2]) / 4
        stack.append(a)
    found = stack.pop()
    while stack:
        fine, coarse = stack.pop(), found
        for axis in (1, 2):
            i = np.arange(fine.shape[axis])
            last = coarse.shape[axis] - 1
            coarse = (np.take(coarse, i // 2, axis) + np.take(coarse, np.minimum((i + 1) // 2, last), axis)) / 2
        found = fine + (1 - fine[3]) * coarse
    return found[:3] / found[3]


def local_laplacian_text(levels: int = 8) -> str:
    """Eight levels of the pyramid; at each, one of eight pictures whose brightness was mapped by a curve."""
    n = levels
    lines = [
        "def local_laplacian(uint16(3, H, W) X, float alpha, float beta) -> (Y) {",
        "  F(c, y, x) = float(X(c, y, x)) / 65535.0",
        "  J0(k, y, x) = 0.299 * F(0, y, x) + 0.587 * F(1, y, x) + 0.114 * F(2, y, x) where k in 0:1",
        "  e(i) = float(i) / 256.0 where i in -1792:1793",
        "  m(i) = alpha * e(i) * exp(-e(i) * e(i) / 2.0)",
        "  t(y, x) = min(max(int32(J0(0, y, x) * 1792.0), 0), 1792)",
        "  G0(k, y, x) = beta * (J0(0, y, x) - float(k) / 7.0) + float(k) / 7.0 + m(t(y, x) - 256 * k) where k in 0:8",
        *(f"  G{i + 1} = down(G{i})\n  J{i + 1} = down(J{i})" for i in range(n - 1)),
        *(f"  L{i} = add(G{i}, G{i + 1}, -1.0)" for i in range(n - 1)),
        f"  L{n - 1}(k, y, x) = G{n - 1}(k, y, x)",
    ]
    for i in range(n):
        lines += [
            f"  l{i}(y, x) = J{i}(0, y, x) * 7.0",
            f"  k{i}(y, x) = min(max(int32(l{i}(y, x)), 0), 6)",
            f"  f{i}(y, x) = l{i}(y, x) - float(k{i}(y, x))",
            f"  O{i}(k, y, x) = (1.0 - f{i}(y, x)) * L{i}(k{i}(y, x), y, x)",
            f"      + f{i}(y, x) * L{i}(k{i}(y, x) + 1, y, x) where k in 0:1",
        ]
    lines += [
        *(f"  O{i} = add(O{i}, O{i + 1}, 1.0)" for i in reversed(range(n - 1))),
        "  Y(c, y, x) = uint16(fmin(fmax(O0(0, y, x) * (F(c, y, x) + 0.01) / (J0(0, y, x) + 0.01), 0.0), 1.0) * 65535.0)",
        "}",
    ]
    return "\n".join(lines) + "\n" + text("pyramids")


def local_laplacian(X: np.ndarray, alpha: np.ndarray, beta: np.ndarray, levels: int = 8) -> np.ndarray:
    colours = X / 65535
    gray = 0.299 * colours[0] + 0.587 * colours[1] + 0.114 * colours[2]
    e = np.arange(-1792, 1793) / 256
    curve = alpha * e * np.exp(-e * e / 2)
    place = np.clip((gray * 1792).astype(int), 0, 1792)
    steps = np.arange(8)[:, None, None]
    fine = [beta * (gray - steps / 7) + steps / 7 + curve[place - 256 * steps + 1792]]
    plain = [gray]
    for _ in range(levels - 1):
        fine.append(down(fine[-1]))
        plain.append(down(plain[-1]))
    result = np.zeros((1, 1))
    for i in reversed(range(levels)):
        bands = fine[i] - up(fine[i + 1], fine[i].shape) if i < levels - 1 else fine[i]
        k = np.clip((plain[i] * 7).astype(int), 0, 6)
        f = plain[i] * 7 - k
        low, high = (np.take_along_axis(bands, n[None], 0)[0] for n in (k, k + 1))
        band = (1 - f) * low + f * high
        result = band + up(result, band.shape) if i < levels - 1 else band
    return (np.clip(result * (colours + 0.01) / (gray + 0.01), 0, 1) * 65535).astype(np.uint16)


# -- wavelets

ROOT = np.sqrt(3.0)
DAUBECHIES = {f"h{i}": float(v / (4 * np.sqrt(2))) for i, v in enumerate((1 + ROOT, 3 + ROOT, 3 - ROOT, 1 - ROOT))}


def soft(a: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.maximum(a - s, 0) + np.minimum(a + s, 0)


def wavelet(X: np.ndarray, s: np.ndarray) -> np.ndarray:
    h0, h1, h2, h3 = DAUBECHIES.values()

    def forward(a: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        x = [np.take(np.roll(a, -t, axis), range(0, a.shape[axis], 2), axis) for t in range(4)]
        return h0 * x[0] + h1 * x[1] + h2 * x[2] + h3 * x[3], h3 * x[0] - h2 * x[1] + h1 * x[2] - h0 * x[3]

    def back(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        c, d = np.roll(a, 1, axis), np.roll(b, 1, axis)
        pair = h0 * a + h2 * c + h3 * b + h1 * d, h1 * a + h3 * c - h2 * b - h0 * d
        shape = [2 * n if i == axis else n for i, n in enumerate(a.shape)]
        return np.stack(pair, axis + 1).reshape(shape)

    low, high = forward(X, 1)
    low, high = (
        back(forward(b, 2)[0] if b is low else soft(forward(b, 2)[0], s), soft(forward(b, 2)[1], s), 2) for b in (low, high)
    )
    return back(low, high, 1)


# -- grids of cells


def bilateral_grid(X: np.ndarray) -> np.ndarray:
    h, w = X.shape
    p = np.clip(X, 0, 1)
    high, wide = (h + 15) // 8, (w + 15) // 8
    rows, columns = (np.clip(np.arange(8 * n) - 4, 0, m - 1) for n, m in ((high, h), (wide, w)))
    cells = p[np.ix_(rows, columns)]
    k = np.clip((10 * cells + 0.5).astype(int), 0, 10)
    place = ((np.arange(8 * high) // 8)[:, None] * wide + np.arange(8 * wide) // 8) * 11 + k
    grid = [
        np.bincount(place.ravel(), v.ravel(), high * wide * 11).reshape(high, wide, 11) for v in (cells, np.ones_like(cells))
    ]
    g = np.stack(grid)
    for axis in (3, 2, 1):
        g = sum(
            a * np.take(g_, range(t, t + g.shape[axis]), axis)
            for g_ in [widened(g, 2, axis)]
            for t, a in enumerate((1, 4, 6, 4, 1))
        )
    k = np.minimum((10 * p).astype(int), 9)
    y, x = np.arange(h)[:, None], np.arange(w)
    i = trilinear(g, y, x, 8, k, 10 * p - k)
    return i[0] / i[1]


def widened(a: np.ndarray, n: int, axis: int) -> np.ndarray:
    """With `n` zeros more at both ends of an axis."""
    return np.pad(a, [(n, n) if d == axis else (0, 0) for d in range(a.ndim)])


def trilinear(g: np.ndarray, y: np.ndarray, x: np.ndarray, cell: int, k: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Between the eight cells around each pixel of `g`, whose last three axes are rows, columns and brightness."""
    total = 0
    for j, v in ((y // cell, 1 - y % cell / cell), (y // cell + 1, y % cell / cell)):
        for i, u in ((x // cell, 1 - x % cell / cell), (x // cell + 1, x % cell / cell)):
            total = total + v * u * ((1 - f) * g[..., j, i, k] + f * g[..., j, i, k + 1])
    return np.asarray(total)


def guided_upsampling(guide: np.ndarray, value: np.ndarray, X: np.ndarray) -> np.ndarray:
    (_, m, n), (_, h, w) = guide.shape, X.shape
    light = 0.25 * guide[0] + 0.5 * guide[1] + 0.25 * guide[2]
    z = np.clip((8 * light + 0.5).astype(int), 0, 8)
    high, wide = (m + 31) // 16, (n + 31) // 16
    place = ((z * high + (np.arange(m)[:, None] + 8) // 16) * wide + (np.arange(n) + 8) // 16).ravel()
    known = np.concatenate([guide, np.ones_like(guide[:1])])

    def gather(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sums over cells of all products, smoothed."""
        sums = [[np.bincount(place, (p * q).ravel(), 9 * high * wide) for q in b] for p in a]
        g = np.array(sums).reshape(len(a), len(b), 9, high, wide)
        for axis in (2, 3, 4):
            g_ = widened(g, 1, axis)
            g = sum(c * np.take(g_, range(t, t + g.shape[axis]), axis) for t, c in enumerate((1, 2, 1)))
        return g

    a, b = gather(known, known), gather(value, known)
    ridge = 0.01 + 0.01 * a[3, 3]
    a = a + np.eye(4)[:, :, None, None, None] * ridge
    b = b + np.eye(3, 4)[:, :, None, None, None] * (0.01 + 0.01 * a[3, 3])  # with the ridge, as in the operator
    maps = np.linalg.solve(np.moveaxis(a, (0, 1), (-2, -1)), np.moveaxis(b, (0, 1), (-1, -2)))
    g = np.moveaxis(maps, (-1, -2, 0, 1, 2), (0, 1, 4, 2, 3))
    f = 8 * np.clip(0.25 * X[0] + 0.5 * X[1] + 0.25 * X[2], 0, 1)
    k = np.minimum(f.astype(int), 7)
    out = np.empty_like(X)
    for start in range(0, h, 128):  # some rows at a time: twelve numbers for each pixel
        rows = slice(start, min(start + 128, h))
        y, x = np.arange(h)[rows, None], np.arange(w)
        t = trilinear(g, y, x, 128, k[rows], f[rows] - k[rows])
        out[:, rows] = (t[:, :3] * X[:, rows]).sum(1) + t[:, 3]
    return out


def guided_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    small = uniform(rng, 3, (h + 7) // 8, (w + 7) // 8)
    return {"guide": small, "value": np.sqrt(small) * np.float32(0.9), "X": uniform(rng, 3, h, w)}


PIPELINES = (
    *(resize_pipeline(factor, kernel) for factor in FACTORS for kernel in KERNELS),
    Pipeline(
        "interpolate",
        "what is not opaque, filled from a pyramid of ten levels",
        interpolate_text(),
        interpolate,
        lambda rng, h, w: {"X": uniform(rng, 4, h, w)},
        entry="interpolate",
        halide=in_halide_pyramids.interpolate,
    ),
    Pipeline(
        "local_laplacian",
        "local Laplacian filter, eight levels",
        local_laplacian_text(),
        local_laplacian,
        lambda rng, h, w: {
            "X": whole(rng, 65536, "uint16", 3, h, w),
            "alpha": np.array(1 / 7, np.float32),
            "beta": np.array(1, np.float32),
        },
        result_type="uint16",
        tolerance=2e-3,  # a step of the curve more or less
        entry="local_laplacian",
        halide=in_halide_pyramids.local_laplacian,
    ),
    Pipeline(
        "wavelet",
        "noise taken away by a wavelet of four taps",
        string.Template(text("wavelet")).substitute(DAUBECHIES),
        wavelet,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w), "s": np.array(0.1, np.float32)},
        entry="wavelet",
        small=(62, 46),
        halide=in_halide_others.wavelet,
        has_schedule=False,
    ),
    Pipeline(
        "bilateral_grid",
        "means of like neighbours by a grid",
        text("bilateral_grid"),
        bilateral_grid,
        lambda rng, h, w: {"X": uniform(rng, h, w)},
        lambda h, w: (h, w),
        tolerance=1e-4,
        halide=in_halide_pyramids.bilateral_grid,
    ),
    Pipeline(
        "guided_upsampling",
        "a change of colours taken over from a small picture",
        text("guided_upsampling"),
        guided_upsampling,
        guided_inputs,
        entry="guided_upsampling",
        tolerance=2e-3,
    ),
)
