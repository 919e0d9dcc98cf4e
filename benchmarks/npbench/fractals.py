"""Iterations of ``z**2 + c`` over a part of the plane."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text
from benchmarks.workload import Arrays

LOOPS = "benchmarks.npbench.numba_fractals"

OFF_AXIS = 1e-3
"""How far the plane is moved up: on the real axis rounding decides where the points of the set are after many steps."""


def make_plane(rng, xmin, xmax, ymin, ymax, XN, YN, maxiter) -> Arrays:
    corners = {"xmin": xmin, "xmax": xmax, "ymin": ymin + OFF_AXIS, "ymax": ymax + OFF_AXIS}
    numbers = corners | {"XN": XN, "YN": YN, "maxiter": maxiter, "horizon": 2.0}
    return {name: np.array(value) for name, value in numbers.items()}


def grid(xmin, xmax, ymin, ymax, XN, YN):
    return np.linspace(xmin, xmax, XN) + 1j * np.linspace(ymin, ymax, YN)[:, None]


def mandelbrot1(xmin, xmax, ymin, ymax, XN, YN, maxiter, horizon):
    C = grid(xmin, xmax, ymin, ymax, XN, YN)
    Z, N = np.zeros_like(C), np.zeros(C.shape, np.int64)
    for step in range(maxiter):
        inside = abs(Z) < horizon
        N[inside] = step
        Z[inside] = Z[inside] ** 2 + C[inside]
    N[maxiter - 1 == N] = 0
    return Z, N


def mandelbrot2(xmin, xmax, ymin, ymax, XN, YN, maxiter, horizon):
    c = grid(xmin, xmax, ymin, ymax, XN, YN).ravel()
    Z, N = np.zeros((YN, XN), np.complex128), np.zeros((YN, XN), np.int64)
    z, place = np.zeros_like(c), np.arange(c.size)
    for step in range(1, maxiter + 1):
        z = z * z + c
        out = abs(z) > horizon
        Z.flat[place[out]], N.flat[place[out]] = z[out], step
        z, c, place = z[~out], c[~out], place[~out]
    return Z, N


WINDOWS = {
    "mandelbrot1": {"xmin": (-1.75,) * 3, "xmax": (0.25,) * 3, "ymin": (-1.0,) * 3, "ymax": (1.0,) * 3},
    "mandelbrot2": {"xmin": (-2.0,) * 3, "xmax": (0.5,) * 3, "ymin": (-1.25,) * 3, "ymax": (1.25,) * 3},
}

PROGRAMS = (
    Program(
        "mandelbrot1",
        "the Mandelbrot set, all points for all steps",
        text("mandelbrot1"),
        WINDOWS["mandelbrot1"] | {"XN": (13, 125, 250), "YN": (11, 125, 250), "maxiter": (9, 60, 150)},
        make_plane,
        mandelbrot1,
        f"{LOOPS}.mandelbrot1",
        tolerance=1e-3,  # NPBench's: some points are close to the border
    ),
    Program(
        "mandelbrot2",
        "the Mandelbrot set, points that are out left out",
        text("mandelbrot2"),
        WINDOWS["mandelbrot2"] | {"XN": (13, 200, 500), "YN": (11, 200, 500), "maxiter": (9, 40, 80)},
        make_plane,
        mandelbrot2,
        f"{LOOPS}.mandelbrot2",
        tolerance=1e-3,  # NPBench's: some points are close to the border
    ),
)
