"""Filters of blocks in numba: each takes a block with the pixels around it that it needs, and returns what is inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, fastmath=True, cache=True)
def blur(block: Any) -> Any:
    height, width = block.shape[0] - 4, block.shape[1] - 4
    rows = np.empty((height + 4, width), np.float32)
    result = np.empty((height, width), np.float32)
    for y in range(height + 4):
        for x in range(width):
            rows[y, x] = block[y, x] + block[y, x + 1] + block[y, x + 2] + block[y, x + 3] + block[y, x + 4]
    for y in range(height):
        for x in range(width):
            total = rows[y, x] + rows[y + 1, x] + rows[y + 2, x] + rows[y + 3, x] + rows[y + 4, x]
            result[y, x] = total * np.float32(0.04)
    return result


@njit(nogil=True, fastmath=True, cache=True)
def unsharp(block: Any, weights: Any) -> Any:
    height, width = block.shape[0] - 6, block.shape[1] - 6
    rows = np.empty((height + 6, width), np.float32)
    result = np.empty((height, width), np.float32)
    for y in range(height + 6):
        for x in range(width):
            total = np.float32(0.0)
            for t in range(7):
                total += block[y, x + t] * weights[t]
            rows[y, x] = total
    for y in range(height):
        for x in range(width):
            total = np.float32(0.0)
            for t in range(7):
                total += rows[y + t, x] * weights[t]
            result[y, x] = np.float32(2.5) * block[y + 3, x + 3] - np.float32(1.5) * total
    return result


@njit(nogil=True, fastmath=True, cache=True)
def harris(block: Any) -> Any:
    height, width = block.shape[0] - 4, block.shape[1] - 4
    u = np.empty((height + 2, width + 2), np.float32)
    v = np.empty((height + 2, width + 2), np.float32)
    result = np.empty((height, width), np.float32)
    two = np.float32(2.0)
    for y in range(height + 2):
        for x in range(width + 2):
            left = block[y, x] + two * block[y + 1, x] + block[y + 2, x]
            u[y, x] = block[y, x + 2] + two * block[y + 1, x + 2] + block[y + 2, x + 2] - left
            top = block[y, x] + two * block[y, x + 1] + block[y, x + 2]
            v[y, x] = block[y + 2, x] + two * block[y + 2, x + 1] + block[y + 2, x + 2] - top
    for y in range(height):
        for x in range(width):
            a = b = c = np.float32(0.0)
            for r in range(3):
                for s in range(3):
                    p, q = u[y + r, x + s], v[y + r, x + s]
                    a += p * p
                    b += q * q
                    c += p * q
            result[y, x] = (a * b - c * c - np.float32(0.04) * (a + b) * (a + b)) * np.float32(1 / 81)
    return result


@njit(nogil=True, fastmath=True, cache=True)
def down(block: Any) -> Any:
    height, width = (block.shape[0] - 3) // 2, (block.shape[1] - 3) // 2
    rows = np.empty((height, block.shape[1]), np.float32)
    result = np.empty((height, width), np.float32)
    three, eighth = np.float32(3.0), np.float32(0.125)
    for y in range(height):
        for x in range(block.shape[1]):
            inner = block[2 * y + 2, x] + block[2 * y + 3, x]
            rows[y, x] = eighth * (block[2 * y + 1, x] + three * inner + block[2 * y + 4, x])
    for y in range(height):
        for x in range(width):
            inner = rows[y, 2 * x + 2] + rows[y, 2 * x + 3]
            result[y, x] = eighth * (rows[y, 2 * x + 1] + three * inner + rows[y, 2 * x + 4])
    return result


@njit(nogil=True, fastmath=True, cache=True)
def heat(block: Any) -> Any:
    height, width = block.shape[0] - 2, block.shape[1] - 2
    result = np.empty((height, width), np.float32)
    for y in range(height):
        for x in range(width):
            around = block[y, x + 1] + block[y + 2, x + 1] + block[y + 1, x] + block[y + 1, x + 2]
            result[y, x] = np.float32(0.5) * block[y + 1, x + 1] + np.float32(0.125) * around
    return result


@njit(nogil=True, fastmath=True, cache=True)
def assign(points: Any, means: Any) -> Any:
    """The number of the nearest of `means` for each point."""
    result = np.empty(points.shape[0], np.int64)
    for i in range(points.shape[0]):
        nearest = np.float32(np.inf)
        for k in range(means.shape[0]):
            distance = np.float32(0.0)
            for j in range(points.shape[1]):
                distance += (points[i, j] - means[k, j]) * (points[i, j] - means[k, j])
            if distance < nearest:
                nearest = distance
                result[i] = k
    return result


def load() -> None:
    """Compile all of them, or load what was compiled in an earlier process."""
    block = np.ones((8, 8), np.float32)
    for loops in (blur, harris, down, heat):
        loops(block)
    unsharp(block, block[0, :7].copy())
    assign(block, block)
