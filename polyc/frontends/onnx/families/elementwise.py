"""One value for each element: arithmetic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import find_dtype
from polyc.frontends.onnx.registry import operator
from polyc.frontends.onnx.terms import Operand, Term, call, cast, constant, maximum, minimum, select
from polyc.ir.types import BOOL, F64, DType

Unary = Callable[[Term], Operand]
Binary = Callable[[Term, Term], Operand]

MOST_IN_A_ROW = 32
"""Inputs that are joined one after the other, in the order given."""


def apply(b: Builder, x: Value, function: Unary, dtype: DType | None = None) -> Value:
    """`function` of each element, with the element type `dtype` (that of `x` by default)."""
    return b.map(x.shape, dtype or x.dtype, lambda *i: function(x[i]))


def combine(b: Builder, x: Value, y: Value, function: Binary, dtype: DType | None = None) -> Value:
    """`function` of the elements of two tensors that broadcast."""
    require_one_type(b, x, y)
    shape = b.broadcast(x.shape, y.shape)
    return b.map(shape, dtype or x.dtype, lambda *i: function(x.spread(i), y.spread(i)))


def require_one_type(b: Builder, *values: Value) -> None:
    """Refuse tensors of different element types."""
    if len({v.dtype for v in values}) > 1:
        b.refuse(f"element types {' and '.join(v.dtype.label for v in values)} together")


def require_bool(b: Builder, *values: Value) -> None:
    """Refuse what is no truth value."""
    for v in values:
        if v.dtype != BOOL:
            b.refuse(f"element type {v.dtype.label}")


# --- Functions of one floating-point element that the IR has ---


def _float_function(op: str) -> Callable[[Builder, Value], Value]:
    def function(b: Builder, x: Value) -> Value:
        b.require_float(x)
        return apply(b, x, lambda v: call(op, v))

    return function


for _name in "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Sigmoid Sin Sinh Sqrt Tan Tanh".split():
    operator(_name)(_float_function(_name.lower()))
operator("Round")(_float_function("rint"))


@operator("Reciprocal")
def reciprocal(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: 1 / v)


# --- Signs ---


@operator("Abs")
def absolute(b: Builder, x: Value) -> Value:
    return x if _is_unsigned(x.dtype) else apply(b, x, lambda v: call("abs", v))


@operator("Neg")
def negate(b: Builder, x: Value) -> Value:
    return apply(b, x, lambda v: -v)


@operator("Sign")
def sign(b: Builder, x: Value) -> Value:
    """NaN stays NaN."""
    if _is_unsigned(x.dtype):
        return apply(b, x, lambda v: minimum(v, 1))
    return apply(b, x, lambda v: select(v > 0, 1, select(v < 0, -1, v)))


def _is_unsigned(dtype: DType) -> bool:
    return dtype.kind == "u"


# --- Arithmetic of two tensors ---


@operator("Add", since=7)
def add(b: Builder, x: Value, y: Value) -> Value:
    return combine(b, x, y, lambda u, v: u + v)


@operator("Sub", since=7)
def subtract(b: Builder, x: Value, y: Value) -> Value:
    return combine(b, x, y, lambda u, v: u - v)


@operator("Mul", since=7)
def multiply(b: Builder, x: Value, y: Value) -> Value:
    return combine(b, x, y, lambda u, v: u * v)


@operator("Div", since=7)
def divide(b: Builder, x: Value, y: Value) -> Value:
    """Integers are truncated towards zero."""
    if x.dtype.is_float:
        return combine(b, x, y, lambda u, v: u / v)
    return combine(b, x, y, lambda u, v: truncated_quotient(u, v, x.dtype))


def truncated_quotient(u: Term, v: Term, dtype: DType) -> Term:
    """Integer division as C has it."""
    if _is_unsigned(dtype):
        return u // v
    rest = u % v
    differ = ((u < 0) & (v > 0)) | ((u > 0) & (v < 0))
    return select((rest != 0) & differ, u // v + 1, u // v)


@operator("Mod")
def modulo(b: Builder, x: Value, y: Value, *, fmod: int = 0) -> Value:
    """The sign of the divisor, or with `fmod` that of the dividend."""
    if not fmod:
        return combine(b, x, y, lambda u, v: u % v)
    if x.dtype.is_float:
        return combine(b, x, y, lambda u, v: call("fmod", u, v))
    return combine(b, x, y, lambda u, v: u - truncated_quotient(u, v, x.dtype) * v)


@operator("Pow", since=7)
def power(b: Builder, x: Value, y: Value) -> Value:
    """The result has the type of the base."""
    shape = b.broadcast(x.shape, y.shape)
    number = x.dtype.computed
    exponent = float(y.known.reshape(-1)[0]) if y.is_literal and y.known is not None else None
    if exponent in (1.0, 2.0, 3.0):
        factors = int(exponent)
        return b.map(shape, x.dtype, lambda *i: reduce(lambda u, v: u * v, [x.spread(i)] * factors))
    if exponent in (0.5, -0.5, -1.0) and x.dtype.is_float:
        # pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0: only numbers differ from the square root, and these only in sign
        functions: dict[float, Unary] = {
            0.5: lambda v: select(v == -float("inf"), float("inf"), call("sqrt", v + 0)),
            -0.5: lambda v: select(v == -float("inf"), 0, 1 / call("sqrt", v + 0)),
            -1.0: lambda v: 1 / v,
        }
        return b.map(shape, x.dtype, lambda *i: functions[exponent](x.spread(i)))
    if not x.dtype.is_float and y.dtype.is_float:
        return b.map(shape, x.dtype, lambda *i: cast(call("pow", cast(x.spread(i), F64), cast(y.spread(i), F64)), number))
    return b.map(shape, x.dtype, lambda *i: call("pow", x.spread(i), cast(y.spread(i), number)))


@operator("Max", since=6)
def maximum_of(b: Builder, *xs: Value) -> Value:
    return _fold(b, xs, maximum)


@operator("Min", since=6)
def minimum_of(b: Builder, *xs: Value) -> Value:
    return _fold(b, xs, minimum)


@operator("Sum", since=6)
def sum_of(b: Builder, *xs: Value) -> Value:
    return _fold(b, xs, lambda u, v: u + v)


@operator("Mean", since=6)
def mean_of(b: Builder, *xs: Value) -> Value:
    b.require_float(*xs)
    return _fold(b, xs, lambda u, v: u + v, lambda v: v / len(xs))


def _fold(b: Builder, xs: tuple[Value, ...], function: Binary, last: Callable[[Term], Term] | None = None) -> Value:
    if not xs:
        b.refuse("it has no inputs")
    require_one_type(b, *xs)
    shape = b.broadcast(*(x.shape for x in xs))

    def join(i: Sequence[Term], first: int, end: int) -> Term:
        """Those from `first` to `end`: a few one by one, many as a tree, as expressions of any depth overflow the stack."""
        if end - first > MOST_IN_A_ROW:
            middle = (first + end) // 2
            found = function(join(i, first, middle), join(i, middle, end))
            assert isinstance(found, Term)
            return found
        result: Term = xs[first].spread(i)
        for x in xs[first + 1 : end]:
            found = function(result, x.spread(i))
            assert isinstance(found, Term)
            result = found
        return result

    def body(*i: Term) -> Operand:
        result = join(i, 0, len(xs))
        return result if last is None else last(result)

    return b.map(shape, xs[0].dtype, body)


# --- Bits ---


@operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(b: Builder, x: Value, y: Value) -> Value:
    op = {"BitwiseAnd": "bitand", "BitwiseOr": "bitor", "BitwiseXor": "bitxor"}[b.node.op]
    return combine(b, x, y, lambda u, v: call(op, u, v))


@operator("BitwiseNot")
def bitwise_not(b: Builder, x: Value) -> Value:
    ones = (1 << x.dtype.bits) - 1 if _is_unsigned(x.dtype) else -1
    return apply(b, x, lambda v: call("bitxor", v, ones))


@operator("BitShift")
def shift(b: Builder, x: Value, y: Value, *, direction: str) -> Value:
    if direction not in ("LEFT", "RIGHT"):
        b.contradict(f"direction is {direction}")
    op = "shl" if direction == "LEFT" else "shr"
    return combine(b, x, y, lambda u, v: call(op, u, v))


# --- Truth values ---


@operator("And", since=7)
def logical_and(b: Builder, x: Value, y: Value) -> Value:
    require_bool(b, x, y)
    return combine(b, x, y, lambda u, v: u & v)


@operator("Or", since=7)
def logical_or(b: Builder, x: Value, y: Value) -> Value:
    require_bool(b, x, y)
    return combine(b, x, y, lambda u, v: u | v)


@operator("Xor", since=7)
def logical_xor(b: Builder, x: Value, y: Value) -> Value:
    require_bool(b, x, y)
    return combine(b, x, y, _differ)


@operator("Not")
def logical_not(b: Builder, x: Value) -> Value:
    require_bool(b, x)
    return apply(b, x, lambda v: ~v)


def _differ(u: Term, v: Term) -> Term:
    return (u | v) & ~(u & v)


@operator("Equal", since=7)
def equal(b: Builder, x: Value, y: Value) -> Value:
    if x.dtype == BOOL:
        return combine(b, x, y, lambda u, v: ~_differ(u, v))
    return combine(b, x, y, lambda u, v: u == v, BOOL)


@operator("Greater", "Less", "GreaterOrEqual", "LessOrEqual", since=7)
def compare(b: Builder, x: Value, y: Value) -> Value:
    op = {"Greater": "gt", "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le"}[b.node.op]
    return combine(b, x, y, lambda u, v: call(op, u, v), BOOL)


@operator("IsNaN")
def is_nan(b: Builder, x: Value) -> Value:
    b.require_float(x)
    return apply(b, x, lambda v: v != v, BOOL)


@operator("IsInf")
def is_infinite(b: Builder, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    b.require_float(x)
    infinity = float("inf")
    if detect_negative and detect_positive:
        return apply(b, x, lambda v: call("abs", v) == infinity, BOOL)
    if not detect_negative and not detect_positive:
        return apply(b, x, lambda v: v < v, BOOL)
    return apply(b, x, lambda v: v == (infinity if detect_positive else -infinity), BOOL)


@operator("Where", since=9)
def where(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    require_bool(b, condition)
    require_one_type(b, x, y)
    shape = b.broadcast(condition.shape, x.shape, y.shape)
    return b.map(shape, x.dtype, lambda *i: select(condition.spread(i), x.spread(i), y.spread(i)))


# --- Copies and conversions ---


@operator("Identity")
def identity(b: Builder, x: Value) -> Value:
    return x


@operator("Dropout", since=7)
def dropout_7(b: Builder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    """In inference nothing is dropped."""
    return _not_dropped(b, x, x.dtype if b.node.version < 10 else BOOL)


@operator("Dropout", since=12)
def dropout(
    b: Builder, x: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int = 0
) -> tuple[Value, ...]:
    is_training = training_mode is not None and bool(b.value(training_mode).reshape(-1)[0])
    if is_training and (ratio is None or float(b.value(ratio).reshape(-1)[0]) != 0):
        b.refuse("elements are dropped at random")
    return _not_dropped(b, x, BOOL)


def _not_dropped(b: Builder, x: Value, dtype: DType) -> tuple[Value, ...]:
    if len(b.node.outputs) < 2 or not b.node.outputs[1]:
        return (x,)
    return x, b.map(x.shape, dtype, lambda *i: constant(1, dtype))


@operator("Cast", since=6)
def cast_to(b: Builder, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    dtype = find_dtype(to)
    if dtype is None:
        b.refuse(f"conversion to element type {to}")
    return _convert(b, x, dtype)


@operator("CastLike")
def cast_like(b: Builder, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    return _convert(b, x, like.dtype)


def _convert(b: Builder, x: Value, dtype: DType) -> Value:
    if x.dtype == dtype:
        return x
    return apply(b, x, lambda v: cast(v, dtype.computed), dtype)
