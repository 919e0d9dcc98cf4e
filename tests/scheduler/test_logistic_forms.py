"""1 + tanh(u) as a logistic function: where, accuracy, and special values."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(N) X, float(N) u) -> (Y) { "
GELU = "0.5 * X(i) * (1.0 + tanh(0.75 * (X(i) + 0.044715 * X(i) * X(i) * X(i))))"

REWRITTEN = {
    "gelu": (GELU, "X[i] / (1.0 + exp(-1.5 * (X[i] + 0.044715 * X[i] * X[i] * X[i])))"),
    "halved": ("X(i) * (tanh(u(i)) + 1.0) / 2.0", "X[i] / (1.0 + exp(-2.0 * u[i]))"),
    "alone": ("1.0 + tanh(u(i))", "2.0 / (1.0 + exp(-2.0 * u[i]))"),
    "less a tangent": ("0.25 * X(i) * (1.0 - tanh(u(i) * 0.5))", "0.5 * X[i] / (1.0 + exp(1.0 * u[i]))"),
    "a large factor": ("3.0 * (1.0 + tanh(u(i)))", "3.0 * (2.0 / (1.0 + exp(-2.0 * u[i])))"),
    "in a longer product": ("0.5 * X(i) * (1.0 + tanh(u(i))) * u(i)", "X[i] / (1.0 + exp(-2.0 * u[i])) * u[i]"),
    "of two factors": ("0.5 * (X(i) * u(i)) * (1.0 + tanh(u(i)))", "0.5 * (X[i] * u[i]) * (2.0 / (1.0 + exp(-2.0 * u[i])))"),
    "in a function": ("exp(1.0 + tanh(u(i)))", "exp(2.0 / (1.0 + exp(-2.0 * u[i])))"),
    "both": ("(1.0 + tanh(u(i))) * (1.0 - tanh(X(i)))", "2.0 / (1.0 + exp(-2.0 * u[i])) * (2.0 / (1.0 + exp(2.0 * X[i])))"),
}

KEPT = {
    "needed elsewhere": "(1.0 + tanh(u(i))) * tanh(u(i))",
    "another number": "2.0 + tanh(u(i))",
    "less 1": "tanh(u(i)) - 1.0",
    "another function": "1.0 + sinh(u(i))",
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_before_and_after(name: str) -> None:
    before, after = REWRITTEN[name]
    new, _, remarks = run_pass("logistic", *infer(read(f"{HEAD} Y(i) = {before} }}"), N=9))
    assert statements(new) == [f"S0(i): Y[i] = {after}"]
    assert [(r.kind, r.pass_name) for r in remarks] == [("passed", "logistic")]


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    program, ranges = infer(read(f"{HEAD} Y(i) = {KEPT[name]} }}"), N=9)
    assert run_pass("logistic", program, ranges) == (program, ranges, [])


@pytest.mark.parametrize("name", REWRITTEN)
def test_equal_at_several_sizes(name: str) -> None:
    for n in (0, 1, 7, 8, 33):
        check(f"{HEAD} Y(i) = {REWRITTEN[name][0]} }}", {"N": n})


@pytest.mark.parametrize("option", ["reassociate", "logistic_forms"])
def test_the_switches(option: str) -> None:
    x = np.linspace(-8, 8, 1000, dtype="f4")
    op = polyc.compile("def f(float(N) X) -> (Y) { Y(i) = 1.0 + tanh(X(i)) }", **{option: False})
    tangent = polyc.compile("def f(float(N) X) -> (Y) { Y(i) = tanh(X(i)) }")
    np.testing.assert_array_equal(op(x), 1 + tangent(x))
    assert not any(r.pass_name == "logistic" for r in op.remarks)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_special_values_are_those_of_the_formula(dtype: str, target: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e4, -6e4, 1e-7, 20.0, -20.0, -5.0] * 3).astype(dtype)
    source = f"def f({dtype}(N) X) -> (Y) {{ Y(i) = {GELU} }}"
    with pytest.warns(polyc.PolycWarning) if dtype == "float64" else np.errstate():
        found = polyc.compile(source, target=target)(x)
        wanted = polyc.compile(source, target=target, disable="logistic")(x)
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype == "float16" else 1e-6, atol=3e-6)
    assert np.array_equal(np.signbit(found[:2]), np.signbit(wanted[:2]))


def test_results_near_zero_have_all_their_digits() -> None:
    u = np.linspace(-30, 5, 4001).astype("f4")
    exact = 2 / (1 + np.exp(-2 * u.astype("f8")))
    found = polyc.compile("def f(float(N) u) -> (Y) { Y(i) = 1.0 + tanh(u(i)) }")(u)
    assert np.abs(found / exact - 1).max() < 5e-7
