"""Layers of networks in numba, as in `benchmarks.polybench.numba_loops`: imported where numba is."""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from benchmarks.polybench.numba_loops import Shapes, inline, parallel

STRIP = 512
"""Columns of a dense layer that are summed at a time."""


def _shapes_lenet(N: int, H: int, W: int) -> Shapes:
    h, w = (H - 4) // 2, (W - 4) // 2
    return (N, H - 4, W - 4, 6), (N, h, w, 6), (N, h - 4, w - 4, 16), (N, (h - 4) // 2, (w - 4) // 2, 16), (N, 120), (N, 84)


SCRATCH = {
    "lenet": _shapes_lenet,
    "mlp": lambda C_in, N, S0, S1, S2: ((N, S0), (N, S1)),
    "resnet": lambda N, H, W, C1, C2: ((N, H + 2, W + 2, C2), (N, H, W, C2), (H, W, C2), (H, W, C2), (H, W, C1), (H, W, C1)),
}


@inline
def convolve_image(x, weights, y):
    """``y = x * weights``, of an image with its channels last."""
    k, _, c_in, c_out = weights.shape
    for h in range(y.shape[0]):
        for w in range(y.shape[1]):
            for c in range(c_out):
                y[h, w, c] = 0.0
            for r in range(k):
                for s in range(k):
                    for i in range(c_in):
                        for c in range(c_out):
                            y[h, w, c] += x[h + r, w + s, i] * weights[r, s, i, c]


@inline
def pool_image(x, bias, y):
    """``y``: greatest of 2 x 2 points of ``max(x + bias, 0)``."""
    for h in range(y.shape[0]):
        for w in range(y.shape[1]):
            for c in range(y.shape[2]):
                top = max(x[2 * h, 2 * w, c], x[2 * h, 2 * w + 1, c])
                top = max(top, max(x[2 * h + 1, 2 * w, c], x[2 * h + 1, 2 * w + 1, c]))
                y[h, w, c] = max(top + bias[c], 0.0)


@inline
def fill_strip(x, weights, bias, floor, y):
    """``y = max(x weights + bias, floor)``, all rows at once: weights are read once."""
    n, columns = y.shape
    for r in range(n):
        for c in range(columns):
            y[r, c] = bias[c]
    for k in range(weights.shape[0]):
        for r in range(n):
            for c in range(columns):
                y[r, c] += x[r, k] * weights[k, c]
    for r in range(n):
        for c in range(columns):
            y[r, c] = max(y[r, c], floor)


@parallel
def fill_dense(x, weights, bias, floor, y):
    """A dense layer, some columns at a time."""
    columns = bias.size
    for strip in prange((columns + STRIP - 1) // STRIP):
        first, last = strip * STRIP, min(strip * STRIP + STRIP, columns)
        fill_strip(x, weights[:, first:last], bias[first:last], floor, y[:, first:last])


@parallel
def fill_features(x, conv1, bias1, conv2, bias2, a, p, b, q):
    for n in prange(x.shape[0]):
        convolve_image(x[n], conv1, a[n])
        pool_image(a[n], bias1, p[n])
        convolve_image(p[n], conv2, b[n])
        pool_image(b[n], bias2, q[n])


def lenet(x, conv1, bias1, conv2, bias2, fc1w, fc1b, fc2w, fc2b, fc3w, fc3b, scores, a, p, b, q, y, z):
    fill_features(x, conv1, bias1, conv2, bias2, a, p, b, q)
    fill_dense(q.reshape(len(q), -1), fc1w, fc1b, 0.0, y)
    fill_dense(y, fc2w, fc2b, 0.0, z)
    fill_dense(z, fc3w, fc3b, -np.inf, scores)


@inline
def normalise_row(x):
    """The softmax of a row, in its place."""
    top = x[0]
    for k in range(x.size):
        top = max(top, x[k])
    total = x.dtype.type(0)
    for k in range(x.size):
        x[k] = math.exp(x[k] - top)
        total += x[k]
    for k in range(x.size):
        x[k] /= total


@parallel
def normalise_rows(x):
    for n in prange(x.shape[0]):
        normalise_row(x[n])


def mlp(x, w1, b1, w2, b2, w3, b3, probability, y, z):
    fill_dense(x, w1, b1, 0.0, y)
    fill_dense(y, w2, b2, 0.0, z)
    fill_dense(z, w3, b3, -np.inf, probability)
    normalise_rows(probability)


@parallel
def softmax(x, y):
    for row in prange(x.shape[0] * x.shape[1]):
        n, h = row // x.shape[1], row % x.shape[1]
        for s in range(x.shape[2]):
            for k in range(x.shape[3]):
                y[n, h, s, k] = x[n, h, s, k]
            normalise_row(y[n, h, s])


@inline
def multiply_points(x, weights, y):
    """``y = x weights`` at every point of a row."""
    for w in range(x.shape[0]):
        for c in range(y.shape[1]):
            y[w, c] = 0.0
        for i in range(x.shape[1]):
            for c in range(y.shape[1]):
                y[w, c] += x[w, i] * weights[i, c]


@inline
def moments(x, h, d, mean, scale):
    """Of a batch along row `h` of an image, the mean and what differences are multiplied by; `d`: width of a border."""
    n = x.shape[0]
    for w in range(mean.shape[0]):
        for c in range(mean.shape[1]):
            mean[w, c] = 0.0
            scale[w, c] = 0.0
    for b in range(n):
        for w in range(mean.shape[0]):
            for c in range(mean.shape[1]):
                mean[w, c] += x[b, h + d, w + d, c] / n
    for b in range(n):
        for w in range(mean.shape[0]):
            for c in range(mean.shape[1]):
                scale[w, c] += (x[b, h + d, w + d, c] - mean[w, c]) ** 2
    for w in range(mean.shape[0]):
        for c in range(mean.shape[1]):
            scale[w, c] = 1.0 / math.sqrt(math.sqrt(scale[w, c] / n) + 1e-5)


@inline
def normalise_batch(x, h, d, mean, scale):
    """``max(normalised x, 0)`` along row `h`, in its place."""
    moments(x, h, d, mean, scale)
    for b in range(x.shape[0]):
        for w in range(mean.shape[0]):
            for c in range(mean.shape[1]):
                x[b, h + d, w + d, c] = max((x[b, h + d, w + d, c] - mean[w, c]) * scale[w, c], 0.0)


@parallel
def resnet(x, conv1, conv2, conv3, y, a, b, mean, scale, mean3, scale3):
    n, height = x.shape[0], x.shape[1]
    for h in prange(height):  # the border of `a` stays 0
        for i in range(n):
            multiply_points(x[i, h], conv1[0, 0], a[i, h + 1, 1:-1])
        normalise_batch(a, h, 1, mean[h], scale[h])
    for h in prange(height):
        for i in range(n):
            convolve_image(a[i, h : h + 3], conv2, b[i, h : h + 1])
        normalise_batch(b, h, 0, mean[h], scale[h])
        for i in range(n):
            multiply_points(b[i, h], conv3[0, 0], y[i, h])
        moments(y, h, 0, mean3[h], scale3[h])
        for i in range(n):
            for w in range(y.shape[2]):
                for c in range(y.shape[3]):
                    y[i, h, w, c] = max((y[i, h, w, c] - mean3[h, w, c]) * scale3[h, w, c] + x[i, h, w, c], 0.0)
