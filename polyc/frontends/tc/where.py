"""Where-clauses: lets (inlined), ranges, conditions and exists."""

from __future__ import annotations

from polyc.frontends.core.bounds import check_bound
from polyc.frontends.core.values import Value, measure_expr
from polyc.frontends.tc.builtins import COMPARISONS, LOGICAL
from polyc.frontends.tc.scope import Let, Scope, check_not_builtin
from polyc.frontends.tc.subscripts import find_access, is_index_expression
from polyc.frontends.tc.syntax import Apply, ClauseSyntax, ConditionSyntax, ExistsSyntax, LetSyntax, RangeSyntax, SyntaxExpr
from polyc.frontends.tc.values import build_condition, build_subscript, build_value
from polyc.ir.expr import Expr, Index, Read, reads, walk
from polyc.ir.program import Condition, Exists, RangeClause, Where
from polyc.ir.types import BOOL

MAX_NODES = 20_000
MAX_HEIGHT = 220
"""Limits of one expression after lets are inlined: n lets that each use the one before twice make 2^n nodes."""


_OWN_BOUND = "a bound is made of sizes and of other indices; any other condition is a clause of its own: where 2 * i < N"
_ACCESS = "tensor accesses cannot be used in this context"
_PASS_SIZE = "the size of a loop must be known from sizes and integer parameters alone: int64 T; or mask with ?:"
_SELECT = "which points are computed must follow from indices and sizes alone: select with ?: in the value instead"


def build_sized(scope: Scope, syntax: SyntaxExpr, is_condition: bool = False) -> Value | None:
    """The value of a whole expression; one that lets have blown up is reported, and None."""
    condition = build_condition(scope, syntax) if is_condition else None
    value = build_value(scope, syntax) if not is_condition else None if condition is None else Value(condition, BOOL)
    if value is None:
        return None
    nodes, height = measure_expr(value.expr)
    if nodes <= MAX_NODES and height <= MAX_HEIGHT:
        return value
    what = f"{nodes} nodes" if nodes > MAX_NODES else f"a depth of {height}"
    limit = MAX_NODES if nodes > MAX_NODES else MAX_HEIGHT
    message = f"this expression has {what} after its lets are inlined; the limit is {limit}"
    help = "compute the parts in temporaries: T(i) = …, then O(i) = T(i) * T(i)"
    scope.reporter.error("budget-expression", message, syntax.span, help)
    return None


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
    value, subscript = build_sized(scope, syntax), None
    scope.is_bounding = True  # where it stands in a subscript, pow is one of whole numbers
    if value is not None and (value.dtype.is_integer or is_index_expression(scope, syntax)):
        subscript = build_subscript(scope, syntax)
    scope.is_bounding = False
    return Let(value, subscript, is_index_expression(scope, syntax), find_access(scope, syntax) is not None)


def _build_bound(scope: Scope, syntax: SyntaxExpr) -> Expr | None:
    """A range bound: like a subscript, but nothing is read at places that data tells."""
    access = find_access(scope, syntax)
    if isinstance(access, Apply) and access.name not in scope.tensors:
        scope.reporter.error("semantic-read-in-bound", _ACCESS, access.span, _PASS_SIZE)
        return None
    if isinstance(syntax, Apply) and syntax.name in (*COMPARISONS, *LOGICAL):
        message = "a bound of a range is a number, and this is a condition"
        help = "clauses are separated by commas: where i in 0:N, i > 1"
        scope.reporter.error("type-not-integral", message, syntax.span, help)
        return None
    bound = build_subscript(scope, syntax)
    if bound is None:
        return None
    bound = scope.as_size(bound)
    with scope.reporter.catching(syntax.span):
        check_bound(bound)
        return bound
    return None


def _without_reads(scope: Scope, built: Expr, syntax: SyntaxExpr, help: str) -> Expr | None:
    """A condition with sizes for integer parameters; what reads data nevertheless (`float(T)`) is reported."""
    sized = scope.as_size(built)
    if not reads(sized):
        return sized
    scope.reporter.error("semantic-read-in-bound", _ACCESS, syntax.span, help)
    return None


def build_where(scope: Scope, clauses: tuple[ClauseSyntax, ...], indices: frozenset[str] | None) -> list[Where]:
    """Ranges (several for one index included), conditions and exists clauses.  `indices` None: unknown after an error."""
    ranged = frozenset(c.index for c in clauses if isinstance(c, RangeSyntax))
    built = (_build_clause(scope, c, indices, ranged) for c in clauses)
    order = (RangeClause, Condition, Exists)
    return sorted((w for w in built if w is not None), key=lambda w: order.index(type(w)))


def _build_clause(scope: Scope, clause: ClauseSyntax, indices: frozenset[str] | None, ranged: frozenset[str]) -> Where | None:
    def strangers(*exprs: Expr, known: frozenset[str] = frozenset()) -> list[Index]:
        """Indices that stand nowhere else in the statement."""
        found = [n for e in exprs for n in walk(e) if isinstance(n, Index) and n.name not in known]
        return [n for n in found if indices is None or n.name not in indices]

    match clause:
        case RangeSyntax():
            _check_range_index(scope, clause, indices)
            lower, upper = (_build_bound(scope, syntax) for syntax in (clause.lower, clause.upper))
            if lower is None or upper is None:
                return None
            for node in (n for bound in (lower, upper) for n in walk(bound) if isinstance(n, Index) and n.name == clause.index):
                message = f"the range of {clause.index} depends on {clause.index} itself"
                help = _OWN_BOUND
                scope.reporter.error("semantic-own-bound", message, node.span or clause.span, help)
            for node in strangers(lower, upper, known=scope.left | ranged):
                scope.reporter.report(scope.undefined(node.name, node.span or clause.span), clause.span)
            return RangeClause(clause.index, lower, upper, clause.span)
        case ConditionSyntax():
            access = find_access(scope, clause.value)
            if access is not None:
                scope.reporter.error("semantic-read-in-bound", _ACCESS, access.span, _SELECT)
                return None
            scope.is_bounding = True
            built = build_sized(scope, clause.value, is_condition=True)
            scope.is_bounding = False
            condition = None if built is None else _without_reads(scope, built.expr, clause.value, _SELECT)
            if condition is None:
                return None
            for node in strangers(condition) if indices is not None else ():
                scope.reporter.report(scope.undefined(node.name, node.span or clause.span), clause.span)
            return Condition(condition, clause.span)
        case ExistsSyntax():
            value = build_sized(scope, clause.value)
            if value is None:
                return None
            is_entry = isinstance(value.expr, Read) and value.expr.tensor in scope.matrices
            for node in strangers(value.expr) if indices is not None and not is_entry else ():
                message = f"index {node.name} stands only in an exists clause"
                help = "an exists clause gives ranges to the statement's own indices: use one of them"
                scope.reporter.error("semantic-unused-index", message, node.span or clause.span, help)
            return Exists(value.expr, clause.span)
    return None


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
