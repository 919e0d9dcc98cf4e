"""Vectors between two others along memory are put together from these instead of being loaded."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret

SUMS = {
    "three": "x(i) + x(i+1) + 2.0 * x(i+2)",
    "backwards": "x(N-1-i) + x(N-2-i) + 2.0 * x(N-3-i)",
    "five, with a gap": "x(i) - x(i+1) + 2.0 * x(i+3) * x(i+4) + x(i+9)",
    "too far apart": "x(i) + x(i+1) + x(i+2) + x(i+40)",
    "one at a border": "x(i) + x(i+1) + x(i+2) * (i > 2 ? x(i-3) : 2.0)",
}


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize("name", SUMS)
def test_values_are_those_of_the_interpreter(name: str, dtype: str) -> None:
    value = SUMS[name].replace("2.0", "2") if dtype == "int32" else SUMS[name]
    text = f"def f({dtype}(N) x) -> (y) {{ y(i) = {value} where i in 0:N-40 }}"
    for size in (41, 57, 73, 200, 1041):
        x = np.random.default_rng(1).integers(-9, 9, size).astype({"float": "f4", "double": "f8", "int32": "i4"}[dtype])
        for options in ({}, {"dynamic": True}, {"target": "x86-64-v2"}, {"target": "x86-64-v3"}):
            operator = polyc.compile(text, **options)
            (expected,) = interpret(operator.program, {"x": x}).values()
            np.testing.assert_array_equal(operator(x), expected)


def test_the_vector_in_the_middle_is_not_loaded() -> None:
    text = """def f(float(N) x, float(T) steps) -> (y) {
      A(0, i) = x(i)
      A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : A(t-1, i-1) + A(t-1, i) + A(t-1, i+1) where t in 1:T+1, i in 0:N
      y(i) = A(T, i) }"""
    code = polyc.compile(text, target="x86-64-v4").lower(N=1026, T=8).as_text("ll")
    assert "shufflevector <16 x float>" in code
    assert "shufflevector <8 x float>" not in polyc.compile(text, target="x86-64-v3").lower(N=1026, T=8).as_text("ll")
