"""Copies to pixels whose rows lie across the operand: blocks of each channel are turned, then interleaved."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from tests.codegen.test_staging import LETTERS, TYPES, check_offsets, numbers, permutation

LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


@pytest.mark.each
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("type", "shape"), [("float", (2, 3, 37, 21)), ("uint8", (1, 2, 70, 33)), ("double", (2, 3, 9, 20))])
def test_pixels_of_turned_images(type: str, shape: tuple[int, ...], level: str):
    x = numbers(shape, TYPES[type])
    op = polyc.compile(permutation((0, 3, 2, 1), type), target=level)
    in_blocks = "thread Y.pixels" in op.lower(x).as_text("loops")
    assert in_blocks == ((type, level) != ("double", "x86-64-v2"))  # of two lanes
    check_offsets(op, x, x.transpose(0, 3, 2, 1), 20 if x.itemsize < 8 else 24)


def test_the_nest_means_the_same():
    x = numbers((2, 3, 37, 21), "float32")
    lowered = polyc.compile(permutation((0, 3, 2, 1), value=" * 2"), target="x86-64-v4").lower(x)
    y = np.zeros((2, 21, 37, 3), np.float32)
    interpret_loops(lowered.nest, [x, y], dict(zip(LETTERS.upper(), x.shape, strict=False)))
    np.testing.assert_array_equal(y, x.transpose(0, 3, 2, 1) * 2)


def test_vectors_of_each_channel_are_stored_side_by_side():
    lowered = polyc.compile(permutation((0, 3, 2, 1)), target="x86-64-v4").lower(numbers((2, 3, 64, 64), "float32"))
    text = lowered.as_text("ll")
    assert "scatter" not in text and "gather" not in text


def test_pixels_of_fewer_bytes_than_what_they_are_made_of():
    """Rows of the operand are shorter than a block of pixels: both cut one loop, and each part has a name of its own."""
    x = np.random.default_rng(0).integers(-40, 250, (4, 4, 31, 16)).astype(np.float64)
    op = polyc.compile("""def f(double(4,4,31,16) X) -> (Y) {
        Y(i,j,k,l) = uint8(min(max(X(l,i,k,j), double(0)), double(255))) where i in 0:4, j in 0:16, k in 0:31, l in 0:4 }""")
    np.testing.assert_array_equal(op(x), np.clip(x, 0, 255).astype(np.uint8).transpose(1, 3, 2, 0))
