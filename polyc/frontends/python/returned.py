"""``return total / n``: what is returned without a name gets one, in an assignment above."""

from __future__ import annotations

import ast
import itertools
from copy import copy

from polyc.frontends.python.source import FunctionText
from polyc.records import replace

_EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Subscript, ast.Attribute)


def name_returned(text: FunctionText) -> FunctionText:
    """The function with ``result = e`` (``result2 = …``) above a last ``return`` of expressions, and these names in it.

    An expression is then what it is in any assignment: a scalar, or a call of an operator, which computes whole tensors."""
    definition = text.definition
    last = definition.body[-1] if definition.body else None
    if not isinstance(last, ast.Return) or last.value is None:
        return text
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    nodes = list(ast.walk(definition))
    taken = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    free = (name for k in itertools.count(1) if (name := f"result{k if k > 1 else ''}") not in taken)
    above: list[ast.stmt] = []
    named: list[ast.expr] = []
    for part in parts:
        if not isinstance(part, _EXPRESSIONS):
            named.append(part)
            continue
        name = next(free)
        above.append(ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), part)], part), part))
        named.append(ast.copy_location(ast.Name(name, ast.Load()), part))
    if not above:
        return text
    changed = copy(definition)
    end = ast.copy_location(ast.Return(ast.copy_location(ast.Tuple(named, ast.Load()), last.value)), last)
    changed.body = [*definition.body[:-1], *above, end]
    return replace(text, definition=changed)
