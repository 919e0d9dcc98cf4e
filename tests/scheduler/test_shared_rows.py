"""Sums along rows and down columns in one pass: what it becomes, that results stay, and which sums stay apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyc import driver
from polyc.machine import X86_64_V4
from polyc.scheduler.rewriting.rules.shared_rows import share_rows
from tests.scheduler.support import check_nest, infer, lower, read, statements

SMALL = replace(X86_64_V4, l2=1 << 12)
"""A machine on which matrices of some thousands of elements do not fit into the second-level cache."""

HEAD = "def f(float(M,N) A, float(N) x, float(M) r, float(N) b) -> "
BOTH = HEAD + "(q, s) { q(i) +=! A(i,j) * x(j)  s(j) +=! r(i) * A(i,j) }"

PROGRAMS = {
    "both ways": BOTH,
    "normal equations": HEAD + "(y) { t(i) +=! A(i,j) * x(j)  y(j) +=! A(i,j) * t(i) }",
    "gradient": HEAD + "(g) { z(i) +=! A(i,j) * x(j)  d(i) = 1.0 / (1.0 + exp(0.0 - z(i))) - r(i)  g(j) +=! A(i,j) * d(i) }",
    "gradient and prediction": HEAD
    + "(g, z, d) { z(i) +=! A(i,j) * x(j)  d(i) = z(i) - r(i)  g(j) +=! A(i,j) * d(i) * exp(0.0 - d(i) * d(i)) }",
    "initial values": HEAD + "(q, s) { q(i) = r(i)  q(i) += A(i,j) * x(j)  s(j) = b(j)  s(j) += q(i) * A(i,j) }",
    "extrema": HEAD + "(q, s) { q(i) max=! A(i,j)  s(j) min=! A(i,j) + q(i) }",
    "sums of other rows": HEAD + "(s) { q(i) +=! A(i,j) * x(j)  p(i) +=! A(i,j) * q(j)  s(j) +=! p(i) * A(i,j) }",
    "sums of one row": HEAD + "(s) { q(i) +=! A(i,j) * x(j)  p(i) +=! A(i,j) * q(0)  s(j) +=! p(i) * A(i,j) }",
    "sums begin with others": HEAD
    + "(s) { q(i) +=! A(i,j) * x(j)  p(i) = q(i)  p(i) += A(i,j) * b(j)  s(j) +=! p(i) * A(i,j) }",
    "a few at once": "def f(float(M,N) A, float(N,3) x, float(M,3) r) -> (q, s) {"
    " q(i,k) +=! A(i,j) * x(j,k)  s(j,k) +=! r(i,k) * A(i,j) }",
    "three dimensions": "def f(float(M,4,3) A) -> (q, s) { q(i) +=! A(i,j,c)  s(j,c) +=! A(i,j,c) * q(i) }",
}

APART = {
    "rows alone": HEAD + "(q, s) { q(i) +=! A(i,j) * x(j)  s(i) +=! A(i,j) * b(j) }",
    "rows of columns": HEAD + "(q, s) { s(j) +=! r(i) * A(i,j)  q(i) +=! A(i,j) * s(j) }",
    "all rows first": HEAD + "(y) { t(i) +=! A(i,j) * x(j)  m max=! t(i)  y(j) +=! A(i,j) * exp(t(i) - m) }",
    "products of matrices": "def f(float(M,N) A, float(N,64) x, float(M,64) r) -> (q, s) {"
    " q(i,k) +=! A(i,j) * x(j,k)  s(j,k) +=! r(i,k) * A(i,j) }",
    "neighbouring rows": HEAD + "(y) { t(i) +=! A(i,j) * x(j)  y(j) +=! A(i,j) * t(i+1) where i in 0:M-1 }",
}


def test_before_and_after() -> None:
    program, ranges = infer(read(BOTH), M=130, N=16)
    new, _, (remark,) = share_rows(program, ranges, SMALL)
    assert statements(new) == [
        "S0_block(i.block, i.in, j): q.block[i.block, i.in] += A[i.block * 32 + i.in, j] * x[j] init 0.0",
        "S1_block(i.block, j, i.in): s.block[i.block, j] += r[i.block * 32 + i.in] * A[i.block * 32 + i.in, j] init 0.0",
        "S1(j, i.block): s[j] += s.block[i.block, j] init 0.0",
        "S0(i.block, i.in): q[i.block * 32 + i.in] = q.block[i.block, i.in]",
    ]
    assert "by blocks of 32 rows" in remark.message


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay(name: str) -> None:
    sizes = {"M": 197, "N": 13}
    lowered = lower(PROGRAMS[name], sizes, target=SMALL)
    assert any(r.pass_name == "share-rows" for r in lowered.remarks)
    check_nest(lowered, sizes)


def test_both_sums_of_a_block_come_before_the_next_block() -> None:
    nest = lower(BOTH, {"M": 1900, "N": 2100}).nest

    def written(node: object) -> set[str]:
        inside = [*getattr(node, "body", ()), *getattr(node, "orelse", ())]
        return {getattr(node, "buffer", "")}.union(*map(written, inside))

    (both,) = [node for node in nest.body if "q.block" in written(node)]
    assert "s.block" in written(both)


def test_rows_without_elements_have_their_initial_values() -> None:
    program = read(PROGRAMS["initial values"])
    lowered = driver.lower(program, target=SMALL, typical={"M": 197, "N": 13})
    assert any(r.pass_name == "share-rows" for r in lowered.remarks)
    for sizes in ({"M": 40, "N": 0}, {"M": 0, "N": 3}, {"M": 33, "N": 2}):
        check_nest(lowered, sizes)


@pytest.mark.parametrize("name", APART)
def test_what_stays_apart(name: str) -> None:
    program, ranges = infer(read(APART[name]), M=197, N=13)
    new, _, remarks = share_rows(program, ranges, SMALL)
    assert new is program
    assert not remarks


def test_arrays_that_fit_into_the_cache_stay() -> None:
    program, ranges = infer(read(BOTH), M=130, N=16)
    assert share_rows(program, ranges, X86_64_V4)[0] is program
