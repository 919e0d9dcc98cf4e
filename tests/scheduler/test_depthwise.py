"""Filters of each channel for itself: nothing is shared but broadcasts and, in unrolled windows, the rows of the image."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc


def source(step: int, dilation: int, border: int, taps: int) -> str:
    reach = dilation * (taps - 1) + 1
    rows, columns = (f"where h in 0:(H+{2 * border - reach})/{step}+1", f"w in 0:(W+{2 * border - reach})/{step}+1")
    place = ", ".join(f"{step}*{i}+{dilation}*{t}-{border}" for i, t in (("h", "r"), ("w", "s")))
    return f"""def f(float(C, H, W) X, float(C, {taps}, {taps}) F) -> (Y) {{
      T(c, h, w) +=! pad(X(c, {place}), 0.0) * F(c, r, s) {rows}, {columns}
      Y(c, h, w) = fmin(fmax(T(c, h, w), 0.0), 6.0)
    }}"""


def depthwise(x: np.ndarray, f: np.ndarray, step: int, dilation: int, border: int) -> np.ndarray:
    wide = np.pad(x.astype(np.float64), ((0, 0), (border, border), (border, border)))
    taps = f.shape[1]
    n, m = ((s + 2 * border - dilation * (taps - 1) - 1) // step + 1 for s in x.shape[1:])
    total = np.zeros((x.shape[0], n, m))
    for r in range(taps):
        for s in range(taps):
            part = wide[:, dilation * r :, dilation * s :][:, ::step, ::step][:, :n, :m]
            total += part * f[:, r, s, None, None]
    return np.clip(total, 0, 6)


@pytest.mark.each
@pytest.mark.parametrize("target", ["native", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize(
    ("shape", "step", "dilation", "taps"),
    [
        ((5, 7, 7), 1, 1, 3),
        ((3, 14, 14), 1, 1, 5),
        ((3, 15, 13), 1, 1, 7),
        ((2, 28, 28), 1, 2, 3),
        ((3, 14, 14), 2, 1, 3),
        ((2, 29, 31), 2, 1, 5),
        ((2, 20, 33), 3, 1, 3),
        ((2, 9, 70), 4, 2, 3),
        ((2, 56, 112), 1, 1, 3),
        ((1, 3, 3), 1, 1, 3),
    ],
)
def test_filters_of_each_channel(
    shape: tuple[int, int, int], step: int, dilation: int, taps: int, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if target != "native":
        monkeypatch.setenv("POLYC_TARGET", target)
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape, np.float32)
    f = rng.standard_normal((shape[0], taps, taps), np.float32)
    border = dilation * (taps // 2)
    found = polyc.compile(source(step, dilation, border, taps))(x, f)
    np.testing.assert_allclose(found, depthwise(x, f, step, dilation, border), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size, step", [(7, 1), (14, 1), (14, 2)])
def test_small_images_are_filtered_in_registers_from_where_they_lie(size: int, step: int) -> None:
    """No copy with a border, no results in memory before the activation."""
    x, f = np.zeros((64, size, size), np.float32), np.zeros((64, 3, 3), np.float32)
    lowered = polyc.compile(source(step, 1, 1, 3), target="x86-64-v4").lower(x, f)
    loops = lowered.as_text("loops")
    assert "packed" not in loops
    assert "register T" in loops
    body = next(t for t in re.split(r"\.type\s", lowered.as_text("s")) if t.count("vfmadd") >= 9)
    assert "(%rsp)" not in body
