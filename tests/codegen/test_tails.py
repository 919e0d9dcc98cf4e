"""The rest of a vector loop on targets without masks: a last vector moved back, or narrower ones; the same as with masks."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.ir.expr import Call, Const, Index, Read, Size
from polyc.ir.loops import Loop, LoopNest, Store, Update
from polyc.ir.program import Program, Return, Statement, Tensor
from polyc.ir.types import DTYPES, F32

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of, target
from .test_shuffles import Fenced


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


def loop_of(body, lanes, upper=None):
    return Loop("i", c(0), upper or n("N"), 1, "vector", body, lanes=lanes, interleave=2)


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "bool", "u16", "i64"])
def test_tails_stay_inside(level, name):
    dtype, fence, rng = DTYPES[name], Fenced(), np.random.default_rng(1)
    lanes = target(level).lanes(dtype.itemsize)
    x, y = argument("X", dtype, (n("N"),), 0), argument("Y", dtype, (n("N"),), 1)
    code = compiled(
        LoopNest("f", ("N", *strides_of(x, y)), (x, y), (loop_of((Store("Y", (i("i"),), rd("X", i("i"))),), lanes),)), level
    )
    other = Fenced()
    for size in {*range(2 * lanes + 2), 5 * lanes - 1}:
        values = random_array(rng, dtype, (size,))
        for at_end in (False, True):
            a, b = fence.place(values, at_end), other.place(np.zeros_like(values), at_end)
            code.run({"X": a, "Y": b}, {"N": size})
            np.testing.assert_array_equal(b, values)


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "i64"])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_tails_end_at_their_last_element(level, name, stride):
    dtype, fence, other, rng = DTYPES[name], Fenced(), Fenced(), np.random.default_rng(1)
    lanes = target(level).lanes(dtype.itemsize)
    x, y = argument("X", dtype, (n("M"),), 0), argument("Y", dtype, (n("N"),), 1)
    body = (Store("Y", (i("i"),), rd("X", op("mul", i("i"), c(stride)))),)
    for loop in (loop_of(body, lanes), replace(loop_of(body, lanes), interleave=1, max_trip=3 * lanes)):
        code = compiled(LoopNest("f", ("M", "N", *strides_of(x, y)), (x, y), (loop,)), level)
        for size in {*range(2 * lanes + 2), 3 * lanes - 1, 3 * lanes}:
            values = random_array(rng, dtype, (max(0, stride * (size - 1) + 1),))
            a, b = fence.place(values, True), other.place(np.zeros(size, values.dtype), True)
            code.run({"X": a, "Y": b}, {"M": len(values), "N": size})
            np.testing.assert_array_equal(b, values[::stride])


def test_a_value_made_from_itself_is_made_once(level):
    y = argument("Y", F32, (n("N"),), 0)
    body = (Store("Y", (i("i"),), op("add", rd("Y", i("i")), Const(1.0, F32))),)
    code = compiled(LoopNest("f", ("N", *strides_of(y)), (y,), (loop_of(body, target(level).lanes(4)),)), level)
    for size in range(40):
        out = np.zeros(size, "f4")
        code.run({"Y": out}, {"N": size})
        assert (out == 1).all()


def test_an_alias_is_read_once(level):
    x, y = argument("X", F32, (n("N"),), 0), argument("Y", F32, (n("N"),), 1)
    for shared in ((("Y",), ()), ((), ("X",))):
        buffers = tuple(
            type(b)(b.name, b.dtype, b.shape, b.strides, b.space, b.position, names)
            for b, names in zip((x, y), shared, strict=True)
        )
        body = (Store("Y", (i("i"),), op("add", rd("X", i("i")), Const(1.0, F32))),)
        code = compiled(LoopNest("f", ("N", *strides_of(x, y)), buffers, (loop_of(body, target(level).lanes(4)),)), level)
        for size in range(40):
            out = np.zeros(size, "f4")
            code.run({"X": out, "Y": out}, {"N": size})
            assert (out == 1).all(), (size, shared)


@pytest.mark.parametrize("extent", [1, 9, 17, 33, 49])
@pytest.mark.parametrize(
    "cast", ["uint8(A(i, j) / uint32(16777216))", "uint16(A(i, j) / uint32(65536))", "bfloat16(float(A(i, j)))"]
)
def test_a_narrow_tail_of_one_lane_writes_nothing_behind_it(cast: str, extent: int) -> None:
    program = driver.read_tc(f"def f(uint32(2, N) A) -> (O) {{ O(i, j) = {cast} }}")[0]
    kernel = driver.lower(program, sizes={"N": extent}).compile()
    a = np.full((2, extent), 0x7F000000, np.uint32)
    expected = np.asarray(kernel(a))
    room = np.full(2 * extent + 8, 9, f"u{expected.itemsize}")
    kernel(a, out=room[: 2 * extent].view(expected.dtype).reshape(2, extent))
    assert (room[2 * extent :] == 9).all()


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["i64", "i32", "i16", "u8", "f64", "f32"])
@pytest.mark.parametrize("size", [3, 12, 196])
def test_narrow_results_beside_wide_ones_end_with_their_array(level, name, size):
    """A call between the mask and the store let LLVM widen the mask with bits that were not 0: 8 bytes beyond the result."""
    dtype, index = DTYPES[name], (Index("i"),)
    tensors = [Tensor(x, dtype, 1, (Size("N"),), "input", x) for x in "AB"]
    tensors += [Tensor("P", dtype, 1, None, "output", "P"), Tensor("L", DTYPES["bool"], 1, None, "output", "L")]
    reads = tuple(Read(x, index) for x in "AB")
    statements = (
        Statement("S0", "P", index, ("i",), Call("pow", reads)),
        Statement("S1", "L", index, ("i",), Call("lt", reads)),
    )
    program = Program("f", ("N",), tuple(tensors), ("A", "B"), (Return("P", "P"), Return("L", "L")), statements)
    kernel = driver.lower(program, target=target(level)).compile()
    rng = np.random.default_rng(size)
    a, b = rng.integers(1, 4, size).astype(dtype.numpy), rng.integers(0, 4, size).astype(dtype.numpy)
    around = [np.ones(size + 512, t) for t in (dtype.numpy, bool)]
    powers, low = kernel(a, b, out=tuple(x[256 : 256 + size] for x in around))
    np.testing.assert_allclose(powers, a**b, rtol=1e-5)
    np.testing.assert_array_equal(low, a < b)
    for whole in around:
        beside = np.delete(whole, slice(256, 256 + size))
        assert (beside.view(np.uint8) == np.ones_like(beside).view(np.uint8)).all()


def test_rows_that_are_there_are_stored_whole_where_masks_are_vectors():
    """All lanes of a tile were wanted, and each row but the first went through a masked store: a dozen cycles each.
    Ends with a quotient were compared with lane numbers of 64 bits, two registers for each vector."""
    x, a, y = (
        argument(name, F32, shape, p)
        for p, (name, shape) in enumerate((("X", (c(3), c(16))), ("A", (c(3), c(4))), ("Y", (c(4), c(16)))))
    )
    end = op("min", op("floordiv", op("add", n("N"), c(1)), c(2)), c(16))
    value = op("mul", rd("X", i("k"), i("j")), rd("A", i("k"), i("i")))
    columns = Loop("j", c(0), end, 1, "vector", (Update("Y", (i("i"), i("j")), "add", value),), lanes=8, max_trip=16)
    rows = Loop("i", c(0), op("min", n("M"), c(4)), 1, "unroll", (columns,), max_trip=4)
    loop = Loop("k", c(0), c(3), 1, "serial", (rows,), registers=("Y",))
    nest = LoopNest("f", ("M", "N", *strides_of(x, a, y)), (x, a, y), (loop,))
    code = compiled(nest, "x86-64-v3")
    assert "<8 x i64>" not in code.text
    assert code.text.count("call void @llvm.masked.store") == 8
    arrays = {
        name: np.random.default_rng(1).random(shape, "f4") for name, shape in (("X", (3, 16)), ("A", (3, 4)), ("Y", (4, 16)))
    }
    for m in range(6):
        for size in (0, 1, 15, 16, 17, 31, 32, 40):
            check_with_interpreter(nest, arrays, {"M": m, "N": size}, "x86-64-v3", code)


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "u16", "i64"])
def test_the_first_lanes_of_a_tile_are_stored_by_pieces_where_masks_are_vectors(level, name):
    """Each row of a tile that is not full took a masked store, of 42 steps on AMD's processors: half of the time of the last
    columns of a convolution with few channels."""
    dtype, lanes = DTYPES[name], target(level).lanes(DTYPES[name].itemsize)
    shapes = {"X": (c(3), n("N")), "A": (c(3), c(2)), "Y": (c(2), n("N"))}
    buffers = x, a, y = tuple(argument(key, dtype, shape, p) for p, (key, shape) in enumerate(shapes.items()))
    value = op("mul", rd("X", i("k"), i("j")), rd("A", i("k"), i("i")))
    end = op("min", n("N"), c(2 * lanes))
    columns = Loop("j", c(0), end, 1, "vector", (Update("Y", (i("i"), i("j")), "add", value),), lanes=lanes, max_trip=2 * lanes)
    rows = Loop("i", c(0), c(2), 1, "unroll", (columns,), max_trip=2)
    loop = Loop("k", c(0), c(3), 1, "serial", (rows,), registers=("Y",))
    code = compiled(LoopNest("f", ("N", *strides_of(x, a, y)), buffers, (loop,)), level)
    assert ("call void @llvm.masked.store" in code.text) == target(level).has_masks
    fences, rng = [Fenced() for _ in buffers], np.random.default_rng(1)
    for size in range(2 * lanes + 3):
        values = [random_array(rng, dtype, shape) for shape in ((3, size), (3, 2), (2, size))]
        for at_end in (False, True):
            placed = [fence.place(array, at_end) for fence, array in zip(fences, values, strict=True)]
            code.run(dict(zip("XAY", placed, strict=True)), {"N": size})
            expected = values[2].copy()
            for k in range(3):
                expected[:, : 2 * lanes] += values[1][k][:, None] * values[0][k][None, : 2 * lanes]
            np.testing.assert_allclose(placed[2], expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(placed[2][:, 2 * lanes :], values[2][:, 2 * lanes :])


@pytest.mark.parametrize("columns", [17, 20, 24, 25, 31])
def test_half_a_vector_of_512_bits_is_computed_in_half_of_one(columns):
    """Some processors do 512 bits in two operations: the second half of the last vector of 24 columns held nothing."""
    source = "def f(float(N, K) A, float(K, M) B) -> (C) { C(i, j) +=! A(i, k) * B(k, j) }"
    a, b = (random_array(np.random.default_rng(1), F32, shape) for shape in ((24, 64), (64, columns)))
    operator = polyc.compile(source, target="x86-64-v4")
    text = operator.lower(a, b).as_text("s")
    assert ("%ymm" in "".join(re.findall("vfmadd.*", text))) == (columns <= 24)
    np.testing.assert_allclose(operator(a, b), a @ b, rtol=1e-4, atol=1e-5)
