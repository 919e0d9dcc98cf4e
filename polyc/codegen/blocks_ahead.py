"""Prefetch the next block of a transposing copy, in the order of memory, while this one is turned.

Before: ``for c by 64 { for k by 16 { vector i < 64 { unroll k' < 16 { Y[k + k', c + i] = X[c + i, k + k'] } } } }``.
After: ``for c by 64 { for k by 16 { for r < 8 { prefetch row (k / 2 + r) of X's next block } ; vector i < 64 { … } } }``.

A block reads a line of many rows, then the next line of all of them.  No processor's prefetcher follows as many rows, each of
few lines, so every line was waited for: memory was busy for half of the time.  Asked for a block ahead, row by row, they come
while this block is turned.  Which block is next is counted on as by an odometer; prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyc.codegen.prefetch import MAX_LINES, is_large, step_ahead, written_buffers
from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store
from polyc.ir.simplify import simplify
from polyc.target import Target

AHEAD_BYTES = 8192
"""How much of what is read is asked for ahead: one block of this size, several of smaller ones."""

FEW_ROWS = 16
"""Rows that processors follow by themselves, where each goes on in the next block (AMD, Zen 5: 16 rows of 192 bytes by 15360
took 2.0 ms, and 2.7 with prefetches).  Rows of `MAX_LINES` they follow in any case: a 4096 x 4096 transpose gains nothing."""


def prefetch_blocks(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for the next block of what a transposing copy reads, where it lies beyond the second-level cache."""
    written = written_buffers(nest)
    kept = {b.name: b for b in nest.buffers if b.space == "argument" and b.name not in written and is_large(b, target)}
    body = tuple(_visit(node, (), kept, target) for node in nest.body) if kept else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _visit(node: Node, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Node:
    """`around`: the loops around whose order of iterations is known, outermost first."""
    match node:
        case If():
            body, orelse = (tuple(_visit(n, around, kept, target) for n in arm) for arm in (node.body, node.orelse))
            return replace(node, body=body, orelse=orelse)
        case Loop() if node.kind in ("serial", "parallel") and not node.registers:
            if around and (ahead := _block_ahead(node, around, kept, target)) is not None:
                return replace(node, body=(ahead, *node.body))
            chain = (*around, node) if node.kind == "serial" else (node,)
            return replace(node, body=tuple(_visit(n, chain, kept, target) for n in node.body))
    return node


def _block_ahead(loop: Loop, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Node | None:
    """What one iteration of `loop`, over the columns of a block, asks for of the next block; None where it is no such loop."""
    turned = list(_turned(loop, kept))
    columns = _trip(loop)
    if len(turned) != 1 or columns is None or columns <= 0 or loop.kind != "serial":
        return None
    read, vector = turned[0]
    buffer, rows = kept[read.tensor], _trip(vector)
    size = columns * buffer.dtype.itemsize
    if rows is None or rows <= 0 or rows * size > target.l1 or size >= MAX_LINES * target.cache_line:
        return None
    if rows <= FEW_ROWS and _motion(read, buffer, around[-1].var) == size // around[-1].step:
        return None
    share, row = math.ceil(rows / math.ceil(columns / loop.step)), f"{loop.var}_ahead"
    iteration = Call("floordiv", (Call("sub", (Index(loop.var), loop.lower)), int_const(loop.step)))
    number = Call("add", (Call("mul", (iteration, int_const(share))), Index(row)))
    later = step_ahead(around, max(1, round(AHEAD_BYTES / (rows * size))))
    place = _put(_put(read, {vector.var: Call("add", (vector.lower, number)), loop.var: loop.lower}), later)
    return Loop(row, int_const(0), int_const(share), 1, "serial", (Prefetch(read.tensor, place.subscripts, size),))


def _turned(loop: Loop, kept: dict[str, Buffer]) -> Iterator[tuple[Read, Loop]]:
    """The first reads of a loop around blocks that go along memory with the loop, and the vector loop which they lie across."""
    match loop.body:
        case (Loop(kind="vector", body=(Loop(kind="unroll", body=(Store() as store,)) as copies,)) as vector,):
            pass
        case _:
            return
    for read in reads(store.value):
        buffer = kept.get(read.tensor)
        if buffer is None:
            continue
        size, across = buffer.dtype.itemsize, _motion(read, buffer, vector.var)
        if all(_motion(read, buffer, n.var) == size for n in (loop, copies)) and across is not None and abs(across) > size:
            yield _put(read, {copies.var: copies.lower}), vector


def _put(read: Read, values: Mapping[str, Expr]) -> Read:
    """`read` with `values` for variables."""
    return replace(read, subscripts=tuple(simplify(substitute(s, values)) for s in read.subscripts))


def _motion(read: Read, buffer: Buffer, variable: str) -> int | None:
    """Bytes by which `read` moves with `variable`; None where that is not known."""
    total = 0
    for subscript, stride in zip(read.subscripts, buffer.strides, strict=True):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return None
        if coefficients.get(variable):
            if not isinstance(stride, Const):
                return None
            total += coefficients[variable] * int(stride.value)
    return total


def _trip(loop: Loop) -> int | None:
    length = simplify(Call("sub", (loop.upper, loop.lower)))
    return int(length.value) if isinstance(length, Const) else None
