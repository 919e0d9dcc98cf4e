"""``with polyc.where(0 <= i < N, j < 3):`` to half-open ranges of indices, and conditions that relate indices."""

from __future__ import annotations

import ast

from polyc.frontends.core.bounds import check_bound
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.expressions import COMPARISONS, inline_numbers, read_expression
from polyc.frontends.python.operators import FLIPPED
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.syntax import call_name
from polyc.frontends.python.values import POISON, require_integer
from polyc.ir.expr import Call, Expr, Index, Pad, Read, index_names, int_const, walk
from polyc.ir.program import Condition, Exists, RangeClause
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I64
from polyc.records import dataclass, replace

_EXAMPLE = "write polyc.where(0 <= i < N, j <= i): comparisons of indices and sizes"


def read_where(items: list[ast.withitem], outer: Clauses, scope: Scope) -> Clauses:
    """The ranges and conditions of a with block, those of the blocks around it included (ranges of one index intersect)."""
    conditions: list[ast.expr] = []
    for item in items:
        call = item.context_expr
        name = call_name(call.func) if isinstance(call, ast.Call) else None
        if name is None or name[1] != "where" or not isinstance(call, ast.Call):
            scope.report("semantic-range", "only 'with polyc.where(...)' is possible here", call, _EXAMPLE)
            continue
        if item.optional_vars is not None or call.keywords or not call.args:
            scope.report("semantic-range", "polyc.where takes conditions and gives no name", call, _EXAMPLE)
        conditions += call.args
    return restrict(conditions, outer, scope)


def restrict(conditions: list[ast.expr], outer: Clauses, scope: Scope) -> Clauses:
    """What conditions say beside `outer`.  Errors are reported."""
    found = _Found({}, {}, [], ({}, {}), [])
    for condition in conditions:
        with scope.reporter.catching(scope.text.span(condition), is_whole=True):
            _read_condition(condition, found, scope)
    loaded = _pair_loaded(found, scope)
    ranges = _merge_bounds(found, outer.ranges, scope)
    return Clauses(ranges, (*outer.conditions, *found.conditions), (*outer.loaded, *loaded), (*outer.entries, *found.entries))


Bounds = dict[str, tuple[Expr, ast.expr]]


@dataclass(frozen=True, slots=True)
class _Found:
    """Bounds over sizes by index, and everything else that a block says."""

    lower: Bounds
    upper: Bounds
    conditions: list[Condition]
    loaded: tuple[Bounds, Bounds]
    """Lower and upper bounds that read tensors."""
    entries: list[Exists]


def _pair_loaded(found: _Found, scope: Scope) -> list[RangeClause]:
    """The ranges of which a bound reads; the other bound is the one over sizes, by default 0."""
    result: list[RangeClause] = []
    lower, upper = found.loaded
    for index in (*upper, *(i for i in lower if i not in upper)):
        node = (upper.get(index) or lower[index])[1]
        low = lower[index][0] if index in lower else found.lower.pop(index)[0] if index in found.lower else int_const(0)
        if index not in upper and index not in found.upper:
            help = f"give both: where(ptr[i] <= {index} < ptr[i + 1])"
            scope.report("semantic-range-open", f"the index {index} has a lower bound only", node, help)
            continue
        high = upper[index][0] if index in upper else found.upper.pop(index)[0]
        result.append(RangeClause(index, low, high, scope.text.span(node)))
    return result


def _merge_bounds(found: _Found, outer: dict[str, RangeClause], scope: Scope) -> dict[str, RangeClause]:
    result = dict(outer)
    lower, upper = found.lower, found.upper
    related = {n.name for c in found.conditions for n in walk(c.condition) if isinstance(n, Index)}
    for index in (*upper, *(i for i in lower if i not in upper)):
        node = (upper.get(index) or lower[index])[1]
        around = outer.get(index)
        low = lower[index][0] if index in lower else around.lower if around else int_const(0)
        if index in upper:
            high = upper[index][0]
        elif around is not None:
            high = around.upper
        elif index in related:  # the other bound depends on an index, or follows from what is read
            found.conditions.append(Condition(Call("ge", (Index(index), low)), scope.text.span(node)))
            continue
        else:
            message = f"the index {index} has a lower bound only"
            scope.report("semantic-range-open", message, node, f"give both: where(1 <= {index} < N)")
            continue
        clause = RangeClause(index, low, high, scope.text.span(node))
        if around is not None:
            low, high = _tighten("max", low, around.lower), _tighten("min", high, around.upper)
            clause = replace(clause, lower=low, upper=high)
        result[index] = clause
    return result


def _tighten(op: str, a: Expr, b: Expr) -> Expr:
    return simplify_int(Call(op, (a, b)))


def _read_condition(node: ast.expr, found: _Found, scope: Scope) -> None:
    match node:
        case ast.BoolOp(ast.And(), values):
            for value in values:
                _read_condition(value, found, scope)
        case ast.Compare(ast.Name() as name, [ast.In()], [ast.Call(func, arguments, [])]) if call_name(func) == (None, "range"):
            if len(arguments) not in (1, 2):
                raise Fault("unsupported-range", "a range with a step is not possible yet", "write X[2 * i] with i in range(n)")
            if not scope.is_index(name.id):
                raise Fault("semantic-range", f"{name.id} is no index", _NO_INDEX)
            _read_comparison(name, ast.Lt(), arguments[-1], node, found, scope)
            lower = arguments[0] if len(arguments) == 2 else ast.copy_location(ast.Constant(0), name)
            _read_comparison(name, ast.GtE(), lower, node, found, scope)
        case ast.Compare(ast.Tuple() as place, [ast.In()], [ast.Name(name) as matrix]) if name in scope.current:
            version = scope.current[name].name
            if version not in scope.compressed:
                raise Fault("semantic-range", f"{name} is not sparse: all its elements are there", "leave out this condition")
            entry = read_expression(ast.copy_location(ast.Subscript(matrix, place, ast.Load()), node), scope)
            if entry is not POISON:
                found.entries.append(Exists(entry.expr, scope.text.span(node)))
        case ast.Compare(left, ops, comparators):
            terms = [left, *comparators]
            for a, op, b in zip(terms, ops, terms[1:], strict=False):
                _read_comparison(a, op, b, node, found, scope)
        case _:
            raise Fault("semantic-range", "a condition of where compares an index with its bounds", _EXAMPLE)


def _read_comparison(a: ast.expr, op: ast.cmpop, b: ast.expr, node: ast.expr, found: _Found, scope: Scope) -> None:
    """A bound of one index over sizes, or else a condition that relates indices."""
    name = COMPARISONS.get(type(op))
    if name is None:
        raise Fault("unsupported-range", "a range needs <, <=, >, >=, == or !=", _EXAMPLE)
    values: list[Value] = []
    for side in (a, b):
        value = read_expression(side, scope)
        if value is POISON:
            return
        expr = inline_numbers(value.expr, scope)
        sized = scope.as_size(expr)
        # With sizes for integer parameters it is index arithmetic, in 64 bits.
        values.append(replace(value, expr=expr) if sized is expr else replace(value, expr=sized, dtype=I64))
    reads = any(isinstance(n, (Read, Pad)) for value in values for n in walk(value.expr))
    if reads and (name in ("eq", "ne") or not any(isinstance(value.expr, Index) for value in values)):
        help = _help_number(values, scope)
        raise Fault("semantic-read-in-bound", "which points are computed cannot depend on the elements of a tensor", help)
    sides = [require_integer(value, "the bound of a range") for value in values]
    kinds = {type(n) for side in sides for n in walk(side)}
    if Index not in kinds:
        shown = next((x.id for x in (a, b) if isinstance(x, ast.Name)), None)
        message = "this condition of where speaks of no index" if shown is None else f"{shown} is no index"
        raise Fault("semantic-range", message, _NO_INDEX)
    for (index, bound), turned in ((sides, name), (sides[::-1], FLIPPED[name])):
        if isinstance(index, Index) and name != "ne" and (reads or not index_names(bound)):
            if reads:
                _check_loaded(index.name, bound)
            lowers, uppers = found.loaded if reads else (found.lower, found.upper)
            after = simplify_int(Call("add", (bound, int_const(1))))
            if turned in ("gt", "ge", "eq"):
                _set(lowers, "max", index.name, after if turned == "gt" else bound, node)
            if turned in ("lt", "le", "eq"):
                _set(uppers, "min", index.name, bound if turned == "lt" else after, node)
            return
    found.conditions.append(Condition(Call(name, (sides[0], sides[1])), scope.text.span(node)))


def _check_loaded(index: str, bound: Expr) -> None:
    check_bound(bound)
    if index in index_names(bound):
        help = "a bound is made of sizes and of other indices"
        raise Fault("semantic-own-bound", f"the range of {index} depends on {index} itself", help)


def _help_number(values: list[Value], scope: Scope) -> str:
    """What bounds a range instead of elements, or of a number of another kind."""
    for read in (n for value in values for n in walk(value.expr) if isinstance(n, Read)):
        if any(e.count == read.tensor for e in scope.endings):
            return f"{read.tensor} is the number of the last round of the loop above: give the index another name"
        version = scope.current.get(read.tensor)
        if version is not None and version.is_parameter and not read.subscripts and version.name not in scope.integers:
            return f"{version.name} is {version.dtype}, and numbers that bound ranges are integers: give an int, or declare one"
    return "select in the value instead, as in Y[i] = X[i] if X[i] > 0 else 0; data bounds an index: ptr[i] <= p < ptr[i + 1]"


_NO_INDEX = "a range belongs to an index; sizes and tensors have their own"


def _set(bounds: Bounds, op: str, index: str, bound: Expr, node: ast.expr) -> None:
    if index in bounds:
        bound = _tighten(op, bounds[index][0], bound)
    bounds[index] = (bound, node)
