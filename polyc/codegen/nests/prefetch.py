"""Prefetch rows that data names: the numbers of the rows to come are known long before the rows are.

Before: ``for l < 50 { vector d < 64: O[b, d] += T[I[b, l], d] }``.
After: ``for l < 50 { prefetch T[I[next b, next l], 0]; vector d < 64: … }``, *next* being a few iterations ahead, in the next
iteration of the loop around where this one has ended.

A processor runs ahead of loads that miss its caches, but not far enough to have memory busy all the time: its buffers fill up
with the arithmetic on the rows in between.  The numbers of rows are read inside their array (subscripts are clamped to its
shape), and prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from polyc.ir.access import with_values, written_in
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    ge,
    index_names,
    int_const,
    lt,
    maximum,
    mentions,
    minimum,
    reads,
    rewrite,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, Update, known_length
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import Body, Scope, nodes_in, rewrite_nest, rewrite_nodes
from polyc.records import replace
from polyc.target import Target

PART_OF_L1 = 4
"""A quarter of the L1 cache holds the rows that were asked for and are not used yet.  Less, and they come too late: with rows
of 256 bytes out of 10⁵ to 10⁷, 16 rows ahead were no faster than none, 32 to 64 took 0.55 to 0.75 of the time."""

MAX_ROWS_AHEAD = 64

NEAR_A_TURN = 0.75
"""Part of a loop from which on whole turns of it are counted instead of the exact number of rows."""

MAX_LINES = 8
"""Cache lines of one row that are asked for; the processor goes on with a longer row by itself."""


def prefetch_rows(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for rows of arrays larger than the L2 cache (or of unknown size) whose number is read from an input."""
    kept = read_arrays(nest)

    def ask(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel"):
            return node if isinstance(node, Loop) else None
        ahead = _rows_ahead(node, scope.loops_in_order, kept, target)
        return replace(node, body=(*ahead, *rewrite_nodes(node.body, ask, scope.inside(node)))) if ahead else None

    return rewrite_nest(nest, ask)


def level_of_rows(n_rows: int, is_dense: bool) -> Literal[1, 2]:
    """The cache that rows of a block ahead come to, `is_dense` if each goes on where the last one ends.

    The first-level cache waits for a few lines at a time, the second one for more, and rows that lie powers of two apart meet
    in few sets of the first one: 64 MB in pieces of 1 KiB took 3.9 instead of 4.6 ms by way of the second one, a transpose of
    them 3.7 instead of 4.8 (AMD, Zen 4).  What is dense the processor's own prefetcher takes as far as the second one."""
    return 1 if is_dense or n_rows == 1 else 2


def read_arrays(nest: LoopNest) -> dict[str, Buffer]:
    """Arguments that the nest does not write, by their names."""
    written = written_buffers(nest)
    return {b.name: b for b in nest.buffers if b.space == "argument" and b.name not in written}


def large_arrays(nest: LoopNest, target: Target) -> dict[str, Buffer]:
    """Those of them beyond the second-level cache, or of unknown size."""
    return {name: b for name, b in read_arrays(nest).items() if is_large(b, target)}


def written_buffers(nest: LoopNest) -> set[str]:
    """Buffers that the nest writes, and what may be the same memory."""
    written = written_in(nest.body)
    return written | {name for b in nest.buffers if b.name in written for name in b.may_alias}


def _rows(loop: Loop, kept: dict[str, Buffer]) -> Iterator[tuple[Read, tuple[Loop, ...]]]:
    """Reads whose row is decided by data that moves with `loop`, and with no loop inside that is not unrolled, and the loops
    inside around them.  Of an unrolled loop each copy counts."""

    for node, scope in nodes_in(loop.body):
        if not isinstance(node, (Store, Update)) or any(n.kind == "parallel" for n in scope.loops):
            continue
        inner = tuple(n for n in scope.loops if n.kind != "unroll")
        copies = tuple(n for n in scope.loops if n.kind == "unroll")
        for read in reads(node.value):
            if read.tensor in kept and _is_named_by(read, loop.var, {n.var for n in inner}, kept):
                yield from ((copy, inner) for copy in _copies(read, copies))


def _copies(read: Read, loops: tuple[Loop, ...]) -> list[Read]:
    result = [read]
    for loop in loops:
        result = [with_values(r, {loop.var: int_const(n)}) for r in result for n in range(loop.max_trip or 1)]
    return list(dict.fromkeys(result))


def _is_named_by(read: Read, variable: str, inner: set[str], kept: dict[str, Buffer]) -> bool:
    numbers = [r for s in read.subscripts for r in reads(s)]
    if not numbers or not all(
        r.tensor in kept and all(index_coefficients(s) is not None for s in r.subscripts) for r in numbers
    ):
        return False
    names = index_names(*(s for r in numbers for s in r.subscripts))
    return variable in names and names.isdisjoint(inner)


def _rows_ahead(loop: Loop, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Body:
    """The prefetches of one iteration of `loop`."""
    pieces: dict[Read, int] = {}
    for read, inner in _rows(loop, kept):
        size = row_bytes(kept[read.tensor], read, inner)
        if size is None or not is_large(kept[read.tensor], target):
            continue
        for node in reversed(inner):
            read = with_values(read, {node.var: node.lower})
        pieces[read] = max(pieces.get(read, 0), min(size, MAX_LINES * target.cache_line))
    if not pieces:
        return ()
    rows = max(1, min(MAX_ROWS_AHEAD, target.l1 // PART_OF_L1 // sum(pieces.values())))
    loops = (*around, loop)
    later = step_ahead(loops, rows)
    found: list[Node] = []
    for read, size in pieces.items():
        place = _clamp_reads(with_values(_unclamp(read, kept), later), kept, loops)
        prefetch = Prefetch(read.tensor, place.subscripts, size)
        condition = _has_elements(read, kept)
        found.append(prefetch if condition is None else If(condition, (prefetch,)))
    return tuple(found)


def _has_elements(read: Read, kept: dict[str, Buffer]) -> Expr | None:
    """That the arrays which the subscripts of `read` read are not empty; None where that is known."""
    extents = (e for s in read.subscripts for r in reads(s) for e in kept[r.tensor].shape)
    tests = [lt(0, e) for e in dict.fromkeys(extents) if (constant_of(e) or 0) <= 0]
    return all_hold(tests) if tests else None


def row_bytes(buffer: Buffer, read: Read, inner: tuple[Loop, ...]) -> int | None:
    """Bytes of the contiguous piece that one iteration reads; None where it is scattered."""
    moving = {loop.var: loop for loop in inner}
    size = buffer.dtype.itemsize
    for subscript, stride in zip(read.subscripts, buffer.strides, strict=True):
        names = index_names(subscript) & moving.keys()
        if not names:
            continue
        coefficients = index_coefficients(subscript)
        if coefficients is None or not isinstance(stride, Const) or int(stride.value) != buffer.dtype.itemsize:
            return None
        for name in names:
            trip = _trip(moving[name])
            size += abs(coefficients[name]) * buffer.dtype.itemsize * (trip - 1)
    return size


def _trip(loop: Loop) -> int:
    """Iterations of a loop; where that is not known, as many as make a row worth prefetching to its end.

    Vectors that end the loop under a mask wait for the cache lines of their inactive lanes, too."""
    length = known_length(loop)
    if length is not None:
        trip = max(1, length)
        rest = trip % loop.lanes
        return trip if rest & (rest - 1) == 0 else trip - rest + loop.lanes
    return loop.max_trip or 64


def is_large(buffer: Buffer, target: Target) -> bool:
    size = bytes_of(buffer)
    return size is None or size > target.l2


def bytes_of(buffer: Buffer) -> int | None:
    """Bytes of the buffer's elements, where they are known."""
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    return math.prod(extents) * buffer.dtype.itemsize if len(extents) == len(buffer.shape) else None


def step_ahead(loops: tuple[Loop, ...], rows: int) -> dict[str, Expr]:
    """The variables of `loops` (outermost first) `rows` iterations of the innermost one later, counted on as by an odometer."""
    result: dict[str, Expr] = {}
    carry: Expr | None = None
    for n in reversed(range(len(loops))):
        loop, whole = loops[n], 0
        turn = simplify(loop.upper - loop.lower)
        is_last = n == 0 or any(mentions(e, around.var) for e in (loop.lower, loop.upper) for around in loops[:n])
        if isinstance(turn, Const) and turn.value and not is_last:
            trip = -(-int(turn.value) // loop.step)
            turn = int_const(trip * loop.step)
            # As many iterations of the loop around cost no test of where this one ends.
            whole, rows = (round(rows / trip), 0) if rows >= trip * NEAR_A_TURN else divmod(rows, trip)
        elif loop.step > 1:
            trips = simplify(turn + (loop.step - 1)) // loop.step
            turn = simplify(trips * loop.step)
        later = simplify(Index(loop.var) + rows * loop.step)
        if carry is not None:
            later = Select(carry, simplify(later + loop.step), later)
        if is_last or later == Index(loop.var):
            result[loop.var] = later
        else:
            wrapped = simplify(later - turn) if rows else loop.lower
            result[loop.var] = Select(lt(later, loop.upper), later, wrapped)
            carry = ge(later, loop.upper)
        rows = whole
        if is_last or (carry is None and not rows):
            break
    return result


def _unclamp(read: Read, kept: dict[str, Buffer]) -> Read:
    """`read` without what keeps it inside of its array: of a number that is wrong, any place may be asked for."""
    subscripts = []
    for subscript, extent in zip(read.subscripts, kept[read.tensor].shape, strict=True):
        last = simplify(extent - 1)
        match subscript:
            case Call("min", (Call("max", (number, Const(0))), upper)) if simplify(upper) == last:
                subscripts.append(number)
            case _:
                subscripts.append(subscript)
    return replace(read, subscripts=tuple(subscripts))


def _clamp_reads(read: Read, kept: dict[str, Buffer], loops: tuple[Loop, ...]) -> Read:
    """Reads in the subscripts of `read`, kept inside their arrays wherever the loops are."""
    inside = {(Index(n.var), n.upper) for n in loops if isinstance(n.lower, Const) and n.lower.value >= 0}

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        shape = kept[node.tensor].shape
        subscripts = []
        for subscript, extent in zip(node.subscripts, shape, strict=True):
            if (subscript, extent) in inside:
                subscripts.append(subscript)
                continue
            last = simplify(extent - 1)
            subscripts.append(maximum(minimum(subscript, last), 0))
        return replace(node, subscripts=tuple(subscripts))

    return replace(read, subscripts=tuple(rewrite(s, rule) for s in read.subscripts))
