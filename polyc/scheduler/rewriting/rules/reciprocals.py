"""Terms of a sum are multiplied by the reciprocal of a number instead of being divided by it.

    before  ``m[j] += X[i,j] / f32(200)``
    after   ``m[j] += X[i,j] * 0.005``

A mean written as a sum of quotients divides as often as it adds, and a division takes the time of several additions.  Terms
still do not overflow, as they would where the sum is divided at its end.  Each is off by one rounding more, which is what the
order of additions costs as well, so this is for sums alone: a quotient that is a result is divided.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Cast, Const, Expr, Select, Size, evaluate, mentions, walk
from polyc.ir.operators import HOST_OPERATORS
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges

_LARGEST = 1e30
"""Numbers up to here, and reciprocals of them, have full precision in every type of float that is computed in."""


def multiply_by_reciprocals(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with the terms of its floating-point sums multiplied where a number or a size divided them."""
    statements: list[Statement] = []
    remarks: list[Remark] = []
    for s in program.statements:
        dtype = program.tensor(s.target).dtype
        is_sum = s.reduction is not None and s.reduction.op == "add" and dtype.is_float
        value = _multiply(s.value, s, dtype) if is_sum else s.value
        if value != s.value:
            message = f"terms of {s.target} are multiplied by a reciprocal instead of divided"
            remarks.append(Remark("passed", "reciprocals", message, s.name, s.span))
        statements.append(replace(s, value=value))
    return (replace(program, statements=tuple(statements)) if remarks else program), ranges, remarks


def _multiply(expr: Expr, s: Statement, dtype: DType) -> Expr:
    """`expr`, a part of a term of the sum `s`, without divisions of what moves along the sum and is added or multiplied."""
    if not mentions(expr, *s.reduction_indices):
        return expr
    match expr:
        case Call(op="truediv", args=(a, b)):
            reciprocal = _invert(b, dtype)
            a = _multiply(a, s, dtype)
            return replace(expr, args=(a, b)) if reciprocal is None else Call("mul", (a, reciprocal), expr.span)
        case Call(op="add" | "sub" | "mul" | "neg", args=args):
            return replace(expr, args=tuple(_multiply(a, s, dtype) for a in args))
        case Select(_, then, other):
            return replace(expr, then=_multiply(then, s, dtype), other=_multiply(other, s, dtype))
    return expr


def _invert(divisor: Expr, dtype: DType) -> Expr | None:
    """1 / `divisor` where that is a number or made of sizes, and neither it nor the reciprocal leaves the normal floats."""
    match divisor:
        case Const(value=value) if isfinite(value) and 1 / _LARGEST < abs(value) < _LARGEST:
            return Const(1 / value, dtype)
        case Cast(value=count) if _is_count(count):
            if not any(isinstance(node, Size) for node in walk(count)):
                return _invert(Const(float(evaluate(count, {})), dtype), dtype)
            return Call("truediv", (Const(1.0, dtype), divisor))
        case Call(op="mul", args=(Cast(value=a), Cast(value=b))) if _is_count(a) and _is_count(b):
            return Call("truediv", (Const(1.0, dtype), divisor))
    return None


def _is_count(expr: Expr) -> bool:
    """Whether `expr` is an integer made of sizes and numbers."""
    return all(
        isinstance(node, Size)
        or (isinstance(node, (Const, Cast)) and node.dtype.kind in "iu")
        or (isinstance(node, Call) and node.op in HOST_OPERATORS)
        for node in walk(expr)
    )
