"""Iterations as one operator each: conjugate gradients, power iteration, means of clusters, Newton's method.

Same results and same number of steps as loops that break, one step's state in memory, and no loops in steps behind the last.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.scheduler.rewriting import recurrence_ends
from tests.oracle.test_recurrence_ends import Array, system

CONJUGATE_GRADIENTS = """def solve(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = 0.0 * b(i)
  r(0, i) = b(i)
  p(0, i) = b(i)
  done(0) = rr(0) < eps
  rr(t) +=! r(t, i) * r(t, i) where t in 0:T
  q(t, i) +=! A(i, j) * p(t, j) where t in 0:T
  pq(t) +=! p(t, i) * q(t, i) where t in 0:T
  x(t, i) = done(t-1) ? x(t-1, i) : x(t-1, i) + rr(t-1) / pq(t-1) * p(t-1, i) where t in 1:T
  r(t, i) = done(t-1) ? r(t-1, i) : r(t-1, i) - rr(t-1) / pq(t-1) * q(t-1, i) where t in 1:T
  p(t, i) = done(t-1) ? p(t-1, i) : r(t, i) + rr(t) / rr(t-1) * p(t-1, i) where t in 1:T
  done(t) = done(t-1) || rr(t) < eps where t in 1:T
  y(i) = x(T-1, i)
  n +=! done(t) ? 0 : 1 where t in 0:T-1
}"""
"""The solution follows: nothing of the next step asks for it."""

POWER = """def power(double(N, N) A, double(N) b, int64 T, double eps) -> (y, l, n) {
  v(0, i) = b(i)
  done(0) = bool(0)
  w(t, i) +=! A(i, j) * v(t, j) where t in 0:T
  m(t) max=! fabs(w(t, i)) where t in 0:T
  e(t) max=! fabs(w(t, i) / m(t) - v(t, i)) where t in 0:T
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  v(t, i) = done(t) ? v(t-1, i) : w(t-1, i) / m(t-1) where t in 1:T
  g(0) = double(0)
  g(t) = done(t) ? g(t-1) : m(t-1) where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(i) = v(T-1, i)
  l = g(T-1)
}"""
"""The eigenvalue follows."""

MEANS = """def means(double(N, D) X, double(K, D) start, int64 T) -> (y, a, n) {
  C(0, k, d) = start(k, d)
  done(0) = bool(0)
  dist(t, i, k) +=! (X(i, d) - C(t, k, d)) * (X(i, d) - C(t, k, d)) where t in 0:T, i in 0:N, k in 0:K
  A(t, i) argmin=! dist(t, i, k) where t in 0:T
  moved(t) +=! A(t, i) == A(t-1, i) ? 0 : 1 where t in 1:T
  size(t, k) +=! A(t, i) == k ? 1.0 : 0.0 where t in 0:T-1, k in 0:K, i in 0:N
  S(t, k, d) +=! A(t, i) == k ? X(i, d) : double(0) where t in 0:T-1, k in 0:K, i in 0:N, d in 0:D
  C(t, k, d) = done(t-1) || size(t-1, k) == 0.0 ? C(t-1, k, d) : S(t-1, k, d) / size(t-1, k) where t in 1:T
  B(0, i) = A(0, i)
  B(t, i) = done(t-1) ? B(t-1, i) : A(t, i) where t in 1:T
  done(t) = done(t-1) || moved(t) == 0 where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(k, d) = C(T-1, k, d)
  a(i) = B(T-1, i)
}"""
"""The clusters of the last step follow, and their start comes with them: finished steps do not look for clusters again."""

NEWTON = """def newton(double(N, N) A, double(N) b, int64 T, double eps) -> (y, n) {
  x(0, i) = b(i)
  done(0) = bool(0)
  f(t, i) +=! A(i, j) * x(t, j) where t in 0:T
  g(t, i) = f(t, i) + x(t, i) * x(t, i) * x(t, i) - b(i) where t in 0:T
  e(t) max=! fabs(g(t, i)) where t in 0:T
  B(t, 0, i, j) = i == j ? A(i, j) + 3.0 * x(t, i) * x(t, i) : A(i, j) where t in 0:T, i in 0:N, j in 0:N
  c(t, 0, i) = g(t, i) where t in 0:T
  B(t, k+1, i, j) = B(t, k, i, j) - B(t, k, i, k) / B(t, k, k, k) * B(t, k, k, j)
    where i > k, j > k, t in 0:T, k in 0:N, i in 0:N, j in 0:N
  c(t, k+1, i) = c(t, k, i) - B(t, k, i, k) / B(t, k, k, k) * c(t, k, k) where i > k, t in 0:T, k in 0:N, i in 0:N
  z(t, i) +=! B(t, i, i, j) * s(t, j) where j > i, t in 0:T, i in 0:N, j in 0:N
  s(t, i) = (c(t, i, i) - z(t, i)) / B(t, i, i, i) where t in 0:T, i in 0:N
  done(t) = done(t-1) || e(t-1) < eps where t in 1:T
  x(t, i) = done(t) ? x(t-1, i) : x(t-1, i) - s(t-1, i) where t in 1:T
  n +=! done(t) ? 0 : 1 where t in 1:T
  y(i) = x(T-1, i)
}"""
"""Each step eliminates, and substitutes backwards."""


def conjugate_gradients(A: Array, b: Array, limit: int, eps: float) -> tuple[Any, ...]:
    x, r, p = 0 * b, b, b
    for step in range(limit - 1):
        if r @ r < eps:
            return x, step
        q = A @ p
        alpha = r @ r / (p @ q)
        x, new = x + alpha * p, r - alpha * q
        r, p = new, new + new @ new / (r @ r) * p
    return x, limit - 1


def power(A: Array, b: Array, limit: int, eps: float) -> tuple[Any, ...]:
    v, largest = b, 0.0
    for step in range(limit - 1):
        w = A @ v
        if np.abs(w / np.abs(w).max() - v).max() < eps:
            return v, largest, step
        largest = np.abs(w).max()
        v = w / largest
    return v, largest, limit - 1


def means(X: Array, start: Array, limit: int) -> tuple[Any, ...]:
    def nearest() -> Array:
        return np.asarray(((X[:, None] - centres) ** 2).sum(-1).argmin(1))

    centres = start.copy()
    a = nearest()
    for step in range(limit - 1):
        for k in set(a):
            centres[k] = X[a == k].mean(0)
        before, a = a, nearest()
        if (a == before).all():
            return centres, a, step
    return centres, a, limit - 1


def newton(A: Array, b: Array, limit: int, eps: float) -> tuple[Any, ...]:
    x = b
    for step in range(limit - 1):
        g = A @ x + x**3 - b
        if np.abs(g).max() < eps:
            return x, step
        x = x - np.linalg.solve(A + np.diag(3 * x * x), g)
    return x, limit - 1


MATRIX, RIGHT = system(13)
POINTS = np.random.default_rng(3).random((61, 3))
CASES = {
    "conjugate gradients": (CONJUGATE_GRADIENTS, conjugate_gradients, (MATRIX + MATRIX.T, RIGHT), (1e-12,)),
    "power iteration": (POWER, power, (MATRIX + np.diag(RIGHT), RIGHT), (1e-3,)),
    "means of clusters": (MEANS, means, (POINTS, POINTS[:5].copy()), ()),
    "Newton's method": (NEWTON, newton, (MATRIX, RIGHT), (1e-9,)),
}


@functools.cache
def operator(name: str) -> Any:
    return polyc.compile(CASES[name][0], dynamic=True)


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_takes_the_steps_of_its_loop(name: str) -> None:
    _, loop, arrays, bounds = CASES[name]
    taken = set()
    for limit in (1, 2, 3, 5, 90):
        expected = loop(*arrays, limit, *bounds)
        result = operator(name)(*arrays, limit, *bounds)
        assert int(result[-1]) == expected[-1]
        for own, other in zip(result, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)
        taken.add(expected[-1])
    assert 3 < max(taken) < 89


STATES = {"conjugate gradients": "xrpq", "power iteration": "vwmg", "means of clusters": "B"}


@pytest.mark.parametrize("name", STATES)
def test_an_iteration_keeps_one_step_and_runs_no_loops_behind_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps as long as for which the last one would be computed where it is read, beside those loops."""
    monkeypatch.setattr(recurrence_ends, "LEAST_ELEMENTS", 1)
    text, _, arrays, bounds = CASES[name]
    lowered = polyc.compile(text, target="x86-64-v3").lower(*arrays, 90, *bounds)
    assert "= true;" in lowered.as_text("loops")
    assert {state: lowered.storage[state].moduli[0] for state in STATES[name]} == dict.fromkeys(STATES[name], 1)
