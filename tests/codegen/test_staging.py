"""Blocks of transposes with short rows are put together, and go to long results as one run, wherever these begin."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.pipeline import LOOPS
from polyc.ir.interpret_loops import interpret_loops
from polyc.records import replace
from tests.machines import stream_all_results

LETTERS = "abcde"
CASES = [
    ((0, 2, 1), (3, 16, 50)),
    ((0, 2, 1), (2, 24, 37)),
    ((0, 3, 1, 2), (16, 3, 20, 12)),
    ((2, 0, 4, 1, 3), (3, 5, 2, 10, 20)),
    ((1, 0), (40, 70)),
]
TYPES = {"float": "float32", "double": "float64", "float16": "float16", "uint8": "uint8"}


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is long, every array leaves the second-level cache, and nothing that was compiled otherwise is used."""
    stream_all_results(monkeypatch)
    monkeypatch.setattr("polyc.codegen.nests.staging.is_large", lambda *_: True)
    monkeypatch.setattr("polyc.codegen.nests.prefetch.is_large", lambda *_: True)
    monkeypatch.setenv("POLYC_CACHE", "0")


@pytest.fixture
def without_carries(monkeypatch: pytest.MonkeyPatch, small_cache) -> None:
    """Blocks whose rows go on in the next one are not taken apart before they come to be staged."""
    steps = tuple(p for p in LOOPS.passes if p.name != "carry-lines")
    monkeypatch.setattr("polyc.driver.ladder.LOOPS", replace(LOOPS, passes=steps))
    monkeypatch.setattr("polyc.scheduler.loops.crossing._join_rows", lambda *_: 0)


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


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize(("axes", "shape"), CASES)
def test_results_at_any_distance_from_a_line(axes: tuple[int, ...], shape: tuple[int, ...], type: str, small_cache):
    x = numbers(shape, TYPES[type])
    check_offsets(polyc.compile(permutation(axes, type)), x, x.transpose(axes), max(4, x.itemsize))


def test_targets_without_masks(small_cache):
    for axes, shape in CASES[1:4]:
        x = numbers(shape, "float32")
        check_offsets(polyc.compile(permutation(axes), target="x86-64-v3"), x, x.transpose(axes), 12)


def test_targets_without_masks_and_without_carries(without_carries):
    test_targets_without_masks(None)


@pytest.mark.parametrize(("axes", "shape"), CASES)
def test_the_nest_means_the_same(axes: tuple[int, ...], shape: tuple[int, ...], without_carries):
    x = numbers(shape, "float32")
    lowered = polyc.compile(permutation(axes, value=" * 2"), target="x86-64-v3").lower(x)
    text = lowered.as_text("loops")
    assert "thread Y.block" in text and "stream Y" in text
    y = np.zeros(x.transpose(axes).shape, np.float32)
    interpret_loops(lowered.nest, [x, y], dict(zip(LETTERS.upper(), shape, strict=False)))
    np.testing.assert_array_equal(y, x.transpose(axes) * 2)


def test_the_next_block_is_asked_for_while_this_one_is_written_down(without_carries):
    x = numbers((3, 64, 64), "float32")
    text = polyc.compile(permutation((0, 2, 1)), target="x86-64-v3").lower(x).as_text("loops")
    put, down = text.split("Y.block[0, 64", 1)
    assert "prefetch X[c0 + 2, c4_run_0 // 32, " in down  # 32 KiB ahead
    assert "prefetch" not in put[put.rindex("else") :]


def test_rows_of_whole_lines_are_streamed_as_they_are_where_the_array_begins_at_one(small_cache):
    x = numbers((3, 16, 1024), "float32")  # rows 4 KiB apart meet in one set of a cache
    text = polyc.compile(permutation((0, 2, 1)), target="x86-64-v4").lower(x).as_text("loops")
    assert "if (Y.offset % 64 == 0)" in text
    assert "stream Y[c0, 16 * c" in text


def test_pixels_are_interleaved_as_before(small_cache):
    text = polyc.compile(permutation((1, 0)), target="x86-64-v4").lower(numbers((3, 4000), "float32")).as_text("loops")
    assert "Y.block" not in text
