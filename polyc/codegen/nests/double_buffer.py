"""Strips of streamed copies whose vectors are shorter than a cache line: put together near by, written down a strip behind.

Before: ``for k < 512 by 16 { for i0 < 64 by 8 { … vector i < 8 { unroll k' < 16 { stream Y[k + k', i0 + i] = X[…] } } } }``.
After: ``for k < 512 by 16 { for i0 < 64 by 8 { … vector i < 8 { unroll k' < 16 { B[k / 16 % 2, k', i0 + i] = X[…] } } ;
if (0 < k) for w < 2 { vector e < 64 { stream Y[k - 16 + i0 / 4 + w, e] = B[1 - k / 16 % 2, …] } } } }``, and the last strip.

A streamed line goes to memory as a whole if its parts follow each other; vectors of half a line that are turned in registers
write the halves of several lines by turns.  From `B` each row of the strip is written in the order of memory, whole lines at a
time.  That it is the strip before which is written lets a core read and write at the same time: streamed stores leave in order,
and what comes behind a long run of them waits.  Figures: docs/decisions/0420.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.code_limits import FEW
from polyc.codegen.nests.copies import Block, copy_nest, find_run, strides_of, sum_of, trip_count
from polyc.codegen.nests.prefetch_blocks import shift_rows
from polyc.codegen.nests.staged_rows import make_buffer
from polyc.ir.access import stride_of
from polyc.ir.expr import Const, Expr, Index, Read, int_const, lt, mentions, substitute
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, known_length
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, replace_nodes, rewrite_nodes
from polyc.machine.memory import LINE
from polyc.records import dataclass, replace


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
        return self.once or self.loop

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
    if (once is None and trip is None) or (trip is not None and (trip % width or trip < FEW * width)):
        return None
    test: If | None = None
    match body:
        case (If(body=(then,)) as branch,) if not mentions(branch.condition, (once or loop).var, loop.var):
            test, body = branch, (then,)
    rows = _rows_of(body[0]) if len(body) == 1 else None
    block = None if rows is None else _find_block(rows, once or loop, width, buffers)
    return None if rows is None or block is None else _Strips(loop, once, test, rows, block)


def _rows_of(node: Node) -> Loop | None:
    """The loop over groups of rows that `node` is, or is made of where it is a vector loop: one for as many as it has lanes."""
    match node:
        case Loop(kind="serial", lower=Const(0)) if known_length(node):
            return node
        case Loop(kind="vector", lower=Const(0)) if (trip := known_length(node)) and trip % node.lanes == 0:
            start = f"{node.var}_0"
            groups = (shift_rows(node, Index(start), node.lanes),)
            return Loop(start, int_const(0), int_const(trip), node.lanes, "serial", groups)
    return None


def _find_block(rows: Loop, place: Loop, width: int, buffers: Mapping[str, Buffer]) -> Block | None:
    """What a strip writes, `width` rows along `place`, if one streamed store, of vectors shorter than a line, fills it."""
    copied = rewrite_nodes((rows,), lambda node, _: () if isinstance(node, Prefetch) else None)
    loops, store = (copy_nest(copied[0], buffers) if copied else None) or ([], None)
    vector = next((n for n in loops if n.kind == "vector"), None)
    if store is None or not store.streamed or vector is None or not all(map(trip_count, loops)):
        return None
    result = buffers[store.buffer]
    size, across = result.dtype.itemsize, stride_of(store, result, place.var)
    strides = strides_of(store, result, loops)
    if vector.lanes * size >= LINE or across is None or across <= size or strides[rows.var] != size:
        return None
    run, places = find_run(loops, strides, size)
    n_rows, numbers = find_run((n for n in loops if n.var not in places), strides, across)
    if len(places) + len(numbers) < len(loops) or n_rows != width or run * size % LINE:
        return None
    return Block(tuple(loops), store, result, run, places, n_rows, numbers)


# -- what takes their place


def _write_behind(strips: _Strips, stage: str) -> Body:
    """The loop over `strips`, and the last of them behind it."""
    loop, block, width = strips.loop, strips.block, strips.loop.step
    place = simplify(strips.half(Index(loop.var)) + sum_of(block.rows))
    put = replace(block.store, buffer=stage, subscripts=(place, sum_of(block.places)), streamed=False)
    before = simplify(Index(loop.var) - width)
    number, n_groups = Index(strips.rows.var) // strips.rows.step, -(-(known_length(strips.rows) or 0) // strips.rows.step)
    first, end = (simplify(n * width // n_groups) for n in (number, number + 1))
    behind = If(lt(loop.lower, Index(loop.var)), (_write_down(strips, stage, before, first, end),))
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
