"""Strips of streamed copies whose vectors are shorter than a cache line: put together near by, written down a strip behind.

Before: ``for k < 512 by 16 { for i0 < 64 by 8 { … vector i < 8 { unroll k' < 16 { stream Y[k + k', i0 + i] = X[…] } } } }``.
After: ``for k < 512 by 16 { for i0 < 64 by 8 { … vector i < 8 { unroll k' < 16 { B[k / 16 % 2, k', i0 + i] = X[…] } } ;
if (0 < k) for w < 2 { vector e < 64 { stream Y[k - 16 + i0 / 4 + w, e] = B[1 - k / 16 % 2, …] } } } }``, and the last strip.

A streamed line goes to memory as a whole if its parts follow each other; vectors of half a line that are turned in registers
write the halves of several lines by turns.  From `B` each row of the strip is written in the order of memory, whole lines at a
time.  That it is the strip before which is written lets a core read and write at the same time: streamed stores leave in order,
and what comes behind a long run of them waits (4096×4096 with AVX2 on AMD, Zen 4, in C: 6.0 ms in halves of lines, 5.1 by way
of a strip, 4.4 a strip behind; a copy 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.codegen.nests.prefetch_blocks import shift_rows
from polyc.codegen.nests.staging import make_buffer
from polyc.ir.access import stride_of
from polyc.ir.expr import Const, Expr, Index, Read, eq, int_const, lt, mentions, substitute
from polyc.ir.loops import LINE, Buffer, If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, replace_nodes, rewrite_nodes
from polyc.records import dataclass, replace

LEAST_STRIPS = 4
"""Strips of a loop of which one more to be written behind it costs little."""


def write_strips_behind(nest: LoopNest) -> LoopNest:
    """The nest with strips of streamed results written from a buffer, one strip after they were put together there."""
    buffers = {b.name: b for b in nest.buffers}
    stages: dict[str, Buffer] = {}

    def delay(node: Node, scope: Scope) -> Node | Body | None:
        if not isinstance(node, Loop) or node.is_expanded or node.registers:
            return node if isinstance(node, Loop) else None
        found = _find_strips(node, buffers)
        if found is None:
            return None
        result = buffers[found.store.buffer]
        stage = make_buffer(f"{result.name}.strips", result, 2 * found.width, found.length)
        known = stages.get(stage.name)
        stages[stage.name] = stage if known is None else _larger(known, stage)
        return _write_behind(found, stage.name)

    body = rewrite_nodes(nest.body, delay)
    return replace(nest, body=body, buffers=(*nest.buffers, *stages.values())) if stages else nest


def _larger(one: Buffer, other: Buffer) -> Buffer:
    """A buffer for the rows of both."""

    def most(*values: Expr) -> Expr:
        return int_const(max(int(v.value) for v in values if isinstance(v, Const)))

    shape = tuple(most(a, b) for a, b in zip(one.shape, other.shape, strict=True))
    return replace(one, shape=shape, strides=(most(one.strides[0], other.strides[0]), one.strides[1]))


@dataclass(frozen=True, slots=True)
class _Strips:
    """A loop over strips; `once` in it, a loop that names where the strip begins, and a `test` that does not depend on them, if
    there are such; and the loop over groups of `rows` of what is read that one store is in."""

    loop: Loop
    once: Loop | None
    test: If | None
    rows: Loop
    store: Store
    place: Expr
    """The number of the result's row in the strip, of `width`."""
    width: int
    column: Expr
    """The place in the row, of `length`."""
    length: int
    inner: tuple[Loop, ...]
    """The loops in the strip."""


def _find_strips(loop: Loop, buffers: Mapping[str, Buffer]) -> _Strips | None:
    """The strips of `loop`; None where it has none that gain."""
    width, trip = loop.step, known_length(loop)
    if loop.kind != "serial" or loop.initial or width == 1:
        return None
    once, body = None, loop.body
    match body:
        case (Loop(kind="serial") as inner,) if known_length(inner) == inner.step == width:
            once, body = inner, inner.body
    if (once is None and trip is None) or (trip is not None and (trip % width or trip < LEAST_STRIPS * width)):
        return None
    test: If | None = None
    *requests, node = body
    asked = tuple(requests)
    if isinstance(node, If):
        if mentions(node.condition, loop.var if once is None else once.var, loop.var):
            return None
        test = replace(node, orelse=(*asked, *node.orelse))
        *requests, node = node.body
        asked = (*asked, *requests)
    rows = _rows_of(node, asked) if all(map(_is_request, asked)) else None
    if rows is None:
        return None
    return _find_store(loop, once, test, rows, buffers)


def _rows_of(node: Node, asked: Body) -> Loop | None:
    """The loop over groups of rows that `node` is, or is made of where it is a vector loop: one for as many as it has lanes.

    Each group asks for its share of what is `asked` in front of them all, if that is one loop."""
    if not isinstance(node, Loop):
        return None
    rows = node
    if node.kind == "vector":
        trip, lanes = known_length(node), node.lanes
        if not trip or trip % lanes or node.lower != int_const(0) or not _is_copied(node):
            return None
        start = f"{node.var}_0"
        rows = Loop(start, int_const(0), int_const(trip), lanes, "serial", (shift_rows(node, Index(start), lanes),))
    if rows.kind != "serial" or rows.lower != int_const(0) or not known_length(rows):
        return None
    if not asked:
        return rows
    match asked:
        case (Loop(step=1) as requests,) if known_length(requests) and requests.lower == int_const(0):
            first, end = _share(rows, known_length(requests) or 0)
            spread = replace(requests, lower=first, upper=end, kind="serial", max_trip=None)
            return replace(rows, body=(spread, *rows.body))
    first_group = eq(Index(rows.var), 0)
    return replace(rows, body=(If(first_group, asked), *rows.body))


def _is_copied(vector: Loop) -> bool:
    """Whether one store, or copies of one, are all that a vector loop does."""
    match vector.body:
        case (Store(),) | (Loop(kind="unroll", body=(Store(),)),):
            return True
    return False


def _share(rows: Loop, count: int) -> tuple[Expr, Expr]:
    """The first of `count` that the iteration of `rows` does, and the one behind the last."""
    trip = known_length(rows) or 0
    n_groups = -(-trip // rows.step)
    number = Index(rows.var) // rows.step

    def at(n: Expr) -> Expr:
        return simplify(n * count // n_groups)

    return at(number), at(number + 1)


def _find_store(loop: Loop, once: Loop | None, test: If | None, rows: Loop, buffers: Mapping[str, Buffer]) -> _Strips | None:
    """The strips if one streamed store, of vectors shorter than a line, fills each of them."""
    inner: list[Loop] = []
    node: Node = rows
    while isinstance(node, Loop):
        inner.append(node)
        rest = [n for n in node.body if not _is_request(n)]
        if len(rest) != 1 or node.registers or node.initial or node.lower != int_const(0):
            return None
        (node,) = rest
    vector = next((n for n in inner if n.kind == "vector"), None)
    if not isinstance(node, Store) or not node.streamed or vector is None:
        return None
    buffer, at = buffers[node.buffer], Read(node.buffer, node.subscripts)
    size = buffer.dtype.itemsize
    across = stride_of(at, buffer, loop.var if once is None else once.var)
    if vector.lanes * size >= LINE or across is None or across <= size or stride_of(at, buffer, rows.var) != size:
        return None
    # Loops that move along the rows of the strip, and across them, count through them.
    sums: dict[int, Expr] = {across: int_const(0), size: int_const(0)}
    reach = {across: 1, size: 1}
    for n in sorted(inner, key=lambda n: n.step):
        motion, trip = stride_of(at, buffer, n.var), known_length(n)
        if motion not in sums or trip is None or trip % n.step or n.step != reach[motion]:
            return None
        sums[motion] = sums[motion] + Index(n.var)
        reach[motion] = trip
    if reach[across] != loop.step or reach[size] * size % LINE:
        return None
    return _Strips(
        loop, once, test, rows, node, simplify(sums[across]), loop.step, simplify(sums[size]), reach[size], tuple(inner)
    )


def _is_request(node: Node) -> bool:
    match node:
        case Prefetch():
            return True
        case Loop() | If():
            inside = node.body if isinstance(node, Loop) else node.body + node.orelse
            return all(map(_is_request, inside))
    return False


def _write_behind(strips: _Strips, stage: str) -> Body:
    """The loop over `strips`, and the last of them behind it."""
    loop, width = strips.loop, strips.width
    half = _parity(strips, Index(loop.var)) * width
    place = simplify(half + strips.place)
    put = replace(strips.store, buffer=stage, subscripts=(place, strips.column), streamed=False)
    first, end = _share(strips.rows, width)
    before = simplify(Index(loop.var) - width)
    behind = If(lt(loop.lower, Index(loop.var)), (_write_down(strips, stage, before, first, end),))
    rows = replace(strips.rows, body=(*replace_nodes(strips.rows.body, {id(strips.store): put}), behind))
    n_strips = (loop.upper - 1 - loop.lower) // width
    final = simplify(loop.lower + n_strips * width)
    last = _write_down(strips, stage, final, int_const(0), int_const(width))
    if known_length(loop) is None:
        last = If(lt(loop.lower, loop.upper), (last,))
    made: Body = (_around(strips, (rows,)), last)
    if strips.test is None:
        return made
    return (replace(strips.test, body=made, orelse=(_around(strips, strips.test.orelse),) if strips.test.orelse else ()),)


def _parity(strips: _Strips, strip: Expr) -> Expr:
    number = (strip - strips.loop.lower) // strips.width
    return number % 2


def _around(strips: _Strips, body: Body) -> Loop:
    once = strips.once
    return replace(strips.loop, body=body if once is None else (replace(once, body=body),))


def _write_down(strips: _Strips, stage: str, strip: Expr, first: Expr, end: Expr) -> Node:
    """Write the rows of numbers `first` to `end` of a strip; `strip`: the value of the loop over strips."""
    loop, once, width = strips.loop, strips.once, strips.width
    row, element = f"{loop.var}_row", f"{loop.var}_run"
    begin: dict[str, Expr] = {n.var: int_const(0) for n in strips.inner}
    # Where the strip moves the result, a row moves it as one step of the strip's variable.
    place = strip if once is None else Index(f"{once.var}_behind")
    begin[loop.var if once is None else once.var] = place + Index(row)
    *outer, last = (simplify(substitute(s, begin)) for s in strips.store.subscripts)
    subscripts = (*outer, simplify(last + Index(element)))
    half = _parity(strips, strip) * width
    value = Read(stage, (simplify(half + Index(row)), Index(element)))
    lanes = next(n.lanes for n in strips.inner if n.kind == "vector")
    store = replace(strips.store, subscripts=subscripts, value=value)
    length = int_const(strips.length)
    whole = Loop(element, int_const(0), length, 1, "vector", (store,), max_trip=strips.length, lanes=lanes)
    node: Node = Loop(row, first, end, 1, "serial", (whole,))
    if once is not None:
        lower = simplify(substitute(once.lower, {loop.var: strip}))
        node = Loop(f"{once.var}_behind", lower, lower + 1, 1, "serial", (node,))
    return node
