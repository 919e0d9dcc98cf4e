"""Sums into every few elements of rows, summed phase by phase: which, and that every monoid and left side survives it."""

from __future__ import annotations

import pytest

from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(H,W) X, float(2,4) P, float(3,4) Q) -> (Y) { "

PHASES = {
    "upsampled": HEAD + "Y(2*i+p,2*j+q) +=! X(i+a,j+b) * P(p,a) * P(q,b) where a in 0:4, b in 0:4 }",
    "one dimension": HEAD + "Y(i,3*j+q) +=! X(i,j+b) * Q(q,b) }",
    "maximum": HEAD + "Y(i,2*j+q) max=! X(i,j+b) + P(q,b) }",
    "moved": HEAD + "Y(i,3*j+q-4) +=! X(i,j+b) * Q(q-1,b) where q in 1:4 }",
    "backwards": HEAD + "Y(i,3*j+q) +=! X(i,W-1-j-b) * Q(q,b) where j in 0:W-3 }",
    "read again": HEAD.replace("(Y)", "(Z)") + "Y(i,2*j+q) +=! X(i,j+b) * P(q,b)  Z(i,j) = Y(i,j) * 0.5 }",
}

OTHERS = {
    "overlapping": "def f(float(W) X, float(3,4) Q) -> (Y) { Y(2*j+q) +=! X(j+b) * Q(q,b) }",
    "gaps": "def f(float(W) X, float(2,4) P) -> (Y) { Y(3*j+q) +=! X(j+b) * P(q,b) }",
    "rows": "def f(float(H,W) X, float(2,4) P) -> (Y) { Y(2*i+q,j) +=! X(i,j+b) * P(q,b) }",
    "an assignment": "def f(float(2,W) X) -> (Y) { Y(2*j+q) = X(q,j) }",
    "along the phase": "def f(float(H,W,2) X) -> (Y) { Y(2*j+q) +=! X(i,j,q) }",
    "across": "def f(float(W,H) X, float(2,H) P) -> (Y) { Y(2*j+q) +=! X(j,k) * P(q,k) }",
    "short": "def f(float(8) X, float(2,3) P) -> (Y) { Y(2*j+q) +=! X(j+b) * P(q,b) }",
    "a contraction": "def f(float(C,W) X, float(C,2) P) -> (Y) { Y(2*j+q) +=! X(c,j) * P(c,q) }",
    "windows that meet": "def f(float(H,W) X, float(3,2) Q) -> (Y) { Y(i+r,2*j+q) max=! X(i,j) + Q(r,q) }",
    "windows of unknown length": "def f(float(H,W) X, float(R,2) Q) -> (Y) { Y(2*i+r,2*j+q) max=! X(i,j) + Q(r,q) }",
    "a part": "def f(float(W) X, float(2,4) P) -> (Y) { Y(2*j+q) +=! X(j+b) * P(q,b) where j in 0:W-3  Y(2*W-6) = X(0) }",
}


def test_before_and_after():
    program, ranges = infer(read(PHASES["one dimension"]), H=5, W=40)
    new, _, remarks = run_pass("separate-phases", program, ranges)
    assert statements(new) == [
        "S0_phases(q, i, j, b): Y.phases[q, i, j] += X[i, j + b] * Q[q, b] init 0.0",
        "S0(i, j, q): Y[i, 3 * j + q] = Y.phases[q, i, j]",
    ]
    assert [r.pass_name for r in remarks] == ["separate-phases"]


@pytest.mark.parametrize("name", PHASES)
def test_every_form(name: str):
    for h, w in ((5, 19), (17, 70)):
        lowered = check(PHASES[name], {"H": h, "W": w})
        assert any(r.pass_name == "separate-phases" for r in lowered.remarks)


@pytest.mark.parametrize("form", ["Y(k,i+r,2*j+q) +=! X(c,i,j) * F(c,k,r,q)", "Y(k,i+r,2*j+q) max=! X(c,i,j) * F(c,k,r,q)"])
def test_windows_that_meet_in_another_dimension_are_summed_up(form: str):
    check("def f(float(C,H,W) X, float(C,K,3,2) F) -> (Y) { " + form + " }", {"C": 3, "K": 2, "H": 4, "W": 19})


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), H=5, W=40, C=16)
    assert run_pass("separate-phases", program, ranges) == (program, ranges, [])
