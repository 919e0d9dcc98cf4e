"""Layers of neural networks, with channels last."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.program import Program, text
from benchmarks.workload import Arrays

LOOPS = "benchmarks.npbench.numba_networks"

LENET = {"conv1": (5, 5, 1, 6), "conv2": (5, 5, 6, 16)}
"""Shapes of the filters."""
DENSE = (120, 84, 10)
"""Widths of the dense layers."""


def convolve(x, weights):
    k, _, _, c_out = weights.shape
    n, height, width = x.shape[0], x.shape[1] - k + 1, x.shape[2] - k + 1
    result = np.zeros((n, height, width, c_out), x.dtype)
    for r in range(k):
        for s in range(k):
            result += x[:, r : r + height, s : s + width] @ weights[r, s]
    return result


def pool(x):
    n, height, width, c = x.shape
    return x[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, c).max(axis=(2, 4))


def lenet(input, conv1, conv1bias, conv2, conv2bias, fc1w, fc1b, fc2w, fc2b, fc3w, fc3b):
    x = pool(np.maximum(convolve(input, conv1) + conv1bias, 0))
    x = pool(np.maximum(convolve(x, conv2) + conv2bias, 0))
    x = np.maximum(x.reshape(len(x), -1) @ fc1w + fc1b, 0)
    return np.maximum(x @ fc2w + fc2b, 0) @ fc3w + fc3b


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def mlp(input, w1, b1, w2, b2, w3, b3):
    return softmax(np.maximum(np.maximum(input @ w1 + b1, 0) @ w2 + b2, 0) @ w3 + b3)


def normalise(x):
    """By the batch's mean and (this is NPBench's) the root of its standard deviation."""
    return (x - x.mean(axis=0)) / np.sqrt(x.std(axis=0) + x.dtype.type(1e-5))


def resnet(input, conv1, conv2, conv3):
    x = np.maximum(normalise(input @ conv1[0, 0]), 0)  # a border of zeros stays one, so it may come afterwards
    x = convolve(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), conv2)
    return np.maximum(normalise(np.maximum(normalise(x), 0) @ conv3[0, 0]) + input, 0)


def weights(rng, *shape):
    """Mean 0, and a deviation with which a layer keeps that of its input: a softmax of large sums would be 0 and 1 only."""
    return (rng.random(shape, np.float32) - np.float32(0.5)) * np.float32((12 / np.prod(shape[:-1])) ** 0.5)


def make_lenet(rng, N, H, W) -> Arrays:
    """Images and weights between 0 and 1."""
    flat = 16 * (((H - 4) // 2 - 4) // 2) * (((W - 4) // 2 - 4) // 2)
    arrays = {"input": rng.random((N, H, W, 1), np.float32)}
    for name, shape in LENET.items():
        arrays |= {name: rng.random(shape, np.float32), f"{name}bias": rng.random(shape[-1:], np.float32)}
    for layer, (rows, columns) in enumerate(zip((flat, *DENSE), DENSE, strict=False), 1):
        arrays |= {f"fc{layer}w": rng.random((rows, columns), np.float32), f"fc{layer}b": rng.random(columns, np.float32)}
    return arrays


def make_mlp(rng, C_in, N, S0, S1, S2) -> Arrays:
    arrays = {"input": rng.random((N, C_in), np.float32)}
    for layer, (rows, columns) in enumerate(((C_in, S0), (S0, S1), (S1, S2)), 1):
        arrays |= {f"w{layer}": weights(rng, rows, columns), f"b{layer}": rng.random(columns, np.float32)}
    return arrays


PROGRAMS = (
    Program(
        "lenet",
        "LeNet-5: two convolutions with pooling, three dense layers",
        text("lenet"),
        {"N": (2, 4, 8), "H": (17, 28, 56), "W": (19, 28, 56)},
        make_lenet,
        lenet,
        f"{LOOPS}.lenet",
        tolerance=2e-5,
        dtype="float32",
        entry="lenet",
    ),
    Program(
        "mlp",
        "three dense layers and a softmax",
        text("mlp"),
        {"C_in": (3, 3, 3), "N": (5, 8, 8), "S0": (19, 30_000, 30_000), "S1": (13, 2000, 10_000), "S2": (11, 2000, 10_000)},
        make_mlp,
        mlp,
        f"{LOOPS}.mlp",
        tolerance=2e-5,
        dtype="float32",
    ),
    Program(
        "resnet",
        "a bottleneck block with batch normalisation",
        text("resnet"),
        {"N": (3, 8, 8), "H": (5, 14, 28), "W": (4, 14, 28), "C1": (7, 32, 64), "C2": (3, 8, 16)},
        lambda rng, N, H, W, C1, C2: {
            "input": rng.random((N, H, W, C1), np.float32),
            "conv1": rng.random((1, 1, C1, C2), np.float32),
            "conv2": rng.random((3, 3, C2, C2), np.float32),
            "conv3": rng.random((1, 1, C2, C1), np.float32),
        },
        resnet,
        f"{LOOPS}.resnet",
        tolerance=1e-4,  # of a deviation that may be small
        dtype="float32",
        entry="resnet",
    ),
    Program(
        "softmax",
        "a softmax along the last of four dimensions",
        text("softmax"),
        {"N": (2, 16, 32), "H": (3, 16, 8), "SM": (13, 128, 256)},
        lambda rng, N, H, SM: {"x": rng.random((N, H, SM, SM), np.float32)},
        softmax,
        f"{LOOPS}.softmax",
        tolerance=2e-5,
        dtype="float32",
    ),
)
