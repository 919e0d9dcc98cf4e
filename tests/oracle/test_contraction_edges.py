"""Products and padded windows at sizes 0, 1 and primes, on turned arrays, with NaN, called and bound."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

PRODUCT = "def f(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }"
WINDOWS = """def f(float(C,H,W) x, float(K,C,3,3) w) -> (O) {
  O(k,h,v) +=! pad(x(c,h+r-1,v+s-1), 0.0) * w(k,c,r,s) where h in 0:H, v in 0:W }"""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("sizes", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (1, 1, 1), (1, 97, 13), (97, 1, 13), (31, 37, 101)])
def test_products_of_arrays_in_either_order_of_memory(sizes):
    m, n, k = sizes
    a, b = normal(k, m), normal(n, k)
    product = polyc.compile(PRODUCT, dynamic=False)
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        np.testing.assert_allclose(product(x, y), x.T @ y.T, atol=1e-3)


def test_nan_and_infinities_reach_their_results_and_no_others():
    a, b = normal(40, 33), normal(35, 40)
    a[3, 5], b[7, 9] = np.nan, np.inf
    found = polyc.compile(PRODUCT, dynamic=False)(a, b)
    touched = np.zeros(found.shape, bool)
    touched[5], touched[:, 7] = True, True
    np.testing.assert_array_equal(np.isfinite(found), ~touched)


@pytest.mark.parametrize("sizes", [(0, 5, 5, 4), (3, 1, 1, 4), (3, 0, 5, 4), (1, 7, 13, 1), (5, 11, 17, 33)])
def test_padded_windows_called_and_bound(sizes):
    c, h, v, k = sizes
    x, w = normal(c, h, v), normal(k, c, 3, 3)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    expected = sum(np.einsum("chv,kc->khv", padded[:, r : r + h, s : s + v], w[:, :, r, s]) for r in range(3) for s in range(3))
    windows = polyc.compile(WINDOWS, dynamic=False)
    np.testing.assert_allclose(windows(x, w), expected, atol=1e-3)
    np.testing.assert_allclose(windows.bind(w=w)(x), expected, atol=1e-3)
