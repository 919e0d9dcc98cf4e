"""Stream the long rows of transposing copies wherever they begin: parts of lines are carried from block to block.

Before: ``for a < 16 by 4 { for a' < 4 { for e < 48 { vector c < 16 { Y[e, a + a', c] = X[a + a', c, e] } } } }``.
After: ``for a < 16 by 4 { for a' < 4 { for e < 48 { vector c < 16 { B[e, 16 + 16*a' + c] = … } } } for e < 48 {
vector n < 64 { stream Y[e, 16*a + n - off] = B[e, 16 + n - off] } vector n < 16 { B[e, n] = B[e, 64 + n] } } }``.

A block writes a few lines of each of many rows, and the next block goes on with the same rows.  Where rows do not begin at
lines (`off` elements behind one), the last line of each stays incomplete: its part waits in `B` for the next block.  The first
block of a row begins it in the ordinary way, and the last one ends it so.

Where rows do begin at lines, blocks go through `B` as well: memory waits less for vectors that follow each other than for those
of a block as they are turned (AMD, Zen 4, a busy machine: `abcde → dbeac` 3.7 → 3.1 ms, 32×64×56×56 to channels last 1.40 →
1.19).  Not where rows that are read meet in few sets of a cache (64×48×64×64 reversed: 6.6 ms as they are, 9.1 through `B`),
if vectors are whole lines or become such: in halves of lines by turns, 16×24×16×40×48 reversed took 21 ms with AVX2, now 7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from polyc.codegen.emission.lines import do_meet
from polyc.codegen.nests.carried_rows import ROW, Block, carry_block, cut_row, end_rows
from polyc.codegen.nests.coalesce import merge_dimensions
from polyc.codegen.nests.copies import copy_nest
from polyc.codegen.nests.staging import (
    MOST_REQUESTS,
    ask_ahead,
    begins_at_line,
    find_crossing,
    find_run,
    first_dimension,
    is_dense,
    is_plain,
    later_loops,
    make_buffer,
    number_iterations,
    trip_count,
)
from polyc.codegen.nests.streams import find_written_once
from polyc.codegen.nests.transposes import MAX_INTERLEAVED
from polyc.ir.access import stride_of
from polyc.ir.expr import Call, Const, Expr, Index, Read, eq, int_const, lt, reads
from polyc.ir.loops import LINE, Buffer, If, Loop, Node, Prefetch
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, replace_nodes
from polyc.records import dataclass, replace
from polyc.target import Target

MOST_ROWS = 12
"""Rows that are read whose lines may meet in one set of the first-level cache where blocks go through `B` at lines, too."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """A loop whose blocks go on with the rows of the one before: whole ones, and the last one if that is shorter."""

    loop: Loop
    whole: Block
    rest: Block | None
    around: tuple[Loop, ...]
    """Serial loops around the blocks, this one the last, in whose order its iterations are the next ones."""


def carry_lines(body: Body, buffers: tuple[Buffer, ...], target: Target) -> tuple[Body, tuple[Buffer, ...], tuple[str, ...]]:
    """The nest with long results streamed by blocks that continue each other, its buffers, and the results whose offsets that
    needs."""
    used: list[str] = []
    for name in find_written_once(body, buffers, target):
        by_name = {b.name: b for b in buffers}
        buffer = by_name[name]
        chains: dict[int, _Chain] = {}
        _find(body, (), name, by_name, target, chains)
        if not chains:
            continue
        first = min(first_dimension(c.whole.store, _moving(c, buffer), buffer) for c in chains.values())
        if not all(is_dense(buffer, d) for d in range(first, len(buffer.shape) - 1)):
            continue
        line = LINE // buffer.dtype.itemsize
        blocks = [c.whole for c in chains.values()]
        carry = make_buffer(f"{name}.lines", buffer, max(b.n_rows for b in blocks), max(b.run for b in blocks) + 2 * line)
        made = {key: _carry(c, by_name, carry, target) for key, c in chains.items()}
        body = replace_nodes(body, made)
        body, buffers = merge_dimensions(body, (*buffers, carry), name, first)
        used.append(name)
    return body, buffers, tuple(used)


def _find(
    body: Body,
    around: tuple[Loop, ...],
    name: str,
    buffers: Mapping[str, Buffer],
    target: Target,
    chains: dict[int, _Chain],
) -> None:
    for node in body:
        match node:
            case If():
                _find(node.body + node.orelse, around, name, buffers, target, chains)
            case Loop():
                inside = later_loops(around, node)
                chain = _find_chain(node, inside, name, buffers, target)
                if chain is None:
                    _find(node.body, inside, name, buffers, target, chains)
                else:
                    chains[id(node)] = chain


def _find_chain(
    loop: Loop, around: tuple[Loop, ...], name: str, buffers: Mapping[str, Buffer], target: Target
) -> _Chain | None:
    if loop.kind != "serial" or not isinstance(loop.lower, Const) or not isinstance(loop.upper, Const) or len(loop.body) != 1:
        return None
    low, high = int(loop.lower.value), int(loop.upper.value)
    last = low + (high - low - 1) // loop.step * loop.step
    node, other = loop.body[0], None
    match node:
        case If(Call("lt", (Index(variable), limit)), (part,), (shorter,)) if variable == loop.var and limit == int_const(last):
            node, other = part, shorter
    whole = _find_block(loop, node, name, buffers, target)
    if whole is None or last == low:
        return None
    buffer = buffers[name]
    size = buffer.dtype.itemsize
    if stride_of(Read(name, whole.store.subscripts), buffer, loop.var) != whole.run * size // loop.step:
        return None
    if whole.run * size % (loop.step * size) or whole.run * size % LINE:
        return None
    if other is None:
        return _Chain(loop, whole, None, around) if (high - low) % loop.step == 0 else None
    rest = _find_block(loop, other, name, buffers, target)
    if rest is None or rest.run > whole.run or (rest.n_rows, rest.distances) != (whole.n_rows, whole.distances):
        return None
    return _Chain(loop, whole, rest, around)


def _find_block(chain: Loop, node: Node, name: str, buffers: Mapping[str, Buffer], target: Target) -> Block | None:
    nest = copy_nest(node, buffers)
    if nest is None or nest[1].buffer != name:
        return None
    loops, store = nest
    buffer, size = buffers[name], buffers[name].dtype.itemsize
    motions = {n.var: stride_of(Read(name, store.subscripts), buffer, n.var) for n in loops}
    trips = {n.var: trip_count(n) for n in loops}
    vector = next((n for n in loops if n.kind == "vector"), None)
    if vector is None or any(not is_plain(n, motions, trips) for n in loops):
        return None
    bytes_at_once = vector.lanes * size
    if bytes_at_once & (bytes_at_once - 1) or not 16 <= bytes_at_once <= LINE:
        return None
    if find_crossing(loops, store, motions, buffers) is None:
        return None
    if any(m == size and trips[v] <= MAX_INTERLEAVED for v, m in motions.items()):
        return None  # vectors are interleaved, and written in order
    run, places = find_run(loops, motions, trips, size)
    rows, n_rows = number_iterations([n for n in loops if n.var not in places], trips)
    if math.prod(trips.values()) * size > target.l1:
        return None
    distances = tuple((multiple, motions[v] or 0) for v, multiple in rows.items())
    return Block(tuple(loops), store, run, places, rows, n_rows, distances)


# -- making


def _carry(chain: _Chain, buffers: Mapping[str, Buffer], carry: Buffer, target: Target) -> Node:
    loop, whole, buffer = chain.loop, chain.whole, buffers[chain.whole.store.buffer]
    chunk, n_chunks = cut_row(whole.run * buffer.dtype.itemsize // LINE)
    n_parts, most = whole.n_rows * n_chunks, max(chunk, MOST_REQUESTS)

    def ask(part: Expr) -> tuple[Prefetch, ...]:
        asked = ask_ahead(whole.loops, whole.store, chain.around, part, n_parts, buffers, target, most)
        return tuple(line for p in asked for line in (_ends_of_lines(p, buffers) if _is_gone_on(p, chain, buffers) else (p,)))

    assert isinstance(loop.lower, Const) and isinstance(loop.upper, Const)
    last = int(loop.lower.value) + (int(loop.upper.value) - int(loop.lower.value) - 1) // loop.step * loop.step
    is_first, is_last = (eq(Index(loop.var), n) for n in (int(loop.lower.value), last))
    made = carry_block(
        whole, buffers, carry, ask, is_first, is_last if chain.rest is None else None, _successors(chain, buffer)
    )
    if chain.rest is not None:
        asked = ask_ahead(whole.loops, whole.store, chain.around, Index(ROW), whole.n_rows, buffers, target)
        made = (If(lt(Index(loop.var), last), made, end_rows(chain.rest, buffers, carry, asked)),)
    carried = replace(loop, body=made)
    is_whole_lines = all(isinstance(s, Const) and int(s.value) % LINE == 0 for s in buffer.strides[:-1])
    if not is_whole_lines or not _is_in_order(whole, buffer) or not _do_rows_meet(whole, buffers):
        return carried
    return If(begins_at_line(buffer.name), (loop,), (carried,))


def _is_in_order(block: Block, buffer: Buffer) -> bool:
    """Whether the vectors of a block are lines of the result, or `write_behind` makes longer runs of them: parts of lines that
    go to memory by turns wait for each other."""
    vector = next(n for n in block.loops if n.kind == "vector")
    size = buffer.dtype.itemsize
    return vector.lanes * size >= LINE or trip_count(vector) * size > LINE


def _do_rows_meet(block: Block, buffers: Mapping[str, Buffer]) -> bool:
    """Whether rows of what is read are gone from a cache before the next vectors of a block come to them: what is asked for
    early is lost then, too."""
    vector = next(n for n in block.loops if n.kind == "vector")
    apart = [stride_of(read, buffers[read.tensor], vector.var) for read in reads(block.store.value)]
    return any(m is None or do_meet(m, trip_count(vector), MOST_ROWS) for m in apart)


def _is_gone_on(asked: Prefetch, chain: _Chain, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the blocks of the next rows read on where a piece that is asked for ends."""
    read = next((r for r in reads(chain.whole.store.value) if r.tensor == asked.buffer), None)
    if read is None or len(chain.around) < 2:
        return False
    outer = chain.around[-2]
    motion = stride_of(read, buffers[asked.buffer], outer.var)
    return motion is not None and motion * outer.step == asked.size


def _ends_of_lines(asked: Prefetch, buffers: Mapping[str, Buffer]) -> tuple[Prefetch, ...]:
    """As many bytes as a line has by the line of their last element each: where `asked` begins off a line, the first of its
    lines came with the piece in front of it (`dbeac` on AMD, Zen 4: 0.98 of the time, 0.93 where pieces begin at lines)."""
    *outer, last = asked.subscripts
    size = buffers[asked.buffer].dtype.itemsize
    ends = (min(begin + LINE, asked.size) // size - 1 for begin in range(0, asked.size, LINE))
    return tuple(replace(asked, subscripts=(*outer, simplify(last + end)), size=size) for end in ends)


def _moving(chain: _Chain, buffer: Buffer) -> list[str]:
    """The variables of loops that move along memory that is written without a gap."""
    together = [v for v, multiple in chain.whole.rows.items() if multiple == 1 and _successors(chain, buffer) > 1]
    return [chain.loop.var, *chain.whole.places, *together]


def _successors(chain: _Chain, buffer: Buffer) -> int:
    """How many rows of a block follow each other in memory; 1 where none does."""
    loop, whole = chain.loop, chain.whole
    assert isinstance(loop.lower, Const) and isinstance(loop.upper, Const)
    length = (int(loop.upper.value) - int(loop.lower.value)) // loop.step * whole.run * buffer.dtype.itemsize
    if chain.rest is not None or (1, length) not in whole.distances:
        return 1
    return next(trip_count(n) for n in whole.loops if whole.rows.get(n.var) == 1)
