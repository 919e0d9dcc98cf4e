"""Conditions on indices leave vector loops; what is computed stays."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret

CASES = {
    "rows": "i == 2 || j == 0 || j == M-1 ? x(i, j) : 2 * x(i, j)",
    "first": "j == 0 ? x(i, j) : x(i, j) + x(i, j-1)",
    "last": "M-1 == j ? x(i, j) : x(i, j) + x(i, j+1)",
    "fixed": "i < 2 ? x(i, j) : x(i-2, j)",
    "both_ways": "i == 0 || j < 5 ? x(i, j) : x(i-1, j-5)",
    "up_to": "j <= i ? x(i, j) : 3 * x(i, j)",
    "from": "j >= i ? x(i, j) : 3 * x(i, j)",
    "beyond": "3 < j ? x(i, j) : 3 * x(i, j)",
    "not_beyond": "i + 2 >= j ? x(i, j) : 3 * x(i, j)",
    "all_but_one": "j < M-1 ? x(i, j) : 3 * x(i, j)",
    "counted_backwards": "M - j < 6 ? x(i, j) : 3 * x(i, j)",
    "three_parts": "j < 4 ? x(i, j) : (j == i ? 5.0 * x(i, j) : (j > i + 2 ? x(i, j) : 3 * x(i, j)))",
    "diagonal": "i == j ? 1.0 : x(i, j)",
    "every_second": "j % 2 == 0 ? x(i, j) : 0.0 - x(i, j)",
    "twice": "j == 0 || 2 * j == 0 ? x(i, j) : x(i, j-1)",
    "data": "x(i, j) > 0.0 || j == 0 ? x(i, j) : 0.0",
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (5, 16), (5, 17), (9, 100), (40, 259)])
def test_values_are_those_of_the_interpreter(name: str, shape: tuple[int, int]) -> None:
    text = f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES[name]} where i in 0:N, j in 0:M }}"
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    for options in ({}, {"dynamic": True}, {"target": "x86-64-v2"}):
        operator = polyc.compile(text, **options)
        (expected,) = interpret(operator.program, {"x": x}).values()
        np.testing.assert_array_equal(operator(x), expected)


def test_the_loop_in_the_middle_asks_nothing() -> None:
    text = f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES['rows']} where i in 0:N, j in 0:M }}"
    loops = polyc.compile(text).lower(N=50, M=300).as_text("loops")
    assert "?" not in loops and loops.count("vector(") == 2 and " == 2" in loops
