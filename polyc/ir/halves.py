"""Conversion between arrays of 16-bit floats and f32 or f64, by the bits: the reference that code generation is held to.

bf16 is the upper half of an f32.  Rounding is to the nearest, ties to even; what is too large becomes an infinity, a NaN stays
one (quiet, its sign and upper bits kept).  From f64 there is one rounding, not two: f32 is made by rounding to odd first
(Boldo and Melquiond, "Emulation of a FMA and correctly-rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.ir.types import BF16, F16, DType

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = np.ndarray[Any, Any]


def is_bfloat16(dtype: np.dtype) -> bool:
    """Whether a NumPy type is bf16: that of `ml_dtypes`, or its stand-in of two raw bytes."""
    return dtype == BF16.numpy


def widen(array: Array) -> Array:
    """f16 and bf16 arrays as f32, which holds all their values; any other array as it is."""
    if array.dtype == np.float16:
        with np.errstate(all="ignore"):
            return array.astype(np.float32)
    if is_bfloat16(array.dtype):
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32).reshape(array.shape)
    return array


def narrow(values: ArrayLike, dtype: DType) -> Array:
    """`values` (f32, f64, integers, bools, or another 16-bit type) rounded to the 16-bit float `dtype`."""
    bits = narrow_bits(values, dtype)
    return bits.view(dtype.numpy).reshape(np.shape(values))


def narrow_bits(values: ArrayLike, dtype: DType) -> Array:
    """As `narrow`, the bits in uint16."""
    array = widen(np.atleast_1d(values))
    if array.dtype.kind != "f":
        array = array.astype(np.float32)
    if dtype == F16:
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(array.astype(np.float16)).view(np.uint16)
    single = array if array.dtype == np.float32 else _round_to_odd(array)
    bits = np.ascontiguousarray(single).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), bits >> np.uint32(16) | np.uint32(0x40), rounded).astype(np.uint16)


def round_to(values: Array, dtype: DType) -> Array:
    """`values` in their own type (f32 or f64), rounded to what `dtype` can hold; any other `dtype`: as they are."""
    return widen(narrow(values, dtype)).astype(values.dtype) if dtype.is_storage else values


def _round_to_odd(values: Array) -> Array:
    """f64 as f32, towards zero, the last bit set where that is not exact."""
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
        back = single.astype(np.float64)
        bits = np.ascontiguousarray(single).view(np.int32)
        bits = np.where(np.abs(back) > np.abs(values), bits - 1, bits)
        inexact = (back < values) | (back > values)
    return np.where(inexact, bits | 1, bits).astype(np.int32).view(np.float32)
