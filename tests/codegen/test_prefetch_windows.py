"""Windows that are read under masks are prefetched: hardware does not follow masked loads."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import polyc

MEAN = """def mean(float(C, H, W) X) -> (Y) {
  S(c, h, w) +=! pad(X(c, h + r - 1, w + s - 1), 0.0) where r in 0:3, s in 0:3, h in 0:H, w in 0:W
  Y(c, h, w) = S(c, h, w) / 9.0
}"""
MAXIMUM = MEAN.replace("+=!", "max=!").replace("0.0)", "-1000000.0)").replace("/ 9.0", "* 1.0")


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.each
@pytest.mark.parametrize("source", [MEAN, MAXIMUM])
@pytest.mark.parametrize("shape", [(64, 112, 112), (9, 200, 150), (300000, 1, 1), (2, 700, 300), (0, 5, 5)])
def test_prefetched_windows_are_right(source: str, shape: tuple[int, int, int]):
    x = images(*shape)
    fill = 0.0 if source is MEAN else -1e6
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=fill)
    windows = [wide[:, r : r + shape[1], s : s + shape[2]] for r, s in product(range(3), repeat=2)]
    expected = np.sum(windows, axis=0) / 9 if source is MEAN else np.max(windows, axis=0)
    for dynamic in (False, True):
        np.testing.assert_allclose(polyc.compile(source, dynamic=dynamic)(x), expected, rtol=1e-5, atol=1e-6)
