"""Weighted sums: values of equal weight added before they are multiplied, weights of one value added, no value lost."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(double(N) X, double(N) Z) -> (Y) { "
STEPS = "def f(double(N) X, double(T) s) -> (Y) { A(0, i) = X(i) A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : "
LAST = " where t in 1:T+1, i in 0:N Y(i) = A(T, i) }"

COLLECTED = {
    "differences": (
        HEAD + "Y(i) = X(i) + 0.125 * (X(i+1) - 2.0 * X(i) + X(i-1)) where i in 1:N-1 Y(0) = X(0) Y(N-1) = X(N-1) }",
        "0.75:f64 * X[i] + 0.125:f64 * (X[i + 1] + X[i - 1])",
    ),
    "weights but for a sign": (
        HEAD + "Y(i) = 0.5 * X(i) - 0.5 * Z(i) + X(i) * Z(i) }",
        "0.5:f64 * (X[i] - Z[i]) + X[i] * Z[i]",
    ),
    "all subtracted": (HEAD + "Y(i) = -(0.5 * X(i)) - 0.5 * Z(i) }", "-(0.5:f64 * (X[i] + Z[i]))"),
    "one value": (HEAD + "Y(i) = 3.0 * X(i) + X(i) + 0.5 * Z(i) * 2.0 }", "4.0:f64 * X[i] + Z[i]"),
    "in a function": (
        HEAD + "Y(i) = exp(0.5 * X(i) + 0.5 * sin(Z(i) + Z(i) + Z(i))) }",
        "exp(0.5:f64 * (X[i] + sin(3.0:f64 * Z[i])))",
    ),
    "in an arm": (HEAD + "Y(i) = X(i) > 0.0 ? 0.5 * X(i) + 0.5 * Z(i) : Z(i) }", "0.5:f64 * (X[i] + Z[i])"),
    "of an earlier step": (
        STEPS + "A(t-1, i) + 0.25 * (A(t-1, i-1) - 2.0 * A(t-1, i) + A(t-1, i+1))" + LAST,
        "0.5:f64 * A[t - 1, i] + 0.25:f64 * (A[t - 1, i - 1] + A[t - 1, i + 1])",
    ),
}

KEPT = {
    "weights that cancel": HEAD + "Y(i) = 0.5 * X(i) + 0.5 * Z(i) - 0.5 * X(i) }",
    "the upper half of a number": HEAD + "Y(i) = 4097.0 * X(i) - (4097.0 * X(i) - X(i)) }",
    "a rounding error": HEAD + "Y(i) = Z(i) - ((X(i) + Z(i)) - X(i)) + 2.0 * X(i) }",
    "a shifted rounding": HEAD + "Y(i) = (3.0 * X(i) + X(i) + 8388608.0) - 8388608.0 }",
    "differences of neighbours": HEAD + "Y(i-1) = 0.25 * (X(i+1) - X(i)) + 0.25 * (X(i-1) - X(i)) where i in 1:N-1 }",
    "two differences": HEAD + "Y(i) = 0.5 * (X(i) - X(N-1-i)) + 0.5 * (Z(i) - Z(N-1-i)) }",
    "a difference and what is small beside it": HEAD + "Y(i) = 0.5 * (X(i) - X(N-1-i)) + 0.5 * Z(i) }",
    "as few operations": HEAD + "Y(i) = 0.5 * X(i) + 0.25 * Z(i) }",
    "a shared difference": HEAD + "Y(i) = (X(i) - Z(i)) * (X(i) - Z(i)) }",
    "terms of a sum": "def f(double(N) X, double(N) Z) -> (y) { y +=! 0.5 * X(i) + 0.5 * Z(i) }",
    "integers": "def f(int32(N) X, int32(N) Z) -> (Y) { Y(i) = 2 * X(i) + 2 * Z(i) }",
    "a scan": HEAD + "Y(0) = X(0) Y(i) = 0.5 * Y(i-1) + 0.5 * X(i) where i in 1:N }",
    "a recurrence of each element": "def f(double(T, N) X) -> (Y) { "
    "Y(0, i) = X(0, i) Y(t, i) = 0.5 * Y(t-1, i) + 0.5 * X(t, i) where t in 1:T }",
    "a weight that overflows": HEAD + "Y(i) = 1e30 * (1e30 * X(i)) + 1e30 * (1e30 * Z(i)) }",
    "a weight that vanishes": HEAD + "Y(i) = double(1e-200) * (double(1e-200) * X(i) + Z(i)) + Z(i) }",
    "what is divided": HEAD + "Y(i) = X(i) / 3.0 + Z(i) / 3.0 }",
}


@pytest.mark.parametrize("name", COLLECTED)
def test_values_of_equal_weight_are_added_first(name: str):
    text, expected = COLLECTED[name]
    program, ranges = infer(read(text), N=9, T=3)
    new, _, remarks = run_pass("weighted-sums", program, ranges)
    assert any(expected in line for line in statements(new)), statements(new)
    assert {(r.kind, r.pass_name) for r in remarks} == {("passed", "weighted-sums")}
    for n in (2, 3, 40):
        check(text, {"N": n} | ({"T": 3} if "T" in text else {}))


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_as_written(name: str):
    program, ranges = infer(read(KEPT[name]), N=9, T=3)
    assert run_pass("weighted-sums", program, ranges) == (program, ranges, [])


def test_weights_are_those_of_the_element_type():
    text = "def f(float(N) X, float(N) Z) -> (Y) { Y(i) = 0.1 * X(i) + 0.1 * Z(i) + 0.2 * X(i) }"
    program, ranges = infer(read(text), N=9)
    (line,) = statements(run_pass("weighted-sums", program, ranges)[0])
    exact = float(np.float32(0.1)) + float(np.float32(0.2))
    assert f"{exact} * X[i]" in line or f"{np.float32(exact)} * X[i]" in line


def test_infinities_and_nan_come_out_of_every_value():
    op = polyc.compile(COLLECTED["differences"][0])
    for special in (np.inf, -np.inf, np.nan):
        x = np.ones(40)
        x[20] = special
        y = op(x, x)
        assert not np.isfinite(y[19:22]).any() and np.isfinite(np.delete(y, (19, 20, 21))).all()


@pytest.mark.parametrize("option", ["reassociate", "collect_weights"])
def test_each_switch_keeps_the_order_of_the_source(option: str):
    text = HEAD + "Y(i) = double(0.1) * X(i) + double(0.1) * Z(i) }"
    x, z = np.random.default_rng(1).standard_normal((2, 1000))
    np.testing.assert_array_equal(polyc.compile(text, **{option: False})(x, z), 0.1 * x + 0.1 * z)


def test_a_long_sum():
    terms = " + ".join(f"0.5 * X(i + {k})" for k in range(150))
    check(f"def f(double(N) X) -> (Y) {{ Y(i) = {terms} }}", {"N": 161})


def test_a_difference_of_large_values_had_the_errors_of_their_size():
    """0.5 * (x + z - y) of what are steps of 0.1 around 100000: wrong in the second digit."""
    op = polyc.compile("def f(float(N) x, float(N) y, float(N) z) -> (d) { d(i) = 0.5 * (x(i) - y(i)) + 0.5 * z(i) }")
    x, z = (np.random.default_rng(0).standard_normal((2, 99)) * 0.1).astype(np.float32)
    x += np.float32(1e5)
    np.testing.assert_allclose(op(x, x + np.float32(0.25), z), 0.5 * (z - 0.25), rtol=1e-5)


@pytest.mark.parametrize("value", ["-(X(i) - Z(i))", "-(X(i) - 1.0)", "1.0 / -(X(i) - Z(i))"])
def test_a_negated_difference_of_equal_values_was_a_positive_zero(value: str):
    y = polyc.compile(f"def f(float(N) X, float(N) Z) -> (Y) {{ Y(i) = {value} }}")(*np.ones((2, 40), np.float32))
    assert np.signbit(y).all()
