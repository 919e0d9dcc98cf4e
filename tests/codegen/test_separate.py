"""Vector loops of statements that end at different places run without tests."""

from __future__ import annotations

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
