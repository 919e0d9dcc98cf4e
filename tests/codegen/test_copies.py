"""Copies: last tiles with constant extents, neighbouring loops as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyc.codegen.nests.coalesce import coalesce_copies
from polyc.codegen.nests.copies import copy_nest
from polyc.codegen.nests.tile_loops import split_last_tiles
from polyc.ir.expr import Cast, Const, Pad, Read
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, Loop, LoopNest, Store, Update
from polyc.ir.types import F32

from .support import c, check_with_interpreter, i, op, rd


def strided(name, dtype, shape, position=None, space="argument", gap=1):
    """A buffer of constant strides; `gap`: bytes of its first dimension by what they are without gaps."""
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(c(step))
        step *= extent
    strides = [c(int(strides[-1].value) * gap), *reversed(strides[:-1])] if strides else []
    return Buffer(name, dtype, tuple(map(c, shape)), tuple(strides), space, position)


def tiled(extents, tiles, inner_tiles=None):
    """``Y[j, i] = X[i, j]`` in tiles of both loops, the last ones cut by minima; perhaps with tiles inside the tiles."""
    (m, k), (tm, tk) = extents, tiles
    x, y = strided("X", F32, (m, k), 0), strided("Y", F32, (k, m), 1)
    row, column = op("add", i("a"), i("i")), op("add", i("b"), i("j"))
    bound_i, bound_j = op("min", op("sub", c(m), i("a")), c(tm)), op("min", op("sub", c(k), i("b")), c(tk))
    if inner_tiles:
        row = op("add", i("a"), op("add", i("a1"), i("i")))
        inner = op("min", op("sub", op("sub", c(m), i("a")), i("a1")), c(inner_tiles))
        inner = op("min", inner, op("sub", c(tm), i("a1")))
    else:
        inner = bound_i
    store = Store("Y", (column, row), rd("X", row, column))
    node = Loop("i", c(0), inner, 1, "vector", (store,), max_trip=inner_tiles or tm, lanes=4)
    node = Loop("j", c(0), bound_j, 1, "serial", (node,))
    if inner_tiles:
        node = Loop("a1", c(0), bound_i, inner_tiles, "serial", (node,))
    node = Loop("a", c(0), c(m), tm, "serial", (Loop("b", c(0), c(k), tk, "serial", (node,)),))
    return LoopNest("f", (), (x, y), (node,))


def loops_of(node):
    found = []
    for inner in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
        found += ([inner] if isinstance(inner, Loop) else []) + loops_of(inner)
    return found


@pytest.mark.parametrize("inner", [None, 8])
@pytest.mark.parametrize("extents", [(32, 32), (40, 33), (7, 5), (64, 9), (33, 65), (1, 1), (72, 47)])
def test_last_tiles_have_constant_extents(extents, inner):
    nest = tiled(extents, (32, 16), inner)
    new = split_last_tiles(nest)
    assert all(isinstance(loop.upper, Const) for loop in loops_of(new.body[0]))
    x = np.arange(extents[0] * extents[1], dtype="f4").reshape(extents)
    y = np.zeros(extents[::-1], "f4")
    assert interpret_loops(new, [x, y], {}) == []
    np.testing.assert_array_equal(y, x.T)


def test_only_free_stores_are_copies():
    nest = tiled((64, 32), (32, 16))
    buffers = {b.name: b for b in nest.buffers}
    loops, store = copy_nest(nest.body[0], buffers)

    def is_copy(new, loops=loops, buffers=buffers):
        node = new
        for loop in reversed(loops):
            node = replace(loop, body=(node,))
        return copy_nest(node, buffers) is not None

    assert is_copy(store)
    assert not is_copy(replace(store, value=op("add", store.value, rd("Y", *store.subscripts))))
    assert not is_copy(Update("Y", store.subscripts, "add", store.value))
    assert not is_copy(replace(store, subscripts=(c(0), store.subscripts[1])))
    assert not is_copy(replace(store, subscripts=(store.subscripts[0], op("add", i("b"), i("i")))))  # rows may meet
    assert not is_copy(replace(store, subscripts=(store.subscripts[0], op("mod", store.subscripts[1], c(8)))))
    assert not is_copy(store, buffers={**buffers, "X": replace(buffers["X"], may_alias=("Y",))})
    wide = tuple(replace(loop, upper=c(40), max_trip=40) if loop.var == "i" else loop for loop in loops)
    assert not is_copy(store, loops=wide)  # points beyond their tile are the next tile's


# -- coalescing


def weights(channels=5, r=3, s=3, outs=10, gap=1, packed="argument", value=None):
    """``P[c, r, s, k] = W[k, c, r, s]``."""
    w = strided("W", F32, (outs, channels, r, s), 0)
    p = strided("P", F32, (channels, r, s, outs), 1 if packed == "argument" else None, packed, gap)
    store = Store("P", (i("c"), i("r"), i("s"), i("k")), value or rd("W", i("k"), i("c"), i("r"), i("s")))
    node = Loop("k", c(0), c(outs), 1, "vector", (store,), lanes=4)
    for variable, extent in (("s", s), ("r", r), ("c", channels)):
        node = Loop(variable, c(0), c(extent), 1, "serial", (node,))
    return LoopNest("f", (), (w, p), (node,))


def depth(node):
    return 1 + depth(node.body[0]) if isinstance(node, Loop) else 0


@pytest.mark.parametrize("gap, loops", [(1, 2), (2, 3)])
def test_neighbouring_loops_run_as_one(gap, loops):
    nest = weights(gap=gap)
    new = coalesce_copies(nest)
    assert depth(new.body[0]) == loops
    w = np.arange(450, dtype="f4").reshape(10, 5, 3, 3)
    p = np.zeros((5 * gap, 3, 3, 10), "f4")[::gap]
    assert interpret_loops(new, [w, p], {}) == []
    np.testing.assert_array_equal(p, w.transpose(1, 2, 3, 0))
    if gap == 1:
        check_with_interpreter(new, {"W": w, "P": np.zeros_like(p)}, {})


def test_other_accesses_follow_the_merged_dimensions():
    nest = weights(packed="shared")
    w, p = nest.buffers
    out = strided("O", F32, (5, 3, 10), 1)
    reader = Update("O", (i("x"), i("y"), i("z")), "add", rd("P", i("x"), i("y"), op("sub", c(2), i("t")), i("z")))
    node = reader
    for variable, extent in (("z", 10), ("t", 3), ("y", 3), ("x", 5)):
        node = Loop(variable, c(0), c(extent), 1, "serial", (node,))
    new = coalesce_copies(LoopNest("f", (), (w, replace(out, position=1), p), (*nest.body, node)))
    assert [len(b.shape) for b in new.buffers] == [2, 3, 2]
    x = np.arange(450, dtype="f4").reshape(10, 5, 3, 3)
    y = np.zeros((5, 3, 10), "f4")
    interpret_loops(new, [x, y], {})
    np.testing.assert_array_equal(y, x.transpose(1, 2, 3, 0).sum(2))
    check_with_interpreter(new, {"W": x, "O": np.zeros_like(y)}, {})


def test_tiles_of_the_outer_loop_are_kept():
    """The outer of two loops may have any bounds."""
    nest = weights()
    loop = nest.body[0]
    shifted = replace(loop, lower=i("t"), upper=op("min", op("add", i("t"), c(2)), c(5)))
    new = coalesce_copies(replace(nest, body=(Loop("t", c(0), c(5), 2, "serial", (shifted,)),)))
    assert depth(new.body[0]) == 3
    w, p = np.arange(450, dtype="f4").reshape(10, 5, 3, 3), np.zeros((5, 3, 3, 10), "f4")
    interpret_loops(new, [w, p], {})
    np.testing.assert_array_equal(p, w.transpose(1, 2, 3, 0))


def test_loops_that_mean_something_alone_stay():
    x = rd("W", i("k"), i("c"), i("r"), i("s"))
    for value, loops in (
        (op("add", x, Cast(i("r"), F32)), 4),
        (Pad(Read("W", (i("k"), i("c"), i("r"), op("add", i("s"), c(1)))), Const(0.0, F32)), 4),
        (rd("W", i("k"), i("c"), i("s"), i("r")), 4),  # P alone could
        (rd("W", i("k"), i("c"), op("sub", c(2), i("r")), i("s")), 4),
        (rd("W", i("k"), i("c"), c(0), c(0)), 3),  # r and s run as one, over a single element of W
        (rd("W", i("k"), c(4), i("r"), i("s")), 3),
    ):
        nest = weights(value=value)
        new = coalesce_copies(nest)
        w = np.arange(450, dtype="f4").reshape(10, 5, 3, 3)
        expected, got = np.zeros((5, 3, 3, 10), "f4"), np.zeros((5, 3, 3, 10), "f4")
        interpret_loops(nest, [w, expected], {})
        interpret_loops(new, [w, got], {})
        np.testing.assert_array_equal(got, expected)
        check_with_interpreter(new, {"W": w, "P": np.zeros((5, 3, 3, 10), "f4")}, {})
        assert depth(new.body[0]) == loops, value
