"""Sparse matrices and Fourier transforms in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import cmath
import math

from numba import prange

from benchmarks.polybench.numba_loops import inline, parallel

SCRATCH = {"stockham_fft": lambda N, R, K: ((N,), (R, R), (R, N // R))}


@parallel
def spmv(A_row, A_col, A_val, x, y):
    for i in prange(y.size):
        total = 0.0
        for p in range(A_row[i], A_row[i + 1]):
            total += A_val[p] * x[A_col[p]]
        y[i] = total


@inline
def combine(x, R, L, M, n, dft, turn, y):
    """A stage of the transform at index n of L: (n, j, m) → (k, n, m)."""
    if R == 2:
        for m in range(M):
            a, b = x[2 * n * M + m], turn[1, n] * x[(2 * n + 1) * M + m]
            y[n * M + m] = a + b
            y[(L + n) * M + m] = a - b
    else:
        for k in range(R):
            to = (k * L + n) * M
            for m in range(M):
                y[to + m] = x[n * R * M + m]
            for j in range(1, R):
                factor = dft[j, k] * turn[j, n]
                for m in range(M):
                    y[to + m] += factor * x[(n * R + j) * M + m]


@parallel
def stockham_fft(x, N, R, K, y, other, dft, turn):
    for j in range(R):
        for k in range(R):
            dft[j, k] = cmath.exp(-2j * math.pi * j * k / R)
    # Stages write one of two arrays in turns, so that the last one writes `y`.
    source, target = (y, other) if K % 2 == 0 else (other, y)
    for i in prange(N):
        source[i] = x[i]
    L, M = 1, N // R
    for _ in range(K):
        for j in range(R):
            for n in range(L):
                angle = -2 * math.pi * j * n / (R * L)
                turn[j, n] = complex(math.cos(angle), math.sin(angle))
        for n in prange(L):
            combine(source, R, L, M, n, dft, turn, target)
        source, target = target, source
        L, M = L * R, M // R
