"""Pipelines over one plane of 4096×4096: separable blur, unsharp mask, Harris corners; with Halide as a peer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.engines import AUTOSCHEDULERS
from benchmarks.workload import Workload, nbytes
from benchmarks.workloads.fusion.common import Formula, fused

SIZE, GIVEN = (4096, 4096), (4100, 4100)

BLUR = """
def blur(float(H, W) X) -> (Y) {
  R(y, x) = 0.0625 * (X(y, x) + 4.0 * X(y, x + 1) + 6.0 * X(y, x + 2) + 4.0 * X(y, x + 3) + X(y, x + 4))
  Y(y, x) = 0.0625 * (R(y, x) + 4.0 * R(y + 1, x) + 6.0 * R(y + 2, x) + 4.0 * R(y + 3, x) + R(y + 4, x))
}
"""

UNSHARP = """
def unsharp(float(H, W) X) -> (Y) {
  R(y, x) = 0.0625 * (X(y, x) + 4.0 * X(y, x + 1) + 6.0 * X(y, x + 2) + 4.0 * X(y, x + 3) + X(y, x + 4))
  D(y, x) = 0.0625 * (R(y, x) + 4.0 * R(y + 1, x) + 6.0 * R(y + 2, x) + 4.0 * R(y + 3, x) + R(y + 4, x))
  Y(y, x) = fmin(fmax(4.0 * X(y + 2, x + 2) - 3.0 * D(y, x), 0.0), 1.0)
}
"""

HARRIS = """
def harris(float(H, W) X) -> (Y) {
  U(y, x) = X(y, x + 2) - X(y, x) + 2.0 * (X(y + 1, x + 2) - X(y + 1, x)) + X(y + 2, x + 2) - X(y + 2, x)
  V(y, x) = X(y + 2, x) - X(y, x) + 2.0 * (X(y + 2, x + 1) - X(y, x + 1)) + X(y + 2, x + 2) - X(y, x + 2)
  A(y, x) +=! U(y + r, x + s) * U(y + r, x + s) where r in 0:3, s in 0:3
  B(y, x) +=! V(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  C(y, x) +=! U(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  Y(y, x) = A(y, x) * B(y, x) - C(y, x) * C(y, x) - 0.04 * (A(y, x) + B(y, x)) * (A(y, x) + B(y, x))
}
"""


def binomial(taps: list[Any]) -> Any:
    a, b, c, d, e = taps
    return 0.0625 * (a + 4 * b + 6 * c + 4 * d + e)


def blur(xp: Any, X: Any) -> Any:
    h, w = X.shape[0] - 4, X.shape[1] - 4
    along_x = binomial([X[:, i : i + w] for i in range(5)])
    return binomial([along_x[i : i + h] for i in range(5)])


def unsharp(xp: Any, X: Any) -> Any:
    return xp.clip(4 * X[2:-2, 2:-2] - 3 * blur(xp, X), 0, 1)


def box(P: Any) -> Any:
    along_x = P[:, :-2] + P[:, 1:-1] + P[:, 2:]
    return along_x[:-2] + along_x[1:-1] + along_x[2:]


def harris(xp: Any, X: Any) -> Any:
    across = X[:, 2:] - X[:, :-2]
    along = X[:, :-2] + 2 * X[:, 1:-1] + X[:, 2:]
    u = across[:-2] + 2 * across[1:-1] + across[2:]
    v = along[2:] - along[:-2]
    a, b, c = box(u * u), box(v * v), box(u * v)
    return a * b - c * c - 0.04 * (a + b) * (a + b)


def in_torch(formula: Formula) -> Any:
    def peer(torch: Any, out: Any, X: Any) -> Any:
        return formula(torch, X)

    return peer


def halide_stage(halide: Any, name: str, expression: Callable[[Any, Any], Any]) -> Any:
    """A function of x and y; every stage is one, and what becomes of it is the autoscheduler's decision."""
    x, y = halide.Var("x"), halide.Var("y")
    stage = halide.Func(name)
    stage[x, y] = expression(x, y)
    return stage


def halide_blur(halide: Any, X: Any) -> Any:
    def taps(values: list[Any]) -> Any:
        a, b, c, d, e = values
        f = halide.f32
        return f(0.0625) * (a + f(4) * b + f(6) * c + f(4) * d + e)

    along_x = halide_stage(halide, "along_x", lambda x, y: taps([X[x + i, y] for i in range(5)]))
    return halide_stage(halide, "blurred", lambda x, y: taps([along_x[x, y + i] for i in range(5)]))


def halide_unsharp(halide: Any, X: Any) -> Any:
    blurred, f = halide_blur(halide, X), halide.f32
    sharp = halide_stage(halide, "sharp", lambda x, y: f(4) * X[x + 2, y + 2] - f(3) * blurred[x, y])
    return halide_stage(halide, "kept", lambda x, y: halide.clamp(sharp[x, y], f(0), f(1)))


def halide_harris(halide: Any, X: Any) -> Any:
    f = halide.f32

    def difference(x: Any, y: Any, dx: int, dy: int) -> Any:
        """Along x where `dx` is 1, along y where `dy` is; smoothed across."""
        begin = [X[x + i * dy, y + i * dx] for i in range(3)]
        end = [X[x + 2 * dx + i * dy, y + 2 * dy + i * dx] for i in range(3)]
        return (end[0] - begin[0]) + f(2) * (end[1] - begin[1]) + (end[2] - begin[2])

    u = halide_stage(halide, "u", lambda x, y: difference(x, y, 1, 0))
    v = halide_stage(halide, "v", lambda x, y: difference(x, y, 0, 1))

    def summed(name: str, p: Any, q: Any) -> Any:
        product = halide_stage(halide, f"{name}_product", lambda x, y: p[x, y] * q[x, y])
        window = [(r, s) for r in range(3) for s in range(3)]
        return halide_stage(halide, name, lambda x, y: sum((product[x + s, y + r] for r, s in window[1:]), product[x, y]))

    a, b, c = summed("a", u, u), summed("b", v, v), summed("c", u, v)

    def response(x: Any, y: Any) -> Any:
        trace = a[x, y] + b[x, y]
        return a[x, y] * b[x, y] - c[x, y] * c[x, y] - f(0.04) * trace * trace

    return halide_stage(halide, "corners", response)


def picture(name: str, what: str, source: str, loops: str, formula: Formula, pipeline: Any, flops: float) -> Workload:
    """A pipeline; `pipeline(halide, X)` is its last stage."""

    def in_halide(halide: Any, out: Any, X: Any) -> Any:
        return pipeline(halide, X), SIZE

    peers = {"torch": in_torch(formula), **dict.fromkeys(AUTOSCHEDULERS, in_halide)}
    work = flops * SIZE[0] * SIZE[1]
    return fused(name, what, source, uniform_plane, formula, (SIZE,), work, nbytes(GIVEN), loops, peers, 1e-4)


def uniform_plane(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"X": rng.random(GIVEN, dtype=np.float32)}


WORKLOADS = (
    picture("blur_plane", "5×5 binomial blur of 4096×4096, separable", BLUR, "blur", blur, halide_blur, 16.0),
    picture("unsharp_plane", "unsharp mask of 4096×4096", UNSHARP, "unsharp", unsharp, halide_unsharp, 20.0),
    picture("harris_plane", "Harris corner response of 4096×4096", HARRIS, "harris", harris, halide_harris, 46.0),
)
