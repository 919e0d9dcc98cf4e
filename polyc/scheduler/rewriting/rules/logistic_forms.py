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
from functools import reduce
from math import frexp

from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Expr, Read, children, type_of, walk, with_children
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.poly.ranges import Ranges

LARGEST_HALF = 0.5
"""Factors up to here are doubled: the product that is then divided overflows only where the one that was written does."""


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
        if dtype.is_float and not dtype.is_storage:
            factors = _factors(expr, dtype)
            place = next((n for n, f in enumerate(factors) if _tangent(f) is not None), None)
            if place is not None:
                found, sign = _tangent(factors[place]) or (expr, 0)
                assert isinstance(found, Call)
                tangents.add(found)
                others = [_rewrite(f, types, tangents) for n, f in enumerate(factors) if n != place]
                return _quotient(others, _rewrite(found.args[0], types, tangents), sign, dtype)
    return with_children(expr, tuple(_rewrite(child, types, tangents) for child in children(expr)))


def _factors(expr: Expr, dtype: DType) -> list[Expr]:
    """What is multiplied in `expr`; divided by a power of two, its reciprocal."""
    match expr:
        case Call(op="mul", args=(a, b)):
            return [*_factors(a, dtype), *_factors(b, dtype)]
        case Call(op="truediv", args=(a, Const(value=value))) if frexp(float(value))[0] == 0.5:
            return [*_factors(a, dtype), Const(1.0 / float(value), dtype)]
    return [expr]


def _tangent(expr: Expr) -> tuple[Expr, int] | None:
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


def _quotient(others: list[Expr], u: Expr, sign: int, dtype: DType) -> Expr:
    """The product of `others` and ``1 + tanh(sign * u)``."""
    below = Call("add", (Const(1.0, dtype), Call("exp", (_scaled(-2.0 * sign, u, dtype),))))
    place = next((n for n, f in enumerate(others) if isinstance(f, Const) and abs(float(f.value)) <= LARGEST_HALF), None)
    if place is None:
        return _product([*others, Call("truediv", (Const(2.0, dtype), below))])
    doubled = 2.0 * float(getattr(others[place], "value", 0.0))
    rest = [f for n, f in enumerate(others) if n != place]
    if doubled != 1.0 or not rest:
        rest = [Const(doubled, dtype), *rest]
    return Call("truediv", (_product(rest), below))


def _scaled(factor: float, u: Expr, dtype: DType) -> Expr:
    """``factor * u``, a power of two that joins a literal factor of `u` without rounding."""
    factors = _factors(u, dtype)
    place = next((n for n, f in enumerate(factors) if isinstance(f, Const)), None)
    if place is None:
        return Call("mul", (Const(factor, dtype), u))
    whole = Const(factor * float(getattr(factors[place], "value", 0.0)), dtype)
    rest = [f for n, f in enumerate(factors) if n != place]
    return _product([whole, *rest])


def _product(factors: list[Expr]) -> Expr:
    return reduce(lambda a, b: Call("mul", (a, b)), factors)
