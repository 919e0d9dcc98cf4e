"""Compute two rows at once where the second one reads what the first one reads.

Before: ``for i { head(i) ; vector j { Y[i, j] = X[i - 1, j] + X[i, j] + X[i + 1, j] } }``.
After: ``for i by 2 { head(i) ; head(i + 1) ; vector j { Y[i, j] = X[i - 1, j] + X[i, j] + X[i + 1, j] ; Y[i + 1, j] = X[i, j]
+ X[i + 1, j] + X[i + 2, j] } }``, and the rows that are left, or have a border of their own, one by one.

What both rows read is loaded once.  Legal where rows need nothing of each other; every element is computed by the same
operations (unroll and jam: Callahan, Cocke and Kennedy, "Estimating interlock and improving balance for pipelined
architectures", 1988).

For vectors shorter than a line.  The others read each line once as it is, and it is their rows that have to wait near
(`scheduler.loops.columns`): rows in pairs take half as many beginnings.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.code_limits import MAX_READS
from polyc.codegen.functions.polynomials import INLINE
from polyc.ir.access import accesses_in, with_values
from polyc.ir.dependence import carries_dependence
from polyc.ir.expr import Call, Expr, Index, Read, Select, any_holds, ge, maximum, mentions, minimum, reads, substitute, walk
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, node_expressions, rewrite_nest, substitute_nodes, walk_nodes
from polyc.machine.memory import LINE
from polyc.records import replace

LEAST_SHARED = 0.25
"""Part of its reads that a row has to share with the next one."""


def pair_rows(nest: LoopNest) -> LoopNest:
    """The same nest with two rows at a time where that saves loads."""
    buffers = {b.name: b for b in nest.buffers}

    def pair(node: Node, scope: Scope) -> Body | None:
        match node:
            case Loop(kind="serial", step=1, registers=(), initial=(), stream=None, is_apart=False):
                return _pair_loop(node, buffers)
        return None

    return rewrite_nest(nest, pair)


def _pair_loop(loop: Loop, buffers: Mapping[str, Buffer]) -> Body | None:
    """The loop over pairs of rows, and what is left; None where that gains nothing, or where rows may need each other."""
    border, inside = None, loop.body
    match loop.body:
        case (If(condition=condition, orelse=orelse),) if orelse and not _tests_row(orelse, loop.var):
            border, inside = condition, orelse
    row = _find_row(inside, loop.var, buffers)
    if row is None or not _is_independent(loop, buffers):
        return None
    place, behind = inside.index(row), {loop.var: Index(loop.var) + 1}
    joined = replace(row, body=row.body + substitute_nodes(row.body, behind), interleave=max(1, row.interleave // 2))
    parts = [n + substitute_nodes(n, behind) for n in (inside[:place], inside[place + 1 :])]
    pair = (*parts[0], joined, *parts[1])
    if border is None:
        end = simplify(loop.lower + 2 * (maximum(0, loop.upper - loop.lower) // 2))
        rest = () if end == simplify(loop.upper) else (replace(loop, lower=end),)
        return (replace(loop, upper=end, step=2, body=pair), *rest)
    one = f"{loop.var}_row"
    end = simplify(minimum(loop.upper, Index(loop.var) + 2))
    single = Loop(one, Index(loop.var), end, 1, "serial", substitute_nodes(loop.body, {loop.var: Index(one)}))
    alone = any_holds((ge(behind[loop.var], loop.upper), border, substitute(border, behind)))
    return (replace(loop, step=2, body=(If(alone, (single,), pair),)),)


def _tests_row(body: Body, var: str) -> bool:
    """Whether values depend on where the row is: `body` is for borders then, two of which are seldom side by side."""
    values = (e for n in walk_nodes(body) for root in node_expressions(n) for e in walk(root))
    return any(isinstance(e, Select) and mentions(e.condition, var) for e in values)


def _find_row(body: Body, var: str, buffers: Mapping[str, Buffer]) -> Loop | None:
    """The only long vector loop, two of which share reads."""
    rows = [node for node in body if isinstance(node, Loop) and node.kind == "vector" and not node.is_expanded]
    if len(rows) != 1 or rows[0].registers or rows[0].initial or any(mentions(e, var) for e in node_expressions(rows[0])):
        return None
    stores = [node for node in rows[0].body if isinstance(node, Store)]
    results = [buffers[s.buffer] for s in stores]  # those of the caller may go to memory, line after line
    is_wide = any(b.space not in ("shared", "thread") or rows[0].lanes * b.dtype.itemsize >= LINE for b in results)
    if len(stores) != len(rows[0].body) or is_wide:
        return None
    values = [s.value for s in stores]
    if any(isinstance(e, Call) and e.op in INLINE for value in values for e in walk(value)):
        return None
    mine, next_ones = (_places(values, var, distance) for distance in (0, 1))
    return rows[0] if len(mine) <= MAX_READS and len(mine & next_ones) >= max(1, LEAST_SHARED * len(mine)) else None


def _places(values: list[Expr], var: str, distance: int) -> set[Read]:
    """What is read `distance` rows on, as far as it is not the same in all rows."""
    found = (r for value in values for r in reads(value) if any(mentions(s, var) for s in r.subscripts))
    return {with_values(r, {var: Index(var) + distance}) for r in found}


def _is_independent(loop: Loop, buffers: Mapping[str, Buffer]) -> bool:
    """Whether no row reads or writes what another one writes."""
    nodes = walk_nodes(loop.body)
    if any(isinstance(n, (Update, Guard, Prefetch)) or (isinstance(n, Loop) and n.kind == "parallel") for n in nodes):
        return False
    return not carries_dependence(loop, list(accesses_in(loop.body)), buffers)
