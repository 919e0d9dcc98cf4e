"""Strided windows: taps that read between each other's lanes share their loads, and touch nothing that no tap reads."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyc.codegen.emission.llvm import emit_llvm
from polyc.codegen.objects.jit import optimized_ir
from polyc.ir.expr import Expr, Select
from polyc.ir.loops import Loop, LoopNest, Store, Update
from polyc.ir.loops_reader import parse_loops
from polyc.ir.types import DTYPES, F32, DType

from .support import LEVELS, argument, c, compiled, i, n, op, random_array, rd, strides_of, target
from .test_shuffles import Fenced

SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 33)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def place(stride: int, tap: Expr) -> Expr:
    return op("add", op("mul", c(stride), i("j")), tap)


def written_out(dtype: DType, stride: int, taps: list[int]) -> LoopNest:
    """``vector j { Y[j] = X[stride*j + t0] + X[stride*j + t1] + … }``."""
    x, y = argument("X", dtype, (n("M"),), 0), argument("Y", dtype, (n("N"),), 1)
    total: Expr = rd("X", place(stride, c(taps[0])))
    for tap in taps[1:]:
        total = op("or" if dtype.kind == "b" else "add", total, rd("X", place(stride, c(tap))))
    loop = Loop("j", c(0), n("N"), 1, "vector", (Store("Y", (i("j"),), total),), lanes=8, interleave=2)
    return LoopNest("f", ("N", "M", *strides_of(x, y)), (x, y), (loop,))


def summed(stride: int, taps: int, size: int, is_masked: bool = False) -> LoopNest:
    """``for s < taps { vector j < size { Y[j] += X[stride*j + s] } }``, the sums in registers."""
    x, y = argument("X", F32, (n("M"),), 0), argument("Y", F32, (n("N"),), 1)
    value: Expr = rd("X", place(stride, i("s")))
    if is_masked:  # all of the last tap's lanes but the first are outside
        value = Select(op("lt", place(stride, i("s")), n("M")), value, op("neg", rd("X", c(0))))
    update = Update("Y", (i("j"),), "add", value)
    vector = Loop("j", c(0), c(size), 1, "vector", (update,), max_trip=size, lanes=8)
    loop = Loop("s", c(0), c(taps), 1, "serial", (vector,), registers=("Y",))
    return LoopNest("f", ("N", "M", *strides_of(x, y)), (x, y), (loop,))


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("name", "taps"),
    [
        *(("f32", taps) for taps in ([0, 1], [1, 0, 3], [0, 1, 2], [2, 1], [3, 0, 1, 2], [0, 2], [5, 1, 4, 2])),
        *((name, taps) for name in ("f64", "i8", "bool", "u16") for taps in ([0, 1], [5, 1, 4, 2])),
    ],
)
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_windows_in_one_statement_stay_between_the_fences(level, rng, stride, taps, name):
    dtype, fence = DTYPES[name], Fenced()
    code = compiled(written_out(dtype, stride, taps), level)
    for size in SIZES:
        values = random_array(rng, dtype, ((size - 1) * stride + max(taps) + 1,))
        want = values[taps[0] :: stride][:size]
        for tap in taps[1:]:
            part = values[tap::stride][:size]
            want = want | part if dtype.kind == "b" else (want + part).astype(want.dtype)
        for at_end in (False, True):
            y = np.zeros(size + 1, dtype.numpy)
            code.run({"X": fence.place(values, at_end), "Y": y[:size]}, {"N": size, "M": len(values)})
            np.testing.assert_array_equal(y[:size], want)
            assert not y[size]


def test_the_first_elements_of_lanes_are_not_touched_where_no_tap_reads_them(level, rng):
    fence = Fenced()
    code = compiled(written_out(F32, 3, [1, 2]), level)  # element 0 of every three is nobody's
    for size in SIZES:
        values = rng.standard_normal(3 * size).astype("f4")
        y = np.zeros(size, "f4")
        whole = fence.place(values[1:], False)  # X[1] is the first element behind the fence
        code.run({"X": _one_before(whole), "Y": y}, {"N": size, "M": 3 * size})
        np.testing.assert_array_equal(y, values[1::3] + values[2::3])


def _one_before(array: np.ndarray) -> np.ndarray:
    """The array that begins one element earlier; that element must not be touched."""
    interface = dict(array.__array_interface__)
    interface["data"] = (interface["data"][0] - array.itemsize, False)
    interface["shape"] = (len(array) + 1,)
    return np.asarray(type("Shifted", (), {"__array_interface__": interface, "kept": array})())


@pytest.mark.pairs
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("taps", [2, 3, 4, 5])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_sums_over_strided_windows_stay_between_the_fences(level, rng, stride, taps, is_masked):
    fence = Fenced()
    for size in SIZES:
        code = compiled(summed(stride, taps, size, is_masked), level)
        values = rng.standard_normal((size - 1) * stride + (1 if is_masked else taps)).astype("f4")
        padded = np.concatenate([values, np.full(taps + stride, -values[0], "f4")])
        want = np.zeros(size, "f4")
        for tap in range(taps):
            want += padded[tap::stride][:size]
        for at_end in (False, True):
            y = np.zeros(size, "f4")
            code.run({"X": fence.place(values, at_end), "Y": y}, {"N": size, "M": len(values)})
            np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)


PADDED = """nest f()
  argument X: f32[3, 8] strides (4, 12) at data[0]
  argument Y: f32[4, 8] strides (32, 4) at data[1]
  unroll(at most 4) for (i = 0; i < 4; i++) {
    vector(lanes 8, at most 8) for (j = 0; j < 8; j++) {
      Y[i, j] = pad(X[i - 1, j], 0.0:f32);
    }
  }
"""


@pytest.mark.parametrize("offset", [-1, 0])
def test_rows_that_are_padded_in_some_copies_of_a_loop_are_read_in_others_alone(level, rng, offset):
    """Row -1, or 3, is padding: its elements, between the lanes of other rows, may lie outside of the array."""
    text = PADDED if offset else PADDED.replace("X[i - 1, j]", "X[i, j]")
    code, fence = compiled(parse_loops(text), level), Fenced()
    for at_end in (False, True):
        values = rng.standard_normal((8, 3)).astype("f4")
        y = np.empty((4, 8), "f4")
        code.run({"X": fence.place(values, at_end).T, "Y": y})
        want = np.zeros((4, 8), "f4")
        want[-offset : 3 - offset] = values.T
        np.testing.assert_array_equal(y, want)


def test_two_taps_load_what_one_does():
    """32 sums of two neighbours are 8 vectors of 8 elements, read once each, besides the 4 that sums start from."""
    text = optimized_ir(emit_llvm(summed(2, 2, 32), target("host")), target("host"))
    assert len(re.findall(r"= load <8 x float>", text)) == 12
