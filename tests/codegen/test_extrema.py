"""Maxima and minima of several values: NaN of any operand gets through, values are those of NumPy, NaN is tested for once."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

from .support import LEVELS

MEDIAN = """def f({t}(N) a, {t}(N) b, {t}(N) c, {t}(N) d) -> (y) {{
  y(i) = max(min(max(min(a(i), b(i)), min(c(i), d(i))), {half}), min(max(a(i), b(i)), max(c(i), d(i)))) }}"""


def median(a, b, c, d):
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    return np.maximum(np.minimum(low, 0.5), np.minimum(np.maximum(a, b), np.maximum(c, d)))


@pytest.mark.pairs
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("name", "dtype", "half"), [("float", "f4", "0.5"), ("double", "f8", "double(0.5)")])
@pytest.mark.parametrize("n", [1, 3, 16, 37])
def test_not_a_number_of_any_operand_gets_through(level: str, name: str, dtype: str, half: str, n: int) -> None:
    operator = polyc.compile(MEDIAN.format(t=name, half=half), target=level)
    rng = np.random.default_rng(n)
    arrays = [rng.standard_normal(n).astype(dtype) for _ in range(4)]
    for special in (np.nan, np.inf, -np.inf):
        for x in arrays:
            changed = [y.copy() if y is x else y for y in arrays]
            changed[next(k for k, y in enumerate(arrays) if y is x)][rng.integers(n)] = special
            np.testing.assert_array_equal(operator(*changed), median(*changed).astype(dtype))
    nothing = [np.full(n, np.nan, dtype)] * 4
    assert np.isnan(operator(*nothing)).all()


def test_three_operands_and_a_clamp() -> None:
    text = """def f(float(N) a, float(N) b, float(N) c) -> (y, z) {
      y(i) = max(a(i), min(b(i), c(i)))
      z(i) = min(max(a(i), 0.0), 6.0) }"""
    values = np.array([np.nan, -1, 0, 3, 7, np.inf, -np.inf], "f4")
    a, b, c = (x.ravel().copy() for x in np.meshgrid(values, values, values))
    y, z = polyc.compile(text)(a, b, c)
    np.testing.assert_array_equal(y, np.maximum(a, np.minimum(b, c)))
    np.testing.assert_array_equal(z, np.minimum(np.maximum(a, np.float32(0)), np.float32(6)))


def test_one_test_for_many_extrema() -> None:
    arrays = [np.zeros(64, "f4")] * 4
    text = polyc.compile(MEDIAN.format(t="float", half="0.5"), target="x86-64-v3").lower(*arrays).as_text("ll")
    n_maxima = text.count("call <8 x float> @llvm.x86.avx.max.ps.256(")
    assert (
        n_maxima and text.count("fcmp uno <8 x float>") == n_maxima // 2
    )  # of four maxima, four minima, two pairs of operands


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 16, 37])
def test_bounds_that_are_numbers_need_no_test_and_let_nan_through(level: str, n: int) -> None:
    text = """def f(float(N) a) -> (x, y, z) {
      x(i) = max(a(i), 0.0)
      y(i) = min(1.5, a(i))
      z(i) = min(max(-1.0, a(i)), 6.0) }"""
    operator = polyc.compile(text, target=level)
    values = np.array([np.nan, -2, -0.0, 0, 1.25, 3, 7, np.inf, -np.inf], "f4")
    a = np.resize(values, n)
    x, y, z = operator(a)
    np.testing.assert_array_equal(x, np.maximum(a, np.float32(0)))
    np.testing.assert_array_equal(y, np.minimum(np.float32(1.5), a))
    np.testing.assert_array_equal(z, np.clip(a, np.float32(-1), np.float32(6)))
    assert "fcmp uno" not in operator.lower(a).as_text("ll")


WINDOWS = """def f({t}(H,W) X) -> (A, B) {{
  A(i,j) max=! X(i+r,j+s) where r in 0:3, s in 0:3
  B(i,j) min=! X(i+r,j+s) where r in 0:3, s in 0:3 }}"""


@pytest.mark.pairs
@pytest.mark.parametrize("level", [*LEVELS, "x86-64-v4"])
@pytest.mark.parametrize(("name", "dtype"), [("float", "f4"), ("double", "f8")])
@pytest.mark.parametrize("width", [3, 9, 40, 75])
def test_not_a_number_in_any_place_of_a_window(level: str, name: str, dtype: str, width: int) -> None:
    operator = polyc.compile(WINDOWS.format(t=name), target=level)
    rng = np.random.default_rng(width)
    for share in (0, 0.02, 0.3, 1):
        x = rng.standard_normal((7, width)).astype(dtype)
        x[rng.random(x.shape) < share] = np.nan
        x[rng.random(x.shape) < 0.1] = np.inf
        views = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
        low, high = operator(x)[::-1]
        np.testing.assert_array_equal(high, views.max((2, 3)))
        np.testing.assert_array_equal(low, views.min((2, 3)))


def test_windows_on_top_of_what_was_there() -> None:
    text = "def f(float(N) x, float(N) s) -> (y) { y(i) = s(i)  y(i) max= pad(x(i+k), -1.0) where i in 0:N, k in 0:3 }"
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((2, 83)).astype("f4")
    x[5] = s[40] = s[82] = np.nan
    padded = np.concatenate([x, np.float32([-1, -1])])
    wanted = np.maximum(np.lib.stride_tricks.sliding_window_view(padded, 3).max(1), s)
    np.testing.assert_array_equal(polyc.compile(text)(x, s), wanted)


def test_a_window_takes_one_instruction_and_one_test_for_each_value() -> None:
    text = polyc.compile("def f(float(N) x) -> (y) { y(i) max=! x(i+k) where k in 0:5 }", target="x86-64-v4")
    lines = text.lower(np.zeros(4096, "f4")).as_text("s").splitlines()
    choices = sum("{%k" in line and "vcmp" not in line and "(%" not in line for line in lines)
    assert choices < sum("vmaxps" in line for line in lines) / 2


@pytest.mark.pairs
@pytest.mark.parametrize("level", ["host", "x86-64-v4", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("n", [5, 20, 37, 68, 103])
def test_maxima_of_rows_find_nan_wherever_it_is(level: str, dtype: str, n: int) -> None:
    text = f"def f({dtype}(N, D) X) -> (M, L) {{ M(n) max=! X(n, d)  L(n) min=! X(n, d) }}"
    x = np.tile(np.random.default_rng(n).standard_normal(n), (n + 1, 1)).astype({"float": "f4", "double": "f8"}[dtype])
    x[np.arange(n), np.arange(n)] = np.nan
    for dynamic in (False, True):
        m, least = polyc.compile(text, target=level, dynamic=dynamic)(x)
        assert np.isnan(m[:n]).all() and np.isnan(least[:n]).all()
        assert m[n] == x[n].max() and least[n] == x[n].min()
