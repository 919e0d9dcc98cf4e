"""The left side of a statement, its operator, and which indices it reduces over."""

from __future__ import annotations

from polyc.frontends.tc.scope import Scope, check_not_builtin
from polyc.frontends.tc.subscripts import build_subscript
from polyc.frontends.tc.syntax import LetSyntax, Name, SyntaxExpr, SyntaxStatement, syntax_children
from polyc.ir.expr import Expr, Index, Pad, Read, walk
from polyc.ir.program import Condition, RangeClause, Statement, Where

_MONOIDS = {"+": "add", "*": "mul", "min": "min", "max": "max", "&&": "and", "||": "or"}


def split_operator(op: str) -> tuple[str | None, bool]:
    """``+=!`` -> ("add", True): the monoid (None for ``=``) and whether it sets its start value."""
    if op == "=":
        return None, True
    return _MONOIDS[op.rstrip("=!")], op.endswith("!")


def find_reduction_indices(value: Expr, left: tuple[str, ...]) -> list[str]:
    """Indices of `value` that are not on the left side, by first appearance."""
    names = dict.fromkeys(node.name for node in walk(value) if isinstance(node, Index))
    return [name for name in names if name not in left]


def find_left_indices(scope: Scope, s: SyntaxStatement) -> tuple[str, ...]:
    """Names of the indices on the left side in order."""
    names: dict[str, None] = {}
    lets = {clause.name for clause in s.where if isinstance(clause, LetSyntax)}
    for syntax in s.subscripts:
        if not isinstance(syntax, Name):
            found = [n for n in _names(syntax) if n not in scope.sizes and n not in scope.tensors and n not in lets]
            names.update(dict.fromkeys(n for n in found if n not in scope.definition_tensors))
            continue
        name = syntax.name
        check_not_builtin(scope.reporter, name, syntax.span)
        if name in scope.sizes:
            continue
        names[name] = None
    return tuple(names)


def build_left(scope: Scope, s: SyntaxStatement) -> tuple[Expr, ...] | None:
    """The left subscripts; None after an error.  Only a reduction may write where data says."""
    subscripts: list[Expr] = []
    for syntax in s.subscripts:
        subscript = build_subscript(scope, syntax)
        if subscript is None:
            return None
        subscripts.append(subscript)
        if s.op == "=" and any(isinstance(node, (Read, Pad)) for node in walk(subscript)):
            message = f"which elements of {s.target} are written depends on data, and two values may meet in one"
            help = "say how they combine: +=! (or *=! min=! max=!)"
            scope.reporter.error("semantic-scatter", message, syntax.span, help)
    return tuple(subscripts)


def is_same_part(a: Statement, b: Statement) -> bool:
    """Whether two statements write the same elements by their text."""
    return a.subscripts == b.subscripts and _left_clauses(a) == _left_clauses(b)


def _left_clauses(s: Statement) -> list[Where]:
    left = set(s.left_indices)
    return [w for w in s.where if isinstance(w, Condition) or (isinstance(w, RangeClause) and w.index in left)]


def _names(syntax: SyntaxExpr) -> list[str]:
    found: list[str] = []
    stack = [syntax]
    while stack:
        node = stack.pop()
        if isinstance(node, Name):
            found.append(node.name)
        stack.extend(reversed(syntax_children(node)))
    return found
