"""Streamed stores: long results that no cache would hold go to memory directly, a line at a time.

Before: ``vector for (c = lower; c < upper) { Y[i, c] = … }``.
After: ``vector for (c = lower; c < start) { Y[i, c] = … } vector for (c = start; c < upper) { stream Y[i, c] = … }``, where
`start` is the first element from `lower` on that lies at the beginning of a cache line.

Where sizes are known at the call only, there are both: ``if (what Y holds >= …) … else { vector for (…) { Y[i, c] = … } }``.

An ordinary store of a line reads it first, and drops from the caches what may still be wanted.  A processor combines streamed
stores to whole lines by itself, if they follow each other; their vectors must not lie across two lines.  Where arrays begin is
known at the call only: ``Y.offset`` is the distance of the array from the beginning of a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from operator import add

from polyc.codegen.nests.alignment import has_line_rows, offset_of, to_line
from polyc.ir.access import reads_in, stride_of, writes_in
from polyc.ir.expr import Const, Expr, all_hold, any_holds, eq, ge, index_names, int_const, minimum, reads
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, replace_nodes, rewrite_nodes
from polyc.machine import Machine
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace


def stream_results(nest: LoopNest, target: Machine) -> LoopNest:
    """Stream the results that no cache would hold (`Machine.streaming_size`), that are written in order and never read."""
    wanted = {n: w for n, w in find_long(nest, target).items() if w.is_written_once}
    if not wanted:
        return nest

    def stream(node: Node, scope: Scope) -> Node | Body | None:
        if not isinstance(node, Loop) or node.kind != "vector":
            return None
        stores = [n for n in node.body if isinstance(n, Store) and n.buffer in wanted]
        match node.body:
            case (Loop(kind="unroll", body=(Store() as store,)),) if store.buffer in wanted:
                stores = [store]
        made: Body = (node,)
        for together in (stores[:1], stores) if len(stores) > 1 else (stores,):
            if together and (found := _stream_row(node, together, scope.loops, wanted, target)) is not None:
                tests, parts = found
                made = parts if not tests or scope.holds(all_hold(tests)) else (If(all_hold(tests), parts, made),)
        return made

    body = rewrite_nodes(nest.body, stream)
    streamed = {w.buffer for w in writes_in(body) if isinstance(w, Store) and w.streamed}
    used = [b.name for b in nest.buffers if b.name in streamed]
    offsets = tuple(dict.fromkeys((*nest.offsets, *used)))
    return replace(nest, body=body, offsets=offsets) if used else nest


# -- buffers


@dataclass(frozen=True, slots=True)
class Long:
    """An array of the caller that is too long to stay in a cache, if the sizes of a call pass the `tests`."""

    buffer: Buffer
    tests: tuple[Expr, ...]
    is_written_once: bool
    """Whether it is never read, and each of its elements is written by one statement."""


def find_streamed_rows(nest: LoopNest, target: Machine) -> frozenset[str]:
    """Results that are streamed at any sizes, if they are written in order and once, whose rows lie whole lines apart."""
    found = find_long(nest, target).items()
    return frozenset(n for n, w in found if not w.tests and has_line_rows(w.buffer))


def find_long(nest: LoopNest, target: Machine) -> dict[str, Long]:
    """Arrays of the caller that are too long to stay in a cache (`Machine.is_streamed`), or that are at some sizes."""
    sizes = _long_arrays(nest.buffers, target.streaming_sizes)
    if not sizes or target.streaming_sizes is None:
        return {}
    alone, least, together = (int_const(n) for n in target.streaming_sizes)
    arguments = {b.name: b for b in nest.buffers if b.space == "argument"}
    accessed = list(reads_in(nest.body))
    # Of a table that data says where to read, nobody knows how much is read.
    read = dict.fromkeys(r.tensor for r in accessed if r.tensor in arguments and not any(map(reads, r.subscripts)))
    rest = simplify(reduce(add, (arguments[n].n_bytes for n in read), int_const(0)))
    writers: dict[str, set[str | None]] = {r.tensor: {None} for r in accessed}
    for w in writes_in(nest.body):
        writers.setdefault(w.buffer, set()).add(None if isinstance(w, Update) else w.statement)
    found: dict[str, Long] = {}
    for b, size in sizes:
        is_long = simplify(any_holds((ge(size, alone), all_hold((ge(size, least), ge(size + rest, together))))))
        if not isinstance(is_long, Const) or is_long.value:
            own = writers.get(b.name, set())
            tests = () if isinstance(is_long, Const) else (is_long,)
            found[b.name] = Long(b, tests, len(own) == 1 and None not in own)
    return found


@lru_cache(maxsize=4)  # every pass asks
def _long_arrays(buffers: tuple[Buffer, ...], limits: tuple[int, int, int] | None) -> list[tuple[Buffer, Expr]]:
    """Arrays of the caller that are streamed at some sizes if enough is read beside them, and their bytes."""
    # Where others may lie in the same memory, or elements across lines, none is.
    wanted = [b for b in buffers if b.space == "argument" and not (b.may_alias or b.dtype.unit or limits is None)]
    sizes = [(b, b.n_bytes) for b in wanted]
    return [(b, e) for b, e in sizes if limits and (not isinstance(e, Const) or int(e.value) >= min(limits[:2]))]


# -- loops


def _stream_row(
    loop: Loop, stores: Sequence[Store], around: tuple[Loop, ...], wanted: Mapping[str, Long], target: Machine
) -> tuple[list[Expr], Body] | None:
    """A vector loop in two parts, up to the beginning of a line, and with streamed stores from there; and what must hold.

    A short loop of whole lines is streamed as a whole where it begins at a line.  Several stores are streamed together where
    their arrays begin lines together, and vectors are whole lines: of halves of lines by turns none would be combined.  None
    where they cannot be streamed."""
    buffers = [wanted[store.buffer].buffer for store in stores]
    size = buffers[0].dtype.itemsize
    vector = loop.lanes * size
    loops = (*around, *(n for n in loop.body if isinstance(n, Loop)))
    if loop.registers or loop.initial or vector & (vector - 1) or vector < 16 or (len(stores) > 1 and vector % LINE):
        return None
    if any(b.dtype.itemsize != size or not _is_in_order(s, b, loop, loops) for s, b in zip(stores, buffers, strict=True)):
        return None
    if any((m := stride_of(stores[0], buffers[0], n.var)) is None or m % LINE for n in loops[len(around) :]):
        return None
    body = replace_nodes(loop.body, {id(store): replace(store, streamed=True) for store in stores})
    first, *others = (offset_of(s, b, {loop.var: loop.lower}) for s, b in zip(stores, buffers, strict=True))
    tests = list(dict.fromkeys(test for store in stores for test in wanted[store.buffer].tests))
    trip = simplify(loop.upper - loop.lower)
    least = target.memory.streamed_run
    is_short = isinstance(trip, Const) and int(trip.value) * size < least
    if loop.max_trip is not None or is_short:
        if not isinstance(trip, Const) or not trip.value or int(trip.value) * size % LINE or others:
            return None
        return [*tests, eq(first % LINE, 0)], (replace(loop, body=body),)
    if not isinstance(trip, Const) and tests:
        tests.append(ge(trip, least // size))
    tests += [eq(simplify(offset - first) % LINE, 0) for offset in others]
    start = minimum(simplify(loop.lower + to_line(stores[0], buffers[0], {loop.var: loop.lower})), loop.upper)
    head = replace(loop, upper=start, interleave=1)
    if vector % LINE == 0:
        return tests, (head, replace(loop, lower=start, body=body))
    # Parts of a line are not streamed: its other part is stored as usual, and waits until the first one is in memory.
    per_line = int_const(LINE // size)
    lines = simplify(loop.upper - start) // per_line
    end = start + lines * per_line
    return tests, (head, replace(loop, lower=start, upper=end, body=body), replace(loop, lower=end, interleave=1))


def _is_in_order(store: Store, buffer: Buffer, loop: Loop, around: tuple[Loop, ...]) -> bool:
    """Whether `loop` writes one element after the other, and each loop around other elements."""
    names = index_names(*store.subscripts)
    for outer in reversed(around):
        if outer.var in names and known_length(outer) == outer.step:  # it names a place: what that depends on moves the store
            names |= index_names(outer.lower)
    is_along = stride_of(store, buffer, loop.var) == buffer.dtype.itemsize
    return is_along and not store.streamed and all(outer.var in names for outer in around)
