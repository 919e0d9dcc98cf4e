"""Blocks of columns for the cache are as long as the sizes of a call let them be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.block_sizes import fit_blocks
from polyc.codegen.objects.host import host_target
from polyc.driver import Lowered
from polyc.ir.expr import Call, Expr, Index, Read, Size, evaluate, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, Loop, LoopNest, Update
from polyc.ir.types import F32
from polyc.ir.walk import walk_nodes
from polyc.machine import select_model
from tests.codegen.support import LEVELS

IMAGES = "def f(float(N, C, H, W) I, float(K, C) F) -> (O) { O(n, k, h, w) +=! I(n, c, h, w) * F(k, c) }"


def block_loops(nest: LoopNest) -> list[Loop]:
    return [n for n in walk_nodes(nest.body) if isinstance(n, Loop) and n.var.endswith(".size")]


def block_of_call(lowered: Lowered, **sizes: int) -> int:
    (loop,) = block_loops(lowered.nest)
    return int(evaluate(loop.lower, sizes))


def images(**options: object) -> Lowered:
    return polyc.compile(IMAGES, dynamic=True, **options).lower(("f32", (1, 16, 300, 300)), ("f32", (64, 16)))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_blocks_of_long_sums_are_shorter(level: str) -> None:
    lowered = images(target=level)
    sizes = [block_of_call(lowered, N=1, C=c, H=1, W=90000, K=64) for c in (0, 3, 16, 64, 256, 1024, 100_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] > 4 * sizes[3] > 0 and sizes[-1] > 0
    assert sizes[4] * 256 * 4 <= (1 << 20) // 2


def test_threads_have_several_blocks_to_share() -> None:
    lowered = images(target="x86-64-v4")
    short, long = (block_of_call(lowered, N=1, C=3, H=1, W=w, K=64) for w in (10_000, 1_000_000))
    assert short < long
    assert 10_000 / short >= 4


def test_tiles_across_a_result_pass_blocks_where_sums_may_be_long() -> None:
    """Planned for 16 channels, all rows passed by for each tile of k: 128 of 289x289 took 1.7 times as long."""
    text = "def f(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
    lowered = polyc.compile(text, dynamic=True, target="x86-64-v3").lower(("f32", (1, 16, 99, 99)), ("f32", (16, 16, 3, 3)))
    found = next(v for v in (lowered, *lowered.others) if v.choices["S0"].way.vector == "k")
    assert block_loops(found.nest)


@pytest.fixture
def keep_threads() -> Iterator[None]:
    before = polyc.get_num_threads()
    yield
    polyc.set_num_threads(before)


SHAPES = [
    (1, 16, 300, 300, 64),
    (1, 3, 1, 40009, 7),
    (2, 1, 3, 1300, 16),
    (1, 267, 1, 5171, 5),
    (1, 0, 2, 40, 3),
    (1, 4, 0, 9, 9),
    (3, 5, 1, 1, 1),
]


@pytest.mark.parametrize("level", [LEVELS[0], LEVELS[-1]])
def test_blocks_of_any_length_compute_the_same(level: str, keep_threads: None) -> None:
    op = polyc.compile(IMAGES, dynamic=True, target=level)
    assert block_loops(op.lower(("f32", (1, 16, 300, 300)), ("f32", (64, 16))).nest)
    draw = np.random.default_rng(0)
    for threads, (n, c, h, w, k) in itertools.product((1, 2), SHAPES):
        polyc.set_num_threads(threads)
        x, f = draw.integers(-9, 9, (n, c, h, w)).astype("f4"), draw.integers(-9, 9, (k, c)).astype("f4")
        assert np.array_equal(op(x, f), np.einsum("nchw,kc->nkhw", x, f, optimize=True)), (n, c, h, w, k)


def hand_written(source: tuple[Expr, ...]) -> LoopNest:
    """``for x < W by 128 { for k < 4 { for t < min(W - x, 128) by 64 { for v { for c < C { O[k, x + t + v] += … } } } } }``,
    where … reads `source` of O itself or of A."""
    x, t, v, k, c = map(Index, ("x", "t", "v", "k", "c"))
    place = Call("add", (Call("add", (x, t)), v))
    read = Read("O", source) if source else Read("A", (c, place))
    rest = Call("sub", (Size("W"), Call("add", (t, x))))
    update = Update("O", (k, place), "add", read)
    zero = int_const(0)
    sums = Loop("c", zero, Size("C"), 1, "serial", (update,))
    vector = Loop("v", zero, Call("min", (rest, int_const(64))), 1, "serial", (sums,))
    tiles = Loop("t", zero, Call("min", (Call("sub", (Size("W"), x)), int_const(128))), 64, "serial", (vector,))
    rows = Loop("k", zero, int_const(4), 1, "serial", (tiles,))
    blocks = Loop("x", zero, Size("W"), 128, "serial", (rows,))
    buffers = (
        Buffer("A", F32, (Size("C"), Size("W")), (Call("mul", (Size("W"), int_const(4))), int_const(4)), "argument", 0),
        Buffer("O", F32, (int_const(4), Size("W")), (Call("mul", (Size("W"), int_const(4))), int_const(4)), "argument", 1),
    )
    return LoopNest("f", ("C", "W"), buffers, (blocks,))


def test_blocks_of_written_loops_are_fitted() -> None:
    nest = hand_written(())
    fitted = fit_blocks(nest, select_model(host_target(), "x86-64-v2"))
    assert block_loops(fitted)
    a = np.random.default_rng(0).integers(-9, 9, (5, 3001)).astype("f4")
    for form in (nest, fitted):
        out = np.zeros((4, 3001), "f4")
        assert not interpret_loops(form, [a, out], {"C": 5, "W": 3001})
        assert np.array_equal(out, np.broadcast_to(a.sum(0), (4, 3001)))


@pytest.mark.parametrize(
    "source",
    [
        (int_const(0), Call("sub", (Size("W"), int_const(1)))),
        (Index("k"), Call("add", (Call("add", (Index("x"), Index("t"))), Call("add", (Index("v"), int_const(1)))))),
    ],
    ids=["a column of all tiles", "the next tile's first column"],
)
def test_tiles_that_read_what_other_tiles_write_keep_their_order(source: tuple[Expr, ...]) -> None:
    nest = hand_written(source)
    assert fit_blocks(nest, host_target()) is nest
