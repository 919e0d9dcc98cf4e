"""Strips of transposes begin at the cache lines of rows that are whole lines."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from tests.codegen.test_staging import LETTERS, TYPES, numbers, permutation, small_cache

__all__ = ["small_cache"]

CASES = [
    ((1, 0), (80, 3072)),
    ((1, 0), (96, 1024)),
    ((1, 0), (112, 2048)),
    ((1, 0), (272, 512)),
    ((1, 0), (144, 1536)),  # tiles of strips
    ((1, 0), (208, 1184)),  # the last of which is shorter
    ((0, 2, 1), (2, 96, 1024)),
    ((2, 1, 0), (96, 2, 1024)),
]


def place(shape: tuple[int, ...], dtype: str, offset: int) -> tuple[np.ndarray, np.ndarray]:
    """An array that begins `offset` bytes behind a line, and the memory around it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.full(size + 256, 171, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape), raw


@pytest.mark.each
@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize(("axes", "shape"), CASES)
def test_operands_and_results_at_any_distance_from_a_line(
    axes: tuple[int, ...], shape: tuple[int, ...], type: str, small_cache
):
    values = numbers(shape, TYPES[type])
    expected = values.transpose(axes)
    op = polyc.compile(permutation(axes, type))
    for behind in range(0, 64, 2 * values.itemsize):
        x, _ = place(shape, TYPES[type], behind)
        x[...] = values
        y, raw = place(expected.shape, TYPES[type], 64 - behind if behind % 16 else 16)
        op(x, out=y)
        np.testing.assert_array_equal(y, expected)
        assert (raw[:64] == 171).all() and (raw[-64:] == 171).all()


def test_the_nest_means_the_same(small_cache):
    shape = (272, 1024)
    lowered = polyc.compile(permutation((1, 0)), target="x86-64-v4").lower(numbers(shape, "float32"))
    assert "X.offset" in lowered.as_text("loops")
    for offset in (0, 4, 16, 60):
        x, _ = place(shape, "float32", offset)
        x[...] = numbers(shape, "float32")
        y, _ = place(shape[::-1], "float32", 16)
        interpret_loops(lowered.nest, [x, y], dict(zip(LETTERS.upper(), shape, strict=False)))
        np.testing.assert_array_equal(y, x.T)


def loops_of(shape: tuple[int, int]) -> str:
    return polyc.compile(permutation((1, 0)), target="x86-64-v4").lower(numbers(shape, "float32")).as_text("loops")


def test_strips_go_on_over_tiles(small_cache):
    text = loops_of((512, 1024))
    assert "for (c1 = 0; c1 < X.offset % 64 // 4 + 1024; c1 += 512)" in text
    assert "min(c2_0_strip - X.offset % 64 // 4, 1008 - c1)" in text


def stacked_loops() -> str:
    """Several matrices one behind the other, whose blocks follow each other along the rows of the result."""
    x = numbers((8, 512, 2560), "float32")
    return polyc.compile(permutation((0, 2, 1)), target="x86-64-v4").lower(x).as_text("loops")


def test_strips_go_on_over_tiles_around_other_loops(small_cache):
    text = stacked_loops()
    lines = [line.strip() for line in text.splitlines()]
    tile = next(n for n, line in enumerate(lines) if "for (c1 = 0; c1 < X.offset % 64 // 4 + 2560; c1 += 512)" in line)
    assert lines[tile + 1] == "for (c2_strip = 0; c2_strip < 512; c2_strip += 64) {"
    assert "min(c3_0_strip - X.offset % 64 // 4, 2544 - c1)" in text


def test_the_next_rows_or_the_first_ones_of_the_next_columns_are_asked_for(small_cache):
    later = "(c2_strip + 64 < 512 ? c2_strip + 64 : c2_strip - 448)"
    tiles, _ = stacked_loops().split("c2 += 496)")  # the ends of rows
    _, *requests = tiles.split("prefetch X[")
    assert requests and all(f"min(-Y.offset % 64 // 4 + {later}, 448 - Y.offset % 64 // 4)" in r for r in requests)


def test_rows_that_are_no_whole_lines_stay_as_they_are(small_cache):
    assert "X.offset" in loops_of((640, 1040))
    assert "X.offset" not in loops_of((640, 1000))


@pytest.mark.parametrize(("target", "lanes"), [("x86-64-v3", 8), ("x86-64-v2", 4)])
def test_vectors_shorter_than_lines_use_these_up_one_after_the_other(target: str, lanes: int, small_cache):
    shape = (272, 4096)
    values = numbers(shape, "float32")
    op = polyc.compile(permutation((1, 0)), target=target)
    lines = [line.strip() for line in op.lower(values).as_text("loops").splitlines()]
    some = next(n for n, line in enumerate(lines) if f"_some < 16; c2_0_some += {lanes})" in line)
    assert f"c3_0 += {lanes})" in lines[some - 4] and lines[some - 2].startswith("prefetch X[c2_0_ahead + c3_0 + ")
    assert lines[some + 1].startswith(f"vector(lanes {lanes}, at most {lanes})")  # what is read stays until it is used up
    assert any("c2_0_strip += 16)" in line for line in lines)  # begun at lines of the operand
    for behind in (0, 16, 36):
        x, _ = place(shape, "float32", behind)
        x[...] = values
        y, raw = place(shape[::-1], "float32", 64 - behind if behind % 16 else 16)
        op(x, out=y)
        np.testing.assert_array_equal(y, values.T)
        assert (raw[:64] == 171).all() and (raw[-64:] == 171).all()


@pytest.mark.parametrize("type", ["uint8", "float16"])
def test_narrow_elements_turn_in_parts_of_lines(type: str, small_cache):
    shape = (1088, 1024)
    values = numbers(shape, TYPES[type])
    for target in (None, "x86-64-v3"):
        op = polyc.compile(permutation((1, 0), type), **({} if target is None else {"target": target}))
        for behind in (0, 16):
            x, _ = place(shape, TYPES[type], behind)
            x[...] = values
            y, _ = place(shape[::-1], TYPES[type], 16)
            op(x, out=y)
            np.testing.assert_array_equal(y, values.T)
