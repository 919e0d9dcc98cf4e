"""Borders and interiors of vector loops: what is split, and that every element comes out the same."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.loops import If, Loop, Node
from polyc.target import X86_64_V2, X86_64_V3, X86_64_V4
from tests.scheduler.support import check, lower, read

# Three tensors: what is read several times beyond its borders is copied with them.
SOBEL = """def f(float(H,W) X, float(H,W) U, float(H,W) V) -> (Y) {{
  Y(y,x) = pad(X(y-1,x-1), {0}) + 2.0 * pad(U(y,x-1), {0}) - pad(V(y+1,x+2), {0}) where y in 0:H, x in 0:W }}"""
BORDERS = ("0.0", "clamp", "wrap", "reflect")


def loops(nodes: tuple[Node, ...]) -> list[Loop]:
    """The innermost loops, in order."""
    found: list[Loop] = []
    for node in nodes:
        match node:
            case If():
                found += loops(node.body) + loops(node.orelse)
            case Loop():
                found += loops(node.body) or [node]
    return found


@pytest.mark.parametrize("border", BORDERS)
def test_the_interior_has_no_tests(border: str) -> None:
    nest = lower(SOBEL.format(border), {"H": 40, "W": 200}).nest
    first, inside, last, whole = loops(nest.body)
    assert [(loop.lower.value, loop.upper.value) for loop in (first, inside, last, whole)] == [
        (0, 1),
        (1, 198),
        (198, 200),
        (0, 200),
    ]
    assert (first.kind, inside.kind, last.kind, whole.kind) == ("serial", "vector", "serial", "vector")
    text = lower(SOBEL.format(border), {"H": 40, "W": 200}).as_text("loops")
    (line,) = [x for x in text.splitlines() if "?" not in x and "// S0" in x]
    assert "X[c0 - 1, c1 - 1]" in line and "V[c0 + 1, c1 + 2]" in line


def test_few_iterations_at_borders_of_unknown_size_run_one_by_one() -> None:
    op = polyc.compile(SOBEL.format("0.0"), dynamic=True)
    nest = op.lower(*[("f32", (40, 200))] * 3).nest
    kinds = [loop.kind for loop in loops(nest.body)]
    assert (kinds[0], kinds.count("serial")) == ("serial", 2)
    rng = np.random.default_rng(0)
    for h, w in ((9, 40), (1, 1), (2, 2), (3, 3), (4, 18), (0, 5), (5, 0)):
        x, u, v = (rng.standard_normal((h, w)).astype(np.float32) for _ in range(3))
        px, pu, pv = (np.pad(a, 2) for a in (x, u, v))
        wanted = px[1 : h + 1, 1 : w + 1] + 2 * pu[2 : h + 2, 1 : w + 1] - pv[3 : h + 3, 4 : w + 4]
        np.testing.assert_allclose(op(x, u, v), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("border", BORDERS)
def test_sizes_beside_the_borders(border: str) -> None:
    for h, w in ((1, 1), (2, 63), (2, 64), (3, 65), (5, 131)):
        check(SOBEL.format(border), {"H": h, "W": w})


def test_rows_are_chosen_outside_where_nothing_else_moves() -> None:
    text = "def f(float(H,W) X) -> (Y) { Y(y,x) = pad(X(y-1,x), clamp) - pad(X(y+1,x), 0.0) where y in 0:H, x in 0:W }"
    inside, whole = loops(check(text, {"H": 9, "W": 100}).nest.body)
    assert (inside.upper.value, whole.upper.value) == (100, 100)


def test_short_rows_and_tests_of_data_stay() -> None:
    short = lower(SOBEL.format("clamp"), {"H": 40, "W": 63}).nest
    assert len(loops(short.body)) == 1
    data = "def f(float(H,W) X) -> (Y) { Y(y,x) = 1.0 + (X(y,x) > 0.0 ? X(y,x) : X(y,x+1)) }"
    assert len(loops(check(data, {"H": 4, "W": 100}).nest.body)) == 1


STRIDED = """def f(float(H,W) X, float(H,W) U) -> (Y) {
  Y(y,x) = pad(X(y-1,2*x-1), 0.0) - pad(U(y+1,2*x+2), 0.0) where y in 0:H, x in 0:W/2 }"""


def test_short_rows_of_lanes_that_lie_apart_are_not_read_one_by_one() -> None:
    for width, target, kinds in (
        (56, X86_64_V3, ["serial", "vector", "serial", "vector"]),
        (20, X86_64_V3, ["serial", "vector", "serial", "vector"]),  # one vector inside
        (18, X86_64_V3, ["vector"]),
        (12, X86_64_V2, ["serial", "vector", "serial", "vector"]),
        (56, X86_64_V4, ["vector"]),  # masks
    ):
        nest = check(STRIDED, {"H": 5, "W": width}, target).nest
        assert [loop.kind for loop in loops(nest.body)] == kinds
    near = lower(SOBEL.format("0.0"), {"H": 40, "W": 56}, target=X86_64_V3).nest
    assert len(loops(near.body)) == 1
    op = polyc.compile(STRIDED)
    for h, w in ((5, 56), (3, 20), (1, 24), (4, 64), (2, 2)):
        x, u = (np.arange(h * w, dtype=np.float32).reshape(h, w) + n for n in (1, 1000))
        px, pu = (np.pad(a, ((1, 1), (1, 2))) for a in (x, u))
        np.testing.assert_array_equal(op(x, u), px[:h, 0:w:2] - pu[2:, 3 : w + 3 : 2])


def test_a_test_that_moves_with_the_rows() -> None:
    # The interior of each row ends somewhere else, and is empty in some.
    text = "def f(float(N,N) X) -> (Y) { Y(i,j) = 2.0 * (j < i - 70 ? X(i,j) : 0.5) + (j + i > 150 ? X(i,j) : 1.5) }"
    for n in (64, 80, 200):
        check(text, {"N": n})


def test_tests_that_hold_nowhere() -> None:
    text = "def f(float(N) X, float(M) Z) -> (Y) { Y(i) = Z(i) + pad(X(i+90), 2.0) + pad(X(i-90), clamp) }"
    for n, m in ((1, 70), (30, 100), (200, 400)):
        check(text, {"N": n, "M": m})
    assert read(text)


@pytest.mark.parametrize("border", BORDERS[1:])
@pytest.mark.parametrize("padding", [1, 3])
def test_a_copy_with_a_border_reads_rows(border: str, padding: int) -> None:
    text = (
        f"def f(float(H,W) X) -> (Y) {{ Y(y,x) = pad(X(y-{padding},x-{padding}), {border}) "
        f"where y in 0:H+{2 * padding}, x in 0:W+{2 * padding} }}"
    )
    lines = lower(text, {"H": 20, "W": 40}).as_text("loops").splitlines()
    plain = [x for x in lines if "// S0" in x and "?" not in x]
    # The interior and the rows beside it, which mirrored rows stand in for.
    assert len(plain) == 2 and all(f"c1 - {padding}]" in x for x in plain)
    for h, w in ((1, 1), (4, 14), (4, 15), (4, 16), (7, 33), (3, 100), (2, 2)):
        check(text, {"H": h, "W": w})


def test_other_stand_ins_are_not_taken_for_borders() -> None:
    text = "def f(float(H,W) X) -> (Y) { Y(y,x) = y > 1 && x > 1 ? X(y,x) : X(H-1-y,W-1-x) where y in 0:H, x in 0:W }"
    for h, w in ((5, 40), (3, 17)):
        check(text, {"H": h, "W": w})
