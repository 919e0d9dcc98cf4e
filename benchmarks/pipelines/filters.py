"""Filters of pictures: blurs, corners, neighbours, maxima, and a histogram."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.pipelines import in_halide, in_opencv
from benchmarks.pipelines.pipeline import Pipeline, bordered, text, uniform, whole

THREE = np.uint16(3)
GAUSSIAN = np.exp(-0.5 * (np.arange(-3, 4) / 1.5) ** 2) / (np.sqrt(2 * np.pi) * 1.5)


def blur(X: np.ndarray) -> np.ndarray:
    r = (X[..., :-2] + X[..., 1:-1] + X[..., 2:]) // THREE
    return (r[:, :-2] + r[:, 1:-1] + r[:, 2:]) // THREE


def brightness(X: np.ndarray) -> np.ndarray:
    """Of red, green and blue."""
    return X[0] * X.dtype.type(0.299) + X[1] * X.dtype.type(0.587) + X[2] * X.dtype.type(0.114)


def along(a: np.ndarray, w: Any, axis: int) -> np.ndarray:
    """Sums of neighbours with weights `w`; shorter by ``len(w) - 1``."""
    n = a.shape[axis] - len(w) + 1
    return sum(w[t] * np.take(a, range(t, t + n), axis) for t in range(len(w)))


def unsharp(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    g = brightness(X)
    b = along(along(bordered(g, 3), w, 0), w, 1)
    return (2 * g - b) / g * X


def box(a: np.ndarray, n: int) -> np.ndarray:
    """Sums over `n` by `n` neighbours."""
    return along(along(a, [1] * n, -2), [1] * n, -1)


def sobel(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The derivative along rows, and that along columns."""
    u = along(g[..., 2:] - g[..., :-2], (1, 2, 1), -2)
    v = along(g[..., 2:, :] - g[..., :-2, :], (1, 2, 1), -1)
    return u, v


def harris(X: np.ndarray) -> np.ndarray:
    u, v = (d / 12 for d in sobel(brightness(X)))
    a, b, c = box(u * u, 3), box(v * v, 3), box(u * v, 3)
    return a * b - c * c - 0.04 * (a + b) * (a + b)


def linear_blur(X: np.ndarray) -> np.ndarray:
    light = np.where(X <= 0.04045, X / 12.92, ((X + 0.055) / 1.055) ** 2.4)
    b = box(bordered(light, 1), 3) / 9
    return np.where(b <= 0.0031308, 12.92 * b, 1.055 * b ** (1 / 2.4) - 0.055)


def iir_blur(X: np.ndarray, a: np.ndarray) -> np.ndarray:
    y = X.copy()
    for axis in (1, 2):
        rows = np.moveaxis(y, axis, 0)
        for order in (range(1, len(rows)), range(len(rows) - 2, -1, -1)):
            step = 1 if order.step > 0 else -1
            for i in order:
                rows[i] = (1 - a) * rows[i - step] + a * rows[i]
    return y


def nl_means(X: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Of each distance in turn, so that a few pictures are enough memory."""
    (_, h, w), wide = X.shape, bordered(X, 13)
    middle = wide[:, 10:-10, 10:-10]
    total, weights = np.zeros_like(X), np.zeros_like(X[0])
    for i in range(21):
        for j in range(21):
            # Beyond its border a picture is that of its nearest pixel, so the other one is cut out of the wider picture.
            other = wide[:, i : i + h + 6, j : j + w + 6]
            distance = box(((middle - other) ** 2).sum(0), 7)
            weight = np.exp(-s * distance)
            total += weight * other[:, 3:-3, 3:-3]
            weights += weight
    return total / weights


def histogram_equalisation(X: np.ndarray) -> np.ndarray:
    r, g, b = X.astype(np.int32)
    light = np.clip((77 * r + 150 * g + 29 * b + 128) // 256, 0, 255)
    u, v = (-43 * r - 85 * g + 128 * b + 128) // 256, (128 * r - 107 * g - 21 * b + 128) // 256
    counts = np.cumsum(np.bincount(light.ravel(), minlength=256))
    light = (counts * 255 // light.size)[light]
    channels = light + (359 * v + 128) // 256, light - (88 * u + 183 * v + 128) // 256, light + (454 * u + 128) // 256
    return np.clip(np.stack(channels), 0, 255).astype(np.uint8)


# -- a chain of stencils

STAGES = 32


def stencil_chain_text() -> str:
    """One statement for each stage: the sum over five by five pixels, modulo 2**16."""
    lines = ["def stencil_chain(uint16(H, W) S0) -> (S32) {"]
    for s in range(STAGES):
        terms = [f"uint16({(i + 1) * (j + 1)}) * S{s}(y + {i}, x + {j})" for i in range(5) for j in range(5)]
        lines.append(f"  S{s + 1}(y, x) = {' + '.join(terms)}")
    return "\n".join([*lines, "}"])


def stencil_chain(S0: np.ndarray) -> np.ndarray:
    a = S0
    for _ in range(STAGES):
        a = along(along(a, np.arange(1, 6, dtype=np.uint16), 0), np.arange(1, 6, dtype=np.uint16), 1)
    return a


PIPELINES = (
    Pipeline(
        "blur",
        "means of 3×3 pixels of 16 bits, in two directions",
        text("blur"),
        blur,
        lambda rng, h, w: {"X": whole(rng, 20000, "uint16", 3, h + 2, w + 2)},
        result_type="uint16",
        tolerance=0,
        halide=in_halide.blur,
        numba="benchmarks.pipelines.numba_loops.blur",
    ),
    Pipeline(
        "unsharp",
        "unsharp mask by a Gaussian of seven taps over the brightness",
        text("unsharp"),
        unsharp,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w, low=0.25, high=1.25), "w": GAUSSIAN.astype(np.float32)},
        halide=in_halide.unsharp,
        opencv=in_opencv.unsharp,
    ),
    Pipeline(
        "harris",
        "response of corners in colours",
        text("harris"),
        harris,
        lambda rng, h, w: {"X": uniform(rng, 3, h + 4, w + 4)},
        lambda h, w: (h, w),
        halide=in_halide.harris,
        opencv=in_opencv.harris,
    ),
    Pipeline(
        "stencil_chain",
        "32 stencils of 5×5 pixels of 16 bits, one behind the other",
        stencil_chain_text(),
        stencil_chain,
        lambda rng, h, w: {"S0": whole(rng, 65536, "uint16", h + 4 * STAGES, w + 4 * STAGES)},
        lambda h, w: (h, w),
        "uint16",
        tolerance=0,
        halide=in_halide.stencil_chain,
    ),
    Pipeline(
        "linear_blur",
        "means of 3×3 pixels in linear light, from sRGB to sRGB",
        text("linear_blur"),
        linear_blur,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w)},
        halide=in_halide.linear_blur,
    ),
    Pipeline(
        "iir_blur",
        "recursive blur down, up, forth and back",
        text("iir_blur"),
        iir_blur,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w), "a": np.array(0.25, np.float32)},
        halide=in_halide.iir_blur,
        numba="benchmarks.pipelines.numba_loops.iir_blur",
    ),
    Pipeline(
        "nl_means",
        "non-local means, windows of 7×7 in a neighbourhood of 21×21",
        text("nl_means"),
        nl_means,
        lambda rng, h, w: {"X": uniform(rng, 3, h, w), "s": np.array(0.1, np.float32)},
        tolerance=1e-4,
        halide=in_halide.nl_means,
        numba="benchmarks.pipelines.numba_loops.nl_means",
    ),
    Pipeline(
        "histogram_equalisation",
        "brightness of RGB in 8 bits spread evenly",
        text("histogram_equalisation"),
        histogram_equalisation,
        lambda rng, h, w: {"X": whole(rng, 158, "uint8", 3, h, w, begin=30)},
        result_type="uint8",
        tolerance=0,
        halide=in_halide.histogram_equalisation,
    ),
)
