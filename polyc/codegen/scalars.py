"""Scalar replacement of reductions: keep what a loop accumulates in registers while it runs.

A loop gets ``registers = (buffer,)`` where every access to the buffer inside it is one `Update` whose target does not move
with the loop, and the loops in between are expanded (unrolled or short vectors) or reduce as well.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.ir.expr import Expr, Index, reads, walk
from polyc.ir.loops import Guard, If, Loop, Node, Store, Update

MAX_ACCUMULATORS = 64
"""Vectors (or scalars) beyond which accumulators would only be spilled."""


def hold_accumulators(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Mark the outermost loop of each reduction with the buffers it accumulates."""
    return tuple(_hold(node) for node in body)


def _hold(node: Node) -> Node:
    match node:
        case If():
            return replace(node, body=hold_accumulators(node.body), orelse=hold_accumulators(node.orelse))
        case Loop():
            held = () if node.kind in ("parallel", "unroll") else tuple(b for b in _updated(node.body) if _can_hold(node, b))
            inner = hold_accumulators(node.body)
            node = replace(node, body=tuple(_release(n, held) for n in inner) if held else inner)
            return replace(node, registers=held)
    return node


def _release(node: Node, held: tuple[str, ...]) -> Node:
    """Inner loops do not hold again what an outer one holds."""
    match node:
        case If():
            return replace(
                node, body=tuple(_release(n, held) for n in node.body), orelse=tuple(_release(n, held) for n in node.orelse)
            )
        case Loop():
            return replace(
                node,
                registers=tuple(b for b in node.registers if b not in held),
                body=tuple(_release(n, held) for n in node.body),
            )
    return node


def _updated(body: tuple[Node, ...]) -> list[str]:
    found: dict[str, None] = {}
    for node in body:
        match node:
            case Update():
                found[node.buffer] = None
            case Loop():
                found.update(dict.fromkeys(_updated(node.body)))
    return list(found)


def _can_hold(loop: Loop, buffer: str) -> bool:
    updates: list[tuple[Update, tuple[Loop, ...]]] = []
    if not _collect(loop, buffer, (), updates) or len(updates) != 1:
        return False
    update, path = updates[0]
    moving = {e.name for s in update.subscripts for e in walk(s) if isinstance(e, Index)}
    copies = 1
    for inner in path:
        if inner.kind == "parallel":
            return False
        expanded = inner.max_trip is not None and inner.kind in ("unroll", "vector")
        if inner.var in moving:
            if inner is loop or not expanded:
                return False
            copies *= -(-(inner.max_trip or 1) // inner.lanes)
    return copies <= MAX_ACCUMULATORS


def _collect(node: Node, buffer: str, path: tuple[Loop, ...], updates: list[tuple[Update, tuple[Loop, ...]]]) -> bool:
    """Gather updates of `buffer` with the loops around them; False if it is touched in any other way."""

    def reads_it(*exprs: Expr | None) -> bool:
        return any(r.tensor == buffer for e in exprs if e is not None for r in reads(e))

    match node:
        case Store():
            return node.buffer != buffer and not reads_it(node.value, *node.subscripts)
        case Update():
            if reads_it(node.value, *node.subscripts):
                return False
            if node.buffer == buffer:
                updates.append((node, path))
            return True
        case Guard():
            return not reads_it(node.value, node.bound, node.condition)
        case If():
            before = len(updates)
            fine = all(_collect(n, buffer, path, updates) for n in node.body + node.orelse)
            return fine and len(updates) == before and not reads_it(node.condition)
        case Loop():
            return all(_collect(n, buffer, (*path, node), updates) for n in node.body)
