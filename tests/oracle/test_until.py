"""``until`` in texts and ``break`` in functions: the values and the number of steps of NumPy loops that break."""

# ruff: noqa: B007, F821, UP037
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.frontends.tc.read import read_tc
from polyc.ir.interpret import interpret

Array = np.ndarray[Any, Any]

SOLVE = """def solve(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = 0.0 * b(i)
  r(t, i) +=! A(i, j) * x(t, j) where t in 0:T
  e(t) max=! fabs(b(i) - r(t, i)) where t in 0:T
  x(t, i) = x(t-1, i) + (b(i) - r(t-1, i)) / A(i, i) where t in 1:T
  n = until e(t) < eps where t in 0:T
  y(i) = x(n, i)
}"""

WRITTEN_OUT = """def solve(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = 0.0 * b(i)
  r(t, i) +=! A(i, j) * x(t, j) where t in 0:T
  e(t) max=! fabs(b(i) - r(t, i)) where t in 0:T
  x(t, i) = done(t) ? x(t-1, i) : x(t-1, i) + (b(i) - r(t-1, i)) / A(i, i) where t in 1:T
  done(0) = bool(0)
  done(t+1) = done(t) || e(t) < eps where t in 0:T
  n = int64(-1)
  n += done(t) ? int64(0) : int64(1) where t in 0:T
  y(i) = x(T-1, i)
}"""


@polyc.op(dynamic=True)
def break_behind(A: "f64[N, N]", b: "f64[N]", T: "i64", eps: "f64"):  # type: ignore[no-untyped-def]
    x[0, i] = 0 * b[i]
    for t in range(1, T):
        r[t, i] = b[i] - sum(A[i, j] * x[t - 1, j])
        x[t, i] = x[t - 1, i] + r[t, i] / A[i, i]
        if max(abs(r[t, i])) < eps:
            break
    y[i] = x[t, i]
    return y, t


@polyc.op(dynamic=True)
def break_between(A: "f64[N, N]", b: "f64[N]", T: "i64", eps: "f64"):  # type: ignore[no-untyped-def]
    x[0, i] = 0 * b[i]
    for t in range(T):
        r[t, i] = b[i] - sum(A[i, j] * x[t, j])
        e[t] = max(abs(r[t, i]))
        if e[t] < eps:
            break
        x[t + 1, i] = x[t, i] + r[t, i] / A[i, i]
    y[i] = x[t, i]
    return y, t, e[t]


@polyc.op(dynamic=True)
def break_in_front(A: "f64[N, N]", b: "f64[N]", T: "i64", eps: "f64"):  # type: ignore[no-untyped-def]
    x[0, i] = 0 * b[i]
    e[0] = 1e300
    for t in range(1, T):
        if e[t - 1] < eps:
            break
        r[t, i] = b[i] - sum(A[i, j] * x[t - 1, j])
        e[t] = max(abs(r[t, i]))
        x[t, i] = x[t - 1, i] + r[t, i] / A[i, i]
    y[i] = x[T - 1, i]
    return y, t


def numpy_until(A: Array, b: Array, T: int, eps: float) -> tuple[Array, int]:
    x = 0 * b
    for t in range(T):
        r = b - A @ x
        if np.abs(r).max() < eps or t == T - 1:
            break
        x = x + r / np.diag(A)
    return x, t


def numpy_behind(A: Array, b: Array, T: int, eps: float) -> tuple[Array, int]:
    x, t = 0 * b, 0
    for t in range(1, T):
        r = b - A @ x
        x = x + r / np.diag(A)
        if np.abs(r).max() < eps:
            break
    return x, t


def numpy_between(A: Array, b: Array, T: int, eps: float) -> tuple[Array, int, float]:
    x = np.zeros((T + 1, len(b)))
    for t in range(T):
        r = b - A @ x[t]
        e = np.abs(r).max()
        if e < eps:
            break
        x[t + 1] = x[t] + r / np.diag(A)
    return x[t], t, e


def numpy_in_front(A: Array, b: Array, T: int, eps: float) -> tuple[Array, int]:
    x, e, t = 0 * b, 1e300, 0
    for t in range(1, T):
        if e < eps:
            break
        r = b - A @ x
        e = np.abs(r).max()
        x = x + r / np.diag(A)
    return x, t


@functools.cache
def operator(text: str) -> Any:
    return polyc.compile(text, dynamic=True)


@functools.cache
def system(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    return rng.random((n, n)) / n + 3 * np.eye(n), rng.random(n)


def check(results: Any, expected: tuple[Any, ...]) -> None:
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-12, atol=1e-13)


SOLVERS: dict[str, Any] = {
    "until": (lambda: operator(SOLVE), numpy_until),
    "behind": (lambda: break_behind, numpy_behind),
    "between": (lambda: break_between, numpy_between),
    "in_front": (lambda: break_in_front, numpy_in_front),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_steps_and_values_are_those_of_a_loop_that_breaks(name: str) -> None:
    """At the first step, later, or never: 0.0 is no small residual, and NaN is not below anything."""
    (A, b), (solver, expected) = system(23), SOLVERS[name]
    for limit in (1, 2, 3, 9, 40):
        for eps in (10.0, 1e-2, 1e-9, 0.0, np.nan):
            check(solver()(A, b, limit, eps), expected(A, b, limit, eps))


@pytest.mark.parametrize("name", SOLVERS)
def test_steps_behind_the_end_run_no_loops(name: str, request: pytest.FixtureRequest) -> None:
    if name == "between":
        reason = "a residual that is returned has a first step of its own, and the pass leaves out no steps of two forms"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for target in ("x86-64-v2", "x86-64-v3"):
        if name == "until":
            pinned = polyc.compile(SOLVE, target=target, dynamic=True)
        else:
            pinned = polyc.op(SOLVERS[name][0]().__wrapped__, target=target, dynamic=True)
        assert "ended[c0 + 1] = true;" in pinned.lower(*system(23), 40, 1e-2).as_text("loops")


@polyc.op(dynamic=True)
def value_alone(A: "f64[N, N]", b: "f64[N]", T: "i64", eps: "f64"):  # type: ignore[no-untyped-def]
    x[0, i] = 0 * b[i]
    for t in range(1, T):
        r[t, i] = b[i] - sum(A[i, j] * x[t - 1, j])
        x[t, i] = x[t - 1, i] + r[t, i] / A[i, i]
        if max(abs(r[t, i])) < eps:
            break
    y[i] = x[t, i]
    return y


def test_steps_behind_the_end_copy_where_the_flag_lies_in_one_place() -> None:
    """Products and steps share loops then, so that the values lie in two places in turn."""
    A, b = system(23)
    pinned = polyc.op(value_alone.__wrapped__, target="x86-64-v3", dynamic=True)
    assert "if (t.ended[0]) {" in pinned.lower(A, b, 40, 1e-2).as_text("loops")
    for limit in (1, 2, 9, 40):
        np.testing.assert_allclose(value_alone(A, b, limit, 1e-2), numpy_behind(A, b, limit, 1e-2)[0], rtol=1e-12)


def test_a_clause_means_the_statements_that_the_reference_has() -> None:
    sugared, plain = read_tc(SOLVE)[0], read_tc(WRITTEN_OUT)[0]
    A, b = system(5)
    for limit, eps in ((1, 0.1), (3, 0.0), (30, 1e-3)):
        inputs = {"A": A, "b": b, "T": np.int64(limit), "eps": np.float64(eps)}
        found, expected = interpret(sugared, inputs), interpret(plain, inputs)
        np.testing.assert_array_equal(found["y"], expected["y"])
        assert int(found["n"]) == int(expected["n"]) == numpy_until(A, b, limit, eps)[1]


def test_a_residual_that_is_a_number_nowhere_ends_nothing() -> None:
    A, b = system(23)
    y, n = operator(SOLVE)(A, np.where(np.arange(23) == 3, np.nan, b), 9, 1e-3)
    assert (int(n), bool(np.isnan(y).all())) == (8, True)


HISTORY = """def history(double(N) b, double(T) factor, double eps) -> (x, e, total, n) {
  x(0, i) = b(i)
  x(t+1, i) = factor(t) * x(t, i)
  e(t) +=! fabs(x(t, i)) where t in 0:T+1
  n = until e(t) < eps * e(0) where t in 0:T+1
  total +=! e(t) where t in 0:T+1
}"""


def test_all_steps_as_a_result_hold_the_last_one_behind_the_end() -> None:
    """The number of steps is an extent, the tolerance relative to the first residual, and a range follows from an operand."""
    with pytest.raises(polyc.PolycError) as caught:
        operator(HISTORY)
    assert "its range of t is not known" in str(caught.value)
    text = HISTORY.replace("x(t, i)\n  e", "x(t, i) where t in 0:T\n  e")
    b = np.array([3.0, -1.0, 2.0])
    for factor in ([0.5] * 6, [1.0] * 3, [0.1, 5.0], [0.9]):
        rows = [b]
        for f in factor:
            if np.abs(rows[-1]).sum() < 0.2 * np.abs(b).sum():
                break
            rows.append(f * rows[-1])
        n = len(rows) - 1
        x = np.array(rows + [rows[-1]] * (len(factor) - n))
        e = np.abs(x).sum(axis=1)
        check(operator(text)(b, np.array(factor), 0.2), (x, e, e.sum(), n))


SOUTHWELL = """def southwell(double(N, N) A, double(N) b, double eps) -> (y, p_last, int32 n) {
  r(0, i) = b(i)
  (m(t), p(t)) argmax=! fabs(r(t, i)) where t in 0:50
  r(t+1, i) = r(t, i) - A(i, p(t)) * r(t, p(t)) / A(p(t), p(t)) where t in 0:49
  n = until m(t) < eps where t in 0:50
  y(i) = r(n, i)
  p_last = p(n)
}"""


def test_positions_choose_what_a_step_changes() -> None:
    A, b = system(7)
    for eps in (1e-1, 1e-4, 0.0, 5.0):
        r, t = b, 0
        for t in range(50):
            p = int(np.abs(r).argmax())
            if abs(r[p]) < eps or t == 49:
                break
            r = r - A[:, p] * r[p] / A[p, p]
        check(operator(SOUTHWELL)(A, b, eps), (r, p, t))


WALK = """def walk(int64(N) following, int64 start, int64 T) -> (place, n) {
  at(0) = start
  at(t) = following(at(t-1)) where t in 1:T
  n = until following(at(t)) < int64(0) where t in 0:T
  place = at(n)
}"""


def test_a_step_that_is_left_out_looks_nothing_up() -> None:
    """Behind the end of the list the next place would be -1."""
    following = np.array([3, -1, 1, 4, 2])
    assert [int(v) for v in operator(WALK)(following, 0, 100)] == [1, 4]
    assert [int(v) for v in operator(WALK)(following, 1, 100)] == [1, 0]
    assert [int(v) for v in operator(WALK)(following, 0, 3)] == [4, 2]


@polyc.op
def gcd(u: "i64", v: "i64"):  # type: ignore[no-untyped-def]
    a[0] = u
    b[0] = v
    for t in range(60):
        if b[t] == 0:
            break
        a[t + 1] = b[t]
        b[t + 1] = a[t] % b[t]
    return a[t]


def test_the_number_of_steps_is_bounded_by_a_constant() -> None:
    for u, v in ((12, 18), (35, 64), (7, 0), (2**40, 6**20)):
        assert int(gcd(u, v)) == np.gcd(u, v)


POWER = """def power(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  v(0, i) = b(i)
  w(t, i) +=! A(i, j) * v(t-1, j) where t in 1:T
  m(t) max=! fabs(w(t, i)) where t in 1:T
  v(t, i) = w(t, i) / m(t) where t in 1:T
  e(0) = double(1e300)
  e(t) max=! fabs(v(t, i) - v(t-1, i)) where t in 1:T
  n = until e(t) < eps where t in 0:T
  y(i) = v(n, i)
}
def shifted(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  (v, n) = power(A, b, T, eps)
  z(0, i) = v(i)
  z(t, i) +=! 0.5 * A(i, j) * z(t-1, j) where t in 1:T
  s(t) +=! fabs(z(t, i)) where t in 0:T
  until s(t) > 2.0 where t in 0:T
  y(i) = z(T-1, i)
}"""


def test_one_recurrence_begins_where_another_has_ended() -> None:
    """The second is a product, which is computed under another name; both statements have a step t."""
    A, b = system(9)
    program = polyc.compile(POWER, "shifted", dynamic=True)
    for limit, eps in ((1, 0.1), (4, 1e-9), (60, 1e-6)):
        v, n = b, 0
        for step in range(1, limit):
            w = A @ v
            old, v, n = v, w / np.abs(w).max(), step
            if np.abs(v - old).max() < eps:
                break
        for _ in range(1, limit):
            if np.abs(v).sum() > 2.0:
                break
            v = 0.5 * A @ v
        check(program(A, b, limit, eps), (v, n))


@polyc.op(dynamic=True)
def follow(key: "i64[T]", table: "f64[K]", M: "f64[K, N, N]", b: "f64[N]"):  # type: ignore[no-untyped-def]
    x[0, i] = b[i]
    for t in range(T):
        if table[key[t]] > 2.0:
            break
        w[t] = table[key[t]]
        x[t + 1, i] = w[t] * x[t, i] + sum(M[key[t], i, j] * x[t, j])
    y[i] = x[T, i]
    return y, t


def test_keys_behind_the_end_are_not_looked_up() -> None:
    """Neither by the condition, nor by a step, nor by a sum; those in front of it are checked."""
    table, M, b = np.array([0.5, 1.0, 0.25, 3.0]), np.random.default_rng(1).random((4, 3, 3)), np.ones(3)
    for keys in ([1, 0, 3, -7, 100], [0, 1, 2], [3, 9], [0, 1, 3, 2**40]):
        x = b
        for t, k in enumerate(keys):
            if table[k] > 2.0:
                break
            x = table[k] * x + M[k] @ x
        check(follow(np.array(keys), table, M, b), (x, t))
    with pytest.raises(polyc.PolycError) as caught:
        follow(np.array([0, 9, 3]), table, M, b)
    assert caught.value.code == "bounds-index"


SCATTER = """def scatter(int64(T) key, float(N) b) -> (float(T, 5) H, y, n) {
  x(0, i) = b(i)
  x(t+1, i) = 0.5 * x(t, i) where t in 0:T
  H(t, key(t)) +=! x(t, 0) where t in 0:T
  n = until key(t) == 4 where t in 0:T
  y(i) = x(n, i)
}"""


def test_what_is_added_at_keys_ends_with_a_condition_on_arguments() -> None:
    """It needs nothing of the recurrence, and ends all that steps over its index."""
    expected = np.zeros((5, 5), np.float32)
    expected[[0, 1, 2, 3, 4], [1, 0, 4, 4, 4]] = [1, 0.5, 0.25, 0.25, 0.25]
    check(operator(SCATTER)(np.array([1, 0, 4, -7, 100]), np.ones(2, np.float32)), (expected, [0.25, 0.25], 2))


def test_steps_that_are_not_returned_have_no_element_in_front_of_the_first() -> None:
    f = polyc.compile("""def f(double u, int64 T) -> (z, p, m, n) {
  x(0) = u
  x(t) = x(t-1) * 2.0 where t in 1:T
  w(t) = x(t) + 1.0 where t in 1:T
  n = until x(t) > 5.0 where t in 1:T
  z(t) = 2.0 * w(t)
  p *=! w(t)
  m min=! w(t)
}""")
    z, p, m, n = f(1.0, 5)
    assert z.tolist() == [6.0, 10.0, 18.0, 18.0]
    assert (p, m, n) == (3.0 * 5.0 * 9.0 * 9.0, 3.0, 3)


PREFIX = """def prefix(double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = b(i)
  s(t, i) +=! x(k, i) where k in 0:t+1, t in 0:T
  x(t+1, i) = 0.125 * s(t, i) where t in 0:T
  e(t) max=! fabs(x(t, i)) where t in 0:T
  n = until e(t) < eps where t in 0:T
  y(i) = x(n, i)
}"""


def test_a_step_that_sums_over_all_steps_before_was_no_part_of_the_recurrence() -> None:
    b = np.array([1.0, -2.0, 3.0])
    for limit, eps in ((1, 5.0), (5, 0.0), (30, 0.5), (9, 5.0)):
        x = [b]
        for t in range(limit):
            if np.abs(x[t]).max() < eps or t == limit - 1:
                break
            x.append(0.125 * np.sum(x, axis=0))
        check(operator(PREFIX)(b, limit, eps), (x[t], t))


@polyc.op(dynamic=True)
def scaled(a: "f32[N]", T: "i64"):  # type: ignore[no-untyped-def]
    x[0, i] = a[i]
    for t in range(1, T):
        x[t, i] = x[t - 1, i] / 2
        if max(x[t, i]) < 0.25:
            break
    y[i] = x[t, i] * t
    return y


def test_the_number_of_the_last_round_takes_the_type_of_what_it_meets() -> None:
    """As Python's int does: float32 times int64 would be float64."""
    y = scaled(np.ones(3, np.float32), 9)
    assert (y.dtype, y.tolist()) == (np.float32, [0.375] * 3)
