"""Independent statements over the same data share a pass."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc

PRODUCTS = "def f(float(M, K) X, float(K) a, float(K) b) -> (U, V) { U(m) +=! X(m, k) * a(k)  V(m) +=! X(m, k) * b(k) }"
TURNED = "def f(float(M, K) X, float(M) a, float(M) b) -> (U, V) { U(k) +=! X(m, k) * a(m)  V(k) +=! X(m, k) * b(m) }"
COLUMNS = "def f(float(M, K) X) -> (U, V, W) { U(k) +=! X(m, k)  V(k) max=! X(m, k)  W(k) +=! X(m, k) * X(m, k) }"
SIZES = [(1, 1), (3, 5), (4, 16), (5, 17), (8, 700), (9, 701), (130, 333), (67, 1025)]


def matrix(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, columns), np.float32)


def loops(source: str, *arrays: np.ndarray, **options: str) -> str:
    text: str = polyc.compile(source, **options).lower(*arrays).as_text("loops")
    return text


def test_sums_along_rows_share_rows_of_a_tile() -> None:
    x = matrix(512, 2048)
    text = loops(PRODUCTS, x, x[0], x[1], target="x86-64-v3")
    assert re.search(r"unroll\(at most \d\) .*\n\s+U\[.*\n\s+V\[", text)
    assert text.count("registers U from 0.0 V from 0.0") == 1


def test_sums_down_columns_add_several_rows_at_once() -> None:
    x = matrix(512, 4096)
    for source, arrays in ((TURNED, (x, x[:, 0].copy(), x[:, 1].copy())), (COLUMNS, (x,))):
        assert re.search(r"vector\(.*\n\s+unroll\(at most 8\) .*\n\s+U\[.*\n\s+V\[", loops(source, *arrays, target="x86-64-v3"))


@pytest.mark.parametrize("rows, columns", SIZES)
@pytest.mark.parametrize("level", ["host", "x86-64-v2"])
def test_sums_that_share_a_pass(rows: int, columns: int, level: str) -> None:
    x = matrix(rows, columns)
    a, b = matrix(2, columns)
    u, v = polyc.compile(PRODUCTS, target=level)(x, a, b)
    np.testing.assert_allclose(u, x @ a, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(v, x @ b, rtol=1e-4, atol=1e-3)
    a, b = matrix(2, rows)
    u, v = polyc.compile(TURNED, target=level)(x, a, b)
    np.testing.assert_allclose(u, a @ x, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(v, b @ x, rtol=1e-4, atol=1e-3)
    u, v, w = polyc.compile(COLUMNS, target=level)(x)
    np.testing.assert_allclose(u, x.sum(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(v, x.max(0))
    np.testing.assert_allclose(w, (x * x).sum(0), rtol=1e-4, atol=1e-3)
