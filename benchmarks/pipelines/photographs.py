"""From sensors to photographs, and what is seen in them: colours, edges, distances, movement, depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pipelines import in_halide, in_halide_others, in_halide_pyramids, in_opencv, operators
from benchmarks.pipelines.discs import BELOW, HALF, LEVEL, RADIUS
from benchmarks.pipelines.filters import box
from benchmarks.pipelines.pipeline import Pipeline, bordered, text, uniform, whole
from benchmarks.pipelines.resampling import down, up


def max_filter(X: np.ndarray) -> np.ndarray:
    (_, h, w), wide = X.shape, bordered(X, RADIUS)
    levels = [wide]
    for s in range(5):
        levels.append(np.maximum(levels[-1][:, : -(1 << s)], levels[-1][:, 1 << s :]))
    found = np.full_like(X, -np.inf)
    for d, (half, level, below) in enumerate(zip(HALF, LEVEL, BELOW, strict=True)):
        for start in (RADIUS - half, RADIUS + below):
            np.maximum(found, levels[level][:, start : start + h, d : d + w], out=found)
    return found


def camera_pipe(raw: np.ndarray, matrix: np.ndarray, curve: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Of the four kinds of pixels as pictures of their own; `at` moves one, and leaves two pixels out at each border."""
    i = raw.astype(np.int32)
    cross = i[2:-2, :-4], i[2:-2, 4:], i[:-4, 2:-2], i[4:, 2:-2]
    d = np.minimum(i[2:-2, 2:-2], np.maximum.reduce(cross))
    p, r, b, q = d[::2, ::2], d[::2, 1::2], d[1::2, ::2], d[1::2, 1::2]

    def avg(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a + b + 1) // 2

    def to(a: np.ndarray, y: int, x: int) -> np.ndarray:
        """Each pixel is the one `y` rows below and `x` columns to the right; what comes in from the other side is not used."""
        return np.roll(a, (-y, -x), (0, 1))

    def flatter(value: Any, a: Any, b: Any, c: Any, d: Any) -> np.ndarray:
        return np.where(np.abs(a - b) < np.abs(c - d), value[0], value[1])

    right, above, left, below = to(p, 0, 1), to(q, -1, 0), to(q, 0, -1), to(p, 1, 0)
    gr = flatter((avg(right, p), avg(above, q)), right, p, above, q)
    gb = flatter((avg(left, q), avg(below, p)), left, q, below, p)

    def corrected(g: np.ndarray, of: np.ndarray, green: np.ndarray, one: tuple[int, int], other: tuple[int, int]) -> np.ndarray:
        return g - avg(to(green, *one), to(green, *other)) + avg(to(of, *one), to(of, *other))

    here = (0, 0)
    red_at_b = flatter(
        (corrected(gb, r, gr, here, (1, -1)), corrected(gb, r, gr, (0, -1), (1, 0))), r, to(r, 1, -1), to(r, 0, -1), to(r, 1, 0)
    )
    blue_at_r = flatter(
        (corrected(gr, b, gb, here, (-1, 1)), corrected(gr, b, gb, (0, 1), (-1, 0))), b, to(b, -1, 1), to(b, 0, 1), to(b, -1, 0)
    )
    kinds = (
        (corrected(p, r, gr, here, (0, -1)), r, red_at_b, corrected(q, r, gr, here, (1, 0))),
        (p, gr, gb, q),
        (corrected(p, b, gb, here, (-1, 0)), blue_at_r, b, corrected(q, b, gb, here, (0, 1))),
    )
    t = np.empty((3, *(2 * n - 8 for n in p.shape)), np.int32)
    for c, planes in enumerate(kinds):
        for n, plane in enumerate(planes):
            t[c, n // 2 :: 2, n % 2 :: 2] = plane[2:-2, 2:-2]
    colours = (np.tensordot(matrix[:, :3], t, 1) + matrix[:, 3, None, None]) // 256
    v = curve[np.clip(colours, 0, 1023)].astype(np.int32)
    u = avg(avg(v[:, :-2], v[:, 2:]), v[:, 1:-1])
    u = avg(avg(u[..., :-2], u[..., 2:]), u[..., 1:-1])
    v, u = v[:, 2:-2, 2:-2], u[:, 1:-1, 1:-1]
    return np.clip(v + (v - u) * s // 32, 0, 255).astype(np.uint8)


def camera_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    matrix = np.array([[427, -120, -51, -2000], [-50, 340, -34, -1500], [-8, -140, 404, -2200]], np.int32)
    curve = (255 * (np.arange(1024) / 1023) ** (1 / 1.8)).astype(np.uint8)
    return {"raw": whole(rng, 1024, "uint16", h + 16, w + 16), "matrix": matrix, "curve": curve, "s": np.array(16, np.int32)}


def canny(X: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    r, g, b = X.astype(np.int32)
    light = bordered((77 * r + 150 * g + 29 * b + 128) // 256, 2)
    for axis in (0, 1):
        n = light.shape[axis] - 4
        light = sum(w * np.take(light, range(t, t + n), axis) for t, w in enumerate((1, 4, 6, 4, 1)))  # type: ignore[assignment]
    wide = bordered((light + 128) // 256, 1)
    rows, columns = wide[:-2] + 2 * wide[1:-1] + wide[2:], wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
    u, v = rows[:, 2:] - rows[:, :-2], columns[2:] - columns[:-2]
    m = np.abs(u) + np.abs(v)
    around = np.pad(m, 1)

    def at(y: int, x: int, of: np.ndarray = around) -> np.ndarray:
        return of[1 + y : 1 + y + m.shape[0], 1 + x : 1 + x + m.shape[1]]

    flat, steep = 32768 * np.abs(v) < 13573 * np.abs(u), 32768 * np.abs(v) > 79109 * np.abs(u)
    kinds = [flat, steep, (u > 0) == (v > 0)]
    before = np.select(kinds, [at(0, -1), at(-1, 0), at(-1, -1)], at(-1, 1))
    after = np.select(kinds, [at(0, 1), at(1, 0), at(1, 1)], at(1, -1))
    thin = np.where((m > before) & (m >= after), m, 0)
    kept = np.where(thin > high, 2, np.where(thin > low, 1, 0))
    for _ in range(2):
        wide = np.pad(kept, 1)
        near = np.maximum.reduce([at(y, x, wide) for y in (-1, 0, 1) for x in (-1, 0, 1)])
        kept = np.where(kept > 0, np.maximum(kept, near), 0)
    return np.where(kept == 2, 255, 0).astype(np.uint8)


STEP, DIAGONAL, FAR = 0.955, 1.3693, 8192.0


def distance(X: np.ndarray) -> np.ndarray:
    """Row by row; along a row, the least of all before it and of the steps to there."""
    d = np.where(X == 0, 0.0, FAR)
    steps = STEP * np.arange(X.shape[1])
    for flip in (False, True):
        d = d[::-1, ::-1] if flip else d
        above = np.full(X.shape[1] + 2, FAR)
        for row in d:
            row[:] = np.minimum.reduce([row, above[:-2] + DIAGONAL, above[1:-1] + STEP, above[2:] + DIAGONAL])
            row[:] = np.minimum.accumulate(row - steps) + steps
            above[1:-1] = row
    return d[::-1, ::-1]


def optical_flow(A: np.ndarray, B: np.ndarray, F: np.ndarray) -> np.ndarray:
    h, w = A.shape
    p, q = np.clip(np.arange(h)[:, None] + F[1], 0, h - 1), np.clip(np.arange(w) + F[0], 0, w - 1)
    j, i = np.minimum(p.astype(int), h - 2), np.minimum(q.astype(int), w - 2)
    g, f = p - j, q - i
    t = (1 - g) * ((1 - f) * B[j, i] + f * B[j, i + 1]) + g * ((1 - f) * B[j + 1, i] + f * B[j + 1, i + 1]) - A
    wide = bordered(A, 1)
    u, v = 0.5 * (wide[1:-1, 2:] - wide[1:-1, :-2]), 0.5 * (wide[2:, 1:-1] - wide[:-2, 1:-1])
    a, b, c, d, e = (box(np.pad(s, 2), 5) for s in (u * u, u * v, v * v, u * t, v * t))
    n = 1 / (a * c - b * b + 0.01)
    return F - n * np.stack([c * d - b * e, a * e - b * d])


def lens_blur(L: np.ndarray, R: np.ndarray, dy: Any, dx: Any, rho: Any, focus: Any, scale: Any) -> np.ndarray:
    (_, h, w), left, right = L.shape, L.astype(np.int32), R.astype(np.int32)
    cost = [((left - right[..., np.minimum(np.arange(w) + 2 * z, w - 1)]) ** 2).sum(0) / 65025 for z in range(16)]
    levels = [np.stack(cost)]
    for _ in range(3):
        levels.append(down(levels[-1]))
    summed = levels.pop()
    while levels:
        fine = levels.pop()
        summed = fine + up(summed, fine.shape)
    likely = np.exp(-4 * summed)
    depth = np.tensordot(np.arange(16.0), likely, 1) / likely.sum(0)
    radius = np.minimum(np.abs(depth - focus) * scale, 12)
    total, weights = np.zeros(L.shape), np.zeros((h, w))
    for y, x, far in zip(dy, dx, rho, strict=True):
        place = np.ix_(np.clip(np.arange(h) + y, 0, h - 1), np.clip(np.arange(w) + x, 0, w - 1))
        weight = np.clip(np.minimum(radius, radius[place]) - far + 1, 0, 1)
        total += weight * left[:, *place]
        weights += weight
    return total / weights


def lens_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    """Places on a spiral, as the seeds of a sunflower."""
    turns = np.arange(33)
    far, angle = 12 * np.sqrt(turns / 32), turns * np.pi * (3 - np.sqrt(5))
    places = np.rint(far * np.sin(angle)).astype(np.int32), np.rint(far * np.cos(angle)).astype(np.int32)
    pictures = {"L": whole(rng, 256, "uint8", 3, h, w), "R": whole(rng, 256, "uint8", 3, h, w)}
    numbers = {"focus": np.array(5.3, np.float32), "scale": np.array(6, np.float32)}
    return pictures | {"dy": places[0], "dx": places[1], "rho": np.hypot(*places).astype(np.float32)} | numbers


PIPELINES = (
    Pipeline(
        "max_filter",
        "the greatest value in a disc of radius 26",
        operators.max_filter,
        max_filter,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w)},
        notation="python",
        tolerance=0,
        halide=in_halide.max_filter,
        opencv=in_opencv.max_filter,
        numba="benchmarks.pipelines.numba_loops.max_filter",
    ),
    Pipeline(
        "camera_pipe",
        "a sensor's pixels to colours of 8 bits",
        operators.camera_pipe,
        camera_pipe,
        camera_inputs,
        result_type="uint8",
        notation="python",
        tolerance=0,
        small=(62, 46),
        halide=in_halide_pyramids.camera_pipe,
    ),
    Pipeline(
        "canny",
        "edges of a picture of 8 bits",
        text("canny"),
        canny,
        lambda rng, h, w: {
            "X": whole(rng, 256, "uint8", 3, h, w),
            "low": np.array(100, np.int32),
            "high": np.array(180, np.int32),
        },
        lambda h, w: (h, w),
        "uint8",
        tolerance=0,
        halide=in_halide_others.canny,
    ),
    Pipeline(
        "distance",
        "distances to the nearest zero, in two passes",
        text("distance"),
        distance,
        lambda rng, h, w: {"X": (whole(rng, 500, "uint16", h, w) > 0).astype(np.uint8)},
        lambda h, w: (h, w),
        opencv=in_opencv.distance,
        tolerance=2e-5,
        numba="benchmarks.pipelines.numba_loops.distance",
    ),
    Pipeline(
        "optical_flow",
        "a step of Lucas and Kanade's optical flow",
        text("optical_flow"),
        optical_flow,
        lambda rng, h, w: {"A": uniform(rng, h, w), "B": uniform(rng, h, w), "F": uniform(rng, 2, h, w, low=-2, high=2)},
        lambda h, w: (2, h, w),
        tolerance=1e-4,
        halide=in_halide_pyramids.optical_flow,
    ),
    Pipeline(
        "lens_blur",
        "depth from two pictures, and a blur by it",
        text("lens_blur") + text("pyramids"),
        lens_blur,
        lens_inputs,
        entry="lens_blur",
        tolerance=1e-4,
        halide=in_halide_others.lens_blur,
        has_schedule=False,
    ),
)
