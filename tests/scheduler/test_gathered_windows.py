"""Contractions into overlapping windows that become sums over windows: which, and that every form survives it."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, check_each, infer, read, run_pass, statements

HEAD = "def f(float(K,P) G, float(K,M,R) W) -> (Y) { "
ONE = HEAD + "Y(m,p+r) +=! G(k,p) * W(k,m,r) }"
TWO = HEAD + "Y(m,2*p+r) +=! G(k,p) * W(k,m,r) }"
PLANE = "def f(float(N,K,P,Q) G, float(K,M,R,S) W) -> (Y) { "

WINDOWS = {
    "stride 1": ONE,
    "stride 2": TWO,
    "stride 3, uneven": HEAD + "Y(m,3*p+r) +=! G(k,p) * W(k,m,r) }",
    "stride 4, nothing overlaps": HEAD + "Y(m,4*p+r) +=! G(k,p) * W(k,m,r) }",
    "dilated": HEAD + "Y(m,p+2*r) +=! W(k,m,r) * G(k,p) }",
    "backwards": HEAD + "Y(m,p-r+3) +=! G(k,p) * W(k,m,r) }",
    "plane": PLANE + "Y(n,m,p+r,q+s) +=! G(n,k,p,q) * W(k,m,r,s) }",
    "plane by 2": PLANE + "Y(n,m,2*p+r,2*q+s) +=! G(n,k,p,q) * W(k,m,r,s) }",
    "plane, mixed": PLANE + "Y(n,2*p+r,m,q+s) +=! G(n,k,p,q) * W(k,m,r,s) }",
    "plane, uneven": PLANE + "Y(n,m,2*p+r,3*q+s) +=! G(n,k,p,q) * W(k,m,r,s) }",
    "with a reader": HEAD + "T(m,2*p+r) +=! G(k,p) * W(k,m,r)\n Y(m,i) = fmax(T(m,i), 0.0) }",
    "of a temporary": HEAD + "T(k,p) = exp(G(k,p))\n Y(m,2*p+r) +=! T(k,p) * W(k,m,r) }",
}

STRIDES = {"stride 3, uneven": 3, "stride 4, nothing overlaps": 4, "plane, uneven": 3}
"""The least width of windows without gaps between them."""

OTHERS = {
    "few terms": "def f(float(P) G, float(R) W) -> (Y) { Y(p+r) +=! G(p) * W(r) }",
    "one operand": "def f(float(P,R) G) -> (Y) { Y(2*p+r) +=! G(p,r) }",
    "a part of the image": HEAD + "Y(m,p+r) +=! G(k,p) * W(k,m,r) where p in 1:P }",
    "all but the last position": HEAD + "Y(m,p+r) +=! G(k,p) * W(k,m,r) where p in 0:P-1 }",
    "all but the first element of windows": HEAD + "Y(m,p+r) +=! G(k,p) * W(k,m,r) where r in 1:R }",
    "an accumulated result": HEAD + "Y(m,p+r) += G(k,p) * W(k,m,r) }",
    "positions in both": "def f(float(K,P) G, float(K,P,R) W) -> (Y) { Y(p+r) +=! G(k,p) * W(k,p,r) }",
    "a maximum": HEAD + "Y(m,p+r) max=! G(k,p) * W(k,m,r) }",
    "a triangle": HEAD + "Y(m,p+r) +=! G(k,p) * W(k,m,r) where r <= p }",
}

SIZES = {"N": 2, "K": 9, "P": 11, "Q": 10, "M": 6, "R": 4, "S": 4}


def own_sizes(source: str, **changes: int) -> dict[str, int]:
    return {n: size for n, size in (SIZES | changes).items() if n in source.split("->")[0]}


def is_gathered(lowered: polyc.Lowered) -> bool:
    return any(r.pass_name == "gather-windows" for r in lowered.remarks)


def test_before_and_after():
    program, ranges = infer(read(ONE), **own_sizes(ONE))
    assert statements(run_pass("gather-windows", program, ranges)[0]) == [
        "S0(m, p.place, r, k): Y[m, p.place] += pad(G[k, p.place - r], 0.0) * W[k, m, r] init 0.0"
    ]
    new, _, remarks = run_pass("gather-windows", *infer(read(TWO), **own_sizes(TWO)))
    assert statements(new) == [
        "S0_phases(m, p.place, r.phase, r, k): Y.phases[m, p.place, r.phase] += "
        "pad(G[k, p.place - r], 0.0) * W[k, m, 2 * r + r.phase] init 0.0",
        "S0(m, p.place, r.phase): Y[m, 2 * p.place + r.phase] = Y.phases[m, p.place, r.phase]",
    ]
    assert [r.pass_name for r in remarks] == ["gather-windows"]


@pytest.mark.parametrize("name", ["stride 2", "plane", "plane, uneven"])
def test_windows_of_few_channels(name: str):
    all_sizes = [own_sizes(WINDOWS[name], K=channels, R=3, S=3) for channels in (1, 3)]
    op = polyc.compile(WINDOWS[name])
    for sizes, lowered in zip(all_sizes, check_each(WINDOWS[name], all_sizes), strict=True):
        assert is_gathered(lowered)
        agree(op, draw(op, sizes), sizes, call=lowered.compile())


def test_windows_of_few_channels_that_are_as_long_as_the_row_stay():
    for channels, is_worth_it in ((3, False), (8, True)):
        program, ranges = infer(read(ONE), **own_sizes(ONE, K=channels, P=30, R=30))
        assert bool(run_pass("gather-windows", program, ranges)[2]) == is_worth_it


@pytest.mark.parametrize(("name", "width"), [(name, w) for name in WINDOWS for w in (STRIDES.get(name, 2), 5)])
def test_every_form(name: str, width: int):
    source = WINDOWS[name]
    sizes = own_sizes(source, R=width, S=width)
    op = polyc.compile(source)
    arrays = draw(op, sizes)
    lowered = op.lower(*arrays)
    agree(op, arrays, sizes, call=lowered.compile())
    assert is_gathered(lowered)


@pytest.mark.parametrize("name", ["stride 1", "stride 2", "plane, uneven"])
def test_loops(name: str):
    assert is_gathered(check(WINDOWS[name], own_sizes(WINDOWS[name])))


@pytest.mark.parametrize("name", OTHERS)
def test_what_stays(name: str):
    program, ranges = infer(read(OTHERS[name]), **own_sizes(OTHERS[name]))
    assert run_pass("gather-windows", program, ranges) == (program, ranges, [])


@pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "double"])
def test_element_types(dtype: str):
    source = TWO.replace("float", dtype)
    op = polyc.compile(source)
    arrays = draw(op, own_sizes(source))
    lowered = op.lower(*arrays)
    agree(op, arrays, own_sizes(source), call=lowered.compile())
    assert is_gathered(lowered)


def test_sizes_of_the_call():
    op = polyc.compile(TWO)
    for p, r in ((11, 4), (1, 2), (1, 1), (3, 7), (40, 3), (2, 2)):
        sizes = own_sizes(TWO, P=p, R=r)
        agree(op, draw(op, sizes), sizes)


def test_switches():
    for options in ({"disable": "gather-windows"}, {"reassociate": False}):
        assert not is_gathered(check(ONE, own_sizes(ONE), **options))


def test_data_that_is_not_finite_stays_in_its_windows():
    op = polyc.compile(TWO)
    g, w = draw(op, own_sizes(TWO))
    g[3, 5] = np.inf
    with np.errstate(all="ignore"):
        agree(op, [g, w], own_sizes(TWO))
