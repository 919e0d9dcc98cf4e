"""Copies: nests of loops around one store of values that the nest does not change, each element written once.

Their iterations may run in any order, and twice.  Here the last tile of a copy gets a version of its own.

Before: ``for c0 < 200 step 32 { for k < min(32, 200 - c0) { … } }``.
After: ``for c0 < 200 step 32 { if (c0 < 192) for k < 32 { … } else for k < 8 { … } }``.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Call, Const, Expr, Index, int_const, lt, mentions, minimum, operands_of, reads, substitute
from polyc.ir.facts import Interval, range_of
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, Node, Store
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, map_bodies, rewrite_nodes, walk_nodes
from polyc.records import replace

# -- what a copy is


def copy_nest(node: Node, buffers: Mapping[str, Buffer]) -> tuple[list[Loop], Store] | None:
    """The loops (outermost first) and the store of a nest whose iterations are free to run in any order, any number of times.

    None if `node` is anything else."""
    loops: list[Loop] = []
    while isinstance(node, Loop):
        if len(node.body) != 1 or node.registers or node.initial:
            return None
        loops.append(node)
        node = node.body[0]
    if not loops or not isinstance(node, Store) or not _is_free(node, buffers) or not keeps_apart(loops, node):
        return None
    return loops, node


def _is_free(store: Store, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the store reads nothing that is written."""
    target = buffers[store.buffer]
    used = {r.tensor for e in (store.value, *store.subscripts) for r in reads(e)}
    if target.space == "register" or used & {store.buffer, *target.may_alias}:
        return False
    return not any(store.buffer in buffers[name].may_alias for name in used)


def keeps_apart(loops: list[Loop], store: Store) -> bool:
    """Whether different iterations of `loops` surely write different elements.

    A subscript tells the variables in it if each moves it by more than all finer ones together, as a tile and a point do."""
    steps = {loop.var: (loop.step, _span(loop)) for loop in loops}
    known: set[str] = set()
    moving = [index_coefficients(s) or {} for s in store.subscripts]
    while True:
        found = {v for c in moving for v in _told_apart({v: a for v, a in c.items() if v in steps and v not in known}, steps)}
        if not found:
            return len(known) == len(loops)
        known |= found


def _told_apart(coefficients: Mapping[str, int], steps: Mapping[str, tuple[int, int | None]]) -> Mapping[str, int]:
    """`coefficients` if the value of the sum tells all the variables in it, else nothing."""
    reach: int | None = 0
    for v in sorted(coefficients, key=lambda v: abs(coefficients[v]) * steps[v][0]):
        step, span = steps[v]
        if reach is None or abs(coefficients[v]) * step <= reach:
            return {}
        reach = None if span is None else reach + abs(coefficients[v]) * span
    return coefficients


def _span(loop: Loop) -> int | None:
    """No less than the distance from the first to the last value of a loop; None if no constant is in sight."""
    upper = loop.upper
    known = [int(e.value) for e in operands_of(upper, "min") if isinstance(e, Const)]
    known += [loop.max_trip] if loop.max_trip is not None and loop.lower == int_const(0) else []
    if not known or not isinstance(loop.lower, Const):
        return None
    return max(0, min(known) - 1 - int(loop.lower.value)) // loop.step * loop.step


def rebuild(loops: list[Loop], store: Store) -> Loop:
    """The nest of `loops`, outermost first, around `store`."""
    node: Node = store
    for loop in reversed(loops):
        node = replace(loop, body=(node,))
    assert isinstance(node, Loop)
    return node


# -- tiles


def split_last_tiles(body: Body, buffers: tuple[Buffer, ...]) -> Body:
    """Give whole tiles and the last tile of copies versions of their own, both with constant extents."""
    by_name = {b.name: b for b in buffers}

    def split(node: Node, scope: Scope) -> Node | None:
        return _split_tiles(node, {}) if isinstance(node, Loop) and _are_copies(node, by_name) else None

    return rewrite_nodes(body, split)


def _are_copies(node: Node, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a nest is a copy, or loops around one that has several versions (`streams.align_tiles`)."""
    if copy_nest(node, buffers) is not None:
        return True
    match node:
        case Loop(body=(inner,)) if not node.registers and not node.initial:
            return _are_copies(inner, buffers)
        case If():
            return all(copy_nest(n, buffers) is not None for n in node.body + node.orelse)
    return False


def _split_tiles(node: Node, ranges: Mapping[str, Interval]) -> Node:
    if not isinstance(node, Loop):
        return map_bodies(node, lambda body: tuple(_split_tiles(n, ranges) for n in body))
    upper = _drop_loose(node.upper, ranges)
    node = replace(node, upper=upper)
    if node.max_trip is not None and node.lower == int_const(0) and isinstance(upper, Const):
        node = replace(node, max_trip=min(node.max_trip, int(upper.value)))
    if not isinstance(node.lower, Const) or not isinstance(upper, Const):
        return replace(node, body=tuple(_split_tiles(n, ranges) for n in node.body))
    low, high = int(node.lower.value), int(upper.value)
    n_tiles = -(-(high - low) // node.step)
    if n_tiles <= 0:
        return node
    last = low + (n_tiles - 1) * node.step
    is_even = (high - low) % node.step == 0
    if node.step == 1 or is_even or not any(_moves_bounds(n, node.var) for n in node.body):
        inner = {**ranges, node.var: (low, last)}
        return replace(node, body=tuple(_split_tiles(n, inner) for n in node.body))
    rest = tuple(_split_tiles(_fix(n, node.var, last), ranges) for n in node.body)
    if n_tiles == 1:
        return replace(node, body=rest)
    inner = {**ranges, node.var: (low, last - node.step)}
    whole = tuple(_split_tiles(n, inner) for n in node.body)
    return replace(node, body=(If(lt(Index(node.var), last), whole, rest),))


def _moves_bounds(node: Node, variable: str) -> bool:
    """Whether bounds of loops inside depend on `variable`."""
    return any(mentions(e, variable) for n in walk_nodes((node,)) if isinstance(n, Loop) for e in (n.lower, n.upper))


def _fix(node: Node, variable: str, value: int) -> Node:
    """The copy with `variable` = `value` in its bounds."""
    node = map_bodies(node, lambda body: tuple(_fix(n, variable, value) for n in body))
    if not isinstance(node, Loop):
        return node
    lower, upper = (simplify(substitute(e, {variable: int_const(value)})) for e in (node.lower, node.upper))
    return replace(node, lower=lower, upper=upper)


def _drop_loose(expr: Expr, ranges: Mapping[str, Interval]) -> Expr:
    """``min(a, b)`` without arguments that are never below another one, a constant."""
    if not isinstance(expr, Call) or expr.op != "min":
        return expr
    arguments = [_drop_loose(a, ranges) for a in expr.args]
    limit = min((int(a.value) for a in arguments if isinstance(a, Const)), default=None)
    if limit is None:
        return expr
    tight = [a for a in arguments if isinstance(a, Const) or (low := range_of(a, ranges)[0]) is None or low < limit]
    return simplify(minimum(*tight))
