"""Blocks for transposing copies: a loop along contiguous memory moves inside the vector loop that runs across it.

Before: ``for k { vector j { P[k, j] = B[j, k] } }``, where each vector of B is gathered from as many rows.
After: ``for k0 step lanes { vector j { unroll k1 < lanes { P[k0 + k1, j] = B[j, k0 + k1] } } }`` and the rest of k: the
emitter loads whole rows of B and transposes them in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.ir.expr import Call, Const, Expr, Index, Read, int_const, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.loops import Buffer, If, Loop, Node, Store
from polyc.ir.simplify import simplify

ROW_BYTES = 64
"""Bytes of a row in one block: a cache line, which is then used up while it is near."""
MAX_COPIES = 64
"""Vector copies of one block that are expanded.  Expanded, every row has loads of its own, which prefetchers can follow."""
MIN_LANES = 4
"""Fewer lanes are put together from scalar loads as fast."""


def block_transposes(body: tuple[Node, ...], buffers: tuple[Buffer, ...]) -> tuple[Node, ...]:
    """Strip-mine loops along which a vector loop inside reads contiguously, and move the strips inside it."""
    by_name = {b.name: b for b in buffers}
    return tuple(new for node in body for new in _block(node, by_name))


def _block(node: Node, buffers: Mapping[str, Buffer]) -> tuple[Node, ...]:
    match node:
        case If():
            body = tuple(n for child in node.body for n in _block(child, buffers))
            orelse = tuple(n for child in node.orelse for n in _block(child, buffers))
            return (replace(node, body=body, orelse=orelse),)
        case Loop():
            if itemsize := _transposed_itemsize(node, buffers):
                return _strip_mine(node, itemsize)
            return (replace(node, body=tuple(n for child in node.body for n in _block(child, buffers))),)
    return (node,)


def _transposed_itemsize(loop: Loop, buffers: Mapping[str, Buffer]) -> int:
    """Bytes of an element that `loop` reads along memory and its vector loop across; 0 if there is none to be blocked."""
    if loop.kind != "serial" or loop.step != 1 or loop.registers or len(loop.body) != 1:
        return 0
    inner = loop.body[0]
    if not isinstance(inner, Loop) or inner.kind != "vector" or inner.registers or len(inner.body) != 1:
        return 0
    store = inner.body[0]
    if (
        inner.lanes < MIN_LANES
        or not isinstance(store, Store)
        or any(_depends(e, loop.var) for e in (inner.lower, inner.upper))
    ):
        return 0
    target = buffers[store.buffer]
    used = {r.tensor for e in (store.value, *store.subscripts) for r in reads(e)}
    if target.space == "register" or used & {store.buffer, *target.may_alias}:
        return 0
    if any(store.buffer in buffers[name].may_alias for name in used) or not _keeps_apart(store, loop.var, inner.var):
        return 0
    across = [b for r in reads(store.value) if _lies_across(r, b := buffers[r.tensor], loop.var, inner.var)]
    return max((b.dtype.itemsize for b in across), default=0)


def _depends(expr: Expr, variable: str) -> bool:
    coefficients = index_coefficients(expr)
    return coefficients is None or variable in coefficients


def _keeps_apart(store: Store, outer: str, inner: str) -> bool:
    """Whether different pairs of iterations surely write different elements, so that their order is free."""
    alone: set[str] = set()
    for subscript in store.subscripts:
        moving = {v for v in index_coefficients(subscript) or {} if v in (outer, inner)}
        if len(moving) == 1:
            alone |= moving
    return alone == {outer, inner}


def _lies_across(read: Read, buffer: Buffer, outer: str, inner: str) -> bool:
    """Whether `read` moves by one element with `outer`, and by more, or by an unknown stride, with `inner`."""
    along, across, unknown = 0, 0, False
    for subscript, stride in zip(read.subscripts, buffer.strides, strict=True):
        coefficients = index_coefficients(subscript)
        if coefficients is None:
            return False
        if isinstance(stride, Const):
            along += coefficients.get(outer, 0) * int(stride.value)
            across += coefficients.get(inner, 0) * int(stride.value)
        elif coefficients.get(outer, 0):
            return False
        else:
            unknown |= inner in coefficients
    size = buffer.dtype.itemsize
    return size >= 4 and along == size and (unknown or abs(across) > size)


def _strip_mine(loop: Loop, itemsize: int) -> tuple[Node, ...]:
    inner = loop.body[0]
    assert isinstance(inner, Loop)
    block = ROW_BYTES // itemsize
    trip = simplify(Call("sub", (loop.upper, loop.lower)))
    if isinstance(trip, Const) and int(trip.value) <= block:
        return (_unroll(inner, loop.var, loop.lower, int(trip.value)),) if int(trip.value) > 0 else ()
    if isinstance(trip, Const):
        n_whole: Expr = int_const(int(trip.value) // block * block)
    else:
        n_whole = Call("mul", (Call("floordiv", (trip, int_const(block))), int_const(block)))
    middle = simplify(Call("add", (loop.lower, n_whole)))
    name = f"{loop.var}_0"
    nodes: list[Node] = [
        replace(loop, var=name, upper=middle, step=block, body=(_unroll(inner, loop.var, Index(name), block),))
    ]
    if not isinstance(trip, Const):
        nodes.append(replace(loop, lower=middle))
    elif rest := int(trip.value) % block:
        nodes.append(_unroll(inner, loop.var, middle, rest))
    return tuple(nodes)


def _unroll(vector: Loop, variable: str, start: Expr, count: int) -> Loop:
    """`vector` around `count` copies of its body, for `variable` from `start` on."""
    store = vector.body[0]
    assert isinstance(store, Store)
    names = {variable: simplify(Call("add", (start, Index(variable))))}
    store = replace(
        store,
        subscripts=tuple(simplify(substitute(s, names)) for s in store.subscripts),
        value=substitute(store.value, names),
    )
    copies = Loop(variable, int_const(0), int_const(count), 1, "unroll", (store,), max_trip=count)
    trip = vector.max_trip
    if trip is not None and vector.upper == int_const(trip) and trip % vector.lanes == 0:
        trip = trip if trip // vector.lanes * count <= MAX_COPIES else None  # a loop of whole vectors, where that is too much
    return replace(vector, body=(copies,), max_trip=trip, interleave=1)
