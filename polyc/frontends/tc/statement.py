"""The left side of a statement, its operator, and which indices it reduces over."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from polyc.frontends.tc.scope import Reporter, check_not_builtin
from polyc.frontends.tc.syntax import Name, SyntaxExpr, SyntaxStatement, syntax_children
from polyc.ir.expr import Expr, Index, walk

_MONOIDS = {"+": "add", "*": "mul", "min": "min", "max": "max"}


@dataclass(frozen=True, slots=True)
class Left:
    """Left indices in order, and the subscripts made of them."""

    names: tuple[str, ...]
    subscripts: tuple[Expr, ...]


def split_operator(op: str) -> tuple[str | None, bool]:
    """``+=!`` -> ("add", True): the monoid (None for ``=``) and whether it sets its start value."""
    if op == "=":
        return None, True
    return _MONOIDS[op.rstrip("=!")], op.endswith("!")


def find_reduction_indices(value: Expr, left: tuple[str, ...]) -> list[str]:
    """Indices of `value` that are not on the left side, by first appearance."""
    names = dict.fromkeys(node.name for node in walk(value) if isinstance(node, Index))
    return [name for name in names if name not in left]


def check_left(reporter: Reporter, sizes: Container[str], s: SyntaxStatement) -> Left:
    """Distinct plain identifiers; anything else is reported (affine and constant subscripts as unsupported)."""
    names: dict[str, None] = {}
    subscripts: list[Expr] = []
    for syntax in s.subscripts:
        match syntax:
            case Name(name=name):
                check_not_builtin(reporter, name, syntax.span)
                if name in names or name in sizes:
                    what = "an index on the left side" if name in names else "a size"
                    message = f"{name} is already defined as {what}"
                    reporter.error(
                        "semantic-already-defined", message, syntax.span, "use one distinct index for each dimension"
                    )
                names[name] = None
                subscripts.append(Index(name, syntax.span))
            case _:
                message = "only plain indices can stand on the left side for now"
                help = f"write {s.target}(i, …), and move the arithmetic to the right side or into a where-clause"
                reporter.error("unsupported-left-subscript", message, syntax.span, help)
                names.update(dict.fromkeys(_names(syntax)))
                subscripts.append(Index("", syntax.span))
    return Left(tuple(names), tuple(subscripts))


def _names(syntax: SyntaxExpr) -> list[str]:
    found, stack = [], [syntax]
    while stack:
        node = stack.pop()
        if isinstance(node, Name):
            found.append(node.name)
        stack.extend(reversed(syntax_children(node)))
    return found
