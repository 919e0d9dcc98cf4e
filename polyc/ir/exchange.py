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
    expr: Expr, one: str, other: str, types: Mapping[str, DType], symmetric: Mapping[str, tuple[int, int]]
) -> bool:
    """Whether `expr` has the same value, up to rounding and the sign of zeros, with the indices `one` and `other` exchanged.

    `types`: of what it reads; `symmetric`: tensors that stay the same where these two dimensions change places.  The forms that
    are compared have the operands of sums and products in one order, and signs taken out: ``(x[i] - x[j]) * (x[i] - x[j])``,
    ``w[k] * x[k, i] * x[k, j]`` and ``i == j ? 1 : p[i] * p[j]`` survive."""
    forms = _Forms(types, symmetric)
    return forms.of(expr) == forms.of(substitute(expr, {one: Index(other), other: Index(one)}))


class _Forms:
    def __init__(self, types: Mapping[str, DType], symmetric: Mapping[str, tuple[int, int]]) -> None:
        self.types, self.symmetric = types, symmetric

    def of(self, expr: Expr) -> Expr:
        """The form of an expression; sums and products in it have any number of operands."""
        is_negative, form = self._with_sign(expr)
        return Call("neg", (form,)) if is_negative else form

    def _with_sign(self, expr: Expr) -> tuple[bool, Expr]:
        """A form, and whether the expression is its negative.  Of unsigned numbers none is."""
        match expr:
            case Const() | Index() | Size():
                return False, expr
            case Read():
                subscripts = [self.of(e) for e in expr.subscripts]
                if expr.tensor in self.symmetric:
                    p, q = self.symmetric[expr.tensor]
                    subscripts[p], subscripts[q] = _sorted((subscripts[p], subscripts[q]))
                return False, Read(expr.tensor, tuple(subscripts))
            case Call("neg", (a,)) if self._is_signed(a):
                is_negative, form = self._with_sign(a)
                return not is_negative, form
            case Call("add" | "sub") if self._is_signed(expr):
                return self._sum(expr)
            case Call("mul"):
                signs, forms = zip(*map(self._with_sign, operands_of(expr, "mul")), strict=True)
                return sum(signs) % 2 == 1, Call("mul", _sorted(forms))
            case Call("truediv", (a, b)):  # an infinity has the sign of the zero that is divided by
                is_negative, form = self._with_sign(a)
                return is_negative, Call("truediv", (form, self.of(b)))
            case Call("fma", (a, b, c)):
                return self._with_sign(a * b + c)
            case Call() if expr.op in EVEN and self._is_signed(expr.args[0]):
                return False, Call(expr.op, (self._with_sign(expr.args[0])[1],))
            case Call() if expr.op in COMMUTATIVE:
                return False, Call(expr.op, _sorted(map(self.of, expr.args)))
            case Call() if expr.op in _CONVERSE:
                return False, Call(_CONVERSE[expr.op], tuple(map(self.of, expr.args[::-1])))
            case Cast(value, dtype) if dtype.is_float and type_of(value, self.types).is_float:
                is_negative, form = self._with_sign(value)
                return is_negative, Cast(form, dtype)
            case Call() | Select() | Cast() | Pad():
                return False, with_children(expr, tuple(map(self.of, children(expr))))

    def _is_signed(self, expr: Expr) -> bool:
        return type_of(expr, self.types).is_signed

    def _sum(self, expr: Expr) -> tuple[bool, Expr]:
        """A sum whose first term has a plus."""
        terms = sorted(self._terms(expr, False), key=lambda term: (repr(term[1]), term[0]))
        is_negative = terms[0][0]
        return is_negative, Call("add", tuple(Call("neg", (form,)) if sign != is_negative else form for sign, form in terms))

    def _terms(self, expr: Expr, is_negative: bool) -> list[tuple[bool, Expr]]:
        if isinstance(expr, Call) and expr.op in ("add", "sub"):
            a, b = expr.args
            return self._terms(a, is_negative) + self._terms(b, is_negative != (expr.op == "sub"))
        sign, form = self._with_sign(expr)
        return [(sign != is_negative, form)]


def _sorted(forms: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(sorted(forms, key=repr))
