"""Dimensions along which a temporary is the same are not stored, and not computed again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret

STEPS = """def f(double a, double(N, M) x, double(T) steps) -> (y) {
  p(t, i, j) = j == 0 ? a : 1.0 / (a * p(t, i, j-1) + 2.0) where t in 0:T, i in 0:N, j in 0:M
  U(0, i, j) = x(i, j)
  U(t+1, i, j) = p(t, i, j) * U(t, i, j) + 1.0 where t in 0:T, i in 0:N, j in 0:M
  y(i, j) = U(T, i, j)
}"""
TWO_PARTS = """def f(double(N) x) -> (y) {
  p(i, 0) = x(0) where i in 0:N
  p(i, j) = 0.5 * p(i, j-1) + 1.0 where i in 0:N, j in 1:8
  y(i) = p(i, 7) + x(i)
}"""
DIFFERENT_PARTS = """def f(double(N) x) -> (y) {
  p(i, j) = 2.0 * x(j) where i in 0:3, j in 0:N
  p(i, j) = 3.0 * x(j) where i in 3:N, j in 0:N
  y(i, j) = p(i, j) * p(j, i)
}"""
TRIANGLE = """def f(double(N) x) -> (y) {
  p(i, j) = 1.0 / (x(j) + 3.0) where j <= i, i in 0:N, j in 0:N
  p(i, j) = 2.0 * x(j) where j > i, i in 0:N, j in 0:N
  y(i, j) = p(i, j) + p(j, i)
}"""
NEIGHBOURS = "def f(double(N) x) -> (y) { p(0, j) = x(j)  p(i, j) = 2.0 * p(i-1, j) where i in 1:5, j in 0:N  y(j) = p(4, j) }"
INDEX = "def f(double(N) x) -> (y) { p(i, j) = exp(x(j)) * i where i in 0:4, j in 0:N  y(j) +=! p(i, j) }"


def run(text: str, *inputs: Any, **options: Any) -> list[str]:
    """The remarks; the result is that of the interpreter."""
    operator = polyc.compile(text, **options)
    lowered = operator.lower(*inputs)
    program = lowered.program
    (expected,) = interpret(program, dict(zip(program.parameters, map(np.asarray, inputs), strict=True))).values()
    np.testing.assert_allclose(operator(*inputs), expected, rtol=1e-13)
    return [r.message for r in lowered.remarks if r.pass_name == "invariant"]


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape)


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_steps_and_rows_that_tell_nothing(options: dict[str, Any]) -> None:
    assert len(run(STEPS, np.float64(0.5), draw(5, 9), draw(4), **options)) == 2


def test_parts_beside_each_other() -> None:
    assert run(TWO_PARTS, draw(11)) == ["p is the same all along its dimension 0"]


@pytest.mark.parametrize("text", [DIFFERENT_PARTS, TRIANGLE, NEIGHBOURS, INDEX])
def test_dimensions_that_tell_something(text: str) -> None:
    assert not run(text, draw(7))


def test_results_keep_their_shape() -> None:
    assert not run("def f(double(N) x) -> (y) { y(i, j) = 2.0 * x(j) where i in 0:6 }", draw(7))


def test_no_rows_at_all() -> None:
    run(STEPS, np.float64(0.5), draw(0, 9), draw(4))
    run(STEPS, np.float64(0.5), draw(5, 9), draw(0))
