"""Scalar, vector, unrolled and parallel loops on every instruction set of the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyc.ir.expr import Cast, Const, Pad, Read, Select
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Store, Update
from polyc.ir.types import DTYPES, F32, F64, I32, I64

from .support import LEVELS, argument, c, compiled, i, n, op, random_array, rd, strides_of

pytestmark = pytest.mark.optimised

SIZES = (0, 1, 3, 15, 16, 17, 63, 64, 65, 130)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def elementwise(value, dtype_in, dtype_out, lanes, interleave=1, kind="vector"):
    x = argument("X", dtype_in, (n("N"),), 0)
    y = argument("Y", dtype_out, (n("N"),), 1)
    loop = Loop("i", c(0), n("N"), 1, kind, (Store("Y", (i("i"),), value),), lanes=lanes, interleave=interleave)
    return LoopNest("f", ("N", *strides_of(x, y)), (x, y), (loop,))


@pytest.mark.parametrize("name", sorted(n for n, t in DTYPES.items() if not t.is_complex))
def test_copies_every_dtype_at_every_tail(level, name, rng):
    dtype = DTYPES[name]
    code = compiled(elementwise(rd("X", i("i")), dtype, dtype, 16, 2), level)
    for size in SIZES:
        x = random_array(rng, dtype, (size + 1,))[1:]
        y = np.zeros(size + 2, dtype.numpy)
        code.run({"X": x, "Y": y[:size]}, {"N": size})
        np.testing.assert_array_equal(y[:size], x)
        assert not y[size:].any()


def test_serial_loop_with_steps(rng):
    y = argument("Y", I64, (n("N"),), 0)
    loop = Loop("i", c(1), n("N"), 3, "serial", (Store("Y", (i("i"),), op("mul", i("i"), n("N"))),))
    code = compiled(LoopNest("f", ("N", *strides_of(y)), (y,), (loop,)))
    for size in (0, 1, 2, 10):
        out = np.full(size, -1)
        code.run({"Y": out}, {"N": size})
        want = np.full(size, -1)
        want[1::3] = np.arange(1, size, 3) * size
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("reverse", [False, True])
def test_transposes_by_gather(level, rng, reverse):
    x = argument("X", F32, (n("M"), n("N")), 0)
    y = argument("Y", F32, (n("N"), n("M")), 1)
    column = op("sub", op("sub", n("N"), c(1)), i("j")) if reverse else i("j")
    body = (Store("Y", (i("j"), i("i")), rd("X", i("i"), column)),)
    loop = Loop("j", c(0), n("N"), 1, "serial", (Loop("i", c(0), n("M"), 1, "vector", body, lanes=16),))
    code = compiled(LoopNest("f", ("M", "N", *strides_of(x, y)), (x, y), (loop,)), level)
    for m, k in ((1, 1), (5, 40), (33, 17), (16, 16)):
        a = rng.standard_normal((m, k)).astype("f4")
        b = np.zeros((k, m), "f4")
        code.run({"X": a, "Y": b}, {"M": m, "N": k})
        np.testing.assert_array_equal(b, (a[:, ::-1] if reverse else a).T)


def test_reads_backwards_and_with_any_stride(level, rng):
    x = argument("X", F32, (n("N"),), 0, contiguous=False)
    y = argument("Y", F32, (n("N"),), 1)
    value = op("add", rd("X", i("i")), rd("Y", op("sub", op("sub", n("N"), c(1)), i("i"))))
    z = argument("Z", F32, (n("N"),), 2)
    loop = Loop("i", c(0), n("N"), 1, "vector", (Store("Z", (i("i"),), value),), lanes=16)
    code = compiled(LoopNest("f", ("N", *strides_of(x, y, z)), (x, y, z), (loop,)), level)
    for size in SIZES:
        a, b = rng.standard_normal(3 * size).astype("f4"), rng.standard_normal(size).astype("f4")
        for strided in (a[::3], a[::-3], a[:size]):
            out = np.zeros(size, "f4")
            code.run({"X": strided, "Y": b, "Z": out}, {"N": size})
            np.testing.assert_array_equal(out, strided + b[::-1])


def test_padding_reads_nothing_outside(level, rng):
    window = Pad(Read("X", (op("sub", i("i"), c(2)),)), Const(-1.5, F32))
    code = compiled(elementwise(window, F32, F32, 16, 2), level)
    for size in SIZES:
        x = rng.standard_normal(size).astype("f4")
        y = np.zeros(size, "f4")
        code.run({"X": x, "Y": y}, {"N": size})
        want = np.full(size, -1.5, "f4")
        want[2:] = x[: max(0, size - 2)]
        np.testing.assert_array_equal(y, want)


def test_the_arm_not_taken_is_not_read(level, rng):
    far = rd("X", op("mul", i("i"), c(1 << 40)))
    value = Select(
        op("lt", i("i"), c(0)), far, Select(op("gt", rd("X", i("i")), Const(0.0, F32)), rd("X", i("i")), Const(0.0, F32))
    )
    for kind in ("vector", "serial"):
        code = compiled(elementwise(value, F32, F32, 16, kind=kind), level)
        x = rng.standard_normal(77).astype("f4")
        y = np.zeros(77, "f4")
        code.run({"X": x, "Y": y}, {"N": 77})
        np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_lane_varying_if_masks_its_stores(level, rng):
    x = argument("X", F32, (n("N"),), 0)
    y = argument("Y", F32, (n("N"),), 1)
    twice = Store("Y", (i("i"),), op("add", rd("X", i("i")), rd("X", i("i"))))
    even = If(op("gt", rd("X", i("i")), Const(0.5, F32)), (twice,), (Store("Y", (i("i"),), Const(7.0, F32)),))
    body = (If(op("ge", i("i"), c(3)), (even,)),)
    for kind in ("vector", "serial"):
        loop = Loop("i", c(0), n("N"), 1, kind, body, lanes=16)
        code = compiled(LoopNest("f", ("N", *strides_of(x, y)), (x, y), (loop,)), level)
        for size in SIZES:
            a = rng.standard_normal(size).astype("f4")
            out = np.zeros(size, "f4")
            code.run({"X": a, "Y": out}, {"N": size})
            want = np.where(a > 0.5, a + a, np.float32(7))
            want[:3] = 0
            np.testing.assert_array_equal(out, want)


def gather_nest(kind):
    x = argument("X", F32, (n("N"),), 0)
    t = argument("T", I32, (n("M"),), 1)
    y = argument("Y", F32, (n("M"),), 2)
    index = Cast(rd("T", i("i")), I64)
    clamped = op("max", c(0), op("min", index, op("sub", n("N"), c(1))))
    body = (Guard(2, index, n("N")), Store("Y", (i("i"),), rd("X", clamped)))
    loop = Loop("i", c(0), n("M"), 1, kind, body, lanes=16)
    return LoopNest("f", ("N", "M", *strides_of(x, t, y)), (x, t, y), (loop,), ("a", "b", "c"))


@pytest.mark.parametrize("kind", ["serial", "vector", "parallel"])
def test_guards_report_the_first_bad_index(level, rng, kind):
    code = compiled(gather_nest(kind), level)
    x = rng.standard_normal(50).astype("f4")
    for size in (0, 1, 16, 40):
        index = rng.integers(0, 50, size).astype("i4")
        out = np.zeros(size, "f4")
        assert code.run({"X": x, "T": index, "Y": out}, {"N": 50, "M": size}, 2)[0] == 0
        np.testing.assert_array_equal(out, x[index])
        for bad in (-1, 50, 1 << 30):
            if size:
                wrong = index.copy()
                wrong[size // 2] = bad
                assert code.run({"X": x, "T": wrong, "Y": out}, {"N": 50, "M": size}, 2) == (3, [2, bad, 50])


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_parallel_loop_covers_each_iteration_once(threads):
    y = argument("Y", I64, (n("T"), n("N")), 0)
    body = (Update("Y", (i("t"), i("i")), "add", op("add", op("mul", i("t"), c(1000)), i("i"))),)
    for step in (1, 5):
        inner = Loop("i", c(2), n("N"), step, "parallel", body, parallel_if=op("gt", n("N"), c(10)))
        loop = Loop("t", c(0), n("T"), 1, "serial", (inner,))
        code = compiled(LoopNest("f", ("T", "N", *strides_of(y)), (y,), (loop,)))
        for size in (0, 1, 2, 3, 7, 12, 33):
            out = np.zeros((3, size), "i8")
            code.run({"Y": out}, {"T": 3, "N": size}, threads)
            want = np.zeros((3, size), "i8")
            want[:, 2::step] = (np.arange(3)[:, None] * 1000 + np.arange(size))[:, 2::step]
            np.testing.assert_array_equal(out, want)


def test_tensors_may_be_called_as_bounds_of_loops_are(rng):
    names = ("lower", "upper", "places")
    arrays = [argument(name, F32, (n("N"),), k) for k, name in enumerate(names)]
    store = Store("places", (i("i"),), op("sub", rd("upper", i("i")), rd("lower", i("i"))))
    loop = Loop("i", c(0), n("N"), 1, "parallel", (store,))
    code = compiled(LoopNest("f", ("N", *strides_of(*arrays)), tuple(arrays), (loop,)))
    x, y, out = rng.standard_normal((3, 20)).astype("f4")
    code.run({"lower": x, "upper": y, "places": out}, {"N": 20}, 2)
    np.testing.assert_array_equal(out, y - x)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_thread_and_shared_buffers_do_not_overlap(threads, rng):
    x = argument("X", F32, (n("M"), n("N")), 0)
    y = argument("Y", F32, (n("M"), n("N")), 1)
    s = Buffer("S", F32, (n("M"),), (c(4),), "shared")
    b = Buffer("B", F32, (n("N"),), (c(4),), "thread")
    double = op("mul", rd("X", i("m"), i("j")), Const(2.0, F32))
    turned = rd("B", op("sub", op("sub", n("N"), c(1)), i("j")))
    rows = (
        Store("S", (i("m"),), Const(1.0, F32)),
        Loop("j", c(0), n("N"), 1, "vector", (Store("B", (i("j"),), double),), lanes=8),
        Loop("j", c(0), n("N"), 1, "vector", (Store("Y", (i("m"), i("j")), turned),), lanes=8),
    )
    last = (Loop("j", c(0), n("N"), 1, "serial", (Update("Y", (i("m"), i("j")), "add", rd("S", i("m"))),)),)
    body = (Loop("m", c(0), n("M"), 1, "parallel", rows), Loop("m", c(0), n("M"), 1, "parallel", last))
    code = compiled(LoopNest("f", ("M", "N", *strides_of(x, y)), (x, y, s, b), body))
    for m, k in ((0, 3), (1, 1), (9, 33), (64, 100)):
        a = rng.standard_normal((m, k)).astype("f4")
        out = np.zeros((m, k), "f4")
        code.run({"X": a, "Y": out}, {"M": m, "N": k}, threads)
        np.testing.assert_array_equal(out, 2 * a[:, ::-1] + 1)


def test_text_is_deterministic():
    nest = gather_nest("parallel")
    assert compiled(nest).text == compiled(nest).text


@pytest.mark.parametrize("dtype", [F32, F64])
def test_vector_operands_of_several_widths(level, rng, dtype):
    value = Cast(op("add", Cast(rd("X", i("i")), dtype), Cast(i("i"), dtype)), I32)
    code = compiled(elementwise(value, DTYPES["i8"], I32, 16), level)
    for size in SIZES:
        x = rng.integers(-128, 128, size).astype("i1")
        y = np.zeros(size, "i4")
        code.run({"X": x, "Y": y}, {"N": size})
        np.testing.assert_array_equal(y, (x + np.arange(size)).astype("i4"))


def test_buffers_that_may_share_memory_are_not_noalias(level, rng):
    """An output that is its own input, instance by instance; a third array stays noalias."""
    nest = elementwise(op("mul", rd("X", i("i")), Const(3.0, F32)), F32, F32, 16, 2)
    x, y = nest.buffers
    z = argument("Z", F32, (n("N"),), 2)
    shared = LoopNest("f", (*nest.parameters, "Z.stride0"), (x, replace(y, may_alias=("X",)), z), nest.body)
    code = compiled(shared, level)
    body = next(line for line in code.text.splitlines() if line.startswith("define internal void"))
    assert body.count("noalias") == 1
    for size in SIZES:
        data = rng.standard_normal(size).astype("f4")
        want = data * 3
        code.run({"X": data, "Y": data, "Z": data}, {"N": size})
        np.testing.assert_array_equal(data, want)


def test_memory_that_a_store_may_share_is_read_again_behind_it(rng):
    x, y, z = (argument(name, F32, (n("N"),), k) for k, name in enumerate("XYZ"))
    x, y = replace(x, may_alias=("Y",)), replace(y, may_alias=("X",))
    body = (Store("Y", (i("i"),), op("mul", rd("X", i("i")), Const(3.0, F32))), Store("Z", (i("i"),), rd("X", i("i"))))
    loop = Loop("i", c(0), n("N"), 1, "serial", body)
    code = compiled(LoopNest("f", ("N", *strides_of(x, y, z)), (x, y, z), (loop,)))
    data, behind = rng.standard_normal(9).astype("f4"), np.zeros(9, "f4")
    want = data * 3
    code.run({"X": data, "Y": data, "Z": behind}, {"N": 9})
    np.testing.assert_array_equal(behind, want)
