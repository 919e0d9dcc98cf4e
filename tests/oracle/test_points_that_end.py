"""Recurrences whose points end one by one: the bits of NumPy's loop over all steps, however many points a strip has."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import polyc

Array = np.ndarray[Any, Any]

ESCAPE = """def escape(double(N) a, double(N) b, int64 T) -> (u, v, steps) {
  x(0, i) = 0.0 * a(i)
  y(0, i) = 0.0 * a(i)
  n(0, i) = int64(0 * i) where i in 0:N
  out(t, i) = x(t, i) * x(t, i) + y(t, i) * y(t, i) > 4.0 where t in 0:T
  x(t + 1, i) = out(t, i) ? x(t, i) : x(t, i) * x(t, i) - y(t, i) * y(t, i) + a(i) where t in 0:T
  y(t + 1, i) = out(t, i) ? y(t, i) : 2.0 * x(t, i) * y(t, i) + b(i) where t in 0:T
  n(t + 1, i) = out(t, i) ? n(t, i) : n(t, i) + 1 where t in 0:T
  u(i) = x(T, i)
  v(i) = y(T, i)
  steps(i) = n(T, i)
}"""


def escape(a: Array, b: Array, T: int) -> tuple[Array, ...]:
    x, y, n = 0.0 * a, 0.0 * a, np.zeros(a.shape, np.int64)
    for _ in range(T):
        with np.errstate(invalid="ignore"):
            out = x * x + y * y > 4.0
            x, y = np.where(out, x, x * x - y * y + a), np.where(out, y, 2.0 * x * y + b)
        n = np.where(out, n, n + 1)
    return x, y, n


COLLATZ = """def collatz(int64(N) first, int64 T) -> (last, steps) {
  x(0, i) = first(i)
  s(0, i) = int64(0) * first(i)
  x(t + 1, i) = x(t, i) == 1 ? x(t, i) : (x(t, i) % 2 == 0 ? x(t, i) / 2 : 3 * x(t, i) + 1) where t in 0:T
  s(t + 1, i) = x(t, i) == 1 ? s(t, i) : s(t, i) + 1 where t in 0:T
  last(i) = x(T, i)
  steps(i) = s(T, i)
}"""


def collatz(first: Array, T: int) -> tuple[Array, ...]:
    x, s = first.copy(), np.zeros_like(first)
    for _ in range(T):
        s = np.where(x == 1, s, s + 1)
        x = np.where(x == 1, x, np.where(x % 2 == 0, x // 2, 3 * x + 1))
    return x, s


# A flag that is kept, a test of the step among what raises it, and a place that is not kept but stays the same.
FLAG = """def flag(float(N) a, int64 T) -> (u, w) {
  x(0, i) = a(i)
  done(0, i) = a(i) > 3.0
  x(t + 1, i) = done(t, i) ? x(t, i) : x(t, i) * 0.5 + 1.0 where t in 0:T
  done(t + 1, i) = done(t, i) || x(t, i) < 1.5 || t == 7 where t in 0:T
  e(t, i) = x(t, i) * 3.0 where t in 0:T
  u(i) = x(T, i)
  w(i) = e(T - 1, i)
}"""


def flag(a: Array, T: int) -> tuple[Array, ...]:
    x, done, e = a, a > 3.0, a
    for t in range(T):
        e = x * np.float32(3)
        x, done = np.where(done, x, x * np.float32(0.5) + np.float32(1)), done | (x < 1.5) | (t == 7)
    return x, e


# The test asks for the step, so that what is kept at one moves at another; neighbours need each other.
SWITCHED = """def switched(double(N) a, int64 T) -> (u, v) {
  x(0, i) = a(i)
  x(t + 1, i) = x(t, i) > 0.5 && t % 3 != 0 ? x(t, i) : x(t, i) * 0.5 + 0.25 where t in 0:T
  y(0, i) = a(i)
  y(t + 1, i) = y(t, i) > 0.5 ? y(t, i) : y(t, i) + y(t, max(i - 1, 0)) * 0.25 where t in 0:T, i in 0:N
  u(i) = x(T, i)
  v(i) = y(T, i)
}"""


def switched(a: Array, T: int) -> tuple[Array, ...]:
    x, y = a, a
    for t in range(T):
        x = np.where((x > 0.5) & (t % 3 != 0), x, x * 0.5 + 0.25)
        y = np.where(y > 0.5, y, y + y[np.maximum(np.arange(len(y)) - 1, 0)] * 0.25)
    return x, y


def points(kind: str, n: int) -> list[Array]:
    rng = np.random.default_rng(n)
    if kind == "collatz":
        return [rng.integers(1, 3000, n)]
    if kind == "escape":
        a, b = rng.uniform(-2, 1, n), rng.uniform(-1.2, 1.2, n)
        a[n // 2 :: 7] = np.nan
        return [a, b]
    return [rng.uniform(-1, 4, n).astype(np.float32 if kind == "flag" else np.float64)]


PROGRAMS = {"escape": (ESCAPE, escape), "collatz": (COLLATZ, collatz), "flag": (FLAG, flag), "switched": (SWITCHED, switched)}


@functools.cache
def operator(kind: str) -> Any:
    return polyc.compile(PROGRAMS[kind][0], dynamic=True)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_points_that_end_have_the_bits_of_all_steps(kind: str) -> None:
    """For sizes around those of vectors and strips, and numbers of steps around those that points take."""
    for n in (0, 1, 7, 33, 101):
        for T in (1, 2, 9, 60):
            given = points(kind, n)
            for result, expected in zip(operator(kind)(*given, T), PROGRAMS[kind][1](*given, T), strict=True):
                np.testing.assert_array_equal(result, expected, f"{kind} {n} {T}")


@pytest.mark.parametrize(("kind", "runs_in_strips"), [("escape", True), ("collatz", True), ("flag", True), ("switched", False)])
def test_strips_of_points_ask_whether_any_still_moves(kind: str, runs_in_strips: bool) -> None:
    pinned = polyc.compile(PROGRAMS[kind][0], target="x86-64-v3", dynamic=True)
    text = pinned.lower(*points(kind, 101), 60).as_text("loops")
    assert ("||= !" in text) == runs_in_strips, text


def test_a_last_vector_of_few_lanes_does_not_hide_that_others_move() -> None:
    """Truth values of a whole vector lay where those of half of one were stored: points stopped that were in the others."""
    program = polyc.compile(ESCAPE)
    for k in range(26):
        a, b = np.full(26, 9.0), np.zeros(26)
        a[k] = 0.2501 + k * 1e-4
        for result, expected in zip(program(a, b, 50), escape(a, b, 50), strict=True):
            np.testing.assert_array_equal(result, expected)
