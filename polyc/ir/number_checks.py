"""Whether whole numbers that only a call tells fit the element types that a program converts them to.

NumPy raises where a Python integer meets an array whose type does not hold it.  Code is compiled for all integers alike, so
this is asked at the call, of expressions over such numbers and sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from polyc.diagnostics import ArgumentOverflowError, Diagnostic, Span
from polyc.ir.expr import Call, Cast, Const, Expr, Read, Size, evaluate, rewrite, walk
from polyc.ir.operators import HOST_OPERATORS
from polyc.ir.program import Program
from polyc.ir.types import BOOL, I64, DType
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class NumberCheck:
    """`value`, over the numbers of a call and sizes (all of them as `Size`), must fit `dtype`."""

    value: Expr
    dtype: DType
    span: Span | None

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest number that fit."""
        info = np.iinfo(self.dtype.numpy)
        return int(info.min), int(info.max)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.name for n in walk(self.value) if isinstance(n, Size)))

    def ask(self, values: Mapping[str, int]) -> None:
        """Raise where the value does not fit."""
        found = evaluate(self.value, values)
        least, largest = self.limits
        if not least <= found <= largest:
            used = ", ".join(f"{n}={values[n]}" for n in self.names)
            shown = used if isinstance(self.value, Size) else f"{found} (at {used})"
            message = f"{shown} does not fit {self.dtype}, the type of the integers that it meets"
            help = f"{self.dtype} holds {least} to {largest}: convert the array, or pass a number of a wider type (numpy.int64)"
            raise ArgumentOverflowError(Diagnostic("argument-number", message, self.span, help))


def find_number_checks(program: Program, numbers: Collection[str]) -> tuple[NumberCheck, ...]:
    """What to ask of the parameters `numbers`, which hold Python's integers: at each conversion to an integer type of an
    expression made of nothing but these, sizes and literals."""
    if not numbers:
        return ()
    whole = {n for n in numbers if program.tensor(n).dtype.is_integer or program.tensor(n).dtype == BOOL}
    known: dict[str, Expr] = {n: Size(program.tensor(n).base) for n in whole}
    names = {program.tensor(n).base for n in whole}
    written = [s.target for s in program.statements]
    found: dict[tuple[Expr, DType], NumberCheck] = {}
    for statement in program.statements:
        roots = [statement.value, *statement.subscripts, *([] if statement.reduction is None else [statement.reduction.init])]
        for node in (n for root in roots for n in walk(root)):
            if isinstance(node, Cast) and node.dtype.is_integer:
                value = _on_host(node.value, known)
                if value is not None and any(isinstance(n, Size) and n.name in names for n in walk(value)):
                    found.setdefault((value, node.dtype), NumberCheck(value, node.dtype, node.span))
        if not (statement.subscripts or statement.where or statement.reduction) and written.count(statement.target) == 1:
            value = _on_host(statement.value, known)
            if value is not None:
                known[statement.target] = value
    return tuple(found.values())


def _on_host(expr: Expr, known: Mapping[str, Expr]) -> Expr | None:
    """The expression with `known` versions written out; None where the host cannot compute it from whole numbers."""

    def rule(node: Expr) -> Expr | None:
        return known.get(node.tensor) if isinstance(node, Read) and not node.subscripts else None

    result = rewrite(expr, rule)
    for node in walk(result):
        match node:
            case Size() | Const(bool() | int()):
                pass
            case Call(op) if op in HOST_OPERATORS:
                pass
            case Cast(dtype=dtype) if dtype == I64:
                pass
            case _:
                return None
    return result
