"""``with polyc.where(0 <= i < N, j < 3):`` to half-open ranges of indices."""

from __future__ import annotations

import ast
from dataclasses import replace

from polyc.frontends.python.expressions import call_name, read_expression
from polyc.frontends.python.scope import Clause, Scope
from polyc.frontends.python.values import POISON, Fault, require_integer
from polyc.ir.expr import Call, Expr, Index, Pad, Read, int_const, simplify_int, walk

_EXAMPLE = "write polyc.where(0 <= i < N, 1 <= j < 3): each condition bounds one index"
_FLIP: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
}


def read_where(items: list[ast.withitem], outer: dict[str, Clause], scope: Scope) -> dict[str, Clause]:
    """The ranges of a with block by index, those of the blocks around it included (ranges of one index intersect)."""
    lower: dict[str, tuple[Expr, ast.expr]] = {}
    upper: dict[str, tuple[Expr, ast.expr]] = {}
    for item in items:
        call = item.context_expr
        name = call_name(call.func) if isinstance(call, ast.Call) else None
        if name is None or name[1] != "where" or not isinstance(call, ast.Call):
            scope.report("semantic-range", "only 'with polyc.where(...)' is possible here", call, _EXAMPLE)
            continue
        if item.optional_vars is not None or call.keywords or not call.args:
            scope.report("semantic-range", "polyc.where takes conditions and gives no name", call, _EXAMPLE)
        for condition in call.args:
            try:
                _read_condition(condition, lower, upper, scope)
            except Fault as fault:
                scope.report(fault.code, fault.message, condition, fault.help)
    return _merge_bounds(lower, upper, outer, scope)


Bounds = dict[str, tuple[Expr, ast.expr]]


def _merge_bounds(lower: Bounds, upper: Bounds, outer: dict[str, Clause], scope: Scope) -> dict[str, Clause]:
    result = dict(outer)
    for index in (*upper, *(i for i in lower if i not in upper)):
        node = (upper.get(index) or lower[index])[1]
        around = outer.get(index)
        low = lower[index][0] if index in lower else around.lower if around else int_const(0)
        if index in upper:
            high = upper[index][0]
        elif around is not None:
            high = around.upper
        else:
            message = f"the index {index} has a lower bound only"
            scope.report("semantic-range-open", message, node, f"give both: where(1 <= {index} < N)")
            continue
        clause = Clause(index, low, high, scope.text.span(node))
        if around is not None:
            low, high = _tighten("max", low, around.lower), _tighten("min", high, around.upper)
            clause = replace(clause, lower=low, upper=high)
        result[index] = clause
    return result


def _tighten(op: str, a: Expr, b: Expr) -> Expr:
    return simplify_int(Call(op, (a, b)))


def _read_condition(node: ast.expr, lower: Bounds, upper: Bounds, scope: Scope) -> None:
    match node:
        case ast.BoolOp(ast.And(), values):
            for value in values:
                _read_condition(value, lower, upper, scope)
        case ast.Compare(ast.Name() as name, [ast.In()], [ast.Call(func, arguments, [])]) if call_name(func) == (None, "range"):
            if len(arguments) not in (1, 2):
                raise Fault("unsupported-range", "a range with a step is not possible yet", "write X[2 * i] with i in range(n)")
            _bound(ast.Lt(), name, arguments[-1], node, lower, upper, scope)
            if len(arguments) == 2:
                _bound(ast.GtE(), name, arguments[0], node, lower, upper, scope)
        case ast.Compare(left, ops, comparators):
            terms = [left, *comparators]
            for a, op, b in zip(terms, ops, terms[1:], strict=False):
                _read_comparison(a, op, b, node, lower, upper, scope)
        case _:
            raise Fault("semantic-range", "a condition of where compares an index with its bounds", _EXAMPLE)


def _read_comparison(
    a: ast.expr, op: ast.cmpop, b: ast.expr, node: ast.expr, lower: Bounds, upper: Bounds, scope: Scope
) -> None:
    if type(op) not in _FLIP:
        raise Fault("unsupported-range", "a range needs <, <=, >, >= or ==", _EXAMPLE)
    left, right = (isinstance(x, ast.Name) and scope.is_index(x.id) for x in (a, b))
    if left and right:
        if any(scope.index_name(x) is None for x in (a, b) if isinstance(x, ast.Name)):
            return  # one of them is a number outside the function: reported as ambiguous
        raise Fault(
            "unsupported-triangular-range",
            "a condition that relates two indices is not possible yet",
            "use 'a if c else b' instead",
        )
    if left:
        assert isinstance(a, ast.Name)
        _bound(op, a, b, node, lower, upper, scope)
    elif right:
        assert isinstance(b, ast.Name)
        _bound(_FLIP[type(op)](), b, a, node, lower, upper, scope)
    else:
        raise Fault("unsupported-range", "one side of each comparison must be an index alone", _EXAMPLE)


def _bound(op: ast.cmpop, name: ast.Name, limit: ast.expr, node: ast.expr, lower: Bounds, upper: Bounds, scope: Scope) -> None:
    if not scope.is_index(name.id):
        raise Fault("semantic-range", f"{name.id} is no index", "a range belongs to an index; sizes and tensors have their own")
    value = read_expression(limit, scope)
    index = scope.index_name(name)
    if value is POISON or index is None:
        return
    bound = require_integer(value, "the bound of a range")
    kinds = {type(n) for n in walk(bound)}
    if Read in kinds or Pad in kinds:
        raise Fault(
            "semantic-read-in-bound",
            "a range cannot depend on the elements of a tensor",
            "bound it by a size, and select inside",
        )
    if Index in kinds:
        raise Fault(
            "unsupported-triangular-range",
            "a condition that relates two indices is not possible yet",
            "use 'a if c else b' instead",
        )
    after = simplify_int(Call("add", (bound, int_const(1))))
    match op:
        case ast.Lt():
            _set(upper, "min", index, bound, node)
        case ast.LtE():
            _set(upper, "min", index, after, node)
        case ast.Gt():
            _set(lower, "max", index, after, node)
        case ast.GtE():
            _set(lower, "max", index, bound, node)
        case _:
            _set(lower, "max", index, bound, node)
            _set(upper, "min", index, after, node)


def _set(bounds: Bounds, op: str, index: str, bound: Expr, node: ast.expr) -> None:
    if index in bounds:
        bound = _tighten(op, bounds[index][0], bound)
    bounds[index] = (bound, node)
