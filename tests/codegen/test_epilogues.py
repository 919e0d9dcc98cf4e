"""Tiles that stay in registers from the reduction that makes them to the nest that uses them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyc.codegen.nests.epilogues import keep_epilogues
from polyc.codegen.nests.parts import Tiling
from polyc.codegen.nests.tiles import split_partial_tiles
from polyc.ir.expr import Const
from polyc.ir.loops import Buffer, If, InitialValue, Loop, LoopNest, Store, Update
from polyc.ir.types import F32
from polyc.ir.verify_loops import verify_loops

from .support import LEVELS, argument, c, check_with_interpreter, compiled, i, n, op, random_array, rd, strides_of, target

ZERO = Const(0.0, F32)


@pytest.fixture(params=LEVELS)
def level(request):
    return request.param


def expanded(node, mr, nr, lanes, rows, kind="unroll"):
    vector = Loop("j", c(0), c(nr), 1, "vector", (node,), max_trip=nr, lanes=lanes)
    return Loop("i", c(0), rows, 1, kind, (vector,), max_trip=mr if kind == "unroll" else None)


def tile_and_epilogue(mr=6, nr=32, lanes=16, value=None, read=None, constant_k=None):
    """``H = X * W; Y = max(H + b, 0)`` by tiles of `mr` rows, with `H` a tile in memory."""
    x, w = argument("X", F32, (n("M"), n("K")), 0), argument("W", F32, (n("K"), c(nr)), 1)
    b, y = argument("b", F32, (c(nr),), 2), argument("Y", F32, (n("M"), c(nr)), 3)
    h = Buffer("H", F32, (c(mr), c(nr)), (c(4 * nr), c(4)), "thread")
    row, rows = op("add", i("m"), i("i")), op("min", c(mr), op("sub", n("M"), i("m")))
    update = Update("H", (i("i"), i("j")), "add", op("mul", rd("X", row, i("k")), rd("W", i("k"), i("j"))))
    start = InitialValue("H", ZERO, (expanded(Store("H", (i("i"), i("j")), ZERO), mr, nr, lanes, rows, "serial"),))
    reduction = Loop("k", c(0), constant_k or n("K"), 1, "serial", (expanded(update, mr, nr, lanes, rows),))
    reduction = replace(reduction, registers=("H",), initial=(start,))
    value = value or op("max", op("add", read or rd("H", i("i"), i("j")), rd("b", i("j"))), ZERO)
    epilogue = expanded(Store("Y", (row, i("j")), value), mr, nr, lanes, rows, "serial")
    body = (Loop("m", c(0), n("M"), mr, "parallel", (reduction, epilogue)),)
    return LoopNest("f", ("M", "K", *strides_of(x, w, b, y)), (x, w, b, y, h), body)


def kept(nest):
    new = keep_epilogues(nest)
    held = frozenset(b.name for b in new.buffers if b.space == "register")
    return replace(new, body=split_partial_tiles(new.body, Tiling(held)))


def test_epilogues_compute_the_same(level):
    lanes, rng = target(level).lanes(4), np.random.default_rng(2)
    nest = tile_and_epilogue(4, 2 * lanes, lanes)
    new = kept(nest)
    verify_loops(new)
    assert new.buffer("H").space == "register"
    (versioned,) = new.body[0].body
    assert isinstance(versioned, If) and [loop.kind for loop in versioned.body] == ["serial", "unroll"]
    for one in (nest, new):
        code = compiled(one, level)
        for m, k in ((0, 3), (1, 1), (3, 5), (4, 2), (9, 0), (16, 7)):
            shapes = {"X": (m, k), "W": (k, 2 * lanes), "b": (2 * lanes,), "Y": (m, 2 * lanes)}
            arrays = {name: random_array(rng, F32, shape) for name, shape in shapes.items()}
            check_with_interpreter(one, arrays, {"M": m, "K": k}, code=code, threads=2)


@pytest.mark.parametrize(
    "nest",
    [
        tile_and_epilogue(read=rd("H", i("i"), op("sub", c(31), i("j")))),
        tile_and_epilogue(value=op("erf", op("erf", op("exp", rd("H", i("i"), i("j")))))),
    ],
    ids=["another element", "too long"],
)
def test_other_nests_read_memory(nest):
    assert keep_epilogues(nest) == nest


def test_a_tile_read_twice_stays_in_memory():
    nest = tile_and_epilogue()
    loop = nest.body[0]
    again = replace(nest, body=(replace(loop, body=(*loop.body, loop.body[1])),))
    assert keep_epilogues(again) == again
