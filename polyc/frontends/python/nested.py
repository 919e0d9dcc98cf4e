"""``exp(x[i, j] - max(x[i, k]))``: a reduction inside an expression is a statement above the one that it stands in."""

from __future__ import annotations

import ast

from polyc.frontends.core.builder import Target
from polyc.frontends.core.reductions import SELECTIONS
from polyc.frontends.core.values import Fault, Reported, Value
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.selection import select_positions
from polyc.frontends.python.statements import make_statement
from polyc.frontends.python.syntax import find_outer_names
from polyc.frontends.python.values import POISON
from polyc.ir.expr import Index, Read


def read_reduction(node: ast.Call, reducer: str, scope: Scope, depth: int) -> Value:
    """The read of what ``max(e)`` or ``argmax(e)`` gives, computed by new statements above the one at hand.

    It runs over the indices of `e` that stand nowhere outside of it; the others are those of its result."""
    (operand,) = node.args
    around = scope.outer_names
    assert around is not None
    scope.outer_names = around | find_outer_names([operand], scope)
    value = read_expression(operand, scope, depth)
    scope.outer_names = around
    if value is POISON:
        return POISON
    indices = tuple(dict.fromkeys(value.index_names))
    kept = tuple(i for i in indices if i in around)
    if kept == indices:
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
    assert version.dtype is not None
    return Value(Read(version.name, target.subscripts, span), version.dtype, version.is_weak, 1 + len(kept))
