"""Streamed transposes of short rows go through memory in its order, and ask for what comes next by way of both caches."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from tests.codegen.test_staging import LETTERS, TYPES, check_offsets, numbers, permutation, small_cache

__all__ = ["small_cache"]

CHANNELS_FIRST = (0, 3, 1, 2)


CASES = [
    (CHANNELS_FIRST, (2, 16, 17, 64)),
    (CHANNELS_FIRST, (2, 16, 18, 40)),
    (CHANNELS_FIRST, (1, 16, 17, 56)),
    (CHANNELS_FIRST, (1, 16, 19, 256)),
    ((1, 0), (528, 48)),
    ((0, 2, 1), (3, 272, 33)),
]


@pytest.mark.each
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("axes", "shape"), CASES)
def test_results_at_any_distance_from_a_line(axes: tuple[int, ...], shape: tuple[int, ...], type: str, small_cache):
    x = numbers(shape, TYPES[type])
    check_offsets(polyc.compile(permutation(axes, type)), x, x.transpose(axes), max(4, x.itemsize))


def test_targets_without_masks(small_cache):
    for target in ("x86-64-v3", "x86-64-v2"):
        for axes, shape in CASES[1:3]:
            x = numbers(shape, "float32")
            check_offsets(polyc.compile(permutation(axes), target=target), x, x.transpose(axes), 12)


def test_the_nest_means_the_same(small_cache):
    axes, shape = CASES[0]
    x = numbers(shape, "float32")
    lowered = polyc.compile(permutation(axes), target="x86-64-v4").lower(x)
    assert "stream Y" in lowered.as_text("loops") and "to L2" in lowered.as_text("loops")
    y = np.zeros(x.transpose(axes).shape, np.float32)
    interpret_loops(lowered.nest, [x, y], dict(zip(LETTERS.upper(), shape, strict=False)))
    np.testing.assert_array_equal(y, x.transpose(axes))
