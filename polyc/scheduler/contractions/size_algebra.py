"""Costs as expressions over sizes: sums, products and quotients of whole numbers, constants taken together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from polyc.ir.expr import Call, Const, Expr, Select, int_const

UNIT = 256
"""Costs are whole numbers: so many for each cycle."""


def scaled(cycles: float) -> int:
    return round(UNIT * cycles)


def total(terms: Sequence[Expr]) -> Expr:
    """The sum, equal terms added up."""
    factors = Counter[Expr]()
    for term in terms:
        rest, factor = _split_factor([term])
        factors[_multiply(rest) if rest else int_const(1)] += factor
    found = [product([value, int_const(n)]) for value, n in factors.items() if n]
    return reduce(lambda a, b: Call("add", (a, b)), found) if found else int_const(0)


def product(factors: Sequence[Expr]) -> Expr:
    """The product, its constant last."""
    rest, factor = _split_factor(factors)
    if factor == 0 or not rest:
        return int_const(factor)
    return _multiply(rest if factor == 1 else [*rest, int_const(factor)])


def _split_factor(factors: Sequence[Expr]) -> tuple[list[Expr], int]:
    """What is no constant, and the product of the constants."""
    rest, known = list[Expr](), 1
    for factor in factors:
        match factor:
            case Const(value):
                known *= int(value)
            case Call("mul", (other, Const(value))):
                rest.append(other)
                known *= int(value)
            case _:
                rest.append(factor)
    return rest, known


def _multiply(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: Call("mul", (a, b)), factors)


def ceil_div(value: Expr, by: int) -> Expr:
    if by == 1:
        return value
    if isinstance(value, Const):
        return int_const(-(-int(value.value) // by))
    return Call("floordiv", (Call("add", (value, int_const(by - 1))), int_const(by)))


def if_at_most(value: Expr, bound: Expr, then: Expr, other: Expr) -> Expr:
    """`then` where ``value <= bound`` holds, else `other`."""
    if isinstance(value, Const) and isinstance(bound, Const):
        return then if int(value.value) <= int(bound.value) else other
    return then if then == other else Select(Call("le", (value, bound)), then, other)
