"""Programs with two indices in one segment, against loops over the segments in NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import polyc

BOTH = "where i in ptr(b):ptr(b+1), j in ptr(b):ptr(b+1)"

ATTENTION = polyc.compile(f"""
def attention(float(T, D) Q, float(T, D) K, float(T, D) V, int32(P) ptr) -> (Y) {{
  S(i, j) +=! Q(i, d) * K(j, d) {BOTH}
  M(i) max=! S(i, j) {BOTH}
  L(i) +=! exp(S(i, j) - M(i)) {BOTH}
  Y(i, d) +=! exp(S(i, j) - M(i)) / L(i) * V(j, d) {BOTH}
}}
""")

COVARIANCE = polyc.compile("""
def covariance(float(T, D) X, int32(P) ptr) -> (C) {
  C(b, d, e) +=! X(p, d) * X(p, e) where p in ptr(b):ptr(b+1)
}
""")

SEGMENTS = ([0, 3, 3, 20, 21], [0, 21], [2, 5, 19], [0, 0], [21])
"""Empty ones, one giant one, elements outside of all, all empty, none."""


def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray, ptr: list[int]) -> np.ndarray:
    Y = np.zeros_like(Q)
    for i, j in pairwise(ptr):
        if i < j:
            S = Q[i:j] @ K[i:j].T
            S = np.exp(S - S.max(axis=1, keepdims=True))
            Y[i:j] = S / S.sum(axis=1, keepdims=True) @ V[i:j]
    return Y


@pytest.mark.parametrize("ptr", SEGMENTS, ids=str)
def test_attention_inside_segments(ptr: list[int]) -> None:
    rng = np.random.default_rng(1)
    Q, K, V = rng.standard_normal((3, 21, 5), np.float32)
    result = ATTENTION(Q, K, V, np.array(ptr, np.int32))
    np.testing.assert_allclose(result, attend(Q, K, V, ptr), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ptr", SEGMENTS, ids=str)
def test_products_inside_segments(ptr: list[int]) -> None:
    X = np.random.default_rng(2).standard_normal((21, 5)).astype(np.float32)
    expected = np.array([X[i:j].T @ X[i:j] for i, j in pairwise(ptr)], np.float32).reshape(-1, 5, 5)
    np.testing.assert_allclose(COVARIANCE(X, np.array(ptr, np.int32)), expected, rtol=1e-4, atol=1e-5)


def test_attention_over_no_elements() -> None:
    empty = np.zeros((0, 5), np.float32)
    assert ATTENTION(empty, empty, empty, np.array([0, 0, 0], np.int32)).shape == (0, 5)
