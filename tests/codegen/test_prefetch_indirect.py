"""Prefetches of rows that data names: they mean nothing, read nothing outside, and stand where rows are far away."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.prefetch_accesses import prefetch_accesses
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Guard, If, Loop, Prefetch
from polyc.ir.text import format_expr
from polyc.ir.verify_loops import verify_loops

from .support import LEVELS, target
from .test_shuffles import Fenced

BAG = "def f(float(N,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l), d) }"
TWO = "def f(float(N,D) T, int32(B,L) I, float(N,D) U, int32(B,L) J) -> (O) { O(b,d) +=! T(I(b,l), d) * U(J(b,l), d) }"
ROWS = "def f(float(N,D) T, int32(B) I) -> (O) { O(i,d) = T(I(i), d) }"
BACKWARDS = "def f(float(N,D) T, int32(B) I) -> (O) { O(i,d) = T(I(B - 1 - i), d) where i in 0:B }"
PAIRS = "def f(float(N,M,D) T, int32(B,L) I, int32(B,L) J) -> (O) { O(b,d) max=! T(I(b,l), J(b,l), d) }"


def prefetches(body):
    for node in body:
        match node:
            case Prefetch():
                yield node
            case If():
                yield from prefetches(node.body + node.orelse)
            case Loop():
                yield from prefetches(node.body)


def inputs(text, b, length, n, d):
    rng = np.random.default_rng([b, length, n, d])
    index = lambda high, *shape: rng.integers(0, high, shape).astype(np.int32)  # noqa: E731
    table = rng.standard_normal((n, d)).astype(np.float32)
    if text is TWO:
        return [table, index(n, b, length), table + 1, index(n, b, length)]
    if text is PAIRS:
        return [rng.standard_normal((n, 3, d)).astype(np.float32), index(n, b, length), index(3, b, length)]
    return [table, index(n, b, length) if text is BAG else index(n, b)]


def expected(text, arrays):
    table, index, *rest = arrays
    match text:
        case _ if text is BAG:
            return table[index].sum(1)
        case _ if text is TWO:
            return (table[index] * rest[0][rest[1]]).sum(1)
        case _ if text is PAIRS:
            return table[index, rest[0]].max(1)
    return table[index if text is ROWS else index[::-1]]


@pytest.mark.each
@pytest.mark.parametrize("text", [BAG, TWO, ROWS, BACKWARDS, PAIRS])
@pytest.mark.parametrize("dynamic", [False, True])
def test_row_numbers_are_read_inside_their_array(text, dynamic):
    """The interpreter checks every subscript; the compiled code runs with the numbers between pages that nobody may touch."""
    fence = Fenced(), Fenced()
    op = polyc.compile(text, dynamic=dynamic)
    for b, length, n, d in ((1, 1, 1, 1), (3, 2, 9, 64), (2, 23, 7, 100), (5, 16, 40, 33), (2, 131, 11, 20)):
        arrays = inputs(text, b, length, n, d)
        lowered = op.lower(*arrays)
        tiny = replace(lowered.target, l2=1)
        nest = prefetch_accesses(lowered.nest, tiny) if not list(prefetches(lowered.nest.body)) else lowered.nest
        assert list(prefetches(nest.body)) or d < 64
        verify_loops(nest)
        out = np.full((b, d), np.nan, np.float32)
        strides = [s for a in (*arrays, out) for s in a.strides]
        sizes = nest.parameters[: len(nest.parameters) - len(strides)]
        values = dict(
            zip(nest.parameters, [{"B": b, "L": length, "N": n, "D": d, "M": 3}[s] for s in sizes] + strides, strict=True)
        )
        assert interpret_loops(nest, [*arrays, out], values) == []
        np.testing.assert_allclose(out, expected(text, arrays), rtol=1e-4, atol=1e-4)
        for at_end in (False, True):
            near = [f.place(a, at_end) for f, a in zip(fence, (a for a in arrays if a.dtype == np.int32), strict=False)]
            call = [a if a.dtype != np.int32 else near.pop(0) for a in arrays]
            np.testing.assert_allclose(op(*call), expected(text, arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_large_tables_are_asked_for(level):
    index = np.zeros((128, 50), np.int32)
    for n, wanted in ((100, False), (4 * target(level).l2 // 256, True)):
        lowered = polyc.compile(BAG, target=level).lower(np.zeros((n, 64), np.float32), index)
        assert (lowered.as_text("ll").count("call void @llvm.prefetch") > 0) == wanted


def test_only_inputs_are_read_ahead():
    """Numbers of rows that the operator computes itself need not be there yet."""
    text = "def f(float(N,D) T, int32(B) I) -> (O, J) { J(i) = I(i) % 7  O(i,d) = T(J(i), d) }"
    lowered = polyc.compile(text, dynamic=True).lower(np.zeros((9, 64), np.float32), np.zeros(40, np.int32))
    assert all("J[" not in str(node) for node in prefetches(lowered.nest.body))
    table, index = np.random.default_rng(0).standard_normal((9, 64)).astype(np.float32), np.arange(40, dtype=np.int32)
    np.testing.assert_array_equal(polyc.compile(text, dynamic=True)(table, index)[0], table[index % 7])


def test_wrong_row_numbers_are_reported_where_they_are_used():
    op = polyc.compile(BAG, dynamic=True)
    table, index = np.zeros((9, 64), np.float32), np.zeros((4, 50), np.int32)
    for value in (9, -1, np.iinfo(np.int32).max, np.iinfo(np.int32).min):
        index[3, 49] = value
        with pytest.raises(polyc.BoundsError, match=str(value)):
            op(table, index)


@pytest.mark.each
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", [16, 20, 33, 100, 300, 768])
def test_rows_are_summed_along_memory(level, d):
    """Whatever their length: no gathers, and the checks stand outside of the loop along a row."""
    text = polyc.compile(BAG, target=level).lower(np.zeros((9, d), np.float32), np.zeros((128, 50), np.int32))
    assert "gather" not in text.as_text("ll")

    def checked(body, inside):
        for node in body:
            match node:
                case Guard():
                    assert not inside
                case If():
                    checked(node.body + node.orelse, inside)
                case Loop():
                    checked(node.body, inside or node.kind == "vector")

    checked(text.nest.body, False)


@pytest.mark.parametrize("level", LEVELS)
def test_wrong_row_numbers_are_found_in_blocks_of_rows(level):
    """Long rows are added several at a time; each number is checked, also in the block that is not full."""
    op = polyc.compile(BAG, target=level)
    table = np.ones((9, 520), np.float32)
    for place in (0, 7, 8, 20, 21):
        index = np.zeros((3, 22), np.int32)
        assert np.all(op(table, index) == 22)
        index[1, place] = 9
        with pytest.raises(polyc.BoundsError, match="9"):
            op(table, index)


def lower_segments(text, *shapes, target="x86-64-v4"):
    """Three segments of two elements, in one thread: loops over so few are neither vectors nor unrolled."""
    ptr, index = np.array([0, 2, 4, 6], np.int32), np.zeros(6, np.int32)
    return polyc.compile(text, target=target).lower(index, ptr, *(np.zeros(s, np.float32) for s in shapes))


@pytest.mark.parametrize(("l3", "count"), [(32 << 20, 0), (1, 1)])
def test_single_elements_of_segments_are_requested_where_no_cache_has_them(l3, count):
    """Those of machines with strips are copied far ahead of their sums anyway."""
    text = (
        "def f(int32(Z) c, int32(P) ptr, float(Z) v, float(N) X) -> (Y) { Y(i) +=! v(p) * X(c(p)) where p in ptr(i):ptr(i+1) }"
    )
    lowered = lower_segments(text, 6, 50, target="x86-64-v3")
    assert not list(prefetches(lowered.nest.body))
    assert len(list(prefetches(prefetch_accesses(lowered.nest, replace(lowered.target, l2=1, l3=l3)).body))) == count


def test_rows_of_segments_are_requested_half_as_far_ahead():
    text = "def f(int32(Z) c, int32(P) ptr, float(N, D) X) -> (Y) { Y(i, d) +=! X(c(p), d) where p in ptr(i):ptr(i+1) }"
    lowered = lower_segments(text, (50, 64))
    (found,) = prefetches(prefetch_accesses(lowered.nest, replace(lowered.target, l1=32 << 10, l2=1)).body)
    assert found.size == 256 and "+ 16" in format_expr(found.subscripts[0])  # an eighth of 32 KiB


def test_numbers_of_rows_are_checked_in_blocks_where_rows_are_requested():
    """Requests stand before the checks: those of a row of five lines stand in the loop with checks, and in the one without."""
    text = "def f(int32(Z) c, int32(P) ptr, float(N, D) X) -> (Y) { Y(i, d) +=! X(c(p), d) where p in ptr(i):ptr(i+1) }"
    op, lengths = polyc.compile(text, target=LEVELS[-1]), [0, 1, 40, *[2] * 40, 0]
    table = np.arange(5000, dtype=np.float32)[:, None] + np.zeros((1, 64), np.float32)
    ptr = np.cumsum([0, *lengths], dtype=np.int32)
    c = np.arange(ptr[-1], dtype=np.int32) * 37 % 5000
    assert op.lower(c, ptr, table).as_text("ll").count("@llvm.prefetch.p0(ptr %") == 10
    np.testing.assert_array_equal(op(c, ptr, table)[:, 63], [c[i:j].sum() for i, j in pairwise(ptr)])
    for place, number in ((0, 5000), (60, -1), (-1, 1 << 30)):
        wrong = c.copy()
        wrong[place] = number
        with pytest.raises(polyc.BoundsError, match=str(number)):
            op(wrong, ptr, table)
