"""Factorisations and solvers, and dynamic programming: recurrences over triangles."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.kernel import Kernel, definite, dominant, draw, square

N2000 = square(40, 120, 400, 2000)


def durbin(r):
    y = np.zeros_like(r)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, len(r)):
        beta *= 1 - alpha * alpha
        alpha = -(r[k] + r[k - 1 :: -1][:k] @ y[:k]) / beta
        y[:k] += alpha * y[k - 1 :: -1][:k].copy()
        y[k] = alpha
    return y


def factorise(A):
    F = A.copy()
    for k in range(len(F)):
        F[k + 1 :, k] /= F[k, k]
        F[k + 1 :, k + 1 :] -= np.outer(F[k + 1 :, k], F[k, k + 1 :])
    return F


def gramschmidt(A):
    V, Q, R = A.copy(), np.zeros_like(A), np.zeros((A.shape[1],) * 2)
    for k in range(A.shape[1]):
        R[k, k] = np.sqrt(V[:, k] @ V[:, k])
        Q[:, k] = V[:, k] / R[k, k]
        R[k, k + 1 :] = Q[:, k] @ V[:, k + 1 :]
        V[:, k + 1 :] -= np.outer(Q[:, k], R[k, k + 1 :])
    return Q, R


def paths(A):
    D = A.copy()
    for k in range(len(D)):
        np.minimum(D, D[:, k : k + 1] + D[k], out=D)
    return D


def most_pairs(base):
    n = len(base)
    T = np.zeros((n, n), np.int32)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            pair = int(i < j - 1 and base[i] + base[j] == 3)
            best = max(T[i, j - 1], T[i + 1, j], T[i + 1, j - 1] + pair)
            T[i, j] = max(best, (T[i, i + 1 : j] + T[i + 2 : j + 1, j]).max(initial=0))
    return T


KERNELS = (
    Kernel(
        "cholesky",
        "Cholesky's factorisation",
        N2000,
        lambda rng, N: {"A": definite(rng, N)},
        lambda A: np.linalg.cholesky(A),
        lambda N: N**3 / 3,
    ),
    Kernel(
        "durbin",
        "Levinson's and Durbin's recursion",
        N2000,
        lambda rng, N: {"r": draw(rng, N) / (8 * np.sqrt(N))},
        durbin,
        lambda N: 2.0 * N * N,
    ),
    Kernel(
        "gramschmidt",
        "the modified Gram-Schmidt process",
        {"M": (20, 60, 200, 1000), "N": (30, 80, 240, 1200)},
        # More columns than rows have no Q: the parts that are left over would be rounding errors, as in PolyBench's own data.
        lambda rng, M, N: {"A": draw(rng, N, M)},
        gramschmidt,
        lambda M, N: 2.0 * M * M * N,
    ),
    Kernel("lu", "an LU factorisation", N2000, lambda rng, N: {"A": dominant(rng, N)}, factorise, lambda N: 2 * N**3 / 3),
    Kernel(
        "ludcmp",
        "a system of equations, through an LU factorisation",
        N2000,
        lambda rng, N: {"A": dominant(rng, N), "b": draw(rng, N)},
        lambda A, b: np.linalg.solve(A, b),
        lambda N: 2 * N**3 / 3,
    ),
    Kernel(
        "trisolv",
        "a triangular system",
        N2000,
        lambda rng, N: {"L": dominant(rng, N), "b": draw(rng, N)},
        lambda L, b: np.linalg.solve(np.tril(L), b),
        lambda N: 1.0 * N * N,
    ),
    Kernel(
        "floyd-warshall",
        "shortest paths, int32",
        square(60, 180, 500, 2800),
        lambda rng, N: {"A": rng.integers(1, 1000, (N, N), dtype=np.int32)},
        paths,
        lambda N: 2.0 * N**3,
    ),
    Kernel(
        "nussinov",
        "pairs of an RNA sequence's bases, int32",
        square(60, 180, 500, 2500),
        lambda rng, N: {"base": rng.integers(0, 4, N, dtype=np.int32)},
        most_pairs,
        lambda N: N**3 / 3,
    ),
)
