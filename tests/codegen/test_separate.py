"""Vector loops of statements that end at different places run without tests."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import polyc

GRADIENTS = "def f(float(N, D) X) -> (U, V) { U(n, d) = X(n, d + 1) - X(n, d)  V(n, d) = X(n + 1, d) - X(n, d) }"
SHIFTS = (
    "def f(float(N, D) X) -> (U, V, W) { U(n, d) = X(n, d) + X(n, d + 2)  V(n, d) = X(n, d) * X(n, d + 1)  W(n, d) = -X(n, d) }"
)


def images(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, columns), np.float32)


def vector_bodies(text: str) -> list[str]:
    """What stands in each vector loop."""
    lines = text.splitlines()
    found = []
    for n, line in enumerate(lines):
        if line.strip().startswith("vector("):
            depth = len(line) - len(line.lstrip())
            end = next(m for m in range(n + 1, len(lines)) if lines[m].startswith(" " * depth + "}"))
            found.append("\n".join(lines[n + 1 : end]))
    return found


@pytest.mark.parametrize("source", [GRADIENTS, SHIFTS])
def test_no_test_is_left_in_vector_loops(source: str) -> None:
    bodies = vector_bodies(polyc.compile(source).lower(images(64, 512)).as_text("loops"))
    assert any(body.count(" = ") > 1 for body in bodies)  # the statements still share a loop
    assert not any("if (" in body for body in bodies)


@pytest.mark.parametrize("shape", [(2, 2), (2, 70), (3, 64), (3, 65), (5, 67), (17, 130), (4, 333)])
def test_every_element_is_computed_once(shape: tuple[int, int]) -> None:
    x = images(*shape)
    u, v = polyc.compile(GRADIENTS)(x)
    np.testing.assert_array_equal(u, x[:, 1:] - x[:, :-1])
    np.testing.assert_array_equal(v, x[1:] - x[:-1])


def test_sizes_that_are_known_at_the_call_only() -> None:
    op = polyc.compile(SHIFTS, dynamic=True)
    for columns in (3, 18, 64, 66, 67, 129, 1000):
        x = images(3, columns)
        u, v, w = op(x)
        np.testing.assert_array_equal(u, x[:, :-2] + x[:, 2:])
        np.testing.assert_array_equal(v, x[:, :-1] * x[:, 1:])
        np.testing.assert_array_equal(w, -x)


CONV = "def conv(float(C,H,W) I, float(K,C,3,3) F) -> (O) { O(k,h,w) +=! I(c,h+r,w+s) * F(k,c,r,s) }"


def filters(k: int, c: int) -> np.ndarray:
    return np.random.default_rng(1).random((k, c, 3, 3), np.float32)


def correlated(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (3, 3), (1, 2))
    return np.einsum("chwrs,kcrs->khw", windows, f.astype("f8"))


def test_tiles_of_results_in_pairs_have_a_version_without_tests() -> None:
    x, f = np.zeros((16, 301, 301), "f4"), filters(64, 16)
    bodies = vector_bodies(polyc.compile(CONV, target="x86-64-v3").lower(x, f).as_text("loops"))
    results = [body for body in bodies if "O[" in body and "for (" not in body]
    assert any("if (" in body for body in results)  # the last row and column, of which there is half a pair
    assert any("if (" not in body and body.count("O[") == 4 for body in results)


@functools.cache
def for_any_sizes(target: str) -> polyc.Operator:
    op = polyc.compile(CONV, target=target, dynamic=True)
    op(np.zeros((16, 61, 61), "f4"), filters(64, 16))
    return op


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("shape", [(16, 5, 51), (16, 8, 50), (16, 9, 111), (5, 7, 98)])
def test_tiles_of_results_in_pairs_at_odd_and_even_sizes(shape: tuple[int, int, int], target: str) -> None:
    x, f = np.random.default_rng(2).random(shape, np.float32), filters(64, shape[0])
    for op in (polyc.compile(CONV, target=target), for_any_sizes(target)):
        np.testing.assert_allclose(op(x, f), correlated(x, f), rtol=1e-4, atol=1e-4)
