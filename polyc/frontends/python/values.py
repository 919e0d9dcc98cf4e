"""Typed values and NumPy's promotion rules: what an operator does to operands of two element types.

A value is *weak* where NumPy would see a Python scalar: literals, compile-time constants, and extents (``X.shape[0]``,
``len(X)``).  A weak value takes the element type of what it meets, unless its kind is higher (a float literal makes an
integer array f64).  Indices and size symbols are i64 arrays, as ``np.arange`` gives.  Functions of 8-bit integers and booleans
give f32, where NumPy gives float16; a literal that meets a 16-bit float is not rounded to it.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from polyc.diagnostics import Span
from polyc.frontends.core.values import Fault, Value
from polyc.ir.expr import Call, Cast, Const, Expr, result_type
from polyc.ir.operators import COMPLEX_OPERATORS, OPERATORS
from polyc.ir.types import BOOL, C64, C128, F32, F64, I64, DType, promote_types
from polyc.records import replace

MAX_NODES = 20_000
"""Nodes of one expression: operators such as ``sign`` repeat their operand, so nesting them can grow without bound."""

_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


POISON = Value(Const(0), I64, True, 0)
"""Stands for an expression whose error is already reported; compared by identity."""


def make_literal(number: int | float | bool | complex, span: Span | None = None) -> Value:
    """A weak constant: a Python bool, int, float or complex."""
    if isinstance(number, complex):
        parts = (Const(number.real, F64, span), Const(number.imag, F64, span))
        return Value(Call("complex", parts, span), C128, True, 3)
    dtype = BOOL if isinstance(number, bool) else I64 if isinstance(number, int) else F64
    return Value(Const(number, dtype, span), dtype, weak=True)


def convert(value: Value, dtype: DType, span: Span | None = None) -> Value:
    """`value` as a strong value of `dtype`; a literal that does not fit is an error, as in NumPy 2."""
    if value.dtype == dtype and not (value.weak and isinstance(value.expr, Const)):
        return replace(value, weak=False)
    if value.dtype.is_complex and not dtype.is_complex:
        message = f"a complex number is needed as {dtype} here"
        raise Fault("type-complex", message, "take a part of it, or its size: z.real, z.imag, abs(z)")
    number = value.constant
    if number is not None and not (isinstance(number, float) and not (dtype.is_float or dtype.is_complex)):
        return Value(Const(_fit_literal(number, dtype), dtype, value.expr.span), dtype, unread=value.unread)
    return Value(Cast(value.expr, dtype, span or value.expr.span), dtype, False, value.n_nodes + 1, value.unread)


def convert_weakly(value: Value, dtype: DType) -> Value:
    """`convert` between the three weak types, staying weak."""
    return replace(convert(value, dtype), weak=True)


def _fit_literal(number: int | float | bool, dtype: DType) -> int | float | bool:
    if dtype.is_float or dtype.is_complex:
        try:
            return float(number)
        except OverflowError:
            raise Fault("type-literal", f"this integer does not fit {dtype}", "write a smaller number") from None
    if dtype.kind == "b":
        return bool(number)
    info = np.iinfo(dtype.numpy)
    if not info.min <= number <= info.max:
        shown = str(number) if abs(number) < 10**40 else "this number"
        raise Fault(
            "type-literal", f"{shown} does not fit {dtype}", f"{dtype} holds {info.min} to {info.max}: cast the operand"
        )
    return int(number)


def common_type(values: tuple[Value, ...]) -> tuple[DType, bool]:
    """Element type that operands meet in, and whether all of them are weak."""
    strong = [v.dtype for v in values if not v.weak]
    weak = max((v.dtype for v in values if v.weak), key=lambda d: _KIND_ORDER[d.kind], default=None)
    if not strong:
        assert weak is not None
        return weak, True
    dtype = reduce(promote_types, strong)
    if weak is not None and _KIND_ORDER[weak.kind] > _KIND_ORDER[dtype.kind]:
        dtype = C64 if weak.is_complex and dtype.is_float and dtype.bits <= 32 else weak
    return dtype, False


def float_type(dtype: DType) -> DType:
    """Element type of a floating-point function of `dtype`."""
    return dtype if dtype.is_float or dtype.is_complex else F32 if dtype.bits <= 16 else F64


def unify(values: tuple[Value, ...], dtype: DType | None = None, weak: bool | None = None) -> tuple[Value, ...]:
    """All values in one element type (their common one by default)."""
    found, all_weak = common_type(values)
    target = found if dtype is None else dtype
    if all_weak if weak is None else weak:
        return tuple(convert_weakly(v, target) for v in values)
    return tuple(convert(v, target) for v in values)


def call(op: str, args: tuple[Value, ...], span: Span | None = None) -> Value:
    """An IR operator on operands that already have one element type."""
    dtype = result_type(op, args[0].dtype)
    if args[0].dtype.is_complex and op not in COMPLEX_OPERATORS:
        message = f"{OPERATORS[op].infix or op} is not defined for complex numbers"
        help = "they have + - * / ** == !=, exp, log, sqrt, sin, cos, tan, sinh, cosh, tanh, conj, abs, z.real and z.imag"
        raise Fault("type-complex", message, help)
    n_nodes = 1 + sum(a.n_nodes for a in args)
    check_size(n_nodes)
    return Value(Call(op, tuple(a.expr for a in args), span), dtype, all(a.weak for a in args), n_nodes).made_of(*args)


def check_size(n_nodes: int) -> None:
    if n_nodes > MAX_NODES:
        raise Fault("budget-expression", "this expression is too large", "assign parts of it to names of their own first")


def require_integer(value: Value, what: str) -> Expr:
    """The i64 expression of a subscript, bound or extent."""
    if not value.dtype.is_integer:
        raise Fault("type-not-integral", f"{what} must be an integer, not {value.dtype}", "cast it with i64(...)")
    return convert(value, I64).expr
