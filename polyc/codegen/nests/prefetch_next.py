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
from collections.abc import Iterable, Iterator

from polyc.codegen.nests.epilogues import FUNCTION_COSTS
from polyc.codegen.nests.prefetch import (
    Ahead,
    Arrays,
    CacheLevel,
    arrays_of,
    is_far,
    reads_of_stores,
    request,
    step_ahead,
)
from polyc.ir.access import moves, stride_of, with_values
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
    substitute,
    walk,
)
from polyc.ir.loops import If, Loop, LoopNest, Node, Prefetch, Store, Update, known_length
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import (
    Fact,
    Scope,
    node_expressions,
    replace_nodes,
    rewrite_inside,
    rewrite_nest,
    rewrite_nodes,
    walk_nodes,
)
from polyc.machine import Level, Machine, Share
from polyc.records import dataclass, replace

MOST_ROWS = 4
"""Rows of a panel that are requested at the same time, one more instruction for each in a step of a sum."""


def prefetch_next(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with requests in the last parts of loops, for arrays beyond the second-level cache."""
    arrays = arrays_of(nest, target)

    def rule(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        inside = scope.inside(node)
        new = {**_rows(node, inside, arrays), **_copies(node, inside, arrays)}
        body = replace_nodes(node.body, new)
        inner = rewrite_nodes(body, rule, inside)
        return node if inner is node.body else replace(node, body=inner)

    return rewrite_nest(nest, rule) if arrays.large else nest


# -- rows that several passes read


@dataclass(frozen=True, slots=True)
class _Pass:
    """A read in a vector loop that goes along memory; `child`: the number of the node in the body of the loop over rows."""

    child: int
    inner: tuple[Loop, ...]
    read: Read

    @property
    def vector(self) -> Loop:
        return self.inner[-1]

    @property
    def row(self) -> Read:
        """What is read, with the loops of the row called by their numbers."""
        names = {n.var: Index(f"·{k}") for k, n in enumerate(self.inner)}
        return replace(self.read, subscripts=tuple(substitute(s, names) for s in self.read.subscripts))

    def bytes(self, arrays: Arrays) -> Expr:
        """Of the row that it reads."""
        return _product((n.upper - n.lower for n in self.inner), arrays.buffers[self.read.tensor].dtype.itemsize)


def _rows(loop: Loop, scope: Scope, arrays: Arrays) -> dict[int, Node]:
    """The passes that request rows, by the `id` of what they replace."""
    passes: dict[str, list[_Pass]] = {}
    for child, node in enumerate(loop.body):
        for found in _passes(child, node, arrays):
            passes.setdefault(found.read.tensor, []).append(found)
    new: dict[int, Node] = {}
    for mine in passes.values():
        pair = _whole_and_last(loop, mine, arrays)
        if pair is None:
            continue
        vector = pair[1].vector
        part = made = loop.body[pair[1].child]
        for condition, requests in reversed(_ways(*pair, loop, scope, arrays)):
            (asking,) = replace_nodes((part,), {id(vector): replace(vector, body=(*requests, *vector.body))})
            made = asking if condition is None else If(condition, (asking,), (made,))
        new[id(part)] = made
    return new


def _passes(child: int, node: Node, arrays: Arrays) -> Iterator[_Pass]:
    for read, _, scope in reads_of_stores((node,)):
        inner, buffer = scope.loops, arrays.large.get(read.tensor)
        is_plain = len(inner) == len(scope.path) and {loop.kind for loop in inner} <= {"serial", "vector"}
        if buffer is not None and is_plain and inner and inner[-1].kind == "vector" and _is_along(read, inner[-1], arrays):
            yield _Pass(child, inner, read)


def _whole_and_last(loop: Loop, passes: list[_Pass], arrays: Arrays) -> tuple[_Pass, _Pass] | None:
    """Of several passes over one row, which goes on with `loop`, the first that writes no array, and the one to request rows:
    the last that writes none or, where no later one is such, the last that streams.  None where there is none.

    What a pass writes keeps memory busy.  A pass that streams is taken apart at cache lines; one that writes nothing tells how
    long the row is."""
    row = passes[0].row
    if any(p.row != row for p in passes) or loop.var not in index_names(*row.subscripts):
        return None
    idle = [p for p in passes if not any(_writes(n, p.vector, arrays) for n in p.vector.body)]
    later = [p for p in idle if p.child != passes[0].child]
    later = later or [p for p in passes if p.child != passes[0].child and _is_streaming(p.vector)]
    if not idle or not later:
        return None
    whole, last = idle[0], later[-1]
    size = constant_of(whole.bytes(arrays))
    if size is None:
        return whole, last  # for any size: rows that are too short lose little by it, and few are too long
    step = stride_of(last.read, arrays.buffers[last.read.tensor], loop.var)
    is_next = step is None or abs(step * loop.step) >= size
    return (
        (whole, last)
        if is_next and arrays.target.prefetchers.least_row <= size and arrays.target.fits(size, Level.L2, Share.QUARTER)
        else None
    )


def _writes(node: Node, vector: Loop, arrays: Arrays) -> bool:
    """Whether `node` writes a row of an array."""
    if not isinstance(node, (Store, Update)):
        return False
    return arrays.buffers[node.buffer].space == "argument" and moves(node, vector.var)


def _is_streaming(loop: Loop) -> bool:
    return any(isinstance(n, Store) and n.streamed for n in walk_nodes(loop.body))


def _ways(whole: _Pass, last: _Pass, loop: Loop, scope: Scope, arrays: Arrays) -> list[tuple[Expr | None, list[Prefetch | If]]]:
    """What the last pass requests where a condition on sizes holds, and none before it does; nothing where none does.

    Rows come to the second-level cache, several ahead where they are short, since the first one waits for few lines at a time;
    short ones come to the first one as well, one row ahead, where the pass takes long or streams.  A pass of little arithmetic
    is soon over: it requests short rows of arrays that the last-level cache holds."""
    target, buffer = arrays.target, arrays.buffers[last.read.tensor]
    length, total = whole.bytes(arrays), _product(buffer.shape, buffer.dtype.itemsize)
    calls = {e.op for n in last.vector.body for own in node_expressions(n) for e in walk(own) if isinstance(e, Call)}
    is_long, row = not calls.isdisjoint(FUNCTION_COSTS), constant_of(length)
    along, near_row = scope.loops_in_order, target.room(Level.L1, Share.EIGHTH)

    def ahead(distance: int | Expr, level: CacheLevel) -> Prefetch | If:
        return request(Ahead(last.read, along, distance, buffer.dtype.itemsize, level), arrays)

    distance: int | Expr = 1
    if row is not None:
        distance = max(1, target.prefetchers.row_distance // row)
    elif not index_names(length) and len(along) == 1:
        distance = target.prefetchers.row_distance // maximum(minimum(length, target.prefetchers.row_distance), 1)
    near, far = [ahead(1, 1)], [ahead(distance, 2)]
    twice = [*far, *near]
    if index_names(length):
        return [(None, far)] if is_long else []
    is_short = [
        ge(length, target.prefetchers.least_row),
        le(length, target.room(Level.L1, Share.MOST)),
        ge(total, target.l2 + 1),
    ]
    ways: list[tuple[Expr | None, list[Prefetch | If]]] = []
    if not is_long or constant_of(total) is not None:
        ways.append((all_hold([*is_short, le(total, target.room(Level.L3, Share.QUARTER))]), near))
    if is_long:
        ways += [(le(length, near_row), twice), (None, far)]
    else:
        is_streaming = _is_streaming(loop) and (row is None or row <= near_row)
        ways.append((all_hold([*is_short, le(total, target.room(Level.L3, Share.HALF))]), twice if is_streaming else far))
    return _decide(ways)


def _decide(ways: list[tuple[Expr | None, list[Prefetch | If]]]) -> list[tuple[Expr | None, list[Prefetch | If]]]:
    """The ways whose conditions are not known to fail, up to the first that is known to hold."""
    result = []
    for condition, requests in ways:
        known = None if condition is None else simplify(condition)
        if isinstance(known, Const):
            if not known.value:
                continue
            condition = None
        result.append((condition, requests))
        if condition is None:
            break
    return result


def _product(extents: Iterable[Expr], size: int) -> Expr:
    total: Expr = int_const(size)
    for extent in extents:
        total = total * extent
    return simplify(total)


# -- copies that tiles read


@dataclass(frozen=True, slots=True)
class _Copied:
    """A read of a large array, what it is stored to, and the loops around inside of the copy; of versions of a tile only the
    first `is_full`."""

    read: Read
    store: Store
    inner: tuple[Loop, ...]
    is_full: bool


def _copies(loop: Loop, scope: Scope, arrays: Arrays) -> dict[int, Node]:
    """The loops over tiles that request what is copied next in front of them, by the `id` of what they replace."""
    new: dict[int, Node] = {}
    for n, node in enumerate(loop.body):
        copied = list(_copied(node, arrays))
        for tiles in loop.body[n + 1 :] if copied else ():
            if not isinstance(tiles, Loop) or tiles.kind != "serial" or tiles.registers:
                continue
            asking = _panel(new.get(id(tiles), tiles), copied, loop, scope, arrays)
            if tiles is loop.body[n + 1]:
                asking = asking or _window(tiles, node, copied, scope, arrays)
            if asking is not None:
                new[id(tiles)] = asking
                break
    return new


def _copied(node: Node, arrays: Arrays) -> Iterator[_Copied]:
    """What a nest, without requests of its own, reads of large arrays to store it in buffers of its own."""
    requested = {n.buffer for n in walk_nodes((node,)) if isinstance(n, Prefetch)}
    for read, store, scope in reads_of_stores((node,)):
        is_own = isinstance(store, Store) and arrays.buffers[store.buffer].space != "argument"
        if isinstance(store, Store) and is_own and read.tensor in arrays.large.keys() - requested:
            yield _Copied(read, store, scope.loops, _is_full(scope))


def _is_full(scope: Scope) -> bool:
    return all(step.outcome for step in scope.path if isinstance(step, Fact))


def _sums(body: tuple[Node, ...], buffer: str) -> Iterator[tuple[Update, tuple[Loop, ...]]]:
    """Sums over `buffer` in registers, and the loops around.  Of versions of a tile, the first."""
    for read, update, scope in reads_of_stores(body):
        if isinstance(update, Update) and read.tensor == buffer and _is_full(scope) and any(n.registers for n in scope.loops):
            yield update, scope.loops


def _panel(tiles: Node, copied: list[_Copied], loop: Loop, scope: Scope, arrays: Arrays) -> Node | None:
    """`tiles` with the steps of their sums requesting rows of the next panel, in each of the last tiles as many.

    Tiles before those request the first rows, and the last panel requests itself, again and again: that costs less than a test.
    """
    full = [c for c in copied if c.is_full]
    (panel,) = full if len(full) == 1 else (None,)
    if not isinstance(tiles, Loop) or panel is None or not isinstance(panel.store.value, Read):
        return None
    if not any(_sums((tiles,), panel.store.buffer)):
        return None
    read, source, target = panel.read, arrays.large[panel.read.tensor], arrays.target
    if not stride_of(read, source, loop.var) or (found := _rows_of_panel(panel, arrays)) is None:
        return None
    row, size = found
    n_rows, n_tiles = 1 if row is None else _trip(row) or 1, _trip(tiles)
    if (
        n_tiles is None
        or n_rows * size < target.prefetchers.least_panel
        or not target.fits(n_rows * size, Level.L2, Share.QUARTER)
    ):
        return None
    n_asking = min(n_tiles, max(1, target.room(Level.L2, Share.HALF) // max(1, _tile_bytes(tiles, panel.store.buffer, arrays))))
    at_once = math.ceil(n_rows / n_asking)
    if at_once > MOST_ROWS:
        return None
    iteration = (Index(tiles.var) - tiles.lower) // tiles.step
    asking = maximum(iteration - (n_tiles - n_asking), 0)
    along = scope.loops_in_order
    later = step_ahead(along, 1)
    if len(along) == 1:  # with others around, there is always a next one
        last = along[0].upper - along[0].step
        later = {v: minimum(e, last) for v, e in later.items()}
    first = with_values(read, {n.var: n.lower for n in panel.inner if n is not row} | later)

    def rule(node: Node, scope: Scope) -> Node | None:
        if isinstance(node, If):
            return replace(node, body=rewrite_nodes(node.body, rule))
        if not isinstance(node, Loop) or node.kind != "serial" or not node.registers:
            return None
        depth = _trip(node)
        if not any(_sums((node,), panel.store.buffer)):
            return None
        if depth is None or any(isinstance(n, Loop) and not n.is_expanded for n in node.body):
            return node
        step = math.ceil(size / source.dtype.itemsize / depth)
        if step * source.dtype.itemsize > target.cache_line:
            return node
        requests = []
        for r in range(at_once):
            number = minimum(asking * at_once + r, n_rows - 1)
            values = {} if row is None else {row.var: simplify(row.lower + number * row.step)}
            there = Ahead(with_values(first, values), (), 0, 1, beyond=(Index(node.var) - node.lower) * step)
            requests.append(request(there, arrays))
        return replace(node, body=(*requests, *node.body))

    return rewrite_inside(tiles, rule)


def _rows_of_panel(panel: _Copied, arrays: Arrays) -> tuple[Loop | None, int] | None:
    """The loop over the rows of what a panel is copied from (None: there is one row), and the bytes of a row; None where it is
    not one run of memory for each iteration of a loop."""
    source = arrays.large[panel.read.tensor]
    moved = [(stride_of(panel.read, source, n.var), _trip(n), n) for n in panel.inner]
    if not moved or any(motion is None or motion < 0 or trip is None for motion, trip, _ in moved):
        return None
    distances = (((motion or 0) * n.step, trip or 0, n) for motion, trip, n in moved)
    *inner, (motion, trip, row) = sorted(distances, key=lambda found: found[0])
    size = source.dtype.itemsize
    for distance, n_steps, _ in inner:
        if distance > size:
            return None
        size += distance * (n_steps - 1)
    if motion > size or motion == size > source.dtype.itemsize:
        return row, size
    return None, size + motion * (trip - 1)


def _tile_bytes(tiles: Loop, panel: str, arrays: Arrays) -> int:
    """Bytes that one of `tiles` reads beside the panel."""
    total = 0
    for update, around in _sums((tiles,), panel):
        for read in dict.fromkeys(reads(update.value)):
            moved = index_names(*read.subscripts)
            if read.tensor != panel and tiles.var in moved:
                trips = (_trip(n) or 1 for n in around[1:] if n.var in moved)
                total += arrays.buffers[read.tensor].dtype.itemsize * math.prod(trips)
    return total


def _trip(loop: Loop) -> int | None:
    """Iterations, at most, where that is known."""
    if loop.max_trip is not None:
        return loop.max_trip
    length = known_length(loop)
    return None if length is None else -(-length // loop.step)


def _window(tiles: Loop, rows: Node, copied: list[_Copied], scope: Scope, arrays: Arrays) -> Node | None:
    """`tiles` of sums, each requesting its share of the rows that the next iteration of a loop around is the first to read.

    They come to the second-level cache, where there is room for them and for the rows of this iteration."""
    found = [c for c in copied if c.inner[-1].kind == "vector" and _is_along(c.read, c.inner[-1], arrays)]
    is_summed = any(isinstance(n, Loop) and n.registers for n in walk_nodes(tiles.body))
    if not found or not is_summed or not isinstance(rows, Loop) or rows.kind != "serial":
        return None
    vector, source, target = found[0].inner[-1], arrays.large[found[0].read.tensor], arrays.target
    begins = {rows.lower, tiles.lower, *(c.inner[-1].lower for c in found)}
    if begins != {int_const(0)} or any(c.inner[-1].upper != vector.upper for c in found):
        return None
    new = _new_reads([c.read for c in found], scope.loops)
    if not new or mentions(vector.upper, rows.var) or any(c.read.tensor != source.name for c in found):
        return None
    place, column = f"{rows.var}.next", f"{vector.var}.next"
    size = source.dtype.itemsize
    moving = max((n for n, loop in enumerate(scope.loops) if known_length(loop) != 1), default=0)
    later = step_ahead(scope.loops[moving : moving + 1], 1)
    for single in scope.loops[moving + 1 :]:
        later[single.var] = simplify(substitute(single.lower, later))
    requests = []
    for read in new:
        names = {c.inner[-1].var: Index(column) for c in found if c.read == read}
        there = with_values(read, later | {rows.var: Index(place), **names})
        requests.append(request(Ahead(there, (), 0, target.cache_line, 2), arrays))
    along = Loop(column, int_const(0), vector.upper, target.cache_line // size, "serial", tuple(requests))
    first, last = (e * rows.upper // tiles.upper for e in (Index(tiles.var), Index(tiles.var) + tiles.step))
    share = Loop(place, first, minimum(last, rows.upper), 1, "serial", (along,))
    together = simplify(rows.upper * vector.upper * (len(new) * size))
    tests = [le(together, target.room(Level.L2, Share.QUARTER)), is_far(source, target)]
    asking = If(all_hold([t for t in tests if t is not None]), (share,))
    return replace(tiles, body=(asking, *tiles.body))


def _is_along(read: Read, loop: Loop, arrays: Arrays) -> bool:
    """Whether `read` goes along memory with `loop`."""
    buffer = arrays.buffers[read.tensor]
    return stride_of(read, buffer, loop.var) == buffer.dtype.itemsize


def _new_reads(found: list[Read], around: tuple[Loop, ...]) -> list[Read]:
    """Of a window that moves on along some loop the reads that none is of the iteration before; nothing of other reads."""
    known = {with_values(read, {}) for read in found}
    for loop in reversed(around):
        moved = {loop.var: Index(loop.var) + loop.step}
        new = [read for read in known if with_values(read, moved) not in known]
        if 0 < len(new) < len(known):
            return sorted(new, key=repr)
    return []
