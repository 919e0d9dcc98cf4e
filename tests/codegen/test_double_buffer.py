"""Strips of transposes whose vectors are shorter than a cache line are put together, and written whole lines at a time."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.interpret_loops import interpret_loops
from polyc.machine import PINNED, is_runnable
from tests.codegen.support import HOST
from tests.codegen.test_staging import LETTERS, TYPES, check_offsets, numbers, permutation, small_cache

__all__ = ["small_cache"]

CASES = [
    ((1, 0), (256, 256), "float"),
    ((1, 0), (528, 528), "float"),
    ((0, 2, 1), (2, 256, 256), "double"),
    ((2, 1, 0), (64, 5, 64), "float"),
    ((2, 1, 0), (128, 2, 32), "double"),
    ((0, 3, 1, 2), (4, 16, 16, 64), "uint8"),
]
NARROW = [name for name, t in PINNED.items() if t.vector_bits < 512 and is_runnable(t, HOST)]


def loops(axes: tuple[int, ...], shape: tuple[int, ...], type: str, target: str) -> str:
    return polyc.compile(permutation(axes, type), target=target).lower(numbers(shape, TYPES[type])).as_text("loops")


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize(("axes", "shape", "type"), CASES)
def test_results_at_any_distance_from_a_line(
    axes: tuple[int, ...], shape: tuple[int, ...], type: str, target: str, small_cache
):
    x = numbers(shape, TYPES[type])
    check_offsets(polyc.compile(permutation(axes, type), target=target), x, x.transpose(axes), 4 * x.itemsize)


@pytest.mark.parametrize("offset", [0, 16])
@pytest.mark.parametrize(("axes", "shape"), [((1, 0), (256, 256)), ((2, 1, 0), (64, 16, 64))])
def test_the_nest_means_the_same(axes: tuple[int, ...], shape: tuple[int, ...], offset: int, small_cache):
    x = numbers(shape, "float32")
    lowered = polyc.compile(permutation(axes), target="x86-64-v3").lower(x)
    assert "thread Y.strips" in lowered.as_text("loops")
    raw = np.zeros(x.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    y = raw[start : start + x.nbytes].view(np.float32).reshape(x.transpose(axes).shape)
    interpret_loops(lowered.nest, [x, y], dict(zip(LETTERS.upper(), shape, strict=False)))
    np.testing.assert_array_equal(y, x.transpose(axes))


def test_each_row_of_a_strip_is_written_as_a_run_one_strip_behind(small_cache):
    text = loops((2, 1, 0), (64, 16, 64), "float", "x86-64-v3")
    strip = text[text.index("Y.strips[c") :]
    assert "if (0 < " in strip and strip.index("if (0 < ") < strip.index("stream Y[")
    assert "vector(lanes 8, at most 64)" in strip


def test_vectors_of_a_line_are_written_as_they_are_turned(small_cache):
    assert "Y.strips" not in loops((2, 1, 0), (64, 16, 64), "float", "x86-64-v4")


def test_results_that_stay_in_a_cache_are_written_as_they_are_turned():
    assert "Y.strips" not in loops((2, 1, 0), (64, 16, 64), "float", "x86-64-v3")


def test_vectors_that_add_up_are_no_strips(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")  # a fault would go on with a simpler schedule
    text = """def f(float(M,N) X) -> (V) {
      S(n) +=! X(m,n)
      V(n) +=! (X(m,n) - S(n) / float(M)) * (X(m,n) - S(n) / float(M)) }"""
    assert "Y.strips" not in polyc.compile(text, target="x86-64-v2").lower(("f32", (65536, 512))).as_text("loops")
