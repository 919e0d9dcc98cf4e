"""The grids over time in numba, as somebody writes them who knows the machine: the first step reads the inputs, the last one
writes the results, and the steps between take turns with one more grid.  Imported where numba is.

Every function takes the number of steps, the inputs of its workload, its results, and the scratch that `SCRATCH` counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

SCRATCH = {"jacobi": 1, "wave": 2, "gray_scott": 2}
"""Grids beside inputs and results."""
RESULTS = {"jacobi": 1, "wave": 1, "gray_scott": 2}

parallel: Callable[..., Any] = njit(parallel=int(os.environ.get("NUMBA_NUM_THREADS", "1")) > 1, fastmath=True)
inline: Callable[..., Any] = njit(fastmath=True, inline="always")


@inline
def copy_border(a, b):
    n, m = a.shape
    for j in range(m):
        b[0, j] = a[0, j]
        b[n - 1, j] = a[n - 1, j]
    for i in range(n):
        b[i, 0] = a[i, 0]
        b[i, m - 1] = a[i, m - 1]


@parallel
def sweep_jacobi(a, b):
    fifth = np.float32(0.2)
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = fifth * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
    copy_border(a, b)


def jacobi(steps, X, Y, other):
    source = X
    for left in range(steps, 0, -1):
        target = Y if left % 2 else other
        sweep_jacobi(source, target)
        source = target


@parallel
def sweep_wave(before, now, after):
    tenth, two, four = np.float32(0.1), np.float32(2), np.float32(4)
    for i in prange(1, now.shape[0] - 1):
        for j in range(1, now.shape[1] - 1):
            beside = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1]
            after[i, j] = two * now[i, j] - before[i, j] + tenth * (beside - four * now[i, j])
    copy_border(now, after)


def wave(steps, P, Q, Y, first, second):
    before, now, places = P, Q, (Y, first, second)
    for left in range(steps, 0, -1):
        after = places[(left - 1) % 3]
        sweep_wave(before, now, after)
        before, now = now, after


@parallel
def sweep_gray_scott(u, v, u1, v1):
    one, four, feed, kill = np.float32(1), np.float32(4), np.float32(0.04), np.float32(0.1)
    fast, slow = np.float32(0.16), np.float32(0.08)
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            a, b = u[i, j], v[i, j]
            c = a * b * b
            u1[i, j] = a - c + feed * (one - a) + fast * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - four * a)
            v1[i, j] = b + c - kill * b + slow * (v[i - 1, j] + v[i + 1, j] + v[i, j - 1] + v[i, j + 1] - four * b)
    copy_border(u, u1)
    copy_border(v, v1)


def gray_scott(steps, P, Q, Y, Z, other_u, other_v):
    u, v = P, Q
    for left in range(steps, 0, -1):
        u1, v1 = (Y, Z) if left % 2 else (other_u, other_v)
        sweep_gray_scott(u, v, u1, v1)
        u, v = u1, v1
