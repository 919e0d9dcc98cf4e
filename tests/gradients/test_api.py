"""Derivatives as operators: names, defaults, the command line, checks, and what else one does with an operator."""

# ruff: noqa: F821

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import polyc
from polyc.cli import main

LAYER = """
def layer(double(M, K) X, double(N, K) W, double(N) b) -> (Y) {
  H(m, n) +=! X(m, k) * W(n, k)
  Y(m, n) = tanh(H(m, n) + b(n))
}
"""
LOSS = "def loss(double(N) x, int32(N) k) -> (y, count) { y +=! double(k(n)) * x(n) * x(n)  count +=! k(n) }"
SMALL = "def small(double(N) x, double(N) w) -> (y) { y(n) = tanh(x(n) * w(n)) }"
RNG = np.random.default_rng(5)
X, W, B = RNG.standard_normal((3, 4)), RNG.standard_normal((5, 4)), RNG.standard_normal(5)


@polyc.op
def held(x: f64[N]):
    y[i] = stop_gradient(x[i]) * x[i]
    return y


def test_derivatives_take_and_return_what_their_names_say() -> None:
    layer = polyc.compile(LAYER)
    assert repr(layer.vjp(wrt=("W", "X"))).endswith("W: f64[N, K], b: f64[N], d_Y: f64[M, N]) -> (d_W, d_X)>")
    assert repr(layer.jvp(wrt="b")).endswith("t_b: f64[N]) -> (Y, t_Y)>")
    assert layer.vjp() is layer.vjp(("X", "W", "b")) is polyc.vjp(layer)
    d_y, t_x = RNG.standard_normal((3, 5)), RNG.standard_normal((3, 4))
    y, t_y = layer.jvp("X")(X, W, B, t_x)
    d_x, d_w, d_b = layer.vjp()(X, W, B, d_Y=d_y)
    inner = d_y * (1 - y * y)
    for found, wanted in ((d_x, inner @ W), (d_w, inner.T @ X), (d_b, inner.sum(0)), (t_y, (t_x @ W.T) * (1 - y * y))):
        np.testing.assert_allclose(found, wanted)


def test_a_loss_has_a_gradient_and_all_results_beside_it() -> None:
    loss, k = polyc.compile(LOSS), np.arange(5, dtype=np.int32)
    np.testing.assert_allclose(polyc.grad(loss)(B, k), 2 * k * B)
    y, count, d_x = loss.value_and_grad(of="y")(B, k)
    assert (y, count) == (pytest.approx((k * B * B).sum()), 10)
    np.testing.assert_allclose(d_x, 2 * k * B)


def test_gradients_are_differentiated_again() -> None:
    cubes = polyc.compile("def f(double(N) x) -> (y) { y +=! x(n) * x(n) * x(n) }")
    _, product = cubes.grad().jvp()(B, np.ones(5))
    np.testing.assert_allclose(product, 6 * B)
    np.testing.assert_allclose(cubes.grad().jacobian()(B), np.diag(6 * B))


def test_jacobians_have_the_dimensions_of_the_result_then_of_the_input() -> None:
    layer = polyc.compile(LAYER)
    found, y = layer.jacobian(wrt="X")(X, W, B), layer(X, W, B)
    np.testing.assert_allclose(found, np.einsum("mn,nk,mp->mnpk", 1 - y * y, W, np.eye(3)))
    total = polyc.compile("def f(double(M, K) X) -> (s) { s +=! X(m, k) * X(m, k) }").jacobian()
    np.testing.assert_allclose(total(X), 2 * X)


def test_derivatives_are_bound_pickled_explained_and_made_objects() -> None:
    small = polyc.compile(SMALL)
    gradient, w = small.vjp(wrt="x"), np.full(5, 2.0)
    wanted = gradient(B, w, np.ones(5))
    np.testing.assert_allclose(small.bind(w=w).vjp()(B, np.ones(5)), wanted)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(gradient))(B, w, np.ones(5)), wanted)
    assert "d_x" in gradient.explain(B, w, B)
    made = gradient.compiled(N=5)
    assert made.object_code()[:4] == b"\x7fELF"
    assert "small_vjp" in made.c_header()


def test_what_is_held_fixed_has_no_derivative_in_any_notation() -> None:
    text = polyc.compile("def f(double(N) x) -> (y) { y(n) = stop_gradient(x(n)) * x(n) }")
    for operator in (held, text):
        np.testing.assert_array_equal(operator(B), B * B)
        np.testing.assert_array_equal(operator.vjp()(B, np.ones(5)), B)
        np.testing.assert_array_equal(operator.jvp()(B, np.ones(5))[1], B)


@polyc.op
def squared(x: f64[N], c: f64[N]):
    y[i] = x[i] * x[i] * c[i]
    return y


@squared.defvjp
def squared_vjp(x: f64[N], y: f64[N], d_y: f64[N]):
    d_x[i] = 100 * d_y[i] + y[i]
    d_c[i] = 7 * d_y[i]
    return d_x, d_c


@squared.defjvp
def squared_jvp(t_x: f64[M], t_c: f64[M]):
    t_y[i] = 100 * t_x[i] + 7 * t_c[i]
    return t_y


@polyc.op
def wrapped(x: f64[K]):
    u[i] = 2 * x[i]
    z = squared(u, x)
    w[i] = 3 * z[i] + x[i]
    return w


@polyc.op
def farther(x: f64[K], k: i32[P]):
    v = wrapped(x)
    s += v[k[p]] * x[k[p]]
    return s


def test_rules_of_the_user_replace_derivatives_wherever_an_operator_is_called() -> None:
    x, k = np.arange(1.0, 5.0), np.array([1, 3], np.int32)
    np.testing.assert_array_equal(squared.vjp()(x, x, x), (100 * x + x**3, 7 * x))
    np.testing.assert_array_equal(squared.jvp(wrt="c")(x, x, x)[1], 7 * x)
    np.testing.assert_array_equal(wrapped.jvp()(x, np.ones(4))[1], np.full(4, 3 * (200 + 7) + 1))
    np.testing.assert_array_equal(wrapped.vjp()(x, np.ones(4)), 622 + 8 * x**3)
    hit = np.array([0, 1, 0, 1])
    inner = 2 * (300 * hit * x + 4 * x**3) + hit * (21 * x + x)  # the rule adds y wherever it is
    np.testing.assert_allclose(farther.grad()(x, k), inner + hit * wrapped(x))
    assert pickle.loads(pickle.dumps(wrapped)).has_rules


@polyc.op
def tripled(x: f64[K]):
    y[k] = x[k] * x[k]
    return y


@tripled.defvjp
def tripled_vjp(x: f64[K], d_y: f64[K]):
    d_x[k] = 3 * x[k] * d_y[k]
    return d_x


@polyc.op
def fourth(x: f64[K]):
    u = tripled(x)
    y[k] = u[k] * u[k]
    return y


@fourth.defvjp
def fourth_vjp(x: f64[K], d_y: f64[K]):
    u = tripled(x)
    v = tripled(u)
    d_x[k] = (7 * u[k] + v[k]) * d_y[k]
    return d_x


def test_rules_of_operators_that_a_rule_calls_count_in_second_derivatives() -> None:
    """They were lost: what the rule computes was differentiated as it is written."""
    x, one = np.arange(1.0, 4.0), np.ones(3)
    np.testing.assert_allclose(fourth.vjp()(x, one), 7 * x**2 + x**4)
    second = fourth.vjp().vjp(wrt="x")
    np.testing.assert_allclose(second(x, one, one), 7 * 3 * x + 3 * x**2 * 3 * x)
    third = second.vjp(wrt="x")(x, one, one, one)
    np.testing.assert_allclose(third, 21 + 9 * x**2 + 9 * x * 3 * x)


def test_a_rule_for_one_mode_leaves_the_other_without() -> None:
    square = polyc.compile("def square(double(N) x) -> (y) { y(i) = x(i) * x(i) }")
    square.defvjp("def square_vjp(double(N) d_y) -> (d_x) { d_x(i) = 5.0 * d_y(i) }")
    np.testing.assert_array_equal(square.vjp()(B, np.ones(5)), np.full(5, 5.0))
    np.testing.assert_allclose(square.bind().vjp()(B, np.ones(5)), 5.0)
    with pytest.raises(polyc.UnsupportedError, match=r"none for the forward mode(?s:.*)@square.defjvp"):
        square.jvp()


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("def r(double(N) z) -> (d_x) { d_x(i) = z(i) }", "takes z, which is none of square.*some of: x, y, d_y"),
        ("def r(float(N) d_y) -> (d_x) { d_x(i) = d_y(i) }", "d_y is f32 of rank 1, and y is f64 of rank 1"),
        ("def r(double(N) d_y) -> (a, b) { a(i) = d_y(i)  b(i) = d_y(i) }", "returns 2 results.*one for each of: d_x"),
        ("def r(double(N) d_y) -> (a) { a +=! d_y(i) }", "a is f64 of rank 0, where d_x is f64 of rank 1"),
    ],
)
def test_rules_that_do_not_fit_are_refused(rule: str, message: str) -> None:
    square = polyc.compile("def square(double(N) x) -> (y) { y(i) = x(i) * x(i) }")
    with pytest.raises(polyc.ArgumentError, match=f"(?s){message}"):
        square.defvjp(rule)


def test_checks_name_the_element_that_is_worst() -> None:
    layer = polyc.compile(LAYER)
    found = polyc.check_grad(layer, X, W, B)
    assert found, found
    assert max(found.forward_error, found.reverse_error) < 1e-8
    off = polyc.check_grad(held, B)  # whose derivatives are not those of its values, as it says
    assert not off
    worst = {m.mode: m for m in off.worst}
    assert worst["forward"].element.startswith("t_y[")
    assert worst["reverse"].element.startswith("d_x[")
    assert worst["reverse"].difference == pytest.approx(2 * worst["reverse"].derivative)
    assert "d_x[" in str(off)


def test_checks_are_made_in_float64_whatever_the_types() -> None:
    half = polyc.compile("def f(float16(N) x) -> (y) { y max=! x(n) * x(n) }")
    assert polyc.check_grad(half, B.astype(np.float16))


def test_entries_of_sparse_matrices_have_derivatives() -> None:
    text = "def f(csr double(M, N) A, double(N, K) X) -> (Y) { Y(i, k) +=! A(i, j) * X(j, k) }"
    product, rows, columns = polyc.compile(text), np.array([0, 0, 2]), np.array([0, 2, 1], np.int32)
    held = SimpleNamespace(data=B[:3], indices=columns, indptr=np.array([0, 2, 2, 3], np.int32), shape=(3, 3))
    x, d_y = RNG.standard_normal((3, 2)), RNG.standard_normal((3, 2))
    dense = np.zeros((3, 3))
    dense[rows, columns] = B[:3]
    d_a, d_x = product.vjp()(held, x, d_y)
    np.testing.assert_allclose(d_a, (d_y @ x.T)[rows, columns])
    np.testing.assert_allclose(d_x, dense.T @ d_y)
    moved = product.jvp(wrt="A")
    assert moved.input_names == ("A", "X", "t_A")
    np.testing.assert_allclose(moved(held, x, np.ones(3))[1], (dense != 0) @ x)
    assert polyc.check_grad(product, held, x)


def test_checks_leave_kinks_out() -> None:
    found = polyc.check_grad(polyc.compile("def f(double(N) x) -> (y) { y(n) = fabs(x(n)) }"), np.array([0.0, 1.0, -2.0]))
    assert found
    assert found.n_kinks == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: polyc.compile(LAYER).vjp(wrt="x"), "no input named x.*did you mean X"),
        (lambda: polyc.compile(LAYER).vjp(of="Z"), "no floating-point result named Z"),
        (lambda: polyc.compile(LAYER).grad(), "is no real scalar.*use vjp"),
        (lambda: polyc.compile(LAYER).jacobian(), "3 inputs.*name one: wrt='X'"),
        (lambda: polyc.compile(LOSS).jvp(wrt="k"), "no derivative by k, which is i32.*inputs are: x"),
        (lambda: polyc.compile(LAYER).bind(W=W).vjp(wrt="W"), "W is bound"),
        (lambda: polyc.compile(LAYER).vjp(wrt=3), "wrt is 3"),
        (lambda: polyc.vjp(np.sin), "a ufunc is no operator"),
        (lambda: polyc.compile("def f(int32(N) x) -> (y) { y(n) = x(n) }").vjp(), "no result of f has a derivative"),
    ],
)
def test_what_has_no_derivative_is_an_error_with_a_way_out(make: Any, message: str) -> None:
    with pytest.raises(polyc.ArgumentError, match=f"(?s){message}") as found:
        make()
    assert found.value.code == "argument-gradient"


def test_functions_without_types_say_what_is_missing() -> None:
    with pytest.raises(polyc.PolycError, match="annotate every parameter"):
        polyc.op("def f(x):\n    y[i] = x[i]\n    return y\n").vjp()


def test_derivatives_run_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "op.tc").write_text(SMALL)
    path = str(tmp_path / "op.tc")
    done = CliRunner().invoke(main, ["run", path, "--vjp", "w,x", "--size", "N=4", "--verify"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("d_w: float64[4]")
    done = CliRunner().invoke(main, ["compile", path, "--vjp", "x", "--size", "N=4"])
    assert done.exit_code == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"op.tc", "small_vjp.o", "small_vjp.h"}
    done = CliRunner().invoke(main, ["run", path, "--grad", "x", "--vjp", "x"])
    assert "give one of them" in done.stderr
