"""Tables by which `polyc_call` takes numbers for arrays without dimensions (`codegen/objects/call_scalars.py` reads them).

*Types*: their number, then for each of NumPy's scalar types its address and the word of its element type.  *Numbers*: the
number of inputs, then for each six words: what a Python float becomes there (the word of the element type, and its bytes; 0:
nothing), and what an int does (the word, its kind, the least and the largest value that surely fit).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.runtime.weak import held_type

NumberRange = tuple[np.dtype | None, Any, Any]
"""The type of the array made of a Python number, and the least and the largest that it surely holds; None, None: any."""

_NOTHING, _INTEGER = 0, 1
"""Kinds beside 4 and 8, the bytes of a float."""
_LIMITS = np.iinfo(np.int64)

SCALAR_TYPES = tuple(
    np.dtype(code).type for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
)


def has_scalar_layout() -> bool:
    """Whether NumPy's scalars have their value where `polyc_call` looks for it."""
    values = [t(1) for t in SCALAR_TYPES]
    return all(ctypes.string_at(id(v) + 16, v.itemsize) == v.tobytes() for v in values)


def make_type_table(type_word: Callable[[np.dtype], int]) -> Any:
    """The table of types; `type_word` tells an element type in the keys of calls."""
    words = [len(SCALAR_TYPES)]
    for scalar in SCALAR_TYPES:
        words += (id(scalar), type_word(np.dtype(scalar)))
    return (ctypes.c_int64 * len(words))(*words)


def make_number_table(ranges: Sequence[Mapping[type, NumberRange]], type_word: Callable[[np.dtype], int]) -> Any:
    """The table of numbers for inputs that take Python's numbers within `ranges`."""
    words = [len(ranges)]
    for known in ranges:
        for number, default in ((float, np.float64), (int, np.int64)):
            target, low, high = known.get(number, (None, None, None))
            dtype = np.dtype(default if target is None else target)
            kind = _kind(dtype) if number in known else _NOTHING
            words += (type_word(dtype), kind)
            if number is int:
                words += (max(_LIMITS.min, low or 0), min(_LIMITS.max, high or 0))
    return (ctypes.c_int64 * len(words))(*words)


def _kind(dtype: np.dtype) -> int:
    dtype = held_type(dtype)
    if dtype.kind in "iu":
        return _INTEGER
    return dtype.itemsize if dtype.kind == "f" and dtype.itemsize in (4, 8) else _NOTHING
