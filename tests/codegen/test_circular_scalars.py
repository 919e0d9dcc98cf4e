"""Circular functions of single numbers: their guard for large arguments passes no flags between functions, which LLVM cannot
move from one kind of register to the other where both are vectors of one."""

import numpy as np
import pytest

import polyc


@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_sine_and_cosine_behind_a_condition(dtype: str, n: int, target: str) -> None:
    text = f"""def f({dtype}(N) x) -> (C, S) {{
      C(i) = x(i) == 0.0 ? 1.0 : cos(x(i))
      S(i) = x(i) == 0.0 ? x(i) : sin(x(i))
    }}"""
    x = np.array([1e7, 0.5, -2e6, np.inf, np.nan][:n], "f4" if dtype == "float" else "f8")
    with np.errstate(invalid="ignore"):
        expected = np.cos(x), np.sin(x)
    for got, wanted in zip(polyc.compile(text, target=target)(x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
