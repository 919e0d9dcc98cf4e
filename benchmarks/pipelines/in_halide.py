"""The pipelines in Halide: every stage a function, laid out by an autoscheduler, or by hand where one is known to be good.

Each function is ``pipeline(hl, is_scheduled, **buffers)`` and returns the last stage; x, y and c are the first three
dimensions, as Halide counts them.  Schedules by hand follow those of Halide's own applications: strips of rows, stages at the
rows that need them, vectors along x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.pipelines.discs import BELOW, HALF, LEVEL

VECTOR = 16
"""Elements of a vector in single precision."""


def stage(hl: Any, name: str, variables: str, value: Callable[..., Any]) -> Any:
    """A function of variables with names of one letter."""
    place = [hl.Var(v) for v in variables]
    f = hl.Func(name)
    f[tuple(place)] = value(*place)
    return f


def clamped(hl: Any, f: Any, *extents: int) -> Any:
    """The nearest element beyond the ends of the first dimensions."""
    return hl.BoundaryConditions.repeat_edge(f, [(0, n) for n in extents])


def in_strips(hl: Any, last: Any, stages: Sequence[Any], rows: int = 32, vector: int = VECTOR) -> None:
    """Strips of `rows` rows of `last`, and `stages` at each strip, each row of all columns as vectors."""
    x, y, outer, inner = (hl.Var(n) for n in ("x", "y", "yo", "yi"))
    last.split(y, outer, inner, rows).vectorize(x, vector).parallel(outer)
    for f in stages:
        f.store_at(last, outer).compute_at(last, inner).vectorize(x, vector)


def sizes(buffer: Any) -> tuple[int, int]:
    return buffer.width(), buffer.height()


def blur(hl: Any, is_scheduled: bool, X: Any) -> Any:
    three = hl.u16(3)
    r = stage(hl, "along", "xyc", lambda x, y, c: (X[x, y, c] + X[x + 1, y, c] + X[x + 2, y, c]) / three)
    b = stage(hl, "blurred", "xyc", lambda x, y, c: (r[x, y, c] + r[x, y + 1, c] + r[x, y + 2, c]) / three)
    if is_scheduled:
        in_strips(hl, b, [r], vector=2 * VECTOR)
    return b


def brightness(hl: Any, X: Any) -> Any:
    def value(x: Any, y: Any) -> Any:
        return hl.f32(0.299) * X[x, y, 0] + hl.f32(0.587) * X[x, y, 1] + hl.f32(0.114) * X[x, y, 2]

    return stage(hl, "gray", "xy", value)


def unsharp(hl: Any, is_scheduled: bool, X: Any, w: Any) -> Any:
    wide = clamped(hl, X, *sizes(X))
    g = brightness(hl, wide)
    v = stage(hl, "down", "xy", lambda x, y: sum((g[x, y + t - 3] * w[t] for t in range(1, 7)), g[x, y - 3] * w[0]))
    b = stage(hl, "blurred", "xy", lambda x, y: sum((v[x + t - 3, y] * w[t] for t in range(1, 7)), v[x - 3, y] * w[0]))
    r = stage(hl, "ratio", "xy", lambda x, y: (hl.f32(2) * g[x, y] - b[x, y]) / g[x, y])
    out = stage(hl, "sharper", "xyc", lambda x, y, c: r[x, y] * X[x, y, c])
    if is_scheduled:
        c = hl.Var("c")
        in_strips(hl, out, [g, v, r])
        out.bound(c, 0, 3).reorder(hl.Var("x"), c, hl.Var("yi"), hl.Var("yo")).unroll(c)
    return out


def harris(hl: Any, is_scheduled: bool, X: Any) -> Any:
    g, f = brightness(hl, X), hl.f32

    def slope(x: Any, y: Any, dx: int, dy: int) -> Any:
        begin = [g[x + i * dy, y + i * dx] for i in range(3)]
        end = [g[x + 2 * dx + i * dy, y + 2 * dy + i * dx] for i in range(3)]
        return (end[0] - begin[0] + f(2) * (end[1] - begin[1]) + end[2] - begin[2]) / f(12)

    u = stage(hl, "u", "xy", lambda x, y: slope(x, y, 1, 0))
    v = stage(hl, "v", "xy", lambda x, y: slope(x, y, 0, 1))

    def summed(name: str, p: Any, q: Any) -> Any:
        product = stage(hl, f"{name}_product", "xy", lambda x, y: p[x, y] * q[x, y])
        window = [(r, s) for r in range(3) for s in range(3)]
        return stage(hl, name, "xy", lambda x, y: sum((product[x + s, y + r] for r, s in window[1:]), product[x, y]))

    a, b, c = summed("a", u, u), summed("b", v, v), summed("c", u, v)

    def response(x: Any, y: Any) -> Any:
        trace = a[x, y] + b[x, y]
        return a[x, y] * b[x, y] - c[x, y] * c[x, y] - f(0.04) * trace * trace

    out = stage(hl, "corners", "xy", response)
    if is_scheduled:
        in_strips(hl, out, [g, u, v])
    return out


def stencil_chain(hl: Any, is_scheduled: bool, S0: Any) -> Any:
    def sums(before: Any) -> Callable[..., Any]:
        taps = [(i, j) for i in range(5) for j in range(5)]
        return lambda x, y: sum((hl.u16((i + 1) * (j + 1)) * before[x + j, y + i] for i, j in taps[1:]), before[x, y])

    stages = [S0]
    for n in range(32):
        stages.append(stage(hl, f"stage{n}", "xy", sums(stages[-1])))
    out = stages[-1]
    if is_scheduled:  # groups of four in overlapping tiles
        x, y, xo, yo, xi, yi = (hl.Var(n) for n in ("x", "y", "xo", "yo", "xi", "yi"))
        for end in range(4, 33, 4):
            last = stages[end]
            (last if last is out else last.compute_root()).tile(x, y, xo, yo, xi, yi, 512, 64).vectorize(
                xi, 2 * VECTOR
            ).parallel(yo)
            for f in stages[end - 3 : end]:
                f.compute_at(last, xo).vectorize(x, 2 * VECTOR)
    return out


def linear_blur(hl: Any, is_scheduled: bool, X: Any) -> Any:
    f = hl.f32
    wide = clamped(hl, X, *sizes(X))

    def lighten(x: Any, y: Any, c: Any) -> Any:
        v = wide[x, y, c]
        return hl.select(v <= f(0.04045), v / f(12.92), hl.pow((v + f(0.055)) / f(1.055), f(2.4)))

    def darken(x: Any, y: Any, c: Any) -> Any:
        v = (r[x, y - 1, c] + r[x, y, c] + r[x, y + 1, c]) / f(3)
        return hl.select(v <= f(0.0031308), v * f(12.92), f(1.055) * hl.pow(v, f(1 / 2.4)) - f(0.055))

    light = stage(hl, "light", "xyc", lighten)
    r = stage(hl, "along", "xyc", lambda x, y, c: (light[x - 1, y, c] + light[x, y, c] + light[x + 1, y, c]) / f(3))
    out = stage(hl, "out", "xyc", darken)
    if is_scheduled:
        in_strips(hl, out, [light, r])
    return out


def iir_blur(hl: Any, is_scheduled: bool, X: Any, a: float) -> Any:
    x, y, c = (hl.Var(n) for n in "xyc")
    keep, take = hl.f32(1 - a), hl.f32(a)

    def columns(source: Any, height: int, name: str) -> Any:
        """Down and up, then turned: rows become columns."""
        f = hl.Func(name)
        f[x, y, c] = source[x, y, c]
        r = hl.RDom([(1, height - 1)])
        f[x, r, c] = keep * f[x, r - 1, c] + take * f[x, r, c]
        up = height - 1 - r
        f[x, up, c] = keep * f[x, up + 1, c] + take * f[x, up, c]
        turned = stage(hl, f"{name}_turned", "xyc", lambda x, y, c: f[y, x, c])
        if is_scheduled:
            xo, xi, yo, yi = (hl.Var(n) for n in ("xo", "xi", "yo", "yi"))
            turned.compute_root().tile(x, y, xo, yo, xi, yi, 16, 16).vectorize(xi).parallel(c)
            f.compute_at(turned, yo).vectorize(x, 16)
            f.update(0).reorder(x, r).vectorize(x, 16)
            f.update(1).reorder(x, r).vectorize(x, 16)
            turned.reorder(xi, yi, xo, yo, c)
        return turned

    w, h = sizes(X)
    return columns(columns(X, h, "down"), w, "along")


def nl_means(hl: Any, is_scheduled: bool, X: Any, s: float) -> Any:
    f = hl.f32
    wide = clamped(hl, X, *sizes(X))
    x, y, c, i, j = (hl.Var(n) for n in "xycij")
    d, v, b, w = (hl.Func(n) for n in ("d", "v", "b", "w"))
    channels = [wide[x, y, k] - wide[x + j, y + i, k] for k in range(3)]
    d[x, y, j, i] = channels[0] * channels[0] + channels[1] * channels[1] + channels[2] * channels[2]
    v[x, y, j, i] = sum((d[x, y + t - 3, j, i] for t in range(1, 7)), d[x, y - 3, j, i])
    b[x, y, j, i] = sum((v[x + t - 3, y, j, i] for t in range(1, 7)), v[x - 3, y, j, i])
    w[x, y, j, i] = hl.fast_exp(-f(s) * b[x, y, j, i])
    window = hl.RDom([(-10, 21), (-10, 21)])
    total = hl.Func("total")
    total[x, y, c] = f(0)
    value = hl.select(c == 3, f(1), wide[x + window.x, y + window.y, hl.min(c, 2)])
    total[x, y, c] += w[x, y, window.x, window.y] * value
    out = hl.Func("out")
    out[x, y, c] = total[x, y, c] / total[x, y, 3]
    if is_scheduled:
        xo, yo, xi, yi = (hl.Var(n) for n in ("xo", "yo", "xi", "yi"))
        out.bound(c, 0, 3).tile(x, y, xo, yo, xi, yi, 128, 32).reorder(xi, yi, c, xo, yo).parallel(yo).vectorize(xi, VECTOR)
        total.compute_at(out, xo).vectorize(x, VECTOR)
        total.update().reorder(x, c, y, window.x, window.y).unroll(c).vectorize(x, VECTOR)
        total.bound_extent(c, 4)
        w.compute_at(total, window.x).vectorize(x, VECTOR)
        v.compute_at(total, window.x).vectorize(x, VECTOR)
        d.compute_at(total, window.x).vectorize(x, VECTOR)
    return out


def histogram_equalisation(hl: Any, is_scheduled: bool, X: Any) -> Any:
    w, h = sizes(X)
    x, y, c, k = (hl.Var(n) for n in "xyck")
    r, g, b = (hl.i32(X[x, y, n]) for n in range(3))
    light = stage(hl, "light", "xy", lambda x, y: hl.clamp((77 * r + 150 * g + 29 * b + 128) / 256, 0, 255))
    u = stage(hl, "u", "xy", lambda x, y: (-43 * r - 85 * g + 128 * b + 128) / 256)
    v = stage(hl, "v", "xy", lambda x, y: (128 * r - 107 * g - 21 * b + 128) / 256)
    rows, counts, sums, at = hl.Func("rows"), hl.Func("counts"), hl.Func("sums"), hl.RDom([(0, w)])
    rows[k, y] = hl.i32(0)
    rows[light[at, y], y] += 1
    down = hl.RDom([(0, h)])
    counts[k] = hl.i32(0)
    counts[k] += rows[k, down]
    before = hl.RDom([(1, 255)]).x
    sums[k] = counts[k]
    sums[before] = sums[before - 1] + counts[before]
    even = stage(hl, "even", "k", lambda k: sums[k] * 255 / (w * h))
    new = stage(hl, "new", "xy", lambda x, y: even[light[x, y]])
    red = new[x, y] + (359 * v[x, y] + 128) / 256
    green = new[x, y] - (88 * u[x, y] + 183 * v[x, y] + 128) / 256
    blue = new[x, y] + (454 * u[x, y] + 128) / 256
    out = hl.Func("out")
    out[x, y, c] = hl.u8(hl.clamp(hl.mux(c, [red, green, blue]), 0, 255))
    if is_scheduled:
        rows.compute_root().vectorize(k, VECTOR).parallel(y, 8).update().parallel(y, 8)
        counts.compute_root().vectorize(k, VECTOR).update().reorder(k, down).vectorize(k, VECTOR)
        sums.compute_root().update().unscheduled()
        even.compute_root().vectorize(k, VECTOR)
        out.bound(c, 0, 3).reorder(c, x, y).unroll(c).vectorize(x, 2 * VECTOR).parallel(y, 8)
    return out


def max_filter(hl: Any, is_scheduled: bool, X: Any) -> Any:
    wide = clamped(hl, X, *sizes(X))
    levels = [wide]
    for s in range(5):
        before = levels[-1]
        levels.append(stage(hl, f"rows{2 << s}", "xyc", lambda x, y, c, f=before, n=1 << s: hl.max(f[x, y, c], f[x, y + n, c])))

    def greatest(x: Any, y: Any, c: Any) -> Any:
        found = None
        for d, (half, level, below) in enumerate(zip(HALF, LEVEL, BELOW, strict=True)):
            f = levels[level]
            pair = hl.max(f[x + d - 26, y - half, c], f[x + d - 26, y + below, c])
            found = pair if found is None else hl.max(found, pair)
        return found

    out = stage(hl, "out", "xyc", greatest)
    if is_scheduled:
        in_strips(hl, out, levels[1:], 64)
    return out


def resize(factor: tuple[int, int], radius: int, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """By p/q, with the weights of each column and row computed once."""
    p, q = factor

    def pipeline(hl: Any, is_scheduled: bool, X: Any) -> Any:
        wide = clamped(hl, X, *sizes(X))
        taps = 2 * radius

        def begin(x: Any) -> Any:
            return ((2 * x + 1) * q + p - 1 - 2 * p * radius) / (2 * p)

        def weights(name: str) -> Any:
            def value(t: Any, x: Any) -> Any:
                numerator = 2 * p * (begin(x) + t) - (2 * x + 1) * q + p
                return kernel(hl, hl.abs(hl.f32(numerator)) / hl.f32(2 * max(p, q)))

            raw = stage(hl, f"{name}_raw", "tx", value)
            t = hl.RDom([(0, taps)])
            total = hl.Func(f"{name}_total")
            total[hl.Var("x")] += raw[t, hl.Var("x")]
            w = stage(hl, name, "tx", lambda t, x: raw[t, x] / total[x])
            if is_scheduled:
                raw.compute_root()
                total.compute_root()
                w.compute_root()
            return w

        u, v = weights("u"), weights("v")

        def columns(f: Any, name: str) -> Any:
            def value(x: Any, y: Any, c: Any) -> Any:
                return sum((v[t, x] * f[begin(x) + t, y, c] for t in range(1, taps)), v[0, x] * f[begin(x), y, c])

            return stage(hl, name, "xyc", value)

        def rows(f: Any, name: str) -> Any:
            def value(x: Any, y: Any, c: Any) -> Any:
                return sum((u[t, y] * f[x, begin(y) + t, c] for t in range(1, taps)), u[0, y] * f[x, begin(y), c])

            return stage(hl, name, "xyc", value)

        first, last = (rows, columns) if p < q else (columns, rows)
        middle = first(wide, "middle")
        out = last(middle, "out")
        if is_scheduled:
            in_strips(hl, out, [middle])
        return out

    return pipeline


def cubic(hl: Any, d: Any) -> Any:
    f = hl.f32
    near, far = (f(1.5) * d - f(2.5)) * d * d + f(1), ((f(2.5) - f(0.5) * d) * d - f(4)) * d + f(2)
    return hl.select(d < f(1), near, hl.select(d < f(2), far, f(0)))


def lanczos(hl: Any, d: Any) -> Any:
    f, pi = hl.f32, hl.f32(3.14159265358979)
    value = f(3) * hl.sin(pi * d) * hl.sin(pi * d / f(3)) / (pi * pi * d * d)
    return hl.select(d == f(0), f(1), hl.select(d < f(3), value, f(0)))


def conv_layer(hl: Any, is_scheduled: bool, X: Any, F: Any, b: Any) -> Any:
    k, x, y, n = (hl.Var(v) for v in "kxyn")
    channels, outputs = X.dim(0).extent(), b.dim(0).extent()
    r = hl.RDom([(0, channels), (0, 3), (0, 3)])
    s = hl.Func("s")
    s[k, x, y, n] = b[k]
    s[k, x, y, n] += F[k, r.x, r.y, r.z] * X[r.x, x + r.y, y + r.z, n]
    out = stage(hl, "out", "kxyn", lambda k, x, y, n: hl.max(s[k, x, y, n], hl.f32(0)))
    if is_scheduled and outputs % 32 == 0:
        ko, xo, ki, xi = (hl.Var(v) for v in ("ko", "xo", "ki", "xi"))
        out.tile(k, x, ko, xo, ki, xi, 2 * VECTOR, 10).reorder(ki, xi, ko, xo, y, n).vectorize(ki, VECTOR).unroll(ki).unroll(xi)
        s.compute_at(out, ko).vectorize(k, VECTOR).unroll(k).unroll(x)
        s.update().reorder(k, x, r.x, r.y, r.z).vectorize(k, VECTOR).unroll(k).unroll(x)
    return out


def depthwise_separable(hl: Any, is_scheduled: bool, X: Any, F: Any, P: Any, b: Any) -> Any:
    k, c, x, y, n = (hl.Var(v) for v in "kcxyn")
    r, at = hl.RDom([(0, 3), (0, 3)]), hl.RDom([(0, X.dim(0).extent())])
    d, s = hl.Func("d"), hl.Func("s")
    d[c, x, y, n] += X[c, x + r.x, y + r.y, n] * F[c, r.x, r.y]
    s[k, x, y, n] = b[k]
    s[k, x, y, n] += d[at, x, y, n] * P[k, at]
    out = stage(hl, "out", "kxyn", lambda k, x, y, n: hl.max(s[k, x, y, n], hl.f32(0)))
    if is_scheduled:
        xo, xi = hl.Var("xo"), hl.Var("xi")
        out.split(x, xo, xi, 8).reorder(k, xi, xo, y, n).vectorize(k, VECTOR).unroll(xi)
        s.compute_at(out, xo).vectorize(k, VECTOR).unroll(x).update().reorder(k, x, at).vectorize(k, VECTOR).unroll(x)
        d.compute_at(out, xo).vectorize(c, VECTOR).update().reorder(c, r.x, r.y, x).vectorize(c, VECTOR).unroll(r.x).unroll(r.y)
    return out
