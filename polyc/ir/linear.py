"""Integer expressions as linear forms over indices."""

from __future__ import annotations

from fractions import Fraction

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Size, walk


def index_coefficients(expr: Expr) -> dict[str, int] | None:
    """Coefficient of every index in a linear expression; sizes count as constants.  None if not linear in the indices."""
    match expr:
        case Const() | Size():
            return {}
        case Index():
            return {expr.name: 1}
        case Cast():
            # Narrow integers wrap around; the wide ones hold every index (sizes are checked at the call).
            return index_coefficients(expr.value) if expr.dtype.is_integer and expr.dtype.bits >= 32 else None
        case Call(op=("add" | "sub") as op, args=(a, b)):
            left, right = index_coefficients(a), index_coefficients(b)
            if left is None or right is None:
                return None
            sign = 1 if op == "add" else -1
            result = dict(left)
            for name, c in right.items():
                result[name] = result.get(name, 0) + sign * c
            return {name: c for name, c in result.items() if c}
        case Call(op="neg", args=(a,)):
            inner = index_coefficients(a)
            return None if inner is None else {name: -c for name, c in inner.items()}
        case Call(op="mul", args=(a, b)):
            for factor, other in ((a, b), (b, a)):
                if isinstance(factor, Const):
                    inner = index_coefficients(other)
                    return None if inner is None else {n: c * int(factor.value) for n, c in inner.items() if factor.value}
        case _:
            pass
    inner_all = _indices_of(expr)
    return {} if inner_all is not None and not inner_all else None


def index_steps(expr: Expr) -> dict[str, Fraction] | None:
    """How far a subscript moves with every index, on average: a linear form, or a sum with quotients of such by numbers.

    ``(10 * x - 78) / 33 + t`` moves by 10/33 with x, and by 1 with t.  None for anything else."""
    linear = index_coefficients(expr)
    if linear is not None:
        return {name: Fraction(c) for name, c in linear.items()}
    match expr:
        case Call(op=("add" | "sub") as op, args=(a, b)):
            left, right = index_steps(a), index_steps(b)
            if left is None or right is None:
                return None
            sign = 1 if op == "add" else -1
            found = {name: left.get(name, Fraction(0)) + sign * right.get(name, Fraction(0)) for name in left | right}
            return {name: c for name, c in found.items() if c}
        case Call(op="floordiv", args=(a, Const(number))) if number > 0:
            inside = index_steps(a)
            return None if inside is None else {name: c / int(number) for name, c in inside.items()}
    return None


def _indices_of(expr: Expr) -> set[str] | None:
    """Names of all indices in an expression without reads; None if it reads."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, (Read, Pad)):
            return None
        if isinstance(node, Index):
            names.add(node.name)
    return names
