"""Which operators round, by how much, and rounding errors drawn at random.

An evaluation with `Noise` changes every rounded value by what one rounding may do to it, up or down by chance (Monte Carlo
arithmetic: Parker, Pierce and Eggert, 2000).  How far the results move shows how much of them is rounding error: through
cancellation, through recurrences that amplify, through comparisons that turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from polyc.ir.expr import Call
from polyc.ir.operators import OPERATORS
from polyc.ir.types import DType

_EXACT = frozenset("max min fmax fmin neg abs ceil floor round rint trunc copysign".split())
FUNCTION_ULPS = 8
"""Roundings that a mathematical function counts for: the stated error bounds of inline polynomials are below it."""
_POWER_ULPS = 32


def is_rounded(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def roundings_of(call: Call) -> int:
    """Roundings that an operator on floating-point numbers counts for."""
    operator = OPERATORS[call.op]
    if operator.result == "bool" or call.op in _EXACT:
        return 0
    return 1 if operator.infix or call.op == "fma" else _POWER_ULPS if call.op == "pow" else FUNCTION_ULPS


class Noise:
    """Random rounding errors; the same for the same seed."""

    def __init__(self, seed: int, terms: Mapping[str, int]) -> None:
        self._rng = np.random.default_rng(seed)
        self._terms = terms
        """Per statement with a reduction: how many values are combined into one element."""

    def round(self, values: np.ndarray[Any, Any], dtype: DType, ulps: float = 1) -> np.ndarray[Any, Any]:
        """`values`, of the element type `dtype`, each as if `ulps` roundings had changed it; others than floats as they are."""
        if not ulps or not is_rounded(dtype):
            return values
        values = np.asarray(values)
        size = ulps * float(np.finfo(dtype.part.computed.numpy).eps)
        changed = values * self._choose(values.shape, 1 - size, 1 + size)
        if dtype.is_complex:  # a product rounds its parts apart
            changed = changed + values * self._choose(values.shape, -1j * size, 1j * size)
        if not np.isfinite(changed).all():
            changed = np.where(np.isfinite(changed), changed, values)
        return changed.astype(values.dtype, copy=False)

    def round_terms(self, values: np.ndarray[Any, Any], dtype: DType, op: str | None, statement: str) -> np.ndarray[Any, Any]:
        """The terms of a sum, whose partial sums are rounded."""
        return self.round(values, dtype, self._size_of_sum(statement)) if op == "add" else values

    def round_total(self, values: np.ndarray[Any, Any], dtype: DType, op: str | None, statement: str) -> np.ndarray[Any, Any]:
        return self.round(values, dtype, self._size_of_sum(statement)) if op in ("add", "mul") else values

    def _size_of_sum(self, statement: str) -> float:
        """In roundings: n partial sums of one sign have an error of root(n) / 6 of them, typically."""
        return max(1.0, self._terms[statement] ** 0.5 / 2)

    def _choose(self, shape: tuple[int, ...], *choices: complex) -> np.ndarray[Any, Any]:
        """One of two numbers for each element."""
        n = prod(shape)
        bits = np.unpackbits(np.frombuffer(self._rng.bytes((n + 7) // 8), np.uint8), count=n)
        return np.array(choices).take(bits).reshape(shape)
