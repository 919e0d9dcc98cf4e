"""``sum(w[k] * x[i + k] for k in range(5))``: reductions of generator expressions.

Over numbers known when the function is read the elements are written out, one beside the other, from left to right.  Over a
range with sizes, indices or elements in its bounds (``sum(L[i, j] * x[j] for j in range(i))``) the variable is an index with
that range, and the call a reduction over it.
"""

from __future__ import annotations

import ast
from functools import reduce

from polyc.frontends.core.bounds import check_bound
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.control import loop_names, read_rounds
from polyc.frontends.python.expressions import inline_numbers, known_number, read_expression
from polyc.frontends.python.functions import REDUCERS
from polyc.frontends.python.operators import binary, combine, logical
from polyc.frontends.python.ranges import restrict
from polyc.frontends.python.reductions import read_reduction
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.syntax import call_name
from polyc.frontends.python.values import POISON, convert, make_literal, require_integer
from polyc.ir.expr import Index, index_names, int_const
from polyc.ir.program import RangeClause
from polyc.ir.types import BOOL, I64
from polyc.records import replace

MAX_TERMS = 4096
"""Elements that one generator expression may be written out to."""

_MAX_CHAIN = 64
"""Elements that are combined from left to right, as Python does; more make a balanced tree, which is not as deep."""

_CODE = "semantic-expression"

Comprehension = ast.GeneratorExp | ast.ListComp


def read_comprehension(node: ast.Call, inner: Comprehension, reducer: str, scope: Scope, depth: int) -> Value:
    """The value of ``reducer(inner)``; POISON after reports.  Raises `Fault`."""
    if any(_is_open(g, scope) for g in inner.generators):
        return _reduce(node, inner, reducer, scope, depth)
    terms = _read_terms(inner.elt, inner.generators, scope, depth)
    if any(t is POISON for t in terms):
        return POISON
    op, span = REDUCERS[reducer], scope.text.span(node)
    if op in ("or", "and"):
        return logical(op, tuple(terms), span) if terms else make_literal(op == "and", span)
    if op in ("add", "mul"):  # of truth values as Python's: they count
        terms = [convert(t, I64) if t.dtype == BOOL and t.constant is None else t for t in terms]
        terms = terms or [make_literal(int(op == "mul"), span)]
    if not terms:
        raise Fault(_CODE, f"{reducer} has no element to choose from", "give the loop a range that is not empty")
    if len(terms) <= _MAX_CHAIN:
        return reduce(lambda a, b: binary(op, a, b, span), terms)
    return combine(lambda a, b: binary(op, a, b, span), tuple(terms))


def _is_open(g: ast.comprehension, scope: Scope) -> bool:
    """Whether a loop is over a range whose bounds are no numbers yet."""
    match g.iter:
        case ast.Call(func, arguments, []) if call_name(func) == (None, "range") and len(arguments) in (1, 2):
            n_errors, found = scope.reporter.n_errors, dict(scope.reporter.found)
            bounds = [read_expression(a, scope) for a in arguments]
            has_errors = scope.reporter.n_errors > n_errors  # such as the variable of a loop further out, which is none yet
            scope.reporter.found = found
            return not has_errors and any(known_number(b, scope) is None for b in bounds)
    return False


def _read_terms(element: ast.expr, loops: list[ast.comprehension], scope: Scope, depth: int) -> list[Value]:
    """The elements in the order of the loops, the variables of which are numbers."""
    if not loops:
        return [read_expression(element, scope, depth)]
    first, rest, hidden = loops[0], loops[1:], scope.values
    terms: list[Value] = []
    for values in read_rounds(first.target, first.iter, scope):
        scope.values = {**hidden, **{name: make_literal(value) for name, value in values.items()}}
        try:
            if all(_holds(test, scope, depth) for test in first.ifs):
                terms += _read_terms(element, rest, scope, depth)
        finally:
            scope.values = hidden
        if len(terms) > MAX_TERMS:
            help = "let an index stand for the loop: sum(X[i, k]) runs over all k"
            raise Fault("budget-unroll", f"this has more than {MAX_TERMS} elements", help)
    return terms


def _holds(test: ast.expr, scope: Scope, depth: int) -> bool:
    value = read_expression(test, scope, depth)
    known = None if value is POISON else known_number(value, scope)
    if known is None and value is not POISON:
        message = "this condition is not known when the function is read"
        raise Fault(_CODE, message, "choose in the element: sum(x[i + k] if x[i + k] > 0 else 0 for k in range(3))")
    return bool(known)


def _reduce(node: ast.Call, inner: Comprehension, reducer: str, scope: Scope, depth: int) -> Value:
    """The reduction over indices that stand for the loops' variables."""
    if scope.outer_names is None:
        message = "a generator expression over a range that is not known yet cannot stand here"
        raise Fault(_CODE, message, "use numbers as bounds, or assign the sum to a name of its own first")
    for g in inner.generators:
        match g.iter:
            case ast.Call(func, [_] | [_, _], []) if call_name(func) == (None, "range"):
                pass
            case _:
                message = "beside a loop whose range is not known yet, this one cannot be written out"
                raise Fault(_CODE, message, "give it a range with the step 1: range(n) or range(a, b)", scope.text.span(g.iter))
    hidden, clauses = scope.values, scope.clauses
    around = {v.expr.name for v in hidden.values() if isinstance(v.expr, Index)}
    ranges = dict(clauses.ranges)
    scope.values = dict(hidden)
    conditions: list[ast.expr] = []
    try:
        for g in inner.generators:
            (name,) = loop_names(g.target)[:1]
            index = name
            taken = {*scope.outer_names, *scope.used_indices, *ranges, *(c.index for c in clauses.loaded)}
            while index in taken:
                index += "_"
            span = scope.text.span(g.iter)
            assert isinstance(g.iter, ast.Call)
            given = [read_expression(a, scope, depth) for a in g.iter.args]
            if any(b is POISON for b in given):
                return POISON
            bounds = [scope.as_size(inline_numbers(require_integer(b, "the bound of a range"), scope)) for b in given]
            for bound in bounds:
                check_bound(bound)
            if around & index_names(*bounds):  # where its range is empty, the loop around it has a value nevertheless
                message = f"the range of {name} depends on the variable of a loop in another expression"
                help = "write both loops in one, sum(A[i, k] for j in range(i) for k in range(j)), or give the inner sum a name"
                raise Fault(_CODE, message, help, span)
            ranges[index] = RangeClause(index, bounds[0] if len(bounds) == 2 else int_const(0), bounds[-1], span)
            scope.values[name] = Value(Index(index, scope.text.span(g.target)), I64, weak=True)
            conditions += g.ifs
        scope.clauses = restrict(conditions, replace(clauses, ranges=ranges), scope)
        own = [scope.clauses.ranges[i] for i in scope.clauses.ranges.keys() - clauses.ranges.keys()]
        own += scope.clauses.loaded[len(clauses.loaded) :]
        told = [e for w in own for e in (Index(w.index), w.lower, w.upper)]
        told += [w.condition for w in scope.clauses.conditions[len(clauses.conditions) :]]
        call = ast.copy_location(ast.Call(node.func, [inner.elt], []), node)
        return read_reduction(call, reducer, scope, depth, tuple(map(Index, sorted(index_names(*told)))))
    finally:
        scope.values, scope.clauses = hidden, clauses
