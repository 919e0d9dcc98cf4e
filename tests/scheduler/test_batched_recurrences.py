"""Batches of small recurrences, a problem in each lane: results, sizes that do not divide, and which batches stay."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.machine import X86_64_V4
from polyc.scheduler.rewriting.rules.batched_recurrences import batch_recurrences
from tests.scheduler.support import check_nest, infer, lower, read, statements

LU = """def f(double(B, N, N) A) -> (F) {
  S(b, i, j) +=! F(b, i, k) * F(b, k, j) where k < i, k < j, b in 0:B, i in 0:N, j in 0:N, k in 0:N
  F(b, i, j) = i <= j ? A(b, i, j) - S(b, i, j) : (A(b, i, j) - S(b, i, j)) / F(b, j, j) where b in 0:B }"""
CHOLESKY = """def f(double(B, N, N) A) -> (L) {
  S(b, i, j) +=! L(b, i, k) * L(b, j, k) where k < j, j <= i, b in 0:B, i in 0:N, j in 0:N, k in 0:N
  L(b, i, j) = i < j ? 0.0 : (i == j ? sqrt(A(b, i, i) - S(b, i, i)) : (A(b, i, j) - S(b, i, j)) / L(b, j, j))
    where b in 0:B }"""
SOLVE = """def f(float(B, N, N) L, float(B, N) r) -> (x) {
  s(b, i) +=! L(b, i, j) * x(b, j) where j < i
  x(b, i) = (r(b, i) - s(b, i)) / L(b, i, i) }"""
WITH_SUMS = """def f(float(B, N, N) L, float(B, N) r) -> (x, s, y) {
  s(b, i) = r(b, i) * 0.5
  s(b, i) += L(b, i, j) * x(b, j) where j < i
  x(b, i) = (r(b, i) - s(b, i)) / (4.0 + L(b, i, i))
  y(b) +=! x(b, i) }"""

STAY = {
    "few problems": (SOLVE, {"B": 15, "N": 9}),
    "long problems": (SOLVE, {"B": 1000, "N": 81}),
    "shared weights": (
        "def f(float(N,N) L, float(B,N) r) -> (x) { s(b,i) +=! L(i,j) * x(b,j) where j < i, b in 0:B  x(b,i) = r(b,i)-s(b,i) }",
        {"B": 1000, "N": 9},
    ),
    "neighbouring problems": (
        """def f(float(B, N, N) L, float(B, N) r) -> (x) {
          s(b,i) +=! L(b,i,j) * x(b-1,j) where j < i, b in 1:B
          x(0,i) = r(0,i)
          x(b,i) = r(b,i) - s(b,i) where b in 1:B }""",
        {"B": 1000, "N": 9},
    ),
    "no recurrence": (
        "def f(float(B, N, N) L, float(B, N) r) -> (x) { x(b,i) +=! L(b,i,j) * r(b,j) where j < i }",
        {"B": 1000, "N": 9},
    ),
}


def problems(count: int, n: int) -> np.ndarray:
    m = np.random.default_rng(n).standard_normal((count, n, n))
    return m @ m.transpose(0, 2, 1) + n * np.eye(n)


def test_before_and_after() -> None:
    program, ranges = infer(read(SOLVE), B=1000, N=9)
    new, _, (remark,) = batch_recurrences(program, ranges, X86_64_V4)
    assert "S1(b.block, i, b.in): x[b.block * 16 + b.in, i] = x.lanes[b.block, i, b.in]" in statements(new)
    assert any(
        "s.lanes[b.block, i, b.in] += L.lanes[b.block, i, j, b.in] * x.lanes[b.block, j, b.in]" in s for s in statements(new)
    )
    assert "16 values of b" in remark.message


def test_recurrences_that_read_one_input() -> None:
    text = """def f(float(B, N, N) L, float(B, N) r) -> (x, y) {
      s(b, i) +=! L(b, i, j) * x(b, j) where j < i
      x(b, i) = r(b, i) - s(b, i)
      u(b, i) +=! L(b, j, i) * y(b, j) where j < i
      y(b, i) = x(b, i) - u(b, i) }"""
    program, ranges = infer(read(text), B=1000, N=9)
    new, _, remarks = batch_recurrences(program, ranges, X86_64_V4)
    copies = [s for s in statements(new) if "= L[" in s]
    assert len(remarks) == 2 and sorted(s.split(": ")[1].split("[")[0] for s in copies) == ["L.lanes", "L.lanes2"]


@pytest.mark.each
@pytest.mark.parametrize("source", [LU, CHOLESKY])
@pytest.mark.parametrize("level", ["host", "x86-64-v2"])
def test_factorisations(source: str, level: str) -> None:
    op = polyc.compile(source, target=level)
    for count, n in ((67, 5), (65, 1)):
        a = problems(count, n)
        lowered = op.lower(a)
        assert any(r.pass_name == "batch-recurrences" for r in lowered.remarks) == (n > 1)
        f = lowered.compile()(a)
        if source is CHOLESKY:
            np.testing.assert_allclose(f, np.linalg.cholesky(a), rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_allclose((np.tril(f, -1) + np.eye(n)) @ np.triu(f), a, rtol=1e-9, atol=1e-9)


def test_views_and_dimensions_in_another_order() -> None:
    a = problems(70, 6)
    np.testing.assert_allclose(
        polyc.compile(CHOLESKY)(a[::-1].transpose(0, 2, 1)), np.linalg.cholesky(a[::-1]), rtol=1e-9, atol=1e-9
    )


def test_sums_that_are_returned_with_initial_values() -> None:
    sizes = {"B": 130, "N": 5}
    lowered = lower(WITH_SUMS, sizes)
    assert any(r.pass_name == "batch-recurrences" for r in lowered.remarks)
    check_nest(lowered, sizes)


def test_symbolic_sizes() -> None:
    lowered = driver.lower(read(SOLVE), target=X86_64_V4, typical={"B": 1000, "N": 9})
    assert any(r.pass_name == "batch-recurrences" for r in lowered.remarks)
    for sizes in ({"B": 19, "N": 4}, {"B": 3, "N": 70}, {"B": 0, "N": 2}, {"B": 16, "N": 0}):
        check_nest(lowered, sizes)


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str) -> None:
    source, sizes = STAY[name]
    program, ranges = infer(read(source), **sizes)
    assert batch_recurrences(program, ranges, X86_64_V4)[0] is program
