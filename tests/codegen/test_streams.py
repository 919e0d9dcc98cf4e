"""Results beyond the last-level cache are streamed to memory, from the first whole line of each row on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import polyc
from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.nests.streams import stream_results
from polyc.ir.expr import Const, int_const, substitute
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import If, Loop, Node
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.machine import AARCH64, X86_64_V4
from tests.machines import stream_all_results

ADD = "def f(float(N, D) X, float(D) b) -> (Y) { Y(n, d) = X(n, d) + b(d) }"
SUBTRACT = "def f(float(N, D) X) -> (Y) { M(n) max=! X(n, d)  Y(n, d) = X(n, d) - M(n) }"
ROWS, COLUMNS = 5, 1111


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is long, whatever the machine, and nothing that was compiled otherwise is used."""
    stream_all_results(monkeypatch)
    monkeypatch.setenv("POLYC_CACHE", "0")


def inputs(rows: int = ROWS, columns: int = COLUMNS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((rows, columns), np.float32), rng.random(columns, np.float32)


def at_offset(shape: tuple[int, ...], offset: int, dtype: str = "float32") -> np.ndarray:
    """An array that begins `offset` bytes behind the beginning of a line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + size].view(dtype).reshape(shape)
    assert array.ctypes.data % 64 == offset
    return array


def nodes_of(body: tuple[Node, ...]) -> Iterator[Node]:
    for node in body:
        yield node
        if isinstance(node, Loop | If):
            yield from nodes_of(node.body)


def streams_of(source: str, *arrays: np.ndarray, **options: str) -> int:
    text: str = polyc.compile(source, **options).lower(*arrays).as_text("loops")
    return text.count("stream ")


def test_only_results_beyond_half_of_the_last_cache_are_streamed():
    source = "def f(float(N, D) X, float(D) b) -> (Y) { Y(n, d) = b(d) where n in 0:N }"  # reads next to nothing
    lowered = polyc.compile(source, target="x86-64-v4").lower(*inputs())
    nest, size = lowered.nest, ROWS * COLUMNS * 4
    assert stream_results(nest, replace(X86_64_V4, l3=2 * size + 1)) == nest
    streamed = stream_results(nest, replace(X86_64_V4, l3=2 * size))
    assert streamed.offsets == ("Y",)
    assert stream_results(nest, replace(AARCH64, l3=size)) == nest


def test_results_that_fill_the_last_cache_together_with_what_is_read_are_streamed():
    nest = polyc.compile(ADD, target="x86-64-v4").lower(*inputs()).nest
    size = (2 * ROWS + 1) * COLUMNS * 4
    assert stream_results(nest, replace(X86_64_V4, l3=size * 4 // 3 + 2)) == nest
    assert stream_results(nest, replace(X86_64_V4, l3=size * 4 // 3)).offsets == ("Y",)


def test_a_table_that_is_read_here_and_there_does_not_make_results_long():
    source = "def f(float(E, D) T, int32(N) I) -> (Y) { Y(n, d) = T(I(n), d) }"
    table, rows = np.ones((1000, 256), np.float32), np.arange(100, dtype=np.int32)
    nest = polyc.compile(source, target="x86-64-v4").lower(table, rows).nest
    assert stream_results(nest, replace(X86_64_V4, l3=3 * 100 * 256 * 4)) == nest
    assert stream_results(nest, replace(X86_64_V4, l3=2 * 100 * 256 * 4)).offsets == ("Y",)


def test_sizes_of_the_call_decide_where_the_compiler_does_not_know_them():
    lowered = polyc.compile(ADD, dynamic=("N",), target="aarch64").lower(*inputs())  # not streamed there
    size = (2 * ROWS + 1) * COLUMNS * 4
    for l3, is_long in ((size * 4 // 3, True), (size * 4 // 3 + 2, False)):
        nest = stream_results(lowered.nest, replace(X86_64_V4, l3=l3))
        (branch,) = [n for n in nodes_of(nest.body) if isinstance(n, If)]
        sizes = {"N": int_const(ROWS), "Y.offset": int_const(0)}
        assert simplify(substitute(branch.condition, {}, sizes)) == Const(is_long, BOOL)
    x, b = inputs()
    for offset in (0, 16, 36):
        y = at_offset(x.shape, offset)
        interpret_loops(nest, [x, b, y], {"N": ROWS, "D": COLUMNS})
        np.testing.assert_array_equal(y, x + b)


@pytest.mark.parametrize("level", ["host", "x86-64-v3"])
def test_streamed_rows_of_sizes_known_at_the_call_only(level: str, small_cache):
    op = polyc.compile(ADD, dynamic=True, target=level)
    for rows, columns in ((3, 1111), (1, 4096), (2, 300), (7, 5)):
        x, b = inputs(rows, columns)
        for offset in (0, 4, 16):
            y = at_offset(x.shape, offset)
            op(x, b, out=y)
            np.testing.assert_array_equal(y, x + b)


def test_rows_are_stored_as_usual_up_to_the_first_line(small_cache):
    lowered = polyc.compile(ADD, target="x86-64-v4").lower(*inputs())
    text = lowered.as_text("loops")
    assert text.count("stream Y") == 1
    assert "Y.offset" in text
    x, b = inputs()
    for offset in range(0, 64, 4):
        y = at_offset(x.shape, offset)
        interpret_loops(lowered.nest, [x, b, y], {"N": ROWS, "D": COLUMNS})
        np.testing.assert_array_equal(y, x + b)


@pytest.mark.parametrize("columns", [1111, 1024])
def test_only_whole_lines_are_streamed_where_a_vector_is_part_of_one(columns: int, small_cache):
    lowered = polyc.compile(ADD, target="x86-64-v3").lower(*inputs(columns=columns))
    (loop,) = (
        n for n in nodes_of(lowered.nest.body) if isinstance(n, Loop) and any(getattr(s, "streamed", False) for s in n.body)
    )
    for row, offset in product(range(3), range(0, 64, 4)):
        place = {"c0": int_const(row)}, {"Y.offset": int_const(offset)}
        lower, upper = (simplify(substitute(e, *place)) for e in (loop.lower, loop.upper))
        assert isinstance(lower, Const) and isinstance(upper, Const)
        assert (4 * (row * columns + int(lower.value)) + offset) % 64 == 0 == (int(upper.value) - int(lower.value)) % 16
        assert columns - int(upper.value) < 16


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_no_mask_reaches_from_the_ends_of_rows_into_streamed_lines(level: str, small_cache):
    text = polyc.compile(ADD, target=level).lower(*inputs(columns=COLUMNS - 3)).as_text("s")
    assert "vmovntp" in text
    assert not re.search(r"\{%k\d\}$|vmaskmovps\t%[xyz]mm\d+, %[xyz]mm\d+, ", text, re.M)


def test_the_code_waits_for_what_it_streamed(small_cache):
    lowered = polyc.compile(ADD, target="x86-64-v4").lower(*inputs(64, 4096))
    text = emit_llvm(lowered.nest, lowered.target)
    assert "!nontemporal" in text
    for function in text.split("\ndefine ")[1:]:
        body = function.split("\n}")[0]
        assert ("!nontemporal" in body) == ("@llvm.x86.sse.sfence()" in body)


@pytest.mark.parametrize("level", ["host", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float", "double", "int8", "float16"])
def test_results_are_the_same_wherever_they_begin(level: str, dtype: str, small_cache):
    source = f"def f({dtype}(N, D) X, {dtype}(D) b) -> (Y) {{ Y(n, d) = X(n, d) + b(d) }}"
    name = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    x, b = ((a * 64).astype(name) for a in inputs(9, 2500))
    assert streams_of(source, x, b, target=level) == 1
    op = polyc.compile(source, target=level)
    for offset in (0, 16, 24, 56):
        y = at_offset(x.shape, offset, name)
        op(x, b, out=y)
        np.testing.assert_array_equal(y, x + b)


def test_rows_of_any_length_and_several_threads(small_cache):
    rng = np.random.default_rng(1)
    op = polyc.compile(SUBTRACT)
    for columns in (256, 257, 271, 272, 4099):
        x = rng.random((300, columns), np.float32)
        y = at_offset(x.shape, 20)
        assert streams_of(SUBTRACT, x) == 1
        op(x, out=y)
        np.testing.assert_array_equal(y, x - x.max(axis=1, keepdims=True))


SEVERAL = """def f(float(N, D) X) -> (U, V, W) {
  U(n, d) = X(n, d) + 1.0  V(n, d) = X(n, d) * X(n, d + 1)  W(n, d) = -X(n, d)
}"""


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v3"}])
def test_several_results_of_one_loop_are_streamed_wherever_they_begin(options: dict[str, str], small_cache):
    x, _ = inputs(7, 1111)
    op = polyc.compile(SEVERAL, **options)
    for offsets in ((0, 0, 0), (16, 16, 16), (4, 20, 8), (0, 0, 60)):
        u, v, w = (at_offset(shape, o) for shape, o in zip((x.shape, (7, 1110), x.shape), offsets, strict=True))
        op(x, out=(u, v, w))
        np.testing.assert_array_equal(u, x + 1)
        np.testing.assert_array_equal(v, x[:, :-1] * x[:, 1:])
        np.testing.assert_array_equal(w, -x)
    assert streams_of(SEVERAL, x) >= 3


def test_results_that_begin_lines_apart_are_the_same(small_cache):
    x, _ = inputs()
    lowered = polyc.compile(SEVERAL, target="x86-64-v4").lower(x)
    for offsets in ((0, 0, 0), (4, 20, 8)):
        arrays = [at_offset(s, o) for s, o in zip((x.shape, (ROWS, COLUMNS - 1), x.shape), offsets, strict=True)]
        interpret_loops(lowered.nest, [x, *arrays], {"N": ROWS, "D": COLUMNS})
        for got, wanted in zip(arrays, (x + 1, x[:, :-1] * x[:, 1:], -x), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_what_is_read_again_or_not_in_order_is_not_streamed(small_cache):
    x, b = inputs(64, 4096)
    both = "def f(float(N, D) X, float(D) b) -> (Y, Z) { Y(n, d) = X(n, d) + b(d)  Z(n) +=! Y(n, d) }"
    assert streams_of(both, x, b) == 0
    assert streams_of("def f(float(N, D) X) -> (Y) { Y(d, n, d2) = X(n, d) where d2 in 0:2 }", x) == 0
    assert streams_of("def f(float(N, D) X) -> (Y) { Y(n) +=! X(n, d) }", x) == 0


TURN = "def f(float(M, N) X) -> (Y) { Y(j, i) = X(i, j) }"


@pytest.mark.each
@pytest.mark.parametrize("shape", [(64, 64), (208, 100), (33, 70), (272, 1), (16, 300), (144, 257)])
@pytest.mark.parametrize("level", ["host", "x86-64-v3"])
def test_transposes_begin_their_tiles_at_lines(shape: tuple[int, int], level: str, small_cache):
    x = np.random.default_rng(2).random(shape, np.float32)
    lowered = polyc.compile(TURN, target=level).lower(x)
    if shape in ((208, 100), (144, 257)):
        assert "stream Y" in lowered.as_text("loops")
    elif shape[0] % 16:  # rows that are no whole number of lines go to memory as one
        assert "stream Y[33 * c" in lowered.as_text("loops")
    op = polyc.compile(TURN, target=level)
    for offset in (0, 4, 16, 60):
        y, z = at_offset(x.T.shape, offset), at_offset(x.T.shape, offset)
        op(x, out=y)
        np.testing.assert_array_equal(y, x.T)
        if level == "host":
            interpret_loops(lowered.nest, [x, z], {"M": shape[0], "N": shape[1]})
            np.testing.assert_array_equal(z, x.T)


def test_permutations_of_more_dimensions(small_cache):
    x = np.random.default_rng(3).random((6, 32, 5, 48), np.float32)
    for left, axes in (("badc", (1, 0, 3, 2)), ("dcba", (3, 2, 1, 0)), ("acdb", (0, 2, 3, 1)), ("dacb", (3, 0, 2, 1))):
        op = polyc.compile(f"def f(float(A,B,C,D) X) -> (Y) {{ Y({','.join(left)}) = X(a,b,c,d) }}")
        for offset in (0, 20):
            y = at_offset(x.transpose(axes).shape, offset)
            op(x, out=y)
            np.testing.assert_array_equal(y, x.transpose(axes))


@pytest.mark.parametrize("columns, is_streamed", [(128, True), (120, False)])
def test_short_rows_are_streamed_where_they_are_whole_lines(columns: int, is_streamed: bool, small_cache):
    x, b = inputs(6, columns)
    x = np.ascontiguousarray(np.broadcast_to(x[:, None], (6, 2, columns)))[:, 0]  # rows that do not follow each other
    source = "def f(float(N, D) X, float(D) b) -> (Y) { Y(n, d) = X(n, d) + b(d) }"
    assert (streams_of(source, x, b, target="x86-64-v4") > 0) == is_streamed
    op = polyc.compile(source)
    for offset in (0, 16):
        y = at_offset(x.shape, offset)
        op(x, b, out=y)
        np.testing.assert_array_equal(y, x + b)


@pytest.mark.parametrize(("dtype", "columns"), [("float", 64), ("double", 32)])
def test_parts_of_a_streamed_line_are_stored_one_behind_the_other(dtype: str, columns: int):
    source = f"def f({dtype}(A, B, C) X) -> (Y) {{ Y(a, c, b) = X(a, b, c) }}"
    x = np.ones((32, 3136, columns), "f4" if dtype == "float" else "f8")
    text = polyc.compile(source, target="x86-64-v3").lower(x).as_text("s")
    found = re.findall(r"vmovntp[sd]\s+%ymm\d+, (-?\d*)\((%\w+)\)", text)
    places = [(base, int(place or 0)) for place, base in found]
    followed = [second == (base, place + 32) for (base, place), second in itertools.pairwise(places)]
    assert sum(followed) >= min(8, columns // 8)
