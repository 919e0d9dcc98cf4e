"""Stage blocks of transposing copies near by, and stream them to long results from there, wherever rows begin.

Before: ``for a < 16 by 4 { for a' < 4 { for e < 48 { vector c < 16 { Y[e, a + a', c] = X[a + a', c, e] } } } }``.
After: ``for a < 16 by 4 { for a' < 4 { for e < 48 { vector c < 16 { B[e, 16 + 16*a' + c] = … } } } for e < 48 {
vector n < 64 { stream Y[e, 16*a + n - off] = B[e, 16 + n - off] } vector n < 16 { B[e, n] = B[e, 64 + n] } } }``.

A copy that lies across memory writes vectors far apart.  Where rows of the result do not begin at cache lines, or are short,
hardly a line is written as a whole, so none can go to memory directly.  From a buffer, in a cache and private to a thread, the
runs of a block are written in the order of memory (`staged_rows`).  A block that writes whole lines of rows with which the next
one goes on leaves it the part of the last line; of other blocks runs are long enough for their ends to be written in the
ordinary way.  While lines are written, those of the next block are asked for.  Dimensions of the result are merged for it.

Where rows do begin at lines, blocks go through `B` as well: memory waits less for vectors that follow each other.  Not where
rows that are read meet in few sets of a cache, if vectors are or become whole lines.  Figures: docs/decisions/0420.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from polyc.code_limits import MAX_STRIDE
from polyc.codegen.nests.alignment import is_whole_lines
from polyc.codegen.nests.coalesce import is_dense, merge_dimensions
from polyc.codegen.nests.copies import (
    Block,
    copy_nest,
    find_block,
    find_run,
    lies_across,
    number_iterations,
    strides_of,
    trip_count,
)
from polyc.codegen.nests.prefetch import Ahead, Arrays, arrays_of, request_part
from polyc.codegen.nests.staged_rows import ROW, Ask, make_buffer, write_rows
from polyc.codegen.nests.streams import find_long
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Call, Const, Expr, Index, Size, eq, int_const, lt, mentions, reads
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, make_nest, rewrite_nodes
from polyc.machine import Level, Machine, Share
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace

ENOUGH = 16384
"""Bytes of such a run from which on longer ones gain nothing."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """A block, the serial loops around it in whose order its iterations are the next ones (outermost first), the loops of its
    copy `outside` of it, and the `chain`, a loop whose blocks go on with the rows of the one before: whole ones, and the last
    one, `rest`, if that is shorter."""

    node: Loop
    block: Block
    around: tuple[Loop, ...]
    outside: tuple[Loop, ...] = ()
    chain: Loop | None = None
    rest: Block | None = None


def stage_copies(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest with blocks of long results put together first."""
    for name, long in find_long(nest, target).items():
        if long.is_written_once and not long.tests:  # at any sizes
            nest = _stage_result(name, nest, target) or nest
    return nest


def _stage_result(name: str, nest: LoopNest, target: Machine) -> LoopNest | None:
    arrays, stage = arrays_of(nest, target), f"{name}.lines"
    result, found = arrays.buffers[name], list[_Staged]()

    def put_together(node: Node, scope: Scope) -> Node | Body | None:
        if not isinstance(node, Loop):
            return None
        staged, copy = _find_chain(node, scope, name, arrays), copy_nest(node, arrays.buffers)
        if staged is None and copy is not None and copy[1].buffer == name:
            if any(_find_chain(n, scope, name, arrays) for n in copy[0]):
                return None  # inside of this loop
            staged = _find_alone(*copy, scope, arrays)
        if staged is None:
            return node if copy is not None else None
        found.append(staged)
        return _stage(staged, stage, arrays)

    body = rewrite_nodes(nest.body, put_together)
    first = min((_first_dimension(s) for s in found), default=0)
    if not found or not all(is_dense(result, d) for d in range(first, len(result.shape) - 1)):
        return None
    n_rows, run = max(s.block.n_rows for s in found), max(s.block.run for s in found)
    buffer = make_buffer(stage, result, n_rows, run + 2 * (LINE // result.dtype.itemsize))
    offsets = tuple(dict.fromkeys((*nest.offsets, name)))
    return merge_dimensions(replace(nest, body=body, buffers=(*nest.buffers, buffer), offsets=offsets), name, first)


# -- which blocks


def _find_chain(loop: Loop, scope: Scope, name: str, arrays: Arrays) -> _Staged | None:
    """The blocks of a loop if they go on with each other's rows, and are whole lines."""
    length = known_length(loop)
    if loop.kind != "serial" or not isinstance(loop.lower, Const) or not length or length < 0 or len(loop.body) != 1:
        return None
    last = int(loop.lower.value) + (length - 1) // loop.step * loop.step
    node, other = loop.body[0], None
    match node:
        case If(Call("lt", (Index(variable), limit)), (part,), (shorter,)) if variable == loop.var and limit == int_const(last):
            node, other = part, shorter
    whole = _find_turned(node, name, arrays.buffers)
    if whole is None or length <= loop.step or whole.row_bytes % LINE or whole.n_bytes > arrays.target.l1:
        return None
    stride = stride_of(whole.store, whole.result, loop.var)
    if stride is None or stride * loop.step != whole.row_bytes:
        return None
    found = _Staged(loop, whole, scope.inside(loop).loops_in_order, (), loop)
    if other is None:
        return None if length % loop.step else found
    rest = _find_turned(other, name, arrays.buffers)
    if rest is None or rest.run > whole.run or (rest.n_rows, _distances(rest)) != (whole.n_rows, _distances(whole)):
        return None
    return replace(found, rest=rest)


def _distances(block: Block) -> list[tuple[int, int | None]]:
    """Of each loop over rows: by how many of them it moves, and by how many bytes."""
    return [(multiple, block.strides[v]) for v, multiple in block.rows.items()]


def _find_turned(node: Node, name: str, buffers: Mapping[str, Buffer]) -> Block | None:
    """What a transposing copy writes to the result `name`."""
    nest = copy_nest(node, buffers)
    if nest is None or nest[1].buffer != name or _find_crossing(*nest, buffers) is None:
        return None
    return find_block(*nest, buffers)


def _find_crossing(loops: list[Loop], store: Store, buffers: Mapping[str, Buffer]) -> int | None:
    """The position of the outer one of two loops of which one goes along the memory of the store, and the other one along that
    of a read which the first lies across; None where there are none, or vectors are no parts of lines."""
    result = buffers[store.buffer]
    size = result.dtype.itemsize
    strides = strides_of(store, result, loops)
    at_once = next((n.lanes * size for n in loops if n.kind == "vector"), 0)
    if at_once not in (16, 32, LINE):
        return None
    if any(strides[n.var] == size and trip_count(n) <= MAX_STRIDE for n in loops):
        return None  # vectors are interleaved, and written in order
    plain = [n for n in loops if n.step == 1]
    pairs = ((n, m) for n in plain if strides[n.var] == size for m in plain if m is not n)
    found = (
        min(loops.index(along), loops.index(other))
        for along, other in pairs
        if any(lies_across(r, buffers[r.tensor], other.var, along.var) for r in reads(store.value))
    )
    return next(found, None)


def _find_alone(loops: list[Loop], store: Store, scope: Scope, arrays: Arrays) -> _Staged | None:
    """The innermost loops of a copy that write long runs, not in the order of memory; None where there are none."""
    buffers, target = arrays.buffers, arrays.target
    start = _find_crossing(loops, store, buffers)
    block = None if start is None else find_block(loops[start:], store, buffers)
    if start is None or block is None:
        return None
    most = target.room(Level.L2, Share.QUARTER)
    while start and block.row_bytes < ENOUGH:
        wider = find_block(loops[start - 1 :], store, buffers)
        if wider is None or wider.run <= block.run or wider.n_bytes > most:
            break
        start, block = start - 1, wider
    is_turned = any(n.kind == "vector" for n in block.loops) and len(block.places) >= 2
    if not is_turned or block.row_bytes < target.transposes.whole or not target.fits(block.n_bytes, Level.L2, Share.QUARTER):
        return None
    outside = tuple(loops[:start])
    return _Staged(loops[0], block, Scope((*scope.path, *outside)).loops_in_order, outside)


# -- making


def _stage(staged: _Staged, stage: str, arrays: Arrays) -> Body:
    """The nest by way of the buffer `stage`; with rows of whole lines perhaps only if the array begins at none."""
    block, chain, rest = staged.block, staged.chain, staged.rest
    ask = _ask_ahead(block, staged.around, arrays)
    if chain is None:
        body = make_nest(staged.outside, write_rows(block, stage, ask, True, True))
    else:
        assert isinstance(chain.lower, Const)
        last = int(chain.lower.value) + ((known_length(chain) or 0) - 1) // chain.step * chain.step
        is_first, is_last = (eq(Index(chain.var), n) for n in (int(chain.lower.value), last))
        body = write_rows(block, stage, ask, is_first, is_last if rest is None else False, _successors(staged))
        if rest is not None:
            body = (If(lt(Index(chain.var), last), body, write_rows(rest, stage, ask, False, True)),)
        body = (replace(chain, body=body),)
    begins_at_line = eq(Size(f"{block.result.name}.offset") % LINE, 0)
    return (If(begins_at_line, (staged.node,), body),) if _may_stay(block, arrays) else body


def _ask_ahead(block: Block, around: tuple[Loop, ...], arrays: Arrays) -> Ask:
    """What requests parts of what the block will read in a later iteration of `around`, in front of lines that are written.

    Each line is requested twice, since some requests are lost; where there are more than are written once, by its last element:
    where a piece begins off a line, the first one came with what is in front of it."""
    ahead, target = next(_next_blocks(block, around, arrays), None), arrays.target

    def ask(number: Expr, n_parts: int, n_written: int) -> list[Body]:
        share = 0 if ahead is None else math.ceil(ahead.n_rows / n_parts)
        if ahead is None or share > target.prefetchers.rows_at_once:
            return [()] * n_written
        itemsize = arrays.buffers[ahead.read.tensor].dtype.itemsize
        pieces = [p for k in range(share) for p in request_part(ahead, (number * share + k, n_parts * share), ROW, arrays)]
        lines: list[Body] = []
        for piece in pieces:
            assert isinstance(piece, Prefetch)
            (*outer, last), n_lines = piece.subscripts, max(1, piece.size // target.cache_line)
            is_many = share * n_lines > n_written
            for begin, end in pairwise([*range(0, n_lines * target.cache_line, target.cache_line), piece.size]):
                begin = end - itemsize if is_many else begin
                line = replace(piece, subscripts=(*outer, simplify(last + begin // itemsize)), size=end - begin)
                lines.append((line,) if is_many else (line, line))
        ends = [len(lines) * n // n_written for n in range(n_written + 1)]
        return [tuple(p for line in lines[a:b] for p in line) for a, b in pairwise(ends)]

    return ask


def _next_blocks(block: Block, around: tuple[Loop, ...], arrays: Arrays) -> Iterator[Ahead]:
    """The rows of arrays that lie across the result, in a later iteration of `around`."""
    along = [v for v, stride in block.strides.items() if stride == block.result.dtype.itemsize]
    for read in dict.fromkeys(reads(block.store.value) if around else ()):
        source = arrays.large.get(read.tensor)
        strides = {} if source is None else strides_of(read, source, block.loops)
        if source is None or any(s is None or s < 0 for s in strides.values()):
            continue
        size = source.dtype.itemsize
        run, places = find_run(block.loops, strides, size)
        if places and not all(strides[v] in (0, size) for v in along):
            n_rows, rows = number_iterations(n for n in block.loops if n.var not in places and strides[n.var])
            begin = with_values(read, {n.var: int_const(0) for n in block.loops if n.var not in rows})
            distance = max(1, arrays.target.prefetchers.row_distance // (run * n_rows * size))
            yield Ahead(begin, around, distance, run * size, 2, rows=rows, n_rows=n_rows)


def _may_stay(block: Block, arrays: Arrays) -> bool:
    """Whether a copy stays as it is where the result begins at a line: its rows are whole lines, its vectors are such or
    `double_buffer` makes longer runs of them, since parts of lines that go to memory by turns wait for each other; and rows of
    what is read are gone from a cache before the next vectors of a block come to them, as what is asked for early would be."""
    vector, size = block.vector, block.result.dtype.itemsize
    is_in_order = vector.lanes * size >= LINE or trip_count(vector) * size > LINE
    apart = [stride_of(read, arrays.buffers[read.tensor], vector.var) for read in reads(block.store.value)]
    do_meet = any(m is None or arrays.target.conflicts(trip_count(vector), m, soon_used=True) for m in apart)
    return is_in_order and do_meet and all(map(is_whole_lines, block.result.strides[:-1]))


def _successors(staged: _Staged) -> int:
    """How many rows of a block follow each other in memory; 1 where none does."""
    block, chain = staged.block, staged.chain
    length = 0 if chain is None else (known_length(chain) or 0) // chain.step * block.row_bytes
    if staged.rest is not None or (1, length) not in _distances(block):
        return 1
    return next(trip_count(n) for n in block.loops if block.rows.get(n.var) == 1)


def _first_dimension(staged: _Staged) -> int:
    """The first dimension of the result that moves along memory that is written without a gap."""
    block = staged.block
    together = [v for v, multiple in block.rows.items() if multiple == 1 and _successors(staged) > 1]
    moving: Iterable[str] = (*([] if staged.chain is None else [staged.chain.var]), *block.places, *together)
    dimensions = [d for d, s in enumerate(block.store.subscripts) if mentions(s, *moving)]
    return min(dimensions, default=len(block.result.shape) - 1)
