"""Loops over sparse rows and segments in numba, as in `benchmarks.polybench.numba_loops`.  Imported where numba is."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from benchmarks.polybench.numba_loops import inline, parallel

SCRATCH = {
    "gcn": lambda rows, features: ((rows,), (rows, features)),
    "sage": lambda rows, features: ((rows, features),),
    "gat": lambda rows, heads, features, entries: ((rows, heads, features), (rows, heads), (rows, heads), (entries, heads)),
}


@parallel
def spmv(v, c, ptr, x, y):
    for i in prange(y.size):
        y[i] = 0
        total = y[i]
        for p in range(ptr[i], ptr[i + 1]):
            total += v[p] * x[c[p]]
        y[i] = total


@parallel
def spmm(v, c, ptr, X, Y):
    for i in prange(Y.shape[0]):
        for n in range(Y.shape[1]):
            Y[i, n] = 0
        for p in range(ptr[i], ptr[i + 1]):
            factor, k = v[p], c[p]
            for n in range(Y.shape[1]):
                Y[i, n] += factor * X[k, n]


@parallel
def sddmm(v, c, ptr, U, V, w):
    for i in prange(ptr.size - 1):
        for p in range(ptr[i], ptr[i + 1]):
            j = c[p]
            w[p] = 0
            total = w[p]
            for k in range(U.shape[1]):
                total += U[i, k] * V[j, k]
            w[p] = v[p] * total


@parallel
def gcn(v, c, ptr, X, W, Y, R, H):
    for i in prange(R.size):
        R[i] = 0
        total = R[i]
        for p in range(ptr[i], ptr[i + 1]):
            total += v[p]
        R[i] = 1 / math.sqrt(total) if total > 0 else 0
    for i in prange(R.size):
        for f in range(X.shape[1]):
            H[i, f] = 0
        for p in range(ptr[i], ptr[i + 1]):
            k = c[p]
            factor = v[p] * R[k] * R[i]
            for f in range(X.shape[1]):
                H[i, f] += factor * X[k, f]
        for g in range(Y.shape[1]):
            Y[i, g] = 0
        for f in range(X.shape[1]):
            for g in range(Y.shape[1]):
                Y[i, g] += H[i, f] * W[f, g]
        for g in range(Y.shape[1]):
            Y[i, g] = max(Y[i, g], 0)


@inline
def add_rows(E, idx, begin, end, total):
    for d in range(total.size):
        total[d] = 0
    for p in range(begin, end):
        k = idx[p]
        for d in range(total.size):
            total[d] += E[k, d]


@parallel
def bag_sum(E, idx, ptr, Y):
    for b in prange(Y.shape[0]):
        add_rows(E, idx, ptr[b], ptr[b + 1], Y[b])


@parallel
def bag_mean(E, idx, ptr, Y):
    for b in prange(Y.shape[0]):
        add_rows(E, idx, ptr[b], ptr[b + 1], Y[b])
        count = max(ptr[b + 1] - ptr[b], 1)
        for d in range(Y.shape[1]):
            Y[b, d] /= count


@parallel
def bag_max(E, idx, ptr, Y):
    for b in prange(Y.shape[0]):
        begin, end = ptr[b], ptr[b + 1]
        for d in range(Y.shape[1]):
            Y[b, d] = E[idx[begin], d] if begin < end else 0
        for p in range(begin + 1, end):
            k = idx[p]
            for d in range(Y.shape[1]):
                Y[b, d] = max(Y[b, d], E[k, d])


@parallel
def bag_weighted(E, idx, ptr, w, Y):
    for b in prange(Y.shape[0]):
        for d in range(Y.shape[1]):
            Y[b, d] = 0
        for p in range(ptr[b], ptr[b + 1]):
            factor, k = w[p], idx[p]
            for d in range(Y.shape[1]):
                Y[b, d] += factor * E[k, d]


@parallel
def softmax(v, ptr, w):
    for i in prange(ptr.size - 1):
        begin, end = ptr[i], ptr[i + 1]
        if begin == end:
            continue
        high = v[begin]
        for p in range(begin + 1, end):
            high = max(high, v[p])
        total = high - high
        for p in range(begin, end):
            w[p] = math.exp(v[p] - high)
            total += w[p]
        for p in range(begin, end):
            w[p] /= total


@parallel
def gat(X, W, a, b, c, ptr, Y, T, A, B, E):
    N, H, F = T.shape
    for i in prange(N):
        for h in range(H):
            for f in range(F):
                T[i, h, f] = 0
        for k in range(X.shape[1]):
            for h in range(H):
                for f in range(F):
                    T[i, h, f] += X[i, k] * W[k, h, f]
        for h in range(H):
            A[i, h] = 0
            B[i, h] = 0
            for f in range(F):
                A[i, h] += T[i, h, f] * a[h, f]
                B[i, h] += T[i, h, f] * b[h, f]
            for f in range(F):
                Y[i, h, f] = 0
    for i in prange(N):
        begin, end = ptr[i], ptr[i + 1]
        if begin == end:
            continue
        for h in range(H):
            for p in range(begin, end):
                z = A[i, h] + B[c[p], h]
                E[p, h] = max(z, np.float32(0.2) * z)
            high = E[begin, h]
            for p in range(begin + 1, end):
                high = max(high, E[p, h])
            total = high - high
            for p in range(begin, end):
                E[p, h] = math.exp(E[p, h] - high)
                total += E[p, h]
            for p in range(begin, end):
                factor, j = E[p, h] / total, c[p]
                for f in range(F):
                    Y[i, h, f] += factor * T[j, h, f]


@parallel
def sage(X, W, U, bias, c, ptr, Y, M):
    for i in prange(Y.shape[0]):
        add_rows(X, c, ptr[i], ptr[i + 1], M[i])
        count = max(ptr[i + 1] - ptr[i], 1)
        for f in range(Y.shape[1]):
            Y[i, f] = bias[f]
        for k in range(X.shape[1]):
            own, mean = X[i, k], M[i, k] / np.float32(count)
            for f in range(Y.shape[1]):
                Y[i, f] += own * W[k, f] + mean * U[k, f]
        for f in range(Y.shape[1]):
            Y[i, f] = max(Y[i, f], 0)


@parallel
def mean_variance(x, ptr, mean, variance):
    for g in prange(mean.size):
        begin, end = ptr[g], ptr[g + 1]
        count = np.float32(max(end - begin, 1))
        mean[g] = 0
        total = mean[g]
        for p in range(begin, end):
            total += x[p]
        middle = total / count
        mean[g] = middle
        variance[g] = 0
        squares = variance[g]
        for p in range(begin, end):
            squares += (x[p] - middle) * (x[p] - middle)
        variance[g] = squares / count


@parallel
def argmax(x, ptr, best):
    for g in prange(best.size):
        place = ptr[g]
        for p in range(ptr[g] + 1, ptr[g + 1]):
            if x[p] > x[place]:
                place = p
        best[g] = place
