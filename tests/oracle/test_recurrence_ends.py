"""Recurrences that end where a condition on their data holds: same values and same number of steps as loops that break."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops_reader import parse_loops

Array = np.ndarray[Any, Any]

SOLVE = """def solve(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = 0.0 * b(i)
  r(t, i) +=! A(i, j) * x(t, j) where t in 0:T
  e(t) max=! fabs(b(i) - r(t, i)) where t in 0:T
  done(0) = e(0) < eps
  done(t) = done(t-1) || e(t) < eps where t in 1:T
  x(t, i) = done(t-1) ? x(t-1, i) : x(t-1, i) + (b(i) - r(t-1, i)) / A(i, i) where t in 1:T
  y(i) = x(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 0:T-1
}"""
"""The flag is that of the step itself, so that a start which is good enough takes no step."""

SPARSE = """def solve(double(Z) v, int32(Z) c, int64(P) ptr, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = 0.0 * b(i)
  done(0) = bool(0)
  r(t, i) +=! v(k) * x(t, c(k)) where t in 0:T, i in 0:N, k in ptr(i):ptr(i+1)
  e(t) max=! fabs(b(i) - r(t, i)) where t in 0:T
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  x(t, i) = done(t) ? x(t-1, i) : x(t-1, i) + 0.25 * (b(i) - r(t-1, i)) where t in 1:T
  y(i) = x(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 1:T
}"""

SMOOTH = """def smooth(double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = b(i)
  done(0) = bool(0)
  e(t) max=! fabs(x(t, i) - 0.5 * (x(t, i-1) + x(t, i+1))) where t in 0:T, i in 1:N-1
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  x(t, i) = done(t) || i == 0 || i == N-1 ? x(t-1, i) : 0.5 * (x(t-1, i-1) + x(t-1, i+1)) where t in 1:T, i in 0:N
  y(i) = x(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 1:T
}"""
"""Two steps at a time are alive: the first finished one is copied, the others are not."""


@polyc.op(dynamic=True)
def solve_in_python(A: "f64[N, N]", b: "f64[N]", T: "i64", eps: "f64"):  # type: ignore[no-untyped-def]
    x[0, i] = 0.0 * b[i]
    done[0] = False
    with polyc.where(0 <= t < T):
        r[t, i] = sum(A[i, j] * x[t, j])
        e[t] = max(abs(b[i] - r[t, i]))
    with polyc.where(1 <= t < T):
        done[t] = done[t - 1] or e[t - 1] < eps
        x[t, i] = x[t - 1, i] if done[t] else x[t - 1, i] + (b[i] - r[t - 1, i]) / A[i, i]
        n = sum(0 if done[t] else 1)
    y[i] = x[T - 1, i]
    return y, n


AVERAGE = """def average(double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = b(i)
  e(t) max=! fabs(x(t, i)) where t in 0:T
  done(0) = e(0) < eps
  done(t) = done(t-1) || e(t) < eps where t in 1:T
  x(t, i) = done(t-1) ? x(t-1, i) : 0.5 * x(t-1, i) where t in 1:T
  u(0, i) = b(i)
  u(t, i) = done(t-1) ? u(t-1, i) : u(t-1, i) + x(t, i) where t in 1:T
  y(i) = u(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 0:T-1
}"""
"""A statement without indices, ``done(0) = …``, stands between those of a recurrence."""


@functools.cache
def operator(text: str) -> Any:
    return polyc.compile(text, dynamic=True)


def system(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(n)
    return rng.random((n, n)) / n + 3 * np.eye(n), rng.random(n)


def solve(A: Array, b: Array, limit: int, eps: float, factor: Array | float | None = None) -> tuple[Array, int]:
    x = 0 * b
    for step in range(limit - 1):
        r = A @ x
        if np.abs(b - r).max() < eps:
            return x, step
        x = x + ((b - r) / np.diag(A) if factor is None else factor * (b - r))
    return x, limit - 1


def smooth(b: Array, limit: int, eps: float) -> tuple[Array, int]:
    x = b.copy()
    for step in range(limit - 1):
        if np.abs(x[1:-1] - 0.5 * (x[:-2] + x[2:])).max() < eps:
            return x, step
        x[1:-1] = 0.5 * (x[:-2] + x[2:])
    return x, limit - 1


def check(result: Any, expected: tuple[Array, int]) -> None:
    assert int(result[1]) == expected[1]
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-12, atol=1e-13)


STEPS = pytest.mark.parametrize("limit", [1, 2, 3, 6, 40, 41])


@STEPS
def test_a_solver_ends_where_its_residual_is_small(limit: int) -> None:
    A, b = system(23)
    for eps in (1e-2, 1e-9, 0.0):
        check(operator(SOLVE)(A, b, limit, eps), solve(A, b, limit, eps))
        check(solve_in_python(A, b, limit, eps), solve(A, b, limit, eps))


def test_a_start_that_is_good_enough_takes_no_step() -> None:
    A, b = system(23)
    check(operator(SOLVE)(A, b, 40, 10.0), (0 * b, 0))


def test_a_single_element_stands_between_the_steps_of_a_recurrence() -> None:
    """No order of loops was found for it where T is symbolic."""
    b = np.array([0.75, -1.0, 0.25])
    lowered = operator(AVERAGE).lower(b, 9, 0.1)
    assert any(r.message.startswith("ilp: proved") for r in lowered.remarks)
    for limit in (1, 2, 3, 9):
        x, u, steps = b, b, 0
        while steps < limit - 1 and np.abs(x).max() >= 0.1:
            x, steps = 0.5 * x, steps + 1
            u = u + x
        check(operator(AVERAGE)(b, limit, 0.1), (u, steps))


def test_a_residual_without_a_number_ends_nothing() -> None:
    A, b = system(23)
    y, n = operator(SOLVE)(A, np.where(np.arange(23) == 3, np.nan, b), 9, 1e-3)
    assert (int(n), bool(np.isnan(y).all())) == (8, True)


def rows(n: int) -> tuple[Array, Array, Array]:
    """Three entries a row, as values, columns and ends of rows."""
    columns = (np.arange(n)[:, None] + [0, 1, 5]) % n
    return np.tile([3.0, 0.3, 0.2], n), columns.astype(np.int32).ravel(), np.arange(0, 3 * n + 1, 3)


@STEPS
def test_sparse_rows_end_likewise(limit: int) -> None:
    v, c, ptr = rows(19)
    A = np.zeros((19, 19))
    A[np.repeat(np.arange(19), 3), c] = v
    b = np.random.default_rng(1).random(19)
    for eps in (1e-2, 1e-7):
        check(operator(SPARSE)(v, c, ptr, b, limit, eps), solve(A, b, limit, eps, 0.25))


@pytest.mark.parametrize("limit", [2, 40])
def test_columns_that_do_not_exist_are_named_though_steps_are_left_out(limit: int) -> None:
    v, c, ptr = rows(19)
    c[17] = 19
    with pytest.raises(PolycError) as caught:
        operator(SPARSE)(v, c, ptr, np.zeros(19), limit, 1e-2)
    assert caught.value.code == "bounds-index"


@STEPS
def test_a_stencil_with_two_steps_alive_ends_likewise(limit: int) -> None:
    b = np.random.default_rng(2).random(31)
    for eps in (0.2, 0.05, 1e-3):
        check(operator(SMOOTH)(b, limit, eps), smooth(b, limit, eps))


@pytest.mark.parametrize("text, arrays", [(SOLVE, system(23)), (SMOOTH, (np.random.default_rng(2).random(31),))])
def test_finished_steps_run_no_loops(text: str, arrays: tuple[Array, ...]) -> None:
    """That a recurrence ends is seen in the loops, and they mean the same with and without it."""
    arguments = (*arrays, 40, 1e-2)
    texts = []
    for switched_off in ((), ("skip-finished-steps",)):
        texts.append(polyc.compile(text, disable=switched_off, target="x86-64-v3").lower(*arguments).as_text("loops"))
        nest = parse_loops(texts[-1])
        found = [np.zeros(arrays[-1].shape), np.zeros((), np.int32)]
        assert interpret_loops(nest, [*map(np.asarray, arguments), *found], dict.fromkeys(nest.parameters, 0)) == []
        check(found, solve(arrays[0], arrays[1], 40, 1e-2) if text is SOLVE else smooth(arrays[0], 40, 1e-2))
    assert "= true;" in texts[0]
    assert "= true;" not in texts[1]
    assert "= true;" in operator(text).lower(*arguments).as_text("loops")
