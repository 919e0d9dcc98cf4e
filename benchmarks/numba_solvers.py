"""Iterative solvers in numba, as in `benchmarks.polybench.numba_loops`: one function each, with loops that end where the
iteration does.  Imported where numba is.

Every function takes the inputs of its workload and its results; scratch is of the call, as a user would write it.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.polybench.numba_loops import parallel

SCRATCH: dict[str, object] = {}


@parallel
def solve_dense(A, b, T, eps, y, n):
    N = b.size
    r, p, q = b.copy(), b.copy(), np.empty_like(b)
    rr = 0.0
    for i in range(N):
        y[i] = 0.0
        rr += r[i] * r[i]
    step = 0
    while step < T - 1 and not rr < eps:
        for i in prange(N):
            total = 0.0
            for j in range(N):
                total += A[i, j] * p[j]
            q[i] = total
        pq = 0.0
        for i in range(N):
            pq += p[i] * q[i]
        alpha, new = rr / pq, 0.0
        for i in range(N):
            y[i] += alpha * p[i]
            r[i] -= alpha * q[i]
            new += r[i] * r[i]
        beta, rr = new / rr, new
        for i in range(N):
            p[i] = r[i] + beta * p[i]
        step += 1
    n[()] = step


@parallel
def solve_sparse(v, c, ptr, b, T, eps, y, n):
    N = b.size
    r, p, q = b.copy(), b.copy(), np.empty_like(b)
    rr = 0.0
    for i in range(N):
        y[i] = 0.0
        rr += r[i] * r[i]
    step = 0
    while step < T - 1 and not rr < eps:
        for i in prange(N):
            total = 0.0
            for k in range(ptr[i], ptr[i + 1]):
                total += v[k] * p[c[k]]
            q[i] = total
        pq = 0.0
        for i in range(N):
            pq += p[i] * q[i]
        alpha, new = rr / pq, 0.0
        for i in range(N):
            y[i] += alpha * p[i]
            r[i] -= alpha * q[i]
            new += r[i] * r[i]
        beta, rr = new / rr, new
        for i in range(N):
            p[i] = r[i] + beta * p[i]
        step += 1
    n[()] = step


@parallel
def find_eigenvector(A, b, T, eps, y, l, n):
    N = b.size
    w = np.empty_like(b)
    for i in range(N):
        y[i] = b[i]
    largest = 0.0
    step = 0
    while step < T - 1:
        for i in prange(N):
            total = 0.0
            for j in range(N):
                total += A[i, j] * y[j]
            w[i] = total
        m = 0.0
        for i in range(N):
            m = max(m, abs(w[i]))
        e = 0.0
        for i in range(N):
            e = max(e, abs(w[i] / m - y[i]))
        if e < eps:
            break
        largest = m
        for i in range(N):
            y[i] = w[i] / m
        step += 1
    l[()] = largest
    n[()] = step


@parallel
def find_nearest(X, centres, a, before):
    """The clusters of the points; the number of those that moved."""
    moved = 0
    for i in prange(X.shape[0]):
        best, place = 1e300, 0  # fast-math knows no infinity
        for k in range(centres.shape[0]):
            apart = 0.0
            for d in range(X.shape[1]):
                apart += (X[i, d] - centres[k, d]) ** 2
            if apart < best:
                best, place = apart, k
        moved += place != before[i]
        a[i] = place
    return moved


@parallel
def sum_clusters(X, a, totals, sizes):
    totals[:] = 0.0
    sizes[:] = 0.0
    for i in range(X.shape[0]):
        sizes[a[i]] += 1.0
        for d in range(X.shape[1]):
            totals[a[i], d] += X[i, d]


def find_means(X, start, T, y, a, n):
    totals, sizes = np.empty_like(start), np.empty(len(start))
    y[:] = start
    find_nearest(X, y, a, a)
    step = 0
    while step < T - 1:
        sum_clusters(X, a, totals, sizes)
        filled = sizes > 0
        y[filled] = totals[filled] / sizes[filled, None]
        if find_nearest(X, y, a, a) == 0:
            break
        step += 1
    n[()] = step


@parallel
def find_root(A, b, T, eps, y, n):
    N = b.size
    B, g = np.empty_like(A), np.empty_like(b)
    for i in range(N):
        y[i] = b[i]
    step = 0
    while step < T - 1:
        e = 0.0
        for i in prange(N):
            total = 0.0
            for j in range(N):
                total += A[i, j] * y[j]
                B[i, j] = A[i, j]
            g[i] = total + y[i] * y[i] * y[i] - b[i]
            B[i, i] += 3.0 * y[i] * y[i]
        for i in range(N):
            e = max(e, abs(g[i]))
        if e < eps:
            break
        for k in range(N):
            for i in prange(k + 1, N):
                f = B[i, k] / B[k, k]
                for j in range(k + 1, N):
                    B[i, j] -= f * B[k, j]
                g[i] -= f * g[k]
        for i in range(N - 1, -1, -1):
            total = g[i]
            for j in range(i + 1, N):
                total -= B[i, j] * g[j]
            g[i] = total / B[i, i]
        for i in range(N):
            y[i] -= g[i]
        step += 1
    n[()] = step
