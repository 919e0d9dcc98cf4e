"""Kernels for any image sizes take images without gaps as one row, and all others as they are."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.expr import evaluate
from polyc.ir.loops import Loop
from polyc.ir.walk import walk_nodes

CONV = """def conv(float(B, C, H, W) X, float(K, C) F) -> (Y) {
  Y(b, k, h, w) +=! X(b, c, h, w) * F(k, c)
}"""
BIASED = """def biased(float(B, H, W) X, float(H, W) G) -> (Y) { Y(b, h, w) = exp(X(b, h, w)) * G(h, w) }"""

KEPT = {
    "a vector along rows": "def f(float(H, W) X, float(W) G) -> (Y) { Y(h, w) = X(h, w) * G(w) }",
    "an index as a value": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) * w }",
    "a size as a value": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) / W }",
    "a window": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) + X(h, w + 1) where w in 0:W-1 }",
    "a border": "def f(float(H, W) X) -> (Y) { Y(h, w) = pad(X(h, w - 1), 0.0) where h in 0:H, w in 0:W }",
    "a transpose": "def f(float(H, W) X) -> (Y) { Y(w, h) = X(h, w) }",
    "a part": "def f(float(H, W) X) -> (Y) { Y(h, w) +=! X(h, w) * X(h, k) where k in 0:4 }",
    "a sum of one": "def f(float(H, W) X) -> (Y) { Y(h) +=! X(h, w) }",
    "a size twice in a product": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) / (H * W * W) }",
    "sizes one after the other": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) / H / W }",
    "a sum of sizes": "def f(float(H, W) X) -> (Y) { Y(h, w) = X(h, w) / (H * W + W) }",
    "a triangle": "def f(float(H, W) X) -> (Y) { Y(h, w) +=! X(h, w) * X(h, k) where k <= w, k in 0:W }",
    "a matrix with itself": "def f(float(H, H) X, float(H, H) G) -> (Y) { Y(h, w) +=! X(h, k) * G(k, w) }",
}


def lowered(source: str, *arrays: np.ndarray) -> str:
    return polyc.compile(source, dynamic=True).lower(*arrays).as_text("loops")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def test_sizes_that_stand_side_by_side_may_be_one():
    assert "H, W = 1, H * W if X.stride2 == W * 4 and Y.stride2 == W * 4" in lowered(CONV, image(2, 8, 5, 7), image(6, 8))
    assert "H, W = 1, H * W if" in lowered(BIASED, image(2, 5, 7), image(5, 7))


@pytest.mark.parametrize("source", KEPT.values(), ids=KEPT.keys())
def test_sizes_that_mean_something_by_themselves_stay(source: str):
    ranks = [2 if "B" not in source else 3, *([1] if "float(W) G" in source else [2] if "G" in source else [])]
    assert "= 1, " not in lowered(source, *(image(*(6,) * rank) for rank in ranks))


NORM = """def norm(float(B, H, W) X) -> (Y) {
  S(b) +=! X(b, h, w)
  V(b) +=! (X(b, h, w) - S(b) / (W * 2 * H)) * (X(b, h, w) - S(b) / (W * 2 * H))
  Y(b, h, w) = (X(b, h, w) - S(b) / (W * 2 * H)) * rsqrt(V(b) / (W * H * B) + 0.5)
}"""


def normalized(x: np.ndarray) -> np.ndarray:
    b, h, w = x.shape
    shifted = x.astype(np.float64) - x.sum((1, 2), dtype=np.float64, keepdims=True) / (2 * h * w or 1)
    return shifted / np.sqrt(np.square(shifted).sum((1, 2), keepdims=True) / (b * h * w or 1) + 0.5)


def test_means_over_images_take_them_as_one_row():
    # Rows of 56 columns left batch normalisation of any image at .69 of one of a known size.
    assert "H, W = 1, H * W if" in lowered(NORM, image(2, 5, 7))
    norm = polyc.compile(NORM, dynamic=True)
    for height, width in ((1, 1), (3, 1), (1, 9), (5, 7), (57, 83), (0, 4), (4, 0)):
        x = image(3, height, width)
        for layout in LAYOUTS.values():
            np.testing.assert_allclose(norm(layout(x)), normalized(x), rtol=1e-5, atol=1e-5)


def test_sums_over_images_keep_their_order_where_it_is_asked_for():
    text = "def f(float(B, H, W) X) -> (Y) { Y(b) +=! X(b, h, w) }"
    total = polyc.compile(text, dynamic=True, reassociate=False)
    for height, width in ((3, 1), (5, 7), (57, 83)):
        x = image(3, height, width)
        expected = np.cumsum(x.reshape(3, -1), axis=1, dtype=np.float32)[:, -1]
        for layout in LAYOUTS.values():
            np.testing.assert_array_equal(total(layout(x)), expected)


LAYOUTS = {
    "dense": lambda x: x,
    "rows with gaps": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "every second column": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "columns first": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "upside down": lambda x: np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_folded_images_are_right_in_every_layout(layout):
    conv, biased = (polyc.compile(source, dynamic=True) for source in (CONV, BIASED))
    before = polyc.get_num_threads()
    try:
        for threads in (1, 2):
            polyc.set_num_threads(threads)
            _check_images(layout, conv, biased)
    finally:
        polyc.set_num_threads(before)


def _check_images(layout, conv, biased):
    for height, width in ((1, 1), (3, 1), (1, 9), (5, 7), (16, 16), (57, 83), (0, 4), (4, 0)):
        x, f = image(3, 5, height, width), image(6, 5)
        expected = np.einsum("bchw,kc->bkhw", x, f)
        for out in (None, layout(np.zeros_like(expected))):
            result = conv(layout(x), f) if out is None else conv(layout(x), f, out=out)
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        images, gains = image(3, height, width), image(height, width)
        for a, b in ((layout(images), gains), (images, layout(gains))):
            np.testing.assert_allclose(biased(a, b), np.exp(images) * gains, rtol=1e-5, atol=1e-6)


def test_images_that_become_one_row_are_planned_as_one():
    """Tiles for 56 columns and 56 rows, one after the other, left 1x1 windows at half of the speed of a known size."""
    found = polyc.compile(CONV, dynamic=True).lower(image(1, 64, 56, 56), image(64, 64))
    assert found.ranges.typical["H"] == 1 and found.ranges.typical["W"] == 56 * 56
    text = found.as_text("loops")
    # Threads share blocks of the long row, which stay in the cache while all results of them are computed.
    size, outermost, *inner = (line.strip() for line in text.splitlines() if "for (" in line)
    assert size.startswith("for (c0.size = ")  # once
    assert outermost.startswith("parallel") and " for (c0 = 0; c0 < (c0.size + W - 1) // c0.size; c0++)" in outermost
    assert "c3 < K" in next(line for line in inner if "K" in line) and "there is one thread" not in text


@pytest.mark.parametrize("first", [(1, 3, 226, 226), (1, 256, 28, 28)])
def test_blocks_of_long_rows_are_small_enough_for_sums_of_any_length(first: tuple[int, ...]):
    """Cut for 3 channels, blocks of 64 channels came from memory once for each tile of results."""
    found = polyc.compile(CONV, dynamic=True, target="x86-64-v4").lower(image(*first), image(64, first[1]))
    for version in (found, *found.others):
        (loop,) = (n for n in walk_nodes(version.nest.body) if isinstance(n, Loop) and n.var == "c0.size")
        for channels in (3, 64, 256, 1000):
            columns = evaluate(loop.lower, {"C": channels, "W": 400 * 400})
            assert columns == 64 or 4 * columns * channels <= 1 << 19


def test_a_batch_that_no_tile_cuts_stays_as_it_is_at_the_first_call():
    found = polyc.compile(CONV, dynamic=True).lower(image(1, 512, 14, 14), image(256, 512))
    assert {version.ranges.typical["B"] for version in (found, *found.others)} == {1}
