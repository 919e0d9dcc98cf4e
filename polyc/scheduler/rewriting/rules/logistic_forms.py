"""Hyperbolic tangents that 1 is added to are logistic functions: an exponential and one division.

    before  ``y[i] = 0.5 * x[i] * (1 + tanh(u[i]))``
    after   ``y[i] = x[i] / (1 + exp(-2 * u[i]))``

The tangent is made of an exponential, a quotient and a sum with 1, and loses the digits of results near 0 in adding 1 again:
where the tangent is -0.999, the sum has three digits less than the tangent.  The logistic function has all of them.

Identity: 1 + tanh(u) = 2 / (1 + e^(-2u)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Read, children, type_of, walk, with_children
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges

LARGEST_HALF = 0.5
"""Literal factors up to here are doubled: what is then divided is no larger than the other factor."""

LARGEST_LITERAL = 1e30
"""Literal factors of an argument that are doubled."""


def use_logistic_forms(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with ``1 + tanh(u)`` as a quotient, in statements that need no such tangent for anything else."""
    types = {t.name: t.dtype for t in program.tensors}
    statements: list[Statement] = []
    remarks: list[Remark] = []
    for s in program.statements:
        tangents = set[Expr]()
        has_tangent = any(_tangent(e) for e in walk(s.value))
        value = _rewrite(s.value, types, tangents) if has_tangent else s.value
        if tangents and tangents.isdisjoint(walk(value)):
            message = f"1 + tanh in {s.target} is computed as a logistic function"
            remarks.append(Remark("passed", "logistic", message, s.name, s.span))
            s = replace(s, value=value)
        statements.append(s)
    return (replace(program, statements=tuple(statements)) if remarks else program), ranges, remarks


def _rewrite(expr: Expr, types: Mapping[str, DType], tangents: set[Expr]) -> Expr:
    """`expr` with its sums of 1 and a tangent replaced, which are added to `tangents`."""
    if isinstance(expr, Read):
        return expr
    if isinstance(expr, Call) and expr.op in ("add", "sub", "mul", "truediv"):
        dtype = type_of(expr, types)
        factors = _factors(expr) if dtype.is_float and not dtype.is_storage else []
        others = [f for f in factors if _tangent(f) is None]
        dividend = _doubled(others, dtype) if len(others) == len(factors) - 1 else None
        if dividend is not None:
            tangent, sign = next(t for f in factors if (t := _tangent(f)) is not None)
            tangents.add(tangent)
            (u,) = tangent.args
            exponent = _scaled(-2.0 * sign, _rewrite(u, types, tangents), dtype)
            below = Const(1.0, dtype) + Call("exp", (exponent,))
            return Call("truediv", (_rewrite(dividend, types, tangents), below))
    return with_children(expr, tuple(_rewrite(child, types, tangents) for child in children(expr)))


def _factors(expr: Expr) -> list[Expr]:
    """What is multiplied in `expr`; divided by 2, a half."""
    match expr:
        case Call(op="mul", args=(a, b)):
            return [*_factors(a), *_factors(b)]
        case Call(op="truediv", args=(a, Const(value=2, dtype=dtype))):
            return [*_factors(a), Const(0.5, dtype)]
    return [expr]


def _tangent(expr: Expr) -> tuple[Call, int] | None:
    """The tangent that `expr` adds to 1, or takes from 1, and its sign."""
    match expr:
        case (
            Call(op="add", args=(Const(value=1), Call(op="tanh") as t))
            | Call(op="add", args=(Call(op="tanh") as t, Const(value=1)))
        ):
            return t, 1
        case Call(op="sub", args=(Const(value=1), Call(op="tanh") as t)):
            return t, -1
    return None


def _doubled(factors: list[Expr], dtype: DType) -> Expr | None:
    """Twice the product of `factors`, where that is as large as one of them at most; None elsewhere.  Of longer products parts
    could overflow, or vanish, which do not in the order of the source."""
    if not factors:
        return Const(2.0, dtype)
    match sorted(factors, key=lambda f: isinstance(f, Const)):
        case [value, Const(value=0.5)]:
            return value
        case [value, Const(value=half)] if abs(float(half)) <= LARGEST_HALF:
            return Const(2.0 * float(half), dtype) * value
    return None


def _scaled(factor: float, u: Expr, dtype: DType) -> Expr:
    """``factor * u``, a power of two that joins a literal factor of `u` without rounding."""
    match u:
        case Call(op="mul", args=(Const(value=c), value)) | Call(op="mul", args=(value, Const(value=c))):
            if abs(float(c)) <= LARGEST_LITERAL:
                return Const(factor * float(c), dtype) * value
    return Const(factor, dtype) * u
