"""Where-clauses: lets (inlined), ranges, conditions and exists."""

from __future__ import annotations

from polyc.diagnostics import Diagnostic
from polyc.frontends.core.reports import Reporter
from polyc.frontends.core.values import measure_expr
from polyc.frontends.tc.builtins import COMPARISONS, LOGICAL
from polyc.frontends.tc.scope import Let, Scope, check_not_builtin
from polyc.frontends.tc.subscripts import find_access, is_index_expression
from polyc.frontends.tc.syntax import Binary, ClauseSyntax, ConditionSyntax, ExistsSyntax, LetSyntax, RangeSyntax, SyntaxExpr
from polyc.frontends.tc.values import build_condition, build_subscript, build_value
from polyc.ir.expr import Expr, Index, walk
from polyc.ir.program import Condition, Exists, RangeClause, Where

MAX_NODES = 20_000
MAX_HEIGHT = 220
"""Limits of one expression after lets are inlined: n lets that each use the one before twice make 2^n nodes."""


def check_size(reporter: Reporter, expr: Expr, syntax: SyntaxExpr) -> bool:
    """Report an expression that lets have blown up."""
    nodes, height = measure_expr(expr)
    if nodes <= MAX_NODES and height <= MAX_HEIGHT:
        return True
    what = f"{nodes} nodes" if nodes > MAX_NODES else f"a depth of {height}"
    limit = MAX_NODES if nodes > MAX_NODES else MAX_HEIGHT
    message = f"this expression has {what} after its lets are inlined; the limit is {limit}"
    help = "compute the parts in temporaries: T(i) = …, then O(i) = T(i) * T(i)"
    reporter.add(Diagnostic("budget-expression", message, syntax.span, help))
    return False


def define_lets(scope: Scope, clauses: tuple[ClauseSyntax, ...]) -> None:
    """Enter the lets of `clauses` into `scope`, left to right; each sees those before it."""
    lets = [c for c in clauses if isinstance(c, LetSyntax)]
    for position, clause in enumerate(lets):
        name, span = clause.name, clause.name_span
        scope.later_lets = frozenset(c.name for c in lets[position:]) - scope.lets.keys()
        if name in scope.left or name in scope.lets:
            what = "an index on the left side" if name in scope.left else "a let of this statement"
            message = f"{name} is already defined as {what}"
            one = f"to keep one value write {name} == …; else " if name in scope.left else ""
            scope.reporter.error("semantic-already-defined", message, span, f"{one}choose another name")
            continue
        check_not_builtin(scope.reporter, name, span)
        scope.lets[name] = _build_let(scope, clause.value)
    scope.later_lets = frozenset()


def _build_let(scope: Scope, syntax: SyntaxExpr) -> Let:
    """Both forms at once: a chain of lets must not become a chain of recursive calls later."""
    value, subscript = build_value(scope, syntax), None
    if value is not None and not check_size(scope.reporter, value.expr, syntax):
        value = None
    if value is not None and value.dtype.is_integer:
        subscript = build_subscript(scope, syntax)
    return Let(value, subscript, is_index_expression(scope, syntax), find_access(scope, syntax) is not None)


def _build_bound(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """A range bound: like a subscript, without any access to data."""
    access = find_access(scope, syntax)
    if access is not None:
        help = "the size of a loop must be known from the sizes alone: pass it as a size, or mask with ?:"
        message = "tensor accesses cannot be used in this context"
        scope.reporter.error("semantic-read-in-bound", message, access.span, help)
        return None
    if isinstance(syntax, Binary) and syntax.op in (*COMPARISONS, *LOGICAL):
        message = "a bound of a range is a number, and this is a condition"
        help = "clauses are separated by commas: where i in 0:N, i > 1"
        scope.reporter.error("type-not-integral", message, syntax.span, help)
        return None
    return build_subscript(scope, syntax)


def build_where(scope: Scope, clauses: tuple[ClauseSyntax, ...], indices: frozenset[str] | None) -> list[Where]:
    """Ranges, conditions and exists clauses of a statement.  `indices` None: unknown after an error."""
    return [
        *_build_ranges(scope, clauses, indices),
        *_build_conditions(scope, clauses, indices),
        *_build_exists(scope, clauses, indices),
    ]


def _build_exists(scope: Scope, clauses: tuple[ClauseSyntax, ...], indices: frozenset[str] | None) -> list[Exists]:
    """The exists clauses; an index that stands nowhere else has no meaning there.  `indices` None: unknown."""
    result = []
    for clause in clauses:
        if not isinstance(clause, ExistsSyntax):
            continue
        value = build_value(scope, clause.value)
        if value is None or not check_size(scope.reporter, value.expr, clause.value):
            continue
        for node in walk(value.expr):
            if isinstance(node, Index) and indices is not None and node.name not in indices:
                message = f"index {node.name} stands only in an exists clause"
                help = "an exists clause gives ranges to the statement's own indices: use one of them"
                scope.reporter.error("semantic-unused-index", message, node.span or clause.span, help)
        result.append(Exists(value.expr, clause.span))
    return result


def _build_ranges(scope: Scope, clauses: tuple[ClauseSyntax, ...], indices: frozenset[str] | None) -> list[RangeClause]:
    """The range clauses, several for one index included.  `indices` None: unknown after an error."""
    result = []
    ranges = [c for c in clauses if isinstance(c, RangeSyntax)]
    ranged = {c.index for c in ranges}
    for clause in ranges:
        _check_range_index(scope, clause, indices)
        bounds = [_build_bound(scope, syntax) for syntax in (clause.lower, clause.upper)]
        lower, upper = bounds
        if lower is None or upper is None:
            continue
        for bound in (lower, upper):
            _check_bound_indices(scope, bound, clause, indices, ranged)
        result.append(RangeClause(clause.index, lower, upper, clause.span))
    return result


def _check_range_index(scope: Scope, clause: RangeSyntax, indices: frozenset[str] | None) -> None:
    name = clause.index
    known = "let" if name in scope.lets else "size" if name in scope.sizes else "tensor" if name in scope.tensors else None
    if name in scope.left or (known is None and (indices is None or name in indices)):
        return
    if known is not None:
        help = f"{name} is a {known}; a range belongs to an index: give the range to the indices it is made of"
    else:
        help = f"{name} stands nowhere in the statement: use it, or remove the range"
    scope.reporter.error("semantic-undefined", f"undefined variable {name} used here", clause.index_span, help)


def _check_bound_indices(
    scope: Scope, bound: Expr, clause: RangeSyntax, indices: frozenset[str] | None, ranged: set[str]
) -> None:
    """A bound may use sizes and the other indices of the statement."""
    for node in walk(bound):
        if not isinstance(node, Index):
            continue
        span = node.span or clause.span
        if node.name == clause.index:
            message = f"the range of {clause.index} depends on {clause.index} itself"
            help = "a bound is made of sizes and of other indices; any other condition is a clause of its own: where 2 * i < N"
            scope.reporter.error("semantic-own-bound", message, span, help)
        elif node.name not in scope.left and node.name not in ranged and (indices is None or node.name not in indices):
            scope.report_undefined(node.name, span)


def _build_conditions(scope: Scope, clauses: tuple[ClauseSyntax, ...], indices: frozenset[str] | None) -> list[Condition]:
    """The conditions on the iteration space.  `indices` None: unknown after an error."""
    result = []
    for clause in clauses:
        if not isinstance(clause, ConditionSyntax):
            continue
        access = find_access(scope, clause.value)
        if access is not None:
            message = "tensor accesses cannot be used in this context"
            help = "which points are computed must follow from indices and sizes alone: select with ?: in the value instead"
            scope.reporter.error("semantic-read-in-bound", message, access.span, help)
            continue
        condition = build_condition(scope, clause.value)
        if condition is None or not check_size(scope.reporter, condition, clause.value):
            continue
        for node in walk(condition):
            if isinstance(node, Index) and indices is not None and node.name not in indices:
                scope.report_undefined(node.name, node.span or clause.span)
        result.append(Condition(condition, clause.span))
    return result
