"""Norms whose result is turned: its elements are moved in blocks, not one by one from each row that is ready."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

SOFTMAX = """def f(float(B, N, D) X) -> (Y) {
  M(b, n) max=! X(b, n, d)  E(b, n, d) = exp(X(b, n, d) - M(b, n))  Z(b, n) +=! E(b, n, d)  Y(b, d, n) = E(b, n, d) / Z(b, n)
}"""
LAYER_NORM = """def f(float(B, N, D) X, float(D) G) -> (Y) {
  S(b, n) +=! X(b, n, d)  V(b, n) +=! (X(b, n, d) - S(b, n) / D) * (X(b, n, d) - S(b, n) / D)
  Y(b, d, n) = (X(b, n, d) - S(b, n) / D) * rsqrt(V(b, n) / D + 0.00001) * G(d)
}"""


def batch(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return (e / e.sum(-1, keepdims=True)).transpose(0, 2, 1)


def layer_norm(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    moved = x - x.mean(-1, keepdims=True)
    return (moved / np.sqrt(np.mean(moved * moved, -1, keepdims=True) + 1e-5) * g).transpose(0, 2, 1)


def nests(source: str, *arrays: np.ndarray) -> list[str]:
    """The outermost loops of the text."""
    text = polyc.compile(source, target="x86-64-v3").lower(*arrays).as_text("loops")
    return text.split("\n  parallel")[1:]


def test_turned_rows_are_moved_in_blocks_of_their_own() -> None:
    x = batch(1, 512, 512)
    for source, arrays in ((SOFTMAX, (x,)), (LAYER_NORM, (x, x[0, 0]))):
        found = nests(source, *arrays)
        writing = [n for n in found if "Y[" in n]
        assert len(found) == 2 and len(writing) == 1
        assert "unroll" in writing[0] and "registers" not in writing[0]


def test_a_batch_keeps_what_is_turned_near() -> None:
    x = batch(16, 200, 64)
    (nest,) = nests(SOFTMAX, x)
    assert "unroll" in nest.split("// S2")[1]
    assert "thread E: f32[1, 200, 64]" in polyc.compile(SOFTMAX, target="x86-64-v3").lower(x).as_text("loops")


def test_few_rows_are_not_worth_another_pass() -> None:
    text = polyc.compile(SOFTMAX, target="x86-64-v3").lower(batch(1, 16, 16)).as_text("loops")
    assert text.count("\n  for") == 1 and "E: f32[1, 16]" in text


@pytest.mark.each
@pytest.mark.parametrize("level", ["host", "x86-64-v2"])
@pytest.mark.parametrize(
    "shape", [(1, 64, 64), (3, 100, 77), (9, 33, 130), (2, 1, 300), (2, 300, 1), (0, 5, 5), (2, 0, 7), (1, 257, 61)]
)
def test_turned_norms_of_any_shape(shape: tuple[int, int, int], level: str) -> None:
    x = batch(*shape)
    np.testing.assert_allclose(polyc.compile(SOFTMAX, target=level)(x), softmax(x), rtol=1e-4, atol=1e-6)
    g = batch(shape[2])
    np.testing.assert_allclose(polyc.compile(LAYER_NORM, target=level)(x, g), layer_norm(x, g), rtol=1e-3, atol=1e-4)


def test_turned_norms_of_sizes_that_the_call_says() -> None:
    turned = polyc.compile(SOFTMAX, dynamic=True)
    for shape in ((1, 300, 400), (1, 1, 1), (5, 17, 33), (2, 0, 3), (40, 20, 1000)):
        x = batch(*shape)
        np.testing.assert_allclose(turned(x), softmax(x), rtol=1e-4, atol=1e-6)
