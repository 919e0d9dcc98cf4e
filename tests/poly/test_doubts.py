"""Warnings about ranges that are legal and hardly meant."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycWarning, RangeError

CUT = "def f(float(N) x, float(M) z) -> (y) { y +=! x(i) * z(i + j) where j in 0:N, i in 0:N-j }"
NOTHING = "def f(float(N, N) A) -> (y) { y(i) +=! A(i, j) where j < i, j > i }"


def _warnings(text: str, *arrays: np.ndarray, **options: bool) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        polyc.compile(text, **options)(*arrays)
    return [w.message.diagnostic.code for w in found if isinstance(w.message, PolycWarning)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_sums_over_no_point_are_told_of(dynamic: bool) -> None:
    assert _warnings(NOTHING, np.ones((8, 8), np.float32), dynamic=dynamic) == ["range-empty-sum"]


def test_written_ranges_that_reads_cut_are_told_of() -> None:
    """The sum was 0: `z` has a size of its own, and bounds i for all j."""
    ones = np.ones(8, np.float32)
    assert _warnings(CUT, ones, ones) == ["range-cut"]
    assert _warnings(CUT.replace("(M)", "(N)"), ones, ones) == []


def test_operators_that_are_kept_on_disk_warn_in_every_process() -> None:
    a = np.ones((9, 9), np.float32)
    assert _warnings(NOTHING, a) == _warnings(NOTHING, a) == ["range-empty-sum"]


def test_triangles_that_small_sizes_leave_empty_are_no_doubt() -> None:
    text = "def f(float(N, N) A) -> (y) { y(i) +=! A(i, j) where j < i }"
    assert [_warnings(text, np.ones((n, n), np.float32)) for n in (0, 1, 2)] == [[], [], []]


def test_elements_that_a_cut_range_leaves_out_come_with_the_reason() -> None:
    text = """def f(float(N) p, float(M) S) -> (c) {
      C(0, i) = 0.0 where i in 0:N+1
      C(l, i) = C(l-1, i+1) + S(i + l) where l in 1:N+1, i in 0:N+1-l
      c = C(N, 0) }"""
    with pytest.raises(RangeError) as caught:
        polyc.compile(text)(np.ones(4, np.float32), np.ones(5, np.float32))
    assert [d.code for d in caught.value.diagnostics] == ["range-unwritten", "range-cut"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_size_in_the_place_of_an_index_was_a_number_out_of_bounds(dynamic: bool) -> None:
    """`x(4): subscript 4 of dimension 0 runs from 4 to 4, but must be in 0:4` about x(i)."""
    with pytest.raises(RangeError) as caught:
        polyc.compile("def f(float(i, j) x) -> (y) { y(i) +=! x(i, j) }", dynamic=dynamic)(np.ones((4, 5), np.float32))
    assert [d.message for d in caught.value.diagnostics] == [
        f"{n} is the size of dimension {d} of x: no element has that number" for d, n in enumerate("ij")
    ]
