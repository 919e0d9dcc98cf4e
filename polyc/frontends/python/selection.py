"""``v[i], p[i] = argmax(X[i, j])``: the greatest value and where it stands."""

from __future__ import annotations

import ast

from polyc.diagnostics import Span
from polyc.frontends.core.builder import Target
from polyc.frontends.core.reductions import SELECTIONS, add_selection
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.statements import make_assignment, read_target, target_name
from polyc.frontends.python.syntax import call_name
from polyc.frontends.python.values import POISON

_CODE = "semantic-selection"


def find_selection(node: ast.Assign) -> str | None:
    """``argmax`` or ``argmin`` where a whole right side is a call of it, and the left side names tensors or plain elements: a
    part that it computes (``p[N - 1] = argmax(e)``) is assigned as from any expression."""
    found = call_name(node.value.func) if isinstance(node.value, ast.Call) else None
    if found is None or found[1] not in SELECTIONS:
        return None
    match node.targets[0]:
        case ast.Subscript(_, ast.BinOp() | ast.UnaryOp() | ast.Constant()):
            return None
        case ast.Subscript(_, ast.Tuple(parts)) if any(not isinstance(part, ast.Name) for part in parts):
            return None
    return found[1]


def read_selection(node: ast.Assign, op: str, clauses: Clauses, scope: Scope) -> None:
    """Add the statements that `polyc.frontends.core.reductions` describes, and the versions of the targets."""
    assert isinstance(node.value, ast.Call)
    lefts = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else [node.targets[0]]
    targets = [t for t in (read_target(left, scope) for left in lefts) if t is not None]
    try:
        if len(node.value.args) != 1 or node.value.keywords or isinstance(node.value.args[0], ast.Starred):
            help = f"the indices that are not on the left side are chosen from: p[i] = {op}(X[i, j])"
            scope.report(_CODE, f"{op} takes one expression, and no axis", node.value, help)
        elif (value := read_expression(node.value.args[0], scope)) is not POISON and len(targets) == len(lefts):
            select_positions(scope.text.span(node), op, targets, value, clauses, scope)
            return
    except Fault as fault:
        scope.report(fault.code, fault.message, node, fault.help)
    for left in lefts:
        scope.define_unknown(target_name(left))


def select_positions(span: Span, op: str, targets: list[Target], value: Value, clauses: Clauses, scope: Scope) -> None:
    """Add the statements of ``p[i] = argmax(e)``, or of several targets, and their versions.  Raises `Fault`."""
    if len({t.name for t in targets}) < len(targets):
        raise Fault(_CODE, f"two results of {op} have the same name", "give each result a name of its own")
    add_selection(scope, make_assignment(targets, [value], op, clauses, span), op)
