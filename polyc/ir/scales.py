"""What numbers expressions are scaled by: sums and products with literals, and factors of products."""

from __future__ import annotations

from polyc.ir.expr import Call, Cast, Const, Expr, evaluate, walk


def linear_in(expr: Expr, one: Expr, other: Expr, with_rest: bool = True) -> tuple[float, float] | None:
    """Coefficients of `one` and `other` in a sum of products with literals; None where one of them stands elsewhere.

    `with_rest`: terms without either are left out; else there must be none."""
    if expr == one:
        return 1.0, 0.0
    if expr == other:
        return 0.0, 1.0
    match expr:
        case Call(op=("add" | "sub") as op, args=(a, b)):
            left, right = linear_in(a, one, other, with_rest), linear_in(b, one, other, with_rest)
            sign = 1.0 if op == "add" else -1.0
            return left and right and (left[0] + sign * right[0], left[1] + sign * right[1])
    if (scaled := find_scale(expr)) is not None:
        inner = linear_in(scaled[1], one, other, with_rest)
        return inner and (scaled[0] * inner[0], scaled[0] * inner[1])
    return None if not with_rest or any(node in (one, other) for node in walk(expr)) else (0.0, 0.0)


def find_scale(expr: Expr) -> tuple[float, Expr] | None:
    """A literal that is a factor or a divisor, or a sign, and what it is applied to."""
    match expr:
        case Call(op="neg", args=(a,)):
            return -1.0, a
        case Call(op="mul", args=(a, b)):
            return next(((value, rest) for f, rest in ((a, b), (b, a)) if (value := literal(f)) is not None), None)
        case Call(op="truediv", args=(a, b)) if divisor := literal(b):
            return 1 / divisor, a
    return None


def literal(expr: Expr) -> float | None:
    """The value of a literal of a floating type, also where it is written as a conversion; None for anything else."""
    match expr:
        case Const(value=value) if not isinstance(value, bool):
            return float(value)
        case Cast(value=inner) if expr.dtype.is_float:
            number = _integer(inner)
            return literal(inner) if number is None else float(number)
        case Call(op="neg", args=(a,)):
            inner_value = literal(a)
            return None if inner_value is None else -inner_value
        case Call(op="truediv", args=(a, b)):
            x, y = literal(a), literal(b)
            return None if x is None or not y else x / y
    return None


def _integer(expr: Expr) -> int | None:
    """The value of sums and products of whole numbers (of sizes, once they are known); None where a type may wrap around."""
    for node in walk(expr):
        is_number = isinstance(node, Const) and not isinstance(node.value, (bool, float))
        is_wide = isinstance(node, Cast) and node.dtype.is_integer and node.dtype.bits >= 32
        if not (is_number or is_wide or (isinstance(node, Call) and node.op in ("add", "sub", "mul"))):
            return None
    return evaluate(expr, {}) if all(abs(evaluate(node, {})) < 1 << 31 for node in walk(expr)) else None


def is_factor(expr: Expr, part: Expr) -> bool:
    """Whether `expr` is a product with `part` as one factor, which stands nowhere else in it."""
    if expr == part:
        return True
    match expr:
        case Call(op="mul", args=(a, b)):
            return is_factor(a, part) != is_factor(b, part) and sum(node == part for node in walk(expr)) == 1
        case Call(op="neg", args=(a,)):
            return is_factor(a, part)
        case Call(op="truediv", args=(a, b)):
            return is_factor(a, part) and all(node != part for node in walk(b))
    return False
