"""``y[i] = leaky(x[i])``: a plain Python function of numbers is read in place where it is called on elements."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence

from polyc.diagnostics import PolycError
from polyc.frontends.core.calls import check_depth
from polyc.frontends.core.values import Fault, Value
from polyc.frontends.python.callees import find_function
from polyc.frontends.python.control import loop_names, read_rounds
from polyc.frontends.python.expressions import read_expression
from polyc.frontends.python.operators import binary, choose, select
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.signature import Number
from polyc.frontends.python.source import load_function
from polyc.frontends.python.syntax import is_division
from polyc.frontends.python.values import POISON, make_literal
from polyc.ir.expr import Index, Read
from polyc.records import dataclass

MAX_STATEMENTS = 4096
"""Statements of one call, those behind a branch counted for each way to them."""

_CODE = "semantic-element-function"
_ALLOWED = "it may assign names, choose by if, loop over numbers, and return expressions of its parameters"

Values = dict[str, Value]


def read_element_function(node: ast.Call, function: types.FunctionType, scope: Scope, depth: int) -> list[Value]:
    """What the function returns for the arguments of a call, one value for each component; POISON where there were errors."""
    try:
        text = load_function(function)
    except PolycError as error:
        problem = error.diagnostics[0]
        raise Fault(problem.code, problem.message, problem.help or "write a def in a file") from None
    name = text.definition.name
    chain = [*scope.callers, scope.text]
    if any(other.function is text.function for other in chain if other.function is not None):
        raise Fault("semantic-recursion", f"{name} calls itself", "functions are read in place, so that none can call itself")
    check_depth(len(chain), "functions")
    values = _sort_arguments(node, text.definition, function, scope, depth)
    inner = scope.inside(text)
    inner.values, inner.element_function = values, name
    n_errors = scope.reporter.n_errors
    results = run_body(text.definition.body, inner, depth)
    if results is None:
        raise Fault(_CODE, f"{name} does not return a value in every case", "end it with return")
    if scope.reporter.n_errors > n_errors or any(r is POISON for r in results):
        return [POISON]
    found = {n for r in results for n in r.nodes}
    ignored = [v for v in values.values() if any(isinstance(n, (Read, Index)) and n not in found for n in v.nodes)]
    return [r.instead_of(*ignored) for r in results]


def _sort_arguments(
    node: ast.Call, definition: ast.FunctionDef, function: types.FunctionType, scope: Scope, depth: int
) -> Values:
    spec, name = definition.args, definition.name
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    others = [a.arg for a in spec.kwonlyargs]
    has_star = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
    if spec.vararg or spec.kwarg or has_star:
        raise Fault(_CODE, f"arguments of {name} cannot be told one by one", "give each argument and parameter a name")
    if len(node.args) > len(positional):
        message = f"{name} takes {len(positional)} argument{'s' * (len(positional) != 1)}, not {len(node.args)}"
        raise Fault(_CODE, message, f"its parameters are: {', '.join([*positional, *others])}")
    given = dict(zip(positional, node.args, strict=False))
    for keyword in node.keywords:
        assert keyword.arg is not None
        if keyword.arg not in (*positional, *others) or keyword.arg in given:
            problem = "is given twice" if keyword.arg in given else f"is no parameter of {name}"
            raise Fault(_CODE, f"{keyword.arg} {problem}", f"its parameters are: {', '.join([*positional, *others])}")
        given[keyword.arg] = keyword.value
    defaults = {
        **dict(zip(positional[::-1], (function.__defaults__ or ())[::-1], strict=False)),
        **(function.__kwdefaults__ or {}),
    }
    values: Values = {}
    for parameter in (*positional, *others):
        argument, default = given.get(parameter), defaults.get(parameter)
        if argument is not None:
            values[parameter] = read_expression(argument, scope, depth)
        elif isinstance(default, (bool, int, float, complex)):
            values[parameter] = make_literal(default)
        else:
            raise Fault(_CODE, f"{name} needs a value for {parameter}", "give all arguments; defaults are numbers")
    return values


@dataclass(frozen=True, slots=True)
class _Round:
    """Where the round of an unrolled loop begins, and what its variables are; None: where the loop ends."""

    values: dict[str, Number] | None


def run_body(body: Sequence[ast.stmt | _Round], scope: Scope, depth: int = 0) -> list[Value] | None:
    """What statements return, None where they end without; names that they assign are in `scope.values`."""
    for n, statement in enumerate(body):
        if isinstance(statement, _Round):
            scope.values |= {k: make_literal(v) for k, v in (statement.values or {}).items()}
            continue
        scope.rounds += 1
        name = scope.text.definition.name
        if scope.rounds > MAX_STATEMENTS:
            message = f"{name} has too many branches and rounds: they unfold to more than {MAX_STATEMENTS} statements"
            raise Fault(
                "budget-unroll", message, "write the conditions as a if c else b, and loops as recurrences of the operator"
            )
        match statement:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.Assign([target], value):
                _assign(target, value, scope, depth)
            case ast.AugAssign(ast.Name() as target, op, value):
                left = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                scope.values[target.id] = read_expression(
                    ast.copy_location(ast.BinOp(left, op, value), statement), scope, depth
                )
            case ast.Return(value) if value is not None:
                return read_elements(value, scope, depth)
            case ast.If() if not _leaves(statement):
                if not _merge_branches(statement, scope, depth):
                    return [POISON]
            case ast.If():
                return _choose(statement, body[n + 1 :], scope, depth)
            case ast.For():
                try:
                    rounds = _unroll(statement, scope)
                except Fault as fault:
                    scope.report(fault.code, fault.message, scope.text.start(statement, "for"), fault.help)
                    return [POISON]
                return run_body([*rounds, *body[n + 1 :]], scope, depth)
            case ast.Break() | ast.Continue():
                is_end = isinstance(statement, ast.Break)
                marks = (k for k, s in enumerate(body) if k > n and isinstance(s, _Round) and (s.values is None or not is_end))
                return run_body(body[next(marks) :], scope, depth)
            case _:
                line = scope.text.source.text[scope.text.span(statement).start :].split("\n", 1)[0]
                message = f"{name} cannot be read as a function of elements: it says '{line.strip()[:60]}'"
                is_while = isinstance(statement, ast.While)
                help = "loop over numbers, for k in range(50), and leave the loop by break: if done: break"
                raise Fault(_CODE, message, help if is_while else _ALLOWED)
    return None


def _assign(target: ast.expr, value: ast.expr, scope: Scope, depth: int) -> None:
    for name, found in _pair(target, value, scope, depth):
        if isinstance(name, ast.Name):
            scope.values[name.id] = found
        elif found is not POISON:
            scope.report(_CODE, "only names can be assigned here, each one value", target, _ALLOWED)


def _pair(target: ast.expr, value: ast.expr, scope: Scope, depth: int) -> list[tuple[ast.expr, Value]]:
    """What stands in a target, each with its value: all are read before one is assigned."""
    if not isinstance(target, ast.Tuple):
        return [(target, read_expression(value, scope, depth))]
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pair(t, v, scope, depth)]
    values = read_elements(value, scope, depth)
    if len(values) != len(target.elts):
        if not any(v is POISON for v in values):
            scope.report(_CODE, "only names can be assigned here, each one value", target, _ALLOWED)
        values = [POISON] * len(target.elts)
    return list(zip(target.elts, values, strict=True))


def read_elements(value: ast.expr, scope: Scope, depth: int = 0) -> list[Value]:
    """Values of a right side that stands for several: a tuple, ``divmod``, or a call of a function that returns several."""
    if isinstance(value, ast.Tuple):
        return [read_expression(p, scope, depth) for p in value.elts]
    if isinstance(value, ast.Name) and value.id in scope.components.keys() - scope.values.keys():
        return scope.components[value.id]
    function = find_function(value, scope)
    if isinstance(value, ast.Call) and isinstance(function, types.FunctionType):
        try:
            return read_element_function(value, function, scope, depth)
        except Fault as fault:
            scope.report(fault.code, fault.message, value, fault.help)
            return [POISON]
    if is_division(value):
        assert isinstance(value, ast.Call)
        a, b = (read_expression(p, scope, depth) for p in value.args)
        return [binary(op, a, b, scope.text.span(value)) for op in ("floordiv", "mod")]
    return [read_expression(value, scope, depth)]


def _unroll(node: ast.For, scope: Scope) -> list[ast.stmt | _Round]:
    """A loop over numbers, as `polyc.frontends.python.control` reads them, round by round."""
    if node.orelse:
        raise Fault(
            "semantic-statement", "a loop of a function of elements has no else", "write the statements behind the loop"
        )
    rounds = read_rounds(node.target, node.iter, scope)
    scope.loop_names |= set(loop_names(node.target))
    unrolled: list[ast.stmt | _Round] = []
    for values in rounds:
        unrolled += [_Round(values), *node.body]
    return [*unrolled, _Round(None)]


def _leaves(node: ast.If) -> bool:
    """Whether a branch may end the function, or a round of a loop."""
    return any(isinstance(n, (ast.Return, ast.Break, ast.Continue)) for n in ast.walk(node))


def _is_of_loop(node: ast.If, scope: Scope) -> bool:
    """Whether a condition depends on a loop variable: it chooses statements, and those that it leaves out count for nothing."""
    return any(isinstance(n, ast.Name) and n.id in scope.loop_names for n in ast.walk(node.test))


def _merge_branches(node: ast.If, scope: Scope, depth: int) -> bool:
    """``if`` that only assigns: both branches are read, and a selection made of each name that differs; False after errors."""
    condition = read_expression(node.test, scope, depth)
    if condition is POISON:
        return False
    is_open = condition.constant is None
    taken, left = (node.body, node.orelse) if is_open or condition.constant else (node.orelse, node.body)
    others: Values = {}
    if is_open:
        before = dict(scope.values)
        run_body(left, scope, depth)
        others, scope.values = scope.values, before
    elif not _is_of_loop(node, scope):
        _, others = _run_aside(left, scope, depth)
    run_body(taken, scope, depth)
    for name in {**others, **(scope.values if is_open else {})}:
        a, b = scope.values.get(name), others.get(name)
        if a is b:
            continue
        if a is None or b is None:  # a name with a value in one branch only has none behind it
            if is_open:
                scope.values.pop(name, None)
        elif a is POISON or b is POISON:
            scope.values[name] = POISON if is_open else a
        else:
            scope.values[name] = select(condition, a, b, scope.text.span(node)) if is_open else choose(condition, a, b)
    return True


def _choose(node: ast.If, rest: Sequence[ast.stmt | _Round], scope: Scope, depth: int) -> list[Value] | None:
    """``if`` with a branch that returns: what follows belongs to each branch that does not, and a selection is made of what
    both return."""
    condition = read_expression(node.test, scope, depth)
    if condition is POISON:
        return [POISON]
    if condition.constant is not None:
        taken, left = (node.body, node.orelse) if condition.constant else (node.orelse, node.body)
        left_out = [] if _is_of_loop(node, scope) else _run_aside([*left, *rest], scope, depth)[0]
        values = run_body([*taken, *rest], scope, depth)
        if values is None or len(left_out) != len(values):
            return values
        return [choose(condition, a, b) for a, b in zip(values, left_out, strict=True)]
    before = dict(scope.values)
    span = scope.text.span(node)
    then = run_body([*node.body, *rest], scope, depth)
    scope.values = before
    other = run_body([*node.orelse, *rest], scope, depth)
    if then is None or other is None:
        return None
    if any(v is POISON for v in (*then, *other)):
        return [POISON]
    if len(then) != len(other):
        scope.report(
            _CODE, f"{scope.text.definition.name} returns {len(then)} values or {len(other)}", node, "return as many always"
        )
        return [POISON]
    return [select(condition, a, b, span) for a, b in zip(then, other, strict=True)]


def _run_aside(body: Sequence[ast.stmt | _Round], scope: Scope, depth: int) -> tuple[list[Value], Values]:
    """What statements would return that a compile-time condition leaves out, and the names behind them; nothing where they have
    errors: they may be there for other types."""
    values, found_before = dict(scope.values), dict(scope.reporter.found)
    n_errors = scope.reporter.n_errors
    try:
        found = run_body(body, scope, depth)
    except Fault:
        return [], {}
    finally:
        has_errors = scope.reporter.n_errors > n_errors
        named, scope.values, scope.reporter.found = scope.values, values, found_before
    if has_errors or any(v is POISON for v in found or ()):
        return [], {}
    return found or [], named
