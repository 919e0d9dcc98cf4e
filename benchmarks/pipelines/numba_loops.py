"""Pipelines in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.pipelines.discs import BELOW, HALF, LEVEL
from benchmarks.polybench.numba_loops import inline, parallel, serial

SCRATCH = {
    "max_filter": lambda rows, columns: ((3, 6, rows + 52, columns + 52),),
    "nl_means": lambda rows, columns: (
        (3, rows + 26, columns + 26),
        (rows + 6, columns + 6),
        (rows, columns + 6),
        (rows, columns),
    ),
}


@inline
def within(i, n):
    return min(max(i, 0), n - 1)


@parallel
def blur(X, Y):
    for n in prange(Y.shape[0] * Y.shape[1]):
        c, y = n // Y.shape[1], n % Y.shape[1]
        for x in range(Y.shape[2]):
            total = np.uint16(0)
            for r in range(3):
                total += np.uint16(X[c, y + r, x] + X[c, y + r, x + 1] + X[c, y + r, x + 2]) // np.uint16(3)
            Y[c, y, x] = total // np.uint16(3)


@parallel
def iir_blur(X, a, Y):
    take = np.float32(a)
    keep = np.float32(1) - take
    _, h, w = X.shape
    for c in prange(X.shape[0]):
        Y[c, 0] = X[c, 0]
        for y in range(1, h):
            for x in range(w):
                Y[c, y, x] = keep * Y[c, y - 1, x] + take * X[c, y, x]
        for y in range(h - 2, -1, -1):
            for x in range(w):
                Y[c, y, x] = keep * Y[c, y + 1, x] + take * Y[c, y, x]
        for y in range(h):
            for x in range(1, w):
                Y[c, y, x] = keep * Y[c, y, x - 1] + take * Y[c, y, x]
            for x in range(w - 2, -1, -1):
                Y[c, y, x] = keep * Y[c, y, x + 1] + take * Y[c, y, x]


@serial
def distance(X, Y):
    h, w = Y.shape
    step, diagonal, far = np.float32(0.955), np.float32(1.3693), np.float32(8192)
    for y in range(h):
        for x in range(w):
            d = np.float32(0) if X[y, x] == 0 else far
            if y > 0:
                d = min(d, Y[y - 1, x] + step)
                if x > 0:
                    d = min(d, Y[y - 1, x - 1] + diagonal)
                if x < w - 1:
                    d = min(d, Y[y - 1, x + 1] + diagonal)
            if x > 0:
                d = min(d, Y[y, x - 1] + step)
            Y[y, x] = d
    for y in range(h - 1, -1, -1):
        for x in range(w - 1, -1, -1):
            d = Y[y, x]
            if y < h - 1:
                d = min(d, Y[y + 1, x] + step)
                if x > 0:
                    d = min(d, Y[y + 1, x - 1] + diagonal)
                if x < w - 1:
                    d = min(d, Y[y + 1, x + 1] + diagonal)
            if x < w - 1:
                d = min(d, Y[y, x + 1] + step)
            Y[y, x] = d


@parallel
def max_filter(X, Y, M):
    _, h, w = X.shape
    for c in prange(X.shape[0]):
        for y in range(h + 52):
            for x in range(w + 52):
                M[c, 0, y, x] = X[c, within(y - 26, h), within(x - 26, w)]
        for s in range(5):
            n = 1 << s
            for y in range(h + 53 - 2 * n):
                for x in range(w + 52):
                    M[c, s + 1, y, x] = max(M[c, s, y, x], M[c, s, y + n, x])
        for y in range(h):
            Y[c, y] = M[c, 0, y, 26 : w + 26]
            for d in range(53):
                level, above, below = LEVEL[d], y + 26 - HALF[d], y + 26 + BELOW[d]
                for x in range(w):
                    Y[c, y, x] = max(Y[c, y, x], max(M[c, level, above, x + d], M[c, level, below, x + d]))


@parallel
def nl_means(X, s, Y, wide, D, V, weights):
    scale = np.float32(s)
    _, h, w = X.shape
    for c in range(3):
        for y in prange(h + 26):
            for x in range(w + 26):
                wide[c, y, x] = X[c, within(y - 13, h), within(x - 13, w)]
    Y[:] = 0
    weights[:] = 0
    for i in range(21):
        for j in range(21):
            for y in prange(h + 6):
                for x in range(w + 6):
                    total = np.float32(0)
                    for c in range(3):
                        e = wide[c, y + 10, x + 10] - wide[c, y + i, x + j]
                        total += e * e
                    D[y, x] = total
            for y in prange(h):
                for x in range(w + 6):
                    V[y, x] = D[y, x] + D[y + 1, x] + D[y + 2, x] + D[y + 3, x] + D[y + 4, x] + D[y + 5, x] + D[y + 6, x]
                for x in range(w):
                    near = V[y, x] + V[y, x + 1] + V[y, x + 2] + V[y, x + 3] + V[y, x + 4] + V[y, x + 5] + V[y, x + 6]
                    weight = np.exp(-scale * near)
                    weights[y, x] += weight
                    for c in range(3):
                        Y[c, y, x] += weight * wide[c, y + 3 + i, x + 3 + j]
    for y in prange(h):
        for c in range(3):
            for x in range(w):
                Y[c, y, x] /= weights[y, x]
