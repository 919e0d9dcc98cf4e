"""Stencils over time, and recursive filters."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.kernel import Kernel, draw, scalar


def adi_inputs(rng, TSTEPS, N):
    dx, dt = 1 / N, 1 / TSTEPS
    mul1, mul2 = 2 * dt / dx**2, dt / dx**2
    a, d = -mul1 / 2, -mul2 / 2
    factors = {"a": a, "b": 1 + mul1, "c": a, "d": d, "e": 1 + mul2, "f": d}
    return {n: scalar(v) for n, v in factors.items()} | {"X": draw(rng, N, N), "steps": np.zeros(TSTEPS)}


def sweep(p, q):
    """From the last row to the first: ``v[j] = p[j] v[j+1] + q[j]``, between rows of ones."""
    v = np.ones((len(p) + 1, q.shape[1]))
    for j in range(len(p) - 1, 0, -1):
        v[j] = p[j] * v[j + 1] + q[j]
    return v


def adi(a, b, c, d, e, f, X, steps):
    n, u = len(X), X.copy()
    p, r = np.zeros(n - 1), np.zeros(n - 1)
    for j in range(1, n - 1):
        p[j] = -c / (a * p[j - 1] + b)
        r[j] = -f / (d * r[j - 1] + e)
    for _ in steps:
        q = np.ones((n - 1, n - 2))
        for j in range(1, n - 1):
            q[j] = (-d * u[j, :-2] + (1 + 2 * d) * u[j, 1:-1] - f * u[j, 2:] - a * q[j - 1]) / (a * p[j - 1] + b)
        v = sweep(p, q)
        for j in range(1, n - 1):
            w = v[:, j - 1]
            q[j] = (-a * w[:-2] + (1 + 2 * a) * w[1:-1] - c * w[2:] - d * q[j - 1]) / (d * r[j - 1] + e)
        u[1:-1] = sweep(r, q).T
    return u


def deriche_inputs(rng, W, H):
    x = np.exp(-0.25)
    k = (1 - x) ** 2 / (1 + 0.5 * x - x * x)
    a1, a2, a3, a4 = k, k * x * (0.25 - 1), k * x * (0.25 + 1), -k * x * x
    factors = {"a1": a1, "a2": a2, "a3": a3, "a4": a4, "a5": a1, "a6": a2, "a7": a3, "a8": a4, "b1": 2**-0.25, "b2": -x * x}
    return {n: scalar(v) for n, v in factors.items()} | {"X": rng.random((W, H))}


def both_ways(X, a1, a2, a3, a4, b1, b2):
    """The filter along the first dimension, in both directions."""
    p, q = np.empty_like(X), np.zeros_like(X)
    for i in range(len(X)):
        p[i] = a1 * X[i]
        p[i] += a2 * X[i - 1] + b1 * p[i - 1] if i > 0 else 0
        p[i] += b2 * p[i - 2] if i > 1 else 0
    for i in range(len(X) - 2, -1, -1):
        q[i] = a3 * X[i + 1] + b1 * q[i + 1]
        q[i] += a4 * X[i + 2] + b2 * q[i + 2] if i < len(X) - 2 else 0
    return p + q


def deriche(a1, a2, a3, a4, a5, a6, a7, a8, b1, b2, X):
    rows = both_ways(np.ascontiguousarray(X.T), a1, a2, a3, a4, b1, b2)
    return both_ways(np.ascontiguousarray(rows.T), a5, a6, a7, a8, b1, b2)


def fdtd_2d(ex, ey, hz, source):
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for strength in source:
        ey[0] = strength
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def heat_3d(X, steps):
    a, inner = X.copy(), slice(1, -1)
    for _ in range(2 * len(steps)):
        m, b = a[inner, inner, inner], a.copy()
        b[inner, inner, inner] = (
            0.125 * (a[2:, inner, inner] - 2 * m + a[:-2, inner, inner])
            + 0.125 * (a[inner, 2:, inner] - 2 * m + a[inner, :-2, inner])
            + 0.125 * (a[inner, inner, 2:] - 2 * m + a[inner, inner, :-2])
            + m
        )
        a = b
    return a


def jacobi_1d(X, steps):
    a = X.copy()
    for _ in range(2 * len(steps)):
        a[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
    return a


def jacobi_2d(X, steps):
    a = X.copy()
    for _ in range(2 * len(steps)):
        a[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
    return a


def seidel_2d(X, steps):
    """Along the lines ``2 i + j = d``, whose elements are independent and stand ``n - 2`` apart in memory."""
    n, a = len(X), X.copy()
    flat = a.reshape(-1)
    for _ in steps:
        for d in range(3, 3 * n - 5):
            first, last = max(1, (d - n + 3) // 2), min(n - 2, (d - 1) // 2)
            if first > last:
                continue
            at, count = first * (n - 2) + d, last - first + 1

            def line(shift, at=at, count=count):
                return flat[at + shift : at + shift + (count - 1) * (n - 2) + 1 : n - 2]

            line(0)[:] = sum(line(row * n + column) for row in (-1, 0, 1) for column in (-1, 0, 1)) / 9
    return a


def grid(rng, TSTEPS, *shape):
    return {"X": draw(rng, *shape), "steps": np.zeros(TSTEPS)}


KERNELS = (
    Kernel(
        "adi",
        "alternating direction implicit steps",
        {"TSTEPS": (20, 40, 100, 500), "N": (20, 60, 200, 1000)},
        adi_inputs,
        adi,
        lambda TSTEPS, N: 30.0 * TSTEPS * N * N,
    ),
    Kernel(
        "deriche",
        "a recursive edge detector",
        {"W": (64, 192, 720, 4096), "H": (64, 128, 480, 2160)},
        deriche_inputs,
        deriche,
        lambda W, H: 32.0 * W * H,
    ),
    Kernel(
        "fdtd-2d",
        "finite differences in time domain",
        {"TMAX": (20, 40, 100, 500), "NX": (20, 60, 200, 1000), "NY": (30, 80, 240, 1200)},
        lambda rng, TMAX, NX, NY: {n: draw(rng, NX, NY) for n in ("ex", "ey", "hz")} | {"source": np.arange(TMAX, dtype=float)},
        fdtd_2d,
        lambda TMAX, NX, NY: 11.0 * TMAX * NX * NY,
    ),
    Kernel(
        "heat-3d",
        "the heat equation in three dimensions",
        {"TSTEPS": (20, 40, 100, 500), "N": (10, 20, 40, 120)},
        lambda rng, TSTEPS, N: grid(rng, TSTEPS, N, N, N),
        heat_3d,
        lambda TSTEPS, N: 30.0 * TSTEPS * N**3,
    ),
    Kernel(
        "jacobi-1d",
        "means of three neighbours",
        {"TSTEPS": (20, 40, 100, 500), "N": (30, 120, 400, 2000)},
        lambda rng, TSTEPS, N: grid(rng, TSTEPS, N),
        jacobi_1d,
        lambda TSTEPS, N: 6.0 * TSTEPS * N,
    ),
    Kernel(
        "jacobi-2d",
        "means of five neighbours",
        {"TSTEPS": (20, 40, 100, 500), "N": (30, 90, 250, 1300)},
        lambda rng, TSTEPS, N: grid(rng, TSTEPS, N, N),
        jacobi_2d,
        lambda TSTEPS, N: 10.0 * TSTEPS * N * N,
    ),
    Kernel(
        "seidel-2d",
        "means of nine neighbours, in place",
        {"TSTEPS": (20, 40, 100, 500), "N": (40, 120, 400, 2000)},
        lambda rng, TSTEPS, N: grid(rng, TSTEPS, N, N),
        seidel_2d,
        lambda TSTEPS, N: 9.0 * TSTEPS * N * N,
    ),
)
