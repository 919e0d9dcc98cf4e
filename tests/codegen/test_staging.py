"""Blocks of transposes are put together, and go to long results by whole lines, wherever these begin."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.machines import stream_all_results

LETTERS = "abcde"
CASES = [
    ((0, 2, 1), (3, 16, 50)),
    ((0, 2, 1), (2, 24, 37)),
    ((0, 3, 1, 2), (16, 3, 20, 12)),
    ((2, 0, 4, 1, 3), (3, 5, 2, 10, 20)),
    ((1, 0), (40, 70)),
    ((1, 0), (300, 40)),
    ((1, 0), (330, 33)),
    ((3, 1, 4, 0, 2), (8, 2, 16, 2, 20)),
    ((0, 2, 1), (2, 270, 20)),
    ((2, 1, 0), (16, 16, 40)),
    ((0, 2, 1), (3, 64, 64)),
    ((2, 0, 4, 1, 3), (2, 12, 2, 20, 48)),
    ((0, 2, 1), (8, 96, 32)),
    ((2, 0, 4, 1, 3), (8, 4, 1, 80, 16)),
    ((0, 2, 1), (64, 20, 52)),
    ((0, 2, 1), (64, 19, 31)),
]
TYPES = {"float": "float32", "double": "float64", "float16": "float16", "uint8": "uint8"}


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is long, every array leaves the second-level cache, and nothing that was compiled otherwise is used."""
    stream_all_results(monkeypatch)
    monkeypatch.setattr("polyc.codegen.nests.prefetch.is_large", lambda *_: True)
    monkeypatch.setenv("POLYC_CACHE", "0")


def permutation(axes: tuple[int, ...], type: str = "float", value: str = "") -> str:
    letters = LETTERS[: len(axes)]
    sizes, read, left = ", ".join(letters.upper()), ", ".join(letters), ", ".join(letters[a] for a in axes)
    return f"def permute({type}({sizes}) X) -> (Y) {{ Y({left}) = X({read}){value} }}"


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 200, shape).astype(dtype)


def check_offsets(op: polyc.Operator, x: np.ndarray, expected: np.ndarray, step: int) -> None:
    """Results at every distance from a line are right, and nothing around them is written."""
    for offset in range(0, 64, step):
        raw = np.full(expected.nbytes + 256, 171, np.uint8)
        start = -raw.ctypes.data % 64 + 64 + offset
        out = raw[start : start + expected.nbytes].view(expected.dtype).reshape(expected.shape)
        op(x, out=out)
        np.testing.assert_array_equal(out, expected)
        assert (raw[:start] == 171).all() and (raw[start + expected.nbytes :] == 171).all()


@pytest.mark.each
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_results_at_any_distance_from_a_line(number: int, level: str, small_cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")  # a fault would leave the pass out
    axes, shape = CASES[number]
    type = list(TYPES)[(number + (level == "x86-64-v3")) % 4]
    x = numbers(shape, TYPES[type])
    check_offsets(polyc.compile(permutation(axes, type), target=level), x, x.transpose(axes), max(4, x.itemsize))


def test_pieces_that_the_next_blocks_go_on_with_are_asked_for_by_the_ends_of_lines():
    x = np.empty((16, 24, 16, 40, 48), np.float32)  # beyond the last cache
    text = polyc.compile(permutation((3, 1, 4, 0, 2)), target="x86-64-v4").lower(x).as_text("loops")
    written = text[text.index("for (row = ") :].splitlines()
    asked = {", ".join(line.rsplit(", ", 2)[1:]) for line in written if "prefetch X[" in line}
    assert asked == {"15], 4 bytes to L2;", "31], 4 bytes to L2;", "47], 4 bytes to L2;"}


def test_rows_along_the_vectors_are_put_together_and_written_a_few_at_a_time(small_cache):
    x = numbers((8, 12, 4, 40, 48), "float32")
    text = polyc.compile(permutation((2, 0, 4, 1, 3)), target="x86-64-v4").lower(x).as_text("loops")
    assert "_rows < 48;" in text and "_rows + 16; row++)" in text


def test_long_rows_of_whole_lines_go_through_the_block_wherever_they_begin():
    x = np.empty((20, 128, 56 * 56), np.float32)  # beyond the last cache
    text = polyc.compile(permutation((0, 2, 1)), target="x86-64-v4").lower(x).as_text("loops")
    assert "thread Y.lines: f32[1, 2080]" in text and "if (Y.offset % 64 == 0)" not in text


def test_a_block_that_is_one_run_is_asked_for_by_way_of_the_second_cache():
    x = np.empty((16, 24, 16, 40, 48), np.float64)  # beyond the last cache
    text = polyc.compile(permutation((2, 0, 4, 1, 3), "double"), target="x86-64-v4").lower(x).as_text("loops")
    asked = [line for line in text.splitlines() if "prefetch X[" in line]
    assert asked and all(line.endswith("bytes to L2;") for line in asked)


@pytest.mark.parametrize(("length", "is_in_units"), [(50, True), (1024, False)])
def test_blocks_are_read_by_units_that_cross_no_line_unless_rows_meet_in_a_cache(length: int, is_in_units: bool, small_cache):
    x = numbers((3, 16, length), "float32")
    text = polyc.compile(permutation((0, 2, 1)), target="x86-64-v4").lower(x).as_text("ll")
    assert ("load <4 x float>" in text) == is_in_units


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_lines_in_parts_are_put_together_where_rows_that_are_read_meet_in_a_cache(level: str, small_cache):
    x = numbers((16, 24, 2, 4, 48), "float32")  # 36 KiB apart
    op = polyc.compile(permutation((4, 3, 2, 1, 0)), target=level)
    text = op.lower(x).as_text("loops")
    assert "thread Y.lines" in text and "if (Y.offset % 64 == 0)" not in text
    np.testing.assert_array_equal(op(x), x.transpose())
