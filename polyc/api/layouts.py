"""Arguments known by type only: what `Operator.specialize` and `Operator.lower` take instead of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.api.names import ElementType
from polyc.ir.expr import evaluate
from polyc.ir.types import BF16, DTYPES, DType
from polyc.records import dataclass, replace
from polyc.runtime.arguments import rank_error
from polyc.runtime.arrays import (
    argument_error,
    check_element_type,
    contiguous_strides,
    convert_input,
    normalize_strides,
    stride_class,
)
from polyc.runtime.sizes import Formal, size_names
from polyc.runtime.weak import is_weak, without_weakness

Strides = tuple[int | None, ...] | None
"""Byte strides that code may rely on; None entries and None as a whole: any."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Element type, shape and byte strides of an argument."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_weak: bool = False
    """Whether it is a Python number that adapts to what it meets."""

    @property
    def known_strides(self) -> Strides:
        """What a kernel for arrays of this stride class relies on."""
        match stride_class(self.shape, self.strides, self.dtype.itemsize):
            case "contiguous":
                return contiguous_strides(self.shape, self.dtype.itemsize)
            case "unit":
                return (None,) * (len(self.shape) - 1) + (self.dtype.itemsize,)
            case _:
                return None


def array_layout(array: np.ndarray, dtype: DType) -> Layout:
    return Layout(dtype, array.shape, normalize_strides(array.shape, array.strides, array.itemsize))


def contiguous_layout(dtype: DType, shape: Sequence[int]) -> Layout:
    return Layout(dtype, tuple(shape), contiguous_strides(shape, dtype.itemsize))


def describe_argument(value: Any, formal: Formal) -> Layout:
    """The layout of an array, of anything with ``dtype`` and ``shape``, or of a pair (dtype, shape): those are contiguous."""
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], (int, float)):
        layout = _declared_layout(value[0], value[1], formal)
    elif has_value(value):
        layout = _array_layout(value, formal)
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        layout = _declared_layout(value.dtype, value.shape, formal)
    else:
        layout = _array_layout(value, formal)
    if formal.shape is not None and len(layout.shape) != len(formal.shape):
        raise rank_error(formal, layout.shape)
    return layout


def has_value(value: Any) -> bool:
    """Whether it is a number or an array, and not a description of one."""
    return isinstance(value, (int, np.ndarray, np.generic)) or hasattr(value, "__dlpack__")


def _array_layout(value: Any, formal: Formal) -> Layout:
    given = convert_input(value, formal.name, formal.dtype, formal.span, formal.takes_weak)
    array = without_weakness(given)
    layout = array_layout(array, check_element_type(array, formal.name, formal.dtype, formal.span))
    return replace(layout, is_weak=is_weak(given))


def _declared_layout(dtype: Any, shape: Any, formal: Formal) -> Layout:
    try:
        numpy_dtype = to_numpy_dtype(dtype)
        extents = tuple(int(n) for n in shape)
    except (TypeError, ValueError) as problem:
        message = f"{formal.name} is described by {dtype!r}, {shape!r}, which is no element type and shape"
        raise argument_error("argument-type-array", message, formal.span, "give (dtype, shape)") from problem
    if any(n < 0 for n in extents):
        raise argument_error(
            "argument-size", f"{formal.name} has a negative extent: {extents}", formal.span, "extents are 0 or more"
        )
    element = check_element_type(np.empty(0, numpy_dtype), formal.name, formal.dtype, formal.span)
    return contiguous_layout(element, extents)


def to_numpy_dtype(dtype: Any) -> np.dtype:
    """NumPy's type for polyc's own (``polyc.f32``, ``"f32"``) and everything that `numpy.dtype` takes."""
    if isinstance(dtype, ElementType):
        return dtype.element.numpy
    if isinstance(dtype, DType):
        return dtype.numpy
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype].numpy  # NumPy reads "i8" as eight bytes
    if isinstance(dtype, str) and dtype == BF16.label:
        return BF16.numpy
    result: np.dtype = np.dtype(dtype)
    return result


def declared_layouts(formals: Sequence[Formal], sizes: Mapping[str, int]) -> tuple[Layout, ...] | None:
    """Contiguous layouts of the declared shapes at `sizes`; None where one is not known."""
    layouts = []
    for formal in formals:
        if formal.dtype is None or formal.shape is None:
            return None
        if any(n not in sizes for e in formal.shape for n in size_names(e)):
            return None
        layouts.append(contiguous_layout(formal.dtype, [evaluate(e, sizes) for e in formal.shape]))
    return tuple(layouts)
