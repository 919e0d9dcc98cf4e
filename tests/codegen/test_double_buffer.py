"""Strips of transposes whose vectors are shorter than a cache line are put together, and written whole lines at a time."""

from __future__ import annotations

import pytest

import polyc
from polyc.machine import PINNED, is_runnable
from tests.codegen.support import HOST
from tests.codegen.test_staging import TYPES, check_offsets, numbers, permutation, small_cache

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


@pytest.mark.each
@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize(("axes", "shape", "type"), CASES)
def test_results_at_any_distance_from_a_line(
    axes: tuple[int, ...], shape: tuple[int, ...], type: str, target: str, small_cache
):
    x = numbers(shape, TYPES[type])
    check_offsets(polyc.compile(permutation(axes, type), target=target), x, x.transpose(axes), 4 * x.itemsize)


def test_vectors_that_add_up_are_no_strips(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")  # a fault would go on with a simpler schedule
    text = """def f(float(M,N) X) -> (V) {
      S(n) +=! X(m,n)
      V(n) +=! (X(m,n) - S(n) / float(M)) * (X(m,n) - S(n) / float(M)) }"""
    assert "Y.strips" not in polyc.compile(text, target="x86-64-v2").lower(("f32", (65536, 512))).as_text("loops")
