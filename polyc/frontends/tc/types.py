"""Element types of `.tc` text: their names, promotion, and the value of literals."""

from __future__ import annotations

import math

import numpy as np

from polyc.frontends.core.values import LONG_NAMES, Value
from polyc.ir.expr import Cast, Const, Expr
from polyc.ir.halves import narrow, widen
from polyc.ir.types import C64, C128, F32, F64, I8, I16, I32, I64, DType

TYPE_NAMES: dict[str, DType] = {**LONG_NAMES, "float": F32, "double": F64}
"""Keyword -> element type."""

_SPELLING = {dtype: name for name, dtype in LONG_NAMES.items()}

_SIGNED = {8: I8, 16: I16, 32: I32, 64: I64}


def spell_type(dtype: DType) -> str:
    """The type's name in `.tc` text."""
    return _SPELLING[dtype]


def promote_types(a: DType, b: DType) -> DType:
    """Common type: float beats integer, the wider float wins, mixed signedness gives the signed type of the wider width.

    A complex number has the common type of the parts.  A bool takes the other type.  float16 and bfloat16 meet each other, and
    integers of more than 8 bits, in float32.
    """
    if a == b or b.kind == "b":
        return a
    if a.kind == "b":
        return b
    if a.is_complex or b.is_complex:
        return C128 if promote_types(a.part, b.part) == F64 else C64
    if a.is_float != b.is_float:
        real, whole = (a, b) if a.is_float else (b, a)
        return F32 if real.is_storage and whole.bits > 8 else real
    if a.is_storage and b.is_storage:
        return F32
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    return _SIGNED[max(a.bits, b.bits)]


def is_narrower(target: DType, value: DType) -> bool:
    """Whether storing `value` into `target` may lose what promotion would keep.  Integers go into every float."""
    if target.is_float and not value.is_float and not value.is_complex:
        return False
    return promote_types(target, value) != target


def fits_type(value: int, dtype: DType) -> bool:
    """Whether the integer `value` is one of `dtype`'s (an integer type)."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    return low <= value < low + (1 << dtype.bits)


def convert(value: Value, target: DType) -> Expr:
    """`value` as `target`: unchanged, a converted literal where that is exact in meaning, or a `Cast`."""
    expr = value.expr
    if value.dtype == target:
        return expr
    if isinstance(expr, Const):
        folded = convert_literal(expr.value, value.dtype, target)
        if folded is not None:
            return Const(folded, target, expr.span)
    return Cast(expr, target, expr.span)


def convert_literal(value: int | float | bool, source: DType, target: DType) -> int | float | bool | None:
    """`value` of type `source` as a literal of `target`, or None where a `Cast` has to decide (wrap-around, truncation)."""
    if target.is_float:
        # A float32 literal is rounded before it is widened: 0.1 + (a float64) adds the float32 nearest to 0.1.
        number = float(np.float32(value)) if source == F32 else float(value)
        if target.is_storage:
            return float(widen(narrow(number, target))[()])
        return number if target == F64 or math.isfinite(number) else None
    if target.is_integer and not source.is_float and fits_type(int(value), target):
        return int(value)
    return None
