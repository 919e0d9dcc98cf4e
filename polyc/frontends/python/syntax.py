"""What is seen of expressions before they are read: the names of calls, reductions, and names outside of these."""

from __future__ import annotations

import ast

from polyc.frontends.core.reductions import SELECTIONS
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.names import Index as IndexObject
from polyc.frontends.python.scope import Scope


def call_name(node: ast.expr) -> tuple[str | None, str] | None:
    """``(module, name)`` of ``module.name(...)`` or ``name(...)``: functions are known by name, whatever the module."""
    match node:
        case ast.Name(name):
            return None, name
        case ast.Attribute(ast.Name(module), name):
            return module, name
        case ast.Attribute(ast.Attribute(ast.Name()), name):
            return None, name
    return None


def unturn(node: ast.expr) -> tuple[str, bool] | None:
    """The name before any number of ``.T``, and whether the dimensions are turned: ``x``, False of ``x.T.T``."""
    is_turned = False
    while isinstance(node, ast.Attribute) and node.attr == "T":
        node, is_turned = node.value, not is_turned
    return (node.id, is_turned) if isinstance(node, ast.Name) else None


def is_reduction(node: ast.AST) -> bool:
    """Whether a node is a call such as ``max(e)`` or ``argmax(e)``, of one operand."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        return False
    found = call_name(node.func)
    return found is not None and (found[1] in REDUCERS or found[1] in SELECTIONS)


def is_division(node: ast.AST) -> bool:
    """Whether a node is a call ``divmod(a, b)``, which gives two values."""
    if (
        not isinstance(node, ast.Call)
        or len(node.args) != 2
        or node.keywords
        or any(isinstance(a, ast.Starred) for a in node.args)
    ):
        return False
    found = call_name(node.func)
    return found is not None and found[1] == "divmod"


def find_outer_names(nodes: list[ast.expr], scope: Scope) -> frozenset[str]:
    """Names in expressions, those inside of reductions left out: what a reduction among them does not run over."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            meaning = scope.text.lookup(node.id)
            found.add(meaning.name if isinstance(meaning, IndexObject) else node.id)
        elif not is_reduction(node):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found)
