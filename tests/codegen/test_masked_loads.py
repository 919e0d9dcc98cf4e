"""Lanes under tests of borders: loaded under masks, right at all sizes, and never outside of the array."""

from __future__ import annotations

import random

import numpy as np
import pytest

import polyc
from tests.property.guarded import place

TARGETS = ["x86-64-v2", "x86-64-v3", "host"]
POOL = """def pool({0}(H,W) X) -> (Y) {{
  Y(y,x) max=! pad(X(y+r-1, {1}*x+s-1), {2}) where r in 0:3, s in 0:3, y in 0:H, x in 0:W/{1} }}"""
HELD = "def held({0}(H,W) X) -> (Y) {{ Y(y,x) = pad(X(y-1,x-1), clamp) - pad(X(y+1,x+2), clamp) where y in 0:H, x in 0:W }}"
SIZES = [(1, 1), (1, 2), (2, 5), (3, 15), (2, 16), (3, 17), (1, 33), (4, 50), (2, 71)]
FIXED = [None, (1, 2), (3, 17), (2, 71)]
"""Sizes that a kernel is compiled for; None: for any, tried at all of `SIZES`."""


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 90, shape).astype(dtype)


@pytest.mark.pairs
@pytest.mark.parametrize("size", FIXED)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_maxima_of_windows_at_borders(dtype: str, step: int, target: str, size: tuple[int, int] | None) -> None:
    source = random.Random(step)
    pool = polyc.compile(POOL.format(dtype, step, 3), target=target, dynamic=size is None)
    for h, w in [size] if size else SIZES:
        x = place(numbers((h, w), dtype), source).array  # in some layout, against a page that may not be touched
        wide = np.pad(x, ((1, 1), (1, step + 1)), constant_values=3)
        wanted = np.lib.stride_tricks.sliding_window_view(wide, (3, 3)).max(axis=(2, 3))[:h, : w // step * step : step]
        np.testing.assert_array_equal(pool(x), wanted)


@pytest.mark.pairs
@pytest.mark.parametrize("size", FIXED)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_ends_of_rows_that_stand_in(dtype: str, target: str, size: tuple[int, int] | None) -> None:
    source = random.Random(3)
    held = polyc.compile(HELD.format(dtype), target=target, dynamic=size is None)
    for h, w in [size] if size else SIZES:
        x = place(numbers((h, w), dtype), source).array  # in some layout, against a page that may not be touched
        wide = np.pad(x, ((1, 1), (1, 2)), mode="edge")
        wanted = wide[:h, :w] - wide[2:, 3 : w + 3]
        np.testing.assert_array_equal(held(x), wanted)


@pytest.mark.optimised
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conditions_of_row_and_lane_together(dtype: str, target: str) -> None:
    """On AVX2, LLVM 22.1 loads parts of registers that such conditions mask off, and gives what is there."""
    source = random.Random(11)
    for h, w, shift, condition, read in (
        (6, 16, (0, 0), "i > 1 && j < 8", "x(i,j)"),
        (13, 13, (-1, 9), "i >= 1 && j + 9 < 13", "x(i-1,j+9)"),
        (8, 8, (1, 4), "i < 7 && j + 4 < 8", "x(i+1,j+4)"),
    ):
        kind = f"{dtype}({h},{w})"
        value = f"tanh(y(i,j) + ({condition} ? {read} : {dtype}(0)))"
        text = f"def moved({kind} x, {kind} y) -> (b) {{ b(i,j) = {value} where i in 0:{h}, j in 0:{w} }}"
        moved = polyc.compile(text, target=target)
        y = numbers((h, w), dtype) / 90
        at = np.indices((h, w)) + np.reshape(shift, (2, 1, 1))
        inside = (at >= 0).all(0) & (at[0] < h) & (at[1] < w)
        if shift == (0, 0):
            inside &= (at[0] > 1) & (at[1] < 8)
        for x in (y + 1, place(y + 1, source).array):
            wanted = np.tanh(y + np.where(inside, x[at[0] % h, at[1] % w], 0))
            np.testing.assert_allclose(moved(x, y), wanted, rtol=1e-5)


@pytest.mark.parametrize("text", [POOL.format("float", 2, 0.0), HELD.format("float")])
def test_borders_are_no_branches_of_lanes_with_avx(text: str) -> None:
    op = polyc.compile(text, target="x86-64-v3", dynamic=False)
    machine_code = op.lower(np.zeros((56, 56), "f4")).as_text("s")
    lanes = machine_code.count("vinsertps") + machine_code.count("vpinsrd")
    assert "vmaskmovps" in machine_code and lanes < 16, lanes
