"""Whether an expression has the same value where two of its indices change places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    Size,
    children,
    operands_of,
    substitute,
    type_of,
    with_children,
)
from polyc.ir.types import DType

COMMUTATIVE = frozenset("add mul max min fmax fmin bitand bitor bitxor eq ne and or hypot".split())
"""Operators of two operands that may change places."""

EVEN = frozenset(("abs", "cos", "cosh"))
"""Operators that give the same for a number and its negative."""

_CONVERSE = {"gt": "lt", "ge": "le"}


def survives_exchange(
    expr: Expr,
    one: str,
    other: str,
    types: Mapping[str, DType],
    symmetric: Mapping[str, tuple[int, int]],
    is_summed: bool = False,
) -> bool:
    """Whether `expr` has the same value, up to rounding, with the indices `one` and `other` exchanged.

    `types`: of what it reads; `symmetric`: tensors that stay the same where these two dimensions change places; `is_summed`: it
    is added to other values, so that the sign of a zero does not matter.  The forms that are compared have the operands of sums
    and products in one order, and signs taken out: ``(x[i] - x[j]) * (x[i] - x[j])``, ``w[k] * x[k, i] * x[k, j]`` and
    ``i == j ? 1 : p[i] * p[j]`` survive."""
    forms = _Forms(types, symmetric)
    exchanged = substitute(expr, {one: Index(other), other: Index(one)})
    return forms.with_sign(expr, is_summed) == forms.with_sign(exchanged, is_summed)


class _Forms:
    def __init__(self, types: Mapping[str, DType], symmetric: Mapping[str, tuple[int, int]]) -> None:
        self.types, self.symmetric = types, symmetric

    def of(self, expr: Expr) -> Expr:
        """The form of an expression; sums and products in it have any number of operands."""
        is_negative, form = self.with_sign(expr)
        return Call("neg", (form,)) if is_negative else form

    def with_sign(self, expr: Expr, is_summed: bool = False) -> tuple[bool, Expr]:
        """A form, and whether the expression is its negative, or a zero of any sign where the form is one."""
        match expr:
            case Const() | Index() | Size():
                return False, expr
            case Read():
                subscripts = [self.of(e) for e in expr.subscripts]
                if expr.tensor in self.symmetric:
                    p, q = self.symmetric[expr.tensor]
                    subscripts[p], subscripts[q] = _sorted((subscripts[p], subscripts[q]))
                return False, Read(expr.tensor, tuple(subscripts))
            case Call("neg", (a,)):
                is_negative, form = self.with_sign(a, is_summed)
                return not is_negative, form
            case Call("add" | "sub"):
                return self._sum(expr, is_summed)
            case Call("mul"):
                return self._product(expr, is_summed)
            case Call("truediv", (a, b)):  # an infinity has the sign of the zero that is divided by
                is_negative, form = self.with_sign(a, is_summed)
                return is_negative, Call("truediv", (form, self.of(b)))
            case Call("fma", (a, b, c)):
                return self.with_sign(a * b + c, is_summed)
            case Call() if expr.op in EVEN and type_of(expr.args[0], self.types).is_signed:
                return False, Call(expr.op, (self.with_sign(expr.args[0], True)[1],))
            case Call() if expr.op in COMMUTATIVE:
                return False, Call(expr.op, _sorted(map(self.of, expr.args)))
            case Call() if expr.op in _CONVERSE:
                return False, Call(_CONVERSE[expr.op], tuple(map(self.of, expr.args[::-1])))
            case Cast(value, dtype) if dtype.is_float and type_of(value, self.types).is_float:
                is_negative, form = self.with_sign(value, is_summed)
                return is_negative, Cast(form, dtype)
            case Call() | Select() | Cast() | Pad():
                return False, with_children(expr, tuple(map(self.of, children(expr))))

    def _sum(self, expr: Expr, is_summed: bool) -> tuple[bool, Expr]:
        """A sum whose first term has a plus."""
        terms = sorted(self._terms(expr, False, is_summed), key=lambda term: (repr(term[1]), term[0]))
        is_negative = terms[0][0]
        return is_negative, Call("add", tuple(Call("neg", (form,)) if sign != is_negative else form for sign, form in terms))

    def _terms(self, expr: Expr, is_negative: bool, is_summed: bool) -> list[tuple[bool, Expr]]:
        if isinstance(expr, Call) and expr.op in ("add", "sub"):
            a, b = expr.args
            others = self._terms(b, is_negative != (expr.op == "sub"), is_summed)
            return self._terms(a, is_negative, is_summed) + others
        sign, form = self.with_sign(expr, is_summed)
        return [(sign != is_negative, form)]

    def _product(self, expr: Expr, is_summed: bool) -> tuple[bool, Expr]:
        """A product of forms.  Where two different differences change signs, a zero of one of them changes that of the product:
        ``(x[i] - x[j]) * (y[i] - y[j])`` may be divided by."""
        factors = operands_of(expr, "mul")
        found = [self.with_sign(e, is_summed) for e in factors]
        turned = {form for sign, form in found if sign}
        if len(turned) > 1 and not is_summed and not type_of(expr, self.types).is_integer:
            return False, Call("mul", _sorted(map(self.of, factors)))
        return sum(sign for sign, _ in found) % 2 == 1, Call("mul", _sorted(form for _, form in found))


def _sorted(forms: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(sorted(forms, key=repr))
