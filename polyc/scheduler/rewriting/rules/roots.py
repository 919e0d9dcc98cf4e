"""What moves is multiplied by the reciprocal of a root that stays, instead of being divided by it.

    before  ``y[n,c] = (x[n,c] - m[c]) / sqrt(v[c] + e)``
    after   ``y[n,c] = (x[n,c] - m[c]) * rsqrt(v[c] + e)``

The reciprocal is computed once for all that it is multiplied by.  Roots and their reciprocals never leave the normal floats but
for zero, infinity and NaN, so these come out as of a division, and nothing else overflows or vanishes; there is one rounding
more, of a divisor that was rounded already.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Select, index_names
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges

_LARGEST = 1e10
"""What is added to a root, or is the least that it may be, is at most this."""


def multiply_by_roots(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with multiplications where roots of fewer indices divided."""
    statements: list[Statement] = []
    remarks: list[Remark] = []
    for s in program.statements:
        dtype = program.tensor(s.target).dtype
        value = _multiply(s.value, dtype) if dtype.is_float and not dtype.is_storage else s.value
        if value != s.value:
            message = f"{s.target} is multiplied by the reciprocal of a root instead of divided"
            remarks.append(Remark("passed", "root-reciprocals", message, s.name, s.span))
        statements.append(replace(s, value=value))
    return (replace(program, statements=tuple(statements)) if remarks else program), ranges, remarks


def _multiply(expr: Expr, dtype: DType) -> Expr:
    match expr:
        case Call(op="truediv", args=(a, b)):
            a = _multiply(a, dtype)
            if _is_root(b) and index_names(a) - index_names(b):
                return Call("mul", (a, _invert(b, dtype)), expr.span)
            return replace(expr, args=(a, b))
        case Call(op="add" | "sub" | "mul" | "neg" | "max" | "min" | "fmax" | "fmin", args=args):
            return replace(expr, args=tuple(_multiply(a, dtype) for a in args))
        case Select(_, then, other):
            return replace(expr, then=_multiply(then, dtype), other=_multiply(other, dtype))
    return expr


def _invert(root: Expr, dtype: DType) -> Expr:
    match root:
        case Call(op="sqrt", args=args):
            return Call("rsqrt", args)
    return Call("truediv", (Const(1.0, dtype), root))


def _is_root(expr: Expr) -> bool:
    """Whether `expr` is a root, or one that a small number is added to or that is at least such a number."""
    match expr:
        case Call(op="sqrt"):
            return True
        case Call(
            op="add" | "max" | "fmax", args=(Call(op="sqrt"), Const(value=value)) | (Const(value=value), Call(op="sqrt"))
        ):
            return 0 <= value <= _LARGEST
    return False
