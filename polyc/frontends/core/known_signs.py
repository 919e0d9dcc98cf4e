"""What conditions say of index expressions, as far as sums of indices, sizes and lengths with constant factors tell it.

A fact is an expression that is at least 0."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.ir.expr import Call, Cast, Const, Expr, int_const, reads, rewrite
from polyc.ir.simplify import linear_form


def follows(needed: Expr, facts: Sequence[Expr]) -> bool:
    """Whether an index expression is at least 0 where the `facts` are."""
    for fact in (int_const(0), *facts):
        form = linear_form(rewrite(needed - fact, _without_width))
        if form is not None and form.keys() <= {1} and form.get(1, 0) >= 0:
            return True
    return False


def _without_width(node: Expr) -> Expr | None:
    """Index arithmetic as such, where text calculates with it in another type of integers."""
    match node:
        case Cast(value, dtype) if dtype.is_integer and dtype.bits >= 32 and not reads(value):
            return value
        case Const(value, dtype) if dtype.is_integer:
            return int_const(int(value))
    return None


def implied_by(condition: Expr, holds: bool, facts: Sequence[Expr]) -> list[Expr]:
    """What is at least 0 where a condition holds, or does not."""
    match condition, holds:
        case Call("and", args), True:
            return [f for a in args for f in implied_by(a, True, facts)]
        case Call("or", args), False:
            return [f for a in args for f in implied_by(a, False, facts)]
        case Call("not", (a,)), _:
            return implied_by(a, not holds, facts)
        case (Call("lt", (a, b)), True) | (Call("gt", (b, a)), True):
            return [b - a - 1]
        case (Call("le", (a, b)), True) | (Call("ge", (b, a)), True):
            return [b - a]
        case (Call("lt", (a, b)), False) | (Call("gt", (b, a)), False):
            return [a - b]
        case (Call("le", (a, b)), False) | (Call("ge", (b, a)), False):
            return [a - b - 1]
        case (Call("eq", (a, b)), True) | (Call("ne", (a, b)), False):
            return [a - b, b - a]
        case (Call("eq", (a, b)), False) | (Call("ne", (a, b)), True):
            return [d - 1 for d in (a - b, b - a) if follows(d, facts)]
    return []
