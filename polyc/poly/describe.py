"""Integer expressions in the user's words, for messages: the source text where there is one, else infix notation."""

from __future__ import annotations

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, with_children
from polyc.ir.operators import OPERATORS

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "==": 3,
    "!=": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "//": 5,
    "%": 5,
}


def describe_expr(expr: Expr, names: dict[str, str] | None = None) -> str:
    """`expr` as the user wrote it, or printed with `names` (tensor version → the user's name) where it was derived."""
    if expr.span is not None:
        text = " ".join(expr.span.source.text[expr.span.start : expr.span.end].split())
        if text:
            return text
    return _infix(expr, 0, names or {})


def print_expr(expr: Expr) -> str:
    """`expr` in infix notation, whatever its source text."""
    return _infix(_without_span(expr), 0, {})


def _without_span(expr: Expr) -> Expr:
    match expr:
        case Const():
            return Const(expr.value, expr.dtype)
        case Index():
            return Index(expr.name)
        case Size():
            return Size(expr.name)
        case Read():
            return Read(expr.tensor, tuple(_without_span(s) for s in expr.subscripts))
        case Call():
            return Call(expr.op, tuple(_without_span(a) for a in expr.args))
        case Cast():
            return Cast(_without_span(expr.value), expr.dtype)
        case Pad() | Select():
            operands = (expr.read, expr.value) if isinstance(expr, Pad) else (expr.condition, expr.then, expr.other)
            return with_children(expr, tuple(_without_span(e) for e in operands))


def _infix(expr: Expr, outer: int, names: dict[str, str]) -> str:
    match expr:
        case Const():
            return str(expr.value)
        case Index() | Size():
            return expr.name
        case Cast():
            return _infix(expr.value, outer, names)
        case Read():
            name = names.get(expr.tensor, expr.tensor)
            subscripts = ", ".join(describe_expr(s, names) for s in expr.subscripts)
            return f"{name}({subscripts})" if expr.subscripts else name
        case Pad() if expr.mode != "value":
            return f"pad({_infix(expr.read, 0, names)}, {expr.mode})"
        case Pad():
            return f"pad({_infix(expr.read, 0, names)}, {_infix(expr.value, 0, names)})"
        case Select():
            parts = [_infix(e, 1, names) for e in (expr.condition, expr.then, expr.other)]
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case Call():
            infix = OPERATORS[expr.op].infix
            if infix is None:
                return f"{expr.op}({', '.join(_infix(a, 0, names) for a in expr.args)})"
            if len(expr.args) == 1:
                return f"{infix}{_infix(expr.args[0], 6, names)}"
            level = _PRECEDENCE[infix]
            text = f"{_infix(expr.args[0], level, names)} {infix} {_infix(expr.args[1], level + 1, names)}"
            return f"({text})" if level < outer else text


def escape_format(text: str) -> str:
    """`text` with its braces doubled, to stand inside a format string."""
    return text.replace("{", "{{").replace("}", "}}")
