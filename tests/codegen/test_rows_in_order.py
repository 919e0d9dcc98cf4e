"""Streamed transposes of short rows go through memory in its order, and ask for what comes next by way of both caches."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from tests.codegen.test_staging import LETTERS, TYPES, check_offsets, numbers, permutation, small_cache

__all__ = ["small_cache"]

CHANNELS_FIRST = (0, 3, 1, 2)


def loops(axes: tuple[int, ...], shape: tuple[int, ...], target: str) -> str:
    x = np.empty(shape, np.float32)
    return polyc.compile(permutation(axes), target=target).lower(x).as_text("loops")


@pytest.mark.parametrize(("target", "lanes"), [("x86-64-v4", 16), ("x86-64-v3", 8), ("x86-64-v2", 4)])
def test_a_group_of_rows_fills_lines_of_the_result(target: str, lanes: int):
    lines = [line.strip() for line in loops(CHANNELS_FIRST, (32, 56, 56, 64), target).splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("prefetch"))
    assert lines[first - 4].endswith("< 3136; c1 += 16) {")  # rows
    assert lines[first - 1].endswith(f"< 64; c3_0 += {lanes}) {{")  # strips of them
    assert lines[first].endswith(f"+ 2048], {64 * lanes} bytes to L2;")  # 8 KiB on
    assert lines[first + 1].endswith(f"+ 1024], {64 * lanes} bytes;")  # 4 KiB on
    assert lines[first + 3].startswith(f"vector(lanes {lanes}, at most 16)")


def test_what_strips_leave_of_rows_is_streamed_and_asked_for():
    text = loops(CHANNELS_FIRST, (64, 56, 56, 56), "x86-64-v4")
    whole = text[: text.index("max(0, -c")]
    assert "stream Y[c0, c3 + 48, c2 + c4 + c4_0]" in whole
    assert "1216 bytes to L2;" in whole  # three times are 16 rows of 224 bytes


def test_long_rows_come_to_the_first_level_cache_by_strips():
    text = loops(CHANNELS_FIRST, (32, 28, 28, 256), "x86-64-v4")
    assert "+ 5120], 1024 bytes to L2;" in text  # 16 rows and 4 KiB on
    assert "prefetch X[c0, c1 + c3_0_ahead + c4_0, c3_0 + 47], 4 bytes;" in text  # the end of the strip after the next


def test_rows_in_pieces_or_stored_as_usual_keep_their_order():
    for shape in ((32, 28, 28, 1024), (4, 56, 56, 64)):
        lines = [line.strip() for line in loops(CHANNELS_FIRST, shape, "x86-64-v4").splitlines()]
        groups = [n for n, line in enumerate(lines) if line.endswith("c4_0 += 16) {")]
        assert groups and not any(lines[n + 1].startswith("for (c3_0 = 0;") for n in groups)


CASES = [
    (CHANNELS_FIRST, (2, 16, 17, 64)),
    (CHANNELS_FIRST, (2, 16, 18, 40)),
    (CHANNELS_FIRST, (1, 16, 17, 56)),
    (CHANNELS_FIRST, (1, 16, 19, 256)),
    ((1, 0), (528, 48)),
    ((0, 2, 1), (3, 272, 33)),
]


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
