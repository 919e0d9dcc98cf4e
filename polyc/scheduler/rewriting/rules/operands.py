"""Operands of products: reads, perhaps padded and converted, whose subscripts are linear in the indices."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Call, Cast, Expr, Index, Pad, Read
from polyc.ir.linear import index_coefficients
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Operand:
    read: Read
    pad: Pad | None
    steps: tuple[Mapping[str, int], ...]
    """Coefficients of the indices in the subscript of each dimension."""

    @property
    def indices(self) -> set[str]:
        return {i for step in self.steps for i in step}

    def dimension_of(self, index: str) -> int | None:
        """The dimension in which an index stands alone, if it stands in no other."""
        found = [d for d, step in enumerate(self.steps) if index in step]
        return found[0] if len(found) == 1 and self.read.subscripts[found[0]] == Index(index) else None


def find_operand(expr: Expr) -> Operand | None:
    """What a factor reads; None where it is anything else."""
    inner = expr.value if isinstance(expr, Cast) else expr
    pad = inner if isinstance(inner, Pad) else None
    read = inner.read if isinstance(inner, Pad) else inner
    if not isinstance(read, Read):
        return None
    steps = [step for e in read.subscripts if (step := index_coefficients(e)) is not None]
    return Operand(read, pad, tuple(steps)) if len(steps) == len(read.subscripts) else None


def find_operands(value: Expr) -> list[Operand]:
    """Those of a product of two; none where one factor is anything else."""
    factors = value.args if isinstance(value, Call) and value.op == "mul" else ()
    found = [o for f in factors if (o := find_operand(f)) is not None]
    return found if len(found) == 2 else []
