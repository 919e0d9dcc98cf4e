"""Splitting reductions: which ones, into what, and that every monoid, range and condition survives it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.ir.expr import Call, Const, Index, Pad, Read, int_const
from polyc.ir.program import Program
from polyc.ir.types import F32
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting import split
from polyc.scheduler.rewriting.rules import windows
from polyc.scheduler.rewriting.split import CHUNK_POINTS, MINIMUM_POINTS
from tests.property.pipeline import small_thresholds
from tests.scheduler.support import check, check_each, infer, read, run_pass, statements

BIG = MINIMUM_POINTS
SUM = "def f(float(N) X) -> (s) { s +=! X(i) }"


def split_text(text: str, **sizes: int) -> tuple[Program, Ranges]:
    program, ranges = infer(read(text), **sizes)
    new, new_ranges, _ = run_pass("split", program, ranges)
    return new, new_ranges


def is_split(text: str, **sizes: int) -> bool:
    return len(split_text(text, **sizes)[0].statements) == 2


def test_before_and_after():
    new, ranges = split_text(SUM, N=BIG)
    partial, whole = statements(new)
    assert partial == f"S0_part(i.block, i.in): s.part[i.block] += X[i.block * {CHUNK_POINTS} + i.in] init 0.0"
    assert whole == "S0(i.block): s[] += s.part[i.block] init 0.0"
    chunks = ranges.statements["S0"].indices["i.block"].extent
    assert chunks == Const(BIG // CHUNK_POINTS)


def test_few_results_and_many_points_only():
    rows = "def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }"
    assert is_split(SUM) and is_split(SUM, N=BIG) and not is_split(SUM, N=BIG - 1)
    assert is_split(rows, M=15, N=BIG) and not is_split(rows, M=16, N=BIG)
    assert not is_split(rows, M=0, N=BIG) and not is_split(rows, N=BIG)
    assert is_split(rows, M=15) and not is_split("def f(float(N) X) -> (O) { O(i) = X(i) }")


def test_all_reduction_indices_count():
    text = "def f(float(M,N) X) -> (s) { s +=! X(i,j) }"
    assert is_split(text, M=512, N=256) and not is_split(text, M=511, N=256)
    _, ranges = split_text(text, M=512, N=512)
    chunk = ranges.statements["S0_part"].indices
    (inner,) = [i for i in chunk if i.endswith(".in")]
    assert chunk[inner].extent == Const(CHUNK_POINTS // 512)


def test_guarded_reductions_stay():
    assert not is_split("def f(float(M) X, int32(N) I) -> (s) { s +=! X(I(i)) }", N=BIG)


def test_recurrences_stay():
    # s[i] += s[i - 1] * X[j]: a part of s[i] needs all of s[i - 1].
    program, ranges = infer(read("def f(float(N) X, float(3) b) -> (s) { s(i) +=! b(i) * X(j) }"), N=BIG)
    (own,) = program.statements
    before = Pad(Read("s", (Call("sub", (Index("i"), int_const(1))),)), Const(1.0, F32))
    scan = replace(own, value=Call("mul", (before, Read("X", (Index("j"),)))))
    assert len(run_pass("split", program, ranges)[0].statements) == 2
    assert run_pass("split", replace(program, statements=(scan,)), ranges)[0].statements == (scan,)


def test_the_initial_value_belongs_to_the_second_stage():
    new, _ = split_text("def f(float(N) X) -> (s) { s += X(i) }", N=BIG)
    assert statements(new)[1] == "S0(i.block): s[] += s.part[i.block] init s.in[]"


PROGRAMS = {
    "sum": SUM,
    "accumulated": "def f(float(N) X) -> (s) { s += X(i) }",
    "max": "def f(float(N) X) -> (s) { s max=! X(i) }",
    "min": "def f(float(N) X) -> (s) { s min=! X(i) }",
    "product": "def f(float(N) X) -> (s) { s *=! X(i) }",
    "max of integers": "def f(int32(N) X) -> (s) { s max=! X(i) }",
    "min of unsigned": "def f(uint8(N) X) -> (s) { s min=! X(i) }",
    "any": "def f(bool(N) X) -> (s) { s max=! X(i) }",
    "all": "def f(bool(N) X) -> (s) { s min=! X(i) }",
    "rows": "def f(float(N) X, float(3) b) -> (O) { O(r) +=! X(i) * b(r) }",
    "two indices": "def f(float(N) X) -> (s) { s +=! fabs(X(i) - X(j)) }",
    "shifted": "def f(float(N) X) -> (s) { s +=! X(i-1) where i in 1:N }",
    "index as value": "def f(float(N) X) -> (s) { s +=! X(i) * i }",
    "triangle": "def f(float(N) X) -> (s) { s +=! X(i) * X(j) where j <= i }",
    "triangle with results": "def f(float(N) X, float(3) b) -> (O) { O(r) +=! X(i) * b(r) where i >= r }",
    "used again": "def f(float(N) X) -> (s, Y) { s +=! X(i)  Y(i) = X(i) - s }",
    "padded": "def f(float(N) X) -> (s) { s +=! pad(X(i-3), 1.0) where i in 0:N }",
    "selected": "def f(float(N) X) -> (s) { s +=! i < 3 ? X(i) : X(i-3) }",
}


LATER = ("shifted", "selected")
"""Programs whose ranges start behind the first element, so that they need some."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_in_chunks_of_four(name):
    with small_thresholds():
        extents, others = ((1, 5, 16), (0, 3, 4, 9)) if name not in LATER else ((9,), (4,))
        *_, lowered = check_each(PROGRAMS[name], [{"N": n} for n in extents], others=[{"N": n} for n in others])
        assert any(s.name == "S0_part" for s in lowered.scop.statements)


def test_a_sum_along_windows_is_split_again(monkeypatch: pytest.MonkeyPatch):
    """Both rewritings called their first part the same."""
    monkeypatch.setattr(windows, "GAIN", 0.01)
    with small_thresholds():
        lowered = check("def f(float(R,M) X) -> (y) { y(j) +=! X(r,j+s) where j in 0:2, s in 0:9 }", {"R": 3, "M": 10})
    assert {"separate-windows", "split"} <= {r.pass_name for r in lowered.remarks}


def test_chunks_do_not_depend_on_the_other_extents_beyond_their_product(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(split, "CHUNK_POINTS", 1 << 8)
    _, ranges = split_text("def f(float(M,N) X) -> (s) { s +=! X(i,j) }", M=1 << 10, N=1 << 8)
    assert set(ranges.statements["S0_part"].indices) == {"i.block", "j"}  # chunks of one i have no index inside


def test_long_sums_of_many_results_are_cut_where_these_make_few_tasks():
    columns = "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }"
    assert is_split(columns, M=1 << 16, N=64) and not is_split(columns, M=1 << 16, N=1024)
    assert not is_split(columns, M=1000, N=64)
    product = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
    assert is_split(product, M=64, N=64, K=1 << 16) and not is_split(product, M=256, N=256, K=1 << 16)
    assert not is_split(product, M=64, N=64, K=4095) and is_split(product, M=1, N=768, K=3072)
    rows = "def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }"
    assert not is_split(rows, M=4096, K=4096)
    # One value for each row does not make the rows vectors.
    centred = "def f(float(M,K) A, float(M) x) -> (y) { y(m) +=! A(m,k) - x(m) }"
    assert not is_split(centred, M=128, K=1 << 15)
    new, ranges = split_text(product, M=64, N=64, K=1 << 16)
    assert statements(new)[0].startswith("S0_part(k.block, m, n, k.in): C.part[k.block, m, n] += ")
    assert [str(i.extent.value) for i in ranges.tensors["C.part"]] == ["32", "64", "64"]


def test_the_parts_of_a_cut_sum_run_in_parallel():
    with small_thresholds():
        text = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
        lowered = check(text, {"M": 20, "N": 17, "K": 300})
        assert any(r.pass_name == "split" for r in lowered.remarks)


def test_parts_of_a_fused_sum_run_along_memory_and_not_across_chunks():
    text = """def f(float(N,M) X) -> (L) {
      A(i) max=! X(i,k)
      Z(i) +=! exp(X(i,k) - A(i))
      L(i) = A(i) + log(Z(i))
    }"""
    op = polyc.compile(text, disable="online-softmax", target="x86-64-v4")
    lines = op.lower(np.ones((8, 500_000), np.float32)).as_text("loops").splitlines()
    (position,) = [n for n, line in enumerate(lines) if "exp(" in line]
    around = [line for line in lines[:position] if "vector(" in line][-1]
    assert "registers Z.part" in around and "at most" not in around


@pytest.mark.parametrize("sizes", [(3, 5, 70), (2, 4, 64), (1, 1, 1), (4, 9, 33)])
def test_loops_that_are_sums_for_some_of_their_statements_only(sizes: tuple[int, int, int]):
    text = """def f(float(N,C,T) X, float(N) A) -> (P, Z) {
      P(i,c) +=! exp(X(i,c,t) - A(i))
      Z(i) +=! P(i,c)
    }"""
    check(text, dict(zip("NCT", sizes, strict=True)))
