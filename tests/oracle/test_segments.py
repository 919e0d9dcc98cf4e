"""Ranges that data bounds: kernels against plain loops and the interpreter, and what is refused at the call and before."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError, PolycError
from polyc.ir.interpret import interpret
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops_reader import parse_loops
from polyc.ir.loops_text import format_loops
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from tests.oracle.programs import agree

Array = np.ndarray[Any, Any]

REDUCED = """def f({v}(Z) v, int32(Z) c, {p}(P) ptr, {v}(K, N) X) -> (Y, low, top, place, n) {{
  Y(i, n) +=! v(p) * X(c(p), n) where i in 0:P-1, p in ptr(i):ptr(i+1)
  low(i) min=! v(p) where p in ptr(i):ptr(i+1)
  (top(i), place(i)) argmax=! v(p) where p in ptr(i):ptr(i+1)
  n(i) +=! v(p) == v(p) ? 1 : 0 where p in ptr(i):ptr(i+1)
}}"""

SOFTMAX = """def f({v}(Z) v, {p}(P) ptr) -> (w) {{
  m(i) max=! v(p) where p in ptr(i):ptr(i+1)
  s(i) +=! exp(v(p) - m(i)) where p in ptr(i):ptr(i+1)
  w(p) = exp(v(p) - m(i)) / s(i) where p in ptr(i):ptr(i+1)
}}"""

RAGGED = """def f(int64(B) start, int16(B) length, float(T, D) X) -> (Y, every, float(B, 5) Z) {
  Y(b, d) +=! X(t, d) where t in start(b):start(b)+length(b)
  every(b) &&=! X(t, 0) > -1.0 where t in start(b):start(b)+length(b)
  Z(b, k) +=! X(start(b) + k, 0) where k in 0:min(length(b), 5)
}"""


@functools.cache
def operator(text: str) -> Any:
    return polyc.compile(text, dynamic=True)


def partitions(z: int, dtype: Any = np.int32) -> Iterator[Array]:
    """Where segments of `z` elements begin and end: none, one, one that has everything, and random ones with empty ones."""
    rng = np.random.default_rng(z)
    yield np.array([0, z], dtype)
    yield np.array([0, 0, 0, z, z], dtype)
    yield np.sort(np.concatenate([[0, z], rng.integers(0, z + 1, 9)])).astype(dtype)
    yield np.arange(z + 1, dtype=dtype)


def draw(dtype: Any, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-6, 7, shape).astype(dtype)


def segments(ptr: Array) -> list[slice]:
    return [slice(int(a), int(b)) for a, b in pairwise(ptr)]


@pytest.mark.parametrize(("value", "pointer"), [("float", "int32"), ("int32", "uint32"), ("double", "int64")])
def test_reductions_over_segments_are_those_of_loops(value: str, pointer: str) -> None:
    op = operator(REDUCED.format(v=value, p=pointer))
    dtype = {"float": np.float32, "double": np.float64}.get(value, np.int32)
    for z in (0, 1, 40):
        for ptr in partitions(z, np.dtype(pointer)):
            v, c, x = draw(dtype, z), np.arange(z, dtype=np.int32) % 5, draw(dtype, 5, 3)
            y, low, top, place, n = op(v, c, ptr, x)
            parts = segments(ptr)
            expected = [np.sum(v[s, None] * x[c[s]], 0, dtype) for s in parts]
            np.testing.assert_array_equal(y, np.reshape(expected, (-1, 3)))
            np.testing.assert_array_equal(n, [s.stop - s.start for s in parts])
            for k, s in enumerate(parts):
                if s.stop > s.start:
                    assert (low[k], top[k], place[k]) == (v[s].min(), v[s].max(), s.start + v[s].argmax())
                else:
                    assert place[k] == np.iinfo(np.int64).max


def test_elements_of_segments_are_those_of_loops() -> None:
    for value, pointer in (("double", "int32"), ("float16", "int64")):
        op = operator(SOFTMAX.format(v=value, p=pointer))
        for ptr in partitions(40, np.dtype(pointer)):
            v = draw(op.program.types["v"].numpy, 40)
            expected = np.zeros(40)
            for s in segments(ptr):
                e = np.exp(v[s].astype(np.float64) - v[s].max(initial=-9))
                expected[s] = e / e.sum() if e.size else 0
            np.testing.assert_allclose(op(v, ptr).astype(np.float64), expected, rtol=2e-3 if value == "float16" else 1e-12)


def test_assigned_elements_keep_nan_and_the_sign_of_zero() -> None:
    op = operator(
        "def f(float(Z) v, int32(P) ptr, float(Q) x) -> (w) { w(p) = v(p) * x(i) where i in 0:Q, p in ptr(i):ptr(i+1) }"
    )
    w = op(np.array([-0.0, np.nan, -np.inf, 3], np.float32), np.array([0, 2, 2, 4], np.int32), np.ones(3, np.float32))
    assert np.signbit(w[0])
    assert np.isnan(w[1])
    assert w[2:].tolist() == [-np.inf, 3]


def test_the_only_element_of_very_many_segments_is_written() -> None:
    op = polyc.compile("""def f(float(Z, N) v, int32(P) ptr, float(P) x) -> (w) {
      w(p, d) = v(p, d) * x(i) where p in ptr(i):ptr(i+1) }""")
    ptr = np.arange(150_001) > 77
    w = op(np.ones((1, 3), np.float32), ptr.astype(np.int32), np.arange(ptr.size, dtype=np.float32))
    np.testing.assert_array_equal(w, [[77, 77, 77]])  # not what the parts without it held


KINDS = {
    "complex": """def f(complex64(8) v, int32(4) ptr, complex64(3) x) -> (w) {
      w(p) = v(p) * x(i) where i in 0:3, p in ptr(i):ptr(i+1) }""",
    "sums_of_complex": "def f(complex64(8) v, int32(4) ptr) -> (w) { w(i) +=! v(p) where p in ptr(i):ptr(i+1) }",
    "bool": "def f(float(8) v, int32(4) ptr, float(3) x) -> (w) { w(p) = v(p) > x(i) where i in 0:3, p in ptr(i):ptr(i+1) }",
    "monoid": """monoid rotate(float a, float b, float x, float y) -> (p = 1.0, q = 0.0) { p = a * x - b * y q = a * y + b * x }
      def f(float(8) v, int32(4) ptr) -> (re, im) {
        (re(i), im(i)) rotate=! (cos(v(p)), sin(v(p))) where p in ptr(i):ptr(i+1) }""",
    "call": """def g(float(Z) v, int32(P) ptr) -> (y) { y(i) +=! v(p) where p in ptr(i):ptr(i+1) }
      def f(float(8) v, int32(4) ptr) -> (z) { s = g(v, ptr)  z(k) = s(k) * 2 }""",
    "onto": "def f(float(8) v, int32(4) ptr, float(3) x) -> (y) { y(i) = x(i)  y(i) += v(p) where p in ptr(i):ptr(i+1) }",
    "onto_a_part": "def f(float(8) v, int8(3) n, float(3, 5) b) -> (y) { y(i, k) = b(i, k) y(i, k) += v(k) where k in 0:n(i) }",
    "scatter": """def f(float(8) v, int32(8) n, int32(4) ptr) -> (float(3, 5) y) {
      y(i, n(p)) +=! v(p) where p in ptr(i):ptr(i+1) }""",
    "recurrence": """def f(float(8) v, int32(4) ptr) -> (y) {
      s(i) +=! v(p) where p in ptr(i):ptr(i+1)
      y(0) = s(0)  y(i) = y(i-1) + s(i) where i in 1:3 }""",
    "steps": """def f(float(8) v, int32(4) ptr, float(3) x) -> (y) {
      X(0, p) = v(p)
      m(t, i) +=! X(t-1, p) * x(i) where t in 1:4, p in ptr(i):ptr(i+1)
      w(t, p) = X(t-1, p) * 0.5 + m(t, i) where t in 1:4, p in ptr(i):ptr(i+1)
      X(t, p) = w(t, p) where t in 1:4
      y(p) = X(3, p) }""",
    "blocks": """def f(float(8) v, int32(4) ptr) -> (y) {
      y(p, q) +=! v(p) * v(q) where p in ptr(i):ptr(i+1), q in ptr(i):ptr(i+1) }""",
    "positions_in_blocks": """def f(float(8) v, int32(4) ptr) -> (best, place) {
      (best(p), place(p)) argmax=! v(p) * v(q) where p in ptr(i):ptr(i+1), q in ptr(i):ptr(i+1) }""",
    "all_segments": """def f(float(8) v, int32(4) ptr) -> (y, w) {
      y +=! v(p) where p in 0:ptr(i)
      w(p) = v(p) where p in ptr(i):ptr(i+1) }""",
    "scalar": "def f(float(8) v, int8(1) n) -> (y) { y +=! v(p) where p in n(0):8 }",
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_statements(kind: str) -> None:
    op = polyc.compile(KINDS[kind], "f")
    inputs = {
        "v": draw(np.float32, 8),
        "ptr": np.array([0, 3, 3, 8], np.int32),
        "x": draw(np.float32, 3),
        "b": draw(np.float32, 3, 5),
    }
    inputs["n"] = np.arange(op.program.tensor("n").shape[0].value) % 4 if "n" in op.program.parameters else np.zeros(0)
    arrays = [inputs[name].astype(op.program.types[name].numpy) for name in op.program.parameters]
    agree(op, arrays, {})


def test_bound_pointers_are_checked_as_well() -> None:
    op, v = (
        polyc.compile("def f(float(Z) v, int32(P) ptr) -> (y) { y(i) +=! v(p) where p in ptr(i):ptr(i+1) }"),
        np.ones(8, np.float32),
    )
    assert op.bind(ptr=np.array([0, 3, 3, 8], np.int32))(v).tolist() == [3, 0, 5]
    with pytest.raises(ArgumentError, match="argument-segments"):
        op.bind(ptr=np.array([0, 3, 2, 8], np.int32))(v)


def test_the_checks_are_the_first_of_the_loops() -> None:
    op = operator(SOFTMAX.format(v="float", p="int32"))
    nest = op.lower().nest
    text = format_loops(nest)
    assert text.count("check") == 5  # once for three statements, and both ends
    assert format_loops(parse_loops(text)) == text
    w = np.full(8, 7, np.float32)
    for ptr, failures in (([0, 5, 3, 8], [(0, 3, 1)]), ([1, 5, 5, 7], [(2, 1, 0), (4, 7, 0)]), ([0, 5, 5, 8], [])):
        assert interpret_loops(nest, [np.ones(8, np.float32), np.array(ptr, np.int32), w], {"Z": 8, "P": 4}) == failures
        assert (w == 7).all() == bool(failures)


def test_ranges_that_are_no_segments() -> None:
    op = operator(RAGGED)
    x = draw(np.float32, 12, 3)
    start, length = np.array([0, 3, 12, 7, 0], np.int64), np.array([4, 0, 0, 5, -2], np.int16)
    y, every, z = op(start, length, x)
    parts = [slice(a, max(a, a + n)) for a, n in zip(start.tolist(), length.tolist(), strict=True)]
    np.testing.assert_allclose(y, [x[s].sum(0) for s in parts])
    np.testing.assert_array_equal(every, [(x[s, 0] > -1).all() for s in parts])
    np.testing.assert_allclose(z, [np.pad(x[s, 0][:5], (0, 5 - len(x[s][:5]))) for s in parts])


def test_segments_of_segments() -> None:
    op = operator("""def f(float(Z) v, int32(P) ptr, int32(Q) outer, float(R) x) -> (y, w) {
      y(g) +=! v(p) * x(g) where g in 0:R, i in outer(g):outer(g+1), p in ptr(i):ptr(i+1)
      w(p) = v(p) + x(g) where g in 0:R, i in outer(g):outer(g+1), p in ptr(i):ptr(i+1)
    }""")
    v, x = draw(np.float32, 20), draw(np.float32, 3)
    ptr, outer = np.array([0, 4, 4, 11, 20], np.int32), np.array([0, 0, 3, 4], np.int32)
    y, w = op(v, ptr, outer, x)
    parts = [slice(int(ptr[s.start]), int(ptr[s.stop])) for s in segments(outer)]
    np.testing.assert_allclose(y, [(v[s] * x[g]).sum() for g, s in enumerate(parts)])
    np.testing.assert_allclose(w, np.concatenate([v[s] + x[g] for g, s in enumerate(parts)]))


def test_other_points_are_neither_read_nor_checked() -> None:
    op = operator(
        "def f(float(N) x, int32(Z) c, int32(B) first, int32(B) end) -> (y) { y(b) +=! x(c(p)) where p in first(b):end(b) }"
    )
    x, c = np.ones(3, np.float32), np.array([99, 0, 2, -7], np.int32)
    assert op(x, c, np.array([1], np.int32), np.array([3], np.int32)).tolist() == [2]
    with pytest.raises(PolycError, match="99"):
        op(x, c, np.array([0], np.int32), np.array([3], np.int32))


BAD = {
    "ptr decreases: ptr(i+1) is 3, less than ptr(i) (at i = 1)": [0, 5, 3, 8],
    "ptr(i+1) is 9, beyond the end of the range 0:Z of p (at i = 2) (Z = 8)": [0, 5, 5, 9],
    "ptr(i) is -1, before the beginning of the range 0:Z of p (at i = 0) (Z = 8)": [-1, 5, 5, 8],
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_no_partition_is_named_and_nothing_is_written(message: str) -> None:
    op = operator("def f(float(Z) v, int32(P) ptr) -> (y) { y(i) +=! v(p) where p in ptr(i):ptr(i+1) }")
    v, ptr, out = np.ones(8, np.float32), np.array(BAD[message], np.int32), np.full(3, 7, np.float32)
    for _ in range(3):  # planned calls as well
        with pytest.raises(ArgumentError) as caught:
            op(v, ptr, out=out)
        assert caught.value.code == "argument-segments"
        assert message in str(caught.value)
        assert out.tolist() == [7, 7, 7]
    with pytest.raises(ArgumentError, match="argument-segments"):
        interpret(op.program, {"v": v, "ptr": ptr})
    assert op(v, np.array([0, 5, 5, 8], np.int32), out=out).tolist() == [5, 0, 3]


def test_the_place_of_a_bad_element_far_behind_is_named() -> None:
    op = operator("def f(float(Z) v, int64(B, P) ptr) -> (y) { y(b, i) +=! v(p) where p in ptr(b, i):ptr(b, i+1) }")
    ptr = np.tile(np.arange(71, dtype=np.int64), (5, 1))
    assert op(np.ones(70, np.float32), ptr).sum() == 350
    ptr[3, 66] = 1 << 40
    with pytest.raises(ArgumentError, match=r"decreases: .* is 67, less than .*at b = 3, i = 66"):
        op(np.ones(70, np.float32), ptr)


@pytest.mark.parametrize("ptr", [[1, 4, 8], [0, 4, 7], [0]])
def test_elements_without_a_segment_are_named(ptr: list[int]) -> None:
    op = operator(SOFTMAX.format(v="double", p="int32"))
    with pytest.raises(ArgumentError) as caught:
        op(np.ones(8), np.array(ptr, np.int32))
    assert caught.value.code == "argument-segments"
    with pytest.raises(ArgumentError, match="argument-segments"):
        interpret(op.program, {"v": np.ones(8), "ptr": np.array(ptr, np.int32)})
    with pytest.raises(PolycError):
        op(np.ones(8), np.zeros(0, np.int32))


@pytest.mark.parametrize(("start", "length", "what"), [(9, 4, "is 13, beyond"), (-1, 2, "is -1, before")])
def test_ranges_that_leave_what_is_there_are_named(start: int, length: int, what: str) -> None:
    x, b = np.ones((12, 3), np.float32), np.array([start], np.int64)
    with pytest.raises(ArgumentError) as caught:
        operator(RAGGED)(b, np.array([length], np.int16), x)
    assert caught.value.code == "argument-range"
    assert what in str(caught.value)
    assert operator(RAGGED)(b, np.array([0], np.int16), x)[0].tolist() == [[0, 0, 0]]  # an empty range is nowhere
    with pytest.raises(ArgumentError, match="argument-range"):
        interpret(operator(RAGGED).program, {"start": b, "length": np.array([length], np.int16), "X": x})


@pytest.mark.parametrize("number", [(1 << 63) - 1, -(1 << 63), (1 << 62) + 1])
def test_sums_in_bounds_that_64_bits_do_not_hold_are_no_empty_ranges(number: int) -> None:
    op = operator("""def f(float(Z) x, int64(B) n) -> (up, from, part, cut) {
      up(b) +=! x(k) where k in 0:n(b)+1
      from(b) +=! x(k) where k in n(b)+1:Z
      part(b) +=! x(k) where k in 2*n(b):3
      cut(b) +=! x(k) where b in 0:B, k in (b == 0 ? 0 : n(b-1)+1):4
    }""")
    x, n = np.ones(4, np.float32), np.array([1, 0, 3, 1], np.int64)
    assert [y.tolist() for y in op(x, n)] == [[2, 1, 4, 2], [2, 3, 0, 2], [1, 3, 0, 1], [4, 2, 3, 0]]
    n[1] = number
    outs = [np.full(4, 7, np.float32) for _ in range(4)]
    for call in (lambda: op(x, n, out=tuple(outs)), lambda: interpret(op.program, {"x": x, "n": n})):
        with pytest.raises(ArgumentError, match="argument-range"):
            call()
    assert np.all(np.array(outs) == 7)
    with pytest.raises(ArgumentError, match=rf"n\(b\) is {number}, too large for the bounds of k \(at b = 1\)"):
        op(x, n)
    plain = operator("def f(float(Z) x, int64(B) n) -> (y) { y(b) +=! x(k) where k in 0:min(n(b), Z) }")
    assert plain(x, n).tolist() == [1, 4 if number > 0 else 0, 3, 1]


@polyc.op
def up_to(x: "f32[Z]", n: "i64[B]"):
    with polyc.where(k <= n[b]):
        y[b] = sum(x[k])
    return y


def test_up_to_the_greatest_number_is_beyond_the_end() -> None:
    assert up_to(np.ones(4, np.float32), np.array([0, 3])).tolist() == [1, 4]
    with pytest.raises(ArgumentError, match="argument-range"):
        up_to(np.ones(4, np.float32), np.array([0, (1 << 63) - 1]))


REFUSED = [
    ("y(i) = v(p) where p in ptr(i):ptr(i+1)", "semantic-missing-reduction", "p"),
    ("y(i, k) = v(k) where k in 0:ptr(i)", "range-unwritten", "y(i, k)"),
    ("y(i, k) +=! 1.0 where k in 0:ptr(i)", "range-unsolved", "k"),
    ("y(i) +=! v(p) where p in ptr(c(i)):ptr(i+1)", "semantic-read-in-bound", "ptr(c(i))"),
    ("y(i) +=! v(p) where p in 0:pad(ptr(i), 0)", "semantic-read-in-bound", "pad"),
    ("y(i) +=! v(p) where p in v(i):ptr(i)", "type-not-integral", "v(i)"),
    ("y(i) +=! v(p) where p in ptr(p):ptr(i)", "semantic-own-bound", "p"),
    ("t(i) = ptr(i) + 1  y(i) +=! v(p) where p in t(i):t(i+1)", "unsupported-computed-bound", "t"),
    ("y(p) = v(p) + v(i) where p in ptr(i):ptr(i+1), p > 2", "range-unwritten", "y(p)"),
    ("y(p, q) = v(p) + v(q) where p in ptr(i):ptr(i+1), q in ptr(i):ptr(i+1)", "range-unwritten", "y(p, q)"),
    ("T(0) = v(0)  T(p) = v(p) where p in ptr(i):ptr(i+1)  y(p) = T(p)", "range-unwritten", "T(p)"),
    ("y(p) = v(p) + v(i) where p in ptr(i):ptr(i)+3", "semantic-missing-reduction", "i"),
    ("y(p) = v(p) where p in ptr(i):ptr(i)+3", "semantic-missing-reduction", "y(p)"),
    ("y(i) +=! v(p) where i in 0:P, i < P-1, p in ptr(i):ptr(i+1)", "range-out-of-bounds", "i+1"),
    ("y(i) +=! v(p) where i in 0:P, p in 0:ptr(i*i)", "semantic-read-in-bound", "ptr"),
]


@pytest.mark.parametrize("bounds", ["n(i):100", "n(i):Z+1", "-2:n(i)"])
def test_the_half_that_reads_nothing_is_not_cut_either(bounds: str) -> None:
    operator = polyc.compile(f"def f(float(Z) v, int32(B) n) -> (y) {{ y(i) +=! v(p) where p in {bounds} }}")
    with pytest.raises(ArgumentError, match="argument-range"):
        operator(np.ones(40, np.float32), np.array([3, 5], np.int32))


@pytest.mark.parametrize(("statement", "code", "marked"), REFUSED)
def test_refused_texts(statement: str, code: str, marked: str) -> None:
    with pytest.raises(PolycError) as caught:
        polyc.compile(f"def f(float(Z) v, int32(Z) c, int32(P) ptr) -> (y) {{ {statement} }}").lower()
    found = caught.value.diagnostics[0]
    assert found.code == code
    assert found.span is not None
    assert found.span.source.text[found.span.start : found.span.end].startswith(marked)
    assert found.help


@polyc.op
def attend(v: "f32[Z]", ptr: "i64[P]"):
    with polyc.where(ptr[i] <= p < ptr[i + 1]):
        m[i] = max(v[p])
        e[p] = exp(v[p] - m[i])
        w[p] = e[p]
    with polyc.where(p in range(ptr[i], ptr[i + 1])):
        y[i] = 2 * sum(e[p])
    return w, y


@polyc.op
def rows(v: "f32[Z]", c: "i32[Z]", ptr: "i32[P]", x: "f32[N]"):
    y[i] = sum(v[p] * x[c[p]] for p in range(ptr[i], ptr[i + 1]))
    z[i] = max(v[p] for p in range(ptr[i], ptr[i + 1])) + sum(1 for k in range(ptr[i]) if k < 3)
    return y, z


def test_generator_expressions_over_segments() -> None:
    v, c, ptr, x = (
        draw(np.float32, 30),
        np.arange(30, dtype=np.int32) % 7,
        np.array([0, 10, 11, 30], np.int32),
        draw(np.float32, 7),
    )
    y, z = rows(v, c, ptr, x)
    np.testing.assert_allclose(y, [(v[s] * x[c[s]]).sum() for s in segments(ptr)])
    np.testing.assert_allclose(z, [v[s].max() + min(s.start, 3) for s in segments(ptr)])
    with pytest.raises(ArgumentError, match="argument-segments"):
        rows(v, c, ptr[::-1].copy(), x)


def test_the_python_notation_says_the_same() -> None:
    v, ptr = draw(np.float32, 30), np.array([0, 10, 10, 30], np.int64)
    w, y = attend(v, ptr)
    expected = np.concatenate([np.exp(v[s] - v[s].max(initial=-9)) for s in segments(ptr)])
    np.testing.assert_allclose(w, expected, rtol=1e-5)
    np.testing.assert_allclose(y, [2 * expected[s].sum() for s in segments(ptr)], rtol=1e-5)
    with pytest.raises(ArgumentError, match="argument-segments"):
        attend(v, ptr[::-1].copy())


def test_a_loop_over_segments_says_how_it_is_written() -> None:
    text = "def f(v: 'f32[Z]', ptr: 'i64[P]'):\n    for p in range(ptr[i], ptr[i + 1]):\n        y[i] += v[p]\n    return y"
    with pytest.raises(PolycError, match=r"with polyc.where\(ptr\[i\] <= p < ptr\[i \+ 1\]\)"):
        polyc.op(text)
    with pytest.raises(PolycError, match="semantic-range-open"):
        polyc.op("def f(v: 'f32[Z]', n: 'i64[P]'):\n    with polyc.where(n[i] <= p):\n        y[i] += v[p]\n    return y")


def test_the_text_of_a_program_reads_back() -> None:
    program = operator(RAGGED).program
    assert parse_program(format_program(program)) == program


def test_results_and_errors_are_the_same_at_any_number_of_threads() -> None:
    op = operator(REDUCED.format(v="float", p="int32"))
    rng = np.random.default_rng(0)
    v, c, x = (
        rng.standard_normal(300).astype(np.float32),
        np.zeros(300, np.int32),
        rng.standard_normal((1, 9)).astype(np.float32),
    )
    ptr = np.sort(rng.integers(0, 301, 65)).astype(np.int32)
    bad = np.concatenate([ptr[:30], ptr[29:28:-1] - 5, ptr[31:]]).astype(np.int32)
    found = []
    try:
        for n in (1, 2):
            polyc.set_num_threads(n)
            found.append(op(v, c, ptr, x))
            with pytest.raises(ArgumentError, match="decreases"):
                op(v, c, bad, x)
    finally:
        polyc.set_num_threads(None)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_checks_read_no_bound_that_is_not_there() -> None:
    """They ask the whole box of the indices, triangles aside."""
    operator = polyc.compile(
        "def f(float(Z) v, int32(P) ptr) -> (y) { y(i, j) +=! v(p) where i in 0:P, j in 0:P-i, p in 0:ptr(i+j) }"
    )
    with pytest.raises(PolycError, match="range-"):
        operator(np.ones(40, np.float32), np.ones(10, np.int32))
