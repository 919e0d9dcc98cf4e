"""Roots of fewer indices than what they divide: multiplied by, computed once, and special values as of a division."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(N, M) X, float(M) v, float(N) u) -> (Y) { "

MULTIPLIED = {
    "of columns": HEAD + "Y(i, j) = (X(i, j) - v(j)) / sqrt(v(j) * v(j) + 1e-5) }",
    "of rows": HEAD + "Y(i, j) = X(i, j) / sqrt(u(i) * u(i) + 0.5) * v(j) + u(i) }",
    "with a number added": HEAD + "Y(i, j) = X(i, j) / (sqrt(u(i) * u(i)) + 1e-3) }",
    "that is at least a number": HEAD + "Y(i, j) = fmax(X(i, j) / max(sqrt(v(j) * v(j)), 1e-8), 0.0) }",
    "in a sum": HEAD + "Y(i) +=! X(i, j) / sqrt(u(i) * u(i) + 1.0) }",
    "in an arm": HEAD + "Y(i, j) = X(i, j) > 0.0 ? X(i, j) / sqrt(u(i) * u(i) + 1.0) : 0.0 }",
}

DIVIDED = {
    "of what moves alike": HEAD + "Y(i, j) = v(j) / sqrt(X(i, j) * X(i, j)) }",
    "of all indices": HEAD + "Y(i, j) = X(i, j) / sqrt(X(i, j) * X(i, j) + 1.0) }",
    "data": HEAD + "Y(i, j) = X(i, j) / u(i) }",
    "less a number": HEAD + "Y(i, j) = X(i, j) / (sqrt(u(i) * u(i)) - 1.0) }",
    "products of roots": HEAD + "Y(i, j) = X(i, j) / (sqrt(u(i)) * sqrt(u(i))) }",
}


def test_before_and_after():
    program, ranges = infer(read(MULTIPLIED["of rows"].replace("u(i) * u(i) + 0.5", "u(i)")), M=3, N=9)
    new, _, remarks = run_pass("root-reciprocals", program, ranges)
    assert statements(new) == ["S0(i, j): Y[i, j] = X[i, j] * rsqrt(u[i]) * v[j] + u[i]"]
    assert [(r.kind, r.pass_name) for r in remarks] == [("passed", "root-reciprocals")]


@pytest.mark.parametrize("name", MULTIPLIED)
def test_multiplied_and_equal(name: str):
    for n, m in ((1, 1), (7, 5), (33, 70), (0, 3), (3, 0)):
        lowered = check(MULTIPLIED[name], {"N": n, "M": m})
        if n > 1 and m > 1:
            assert any(r.pass_name == "root-reciprocals" for r in lowered.remarks)


@pytest.mark.parametrize("name", DIVIDED)
def test_what_is_divided(name: str):
    program, ranges = infer(read(DIVIDED[name]), M=3, N=9)
    assert run_pass("root-reciprocals", program, ranges) == (program, ranges, [])


def test_the_order_of_the_source_keeps_its_divisions():
    x = np.random.default_rng(0).standard_normal((11, 40)).astype("f4")
    u = np.abs(x[:, 0])
    divide = polyc.compile("def f(float(N, M) X, float(N) u) -> (Y) { Y(i, j) = X(i, j) / sqrt(u(i)) }", reassociate=False)
    assert np.array_equal(divide(x, u), x / np.sqrt(u)[:, None])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zero_infinity_and_the_smallest_numbers_are_as_of_a_division(dtype: str):
    f = np.finfo(dtype)
    values = np.array([0, -0.0, 1, -3, np.inf, -np.inf, np.nan, f.max, f.tiny, f.smallest_subnormal], dtype)
    name = {"f4": "float", "f8": "double"}[dtype]
    divide = polyc.compile(f"def f({name}(M) x, {name}(N) u) -> (Y) {{ Y(i, j) = x(j) / sqrt(u(i)) }}")
    with np.errstate(all="ignore"):
        wanted = values / np.sqrt(values)[:, None]
    np.testing.assert_allclose(divide(values, values), wanted, rtol=4 * f.eps, atol=2 * f.smallest_subnormal)


def test_roots_of_columns_are_computed_once():
    x = np.ones((50, 64), "f4")
    text = "def f(float(N, M) X, float(M) v) -> (Y) { Y(i, j) = X(i, j) / sqrt(v(j) + 1e-5) }"
    lowered = polyc.compile(text).lower(x, x[0])
    assert [r.pass_name for r in lowered.remarks if r.pass_name == "store-functions"] == ["store-functions"]
