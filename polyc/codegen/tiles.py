"""Full and partial tiles: one version with constant trip counts, one with predicates.

Before: ``for k { unroll i < min(6, M - c0) { vector j < min(64, N - c1) { … } } }``.
After: ``if (M - c0 >= 6 and N - c1 >= 64) for k { unroll i < 6 { vector j < 64 … } } else <before>``.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.ir.expr import Call, Const, Expr, Index, int_const, walk
from polyc.ir.loops import If, Loop, Node


def split_partial_tiles(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Version every outermost loop nest whose expanded loops have bounds that only the outer loops decide."""
    return tuple(_split(node) for node in body)


def _split(node: Node) -> Node:
    match node:
        case If():
            return replace(node, body=split_partial_tiles(node.body), orelse=split_partial_tiles(node.orelse))
        case Loop():
            conditions = _full_conditions(node)
            if conditions is not None and conditions:
                condition: Expr = conditions[0]
                for c in conditions[1:]:
                    condition = Call("and", (condition, c))
                return If(condition, (_make_full(node),), (node,))
            return replace(node, body=split_partial_tiles(node.body))
    return node


def _is_expanded(loop: Loop) -> bool:
    return loop.max_trip is not None and loop.kind in ("unroll", "vector")


def _full_conditions(loop: Loop) -> list[Expr] | None:
    """Conditions under which all expanded loops inside are full; None if one depends on a loop inside (or there is none)."""
    found: dict[Expr, None] = {}
    inner: set[str] = set()
    expanded = False

    def visit(node: Node) -> bool:
        nonlocal expanded
        match node:
            case If():
                return all(visit(n) for n in node.body + node.orelse)
            case Loop():
                if node.kind == "parallel":
                    return False
                inner.add(node.var)
                if _is_expanded(node):
                    expanded = True
                    if not isinstance(node.upper, Const):
                        for bound in _open_bounds(node.upper):
                            found[Call("ge", (bound, int_const(node.max_trip or 0)))] = None
                return all(visit(n) for n in node.body)
        return True

    if not visit(loop) or not expanded:
        return None
    if any(isinstance(e, Index) and e.name in inner for c in found for e in walk(c)):
        return None
    return list(found)


def _open_bounds(upper: Expr) -> list[Expr]:
    """The non-constant arguments of a (nested) minimum."""
    if isinstance(upper, Call) and upper.op == "min":
        return [b for a in upper.args for b in _open_bounds(a)]
    return [] if isinstance(upper, Const) else [upper]


def _make_full(node: Node) -> Node:
    match node:
        case If():
            return replace(node, body=tuple(map(_make_full, node.body)), orelse=tuple(map(_make_full, node.orelse)))
        case Loop():
            body = tuple(map(_make_full, node.body))
            if _is_expanded(node) and not isinstance(node.upper, Const):
                return replace(node, upper=int_const(node.max_trip or 0), body=body)
            return replace(node, body=body)
    return node
