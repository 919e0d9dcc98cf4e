"""PolyBench's kernels in numba: loops as somebody writes them who knows the machine and numba well.  Imported where numba is.

Every function takes its operator's inputs (scalars as Python numbers), then its results, then the temporaries of `SCRATCH`,
which are made once.  On one thread they are plain loops, on several the outermost independent ones are ``prange``.  Sums may be
reassociated, inner loops go along memory, triangles are dealt out row by row.  Matrix products are loops, too: the peer that
calls BLAS is NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config, njit, prange

THREADS: int = config.NUMBA_NUM_THREADS
options: dict[str, Any] = {"fastmath": True, "error_model": "numpy"}
serial: Callable[..., Any] = njit(**options)
inline: Callable[..., Any] = njit(inline="always", **options)
# On one thread, loops outlined for a pool only hide from the compiler what it could hoist.
parallel: Callable[..., Any] = njit(parallel=True, **options) if THREADS > 1 else serial

Shapes = tuple[tuple[int, ...], ...]
SCRATCH: dict[str, Callable[..., Shapes]] = {
    "k_2mm": lambda NI, NJ, **_: ((NI, NJ),),
    "k_3mm": lambda NI, NJ, NL, **_: ((NI, NJ), (NJ, NL)),
    "k_atax": lambda M, N: ((THREADS, N),),
    "k_bicg": lambda M, N: ((THREADS, M),),
    "k_mvt": lambda N: ((THREADS, N),),
    "k_gemver": lambda N: ((N, N), (N,), (THREADS, N)),
    "k_correlation": lambda M, N: ((N, M), (M,), (M,)),
    "k_covariance": lambda M, N: ((N, M), (M,)),
    "k_durbin": lambda N: ((N,),),
    "k_gramschmidt": lambda M, N: ((N, M),),
    "k_ludcmp": lambda N: ((N, N), (N,)),
    "k_nussinov": lambda N: ((N, N),),
    "k_deriche": lambda W, H: ((W, H), (W, H), (W, H)),
    "k_adi": lambda TSTEPS, N: ((N, N), (N, N), (N,), (N,)),
    "k_heat_3d": lambda TSTEPS, N: ((N, N, N),),
    "k_jacobi_1d": lambda TSTEPS, N: ((N,),),
    "k_jacobi_2d": lambda TSTEPS, N: ((N, N),),
}
"""Shapes of the temporaries that a function takes behind its results, by PolyBench's sizes; in the type of its arrays."""


# -- products


@parallel
def k_gemm(alpha, beta, C, A, B, D):
    for i in prange(D.shape[0]):
        for j in range(D.shape[1]):
            D[i, j] = beta * C[i, j]
        for k in range(B.shape[0]):
            for j in range(D.shape[1]):
                D[i, j] += alpha * A[i, k] * B[k, j]


@inline
def multiply_row(a, B, c):
    """``c = a B`` for rows `a` and `c`."""
    for j in range(c.size):
        c[j] = 0.0
    for k in range(a.size):
        for j in range(c.size):
            c[j] += a[k] * B[k, j]


@parallel
def k_2mm(alpha, beta, A, B, C, D, E, tmp):
    for i in prange(A.shape[0]):
        multiply_row(A[i], B, tmp[i])
        for j in range(D.shape[1]):
            E[i, j] = beta * D[i, j]
        for k in range(C.shape[0]):
            for j in range(D.shape[1]):
                E[i, j] += alpha * tmp[i, k] * C[k, j]


@parallel
def k_3mm(A, B, C, D, G, E, F):
    for i in prange(C.shape[0]):
        multiply_row(C[i], D, F[i])
    for i in prange(A.shape[0]):
        multiply_row(A[i], B, E[i])
        multiply_row(E[i], F, G[i])


@parallel
def k_doitgen(A, C, B):
    for r in prange(A.shape[0]):
        for q in range(A.shape[1]):
            multiply_row(A[r, q], C, B[r, q])


@parallel
def k_symm(alpha, beta, C, A, B, D):
    for i in prange(D.shape[0]):
        for j in range(D.shape[1]):
            D[i, j] = beta * C[i, j]
        for k in range(D.shape[0]):
            factor = alpha * (A[i, k] if k <= i else A[k, i])
            for j in range(D.shape[1]):
                D[i, j] += factor * B[k, j]


@inline
def dot(x, y, n):
    total = 0.0
    for k in range(n):
        total += x[k] * y[k]
    return total


@parallel
def k_syrk(alpha, beta, C, A, D):
    for c in prange(THREADS):
        for i in range(c, A.shape[0], THREADS):
            for j in range(i + 1):
                D[i, j] = alpha * dot(A[i], A[j], A.shape[1]) + beta * C[i, j]
            for j in range(i + 1, A.shape[0]):
                D[i, j] = C[i, j]


@parallel
def k_syr2k(alpha, beta, C, A, B, D):
    for c in prange(THREADS):
        for i in range(c, A.shape[0], THREADS):
            for j in range(i + 1):
                total = 0.0
                for k in range(A.shape[1]):
                    total += A[j, k] * B[i, k] + B[j, k] * A[i, k]
                D[i, j] = alpha * total + beta * C[i, j]
            for j in range(i + 1, A.shape[0]):
                D[i, j] = C[i, j]


@parallel
def k_trmm(alpha, A, B, D):
    for c in prange(THREADS):
        for i in range(c, B.shape[0], THREADS):
            for j in range(B.shape[1]):
                D[i, j] = alpha * B[i, j]
            for k in range(i + 1, B.shape[0]):
                factor = alpha * A[k, i]
                for j in range(B.shape[1]):
                    D[i, j] += factor * B[k, j]


# -- matrices and vectors: one pass over the matrix, the sums of its columns apart for each thread


@inline
def add_up(part, y):
    for c in range(part.shape[0]):
        for j in range(y.size):
            y[j] += part[c, j]


@parallel
def k_atax(A, x, y, part):
    n = A.shape[0]
    for c in prange(THREADS):
        for j in range(y.size):
            part[c, j] = 0.0
        for i in range(c * n // THREADS, (c + 1) * n // THREADS):
            total = dot(A[i], x, x.size)
            for j in range(y.size):
                part[c, j] += A[i, j] * total
    for j in range(y.size):
        y[j] = 0.0
    add_up(part, y)


@parallel
def k_bicg(A, p, r, s, q, part):
    n = A.shape[0]
    for c in prange(THREADS):
        for j in range(s.size):
            part[c, j] = 0.0
        for i in range(c * n // THREADS, (c + 1) * n // THREADS):
            total = 0.0
            for j in range(s.size):
                part[c, j] += r[i] * A[i, j]
                total += A[i, j] * p[j]
            q[i] = total
    for j in range(s.size):
        s[j] = 0.0
    add_up(part, s)


@parallel
def k_mvt(x1, x2, y, z, A, w1, w2, part):
    n = A.shape[0]
    for c in prange(THREADS):
        for j in range(n):
            part[c, j] = 0.0
        for i in range(c * n // THREADS, (c + 1) * n // THREADS):
            total = x1[i]
            for j in range(n):
                part[c, j] += z[i] * A[i, j]
                total += A[i, j] * y[j]
            w1[i] = total
    for j in range(n):
        w2[j] = x2[j]
    add_up(part, w2)


@parallel
def k_gemver(alpha, beta, A, u1, v1, u2, v2, y, z, w, B, x, part):
    n = A.shape[0]
    for c in prange(THREADS):
        for j in range(n):
            part[c, j] = 0.0
        for i in range(c * n // THREADS, (c + 1) * n // THREADS):
            for j in range(n):
                B[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
                part[c, j] += beta * y[i] * B[i, j]
    for j in range(n):
        x[j] = z[j]
    add_up(part, x)
    for i in prange(n):
        w[i] = alpha * dot(B[i], x, n)


@parallel
def k_gesummv(alpha, beta, A, B, x, y):
    for i in prange(y.size):
        a = b = 0.0
        for j in range(x.size):
            a += A[i, j] * x[j]
            b += B[i, j] * x[j]
        y[i] = alpha * a + beta * b


# -- statistics of columns


@inline
def find_means(D, mean):
    for j in range(mean.size):
        mean[j] = 0.0
    for i in range(D.shape[0]):
        for j in range(mean.size):
            mean[j] += D[i, j]
    for j in range(mean.size):
        mean[j] /= D.shape[0]


@inline
def multiply_columns(X, i, C, factor):
    """Row `i` of the products of columns from the diagonal on."""
    for j in range(i, C.shape[1]):
        C[i, j] = 0.0
    for k in range(X.shape[0]):
        for j in range(i, C.shape[1]):
            C[i, j] += X[k, i] * X[k, j]
    for j in range(i, C.shape[1]):
        C[i, j] *= factor
        C[j, i] = C[i, j]


@parallel
def k_correlation(D, C, X, mean, dev):
    n, m = D.shape
    find_means(D, mean)
    for j in range(m):
        dev[j] = 0.0
    for i in range(n):
        for j in range(m):
            dev[j] += (D[i, j] - mean[j]) * (D[i, j] - mean[j])
    for j in range(m):
        dev[j] = math.sqrt(dev[j] / n)
        dev[j] = 1.0 if dev[j] <= 0.1 else dev[j]
    for i in prange(n):
        for j in range(m):
            X[i, j] = (D[i, j] - mean[j]) / (math.sqrt(n) * dev[j])
    for c in prange(THREADS):
        for i in range(c, m, THREADS):
            multiply_columns(X, i, C, 1.0)
            C[i, i] = 1.0


@parallel
def k_covariance(D, C, X, mean):
    n, m = D.shape
    find_means(D, mean)
    for i in prange(n):
        for j in range(m):
            X[i, j] = D[i, j] - mean[j]
    for c in prange(THREADS):
        for i in range(c, m, THREADS):
            multiply_columns(X, i, C, 1.0 / (n - 1.0))


# -- factorisations and solvers


@parallel
def k_cholesky(A, L):
    n = A.shape[0]
    for j in range(n):
        L[j, j] = math.sqrt(A[j, j] - dot(L[j], L[j], j))
        for i in prange(j + 1, n):
            L[i, j] = (A[i, j] - dot(L[i], L[j], j)) / L[j, j]
            L[j, i] = 0.0


@inline
def eliminate(F, k, i, n):
    """Take row `k` out of row `i`."""
    factor = F[i, k] / F[k, k]  # in a variable: for the compiler, F[i, j] might be the same element
    F[i, k] = factor
    for j in range(k + 1, n):
        F[i, j] -= factor * F[k, j]


@inline
def factorise_by_rows(A, F):
    n = A.shape[0]
    for i in range(n):
        for j in range(n):
            F[i, j] = A[i, j]
        for k in range(i):
            eliminate(F, k, i, n)


@inline
def factorise_by_columns(A, F):
    n = A.shape[0]
    for i in prange(n):
        for j in range(n):
            F[i, j] = A[i, j]
    for k in range(n):
        for i in prange(k + 1, n):
            eliminate(F, k, i, n)


factorise = factorise_by_rows if THREADS == 1 else factorise_by_columns
"""By rows, the half is written; by columns, the rows below the diagonal are independent."""


@parallel
def k_lu(A, F):
    factorise(A, F)


@parallel
def k_ludcmp(A, b, x, F, y):
    n = A.shape[0]
    factorise(A, F)
    for i in range(n):
        y[i] = b[i] - dot(F[i], y, i)
    for i in range(n - 1, -1, -1):
        total = y[i]
        for j in range(i + 1, n):
            total -= F[i, j] * x[j]
        x[i] = total / F[i, i]


@serial
def k_trisolv(L, b, x):
    for i in range(b.size):
        x[i] = (b[i] - dot(L[i], x, i)) / L[i, i]


@serial
def k_durbin(r, y, z):
    alpha, beta = -r[0], 1.0
    y[0] = alpha
    for k in range(1, r.size):
        beta *= 1.0 - alpha * alpha
        total = r[k]
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -total / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


@parallel
def k_gramschmidt(A, Q, R, V):
    n, m = A.shape
    for i in prange(n):
        for j in range(m):
            V[i, j] = A[i, j]
    for k in range(m):
        squares = 0.0
        for i in range(n):
            squares += V[i, k] * V[i, k]
        length = math.sqrt(squares)
        for j in range(m):
            R[k, j] = 0.0
        R[k, k] = length
        for i in range(n):
            Q[i, k] = V[i, k] / length
        for c in prange(THREADS):
            first, last = k + 1 + c * (m - k - 1) // THREADS, k + 1 + (c + 1) * (m - k - 1) // THREADS
            for i in range(n):
                for j in range(first, last):
                    R[k, j] += Q[i, k] * V[i, j]
            for i in range(n):
                for j in range(first, last):
                    V[i, j] -= Q[i, k] * R[k, j]


# -- dynamic programming


@parallel
def k_floyd_warshall(A, D):
    n = A.shape[0]
    for i in prange(n):
        for j in range(n):
            D[i, j] = A[i, j]
    for k in range(n):
        for i in prange(n):
            first = D[i, k]
            for j in range(n):
                D[i, j] = min(D[i, j], np.int32(first + D[k, j]))


@serial
def nussinov_by_rows(base, T, turned):
    n = base.size
    for i in range(n - 1, -1, -1):
        for j in range(i + 1):
            T[i, j] = 0
        if i + 1 == n:
            continue
        for j in range(i + 1, n):
            pair = np.int32(1 if i < j - 1 and base[i] + base[j] == 3 else 0)
            T[i, j] = max(T[i + 1, j], np.int32(T[i + 1, j - 1] + pair))
        for k in range(i + 1, n):
            first = max(T[i, k], T[i, k - 1])
            T[i, k] = first  # nothing changes it any more
            for j in range(k + 1, n):
                T[i, j] = max(T[i, j], np.int32(first + T[k + 1, j]))


@parallel
def nussinov_by_diagonals(base, T, turned):
    """With the table's transpose beside it, so that both of the parts lie along memory."""
    n = base.size
    for i in prange(n):
        for j in range(i + 1):
            T[i, j] = 0
            turned[j, i] = 0
    for d in range(1, n):
        for i in prange(n - d):
            j = i + d
            best = max(T[i, j - 1], T[i + 1, j])
            pair = np.int32(1 if d > 1 and base[i] + base[j] == 3 else 0)
            best = max(best, np.int32(T[i + 1, j - 1] + pair))
            for k in range(i + 1, j):
                best = max(best, np.int32(T[i, k] + turned[j, k + 1]))
            T[i, j] = best
            turned[j, i] = best


k_nussinov = nussinov_by_rows if THREADS == 1 else nussinov_by_diagonals


# -- filters and stencils


@inline
def filter_columns(Y, y1, y2, out, first, last, a5, a6, a7, a8, b1, b2):
    """Down and up through the columns from `first` to `last`, a row at a time."""
    n = Y.shape[0]
    for j in range(first, last):
        y1[0, j] = a5 * Y[0, j]
        y1[1, j] = a5 * Y[1, j] + a6 * Y[0, j] + b1 * y1[0, j]
        y2[n - 1, j] = 0.0
        y2[n - 2, j] = a7 * Y[n - 1, j]
    for i in range(2, n):
        for j in range(first, last):
            y1[i, j] = a5 * Y[i, j] + a6 * Y[i - 1, j] + b1 * y1[i - 1, j] + b2 * y1[i - 2, j]
    for i in range(n - 3, -1, -1):
        for j in range(first, last):
            y2[i, j] = a7 * Y[i + 1, j] + a8 * Y[i + 2, j] + b1 * y2[i + 1, j] + b2 * y2[i + 2, j]
    for i in range(n):
        for j in range(first, last):
            out[i, j] = y1[i, j] + y2[i, j]


@parallel
def k_deriche(a1, a2, a3, a4, a5, a6, a7, a8, b1, b2, X, out, y1, y2, Y):
    w, h = X.shape
    for i in prange(w):
        x = ya = yb = 0.0
        for j in range(h):
            y1[i, j] = a1 * X[i, j] + a2 * x + b1 * ya + b2 * yb
            x, yb, ya = X[i, j], ya, y1[i, j]
        xa = xb = ya = yb = 0.0
        for j in range(h - 1, -1, -1):
            y = a3 * xa + a4 * xb + b1 * ya + b2 * yb
            xb, xa, yb, ya = xa, X[i, j], ya, y
            Y[i, j] = y1[i, j] + y
    for c in prange(THREADS):
        filter_columns(Y, y1, y2, out, c * h // THREADS, (c + 1) * h // THREADS, a5, a6, a7, a8, b1, b2)


@parallel
def k_adi(a, b, c, d, e, f, X, steps, u, v, q, p, r):
    """`p` and `r` are the same for every column and row."""
    n = X.shape[0]
    p[0] = r[0] = 0.0
    for j in range(1, n - 1):
        p[j] = -c / (a * p[j - 1] + b)
        r[j] = -f / (d * r[j - 1] + e)
    for i in prange(n):
        for j in range(n):
            u[i, j] = X[i, j]
    for _ in range(steps.size):
        for part in prange(THREADS):
            first, last = 1 + part * (n - 2) // THREADS, 1 + (part + 1) * (n - 2) // THREADS
            for i in range(first, last):
                q[0, i] = v[0, i] = v[n - 1, i] = 1.0
            for j in range(1, n - 1):
                scale = 1.0 / (a * p[j - 1] + b)
                for i in range(first, last):
                    here = -d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - f * u[j, i + 1]
                    q[j, i] = (here - a * q[j - 1, i]) * scale
            for j in range(n - 2, 0, -1):
                for i in range(first, last):
                    v[j, i] = p[j] * v[j + 1, i] + q[j, i]
        for i in prange(1, n - 1):
            q[i, 0] = u[i, 0] = u[i, n - 1] = 1.0
            for j in range(1, n - 1):
                here = -a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - c * v[i + 1, j]
                q[i, j] = (here - d * q[i, j - 1]) / (d * r[j - 1] + e)
            for j in range(n - 2, 0, -1):
                u[i, j] = r[j] * u[i, j + 1] + q[i, j]


@parallel
def k_fdtd_2d(fx, fy, gz, source, ex, ey, hz):
    nx, ny = fx.shape
    for i in prange(nx):
        for j in range(ny):
            ex[i, j] = fx[i, j]
            ey[i, j] = fy[i, j]
            hz[i, j] = gz[i, j]
    for t in range(source.size):
        for i in prange(nx):
            if i == 0:
                for j in range(ny):
                    ey[0, j] = source[t]
            else:
                for j in range(ny):
                    ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
            for j in range(1, ny):
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in prange(nx - 1):
            for j in range(ny - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


@inline
def heat_sweep(A, B):
    n = A.shape[0]
    for i in prange(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                B[i, j, k] = (
                    0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                    + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                    + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                    + A[i, j, k]
                )


@parallel
def k_heat_3d(X, steps, A, B):
    for i in prange(X.shape[0]):
        for j in range(X.shape[0]):
            for k in range(X.shape[0]):
                A[i, j, k] = X[i, j, k]
                B[i, j, k] = X[i, j, k]
    for _ in range(steps.size):
        heat_sweep(A, B)
        heat_sweep(B, A)


@serial
def k_jacobi_1d(X, steps, A, B):
    """Too short for threads."""
    n = X.size
    for i in range(n):
        A[i] = X[i]
        B[i] = X[i]
    for _ in range(steps.size):
        for i in range(1, n - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, n - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])


@inline
def jacobi_sweep(A, B):
    n = A.shape[0]
    for i in prange(1, n - 1):
        for j in range(1, n - 1):
            B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])


@parallel
def k_jacobi_2d(X, steps, A, B):
    for i in prange(X.shape[0]):
        for j in range(X.shape[0]):
            A[i, j] = X[i, j]
            B[i, j] = X[i, j]
    for _ in range(steps.size):
        jacobi_sweep(A, B)
        jacobi_sweep(B, A)


@serial
def k_seidel_2d(X, steps, A):
    """In place and in order: each element waits for the one before it, and each row for the one above."""
    n = X.shape[0]
    for i in range(n):
        for j in range(n):
            A[i, j] = X[i, j]
    for _ in range(steps.size):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                # What does not wait comes first.
                ahead = A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1] + A[i, j] + A[i, j + 1]
                ahead += A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                A[i, j] = (ahead + A[i, j - 1]) / 9.0
