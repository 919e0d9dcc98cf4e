"""The peers of numba: loops as somebody writes them who knows the machine and numba well.  Imported where numba is.

Every function takes the inputs of its workload, then the arrays that its results go to.  Outer loops are parallel, inner ones
go along memory, sums may be reassociated, intermediates are kept per row or per block of rows, matrix products are BLAS's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

parallel: Callable[..., Any] = njit(parallel=True, fastmath=True)
inline: Callable[..., Any] = njit(fastmath=True, inline="always")

ROW_BLOCK = 64
COLUMN_BLOCK = 512
TILE = 32


# -- rows


@parallel
def softmax(X, Y):
    for n in prange(X.shape[0]):
        top = X[n, 0]
        for d in range(X.shape[1]):
            top = max(top, X[n, d])
        total = np.float32(0)
        for d in range(X.shape[1]):
            e = math.exp(X[n, d] - top)
            Y[n, d] = e
            total += e
        factor = np.float32(1) / total
        for d in range(X.shape[1]):
            Y[n, d] *= factor


@inline
def normalise_row(x, G, B, y):
    total = np.float32(0)
    for d in range(x.size):
        total += x[d]
    mean = total / np.float32(x.size)
    squares = np.float32(0)
    for d in range(x.size):
        squares += (x[d] - mean) * (x[d] - mean)
    scale = np.float32(1) / math.sqrt(squares / np.float32(x.size) + np.float32(1e-5))
    for d in range(x.size):
        y[d] = (x[d] - mean) * scale * G[d] + B[d]


@parallel
def layernorm(X, G, B, Y):
    for n in prange(X.shape[0]):
        normalise_row(X[n], G, B, Y[n])


@parallel
def rmsnorm(X, G, Y):
    for n in prange(X.shape[0]):
        squares = np.float32(0)
        for d in range(X.shape[1]):
            squares += X[n, d] * X[n, d]
        scale = np.float32(1) / math.sqrt(squares / np.float32(X.shape[1]) + np.float32(1e-5))
        for d in range(X.shape[1]):
            Y[n, d] = X[n, d] * scale * G[d]


@parallel
def batchnorm(X, G, B, Y):
    count = np.float32(X.shape[0] * X.shape[2] * X.shape[3])
    for c in prange(X.shape[1]):
        total = np.float32(0)
        for n in range(X.shape[0]):
            for h in range(X.shape[2]):
                for w in range(X.shape[3]):
                    total += X[n, c, h, w]
        mean = total / count
        squares = np.float32(0)
        for n in range(X.shape[0]):
            for h in range(X.shape[2]):
                for w in range(X.shape[3]):
                    squares += (X[n, c, h, w] - mean) * (X[n, c, h, w] - mean)
        scale = G[c] / math.sqrt(squares / count + np.float32(1e-5))
        shift = B[c] - mean * scale
        for n in range(X.shape[0]):
            for h in range(X.shape[2]):
                for w in range(X.shape[3]):
                    Y[n, c, h, w] = X[n, c, h, w] * scale + shift


@parallel
def groupnorm(X, G, B, Y):
    groups = X.shape[1]
    count = np.float32(X.shape[2] * X.shape[3] * X.shape[4])
    for ng in prange(X.shape[0] * groups):
        n, g = ng // groups, ng % groups
        total = np.float32(0)
        for c in range(X.shape[2]):
            for h in range(X.shape[3]):
                for w in range(X.shape[4]):
                    total += X[n, g, c, h, w]
        mean = total / count
        squares = np.float32(0)
        for c in range(X.shape[2]):
            for h in range(X.shape[3]):
                for w in range(X.shape[4]):
                    squares += (X[n, g, c, h, w] - mean) * (X[n, g, c, h, w] - mean)
        factor = np.float32(1) / math.sqrt(squares / count + np.float32(1e-5))
        for c in range(X.shape[2]):
            scale = G[g, c] * factor
            shift = B[g, c] - mean * scale
            for h in range(X.shape[3]):
                for w in range(X.shape[4]):
                    Y[n, g, c, h, w] = X[n, g, c, h, w] * scale + shift


@inline
def gelu(z):
    inner = np.float32(0.7978845608) * (z + np.float32(0.044715) * z * z * z)
    return np.float32(0.5) * z * (np.float32(1) + math.tanh(inner))


@parallel
def gelu_bias(X, B, Y):
    for n in prange(X.shape[0]):
        for d in range(X.shape[1]):
            Y[n, d] = gelu(X[n, d] + B[d])


@parallel
def swiglu(A, B, Y):
    for n in prange(A.shape[0]):
        for d in range(A.shape[1]):
            Y[n, d] = A[n, d] / (np.float32(1) + math.exp(-A[n, d])) * B[n, d]


# -- reductions


@parallel
def dot(A, B, y):
    total = np.float32(0)
    for i in prange(A.size):
        total += A[i] * B[i]
    y[()] = total


@parallel
def sum_all(X, y):
    total = np.float32(0)
    for n in prange(X.shape[0]):
        row = np.float32(0)
        for d in range(X.shape[1]):
            row += X[n, d]
        total += row
    y[()] = total


@parallel
def sum_rows(X, Y):
    for n in prange(X.shape[0]):
        row = np.float32(0)
        for d in range(X.shape[1]):
            row += X[n, d]
        Y[n] = row


@parallel
def sum_columns(X, Y):
    for block in prange((X.shape[1] + COLUMN_BLOCK - 1) // COLUMN_BLOCK):
        begin, end = block * COLUMN_BLOCK, min(X.shape[1], (block + 1) * COLUMN_BLOCK)
        Y[begin:end] = 0
        for n in range(X.shape[0]):
            for d in range(begin, end):
                Y[d] += X[n, d]


@parallel
def argmax_rows(X, Y):
    for n in prange(X.shape[0]):
        place, top = 0, X[n, 0]
        for d in range(1, X.shape[1]):
            if X[n, d] > top:
                place, top = d, X[n, d]
        Y[n] = place


@parallel
def mean_var_rows(X, M, V):
    count = np.float32(X.shape[1])
    for n in prange(X.shape[0]):
        total = np.float32(0)
        for d in range(X.shape[1]):
            total += X[n, d]
        mean = total / count
        squares = np.float32(0)
        for d in range(X.shape[1]):
            squares += (X[n, d] - mean) * (X[n, d] - mean)
        M[n] = mean
        V[n] = squares / count


@parallel
def mean_var_columns(X, M, V):
    count = np.float32(X.shape[0])
    for block in prange((X.shape[1] + COLUMN_BLOCK - 1) // COLUMN_BLOCK):
        begin, end = block * COLUMN_BLOCK, min(X.shape[1], (block + 1) * COLUMN_BLOCK)
        M[begin:end] = 0
        V[begin:end] = 0
        for n in range(X.shape[0]):
            for d in range(begin, end):
                M[d] += X[n, d]
        for d in range(begin, end):
            M[d] /= count
        for n in range(X.shape[0]):
            for d in range(begin, end):
                V[d] += (X[n, d] - M[d]) * (X[n, d] - M[d])
        for d in range(begin, end):
            V[d] /= count


# -- blocks of layers


@parallel
def attention(X, Y, Z, O):
    scale = np.float32(1 / math.sqrt(X.shape[3]))
    for b in range(X.shape[0]):
        for h in range(X.shape[1]):
            scores = np.dot(X[b, h], Y[b, h].T)
            for q in prange(scores.shape[0]):
                top = scores[q, 0]
                for k in range(scores.shape[1]):
                    top = max(top, scores[q, k])
                total = np.float32(0)
                for k in range(scores.shape[1]):
                    e = math.exp((scores[q, k] - top) * scale)
                    scores[q, k] = e
                    total += e
                for k in range(scores.shape[1]):
                    scores[q, k] /= total
            np.dot(scores, Z[b, h], O[b, h])


@parallel
def residual_layernorm_linear(X, R, G, B, W, C, Y):
    hidden = np.empty_like(X)
    for n in prange(X.shape[0]):
        normalise_row(X[n] + R[n], G, B, hidden[n])
    np.dot(hidden, W.T, Y)
    for n in prange(Y.shape[0]):
        for d in range(Y.shape[1]):
            Y[n, d] += C[d]


@parallel
def linear_gelu_linear(X, W1, B1, W2, B2, Y):
    hidden = np.dot(X, W1.T)
    for n in prange(hidden.shape[0]):
        for d in range(hidden.shape[1]):
            hidden[n, d] = gelu(hidden[n, d] + B1[d])
    np.dot(hidden, W2.T, Y)
    for n in prange(Y.shape[0]):
        for d in range(Y.shape[1]):
            Y[n, d] += B2[d]


@njit(fastmath=True)
def qkv(X, P, Q, R, A, B, C):
    np.dot(X, P.T, A)
    np.dot(X, Q.T, B)
    np.dot(X, R.T, C)


@parallel
def padded_by_one(X):
    y = np.zeros((X.shape[0], X.shape[1], X.shape[2] + 2, X.shape[3] + 2), X.dtype)
    for nc in prange(X.shape[0] * X.shape[1]):
        n, c = nc // X.shape[1], nc % X.shape[1]
        y[n, c, 1:-1, 1:-1] = X[n, c]
    return y


@parallel
def conv3x3(X, F, Y):
    image = padded_by_one(X)
    filters = Y.shape[1]
    for nk in prange(Y.shape[0] * filters):
        n, k = nk // filters, nk % filters
        Y[n, k] = 0
        for c in range(image.shape[1]):
            for h in range(Y.shape[2]):
                for r in range(3):
                    for w in range(Y.shape[3]):
                        Y[n, k, h, w] += (
                            image[n, c, h + r, w] * F[k, c, r, 0]
                            + image[n, c, h + r, w + 1] * F[k, c, r, 1]
                            + image[n, c, h + r, w + 2] * F[k, c, r, 2]
                        )


@parallel
def conv_bn_relu(X, F, M, V, G, B, Y):
    conv3x3(X, F, Y)
    for nk in prange(Y.shape[0] * Y.shape[1]):
        n, k = nk // Y.shape[1], nk % Y.shape[1]
        scale = G[k] / math.sqrt(V[k] + np.float32(1e-5))
        for h in range(Y.shape[2]):
            for w in range(Y.shape[3]):
                Y[n, k, h, w] = max((Y[n, k, h, w] - M[k]) * scale + B[k], np.float32(0))


@inline
def relu(x):
    return max(x, np.float32(0))


@njit(fastmath=True)
def pointwise(hidden, F, Y):
    pixels = hidden.shape[2] * hidden.shape[3]
    for n in range(Y.shape[0]):
        np.dot(F, hidden[n].reshape(hidden.shape[1], pixels), Y[n].reshape(Y.shape[1], pixels))


@parallel
def conv3_conv1(X, F, G, Y):
    hidden = np.empty((X.shape[0], F.shape[0], X.shape[2], X.shape[3]), X.dtype)
    conv3x3(X, F, hidden)
    flat = hidden.reshape(-1)
    for i in prange(flat.size):
        flat[i] = relu(flat[i])
    pointwise(hidden, G, Y)


@parallel
def depthwise_separable(X, F, G, Y):
    image = padded_by_one(X)
    hidden = np.empty_like(X)
    for nc in prange(X.shape[0] * X.shape[1]):
        n, c = nc // X.shape[1], nc % X.shape[1]
        for h in range(X.shape[2]):
            for w in range(X.shape[3]):
                total = np.float32(0)
                for r in range(3):
                    for s in range(3):
                        total += image[n, c, h + r, w + s] * F[c, r, s]
                hidden[n, c, h, w] = relu(total)
    pointwise(hidden, G, Y)
    flat = Y.reshape(-1)
    for i in prange(flat.size):
        flat[i] = relu(flat[i])


# -- layouts


@inline
def transpose_tile(x, y, row, column):
    for j in range(column, min(column + TILE, x.shape[1])):
        for i in range(row, min(row + TILE, x.shape[0])):
            y[j, i] = x[i, j]


@parallel
def transpose(X, Y):
    for block in prange((X.shape[1] + TILE - 1) // TILE):
        for row in range(0, X.shape[0], TILE):
            transpose_tile(X, Y, row, block * TILE)


@parallel
def nchw_nhwc(X, Y):
    for n in prange(X.shape[0]):
        x, y = X[n].reshape(X.shape[1], -1), Y[n].reshape(-1, X.shape[1])
        for column in range(0, x.shape[1], TILE):
            for row in range(0, x.shape[0], TILE):
                transpose_tile(x, y, row, column)


@parallel
def nhwc_nchw(X, Y):
    for n in prange(X.shape[0]):
        x, y = X[n].reshape(-1, X.shape[3]), Y[n].reshape(X.shape[3], -1)
        for row in range(0, x.shape[0], TILE):
            for column in range(0, x.shape[1], TILE):
                transpose_tile(x, y, row, column)


@parallel
def permute_caebd(X, Y):
    for c in prange(X.shape[2]):
        for a in range(X.shape[0]):
            for b in range(X.shape[1]):
                for d in range(X.shape[3]):
                    for e in range(X.shape[4]):
                        Y[c, a, e, b, d] = X[a, b, c, d, e]


@parallel
def permute_dbeac(X, Y):
    for d in prange(X.shape[3]):
        for b in range(X.shape[1]):
            for e in range(X.shape[4]):
                for a in range(X.shape[0]):
                    for c in range(X.shape[2]):
                        Y[d, b, e, a, c] = X[a, b, c, d, e]


# -- look-ups and pooling


@parallel
def embedding(T, I, O):
    for b in prange(I.shape[0]):
        O[b] = 0
        for j in range(I.shape[1]):
            row = I[b, j]
            for d in range(T.shape[1]):
                O[b, d] += T[row, d]


@njit
def embedding_2(T, I, U, J, O, P):
    embedding(T, I, O)
    embedding(U, J, P)


@parallel
def maxpool(X, Y):
    for nc in prange(X.shape[0] * X.shape[1]):
        n, c = nc // X.shape[1], nc % X.shape[1]
        for h in range(Y.shape[2]):
            for w in range(Y.shape[3]):
                left = max(X[n, c, 2 * h, 2 * w], X[n, c, 2 * h + 1, 2 * w])
                Y[n, c, h, w] = max(left, max(X[n, c, 2 * h, 2 * w + 1], X[n, c, 2 * h + 1, 2 * w + 1]))


@parallel
def avgpool(X, Y):
    for nc in prange(X.shape[0] * X.shape[1]):
        n, c = nc // X.shape[1], nc % X.shape[1]
        for h in range(Y.shape[2]):
            for w in range(Y.shape[3]):
                left = X[n, c, 2 * h, 2 * w] + X[n, c, 2 * h + 1, 2 * w]
                Y[n, c, h, w] = np.float32(0.25) * (left + X[n, c, 2 * h, 2 * w + 1] + X[n, c, 2 * h + 1, 2 * w + 1])


# -- pictures


@inline
def binomial(a, b, c, d, e):
    return np.float32(0.0625) * (a + np.float32(4) * b + np.float32(6) * c + np.float32(4) * d + e)


@inline
def blur_along_x(X, begin, rows, strip):
    for y in range(rows + 4):
        for x in range(strip.shape[1]):
            line = X[begin + y]
            strip[y, x] = binomial(line[x], line[x + 1], line[x + 2], line[x + 3], line[x + 4])


@parallel
def blur(X, Y):
    for block in prange((Y.shape[0] + ROW_BLOCK - 1) // ROW_BLOCK):
        begin = block * ROW_BLOCK
        rows = min(ROW_BLOCK, Y.shape[0] - begin)
        strip = np.empty((ROW_BLOCK + 4, Y.shape[1]), X.dtype)
        blur_along_x(X, begin, rows, strip)
        for y in range(rows):
            for x in range(Y.shape[1]):
                Y[begin + y, x] = binomial(strip[y, x], strip[y + 1, x], strip[y + 2, x], strip[y + 3, x], strip[y + 4, x])


@parallel
def unsharp(X, Y):
    for block in prange((Y.shape[0] + ROW_BLOCK - 1) // ROW_BLOCK):
        begin = block * ROW_BLOCK
        rows = min(ROW_BLOCK, Y.shape[0] - begin)
        strip = np.empty((ROW_BLOCK + 4, Y.shape[1]), X.dtype)
        blur_along_x(X, begin, rows, strip)
        for y in range(rows):
            for x in range(Y.shape[1]):
                soft = binomial(strip[y, x], strip[y + 1, x], strip[y + 2, x], strip[y + 3, x], strip[y + 4, x])
                sharp = np.float32(4) * X[begin + y + 2, x + 2] - np.float32(3) * soft
                Y[begin + y, x] = min(max(sharp, np.float32(0)), np.float32(1))


@parallel
def harris(X, Y):
    for block in prange((Y.shape[0] + ROW_BLOCK - 1) // ROW_BLOCK):
        begin = block * ROW_BLOCK
        rows = min(ROW_BLOCK, Y.shape[0] - begin)
        u = np.empty((ROW_BLOCK + 2, Y.shape[1] + 2), X.dtype)
        v = np.empty_like(u)
        two = np.float32(2)
        for y in range(rows + 2):
            p, q, r = X[begin + y], X[begin + y + 1], X[begin + y + 2]
            for x in range(u.shape[1]):
                u[y, x] = (p[x + 2] - p[x]) + two * (q[x + 2] - q[x]) + (r[x + 2] - r[x])
                v[y, x] = (r[x] - p[x]) + two * (r[x + 1] - p[x + 1]) + (r[x + 2] - p[x + 2])
        for y in range(rows):
            for x in range(Y.shape[1]):
                xx = yy = xy = np.float32(0)
                for r in range(3):
                    for s in range(3):
                        a, b = u[y + r, x + s], v[y + r, x + s]
                        xx += a * a
                        yy += b * b
                        xy += a * b
                Y[begin + y, x] = xx * yy - xy * xy - np.float32(0.04) * (xx + yy) * (xx + yy)
