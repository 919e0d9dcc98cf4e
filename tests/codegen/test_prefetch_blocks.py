"""Transposing copies prefetch the next block, row by row: hardware does not follow as many rows."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import polyc

LETTERS = "abcde"
CHANNELS_FIRST = (0, 3, 1, 2)
CHANNELS_LAST = (0, 2, 3, 1)


def source_of(axes: tuple[int, ...]) -> str:
    letters = LETTERS[: len(axes)]
    left = ", ".join(letters[a] for a in axes)
    return f"def permute(float({', '.join(letters.upper())}) X) -> (Y) {{ Y({left}) = X({', '.join(letters)}) }}"


@functools.cache
def operator(axes: tuple[int, ...], dynamic: bool) -> polyc.Operator:
    """Shared by shapes, so that one kernel serves all of them where it is dynamic."""
    return polyc.compile(source_of(axes), dynamic=dynamic)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_whole_tiles_of_any_size_ask_for_the_next_one_where_memory_is_far(level: str):
    """Each line was waited for: long transposes in kernels for any sizes took up to twice as long as in those for one."""
    lowered = polyc.compile(source_of((1, 0)), target=level, dynamic=True).lower(numbers(1200, 1300))
    lines = [line.strip() for line in lowered.as_text("loops").splitlines()]
    asking = next(n for n, line in enumerate(lines) if line.startswith("prefetch X["))
    assert " < A * B > 262144 ? " in lines[asking - 1]
    assert not any("min(" in line for line in lines[asking : asking + 3])


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((0, 2, 1), (500, 40, 48)),
        ((0, 2, 1), (300, 33, 67)),
        (CHANNELS_FIRST, (7, 56, 56, 64)),
        (CHANNELS_LAST, (5, 64, 57, 55)),
        ((2, 0, 4, 1, 3), (6, 10, 7, 40, 48)),
        ((3, 1, 4, 0, 2), (16, 4, 16, 20, 48)),
        ((4, 3, 2, 1, 0), (16, 5, 6, 40, 48)),
        ((1, 0), (20001, 70)),
        ((1, 0), (2064, 2112)),
        ((1, 0), (3000, 4001)),
    ],
)
def test_prefetched_copies_are_right(axes: tuple[int, ...], shape: tuple[int, ...]):
    x = numbers(*shape)
    for dynamic in (False, True):
        np.testing.assert_array_equal(operator(axes, dynamic)(x), x.transpose(axes))
