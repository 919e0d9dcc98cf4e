"""``for t in range(1, T): …; if e[t] < eps: break``: a recurrence that ends where a condition holds.

A loop with a break is never unrolled: its variable is an index, and a round is a step of the recurrence.  So each assignment
gives every round a place of its own, ``x[t, i] = f(x[t - 1, i])``, and what a round reads must be there when Python would read
it.  Behind the loop ``t`` is the number of its last round, which takes the type of what it meets, as Python's int; elements
of rounds that are left out, which Python would not have assigned, hold what the last round has left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from polyc.frontends.core.builder import Assignment, Target
from polyc.frontends.core.endings import Step, check_recurrence, end_recurrence, step_offset, steps_over
from polyc.frontends.core.values import Fault, Reported
from polyc.frontends.python.control import check_loop_names, find_breaks
from polyc.frontends.python.expressions import read_boolean
from polyc.frontends.python.forward import find_assignments
from polyc.frontends.python.ranges import restrict
from polyc.frontends.python.scope import Clauses, Scope
from polyc.frontends.python.statements import make_assignment, target_name
from polyc.frontends.python.syntax import call_name, find_outer_names
from polyc.frontends.python.values import POISON
from polyc.ir.expr import Index
from polyc.ir.program import Statement, statement_reads
from polyc.ir.simplify import difference
from polyc.ir.types import I64

_CODE = "semantic-until"

ReadBlock = Callable[[Sequence[ast.stmt], Clauses], None]


def read_recurrence(node: ast.For, clauses: Clauses, scope: Scope, read_block: ReadBlock) -> None:
    """Add the statements of a loop with a break, and of its end."""
    with scope.reporter.catching(scope.text.start(node, "for")):
        _read_loop(node, clauses, scope, read_block)
        return
    lefts = [left for n in find_assignments(node.body) for left in _left_sides(n)]
    for name in (target_name(left) for left in (*lefts, node.target)):
        if name is not None and name not in scope.current:
            scope.define_unknown(name)


def _read_loop(node: ast.For, clauses: Clauses, scope: Scope, read_block: ReadBlock) -> None:
    place = _find_test(node, scope)
    test = node.body[place]
    assert isinstance(test, ast.If)
    variable = _read_variable(node, scope)
    n_errors = scope.reporter.n_errors
    _check_places(node, variable.id, scope)
    inside = ast.copy_location(ast.Compare(variable, [ast.In()], [node.iter]), node.iter)
    index, inner = scope.index_name(variable), restrict([inside], clauses, scope)
    if index is None or scope.reporter.n_errors > n_errors:
        raise Reported
    start, versions, scope.step = len(scope.statements), dict(scope.n_versions), index
    try:
        read_block(node.body[:place], inner)
        condition = _read_condition(test.test, variable, index, inner, scope)
        middle = len(scope.statements)
        read_block(node.body[place + 1 :], inner)
    finally:
        scope.step = None
    if condition is None or scope.reporter.n_errors:  # else statements may be missing
        raise Reported
    statements = scope.statements[start:]
    _check_rounds(statements, index, versions, scope)
    steps = [Step(s, int(start + k >= middle)) for k, s in enumerate(statements) if steps_over(s, index)]
    check_recurrence(steps, index, scope.text.start(node, "for"))
    end_recurrence(scope, condition, steps, Target(variable.id, (), scope.text.span(variable)), I64, True)


def _find_test(node: ast.For, scope: Scope) -> int:
    """Where in the body of a loop its ``if …: break`` stands.  Raises `Fault`."""
    first, *others = find_breaks(node.body)
    if others:
        message = "a loop ends by one break, and this is another one"
        raise Fault(_CODE, message, "join the conditions: if a[t] or b[t]: break", scope.text.span(others[0]))
    for place, n in enumerate(node.body):
        if isinstance(n, ast.If) and n.body == [first] and not n.orelse:
            return place
    message = "this break does not stand alone under one condition, right inside of its loop"
    help = "write if e[t] < eps: break there, with all of the condition; statements beside it stand in front of it or behind it"
    raise Fault(_CODE, message, help, scope.text.span(first))


def _read_variable(node: ast.For, scope: Scope) -> ast.Name:
    """The variable of a loop over a range.  Raises `Fault`."""
    if scope.step is not None:
        message = f"a loop with a break stands inside of the one over {scope.step}, which has one, too"
        raise Fault(_CODE, message, "let an index stand for the inner loop, or compute it in an operator of its own")
    if node.orelse:
        raise Fault(_CODE, "the else of this loop has no meaning here", "write the statements behind the loop", None)
    match node.target, node.iter:
        case ast.Name(name) as variable, ast.Call(func, [_] | [_, _], []) if call_name(func) == (None, "range"):
            check_loop_names([name], scope, {*scope.constants, *scope.loop_names})
            return variable
    message = "a loop with a break is a recurrence, which steps over range(n) or range(a, b), and is not unrolled"
    raise Fault(_CODE, message, "without the break it is unrolled, over any numbers", scope.text.span(node.iter))


def _left_sides(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    left = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    return left.elts if isinstance(left, ast.Tuple) else [left]


def _check_places(node: ast.For, name: str, scope: Scope) -> None:
    """Report what is assigned without a place for each round."""
    for left in (left for n in find_assignments(node.body) for left in _left_sides(n)):
        inner = left.slice if isinstance(left, ast.Subscript) else ast.Tuple([])
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        has_variable = [any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(part)) for part in parts]
        tensor = target_name(left)
        if tensor is None or any(has_variable[:1]):
            continue
        others = [ast.unparse(part) for part, has in zip(parts, has_variable, strict=True) if not has]
        message = f"each round of this loop is a step of a recurrence, and {name} is not the first subscript of {tensor} here"
        scope.report(_CODE, message, left, f"give every round a place: {tensor}[{', '.join([name, *others])}] = ...")


def _read_condition(test: ast.expr, variable: ast.Name, index: str, clauses: Clauses, scope: Scope) -> Assignment | None:
    """What ends the loop, as the truth value of each round; None after a report."""
    scope.target, scope.clauses = variable.id, clauses
    scope.outer_names = find_outer_names([variable, test], scope)
    value = read_boolean(test, scope, 0)
    scope.target, scope.outer_names = None, None
    if value is POISON:
        return None
    span = scope.text.span(variable)
    target = Target(variable.id, (Index(index, span),), span)
    return make_assignment([target], [value], "", clauses, scope.text.span(test))


def _check_rounds(statements: Sequence[Statement], index: str, versions: Mapping[str, int], scope: Scope) -> None:
    """Raise `Fault` where rounds do not have places of their own, or need what Python would compute later."""
    again = {scope.current[name].name for name, n in scope.n_versions.items() if n > max(1, versions.get(name, 0))}
    for s in statements:
        tensor = scope.tensors[s.target]
        if index in s.left_indices and not steps_over(s, index):
            message = (
                f"the first subscript of {tensor.base} is not {index}, give or take a number, and so no place for each round"
            )
            raise Fault(_CODE, message, f"write {tensor.base}[{index}, ...] or {tensor.base}[{index} + 1, ...]", s.span)
        if s.target in again:
            message = f"{tensor.base} is assigned again here, and later rounds would read the values from before as well"
            raise Fault(_CODE, message, "give one of the two another name; a sum of its own is = sum(...)", s.span)
    places = [(s.target, step_offset(s, index, 0)) for s in statements if steps_over(s, index)]
    order = [s for s in statements if steps_over(s, index)]
    for s in statements:
        position = next((k for k, other in enumerate(order) if other is s), len(order))
        for read in statement_reads(s):
            writers = [(k, c) for k, (target, c) in enumerate(places) if target == read.tensor]
            ahead = difference(read.subscripts[0], Index(index)) if writers else None
            if ahead is not None and all(ahead > c or (ahead == c and k >= position) for k, c in writers):
                place = read.span or s.span
                shown = "this" if place is None else place.source.text[place.start : place.end]
                message = f"{shown} is not assigned yet where this round reads it"
                raise Fault(_CODE, message, "read what an earlier round has left, or move the assignment up", place)
