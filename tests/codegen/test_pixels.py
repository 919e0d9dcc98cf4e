"""Copies to pixels whose rows lie across the operand: blocks of each channel are turned, then interleaved."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from tests.codegen.test_staging import LETTERS, TYPES, check_offsets, numbers, permutation

LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


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
