"""Blocks of lanes and unrolled copies that lie across memory: rows are accessed whole and transposed in registers.

In ``vector j { unroll k { P[k, j] = B[j, k] } }`` every copy reads B with a large stride between its lanes, but all copies
together read a few consecutive elements per lane.  The rows are loaded before the copies are written.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.codegen import shuffles
from polyc.codegen.builder import Val
from polyc.codegen.context import Context, State
from polyc.codegen.expressions import as_mask, byte_offset, certain_reads, element_pointer, eval_predicates
from polyc.codegen.linear import Linear, add_linear, constant_of, index_names, scale_linear, split_lane
from polyc.ir.expr import Index, Read, reads
from polyc.ir.loops import Loop, Store, Update

MIN_ROW = 2
"""Copies below which there is nothing to gain."""


def load_blocks(state: State, ctx: Context, loop: Loop, copies: int) -> dict[Read, tuple[str, list[Val]]]:
    """Reads of the body of an unrolled loop in a vector loop, with their value in every copy (before the first of them)."""
    if ctx.lane is None or copies < MIN_ROW or ctx.lanes & (ctx.lanes - 1) or loop.kind != "unroll":
        return {}
    bound = ctx.bind(loop.var, Val("%", "i64"))
    found = {read: linear for read in _block_reads(state, loop) if (linear := _across(state, bound, loop.var, read))}
    if not found:
        return {}
    guard = eval_predicates(state, ctx)
    if guard[0] is not None:
        return {}
    mask = as_mask(state, ctx, guard)
    result: dict[Read, tuple[str, list[Val]]] = {}
    for read, (uniform, step) in found.items():
        buffer = state.by_name[read.tensor]
        rows = [element_pointer(state, ctx, buffer, add_linear(uniform, scale_linear(step, lane))) for lane in range(ctx.lanes)]
        epoch = f"; {state.epochs.get(buffer.name, 0)}"
        columns = shuffles.load_columns(state.fn, state.target, buffer.dtype, rows, copies, mask, epoch)
        result[read] = loop.var, columns
    return result


def _block_reads(state: State, loop: Loop) -> Iterator[Read]:
    """Reads that every copy makes, of memory that no copy writes."""
    written: set[str] = set()
    for node in loop.body:
        if not isinstance(node, Store | Update):
            return
        written |= {node.buffer, *state.by_name[node.buffer].may_alias}
    for node in loop.body:
        assert isinstance(node, Store | Update)
        for read in sorted(certain_reads(node.value), key=repr):
            buffer = state.by_name[read.tensor]
            fits = buffer.space != "register" and buffer.dtype.itemsize >= 4
            if fits and read.tensor not in written and not any(reads(s) for s in read.subscripts):
                yield read


def _across(state: State, ctx: Context, variable: str, read: Read) -> tuple[Linear, Linear] | None:
    """Offset of lane 0 in the first copy and bytes from lane to lane, if the copies are neighbours and the lanes are not."""
    buffer = state.by_name[read.tensor]
    split = split_lane(byte_offset(ctx, buffer, read.subscripts), ctx.lane)
    if split is None:
        return None
    uniform, step = dict(split[0]), split[1]
    size = buffer.dtype.itemsize
    if uniform.pop((Index(variable),), 0) != size or _mentions(uniform, variable) or _mentions(step, variable):
        return None
    known = constant_of(step)
    if known is not None and abs(known) <= shuffles.MAX_STRIDE * size:
        return None
    return uniform, step


def _mentions(linear: Linear, variable: str) -> bool:
    return any(variable in index_names(atom) for atoms in linear for atom in atoms)
