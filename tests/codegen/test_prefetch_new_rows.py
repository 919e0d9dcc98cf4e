"""Rows that an iteration reads whole before its tiles are asked for by the tiles of the iteration before."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import polyc
from polyc.driver import Lowered
from polyc.ir.expr import evaluate, int_const, substitute
from polyc.ir.loops import If, Loop, Prefetch
from polyc.ir.walk import walk_nodes
from tests.codegen.support import LEVELS

PIXELS = "def f(float(N, H, W, C) I, float(3, 3, C, K) F) -> (O) { O(n, h, w, k) +=! I(n, h + r, w + s, c) * F(r, s, c, k) }"
SIZES = {"N": 2, "H": 300, "W": 301, "C": 32, "K": 64}


@functools.cache
def lower(level: str = "x86-64-v4") -> list[Lowered]:
    first = polyc.compile(PIXELS, dynamic=True, target=level).lower(("f32", (2, 300, 301, 32)), ("f32", (3, 3, 32, 64)))
    return [first, *first.others]


def questions(lowered: Lowered) -> list[If]:
    """Conditions under which tiles ask for rows."""
    return [
        n
        for n in walk_nodes(lowered.nest.body)
        if isinstance(n, If) and len(n.body) == 1 and isinstance(n.body[0], Loop) and n.body[0].var.endswith(".next")
    ]


def test_tiles_share_out_the_rows_that_the_next_iteration_reads_first() -> None:
    (asking,) = (q for version in lower() for q in questions(version))
    (rows,) = asking.body
    assert isinstance(rows, Loop)
    requests = [n for n in walk_nodes((rows,)) if isinstance(n, Prefetch)]
    # Of four rows of a window that moves on by two, and of the image that comes next in the same place.
    assert len(requests) == 2 and {r.level for r in requests} == {2}
    asked: list[int] = []
    n_tiles = (SIZES["W"] + 1) // 2 - 1
    (tile,) = {v for v in ("c2", "c3", "c4") if substitute(rows.lower, {v: int_const(1)}) != rows.lower}
    step = next(n.step for v in lower() for n in walk_nodes(v.nest.body) if isinstance(n, Loop) and asking in n.body)
    for t in range(0, n_tiles, step):
        lower_bound, upper = (evaluate(substitute(e, {tile: int_const(t)}), SIZES) for e in (rows.lower, rows.upper))
        asked += range(lower_bound, upper)
    assert asked == list(range(302))


@pytest.mark.parametrize(
    ("changes", "asks"),
    [({}, True), ({"H": 60, "K": 8}, True), ({"C": 1024, "W": 600}, False), ({"H": 40, "W": 40}, False)],
    ids=["fits", "fewer", "wide", "near"],
)
def test_rows_that_do_not_fit_or_are_near_are_not_asked_for(changes: dict[str, int], asks: bool) -> None:
    (asking,) = (q for version in lower() for q in questions(version))
    assert bool(evaluate(asking.condition, SIZES | changes)) == asks


@pytest.mark.parametrize("level", [LEVELS[0], LEVELS[-1]])
def test_images_whose_rows_are_asked_for_give_the_same(level: str) -> None:
    kernel = lower(level)[0].compile()
    draw = np.random.default_rng(0)
    for n, h, w, c, k in [
        (2, 60, 301, 32, 8),  # rows that are asked for
        (1, 3, 3, 1, 1),
        (2, 5, 90, 17, 5),
        (3, 4, 7, 40, 33),
        (0, 9, 9, 8, 8),
        (1, 9, 9, 0, 8),
    ]:
        x, f = draw.integers(-3, 4, (n, h, w, c)).astype("f4"), draw.integers(-3, 4, (3, 3, c, k)).astype("f4")
        expected = sum(x[:, r : r + h - 2, s : s + w - 2] @ f[r, s] for r in range(3) for s in range(3))
        np.testing.assert_allclose(kernel(x, f), expected, atol=1e-3)
