"""A sparse matrix, and a Fourier transform, times a vector."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from benchmarks.npbench.program import Program, text
from benchmarks.npbench.tensors import draw_complex
from benchmarks.workload import Arrays

LOOPS = "benchmarks.npbench.numba_transforms"

STOCKHAM_FFT = """
def stockham_fft(x: "c128[$N]"):
    Y[0, n] = x[n]
    for s in range($K):
        L, M = $R**s, $R ** ($K - 1 - s)
        with polyc.where(0 <= j < $R, 0 <= k < $R, 0 <= l < L, 0 <= m < M):
            turn[s, j, k, l] = np.exp(-2j * np.pi * (k * L + l) * j / ($R * L))
            Y[s + 1, (k * L + l) * M + m] = sum(turn[s, j, k, l] * Y[s, (l * $R + j) * M + m])
    y[n] = Y[$K, n]
    return y
"""
"""Of $R**$K points, in $K stages: what was index (l, j, m) is (k, l, m) after one."""


def spmv(A_row, A_col, A_val, x):
    """Sums between the row's ends of running sums would lose digits: as in NPBench, row by row."""
    return np.array([A_val[i:j] @ x[A_col[i:j]] for i, j in pairwise(A_row)])


def stockham_fft(x, N, R, K):
    radix, y = np.arange(R), x
    dft = np.exp(-2j * np.pi / R * np.outer(radix, radix))
    for s in range(K):
        L = R**s
        turn = np.exp(-2j * np.pi / (R * L) * np.outer(radix, np.arange(L)))
        parts = y.reshape(L, R, -1).transpose(1, 0, 2) * turn[:, :, None]
        y = (dft @ parts.reshape(R, -1)).ravel()
    return y


def make_csr(rng, M, N, nnz) -> Arrays:
    """Entries anywhere: about a seventh of the rows has none."""
    row = np.sort(rng.integers(0, M, nnz))
    return {
        "A_row": np.searchsorted(row, np.arange(M + 1)).astype(np.uint32),
        "A_col": rng.integers(0, N, nnz).astype(np.uint32),
        "A_val": rng.random(nnz),
        "x": rng.random(N),
    }


PROGRAMS = (
    Program(
        "spmv",
        "a sparse matrix in CSR times a vector",
        text("spmv"),
        {"M": (17, 4096, 32_768), "N": (13, 4096, 32_768), "nnz": (31, 8192, 65_536)},
        make_csr,
        spmv,
        f"{LOOPS}.spmv",
    ),
    Program(
        "stockham_fft",
        "a Fourier transform in stages that keep the order",
        STOCKHAM_FFT,
        {"N": (3**3, 2**15, 2**18), "R": (3, 2, 2), "K": (3, 15, 18)},
        lambda rng, N, R, K: {"x": draw_complex(rng, N)},
        stockham_fft,
        f"{LOOPS}.stockham_fft",
        constants=("N", "R", "K"),
        notation="python",
    ),
)
