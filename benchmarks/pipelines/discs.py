"""The disc of `max_filter`, in columns of two windows each."""

import numpy as np

RADIUS = 26
HALF = tuple(int(np.sqrt((RADIUS + 0.25) ** 2 - d * d)) for d in range(-RADIUS, RADIUS + 1))
"""Rows above and below the middle that the disc has in each of its columns."""
LEVEL = tuple(int(np.log2(2 * h + 1)) for h in HALF)
"""Two windows of so many rows, as a power of two, cover them."""
BELOW = tuple(h + 1 - 2**level for h, level in zip(HALF, LEVEL, strict=True))
"""Where the lower one of the two begins."""
