"""Tensors that are read above their first assignment: allowed where a recurrence needs it (then anywhere), else an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from polyc.ir.components import reachable


def find_forward_reads(body: Sequence[ast.stmt], parameters: frozenset[str]) -> dict[str, int]:
    """Rank by name of the tensors that may be read above their first assignment: those that need what is made from them."""
    statements = [(node, name, left) for node in _assignments(body) for name, left in [_target(node)] if name is not None]
    first: dict[str, int] = {}
    for position, (_, name, _) in enumerate(statements):
        first.setdefault(name, position)
    reads = [_names_read(node, left) & (first.keys() - parameters) for node, _, left in statements]
    needs: dict[str, set[str]] = {}
    for (_, name, _), names in zip(statements, reads, strict=True):
        needs.setdefault(name, set()).update(names)
    allowed: dict[str, int] = {}
    refused: set[str] = set()
    for position, ((node, target, left), names) in enumerate(zip(statements, reads, strict=True)):
        for name in sorted(names):
            if first[name] < position:
                continue
            if name == target and _reads_in_place(node, left):
                refused.add(name)
            elif target in reachable(name, needs):
                allowed[name] = len(_subscripts(statements[first[name]][2]))
    return {name: rank for name, rank in allowed.items() if name not in refused}


def _assignments(body: Sequence[ast.stmt]) -> Iterator[ast.Assign | ast.AugAssign]:
    for node in body:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            yield node
        elif isinstance(node, (ast.With, ast.For)):
            yield from _assignments(node.body)
        elif isinstance(node, ast.If):
            yield from _assignments([*node.body, *node.orelse])


def _target(node: ast.Assign | ast.AugAssign) -> tuple[str | None, ast.expr]:
    left = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
    match left:
        case ast.Name(name) | ast.Subscript(ast.Name(name)):
            return name, left
    return None, left


def _subscripts(left: ast.expr) -> list[ast.expr]:
    if not isinstance(left, ast.Subscript):
        return []
    return left.slice.elts if isinstance(left.slice, ast.Tuple) else [left.slice]


def _names_read(node: ast.Assign | ast.AugAssign, left: ast.expr) -> set[str]:
    roots = [node.value, *_subscripts(left)]
    return {n.id for root in roots for n in ast.walk(root) if isinstance(n, ast.Name)}


def _reads_in_place(node: ast.Assign | ast.AugAssign, left: ast.expr) -> bool:
    if isinstance(left, ast.Name):
        return True
    own = ast.dump(left).replace("Store()", "Load()")
    return any(isinstance(n, ast.Subscript) and ast.dump(n) == own for n in ast.walk(node.value))
