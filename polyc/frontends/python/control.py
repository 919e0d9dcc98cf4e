"""Static control flow of a decorated function: ``for`` over numbers known when it is read is unrolled, ``if`` is decided.

A loop with a break is none of them (`polyc.frontends.python.breaks`)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import cast

from polyc.frontends.core.values import Fault
from polyc.frontends.python.expressions import known_number, read_expression
from polyc.frontends.python.scope import Scope
from polyc.frontends.python.signature import Number
from polyc.frontends.python.syntax import call_name
from polyc.frontends.python.values import POISON
from polyc.live import find_numbers
from polyc.records import replace

MAX_ROUNDS = 4096
"""Bodies that the loops of one function may unroll to."""

_EXAMPLE = "write for k in range(3): ... or for k in (1, 2, 4): ..., with numbers and keyword-only parameters"

_UNKNOWN = "this loop is over something that is not known when the function is read"

ReadBody = Callable[[Sequence[ast.stmt]], None]


def unroll_loop(node: ast.For, scope: Scope, read_body: ReadBody) -> None:
    """Read the body once for each value of the loop variable, which is a compile-time constant inside."""
    try:
        rounds = _loop_values(node, scope)
    except Fault as fault:
        scope.report(fault.code, fault.message, scope.text.start(node, "for"), fault.help)
        return
    if len(rounds) > 1:
        _warn_of_continued_sums(node, scope)
    names = [name for values in rounds[:1] for name in values]
    hidden = {name: scope.constants[name] for name in names if name in scope.constants}
    text = scope.text
    for values in rounds:
        scope.rounds += 1
        if scope.rounds > MAX_ROUNDS:
            message = f"the loops of this function unroll to more than {MAX_ROUNDS} bodies"
            scope.report("budget-unroll", message, node.iter, "let an index stand for the loop: T[k, i] = ...")
            break
        scope.constants.update(values)
        here = ", ".join(f"{name} = {value}" for name, value in values.items())
        scope.text = replace(text, context=f"{text.context}, {here}" if text.context else here)
        read_body(node.body)
    scope.text = text
    for name in names:
        del scope.constants[name]
        scope.loop_names.add(name)
    scope.constants.update(hidden)


def _warn_of_continued_sums(node: ast.For, scope: Scope) -> None:
    """Warn where a body adds to a tensor that it also reads, and that neither it nor a statement above assigns: the sum goes on
    from round to round, as Python's does, and is no new one in each."""
    nodes = [n for statement in node.body for n in ast.walk(statement)]
    known = {*scope.current, *(_tensor_of(t) for n in nodes if isinstance(n, ast.Assign) for t in n.targets)}
    for n in nodes:
        name = _tensor_of(n.target) if isinstance(n, ast.AugAssign) else None
        if name is None or name in known or not isinstance(n, ast.AugAssign):
            continue
        own = set(ast.walk(n))
        if any(isinstance(m, ast.Name) and m.id == name and m not in own for m in nodes):
            written = ast.unparse(n.target)
            message = f"{written} adds to what the round before has left in {name}"
            help = f"for a sum of its own in each round write {written} = sum(...); else assign {name} above the loop"
            scope.reporter.warn("semantic-accumulate", message, scope.text.span(n), help)


def _tensor_of(left: ast.expr) -> str | None:
    """The name in ``T[i]``."""
    return left.value.id if isinstance(left, ast.Subscript) and isinstance(left.value, ast.Name) else None


def choose_branch(node: ast.If, scope: Scope) -> Sequence[ast.stmt]:
    """The branch that a condition on compile-time constants takes; nothing after a report."""
    value = read_expression(node.test, scope)
    if value is POISON:
        return ()
    known = known_number(value, scope)
    if known is None:
        message = "this condition is not known when the function is read"
        help = "on elements write 'a if c else b', on indices 'with polyc.where(...)'; 'if' takes numbers and constants"
        scope.report("semantic-static-condition", message, scope.text.start(node, "if"), help)
        return ()
    return node.body if known else node.orelse


def _loop_values(node: ast.For, scope: Scope) -> list[dict[str, Number]]:
    if node.orelse:
        raise Fault("semantic-statement", "a loop without break needs no else", "write the statements behind the loop")
    check_loop_names(loop_names(node.target), scope)
    return read_rounds(node.target, node.iter, scope)


def find_breaks(body: Sequence[ast.stmt]) -> Iterator[ast.Break]:
    """The breaks of a loop, without those of loops inside of it."""
    for node in body:
        if isinstance(node, ast.Break):
            yield node
        elif isinstance(node, ast.With):
            yield from find_breaks(node.body)
        elif isinstance(node, ast.If):
            yield from find_breaks([*node.body, *node.orelse])


def check_loop_names(names: Sequence[str], scope: Scope, others: Collection[str] = ()) -> None:
    """Raise `Fault` where a variable of a loop stands for something already, such as one of `others`."""
    for name in names:
        if any(name in known for known in (scope.current, scope.assigned_names, scope.sizes, scope.used_indices, others)):
            raise Fault("semantic-already-defined", f"{name} already names something else here", "rename the loop variable")


def loop_names(target: ast.expr) -> list[str]:
    """Variables of a loop.  Raises `Fault`."""
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [t.id for t in targets if isinstance(t, ast.Name)]
    if len(names) != len(targets) or len(set(names)) != len(names):
        raise Fault("semantic-statement", "a loop variable is a name", _EXAMPLE)
    return names


def read_rounds(target: ast.expr, values: ast.expr, scope: Scope) -> list[dict[str, Number]]:
    """For each round of a loop what its variables are.  Raises `Fault` where that is not known when the function is read."""
    names = loop_names(target)
    items = _items(values, names[0], scope)
    rounds: list[dict[str, Number]] = []
    for item in items:
        parts = item if isinstance(item, tuple) else (item,)
        if len(parts) != len(names):
            raise Fault("semantic-statement", f"{len(names)} names stand for {len(parts)} values", _EXAMPLE)
        rounds.append(dict(zip(names, parts, strict=True)))
    return rounds


def _items(node: ast.expr, name: str, scope: Scope) -> list[Number | tuple[Number, ...]]:
    match node:
        case ast.Call(func, arguments, []) if call_name(func) == (None, "range") and 1 <= len(arguments) <= 3:
            bounds = [known_number(read_expression(a, scope), scope) for a in arguments]
            if None in bounds:
                first, last = (["0"] + [ast.unparse(a) for a in arguments[:2]])[-2:]
                help = "an index stands for it, also where steps depend on each other: with polyc.where({} <= {} < {}): ..."
                if scope.element_function is not None:
                    help = f"{scope.element_function} loops over numbers; others are recurrences: h[k] = f(h[k - 1])"
                raise Fault("semantic-static-loop", _UNKNOWN, help.format(first, name, last))
            if not all(isinstance(b, int) for b in bounds) or (len(bounds) == 3 and bounds[2] == 0):
                raise Fault("semantic-static-loop", "range takes integers, and a step other than 0", _EXAMPLE)
            numbers = range(*(b for b in bounds if isinstance(b, int)))
            return list(numbers[: MAX_ROUNDS + 1])
        case ast.Call(func, [inner], []) if call_name(func) == (None, "enumerate"):
            return [(n, *(i if isinstance(i, tuple) else (i,))) for n, i in enumerate(_items(inner, name, scope))]
        case ast.Call(func, [inner], []) if call_name(func) == (None, "reversed"):
            return _items(inner, name, scope)[::-1]
        case ast.Tuple(elements) | ast.List(elements):
            return [_item(e, scope) for e in elements]
        case ast.Name(known) if known not in scope.current and (found := find_numbers(scope.text.lookup(known))) is not None:
            return cast(list[Number | tuple[Number, ...]], list(found))
    raise Fault("semantic-static-loop", _UNKNOWN, _EXAMPLE + "; over elements of tensors, indices stand for loops")


def _item(node: ast.expr, scope: Scope) -> Number | tuple[Number, ...]:
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_number(e, scope) for e in node.elts)
    return _number(node, scope)


def _number(node: ast.expr, scope: Scope) -> Number:
    number = known_number(read_expression(node, scope), scope)
    if number is None:
        raise Fault("semantic-static-loop", _UNKNOWN, _EXAMPLE + "; over elements of tensors, indices stand for loops")
    return number
