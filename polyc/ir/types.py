"""Element types."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from typing import Literal

import numpy as np

from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `name` is polyc's (``f32``), `kind` f(loat), c(omplex), i(nt), u(nsigned), b(ool).

    The 16-bit floats are *storage types*: tensors hold them, a read converts to f32, arithmetic and sums are f32, and what is
    stored (or cast explicitly) is rounded to the nearest, ties to even.

    *Complex* numbers are pairs of floats side by side, real part first, as in NumPy and C.
    """

    name: str
    kind: Literal["f", "c", "i", "u", "b"]
    bits: int
    unit: int = 0
    """Bytes of whose multiples elements begin, where these are fewer than an element has; 0: an element's own."""

    @property
    def numpy(self) -> np.dtype:
        """NumPy's type; for bf16 that of `ml_dtypes`, or two raw bytes (``V2``) where that is not installed."""
        if self.name == "bf16":
            return _bfloat16()
        return np.dtype("bool" if self.kind == "b" else f"{self.kind}{self.bits // 8}")

    @property
    def label(self) -> str:
        """NumPy's name of it, which is the one that users know (``float32``, ``bfloat16``)."""
        return "bfloat16" if self.name == "bf16" else str(self.numpy)

    @property
    def is_storage(self) -> bool:
        """Whether this is a type for memory only: a 16-bit float."""
        return self.kind == "f" and self.bits == 16

    @property
    def computed(self) -> DType:
        """The type that arithmetic on elements of this type is done in."""
        return F32 if self.is_storage else self

    @property
    def itemsize(self) -> int:
        """Size in bytes."""
        return self.bits // 8

    @property
    def alignment(self) -> int:
        """Bytes of whose multiples elements begin."""
        return self.unit or self.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def part(self) -> DType:
        """The type of the real and the imaginary part of a complex number; any other type itself."""
        return self if self.kind != "c" else F32 if self.bits == 64 else F64

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc"

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type, or of bool."""
        if self.kind == "b":
            return 0, 1
        low = -(1 << (self.bits - 1)) if self.is_signed else 0
        return low, low + (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


F16, BF16 = DType("f16", "f", 16), DType("bf16", "f", 16)
F32, F64 = DType("f32", "f", 32), DType("f64", "f", 64)
C64, C128 = DType("c64", "c", 64), DType("c128", "c", 128)
I8, I16, I32, I64 = (DType(f"i{b}", "i", b) for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{b}", "u", b) for b in (8, 16, 32, 64))
BOOL = DType("bool", "b", 8)

PAIR = DType("u64", "u", 64, F32.itemsize)
"""The bits of a complex number of two f32, where these are only moved."""

DTYPES: dict[str, DType] = {t.name: t for t in (F16, BF16, F32, F64, C64, C128, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)}

_BY_NUMPY = {t.numpy: t for t in DTYPES.values() if t != BF16}


_RAW = np.dtype("V2")


@cache
def _bfloat16() -> np.dtype:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return _RAW
    return np.dtype(bfloat16)


def from_numpy(dtype: np.dtype) -> DType | None:
    """The element type for a NumPy dtype in native byte order, or None where polyc has none."""
    if not dtype.isnative:
        return None
    found = _BY_NUMPY.get(dtype)
    if found is None and (dtype.name == "bfloat16" or (dtype == _RAW and _bfloat16() == _RAW)):
        return BF16
    return found


def promote_types(a: DType, b: DType) -> DType:
    """NumPy's `promote_types`.  bf16, which NumPy does not have, meets the others as f16 does; f16 and bf16 meet in f32."""
    if a == b or BF16 not in (a, b):
        return _promote(a, b)
    other = b if a == BF16 else a
    if other == F16:
        return F32
    result = _promote(F16, other)
    return BF16 if result == F16 else result


def promote_all(dtypes: Iterable[DType]) -> DType:
    """NumPy's `result_type` of several: floats meet first, so that two integers beside a float do not widen it by what they
    would need among themselves (uint16, int8 and float32 meet in float32)."""
    return reduce(promote_types, sorted(dtypes, key=lambda d: -_ORDER[d.kind]))


def _promote(a: DType, b: DType) -> DType:
    return a if a == b else _BY_NUMPY[np.promote_types(a.numpy, b.numpy)]


def can_cast(source: DType, target: DType) -> bool:
    """NumPy's `can_cast` under the rule ``same_kind``: a narrower type of the same kind, or of a higher one, will do."""
    return _ORDER[source.kind] <= _ORDER[target.kind] and not (source.kind == "i" and target.kind == "u")


_ORDER = {"b": 0, "u": 1, "i": 2, "f": 3, "c": 4}
