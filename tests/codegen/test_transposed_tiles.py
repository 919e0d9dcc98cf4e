"""Register tiles whose lanes lie across the output: stored as rows of transposed blocks."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.codegen.nests.parts import Tiling
from polyc.codegen.nests.tiles import split_partial_tiles
from polyc.codegen.objects.jit import assembly
from polyc.ir.expr import Const
from polyc.ir.loops import InitialValue, Loop, LoopNest, Store, Update
from polyc.ir.types import F32, F64, I32

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of, target
from .test_shuffles import Fenced


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


def transposed_tile(dtype, mr, nr, lanes, split=False, initial=False):
    """``C[j, i] += A[k, i] * B[k, j]`` in tiles of `mr` rows i and `nr` lanes j, for any sizes."""
    a = argument("A", dtype, (n("K"), n("M")), 0)
    b = argument("B", dtype, (n("K"), n("N")), 1)
    out = argument("C", dtype, (n("N"), n("M")), 2)
    row, lane = op("add", i("i0"), i("i")), op("add", i("j0"), i("j"))
    bound_i = op("min", c(mr), op("sub", n("M"), i("i0")))
    bound_j = op("min", c(nr), op("sub", n("N"), i("j0")))

    def tile(node):
        vector = Loop("j", c(0), bound_j, 1, "vector", (node,), max_trip=nr, lanes=lanes)
        return Loop("i", c(0), bound_i, 1, "unroll", (vector,), max_trip=mr)

    start = ()
    if initial:
        zero = Const(0 if dtype is I32 else 0.0, dtype)
        start = (InitialValue("C", zero, (tile(Store("C", (lane, row), zero)),)),)
    update = Update("C", (lane, row), "add", op("mul", rd("A", i("k"), row), rd("B", i("k"), lane)))
    loop = Loop("k", c(0), n("K"), 1, "serial", (tile(update),), registers=("C",), initial=start)
    outer = Loop("i0", c(0), n("M"), mr, "serial", (Loop("j0", c(0), n("N"), nr, "serial", (loop,)),))
    body = split_partial_tiles((outer,), Tiling()) if split else (outer,)
    return LoopNest("f", ("M", "N", "K", *strides_of(a, b, out)), (a, b, out), body)


@pytest.mark.pairs
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("mr, vectors", [(2, 1), (3, 2), (6, 2), (8, 1), (14, 1), (16, 1)])
@pytest.mark.parametrize("dtype", [F32, F64, I32], ids=str)
def test_tiles_across_the_output(level, mr, vectors, split, dtype):
    rng = np.random.default_rng(9)
    lanes = target(level).lanes(dtype.itemsize)
    nr = lanes * vectors
    nest = transposed_tile(dtype, mr, nr, lanes, split, initial=split)
    code = compiled(nest, level)
    for m, k in ((mr, nr), (mr, nr - 1), (mr - 1, nr), (2 * mr + 1, nr + 1), (1, 1)):
        a, b = random_array(rng, dtype, (5, m)), random_array(rng, dtype, (5, k))
        arrays = {"A": a, "B": b, "C": random_array(rng, dtype, (k, m))}
        check_with_interpreter(nest, arrays, {"M": m, "N": k, "K": 5}, code=code, rtol=1e-4)


def test_nothing_beside_the_tile_is_written(level):
    lanes = target(level).lanes(4)
    code, fence = compiled(transposed_tile(F32, 6, 2 * lanes, lanes, split=True), level), Fenced()
    for m, k in ((6, 2 * lanes), (7, 2 * lanes + 3), (5, lanes), (13, 1)):
        for at_end in (False, True):
            whole = fence.place(np.zeros((k, m + 3), "f4"), at_end)
            out = whole[:, 3:] if at_end else whole[:, :m]
            a, b = np.ones((4, m), "f4"), np.ones((4, k), "f4")
            code.run({"A": a, "B": b, "C": out}, {"M": m, "N": k, "K": 4})
            assert (out == 4).all() and whole.sum() == 4 * m * k


def test_whole_tiles_are_transposed_in_registers(level):
    lanes = target(level).lanes(4)
    code = assembly(compiled(transposed_tile(F32, 6, lanes, lanes, split=True, initial=True), level).text, target(level))
    assert "unpck" in code
