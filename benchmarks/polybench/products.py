"""Matrix products, products of matrices and vectors, and statistics of columns."""

from __future__ import annotations

import numpy as np

from benchmarks.polybench.kernel import Kernel, draw, scalar, square

BLAS2 = {"M": (38, 116, 390, 1900), "N": (42, 124, 410, 2100)}
BLAS3 = {"M": (20, 60, 200, 1000), "N": (30, 80, 240, 1200)}
COLUMNS = {"M": (28, 80, 240, 1200), "N": (32, 100, 260, 1400)}
ALPHA_BETA = {"alpha": scalar(1.5), "beta": scalar(1.2)}


def centered_correlation(D):
    dev = D.std(0)
    X = (D - D.mean(0)) / (np.sqrt(len(D)) * np.where(dev <= 0.1, 1.0, dev))
    C = X.T @ X
    np.fill_diagonal(C, 1.0)
    return C


def covariance(D):
    X = D - D.mean(0)
    return X.T @ X / (len(D) - 1.0)


def gemver(alpha, beta, A, u1, v1, u2, v2, y, z):
    B = A + np.outer(u1, v1) + np.outer(u2, v2)
    return alpha * (B @ (beta * (y @ B) + z))


def symm(alpha, beta, C, A, B):
    return alpha * ((np.tril(A) + np.tril(A, -1).T) @ B) + beta * C


def lower(new, old):
    """`new` in the lower triangle, `old` above."""
    return np.where(np.tri(len(old), dtype=bool), new, old)


KERNELS = (
    Kernel(
        "2mm",
        "two matrix products",
        {"NI": (16, 40, 180, 800), "NJ": (18, 50, 190, 900), "NK": (22, 70, 210, 1100), "NL": (24, 80, 220, 1200)},
        lambda rng, NI, NJ, NK, NL: (
            ALPHA_BETA | {"A": draw(rng, NI, NK), "B": draw(rng, NK, NJ), "C": draw(rng, NJ, NL), "D": draw(rng, NI, NL)}
        ),
        lambda alpha, beta, A, B, C, D: alpha * (A @ B) @ C + beta * D,
        lambda NI, NJ, NK, NL: 2.0 * NI * NJ * (NK + NL),
    ),
    Kernel(
        "3mm",
        "three matrix products",
        {
            "NI": (16, 40, 180, 800),
            "NJ": (18, 50, 190, 900),
            "NK": (20, 60, 200, 1000),
            "NL": (22, 70, 210, 1100),
            "NM": (24, 80, 220, 1200),
        },
        lambda rng, NI, NJ, NK, NL, NM: {
            "A": draw(rng, NI, NK),
            "B": draw(rng, NK, NJ),
            "C": draw(rng, NJ, NM),
            "D": draw(rng, NM, NL),
        },
        lambda A, B, C, D: (A @ B) @ (C @ D),
        lambda NI, NJ, NK, NL, NM: 2.0 * NJ * (NI * NK + NM * NL + NI * NL),
    ),
    Kernel(
        "atax",
        "Aᵀ (A x)",
        BLAS2,
        lambda rng, M, N: {"A": draw(rng, M, N), "x": draw(rng, N)},
        lambda A, x: (A @ x) @ A,
        lambda M, N: 4.0 * M * N,
    ),
    Kernel(
        "bicg",
        "Aᵀ r and A p",
        BLAS2,
        lambda rng, M, N: {"A": draw(rng, N, M), "p": draw(rng, M), "r": draw(rng, N)},
        lambda A, p, r: (r @ A, A @ p),
        lambda M, N: 4.0 * M * N,
    ),
    Kernel(
        "correlation",
        "correlations of columns",
        COLUMNS,
        lambda rng, M, N: {"D": draw(rng, N, M)},
        centered_correlation,
        lambda M, N: 1.0 * M * M * N,
    ),
    Kernel(
        "covariance",
        "covariances of columns",
        COLUMNS,
        lambda rng, M, N: {"D": draw(rng, N, M)},
        covariance,
        lambda M, N: 1.0 * M * M * N,
    ),
    Kernel(
        "doitgen",
        "a matrix product along the last of three dimensions",
        {"NQ": (8, 20, 40, 140), "NR": (10, 25, 50, 150), "NP": (12, 30, 60, 160)},
        lambda rng, NQ, NR, NP: {"A": draw(rng, NR, NQ, NP), "C": draw(rng, NP, NP)},
        lambda A, C: A @ C,
        lambda NQ, NR, NP: 2.0 * NQ * NR * NP * NP,
    ),
    Kernel(
        "gemm",
        "a matrix product",
        {"NI": (20, 60, 200, 1000), "NJ": (25, 70, 220, 1100), "NK": (30, 80, 240, 1200)},
        lambda rng, NI, NJ, NK: ALPHA_BETA | {"C": draw(rng, NI, NJ), "A": draw(rng, NI, NK), "B": draw(rng, NK, NJ)},
        lambda alpha, beta, C, A, B: alpha * (A @ B) + beta * C,
        lambda NI, NJ, NK: 2.0 * NI * NJ * NK,
    ),
    Kernel(
        "gemver",
        "two updates of rank 1 and two products with the result",
        square(40, 120, 400, 2000),
        lambda rng, N: ALPHA_BETA | {"A": draw(rng, N, N)} | {n: draw(rng, N) for n in ("u1", "v1", "u2", "v2", "y", "z")},
        gemver,
        lambda N: 8.0 * N * N,
    ),
    Kernel(
        "gesummv",
        "the sum of two products of matrix and vector",
        square(30, 90, 250, 1300),
        lambda rng, N: ALPHA_BETA | {"A": draw(rng, N, N), "B": draw(rng, N, N), "x": draw(rng, N)},
        lambda alpha, beta, A, B, x: alpha * (A @ x) + beta * (B @ x),
        lambda N: 4.0 * N * N,
    ),
    Kernel(
        "mvt",
        "A y and Aᵀ z",
        square(40, 120, 400, 2000),
        lambda rng, N: {n: draw(rng, N) for n in ("x1", "x2", "y", "z")} | {"A": draw(rng, N, N)},
        lambda x1, x2, y, z, A: (x1 + A @ y, x2 + z @ A),
        lambda N: 4.0 * N * N,
    ),
    Kernel(
        "symm",
        "a product with a symmetric matrix",
        BLAS3,
        lambda rng, M, N: ALPHA_BETA | {"C": draw(rng, M, N), "A": draw(rng, M, M), "B": draw(rng, M, N)},
        symm,
        lambda M, N: 2.0 * M * M * N,
    ),
    Kernel(
        "syr2k",
        "half of A Bᵀ + B Aᵀ",
        BLAS3,
        lambda rng, M, N: ALPHA_BETA | {"C": draw(rng, N, N), "A": draw(rng, N, M), "B": draw(rng, N, M)},
        lambda alpha, beta, C, A, B: lower(alpha * (A @ B.T + B @ A.T) + beta * C, C),
        lambda M, N: 2.0 * N * N * M,
    ),
    Kernel(
        "syrk",
        "half of A Aᵀ",
        BLAS3,
        lambda rng, M, N: ALPHA_BETA | {"C": draw(rng, N, N), "A": draw(rng, N, M)},
        lambda alpha, beta, C, A: lower(alpha * (A @ A.T) + beta * C, C),
        lambda M, N: 1.0 * N * N * M,
    ),
    Kernel(
        "trmm",
        "a product with a triangle",
        BLAS3,
        lambda rng, M, N: {"alpha": scalar(1.5), "A": draw(rng, M, M), "B": draw(rng, M, N)},
        lambda alpha, A, B: alpha * (B + np.tril(A, -1).T @ B),
        lambda M, N: 1.0 * M * M * N,
    ),
)
