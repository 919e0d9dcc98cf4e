"""Products of several operands that are summed a few at a time: which, and that every semiring and element type survives it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, infer, read, run_pass, statements

CHAINED = "def f(float(I,J) A, float(J,K) B, float(K,L) C) -> "
CHAIN = CHAINED + "(Y) { Y(i,l) +=! A(i,j) * B(j,k) * C(k,l) }"

PRODUCTS = {
    "chain": CHAIN,
    "Tucker": "def f(float(I,J,K) A, float(L,I) B, float(M,J) C, float(N,K) D) -> (Y) "
    "{ Y(l,m,n) +=! A(i,j,k) * B(l,i) * C(m,j) * D(n,k) }",
    "operands of their own": "def f(float(I,J) A, float(K,L) B) -> (Y) { Y(i,l) +=! A(i,j) * B(k,l) }",
    "all summed": CHAINED + "(Y) { Y +=! A(i,j) * B(j,k) * C(k,l) }",
    "factors": "def f(float(I,J) A, float(J,K) B, float(K,L) C, float(L) D) -> (Y) "
    "{ Y(i,l) +=! 0.5 * A(i,j) * D(l) * B(j,k) * C(k,l) }",
    "expressions": CHAINED + "(Y) { Y(i,l) +=! exp(A(i,j)) * (B(j,k) - 1.0) * fabs(C(k,l)) }",
    "window": "def f(float(I,J) A, float(K,L) C, float(J,K) B) -> (Y) { Y(i,l) +=! A(i+w,j) * B(j,k) * C(k,l) where w in 0:2 }",
    "accumulated": CHAINED + "(Y) { Y(i,l) += A(i,j) * B(j,k) * C(k,l) }",
    "padded": CHAINED + "(Y) { Y(i,l) +=! A(i,j) * B(j,k) * pad(C(k,l-1), 0.0) where l in 0:L }",
    "largest of sums": CHAINED + "(Y) { Y(i,l) max=! A(i,j) + B(j,k) + C(k,l) }",
    "smallest of sums": "def f(float(I,J) A, float(J,K) B) -> (Y) { Y(i,k) min=! A(i,j) + B(l,k) }",
    "temporaries": CHAINED + "(Y) { T(i,j,k) = A(i,j) * B(j,k)\n Y(i,l) +=! T(i,j,k) * C(k,l) }",
    "two sums": CHAINED + "(Y, Z) { Y(i,l) +=! A(i,j) * B(j,k) * C(k,l)\n Z(l,i) +=! Y(i,l) * A(i,j) * B(j,k) }",
}

OTHERS = {
    "two operands": "def f(float(I,J) A, float(J,K) B) -> (Y) { Y(i,k) +=! A(i,j) * B(j,k) }",
    "one with every index": "def f(float(I,J,K) A, float(J) B, float(K) C) -> (Y) { Y(i) +=! A(i,j,k) * B(j) * C(k) }",
    "no order with fewer terms": "def f(float(I,J) A, float(L,J,K) W, float(I,K) B) -> (Y) "
    "{ Y(i,l) +=! A(i,j) * W(l,j,k) * B(i,k) }",
    "no distribution": CHAINED + "(Y) { Y(i,l) max=! A(i,j) * B(j,k) * C(k,l) }",
    "a triangle": CHAINED + "(Y) { Y(i,l) +=! A(i,j) * B(j,k) * C(k,l) where j <= k }",
    "a divisor that moves": CHAINED + "(Y) { Y(i,l) +=! A(i,j) / B(j,k) / C(k,l) }",
}

SIZES = {"I": 13, "J": 18, "K": 17, "L": 33, "M": 9, "N": 21}


def is_ordered(lowered: polyc.Lowered) -> bool:
    return any(r.pass_name == "order-contractions" for r in lowered.remarks)


def test_before_and_after():
    program, ranges = infer(read(CHAIN), I=40, J=30, K=20, L=50)
    new, _, remarks = run_pass("order-contractions", program, ranges)
    assert statements(new) == [
        "S0_product0(i, k, j): Y.product0[i, k] += A[i, j] * B[j, k] init 0.0",
        "S0(i, l, k): Y[i, l] += Y.product0[i, k] * C[k, l] init 0.0",
    ]
    assert [r.pass_name for r in remarks] == ["order-contractions"]


def test_the_order_follows_the_sizes():
    for sizes, first in (({"I": 2, "L": 90}, "Y.product0[i, k]"), ({"I": 90, "L": 2}, "Y.product0[j, l]")):
        new, _, _ = run_pass("order-contractions", *infer(read(CHAIN), J=40, K=40, **sizes))
        assert first in statements(new)[0]


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_form(name: str):
    source = PRODUCTS[name]
    assert is_ordered(check(source, {n: size for n, size in SIZES.items() if n in source.split("->")[0]}))


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), **SIZES)
    assert run_pass("order-contractions", program, ranges) == (program, ranges, [])


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "bfloat16", "double", "bool"])
def test_element_types(dtype: str):
    source = CHAIN.replace("float", dtype)
    if dtype == "bool":
        source = source.replace("+=!", "||=!").replace("*", "&&")
    sizes = {n: SIZES[n] for n in "IJKL"}
    op = polyc.compile(source)
    arrays = draw(op, sizes)
    lowered = op.lower(*arrays)
    agree(op, arrays, sizes, call=lowered.compile())
    assert is_ordered(lowered)


@pytest.mark.parametrize("op", ["max", "min"])
def test_integers_that_wrap_around_have_no_largest_sum(op: str):
    source = CHAIN.replace("float", "int32").replace("+=!", f"{op}=!").replace("*", "+")
    op = polyc.compile(source, dynamic=True)
    for j in (18, 0):
        sizes = {"I": 13, "J": j, "K": 17, "L": 33}
        arrays = [np.full_like(a, 2**30 + 5) for a in draw(op, sizes)]
        arrays[2][:] = -7
        agree(op, arrays, sizes)
        assert not is_ordered(op.lower(*arrays))


def test_half_floats_without_a_sum_at_the_end():
    source = "def f(float16(I,J) A, float16(K,L) B) -> (Y) { Y(i,l) +=! A(i,j) * B(k,l) }"
    assert is_ordered(check(source, {n: SIZES[n] for n in "IJKL"}))


def test_sizes_of_the_call():
    op = polyc.compile(CHAIN, dynamic=True)
    for i, j, k, l in ((13, 18, 17, 33), (1, 1, 1, 1), (5, 0, 4, 6), (4, 6, 0, 3), (0, 3, 3, 3), (40, 3, 50, 2)):
        sizes = {"I": i, "J": j, "K": k, "L": l}
        agree(op, draw(op, sizes), sizes)


def test_switches():
    sizes = {n: SIZES[n] for n in "IJKL"}
    for options in ({"disable": "order-contractions"}, {"reassociate": False}):
        assert not is_ordered(check(CHAIN, sizes, **options))


def test_a_product_that_would_take_minutes_as_written():
    op = polyc.compile(CHAIN.replace("float", "double"))
    a, b, c = (np.random.default_rng(n).standard_normal((700, 700)) for n in range(3))
    np.testing.assert_allclose(op(a, b, c), a @ b @ c, rtol=1e-9, atol=1e-9)
