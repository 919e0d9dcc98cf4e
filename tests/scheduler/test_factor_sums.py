"""Factors that leave sums: which, and that initial values, ranges and special values survive it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(M,K) A, float(K,N) B, float(M) s, float(N) t) -> (C) { "
ROW = HEAD + "C(i,j) +=! A(i,k) * B(k,j) * s(i) }"

PROGRAMS = {
    "of a row": ROW,
    "in front": HEAD + "C(i,j) +=! s(i) * A(i,k) * B(k,j) }",
    "a literal": HEAD + "C(i,j) +=! 0.125 * A(i,k) * B(k,j) }",
    "all kinds": HEAD + "C(i,j) +=! 0.125 * (A(i,k) * t(j)) * (s(i) * B(k,j)) / (s(i) * s(i) + 1.0) }",
    "accumulated": HEAD + "C(i,j) += A(i,k) * s(i) * B(k,j) }",
    "of a vector": HEAD + "C(i) +=! A(i,k) * s(i) * B(k,0) }",
    "of everything": HEAD + "C +=! A(i,k) * 0.5 * B(k,i) }",
    "transposed": HEAD + "C(j,i) +=! A(i,k) * B(k,j) * (s(i) + t(j)) }",
    "window": HEAD + "C(i,j) +=! A(i,j+k) * s(i) * B(k,0) where k in 0:8, j in 0:2 }",
    "of a triangle": HEAD + "T(i,j) +=! A(i,k) * B(k,j) * s(i) where j <= i C(i,j) = j <= i ? T(i,j) : 0.0 }",
    "of a triangle that is summed up": HEAD + "T(i,j) +=! 0.125 * A(i,k) * B(k,j) where j <= i C(i) +=! T(i,j) where j <= i }",
}

OTHERS = {
    "no factor": HEAD + "C(i,j) +=! A(i,k) * B(k,j) }",
    "one operand": HEAD + "C(i) +=! A(i,k) * s(i) }",
    "a mean": HEAD + "C(i) +=! A(i,k) / K }",
    "a sum of products": HEAD + "C(i,j) +=! A(i,k) * B(k,j) * s(i) + A(i,k) }",
    "a maximum": HEAD + "C(i,j) max=! A(i,k) * B(k,j) * s(i) }",
    "a triangle": HEAD + "C(i,j) +=! A(i,k) * B(k,j) * s(i) where k <= i }",
    "a triangle whose other elements are read": HEAD + "T(i,j) +=! A(i,k) * B(k,j) * s(i) where j <= i C(i,j) = T(i,j) + 1.0 }",
    "a triangle that is a result": HEAD + "C(i,j) +=! A(i,k) * B(k,j) * s(i) where j <= i, j in 0:N }",
    "integers": "def f(int32(M,K) A, int32(K,N) B, int32(M) s) -> (C) { C(i,j) +=! A(i,k) * B(k,j) * s(i) }",
}


def test_before_and_after():
    program, ranges = infer(read(ROW), M=3, K=9, N=4)
    new, _, remarks = run_pass("factor-sums", program, ranges)
    assert statements(new) == [
        "S0_sum(i, j, k): C.sum[i, j] += A[i, k] * B[k, j] init 0.0",
        "S0(i, j): C[i, j] = C.sum[i, j] * s[i]",
    ]
    assert [r.pass_name for r in remarks] == ["factor-sums"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form(name: str):
    for m, n, k in ((1, 1, 8), (5, 3, 9), (17, 19, 16)):
        k = k if name != "window" else 10
        sizes = {"M": m if name != "of everything" else n, "N": n, "K": k}
        lowered = check(PROGRAMS[name], sizes)
        assert any(r.pass_name == "factor-sums" for r in lowered.remarks)


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), M=6, K=9, N=5)
    assert run_pass("factor-sums", program, ranges) == (program, ranges, [])


def test_sums_of_few_or_no_terms_stay():
    for k in (0, 1, 7, None):
        program, ranges = infer(read(ROW), M=6, N=5, **({} if k is None else {"K": k}))
        assert run_pass("factor-sums", program, ranges)[2] == []


def test_switches():
    sizes = {"M": 3, "N": 4, "K": 9}
    for options in ({"disable": "factor-sums"}, {"reassociate": False}):
        lowered = check(ROW, sizes, **options)
        assert all(r.pass_name != "factor-sums" for r in lowered.remarks)


@pytest.mark.parametrize("special", [np.nan, 0.0])
def test_special_factors(special: float):
    op, sizes = polyc.compile(ROW), {"M": 4, "N": 5, "K": 11}
    a, b, s, t = draw(op, sizes)
    s[2] = special
    a[3, 4] = np.inf
    with np.errstate(all="ignore"):
        agree(op, [a, b, s, t], sizes)
