"""What the text of an expression says before it is read: whether it is index arithmetic, and where it needs data."""

from __future__ import annotations

from polyc.frontends.tc.builtins import ARITHMETIC
from polyc.frontends.tc.scope import Scope
from polyc.frontends.tc.syntax import Apply, Binary, Extent, Name, Number, SyntaxExpr, Unary, syntax_children


def is_index_expression(scope: Scope, syntax: SyntaxExpr) -> bool:
    """Whether `syntax` is integer arithmetic over indices, sizes and literals alone."""
    stack = [syntax]
    while stack:
        node = stack.pop()
        match node:
            case Number():
                if node.is_float:
                    return False
            case Name():
                if node.name in scope.left:
                    continue
                if node.name in scope.lets:
                    if not scope.lets[node.name].is_index:
                        return False
                elif node.name in scope.tensors or node.name in scope.definition_tensors:
                    return False
            case Extent() | Unary("-"):
                pass
            case Binary() if node.op in ARITHMETIC:
                pass
            case Apply("min" | "max", (_, _)):
                pass
            case _:
                return False
        stack.extend(syntax_children(node))
    return True


def find_access(scope: Scope, syntax: SyntaxExpr) -> SyntaxExpr | None:
    """The first tensor read or builtin call in `syntax`, or the use of a let that holds one."""
    stack = [syntax]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.name not in ("min", "max"):
            return node
        if isinstance(node, Name) and node.name not in scope.left:
            let = scope.lets.get(node.name)
            if let.has_access if let is not None else node.name in scope.tensors:
                return node
        stack.extend(reversed(syntax_children(node)))
    return None
