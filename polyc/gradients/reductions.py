"""Cotangents of the values that a reduction combines, for that of its result.

A sum passes its own on.  Of a maximum (minimum), the values that are equal to it share it: an initial value that is no identity
is one of them.  Where none is equal, as the result is NaN or its values were rounded otherwise where they are compared, NaN is
passed on: what is lost must not look like zero.  Products are recurrences (`stepwise`); of those whose factors meet where data
says, it is times the other factors: the result over the factor where no factor is 0, the product of the others where this is
the only one that is.  That is right in value, but not in its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from polyc.gradients.adjoints import Conditions
from polyc.gradients.rules import refuse, times
from polyc.ir.expr import Call, Const, Expr, Index, Read, Select, identity_of, substitute
from polyc.ir.program import Program, Reduction, Statement, Tensor, element_names
from polyc.records import dataclass, replace

Cotangent = Callable[[Expr, tuple[Expr, ...], Expr], tuple[Expr, Conditions]]


@dataclass(frozen=True, slots=True)
class Seeds:
    """`tensors` and `statements` are what the cotangents are made of.

    ``cotangent(value, element, d)``: that of a value combined into an element of the result, whose own is `d`, and the
    conditions under which it is not 0."""

    cotangent: Cotangent
    tensors: tuple[Tensor, ...] = ()
    statements: tuple[Statement, ...] = ()


def seeds_of(s: Statement, program: Program, name: Callable[[str], str]) -> Seeds:
    """Of a statement; `name` makes free names."""
    if s.reduction is None or s.reduction.op == "add":
        return Seeds(lambda value, element, d: (d, ()))
    if s.reduction.op in ("max", "min"):
        return _of_extremes(s, program, name)
    if s.reduction.op == "mul":
        return _of_products(s, program, name)
    message = (
        f"the derivative of {program.tensor(s.target).base} is not supported: it combines values by a monoid of one's own at "
        "places, or over ranges, that data or computed subscripts name"
    )
    raise refuse(message, s.span, "combine into a tensor of its own, at indices, and assign from there")


def _is_one(expr: Expr, op: str, s: Statement, program: Program) -> bool:
    return expr == identity_of(op, program.tensor(s.target).dtype)


def _beside(s: Statement, program: Program, name: str, op: str, value: Expr, init: Expr) -> tuple[Tensor, Statement]:
    """Another reduction over the same points into as many elements."""
    target = program.tensor(s.target)
    tensor = Tensor(name, target.dtype, target.rank, target.shape, "temporary", target.base, s.span)
    new = dict(zip(element_names(s.target, s.subscripts), element_names(name, s.subscripts), strict=True))
    init = substitute(init, {old: Index(i) for old, i in new.items()})
    made = replace(s, name=f"S_{name}", target=name, value=value, reduction=Reduction(op, init))
    return tensor, made


def _of_extremes(s: Statement, program: Program, name: Callable[[str], str]) -> Seeds:
    assert s.reduction is not None
    dtype = program.tensor(s.target).dtype
    one, zero = Const(1.0, dtype), Const(0.0, dtype)
    result = Read(s.target, s.subscripts, s.span)
    element = tuple(Index(i) for i in s.element_names)
    init = s.reduction.init
    ties = (
        zero
        if _is_one(init, s.reduction.op, s, program)
        else Select(Call("eq", (init, Read(s.target, element, s.span))), one, zero)
    )
    counted = Select(Call("eq", (s.value, result)), one, zero)
    tensor, made = _beside(s, program, name(f"{s.target}.ties"), "add", counted, ties)

    def cotangent(value: Expr, element: tuple[Expr, ...], d: Expr) -> tuple[Expr, Conditions]:
        number = Read(tensor.name, element)
        is_lost = Call("eq", (number, zero))
        condition = Call("or", (Call("eq", (value, Read(s.target, element, s.span))), is_lost))
        return Select(is_lost, Const(nan, dtype), Call("truediv", (d, number))), ((condition, True),)

    return Seeds(cotangent, (tensor,), (made,))


def _of_products(s: Statement, program: Program, name: Callable[[str], str]) -> Seeds:
    assert s.reduction is not None
    dtype = program.tensor(s.target).dtype
    one, zero = Const(1.0, dtype), Const(0.0, dtype)

    def is_zero(e: Expr) -> Expr:
        return Call("eq", (e, zero))

    def once(e: Expr) -> Expr:
        return Call("once_differentiable", (e,), s.span)

    init = s.reduction.init
    is_plain = _is_one(init, "mul", s, program)
    n, count = _beside(
        s,
        program,
        name(f"{s.target}.zeros"),
        "add",
        Select(is_zero(s.value), one, zero),
        zero if is_plain else Select(is_zero(init), one, zero),
    )
    p, others = _beside(
        s,
        program,
        name(f"{s.target}.others"),
        "mul",
        Select(is_zero(s.value), one, s.value),
        one if is_plain else Select(is_zero(init), one, init),
    )

    def cotangent(value: Expr, element: tuple[Expr, ...], d: Expr) -> tuple[Expr, Conditions]:
        zeros = Read(n.name, element)
        alone = Call("and", (Call("eq", (zeros, one)), is_zero(value)))
        quotient = once(Call("truediv", (Read(s.target, element), value)))
        factor = Select(is_zero(zeros), quotient, Select(alone, once(Read(p.name, element)), zero))
        passed = times(d, factor)
        assert passed is not None
        return passed, ()

    return Seeds(cotangent, (n, p), (count, others))
