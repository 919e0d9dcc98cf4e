"""Exponentials whose arguments are known not to be positive take a shorter way where there is no AVX-512."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

SOFTMAX = """def f(float(N, D) X) -> (Y) {{
  M(n) max=! {value}
  Y(n, d) = exp({argument})
}}"""


def is_marked(value: str, argument: str, level: str = "x86-64-v3") -> bool:
    text = SOFTMAX.format(value=value, argument=argument)
    loops: str = polyc.compile(text, target=level).lower(np.zeros((9, 70), "f4")).as_text("loops")
    return "exp_below(" in loops


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        ("X(n, d)", "X(n, d) - M(n)"),
        ("X(n, d)", "-M(n) + X(n, d)"),
        ("X(n, d)", "(X(n, d) - M(n)) * 0.5"),
        ("X(n, d) * X(n, d)", "X(n, d) * X(n, d) - M(n)"),
    ],
)
def test_what_is_a_value_less_its_maximum(value: str, argument: str) -> None:
    assert is_marked(value, argument)
    assert not is_marked(value, argument, "x86-64-v4")


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        ("X(n, d)", "M(n) - X(n, d)"),
        ("X(n, d)", "X(n, d) - M(n) + 100.0"),
        ("X(n, d)", "2.0 * X(n, d) - M(n)"),
        ("X(n, d)", "(X(n, d) - M(n)) * -1.0"),
        ("X(n, d) where d in 0:10", "X(n, d) - M(n)"),
        ("X(n, d + 1)", "X(n, d) - M(n)"),
    ],
)
def test_what_may_be_positive(value: str, argument: str) -> None:
    assert not is_marked(value, argument)


@pytest.mark.parametrize("level", ["host", "x86-64-v2", "x86-64-v3"])
def test_special_rows(level: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 70)).astype("f4") * 10
    x[0], x[1, 3], x[2, 5], x[4] = -np.inf, np.inf, np.nan, -3e38
    x[5, ::2], x[6], x[7] = -np.inf, x[6] * 1e5, x[7] * 8
    with np.errstate(all="ignore"):
        want = np.exp((x - x.max(axis=1, keepdims=True)).astype("f8"))
    found = polyc.compile(SOFTMAX.format(value="X(n, d)", argument="X(n, d) - M(n)"), target=level)(x)
    np.testing.assert_allclose(found, want.astype("f4"), rtol=3e-7, atol=2e-45)
