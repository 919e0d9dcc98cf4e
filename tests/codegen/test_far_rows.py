"""Rows that are read side by side lie as far apart as their loop goes, so that each stream goes on where it is."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc

PRODUCT = "def f(double(N, M) A, double(M) x) -> (y) { y(i) +=! A(i, j) * x(j) }"
SUM = "def f(double(N, M) A, double(N) x) -> (y) { y(j) +=! A(i, j) * x(i) }"
TWO = """def f(double(N, M) A, double(N, M) B, double(M) x) -> (y) {
  p(i) +=! A(i, j) * x(j)
  q(i) +=! B(i, j) * x(j)
  y(i) = 2 * p(i) - q(i)
}"""
BOTH = """def f(double(N, M) A, double(M) x) -> (t, y) {
  t(i) +=! A(i, j) * x(j)
  y(j) +=! A(i, j) * t(i)
}"""
LAYER = """def f(double(B, K) X, double(N, K) W, double(N) b) -> (y) {
  h(m, n) +=! X(m, k) * W(n, k)
  y(m, n) = fmax(h(m, n) + b(n), 0.0)
}"""
EXPECTED = {
    PRODUCT: lambda A, x: A @ x,
    SUM: lambda A, x: x @ A,
    TWO: lambda A, B, x: 2 * (A @ x) - B @ x,
    BOTH: lambda A, x: (A @ x, (A @ x) @ A),
    LAYER: lambda X, W, b: np.maximum(X @ W.T + b, 0),
}


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float64)


def arguments(source: str, n: int, m: int) -> list[np.ndarray]:
    if source == LAYER:
        return [numbers(4, m), numbers(n, m), numbers(n)]
    matrices = [numbers(n, m)] * (2 if source == TWO else 1)
    return [*matrices, numbers(n if source == SUM else m)]


def loops(source: str, n: int, m: int, **options: object) -> str:
    return polyc.compile(source, target="x86-64-v4", **options).lower(*arguments(source, n, m)).as_text("loops")


@pytest.mark.parametrize("source, letter", [(PRODUCT, "A"), (LAYER, "W")], ids=["product", "layer"])
def test_rows_in_registers_lie_a_quarter_of_the_matrix_apart(source: str, letter: str) -> None:
    text = loops(source, 1200, 1300)
    assert re.search(rf"{letter}\[c0 \+ 300 \* c\d, c\d\]", text)
    assert "parallel" in text and " for (c0 = 0; c0 < 300; c0++)" in text


def test_rows_of_a_tile_lie_a_part_of_the_tile_apart() -> None:
    text = loops(BOTH, 2000, 2000)
    apart = re.search(r"A\[(\d+) \* c0 \+ c1 \+ (\d+) \* c3, c2\]", text)
    assert apart and int(apart[2]) * 4 == int(apart[1])


def test_sums_of_rows_that_lie_apart_by_any_number_stay_in_registers() -> None:
    target = "x86-64-v3"
    op = polyc.compile(PRODUCT, dynamic=True, target=target)
    code = op.lower(*arguments(PRODUCT, 1300, 1300)).as_text("ll")
    blocks = re.findall(r"^\w+:.*?(?=^\w+:|\Z)", code, re.MULTILINE | re.DOTALL)
    steps = [block for block in blocks if block.count("@llvm.fma.v4f64") >= 4]
    assert steps
    assert not any("store double" in step for step in steps)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 7, 8, 11, 1301])
def test_any_number_of_rows_in_a_kernel_for_many(n: int) -> None:
    op = polyc.compile(PRODUCT, dynamic=True)
    op(*arguments(PRODUCT, 1300, 700))
    a, x = arguments(PRODUCT, n, 700)
    np.testing.assert_array_equal(op(a, x), a @ x)


@pytest.mark.each
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("source", list(EXPECTED), ids=["product", "sum", "two", "both", "layer"])
@pytest.mark.parametrize("n, m", [(1601, 701), (4003, 130), (5, 40000), (2000, 513)])
def test_results_of_any_number_of_rows(source: str, n: int, m: int, target: str) -> None:
    args = arguments(source, n, m)
    op = polyc.compile(source) if target == "host" else polyc.compile(source, target=target)
    expected = EXPECTED[source](*args)
    for result, value in zip(*(r if isinstance(r, tuple) else (r,) for r in (op(*args), expected)), strict=True):
        np.testing.assert_array_equal(result, value)
