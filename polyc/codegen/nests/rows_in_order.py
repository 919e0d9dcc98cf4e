"""Turn streamed blocks of whole rows in the order of memory, and ask for what comes next by way of both caches.

Before: ``for k < 64 by 16 { vector i < 64 { unroll k' < 16 { stream Y[k + k', i] = X[i, k + k'] } } }``, X having rows of 64.
After: ``for i0 < 64 by 16 { for k < 64 by 16 { prefetch X[i0 + 32, 16*k] to L2 ; prefetch X[i0 + 16, 16*k] ; vector i < 16
{ … } } }``: a group of rows that fills lines of the result, strip by strip, then the next group.

A core waits for few lines at a time that are on their way to its first-level cache.  Asked for there from memory, they hold
these places for long; asked for at the second-level cache alone, each vector waits for it, and streamed stores wait with it.
What goes by way of both stays in neither for long: a neighbour that shares the core's caches does not push it out
(32×56×56×64 to channels first on AMD, Zen 4, in C, beside other processes: a block of 16 KiB ahead to the first-level cache
2.5 ms, to the second 1.9, by way of both 4 and 8 KiB ahead 1.65, a copy 1.4; alone 1.35, 1.5, 1.2 and 1.2).  Of longer rows
the first-level cache gets the next strips only (32×832×512: 3.6 ms without, 3.25 with them, 4.6 without any request, a copy 3).
"""

from __future__ import annotations

import math

from polyc.codegen.emission.lines import do_meet
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Expr, Index, Read, int_const
from polyc.ir.loops import LINE, Buffer, If, Loop, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import map_bodies, walk_nodes
from polyc.records import replace
from polyc.target import Target

AHEAD = 4096
"""Bytes that are asked for ahead at least, to either cache."""

NEXT_STRIPS = 2
"""Strips ahead of long rows that come to the first-level cache."""

PART_OF_L1 = 4
"""A quarter of the first-level cache holds a group of rows, another one the next."""

PART_OF_L2 = 8
"""The same for the second-level cache."""


def vectors_in(node: Node) -> list[Loop]:
    """The vector loop that `node` is, or both of which it runs one; empty where it is something else."""
    match node:
        case Loop(kind="vector"):
            return [node]
        case If(body=(Loop(kind="vector") as vector,), orelse=(Loop(kind="vector") as other,)):
            return [vector, other]
    return []


def is_in_order(strips: Loop, rest: Node | None, read: Read, around: Loop, buffer: Buffer, target: Target) -> bool:
    """Whether vector loops over the rows of a block take these whole, and `around` goes on with them.

    They stand in the loop over `strips`, and in the `rest` behind it, if that is left; `read`: what they turn, of `buffer`."""
    last = [] if rest is None else vectors_in(rest)
    vectors = [*vectors_in(strips.body[0]), *last]
    rows, itemsize = known_length(vectors[0]), buffer.dtype.itemsize
    if any(v.max_trip is None or known_length(v) != rows for v in vectors) or not any(map(is_streamed, vectors)):
        return False
    columns = (known_length(strips) or 0) + (_n_copies(last[0]) if last else 0)
    group, size = _group_rows(vectors[0], buffer), columns * itemsize
    if not rows or rows % group or group * size > target.l2 // PART_OF_L2:
        return False
    goes_on = stride_of(read, buffer, around.var)
    return stride_of(read, buffer, vectors[0].var) == size and goes_on is not None and goes_on * around.step == rows * size


def take_rows_in_order(strips: Loop, rest: Node | None, read: Read, buffer: Buffer, target: Target) -> Loop:
    """The loop that takes a block group by group, with requests; for what `is_in_order` has found."""
    vector = vectors_in(strips.body[0])[0]
    group, start, itemsize = _group_rows(vector, buffer), f"{vector.var}_0", buffer.dtype.itemsize
    begin = with_values(read, {vector.var: vector.lower + Index(start)})
    size = stride_of(read, buffer, vector.var) or 0
    n_strips = max(1, (known_length(strips) or 0) // strips.step)
    part = math.ceil(group * size / n_strips / LINE) * LINE
    strip = (Index(strips.var) - strips.lower) // strips.step
    first = strip * (part // itemsize)
    near = max(AHEAD, group * size)
    at_row = with_values(begin, {strips.var: strips.lower})
    asked: list[Node] = [Prefetch(read.tensor, _behind(at_row, first, (near + AHEAD) // itemsize), part, 2)]
    if group * size <= target.l1 // PART_OF_L1:
        asked.append(Prefetch(read.tensor, _behind(at_row, first, near // itemsize), part))
    elif strips.step * itemsize == LINE and not do_meet(size, group):
        row = f"{strips.var}_ahead"
        there = with_values(begin, {start: Index(start) + Index(row)})
        line = Prefetch(read.tensor, _behind(there, int_const(0), (NEXT_STRIPS + 1) * strips.step - 1), itemsize)
        asked.append(Loop(row, int_const(0), int_const(group), 1, "unroll", (line,), max_trip=group))
    taken: list[Node] = [replace(strips, body=(*asked, _shift(strips.body[0], Index(start), group)))]
    taken += [] if rest is None else [_shift(rest, Index(start), group)]
    return Loop(start, int_const(0), int_const(known_length(vector) or 0), group, "serial", tuple(taken))


def _behind(begin: Read, first: Expr, distance: int) -> tuple[Expr, ...]:
    """What lies `first` and `distance` elements behind `begin`, counted along memory."""
    *outer, last = begin.subscripts
    return *outer, simplify(last + (first + distance))


def _group_rows(vector: Loop, buffer: Buffer) -> int:
    """Rows whose elements fill lines of the result."""
    return max(vector.lanes, LINE // buffer.dtype.itemsize)


def is_streamed(vector: Loop) -> bool:
    """Whether something in a vector loop is streamed."""
    return any(isinstance(n, Store) and n.streamed for n in walk_nodes(vector.body))


def _n_copies(vector: Loop) -> int:
    match vector.body:
        case (Loop(kind="unroll") as copies,):
            return copies.max_trip or 0
    return 1


def _shift(node: Node, start: Expr, trip: int) -> Node:
    """`shift_rows` of the vector loop, or of both, that `node` is."""
    if isinstance(node, Loop):
        return shift_rows(node, start, trip)
    return map_bodies(node, lambda body: tuple(_shift(n, start, trip) for n in body))


def shift_rows(vector: Loop, start: Expr, trip: int) -> Loop:
    """`trip` iterations of `vector`, which is expanded, from the one of number `start` on."""
    moved = shift_columns(vector, vector.var, start)
    return replace(moved, upper=simplify(vector.lower + trip), max_trip=trip)


def shift_columns(vector: Loop, variable: str, distance: Expr) -> Loop:
    """`vector`, which is expanded, with what it does where `variable` is `distance` more."""
    (inner,) = vector.body
    copies = inner if isinstance(inner, Loop) else None
    store = inner if copies is None else copies.body[0]
    assert isinstance(store, Store)
    names = {variable: Index(variable) + distance}
    store = with_values(store, names)
    return replace(vector, body=(store if copies is None else replace(copies, body=(store,)),))
