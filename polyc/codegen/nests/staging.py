"""Put blocks of transposing copies together near by, and write them to long results from there, in the order of memory.

Before: ``for p < 3136 by 64 { for p' < 64 { vector c < 64 { Y[p + p', c] = X[c, p + p'] } } }``.
After: ``for p < 3136 by 64 { for p' < 64 { vector c < 64 { B[64*p' + c] = … } } vector e < 4096 { Y[64*p + e] = B[e] } }``.

A copy that lies across memory writes vectors far apart.  Where rows of the result are short and do not begin at cache lines,
hardly a line is written as a whole, so none can go to memory directly.  A block of such rows that follow each other is one long
run, whatever their length: `B` holds it, in a cache and private to a thread, and the loop that writes it down is streamed as
any other (`streams`).  Dimensions of the result are merged for it, in every access of the nest.

While a run is written down, the lines of the next block are asked for, as many at a time as are written: a prefetch that moves
with the vectors, which `prefetch_blocks` puts between them.

Where rows are whole lines and the array happens to begin at one, blocks are streamed as they are: both are there then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from polyc.codegen.nests.coalesce import merge_dimensions
from polyc.codegen.nests.copies import copy_nest, rebuild
from polyc.codegen.nests.prefetch import is_large, step_ahead
from polyc.codegen.nests.streams import find_written_once
from polyc.codegen.nests.transposes import MAX_INTERLEAVED
from polyc.ir.access import stride_of, with_values
from polyc.ir.expr import Const, Expr, Index, Read, Size, eq, int_const, mentions, reads, substitute
from polyc.ir.loops import LINE, Buffer, If, Loop, Prefetch, Store
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, replace_nodes
from polyc.records import dataclass, replace
from polyc.target import Target

LEAST_RUN = 2048
"""Bytes of a run that is worth it: the first and the last line of each are written in the ordinary way."""

ENOUGH = 16384
"""Bytes of a run from which on longer ones gain nothing."""

PART_OF_L2 = 4
"""A quarter of the second-level cache holds what is put together."""

IN_FLIGHT = 1
"""Vectors at once that are written down."""

PART = 64
"""Bytes that are written down between two requests for as many."""

MOST_REQUESTS = 4
"""Requests at a time."""

MIN_HALF = 8
"""Lanes of halves of registers that are used."""

AHEAD_BYTES = 32768
"""How much of what is read is asked for ahead: one block of this size, several of smaller ones (32×64×56×56 to channels last
on AMD, Zen 4: one block of 16 KiB ahead 1.55 ms, two 1.37, three 1.54, a copy 1.17).  It comes to the second-level cache, also
where it is one run (`abcde → caebd` in f64: 9.4 ms by way of the first one, 5.1)."""

SAME_SETS = 2048
"""Distance of rows that meet in a few sets of the first-level cache."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a copy that writes `n_rows` runs of `run` elements: its `loops`, outermost first, those `outside` of them, and
    by variable the multiple of it in the number of the row and in the place in the run."""

    outside: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    store: Store
    n_rows: int
    run: int
    rows: Mapping[str, int]
    places: Mapping[str, int]
    around: tuple[Loop, ...]
    """Serial loops around the block, outermost first, in whose order its iterations are the next ones."""


def stage_copies(body: Body, buffers: tuple[Buffer, ...], target: Target) -> tuple[Body, tuple[Buffer, ...], tuple[str, ...]]:
    """The nest with blocks of long results put together first, its buffers, and the results whose offsets that needs."""
    used: list[str] = []
    for name in find_written_once(body, buffers, target):
        by_name = {b.name: b for b in buffers}
        buffer = by_name[name]
        blocks = {id(node): block for node, block in _find(body, (), name, by_name, target)}
        if not blocks:
            continue
        first = min(first_dimension(block.store, block.places, buffer) for block in blocks.values())
        if not all(is_dense(buffer, d) for d in range(first, len(buffer.shape) - 1)):
            continue
        stage = make_buffer(
            f"{name}.block", buffer, max(b.n_rows for b in blocks.values()), max(b.run for b in blocks.values())
        )
        is_whole_lines = all(isinstance(s, Const) and int(s.value) % LINE == 0 for s in buffer.strides[:-1])
        made = {key: _stage(block, by_name, stage, is_whole_lines, target) for key, block in blocks.items()}
        staged = replace_nodes(body, made)
        body, buffers = merge_dimensions(staged, (*buffers, stage), name, first)
        used += [name] if is_whole_lines else []
    return body, buffers, tuple(used)


def begins_at_line(name: str) -> Expr:
    """Whether the array `name` begins where a cache line does."""
    return eq(Size(f"{name}.offset") % LINE, 0)


def _find(
    body: Body, around: tuple[Loop, ...], name: str, buffers: Mapping[str, Buffer], target: Target
) -> Iterator[tuple[Loop, _Block]]:
    for node in body:
        match node:
            case If():
                body = () if node.condition == begins_at_line(name) else node.body  # it is streamed as it is there
                yield from _find(body + node.orelse, around, name, buffers, target)
            case Loop():
                nest = copy_nest(node, buffers)
                if nest is None:
                    yield from _find(node.body, later_loops(around, node), name, buffers, target)
                elif nest[1].buffer == name and (block := _find_block(*nest, around, buffers, target)) is not None:
                    yield node, block


def later_loops(around: tuple[Loop, ...], loop: Loop) -> tuple[Loop, ...]:
    """`loop` inside of `around`, as far as the order of iterations is known: a thread begins a parallel loop where it likes."""
    return (*around, loop) if loop.kind == "serial" else (loop,)


def _find_block(
    loops: list[Loop], store: Store, around: tuple[Loop, ...], buffers: Mapping[str, Buffer], target: Target
) -> _Block | None:
    """The innermost loops of a copy that write long runs, not in the order of memory; None where there are none."""
    buffer, place = buffers[store.buffer], Read(store.buffer, store.subscripts)
    size = buffer.dtype.itemsize
    motions = {n.var: stride_of(place, buffer, n.var) for n in loops}
    trips = {n.var: trip_count(n) for n in loops}
    start = find_crossing(loops, store, motions, buffers)
    if any(m == size and trips[v] <= MAX_INTERLEAVED for v, m in motions.items()):
        return None  # vectors are interleaved, and written in order
    if start is None or any(not is_plain(n, motions, trips) for n in loops[start:]):
        return None
    most = target.l2 // PART_OF_L2 // size
    while (
        start
        and is_plain(loops[start - 1], motions, trips)
        and find_run(loops[start:], motions, trips, size)[0] * size < ENOUGH
    ):
        wider = loops[start - 1 :]
        is_longer = find_run(wider, motions, trips, size)[0] > find_run(loops[start:], motions, trips, size)[0]
        if not is_longer or math.prod(trips[n.var] for n in wider) > most:
            break
        start -= 1
    inner = loops[start:]
    run, places = find_run(inner, motions, trips, size)
    n_all = math.prod(trips[n.var] for n in inner)
    if run * size < LEAST_RUN or len(places) < 2 or n_all > most:
        return None
    rows, n_rows = number_iterations([n for n in inner if n.var not in places], trips)
    for loop in loops[:start]:
        around = later_loops(around, loop)
    return _Block(tuple(loops[:start]), tuple(inner), store, n_rows, run, rows, places, around)


def find_crossing(
    loops: list[Loop], store: Store, motions: Mapping[str, int | None], buffers: Mapping[str, Buffer]
) -> int | None:
    """The position of the outer one of two loops of which one goes along the memory of the store, and the other one along that
    of a read which the first lies across."""
    size = buffers[store.buffer].dtype.itemsize
    for n, along in enumerate(loops):
        if motions[along.var] != size or along.step != 1:
            continue
        for read in reads(store.value):
            source = buffers[read.tensor]
            across = stride_of(read, source, along.var)
            if across is not None and abs(across) <= source.dtype.itemsize:
                continue
            for m, other in enumerate(loops):
                if other is along or other.step != 1:
                    continue
                if stride_of(read, source, other.var) == source.dtype.itemsize:
                    return min(n, m)
    return None


def is_plain(loop: Loop, motions: Mapping[str, int | None], trips: Mapping[str, int]) -> bool:
    """Whether a loop is no parallel one, of a known number of iterations, and goes upwards in memory."""
    motion = motions[loop.var]
    return loop.kind in ("serial", "vector", "unroll") and trips[loop.var] > 0 and motion is not None and motion > 0


def trip_count(loop: Loop) -> int:
    """Iterations of a loop from 0 on; 0 where they are not known."""
    known = loop.step == 1 and loop.lower == int_const(0) and isinstance(loop.upper, Const)
    return int(loop.upper.value) if known and isinstance(loop.upper, Const) else 0


def find_run(
    loops: list[Loop], motions: Mapping[str, int | None], trips: Mapping[str, int], size: int
) -> tuple[int, dict[str, int]]:
    """Elements of the runs that `loops` write, and how far in it each loop moves that stays in the run."""
    run = 1
    places: dict[str, int] = {}
    for loop in sorted(loops, key=lambda n: motions[n.var] or 0):
        if motions[loop.var] != run * size:
            break
        places[loop.var] = run
        run *= trips[loop.var]
    return run, places


# -- making


def first_dimension(store: Store, variables: Iterable[str], buffer: Buffer) -> int:
    """The first dimension of the result that some of `variables` move in."""
    moving = [d for d, s in enumerate(store.subscripts) if mentions(s, *variables)]
    return min(moving, default=len(buffer.shape) - 1)


def is_dense(buffer: Buffer, d: int) -> bool:
    """Whether dimension `d` goes on where the next one ends."""
    wide, narrow, extent = buffer.strides[d], buffer.strides[d + 1], buffer.shape[d + 1]
    if not (isinstance(wide, Const) and isinstance(narrow, Const) and isinstance(extent, Const)):
        return False
    return int(wide.value) == int(narrow.value) * int(extent.value)


def make_buffer(name: str, buffer: Buffer, n_rows: int, length: int) -> Buffer:
    """A thread's own rows for parts of `buffer`, which begin at lines, and not all in the same sets of a cache."""
    size = buffer.dtype.itemsize
    row = -(-length * size // LINE) * LINE
    row += LINE if row % SAME_SETS == 0 else 0
    return Buffer(name, buffer.dtype, (int_const(n_rows), int_const(length)), (int_const(row), int_const(size)), "thread")


def _stage(block: _Block, buffers: Mapping[str, Buffer], stage: Buffer, is_whole_lines: bool, target: Target) -> Body:
    """The nest that puts the block together and writes it down; with rows of whole lines, only if the array begins at none."""
    store = block.store
    put = replace(store, buffer=stage.name, subscripts=(sum_of(block.rows), sum_of(block.places)))
    vector = next((n for n in block.loops if n.kind == "vector"), block.loops[-1])
    row, element = f"{vector.var}_row", f"{vector.var}_run"
    begin: dict[str, Expr] = {n.var: int_const(0) for n in block.loops}
    begin |= digits(Index(row) if block.n_rows > 1 else int_const(0), block.rows)
    *outer, last = (simplify(substitute(s, begin)) for s in store.subscripts)
    subscripts = (*outer, simplify(last + Index(element)))
    value = Read(stage.name, (Index(row) if block.n_rows > 1 else int_const(0), Index(element)))
    place: Expr = Index(element)
    if block.n_rows > 1:
        place = Index(row) * block.run + place
    size = buffers[store.buffer].dtype.itemsize
    part, n_parts = place // (PART // size), max(1, block.n_rows * block.run * size // PART)
    asked = ask_ahead(block.loops, store, block.around, part, n_parts, buffers, target)
    body: Body = (*asked, replace(store, subscripts=subscripts, value=value))
    write = Loop(element, int_const(0), int_const(block.run), 1, "vector", body, lanes=vector.lanes, interleave=IN_FLIGHT)
    down: Loop = write if block.n_rows == 1 else Loop(row, int_const(0), int_const(block.n_rows), 1, "serial", (write,))
    made: Body = (_put_by_rows(block, put), down)
    if is_whole_lines:
        made = (If(begins_at_line(store.buffer), (rebuild(list(block.loops), store),), made),)
    for loop in reversed(block.outside):
        made = (replace(loop, body=made),)
    return made


def digits(number: Expr, multiples: Mapping[str, int]) -> dict[str, Expr]:
    """The variables of which the sum of `multiples` is `number`, each of them less than makes up the next larger multiple."""
    found: dict[str, Expr] = {}
    for name, multiple in sorted(multiples.items(), key=lambda item: -item[1]):
        found[name] = simplify(number // multiple)
        number = simplify(number % multiple)
    return found


def _put_by_rows(block: _Block, put: Store) -> Loop:
    """The loops that put the block together: few rows of what is read at a time, a vector's, to their end.

    Vectors are so short that they divide the rows of the result, where half of a register does."""
    loops = list(block.loops)
    last = next((n for n in loops if block.places.get(n.var) == 1), loops[-1])
    vector = next((n for n in loops if n.kind == "vector"), None)
    if vector is None or len(loops) < 2:
        return rebuild(loops, put)
    lanes, trip = vector.lanes, trip_count(last)
    if trip % lanes and trip % (lanes // 2) == 0 and lanes // 2 >= MIN_HALF:
        lanes //= 2
    if trip <= lanes or trip % lanes:
        return rebuild(loops, put)
    group = f"{last.var}_rows"
    names: dict[str, Expr] = {last.var: Index(group) + Index(last.var)}
    put = with_values(put, names)
    others = [replace(n, kind="serial", lanes=1, interleave=1, max_trip=None) for n in loops if n is not last]
    few = replace(last, kind="vector", upper=int_const(lanes), max_trip=lanes, lanes=lanes, interleave=1)
    groups = Loop(group, int_const(0), int_const(trip), lanes, "serial", ())
    return rebuild([*others[:-1], groups, others[-1], few], put)


def ask_ahead(
    loops: Sequence[Loop],
    store: Store,
    around: tuple[Loop, ...],
    part: Expr,
    n_parts: int,
    buffers: Mapping[str, Buffer],
    target: Target,
    most: int = MOST_REQUESTS,
) -> tuple[Prefetch, ...]:
    """Prefetches of part number `part` of `n_parts` of what the next block reads: `loops` in the next iteration of `around`.
    Nothing where a part is more than `most` of them."""
    trips = {n.var: trip_count(n) for n in loops}
    place = Read(store.buffer, store.subscripts)
    size = buffers[store.buffer].dtype.itemsize
    along = [n.var for n in loops if stride_of(place, buffers[store.buffer], n.var) == size]
    for read in dict.fromkeys(reads(store.value) if around else ()):
        source = buffers[read.tensor]
        size = source.dtype.itemsize
        motions = {n.var: stride_of(read, source, n.var) for n in loops}
        if source.space != "argument" or not is_large(source, target) or any(m is None or m < 0 for m in motions.values()):
            continue
        run, places = find_run(list(loops), motions, trips, size)
        if not places or all(motions[v] in (0, size) for v in along):
            continue
        rows, n_rows = number_iterations([n for n in loops if n.var not in places and motions[n.var]], trips)
        per_row = max(1, min(run * size // LINE, n_parts // n_rows))
        piece, n_pieces = -(-run // per_row), n_rows * per_row
        share = -(-n_pieces // n_parts)
        if share > most:
            continue
        n_ahead = max(1, AHEAD_BYTES // (run * n_rows * size))
        later = {**step_ahead(around, n_ahead), **{n.var: int_const(0) for n in loops}}
        found: list[Prefetch] = []
        for k in range(share):
            number = part * share + k
            if n_pieces != n_parts * share:
                number = number * n_pieces // (n_parts * share)
            there = later | digits(simplify(number // per_row), rows)
            within = number % per_row * piece
            *outer, last = (simplify(substitute(s, there)) for s in read.subscripts)
            subscripts = (*outer, simplify(last + within))
            found.append(Prefetch(read.tensor, subscripts, piece * size, 2))
        return tuple(found)
    return ()


def number_iterations(loops: list[Loop], trips: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Iterations of `loops`, outermost first, counted through: the multiple of each variable, and how many there are."""
    multiples: dict[str, int] = {}
    total = 1
    for loop in reversed(loops):
        multiples[loop.var] = total
        total *= trips[loop.var]
    return multiples, total


def sum_of(multiples: Mapping[str, int]) -> Expr:
    """The sum of variables times their multiples."""
    total: Expr = int_const(0)
    for name, multiple in multiples.items():
        total = total + Index(name) * multiple
    return simplify(total)
