"""Constants in the order in which kernels read them."""

from __future__ import annotations

import numpy as np

from polyc.runtime import memory


def lay_in_panels(array: np.ndarray, dimension: int, size: int) -> np.ndarray:
    """``[…, n, …]`` → ``[n / size, …, …, size]``, the last panel filled up with zeros (`poly.storage.Panel`)."""
    moved = np.moveaxis(array, dimension, -1)
    *others, extent = moved.shape
    count = -(-extent // size)
    result = memory.allocate_result((count, *others, size), array.dtype)
    whole = extent // size
    split = moved[..., : whole * size].reshape(*others, whole, size)
    result[:whole] = np.moveaxis(split, -2, 0)
    if count > whole:
        result[whole] = 0
        result[whole, ..., : extent - whole * size] = moved[..., whole * size :]
    return result
