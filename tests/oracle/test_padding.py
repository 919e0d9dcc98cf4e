"""Padding by other elements: clamp, wrap, reflect and symmetric against NumPy's own padding."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.interpret import interpret
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program

Array = np.ndarray[Any, Any]
NUMPY = {"clamp": "edge", "wrap": "wrap", "reflect": "reflect", "symmetric": "symmetric"}


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def agree(operator: Any, inputs: tuple[Array, ...], expected: Array, for_any: bool = True) -> None:
    """`for_any`: the code for any sizes, too."""
    program = operator.program
    assert parse_program(format_program(program)) == program
    (own,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    for got in (operator(*inputs), own, *([operator.lower().compile()(*inputs)] if for_any else [])):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_a_window_over_a_line(mode: str, n: int) -> None:
    text = f"def f(float(N) A, float(5) w) -> (O) {{ O(i) +=! pad(A(i + k - 2), {mode}) * w(k) where i in 0:N }}"
    a, w = draw(n), draw(5)
    padded = np.pad(a, 2, mode=NUMPY[mode])
    agree(polyc.compile(text), (a, w), sum(w[k] * padded[k : k + n] for k in range(5)))


@pytest.mark.parametrize("mode", NUMPY)
def test_far_outside(mode: str) -> None:
    text = f"def f(float(N) A, float(M) z) -> (O) {{ O(i) = pad(A(i - 20), {mode}) + z(i) }}"
    a, z = draw(7), draw(50)
    agree(polyc.compile(text), (a, z), np.pad(a, (20, 23), mode=NUMPY[mode]) + z)


@pytest.mark.parametrize("mode", NUMPY)
def test_an_image(mode: str) -> None:
    text = f"""def f(float(H, W) X, float(3, 3) F) -> (O) {{
      O(h, w) +=! pad(X(h + r - 1, w + s - 1), {mode}) * F(r, s) where h in 0:H, w in 0:W }}"""
    x, f = draw(20, 35), draw(3, 3)
    padded = np.pad(x, 1, mode=NUMPY[mode])
    expected = sum(f[r, s] * padded[r : r + 20, s : s + 35] for r in range(3) for s in range(3))
    # A line tells the modes apart for any sizes; an image of any size is three seconds of compiling.
    agree(polyc.compile(text), (x, f), expected, for_any=mode == "reflect")


@polyc.op
def blurred(x: "f32[N]"):
    with polyc.where(0 <= i < N):
        y[i] = (pad(x[i - 1], "reflect") + x[i] + pad(x[i + 1], mode="clamp")) / 3
    return y


def test_a_function() -> None:
    x = draw(30)
    left, right = np.concatenate([x[1:2], x[:-1]]), np.concatenate([x[1:], x[-1:]])
    agree(blurred, (x,), (left + x + right) / 3)


def test_nothing_can_be_padded_by_nothing() -> None:
    text = "def f(float(N) A, float(M) z) -> (O) { O(i) = pad(A(i), clamp) + z(i) }"
    with pytest.raises(PolycError):
        polyc.compile(text)(draw(0), draw(3))


@pytest.mark.pairs
@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_tensor_without_elements_that_data_never_chooses_is_padded(mode: str, target: str, dynamic: bool) -> None:
    text = f"""def f(float(N, 3) A, float(M) x) -> (O, s) {{
      T(i, j) = A(i, j) * 2.0
      O(i) = x(i) > 0.0 ? pad(T(i + 1, i - 2), {mode}) : x(i) where i in 0:M
      s +=! x(i) > 0.0 && i > 1 ? pad(A(i - 1, 1), {mode}) : x(i) where i in 0:M
    }}"""
    operator = polyc.compile(text, target=target, dynamic=dynamic)
    x = -np.arange(19, dtype=np.float32)
    given, total = operator(draw(0, 3), x)
    np.testing.assert_array_equal(given, x)
    assert total == x.sum()
    x[7] = 1
    with pytest.raises(PolycError, match="dimension 0 of"):
        operator(draw(0, 3), x)
    a = draw(5, 3)
    expected = interpret(operator.program, {"A": a, "x": x}, {"N": 5, "M": 19})
    given, total = operator(a, x)
    np.testing.assert_allclose(given, expected["O"], rtol=1e-5)
    np.testing.assert_allclose(total, expected["s"], rtol=1e-5)


def test_other_words_are_refused() -> None:
    with pytest.raises(PolycError, match="no padding called 'mirror'"):
        polyc.op("def f(x: 'f32[N]'):\n    with polyc.where(0 <= i < N):\n        y[i] = pad(x[i - 1], 'mirror')\n    return y")


def test_a_tensor_may_be_called_as_a_mode() -> None:
    text = "def f(float(N) A, float clamp) -> (O) { O(i) = pad(A(i - 1), clamp) where i in 0:N }"
    a = draw(5)
    got = polyc.compile(text)(a, np.float32(9))
    np.testing.assert_allclose(got, np.concatenate([[9], a[:-1]]))
