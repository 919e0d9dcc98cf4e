"""Windows that are read under masks are prefetched: hardware does not follow masked loads."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import polyc
from polyc.ir.loops_text import format_loops
from polyc.target import X86_64_V3, X86_64_V4, Target
from tests.scheduler.support import lower

MEAN = """def mean(float(C, H, W) X) -> (Y) {
  S(c, h, w) +=! pad(X(c, h + r - 1, w + s - 1), 0.0) where r in 0:3, s in 0:3, h in 0:H, w in 0:W
  Y(c, h, w) = S(c, h, w) / 9.0
}"""
MAXIMUM = MEAN.replace("+=!", "max=!").replace("0.0)", "-1000000.0)").replace("/ 9.0", "* 1.0")
LONG = MEAN.replace("0:3, s in 0:3", "0:9, s in 0:9")
WHOLE = MEAN.replace("pad(X(c, h + r - 1, w + s - 1), 0.0)", "X(c, h + r, w + s)").replace(", h in 0:H, w in 0:W", "")


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def prefetches(source: str, x: np.ndarray) -> list[str]:
    text = polyc.compile(source, target="x86-64-v4", disable="separate-windows").lower(x).as_text("loops")
    return [line.strip() for line in text.splitlines() if "prefetch" in line]


@pytest.mark.parametrize("source", [MEAN, MAXIMUM])
def test_lines_of_masked_windows_are_not_waited_for(source: str):
    (line,) = prefetches(source, images(64, 112, 112))
    assert line.startswith("prefetch X[c0, c1 + 1, ")


def test_small_arrays_long_sums_and_whole_windows_need_no_prefetch():
    assert not prefetches(MEAN, images(2, 112, 112))
    assert not prefetches(LONG, images(64, 112, 112))
    assert not prefetches(WHOLE, images(64, 112, 112))


@pytest.mark.parametrize(
    ("target", "count"),
    [(X86_64_V4, 0), (replace(X86_64_V4, l1=48 << 10), 2), (X86_64_V3, 4)],
    ids=["a prefetcher that keeps up", "a faster core", "shuffles slower than memory"],
)
def test_windows_in_steps_are_asked_for_where_a_prefetcher_stays_behind(target: Target, count: int):
    """Two rows in each tile, and two in the last one where it stands apart."""
    text = "def pool(float(C, H, W) X) -> (Y) { Y(c, h, w) max=! X(c, 2 * h + r, 2 * w + s) where r in 0:2, s in 0:2 }"
    nest = format_loops(lower(text, {"C": 512, "H": 112, "W": 112}, target=target).nest)
    assert nest.count("prefetch X") == count


@pytest.mark.parametrize("source", [MEAN, MAXIMUM])
@pytest.mark.parametrize("shape", [(64, 112, 112), (9, 200, 150), (300000, 1, 1), (2, 700, 300), (0, 5, 5)])
def test_prefetched_windows_are_right(source: str, shape: tuple[int, int, int]):
    x = images(*shape)
    fill = 0.0 if source is MEAN else -1e6
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=fill)
    windows = [wide[:, r : r + shape[1], s : s + shape[2]] for r, s in product(range(3), repeat=2)]
    expected = np.sum(windows, axis=0) / 9 if source is MEAN else np.max(windows, axis=0)
    for dynamic in (False, True):
        np.testing.assert_allclose(polyc.compile(source, dynamic=dynamic)(x), expected, rtol=1e-5, atol=1e-6)
