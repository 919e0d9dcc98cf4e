"""Programs that read matrices in compressed rows, for the types of subscripts that a call gives.

Which integers `indices` and `indptr` hold is the caller's choice (SciPy and PyTorch take 32 bits or 64), so a program is read
for 32 and changed where a call has others: the arrays are declared with their types, and their elements converted where they
are not i64 already.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Cast, Expr, Read, rewrite
from polyc.ir.program import Program, map_expressions
from polyc.ir.types import I64, DType
from polyc.records import replace


def retype_subscripts(program: Program, types: Mapping[str, DType]) -> Program:
    """The program for arrays of subscripts of these element types, by name."""
    changed = {n: t for n, t in types.items() if program.tensor(n).dtype != t}
    if not changed:
        return program

    def rule(node: Expr) -> Expr | None:
        match node:
            case Cast(Read(tensor) as read, dtype) if dtype == changed.get(tensor) == I64:
                return read
        return None

    tensors = tuple(replace(t, dtype=changed.get(t.name, t.dtype)) for t in program.tensors)
    return replace(map_expressions(program, lambda e: rewrite(e, rule)), tensors=tensors)
