"""What every operator of `operators.OPERATORS` computes, element by element, on NumPy arrays.

Both interpreters use this table and nothing else does: it is part of the trust base, so it favours plain formulas over speed.
All functions expect operands of one element type and give that type (comparisons and logic give bool).  Callers wrap
evaluation in `quiet()`: overflow wraps, division by zero gives what the operator documents, and nothing warns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
"""A NumPy array or scalar of one of polyc's element types."""


def quiet() -> np.errstate:
    """A context in which NumPy computes silently."""
    return np.errstate(all="ignore")


def _floordiv(a: Array, b: Array) -> Array:
    return np.floor_divide(a, b)  # integers: x // 0 is 0 in NumPy, and MIN // -1 wraps


def _mod(a: Array, b: Array) -> Array:
    return np.mod(a, b)


def _pow(a: Array, b: Array) -> Array:
    """Integers with a negative exponent: the exact power truncated to an integer (0 unless the base is 1 or -1)."""
    if np.asarray(a).dtype.kind != "i":
        return np.power(a, b)
    negative = np.less(b, 0)
    magnitude = np.power(a, np.where(negative, 0, b).astype(np.asarray(b).dtype))
    odd = np.where(np.bitwise_and(b, 1) == 1, a, np.ones_like(a))
    unit = np.where(np.abs(a) == 1, odd, np.zeros_like(a))
    return np.where(negative, unit, magnitude).astype(np.asarray(a).dtype)


def _round(x: Array) -> Array:
    """Half away from zero; exact, unlike ``trunc(x + 0.5)``."""
    whole = np.trunc(x)
    away = np.where(np.abs(x - whole) >= 0.5, np.copysign(np.ones_like(x), x), np.zeros_like(x))
    return np.copysign(whole + away, x)


def _logb(x: Array) -> Array:
    exponent = np.frexp(x)[1] - 1
    plain = exponent.astype(np.asarray(x).dtype)
    return np.where(x == 0, -np.inf, np.where(np.isinf(x), np.inf, np.where(np.isnan(x), np.nan, plain))).astype(plain.dtype)


def _sinpi(x: Array) -> Array:
    wide = np.fmod(np.asarray(x, np.float64), 2.0)  # exact; then only one rounding of pi * wide matters
    value = np.where(np.fmod(wide, 1.0) == 0, np.copysign(0.0, x), np.sin(np.pi * wide))
    return value.astype(np.asarray(x).dtype)


def _cospi(x: Array) -> Array:
    wide = np.fmod(np.abs(np.asarray(x, np.float64)), 2.0)
    value = np.where(np.fmod(wide, 1.0) == 0.5, 0.0, np.cos(np.pi * wide))
    return value.astype(np.asarray(x).dtype)


def _fdim(a: Array, b: Array) -> Array:
    return np.where(np.less_equal(a, b), np.zeros_like(a), a - b).astype(np.asarray(a).dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """f32: the product is exact in f64, so at most a double rounding away.  f64: product and sum rounded apart."""
    if np.asarray(a).dtype == np.float32:
        return (np.asarray(a, np.float64) * b + c).astype(np.float32)
    return a * b + c


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:  # C: NaN at negative integers and -inf, signed infinity at signed zero
        return math.copysign(math.inf, x) if x == 0 else math.nan


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (OverflowError, ValueError):
        return math.inf


def _remainder(x: float, y: float) -> float:
    try:
        return math.remainder(x, y)
    except ValueError:
        return math.nan


def _by_element(function: Callable[..., float]) -> Callable[..., Array]:
    """NumPy has no such function: compute in f64 with Python's `math`, one element at a time."""
    vectorised = np.vectorize(function, otypes=[np.float64])

    def apply(*args: Array) -> Array:
        return np.asarray(vectorised(*(np.asarray(a, np.float64) for a in args))).astype(np.asarray(args[0]).dtype)

    return apply


def _complex(re: Array, im: Array) -> Array:
    result = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), np.result_type(re, np.complex64))
    result.real, result.imag = re, im
    return result


def _one(x: Array) -> Array:
    return np.ones((), np.asarray(x).dtype)


_SAME_NAME = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh ceil floor rint trunc "
    "copysign fmod hypot nextafter"
).split()


def _dot4u8s8(a: Array, b: Array) -> Array:
    first = np.ascontiguousarray(a, "<i4")[..., np.newaxis].view(np.uint8).astype(np.int32)
    second = np.ascontiguousarray(b, "<i4")[..., np.newaxis].view(np.int8).astype(np.int32)
    return np.asarray((first * second).sum(-1, dtype=np.int32)).reshape(np.broadcast_shapes(np.shape(a), np.shape(b)))


APPLY: dict[str, Callable[..., Array]] = {name: getattr(np, name) for name in _SAME_NAME}
"""The meaning of each operator; the keys are those of `operators.OPERATORS`."""

APPLY |= {
    "tuple": lambda first, *others: first,
    "stop_gradient": lambda x: x,
    "once_differentiable": lambda x: x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": _floordiv,
    "mod": _mod,
    "max": np.maximum,
    "min": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "pow": _pow,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "conj": np.conjugate,
    "real": np.real,
    "imag": np.imag,
    "complex": _complex,
    "neg": np.negative,
    "abs": np.absolute,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "exp_below": np.exp,
    "exp10": lambda x: np.power(np.asarray(10, np.asarray(x).dtype), x),
    "logb": _logb,
    "rsqrt": lambda x: _one(x) / np.sqrt(x),
    "sinpi": _sinpi,
    "cospi": _cospi,
    "erf": _by_element(math.erf),
    "erfc": _by_element(math.erfc),
    "lgamma": _by_element(_lgamma),
    "tgamma": _by_element(_gamma),
    "round": _round,
    "sigmoid": lambda x: _one(x) / (_one(x) + np.exp(-x)),
    "atan2": np.arctan2,
    "fdim": _fdim,
    "rhypot": lambda x, y: _one(x) / np.hypot(x, y),
    "remainder": _by_element(_remainder),
    "fma": _fma,
    "dot4u8s8": _dot4u8s8,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}

REDUCE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}
"""The monoids of `expr.MONOIDS`."""
