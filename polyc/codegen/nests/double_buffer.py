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

from polyc.codegen.nests.copies import Block, find_run, strides_of, sum_of
from polyc.codegen.nests.prefetch_blocks import shift_rows
from polyc.codegen.nests.staged_rows import make_buffer
from polyc.ir.access import stride_of
from polyc.ir.expr import Expr, Index, Read, eq, int_const, lt, mentions, substitute
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, Store, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, replace_nodes, rewrite_nodes
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace

LEAST_STRIPS = 4
"""Strips of a loop of which one more to be written behind it costs little."""


@dataclass(frozen=True, slots=True)
class _Strips:
    """A loop over strips; `once` in it, a loop that names where the strip begins, and a `test` that does not depend on them, if
    there are such; and what one strip writes, by groups of `rows` of what is read."""

    loop: Loop
    once: Loop | None
    test: If | None
    rows: Loop
    block: Block

    @property
    def place(self) -> Loop:
        """The loop that moves the result to a strip's rows."""
        return self.loop if self.once is None else self.once

    def around(self, body: Body) -> Loop:
        return replace(self.loop, body=body if self.once is None else (replace(self.once, body=body),))

    def half(self, strip: Expr) -> Expr:
        """The first row of the buffer for the strip at this value of the loop: they take turns."""
        return (strip - self.loop.lower) // self.loop.step % 2 * self.block.n_rows


def double_buffer_strips(nest: LoopNest) -> LoopNest:
    """The nest with strips of streamed results written from a buffer, one strip after they were put together there."""
    buffers = {b.name: b for b in nest.buffers}
    stages: dict[str, list[Block]] = {}

    def delay(node: Node, scope: Scope) -> Node | Body | None:
        if not isinstance(node, Loop) or node.is_expanded or node.registers:
            return node if isinstance(node, Loop) else None
        found = _find_strips(node, buffers)
        if found is None:
            return None
        stage = f"{found.block.result.name}.strips"
        stages.setdefault(stage, []).append(found.block)
        return _write_behind(found, stage)

    body = rewrite_nodes(nest.body, delay)
    made = (
        make_buffer(name, blocks[0].result, 2 * max(b.n_rows for b in blocks), max(b.run for b in blocks))
        for name, blocks in stages.items()
    )
    return replace(nest, body=body, buffers=(*nest.buffers, *made)) if stages else nest


# -- which strips


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
    *asked, node = body
    if isinstance(node, If):
        if not node.body or mentions(node.condition, loop.var if once is None else once.var, loop.var):
            return None
        test = replace(node, orelse=(*asked, *node.orelse))
        asked, node = [*asked, *node.body[:-1]], node.body[-1]
    rows = _rows_of(node, tuple(asked)) if all(map(_is_request, asked)) else None
    block = None if rows is None else _find_block(rows, loop if once is None else once, width, buffers)
    return None if rows is None or block is None else _Strips(loop, once, test, rows, block)


def _rows_of(node: Node, asked: Body) -> Loop | None:
    """The loop over groups of rows that `node` is, or is made of where it is a vector loop: one for as many as it has lanes.

    Each group asks for its share of what is `asked` in front of them all, if that is one loop."""
    if not isinstance(node, Loop):
        return None
    rows = node
    if node.kind == "vector":
        trip, lanes = known_length(node), node.lanes
        if not trip or trip % lanes or node.lower != int_const(0):
            return None
        start = f"{node.var}_0"
        rows = Loop(start, int_const(0), int_const(trip), lanes, "serial", (shift_rows(node, Index(start), lanes),))
    if rows.kind != "serial" or rows.lower != int_const(0) or not known_length(rows):
        return None
    match asked:
        case ():
            return rows
        case (Loop(step=1) as requests,) if known_length(requests) and requests.lower == int_const(0):
            first, end = _share(rows, known_length(requests) or 0)
            asked = (replace(requests, lower=first, upper=end, kind="serial", max_trip=None),)
        case _:
            asked = (If(eq(Index(rows.var), 0), asked),)
    return replace(rows, body=(*asked, *rows.body))


def _share(rows: Loop, count: int) -> tuple[Expr, Expr]:
    """The first of `count` that the iteration of `rows` does, and the one behind the last."""
    n_groups = -(-(known_length(rows) or 0) // rows.step)
    number = Index(rows.var) // rows.step
    return simplify(number * count // n_groups), simplify((number + 1) * count // n_groups)


def _find_block(rows: Loop, place: Loop, width: int, buffers: Mapping[str, Buffer]) -> Block | None:
    """What a strip writes, `width` rows along `place`, if one streamed store, of vectors shorter than a line, fills it."""
    inner: list[Loop] = []
    node: Node = rows
    while isinstance(node, Loop):
        inner.append(node)
        rest = [n for n in node.body if not _is_request(n)]
        length = known_length(node)
        if len(rest) != 1 or node.registers or node.initial or node.lower != int_const(0) or not length or length % node.step:
            return None
        (node,) = rest
    vector = next((n for n in inner if n.kind == "vector"), None)
    if not isinstance(node, Store) or not node.streamed or vector is None:
        return None
    result, at = buffers[node.buffer], Read(node.buffer, node.subscripts)
    size, across = result.dtype.itemsize, stride_of(at, result, place.var)
    strides = strides_of(at, result, inner)
    if vector.lanes * size >= LINE or across is None or across <= size or strides[rows.var] != size:
        return None
    run, places = find_run(inner, strides, size)
    n_rows, numbers = find_run((n for n in inner if n.var not in places), strides, across)
    if len(places) + len(numbers) < len(inner) or n_rows != width or run * size % LINE:
        return None
    return Block(tuple(inner), node, result, run, places, n_rows, numbers)


def _is_request(node: Node) -> bool:
    match node:
        case Prefetch():
            return True
        case Loop():
            return all(map(_is_request, node.body))
        case If():
            return all(map(_is_request, node.body + node.orelse))
    return False


# -- what takes their place


def _write_behind(strips: _Strips, stage: str) -> Body:
    """The loop over `strips`, and the last of them behind it."""
    loop, block, width = strips.loop, strips.block, strips.loop.step
    place = simplify(strips.half(Index(loop.var)) + sum_of(block.rows))
    put = replace(block.store, buffer=stage, subscripts=(place, sum_of(block.places)), streamed=False)
    before = simplify(Index(loop.var) - width)
    behind = If(lt(loop.lower, Index(loop.var)), (_write_down(strips, stage, before, *_share(strips.rows, width)),))
    rows = replace(strips.rows, body=(*replace_nodes(strips.rows.body, {id(block.store): put}), behind))
    n_strips = (loop.upper - 1 - loop.lower) // width
    last = _write_down(strips, stage, simplify(loop.lower + n_strips * width), int_const(0), int_const(width))
    if known_length(loop) is None:
        last = If(lt(loop.lower, loop.upper), (last,))
    made: Body = (strips.around((rows,)), last)
    if strips.test is None:
        return made
    return (replace(strips.test, body=made, orelse=(strips.around(strips.test.orelse),) if strips.test.orelse else ()),)


def _write_down(strips: _Strips, stage: str, strip: Expr, first: Expr, end: Expr) -> Node:
    """Write the rows of numbers `first` to `end` of a strip; `strip`: the value of the loop over strips."""
    loop, once, block = strips.loop, strips.once, strips.block
    row, element = f"{loop.var}_row", f"{loop.var}_run"
    # Where the strip moves the result, a row moves it as one step of the strip's variable.
    place = strip if once is None else Index(f"{once.var}_behind")
    subscripts = block.place_of(int_const(0), Index(element), {strips.place.var: place + Index(row)})
    value = Read(stage, (simplify(strips.half(strip) + Index(row)), Index(element)))
    store = replace(block.store, subscripts=subscripts, value=value)
    write = Loop(element, int_const(0), int_const(block.run), 1, "vector", (store,), block.run, block.vector.lanes)
    node: Node = Loop(row, first, end, 1, "serial", (write,))
    if once is not None:
        lower = simplify(substitute(once.lower, {loop.var: strip}))
        node = Loop(f"{once.var}_behind", lower, lower + 1, 1, "serial", (node,))
    return node
