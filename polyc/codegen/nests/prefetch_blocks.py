"""Prefetch the next block of a transposing copy, in the order of memory, while this one is transposed.

    before  ``for c by 32 { for k by 16 { vector i < 32 { unroll k' < 16 { Y[k + k', c + i] = X[c + i, k + k'] } } } }``
    after   ``for c by 32 { for k by 16 { for i0 < 32 by 16 { prefetch a row of X's next block ; vector i < 16 { … } } } }``

A block reads a line of many rows, then the next line of all of them: more rows than hardware follows, each of few lines.  Each
vector requests as much as it reads, since requests in bursts wait for each other.  Streamed blocks of whole rows, which follow
each other in memory, are transposed in its order: groups of rows that fill lines of the result, strip by strip.  Strips of less
than a line whose rows meet in few sets of a cache are joined to lines.  Figures: docs/decisions/0820.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from polyc.codegen.nests.copies import lies_across
from polyc.codegen.nests.prefetch import Ahead, Arrays, CacheLevel, arrays_of, far_tests, request_part
from polyc.ir.access import is_streaming, stride_of, with_values
from polyc.ir.expr import Expr, Index, Read, int_const, reads
from polyc.ir.loops import If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, map_bodies, substitute_nodes, walk_nodes
from polyc.machine import Level, Machine, Share
from polyc.machine.memory import LINE
from polyc.records import replace


def prefetch_blocks(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with requests for the next block of what transposing copies read from beyond the second-level cache."""
    arrays = arrays_of(nest, target)
    body = _visit(nest.body, (), arrays) if arrays.large else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _visit(body: Body, around: tuple[Loop, ...], arrays: Arrays) -> Body:
    """`body` with requests, but for what writes staged blocks requests: once is enough.

    `around`: the loops around whose order of iterations is known, outermost first."""
    if around and (whole := _in_order(body, around, arrays)) is not None:
        return (whole,)
    requested = [{p.buffer for p in walk_nodes((n,)) if isinstance(p, Prefetch)} for n in body]
    made: list[Node] = []
    for k, node in enumerate(body):
        others = set().union(*requested[:k], *requested[k + 1 :])
        left = replace(arrays, large={name: b for name, b in arrays.large.items() if name not in others})
        match node:
            case Loop(kind="serial" | "parallel") if not node.registers:
                inside = (*around, node) if node.kind == "serial" else (node,)
                strips = _in_strips(node, around, left) if around else None
                made.append(strips or replace(node, body=_visit(node.body, inside, left)))
            case If():
                made.append(map_bodies(node, lambda inner, left=left: _visit(inner, around, left)))  # type: ignore[misc]
            case _:
                made.append(node)
    return tuple(made)


# -- what a block is


def vectors_in(node: Node) -> list[Loop]:
    """The vector loop that `node` is, or both of which it runs one; empty where it is something else."""
    match node:
        case Loop(kind="vector"):
            return [node]
        case If(body=(Loop(kind="vector") as vector,), orelse=(Loop(kind="vector") as other,)):
            return [vector, other]
    return []


def _transposed(loop: Loop, arrays: Arrays) -> Read | None:
    """The read of a loop around blocks that goes along memory with it, and that all vectors in it lie across: for the rows of
    the first vector.  None where that is not one."""
    vectors = [v for node in loop.body for v in vectors_in(node)]
    found: list[Read] = []
    for v in vectors if loop.kind == "serial" and len(vectors) >= len(loop.body) else ():
        own = [with_values(read, {v.var: Index(vectors[0].var)}) for read in _transposed_in(loop, v, arrays)]
        if len(own) != 1 or (len(loop.body) > 1 and found and own != found[:1]):
            return None
        found += own
    return found[0] if found else None


def _transposed_in(loop: Loop, vector: Loop, arrays: Arrays) -> Iterator[Read]:
    """The first reads that go along memory with `loop`, and that `vector` in it lies across."""
    match vector.body:
        case (Loop(kind="unroll", body=(Store() as store,)) as copies,):
            for read in reads(store.value):
                buffer = arrays.large.get(read.tensor)
                if buffer is None or not lies_across(read, buffer, copies.var, vector.var):
                    continue
                if all(stride_of(read, buffer, n.var) == buffer.dtype.itemsize for n in (loop, copies)):
                    yield with_values(read, {copies.var: copies.lower})


# -- requests shared out over the vectors of a block


def _in_strips(loop: Loop, around: tuple[Loop, ...], arrays: Arrays) -> Loop | None:
    """`loop`, over the columns of a block, with each of its vectors requesting a part of the next block; None where it is no
    such loop.

    Blocks at an edge, of which some rows lie outside, request as many rows as the tiles around have, in front of each strip:
    those that follow would all be waited for."""
    if (read := _transposed(loop, arrays)) is None or (columns := known_length(loop) or 0) <= 0:
        return None
    vectors = [v for node in loop.body for v in vectors_in(node)]
    source, lengths = arrays.large[read.tensor], {known_length(v) for v in vectors}
    if len(loop.body) > 1 or None in lengths:
        across = stride_of(read, source, vectors[0].var)
        tiles = [n.step for n in around if n.step > 1 and stride_of(read, source, n.var) == across]
        if None not in lengths or loop.lower != int_const(0) or len(tiles) != 1:
            return None
        part = Index(loop.var) // loop.step, math.ceil(columns / loop.step)
        asking = _part_of_block(loop, vectors[0].var, tiles[0], part, read, around, arrays)
        return replace(loop, body=(*asking, *loop.body)) if asking else None
    width, loop = loop.step, _join_to_lines(loop, read, arrays)
    made = [_in_groups(loop, v, width, read, around, arrays) for v in vectors]
    if not all(made):
        return None
    test = loop.body[0]
    return replace(loop, body=(replace(test, body=made[0], orelse=made[1]),) if isinstance(test, If) else made[0])


def _join_to_lines(loop: Loop, read: Read, arrays: Arrays) -> Loop:
    """`loop` with steps of a line of what is read, where its strips are parts of lines, they are streamed and rows meet in few
    sets of a cache: a line is then used up while it is near, for as many rows as fill lines of the result."""
    buffer = arrays.large[read.tensor]
    line, vectors = LINE // buffer.dtype.itemsize, vectors_in(loop.body[0])
    rows, across = known_length(vectors[0]) or 0, stride_of(read, buffer, vectors[0].var)
    is_part = loop.step < line and line % loop.step == (known_length(loop) or 0) % line == 0
    is_whole = is_part and all(rows % max(line, v.lanes) == 0 for v in vectors) and is_streaming(loop.body)
    do_meet = is_whole and rows > 0 and across is not None and arrays.target.conflicts(rows, across)
    return replace(loop, step=line) if do_meet else loop


def _in_groups(loop: Loop, vector: Loop, width: int, read: Read, around: tuple[Loop, ...], arrays: Arrays) -> Body:
    """The body of `loop` with `vector` in it, which takes `width` columns of `read`, by groups of rows with requests; empty
    where there are none."""
    columns, rows = known_length(loop) or 0, known_length(vector) or 0
    if rows <= 0:
        return ()
    start = Index(f"{vector.var}_0")
    is_by_lines = width < loop.step and rows % vector.lanes == 0 and rows > vector.lanes
    group = vector.lanes if width == loop.step or is_by_lines else max(vector.lanes, loop.step)
    n_groups = rows // group
    from_rows = with_values(read, {vector.var: vector.lower + Index(vector.var)})
    if is_by_lines:  # what the group reads a few strips later, where strips are a line wide
        distance = max(1, round(arrays.target.prefetchers.far_distance / (rows * LINE)))
        first = with_values(from_rows, {vector.var: start + Index(vector.var)})
        lines = Ahead(first, (*around, loop), distance, 1, 2, rows={vector.var: 1}, n_rows=group)
        asking = request_part(lines, (int_const(0), 1), f"{loop.var}_ahead", arrays)
    else:
        strip: Expr = (Index(loop.var) - loop.lower) // loop.step
        part = strip * n_groups + start // group if n_groups > 1 else strip
        n_parts = math.ceil(columns / loop.step) * max(1, n_groups)
        asking = _part_of_block(loop, vector.var, rows, (part, n_parts), from_rows, around, arrays)
    if not asking or n_groups <= 1:
        return (*asking, _in_columns(vector, loop, width)) if asking else ()
    inside = (*asking, _in_columns(shift_rows(vector, start, group), loop, width))
    end = n_groups * group
    groups = Loop(start.name, int_const(0), int_const(end), group, "serial", inside)
    return (groups, shift_rows(vector, int_const(end), rows - end)) if rows > end else (groups,)


def _part_of_block(
    loop: Loop, across: str, rows: int, part: tuple[Expr, int], read: Read, around: tuple[Loop, ...], arrays: Arrays
) -> Body:
    """What requests a part of the next block of `read`, of the columns of `loop` and of `rows` along the variable `across`.

    Nothing where a block is too large, or hardware follows its rows, which go on in the next one."""
    buffer, target = arrays.large[read.tensor], arrays.target
    size = (known_length(loop) or 0) * buffer.dtype.itemsize
    # Rows that lie powers of two apart meet in few sets of the first-level cache, which besides waits for few lines at once.
    level: CacheLevel = 1 if rows == 1 or stride_of(read, buffer, across) == size else 2
    goes_on = stride_of(read, buffer, around[-1].var) == size // around[-1].step
    is_small = rows * size <= (target.l1 if level == 1 else target.room(Level.L2, Share.QUARTER))
    if not is_small or (goes_on and target.is_followed(rows)):
        return ()
    distance = max(1, round(target.prefetchers.block_distance / (rows * size)))
    first, tests = with_values(read, {loop.var: loop.lower}), far_tests(buffer, target)
    block = Ahead(first, around, distance, size, level, tests, rows={across: 1}, n_rows=rows)
    return request_part(block, part, f"{loop.var}_ahead", arrays)


# -- blocks of whole rows in the order of memory


def _in_order(body: Body, around: tuple[Loop, ...], arrays: Arrays) -> Loop | None:
    """What takes the place of `body` where that is a streamed block of whole rows, with which the loop around goes on: strips,
    and perhaps a rest behind them.

    Requests go by way of both caches: a core waits for few lines at a time on their way to the first one, and vectors wait for
    the second one.  Of longer rows the first-level cache gets the next strips only."""
    strips, *rest = body or (None,)
    if not isinstance(strips, Loop) or len(strips.body) > 1 or len(rest) > 1 or not all(map(vectors_in, rest)):
        return None
    if (read := _transposed(strips, arrays)) is None:
        return None
    last = [v for node in rest for v in vectors_in(node)]
    vector, *_ = vectors = [*vectors_in(strips.body[0]), *last]
    buffer, target, rows = arrays.large[read.tensor], arrays.target, known_length(vector)
    itemsize, columns, goes_on = buffer.dtype.itemsize, known_length(strips) or 0, stride_of(read, buffer, around[-1].var)
    for node in last[:1]:
        columns += next((n.max_trip or 0 for n in node.body if isinstance(n, Loop)), 1)
    size = columns * itemsize
    group = max(vector.lanes, LINE // itemsize)  # rows whose elements fill lines of the result
    if any(v.max_trip is None or known_length(v) != rows for v in vectors) or not is_streaming(body):
        return None
    if not rows or rows % group or goes_on is None or goes_on * around[-1].step != rows * size:
        return None
    if stride_of(read, buffer, vector.var) != size or not target.fits(group * size, Level.L2, Share.QUARTER):
        return None
    start, name = Index(f"{vector.var}_0"), f"{strips.var}_ahead"
    near, step = max(target.prefetchers.near_distance, group * size), target.prefetchers.near_distance
    part = (Index(strips.var) - strips.lower) // strips.step, max(1, (known_length(strips) or 0) // strips.step)
    begin = with_values(read, {vector.var: vector.lower + start, strips.var: strips.lower})

    def behind(distance: int, level: CacheLevel) -> Body:
        return request_part(Ahead(begin, (), 0, group * size, level, beyond=distance // itemsize), part, name, arrays)

    asked = behind(near + step, 2)
    if target.fits(group * size, Level.L1, Share.QUARTER):
        asked += behind(near, 1)
    elif strips.step * itemsize == LINE and not target.conflicts(group, size):
        row = with_values(read, {vector.var: vector.lower + start + Index(vector.var)})
        end = (target.prefetchers.near_strips + 1) * strips.step - 1
        lines = Ahead(row, (), 0, itemsize, beyond=end, rows={vector.var: 1}, n_rows=group)
        asked += request_part(lines, (int_const(0), 1), name, arrays)
    taken = replace(strips, body=(*asked, shift_rows(strips.body[0], start, group)))
    body = (taken, *(shift_rows(node, start, group) for node in rest))
    return Loop(start.name, int_const(0), int_const(rows), group, "serial", body)


# -- parts of the vectors of a block


def _in_columns(vector: Node, loop: Loop, width: int) -> Node:
    """`vector` for all columns of a strip of `loop`, `width` at a time."""
    if width == loop.step:
        return vector
    some = Index(f"{loop.var}_some")
    body = substitute_nodes((vector,), {loop.var: Index(loop.var) + some})
    return Loop(some.name, int_const(0), int_const(loop.step), width, "serial", body)


def shift_rows(node: Node, start: Expr, trip: int) -> Node:
    """`trip` iterations of the expanded vector loop, or of both versions of it, that `node` is, from number `start` on."""
    if not isinstance(node, Loop):
        return map_bodies(node, lambda body: tuple(shift_rows(n, start, trip) for n in body))
    body = substitute_nodes(node.body, {node.var: Index(node.var) + start})
    return replace(node, upper=simplify(node.lower + trip), max_trip=trip, body=body)
