"""Register accumulators: dot products, register tiles, nested reductions, short vectors, register buffers."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.ir.expr import MONOIDS, Const, Pad, Read, Select
from polyc.ir.loops import Buffer, If, InitialValue, Loop, LoopNest, Store, Update
from polyc.ir.types import BOOL, DTYPES, F32, F64
from polyc.ir.verify_loops import verify_loops

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of

SIZES = (0, 1, 15, 16, 17, 63, 64, 65, 200)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def reduction_nest(operator, dtype, lanes=16, interleave=4, registers=("S",), value=None):
    x = argument("X", dtype, (n("N"),), 0)
    s = argument("S", dtype, (), 1)
    body = (Update("S", (), operator, value or rd("X", i("i"))),)
    loop = Loop("i", c(0), n("N"), 1, "vector", body, lanes=lanes, interleave=interleave, registers=registers)
    return LoopNest("f", ("N", *strides_of(x)), (x, s), (loop,))


@pytest.mark.pairs
@pytest.mark.parametrize("registers", [("S",), ()])
@pytest.mark.parametrize("operator", MONOIDS)
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "u16", "u64", "bool"])
def test_reductions_over_lanes(level, operator, name, registers, rng):
    dtype = DTYPES[name]
    if (operator in ("and", "or")) != (dtype == BOOL):
        pytest.skip("and, or are the monoids of bool")
    nest = reduction_nest(operator, dtype, registers=registers)
    verify_loops(nest)
    code = compiled(nest, level)
    for size in SIZES:
        arrays = {"X": random_array(rng, dtype, (size,)), "S": random_array(rng, dtype, ())}
        check_with_interpreter(nest, arrays, {"N": size}, code=code, rtol=1e-4)


@pytest.mark.parametrize("operator", ["max", "min"])
def test_extrema_propagate_nan(level, operator, rng):
    code = compiled(reduction_nest(operator, F32), level)
    for size in SIZES[1:]:
        for place in {0, size // 2, size - 1}:
            x = rng.standard_normal(size).astype("f4")
            x[place] = np.nan
            s = np.array(0, "f4")
            code.run({"X": x, "S": s}, {"N": size})
            assert np.isnan(s)
        s = np.array(np.nan, "f4")
        code.run({"X": np.zeros(size, "f4"), "S": s}, {"N": size})
        assert np.isnan(s)


def test_dot_product(level, rng):
    x, y, s = argument("X", F32, (n("N"),), 0), argument("Y", F32, (n("N"),), 1), argument("S", F64, (), 2)
    s = argument("S", F32, (), 2)
    body = (Update("S", (), "add", op("mul", rd("X", i("i")), rd("Y", i("i")))),)
    loop = Loop("i", c(0), n("N"), 1, "vector", body, lanes=16, interleave=4, registers=("S",))
    nest = LoopNest("f", ("N", *strides_of(x, y)), (x, y, s), (loop,))
    code = compiled(nest, level)
    for size in (*SIZES, 1000):
        arrays = {k: random_array(rng, F32, (size,)) for k in "XY"} | {"S": random_array(rng, F32, ())}
        check_with_interpreter(nest, arrays, {"N": size}, code=code, rtol=1e-4)


def test_inactive_lanes_do_not_poison_a_sum(level):
    # 0 * Inf of a masked lane would be NaN.
    nest = reduction_nest("add", F32, value=op("truediv", Const(1.0, F32), rd("X", i("i"))))
    for size in (1, 3, 17):
        s = np.array(0, "f4")
        compiled(nest, level).run({"X": np.ones(size, "f4"), "S": s}, {"N": size})
        assert s == size


def softmax_nest():
    x, y = argument("X", F32, (n("M"), n("N")), 0), argument("Y", F32, (n("M"), n("N")), 1)
    m, z = Buffer("Mx", F32, (), (), "thread"), Buffer("Z", F32, (), (), "thread")
    at = (i("i"), i("j"))
    shifted = op("exp", op("sub", rd("X", *at), rd("Mx")))

    def vector(*body, registers=()):
        return Loop("j", c(0), n("N"), 1, "vector", body, lanes=16, interleave=2, registers=registers)

    row = (
        Store("Mx", (), Const(float("-inf"), F32)),
        vector(Update("Mx", (), "max", rd("X", *at)), registers=("Mx",)),
        Store("Z", (), Const(0.0, F32)),
        vector(Store("Y", at, shifted), Update("Z", (), "add", rd("Y", *at)), registers=("Z",)),
        vector(Store("Y", at, op("truediv", rd("Y", *at), rd("Z")))),
    )
    rows = Loop("i", c(0), n("M"), 1, "parallel", row)
    return LoopNest("f", ("M", "N", *strides_of(x, y)), (x, y, m, z), (rows,))


def test_row_softmax(level, rng):
    nest = softmax_nest()
    verify_loops(nest)
    code = compiled(nest, level)
    for m, k in ((0, 4), (1, 1), (5, 31), (7, 33), (3, 128), (4, 1000)):
        arrays = {"X": random_array(rng, F32, (m, k)), "Y": np.zeros((m, k), "f4")}
        check_with_interpreter(nest, arrays, {"M": m, "N": k}, code=code, threads=2)


def tile(mr, nr, lanes, rows, columns, k_registers=("C",)):
    """``C[it*mr + i, jt*nr + j] += A[.., k] * B[k, ..]`` over a tile of `rows` x `columns` (expressions)."""
    row = op("add", op("mul", i("it"), c(mr)), i("i"))
    column = op("add", op("mul", i("jt"), c(nr)), i("j"))
    update = Update("C", (row, column), "add", op("mul", rd("A", row, i("k")), rd("B", i("k"), column)))
    vector = Loop("j", c(0), columns, 1, "vector", (update,), max_trip=nr, lanes=lanes)
    unrolled = Loop("i", c(0), rows, 1, "unroll", (vector,), max_trip=mr)
    return Loop("k", c(0), n("K"), 1, "serial", (unrolled,), registers=k_registers)


def matmul_nest(mr, nr, lanes, dtype=F32, versioned=True, registers=("C",)):
    a = argument("A", dtype, (n("M"), n("K")), 0)
    b = argument("B", dtype, (n("K"), n("N")), 1)
    out = argument("C", dtype, (n("M"), n("N")), 2)
    rows = op("min", c(mr), op("sub", n("M"), op("mul", i("it"), c(mr))))
    columns = op("min", c(nr), op("sub", n("N"), op("mul", i("jt"), c(nr))))
    partial = tile(mr, nr, lanes, rows, columns, registers)
    whole = op("and", op("ge", rows, c(mr)), op("ge", columns, c(nr)))
    inner = If(whole, (tile(mr, nr, lanes, c(mr), c(nr), registers),), (partial,)) if versioned else partial
    down = op("floordiv", op("add", n("M"), c(mr - 1)), c(mr))
    right = op("floordiv", op("add", n("N"), c(nr - 1)), c(nr))
    columns_loop = Loop("jt", c(0), right, 1, "serial", (inner,))
    nest = Loop("it", c(0), down, 1, "parallel", (columns_loop,))
    return LoopNest("f", ("M", "N", "K", *strides_of(a, b, out)), (a, b, out), (nest,))


@pytest.mark.parametrize("versioned", [True, False])
def test_matmul_register_tile(level, versioned, rng):
    shape = (6, 64, 16) if level in ("host", "x86-64-v4") else (4, 16, 8)
    nest = matmul_nest(*shape, versioned=versioned)
    verify_loops(nest)
    code = compiled(nest, level)
    for m, k, j in ((1, 1, 1), (6, 5, 64), (12, 7, 128), (7, 3, 65), (5, 9, 63), (13, 0, 20), (6, 4, 17), (0, 3, 5)):
        arrays = {
            "A": random_array(rng, F32, (m, k)),
            "B": random_array(rng, F32, (k, j)),
            "C": random_array(rng, F32, (m, j)),
        }
        check_with_interpreter(nest, arrays, {"M": m, "N": j, "K": k}, code=code)


@pytest.mark.parametrize("registers", [("C",), ()])
def test_matmul_of_doubles_with_two_registers_per_vector(rng, registers):
    nest = matmul_nest(3, 32, 16, F64, registers=registers)
    code = compiled(nest)
    for m, k, j in ((3, 5, 32), (4, 5, 33)):
        arrays = {
            "A": random_array(rng, F64, (m, k)),
            "B": random_array(rng, F64, (k, j)),
            "C": random_array(rng, F64, (m, j)),
        }
        check_with_interpreter(nest, arrays, {"M": m, "N": j, "K": k}, code=code, rtol=1e-12)


def test_nested_reduction_loops_and_padding(level, rng):
    """A convolution: k outer with registers, kh and kw serial inside, then an unrolled row of short vectors."""
    x = argument("X", F32, (n("C"), n("H")), 0)
    w = argument("W", F32, (n("C"), c(3), n("F")), 1)
    y = argument("Y", F32, (n("H"), n("F")), 2)
    width = op("min", c(4), op("sub", n("H"), i("ht")))
    place = op("add", i("ht"), i("h"))
    value = Pad(Read("X", (i("c"), op("sub", op("add", place, i("r")), c(1)))), Const(0.0, F32))
    update = Update("Y", (place, i("f")), "add", op("mul", value, rd("W", i("c"), i("r"), i("f"))))
    vector = Loop("f", c(0), n("F"), 1, "vector", (update,), max_trip=32, lanes=16)
    unrolled = Loop("h", c(0), width, 1, "unroll", (vector,), max_trip=4)
    window = Loop("r", c(0), c(3), 1, "serial", (unrolled,))
    channels = Loop("c", c(0), n("C"), 1, "serial", (window,), registers=("Y",))
    nest = LoopNest(
        "f",
        ("C", "H", "F", *strides_of(x, w, y)),
        (x, w, y),
        (Loop("ht", c(0), n("H"), 4, "serial", (channels,)),),
    )
    verify_loops(nest)
    code = compiled(nest, level)
    for channels_n, h, f in ((3, 8, 32), (2, 5, 17), (1, 1, 1), (4, 9, 31)):
        arrays = {
            "X": random_array(rng, F32, (channels_n, h)),
            "W": random_array(rng, F32, (channels_n, 3, f)),
            "Y": np.ones((h, f), "f4"),
        }
        check_with_interpreter(nest, arrays, {"C": channels_n, "H": h, "F": f}, code=code)


def test_vector_reduction_inside_a_serial_one(level, rng):
    """Rows of dot products: k outer serial holds, kk inner vector reduces, i unrolled around it."""
    a = argument("A", F32, (n("M"), n("K"), n("L")), 0)
    y = argument("Y", F32, (n("M"),), 1)
    for order in ("unroll outside", "unroll inside"):
        update = Update("Y", (i("i"),), "add", rd("A", i("i"), i("k"), i("l")))
        if order == "unroll inside":
            rows = Loop("i", c(0), n("M"), 1, "unroll", (update,), max_trip=3)
            inner = Loop("l", c(0), n("L"), 1, "vector", (rows,), lanes=16, interleave=2)
        else:
            dots = Loop("l", c(0), n("L"), 1, "vector", (update,), lanes=16, interleave=2)
            inner = Loop("i", c(0), n("M"), 1, "unroll", (dots,), max_trip=3)
        outer = Loop("k", c(0), n("K"), 1, "serial", (inner,), registers=("Y",))
        nest = LoopNest("f", ("M", "K", "L", *strides_of(a, y)), (a, y), (outer,))
        verify_loops(nest)
        code = compiled(nest, level)
        for m, k, size in ((3, 4, 33), (2, 1, 16), (1, 3, 40), (3, 2, 1)):
            arrays = {"A": random_array(rng, F32, (m, k, size)), "Y": random_array(rng, F32, (m,))}
            check_with_interpreter(nest, arrays, {"M": m, "K": k, "L": size}, code=code)


def test_short_vector_reduction_and_unrolled_reduction(level, rng):
    x = argument("X", F32, (n("M"), n("N")), 0)
    s = argument("S", F32, (n("M"),), 1)
    for kind, lanes in (("vector", 16), ("unroll", 1)):
        update = Update("S", (i("i"),), "max", rd("X", i("i"), i("j")))
        short = Loop("j", c(0), n("N"), 1, kind, (update,), max_trip=40, lanes=lanes, registers=("S",), interleave=1)
        nest = LoopNest("f", ("M", "N", *strides_of(x, s)), (x, s), (Loop("i", c(0), n("M"), 1, "serial", (short,)),))
        code = compiled(nest, level)
        for size in (0, 1, 15, 16, 17, 33, 40):
            arrays = {"X": random_array(rng, F32, (3, size)), "S": random_array(rng, F32, (3,))}
            check_with_interpreter(nest, arrays, {"M": 3, "N": size}, code=code)


def test_outer_vector_loop_around_a_held_reduction(level, rng):
    """Column sums: lanes along j, the reduction inside."""
    x = argument("X", F32, (n("M"), n("N")), 0)
    s = argument("S", F32, (n("N"),), 1)
    update = Update("S", (i("j"),), "add", rd("X", i("i"), i("j")))
    rows = Loop("i", c(0), n("M"), 1, "serial", (update,), registers=("S",))
    nest = LoopNest(
        "f", ("M", "N", *strides_of(x, s)), (x, s), (Loop("j", c(0), n("N"), 1, "vector", (rows,), lanes=16, interleave=2),)
    )
    code = compiled(nest, level)
    for size in SIZES:
        arrays = {"X": random_array(rng, F32, (4, size)), "S": random_array(rng, F32, (size,))}
        check_with_interpreter(nest, arrays, {"M": 4, "N": size}, code=code)


def test_updates_of_the_same_buffer_that_cannot_be_held_stay_in_memory(rng):
    x = argument("X", F32, (n("N"),), 0)
    s = argument("S", F32, (n("N"),), 1)
    one_sum = Update("S", (c(0),), "add", rd("X", i("k")))
    bodies = (
        (one_sum, Update("S", (c(1),), "mul", rd("X", i("k")))),
        (Update("S", (c(0),), "add", op("mul", rd("S", c(1)), rd("X", i("k")))),),
        (Update("S", (i("k"),), "add", rd("X", i("k"))),),
        (If(op("gt", rd("X", i("k")), Const(0.0, F32)), (Update("S", (c(0),), "add", rd("X", i("k"))),)),),
        (If(op("gt", i("k"), c(2)), (Update("S", (c(0),), "add", rd("X", i("k"))),)),),
        (
            If(
                op("gt", n("N"), c(4)),
                (Update("S", (c(0),), "add", rd("X", i("k"))),),
                (Update("S", (c(0),), "mul", c32(2.0)),),
            ),
        ),
    )
    for body in bodies:
        nest = LoopNest("f", ("N", *strides_of(x, s)), (x, s), (Loop("k", c(0), n("N"), 1, "serial", body, registers=("S",)),))
        code = compiled(nest)
        for size in (2, 5, 9):
            arrays = {"X": random_array(rng, F32, (size,)), "S": random_array(rng, F32, (size,))}
            check_with_interpreter(nest, arrays, {"N": size}, code=code)


def c32(value):
    return Const(value, F32)


def test_masked_terms_of_a_reduction(level, rng):
    """A condition that varies with the lane, and an unrolled copy beyond its bound."""
    x = argument("X", F32, (n("N"),), 0)
    s = argument("S", F32, (), 1)
    positive = If(op("ge", op("mod", i("i"), c(3)), c(1)), (Update("S", (), "add", rd("X", i("i"))),))
    chosen = Update("S", (), "add", Select(op("lt", i("i"), c(20)), rd("X", i("i")), c32(0.5)))
    left_out = Update("S", (), "add", Select(op("lt", i("i"), c(20)), rd("X", i("i")), c32(0.0)))
    for body in ((positive,), (chosen,), (positive, chosen), (left_out,), (positive, left_out)):
        nest = LoopNest(
            "f",
            ("N", *strides_of(x)),
            (x, s),
            (Loop("i", c(0), n("N"), 1, "vector", body, lanes=16, interleave=2, registers=("S",)),),
        )
        code = compiled(nest, level)
        for size in SIZES:
            arrays = {"X": random_array(rng, F32, (size,)), "S": random_array(rng, F32, ())}
            check_with_interpreter(nest, arrays, {"N": size}, code=code, rtol=1e-4)


def test_register_buffers(level, rng):
    """A tile in registers: started, accumulated, finished with an epilogue."""
    a = argument("A", F32, (n("M"), n("K")), 0)
    b = argument("B", F32, (n("K"), n("N")), 1)
    y = argument("Y", F32, (n("M"), n("N")), 2)
    t = Buffer("T", F32, (c(3), c(32)), (c(128), c(4)), "register")
    at = (i("i"), i("j"))

    def each(*body):
        inner = Loop("j", c(0), n("N"), 1, "vector", body, max_trip=32, lanes=16)
        return Loop("i", c(0), n("M"), 1, "unroll", (inner,), max_trip=3)

    start = each(Store("T", at, c32(1.0)))
    product = op("mul", rd("A", i("i"), i("k")), rd("B", i("k"), i("j")))
    body = Loop("k", c(0), n("K"), 1, "serial", (each(Update("T", at, "add", product)),))
    finish = each(Store("Y", at, op("max", rd("T", *at), c32(0.0))))
    nest = LoopNest("f", ("M", "N", "K", *strides_of(a, b, y)), (a, b, y, t), (start, body, finish))
    verify_loops(nest)
    code = compiled(nest, level)
    for m, k, j in ((3, 5, 32), (2, 4, 17), (1, 1, 1), (3, 0, 30)):
        arrays = {
            "A": random_array(rng, F32, (m, k)),
            "B": random_array(rng, F32, (k, j)),
            "Y": np.zeros((m, j), "f4"),
        }
        check_with_interpreter(nest, arrays, {"M": m, "N": j, "K": k}, code=code)


@pytest.mark.parametrize("kind", ["serial", "vector", "unroll", "short vector"])
@pytest.mark.parametrize("condition", [None, op("gt", n("M"), c(2)), op("gt", i("k"), c(2))])
def test_accumulators_that_start_from_a_value(level, kind, condition, rng):
    """Also where the reduction is empty, or the update stands under a condition."""
    x, s = argument("X", F32, (n("M"), n("K")), 0), argument("S", F32, (n("M"),), 1)
    nest_body = (Update("S", (i("i"),), "add", rd("X", i("i"), i("k"))),)
    body = nest_body if condition is None else (If(condition, nest_body),)
    initial = (InitialValue("S", c32(2.5), (Store("S", (i("i"),), c32(2.5)),)),)
    short = 20 if kind in ("unroll", "short vector") else None
    loop_kind = "vector" if kind == "short vector" else kind
    lanes = 8 if loop_kind == "vector" else 1
    loop = Loop("k", c(0), n("K"), 1, loop_kind, body, short, lanes, 1, ("S",), initial)
    nest = LoopNest("f", ("M", "K", *strides_of(x, s)), (x, s), (Loop("i", c(0), n("M"), 1, "serial", (loop,)),))
    verify_loops(nest)
    code = compiled(nest, level)
    for m, k in ((1, 0), (2, 1), (3, 8), (4, 19)):
        arrays = {"X": random_array(rng, F32, (m, k)), "S": np.full(m, np.nan, "f4")}
        check_with_interpreter(nest, arrays, {"M": m, "K": k}, code=code)
