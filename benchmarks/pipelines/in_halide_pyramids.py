"""Pyramids, grids and photographs in Halide, as `benchmarks.pipelines.in_halide`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.pipelines.in_halide import VECTOR, clamped, in_strips, sizes, stage


def halved(hl: Any, f: Any, w: int, h: int, name: str, weigh: Callable[..., Any], is_scheduled: bool) -> tuple[Any, int, int]:
    """The next level of a pyramid; ``weigh(at)`` is the mean of pixels ``at(-1)``, ``at(0)`` …"""
    wide = clamped(hl, f, w, h)
    r = stage(hl, f"{name}_rows", "xyc", lambda x, y, c: weigh(lambda t: wide[x, 2 * y + t, c]))
    out = stage(hl, name, "xyc", lambda x, y, c: weigh(lambda t: r[2 * x + t, y, c]))
    if is_scheduled:
        out.compute_root().parallel(hl.Var("c"))
        if w >= 8 * VECTOR:
            r.compute_at(out, hl.Var("y")).vectorize(hl.Var("x"), VECTOR)
            out.vectorize(hl.Var("x"), VECTOR // 2)
    return out, (w + 1) // 2, (h + 1) // 2


def interpolate(hl: Any, is_scheduled: bool, X: Any) -> Any:
    f = hl.f32
    x, y, c = (hl.Var(n) for n in "xyc")
    w, h = sizes(X)
    first = stage(hl, "first", "xyc", lambda x, y, c: hl.select(c < 3, X[x, y, c] * X[x, y, 3], X[x, y, 3]))
    levels = [(first, w, h)]

    def weigh(at: Any) -> Any:
        return (at(-1) + f(2) * at(0) + at(1)) * f(0.25)

    for n in range(1, 10):
        levels.append(halved(hl, *levels[-1], f"down{n}", weigh, is_scheduled))
    coarse = levels.pop()
    n = len(levels)
    while levels:
        n -= 1
        (fine, w, h), (f0, w0, h0) = levels.pop(), coarse
        wide = clamped(hl, f0, w0, h0)
        r = stage(hl, f"up{n}_rows", "xyc", lambda x, y, c, g=wide: (g[x, y / 2, c] + g[x, (y + 1) / 2, c]) * f(0.5))
        up = stage(hl, f"up{n}", "xyc", lambda x, y, c, g=r: (g[x / 2, y, c] + g[(x + 1) / 2, y, c]) * f(0.5))
        filled = stage(hl, f"filled{n}", "xyc", lambda x, y, c, a=fine, b=up: a[x, y, c] + (f(1) - a[x, y, 3]) * b[x, y, c])
        if is_scheduled and n:
            filled.compute_root().parallel(c)
            if w >= 8 * VECTOR:
                r.compute_at(filled, y).vectorize(x, VECTOR)
                filled.vectorize(x, VECTOR)
        coarse = filled, w, h
    last = coarse[0]
    out = stage(hl, "out", "xyc", lambda x, y, c: last[x, y, c] / last[x, y, 3])
    if is_scheduled:
        out.bound(c, 0, 3).reorder(c, x, y).unroll(c).vectorize(x, VECTOR).parallel(y, 8)
    return out


def up_two(hl: Any, f: Any, w: int, h: int, name: str) -> Any:
    wide, k = clamped(hl, f, w, h), hl.f32
    r = stage(
        hl, f"{name}_x", "xyc", lambda x, y, c: k(0.75) * wide[x / 2, y, c] + k(0.25) * wide[x / 2 - 1 + 2 * (x % 2), y, c]
    )
    return stage(hl, name, "xyc", lambda x, y, c: k(0.75) * r[x, y / 2, c] + k(0.25) * r[x, y / 2 - 1 + 2 * (y % 2), c])


def eighths(hl: Any) -> Callable[..., Any]:
    f = hl.f32
    return lambda at: f(0.125) * (at(-1) + f(3) * (at(0) + at(1)) + at(2))


def local_laplacian(hl: Any, is_scheduled: bool, X: Any, alpha: float, beta: float) -> Any:
    f, n_levels = hl.f32, 8
    x, y, c, i = (hl.Var(n) for n in "xyci")
    w, h = sizes(X)
    colours = stage(hl, "colours", "xyc", lambda x, y, c: f(X[x, y, c]) / f(65535))
    gray = stage(
        hl,
        "gray",
        "xyc",
        lambda x, y, c: f(0.299) * colours[x, y, 0] + f(0.587) * colours[x, y, 1] + f(0.114) * colours[x, y, 2],
    )
    curve = hl.Func("curve")
    e = f(i) / f(256)
    curve[i] = f(alpha) * e * hl.exp(-e * e / f(2))

    def mapped(x: Any, y: Any, c: Any) -> Any:
        place = hl.clamp(hl.i32(gray[x, y, 0] * f(1792)), 0, 1792)
        level = f(c) / f(7)
        return f(beta) * (gray[x, y, 0] - level) + level + curve[place - 256 * c]

    fine, plain = [(stage(hl, "mapped", "xyc", mapped), w, h)], [(gray, w, h)]
    for n in range(1, n_levels):
        fine.append(halved(hl, *fine[-1], f"fine{n}", eighths(hl), is_scheduled))
        plain.append(halved(hl, *plain[-1], f"plain{n}", eighths(hl), is_scheduled))
    result = None
    for n in reversed(range(n_levels)):
        bands = fine[n][0]
        if n < n_levels - 1:
            up = up_two(hl, *fine[n + 1], f"coarse{n}")
            bands = stage(hl, f"bands{n}", "xyc", lambda x, y, c, a=fine[n][0], b=up: a[x, y, c] - b[x, y, c])

        def band(x: Any, y: Any, c: Any, g: Any = plain[n][0], b: Any = bands) -> Any:
            level = g[x, y, 0] * f(7)
            k = hl.clamp(hl.i32(level), 0, 6)
            part = level - f(k)
            return (f(1) - part) * b[x, y, k] + part * b[x, y, k + 1]

        out = stage(hl, f"band{n}", "xyc", band)
        if result is not None:
            up = up_two(hl, result, *plain[n + 1][1:], f"result_up{n}")
            out = stage(hl, f"result{n}", "xyc", lambda x, y, c, a=out, b=up: a[x, y, c] + b[x, y, c])
        if is_scheduled and n:
            out.compute_root()
            if w >> n >= 8 * VECTOR:
                out.vectorize(x, VECTOR).parallel(y, 8)
        result = out

    def value(x: Any, y: Any, c: Any) -> Any:
        v = result[x, y, 0] * (colours[x, y, c] + f(0.01)) / (gray[x, y, 0] + f(0.01))
        return hl.u16(hl.clamp(v, f(0), f(1)) * f(65535))

    out = stage(hl, "out", "xyc", value)
    if is_scheduled:
        curve.compute_root().vectorize(i, VECTOR)
        gray.compute_root().vectorize(x, VECTOR).parallel(y, 8)
        fine[0][0].compute_root().vectorize(x, VECTOR).parallel(c)
        out.bound(c, 0, 3).reorder(c, x, y).unroll(c).vectorize(x, VECTOR).parallel(y, 32)
    return out


def bilateral_grid(hl: Any, is_scheduled: bool, X: Any) -> Any:
    f = hl.f32
    x, y, z, c = (hl.Var(n) for n in "xyzc")
    w, h = sizes(X)
    wide = clamped(hl, X, w, h)
    p = stage(hl, "p", "xy", lambda x, y: hl.clamp(wide[x, y], f(0), f(1)))
    r = hl.RDom([(0, 8), (0, 8)])
    value = p[8 * x + r.x - 4, 8 * y + r.y - 4]
    grid = hl.Func("grid")
    grid[x, y, z, c] = f(0)
    grid[x, y, hl.clamp(hl.i32(f(10) * value + f(0.5)), 0, 10), c] += hl.select(c == 0, value, f(1))
    bounds = [(0, (w + 15) // 8), (0, (h + 15) // 8), (0, 11)]
    cells = hl.BoundaryConditions.constant_exterior(grid, f(0), bounds)

    def five(at: Any) -> Any:
        return at(-2) + f(4) * at(-1) + f(6) * at(0) + f(4) * at(1) + at(2)

    bz, bx, by = (hl.Func(n) for n in ("bz", "bx", "by"))
    bz[x, y, z, c] = five(lambda t: cells[x, y, z + t, c])
    bx[x, y, z, c] = five(lambda t: bz[x + t, y, z, c])
    by[x, y, z, c] = five(lambda t: bx[x, y + t, z, c])
    level = f(10) * p[x, y]
    k = hl.clamp(hl.i32(level), 0, 9)
    part, u, v, i, j = level - f(k), f(x % 8) / f(8), f(y % 8) / f(8), x / 8, y / 8
    mean = hl.Func("mean")
    mean[x, y, c] = hl.lerp(
        hl.lerp(hl.lerp(by[i, j, k, c], by[i, j + 1, k, c], v), hl.lerp(by[i + 1, j, k, c], by[i + 1, j + 1, k, c], v), u),
        hl.lerp(
            hl.lerp(by[i, j, k + 1, c], by[i, j + 1, k + 1, c], v),
            hl.lerp(by[i + 1, j, k + 1, c], by[i + 1, j + 1, k + 1, c], v),
            u,
        ),
        part,
    )
    out = stage(hl, "out", "xy", lambda x, y: mean[x, y, 0] / mean[x, y, 1])
    if is_scheduled:
        bz.compute_root().reorder(c, z, x, y).parallel(y).vectorize(x, VECTOR // 2).unroll(c)
        grid.compute_at(bz, y).reorder(c, z, x, y).vectorize(x, VECTOR // 2)
        grid.update().reorder(c, r.x, r.y, x, y).unroll(c)
        bx.compute_root().reorder(c, x, y, z).parallel(z).vectorize(x, VECTOR // 2).unroll(c)
        by.compute_root().reorder(c, x, y, z).parallel(z).vectorize(x, VECTOR // 2).unroll(c)
        out.parallel(y).vectorize(x, VECTOR)
    return out


def camera_pipe(hl: Any, is_scheduled: bool, raw: Any, matrix: Any, curve: Any, s: int) -> Any:
    x, y, c = (hl.Var(n) for n in "xyc")
    i16, i32 = hl.i16, hl.i32

    def avg(a: Any, b: Any) -> Any:
        return i16((i32(a) + i32(b) + 1) / 2)

    given = stage(hl, "given", "xy", lambda x, y: i16(raw[x, y]))
    cross = hl.max(hl.max(given[x - 2, y], given[x + 2, y]), hl.max(given[x, y - 2], given[x, y + 2]))
    dots = stage(hl, "dots", "xy", lambda x, y: hl.min(given[x, y], cross))
    p = stage(hl, "p", "xy", lambda x, y: dots[2 * x + 2, 2 * y + 2])
    r = stage(hl, "r", "xy", lambda x, y: dots[2 * x + 3, 2 * y + 2])
    b = stage(hl, "b", "xy", lambda x, y: dots[2 * x + 2, 2 * y + 3])
    q = stage(hl, "q", "xy", lambda x, y: dots[2 * x + 3, 2 * y + 3])

    def flatter(one: Any, other: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return hl.select(hl.absd(a, b) < hl.absd(c, d), one, other)

    def flat_mean(a: Any, b: Any, c: Any, d: Any) -> Any:
        return flatter(avg(a, b), avg(c, d), a, b, c, d)

    gr = stage(hl, "gr", "xy", lambda x, y: flat_mean(p[x + 1, y], p[x, y], q[x, y - 1], q[x, y]))
    gb = stage(hl, "gb", "xy", lambda x, y: flat_mean(q[x - 1, y], q[x, y], p[x, y + 1], p[x, y]))

    def corrected(green: Any, g: Any, of: Any, one: tuple[int, int], other: tuple[int, int]) -> Any:
        """By means of two neighbours, rows and columns away."""
        (a, b), (d, e) = one, other
        return green - avg(g[x + b, y + a], g[x + e, y + d]) + avg(of[x + b, y + a], of[x + e, y + d])

    red_at_b = flatter(
        corrected(gb[x, y], gr, r, (0, 0), (1, -1)),
        corrected(gb[x, y], gr, r, (0, -1), (1, 0)),
        r[x, y],
        r[x - 1, y + 1],
        r[x - 1, y],
        r[x, y + 1],
    )
    blue_at_r = flatter(
        corrected(gr[x, y], gb, b, (0, 0), (-1, 1)),
        corrected(gr[x, y], gb, b, (0, 1), (-1, 0)),
        b[x, y],
        b[x + 1, y - 1],
        b[x + 1, y],
        b[x, y - 1],
    )
    kinds = (
        (corrected(p[x, y], gr, r, (0, 0), (0, -1)), r[x, y], red_at_b, corrected(q[x, y], gr, r, (0, 0), (1, 0))),
        (p[x, y], gr[x, y], gb[x, y], q[x, y]),
        (corrected(p[x, y], gb, b, (0, 0), (-1, 0)), blue_at_r, b[x, y], corrected(q[x, y], gb, b, (0, 0), (0, 1))),
    )
    planes = [
        [stage(hl, f"plane{k}{n}", "xy", lambda x, y, v=v: v) for n, v in enumerate(four)] for k, four in enumerate(kinds)
    ]

    def woven(x: Any, y: Any, c: Any) -> Any:
        def one(four: Any) -> Any:
            i, j = x / 2 + 2, y / 2 + 2
            rows = [hl.select(x % 2 == 0, four[n][i, j], four[n + 1][i, j]) for n in (0, 2)]
            return hl.select(y % 2 == 0, *rows)

        return hl.mux(c, [one(four) for four in planes])

    t = stage(hl, "woven", "xyc", woven)

    def coloured(x: Any, y: Any, c: Any) -> Any:
        v = (
            matrix[3, c] + matrix[0, c] * i32(t[x, y, 0]) + matrix[1, c] * i32(t[x, y, 1]) + matrix[2, c] * i32(t[x, y, 2])
        ) / 256
        return curve[hl.clamp(v, 0, 1023)]

    v = stage(hl, "coloured", "xyc", coloured)
    u = stage(hl, "blur_y", "xyc", lambda x, y, c: avg(avg(v[x, y, c], v[x, y + 2, c]), v[x, y + 1, c]))
    m = stage(hl, "blur_x", "xyc", lambda x, y, c: avg(avg(u[x, y, c], u[x + 2, y, c]), u[x + 1, y, c]))

    def sharper(x: Any, y: Any, c: Any) -> Any:
        middle = i32(v[x + 2, y + 2, c])
        return hl.u8(hl.clamp(middle + (middle - i32(m[x + 1, y + 1, c])) * s / 32, 0, 255))

    out = stage(hl, "out", "xyc", sharper)
    if is_scheduled:
        in_strips(hl, out, [dots, v], 64, 2 * VECTOR)
        out.bound(c, 0, 3).reorder(hl.Var("x"), c, hl.Var("yi"), hl.Var("yo")).unroll(c)
        v.reorder(x, c, y).unroll(c)
        for f in (gr, gb):
            f.compute_at(out, hl.Var("yi")).store_at(out, hl.Var("yo")).vectorize(x, 2 * VECTOR)
        for four in planes:
            for f in four:
                f.compute_at(v, y).vectorize(x, 2 * VECTOR)
        t.compute_at(v, y).vectorize(x, 2 * VECTOR).reorder(x, c, y).unroll(c)
    return out


def optical_flow(hl: Any, is_scheduled: bool, A: Any, B: Any, F: Any) -> Any:
    f, (w, h) = hl.f32, sizes(A)
    x, y, c = (hl.Var(n) for n in "xyc")
    wide = clamped(hl, A, w, h)
    p, q = hl.clamp(f(y) + F[x, y, 1], f(0), f(h - 1)), hl.clamp(f(x) + F[x, y, 0], f(0), f(w - 1))
    j, i = hl.clamp(hl.i32(p), 0, h - 2), hl.clamp(hl.i32(q), 0, w - 2)
    across = [hl.lerp(B[i, j + n], B[i + 1, j + n], q - f(i)) for n in (0, 1)]
    t = stage(hl, "t", "xy", lambda x, y: hl.lerp(*across, p - f(j)) - A[x, y])
    u = stage(hl, "u", "xy", lambda x, y: f(0.5) * (wide[x + 1, y] - wide[x - 1, y]))
    v = stage(hl, "v", "xy", lambda x, y: f(0.5) * (wide[x, y + 1] - wide[x, y - 1]))
    u, v, t = (hl.BoundaryConditions.constant_exterior(g, f(0), [(0, w), (0, h)]) for g in (u, v, t))
    inner, rows, sums = [], [], []
    for n, (g, k) in enumerate(((u, u), (u, v), (v, v), (u, t), (v, t))):
        product = stage(hl, f"product{n}", "xy", lambda x, y, g=g, k=k: g[x, y] * k[x, y])
        r = stage(hl, f"rows{n}", "xy", lambda x, y, g=product: sum((g[x, y + d] for d in (-1, 0, 1, 2)), g[x, y - 2]))
        s = stage(hl, f"sum{n}", "xy", lambda x, y, g=r: sum((g[x + d, y] for d in (-1, 0, 1, 2)), g[x - 2, y]))
        inner.append(product)
        rows.append(r)
        sums.append(s[x, y])
    a, b, d, e, g = sums
    scale = f(1) / (a * d - b * b + f(0.01))
    out = stage(hl, "out", "xyc", lambda x, y, c: F[x, y, c] - scale * hl.select(c == 0, d * e - b * g, a * g - b * e))
    if is_scheduled:
        in_strips(hl, out, [u, v, t])
        out.bound(c, 0, 2).reorder(hl.Var("x"), c, hl.Var("yi"), hl.Var("yo")).unroll(c)
        for r in rows:
            r.compute_at(out, hl.Var("yi")).vectorize(x, VECTOR)
    return out
