"""Recurrences in blocks of steps: factorisations and triangular solves against NumPy, and which recurrences stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import polyc
from polyc.scheduler.rewriting.rules.final_values import sum_final_values
from polyc.scheduler.rewriting.rules.recurrences import block_recurrences
from tests.scheduler.support import infer, read, statements

EXAMPLES = Path(__file__).parents[2] / "examples"
LU, CHOLESKY, FORWARD = ((EXAMPLES / f"{n}.tc").read_text() for n in ("lu", "cholesky", "triangular_solve"))


def definite(n: int) -> np.ndarray:
    """A symmetric positive definite matrix, n x n, float64."""
    m = np.random.default_rng(n).random((n, n))
    return m @ m.T / max(n, 1) + np.eye(n)


def right(n: int, m: int) -> np.ndarray:
    return np.random.default_rng(m).random((n, m))


@dataclass(frozen=True)
class Case:
    source: str
    arguments: Callable[[int], tuple[np.ndarray, ...]]
    residual: Callable[..., np.ndarray]
    """Of the arguments and the results: zero where they are right."""


def unit_lower(f: np.ndarray) -> np.ndarray:
    return np.tril(f, -1) + np.eye(len(f))


CASES = {
    "lu": Case(LU, lambda n: (definite(n),), lambda a, f: unit_lower(f) @ np.triu(f) - a),
    "lu of two matrices": Case(
        """def lu(double(N, N) A) -> (L, U) {
          S(i, j) +=! L(i, k) * U(k, j) where k < i, k < j, i in 0:N, j in 0:N, k in 0:N
          U(i, j) = A(i, j) - S(i, j) where i <= j, i in 0:N, j in 0:N
          U(i, j) = 0.0 where i > j, i in 0:N, j in 0:N
          L(i, j) = (A(i, j) - S(i, j)) / U(j, j) where i > j, i in 0:N, j in 0:N
          L(i, j) = i == j ? 1.0 : 0.0 where i <= j, i in 0:N, j in 0:N }""",
        lambda n: (definite(n),),
        lambda a, lower, upper: lower @ upper - a,
    ),
    "cholesky": Case(CHOLESKY, lambda n: (definite(n),), lambda a, x: x - np.linalg.cholesky(a)),
    "cholesky of a batch": Case(
        """def cholesky(double(B, N, N) A) -> (L) {
          S(b, i, j) +=! L(b, i, k) * L(b, j, k) where k < j, j <= i, b in 0:B, i in 0:N, j in 0:N, k in 0:N
          L(b, i, j) = i < j ? 0.0 : (i == j ? sqrt(A(b, i, i) - S(b, i, i)) : (A(b, i, j) - S(b, i, j)) / L(b, j, j))
            where b in 0:B }""",
        lambda n: (np.stack([definite(n), 2 * definite(n)]),),
        lambda a, x: x - np.linalg.cholesky(a),
    ),
    "cholesky behind given columns": Case(
        """def cholesky(double(N, N) A, double(N, 40) P) -> (L) {
          S(i, j) +=! L(i, k) * L(j, k) where k < j, j <= i, i in 0:N, j in 0:N, k in 0:N
          L(i, j) = P(i, j) where i in 0:N, j in 0:40
          L(i, j) = i < j ? 0.0 : (i == j ? sqrt(A(i, i) - S(i, i)) : (A(i, j) - S(i, j)) / L(j, j))
            where i in 0:N, j in 40:N }""",
        lambda n: (definite(n), np.linalg.cholesky(definite(n))[:, :40]),
        lambda a, p, x: x - np.linalg.cholesky(a),
    ),
    "upper cholesky in float": Case(
        """def cholesky(float(N, N) A) -> (U) {
          S(i, j) +=! U(k, i) * U(k, j) where k < i, i <= j, i in 0:N, j in 0:N, k in 0:N
          U(i, j) = i > j ? 0.0 : (i == j ? sqrt(A(i, i) - S(i, i)) : (A(i, j) - S(i, j)) / U(i, i)) }""",
        lambda n: (definite(n).astype(np.float32),),
        lambda a, u: 1e-6 * (u - np.linalg.cholesky(a).T),
    ),
    "with a diagonal": Case(
        """def ldl(double(N, N) A) -> (L, D) {
          S(i, j) +=! L(i, k) * D(k) * L(j, k) where k < j, j <= i, i in 0:N, j in 0:N, k in 0:N
          D(j) = A(j, j) - S(j, j)
          L(i, j) = i < j ? 0.0 : (i == j ? 1.0 : (A(i, j) - S(i, j)) / D(j)) where i in 0:N, j in 0:N }""",
        lambda n: (definite(n),),
        lambda a, lower, d: lower @ np.diag(d) @ lower.T - a,
    ),
    "steps that subtract": Case(
        """def lu(double(N, N) A) -> (F) {
          B(0, i, j) = A(i, j)
          L(k, i) = B(k, i, k) / B(k, k, k) where i > k, k in 0:N, i in 0:N
          B(k+1, i, j) = B(k, i, j) - L(k, i) * B(k, k, j) where i > k, j > k, k in 0:N, i in 0:N, j in 0:N
          F(i, j) = i <= j ? B(i, i, j) : L(j, i) where i in 0:N, j in 0:N }""",
        lambda n: (definite(n),),
        lambda a, f: unit_lower(f) @ np.triu(f) - a,
    ),
    "elimination under a condition": Case(
        """def eliminate(double(N, N) A) -> (U) {
          B(0, i, j) = A(i, j)
          B(k+1, i, j) = i > k && j > k ? B(k, i, j) - B(k, i, k) / B(k, k, k) * B(k, k, j) : B(k, i, j)
            where k in 0:N, i in 0:N, j in 0:N
          U(i, j) = i <= j ? B(N, i, j) : 0.0 where i in 0:N, j in 0:N }""",
        lambda n: (definite(n),),
        lambda a, u: u.T @ np.diag(1 / np.diag(u)) @ u - a,
    ),
    "elimination by the step before": Case(
        """def eliminate(double(N, N) A) -> (F) {
          B(0, i, j) = A(i, j)
          B(k, i, j) = i >= k && j >= k ? B(k-1, i, j) - B(k-1, i, k-1) / B(k-1, k-1, k-1) * B(k-1, k-1, j) : B(k-1, i, j)
            where k in 1:N+1, i in 0:N, j in 0:N
          F(i, j) = i <= j ? B(N, i, j) : B(N, i, j) / B(N, j, j) where i in 0:N, j in 0:N }""",
        lambda n: (definite(n),),
        lambda a, f: unit_lower(f) @ np.triu(f) - a,
    ),
    "forward substitution": Case(FORWARD, lambda n: (np.tril(definite(n)), right(n, n + 7)), lambda l, b, x: l @ x - b),
    "backward substitution": Case(
        """def backward(double(N, N) U, double(N, R) B) -> (X) {
          S(i, r) +=! U(i, j) * X(j, r) where j > i, i in 0:N, r in 0:R, j in 0:N
          X(i, r) = (B(i, r) - S(i, r)) / U(i, i) }""",
        lambda n: (np.triu(definite(n)), right(n, n + 7)),
        lambda u, b, x: u @ x - b,
    ),
    "solutions in rows": Case(
        """def rows(double(N, N) L, double(R, N) B) -> (X) {
          S(r, i) +=! X(r, j) * L(i, j) where j < i, r in 0:R, i in 0:N, j in 0:N
          X(r, i) = (B(r, i) - S(r, i)) / L(i, i) }""",
        lambda n: (np.tril(definite(n)), right(n + 5, n)),
        lambda l, b, x: x @ l.T - b,
    ),
    "inverse of a triangle": Case(
        """def inverse(double(N, N) L) -> (X) {
          S(i, j) +=! L(i, k) * X(k, j) where k < i, k >= j, i in 0:N, j in 0:N, k in 0:N
          X(i, j) = i < j ? 0.0 : (i == j ? 1.0 / L(i, i) : -S(i, j) / L(i, i)) where i in 0:N, j in 0:N }""",
        lambda n: (np.tril(definite(n)),),
        lambda l, x: l @ x - np.eye(len(l)),
    ),
}


def residual(case: Case, n: int, **options: object) -> float:
    arguments = case.arguments(n)
    results = polyc.compile(case.source, **options)(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    return float(np.abs(case.residual(*arguments, *results)).max(initial=0.0))


def is_blocked(source: str, n: int, **sizes: int) -> bool:
    return bool(block_recurrences(*infer(read(source), N=n, **sizes))[2])


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str):
    case = CASES[name]
    sizes = {s: 101 for s in ("R", "B") if f", {s})" in case.source or f"({s}, " in case.source}
    assert is_blocked(case.source, 101, **sizes)
    assert residual(case, 101) < 1e-11


@pytest.mark.parametrize("n", [0, 1, 23, 24, 193, 257])
def test_sizes_around_whole_blocks(n: int):
    assert is_blocked(FORWARD, n, R=n + 7) == (n >= 24)
    assert residual(CASES["forward substitution"], n) < 1e-11


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_narrow_vectors(target: str):
    assert residual(CASES["cholesky"], 100, target=target) < 1e-11


def test_symbolic_sizes():
    op = polyc.compile(LU, dynamic=True)
    for n in (128, 200, 33, 1, 0):
        a = definite(n)
        f = op(a)
        assert np.abs(unit_lower(f) @ np.triu(f) - a).max(initial=0.0) < 1e-11


def test_before_and_after():
    program, ranges = infer(read(FORWARD), N=700, R=100)
    new, _, remarks = block_recurrences(program, ranges)
    assert statements(new) == [
        "S0_far_block(i.block, i.in, r, j): S.far.block[i.block, i.in, r] += L[64 * i.block + i.in, j] * X[j, r] init 0.0:f64",
        "S1_block(i.block, i.in, r): X[64 * i.block + i.in, r] = (B[64 * i.block + i.in, r] - "
        "(S.far.block[i.block, i.in, r] + S.near.block[i.block, i.in, r])) / L[64 * i.block + i.in, 64 * i.block + i.in]",
        "S0_near_block(i.block, i.in, r, j.in): S.near.block[i.block, i.in, r] += "
        "L[64 * i.block + i.in, 64 * i.block + j.in] * X[64 * i.block + j.in, r] init 0.0:f64",
    ]
    assert [r.pass_name for r in remarks] == ["block-recurrences"]


def test_what_others_write_is_kept_turned_as_well():
    program, ranges = infer(read(CASES["cholesky behind given columns"].source), N=101)
    new, _, _ = block_recurrences(program, ranges)
    assert "S1_after0(i.block, j.in, i): L.after0[i.block, j.in, i] = L[i, 8 * i.block + j.in]" in statements(new)


STAY = {
    "values that later steps change": """def f(float(N, N) A) -> (D) {
      P(0, i, j) = A(i, j)
      P(k + 1, i, j) = P(k, i, j) + P(k, i, k) * P(k, k, j) where k in 0:N, i in 0:N, j in 0:N
      D(i, j) = P(N, i, j) }""",
    "some values that later steps change": """def f(double(N, N) A) -> (D) {
      B(0, i, j) = A(i, j)
      B(k+1, i, j) = B(k, i, j) - B(k, i, k) * B(k, k, j) where i > k, j >= k, k in 0:N, i in 0:N, j in 0:N
      D(i, j) = B(i, i, j) where j >= i, i in 0:N, j in 0:N
      D(i, j) = B(j, i, j) where j < i, i in 0:N, j in 0:N }""",
    "one right side": """def f(double(N, N) L, double(N) b) -> (x) {
      s(i) +=! L(i, j) * x(j) where j < i
      x(i) = (b(i) - s(i)) / L(i, i) }""",
    "all terms needed at once": """def f(double(N, N) L, double(N, N) B) -> (X) {
      X(0, r) = B(0, r)
      S(i, r) +=! L(i, j) * X(i - 1, j) where i in 1:N, r in 0:N
      X(i, r) = B(i, r) - S(i, r) where i in 1:N }""",
    "sums that are returned": """def f(double(N, N) L, double(N, N) B) -> (X, S) {
      S(i, r) +=! L(i, j) * X(j, r) where j < i, r in 0:N
      X(i, r) = (B(i, r) - S(i, r)) / L(i, i) }""",
    "no recurrence": "def f(double(N, N) A, double(N, N) B) -> (C) { C(i, j) +=! A(i, k) * B(k, j) where k < i }",
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str):
    assert not is_blocked(STAY[name], 256)


BACKWARD = """def f(double(N, N) U, double(N) b) -> (x) {
  s(i) +=! U(i, j) * x(j) where j > i, i in 0:N, j in 0:N
  x(i) = (b(i) - s(i)) / U(i, i) where i in 0:N }"""


@pytest.mark.parametrize("source, triangle", [(STAY["one right side"], np.tril), (BACKWARD, np.triu)])
def test_one_long_right_side(source: str, triangle: Callable[[np.ndarray], np.ndarray]):
    a, b = triangle(definite(1090)), right(1090, 1)[:, 0]
    lowered = polyc.compile(source).lower(a, b)
    assert any(r.pass_name == "block-recurrences" for r in lowered.remarks)
    np.testing.assert_allclose(a @ lowered.compile()(a, b), b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["elimination under a condition", "elimination by the step before"])
def test_steps_become_sums(name):
    program, ranges = infer(read(CASES[name].source), N=128)
    new, _, remarks = sum_final_values(program, ranges)
    assert sorted(statements(new))[:2] == [
        "S0(i, j): B.last[i, j] = A[i, j] + B.sum[i, j]",
        "S1(i, j, k): B.sum[i, j] += -(B.last[i, k] / B.last[k, k] * B.last[k, j]) init 0.0:f64",
    ]
    assert [r.pass_name for r in remarks] == ["final-values"]


def test_short_recurrences_keep_their_steps():
    lowered = polyc.compile(CASES["steps that subtract"].source).lower(definite(23))
    assert all(r.pass_name not in ("final-values", "block-recurrences") for r in lowered.remarks)


def test_tiles_beside_a_block_begin_where_it_ends() -> None:
    """Tiles of 12 rows, of 120, began inside of blocks: the first was cut short, and buffers were found by divisions."""
    for source, target in ((LU, "x86-64-v4"), (CHOLESKY, "x86-64-v3")):
        loops = polyc.compile(source, target=target).lower(definite(120)).as_text("loops")
        assert "8 * c0 + 8; c1 < 120" in loops and "%" not in loops


def test_switches():
    for options in ({"disable": "block-recurrences"}, {"reassociate": False}, {"tile": False}):
        lowered = polyc.compile(CHOLESKY, **options).lower(definite(128))
        assert all(r.pass_name != "block-recurrences" for r in lowered.remarks)


def adjoint_of_lu(a: np.ndarray, f: np.ndarray, d: np.ndarray) -> np.ndarray:
    """By I. Murray, "Differentiation of the Cholesky decomposition" (2016), for two triangles."""
    lower, upper = unit_lower(f), np.triu(f)
    inner = np.tril(lower.T @ np.tril(d, -1), -1) + np.triu(np.triu(d) @ upper.T)
    return np.linalg.solve(lower.T, inner) @ np.linalg.inv(upper.T)


def adjoint_of_cholesky(a: np.ndarray, f: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The same, by the lower triangle of the matrix alone."""
    phi = np.tril(f.T @ np.tril(d))
    inverse = np.linalg.inv(f)
    whole = inverse.T @ (phi - np.diag(np.diag(phi)) / 2) @ inverse
    return np.tril(whole + whole.T) - np.diag(np.diag(whole))


@pytest.mark.parametrize("source, formula", [(LU, adjoint_of_lu), (CHOLESKY, adjoint_of_cholesky)])
def test_adjoints_of_factorisations_go_by_the_last_steps(source: str, formula: Callable[..., np.ndarray]):
    operator, a = polyc.compile(source, target="x86-64-v4"), definite(101)
    f, d = operator(a), np.random.default_rng(5).standard_normal(a.shape)
    lowered = operator.vjp().lower(a, d)
    done = [r for r in lowered.remarks if r.pass_name == "block-recurrences"]
    assert len(done) == 2, "the factorisation, and what runs backwards through it"
    np.testing.assert_allclose(lowered.compile()(a, d), formula(a, f, d), rtol=1e-8, atol=1e-8)


def test_intervals_are_no_blocks_of_last_steps():
    """Terms of earlier blocks need intervals of their own block: nothing would be summed apart."""
    source = """def f(double(N) a) -> (T) {
      M(i, j) max=! T(i, k) + T(k+1, j) where i <= k, k < j, i in 0:N, j in 0:N, k in 0:N
      T(i, j) = j <= i ? a(i) : max(M(i, j), T(i+1, j-1)) where i in 0:N, j in 0:N }"""
    assert not is_blocked(source, 130)
    assert is_blocked(source, 260)
