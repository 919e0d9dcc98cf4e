"""Loops in order that do not need each other run at the same time, each on a thread of its own.

Before: ``for s { h[s+1] = f(h[s]) }  for s { k[s+1] = g(k[s]) }``.
After: ``parallel for section in 0:2 { if section == 0 { for s { h … } } else { for s { k … } } }``, behind what both need and
before what needs one of them.

The steps of such a loop wait for each other, so threads could share out a single step at most, and would wait for each other
at every one; the two directions of a recurrent layer need not.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.ir.expr import Call, Index, eq, int_const, reads, walk
from polyc.ir.loops import Buffer, Guard, If, Loop, Node, Store, Update, known_length
from polyc.ir.walk import Body, map_bodies, node_expressions, walk_nodes
from polyc.machine import Machine
from polyc.records import dataclass, replace

UNKNOWN_TRIP = 32
"""Iterations that a loop of unknown length counts for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A node of the outermost level, and the buffers that it touches."""

    node: Node
    read: frozenset[str]
    written: frozenset[str]
    """With all buffers that may be the same memory."""
    private: frozenset[str]
    """Those of which every thread has its own."""
    work: int


def run_sections(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> Body:
    """The same nodes with loops in order that are independent and long brought together in parallel sections."""
    by_name = {b.name: b for b in buffers}
    pieces = [_describe(node, by_name) for node in body]
    while True:
        group = _find_group(pieces, target)
        if group is None:
            return tuple(p.node for p in pieces)
        needed = _ancestors(pieces, group)
        section = _join([pieces[i] for i in group], f"section{sum(_is_section(p.node) for p in pieces)}")
        before = [p for i, p in enumerate(pieces) if i in needed]
        behind = [p for i, p in enumerate(pieces) if i not in needed and i not in group]
        pieces = [*before, _describe(section, by_name), *behind]


def _is_section(node: Node) -> bool:
    return isinstance(node, Loop) and node.var.startswith("section")


def _find_group(pieces: Sequence[_Piece], target: Machine) -> list[int] | None:
    """Positions of at least two loops, none of which needs another, that share out enough work."""
    least = target.threads.work_per_part
    candidates = [i for i, p in enumerate(pieces) if _is_candidate(i, pieces, least)]
    for first in candidates:
        group = [first]
        for other in candidates:
            if other > first and len(group) < target.cores and all(_are_independent(pieces, i, other) for i in group):
                group.append(other)
        if any(_has_parallel(pieces[i].node) for i in group) and len(group) < target.cores:
            continue  # more threads than loops: each step is shared out better
        if sum(pieces[i].work for i in group) - max(pieces[i].work for i in group) >= least:
            return group
    return None


def _is_candidate(i: int, pieces: Sequence[_Piece], least: int) -> bool:
    """A loop of `least` operations in order without checks, whose buffers of single threads are its own."""
    piece = pieces[i]
    node = piece.node
    if not isinstance(node, Loop) or node.kind != "serial" or node.registers or piece.work < least:
        return False
    if any(isinstance(n, Guard) for n in walk_nodes((node,))):
        return False
    return not any(piece.private & (p.read | p.written) for k, p in enumerate(pieces) if k != i)


def _are_independent(pieces: Sequence[_Piece], first: int, second: int) -> bool:
    """Whether neither of the two needs what the other makes, directly or through nodes between them."""
    return first not in _ancestors(pieces, [second]) and second not in _ancestors(pieces, [first])


def _ancestors(pieces: Sequence[_Piece], group: Sequence[int]) -> set[int]:
    """Nodes that have to stand before one of `group`, without those of `group`."""
    found: set[int] = set()
    stack = list(group)
    while stack:
        i = stack.pop()
        for k in range(i):
            if k not in found and _conflict(pieces[k], pieces[i]):
                found.add(k)
                stack.append(k)
    return found.difference(group)


def _conflict(a: _Piece, b: _Piece) -> bool:
    return bool(a.written & (b.read | b.written) or b.written & a.read)


def _join(group: Sequence[_Piece], var: str) -> Loop:
    """The parallel loop over the nodes of a group; loops inside that were parallel run on one thread each."""
    body: Body = ()
    for k in reversed(range(len(group))):
        node = _run_alone(group[k].node)
        body = (If(eq(Index(var), k), (node,), body),) if k < len(group) - 1 else (node,)
    return Loop(var, int_const(0), int_const(len(group)), 1, "parallel", body)


def _run_alone(node: Node) -> Node:
    node = map_bodies(node, lambda body: tuple(map(_run_alone, body)))
    if not isinstance(node, Loop) or node.kind != "parallel":
        return node
    return replace(node, kind="serial", least_part=0, is_uneven=False, stream=None)


def _has_parallel(node: Node) -> bool:
    return any(isinstance(n, Loop) and n.kind == "parallel" for n in walk_nodes((node,)))


def _describe(node: Node, buffers: dict[str, Buffer]) -> _Piece:
    read: set[str] = set()
    written: set[str] = set()
    for n in walk_nodes((node,)):
        expressions = list(node_expressions(n))
        if isinstance(n, Loop):
            expressions += [start.value for start in n.initial]
            written |= {start.buffer for start in n.initial}
            if n.parallel_if is not None:
                expressions.append(n.parallel_if)
        read |= {r.tensor for e in expressions for r in reads(e)}
        if isinstance(n, (Store, Update)):
            written.add(n.buffer)
        if isinstance(n, Guard):
            written.add("")  # the first check that fails is the one that is reported
    private = frozenset(b for b in read | written if b in buffers and buffers[b].space in ("thread", "register"))
    return _Piece(node, frozenset(read), _with_aliases(written, buffers), private, _count_work(node))


def _with_aliases(names: set[str], buffers: dict[str, Buffer]) -> frozenset[str]:
    found = set(names)
    for b in buffers.values():
        if b.name in names:
            found |= set(b.may_alias)
        elif names.intersection(b.may_alias):
            found.add(b.name)
    return frozenset(found)


def _count_work(node: Node) -> int:
    match node:
        case Store() | Update():
            return 1 + sum(isinstance(e, Call) for e in walk(node.value))
        case If():
            return max(sum(map(_count_work, node.body)), sum(map(_count_work, node.orelse)))
        case Loop():
            trip = known_length(node)
            count = trip if trip is not None else node.max_trip or UNKNOWN_TRIP
            return -(-max(0, count) // node.step) * sum(map(_count_work, node.body))
    return 0
