"""Merging indices: only where every access walks both together over contiguous memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.ir.expr import Call, Const, Index, Read, int_const
from polyc.ir.program import Program, Reduction
from polyc.ir.verify import verify_program
from polyc.poly.ranges import Ranges
from polyc.scheduler.rewriting.merge_indices import merge_indices
from polyc.scheduler.rewriting.reindexing import Groups
from tests.scheduler.support import check, check_nest, contiguous, infer, lower, read, statements


def merge(
    text: str | Program, strides: dict[str, tuple[int, ...]] | None = None, **sizes: int
) -> tuple[Program, Ranges, Groups]:
    """Merge with contiguous arguments, but for those of `strides`; the result is well-formed."""
    source = read(text) if isinstance(text, str) else text
    program, ranges = infer(source, **sizes)
    names = (*program.parameters, *(r.version for r in program.returns))
    known = dict(zip(names, contiguous(source, sizes), strict=True))
    known |= {r.initial: known[r.version] for r in program.returns if r.initial is not None}
    new, new_ranges, groups, _ = merge_indices(program, ranges, known | (strides or {}))
    verify_program(new)
    assert all(new.tensor(n).rank == len(i) for n, i in new_ranges.tensors.items())
    return new, new_ranges, groups


def merged(text: str, **sizes: int) -> list[str]:
    """Statements after merging with contiguous arguments."""
    return statements(merge(text, **sizes)[0])


SCALE = "def f(float(N,C,H,W) X, float(C) g) -> (O) { O(n,c,h,w) = X(n,c,h,w) * g(c) }"
FOUR = {"N": 2, "C": 3, "H": 5, "W": 7}


def test_before_and_after():
    new, ranges, groups = merge(SCALE, **FOUR)
    assert statements(new) == ["S0(n, c, h.w): O[n, c, h.w] = X[n, c, h.w] * g[c]"]
    assert groups == {"X": ((0,), (1,), (2, 3)), "O": ((0,), (1,), (2, 3))}
    assert ranges.statements["S0"].indices["h.w"].extent == Const(35)
    check(SCALE, FOUR)


def test_all_indices_of_a_pass_over_everything():
    assert merged("def f(float(A,B,C) X) -> (O) { O(i,j,k) = X(i,j,k) + 1.0 }", A=2, B=3, C=4) == [
        "S0(i.j.k): O[i.j.k] = X[i.j.k] + 1.0"
    ]


def test_indices_of_what_chooses_an_element_of_a_table_merge():
    text = "def f(uint8(H,W,3) X, uint8(256) T) -> (Y) { Y(h,w,c) = T(int32(X(h,w,c))) }"
    assert merged(text, H=5, W=7) == ["S0(h.w.c): Y[h.w.c] = T[i64(i32(X[h.w.c]))]"]
    apart = "def f(uint8(H,W,3) X, uint8(256,3) T) -> (Y) { Y(h,w,c) = T(int32(X(h,w,c)),c) }"
    assert merged(apart, H=5, W=7) == ["S0(h.w, c): Y[h.w, c] = T[i64(i32(X[h.w, c])), c]"]
    check(text, {"H": 5, "W": 7})
    check(apart, {"H": 5, "W": 7})


def test_reduction_indices_merge_among_themselves():
    text = "def f(float(A,B,C) X) -> (O) { O(i) +=! X(i,j,k) }"
    assert merged(text, A=2, B=3, C=4) == ["S0(i, j.k): O[i] += X[i, j.k] init 0.0"]
    check(text, {"A": 2, "B": 3, "C": 4})


KEPT = {
    "an index as a value": "def f(float(A,B) X) -> (O) { O(i,j) = X(i,j) + i }",
    "an index in a condition": "def f(float(A,B) X) -> (O) { O(i,j) = i < j ? X(i,j) : 0.0 }",
    "another order": "def f(float(A,B) X) -> (O) { O(i,j) = X(j,i) }",
    "one alone": "def f(float(A,B) X, float(B) b) -> (O) { O(i,j) = X(i,j) * b(j) }",
    "a shift": "def f(float(A,B) X) -> (O) { O(i,j) = X(i,j+1) }",
    "padding": "def f(float(A,B) X) -> (O) { O(i,j) = pad(X(i,j), 0.0) where i in 0:A, j in 0:B }",
    "part of the range": "def f(float(A,B) X) -> (O) { O(i,j) = X(i,j) where i in 1:A }",
    "a triangle": "def f(float(A,B) X) -> (O) { O(i) +=! X(i,j) where j <= i }",
    "a sum over a triangle": "def f(float(A,B) X) -> (s) { s +=! X(i,j) where j <= i }",
    "a result and a reduction": "def f(float(A,B) X) -> (O) { O(i) +=! X(i,j) }",
    "data": "def f(float(A,B) X, int32(A) I) -> (O) { O(i,j) = X(I(i),j) }",
    "another statement": "def f(float(A,B) X, float(B) b) -> (O, P) { O(i,j) = X(i,j)  P(i,j) = X(i,j) + O(i,j) * b(j) }",
    "another extent": "def f(float(A,B) X, float(A,C) Y) -> (O) { O(i,j) = X(i,j) + Y(i,j) where j in 0:3 }",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_apart(name):
    sizes = {"A": 4, "B": 5} | ({"C": 6} if "C" in read(KEPT[name]).sizes else {})
    assert merge(KEPT[name], **sizes)[2] == {}
    check(KEPT[name], sizes)


def test_symbolic_sizes_stay_apart():
    program, ranges = infer(read(SCALE))
    assert merge_indices(program, ranges, {})[2] == {}


def test_memory_must_be_contiguous_across_the_dimensions():
    text = "def f(float(A,B) X) -> (O) { O(i,j) = X(i,j) }"
    assert merge(text, A=4, B=5)[2]
    assert not merge(text, {"X": (24, 4)}, A=4, B=5)[2]  # rows of six
    assert not merge(text, {"O": (4, 16)}, A=4, B=5)[2]  # in the order of columns
    assert merge(text, {"X": (-20, -4)}, A=4, B=5)[2]  # all of it backwards


def test_accumulated_results_merge_with_what_they_hold():
    text = "def f(float(A,B,C) X) -> (O) { O(i,j) += X(i,j,k) }"
    new, _, groups = merge(text, A=4, B=5, C=6)
    assert statements(new) == ["S0(i.j, k): O[i.j] += X[i.j, k] init O.in[i.j]"]
    assert set(groups) == {"X", "O", "O.in"}
    check(text, {"A": 4, "B": 5, "C": 6})


def test_versions_of_one_array_are_merged_in_the_same_way():
    text = "def f(float(A,B) X, float(B) b) -> (O) { O(i,j) += X(i,j) * 2.0  O(i,j) += b(j) }"
    assert merge(text, A=4, B=5)[2] == {}
    check(text, {"A": 4, "B": 5})


def test_where_clauses_that_say_nothing_new_do_not_name_indices_that_are_gone():
    text = "def f(float(A,B) X) -> (O) { O(i,j) = X(i,j) * 2.0 where i in 0:A }"
    assert merged(text, A=4, B=5) == ["S0(i.j): O[i.j] = X[i.j] * 2.0"]
    check(text, {"A": 4, "B": 5})


def test_coordinates_in_initial_values_follow_their_dimension():
    # O[i, j, 2k] += X[i, j, k]: the element's third coordinate is its second one when i and j are one.
    program = read("def f(float(A,B,C) X) -> (O) { O(i,j,k) += X(i,j,k) }")
    (s,) = program.statements
    doubled = (Index("i"), Index("j"), Call("mul", (Index("k"), int_const(2))))
    init = Read("O.in", (Index("i"), Index("j"), Index("O.d2")))
    scattered = replace(program, statements=(replace(s, subscripts=doubled, reduction=Reduction("add", init)),))
    sizes = {"A": 2, "B": 3, "C": 4}
    _, ranges = infer(program, **sizes)
    wide = (*ranges.tensors["X"][:2], replace(ranges.tensors["X"][2], extent=int_const(8)))
    ranges = replace(ranges, tensors=ranges.tensors | {"O": wide, "O.in": wide})
    strides = {"X": (48, 16, 4), "O": (96, 32, 4), "O.in": (96, 32, 4)}
    new, _, groups, _ = merge_indices(scattered, ranges, strides)
    assert groups["O"] == groups["O.in"] == ((0, 1), (2,))
    assert new.statements[0].reduction == Reduction("add", Read("O.in", (Index("i.j"), Index("O.d1"))))


@pytest.mark.parametrize(
    "sizes", [{"N": 0, "C": 3, "H": 5, "W": 7}, {"N": 2, "C": 3, "H": 0, "W": 7}, {"N": 1, "C": 1, "H": 1, "W": 1}]
)
def test_empty_and_short_ranges(sizes):
    check(SCALE, sizes)


def test_aliases_of_merged_arrays():
    text = "def f(float(A,B) X, float(A) g) -> (O) { S(i) +=! X(i,j)  O(i,j) = X(i,j) * 2.0 }"
    sizes = {"A": 6, "B": 9}
    lowered = lower(text, sizes, aliases=(("O", "X"),))
    assert lowered.alias_is_safe("O", "X")
    check_nest(lowered, sizes, (("O", "X"),))


@pytest.mark.parametrize("is_square", [True, False])
def test_an_alias_of_an_array_that_is_merged_otherwise_is_refused(is_square):
    # O is one long row, X is not: the proof compares elements by name, so it has to refuse.
    text = "def f(float(A,B) X, float(A,B) W) -> (S, O) { S(j) +=! X(i,j)  O(i,j) = W(i,j) * 2.0 }"
    sizes = {"A": 6, "B": 6 if is_square else 9}
    lowered = lower(text, sizes)
    assert lowered.scop.tensors["O"].shape != lowered.scop.tensors["X"].shape
    assert not lowered.alias_is_safe("O", "X")


def test_results_are_the_same_for_other_strides():
    import polyc

    op = polyc.compile(SCALE)
    x = np.arange(2 * 3 * 5 * 8, dtype=np.float32).reshape(2, 3, 5, 8)
    g = np.arange(3, dtype=np.float32)
    for view in (x, x[..., 1:], x[::-1], x[:, :, ::2], np.asfortranarray(x)):
        np.testing.assert_array_equal(op(view, g), view * g[None, :, None, None])


PIXELS = {
    "a shift": ("def f(float(H,W,C) X) -> (O) { O(y,x,c) = X(y,x,c) - X(y,x+2,c) }", "y, x.c", "x.c + 6"),
    "a part": ("def f(float(H,W,C) X) -> (O) { O(y,x,c) = X(y,x+1,c) where x in 0:W-3 }", "y, x.c", "x.c + 3"),
    "rows as well": ("def f(float(H,W,C) X) -> (O) { O(y,x,c) = X(y+1,x,c) where y in 0:H-1 }", "y, x.c", "y + 1, x.c"),
    "a sum": ("def f(float(H,W,C) X) -> (O) { O(y) +=! X(y,x+1,c) * X(y,x,c) where x in 0:W-1 }", "y, x.c", "x.c + 3"),
    "a result that starts late": (
        "def f(float(H,W,C) X) -> (O) { O(y,x,c) = X(y,x-1,c) + X(y,x,c) where x in 1:W  O(y,0,c) = X(y,0,c) }",
        "y, x, c",
        "x - 1, c",
    ),
    "another order of indices": (
        "def f(float(H,W,C) X) -> (O) { O(y) +=! X(y,0,c) * X(y,x+1,c) where c in 0:C, x in 0:W-1 }",
        "y, c, x",
        "x + 1, c",
    ),
}


@pytest.mark.parametrize("name", PIXELS)
def test_channels_of_pixels_run_along_shifted_rows(name):
    text, indices, subscripts = PIXELS[name]
    first = merged(text, H=4, W=40, C=3)[0]
    assert f"({indices})" in first and subscripts in first
    for sizes in ({"H": 4, "W": 7, "C": 3}, {"H": 2, "W": 23, "C": 4}, {"H": 3, "W": 4, "C": 1}, {"H": 9, "W": 4, "C": 32}):
        check(text, sizes)


def test_long_rows_are_not_shifted():
    text = "def f(float(H,W) X) -> (O) { O(y,x) = X(y,x) + X(y+1,x) }"
    assert merged(text, H=5, W=40) == ["S0(y, x): O[y, x] = X[y, x] + X[y + 1, x]"]
    assert merged(text, H=5, W=8) == ["S0(y.x): O[y.x] = X[y.x] + X[y.x + 8]"]


def test_dimensions_of_one_element_hide_no_memory_order():
    """1 x 2048 x 1 x 1 was read one element at a time: 3 ms instead of 0.07."""
    text = "def f(float(M,K,1,1) X, float(N,K) W) -> (Y) { Y(m,n) +=! X(m,k,0,0) * W(n,k) }"
    lowered = check(text, {"M": 3, "K": 40, "N": 5})
    (access,) = [a for a in lowered.scop.statement("S0").accesses if a.read is not None and a.read.tensor == "X"]
    assert access.read.subscripts == (Index("m"), Index("k"))


@pytest.mark.each
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("def f(float(N,C,H,W) X, float(K,C) F) -> (O) { O(n,k,h,w) +=! X(n,c,h,w) * F(k,c) }", {"C": 9, "K": 5}),
        ("def f(float(N,C,H,W) X) -> (O) { O(n,c,h,w) = X(n,c,h,w) * 2.0 + h }", {"C": 9}),
        ("def f(float(N,C,H,W) X) -> (O) { T(n,c,h,w) = X(n,c,h,w) * 2.0  O(n,c) +=! T(n,c,h,w) }", {"C": 9, "W": 4}),
        ("def f(float(N,H,W) X) -> (O) { O(n,h,w) = pad(X(n,h-1,w+1), 1.0) where h in 0:3, w in 0:2 }", {"W": 3}),
        ("def f(float(N,C) X) -> (O) { O(n,c) max=! X(n,c) }", {}),
        (
            "def f(float(T,N,J) X) -> (H) { H(0,n,j) = X(0,n,j)  H(t,n,j) = H(t-1,n,j) + X(t,n,j) where t in 1:T }",
            {"T": 6, "J": 5},
        ),
        ("def f(float(A,N,B) X) -> (O) { O(a,n,b) = X(b,n,a) where a in 0:4, b in 0:4 }", {"A": 4, "B": 4}),
    ],
)
@pytest.mark.parametrize("is_fixed", [True, False])
def test_dimensions_of_one_element_anywhere(text, sizes, is_fixed):
    sizes = dict.fromkeys(read(text).sizes, 1) | sizes
    check_nest(lower(text, sizes, is_fixed), sizes)


LINEAR = "def f(float(B,S,K) X, float(N,K) W) -> (Y) { Y(b,s,n) +=! X(b,s,k) * W(n,k) }"


def merge_open(text: str, strides: dict[str, tuple[int | None, ...]], **sizes: int) -> tuple[list[str], Groups]:
    """Merge with the other sizes symbolic; `strides` as a kernel for any of their values knows them."""
    program, ranges = infer(read(text), **sizes)
    new, _, groups, _ = merge_indices(program, ranges, strides)
    verify_program(new)
    return statements(new), groups


def test_a_batch_of_one_leaves_triangles_alone():
    text = """def f(float(B,H,N) X) -> (Y) {
      P(b,h,i) +=! X(b,h,j) where j <= i, i in 0:N
      Y(b,h,i) = P(b,h,i) * 2.0
    }"""
    lowered = check(text, {"B": 1, "H": 3, "N": 9})
    assert [s.indices for s in lowered.scop.statements] == [("h", "i", "j"), ("h", "i")]


def test_a_symbolic_batch_merges_with_the_constant_rows_behind_it():
    known = {"X": (1280, 128, 4), "W": (128, 4), "Y": (1920, 192, 4)}
    text, groups = merge_open(LINEAR, known, S=10, K=32, N=48)
    assert text == ["S0(b.s, n, k): Y[b.s, n] += X[b.s, k] * W[n, k] init 0.0"]
    assert groups["X"] == ((0, 1), (2,))


def test_symbolic_rows_stay_apart_from_the_batch_in_front_of_them():
    known = {"X": (None, 128, 4), "W": (128, 4), "Y": (None, 192, 4)}
    assert merge_open(LINEAR, known, B=4, K=32, N=48)[1] == {}


def test_rows_with_space_between_batches_stay_apart():
    known = {"X": (1408, 128, 4), "W": (128, 4), "Y": (1920, 192, 4)}
    assert merge_open(LINEAR, known, S=10, K=32, N=48)[1] == {}


def test_one_kernel_for_any_batch_over_merged_rows():
    linear = polyc.compile(LINEAR, dynamic="B")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((48, 32)).astype(np.float32)
    for batch in (1, 0, 2, 5, 16):
        x = rng.standard_normal((batch, 10, 32)).astype(np.float32)
        for own in (x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], np.ascontiguousarray(x[::-1])[::-1]):
            np.testing.assert_allclose(linear(own, w), x @ w.T, rtol=1e-4, atol=1e-4)
    assert any("b.s run as one" in r.message for r in linear.remarks)
