"""The first tiles of a loop, which are whole, run in a loop of their own."""

from __future__ import annotations

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


def test_the_last_tile_of_known_rows_picks_every_second_element_out_of_vectors() -> None:
    """The last 8 of 56 maxima of 2×2 were under a mask that was known to be full, and of masked vectors elements two apart are
    read one by one: as many instructions as for the other 48."""
    program = "def pool(float(N,H,W) X) -> (Y) { Y(n,h,w) max=! X(n,2*h+r,2*w+s) where r in 0:2, s in 0:2 }"
    op = polyc.compile(program, target="x86-64-v3")
    image = whole_numbers(64, 112, 112)
    lowered = op.lower(image)
    assert "vinsertps" not in lowered.as_text("s") and "min(" not in lowered.as_text("loops")
    np.testing.assert_array_equal(op(image), image.reshape(64, 56, 2, 56, 2).max((2, 4)))


def test_values_of_a_single_tile_wrap_around_as_all_others_do() -> None:
    """Index arithmetic was simplified in values, too, as if integers had no end: ``2 * x / 2`` and constants of 70 bits."""
    text = """def f(int64(N,M) X) -> (Y) {
      Y(i,j) +=! 2 * X(i+r,j) / 2 + int64(r + j) * int64(7046029254386353131) where r in 0:2 }"""
    x = np.full((7, 90), (1 << 62) + 3, np.int64)
    x[:, ::3] = -5
    op = polyc.compile(text)
    expected = np.zeros((6, 90), np.int64)
    with np.errstate(over="ignore"):
        for r in range(2):
            expected += 2 * x[r : r + 6] // 2 + (r + np.arange(90)) * np.int64(7046029254386353131)
    np.testing.assert_array_equal(op(x), expected)
    falls = [r.message for r in op.remarks if r.kind == "missed" and r.pass_name == "schedule"]
    assert falls == []


def test_known_ends_of_tiles_are_stored_without_masks() -> None:
    """52 of 64 columns: 4 of the 8 lanes of a vector, of which a masked store of AVX2 takes AMD's processors 42 steps."""
    program = "def pool(float(N,H,W) X) -> (Y) { Y(n,h,w) max=! X(n,2*h+r,2*w+s) where r in 0:2, s in 0:2 }"
    op = polyc.compile(program, target="x86-64-v3")
    image = whole_numbers(64, 104, 104)
    assert "llvm.masked.store" not in op.lower(image).as_text("ll")
    np.testing.assert_array_equal(op(image), image.reshape(64, 52, 2, 52, 2).max((2, 4)))
