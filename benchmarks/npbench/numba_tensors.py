"""A convolution and systems of equations in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.polybench.numba_loops import THREADS, parallel

SCRATCH = {"contour_integral": lambda NR, NM, **_: ((THREADS, NR, NM), (THREADS, NR, NM))}


@parallel
def conv2d_bias(input, weights, bias, output):
    for n in prange(output.shape[0]):
        for i in range(output.shape[1]):
            for j in range(output.shape[2]):
                for o in range(bias.size):
                    output[n, i, j, o] = bias[o]
                for a in range(weights.shape[0]):
                    for b in range(weights.shape[1]):
                        for c in range(weights.shape[2]):
                            value = input[n, i + a, j + b, c]
                            for o in range(bias.size):
                                output[n, i, j, o] += value * weights[a, b, c, o]


@parallel
def contour_integral(Ham, int_pts, Y, P0, P1, part0, part1):
    """LAPACK solves the systems, the points are dealt out to the threads."""
    for t in prange(THREADS):
        part0[t] = 0
        part1[t] = 0
        for k in range(t, int_pts.size, THREADS):
            z = int_pts[k]
            X = np.linalg.solve(z * Ham[0] + Ham[1] + Ham[2] / z, Y)
            sign = -1.0 if abs(z) < 1 else 1.0
            for i in range(X.shape[0]):
                for j in range(X.shape[1]):
                    part0[t, i, j] += sign * X[i, j]
                    part1[t, i, j] += sign * z * X[i, j]
    P0[:] = part0.sum(0)
    P1[:] = part1.sum(0)
