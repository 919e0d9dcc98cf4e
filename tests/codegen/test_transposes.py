"""Transposing copies by blocks: the same elements as before, whatever the sizes, and no gathers where blocks are whole."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.transposes import block_transposes
from polyc.codegen.objects.jit import assembly
from polyc.ir.expr import Cast, Const, Select
from polyc.ir.loops import Buffer, Loop, LoopNest, Store
from polyc.ir.types import DTYPES, F32, F64, I32

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of, target
from .test_shuffles import Fenced


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def transposing(value, dtype, lanes, m=None, k=None, short=False, dtype_out=None):
    """``for j < K: vector i < M: Y[j, i] = value`` over ``X[i, j]``, before the pass."""
    rows, columns = (c(m), c(k)) if m is not None else (n("M"), n("K"))
    x = argument("X", dtype, (rows, columns), 0)
    y = argument("Y", dtype_out or dtype, (columns, rows), 1)
    vector = Loop("i", c(0), rows, 1, "vector", (Store("Y", (i("j"), i("i")), value),), lanes=lanes, interleave=2)
    if short:
        vector = replace(vector, max_trip=m, interleave=1)
    loop = Loop("j", c(0), columns, 1, "serial", (vector,))
    return LoopNest("f", ("M", "K", *strides_of(x, y)), (x, y), (loop,))


LANES = {"x86-64-v2": 4, "x86-64-v3": 8, "x86-64-v4": 16}


@pytest.mark.parametrize("dtype", [F32, F64, I32])
def test_transposes_of_unknown_sizes(level, rng, dtype):
    nest = block_transposes(transposing(rd("X", i("i"), i("j")), dtype, LANES[level]))
    code, fence = compiled(nest, level), Fenced()
    for m, k in ((1, 1), (5, 40), (33, 17), (16, 16), (3, 64), (24, 25)):
        values = random_array(rng, dtype, (m, k))
        for at_end in (False, True):
            x, y = fence.place(values, at_end), np.zeros((k, m), dtype.numpy)
            code.run({"X": x, "Y": y}, {"M": m, "K": k})
            np.testing.assert_array_equal(y, values.T)


@pytest.mark.parametrize("name", ["u8", "f16", "bool"])
def test_small_elements_are_turned_in_registers(level, rng, name):
    dtype = DTYPES[name]
    lanes = target(level).lanes(dtype.itemsize)
    for m, k, short in ((33, 17, False), (16, 48, True), (5, 64, True)):
        values = random_array(rng, dtype, (m, k))
        code = compiled(block_transposes(transposing(rd("X", i("i"), i("j")), dtype, lanes, m, k, short)), level)
        y = np.zeros((k, m), dtype.numpy)
        code.run({"X": Fenced().place(values, True), "Y": y}, {"M": m, "K": k})
        np.testing.assert_array_equal(y, values.T)
        assert code.text.count("insertelement") < m


def test_short_rows_complete_a_line_before_the_next_strip():
    x = np.arange(8 * 6 * 40, dtype="f4").reshape(8, 6, 40)
    source = "def f(float(A,B,C) X) -> (Y) { Y(c,b,a) = X(a,b,c) }"
    text = polyc.compile(source, target="x86-64-v4").lower(x).as_text("loops")
    assert re.search(r"for \(c\d+_0 = 0;.*\n +for \(c\d+ = 0; c\d+ < 6;.*\n +vector\(lanes 8, at most 8\)", text)
    np.testing.assert_array_equal(polyc.compile(source)(x), x.transpose(2, 1, 0))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_every_remainder_of_both_extents(level, dtype):
    """All residues modulo lanes and blocks, in both directions, next to memory that must not be touched."""
    lanes = target(level).lanes(dtype.itemsize)
    code, fence = compiled(block_transposes(transposing(rd("X", i("i"), i("j")), dtype, lanes)), level), Fenced()
    for m in range(2 * lanes + 2):
        for k in range(64 // dtype.itemsize * 2 + 2):
            values = np.arange(1, m * k + 1).reshape(m, k).astype(dtype.numpy)
            x, y = fence.place(values, bool((m + k) % 2)), np.zeros((k + 1, m), dtype.numpy)
            code.run({"X": x, "Y": y[:k]}, {"M": m, "K": k})
            np.testing.assert_array_equal(y[:k], values.T)
            assert not y[k].any()


@pytest.mark.pairs
@pytest.mark.parametrize("k", [2, 9, 15, 17, 24, 33])
@pytest.mark.parametrize("m", [1, 3, 5, 9, 18, 31])
def test_every_remainder_of_constant_extents(level, m, k):
    lanes = target(level).lanes(4)
    x = np.arange(m * k, dtype="f4").reshape(m, k)
    for short in (False, True):
        y = np.zeros((k, m), "f4")
        nest = block_transposes(transposing(rd("X", i("i"), i("j")), F32, lanes, m, k, short))
        code = compiled(nest, level)
        code.run({"X": x, "Y": y}, {"M": m, "K": k})
        np.testing.assert_array_equal(y, x.T)
        assert "gather" not in code.text


@pytest.mark.parametrize("k", [2, 3, 9, 24, 26, 72, 1000])
def test_remainders_along_memory_gather_nothing(level, k):
    code = compiled(block_transposes(transposing(rd("X", i("i"), i("j")), F32, LANES[level], 32, k, True)), level)
    assert "gather" not in code.text
    assert "load float," not in code.text


def nested(kinds, bounds, target_order, source_order, lanes=16):
    """Loops over ``a, b, c`` as given (outermost first) around a copy ``Y[target_order] = X[source_order]``."""
    extents = dict(bounds)
    x = argument("X", F32, tuple(c(extents[v]) for v in source_order), 0)
    y = argument("Y", F32, tuple(c(extents[v]) for v in target_order), 1)
    node = Store("Y", tuple(map(i, target_order)), rd("X", *map(i, source_order)))
    for variable, extent in reversed(bounds):
        kind = kinds.get(variable, "serial")
        trip = extent if kind != "serial" else None
        node = Loop(variable, c(0), c(extent), 1, kind, (node,), max_trip=trip, lanes=lanes if kind == "vector" else 1)
    return LoopNest("f", strides_of(x, y), (x, y), (node,))


@pytest.mark.pairs
@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
@pytest.mark.parametrize("kinds", [{"c": "vector"}, {"a": "vector"}, {"c": "vector", "a": "unroll"}, {"b": "vector"}])
def test_loops_in_any_order(level, order, kinds):
    """``Y[a, b, c] = X[c, b, a]``: along memory of X goes a, along that of Y goes c."""
    extents = {"a": 18, "b": 3, "c": 21}
    nest = nested(kinds, [(v, extents[v]) for v in order], "abc", "cba", target(level).lanes(4))
    x = np.arange(18 * 3 * 21, dtype="f4").reshape(21, 3, 18)
    arrays = {"X": x, "Y": np.zeros((18, 3, 21), "f4")}
    code = compiled(block_transposes(nest), level)
    check_with_interpreter(nest, arrays, {}, level)
    check_with_interpreter(code.nest, arrays, {}, level, code)
    if "b" not in kinds and order[2] in "ac":
        assert "gather" not in code.text and "scatter" not in code.text


@pytest.mark.pairs
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("m, k", [(16, 16), (64, 33), (40, 7), (29, 18), (17, 3), (16, 2), (6, 1), (0, 5), (5, 0)])
def test_transposes_of_known_sizes(level, rng, m, k, short):
    for dtype in (F32, F64):
        nest = block_transposes(transposing(rd("X", i("i"), i("j")), dtype, LANES[level], m, k, short))
        fence, values = Fenced(), random_array(rng, dtype, (m, k))
        for at_end in (False, True):
            x = fence.place(values, at_end)
            check_with_interpreter(nest, {"X": x, "Y": np.zeros((k, m), dtype.numpy)}, {"M": m, "K": k}, level)


def test_transposes_inside_expressions(level, rng):
    x = rd("X", i("i"), i("j"))
    guarded = Select(op("gt", i("j"), c(3)), op("mul", x, Const(2.0, F32)), Const(1.0, F32))
    for value, out in ((op("add", op("mul", x, x), Const(1.0, F32)), F32), (Cast(x, F64), F64), (guarded, F32)):
        nest = transposing(value, F32, LANES[level], 21, 19, dtype_out=out)
        for one in (nest, block_transposes(nest)):
            arrays = {"X": rng.standard_normal((21, 19)).astype("f4"), "Y": np.zeros((19, 21), out.numpy)}
            check_with_interpreter(one, arrays, {"M": 21, "K": 19}, level)


def test_whole_blocks_gather_nothing(level):
    text = compiled(block_transposes(transposing(rd("X", i("i"), i("j")), F32, LANES[level], 64, 64)), level).text
    code = assembly(text, target(level))
    assert "gather" not in code
    assert "unpck" in code


def test_what_must_stay_in_order_is_left_alone():
    nest = transposing(rd("X", i("i"), i("j")), F32, 16, 8, 8)
    loop = nest.body[0]
    vector = loop.body[0]

    def left_alone(store, buffers=nest.buffers):
        own = replace(nest, buffers=buffers, body=(replace(loop, body=(replace(vector, body=(store,)),)),))
        return block_transposes(own) == own

    store = vector.body[0]
    assert not left_alone(store)
    assert left_alone(replace(store, subscripts=(c(0), op("add", i("i"), i("j")))))  # the last one wins
    assert left_alone(replace(store, value=op("add", store.value, rd("Y", i("j"), i("i")))))
    aliased = tuple(replace(b, may_alias=("X",)) if b.name == "Y" else b for b in nest.buffers)
    assert left_alone(store, aliased)
    assert left_alone(replace(store, value=rd("X", i("j"), i("i"))))  # contiguous already
    wide = tuple(Buffer(b.name, b.dtype, b.shape, (n("s"), n("t")), b.space, b.position) for b in nest.buffers)
    assert left_alone(store, wide)


def test_rows_that_threads_share_are_moved_in_blocks(level, rng):
    nest = transposing(rd("X", i("i"), i("j")), F32, LANES[level])
    (loop,) = nest.body
    shared = block_transposes(replace(nest, body=(replace(loop, kind="parallel"),)))
    (branch,) = shared.body
    outer, _ = branch.body
    assert (outer.kind, outer.step) == ("parallel", 16)
    code = compiled(shared, level)
    for m, k in ((1, 1), (5, 40), (33, 17), (16, 16), (3, 64), (24, 25), (7, 0)):
        x, y = random_array(rng, F32, (m, k)), np.zeros((k, m), np.float32)
        code.run({"X": x, "Y": y}, {"M": m, "K": k})
        np.testing.assert_array_equal(y, x.T)


PIXELS = (
    *(("host", *t) for t in (("float", "f4"), ("double", "f8"), ("uint8", "u1"), ("int16", "i2"), ("float16", "f2"))),
    *((model, *t) for model in ("x86-64-v2", "x86-64-v3") for t in (("float", "f4"), ("uint8", "u1"))),
)


@pytest.mark.each
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("number", range(len(PIXELS)), ids=[f"{model}-{dtype}" for model, _, dtype in PIXELS])
def test_planes_become_pixels_and_back(number: int, dynamic: bool):
    model, element, dtype = PIXELS[number]
    rng = np.random.default_rng(0)
    counts = (1, 17, 1031)
    for planes in (2, 3, 4):
        source = f"def pixels({element}(C, N) X) -> (Y) {{ Y(n, c) = X(c, n) + X(c, n) where c in 0:{planes} }}"
        back = f"def planes({element}(N, C) X) -> (Y) {{ Y(c, n) = X(n, c) where c in 0:{planes} }}"
        to_pixels, to_planes = (polyc.compile(text, target=model, dynamic=dynamic) for text in (source, back))
        # One kernel serves all counts, or one count: each with as many planes as another kind of elements has it with others.
        for count in counts if dynamic else (counts[(planes + number) % 3],):
            x = rng.integers(0, 100, (planes, count)).astype(dtype)
            np.testing.assert_array_equal(to_pixels(x), (x + x).T)
            np.testing.assert_array_equal(to_planes(x.T.copy()), x)


def test_pixels_are_stored_as_whole_vectors():
    source = "def pixels(float(C, H, W) X) -> (Y) { Y(h, w, c) = X(c, h, w) }"
    x = np.zeros((3, 64, 96), np.float32)
    text = polyc.compile(source, target="x86-64-v4").lower(x).as_text("ll")
    assert "masked.store" not in text
    assert text.count("store <16 x float>") % 3 == 0
    np.testing.assert_array_equal(polyc.compile(source)(x), x.transpose(1, 2, 0))
