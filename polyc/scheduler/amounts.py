"""Arithmetic of a cost model that is written once: over numbers, or over the sizes of a call.

An amount is a number (int or float), or a `Formula` over size symbols.  Operators and the functions of this module take both,
so that a model made of them gives a number where all that it is asked with are numbers, and else an expression that a call
evaluates.  Both agree up to 1/`UNIT` of each constant in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import ceil, floor, gcd
from typing import TypeVar, Union, overload

from polyc.ir.expr import Call, Const, Expr, Select, int_const, maximum

UNIT = 1 << 12
"""Formulas are whole numbers: those that are no counts have so many for each one."""


class Formula:
    """A whole number over sizes, `unit` of which are one: 1 of what is counted, `UNIT` of what is not."""

    __slots__ = ("expr", "unit")

    def __init__(self, expr: Expr, unit: int = 1) -> None:
        self.expr, self.unit = expr, unit

    @property
    def known(self) -> Amount:
        """The same as a number where it is one."""
        return _amount(self.expr, self.unit)

    def __repr__(self) -> str:
        return f"Formula({self.expr!r}, {self.unit})"

    def __add__(self, other: Amount) -> Amount:
        a, b, unit = _alike(self, other)
        return _amount(_sum(a, b), unit)

    def __sub__(self, other: Amount) -> Amount:
        return self + other * -1

    def __rsub__(self, other: Amount) -> Amount:
        return self * -1 + other

    def __mul__(self, other: Amount) -> Amount:
        by = _lift(other)
        expr, unit = _product(self.expr, by.expr), self.unit * by.unit
        return _amount(_quotient(expr, int_const(UNIT)), UNIT) if unit > UNIT else _amount(expr, unit)

    def __truediv__(self, other: Amount) -> Amount:
        """By sizes where they are at least 1: an array without elements costs what one of a single element does."""
        if isinstance(other, Formula):
            return _amount(_quotient(_product(self.expr, int_const(UNIT * other.unit // self.unit)), _positive(other)), UNIT)
        return self * (1 / other)

    def __rtruediv__(self, other: float) -> Amount:
        return _amount(_quotient(int_const(round(other * UNIT * self.unit)), _positive(self)), UNIT)

    def __mod__(self, other: int) -> Amount:
        return _amount(self.expr % other, self.unit)

    def __le__(self, other: Amount) -> Truth:
        return _compare("le", self, other)

    def __ge__(self, other: Amount) -> Truth:
        return _compare("ge", self, other)

    def __lt__(self, other: Amount) -> Truth:
        return _compare("lt", self, other)

    def __gt__(self, other: Amount) -> Truth:
        return _compare("gt", self, other)

    __radd__ = __add__
    __rmul__ = __mul__


class Condition:
    """What is true or not by the sizes of a call."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __bool__(self) -> bool:
        raise TypeError("known only at the sizes of a call")

    def __and__(self, other: Truth) -> Truth:
        if isinstance(other, bool):
            return self if other else False
        return Condition(Call("and", (self.expr, other.expr)))

    def __or__(self, other: Truth) -> Truth:
        if isinstance(other, bool):
            return True if other else self
        return Condition(Call("or", (self.expr, other.expr)))

    __rand__ = __and__
    __ror__ = __or__


Amount = Union[float, Formula]  # noqa: UP007  (of classes that stand below it)
Truth = Union[bool, Condition]  # noqa: UP007
A = TypeVar("A", float, Amount)
"""Of a function that gives a number for numbers."""
N = TypeVar("N", int, float, Amount)
"""Of one that gives a count for counts."""


@overload
def either(condition: Truth, then: int, other: int) -> int: ...
@overload
def either(condition: Truth, then: float, other: float) -> float: ...
@overload
def either(condition: Truth, then: Amount, other: Amount) -> Amount: ...
def either(condition: Truth, then: Amount, other: Amount) -> Amount:
    """`then` where the condition holds, else `other`."""
    if isinstance(condition, bool):
        return then if condition else other
    a, b, unit = _alike(then, other)
    return _amount(a if a == b else Select(condition.expr, a, b), unit)


@overload
def largest(a: int, b: int) -> int: ...
@overload
def largest(a: float, b: float) -> float: ...
@overload
def largest(a: Amount, b: Amount) -> Amount: ...
def largest(a: Amount, b: Amount) -> Amount:
    if not isinstance(a, Formula) and not isinstance(b, Formula):
        return max(a, b)
    return _call("max", a, b)


@overload
def smallest(a: float, b: float) -> float: ...
@overload
def smallest(a: Amount, b: Amount) -> Amount: ...
def smallest(a: Amount, b: Amount) -> Amount:
    if not isinstance(a, Formula) and not isinstance(b, Formula):
        return min(a, b)
    return _call("min", a, b)


@overload
def product(factors: Iterable[int]) -> int: ...
@overload
def product(factors: Iterable[float]) -> float: ...
@overload
def product(factors: Iterable[Amount]) -> Amount: ...
def product(factors: Iterable[Amount]) -> Amount:
    found: Amount = 1
    for factor in factors:
        found = found * factor
    return found


@overload
def total(terms: Iterable[int]) -> int: ...
@overload
def total(terms: Iterable[float]) -> float: ...
@overload
def total(terms: Iterable[Amount]) -> Amount: ...
def total(terms: Iterable[Amount]) -> Amount:
    found: Amount = 0
    for term in terms:
        found = found + term
    return found


@overload
def ceil_div(value: float, by: int) -> float: ...
@overload
def ceil_div(value: Amount, by: int) -> Amount: ...
def ceil_div(value: Amount, by: int) -> Amount:
    """The quotient of counts, rounded up."""
    if isinstance(value, Formula):
        return value if by == 1 else _amount(_quotient(_sum(value.expr, int_const(by - 1)), int_const(by)), 1)
    return ceil(value / by)


@overload
def whole_part(value: float, by: int) -> float: ...
@overload
def whole_part(value: Amount, by: int) -> Amount: ...
def whole_part(value: Amount, by: int) -> Amount:
    """The quotient of counts, rounded down."""
    return _amount(_quotient(value.expr, int_const(by)), 1) if isinstance(value, Formula) else value // by


def common_power(value: Amount, power: int) -> Amount:
    """The greatest common divisor of a count and a power of two."""
    if isinstance(value, Formula):
        bits = Call("bitor", (value.expr, int_const(power)))
        return _amount(Call("bitand", (bits, -bits)), 1)
    return gcd(int(value), power)


def as_expr(amount: Amount, unit: int = UNIT) -> Expr:
    """An amount as a whole number, so many for each one."""
    found = _lift(amount)
    assert unit % found.unit == 0
    return _product(found.expr, int_const(unit // found.unit))


def _lift(amount: Amount) -> Formula:
    if isinstance(amount, Formula):
        return amount
    if isinstance(amount, int):
        return Formula(int_const(amount))
    return Formula(int_const(int(amount))) if amount.is_integer() else Formula(int_const(round(amount * UNIT)), UNIT)


def _alike(a: Amount, b: Amount) -> tuple[Expr, Expr, int]:
    """Both in the same unit, and that."""
    x, y = _lift(a), _lift(b)
    unit = max(x.unit, y.unit)
    return as_expr(x, unit), as_expr(y, unit), unit


def _amount(expr: Expr, unit: int) -> Amount:
    if isinstance(expr, Const):
        return int(expr.value) if unit == 1 else expr.value / unit
    return Formula(expr, unit)


def _compare(op: str, a: Formula, b: Amount) -> Truth:
    if isinstance(b, float) and a.unit == 1:
        b = floor(b) if op in ("le", "gt") else ceil(b)
    x, y, _ = _alike(a, b)
    return Condition(Call(op, (x, y)))


def _call(op: str, a: Amount, b: Amount) -> Amount:
    x, y, unit = _alike(a, b)
    return _amount(x if x == y else Call(op, (x, y)), unit)


def _sum(a: Expr, b: Expr) -> Expr:
    """Constants last, and taken together."""
    (x, m), (y, n) = _split("add", a, 0), _split("add", b, 0)
    rest = [e for e in (x, y) if e is not None]
    if len(rest) == 2:
        (x, own), (y, theirs) = (_split("mul", e, 1) for e in rest)
        if x is not None and x == y:
            rest = [_product(x, int_const(own + theirs))]
            if isinstance(rest[0], Const):
                rest = []
    constant = [int_const(m + n)] if m + n or not rest else []
    return reduce(lambda p, q: p + q, [*rest, *constant])


def _product(a: Expr, b: Expr) -> Expr:
    (x, m), (y, n) = _split("mul", a, 1), _split("mul", b, 1)
    if m * n == 0:
        return int_const(0)
    rest = [e for e in (x, y) if e is not None]
    constant = [int_const(m * n)] if m * n != 1 or not rest else []
    return reduce(lambda p, q: p * q, [*rest, *constant])


def _split(op: str, expr: Expr, neutral: int) -> tuple[Expr | None, int]:
    """What is no constant of a sum or product whose constant stands last, and the constant."""
    match expr:
        case Const(value):
            return None, int(value)
        case Call(own, (rest, Const(value))) if own == op:
            return rest, int(value)
    return expr, neutral


def _positive(amount: Formula) -> Expr:
    return maximum(amount.expr, 1)


def _quotient(a: Expr, b: Expr) -> Expr:
    """Rounded down."""
    if isinstance(b, Const):
        if b.value == 1:
            return a
        if isinstance(a, Const):
            return int_const(int(a.value) // int(b.value))
        if isinstance(a, Call) and a.op == "mul" and isinstance(a.args[1], Const) and a.args[1].value % b.value == 0:
            return _product(a.args[0], int_const(int(a.args[1].value) // int(b.value)))
    return a // b
