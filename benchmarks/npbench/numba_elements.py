"""Elements one by one in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import math

from numba import prange

from benchmarks.polybench.numba_loops import parallel

SCRATCH: dict[str, object] = {}


@parallel
def arc_distance(theta_1, phi_1, theta_2, phi_2, distance):
    for i in prange(distance.size):
        s = math.sin((theta_2[i] - theta_1[i]) / 2)
        t = math.sin((phi_2[i] - phi_1[i]) / 2)
        half = s * s + math.cos(theta_1[i]) * math.cos(theta_2[i]) * t * t
        distance[i] = 2 * math.atan2(math.sqrt(half), math.sqrt(1 - half))


@parallel
def compute(array_1, array_2, a, b, c, result):
    for i in prange(result.shape[0]):
        for j in range(result.shape[1]):
            result[i, j] = min(max(array_1[i, j], 2), 10) * a + array_2[i, j] * b + c


@parallel
def go_fast(a, result):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += math.tanh(a[i, i])
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            result[i, j] = a[i, j] + trace
