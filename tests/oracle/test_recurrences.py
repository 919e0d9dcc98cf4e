"""Tensors that read themselves: kernels against the interpreter and NumPy, and how they are scheduled."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from polyc.poly.rows import format_rows

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def diagonal(n: int) -> Array:
    return draw(n, n) + 3 * n * np.eye(n, dtype=np.float32)


SCAN = "def f(float(N) x) -> (S) { S(0) = x(0)  S(i) = S(i-1) + x(i) where i in 1:N }"
BACKWARDS = "def f(float(N) x) -> (S) { S(N-1) = x(N-1)  S(i) = S(i+1) + x(i) where i in 0:N-1 }"
ONE_STATEMENT = "def f(float(N) x) -> (S) { S(i) = i == 0 ? x(0) : S(i-1) * 0.5 + x(i) }"
ROWS = "def f(float(M, N) x) -> (S) { S(m, 0) = x(m, 0)  S(m, i) = S(m, i-1) + x(m, i) where i in 1:N, m in 0:M }"
JACOBI = """def f(float(N) x, float(T) steps) -> (B) {
  A(0, i) = x(i)
  A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : (A(t-1, i-1) + A(t-1, i) + A(t-1, i+1)) / 3.0 where t in 1:T+1, i in 0:N
  B(i) = A(T, i)
}"""
SEIDEL = JACOBI.replace("A(t-1, i-1) + A(t-1, i)", "A(t, i-1) + A(t-1, i)")
HEAT = """def f(float(N, M) x, float(T) steps) -> (B) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : A(t-1, i, j) * 0.5 + (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1) + A(t-1, i, j+1)) * 0.125
    where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}"""
CELL = """def f(float(T, D) x, float(D, H) W, float(H, H) U) -> (Y) {
  h(0, j) = 0.0 where j in 0:H
  p(t, j) +=! x(t, d) * W(d, j)
  z(t, j) +=! h(t, k) * U(k, j) where t in 0:T
  h(t + 1, j) = tanh(z(t, j) + p(t, j))
  Y(j) = h(T, j)
}"""
SOLVE = """def f(float(N, N) L, float(N) b) -> (x) {
  s(i) +=! L(i, j) * x(j) where j < i
  x(i) = (b(i) - s(i)) / L(i, i)
}"""
LU = """def f(float(N, N) A) -> (L, U) {
  S(i, j) +=! L(i, k) * U(k, j) where k < i, k < j, i in 0:N, j in 0:N, k in 0:N
  U(i, j) +=! A(i, j) - S(i, j) where i <= j
  L(i, j) +=! (A(i, j) - S(i, j)) / U(j, j) where j < i
}"""
CHOLESKY = """def f(float(N, N) A) -> (L) {
  S(i, j) +=! L(i, k) * L(j, k) where k < j, j <= i, i in 0:N, j in 0:N, k in 0:N
  L(i, j) = i < j ? 0.0 : (i == j ? sqrt(A(i, i) - S(i, i)) : (A(i, j) - S(i, j)) / L(j, j))
}"""
PATHS = """def f(float(N, N) A) -> (D) {
  P(0, i, j) = A(i, j)
  P(k + 1, i, j) = fmin(P(k, i, j), P(k, i, k) + P(k, k, j)) where k in 0:N, i in 0:N, j in 0:N
  D(i, j) = P(N, i, j)
}"""
SEQUENCE = """def f(int32(N) a, int32(M) b) -> (int32 R) {
  T(0, j) = 0 where j in 0:M+1
  T(i, 0) = 0 where i in 1:N+1
  T(i, j) = a(i-1) == b(j-1) ? T(i-1, j-1) + 1 : max(T(i-1, j), T(i, j-1)) where i in 1:N+1, j in 1:M+1
  R = T(N, M)
}"""


def smooth(x: Array, steps: Array) -> Array:
    for _ in steps:
        x = np.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) / 3, x[-1:]])
    return x


def run_cell(x: Array, w: Array, u: Array) -> Array:
    h = np.zeros(u.shape[0], np.float32)
    for row in x:
        h = np.tanh(h @ u + row @ w)
    return h


def shortest(a: Array) -> Array:
    d = a.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    return d


def spd(n: int) -> Array:
    m = draw(n, n)
    return m @ m.T + n * np.eye(n, dtype=np.float32)


CASES: dict[str, tuple[str, tuple[Array, ...], Any]] = {
    "scan": (SCAN, (draw(100),), lambda x: np.cumsum(x)),
    "backwards": (BACKWARDS, (draw(100),), lambda x: np.cumsum(x[::-1])[::-1]),
    "one_statement": (ONE_STATEMENT, (draw(40),), None),
    "rows": (ROWS, (draw(20, 30),), lambda x: np.cumsum(x, 1)),
    "jacobi": (JACOBI, (draw(70), draw(9)), smooth),
    "seidel": (SEIDEL, (draw(30), draw(5)), None),
    "heat": (HEAT, (draw(20, 37), draw(5)), None),
    "cell": (CELL, (draw(7, 5), draw(5, 20) / 4, draw(20, 20) / 8), run_cell),
    "solve": (SOLVE, (np.tril(diagonal(30)), draw(30)), lambda m, b: np.linalg.solve(m, b)),
    "lu": (LU, (diagonal(17),), None),
    "cholesky": (CHOLESKY, (spd(17),), lambda a: np.linalg.cholesky(a)),
    "paths": (PATHS, (draw(18, 18) + 3,), shortest),
    "sequence": (SEQUENCE, (np.arange(30, dtype=np.int32) ** 2 % 7, np.arange(25, dtype=np.int32) ** 3 % 7), None),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_interpreter(name: str) -> None:
    text, inputs, reference = CASES[name]
    operator = polyc.compile(text)
    program = operator.program
    expected = list(interpret(program, dict(zip(program.parameters, inputs, strict=True))).values())
    if reference is not None:
        np.testing.assert_allclose(expected[0], reference(*inputs), rtol=1e-3, atol=1e-3)
    for call in (operator, operator.lower().compile()):
        got = call(*inputs)
        for a, b in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{"tile": False}, {"vectorize": False}, {"reassociate": False}, {"target": "x86-64-v2"}])
def test_other_options(options: dict[str, Any]) -> None:
    for name in ("jacobi", "cell", "lu"):
        text, inputs, _ = CASES[name]
        plain, other = polyc.compile(text)(*inputs), polyc.compile(text, **options)(*inputs)
        np.testing.assert_allclose(np.array(plain), np.array(other), rtol=1e-4, atol=1e-4)


def test_factors_give_the_matrix_back() -> None:
    a = diagonal(25)
    lower, upper = polyc.compile(LU)(a)
    np.testing.assert_allclose((lower + np.eye(25, dtype=np.float32)) @ upper, a, rtol=1e-3, atol=1e-3)


def test_only_the_last_steps_are_kept() -> None:
    lowered = polyc.compile(JACOBI).lower(N=1000, T=50)
    assert lowered.storage["A"].moduli[0] == 2
    assert any("A keeps 2 steps" in str(r) for r in lowered.remarks)


def test_time_and_space_are_a_skewed_permutable_band() -> None:
    lowered = polyc.compile(JACOBI).lower(N=1000, T=50)
    assert "[S:t, S:t+i] S1" in format_rows(lowered.rows, lowered.scop)
    steps = lowered.as_text("loops").split("for (c0 = 0; c0 < 50", 1)[1]
    assert "vector" in steps.rsplit("// S1", 1)[0]


def test_the_projection_stays_outside_of_the_time_loop() -> None:
    lowered = polyc.compile(CELL).lower(T=20, D=30, H=200)
    assert "[S:t]{ [P:j]{ [R:k] S2 ; S3 } }" in format_rows(lowered.rows, lowered.scop)
    assert lowered.storage["h"].moduli[0] == 2


@polyc.op
def running(x: "f32[N]"):
    y[0] = 0
    with polyc.where(1 <= i < N):
        y[i] = y[i - 1] * 0.5 + x[i]
    return y


@polyc.op
def solve_lower(m: "f32[N, N]", b: "f32[N]"):
    with polyc.where(j < i):
        s[i] += m[i, j] * x[j]
    x[i] = (b[i] - s[i]) / m[i, i]
    return x


def test_functions() -> None:
    x = draw(50)
    expected = np.zeros(50, np.float32)
    for n in range(1, 50):
        expected[n] = expected[n - 1] * np.float32(0.5) + x[n]
    np.testing.assert_allclose(running(x), expected, rtol=1e-5, atol=1e-5)
    m = np.tril(diagonal(20))
    np.testing.assert_allclose(solve_lower(m, x[:20]), np.linalg.solve(m, x[:20]), rtol=1e-4, atol=1e-4)


REFUSED = {
    "itself": ("S(i) = i == 0 ? 0.0 : S(i + 0) + x(i)", "range-circular"),
    "each_other": ("S(0) = x(0)  S(i) = S(N - i) + x(i) where i in 1:N", "range-circular"),
    "before_the_first": ("S(i) = S(i - 1) + x(i)", "range-out-of-bounds"),
    "the_first_again": ("S(0) = x(0)  S(i) = S(i - 1) + x(i)", "range-written-twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_compile_time(name: str) -> None:
    text, code = REFUSED[name]
    with pytest.raises(PolycError) as caught:
        polyc.compile(f"def f(float(N) x) -> (S) {{ {text} }}").lower()
    assert code in [d.code for d in caught.value.diagnostics]


FAR = """def f(double(N) x, double(T) steps) -> (y) {
  u(0, i) = x(i)
  u(t, i) = u(t-1, i) * 0.5 + u(t-1, i-1) * 0.25 where t in 1:T+1, i in 1:N-1
  a(t) = u(t, N - 2) where t in 1:T+1
  b(t) = a(t) * u(t, 1) where t in 1:T+1
  c(t) = b(t) + u(t-1, 0) where t in 1:T+1
  u(t, 0) = c(t) where t in 1:T+1
  u(t, N - 1) = x(N - 1) where t in 1:T+1
  y(i) = u(T, i)
}"""


def test_a_circle_of_many_statements_at_one_size_is_refused_at_the_call_alone() -> None:
    operator = polyc.compile(FAR, dynamic=True)
    for n in (3, 6):
        x, steps = draw(n).astype(np.float64), np.zeros(2)
        np.testing.assert_allclose(operator(x, steps), interpret(operator.program, {"x": x, "steps": steps})["y"])
    with pytest.raises(PolycError) as caught:
        operator(np.ones(2), np.zeros(2))
    assert caught.value.code == "range-circular" and "b, c, u at these sizes (N = 2)" in str(caught.value)


def test_the_interpreter_names_the_point_of_a_circle() -> None:
    program = polyc.compile("def f(float(N) x) -> (S) { S(0) = x(0)  S(i) = S(N - i) + x(i) where i in 1:N }").program
    with pytest.raises(PolycError, match="range-circular"):
        interpret(program, {"x": draw(6)})


def test_padded_stencils_in_three_dimensions_over_time_compile():
    """The cone of a dependence with borders on six sides took isl minutes, with no end in sight."""
    text = """def f(float(N,N,N) x) -> (H) {
      H(0,i,j,k) = x(i,j,k)
      H(t+1,i,j,k) = 0.5*pad(H(t,i,j,k), 0.0) + 0.1*(pad(H(t,i-1,j,k), 0.0) + pad(H(t,i+1,j,k), 0.0) + pad(H(t,i,j-1,k), 0.0)
        + pad(H(t,i,j+1,k), 0.0) + pad(H(t,i,j,k-1), 0.0) + pad(H(t,i,j,k+1), 0.0))
        where t in 0:3, i in 0:N, j in 0:N, k in 0:N }"""
    x = np.random.default_rng(0).standard_normal((7, 7, 7)).astype(np.float32)
    found = polyc.compile(text)(x)
    expected = [x.astype(np.float64)]
    for _ in range(3):
        p = np.pad(expected[-1], 1)
        around = sum(np.roll(p, s, a) for a in range(3) for s in (1, -1))
        expected.append(0.5 * expected[-1] + 0.1 * around[1:-1, 1:-1, 1:-1])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


OBSERVED = """def f(float(N) a) -> (x, p) {{
  {0}
  w(t) = p(t-1) * 2.0 where t in 1:N
  {1}
  p(t) = t == 0 ? a(0) : w(t) + a(t) where t in 0:N
}}"""


@pytest.mark.parametrize("places", [("x(t) = p(t) + 1.0 where t in 0:N", ""), ("", "x(t) = p(t) + 1.0 where t in 0:N")])
def test_what_a_recurrence_reads_further_up_others_read_there_too(places: tuple[str, str]) -> None:
    a = draw(5)
    x, p = polyc.compile(OBSERVED.format(*places))(a)
    expected = [a[0]]
    for value in a[1:]:
        expected.append(2 * expected[-1] + value)
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    np.testing.assert_allclose(x, p + 1, rtol=1e-6)


def test_a_decorated_recurrence_is_observed_above_its_start() -> None:
    @polyc.op
    def f(a: "f32[N]"):
        with polyc.where(0 <= t < N):
            x[t] = p[t] + 1
        with polyc.where(1 <= t < N):
            w[t] = p[t - 1] * 2
        with polyc.where(0 <= t < N):
            p[t] = a[0] if t == 0 else w[t] + a[t]
        return x

    np.testing.assert_array_equal(f(np.ones(4, np.float32)), [2, 4, 8, 16])


CHOLESKY = """def cholesky(double(N,N) A) -> (L) {
  s(i,j) +=! L(i,k) * L(j,k) where %s
  L(i,j) = sqrt(A(i,i) - s(i,i)) where i in 0:N, j in i:i+1
  L(i,j) = (A(i,j) - s(i,j)) / L(j,j) where i in 0:N, j in 0:i
  L(i,j) = double(0.0) where i in 0:N, j in i+1:N }"""


@pytest.mark.parametrize("where", ["k < j, j <= i", "k < j", "i in 0:N, j in 0:N, k in 0:j"])
def test_a_sum_over_what_is_written_further_down_was_over_the_part_that_came_first(where: str) -> None:
    """The zeros above the diagonal bounded i, j and k, to one point or none."""
    for n in (1, 3, 7):
        a = np.random.default_rng(n).standard_normal((n, n))
        a = a @ a.T + n * np.eye(n)
        np.testing.assert_allclose(polyc.compile(CHOLESKY % where)(a), np.linalg.cholesky(a), rtol=1e-10)


def test_ranges_that_grow_with_what_is_written_are_asked_for() -> None:
    """It was one step, from the only element that had been written."""
    with pytest.raises(PolycError, match="they grow with what is written") as caught:
        polyc.compile("def f(float(N) x) -> (y) { y(0) = x(0)  y(i + 1) = y(i) }")(np.ones(4, np.float32))
    assert caught.value.diagnostics[0].code == "range-unsolved"


def test_two_rows_that_read_little_but_initial_values_were_found_no_order() -> None:
    """At this size the maximum is over one point, which needs no other point of its own."""
    op = polyc.compile("""def f(int32(N,N) X) -> (F) {
      s(i, j) max=! F(i,k) + F(j,k) where i in 0:N, j in 0:N, k in 0:N, k < i, k < j
      F(i, j) = max(X(i, j), s(i, j)) where i in 0:N, j in i:N
      F(i, j) = max(X(i, j), s(i, j)) * 2 where i in 0:N, j in 0:i }""")
    np.testing.assert_array_equal(op(np.array([[1, 2], [3, 4]], np.int32)), [[1, 2], [6, 12]])
