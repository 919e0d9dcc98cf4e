"""Copies: nests of loops around one store of values that the nest does not change, each element written once.

Their iterations may run in any order, and twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Const, int_const, operands_of, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, Loop, Node, Store
from polyc.records import replace


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
