"""Rows that windows wrote one by one are read as one long row, where the loops are apart anyway."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.machine import X86_64_V4
from polyc.poly.rows import format_rows
from tests.scheduler.support import check, check_nest, contiguous, lower, read, statements

SEPARABLE = """
def f(float(N, C, H, W) X, float(C, 3, 3) F, float(K, C) G) -> (Y) {
  T(n, c, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(c, r, s) where h in 0:H, w in 0:W
  R(n, c, h, w) = fmax(T(n, c, h, w), 0.0)
  P(n, k, h, w) +=! G(k, c) * R(n, c, h, w)
  Y(n, k, h, w) = fmax(P(n, k, h, w), 0.0)
}"""
SIZES = {"N": 1, "C": 16, "H": 14, "W": 14, "K": 16}


def test_sums_over_channels_run_over_whole_images_that_a_window_filtered_by_rows():
    lowered = check(SEPARABLE, SIZES)
    assert statements(lowered.scop.program)[-3:] == [
        "S1(c, h, w): R[c, 14 * h + w] = max(T[c, h, w], 0.0)",
        "S2(k, h.w, c): P[k, h.w] += G[k, c] * R[c, h.w] init 0.0",
        "S3(k, h.w): Y[k, h.w] = max(P[k, h.w], 0.0)",
    ]
    assert "argument Y: f32[16, 196]" in lowered.as_text("loops")


SHAPES = [(1, 19, 17, 23), (3, 8, 7, 7), (1, 16, 1, 1), (2, 33, 28, 28), (1, 4, 64, 80), (0, 3, 5, 5)]


@pytest.mark.parametrize(
    ("shape", "target"),
    [(s, "native") for s in SHAPES] + [(s, "x86-64-v2") for s in SHAPES[1::3]] + [(s, "x86-64-v3") for s in SHAPES[::3]],
)
def test_separable_filters_of_many_shapes(shape: tuple[int, ...], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if target != "native":
        monkeypatch.setenv("POLYC_TARGET", target)
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape, np.float32)
    f, g = rng.standard_normal((shape[1], 3, 3), np.float32), rng.standard_normal((31, shape[1]), np.float32)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    h, w = shape[2:]
    each = sum(wide[:, :, r : r + h, s : s + w] * f[:, r, s, None, None] for r in range(3) for s in range(3))
    expected = np.maximum(np.einsum("kc,nchw->nkhw", g.astype(np.float64), np.maximum(each, 0)), 0)
    found = polyc.compile(SEPARABLE)(x, f, g)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_results_with_gaps_between_rows_keep_their_rows():
    strides = list(contiguous(read(SEPARABLE), SIZES))
    strides[3] = (16 * 14 * 64, 14 * 64, 64, 4)
    lowered = driver.lower(read(SEPARABLE), sizes=SIZES, strides=tuple(strides), target=X86_64_V4)
    assert "S2(k, h, w, c)" in "".join(statements(lowered.scop.program))


KEPT = {
    "read once": "O(n, c, h, w) = R(n, c, h, w) * B(c)",
    "read in windows": "O(n, k, h, w) +=! R(n, c, h + r, w) * A(k, c) where r in 0:2, h in 0:H-1, w in 0:W",
    "summed over rows": "O(n, k, h) +=! R(n, c, h, w) * A(k, c)",
}


@pytest.mark.parametrize("reader", KEPT)
def test_rows_stay_where_readers_tell_them_apart(reader: str) -> None:
    text = f"""def f(float(N, C, H, W) X, float(C, 3, 3) F, float(K, C) A, float(C) B) -> (O) {{
      T(n, c, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(c, r, s) where h in 0:H, w in 0:W
      R(n, c, h, w) = fmax(T(n, c, h, w), 0.0)
      {KEPT[reader]}
    }}"""
    lowered = lower(text, SIZES)
    check_nest(lowered, SIZES)
    assert "14 * h + w" not in "".join(statements(lowered.scop.program))


def test_rows_stay_where_both_share_their_loop():
    """All channels of a row are few: they are multiplied while they are in the nearest cache."""
    sizes = {"N": 2, "C": 5, "H": 9, "W": 7, "K": 12}
    lowered = check(SEPARABLE, sizes)
    assert "[P:n, P:h]{ [P:c, P:w]{ [R:r, R:s] S0 ; S1 } ; [P:k, P:w]" in format_rows(lowered.rows, lowered.scop)
