"""Arguments of a call as plain arrays, quickly: numbers, lists, tensors and subclasses, where nothing is wrong with them.

A planned call needs no other check of its arguments than that they make arrays of the planned layouts.  So numbers become
arrays here without the checks of `arrays.convert_input`, but with its results.  What may be an error there has no answer here,
and the way with all checks says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from polyc.diagnostics import PolycError
from polyc.ir.types import BF16, C128, F64, I64, DType
from polyc.runtime.arrays import convert_input, has_chunks, view_output
from polyc.runtime.scalar_tables import NumberRange
from polyc.runtime.sizes import Formal
from polyc.runtime.weak import WEAK_TYPES


@cache
def _number_ranges(dtype: DType | None, takes_weak: bool) -> Mapping[type, NumberRange]:
    """By the type of a Python number, what `convert_input` takes for `dtype`.  Infinities and NaN are held where floats are."""
    if takes_weak:
        held = np.iinfo(I64.numpy)
        return {kind: (weak, *((held.min, held.max) if kind is int else (None, None))) for kind, weak in WEAK_TYPES.items()}
    if dtype == BF16:  # rounded by bits
        return {}
    target = None if dtype is None else dtype.numpy
    ranges: dict[type, NumberRange] = {bool: (target, None, None)}
    if dtype is None:
        integers, limit = np.iinfo(I64.numpy), float(np.finfo(F64.numpy).max)
        return {**ranges, int: (None, integers.min, integers.max), float: (None, -limit, limit), complex: (None, None, None)}
    if dtype.is_integer:
        held = np.iinfo(dtype.numpy)
        ranges[int] = target, int(held.min), int(held.max)
    elif dtype.kind in "fc":
        info = np.finfo(dtype.part.numpy)
        limit, exact = float(info.max), 2 ** (info.nmant + 1)
        ranges |= {int: (target, -exact, exact), float: (target, -limit, limit)}
    if dtype == C128:
        ranges[complex] = target, None, None
    return ranges


class PlainArguments:
    """Arguments for inputs declared as `formals`, and for results named `results` (none: their names are not known)."""

    def __init__(self, formals: Sequence[Formal], results: Sequence[str]) -> None:
        self._formals = tuple(formals)
        self._ranges = [_number_ranges(f.dtype, f.takes_weak) for f in formals]
        self._results = tuple(results)

    @property
    def numbers(self) -> Sequence[Mapping[type, NumberRange]]:
        """Of each input, the Python numbers that make an array of it, by their type."""
        return self._ranges

    def take_fewer_integers(self, position: int, least: int, largest: int) -> bool:
        """Have no answer for other integers given for this input from now on; False where that was so before."""
        known = self._ranges[position]
        dtype, low, high = known[int]
        if least <= low and high <= largest:
            return False
        self._ranges[position] = {**known, int: (dtype, max(low, least), min(high, largest))}
        return True

    def inputs(self, values: Sequence[Any]) -> tuple[np.ndarray, ...] | None:
        """The array of each value; None where one makes none, or perhaps not the right one."""
        if len(values) != len(self._formals):
            return None
        arrays = []
        for position, value in enumerate(values):
            # Raw bytes may be bf16, as `numpy.save` writes it.
            if type(value) is np.ndarray and value.flags.aligned and value.dtype.type is not np.void:
                arrays.append(value)
                continue
            number = self._ranges[position].get(type(value))
            if number is not None:
                dtype, low, high = number
                if low is not None and not (low <= value <= high or value != value or abs(value) == math.inf):
                    return None
                arrays.append(np.array(value, dtype))
            elif isinstance(value, np.generic):
                arrays.append(np.asarray(value))
            elif has_chunks(value):
                return None
            else:
                formal = self._formals[position]
                try:
                    arrays.append(convert_input(value, formal.name, formal.dtype, formal.span, formal.takes_weak))
                except PolycError:
                    return None
        return tuple(arrays)

    def outputs(self, out: Any) -> tuple[tuple[Any, ...], tuple[np.ndarray, ...]] | None:
        """What `out` gives for every result, and the array behind each; None where results are missing or are no arrays."""
        if isinstance(out, dict):
            given = tuple([out.get(name) for name in self._results]) if len(out) == len(self._results) else ()
        else:
            given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        arrays = []
        for value in given:
            try:
                array = None if value is None else view_output(value, "results")
            except PolycError:
                return None
            if array is None:
                return None
            arrays.append(array)
        return (given, tuple(arrays)) if arrays else None
