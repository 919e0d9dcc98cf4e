"""Operators on elements: many inputs, diagonals far away, attributes that are left out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx.nodes import run_node

LARGE = 2**62


@pytest.mark.parametrize("op, function", [("Max", np.max), ("Min", np.min), ("Sum", np.sum), ("Mean", np.mean)])
@pytest.mark.parametrize("count", [1, 33, 300])
def test_many_inputs_overflowed_the_stack(op: str, function: np.ufunc, count: int) -> None:
    values = np.random.default_rng(count).integers(-9, 9, (count, 4)).astype(np.float32)
    (y,) = run_node(op, {f"x{k}": v for k, v in enumerate(values)})
    np.testing.assert_allclose(y, function(values, axis=0), rtol=1e-6)


@pytest.mark.parametrize("k", [LARGE, -LARGE, 2, 0, -3, 7, -5])
@pytest.mark.parametrize("upper", [0, 1])
def test_diagonals_beyond_the_matrix_were_too_far(k: int, upper: int) -> None:
    x = np.arange(1, 31, dtype=np.float32).reshape(5, 6)
    (y,) = run_node("Trilu", {"x": x, "k": np.int64(k)}, constants=["k"], upper=upper)
    near = int(np.clip(k, -10, 10))
    np.testing.assert_array_equal(y, np.triu(x, near) if upper else np.tril(x, near))
    (eye,) = run_node("EyeLike", {"x": x}, k=k)
    np.testing.assert_array_equal(eye, np.eye(5, 6, near, np.float32))


def test_scaled_exponentials_of_doubles_have_the_constants_of_the_standard() -> None:
    x = np.linspace(-3, 3, 50)
    (y,) = run_node("Selu", {"x": x})
    alpha, gamma = np.float64(np.float32(1.6732632423543772)), np.float64(np.float32(1.0507009873554805))
    np.testing.assert_allclose(y, gamma * np.where(x <= 0, alpha * np.expm1(x), x), rtol=1e-14)
