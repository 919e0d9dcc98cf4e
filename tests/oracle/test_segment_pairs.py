"""Products of two rows of one segment, summed over the segment, against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import polyc

COVARIANCE = polyc.compile("""
def covariance(float(T, D) X, int32(P) ptr) -> (C) {
  C(b, d, e) +=! X(p, d) * X(p, e) where p in ptr(b):ptr(b+1)
}
""")

SEGMENTS = ([0, 3, 3, 20, 21], [0, 21], [2, 5, 19], [0, 0], [21])
"""Empty ones, one giant one, elements outside of all, all empty, none."""


@pytest.mark.parametrize("ptr", SEGMENTS, ids=str)
def test_products_inside_segments(ptr: list[int]) -> None:
    X = np.random.default_rng(2).standard_normal((21, 5)).astype(np.float32)
    expected = np.array([X[i:j].T @ X[i:j] for i, j in pairwise(ptr)], np.float32).reshape(-1, 5, 5)
    np.testing.assert_allclose(COVARIANCE(X, np.array(ptr, np.int32)), expected, rtol=1e-4, atol=1e-5)
