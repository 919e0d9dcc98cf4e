"""Typed values and NumPy's promotion rules: what an operator does to operands of two element types.

A value is *weak* where NumPy would see a Python scalar: literals, compile-time constants, and extents (``X.shape[0]``,
``len(X)``).  A weak value takes the element type of what it meets, unless its kind is higher (a float literal makes an
integer array f64).  Indices and size symbols are i64 arrays, as ``np.arange`` gives.  Where NumPy would give float16
(functions of 8-bit integers and booleans), the result is f32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from polyc.diagnostics import Span
from polyc.ir.expr import OPERATORS, Call, Cast, Const, Expr, Select
from polyc.ir.types import BOOL, F32, F64, I8, I64, DType, from_numpy

MAX_NODES = 20_000
"""Nodes of one expression: operators such as ``sign`` repeat their operand, so nesting them can grow without bound."""

_KIND_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2}


class Fault(Exception):
    """What is wrong with the operands of one operator; the reader adds the place."""

    def __init__(self, code: str, message: str, help: str) -> None:
        super().__init__(message)
        self.code, self.message, self.help = code, message, help


@dataclass(frozen=True, slots=True)
class Value:
    """An expression with its element type; `n_nodes` counts repeated operands as often as they stand in the tree."""

    expr: Expr
    dtype: DType
    weak: bool = False
    n_nodes: int = 1

    @property
    def constant(self) -> int | float | bool | None:
        """The number of a weak constant, else None."""
        return self.expr.value if self.weak and isinstance(self.expr, Const) else None


POISON = Value(Const(0), I64, True, 0)
"""Stands for an expression whose error is already reported; compared by identity."""


def make_literal(number: int | float | bool, span: Span | None = None) -> Value:
    """A weak constant: a Python bool, int or float."""
    dtype = BOOL if isinstance(number, bool) else I64 if isinstance(number, int) else F64
    return Value(Const(number, dtype, span), dtype, weak=True)


def convert(value: Value, dtype: DType, span: Span | None = None) -> Value:
    """`value` as a strong value of `dtype`; a literal that does not fit is an error, as in NumPy 2."""
    if value.dtype == dtype and not (value.weak and isinstance(value.expr, Const)):
        return replace(value, weak=False)
    number = value.constant
    if number is not None and not (isinstance(number, float) and not dtype.is_float):
        return Value(Const(_fit_literal(number, dtype), dtype, value.expr.span), dtype)
    return Value(Cast(value.expr, dtype, span or value.expr.span), dtype, False, value.n_nodes + 1)


def convert_weakly(value: Value, dtype: DType) -> Value:
    """`convert` between the three weak types, staying weak."""
    return replace(convert(value, dtype), weak=True)


def _fit_literal(number: int | float | bool, dtype: DType) -> int | float | bool:
    if dtype.is_float:
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


def promote(a: DType, b: DType) -> DType:
    """NumPy's `promote_types`."""
    result = from_numpy(np.promote_types(a.numpy, b.numpy))
    assert result is not None
    return result


def common_type(values: tuple[Value, ...]) -> tuple[DType, bool]:
    """Element type that operands meet in, and whether all of them are weak."""
    strong = [v.dtype for v in values if not v.weak]
    weak = max((v.dtype for v in values if v.weak), key=lambda d: _KIND_ORDER[d.kind], default=None)
    if not strong:
        assert weak is not None
        return weak, True
    dtype = reduce(promote, strong)
    if weak is not None and _KIND_ORDER[weak.kind] > _KIND_ORDER[dtype.kind]:
        dtype = weak
    return dtype, False


def float_type(dtype: DType) -> DType:
    """Element type of a floating-point function of `dtype`."""
    return dtype if dtype.is_float else F32 if dtype.bits <= 16 else F64


def unify(values: tuple[Value, ...], dtype: DType | None = None, weak: bool | None = None) -> tuple[Value, ...]:
    """All values in one element type (their common one by default)."""
    found, all_weak = common_type(values)
    target = found if dtype is None else dtype
    if all_weak if weak is None else weak:
        return tuple(convert_weakly(v, target) for v in values)
    return tuple(convert(v, target) for v in values)


def call(op: str, args: tuple[Value, ...], span: Span | None = None) -> Value:
    """An IR operator on operands that already have one element type."""
    dtype = BOOL if OPERATORS[op].result == "bool" else args[0].dtype
    n_nodes = 1 + sum(a.n_nodes for a in args)
    check_size(n_nodes)
    return Value(Call(op, tuple(a.expr for a in args), span), dtype, all(a.weak for a in args), n_nodes)


def check_size(n_nodes: int) -> None:
    if n_nodes > MAX_NODES:
        raise Fault("budget-expression", "this expression is too large", "assign parts of it to names of their own first")


_FOLD: dict[str, Callable[..., int | float | bool]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "max": max,
    "min": min,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def _fold(op: str, values: tuple[Value, ...], span: Span | None) -> Value | None:
    """Python's own result where all operands are literals."""
    numbers = [v.constant for v in values]
    if op not in _FOLD or any(n is None for n in numbers):
        return None
    try:
        if op == "pow" and _power_bits(numbers[0], numbers[1]) > 4096:
            raise OverflowError("the power is too large")
        if op in ("max", "min") and any(isinstance(n, float) and math.isnan(n) for n in numbers):
            return make_literal(math.nan, span)  # as np.maximum; Python's max depends on the order
        result = _FOLD[op](*numbers)
    except (ArithmeticError, TypeError) as error:
        raise Fault("type-literal", f"the constants cannot be combined: {error}", "change the constants") from None
    if isinstance(result, complex):
        raise Fault("type-literal", "the constants give a complex number", "polyc computes with real numbers only")
    return make_literal(result, span)


def _power_bits(base: object, exponent: object) -> int:
    """About the bits of an integer power, which Python would compute however long it takes."""
    return base.bit_length() * abs(exponent) if isinstance(base, int) and isinstance(exponent, int) else 0


_AS_LOGIC = {"add": "or", "max": "or", "bitor": "or", "mul": "and", "min": "and", "bitand": "and", "bitxor": "ne"}
"""NumPy's meaning of arithmetic on two booleans."""


def binary(op: str, a: Value, b: Value, span: Span | None = None) -> Value:
    """An arithmetic, comparison or bitwise operator under NumPy's rules."""
    if a is POISON or b is POISON:
        return POISON
    folded = _fold(op, (a, b), span)
    if folded is not None:
        return folded
    dtype, weak = common_type((a, b))
    if OPERATORS[op].result == "bool":
        return _compare(op, a, b, dtype, weak, span)
    if op == "truediv" and not dtype.is_float:
        dtype = F64
    if dtype == BOOL:
        if op == "sub":
            raise Fault("type-operands", "booleans cannot be subtracted", "use != for 'exactly one', or cast with i32(...)")
        if op in _AS_LOGIC:
            x, y = unify((a, b), BOOL, weak)
            return call("or" if op == "fmax" else "and" if op == "fmin" else _AS_LOGIC[op], (x, y), span)
        if op in ("fmax", "fmin"):
            return call("or" if op == "fmax" else "and", unify((a, b), BOOL, weak), span)
        dtype = I8 if not weak else I64
    if op.startswith("bit") and not dtype.is_integer:
        raise Fault("type-operands", f"a bitwise operator needs integers or booleans, not {dtype}", "cast with i32(...) first")
    if OPERATORS[op].result == "float":
        dtype = float_type(dtype)
    if op == "pow":
        return _power(a, b, dtype, weak, span)
    return call(op, unify((a, b), dtype, weak), span)


def _compare(op: str, a: Value, b: Value, dtype: DType, weak: bool, span: Span | None) -> Value:
    """As NumPy, compare exactly with a literal outside the range of an integer type."""
    if _is_outside(a, b):
        op, a, b = _FLIPPED[op], b, a
    if _is_outside(b, a):
        info = np.iinfo(a.dtype.numpy)
        is_below = bool(b.constant < info.min)  # type: ignore[operator]
        holds = op == "ne" or (op in ("gt", "ge") if is_below else op in ("lt", "le"))
        limit = int(info.min if is_below else info.max)
        op = {(True, True): "ge", (True, False): "lt", (False, True): "le", (False, False): "gt"}[is_below, holds]
        b = make_literal(limit, b.expr.span)
    return call(op, unify((a, b), dtype, weak), span)


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _is_outside(literal: Value, other: Value) -> bool:
    number = literal.constant
    if not isinstance(number, int) or other.weak or not other.dtype.is_integer:
        return False
    info = np.iinfo(other.dtype.numpy)
    return not info.min <= number <= info.max


def _power(a: Value, b: Value, dtype: DType, weak: bool, span: Span | None) -> Value:
    exponent = b.constant
    if dtype.is_integer and isinstance(exponent, int) and exponent < 0:
        raise Fault("type-operands", "integers have no negative integer powers", "cast the base with f64(...), or write 1 / x")
    if exponent == 2 and a.dtype == BOOL and not a.weak:
        a, dtype = convert(a, I8), I8  # np.square of booleans
    base, power = unify((a, b), dtype, weak)
    if exponent == 1:
        return base
    if exponent == 2 and base.n_nodes <= 32:  # as NumPy does; larger operands are not repeated
        return call("mul", (base, base), span)
    if exponent == 0.5 and dtype.is_float:
        return call("sqrt", (base,), span)
    if exponent == -1 and dtype.is_float:
        return call("truediv", (convert(make_literal(1.0), dtype), base), span)
    return call("pow", (base, power), span)


def negate(a: Value, span: Span | None = None) -> Value:
    """Unary minus."""
    if a is POISON:
        return POISON
    if a.constant is not None:
        return make_literal(-a.constant, span)
    if a.dtype == BOOL:
        raise Fault("type-operands", "a boolean has no negative", "write 'not' for the opposite")
    return call("neg", (a,), span)


def keep(a: Value) -> Value:
    """Unary plus."""
    if a.dtype == BOOL and a is not POISON and not a.weak:
        raise Fault("type-operands", "a boolean has no sign", "leave out the +, or cast with i32(...)")
    return make_literal(int(a.constant)) if isinstance(a.constant, bool) else a


def logical(op: str, values: tuple[Value, ...], span: Span | None = None) -> Value:
    """``and``, ``or``, ``not`` on booleans."""
    if any(v is POISON for v in values):
        return POISON
    for v in values:
        require_bool(v)
    if all(v.constant is not None for v in values):
        numbers = [bool(v.constant) for v in values]
        return make_literal(not numbers[0] if op == "not" else all(numbers) if op == "and" else any(numbers), span)
    strong = tuple(convert(v, BOOL) for v in values)
    if op == "not":
        return call("not", strong, span)
    return combine(lambda x, y: call(op, (x, y), span), strong)


def combine(operator: Callable[[Value, Value], Value], values: tuple[Value, ...]) -> Value:
    """A balanced tree of an associative operator: a chain of hundreds would be too deep for what follows."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return operator(combine(operator, values[:half]), combine(operator, values[half:]))


def require_bool(value: Value) -> None:
    if value.dtype != BOOL:
        raise Fault("type-not-boolean", f"a boolean is needed here, not {value.dtype}", "compare with a number, as in x != 0")


def select(condition: Value, then: Value, other: Value, span: Span | None = None) -> Value:
    """``then if condition else other``; a compile-time condition chooses its arm alone."""
    if condition is POISON:
        return POISON
    require_bool(condition)
    if condition.constant is not None:
        return then if condition.constant else other
    if then is POISON or other is POISON:
        return POISON
    a, b = unify((then, other))
    n_nodes = 1 + condition.n_nodes + a.n_nodes + b.n_nodes
    check_size(n_nodes)
    return Value(Select(condition.expr, a.expr, b.expr, span), a.dtype, a.weak and b.weak, n_nodes)


def require_integer(value: Value, what: str) -> Expr:
    """The i64 expression of a subscript, bound or extent."""
    if not value.dtype.is_integer:
        raise Fault("type-not-integral", f"{what} must be an integer, not {value.dtype}", "cast it with i64(...)")
    return convert(value, I64).expr
