"""Names that mean something only inside an operator's source: element types used as casts, and `where`."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyc.diagnostics import Diagnostic, SemanticError
from polyc.ir.types import BF16, BOOL, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType


def _outside(name: str, example: str) -> SemanticError:
    return SemanticError(
        Diagnostic(
            "semantic-outside-operator",
            f"polyc.{name} has a meaning only inside a function decorated with @polyc.op, whose source polyc reads",
            None,
            f"write it there, for example: {example}",
        )
    )


class ElementType:
    """An element type: a cast inside an operator (``polyc.f32(x[i])``), a type for `Operator.specialize` outside."""

    __slots__ = ("element",)

    def __init__(self, element: DType) -> None:
        self.element = element

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type, so that ``numpy.empty(3, polyc.f32)`` works."""
        return self.element.numpy

    def __call__(self, value: Any) -> Any:
        raise _outside(self.element.name, f"Y[i] = polyc.{self.element.name}(X[i])")

    def __repr__(self) -> str:
        return f"polyc.{self.element.name}"


class _Where:
    """``with polyc.where(0 <= i < N, j < 3):`` restricts the ranges of indices inside an operator."""

    def __call__(self, *conditions: Any) -> Any:
        raise _outside("where", "with polyc.where(0 <= k < 3): Y[i] += X[i + k]")

    def __repr__(self) -> str:
        return "polyc.where"


where = _Where()
f16, bf16 = ElementType(F16), ElementType(BF16)
f32, f64 = ElementType(F32), ElementType(F64)
c64, c128 = ElementType(C64), ElementType(C128)
i8, i16, i32, i64 = ElementType(I8), ElementType(I16), ElementType(I32), ElementType(I64)
u8, u16, u32, u64 = ElementType(U8), ElementType(U16), ElementType(U32), ElementType(U64)
bool_ = ElementType(BOOL)
