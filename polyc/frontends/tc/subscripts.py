"""What the text of an expression says before it is read: whether it is index arithmetic, and where it needs data."""

from __future__ import annotations

from polyc.frontends.tc.builtins import ARITHMETIC
from polyc.frontends.tc.scope import Scope
from polyc.frontends.tc.syntax import Apply, Name, Number, SyntaxExpr, walk_syntax
from polyc.frontends.tc.types import TYPE_NAMES


def is_index_expression(scope: Scope, syntax: SyntaxExpr) -> bool:
    """Whether `syntax` is integer arithmetic over indices, sizes and literals alone."""
    for node in walk_syntax(syntax):
        match node:
            case Number():
                is_index = not node.is_float
            case Name(name) if name in scope.left:
                is_index = True
            case Name(name) if name in scope.lets:
                is_index = scope.lets[name].is_index
            case Name(name):
                is_index = name not in scope.tensors and name not in scope.definition_tensors
            case Apply(op, args):
                is_index = (op in ARITHMETIC or op in ("min", "max")) and (len(args) == 2 or op == "-")
                is_index |= op == "pow" and scope.is_bounding and len(args) == 2
            case _:
                is_index = True
        if not is_index:
            return False
    return True


def find_access(scope: Scope, syntax: SyntaxExpr) -> SyntaxExpr | None:
    """The first tensor read or builtin call in `syntax`, or the use of a let that holds one."""
    for node in walk_syntax(syntax):
        if isinstance(node, Apply) and not node.is_operator and node.name not in ("min", "max", "pow", *TYPE_NAMES):
            return node
        if isinstance(node, Name) and node.name not in scope.left:
            let = scope.lets.get(node.name)
            if let.has_access if let is not None else node.name in scope.tensors and node.name not in scope.integers:
                return node
    return None
