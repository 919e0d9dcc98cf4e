"""Prefetch what the next panel is copied from, while this panel is multiplied.

Before: ``for j by 48 { for k { P[k, j'] = B[j + j', k] } for i by 8 { for k { C += A * P } } }``.
After: ``for j by 48 { … for i by 8 { for k { prefetch B[j + 48 + i / 8, k]; C += A * P } } }``.

A copy waits for memory, and the arithmetic behind it leaves memory idle: the time is the sum of both.  The rows that the next
copy reads are asked for by the steps of the sums, an element in each: asked for all at once between two tiles, requests wait
for each other (AMD, Zen 4, 512x768x768: copying 5.6 % of the time, 3.7 and 1.6 for asking; asked for in steps 2.3).  The last
tiles do so, as many as read no more than the second-level cache keeps beside.  Prefetching an address never faults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from polyc.codegen.nests.copies import copy_nest
from polyc.codegen.nests.prefetch import large_arrays, step_ahead
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Expr, Index, Read, index_names, int_const, maximum, minimum, reads
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Fact, Scope, nodes_in, rewrite_inside, rewrite_nest, rewrite_nodes
from polyc.records import dataclass, replace
from polyc.target import Target

MOST_ROWS = 4
"""Rows that are asked for at the same time, one more instruction for each in a step of a sum."""

PART_FOR_PANEL, PART_FOR_TILES = 4, 2
"""Parts of the second-level cache that the rows to come may take, and what the tiles read that ask for them."""

LEAST_BYTES = 4096
"""Bytes of a panel below which asking costs as much as waiting."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What a panel is copied from: `n_rows` runs of `size` bytes from `read` on, the rows along `across`."""

    panel: str
    read: Read
    across: Loop | None
    n_rows: int
    size: int
    dimension: int
    """The one along memory."""


def prefetch_panels(nest: LoopNest, target: Target) -> LoopNest:
    """Ask early for what panels are copied from, of arrays beyond the second-level cache."""
    kept = large_arrays(nest, target)
    buffers = {b.name: b for b in nest.buffers}

    def ask(node: Node, scope: Scope) -> Node | None:
        if not isinstance(node, Loop) or node.kind not in ("serial", "parallel") or node.registers:
            return node if isinstance(node, Loop) else None
        scope = scope.inside(node)
        made = list(rewrite_nodes(node.body, ask, scope))
        for n, copy in enumerate(node.body):
            source = _find_source(copy, node, kept, buffers)
            users = [m for m in range(n + 1, len(made)) if source is not None and _multiplies(made[m], source.panel)]
            if source is not None and users:
                made[users[0]] = _ask(made[users[0]], source, scope.loops_in_order, buffers, target)
        return replace(node, body=tuple(made))

    return rewrite_nest(nest, ask) if kept else nest


def _find_source(copy: Node, loop: Loop, kept: dict[str, Buffer], buffers: dict[str, Buffer]) -> _Source | None:
    """What a copy in `loop` reads of a large array, where that goes on with the loop and is one run for each row."""
    found = copy_nest(copy.body[0] if isinstance(copy, If) and len(copy.body) == 1 else copy, buffers)
    if found is None or not isinstance(found[1].value, Read) or buffers[found[1].buffer].space == "argument":
        return None
    inside, store = found
    read = found[1].value
    buffer = kept.get(read.tensor)
    if buffer is None or not stride_of(read, buffer, loop.var):
        return None
    itemsize = buffer.dtype.itemsize
    along = [d for d, stride in enumerate(buffer.strides) if stride == int_const(itemsize)]
    size, across = itemsize, []
    moved = [(stride_of(read, buffer, n.var), n) for n in inside]
    for place, (motion, n) in enumerate(sorted(((m or 0) * n.step, k) for k, (m, n) in enumerate(moved))):
        trip = _trip(inside[n])
        if moved[n][0] is None or motion < 0 or trip is None:
            return None
        if motion > size or (place == len(moved) - 1 and motion >= size > itemsize):
            across.append((inside[n], trip))
        else:
            size += motion * (trip - 1)
    if len(across) > 1 or len(along) != 1:
        return None
    row, n_rows = across[0] if across else (None, 1)
    first: dict[str, Expr] = {n.var: n.lower for n in inside if n is not row}
    return _Source(store.buffer, with_values(read, first), row, n_rows, size, along[0])


def _multiplies(node: Node, panel: str) -> bool:
    """Whether `node` is a loop over tiles that are summed up in registers from `panel`."""
    return isinstance(node, Loop) and node.kind == "serial" and not node.registers and any(_updates((node,), panel))


def _updates(nodes: Body, panel: str) -> Iterator[tuple[Update, tuple[Loop, ...]]]:
    """Sums over `panel` in registers, and the loops around."""
    for node, scope in nodes_in(nodes):
        is_full = all(step.outcome for step in scope.path if isinstance(step, Fact))  # of versions of a tile, the first
        is_held = is_full and any(n.registers for n in scope.loops)
        if isinstance(node, Update) and is_held and any(r.tensor == panel for r in reads(node.value)):
            yield node, scope.loops


def _ask(tiles: Node, source: _Source, around: tuple[Loop, ...], buffers: dict[str, Buffer], target: Target) -> Node:
    """`tiles` with their sums asking for what the next panel is copied from, some rows in each of the last tiles.

    Those before ask for the first rows, and the last panel for its own, again and again: that costs less than a test."""
    assert isinstance(tiles, Loop)
    n_tiles, total = _trip(tiles), source.n_rows * source.size
    if n_tiles is None or not LEAST_BYTES <= total <= target.l2 // PART_FOR_PANEL:
        return tiles
    n_asking = max(1, min(n_tiles, target.l2 // PART_FOR_TILES // max(1, _tile_bytes(tiles, source.panel, buffers))))
    n_rows = math.ceil(source.n_rows / n_asking)
    if n_rows > MOST_ROWS:
        return tiles
    iteration = (Index(tiles.var) - tiles.lower) // tiles.step
    asking = maximum(iteration - (n_tiles - n_asking), 0)
    later = step_ahead(around, 1)
    if len(around) == 1:  # with others around, there is always a next one
        last = around[0].upper - around[0].step
        later = {v: minimum(e, last) for v, e in later.items()}
    itemsize = buffers[source.read.tensor].dtype.itemsize

    def visit(node: Node, scope: Scope) -> Node | None:
        match node:
            case If():
                return replace(node, body=rewrite_nodes(node.body, visit))
            case Loop() if node.registers and node.kind == "serial" and any(_updates((node,), source.panel)):
                return with_requests(node)
        return None

    def with_requests(loop: Loop) -> Node:
        depth = _trip(loop)
        if depth is None or any(isinstance(n, Loop) and not n.is_expanded for n in loop.body):
            return loop
        step = math.ceil(source.size / itemsize / depth)
        if step * itemsize > target.cache_line:
            return loop
        asked = []
        for r in range(n_rows):
            row = minimum(asking * n_rows + r, source.n_rows - 1)
            subscripts = list(with_values(with_values(source.read, later), _row(source, row)).subscripts)
            along = (Index(loop.var) - loop.lower) * step
            subscripts[source.dimension] = simplify(subscripts[source.dimension] + along)
            asked.append(Prefetch(source.read.tensor, tuple(subscripts), 1))
        return replace(loop, body=(*asked, *loop.body))

    return rewrite_inside(tiles, visit)


def _row(source: _Source, number: Expr) -> dict[str, Expr]:
    if source.across is None:
        return {}
    step = number * source.across.step
    return {source.across.var: simplify(source.across.lower + step)}


def _tile_bytes(tiles: Loop, panel: str, buffers: dict[str, Buffer]) -> int:
    """Bytes that one of `tiles` reads beside the panel."""
    total = 0
    for update, around in _updates((tiles,), panel):
        inner = around[1:]
        for read in dict.fromkeys(reads(update.value)):
            moved = index_names(*read.subscripts)
            if read.tensor != panel and tiles.var in moved:
                total += buffers[read.tensor].dtype.itemsize * math.prod(_trip(n) or 1 for n in inner if n.var in moved)
    return total


def _trip(loop: Loop) -> int | None:
    """Iterations, at most, where that is known."""
    if loop.max_trip is not None:
        return loop.max_trip
    length = known_length(loop)
    return None if length is None else -(-length // loop.step)
