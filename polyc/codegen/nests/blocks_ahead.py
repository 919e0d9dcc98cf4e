"""Prefetch the next block of a transposing copy, in the order of memory, while this one is turned.

Before: ``for c by 32 { for k by 16 { vector i < 32 { unroll k' < 16 { Y[k + k', c + i] = X[c + i, k + k'] } } } }``.
After: ``for c by 32 { for k by 16 { for i0 < 32 by 16 { prefetch a few rows of X's next block ; vector i < 16 { … } } } }``.

A block reads a line of many rows, then the next line of all of them.  No processor's prefetcher follows as many rows, each of
few lines, so every line was waited for: memory was busy for half of the time.  Asked for a block ahead, row by row, they come
while this block is turned.  Each vector asks for as much as it reads: asked for in bursts, requests wait for each other (a
4096 x 4096 transpose on AMD, Zen 5, in C: 4.3 ms where each second vector asks for the lines of two, 3.0 where each asks for
its own number, 4.6 without).  Which block is next is counted on as by an odometer; prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from operator import mul

from polyc.codegen.emission.lines import do_meet
from polyc.codegen.nests.prefetch import bytes_of, large_arrays, level_of_rows, step_ahead
from polyc.codegen.nests.rows_in_order import (
    is_in_order,
    is_streamed,
    shift_columns,
    shift_rows,
    take_rows_in_order,
    vectors_in,
)
from polyc.codegen.nests.transposes import lies_across
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Expr, Index, Read, Select, gt, int_const, reads
from polyc.ir.loops import LINE, Buffer, If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_bodies
from polyc.records import replace
from polyc.target import Target

STRIPS_AHEAD = 12288
"""The same where strips of whole lines are written behind (`write_behind`): the lines of two or three strips of 64 rows."""

AHEAD_BYTES = 8192
"""How much of what is read is asked for ahead: one block of this size, several of smaller ones."""

PART_OF_L2 = 4
"""A quarter of the second-level cache holds a block that comes to it."""

MOST_PARTS = 64
"""Nodes of a loop in which requests are looked for."""

FEW_ROWS = 16
"""Rows that processors follow by themselves, where each goes on in the next block (AMD, Zen 5: 16 rows of 192 bytes by 15360
took 2.0 ms, and 2.7 with prefetches)."""


def prefetch_blocks(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for the next block of what a transposing copy reads, where it lies beyond the second-level cache."""
    kept = large_arrays(nest, target)
    body = tuple(_visit(node, (), kept, target) for node in nest.body) if kept else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _visit(node: Node, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Node:
    """`around`: the loops around whose order of iterations is known, outermost first."""
    match node:
        case Loop() if node.kind in ("serial", "parallel") and not node.registers:
            if (
                around
                and (made := _ask_ahead(node, around, kept, target) or _ask_at_edge(node, around, kept, target)) is not None
            ):
                return made
            chain = (*around, node) if node.kind == "serial" else (node,)
            return replace(node, body=_visit_body(node.body, chain, kept, target))
        case If():
            return map_bodies(node, lambda body: _visit_body(body, around, kept, target))
    return node


def _visit_body(body: Body, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Body:
    """`body`, where loops that write down what was put together ask for the next block (`staging`): once is enough."""
    if (whole := _in_order(body, around, kept, target)) is not None:
        return (whole,)
    made: list[Node] = []
    for node in body:
        asked = {p.buffer for n in body if n is not node for p in _prefetches(n)}
        left = {name: b for name, b in kept.items() if name not in asked}
        made += _ask_between(node) if _is_asking(node) else (_visit(node, around, left, target),)
    return tuple(made)


def _in_order(body: Body, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Loop | None:
    """What takes the place of `body` where that is a block of whole rows: strips of them, and perhaps a rest behind."""
    match body:
        case (Loop() as strips,):
            rest = None
        case (Loop() as strips, Loop() | If() as rest) if vectors_in(rest):
            pass
        case _:
            return None
    read = _turned(strips, kept) if around else None
    if read is None or not is_in_order(strips, rest, read, around[-1], kept[read.tensor], target):
        return None
    return take_rows_in_order(strips, rest, read, kept[read.tensor], target)


def _prefetches(node: Node) -> Iterator[Prefetch]:
    match node:
        case Prefetch():
            yield node
        case If():
            for n in node.body + node.orelse:
                yield from _prefetches(n)
        case Loop() if len(node.body) <= MOST_PARTS:
            for n in node.body:
                yield from _prefetches(n)


def _is_asking(node: Node) -> bool:
    return isinstance(node, Loop) and node.kind == "vector" and any(isinstance(n, Prefetch) for n in node.body)


def _ask_between(loop: Node) -> Body:
    """``vector e { prefetch …e… ; stream … }`` by as many vectors as are in flight, each group with a prefetch in front of it;
    an ordinary loop, which is short, without."""
    assert isinstance(loop, Loop)
    stores = tuple(n for n in loop.body if isinstance(n, Store))
    asked = tuple(n for n in loop.body if isinstance(n, Prefetch))
    if not any(s.streamed for s in stores) or loop.max_trip is not None:
        return (replace(loop, body=stores),)
    chunk, group = loop.lanes * loop.interleave, f"{loop.var}_0"
    length = loop.upper - loop.lower
    last = simplify(loop.lower + length // chunk * chunk)
    begin: dict[str, Expr] = {loop.var: Index(group)}
    asked = tuple(with_values(p, begin) for p in asked)
    moved = tuple(with_values(s, {loop.var: Index(group) + Index(loop.var)}) for s in stores)
    vectors = replace(loop, lower=int_const(0), upper=int_const(chunk), max_trip=chunk, interleave=1, body=moved)
    groups = Loop(group, loop.lower, last, chunk, "serial", (*asked, vectors))
    return groups, replace(loop, lower=last, interleave=1, body=stores)


def _ask_ahead(loop: Loop, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Loop | None:
    """`loop`, over the columns of a block, with each of its vectors asking for a part of the next block.

    None where it is no such loop."""
    if (found := _turned(loop, kept)) is None:
        return None
    loop, width = _take_lines(loop, found, kept[found.tensor])
    made = [_ask_in_vectors(loop, v, width, found, around, kept, target) for v in vectors_in(loop.body[0])]
    if any(m is None for m in made):
        return None
    bodies = [m for m in made if m is not None]
    test = loop.body[0]
    return replace(loop, body=(replace(test, body=bodies[0], orelse=bodies[1]),) if isinstance(test, If) else bodies[0])


def _take_lines(loop: Loop, read: Read, buffer: Buffer) -> tuple[Loop, int]:
    """`loop` with steps of a line of what is read, and how many columns its vectors take, where that is less, they are streamed
    and rows meet in few sets of a cache: a line is then used up while it is near, for as many rows as fill lines of the result.

    4096×4096 turned with AVX2 on AMD, Zen 4, in C: strips of half a line over 64 rows 11.7 ms, lines over 16 rows 5.3."""
    line = LINE // buffer.dtype.itemsize
    columns, vectors = known_length(loop), vectors_in(loop.body[0])
    rows, across = known_length(vectors[0]), stride_of(read, buffer, vectors[0].var)
    if not rows or across is None or not do_meet(across, rows):
        return loop, loop.step
    if loop.step >= line or line % loop.step or not columns or columns % line or not any(map(is_streamed, vectors)):
        return loop, loop.step
    if any(rows % max(line, v.lanes) for v in vectors):
        return loop, loop.step
    return replace(loop, step=line), loop.step


def _ask_in_strips(loop: Loop, vector: Loop, group: int, read: Read, around: tuple[Loop, ...]) -> Loop:
    """What asks for the lines that a `group` of rows reads a few strips of `loop` later, where strips are a line wide."""
    row = f"{loop.var}_ahead"
    n_ahead = max(1, round(STRIPS_AHEAD / ((known_length(vector) or group) * LINE)))
    there = with_values(read, {vector.var: vector.lower + (Index(f"{vector.var}_0") + Index(row))})
    place = with_values(there, step_ahead((*around, loop), n_ahead))
    asked = Prefetch(read.tensor, place.subscripts, 1, 2)
    return Loop(row, int_const(0), int_const(group), 1, "unroll", (asked,), max_trip=group)


def _ask_in_vectors(
    loop: Loop, vector: Loop, width: int, read: Read, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target
) -> Body | None:
    """The body of `loop` with `vector` in it, which turns `width` columns of `read`."""
    columns, rows = known_length(loop), known_length(vector)
    if columns is None or columns <= 0 or rows is None or rows <= 0:
        return None
    group = vector.lanes if width == loop.step else max(vector.lanes, loop.step)
    if width < loop.step and rows % vector.lanes == 0 and rows > vector.lanes:
        group, start = vector.lanes, f"{vector.var}_0"
        inside = (
            _ask_in_strips(loop, vector, group, read, around),
            _in_columns(shift_rows(vector, Index(start), group), loop, width),
        )
        return (Loop(start, int_const(0), int_const(rows), group, "serial", inside),)
    whole, start = rows // group if vector.max_trip is not None else 0, f"{vector.var}_0"
    iteration: Expr = (Index(loop.var) - loop.lower) // loop.step
    if whole > 1:
        own = Index(start) // group
        iteration = iteration * whole + own
    n_parts = math.ceil(columns / loop.step) * max(1, whole)
    from_rows = with_values(read, {vector.var: vector.lower + Index(vector.var)})
    ask = _request(loop, vector.var, rows, (iteration, n_parts), from_rows, around, kept[read.tensor], target)
    if ask is None:
        return None
    if whole <= 1:
        return ask, _in_columns(vector, loop, width)
    end = whole * group
    inside = (ask, _in_columns(shift_rows(vector, Index(start), group), loop, width))
    parts = Loop(start, int_const(0), int_const(end), group, "serial", inside)
    return (parts, shift_rows(vector, int_const(end), rows - end)) if rows > end else (parts,)


def _request(
    loop: Loop,
    across: str,
    rows: int,
    part_of: tuple[Expr, int],
    read: Read,
    around: tuple[Loop, ...],
    buffer: Buffer,
    target: Target,
) -> Loop | None:
    """What asks for a part of the next block of `read`, of the columns of `loop` and of `rows` along the variable `across`.

    None where a block is too large, or its rows go on in the next one.
    `part_of`: which part, and how many there are."""
    columns = known_length(loop)
    if columns is None or columns <= 0:
        return None
    size = columns * buffer.dtype.itemsize
    level = level_of_rows(rows, stride_of(read, buffer, across) == size)
    if rows * size > (target.l1 if level == 1 else target.l2 // PART_OF_L2) or (
        rows <= FEW_ROWS and stride_of(read, buffer, around[-1].var) == size // around[-1].step
    ):
        return None
    number, n_parts = part_of
    n_pieces = max(1, min(n_parts // rows, size // target.cache_line))
    share, row = math.ceil(rows * n_pieces / n_parts), f"{loop.var}_ahead"
    part: Expr = number * share + Index(row)
    column, piece = loop.lower, math.ceil(size / n_pieces / target.cache_line) * target.cache_line
    if n_pieces > 1:
        within = part % n_pieces * (piece // buffer.dtype.itemsize)
        part, column = part // n_pieces, column + within
    later = step_ahead(around, max(1, round(AHEAD_BYTES / (rows * size))))
    place = with_values(with_values(read, {across: part, loop.var: column}), later)
    asked = Prefetch(read.tensor, place.subscripts, min(size, piece), level)
    n_rows: Expr = int_const(share)
    if bytes_of(buffer) is None:  # what a call finds in the second-level cache is near enough
        elements = simplify(reduce(mul, buffer.shape))
        n_rows = Select(gt(elements, target.l2 // buffer.dtype.itemsize), n_rows, int_const(0))
    return Loop(row, int_const(0), n_rows, 1, "serial", (asked,))


def _ask_at_edge(loop: Loop, around: tuple[Loop, ...], kept: dict[str, Buffer], target: Target) -> Loop | None:
    """`loop`, over the columns of a block of which some rows lie outside, with requests for the next block in front of each
    strip: the blocks that follow one at an edge would all be waited for.

    None where it is no such loop."""
    vectors = [n for n in loop.body if isinstance(n, Loop) and n.kind == "vector" and not n.registers]
    if len(vectors) < len(loop.body) or all(known_length(v) is not None for v in vectors) or loop.lower != int_const(0):
        return None
    found = [(v, read) for v in vectors for read in _turned_in(loop, v, kept)]
    columns, source = known_length(loop), kept[found[0][1].tensor] if found else None
    if len(found) < len(vectors) or columns is None or source is None:
        return None
    vector, read = found[0]
    if any(r != with_values(read, {vector.var: Index(v.var)}) for v, r in found):
        return None
    tiles = [n for n in around if n.step > 1 and stride_of(read, source, n.var) == stride_of(read, source, vector.var)]
    if len(tiles) != 1:
        return None
    iteration = Index(loop.var) // loop.step
    n_parts = math.ceil(columns / loop.step)
    ask = _request(loop, vector.var, tiles[0].step, (iteration, n_parts), read, around, source, target)
    return None if ask is None else replace(loop, body=(ask, *loop.body))


def _in_columns(vector: Loop, loop: Loop, width: int) -> Loop:
    """`vector` for all columns of a strip of `loop`, `width` at a time."""
    if width == loop.step:
        return vector
    some = f"{loop.var}_some"
    return Loop(some, int_const(0), int_const(loop.step), width, "serial", (shift_columns(vector, loop.var, Index(some)),))


def _turned(loop: Loop, kept: dict[str, Buffer]) -> Read | None:
    """The first read of a loop around blocks that goes along memory with the loop, and that vectors in it lie across; None
    where that is not exactly one."""
    vectors = vectors_in(loop.body[0]) if len(loop.body) == 1 and loop.kind == "serial" else []
    found = [list(_turned_in(loop, v, kept)) for v in vectors]
    return found[0][0] if found and all(len(reads_in) == 1 for reads_in in found) else None


def _turned_in(loop: Loop, vector: Loop, kept: dict[str, Buffer]) -> Iterator[Read]:
    """The first reads that go along memory with `loop`, and that `vector` in it lies across."""
    match vector.body:
        case (Loop(kind="unroll", body=(Store() as store,)) as copies,):
            pass
        case _:
            return
    for read in reads(store.value):
        buffer = kept.get(read.tensor)
        if buffer is None:
            continue
        size = buffer.dtype.itemsize
        if all(stride_of(read, buffer, n.var) == size for n in (loop, copies)) and lies_across(
            read, buffer, copies.var, vector.var
        ):
            yield with_values(read, {copies.var: copies.lower})
