"""Which parts of a band run under loops of their own."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.poly.rows import Band, Sequence, statements_of
from tests.scheduler.support import check, lower

LORA = """def lora(float(M,K) X, float(K,N) W, float(K,R) A, float(R,N) B) -> (Y) {
  T(m,r) +=! X(m,k) * A(k,r)  U(m,n) +=! X(m,k) * W(k,n)  V(m,n) +=! T(m,r) * B(r,n)  Y(m,n) = U(m,n) + V(m,n) }"""


def bands(lowered):
    rows = lowered.rows
    parts = rows.children if isinstance(rows, Sequence) else (rows,)
    return [
        {n.removeprefix("init_") for n in statements_of(p) if not n.endswith("_pack")} for p in parts if isinstance(p, Band)
    ]


def test_a_matrix_is_not_read_again_for_a_few_rows_because_of_a_small_product_beside_it():
    """W has a megabyte: under a shared loop over m it passes by for every four rows."""
    found = [b for b in bands(lower(LORA, {"M": 256, "K": 512, "N": 512, "R": 16})) if b]
    assert {"S0"} in found and any({"S1", "S2", "S3"} <= b for b in found)


def test_products_whose_operands_stay_in_the_cache_share_their_rows():
    found = [b for b in bands(lower(LORA, {"M": 256, "K": 64, "N": 128, "R": 16})) if b]
    assert any({"S0", "S1", "S2", "S3"} <= b for b in found)


def test_separated_products_are_right():
    check(LORA, {"M": 17, "K": 40, "N": 33, "R": 5})


def test_an_operand_that_the_second_level_cache_holds_is_no_reason_to_take_a_sum_from_its_consumer():
    """X is the operand that does not move with n: 600 KiB of it stay in a cache of a megabyte."""
    text = "def f(float(M,K) X, float(N,K) A) -> (Y) {\n T(m,n) +=! X(m,k) * A(n,k)  Y(m,n) = fmax(T(m,n), 0.0) }"
    assert any({"S0", "S1"} <= b for b in bands(lower(text, {"M": 200, "K": 768, "N": 1024})))


PAIRS = """def f(float(N, 3) p) -> (E, F) {
  d(i, j) +=! (p(i, k) - p(j, k)) * (p(i, k) - p(j, k))
  s(i, j) = i == j ? 0.0 : 1.0 / (d(i, j) * d(i, j) * d(i, j))
  E +=! s(i, j) * (s(i, j) - 1.0)
  g(i, j) = i == j ? 0.0 : s(i, j) * (2.0 * s(i, j) - 1.0) / d(i, j)
  F(i, k) +=! g(i, j) * (p(i, k) - p(j, k)) }"""


def test_rows_that_were_shared_with_a_sum_over_them_are_parallel_again():
    """Energy is summed over all pairs, forces over the other particle only: alone, they run in parallel and in registers."""
    lowered = lower(PAIRS, {"N": 256})
    (forces,) = [p for p in lowered.rows.children if isinstance(p, Band) and "S4" in statements_of(p)]
    s = lowered.scop.statement("S4")
    rows = {s.indices[m.rows["S4"].unit_index()]: m.kind for m in forces.members}
    assert rows["i"] == "P" and rows.get("j", "R") == "R"
    assert "registers F from 0.0" in lowered.as_text("loops")


def test_separated_sums_over_pairs_are_right():
    for n in (1, 5, 37):
        check(PAIRS, {"N": n})


@pytest.mark.parametrize("n", [20_000, 300_000])
def test_reductions_into_places_that_data_names_share_one_pass(n):
    """Fused, their loop was taken for parallel where there was work enough for threads, and the proof refused the schedule."""
    source = """def group(int32(N) g, double(N) v) -> (double(32) s, double(32) lo, double(32) hi, int32(32) c) {
      s(g(i)) +=! v(i)  lo(g(i)) min=! v(i)  hi(g(i)) max=! v(i)  c(g(i)) +=! 1 }"""
    rng = np.random.default_rng(n)
    g, v = rng.integers(0, 32, n).astype(np.int32), rng.standard_normal(n)
    operator = polyc.compile(source)
    lowered = operator.lower(g, v)
    assert not [r.message for r in lowered.remarks if "not proved" in r.message]
    s, lo, hi, c = operator(g, v)
    np.testing.assert_allclose(s, np.bincount(g, v, 32), rtol=1e-9)
    np.testing.assert_array_equal(c, np.bincount(g, minlength=32))
    np.testing.assert_array_equal(lo, [v[g == k].min() for k in range(32)])
    np.testing.assert_array_equal(hi, [v[g == k].max() for k in range(32)])
