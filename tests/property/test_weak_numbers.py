"""Python's numbers adapt to what they meet as in NumPy 2: random expressions of numbers, scalars and arrays against NumPy.

By hand, for a longer run: ``POLYC_EXAMPLES=3000 pytest tests/property/test_weak_numbers.py``.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.frontends.python import read_function
from polyc.ir.interpret import interpret
from polyc.ir.number_checks import find_number_checks
from polyc.ir.types import from_numpy
from polyc.ir.verify import verify_program

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "150"))
ARRAY_TYPES = "bool int8 int16 int32 int64 uint8 uint32 uint64 float16 float32 float64 complex64 complex128".split()
PLAIN = (bool, int, float, complex)

numbers = st.sampled_from([True, False, 0, 1, 2, 3, -3, 7, 100, 300, -200, 0.5, 2.5, -1.25, 1e6, 0.1, 1 + 2j])
strong = st.builds(lambda t, n: np.dtype(t).type(n), st.sampled_from(ARRAY_TYPES), st.sampled_from([1, 2, 3]))


@st.composite
def expressions(draw: Any, depth: int = 3) -> str:
    """A text over the scalars `a` and `b`, the arrays `x[i]` and `y[i]`, and literals."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(["a", "b", "x[i]", "x[i]", "y[i]", "2", "0.5", "3"]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    op = draw(st.sampled_from(["+", "-", "*", "+", "*", "/", "//", "%", "<", "==", "max", "neg", "f32", "i16", "part"]))
    match op:
        case "/" | "//" | "%":
            return f"({left} {op} {draw(st.sampled_from(['a', 'b', '3', '2.5']))})"
        case "max":
            return f"np.maximum({left}, x[i])"
        case "neg":
            return f"(-{left})"
        case "f32" | "i16":
            return f"np.{'float32' if op == 'f32' else 'int16'}({left})"
        case "part":
            return f"(x[i] + {left})"
        case _:
            return f"({left} {op} {right})"


class Elementwise:
    """An array to the text of an expression: `x[i]` is all of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __getitem__(self, index: object) -> np.ndarray:
        return self.array


def evaluate(text: str, values: dict[str, Any], x: np.ndarray, y: np.ndarray) -> Any:
    """What NumPy makes of the text; the exception where it refuses."""
    space = {"np": np, "i": None, "x": Elementwise(x), "y": Elementwise(y), **values}
    try:
        with np.errstate(all="ignore"):
            return eval(text, space)
    except (ArithmeticError, TypeError, ValueError) as error:
        return error


@settings(max_examples=EXAMPLES, deadline=None)
@given(expressions(), numbers | strong, numbers | strong, st.sampled_from(ARRAY_TYPES), st.sampled_from(ARRAY_TYPES))
def test_types_and_values_are_numpys(text: str, a: Any, b: Any, x_type: str, y_type: str) -> None:
    x, y = (np.array([1, 0, 3, 1, 5]).astype(t) for t in (x_type, y_type))
    values = {"a": a, "b": b}
    expected = evaluate(text, values, x, y)
    if isinstance(expected, Exception) and not isinstance(expected, OverflowError):
        return
    weak = frozenset(n for n, v in values.items() if type(v) in PLAIN)
    arrays = {"a": np.asarray(a), "b": np.asarray(b), "x": x, "y": y}
    source = f"def f(a, b, x, y):\n    z[i] = {text} + 0 * x[i]\n    return z\n"
    expected = evaluate(f"{text} + 0 * x[i]", values, x, y)
    try:
        program = read_function(source, {n: (from_numpy(v.dtype), v.ndim) for n, v in arrays.items()}, None, weak).program
        for check in find_number_checks(program, weak):
            check.ask({n: int(v) for n, v in values.items() if n in check.names})
    except polyc.PolycError as error:
        # NumPy compares numbers that do not fit as well, by their values; they are refused here.
        is_compared = error.code == "argument-number" and any(sign in text for sign in ("<", ">", "==", "!="))
        is_overflow = isinstance(error, OverflowError) == isinstance(expected, OverflowError)
        assert is_overflow or is_compared or error.code.startswith("type-"), text
        return
    assert not isinstance(expected, Exception), f"{text} is refused by NumPy: {expected}"
    verify_program(program)
    found = interpret(program, arrays)["z"]
    assert found.dtype == expected.dtype, f"{text}: {found.dtype}, NumPy {expected.dtype}"
    half = np.float16 in (x.dtype, y.dtype, np.asarray(a).dtype, np.asarray(b).dtype)
    if not half:  # computed in float32, and rounded where it is stored
        single = {np.dtype(np.float32), np.dtype(np.complex64)} & {v.dtype for v in arrays.values()} or "float32" in text
        rtol = 1e-4 if single else 1e-12
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol, err_msg=text)
