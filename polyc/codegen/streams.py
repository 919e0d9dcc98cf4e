"""Streamed stores: long results that no cache would hold go to memory directly, a line at a time.

Before: ``vector for (c = lower; c < upper) { Y[i, c] = … }``.
After: ``vector for (c = lower; c < start) { Y[i, c] = … } vector for (c = start; c < upper) { stream Y[i, c] = … }``, where
`start` is the first element from `lower` on that lies at the beginning of a cache line.

An ordinary store of a line reads it first, and drops from the caches what may still be wanted.  A processor combines streamed
stores to whole lines by itself, if they follow each other; their vectors must not lie across two lines.  Where arrays begin is
known at the call only: ``Y.offset`` is the distance of the array from the beginning of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyc.codegen.holding import node_expressions
from polyc.ir.expr import Call, Const, Expr, Index, Size, int_const, reads, substitute, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import LINE, Buffer, If, Loop, LoopNest, Node, Store, Update
from polyc.ir.simplify import simplify
from polyc.target import Target

PART_OF_L3 = 2
"""Half of the last-level cache: of a longer result, and of the operands read meanwhile, little is left in the end."""

MIN_LINES = 16
"""Lines of a run; the first and the last of it are stored as usual."""


def stream_results(nest: LoopNest, target: Target) -> LoopNest:
    """Stream the results of more than half of the last-level cache that are written in order and never read."""
    if target.architecture != "x86_64":
        return nest
    wanted = {b.name: b for b in nest.buffers if _is_long(b, target)}
    writes = list(_writes(nest.body))
    for node in _nodes(nest.body):
        for expr in node_expressions(node):
            for read in reads(expr):
                wanted.pop(read.tensor, None)
    for name in list(wanted):
        if sum(w.buffer == name for w in writes) != 1 or any(isinstance(w, Update) for w in writes if w.buffer == name):
            del wanted[name]
    if not wanted:
        return nest
    body = tuple(new for node in nest.body for new in _visit(node, (), wanted))
    used = [b.name for b in nest.buffers if any(w.buffer == b.name and _is_streamed(w) for w in _writes(body))]
    return replace(nest, body=body, offsets=tuple(used)) if used else nest


def _is_long(buffer: Buffer, target: Target) -> bool:
    extents = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    is_known = buffer.space == "argument" and not buffer.may_alias and len(extents) == len(buffer.shape)
    return is_known and math.prod(extents) * buffer.dtype.itemsize >= target.l3 // PART_OF_L3


def _nodes(body: tuple[Node, ...]) -> Iterator[Node]:
    for node in body:
        yield node
        match node:
            case If():
                yield from _nodes(node.body + node.orelse)
            case Loop():
                yield from _nodes(tuple(n for start in node.initial for n in start.nest) + node.body)


def _writes(body: tuple[Node, ...]) -> Iterator[Store | Update]:
    return (node for node in _nodes(body) if isinstance(node, Store | Update))


def _is_streamed(node: Store | Update) -> bool:
    return isinstance(node, Store) and node.streamed


def _visit(node: Node, around: tuple[Loop, ...], wanted: Mapping[str, Buffer]) -> tuple[Node, ...]:
    match node:
        case If():
            body, orelse = (tuple(new for n in arm for new in _visit(n, around, wanted)) for arm in (node.body, node.orelse))
            return (replace(node, body=body, orelse=orelse),)
        case Loop() if node.kind == "vector":
            return _stream_rows(node, around, wanted)
        case Loop():
            return (replace(node, body=tuple(new for n in node.body for new in _visit(n, (*around, node), wanted))),)
    return (node,)


def _stream_rows(loop: Loop, around: tuple[Loop, ...], wanted: Mapping[str, Buffer]) -> tuple[Node, ...]:
    """A vector loop in two parts: up to the beginning of a line, and streamed from there."""
    stores = [n for n in loop.body if isinstance(n, Store) and n.buffer in wanted]
    if len(stores) != 1 or loop.registers or loop.initial or loop.max_trip is not None:
        return (loop,)
    (store,) = stores
    buffer = wanted[store.buffer]
    size = buffer.dtype.itemsize
    trip = simplify(Call("sub", (loop.upper, loop.lower)))
    vector = loop.lanes * size
    if isinstance(trip, Const) and int(trip.value) * size < MIN_LINES * LINE:
        return (loop,)
    if vector & (vector - 1) or vector < 16 or not _is_in_order(store, buffer, loop, around):
        return (loop,)
    first = offset_of(store, buffer, {loop.var: loop.lower})
    missing = Call("floordiv", (Call("mod", (Call("neg", (first,)), int_const(LINE))), int_const(size)))
    start = Call("min", (simplify(Call("add", (loop.lower, missing))), loop.upper))
    head = replace(loop, upper=start, interleave=1)
    body = tuple(replace(n, streamed=True) if n is store else n for n in loop.body)
    return (head, replace(loop, lower=start, body=body))


def offset_of(store: Store, buffer: Buffer, values: Mapping[str, Expr]) -> Expr:
    """Bytes from the beginning of a line to the element that `store` writes where loop variables have these `values`."""
    total: Expr = Size(f"{buffer.name}.offset")
    for subscript, stride in zip(store.subscripts, buffer.strides, strict=True):
        place = substitute(subscript, dict(values))
        if isinstance(stride, Const) and int(stride.value) % LINE == 0 and index_coefficients(place) is not None:
            continue  # whole lines
        total = Call("add", (total, Call("mul", (place, stride))))
    return simplify(total)


def _is_in_order(store: Store, buffer: Buffer, loop: Loop, around: tuple[Loop, ...]) -> bool:
    """Whether `loop` writes one element after the other, and each loop around other elements."""
    moving = [index_coefficients(s) for s in store.subscripts]
    along = 0
    for coefficients, stride in zip(moving, buffer.strides, strict=True):
        if coefficients is None:
            return False
        if not coefficients.get(loop.var):
            continue
        if not isinstance(stride, Const):
            return False
        along += coefficients[loop.var] * int(stride.value)
    names = {n.name for s in store.subscripts for n in walk(s) if isinstance(n, Index)}
    return along == buffer.dtype.itemsize and all(outer.var in names for outer in around)
