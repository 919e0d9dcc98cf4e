"""An index that stands on the left more than once writes a diagonal."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret

PROGRAMS = {
    "sum": "O(k, k) +=! A(k, k)",
    "sum_over_more": "O(k, k) +=! A(k, j)",
    "greatest": "O(k, k) max=! A(k, j)",
    "added_to": "O(i, j) = A(i, j)  O(k, k) += x(k)",
    "beside_the_rest": "O(i, j) = A(i, j) where i in 0:N, j in 0:N, i != j  O(k, k) = x(k) where k in 0:N",
    "in_three_dimensions": "O(k, i, k) +=! A(k, i) * x(i)",
    "shifted": "O(k, k + 1) +=! x(k)",
    "read_back": "T(k, k) +=! x(k)  O(i, j) +=! A(i, k) * T(k, j)",
    "positions": "(T(k, k), O(k, k)) argmax=! A(k, j)",
}


@pytest.mark.each
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_do_what_the_interpreter_does(name: str, dynamic: bool) -> None:
    operator = polyc.compile(f"def f(float(N, N) A, float(N) x) -> (O) {{ {PROGRAMS[name]} }}", dynamic=dynamic)
    for n in (33, 1, 2, 7):
        rng = np.random.default_rng(n)
        a, x = rng.standard_normal((n, n)).astype("f4"), rng.standard_normal(n).astype("f4")
        expected = interpret(operator.program, {"A": a, "x": x})["O"]
        np.testing.assert_allclose(operator(a, x), expected, rtol=1e-4, atol=1e-5)


def test_in_python() -> None:
    @polyc.op
    def f(a: "f32[N, N]", x: "f32[N]"):
        y[i, j] = a[i, j]
        y[k, k] += x[k]
        return y

    a, x = np.ones((4, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(f(a, x), a + np.diag(x))


def test_elements_beside_the_diagonal_are_missed() -> None:
    with pytest.raises(PolycError, match=r"O\(1, 0\) \(for N = 2\) is never written"):
        polyc.compile("def f(float(N) x) -> (O) { O(k, k) = x(k) }").lower()
    with pytest.raises(PolycError, match=r"O\((0, 1|1, 0)\) is never written"):
        polyc.compile("def f(float(N) x) -> (O) { O(k, k) = x(k) }").lower(("f4", (3,)))


def test_a_monoid_needs_distinct_indices() -> None:
    @polyc.monoid(identity=1)
    def product(a: float, b: float) -> float:
        return a * b

    with pytest.raises(PolycError, match="the same plain indices"):

        @polyc.op
        def f(a: "f32[N, N]"):
            y[i, i] = product(a[i, j])
            return y
