"""``v[i], p[i] = argmax(X[i, j])``: the greatest value and where it stands; and reductions inside of expressions,
``exp(x[i, j] - max(x[i, k]))``, which are statements above the one that they stand in."""

from __future__ import annotations

import ast

from polyc.diagnostics import Span
from polyc.frontends.core.builder import Target
from polyc.frontends.core.reductions import SELECTIONS, add_selection
from polyc.frontends.core.values import Fault, Reported, Value
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.statements import make_assignment, make_statement, read_target, target_name
from polyc.frontends.python.syntax import call_name, find_comprehension, find_outer_names, positional
from polyc.frontends.python.values import POISON
from polyc.ir.expr import Index, Read, index_names
from polyc.records import replace

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
    with scope.reporter.catching(scope.text.span(node), is_whole=True):
        refuse_loop(node.value, op)
        if len(positional(node.value)) != 1:
            help = f"the indices that are not on the left side are chosen from: p[i] = {op}(X[i, j])"
            scope.report(_CODE, f"{op} takes one expression, and no axis", node.value, help)
        elif (value := read_expression(node.value.args[0], scope)) is not POISON and len(targets) == len(lefts):
            select_positions(scope.text.span(node), op, targets, value, clauses, scope)
            return
    for left in lefts:
        scope.define_unknown(target_name(left))


def refuse_loop(node: ast.Call, name: str) -> None:
    """Raise `Fault` for ``argmax(e for k in range(3))``, which Python would count from 0."""
    if name in SELECTIONS and find_comprehension(node) is not None:
        help = f"a position is the value of an index: with polyc.where(a <= k < b): p[i] = {name}(X[i, k])"
        raise Fault(_CODE, f"{name} takes one expression, and no loop", help)


def select_positions(span: Span, op: str, targets: list[Target], value: Value, clauses: Clauses, scope: Scope) -> None:
    """Add the statements of ``p[i] = argmax(e)``, or of several targets, and their versions.  Raises `Fault`."""
    add_selection(scope, make_assignment(targets, [value], op, clauses, span), op)


def read_reduction(node: ast.Call, reducer: str, scope: Scope, depth: int, bounding: tuple[Index, ...] = ()) -> Value:
    """The read of what ``max(e)`` or ``argmax(e)`` gives, computed by new statements above the one at hand.

    It runs over the indices of `e` that stand nowhere outside of it; the others are those of its result, with those that its
    ranges depend on, `bounding`."""
    (operand,) = node.args
    around = scope.outer_names
    assert around is not None
    scope.outer_names = around | find_outer_names([operand], scope)
    value = read_expression(operand, scope, depth)
    scope.outer_names = around
    if value is POISON:
        return POISON
    value = replace(value, unread=(*value.unread, *bounding)) if bounding else value
    indices = tuple(dict.fromkeys(value.index_names))
    named = [i for c in scope.clauses.loaded if c.index in indices for i in index_names(c.lower, c.upper)]
    kept = tuple(i for i in dict.fromkeys((*indices, *sorted(named))) if i in around)
    kept = tuple(sorted(kept, key=lambda i: i != scope.step))
    if set(indices) <= set(kept):
        listed = ", ".join(kept) or "no index"
        message = f"{reducer} has nothing to run over: {listed} stand{'s' * (len(kept) < 2)} outside of it, too"
        if not kept:
            message = f"{reducer} has nothing to run over: there is no index in it"
        raise Fault("unsupported-nested-reduction", message, "give it an index of its own, as in X[i, j] / sum(X[i, k])")
    span = scope.text.span(node)
    scope.n_reductions += 1
    name = f"{scope.target}.{reducer}{scope.n_reductions}"
    target = Target(name, tuple(Index(i, span) for i in kept), span)
    try:
        if reducer in SELECTIONS:
            select_positions(span, reducer, [target], value, scope.clauses, scope)
        else:
            make_statement(span, target, REDUCERS[reducer], value, scope.clauses, scope, reducer)
    except Reported:
        return POISON
    version = scope.current[name]
    if version.dtype is None:  # reported, such as a read of a sparse matrix that is no sum over its entries
        return POISON
    return Value(Read(version.name, target.subscripts, span), version.dtype, version.is_weak, 1 + len(kept))
