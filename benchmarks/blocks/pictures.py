"""Pictures from Zarr to Zarr: filters with halos, beyond whose borders the nearest pixel counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.blocks.row import Chunk, Inputs, Noise, Peer, Row, Sizes

BLUR = """def blur(float(H, W) X) -> (Y) {
  R(y, x) +=! pad(X(y, x + t - 2), clamp) where x in 0:W, t in 0:5
  V(y, x) +=! pad(R(y + t - 2, x), clamp) where y in 0:H, t in 0:5
  Y(y, x) = V(y, x) / 25.0
}"""
UNSHARP = """def unsharp(float(H, W) X, float(7) w) -> (Y) {
  R(y, x) +=! pad(X(y, x + t - 3), clamp) * w(t) where x in 0:W
  B(y, x) +=! pad(R(y + t - 3, x), clamp) * w(t) where y in 0:H
  Y(y, x) = 2.5 * X(y, x) - 1.5 * B(y, x)
}"""
HARRIS = """def harris(float(H, W) X) -> (Y) {
  P(y, x) = pad(X(y - 2, x - 2), clamp) where y in 0:H + 4, x in 0:W + 4
  U(y, x) = P(y, x + 2) - P(y, x) + 2.0 * (P(y + 1, x + 2) - P(y + 1, x)) + P(y + 2, x + 2) - P(y + 2, x)
  V(y, x) = P(y + 2, x) - P(y, x) + 2.0 * (P(y + 2, x + 1) - P(y, x + 1)) + P(y + 2, x + 2) - P(y, x + 2)
  A(y, x) +=! U(y + r, x + s) * U(y + r, x + s) where r in 0:3, s in 0:3
  B(y, x) +=! V(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  C(y, x) +=! U(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  Y(y, x) = (A(y, x) * B(y, x) - C(y, x) * C(y, x) - 0.04 * (A(y, x) + B(y, x)) * (A(y, x) + B(y, x))) / 81.0
}"""
DOWN = """def down(float(H, W) X) -> (Y) {
  R(y, x) = 0.125 * (pad(X(2 * y - 1, x), clamp) + 3.0 * (X(2 * y, x) + pad(X(2 * y + 1, x), clamp))
      + pad(X(2 * y + 2, x), clamp)) where y in 0:(H + 1) / 2
  Y(y, x) = 0.125 * (pad(R(y, 2 * x - 1), clamp) + 3.0 * (R(y, 2 * x) + pad(R(y, 2 * x + 1), clamp))
      + pad(R(y, 2 * x + 2), clamp)) where x in 0:(W + 1) / 2
}"""

SIGMA = 1.5
SIZES = {
    "small": {"H": 90, "W": 100, "chunk": 32},
    "full": {"H": 10240, "W": 10240, "chunk": 2048},
    "large": {"H": 20_000, "W": 20_000, "chunk": 2048},
}


def gaussian() -> np.ndarray:
    """Seven weights, whose sum is 1."""
    weights = np.exp(-0.5 * (np.arange(-3, 4) / SIGMA) ** 2)
    return (weights / weights.sum()).astype(np.float32)


def make_picture(sizes: Sizes) -> dict[str, Any]:
    return {"X": Noise((sizes["H"], sizes["W"]), (sizes["chunk"], sizes["chunk"]), in_zarr=True)}


def blur_block(block: np.ndarray) -> np.ndarray:
    from scipy.ndimage import uniform_filter

    return uniform_filter(block, 5, mode="nearest")


def sharpen_block(block: np.ndarray) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return block + 1.5 * (block - gaussian_filter(block, SIGMA, mode="nearest", truncate=2.0))


def find_corners_in_block(block: np.ndarray) -> np.ndarray:
    from scipy.ndimage import sobel, uniform_filter

    u, v = sobel(block, 1), sobel(block, 0)
    a, b, c = (9.0 * uniform_filter(p, 3) for p in (u * u, v * v, u * v))
    return (a * b - c * c - 0.04 * (a + b) ** 2) / 81.0


def halve_block(block: np.ndarray) -> np.ndarray:
    """Two pixels around the block are given up, of the rest each second one is kept."""
    from scipy.ndimage import correlate1d

    weights = np.array([0.125, 0.375, 0.375, 0.125], block.dtype)
    for axis in (0, 1):
        block = correlate1d(block, weights, axis, origin=-1)
    return block[2:-2:2, 2:-2:2]


def overlap(block: Callable[[np.ndarray], np.ndarray], depth: int, inputs: Inputs, _: Sizes) -> Any:
    """A filter of blocks with as many more pixels around them."""
    return inputs["X"].map_overlap(block, depth=depth, boundary="nearest", meta=inputs["X"]._meta)


def halve_chunks(x: Any) -> tuple[Chunk, ...]:
    """Chunks of each second element, where all chunks but the last are even."""
    return tuple(tuple((n + 1) // 2 for n in lengths) for lengths in x.chunks)


def overlap_untrimmed(block: Callable[[np.ndarray], np.ndarray], depth: int, inputs: Inputs, chunks: Any = None) -> Any:
    """A filter of blocks with as many more pixels around them, which leaves these out itself."""
    x = inputs["X"]
    chunks = chunks or x.chunks
    return x.map_overlap(block, depth=depth, boundary="nearest", trim=False, chunks=chunks, meta=x._meta)


def in_scipy_halved(inputs: Inputs, _: Sizes) -> Any:
    return overlap_untrimmed(halve_block, 2, inputs, halve_chunks(inputs["X"]))


def in_numba(loops: str, depth: int, inputs: Inputs, sizes: Sizes) -> Any:
    """Loops of `numba_loops`."""
    from benchmarks.blocks import numba_loops

    block = getattr(numba_loops, loops)
    if loops == "unsharp":
        block = partial(block, weights=inputs["w"])
    return overlap_untrimmed(block, depth, inputs, halve_chunks(inputs["X"]) if loops == "down" else None)


def make_row(name: str, what: str, source: str, scipy: Peer, depth: int, scale: int = 1, tolerance: float = 2e-5) -> Row:
    def stored(sizes: Sizes) -> Chunk:
        return (sizes["chunk"] // scale,) * 2

    def make_inputs(sizes: Sizes) -> dict[str, Any]:
        return make_picture(sizes) | ({"w": gaussian()} if name == "unsharp" else {})

    peers = {"scipy": scipy, "numba": partial(in_numba, name, depth)}
    return Row(name, what, SIZES, source, make_inputs, peers, stored, tolerance)


ROWS = (
    make_row("blur", "means of 5×5 pixels", BLUR, partial(overlap, blur_block, 2), 2),
    make_row("unsharp", "a picture less its blur by a Gaussian of 7×7", UNSHARP, partial(overlap, sharpen_block, 3), 3),
    make_row(
        "harris", "response of corners: products of Sobel's derivatives", HARRIS, partial(overlap, find_corners_in_block, 2), 2
    ),
    make_row("down", "a step of a Gaussian pyramid: half as high and wide", DOWN, in_scipy_halved, 2, 2),
)
