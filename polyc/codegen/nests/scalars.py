"""Scalar replacement of reductions: keep what a loop accumulates in registers while it runs.

A loop gets ``registers = (buffer,)`` where every access to the buffer inside it is one `Update` whose target does not move
with the loop, and the loops in between are expanded (unrolled or short vectors) or reduce as well.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import permutations
from math import prod

from polyc.code_limits import MAX_ACCUMULATORS
from polyc.ir.access import moves, touched_in, writes_in, written_in
from polyc.ir.expr import Expr, Index, reads, substitute
from polyc.ir.loops import InitialValue, Loop, Node, Store
from polyc.ir.promotion import updates_of
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_bodies, perfect_nest
from polyc.records import replace


def hold_accumulators(body: Body, aliased: frozenset[str] = frozenset(), held: frozenset[str] = frozenset()) -> Body:
    """Mark the outermost loop of each reduction with the buffers it accumulates, and let accumulators start from the
    initial values that are stored just before.

    `aliased`: buffers that share memory with another one; `held`: what loops around hold."""
    return _merge_initial(tuple(_hold(node, aliased, held) for node in body), aliased)


def _merge_initial(body: Body, aliased: frozenset[str]) -> Body:
    """Before: ``for i: T[i] = 0 ; for k (registers T): …``.  After: ``for k (registers T from 0): …``.

    An initial value that touches an aliased buffer stays where it is: writes under another name could come between."""
    result: list[Node] = []
    for node in body:
        if isinstance(node, Loop) and node.registers:
            for buffer in node.registers:
                position = _initial_nest(result, buffer)
                if position is None or not aliased.isdisjoint(touched_in((result[position],))):
                    continue
                value = _match_initial(result[position], node, buffer)
                if value is not None:
                    start = InitialValue(buffer, value, (result[position],))
                    node = replace(node, initial=(*node.initial, start))
                    del result[position]
        result.append(node)
    return tuple(result)


def _initial_nest(before: list[Node], buffer: str) -> int | None:
    """Position of the nest that stores `buffer` last, if nothing behind it touches what it reads or writes."""
    for position in reversed(range(len(before))):
        if is_initial(before[position], {buffer}):
            used = touched_in((before[position],))
            clear = all(used.isdisjoint(written_in((n,))) and buffer not in touched_in((n,)) for n in before[position + 1 :])
            return position if clear else None
    return None


def is_initial(node: Node, buffers: Collection[str]) -> bool:
    """Whether a nest stores initial values of one of the buffers, and nothing else."""
    loops, body = perfect_nest(node)
    match body:
        case (Store(buffer, statement=name),):
            return buffer in buffers and name.startswith("init_") and all(n.kind != "parallel" for n in loops)
    return False


def _match_initial(nest: Node, loop: Loop, buffer: str) -> Expr | None:
    """The initial value over the expanded loops of `loop`, if the nest covers exactly the elements that these hold."""
    own, (store,) = perfect_nest(nest)
    assert isinstance(store, Store)
    sites = updates_of(loop, buffer)
    assert sites is not None
    ((update, scope),) = sites
    expanded = [inner for inner in scope.loops if moves(update, inner.var)]
    if len(expanded) != len(own):
        return None
    for order in permutations(expanded):
        pairs = list(zip(own, order, strict=True))
        if any((a.lower, a.upper, a.step) != (b.lower, b.upper, b.step) for a, b in pairs):
            continue
        names: dict[str, Expr] = {a.var: Index(b.var) for a, b in pairs}
        if tuple(simplify(substitute(s, names)) for s in store.subscripts) == tuple(map(simplify, update.subscripts)):
            # What the loop writes must not be what the initial value reads.
            is_apart = written_in((loop,)).isdisjoint(r.tensor for r in reads(store.value))
            return substitute(store.value, names) if is_apart else None
    return None


def _hold(node: Node, aliased: frozenset[str], held: frozenset[str]) -> Node:
    if isinstance(node, Loop) and node.kind not in ("parallel", "unroll"):
        written = dict.fromkeys(n.buffer for n in writes_in(node.body) if n.buffer not in held)
        node = replace(node, registers=tuple(b for b in written if _can_hold(node, b)))
        held = held.union(node.registers)
    return map_bodies(node, lambda body: hold_accumulators(body, aliased, held))


def _can_hold(loop: Loop, buffer: str) -> bool:
    """Whether all that a loop does with a buffer is one update, under no test, of few elements that do not move with it."""
    match updates_of(loop, buffer):
        case [(update, scope)] if scope.path == scope.loops:
            moved = [inner for inner in scope.loops if moves(update, inner.var)]
            if any(inner is loop or not inner.is_expanded for inner in moved):
                return False
            return prod(-(-(inner.max_trip or 1) // inner.lanes) for inner in moved) <= MAX_ACCUMULATORS
    return False
