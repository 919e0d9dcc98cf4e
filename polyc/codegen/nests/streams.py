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

from collections.abc import Mapping
from functools import lru_cache, reduce
from operator import add

from polyc.codegen.nests.alignment import is_whole_lines, offset_of, to_line
from polyc.ir.access import reads_in, stride_of, writes_in, written_in
from polyc.ir.expr import (
    Const,
    Expr,
    Read,
    all_hold,
    any_holds,
    eq,
    ge,
    index_names,
    int_const,
    minimum,
    reads,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Store, Update, known_length
from polyc.ir.simplify import product_of, simplify
from polyc.ir.walk import Body, Scope, replace_nodes, rewrite_nodes
from polyc.machine import Machine
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace

MIN_LINES = 16
"""Lines of a run of which the first and the last are stored as usual; a shorter one is streamed where it is whole lines."""


def stream_results(nest: LoopNest, target: Machine) -> LoopNest:
    """Stream the results that no cache would hold (`Machine.streaming_size`), that are written in order and never read."""
    wanted = _find_written_once(nest.body, nest.buffers, target)
    if not wanted:
        return nest

    def stream(node: Node, scope: Scope) -> Node | Body | None:
        if not isinstance(node, Loop) or node.kind != "vector":
            return None
        found = _stream_rows(node, scope.loops, wanted)
        if found is None:
            return node
        tests, streamed = found
        return streamed if not tests or scope.holds(all_hold(tests)) else If(all_hold(tests), streamed, (node,))

    body = rewrite_nodes(nest.body, stream)
    streamed = {w.buffer for w in writes_in(body) if isinstance(w, Store) and w.streamed}
    used = [b.name for b in nest.buffers if b.name in streamed]
    offsets = tuple(dict.fromkeys((*nest.offsets, *used)))
    return replace(nest, body=body, offsets=offsets) if used else nest


# -- buffers


def find_written_once(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> list[str]:
    """Results that are streamed at any sizes, if they are written in order."""
    return [name for name, found in _find_written_once(body, buffers, target).items() if not found.tests]


def _find_written_once(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> dict[str, _Long]:
    """Long arrays of the caller, as `_find_long`, that are never read and of which each element is written once."""
    wanted = _find_long(body, buffers, target)
    read = {r.tensor for r in reads_in(body)} if wanted else set()
    writers: dict[str, set[str | None]] = {}
    for w in writes_in(body) if wanted else ():
        writers.setdefault(w.buffer, set()).add(None if isinstance(w, Update) else w.statement)
    return {n: w for n, w in wanted.items() if n not in read and len(own := writers.get(n, set())) == 1 and None not in own}


@dataclass(frozen=True, slots=True)
class _Long:
    """An array that is long enough to be streamed, if the sizes of a call pass the `tests`."""

    buffer: Buffer
    tests: tuple[Expr, ...] = ()


def find_streamed(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> dict[str, Buffer]:
    """Results that are streamed at any sizes, if they are written in order and once."""
    return {n: w.buffer for n, w in _find_long(body, buffers, target).items() if not w.tests}


def find_streamed_rows(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> frozenset[str]:
    """Those of them whose rows lie whole lines apart."""
    return frozenset(n for n, b in find_streamed(body, buffers, target).items() if all(map(is_whole_lines, b.strides[:-1])))


def _find_long(body: Body, buffers: tuple[Buffer, ...], target: Machine) -> dict[str, _Long]:
    """Arrays of the caller that are too long to stay in a cache (`Machine.is_streamed`), or that are at some sizes."""
    sizes = _long_arrays(buffers, target.streaming_sizes)
    if not sizes or target.streaming_sizes is None:
        return {}
    alone, least, together = (int_const(n) for n in target.streaming_sizes)
    arguments = {b.name: b for b in buffers if b.space == "argument"}
    # Of a table that data says where to read, nobody knows how much is read.
    read = dict.fromkeys(r.tensor for r in reads_in(body) if r.tensor in arguments and not any(map(reads, r.subscripts)))
    rest = simplify(reduce(add, (product_of(arguments[n].shape, arguments[n].dtype.itemsize) for n in read), int_const(0)))
    found: dict[str, _Long] = {}
    for b, size in sizes:
        is_long = any_holds((ge(size, alone), all_hold((ge(size, least), ge(size + rest, together)))))
        known = simplify(is_long)
        if not isinstance(known, Const):
            found[b.name] = _Long(b, (is_long,))
        elif known.value:
            found[b.name] = _Long(b)
    return found


@lru_cache(maxsize=4)  # every pass asks
def _long_arrays(buffers: tuple[Buffer, ...], limits: tuple[int, int, int] | None) -> list[tuple[Buffer, Expr]]:
    """Arrays of the caller that are streamed at some sizes if enough is read beside them, and their bytes."""
    # Where others may lie in the same memory, or elements across lines, none is.
    wanted = [b for b in buffers if b.space == "argument" and not (b.may_alias or b.dtype.unit or limits is None)]
    sizes = [(b, product_of(b.shape, b.dtype.itemsize)) for b in wanted]
    return [(b, e) for b, e in sizes if limits and (not isinstance(e, Const) or int(e.value) >= min(limits[:2]))]


# -- loops

_Streamed = tuple[tuple[Expr, ...], Body]
"""What must hold for a loop to be streamed, and what takes its place."""


def _stream_rows(loop: Loop, around: tuple[Loop, ...], wanted: Mapping[str, _Long]) -> _Streamed | None:
    """A vector loop in two parts: up to the beginning of a line, and streamed from there; and what must hold for that.

    A short loop of whole lines is streamed as a whole where it begins at a line.  None where it cannot be streamed.  A loop
    that writes several long results streams all together where they begin lines together and vectors are whole lines, and one
    after the other elsewhere."""
    if loop.registers or loop.initial:
        return None
    copies: tuple[Loop, ...] = ()
    stores = [n for n in loop.body if isinstance(n, Store) and n.buffer in wanted]
    match loop.body:
        case (Loop(kind="unroll", body=(Store() as store,)) as inner,) if store.buffer in wanted:
            stores, copies = [store], (inner,)
    if len(stores) > 1:
        return _stream_together(loop, stores, around, wanted)
    return _stream_row(loop, stores[0], copies, around, wanted) if stores else None


def _stream_together(
    loop: Loop, stores: list[Store], around: tuple[Loop, ...], wanted: Mapping[str, _Long]
) -> _Streamed | None:
    """``if (all begin lines together) { up to a line ; stream all } else { each one in a loop of its own }``."""
    found = {s.buffer: row for s in stores if (row := _stream_row(loop, s, (), around, wanted)) is not None}
    if not found:
        return None
    first, *others = (s for s in stores if s.buffer in found)
    tests, alone = found[first.buffer]
    size = wanted[first.buffer].buffer.dtype.itemsize
    others = [s for s in others if wanted[s.buffer].buffer.dtype.itemsize == size and wanted[s.buffer].tests == tests]
    if not others or any(len(parts) == 1 for _, parts in found.values()):
        return found[first.buffer]
    begin = {loop.var: loop.lower}
    apart = [
        simplify(offset_of(s, wanted[s.buffer].buffer, begin) - offset_of(first, wanted[first.buffer].buffer, begin))
        for s in others
    ]
    together = all_hold(eq(distance % LINE, 0) for distance in apart)
    head, lines, *rest = alone
    assert isinstance(lines, Loop)
    body = lines.body
    for s in others:
        body = _mark(body, s)
    if lines.lanes * size < LINE:  # half a line of one array and half of another by turns: no line would be combined
        return tests, _stream_apart(loop, found) or alone
    return tests, (If(together, (head, replace(lines, body=body), *rest), _stream_apart(loop, found) or alone),)


def _stream_apart(loop: Loop, found: Mapping[str, _Streamed]) -> Body:
    """A loop for each store of a body, streamed where it can be: what they read is near.  Empty where one needs another."""
    written = written_in(loop.body)
    parts: list[Node] = []
    for node in loop.body:
        if not isinstance(node, Store) or any(r.tensor in written for r in reads(node.value)):
            return ()
        alone = replace(loop, body=(node,))
        if node.buffer not in found:
            parts.append(alone)
            continue
        for part in found[node.buffer][1]:
            assert isinstance(part, Loop)
            parts.append(replace(part, body=tuple(n for n in part.body if isinstance(n, Store) and n.buffer == node.buffer)))
    return tuple(parts)


def _stream_row(
    loop: Loop, store: Store, copies: tuple[Loop, ...], around: tuple[Loop, ...], wanted: Mapping[str, _Long]
) -> _Streamed | None:
    """A vector loop with one store streamed, and what must hold for that; `copies`: the unrolled loop around the store."""
    buffer, tests = wanted[store.buffer].buffer, wanted[store.buffer].tests
    size = buffer.dtype.itemsize
    vector = loop.lanes * size
    if store.streamed or vector & (vector - 1) or vector < 16 or not _is_in_order(store, buffer, loop, (*around, *copies)):
        return None
    if any(not _moves_by_lines(store, buffer, copy) for copy in copies):
        return None
    body = _mark(loop.body, store)
    trip = simplify(loop.upper - loop.lower)
    is_short = isinstance(trip, Const) and int(trip.value) * size < MIN_LINES * LINE
    if loop.max_trip is not None or is_short:
        if not isinstance(trip, Const) or not trip.value or int(trip.value) * size % LINE:
            return None
        is_aligned = eq(offset_of(store, buffer, {loop.var: loop.lower}) % LINE, 0)
        return (*tests, is_aligned), (replace(loop, body=body),)
    if not isinstance(trip, Const) and tests:
        tests = (*tests, ge(trip, MIN_LINES * LINE // size))
    start = minimum(simplify(loop.lower + to_line(store, buffer, {loop.var: loop.lower})), loop.upper)
    head = replace(loop, upper=start, interleave=1)
    if vector % LINE == 0:
        return tests, (head, replace(loop, lower=start, body=body))
    # Parts of a line are not streamed: its other part is stored as usual, and waits until the first one is in memory.
    per_line = int_const(LINE // size)
    lines = simplify(loop.upper - start) // per_line
    end = start + lines * per_line
    return tests, (head, replace(loop, lower=start, upper=end, body=body), replace(loop, lower=end, interleave=1))


def _mark(body: Body, store: Store) -> Body:
    return replace_nodes(body, {id(store): replace(store, streamed=True)})


def _moves_by_lines(store: Store, buffer: Buffer, loop: Loop) -> bool:
    """Whether iterations of `loop` write whole numbers of lines apart."""
    for subscript, stride in zip(store.subscripts, buffer.strides, strict=True):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return False
        if coefficients.get(loop.var) and not is_whole_lines(coefficients[loop.var] * stride):
            return False
    return True


def _is_in_order(store: Store, buffer: Buffer, loop: Loop, around: tuple[Loop, ...]) -> bool:
    """Whether `loop` writes one element after the other, and each loop around other elements."""
    names = index_names(*store.subscripts)
    for outer in reversed(around):
        if outer.var in names and known_length(outer) == outer.step:  # it names a place: what that depends on moves the store
            names |= index_names(outer.lower)
    is_along = stride_of(Read(store.buffer, store.subscripts), buffer, loop.var) == buffer.dtype.itemsize
    return is_along and all(outer.var in names for outer in around)
