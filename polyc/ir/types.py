"""Element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `name` is polyc's (``f32``), `kind` f(loat), i(nt), u(nsigned), b(ool)."""

    name: str
    kind: Literal["f", "i", "u", "b"]
    bits: int

    @property
    def numpy(self) -> np.dtype:
        return np.dtype("bool" if self.kind == "b" else f"{self.kind}{self.bits // 8}")

    @property
    def itemsize(self) -> int:
        """Size in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    def __str__(self) -> str:
        return self.name


F32, F64 = DType("f32", "f", 32), DType("f64", "f", 64)
I8, I16, I32, I64 = (DType(f"i{b}", "i", b) for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{b}", "u", b) for b in (8, 16, 32, 64))
BOOL = DType("bool", "b", 8)

DTYPES: dict[str, DType] = {t.name: t for t in (F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)}


def from_numpy(dtype: np.dtype) -> DType | None:
    """The element type for a NumPy dtype in native byte order, or None where polyc has none."""
    if not dtype.isnative:
        return None
    for candidate in DTYPES.values():
        if candidate.numpy == dtype:
            return candidate
    return None
