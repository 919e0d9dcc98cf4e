"""Stores whose lanes lie between each other's, as whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

TARGETS = ["x86-64-v2", "x86-64-v3", "host"]
SIZES = [0, 1, 2, 7, 8, 15, 16, 17, 33, 100]
PAIRS = "def f({0}(N) a, {0}(N) b) -> (y) {{ y(2*i+1) = a(i) - b(i)  y(2*i) = a(i) + b(i) }}"
FOUR = """def f(double(R, N) a) -> (y) {
  y(r, 4*i) = a(r, i)  y(r, 4*i+1) = -a(r, i)  y(r, 4*i+3) = a(r, i) * a(r, i)  y(r, 4*i+2) = a(r, i) + 2.0 }"""
THREE = "def f(float(N) a) -> (y) { y(3*i) = a(i)  y(3*i+1) = 2.0 * a(i)  y(3*i+2) = 3.0 * a(i) }"
OWN = "def f(float(N) a) -> (y) { y(2*i) = a(i)  y(2*i+1) = y(2*i) * 2.0 where i in 0:N }"


def join(*parts: np.ndarray) -> np.ndarray:
    *outer, n = parts[0].shape
    return np.stack(parts, -1).reshape(*outer, n * len(parts))


def whole_numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 50, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int16", "int64", "complex64"])
def test_pairs_are_those_of_numpy_at_every_length(dtype, target):
    op = polyc.compile(PAIRS.format(dtype), target=target)
    for n in SIZES:
        a, b = whole_numbers((2, n), dtype)
        np.testing.assert_array_equal(op(a, b), join(a + b, a - b))


@pytest.mark.each
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", SIZES)
def test_three_and_four_in_any_order(n, target):
    a = whole_numbers((3, n), "f8")
    np.testing.assert_array_equal(polyc.compile(FOUR, target=target)(a), join(a, -a, a + 2, a * a))
    a = whole_numbers((n,), "f4")
    np.testing.assert_array_equal(polyc.compile(THREE, target=target)(a), join(a, 2 * a, 3 * a))


@pytest.mark.parametrize("n", SIZES)
def test_one_that_reads_the_other_and_results_in_steps_of_memory(n):
    a = whole_numbers((n,), "f4")
    np.testing.assert_array_equal(polyc.compile(OWN)(a), join(a, 2 * a))
    out = np.zeros(4 * n, "f4")[::2]
    polyc.compile(PAIRS.format("float"))(a, a, out=out)
    np.testing.assert_array_equal(out, join(2 * a, 0 * a))


def test_rotated_pairs_are_stored_whole_without_masks():
    op = polyc.compile(PAIRS.format("float"), target="x86-64-v3")
    text = op.lower(np.zeros(999, "f4"), np.zeros(999, "f4")).as_text("s")
    assert "vunpcklps" in text and text.count("vextractps") < 16  # those of the last few elements


@pytest.mark.parametrize(
    ("width", "target"), [(width, t) for width in (50, 67, 98) for t in TARGETS if t == "x86-64-v3" or width == 50]
)
def test_pairs_at_the_end_of_a_row_of_tiles_are_stored_in_parts(width, target):
    source = "def conv(float(C,H,W) I, float(K,C,3,3) F) -> (O) { O(k,h,w) +=! I(c,h+r,w+s) * F(k,c,r,s) }"
    x, f = whole_numbers((32, 16, width), "f4"), whole_numbers((64, 32, 3, 3), "f4")
    lowered = polyc.compile(source, target=target).lower(x, f)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    out = np.full((64, 14, width - 2), np.nan, "f4")
    lowered.compile()(x, f, out=out)
    np.testing.assert_array_equal(out, np.einsum("chwrs,kcrs->khw", windows, f, optimize=True))
    if lowered.target.vector_bits == 256:
        assert any((r.kind, r.pass_name) == ("passed", "minimal-filtering") for r in lowered.remarks)
        text = lowered.as_text("s")
        if width in (50, 98):  # the products of others are written one by one
            assert text.count("vpextr") + text.count("vextractps") == 0
