"""Faults that random programs found, by symptom."""

import numpy as np
import pytest

import polyc
from polyc.ir.text_reader import parse_program
from polyc.machine import X86_64_V3
from polyc.scheduler.rewriting.rules import borders
from tests.property.strategies import Case
from tests.property.test_loops import check_loops


def test_clamped_gather_through_u64() -> None:
    program = parse_program(
        """program p(A: f32[N], I: u64[M]) -> (O)
             sizes N, M
             output O: f32[?]
             S0(i): O[i] = A[max(min(i64(I[i]), N - 1), 0)]"""
    )
    arrays = {"A": np.arange(3, dtype=np.float32), "I": np.array([0, 2, 7, 1], np.uint64)}
    check_loops(Case(program, {"N": 3, "M": 4}, arrays, {}), X86_64_V3, True)


def test_reduction_over_a_range_that_is_always_empty() -> None:
    program = parse_program(
        """program p(A: f32[N]) -> (O)
             sizes N
             output O: f32[]
             S0(i, j): O[] += A[i] init 2.0
               where j in 1:1"""
    )
    check_loops(Case(program, {"N": 3}, {"A": np.ones(3, np.float32)}, {}), X86_64_V3, True)


def test_accumulation_over_a_range_that_is_empty_at_constant_sizes() -> None:
    program = parse_program(
        """program p(A: f32[N, M]) -> (T, O from O.in)
             sizes N, M
             output T: f32[?, ?]
             accumulated O.in: f32[] of O
             output O: f32[]
             S0(i, j): T[i, j] = A[i, j]
             S1(i, j): O[] += A[i, j] init O.in[]"""
    )
    arrays = {"A": np.ones((3, 0), np.float32)}
    check_loops(Case(program, {"N": 3, "M": 0}, arrays, {"O": np.full((), 5, np.float32)}), X86_64_V3, False)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_over_points_that_a_condition_allows(dynamic: bool) -> None:
    text = """def lags(float(N) x, float(T) h) -> (r, y) {
      r(l) +=! x(n) * x(n + l) where l in 0:N, n in 0:N-l
      y(i) +=! x(i - t) * h(t) where i in 0:N, t <= i
    }"""
    x, h = np.arange(1, 8, dtype=np.float32), np.array([1, -1, 2], np.float32)
    r, y = polyc.compile(text, dynamic=dynamic, verify=True)(x, h)
    assert np.array_equal(r, np.correlate(x, x, "full")[6:])
    assert np.array_equal(y, np.convolve(x, h)[:7])


def test_recurrence_over_intervals() -> None:
    text = """def chain(int64(N) d) -> (cost) {
      m(0, i) = int64(0) where i in 0:N-1
      m(l, i) min=! m(k, i) + m(l - 1 - k, i + k + 1) + d(i) * d(i + k + 1) * d(i + l + 1)
        where l in 1:N-1, i in 0:N-1-l, k in 0:l
      cost = m(N - 2, 0)
    }"""
    assert polyc.compile(text, verify=True)(np.array([30, 35, 15, 5, 10, 20, 25])) == 15125  # Cormen et al., 15.2


def test_padded_neighbours_in_a_recurrence_of_any_number_of_steps() -> None:
    text = """def spread(int32(N) x, int32(T) steps) -> (y) {
      A(0, i) = x(i)
      c(t, i) = pad(A(t, i - 1), wrap) + pad(A(t, i + 1), wrap) where t in 0:T, i in 0:N
      A(t, i) = c(t - 1, i) where t in 1:T+1, i in 0:N
      y(i) = A(T, i) where i in 0:N
    }"""
    operator = polyc.compile(text, dynamic=True)
    x = np.arange(5, dtype=np.int32)
    for steps in (1, 3):
        want = x
        for _ in range(steps):
            want = np.roll(want, 1) + np.roll(want, -1)
        assert np.array_equal(operator(x, np.zeros(steps, np.int32)), want)


@pytest.mark.parametrize("dynamic", [False, True])
def test_padded_neighbours_of_a_step_that_a_condition_allows(dynamic: bool) -> None:
    """The step before was taken for any step, as the first of all has none."""
    text = """def life(int32(N, M) g, float(T) steps) -> (A) {
      c(t, i, j) +=! t > 0 ? pad(A(t - 1, i + a - 1, j + b - 1), wrap) : 0
        where t in 0:T, i in 0:N, j in 0:M, a in 0:3, b in 0:3
      A(t, i, j) = t == 0 ? g(i, j) : (c(t, i, j) == 3 || (c(t, i, j) == 4 && A(t - 1, i, j) == 1) ? 1 : 0)
        where t in 0:T, i in 0:N, j in 0:M
    }"""
    glider = np.zeros((5, 6), np.int32)
    glider[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    lives = polyc.compile(text, dynamic=dynamic)(glider, np.zeros(5, np.float32))
    assert np.array_equal(lives[4], np.roll(glider, (1, 1), (0, 1)))


def test_a_recurrence_that_a_rewriting_ties_up_is_scheduled_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy with borders has elements, which nothing needs, of the step before the first: of the last one, wrapped."""
    monkeypatch.setattr(borders, "MINIMUM_USES", 1)
    text = """def f(double(N, M) X, float(T) steps) -> (V) {
      U(0, i, j) = X(i, j)
      V(0, i, j) = X(i, j)
      U(t, i, j) = pad(V(t - 1, i, j - 1), wrap) + (i >= 1 ? U(t, i - 1, j) : 0.5) where t in 1:T, i in 0:N, j in 0:M
      V(t, i, j) = U(t, i, j) where t in 1:T, i in 0:N, j in 0:M
    }"""
    operator = polyc.compile(text)
    x, steps = np.arange(6.0).reshape(2, 3), np.zeros(4, np.float32)
    expected = x
    for _ in range(3):
        expected = np.cumsum(np.roll(expected, 1, axis=1), axis=0) + 0.5
    assert np.array_equal(operator(x, steps)[3], expected)
    assert any(r.pass_name == "rewrite" for r in operator.lower(x, steps).remarks)


def test_a_reader_of_a_recurrence_may_stand_between_its_statements() -> None:
    text = """def f(float(N) a) -> (E) {
      D(0) = a(0)
      D(i) = F(i - 1) + a(i) where i in 1:N
      E(i) = F(i) + D(i)
      F(i) = D(i) * 2.0
    }"""
    assert np.array_equal(polyc.compile(text)(np.array([1, 2, 3], np.float32)), [3, 12, 33])


def test_remainders_of_the_extent_of_an_empty_tensor() -> None:
    text = "def f(float(N) A, float(M) b) -> (T) { T(i) +=! A((r + 2) % N) * b(r) where i in 0:N }"
    operator, b = polyc.compile(text), np.arange(3, dtype=np.float32)
    assert operator(np.ones(0, np.float32), b).shape == (0,)
    assert operator(np.ones(5, np.float32), b).tolist() == [3] * 5
