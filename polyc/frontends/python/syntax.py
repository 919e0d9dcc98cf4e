"""What is seen of expressions before they are read: the names of calls, reductions, and names outside of these."""

from __future__ import annotations

import ast

from polyc.frontends.core.reductions import SELECTIONS
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.names import Index as IndexObject
from polyc.frontends.python.scope import Scope
from polyc.ir.expr import Index


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


def positional(node: ast.AST) -> list[ast.expr]:
    """The arguments of a call that gives all of them one by one, by position; else nothing."""
    is_plain = isinstance(node, ast.Call) and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
    return node.args if is_plain and isinstance(node, ast.Call) else []


def is_reduction(node: ast.AST) -> bool:
    """Whether a node is a call such as ``max(e)`` or ``argmax(e)``, of one operand."""
    found = call_name(node.func) if isinstance(node, ast.Call) and len(positional(node)) == 1 else None
    return found is not None and (found[1] in REDUCERS or found[1] in SELECTIONS) and find_comprehension(node) is None


def find_comprehension(node: ast.AST) -> ast.GeneratorExp | ast.ListComp | None:
    """The only argument of ``sum(e for k in range(3))``, or of ``max([e for k in (1, 2)])``."""
    arguments = positional(node)
    inner = arguments[0] if len(arguments) == 1 else None
    return inner if isinstance(inner, (ast.GeneratorExp, ast.ListComp)) else None


def is_division(node: ast.AST) -> bool:
    """Whether a node is a call ``divmod(a, b)``, which gives two values."""
    found = call_name(node.func) if isinstance(node, ast.Call) and len(positional(node)) == 2 else None
    return found is not None and found[1] == "divmod"


def find_outer_names(nodes: list[ast.expr], scope: Scope, hidden: frozenset[str] = frozenset()) -> frozenset[str]:
    """Names in expressions, without those in reductions and the variables `hidden`: what a reduction among them does not
    run over.  Variables of loops further out are the indices that stand for them."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            if node.id in hidden:
                continue
            value = scope.values.get(node.id)
            meaning = scope.text.lookup(node.id) if value is None else value.expr
            found.add(meaning.name if isinstance(meaning, (IndexObject, Index)) else node.id)
        elif isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            inside = hidden
            for g in node.generators:
                found |= find_outer_names([g.iter], scope, inside)
                inside |= {n.id for n in ast.walk(g.target) if isinstance(n, ast.Name)}
                found |= find_outer_names(g.ifs, scope, inside)
            found |= find_outer_names([node.elt], scope, inside)
        elif not is_reduction(node):
            waiting += ast.iter_child_nodes(node)
    return frozenset(found)
