"""Sums of several products, and operands made of several reads: contractions either way, with the results of the formula."""

from __future__ import annotations

import pytest

from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(M,K) A, float(K,N) B, float(M,K) C, float(K,N) D, float(M,M) S, float(M,N) Y) -> (O) { "

SEPARATE = {
    "two": HEAD + "O(i,j) +=! A(i,k) * B(k,j) + C(i,k) * D(k,j) }",
    "differences": HEAD + "O(i,j) +=! A(i,k) * B(k,j) - (C(i,k) * D(k,j) - A(i,k) * D(k,j)) }",
    "a first value": HEAD + "O(i,j) = Y(i,j)  O(i,j) += A(i,k) * B(k,j) + 2.0 * C(i,k) * D(k,j) }",
    "a triangle": HEAD + "O(i,j) +=! A(i,k) * C(j,k) + C(i,k) * A(j,k) where j <= i }",
}

TOGETHER = {
    "the same operands": HEAD + "O(i,j) +=! A(i,k) * B(k,j) + exp(A(i,k)) * B(k,j) }",
    "a vector": HEAD + "O(i) +=! A(i,k) * B(k,0) + C(i,k) * D(k,0) }",
    "a term that is no product": HEAD + "O(i,j) +=! A(i,k) * B(k,j) + C(i,k) }",
    "extrema": HEAD + "O(i,j) max=! A(i,k) * B(k,j) + C(i,k) * D(k,j) }",
}

STORED = {
    "a symmetric matrix of which half is given": HEAD + "O(i,j) +=! (l <= i ? S(i,l) : S(l,i)) * Y(l,j) }",
    "a sum": HEAD + "O(i,j) +=! (A(i,k) + C(i,k)) * B(k,j) }",
    "both": HEAD + "O(i,j) +=! (A(i,k) - C(i,k)) * (B(k,j) + D(k,j)) }",
    "with itself": HEAD + "O(i,j) +=! (A(i,k) - C(i,k)) * (A(j,k) - C(j,k)) where j <= i }",
}


@pytest.mark.parametrize("name", SEPARATE)
def test_products_one_after_the_other(name: str) -> None:
    lowered = check(SEPARATE[name], {"M": 45, "K": 18, "N": 47})
    assert any(r.pass_name == "separate-products" for r in lowered.remarks)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_stays_together(name: str) -> None:
    program, ranges = infer(read(TOGETHER[name]), M=45, K=18, N=47)
    assert run_pass("separate-products", program, ranges)[0] is program


def test_products_before_and_after() -> None:
    program, ranges = infer(read(SEPARATE["two"]), M=45, K=18, N=47)
    assert statements(run_pass("separate-products", program, ranges)[0]) == [
        "S0_product0(i, j, k): O.product0[i, j] += A[i, k] * B[k, j] init 0.0",
        "S0(i, j, k): O[i, j] += C[i, k] * D[k, j] init O.product0[i, j]",
    ]


@pytest.mark.parametrize("name", STORED)
def test_operands_made_of_several_reads(name: str) -> None:
    lowered = check(STORED[name], {"M": 45, "K": 18, "N": 47})
    assert any(r.pass_name == "store-operands" for r in lowered.remarks)
    assert any(r.pass_name == "contraction" for r in lowered.remarks)


def test_one_operand_read_twice_is_stored_once() -> None:
    program, ranges = infer(read(STORED["with itself"]), M=45, K=18, N=47)
    assert statements(run_pass("store-operands", program, ranges)[0])[:2] == [
        "S0_operand(i, k): O.operand[i, k] = A[i, k] - C[i, k]",
        "S0(i, j, k): O[i, j] += O.operand[i, k] * O.operand[j, k] init 0.0",
    ]


def test_windows_are_not_stored_for_each_position() -> None:
    text = "def f(float(H) x, float(H) y, float(C,K) w) -> (O) { O(c,h) +=! (x(h+k) + y(h+k)) * w(c,k) where k in 0:K }"
    program, ranges = infer(read(text), H=600, C=32, K=9)
    assert run_pass("store-operands", program, ranges)[0] is program
