"""The operators of expressions: how many operands each takes, what type its result has, how it is written."""

from __future__ import annotations

from collections.abc import Callable

from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    """`result`: "same" as the operands, "bool", "float" (operands must be floating point, result the same), "part" (of the
    complex operand) or "pair" (complex, of two floating-point operands)."""

    arity: int
    result: str
    infix: str | None = None


def _table() -> dict[str, Operator]:
    table: dict[str, Operator] = {}
    for name, infix in (("add", "+"), ("sub", "-"), ("mul", "*")):
        table[name] = Operator(2, "same", infix)
    # truediv: floats only. floordiv and mod: NumPy's // and % (round toward -inf; integer division by zero gives 0).
    table["truediv"] = Operator(2, "float", "/")
    table["floordiv"] = Operator(2, "same", "//")
    table["mod"] = Operator(2, "same", "%")
    # max and min propagate NaN (np.maximum); fmax and fmin ignore it (np.fmax).
    # shl and shr by fewer than no places, or by as many as there are bits: 0, and -1 for negative numbers shifted right.
    for name in ("max", "min", "fmax", "fmin", "pow", "bitand", "bitor", "bitxor", "shl", "shr"):
        table[name] = Operator(2, "same")
    for name in ("neg", "abs"):
        table[name] = Operator(1, "same", "-" if name == "neg" else None)
    for name, infix in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):
        table[name] = Operator(2, "bool", infix)
    for name, infix in (("and", "&&"), ("or", "||")):  # operands are bool
        table[name] = Operator(2, "bool", infix)
    table["not"] = Operator(1, "bool", "!")
    # round: half away from zero (C); rint: half to even (NumPy).  rsqrt(x) = 1/sqrt(x), sigmoid(x) = 1/(1+exp(-x)),
    # exp_below(x) = exp(x) for x up to 40.
    for name in (
        "exp exp2 exp10 expm1 log log2 log10 log1p logb sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh "
        "asinh acosh atanh sinpi cospi erf erfc lgamma tgamma ceil floor round rint trunc sigmoid exp_below"
    ).split():
        table[name] = Operator(1, "float")
    for name in "atan2 copysign fdim fmod hypot rhypot nextafter remainder".split():
        table[name] = Operator(2, "float")
    table["fma"] = Operator(3, "float")
    # int32 words of four bytes: the sum of the products of the first's, unsigned, with the second's, signed
    table["dot4u8s8"] = Operator(2, "same")
    # Complex numbers have these and the others of COMPLEX_OPERATORS.
    table["conj"] = Operator(1, "same")
    table["real"] = table["imag"] = Operator(1, "part")
    table["complex"] = Operator(2, "pair")
    # what a user's monoid combines: one operand or more, of any types; worth the first (see `program.Reduction`)
    table["tuple"] = Operator(1, "same")
    # its operand, which is a constant for derivatives
    table["stop_gradient"] = Operator(1, "same")
    # its operand, which is part of a derivative, and has none itself
    table["once_differentiable"] = Operator(1, "same")
    return table


OPERATORS: dict[str, Operator] = _table()
COMPLEX_OPERATORS = frozenset(
    (
        "add sub mul truediv neg eq ne conj real imag exp exp2 log log2 log10 sqrt sin cos tan sinh cosh tanh pow "
        "stop_gradient once_differentiable"
    ).split()
)
"""Operators that take complex operands."""

HOST_OPERATORS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "max": max,
    "min": min,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "neg": lambda a: -a,
    "abs": abs,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": lambda a: not a,
}
"""Operators on whole numbers and truth values, in Python."""
