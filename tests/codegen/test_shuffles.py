"""Strided access by contiguous loads and shuffles: right at every tail, and never outside the array."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from polyc.codegen.objects.jit import assembly
from polyc.ir.expr import Const, Pad, Read
from polyc.ir.loops import Loop, LoopNest, Store
from polyc.ir.types import DTYPES, F32

from .support import LEVELS, argument, c, compiled, i, n, op, random_array, rd, strides_of, target

SIZES = (1, 2, 3, 15, 16, 17, 31, 33, 50)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(3)


class Fenced:
    """Memory between two pages that must not be touched; arrays lie against one end."""

    def __init__(self) -> None:
        page = mmap.PAGESIZE
        self.map = mmap.mmap(-1, 12 * page)
        whole = np.frombuffer(self.map, np.uint8)
        address = whole.ctypes.data
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert protect(address, page, 0) == 0
        assert protect(address + 11 * page, page, 0) == 0
        self.inside = whole[page : 11 * page]

    def place(self, values: np.ndarray, at_end: bool) -> np.ndarray:
        """A copy of `values` against the end (or the start) of the memory between the fences."""
        size = values.nbytes
        memory = self.inside[len(self.inside) - size :] if at_end else self.inside[:size]
        array = memory.view(values.dtype).reshape(values.shape)
        array[...] = values
        return array


def strided_copy(dtype, factor, lanes=16, store=False):
    """``Y[i] = X[factor * i]`` (from the end where negative), or ``Y[factor * i] = X[i]``."""
    x = argument("X", dtype, (n("M") if not store else n("N"),), 0)
    y = argument("Y", dtype, (n("N") if not store else n("M"),), 1)
    far = op("mul", i("i"), c(abs(factor)))
    if factor < 0:
        far = op("sub", op("sub", n("M"), c(1)), far)
    body = (Store("Y", (far,), rd("X", i("i"))),) if store else (Store("Y", (i("i"),), rd("X", far)),)
    loop = Loop("i", c(0), n("N"), 1, "vector", body, lanes=lanes, interleave=2)
    return LoopNest("f", ("N", "M", *strides_of(x, y)), (x, y), (loop,))


@pytest.mark.pairs
@pytest.mark.parametrize("factor", [2, 3, 4, 9, -2, -3, -4, -7])
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "bool", "u16"])
def test_strided_reads_stay_between_the_fences(level, rng, name, factor):
    dtype, fence = DTYPES[name], Fenced()
    code = compiled(strided_copy(dtype, factor), level)
    for size in SIZES:
        extent = (size - 1) * abs(factor) + 1
        values = random_array(rng, dtype, (extent,))
        for at_end in (False, True):
            x, y = fence.place(values, at_end), np.zeros(size + 1, dtype.numpy)
            code.run({"X": x, "Y": y[:size]}, {"N": size, "M": extent})
            np.testing.assert_array_equal(y[:size], values[:: abs(factor)] if factor > 0 else values[::factor])
            assert not y[size]


@pytest.mark.parametrize("factor", [2, 3, 4, 9, -2, -4, -7])
@pytest.mark.parametrize("name", ["f32", "f64", "i8", "bool"])
def test_strided_writes_leave_what_lies_between(level, rng, name, factor):
    dtype, fence = DTYPES[name], Fenced()
    code = compiled(strided_copy(dtype, factor, store=True), level)
    for size in SIZES:
        extent = (size - 1) * abs(factor) + 1
        before, values = random_array(rng, dtype, (extent,)), random_array(rng, dtype, (size,))
        want = before.copy()
        want[:: abs(factor) if factor > 0 else factor] = values
        for at_end in (False, True):
            y = fence.place(before, at_end)
            code.run({"X": values, "Y": y}, {"N": size, "M": extent})
            np.testing.assert_array_equal(y, want)


def test_strided_window_with_a_border(level, rng):
    x, y = argument("X", F32, (n("M"),), 0), argument("Y", F32, (n("N"),), 1)
    window = Pad(Read("X", (op("sub", op("mul", i("i"), c(2)), c(3)),)), Const(-1.5, F32))
    loop = Loop("i", c(0), n("N"), 1, "vector", (Store("Y", (i("i"),), window),), lanes=16)
    code = compiled(LoopNest("f", ("N", "M", *strides_of(x, y)), (x, y), (loop,)), level)
    fence = Fenced()
    for size in SIZES:
        values = rng.standard_normal(max(1, 2 * size - 5)).astype("f4")
        padded = np.full(2 * size + 8, -1.5, "f4")
        padded[3 : 3 + len(values)] = values
        for at_end in (False, True):
            out = np.zeros(size, "f4")
            code.run({"X": fence.place(values, at_end), "Y": out}, {"N": size, "M": len(values)})
            np.testing.assert_array_equal(out, padded[: 2 * size : 2])


def test_a_stride_of_two_gathers_nothing(level):
    assert "gather" not in assembly(compiled(strided_copy(F32, 2), level).text, target(level))


@pytest.mark.parametrize("factor", [5, -9])
def test_whole_vectors_of_far_elements_are_not_gathered(factor):
    """One load a lane takes two thirds of a gather's time; where lanes are masked there are gathers still."""
    text = compiled(strided_copy(F32, factor), LEVELS[-1]).text
    assert text.count("load float") >= 32 and text.count("call <16 x float> @llvm.masked.gather") <= 2


def test_addresses_of_stores_apart_are_no_vectors_where_nothing_scatters():
    """Loads behind waited for each of them: with AVX2 a step at the border of a triangle took ten times as long."""
    text = compiled(strided_copy(F32, 5, lanes=8, store=True), "x86-64-v3").text
    assert "x ptr>" not in text and text.count("store float") >= 16
