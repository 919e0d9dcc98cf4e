"""Loops over rows whose vectors read and write along many rows at once, so far apart as only the call knows.

LLVM steps the address of every row on with the loop around (strength reduction).  Where there are more of them than registers,
each step is an addition in memory, and a row of filtered tiles, with 16 planes of products, does 62 of them: more than
computing what it needs from the variable, which takes a product for each stride.
"""

from __future__ import annotations

from polyc.codegen.emission.context import Context, State, byte_offset
from polyc.codegen.emission.linear import LANE, index_names
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Index, reads
from polyc.ir.loops import Loop, Store, Update
from polyc.ir.walk import node_expressions, walk_nodes


def takes_many_addresses(state: State, ctx: Context, loop: Loop) -> bool:
    """Whether addresses of vector loops right inside of `loop` step on with it by strides of the call, and are many."""
    inner = [node for node in walk_nodes(loop.body) if isinstance(node, Loop)]
    if state.held or not inner or any(node.kind != "vector" for node in inner):
        return False
    for around in (loop, *inner):
        ctx = ctx.bind(around.var, Val("%", "i64"))
    found = set[tuple[str, frozenset[tuple[object, int]]]]()
    for node in walk_nodes(loop.body):
        accesses = [(r.tensor, r.subscripts) for e in node_expressions(node) for r in reads(e)]
        if isinstance(node, (Store, Update)):
            accesses.append((node.buffer, node.subscripts))
        for name, subscripts in accesses:
            buffer = state.by_name[name]
            if buffer.space == "register":
                continue
            offset = byte_offset(ctx, buffer, subscripts)
            steps = [t for t in offset if any(loop.var in index_names(a) for a in t)]
            if any(not isinstance(a, Index) for t in steps for a in t):
                found.add((name, frozenset((t, c) for t, c in offset.items() if t and t != (LANE,))))
    return len(found) > state.target.address_registers
