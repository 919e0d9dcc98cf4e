"""Edges, wavelets, depth and Fourier transforms in Halide, as `benchmarks.pipelines.in_halide`."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pipelines.in_halide import clamped, in_strips, sizes, stage
from benchmarks.pipelines.in_halide_pyramids import eighths, halved, up_two

ROOT = np.sqrt(3.0)
DAUBECHIES = [float(v / (4 * np.sqrt(2))) for v in (1 + ROOT, 3 + ROOT, 3 - ROOT, 1 - ROOT)]


def canny(hl: Any, is_scheduled: bool, X: Any, low: int, high: int) -> Any:
    w, h = sizes(X)
    x, y = hl.Var("x"), hl.Var("y")
    r, g, b = (hl.i32(X[x, y, n]) for n in range(3))
    light = stage(hl, "light", "xy", lambda x, y: (77 * r + 150 * g + 29 * b + 128) / 256)
    wide = clamped(hl, light, w, h)

    def five(at: Any) -> Any:
        return at(-2) + 4 * at(-1) + 6 * at(0) + 4 * at(1) + at(2)

    down = stage(hl, "down", "xy", lambda x, y: five(lambda t: wide[x, y + t]))
    blurred = stage(hl, "blurred", "xy", lambda x, y: (five(lambda t: down[x + t, y]) + 128) / 256)
    near = clamped(hl, blurred, w, h)
    before, after = [near[x - 1, y + t] for t in (-1, 0, 1)], [near[x + 1, y + t] for t in (-1, 0, 1)]
    above, below = [near[x + t, y - 1] for t in (-1, 0, 1)], [near[x + t, y + 1] for t in (-1, 0, 1)]
    u = stage(hl, "u", "xy", lambda x, y: sum(n * (a - b) for n, a, b in zip((1, 2, 1), after, before, strict=True)))
    v = stage(hl, "v", "xy", lambda x, y: sum(n * (a - b) for n, a, b in zip((1, 2, 1), below, above, strict=True)))

    def size(x: Any, y: Any) -> Any:
        return hl.max(u[x, y], -u[x, y]) + hl.max(v[x, y], -v[x, y])

    slope = stage(hl, "slope", "xy", size)
    m = hl.BoundaryConditions.constant_exterior(slope, 0, [(0, w), (0, h)])

    def thin(x: Any, y: Any) -> Any:
        def at(i: int, j: int) -> Any:  # a choice between references of functions would be a tuple
            return hl.Expr(m[x + i, y + j])

        across, along = hl.max(u[x, y], -u[x, y]), hl.max(v[x, y], -v[x, y])
        flat, steep = 32768 * along < 13573 * across, 32768 * along > 79109 * across
        falls = (u[x, y] > 0) == (v[x, y] > 0)
        a, b = (hl.select(flat, at(s, 0), hl.select(steep, at(0, s), hl.select(falls, at(s, s), at(-s, s)))) for s in (-1, 1))
        kept = hl.select((slope[x, y] > a) & (slope[x, y] >= b), slope[x, y], 0)
        return hl.u8(hl.select(kept > high, 2, hl.select(kept > low, 1, 0)))

    def grown(f: Any, name: str) -> Any:
        wide = hl.BoundaryConditions.constant_exterior(f, hl.u8(0), [(0, w), (0, h)])

        def value(x: Any, y: Any) -> Any:
            found = wide[x, y]
            for i in (-1, 0, 1):
                for j in (-1, 0, 1):
                    found = hl.max(found, wide[x + i, y + j])
            return hl.select(wide[x, y] == hl.u8(0), hl.u8(0), found)

        return stage(hl, name, "xy", value)

    first = stage(hl, "thin", "xy", thin)
    second = grown(first, "second")
    third = grown(second, "third")
    out = stage(hl, "out", "xy", lambda x, y: hl.select(third[x, y] == hl.u8(2), hl.u8(255), hl.u8(0)))
    if is_scheduled:
        in_strips(hl, out, [light, down, blurred, u, v, slope, first, second], 64)
    return out


def wavelet(hl: Any, is_scheduled: bool, X: Any, s: float) -> Any:
    f, (w, h) = hl.f32, sizes(X)
    d = [f(v) for v in DAUBECHIES]
    signs = (d[3], -d[2], d[1], -d[0])

    def split(g: Any, n: int, axis: int, name: str) -> tuple[Any, Any]:
        """Means and details of two pixels, along x (0) or y (1) of `n`."""

        def at(x: Any, y: Any, c: Any, t: int) -> Any:
            return g[(2 * x + t) % n, y, c] if axis == 0 else g[x, (2 * y + t) % n, c]

        return tuple(
            stage(
                hl,
                f"{name}{k}",
                "xyc",
                lambda x, y, c, ws=ws: sum((ws[t] * at(x, y, c, t) for t in (1, 2, 3)), ws[0] * at(x, y, c, 0)),
            )
            for k, ws in (("low", d), ("high", signs))
        )

    def join(a: Any, b: Any, n: int, axis: int, name: str) -> Any:
        def value(x: Any, y: Any, c: Any) -> Any:
            k = (x if axis == 0 else y) / 2
            last = (k + n // 2 - 1) % (n // 2)

            def at(g: Any, i: Any) -> Any:
                return g[i, y, c] if axis == 0 else g[x, i, c]

            even = d[0] * at(a, k) + d[2] * at(a, last) + d[3] * at(b, k) + d[1] * at(b, last)
            odd = d[1] * at(a, k) + d[3] * at(a, last) - d[2] * at(b, k) - d[0] * at(b, last)
            return hl.select((x if axis == 0 else y) % 2 == 0, even, odd)

        return stage(hl, name, "xyc", value)

    def soft(g: Any, name: str) -> Any:
        t = f(s)
        return stage(hl, name, "xyc", lambda x, y, c: hl.max(g[x, y, c] - t, f(0)) + hl.min(g[x, y, c] + t, f(0)))

    low, high = split(X, h, 1, "rows")
    (p, q), (r, t) = split(low, w, 0, "a"), split(high, w, 0, "b")
    low = join(p, soft(q, "q"), w, 0, "low_back")
    high = join(soft(r, "r"), soft(t, "t"), w, 0, "high_back")
    return join(low, high, h, 1, "out")


def lens_blur(hl: Any, is_scheduled: bool, L: Any, R: Any, dy: Any, dx: Any, rho: Any, focus: float, scale: float) -> Any:
    f, (w, h) = hl.f32, sizes(L)
    x, y, c = (hl.Var(n) for n in "xyc")
    left, right = clamped(hl, L, w, h), clamped(hl, R, w, h)

    def distance(x: Any, y: Any, c: Any) -> Any:
        differences = [hl.i32(left[x, y, n]) - hl.i32(right[x + 2 * c, y, n]) for n in range(3)]
        return f(differences[0] * differences[0] + differences[1] * differences[1] + differences[2] * differences[2]) / f(65025)

    levels = [(stage(hl, "cost", "xyc", distance), w, h)]
    for n in (1, 2, 3):
        levels.append(halved(hl, *levels[-1], f"cost{n}", eighths(hl), is_scheduled))
    summed = levels.pop()
    while levels:
        fine = levels.pop()
        up = up_two(hl, *summed, f"up{len(levels)}")
        added = stage(hl, f"sum{len(levels)}", "xyc", lambda x, y, c, a=fine[0], b=up: a[x, y, c] + b[x, y, c])
        summed = added, *fine[1:]
    likely = stage(hl, "likely", "xyc", lambda x, y, c: hl.exp(f(-4) * summed[0][x, y, c]))
    z, i = hl.RDom([(0, 16)]).x, hl.RDom([(0, rho.dim(0).extent())]).x
    total, depth = hl.Func("total"), hl.Func("depth")
    total[x, y] += likely[x, y, z]
    depth[x, y] += f(z) * likely[x, y, z]
    radius = stage(hl, "radius", "xy", lambda x, y: hl.min(hl.abs(depth[x, y] / total[x, y] - f(focus)) * f(scale), f(12)))
    wide = clamped(hl, radius, w, h)
    weight = hl.clamp(hl.min(radius[x, y], wide[x + dx[i], y + dy[i]]) - rho[i] + f(1), f(0), f(1))
    colours = hl.Func("colours")
    colours[x, y, c] += weight * hl.select(c == 3, f(1), f(left[x + dx[i], y + dy[i], hl.min(c, 2)]))
    return stage(hl, "out", "xyc", lambda x, y, c: colours[x, y, c] / colours[x, y, 3])
