"""The derivative table: for every function of the language, its derivatives by its operands.

`partials` gives expressions over the operands and the value of a call; what both modes make of them stands in `forward` and
`reverse`.  Conventions, where a function has no derivative:

- `max`, `min`, `fmax`, `fmin`: operands that are equal share equally.  Reductions do the same.
- `abs` at 0: 0.  `hypot` at the origin: 0.  `pow(0, y)` by y: 0, and ``pow(x, 0)`` by x: 0.
- `floor`, `ceil`, `round`, `rint`, `trunc`, `logb`, ``//`` and comparisons are constant between their steps: no derivative.
- `sqrt`, `cbrt`, `log` and so on at the ends of their domains: infinite or NaN, as the formula says.

Derivatives of complex functions are those of analytic ones; `LINEAR` are the functions that are linear over the real numbers
only, with what they make of tangents and of cotangents (the conventions of JAX: a cotangent is not conjugated).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from polyc.diagnostics import Diagnostic, Span, UnsupportedError
from polyc.ir.expr import Call, Cast, Const, Expr, Select, type_of
from polyc.ir.operators import OPERATORS
from polyc.ir.types import DType
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """An expression of a floating-point or complex type, in Python's arithmetic; numbers become constants of its type."""

    expr: Expr
    dtype: DType

    def apply(self, op: str, *others: Term | float) -> Term:
        """A call with this one as its first operand."""
        return Term(Call(op, (self.expr, *(self.lift(o).expr for o in others))), self.dtype)

    def lift(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else Term(Const(float(other), self.dtype), self.dtype)

    def is_number(self, value: float) -> bool:
        return isinstance(self.expr, Const) and self.expr.value == value

    def __add__(self, other: Term | float) -> Term:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Term:
        return self.lift(other).apply("add", self)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.lift(other).apply("sub", self)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply("mul", other)

    def __rmul__(self, other: float) -> Term:
        return self.lift(other).apply("mul", self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply("truediv", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.lift(other).apply("truediv", self)

    def __neg__(self) -> Term:
        return self.apply("neg")

    def compared(self, op: str, other: Term | float) -> Expr:
        return Call(op, (self.expr, self.lift(other).expr))

    def chosen(self, condition: Expr, other: Term | float) -> Term:
        """This where the condition holds, else the other."""
        return Term(Select(condition, self.expr, self.lift(other).expr), self.dtype)


Partial = Term | float | None
"""None: this operand contributes nothing."""


def _step(x: Term, op: str, other: Term | float, then: float, otherwise: Term | float) -> Term:
    return x.lift(then).chosen(x.compared(op, other), otherwise)


def _sign(x: Term, v: Term) -> Partial:
    return _step(x, "gt", 0.0, 1.0, _step(x, "lt", 0.0, -1.0, 0.0))


def _ahead(op: str) -> Callable[[Term, Term, Term], tuple[Partial, ...]]:
    """Of `max` and `min`: 1 for the operand that is the value, one half for both where they are equal."""

    def share(x: Term, y: Term, v: Term) -> tuple[Partial, ...]:
        return tuple(_step(a, op, b, 1.0, _step(a, "eq", b, 0.5, 0.0)) for a, b in ((x, y), (y, x)))

    return share


def _ahead_of_nan(op: str) -> Callable[[Term, Term, Term], tuple[Partial, ...]]:
    """Of `fmax` and `fmin`: the same, and 1 beside what is no number."""

    def share(x: Term, y: Term, v: Term) -> tuple[Partial, ...]:
        pair = zip(_ahead(op)(x, y, v), (y, x), strict=True)
        return tuple(_step(b, "ne", b, 1.0, a) for a, b in pair if isinstance(a, Term))

    return share


def _remainder(x: Term, y: Term, v: Term) -> tuple[Partial, ...]:
    """``x - n * y`` for a whole number n, which is constant between the steps."""
    return 1.0, -((x - v) / y).apply("rint")


def _pow(x: Term, y: Term, v: Term) -> tuple[Partial, ...]:
    by_base: Partial
    if y.is_number(2.0):
        by_base = 2.0 * x
    elif y.is_number(1.0) or y.is_number(0.0):
        by_base = 1.0 if y.is_number(1.0) else None
    elif isinstance(y.expr, Const):
        by_base = y * x.apply("pow", float(y.expr.value) - 1.0)
    else:
        by_base = y.lift(0.0).chosen(y.compared("eq", 0.0), y * x.apply("pow", y - 1.0))
    return by_base, x.lift(0.0).chosen(x.compared("eq", 0.0), v * x.apply("log"))


def _atan2(y: Term, x: Term, v: Term) -> tuple[Partial, ...]:
    square = y * y + x * x
    return x / square, -(y / square)


def _hypot(x: Term, y: Term, v: Term) -> tuple[Partial, ...]:
    at_origin = v.compared("eq", 0.0)
    return x.lift(0.0).chosen(at_origin, x / v), x.lift(0.0).chosen(at_origin, y / v)


def digamma(x: Term) -> Term:
    """The derivative of `lgamma`: nine steps of the recurrence up, then the asymptotic series (Abramowitz and Stegun 6.3.18);
    below 1/2 by reflection (6.3.7)."""
    below = x.compared("lt", 0.5)
    z = (1.0 - x).chosen(below, x)
    y = z + 9.0
    w = 1.0 / (y * y)
    series = w * 0.0
    for c in (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12):
        series = (series + c) * w
    value = y.apply("log") - 0.5 / y + series
    for k in range(9):
        value = value - 1.0 / (z + float(k))
    return (value - math.pi * x.apply("cospi") / x.apply("sinpi")).chosen(below, value)


_LN2, _LN10, _PI = math.log(2), math.log(10), math.pi

_ONE: dict[str, Callable[[Term, Term], Partial]] = {
    "neg": lambda x, v: -1.0,
    "abs": _sign,
    "exp": lambda x, v: v,
    "exp_below": lambda x, v: v,
    "exp2": lambda x, v: v * _LN2,
    "exp10": lambda x, v: v * _LN10,
    "expm1": lambda x, v: x.apply("exp"),
    "log": lambda x, v: 1.0 / x,
    "log2": lambda x, v: (1 / _LN2) / x,
    "log10": lambda x, v: (1 / _LN10) / x,
    "log1p": lambda x, v: 1.0 / (1.0 + x),
    "sqrt": lambda x, v: 0.5 / v,
    "rsqrt": lambda x, v: -0.5 * (v / x),
    "cbrt": lambda x, v: (1 / 3) / (v * v),
    "sin": lambda x, v: x.apply("cos"),
    "cos": lambda x, v: -x.apply("sin"),
    "tan": lambda x, v: 1.0 + v * v,
    "asin": lambda x, v: 1.0 / ((1.0 - x) * (1.0 + x)).apply("sqrt"),
    "acos": lambda x, v: -1.0 / ((1.0 - x) * (1.0 + x)).apply("sqrt"),
    "atan": lambda x, v: 1.0 / (1.0 + x * x),
    "sinh": lambda x, v: x.apply("cosh"),
    "cosh": lambda x, v: x.apply("sinh"),
    "tanh": lambda x, v: (1.0 - v) * (1.0 + v),
    "asinh": lambda x, v: 1.0 / x.apply("hypot", 1.0),
    "acosh": lambda x, v: 1.0 / ((x - 1.0).apply("sqrt") * (x + 1.0).apply("sqrt")),
    "atanh": lambda x, v: 1.0 / ((1.0 - x) * (1.0 + x)),
    "sinpi": lambda x, v: _PI * x.apply("cospi"),
    "cospi": lambda x, v: -_PI * x.apply("sinpi"),
    "erf": lambda x, v: (2 / math.sqrt(_PI)) * (-(x * x)).apply("exp"),
    "erfc": lambda x, v: (-2 / math.sqrt(_PI)) * (-(x * x)).apply("exp"),
    "lgamma": lambda x, v: digamma(x),
    "tgamma": lambda x, v: v * digamma(x),
    "sigmoid": lambda x, v: v * (1.0 - v),
}
"""Functions of one operand x with the value v."""

_TWO: dict[str, Callable[[Term, Term, Term], tuple[Partial, ...]]] = {
    "add": lambda x, y, v: (1.0, 1.0),
    "sub": lambda x, y, v: (1.0, -1.0),
    "mul": lambda x, y, v: (y, x),
    "truediv": lambda x, y, v: (1.0 / y, -(v / y)),
    "mod": _remainder,
    "fmod": _remainder,
    "remainder": _remainder,
    "max": _ahead("gt"),
    "min": _ahead("lt"),
    "fmax": _ahead_of_nan("gt"),
    "fmin": _ahead_of_nan("lt"),
    "pow": _pow,
    "atan2": _atan2,
    "copysign": lambda x, y, v: (x.lift(1.0).apply("copysign", x) * x.lift(1.0).apply("copysign", y), None),
    "fdim": lambda x, y, v: (_step(x, "gt", y, 1.0, 0.0), _step(x, "gt", y, -1.0, 0.0)),
    "hypot": _hypot,
    "rhypot": lambda x, y, v: (-(x * v * v * v), -(y * v * v * v)),
    "nextafter": lambda x, y, v: (1.0, None),
}
"""Functions of two operands x and y with the value v."""

CONSTANT = frozenset(
    "ceil floor round rint trunc logb floordiv lt le gt ge eq ne and or not bitand bitor bitxor shl shr dot4u8s8 "
    "stop_gradient".split()
)
"""Functions that contribute nothing: constant between steps, of whole numbers or truth values, or declared to."""


def _zero(dtype: DType) -> Const:
    return Const(0.0, dtype)


LINEAR: dict[str, tuple[Callable[..., Expr], Callable[[Expr, DType], tuple[Expr, ...]]]] = {
    "conj": (lambda t: Call("conj", (t,)), lambda w, part: (Call("conj", (w,)),)),
    "real": (lambda t: Call("real", (t,)), lambda w, part: (Call("complex", (w, _zero(part))),)),
    "imag": (lambda t: Call("imag", (t,)), lambda w, part: (Call("complex", (_zero(part), Call("neg", (w,)))),)),
    "complex": (
        lambda t, u: Call("complex", (t, u)),
        lambda w, part: (Call("real", (w,)), Call("neg", (Call("imag", (w,)),))),
    ),
}
"""By function: the tangent of the value for those of all operands, and the cotangents of the operands for that of the value and
the type of a complex number's parts."""


def partials(call: Call, types: Mapping[str, DType], known: Expr | None = None) -> tuple[Expr | None, ...]:
    """The derivative of a call by each of its operands, in order; None: it contributes nothing.

    `types` are the element types of what is read; `known` is where the value of the call is stored.  A call in `LINEAR` has no
    derivatives: use that table.
    Raises UnsupportedError ``unsupported-gradient`` for a function without an entry, of which there is none."""
    dtype = type_of(call.args[0], types)
    if call.op in CONSTANT or not (dtype.is_float or dtype.is_complex):
        return (None,) * len(call.args)
    if call.op == "once_differentiable":
        message = "the derivative that the reverse mode takes of a product of values that meet where data says has none itself"
        raise refuse(message, call.span, "sort the factors into rows, and multiply along each row")
    terms, value = [Term(a, dtype) for a in call.args], Term(known or call, dtype)
    found: tuple[Partial, ...]
    if call.op in _ONE:
        found = (_ONE[call.op](terms[0], value),)
    elif call.op in _TWO:
        found = _TWO[call.op](terms[0], terms[1], value)
    elif call.op == "fma":
        found = terms[1], terms[0], 1.0
    else:
        raise refuse(f"the derivative of {call.op} is not supported", call.span, "write it out by other functions")
    return tuple(None if p is None else value.lift(p).expr for p in found)


def refuse(message: str, span: Span | None, help: str) -> UnsupportedError:
    """The error of what no derivative is taken of: it says what, where, and a way out."""
    return UnsupportedError(Diagnostic("unsupported-gradient", message, span, help))


# --- Arithmetic that leaves zeros and ones out -----------------------------------------------------------------------


def times(a: Expr | None, b: Expr | None) -> Expr | None:
    """The product of a derivative with a tangent or cotangent, in either order; None is zero."""
    if a is None or b is None:
        return None
    for one, other in ((a, b), (b, a)):
        if _may_be_zero(one):
            return _times_choice(one, other)
        if isinstance(one, Const) and one.value in (1.0, -1.0):
            return other if one.value == 1.0 else Call("neg", (other,))
    return Call("mul", (a, b))


def _may_be_zero(expr: Expr) -> bool:
    """Whether it is a choice with 0 as one of its arms."""
    arms = (expr.then, expr.other) if isinstance(expr, Select) else ()
    return any(_is_zero(e) or _may_be_zero(e) for e in arms)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0.0


def _times_choice(by: Expr, value: Expr) -> Expr:
    """The product, arm by arm: 0 contributes nothing, be `value` infinite."""
    if _is_zero(by):
        return by
    if isinstance(by, Select):
        return Select(by.condition, _times_choice(by.then, value), _times_choice(by.other, value), by.span)
    product = times(by, value)
    assert product is not None
    return product


def plus(a: Expr | None, b: Expr | None) -> Expr | None:
    """The sum of two contributions; None is zero."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(b, Call) and b.op == "neg":
        return Call("sub", (a, b.args[0]))
    return Call("add", (a, b))


def chosen(condition: Expr, then: Expr | None, other: Expr | None, dtype: DType, span: Span | None = None) -> Expr | None:
    """A contribution of the arm that is taken, and of nothing else."""
    if then is None and other is None:
        return None
    return Select(condition, then or _zero(dtype), other or _zero(dtype), span)


def is_differentiable(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def tangent(expr: Expr, types: Mapping[str, DType], of_read: Callable[[Expr], Expr | None]) -> Expr | None:
    """The tangent of an expression from those of what it reads (`Read` and `Pad`); None where it is zero."""
    match expr:
        case Call():
            return _tangent_of_call(expr, types, of_read)
        case Select(condition, then, other, span):
            dtype = type_of(then, types)
            return chosen(condition, tangent(then, types, of_read), tangent(other, types, of_read), dtype, span)
        case Cast(value, dtype, span):
            if not is_differentiable(dtype) or not is_differentiable(type_of(value, types)):
                return None
            inner = tangent(value, types, of_read)
            return None if inner is None else Cast(inner, dtype, span)
        case Const():
            return None
    return of_read(expr) if is_differentiable(type_of(expr, types)) else None


def _tangent_of_call(call: Call, types: Mapping[str, DType], of_read: Callable[[Expr], Expr | None]) -> Expr | None:
    if call.op in CONSTANT or OPERATORS[call.op].result == "bool":
        return None
    operands = [tangent(a, types, of_read) for a in call.args]
    if all(t is None for t in operands):
        return None
    if call.op in LINEAR:
        zeros = (t or _zero(type_of(a, types)) for t, a in zip(operands, call.args, strict=True))
        return LINEAR[call.op][0](*zeros)
    total: Expr | None = None
    for by, moved in zip(partials(call, types), operands, strict=True):
        total = plus(total, times(moved, by))
    return total


__all__ = [
    "CONSTANT",
    "LINEAR",
    "Term",
    "chosen",
    "digamma",
    "is_differentiable",
    "partials",
    "plus",
    "refuse",
    "tangent",
    "times",
]
