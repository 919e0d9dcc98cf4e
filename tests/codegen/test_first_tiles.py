"""The first tiles of a loop, which are whole, run in a loop of their own."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import polyc

DEPTHWISE = "def conv(float(C,H,W) I, float(C,3,3) F) -> (O) { O(c,h,w) +=! I(c,h+r,w+s) * F(c,r,s) }"
SIDES = (3, 4, 6, 7, 65, 66, 67, 130, 131, 150)


def exact(image: np.ndarray, taps: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))
    return np.einsum("chwrs,crs->chw", windows, taps)


def whole_numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-8, 8, shape).astype(np.float32)


def loops_of(target: str, *sizes: int) -> str:
    op = polyc.compile(DEPTHWISE, dynamic=True, target=target)
    return op.lower(whole_numbers(*sizes), whole_numbers(sizes[0], 3, 3)).as_text("loops")


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_no_loop_over_tiles_holds_both_whole_and_partial_ones(target: str) -> None:
    text = loops_of(target, 64, 300, 300)
    assert re.search(r"^ *vector.* < \d+;", text, re.MULTILINE)
    for test in re.findall(r"^ *if \((.*)\) \{$", text, re.MULTILINE):
        assert ">=" not in test, test  # what is left chooses among vectors of a partial tile


@pytest.mark.parametrize("first", [(64, 300, 300), (2, 20, 20)])
def test_each_tile_runs_once_at_any_size(first: tuple[int, int, int]) -> None:
    op = polyc.compile(DEPTHWISE, dynamic=True)
    taps = whole_numbers(64, 3, 3)
    op(whole_numbers(*first), taps[: first[0]])
    for height, width in product(SIDES, SIDES):
        image = whole_numbers(2, height, width)
        np.testing.assert_array_equal(op(image, taps[:2]), exact(image, taps[:2]))


def test_extents_that_leave_nothing() -> None:
    op = polyc.compile("def f(float(N,D) X, float(3) F) -> (Y) { Y(n,d) +=! X(n,d+r) * F(r) }", dynamic=True)
    op(whole_numbers(8, 70), whole_numbers(3))
    assert op(whole_numbers(8, 2), whole_numbers(3)).shape == (8, 0)
