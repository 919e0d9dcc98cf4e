"""Values from outside of a graph, as compiled code sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.lowering import value_of


def as_contiguous(array: np.ndarray) -> np.ndarray:
    """The array in C order at an address that its element type allows, in the machine's order of bytes."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return array
    return np.require(array, array.dtype.newbyteorder("="), ("C", "A"))


def outside_value(name: str, value: Any) -> Value | None:
    """A value from outside as compiled code sees it; None for what it cannot read."""
    if not isinstance(value, np.ndarray):
        return None
    found = value_of(name, value)
    return None if found is None else Value(name, found.dtype, found.shape)


def describe_outside(value: Any, with_contents: bool) -> Any:
    """The part of a plan's key that one value is."""
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    key = (value.dtype, value.shape)
    return (*key, value.tobytes()) if with_contents else key
