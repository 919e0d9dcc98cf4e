"""Prefetch what the next iteration of a loop begins with while memory is idle: in the last part of this one.

    before  ``for n { vector d: M max= X[n, d] ; vector d { E[d] = exp(X[n, d] - M); S += E[d] } ; … }``
    after   ``for n { vector d: M max= X[n, d] ; vector d { prefetch X[n + 1, d]; E[d] = …; S += E[d] } ; … }``

The first pass over a row, or the copy of a panel, waits for memory; what follows finds it in a cache.  A hardware prefetcher
follows one pass to its end, not into the next iteration.  What is requested is shared out over the iterations of that last
part, since requests in bursts wait for each other: vector by vector over rows that are read again (`_rows`), over the steps of
register tiles for a panel (`_panel`), tile by tile for a window that moves on (`_window`).  Figures: docs/decisions/0820.
"""

from __future__ import annotations

import math

from polyc.codegen.nests.epilogues import FUNCTION_COSTS
from polyc.codegen.nests.partition import choose
from polyc.codegen.nests.prefetch import Ahead, Arrays, Site, arrays_of, far_tests, new_reads, read_sites, request, step_ahead
from polyc.ir.access import is_streaming, moves, stride_of, with_values, writes_in
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    all_hold,
    ge,
    index_names,
    int_const,
    le,
    maximum,
    mentions,
    minimum,
    reads,
    walk,
)
from polyc.ir.loops import If, Loop, LoopNest, Node, Prefetch, Store, Update, known_length
from polyc.ir.simplify import constant_of, product_of, simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Scope, node_expressions, replace_nodes, rewrite_inside, rewrite_nest, rewrite_nodes, walk_nodes
from polyc.machine import Level, Machine, Share
from polyc.records import replace

TRUE = Const(True, BOOL)


def prefetch_next(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with requests in the last parts of loops, for arrays beyond the second-level cache."""
    arrays = arrays_of(nest, target)

    def rule(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        inside = scope.inside(node)
        found = [[a for a in read_sites((child,)) if a.read.tensor in arrays.large] for child in node.body]
        new = {**_rows(node, inside, found, arrays), **_copies(node, inside, found, arrays)}
        return rewrite_inside(replace(node, body=replace_nodes(node.body, new)) if new else node, rule, scope)

    return rewrite_nest(nest, rule) if arrays.large else nest


# -- rows that several passes read


def _rows(loop: Loop, scope: Scope, found: list[list[Site]], arrays: Arrays) -> dict[int, Node]:
    """The passes that request rows, by the `id` of what they replace."""
    passes: dict[str, list[Site]] = {}
    for p in (p for own in found for p in own):
        kinds = {n.kind for n in p.scope.loops}
        if len(p.scope.loops) == len(p.scope.path) and kinds <= {"serial", "vector"} and p.is_along(arrays):
            passes.setdefault(p.read.tensor, []).append(p)
    new: dict[int, Node] = {}
    for mine in passes.values():
        pair = _whole_and_last(loop, mine, arrays)
        if pair is None:
            continue
        vector, last = pair[1].vector, pair[1].scope.loops[0]
        made: Node = last
        for test, requests in reversed(_ways(*pair, loop, scope, arrays)):
            (asking,) = replace_nodes((last,), {id(vector): replace(vector, body=(*requests, *vector.body))})
            known = simplify(test)
            (made,) = choose(known if isinstance(known, Const) else test, (asking,), (made,))
        if made is not last:
            new[id(last)] = made
    return new


def _whole_and_last(loop: Loop, passes: list[Site], arrays: Arrays) -> tuple[Site, Site] | None:
    """Of several passes over one row, which goes on with `loop`, the first that writes no array, and the one to request rows:
    the last that writes none or, where no later one is such, the last that streams.  None where there is none.

    What a pass writes keeps memory busy.  A pass that streams is taken apart at cache lines; one that writes nothing tells how
    long the row is."""
    rows = [with_values(p.read, {n.var: Index(f"·{k}") for k, n in enumerate(p.scope.loops)}) for p in passes]
    if any(row != rows[0] for row in rows) or loop.var not in index_names(*rows[0].subscripts):
        return None
    arguments = {b.name for b in arrays.buffers.values() if b.space == "argument"}
    idle = [p for p in passes if not any(w.buffer in arguments and moves(w, p.vector.var) for w in writes_in(p.vector.body))]
    first = passes[0].scope.loops[0]
    later = [p for p in idle if p.scope.loops[0] is not first]
    later = later or [p for p in passes if p.scope.loops[0] is not first and is_streaming(p.vector.body)]
    if not idle or not later:
        return None
    whole, last = idle[0], later[-1]
    size = constant_of(_row_bytes(whole, arrays))
    if size is None:
        return whole, last  # for any size: rows that are too short lose little by it, and few are too long
    step = stride_of(last.read, arrays.buffers[last.read.tensor], loop.var)
    is_row = arrays.target.prefetchers.least_row <= size and arrays.target.fits(size, Level.L2, Share.QUARTER)
    return (whole, last) if is_row and (step is None or abs(step * loop.step) >= size) else None


def _row_bytes(p: Site, arrays: Arrays) -> Expr:
    """Bytes of the row that a pass reads."""
    return product_of((n.upper - n.lower for n in p.scope.loops), arrays.buffers[p.read.tensor].dtype.itemsize)


def _ways(whole: Site, last: Site, loop: Loop, scope: Scope, arrays: Arrays) -> list[tuple[Expr, list[Prefetch | If]]]:
    """What the last pass requests where a test of sizes holds, and none before it does; nothing where none does.

    Rows come to the second-level cache, several ahead where they are short, since the first one waits for few lines at a time;
    short ones come to the first one as well, one row ahead, where the pass takes long or streams.  A pass of little arithmetic
    is soon over: it requests short rows of arrays that the last-level cache holds."""
    target, buffer, along = arrays.target, arrays.buffers[last.read.tensor], scope.loops_in_order
    length, total = _row_bytes(whole, arrays), buffer.n_bytes
    calls = {e.op for n in last.vector.body for own in node_expressions(n) for e in walk(own) if isinstance(e, Call)}
    is_long, row = not calls.isdisjoint(FUNCTION_COSTS), constant_of(length)
    near_row, ahead = target.room(Level.L1, Share.EIGHTH), target.prefetchers.row_distance
    distance: int | Expr = 1
    if row is not None:
        distance = max(1, ahead // row)
    elif not index_names(length) and len(along) == 1:
        distance = ahead // maximum(minimum(length, ahead), 1)
    far = [request(Ahead(last.read, along, distance, buffer.dtype.itemsize, 2), arrays)]
    near = [request(Ahead(last.read, along, 1, buffer.dtype.itemsize), arrays)]
    if index_names(length):
        return [(TRUE, far)] if is_long else []
    sizes = (ge(length, target.prefetchers.least_row), le(length, target.room(Level.L1, Share.MOST)), ge(total, target.l2 + 1))
    ways: list[tuple[Expr, list[Prefetch | If]]] = []
    if not is_long or constant_of(total) is not None:
        ways.append((all_hold((*sizes, le(total, target.room(Level.L3, Share.QUARTER)))), near))
    if is_long:
        return [*ways, (le(length, near_row), [*far, *near]), (TRUE, far)]
    is_near = is_streaming(loop.body) and (row is None or row <= near_row)
    is_held = all_hold((*sizes, le(total, target.room(Level.L3, Share.HALF))))
    return [*ways, (is_held, [*far, *near] if is_near else far)]


# -- copies that tiles read


def _copies(loop: Loop, scope: Scope, found: list[list[Site]], arrays: Arrays) -> dict[int, Node]:
    """The loops over tiles that request what is copied next in front of them, by the `id` of what they replace."""
    new: dict[int, Node] = {}
    for n, (node, own) in enumerate(zip(loop.body, found, strict=True)):
        requested = {p.buffer for p in walk_nodes((node,)) if isinstance(p, Prefetch)}
        mine = (p for p in own if isinstance(p.use, Store) and p.read.tensor not in requested)
        copied = [p for p in mine if arrays.buffers[p.use.buffer].space != "argument"]
        for user in loop.body[n + 1 :] if copied else ():
            tiles = new.get(id(user), user)
            if not isinstance(tiles, Loop) or tiles.kind != "serial" or tiles.registers:
                continue
            asking = _panel(tiles, copied, loop, scope, arrays)
            if user is loop.body[n + 1]:
                asking = asking or _window(tiles, copied, scope, arrays)
            if asking is not None:
                new[id(user)] = asking
                break
    return new


def _sums(tiles: Node, buffer: str) -> list[Site]:
    """Reads of `buffer` in sums in registers.  Of versions of a tile, the first."""
    found = (p for p in read_sites((tiles,)) if isinstance(p.use, Update) and p.read.tensor == buffer)
    return [p for p in found if p.is_full and any(n.registers for n in p.scope.loops)]


def _panel(tiles: Loop, copied: list[Site], loop: Loop, scope: Scope, arrays: Arrays) -> Node | None:
    """`tiles` with the steps of their sums requesting rows of the next panel, in each of the last tiles as many.

    Tiles before those request the first rows, and the last panel requests itself, again and again: that costs less than a test.
    """
    full = [c for c in copied if c.is_full and isinstance(c.use.value, Read)]
    if len(full) != 1 or not (sums := _sums(tiles, full[0].use.buffer)):
        return None
    (panel,) = full
    read, source, target = panel.read, arrays.large[panel.read.tensor], arrays.target
    if not stride_of(read, source, loop.var) or (found := _rows_of_panel(panel, arrays)) is None:
        return None
    row, size = found
    n_rows, n_tiles = _trip(row) or 1, _trip(tiles) or 0
    tile_bytes = sum(_bytes_of_tile(p, tiles, panel.use.buffer, arrays) for p in sums)
    n_asking = min(n_tiles, max(1, target.room(Level.L2, Share.HALF) // max(1, tile_bytes)))
    is_fit = target.prefetchers.least_panel <= n_rows * size <= target.room(Level.L2, Share.QUARTER)
    if not is_fit or n_asking * target.prefetchers.rows_at_once < n_rows:
        return None
    at_once = math.ceil(n_rows / n_asking)
    asking = maximum((Index(tiles.var) - tiles.lower) // tiles.step - (n_tiles - n_asking), 0)
    along = scope.loops_in_order
    later = step_ahead(along, 1)
    if len(along) == 1:  # with others around, there is always a next one
        later = {v: minimum(e, along[0].upper - along[0].step) for v, e in later.items()}
    first = with_values(read, {n.var: n.lower for n in panel.scope.loops if n is not row} | later)

    def rule(node: Node, scope: Scope) -> Node | None:
        if isinstance(node, If):
            return replace(node, body=rewrite_nodes(node.body, rule))
        if not isinstance(node, Loop) or node.kind != "serial" or not node.registers or not _sums(node, panel.use.buffer):
            return None
        step = math.ceil(size / source.dtype.itemsize / (_trip(node) or size))
        is_plain = _trip(node) is not None and not any(isinstance(n, Loop) and not n.is_expanded for n in node.body)
        if not is_plain or step * source.dtype.itemsize > target.cache_line:
            return node
        requests = []
        for r in range(at_once):
            number = minimum(asking * at_once + r, n_rows - 1)
            there = with_values(first, {row.var: simplify(row.lower + number * row.step)})
            requests.append(request(Ahead(there, (), 0, 1, beyond=(Index(node.var) - node.lower) * step), arrays))
        return replace(node, body=(*requests, *node.body))

    return rewrite_inside(tiles, rule)


def _rows_of_panel(panel: Site, arrays: Arrays) -> tuple[Loop, int] | None:
    """The loop over the rows of what a panel is copied from, and the bytes of a row; None where it is not one run of memory for
    each iteration of a loop, or a single one."""
    source = arrays.large[panel.read.tensor]
    moved = [(stride_of(panel.read, source, n.var), _trip(n), n) for n in panel.scope.loops]
    if not moved or any(motion is None or motion < 0 or trip is None for motion, trip, _ in moved):
        return None
    distances = (((motion or 0) * n.step, trip or 0, n) for motion, trip, n in moved)
    *inner, (motion, _, row) = sorted(distances, key=lambda found: found[0])
    size = source.dtype.itemsize
    for distance, n_steps, _ in inner:
        if distance > size:
            return None
        size += distance * (n_steps - 1)
    return (row, size) if motion > size or motion == size > source.dtype.itemsize else None


def _bytes_of_tile(p: Site, tiles: Loop, panel: str, arrays: Arrays) -> int:
    """Bytes that a sum in one of `tiles` reads beside the panel."""
    total = 0
    for read in dict.fromkeys(reads(p.use.value)):
        moved = index_names(*read.subscripts)
        if read.tensor != panel and tiles.var in moved:
            trips = (_trip(n) or 1 for n in p.scope.loops[1:] if n.var in moved)
            total += arrays.buffers[read.tensor].dtype.itemsize * math.prod(trips)
    return total


def _trip(loop: Loop) -> int | None:
    """Iterations, at most, where that is known."""
    length = known_length(loop)
    return loop.max_trip if loop.max_trip is not None or length is None else -(-length // loop.step)


def _window(tiles: Loop, copied: list[Site], scope: Scope, arrays: Arrays) -> Node | None:
    """`tiles` of sums, each requesting its share of the rows that the next iteration of a loop around is the first to read.

    They come to the second-level cache, where there is room for them and for the rows of this iteration."""
    found = [c for c in copied if c.is_along(arrays)]
    is_summed = any(isinstance(n, Loop) and n.registers for n in walk_nodes(tiles.body))
    if not found or not is_summed or not isinstance(rows := found[0].scope.path[0], Loop) or rows.kind != "serial":
        return None
    vector, target = found[0].vector, arrays.target
    source = arrays.large[found[0].read.tensor]
    begins = {rows.lower, tiles.lower, *(c.vector.lower for c in found)}
    is_even = begins == {int_const(0)} and {c.vector.upper for c in found} == {vector.upper}
    new = new_reads([c.read for c in found], scope.loops)
    is_moving = len(new) < len({c.read for c in found}) and {c.read.tensor for c in found} == {source.name}
    if not is_moving or not is_even or mentions(vector.upper, rows.var):
        return None
    later = step_ahead(scope.loops[-1:], 1)
    row, column, size = Index(f"{rows.var}.next"), Index(f"{vector.var}.next"), source.dtype.itemsize
    requests = []
    for read in new:
        names = {c.vector.var: column for c in found if c.read == read}
        there = with_values(read, later | {rows.var: row, **names})
        requests.append(request(Ahead(there, (), 0, target.cache_line, 2), arrays))
    along = Loop(column.name, int_const(0), vector.upper, target.cache_line // size, "serial", tuple(requests))
    first, last = (e * rows.upper // tiles.upper for e in (Index(tiles.var), Index(tiles.var) + tiles.step))
    share = Loop(row.name, first, minimum(last, rows.upper), 1, "serial", (along,))
    together = simplify(rows.upper * vector.upper * (len(new) * size))
    tests = (le(together, target.room(Level.L2, Share.QUARTER)), *far_tests(source, target))
    asking = If(all_hold(tests), (share,))
    return replace(tiles, body=(asking, *tiles.body))
