"""Operators on typed values: folding of literals, and NumPy's meaning of arithmetic on every element type."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from polyc.diagnostics import Span
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.values import (
    POISON,
    call,
    check_size,
    common_type,
    convert,
    convert_weakly,
    float_type,
    make_literal,
    unify,
)
from polyc.ir.expr import Const, Select, reads
from polyc.ir.operators import OPERATORS
from polyc.ir.read_sites import guard, mention
from polyc.ir.types import BOOL, F64, I8, I64, DType
from polyc.records import replace

_FOLD: dict[str, Callable[..., int | float | bool | complex]] = {
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
            return make_literal(math.nan, span).made_of(*values)  # as np.maximum; Python's max depends on the order
        result = _FOLD[op](*numbers)
    except (ArithmeticError, TypeError) as error:
        raise Fault("type-literal", f"the constants cannot be combined: {error}", "change the constants") from None
    if isinstance(result, complex):
        raise Fault("type-literal", "the constants give a complex number", "write 1j where a complex number is meant")
    return make_literal(result, span).made_of(*values)


def _power_bits(base: object, exponent: object) -> int:
    """About the bits of an integer power, which Python would compute however long it takes."""
    return base.bit_length() * abs(exponent) if isinstance(base, int) and isinstance(exponent, int) else 0


_AS_LOGIC = {
    **dict.fromkeys(("add", "max", "fmax", "bitor"), "or"),
    **dict.fromkeys(("mul", "min", "fmin", "bitand"), "and"),
    "bitxor": "ne",
}
"""NumPy's meaning of arithmetic on two booleans."""
_OF_BITS = frozenset(("bitand", "bitor", "bitxor", "shl", "shr"))
_BITWISE = frozenset(("bitand", "bitor", "bitxor", "max", "min", "fmax", "fmin"))
"""What makes a truth value of two of Python's, too."""


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
    if op == "truediv" and not dtype.is_float and not dtype.is_complex:
        dtype = F64
    if dtype == BOOL and weak and op not in _BITWISE:
        dtype = I64  # two of Python's truth values add up as numbers
    if dtype == BOOL:
        if op == "sub":
            raise Fault("type-operands", "booleans cannot be subtracted", "use != for 'exactly one', or cast with i32(...)")
        if op in _AS_LOGIC:
            return call(_AS_LOGIC[op], unify((a, b), BOOL, weak), span)
        dtype = I8
    if op in _OF_BITS and not dtype.is_integer:
        if a.dtype.is_integer and b.dtype.is_integer:
            message = f"{a.dtype} and {b.dtype} have no type of integers in common"
            raise Fault("type-operands", message, f"cast one of them, as in {a.dtype}(...)")
        help = "comparisons beside & and | stand in parentheses, (a < b) & (c < d), or between 'and' and 'or'"
        help += "; for the bits of a number cast with i32(...)"
        raise Fault("type-operands", f"a bitwise operator needs integers or booleans, not {dtype}", help)
    if OPERATORS[op].result == "float":
        dtype = float_type(dtype)
    if op == "pow":
        return _power(a, b, dtype, weak, span)
    return call(op, unify((a, b), dtype, weak), span)


def _compare(op: str, a: Value, b: Value, dtype: DType, weak: bool, span: Span | None) -> Value:
    """As NumPy, compare exactly with a literal outside the range of an integer type."""
    if _is_outside(a, b):
        op, a, b = FLIPPED[op], b, a
    if _is_outside(b, a):
        info = np.iinfo(a.dtype.numpy)
        is_below = bool(b.constant < info.min)  # type: ignore[operator]
        holds = op == "ne" or (op in ("gt", "ge") if is_below else op in ("lt", "le"))
        limit = int(info.min if is_below else info.max)
        op = {(True, True): "ge", (True, False): "lt", (False, True): "le", (False, False): "gt"}[is_below, holds]
        b = make_literal(limit, b.expr.span).made_of(b)
    if dtype.is_integer and dtype.bits < 64 and any(v.weak and v.dtype.is_integer and v.constant is None for v in (a, b)):
        dtype = I64  # nor does a number that only the call tells have to fit here
    return call(op, unify((a, b), dtype, weak), span)


FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


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
    base = base.made_of(power)
    if exponent == 1:
        return base
    if exponent == 2 and base.n_nodes <= 32:  # as NumPy does; larger operands are not repeated
        return call("mul", (base, base), span)
    if exponent == 0.5 and (dtype.is_float or dtype.is_complex):
        return call("sqrt", (base,), span)
    if exponent == -1 and (dtype.is_float or dtype.is_complex):
        return call("truediv", (convert(make_literal(1.0), dtype), base), span)
    return call("pow", (base, power), span)


def negate(a: Value, span: Span | None = None) -> Value:
    """Unary minus."""
    if a is POISON:
        return POISON
    if a.constant is not None:
        return make_literal(-a.constant, span).made_of(a)
    if a.dtype == BOOL and a.weak:
        return call("neg", (convert_weakly(a, I64),), span)
    if a.dtype == BOOL:
        raise Fault("type-operands", "a boolean has no negative", "write 'not' for the opposite")
    return call("neg", (a,), span)


def keep(a: Value) -> Value:
    """Unary plus."""
    if a.dtype == BOOL and a is not POISON and not a.weak:
        raise Fault("type-operands", "a boolean has no sign", "leave out the +, or cast with i32(...)")
    if isinstance(a.constant, bool):
        return make_literal(int(a.constant)).made_of(a)
    return convert_weakly(a, I64) if a.dtype == BOOL and a is not POISON else a


def logical(op: str, values: tuple[Value, ...], span: Span | None = None) -> Value:
    """``and``, ``or``, ``not`` on booleans."""
    if any(v is POISON for v in values):
        return POISON
    for v in values:
        require_bool(v)
    if all(v.constant is not None for v in values):
        numbers = [bool(v.constant) for v in values]
        found = not numbers[0] if op == "not" else all(numbers) if op == "and" else any(numbers)
        return make_literal(found, span).made_of(*values)
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
    """``then if condition else other``; a compile-time condition chooses the value of its arm alone."""
    if condition is POISON:
        return POISON
    require_bool(condition)
    if condition.constant is not None:
        return choose(condition, *((then, other) if condition.constant else (other, then)))
    if then is POISON or other is POISON:
        return POISON
    a, b = unify((then, other))
    n_nodes = 1 + condition.n_nodes + a.n_nodes + b.n_nodes
    check_size(n_nodes)
    arms = [guard(condition.expr, holds, e) for arm, holds in ((a, True), (b, False)) for e in arm.unread]
    unread = tuple(dict.fromkeys((*condition.unread, *arms)))
    return Value(Select(condition.expr, a.expr, b.expr, span), a.dtype, a.weak and b.weak, n_nodes, unread)


def choose(condition: Value, taken: Value, other: Value) -> Value:
    """The arm that a compile-time condition takes.  The text has the other one, too: its reads count as if they were made, but
    for those of tensors that the arm that is taken reads itself: which of their elements are read is what was chosen."""
    if taken is POISON or other is POISON:
        return taken
    own = {read.tensor for e in (taken.expr, *taken.unread) for read in reads(e)}
    left_out = (*mention(other.expr), *other.unread)
    never = Const(False, BOOL)
    unread = (guard(never, True, e) if any(read.tensor in own for read in reads(e)) else e for e in left_out)
    return taken.made_of(condition, replace(taken, unread=tuple(dict.fromkeys(unread))))
