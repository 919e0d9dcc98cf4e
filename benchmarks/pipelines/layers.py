"""Layers of networks as Halide has them, and Fourier transforms of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pipelines import in_halide
from benchmarks.pipelines.pipeline import Pipeline, text, uniform
from benchmarks.workload import normal


def conv_layer(X: np.ndarray, F: np.ndarray, b: np.ndarray) -> np.ndarray:
    (h, w), total = (n - 2 for n in X.shape[1:3]), b
    for r in range(3):
        for s in range(3):
            total = total + X[:, r : r + h, s : s + w] @ F[r, s]
    return np.maximum(total, 0)


def depthwise_separable(X: np.ndarray, F: np.ndarray, P: np.ndarray, b: np.ndarray) -> np.ndarray:
    h, w = (n - 2 for n in X.shape[1:3])
    d = sum(X[:, r : r + h, s : s + w] * F[r, s] for r in range(3) for s in range(3))
    return np.maximum(d @ P + b, 0)


def conv_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    n, c, k = (5, 128, 128) if h > 50 else (2, 13, 17)
    return {"X": normal(rng, n, h + 2, w + 2, c), "F": normal(rng, 3, 3, c, k), "b": normal(rng, k)}


def depthwise_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    n, c, k = (4, 32, 16) if h > 50 else (2, 13, 17)
    return {"X": normal(rng, n, h + 2, w + 2, c), "F": normal(rng, 3, 3, c), "P": normal(rng, c, k), "b": normal(rng, k)}


def fft_tiles(X: np.ndarray, F: np.ndarray, T: np.ndarray) -> np.ndarray:
    h, w = X.shape
    z = np.fft.fft2(X.reshape(h // 16, 16, w // 16, 16), axes=(1, 3)).reshape(h, w)
    return np.stack([z.real, z.imag])


def fft_inputs(rng: Any, h: int, w: int) -> dict[str, np.ndarray]:
    turns = np.outer(np.arange(4), np.arange(4))
    tables = {n: np.exp(-2j * np.pi * turns / size).astype(np.complex64) for n, size in (("F", 4), ("T", 16))}
    return {"X": uniform(rng, h, w)} | tables


PIPELINES = (
    Pipeline(
        "conv_layer",
        "a layer of filters of 3×3, 128 channels, 5 pictures",
        text("conv_layer"),
        conv_layer,
        conv_inputs,
        lambda h, w: (5, h, w, 128) if h > 50 else (2, h, w, 17),
        tolerance=5e-5,
        full=(80, 100),
        small=(11, 7),
        halide=in_halide.conv_layer,
    ),
    Pipeline(
        "depthwise_separable",
        "filters of 3×3 for each of 32 channels, then 16 of all, 4 pictures",
        text("depthwise_separable"),
        depthwise_separable,
        depthwise_inputs,
        lambda h, w: (4, h, w, 16) if h > 50 else (2, h, w, 17),
        full=(112, 112),
        small=(11, 7),
        halide=in_halide.depthwise_separable,
    ),
    Pipeline(
        "fft_tiles",
        "Fourier transforms of tiles of 16×16",
        text("fft_tiles"),
        fft_tiles,
        fft_inputs,
        lambda h, w: (2, h, w),
        small=(48, 80),
    ),
)
