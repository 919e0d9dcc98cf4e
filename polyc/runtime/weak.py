"""Python's numbers as NumPy 2 takes them (NEP 50): weakly typed, so that they adapt to the element types that they meet.

A weak number is an array without dimensions of a type that holds the number under one name.  No array of a user's looks so:
plans and kernels for 2.0 are told by the layout of their arguments alone from those for ``np.float64(2)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NAME = "weak"
_UNSIGNED = np.dtype([(_NAME, "u8")])
WEAK_TYPES: dict[type, np.dtype] = {
    bool: np.dtype([(_NAME, "?")]),
    int: np.dtype([(_NAME, "i8")]),
    float: np.dtype([(_NAME, "f8")]),
    complex: np.dtype([(_NAME, "c16")]),
}
"""By the type of a Python number, that of its array.  Integers beyond int64 are unsigned."""


def weak_array(value: bool | int | float | complex) -> np.ndarray | None:
    """The array of a Python number, None for integers that have no 64 bits."""
    kind = next(t for t in (bool, int, float, complex) if isinstance(value, t))
    dtype = WEAK_TYPES[kind]
    if kind is int and not -(2**63) <= value < 2**63:  # type: ignore[operator]
        if not 0 <= value < 2**64:  # type: ignore[operator]
            return None
        dtype = _UNSIGNED
    return np.array(value, dtype)


def is_weak(array: np.ndarray) -> bool:
    """Whether an array is a weak number."""
    return array.dtype.names == (_NAME,)


def without_weakness(value: Any) -> Any:
    """A weak number as an array of its element type; anything else as it is."""
    return value[_NAME] if isinstance(value, np.ndarray) and is_weak(value) else value


def held_type(dtype: np.dtype) -> np.dtype:
    """The element type of a weak number's type; any other type itself."""
    return dtype[_NAME] if dtype.names == (_NAME,) else dtype
