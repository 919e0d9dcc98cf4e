"""Copies of tensors with their wrapped, mirrored and clamped borders: where they are made, and that results stay."""

from __future__ import annotations

import pytest

import polyc
from polyc.scheduler.rewriting.rules.borders import write_borders
from tests.oracle.programs import agree, draw
from tests.scheduler.support import check, infer, read, statements

HEAD = "def f(float(H,W) X, float(3) K) -> (Y) { "
ROWS = HEAD + "Y(h,w) +=! pad(X(h+i-1,w), wrap) * K(i) where h in 0:H }"

WINDOWS = {
    "rows": ROWS,
    "plane": HEAD + "Y(h,w) +=! pad(X(h+i-2,w+j-1), reflect) where i in 0:4, j in 0:3, h in 0:H, w in 0:W }",
    "two kinds": HEAD + "Y(h,w) +=! pad(X(h+i,w), wrap) * pad(X(h-i,w), clamp) where i in 0:2, h in 0:H }",
    "steps": HEAD + "Y(h,w) max=! pad(X(2*h+i-1,w), reflect) where i in 0:3, h in 0:H/2 }",
    "backwards": HEAD + "Y(h,w) +=! pad(X(h-2*i+1,w), wrap) * K(i) where h in 0:H }",
    "a temporary": HEAD + "T(h,w) +=! X(h,w) * K(i)\n Y(h,w) +=! pad(T(h,w+i-1), wrap) where i in 0:3, w in 0:W }",
    "remainders": HEAD + "Y(h,w) +=! X((h+2*i+20)%H,w) * K(i) where h in 0:H }",
    "two tensors": HEAD + "T(h,w) = pad(X(h-1,w), clamp) where h in 0:H\n"
    "Y(h,w) +=! pad(X(h+i-1,w), clamp) * pad(T(h+i-2,w), clamp) * K(i) where h in 0:H }",
    "remainders in a padded read": HEAD
    + "Y(h,w) +=! pad(X((h+i)%H,w-2), 0.5) * pad(X(h+i,w), wrap) where i in 0:3, h in 0:H, w in 0:W }",
    "beside a single read": HEAD + "Z(h,w) = pad(X(h+1,w), clamp) where h in 0:H\n"
    "Y(h,w) +=! pad(X(h+i-1,w), clamp) * K(i) * Z(h,w) where h in 0:H }",
}

SINGLE = {
    "written by the user": HEAD + "P(h,w) = pad(X(h-1,w), wrap) where h in 0:H+2\n Y(h,w) +=! P(h+i,w) * K(i) }",
    "one read": HEAD + "Y(h,w) = pad(X(h+3,w), wrap) where h in 0:H }",
    "neighbours": HEAD + "Y(h,w) = pad(X(h-1,w), wrap) + pad(X(h+1,w), wrap) - 2.0 * X(h,w) }",
    "two statements": HEAD + "A(h,w) = pad(X(h,w-3), clamp) where w in 0:W\n Y(h,w) = A(h,w) * pad(X(h,w+2), clamp) }",
    "remainders": HEAD + "Y(h,w) = X((h+1)%H,w) + X((h+H-1)%H,w) * X(h,(w+5)%W) where h in 0:H, w in 0:W }",
    "one remainder": HEAD + "Y(h,w) = X((h+30)%H,w) where h in 0:H }",
    "other remainders": HEAD + "Y(h,w) +=! X((h+i)%(H-1),w) * K(i) where h in 0:H }",
    "remainders of data": "def f(float(H,W) X, int32(H) I) -> (Y) "
    "{ Y(h,w) = X((I(h)+1)%H,(w+1)%W) + X((I(h)+2)%H,w) where w in 0:W }",
    "a value": HEAD + "Y(h,w) +=! pad(X(h+i-1,w), 0.0) * K(i) where h in 0:H }",
    "far away": HEAD + "Y(h,w) +=! pad(X(h+40*i,w), wrap) * K(i) where h in 0:H }",
    "much more than there is": HEAD + "Y(h,w) +=! pad(X(h+i,w), wrap) * K(i) where h in 0:3*H }",
    "itself": "def f(float(W) X) -> (Y) { Y(0,w) = X(w)\n"
    "Y(t,w) = pad(Y(t-1,w-1), wrap) + pad(Y(t-1,w+1), wrap) where t in 1:4, w in 0:W }",
    "itself by remainders": "def f(float(W) X) -> (Y) { Y(0,w) = X(w)\n"
    "Y(t,w) = Y(t-1,(w+W-1)%W) + Y(t-1,(w+1)%W) where t in 1:4, w in 0:W }",
}

SIZES = {"H": 12, "W": 37}


def own_sizes(source: str) -> dict[str, int]:
    return {n: size for n, size in SIZES.items() if n in source.split("->")[0]}


def has_borders(lowered: polyc.Lowered) -> bool:
    return any("is copied with its borders" in r.message for r in lowered.remarks)


def test_before_and_after():
    new, _, remarks = write_borders(*infer(read(ROWS), **SIZES))
    assert statements(new) == [
        "S0_X_wrap(X.d0, X.d1): X.wrap[X.d0, X.d1] = pad_wrap(X[X.d0 - 1, X.d1], 0.0)",
        "S0(h, w, i): Y[h, w] += X.wrap[h + i, w] * K[i] init 0.0",
        "where h in 0:12",
    ]
    assert [r.pass_name for r in remarks] == ["borders"]


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str):
    assert has_borders(check(WINDOWS[name], SIZES))


@pytest.mark.parametrize("name", SINGLE)
def test_what_is_not_copied(name: str):
    op = polyc.compile(SINGLE[name])
    sizes = own_sizes(SINGLE[name])
    arrays = draw(op, sizes)
    lowered = op.lower(*arrays)
    agree(op, arrays, sizes, call=lowered.compile())
    assert not has_borders(lowered)


def test_remainders_are_borders():
    new, _, remarks = write_borders(*infer(read(SINGLE["remainders"]), **SIZES))
    assert statements(new)[0] == (
        "S0(h, w): Y[h, w] = pad_wrap(X[h + 1, w], 0.0) + pad_wrap(X[h - 1, w], 0.0) * pad_wrap(X[h, w + 5], 0.0)"
    )
    assert remarks == []


def test_sizes_of_the_call():
    op = polyc.compile(WINDOWS["plane"])
    for h, w in ((5, 6), (1, 1), (2, 40), (0, 7), (7, 0), (12, 64)):
        sizes = {"H": h, "W": w}
        agree(op, draw(op, sizes), sizes)


def test_life_of_bytes():
    source = "def f(uint8(H,W) X) -> (Y) { S(h,w) +=! pad(X(h+i-1,w+j-1), wrap) where i in 0:3, j in 0:3, h in 0:H, w in 0:W\n"
    source += "N(h,w) = S(h,w) - X(h,w)\n Y(h,w) = N(h,w) == 3 || (N(h,w) == 2 && X(h,w) == 1) ? uint8(1) : uint8(0) }"
    op = polyc.compile(source)
    sizes = {"H": 70, "W": 130}
    arrays = draw(op, sizes)
    lowered = op.lower(*arrays)
    agree(op, arrays, sizes, call=lowered.compile())
    assert has_borders(lowered)


LONG_ROWS = "def f(float(H,W) X, float(K) w) -> (Y) { Y(y,x) +=! w(k) * pad(X(2*y+k-1,x), clamp) where y in 0:H/2, k in 0:3 }"


def test_rows_beyond_borders_are_told_by_tests():
    """A copy of all of an input went through memory once more."""
    assert write_borders(*infer(read(LONG_ROWS), H=20, W=300, K=3))[2] == []
    assert len(write_borders(*infer(read(LONG_ROWS), H=20, W=30, K=3))[2]) == 1


def test_a_copy_that_another_sum_needs_holds_all_rows():
    text = LONG_ROWS.replace("(Y)", "(Y, Z)").replace(
        "}", " Z(y,x) +=! w(k) * pad(X(y,x+k-1), clamp) where x in 0:W, k in 0:3 }"
    )
    lowered = check(text, {"H": 20, "W": 300, "K": 3})
    assert sum(r.pass_name == "borders" for r in lowered.remarks) == 1


def test_quotients_reach_beyond_borders():
    text = "def f(float(W) X, float(K) w) -> (Y) { Y(x) +=! w(k) * pad(X(2*x/3+k-2), clamp) where x in 0:W*3/2, k in 0:4 }"
    lowered = check(text, {"W": 37, "K": 4})
    assert any(r.pass_name == "borders" for r in lowered.remarks)
