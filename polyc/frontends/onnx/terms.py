"""Scalars of the comprehensions that operators are written in: typed expressions with Python's operators.

A `Term` is an element of a tensor, an index, a constant, or what is computed of them.  Both operands of an operator have the
same element type; a Python number takes that of the other operand.  16-bit floats are float32 as soon as they are read, and
are rounded when they are stored.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Select
from polyc.ir.generalize import EXACT_FLOATS
from polyc.ir.traced import is_traced, whole
from polyc.ir.types import BOOL, I64, DType

Operand: TypeAlias = "Term | int | float | bool"


class Term:
    """An expression and its element type."""

    __slots__ = ("dtype", "expr")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expr: Expr, dtype: DType) -> None:
        self.expr = expr
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Term({self.expr}, {self.dtype})"

    def __add__(self, other: Operand) -> Term:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Term:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Term:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Term:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Term:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Term:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Term:
        return call("truediv", self, other)

    def __rtruediv__(self, other: Operand) -> Term:
        return call("truediv", other, self)

    def __floordiv__(self, other: Operand) -> Term:
        return call("floordiv", self, other)

    def __mod__(self, other: Operand) -> Term:
        return call("mod", self, other)

    def __neg__(self) -> Term:
        return call("neg", self)

    def __lt__(self, other: Operand) -> Term:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Term:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Term:
        return call("gt", self, other)

    def __ge__(self, other: Operand) -> Term:
        return call("ge", self, other)

    def __eq__(self, other: Operand) -> Term:  # type: ignore[override]
        return call("eq", self, other)

    def __ne__(self, other: Operand) -> Term:  # type: ignore[override]
        return call("ne", self, other)

    def __and__(self, other: Operand) -> Term:
        return call("and" if self.dtype == BOOL else "bitand", self, other)

    def __or__(self, other: Operand) -> Term:
        return call("or" if self.dtype == BOOL else "bitor", self, other)

    def __invert__(self) -> Term:
        return call("not", self)

    def __bool__(self) -> bool:
        raise TypeError("a term has no truth value while the program is built; use select")


def index(name: str) -> Term:
    """The iteration index `name`."""
    return Term(Index(name), I64)


def constant(value: int | float | bool | np.generic, dtype: DType) -> Term:
    """A literal of `dtype` (of a 16-bit float, the literal is float32)."""
    dtype = dtype.computed
    if is_traced(value):
        number = whole(value)
        if dtype == I64 or (dtype.is_float and 1 <= number <= EXACT_FLOATS):
            return Term(Const(number, dtype), dtype)
    if dtype.is_float:
        real = float(value)
        if dtype.bits == 32 and math.isfinite(real):
            with np.errstate(over="ignore"):
                real = float(np.float32(real))
        return Term(Const(real, dtype), dtype)
    if dtype == BOOL:
        return Term(Const(bool(value), BOOL), BOOL)
    return Term(Const(int(value), dtype), dtype)


def as_term(value: Operand, dtype: DType) -> Term:
    """`value` itself, or a Python number as a literal of `dtype`."""
    return value if isinstance(value, Term) else constant(value, dtype)


def call(op: str, *operands: Operand) -> Term:
    """The operator `op` of `ir.operators.OPERATORS`; at least one operand is a term."""
    from polyc.ir.operators import OPERATORS

    dtype = next(o.dtype for o in operands if isinstance(o, Term))
    terms = [as_term(o, dtype) for o in operands]
    wrong = [t.dtype for t in terms if t.dtype != dtype]
    if wrong:
        raise TypeError(f"{op} mixes {dtype} and {wrong[0]}")
    if dtype == BOOL and op in ("add", "mul"):  # the sum and the product of truth values
        op = "or" if op == "add" else "and"
    result = BOOL if OPERATORS[op].result == "bool" else dtype
    return Term(_fold(op, tuple(t.expr for t in terms)), result)


def _fold(op: str, args: tuple[Expr, ...]) -> Expr:
    """The call, without the additions of 0 and products with 1 that subscripts are full of."""
    match op, args:
        case "add", (a, Const(0, dtype)) if dtype == I64:
            return a
        case "add", (Const(0, dtype), a) if dtype == I64:
            return a
        case "sub", (a, Const(0, dtype)) if dtype == I64:
            return a
        case (("mul" | "floordiv"), (a, Const(1, dtype))) if dtype == I64:
            return a
        case "mul", (_, Const(0, dtype)) if dtype == I64:
            return Const(0, I64)
    return Call(op, args)


def select(condition: Term, then: Operand, other: Operand) -> Term:
    """`then` where `condition` holds, else `other`, whose reads are then not made."""
    dtype = next((o.dtype for o in (then, other) if isinstance(o, Term)), None)
    if dtype is None:
        raise TypeError("one of the values to select from must be a term")
    a, b = as_term(then, dtype), as_term(other, dtype)
    if a.dtype != b.dtype:
        raise TypeError(f"select mixes {a.dtype} and {b.dtype}")
    return Term(Select(condition.expr, a.expr, b.expr), dtype)


def cast(value: Term, dtype: DType) -> Term:
    """`value` converted as NumPy's `astype` does; to a 16-bit float it is rounded, and stays float32."""
    if dtype.is_storage:
        return Term(Cast(Cast(value.expr, dtype), dtype.computed), dtype.computed)
    return value if value.dtype == dtype else Term(Cast(value.expr, dtype), dtype)


def maximum(a: Operand, b: Operand) -> Term:
    """The greater; NaN where one is NaN."""
    return call("max", a, b)


def minimum(a: Operand, b: Operand) -> Term:
    """The less; NaN where one is NaN."""
    return call("min", a, b)


def clamp(value: Term, low: int, high: int) -> Term:
    """`value`, or the end of ``[low, high]`` that it lies beyond."""
    return minimum(maximum(value, low), high)


def wrap_index(value: Term, extent: int) -> Term:
    """A subscript of ONNX, which counts from the end where it is negative, as one from 0 (int64)."""
    position = cast(value, I64)
    return select(position < 0, position + extent, position)
