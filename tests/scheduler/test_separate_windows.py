"""Windows that are combined along one dimension at a time: which, and that every monoid, border and factor survives it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_each, infer, read, run_pass, statements

HEAD = "def f(float(H,W) X, float(I) P, float(J) Q) -> (Y) { "
SUM = HEAD + "Y(h,w) +=! X(h+i,w+j) where i in 0:5, j in 0:4 }"

WINDOWS = {
    "sum": SUM,
    "maximum": HEAD + "Y(h,w) max=! X(2*h+i,2*w+j) where i in 0:7, j in 0:7 }",
    "dilated": HEAD + "Y(h,w) max=! X(h+2*i,w+3*j) where i in 0:4, j in 0:4 }",
    "squares": HEAD + "Y(h,w) +=! X(h+i,w+j) * X(h+i+1,w+j) where i in 0:4, j in 0:4 }",
    "padded": HEAD + "Y(h,w) +=! pad(X(h+i-2,w+j-2), 0.0) where i in 0:5, j in 0:5, h in 0:H, w in 0:W }",
    "clamped": HEAD + "Y(h,w) min=! pad(X(h+i-2,w+j-2), clamp) where i in 0:5, j in 0:5, h in 0:H, w in 0:W }",
    "guarded": HEAD + "Y(h,w) +=! h + i < H / 2 ? X(h+i,w+j) : 1.0 where i in 0:5, j in 0:5, h in 0:H-4 }",
    "weighted": HEAD + "Y(h,w) +=! X(h+i,w+j) * P(i) * Q(j) where i in 0:5, j in 0:4 }",
    "accumulated": HEAD + "Y(h,w) += X(h+i,w+j) * P(i) where i in 0:5, j in 0:4, h in 0:H-4, w in 0:W-3 }",
    "shifted": HEAD + "Y(h,w) +=! X(h+i-3,w+j-2) where i in 0:5, j in 0:4, h in 3:H-1 }",
    "wide steps": HEAD + "Y(h,w) +=! X(6*h+i,6*w+j) where i in 0:6, j in 0:6 }",
}

OTHERS = {
    "one dimension": HEAD + "Y(h,w) +=! X(h+i,w) where i in 0:5 }",
    "a filter": "def f(float(H,W) X, float(I,J) K) -> (Y) { Y(h,w) +=! X(h+i,w+j) * K(i,j) }",
    "no overlap": HEAD + "Y(h,w) +=! X(2*h+i,2*w+j) where i in 0:2, j in 0:2 }",
    "whole rows": HEAD + "Y(h) +=! X(h+i,w) * X(i,w) where i in 0:5 }",
    "few values, loaded once for two sums": HEAD
    + "M(h,w) +=! X(h+i,w+j) where i in 0:3, j in 0:3  S(h,w) +=! X(h+i,w+j) * X(h+i,w+j) where i in 0:3, j in 0:3 "
    "Y(h,w) = S(h,w) - M(h,w) * M(h,w) }",
    "mixed": HEAD + "Y(h,w) +=! X(h+i,w+j) * X(h+2*i,w+2*j) where i in 0:5, j in 0:5 }",
    "named alone": HEAD + "Y(h,w) max=! X(h+i,w+j) * P(i) * Q(j) where i in 0:5, j in 0:4 }",
    "a triangle": HEAD + "Y(h,w) +=! X(h+i,w+j) where i in 0:5, j in 0:5, i <= j }",
    "gaps": HEAD + "Y(h,w) +=! X(9*h+i,9*w+j) where i in 0:6, j in 0:6 }",
    "data": "def f(float(H,W) X, int32(K,L) I) -> (Y) { Y(h,w) +=! X(I(h+i,w+j),j) where i in 0:5, j in 0:5 }",
}

SIZES = {"H": 17, "W": 41, "I": 5, "J": 4}


def test_before_and_after():
    program, ranges = infer(read(WINDOWS["weighted"]), **SIZES)
    new, _, remarks = run_pass("separate-windows", program, ranges)
    assert statements(new) == [
        "S0_part(h.window, w, j): Y.part[h.window, w] += X[h.window, w + j] * Q[j] init 0.0",
        "S0(h, w, i): Y[h, w] += Y.part[h + i, w] * P[i] init 0.0",
    ]
    assert [r.pass_name for r in remarks] == ["separate-windows"]


def test_the_first_pass_is_done_once_for_results_that_share_it():
    text = "def f(float(H,W) X, float(2,5) P, float(3,4) Q) -> (Y) { Y(p,h,q,w) +=! X(h+i,w+j) * P(p,i) * Q(q,j) }"
    check(text, SIZES)
    program, ranges = infer(read(text), **SIZES)
    new, _, _ = run_pass("separate-windows", program, ranges)
    assert statements(new) == [
        "S0_part(p, h, w.window, i): Y.part[p, h, w.window] += X[h + i, w.window] * P[p, i] init 0.0",
        "S0(p, h, q, w, j): Y[p, h, q, w] += Y.part[p, h, w + j] * Q[q, j] init 0.0",
    ]


@pytest.mark.parametrize("name", WINDOWS)
def test_every_form(name: str):
    sizes, *others = (SIZES | {"H": h, "W": w} for h, w in ((17, 41), (13, 13), (31, 70)))
    for lowered in check_each(WINDOWS[name], [sizes], others=others):
        assert any(r.pass_name == "separate-windows" for r in lowered.remarks)


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), **({"H": 19, "W": 40, "K": 9, "L": 9} if name == "data" else SIZES))
    assert run_pass("separate-windows", program, ranges) == (program, ranges, [])


def test_three_sums_over_two_arrays_share_their_loads_in_the_first_pass():
    sums = (f"{y}(h,w) +=! {a}(h+i,w+j) * {b}(h+i,w+j) where i in 0:3, j in 0:3" for y, a, b in ("AUU", "BVV", "CUV"))
    text = f"def f(float(H,W) U, float(H,W) V) -> (A, B, C) {{ {'  '.join(sums)} }}"
    lowered = check(text, {"H": 60, "W": 70})
    assert sum(r.pass_name == "separate-windows" for r in lowered.remarks) == 3


def test_three_dimensions():
    text = "def f(float(A,B,C) X) -> (Y) { Y(a,b,c) max=! X(a+i,b+j,c+k) where i in 0:3, j in 0:3, k in 0:3 }"
    program, ranges = infer(read(text), A=9, B=10, C=20)
    assert len(run_pass("separate-windows", program, ranges)[0].statements) == 3
    check(text, {"A": 9, "B": 10, "C": 20})


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "bool", "double"])
def test_element_types(dtype: str):
    op = "||" if dtype == "bool" else "max"
    text = f"def f({dtype}(H,W) X) -> (Y) {{ Y(h,w) {op}=! X(h+i,w+j) where i in 0:5, j in 0:5 }}"
    lowered = check(text, {"H": 12, "W": 37})
    assert any(r.pass_name == "separate-windows" for r in lowered.remarks)


def test_sizes_of_the_call():
    op = polyc.compile(WINDOWS["padded"])
    for h, w in ((5, 40), (1, 1), (9, 64), (6, 3), (0, 7)):
        sizes = SIZES | {"H": h, "W": w}
        agree(op, draw(op, sizes), sizes)


def test_switches():
    for options in ({"disable": "separate-windows"}, {"reassociate": False}):
        lowered = check(SUM, SIZES, **options)
        assert all(r.pass_name != "separate-windows" for r in lowered.remarks)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["sum", "maximum", "padded"])
def test_special_values(name: str, special: float):
    op = polyc.compile(WINDOWS[name])
    x, *rest = draw(op, SIZES)
    x[6, 7] = special
    with np.errstate(all="ignore"):
        agree(op, [x, *rest], SIZES)
