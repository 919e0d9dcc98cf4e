"""Packing: which operands are copied, where the copies stand, and that they never read outside of an array."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from polyc.driver import Lowered
from polyc.machine import X86_64_V4
from polyc.poly.rows import format_rows
from tests.scheduler.support import check, check_nest, lower

MATMUL_NT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"


def packed(lowered: Lowered) -> list[str]:
    """Names of the packed tensors."""
    return [t.name for t in lowered.scop.program.tensors if ".packed." in t.name]


def test_the_operand_of_the_vector_index_is_copied_above_the_rows():
    lowered = check(MATMUL_NT, {"M": 70, "N": 40, "K": 50})
    assert packed(lowered) == ["B.packed.S0"]
    assert format_rows(lowered.rows, lowered.scop) == "[P:k, P:n] S0_pack ; [P:m, P:n, R:k] S0"
    (remark,) = [r for r in lowered.remarks if r.pass_name == "pack"]
    assert "B by n" in remark.message and "70 times" in remark.message


def test_few_rows_are_read_in_place():
    assert packed(check(MATMUL_NT, {"M": 4, "N": 40, "K": 50})) == []


GUARDED = {
    "selection": """def f(float(M,K) A, float(L,N) B) -> (C) {
      C(m,n) +=! k < L ? A(m,k) * B(k,n) : 0.0 where k in 0:K }""",
    "padding": """def f(float(M,K) A, float(L,N) B) -> (C) {
      C(m,n) +=! A(m,k) * pad(B(k,n), 0.0) where k in 0:K, n in 0:N }""",
    "strided padding": """def f(float(M,K) A, float(N,L) B) -> (C) {
      C(m,n) +=! A(m,k) * pad(B(n,k), 0.0) where k in 0:K, n in 0:N }""",
}


@pytest.mark.each
@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("extent", [20, 32])
def test_a_guarded_operand_is_not_read_outside_by_a_copy(name, extent):
    sizes = {"M": 128, "K": 32, "L": extent, "N": 48}
    for is_fixed in (True, False):
        check_nest(lower(GUARDED[name], sizes, is_fixed), sizes)


def test_an_operand_that_is_inside_everywhere_is_copied_although_it_is_guarded():
    text = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! m > n ? A(m,k) * B(n,k) : 0.0 }"
    check(text, {"M": 70, "N": 40, "K": 50})


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("def f(float(M,K) A) -> (C) { C(m,n) +=! A(m,k) * A(n,k) }", {"M": 70, "K": 50}),
        ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) * B(k,n) }", {"M": 130, "K": 40, "N": 70}),
        (
            """def f(float(M,K) A, float(N,K) B, float(M,K) D) -> (C, E) {
                 C(m,n) +=! A(m,k) * B(n,k)  E(m,n) +=! D(m,k) * B(n,k) }""",
            {"M": 70, "K": 50, "N": 40},
        ),
        (
            "def f(float(Z,M,K) A, float(Z,N,K) B) -> (C) { C(z,m,n) +=! A(z,m,k) * B(z,n,k) }",
            {"Z": 3, "M": 70, "K": 20, "N": 40},
        ),
        (
            "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k-1) where k in 1:K }",
            {"M": 70, "K": 50, "N": 40},
        ),
        ("def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) where k <= m }", {"M": 50, "K": 50, "N": 40}),
    ],
    ids=["operand twice", "squared operand", "operand of two", "batched", "shifted", "triangular"],
)
def test_reads_that_occur_in_many_ways(text, sizes):
    check(text, sizes)


@pytest.mark.parametrize("sizes", [{"M": 70, "N": 40, "K": 0}, {"M": 0, "N": 40, "K": 50}, {"M": 25, "N": 1, "K": 8}])
def test_empty_and_short_ranges(sizes):
    check(MATMUL_NT, sizes)


def test_the_copy_stands_behind_what_makes_the_operand():
    text = """def f(float(M,K) A, float(N,K) B, float(P,N) D) -> (C) {
      H(m,n) +=! A(m,k) * B(n,k)  R(m,n) = fmax(H(m,n), 0.0)  C(m,p) +=! R(m,n) * D(p,n) }"""
    check(text, {"M": 70, "K": 20, "N": 40, "P": 33})
    made = "def f(float(M,K) A, float(N,K) B) -> (C) { W(n,k) = exp(B(n,k))  C(m,n) +=! A(m,k) * W(n,k) }"
    check(made, {"M": 70, "K": 40, "N": 33})


def test_nothing_is_packed_without_tiles_or_vectors():
    for change in ({"tile": False}, {"vectorize": False}):
        assert packed(check(MATMUL_NT, {"M": 70, "N": 40, "K": 50}, **change)) == []


def test_weights_of_a_one_by_one_filter_are_copied():
    """Constant subscripts kept them in place, read lane by lane along their longest stride (forty times slower)."""
    text = """def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) {
      O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"""
    lowered = check(text, {"N": 1, "C": 24, "H": 16, "W": 16, "K": 40, "R": 1, "S": 1})
    assert "F.packed.S0" in packed(lowered)


PADDED = """def f(float(C,H,W) I, float(K,C,R,S) F) -> (O) {
  O(k,h,w) +=! pad(I(c,h+r-1,w+s-1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W }"""


def test_windows_are_copied_once_with_their_border():
    sizes = {"C": 24, "H": 7, "W": 14, "K": 32, "R": 3, "S": 3}
    lowered = check(PADDED, sizes)
    assert "I.packed.S0" in packed(lowered)
    (copy,) = [s for s in lowered.scop.statements if s.target == "I.packed.S0"]
    assert copy.indices[:2] == ("c", "h.r") and len(copy.indices) == 3
    assert "pad" not in str(lowered.scop.statement("S0").origin.value)


def test_elementwise_functions_of_an_operand_move_into_its_copy():
    text = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * exp(B(n,k)) }"
    lowered = check(text, {"M": 70, "N": 40, "K": 50})
    (copy,) = [s for s in lowered.scop.statements if ".packed." in s.target]
    assert "exp" in str(copy.origin.value)
    assert "exp" not in str(lowered.scop.statement("S0").origin.value)


@pytest.mark.each
@pytest.mark.parametrize(
    "text",
    [
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n)  C(m,n) = fmax(C(m,n), 0.5) }",
        "def f(float(K,M) A, float(N,K) B) -> (C) { T(k,m) = A(k,m) + 1.0  C(m,n) +=! T(k,m) * B(n,k) }",
        "def f(float(K,M) A, float(N,K) B, float(M,N) D) -> (C) { C(m,n) = D(m,n)  C(m,n) += A(k,m) * B(n,k) }",
    ],
    ids=["alone", "epilogue", "producer", "accumulating"],
)
@pytest.mark.parametrize("is_fixed", [True, False])
def test_long_sums_are_cut_into_blocks(text, is_fixed):
    """The caches are made small, so that the blocks are few and short."""
    target = replace(X86_64_V4, l1=1 << 12, l2=1 << 14)
    sizes = {"M": 40, "N": 34, "K": 300}
    lowered = lower(text, sizes, is_fixed, target=target)
    if is_fixed:
        assert any("in blocks of" in r.message for r in lowered.remarks if r.pass_name == "contraction")
    check_nest(lowered, sizes)


def test_tiles_cover_neighbours_of_a_large_result():
    """Rows 16 KB apart made every line of a 64 MB result travel twice: 10.4 ms, with neighbouring rows 4.0."""
    text = "def f(float(G,E,B,C) X, float(D,A,F,G) Y) -> (O) { O(a,b,c,d,e,f) +=! X(g,e,b,c) * Y(d,a,f,g) }"
    (choice,) = lower(text, dict.fromkeys("ABCDEFG", 16)).choices.values()
    assert set(choice.way.tile) == {"e", "f"}
    check(text, {**dict.fromkeys("ABCDEFG", 5), "F": 16}, target=replace(X86_64_V4, l2=1 << 12, l3=1 << 14))


def test_of_two_large_operands_the_one_that_would_stream_by_more_often_is_copied():
    """Weights of 9 MB passed by for each panel of 32 rows, which arithmetic hid only in part: 24.2 ms, now 22.4."""
    (choice,) = lower(MATMUL_NT, {"M": 512, "N": 3072, "K": 768}).choices.values()
    assert choice.way.packs_vector and choice.vector_operand.read.tensor == "B"


@pytest.mark.parametrize(("K", "is_crowded"), [(1024, True), (1024 + 16, False)])
def test_no_more_rows_are_unrolled_than_a_set_of_the_cache_has_lines(K, is_crowded):
    """Rows whole pages apart meet in one set: their lines, sixteen elements each, were fetched again for every element."""
    (choice,) = lower(MATMUL_NT, {"M": 2048, "N": 112, "K": K}).choices.values()
    rows = math.prod(n for i, n in choice.way.tile.items() if i != choice.way.vector)
    assert choice.row_operand.read.tensor in "AB" and not choice.way.packs_rows
    assert (rows <= X86_64_V4.l1 // 4096) == is_crowded


def test_a_vector_operand_whose_lines_lie_across_panels_is_copied_at_once():
    """Panel by panel, each would gather single elements of its lines: it was given up, and the result stored transposed."""
    text = "def f(float(D,E,C,A) X, float(B,E) Y) -> (O) { O(a,b,c,d) +=! X(d,e,c,a) * Y(b,e) }"
    for target in (X86_64_V4, replace(X86_64_V4, l1=1 << 10, l2=1 << 12, l3=1 << 14)):
        lowered = check(text, {"A": 17, "B": 9, "C": 3, "D": 32, "E": 12}, target=target)
        (choice,) = lowered.choices.values()
        assert choice.way.vector == "d" and choice.way.is_whole


def test_steps_in_order_are_no_rows_of_a_tile():
    """Rows of time were chosen for a step's product, and none was left: eight states took 7.4 times as long as one."""
    text = """def f(float(T,B,J) X, float(J,L) R, float(B,J) h) -> (H) {
      H(0,n,j) = h(n,j)
      S(t,n,j) +=! R(j,l) * H(t,n,l) where t in 0:T, n in 0:B, j in 0:J
      H(t+1,n,j) = tanh(S(t,n,j) + X(t,n,j)) where t in 0:T, n in 0:B, j in 0:J }"""
    lowered = check(text, {"T": 40, "B": 8, "J": 24, "L": 24})
    assert "t" not in lowered.choices["S1"].way.tile and "n" in lowered.choices["S1"].way.tile


ATTENTION = """def attention(float(B,M,D) Q, float(B,N,D) K, float(B,N,D) V) -> (Y) {
  S(b,m,n) +=! Q(b,m,d) * K(b,n,d)  X(b,m) max=! S(b,m,n)  E(b,m,n) = exp(S(b,m,n) - X(b,m))  Z(b,m) +=! E(b,m,n)
  P(b,m,n) = E(b,m,n) / Z(b,m)  Y(b,m,d) +=! P(b,m,n) * V(b,n,d) }"""


@pytest.mark.parametrize("rows", [197, 256, 512])
def test_tiles_of_contractions_that_share_rows_do_not_overlap_each_other(rows):
    """Six rows of scores and four of results: each row found its place by remainders, at a third of the speed."""
    lowered = lower(ATTENTION, {"B": 2, "M": rows, "N": rows, "D": 64})
    assert "%" not in lowered.as_text("loops")
    sizes = [choice.way.tile["m"] for choice in lowered.choices.values()]
    assert len(sizes) == 2 and max(sizes) % min(sizes) == 0


def test_tiles_of_contractions_that_share_rows_are_right():
    check(ATTENTION, {"B": 2, "M": 29, "N": 29, "D": 64})


def test_channels_that_lie_along_memory_everywhere_are_the_vector():
    """A filter for each channel, channels last: it copied X to have a vector along the image."""
    text = """def channels_last(float(H,W,C) X, float(R,S,C) F) -> (Y) {
      Y(h,w,c) +=! pad(X(h + r - 1, w + s - 1, c), 0.0) * F(r,s,c) where h in 0:H, w in 0:W }"""
    lowered = check(text, {"H": 9, "W": 10, "C": 37, "R": 3, "S": 3})
    assert packed(lowered) == []
    assert "vector(lanes 16, at most 48)" in lowered.as_text("loops") or "at most 37" in lowered.as_text("loops")


def test_steps_that_run_backwards_are_no_rows_of_a_tile():
    """Of 40 steps one after the other, with a product of matrices in each, the tile holds rows of the product."""
    text = """def f(float(T, B, K) X, float(K, K) R) -> (H) {
      H(T, b, k) = 0.0 * R(0, k) where b in 0:B
      S(t, b, k) +=! H(t + 1, b, j) * R(j, k) where t in 0:T
      H(t, b, k) = X(t, b, k) + S(t, b, k) where t in 0:T }"""
    lowered = lower(text, {"T": 40, "B": 32, "K": 128})
    (remark,) = [r for r in lowered.remarks if r.pass_name == "contraction"]
    assert remark.message.startswith("b ")
