"""Lanes that read one element in runs: whole vectors are loaded and repeated, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.codegen.objects.jit import assembly
from polyc.ir.expr import Const, Expr, Select
from polyc.ir.loops import Loop, LoopNest, Store
from polyc.ir.types import DTYPES, F32, DType
from polyc.records import replace

from .support import LEVELS, argument, c, compiled, i, n, op, random_array, rd, strides_of, target
from .test_shuffles import Fenced

SIZES = (1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 50, 71)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def repeated(dtype: DType, run: int, begin: Expr, shift: int, value: Expr | None = None) -> LoopNest:
    """``vector j in begin:N { Y[j] = X[(j + shift) // run] }``."""
    x, y = argument("X", dtype, (n("M"),), 0), argument("Y", dtype, (n("N"),), 1)
    read = rd("X", op("floordiv", op("add", i("j"), c(shift)), c(run)))
    if value is not None:
        read = Select(op("lt", op("add", i("j"), c(shift)), op("mul", n("M"), c(run))), read, value)
    loop = Loop("j", begin, n("N"), 1, "vector", (Store("Y", (i("j"),), read),), lanes=8, interleave=2)
    return LoopNest("f", ("N", "M", "B", *strides_of(x, y)), (x, y), (loop,))


@pytest.mark.pairs
@pytest.mark.parametrize(("begin", "shift"), [("known", 0), ("known", 1), ("unknown", 0), ("unknown", 3)])
@pytest.mark.parametrize(
    ("name", "run"),
    [*(("f32", run) for run in (2, 3, 4, 7, 9)), *((name, run) for name in ("f64", "i8", "bool", "u16") for run in (3, 4))],
)
def test_runs_stay_between_the_fences(level, rng, name, run, shift, begin):
    dtype, fence = DTYPES[name], Fenced()
    code = compiled(repeated(dtype, run, c(0) if begin == "known" else n("B"), shift), level)
    for size in SIZES:
        for first in (0,) if begin == "known" else range(min(size, 4)):
            low, high = (first + shift) // run, (size - 1 + shift) // run
            values = random_array(rng, dtype, (high + 1,))
            for at_end in (False, True):
                x = fence.place(values, at_end) if low == 0 or at_end else values
                y = np.zeros(size + 1, dtype.numpy)
                code.run({"X": x, "Y": y[:size]}, {"N": size, "M": len(values), "B": first})
                np.testing.assert_array_equal(y[first:size], values[(np.arange(first, size) + shift) // run])
                assert not y[size]
                assert not y[:first].any()


@pytest.mark.parametrize("run", [2, 3, 4])
def test_runs_under_a_condition_stay_between_the_fences(level, rng, run):
    fence = Fenced()
    code = compiled(repeated(F32, run, c(0), 1, Const(-1.0, F32)), level)
    for size in SIZES:
        for extent in range(1, (size + 1) // run + 2):
            values = rng.standard_normal(extent).astype("f4")
            places = (np.arange(size) + 1) // run
            want = np.where(places < extent, values[np.minimum(places, extent - 1)], -1)
            for at_end in (False, True):
                y = np.zeros(size, "f4")
                code.run({"X": fence.place(values, at_end), "Y": y}, {"N": size, "M": extent, "B": 0})
                np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("run", [2, 3, 4])
@pytest.mark.parametrize("chosen", [0, 1])
def test_a_condition_may_leave_the_first_lane_of_a_run_out(level, rng, run, chosen):
    """What that lane does not read, the second one may: all of the run was taken for left out."""
    x, y = argument("X", F32, (n("M"),), 0), argument("Y", F32, (n("N"),), 1)
    read = rd("X", op("floordiv", i("j"), c(run)))
    value = Select(op("eq", op("mod", i("j"), c(2)), c(chosen)), read, Const(-1.0, F32))
    loop = Loop("j", c(0), n("N"), 1, "vector", (Store("Y", (i("j"),), value),), lanes=8, interleave=2)
    code = compiled(LoopNest("f", ("N", "M", *strides_of(x, y)), (x, y), (loop,)), level)
    for size in SIZES:
        values, places = rng.standard_normal((size - 1) // run + 1).astype("f4"), np.arange(size)
        result = np.zeros(size, "f4")
        code.run({"X": values, "Y": result}, {"N": size, "M": len(values)})
        np.testing.assert_array_equal(result, np.where(places % 2 == chosen, values[places // run], -1))


def test_a_run_of_two_gathers_nothing(level):
    assert "gather" not in assembly(compiled(repeated(F32, 2, c(0), 0), level).text, target(level))


def stepped(dtype: DType, step: int, length: int, begin: Expr, shift: int) -> LoopNest:
    """``vector j in begin:N { Y[j] = X[(step * j + shift) // length] }``."""
    x, y = argument("X", dtype, (n("M"),), 0), argument("Y", dtype, (n("N"),), 1)
    read = rd("X", op("floordiv", op("add", op("mul", c(step), i("j")), c(shift)), c(length)))
    loop = Loop("j", begin, n("N"), 1, "vector", (Store("Y", (i("j"),), read),), lanes=8, interleave=2)
    return LoopNest("f", ("N", "M", "B", *strides_of(x, y)), (x, y), (loop,))


@pytest.mark.pairs
@pytest.mark.parametrize(("begin", "shift"), [("known", 0), ("known", 7), ("unknown", 0), ("unknown", 5)])
@pytest.mark.parametrize(
    ("name", "step", "length"),
    [("f32", 10, 33), ("f32", 2, 3), ("f32", 1, 9), ("f32", 3, 2), ("f32", 17, 9), ("f32", 5, 2), ("f64", 2, 7), ("i32", 3, 4)],
)
def test_steps_of_any_length_stay_between_the_fences(level, rng, name, step, length, begin, shift):
    dtype, fence = DTYPES[name], Fenced()
    code = compiled(stepped(dtype, step, length, c(0) if begin == "known" else n("B"), shift), level)
    for size in SIZES:
        for first in (0,) if begin == "known" else range(min(size, 4)):
            places = (step * np.arange(first, size) + shift) // length
            values = random_array(rng, dtype, (places[-1] + 1,))
            for at_end in (False, True):
                y = np.zeros(size + 1, dtype.numpy)
                code.run({"X": fence.place(values, at_end), "Y": y[:size]}, {"N": size, "M": len(values), "B": first})
                np.testing.assert_array_equal(y[first:size], values[places])
                assert not y[size]


def test_a_picture_that_grows_by_a_part_gathers_nothing(level):
    text = assembly(compiled(stepped(F32, 10, 33, n("B"), 0), level).text, target(level))
    assert "gather" not in text
    assert ("vperm" in text) == (level != "x86-64-v2")


def neighbours(dtype: DType, place: Expr, begin: Expr) -> LoopNest:
    """``vector j in begin:N { Y[j] = X[place] }``."""
    x, y = argument("X", dtype, (n("M"),), 0), argument("Y", dtype, (n("N"),), 1)
    loop = Loop("j", begin, n("N"), 1, "vector", (Store("Y", (i("j"),), rd("X", place)),), lanes=8, interleave=2)
    return LoopNest("f", ("N", "M", "B", *strides_of(x, y)), (x, y), (loop,))


PLACES = {
    "neighbours": lambda j: j // 2 + 2 * (j % 2),
    "backwards": lambda j: 40 - j // 2 + 3 * (j % 4),
    "three": lambda j: (j + 1) // 3 + j % 3 + j,
    "far": lambda j: 9 * (j % 4) + j,
    "one of two": lambda j: j % 2,
}


@pytest.mark.pairs
@pytest.mark.parametrize("begin", ["known", "unknown"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["f32", "f64", "u16", "i8"])
def test_sums_of_quotients_and_remainders_stay_between_the_fences(level, rng, name, place, begin):
    dtype, fence, of = DTYPES[name], Fenced(), PLACES[place]
    code = compiled(neighbours(dtype, of(i("j")), c(0) if begin == "known" else n("B")), level)
    for size in SIZES:
        for first in (0,) if begin == "known" else range(min(size, 4)):
            places = np.array([of(j) for j in range(first, size)])
            values = random_array(rng, dtype, (max(places) + 1,))
            for at_end in (False, True):
                x = fence.place(values, at_end) if at_end or not min(places) else values
                y = np.zeros(size + 1, dtype.numpy)
                code.run({"X": x, "Y": y[:size]}, {"N": size, "M": len(values), "B": first})
                np.testing.assert_array_equal(y[first:size], values[places])
                assert not y[size] and not y[:first].any()


def test_neighbours_of_a_picture_that_doubles_gather_nothing() -> None:
    nest = neighbours(F32, PLACES["neighbours"](i("j")), c(0))
    (loop,) = nest.body
    assert isinstance(loop, Loop)
    nest = replace(nest, body=(replace(loop, upper=c(64)),))
    text = assembly(compiled(nest, "x86-64-v4").text, target("x86-64-v4"))
    assert "gather" not in text and "vperm" in text
