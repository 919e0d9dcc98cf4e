"""Operators element by element against Python's `math`, and the corner cases that the IR documents."""

import math

import numpy as np
import pytest

from polyc.ir.expr import MONOIDS, identity_of, result_type
from polyc.ir.numeric import APPLY, REDUCE, quiet
from polyc.ir.operators import OPERATORS
from polyc.ir.types import BOOL, DTYPES, F32, F64, I32, DType


def apply(op: str, *args: object, dtype: str = "f4") -> np.ndarray:
    with quiet():
        return np.asarray(APPLY[op](*(np.asarray(a, dtype) for a in args)))


def test_every_operator_has_a_meaning() -> None:
    assert APPLY.keys() == OPERATORS.keys()
    assert REDUCE.keys() == set(MONOIDS)


@pytest.mark.parametrize("dtype", [F32, F64, I32, BOOL])
def test_results_have_the_documented_type(dtype) -> None:
    operand = np.ones(3, dtype.numpy)
    for op, operator in OPERATORS.items():
        is_logic = op in ("and", "or", "not")
        is_bits = op.startswith(("bit", "sh"))
        if (operator.result == "float" and not dtype.is_float) or (is_bits and dtype.is_float) or is_logic != (dtype == BOOL):
            continue
        if (operator.result == "pair" and not dtype.is_float) or (op == "dot4u8s8" and dtype != I32):
            continue
        with quiet():
            result = np.asarray(APPLY[op](*[operand] * operator.arity))
        assert result.dtype == result_type(op, dtype).numpy, op


def extremes(dtype: DType) -> tuple[float, ...]:
    """The least and the greatest value, where there are such."""
    if dtype.is_integer:
        return np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    return (-np.inf, np.inf) if dtype.is_float else ()


@pytest.mark.parametrize("op", MONOIDS)
def test_identities(op: str) -> None:
    for dtype in DTYPES.values():
        if (op in ("and", "or")) != (dtype == BOOL):
            continue
        values = np.array([0, 1, 1, 0, *extremes(dtype)], dtype.numpy)
        neutral = np.asarray(identity_of(op, dtype).value, dtype.numpy)
        np.testing.assert_array_equal(REDUCE[op](values, neutral), values)


@pytest.mark.parametrize("op", "erf erfc expm1 log1p sinh asinh atan".split())
def test_functions_of_math(op: str) -> None:
    x = np.linspace(0.01, 3, 7)
    np.testing.assert_allclose(apply(op, x, dtype="f8"), [getattr(math, op)(v) for v in x], rtol=1e-14)


def test_corner_cases() -> None:
    nan, inf = math.nan, math.inf
    cases = {
        ("round", (0.5, -0.5, 2.5, 0.49999997)): (1, -1, 3, 0),
        ("rint", (0.5, 1.5, 2.5)): (0, 2, 2),
        ("max", (1.0, nan), (nan, 1.0)): (nan, nan),
        ("fmax", (1.0, nan), (nan, 1.0)): (1, 1),
        ("mod", (-7.0, 7.0), (3.0, -3.0)): (2, -2),
        ("fmod", (-7.0, 7.0), (3.0, -3.0)): (-1, 1),
        ("remainder", (5.0, 1.0), (3.0, 0.0)): (-1, nan),
        ("logb", (8.0, 0.0, inf, nan)): (3, -inf, inf, nan),
        ("tgamma", (5.0, 0.0, -1.0, 1000.0)): (24, inf, nan, inf),
        ("lgamma", (1.0, 0.0, -1.0)): (0, inf, inf),
        ("fdim", (3.0, 1.0, nan), (1.0, 3.0, 1.0)): (2, 0, nan),
        ("sinpi", (1.0, 0.5, 1e6)): (0, 1, 0),
        ("cospi", (1.0, 0.5, 2.0)): (-1, 0, 1),
        ("sigmoid", (0.0, -1000.0)): (0.5, 0),
        ("rsqrt", (4.0, 0.0)): (0.5, inf),
        ("truediv", (1.0, 0.0), (0.0, 0.0)): (inf, nan),
    }
    for (op, *args), expected in cases.items():
        np.testing.assert_array_equal(apply(op, *args), np.array(expected, np.float32), err_msg=op)


def test_integers() -> None:
    low = np.iinfo(np.int32).min
    cases = {
        ("floordiv", (7, -7, 7, low), (0, 2, -2, -1)): (0, -4, -4, low),
        ("mod", (7, -7, 7), (0, 2, -2)): (0, 1, -1),
        ("pow", (2, 2, 1, -1, 0, 3), (10, -1, -5, -3, -1, 0)): (1024, 0, 1, -1, 0, 1),
        ("neg", (low,)): (low,),
        ("add", (2**31 - 1,), (1,)): (low,),
    }
    for (op, *args), expected in cases.items():
        np.testing.assert_array_equal(apply(op, *args, dtype="i4"), np.array(expected, np.int32), err_msg=op)


def test_words_of_bytes_are_multiplied_byte_by_byte() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(2**31), 2**31, 100, dtype=np.int32) for _ in range(2))
    first, second = a.view(np.uint8).reshape(-1, 4).astype(int), b.view(np.int8).reshape(-1, 4).astype(int)
    np.testing.assert_array_equal(APPLY["dot4u8s8"](a, b), (first * second).sum(1))
    assert int(APPLY["dot4u8s8"](np.int32(-1), np.int32(0x7F7F7F7F))) == 4 * 255 * 127
