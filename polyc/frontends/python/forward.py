"""The assignments of a function, as `polyc.frontends.core.forward` asks for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from polyc.frontends.core.forward import Event


def find_assignments(body: Sequence[ast.stmt]) -> Iterator[ast.Assign | ast.AugAssign]:
    """All assignments of a body, those of its blocks included."""
    for node in body:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            yield node
        elif isinstance(node, (ast.With, ast.For)):
            yield from find_assignments(node.body)
        elif isinstance(node, ast.If):
            yield from find_assignments([*node.body, *node.orelse])


def describe_assignment(node: ast.Assign | ast.AugAssign) -> Event | None:
    """What an assignment of one tensor writes and reads."""
    left = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    match left:
        case ast.Name(name):
            subscripts: list[ast.expr] = []
        case ast.Subscript(ast.Name(name), ast.Tuple(subscripts)):
            pass
        case ast.Subscript(ast.Name(name), subscript):
            subscripts = [subscript]
        case _:
            return None
    reads = {n.id for root in (node.value, *subscripts) for n in ast.walk(root) if isinstance(n, ast.Name)}
    own = ast.dump(left).replace("Store()", "Load()")
    needs_itself = isinstance(left, ast.Name) or (
        name in reads and any(isinstance(n, ast.Subscript) and ast.dump(n) == own for n in ast.walk(node.value))
    )
    return Event(name, len(subscripts), frozenset(reads), needs_itself)
