"""Versions of one program that differ in some loops only are compiled as one nest."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.shared_versions import share_versions
from polyc.driver import stages
from polyc.ir.expr import Call, Expr, Index, Read, Size, int_const
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store
from polyc.ir.types import F32
from polyc.ir.versions import take_version
from polyc.ir.walk import walk_nodes
from polyc.scheduler.size_classes import SizeClasses, Version
from tests.codegen.support import LEVELS

CONV = "def conv(float(N,C,H,W) I, float(K,C,3,3) F) -> (O) { O(n,k,h,w) +=! I(n,c,h+r,w+s) * F(k,c,r,s) }"


def cost(value: int | str) -> Expr:
    return Size(value) if isinstance(value, str) else int_const(value)


def store(buffer: str, value: Expr) -> Store:
    return Store(buffer, (Index("i"),), value)


def over_rows(*body: Node, kind: str = "serial", lanes: int = 1) -> Loop:
    return Loop("i", int_const(0), Size("N"), 1, kind, body, lanes=lanes)  # type: ignore[arg-type]


def nest(*body: Node, **changes: object) -> LoopNest:
    shape, strides = (Size("N"),), (int_const(4),)
    buffers = [Buffer(name, F32, shape, strides, "argument", n) for n, name in enumerate("XYZ")]
    return replace(LoopNest("f", ("N", "M"), tuple(buffers), body), **changes)  # type: ignore[arg-type]


X = Read("X", (Index("i"),))
DOUBLE, SQUARE = Call("add", (X, X)), Call("mul", (X, X))
FIRST = nest(over_rows(store("Y", X), store("Z", DOUBLE), store("Y", Call("neg", (X,)))))
SECOND = nest(over_rows(store("Y", X), store("Z", SQUARE), store("Y", Call("neg", (X,)))))


def run(made: LoopNest, m: int) -> np.ndarray:
    arrays = [np.arange(5, dtype=np.float32) + 1, np.zeros(5, np.float32), np.zeros(5, np.float32)]
    assert interpret_loops(made, arrays, {"N": 5, "M": m}) == []
    return arrays[2]


def count_stores(made: LoopNest) -> int:
    return sum(isinstance(node, Store) for node in walk_nodes(made.body))


def test_what_two_versions_have_in_common_is_there_once() -> None:
    (shared,), places = share_versions([FIRST, SECOND], [Size("M"), int_const(2)])
    assert places == [0, 0] and count_stores(shared) == 4
    np.testing.assert_array_equal(run(shared, 2), [2, 4, 6, 8, 10])
    np.testing.assert_array_equal(run(shared, 3), [1, 4, 9, 16, 25])


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("costs", [(5, 5, 5), ("M", 5, 3), (4, "M", 9), (6, 7, "M"), ("M", 3, "M")])
def test_each_call_runs_the_version_of_least_cost(costs: tuple[int | str, ...], order: tuple[int, ...]) -> None:
    apart = nest(over_rows(store("Z", int_const(7))))
    nests, formulas = ([of[n] for n in order] for of in ([FIRST, SECOND, apart], [cost(c) for c in costs]))
    shared, places = share_versions(nests, formulas)
    assert len(shared) == 2
    for m in range(10):
        number = take_version(formulas, {"N": 5, "M": m})
        np.testing.assert_array_equal(run(shared[places[number]], m), run(nests[number], m))


@pytest.mark.parametrize(
    "other",
    [
        nest(over_rows(store("Y", SQUARE))),
        replace(SECOND, buffers=tuple(replace(b, space="shared") if b.name == "X" else b for b in SECOND.buffers)),
        replace(SECOND, parameters=("M", "N")),
        replace(SECOND, body=(over_rows(*SECOND.body[0].body, kind="vector", lanes=4),)),  # type: ignore[union-attr]
    ],
    ids=["nothing in common", "other buffers", "other parameters", "other loops"],
)
def test_versions_that_share_little_stay_apart(other: LoopNest) -> None:
    assert share_versions([FIRST, other], [Size("M"), int_const(2)]) == ([FIRST, other], [0, 1])


def test_no_branch_goes_into_vector_loops() -> None:
    first, second = (
        nest(*FIRST.body, *SECOND.body, over_rows(store("Y", DOUBLE), store("Z", value), kind="vector", lanes=4))
        for value in (DOUBLE, SQUARE)
    )
    (shared,), _ = share_versions([first, second], [Size("M"), int_const(2)])
    assert isinstance(shared.body[2], If)


@pytest.mark.parametrize(("target", "side", "results"), [("x86-64-v4", 300, 24), ("x86-64-v3", 300, 24)])
def test_two_tiles_of_a_filtered_convolution_transform_in_one_place(
    target: str, side: int, results: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = ({"N": 1, "C": 64, "H": h, "W": h, "K": k} for h, k in ((300, 16), (side, results)))
    classes = SizeClasses((Version(many, 1), Version(few, 1)), (int_const(20), Size("K")))
    monkeypatch.setattr(stages, "find_size_classes", lambda *_: classes)
    op = polyc.compile(CONV, dynamic=True, target=target)
    found = op.lower(("f32", (1, 64, 58, 58)), ("f32", (64, 64, 3, 3)))
    nests = [found.nest, found.others[0].nest]
    (shared,), _ = share_versions(nests, found.costs)
    stores, of_first = (
        [node for node in walk_nodes(n.body) if isinstance(node, Store) and node.buffer != "O.products"]
        for n in (shared, found.nest)
    )
    assert 16 < len(stores) < 1.5 * len(of_first)
    if target not in LEVELS:
        return
    values = np.random.default_rng(0)
    for n, c, h, w, k in ((1, 5, 9, 11, 3), (2, 17, 45, 43, 33), (1, 3, 50, 41, 7), (1, 8, 3, 100, 19), (0, 3, 5, 5, 2)):
        images, taps = values.standard_normal((n, c, h, w), np.float32), values.standard_normal((k, c, 3, 3), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
        wanted = np.einsum("nchwrs,kcrs->nkhw", windows, taps, optimize=True)
        np.testing.assert_allclose(op(images, taps), wanted, rtol=1e-3, atol=1e-3)
