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

from collections.abc import Iterator, Mapping

from polyc.codegen.functions.polynomials import INLINE
from polyc.ir.access import accesses_in
from polyc.ir.dependence import carries_dependence
from polyc.ir.expr import (
    Call,
    Expr,
    Index,
    Read,
    any_holds,
    ge,
    maximum,
    mentions,
    minimum,
    reads,
    substitute,
    walk,
)
from polyc.ir.loops import Buffer, Guard, If, Loop, LoopNest, Node, Prefetch, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.walk import Body, Scope, map_nodes, node_expressions, rewrite_nest, walk_nodes
from polyc.machine.memory import LINE
from polyc.records import replace

LEAST_SHARED = 0.25
"""Part of its reads that a row has to share with the next one."""

MOST_READS = 16
"""Reads of a row of which two go side by side: the code of longer ones is long."""


def pair_rows(nest: LoopNest) -> LoopNest:
    """The same nest with two rows at a time where that saves loads."""
    buffers = {b.name: b for b in nest.buffers}

    def pair(node: Node, scope: Scope) -> Body | None:
        return _pair_loop(node, buffers) or None if isinstance(node, Loop) else None

    return rewrite_nest(nest, pair)


def _pair_loop(loop: Loop, buffers: Mapping[str, Buffer]) -> Body:
    """The loop over pairs of rows, and what is left; none where that gains nothing, or where rows may need each other."""
    if loop.kind != "serial" or loop.step != 1 or loop.registers or loop.initial or loop.stream is not None or loop.is_apart:
        return ()
    for border, inside in _branches(loop.body):
        place = _find_row(inside, loop.var, buffers)
        if place is not None and _is_independent(loop, buffers):
            return _make_pairs(loop, border, inside, place)
    return ()


def _branches(body: Body) -> Iterator[tuple[Expr | None, Body]]:
    """What stands in a row, and the condition under which another row stands there."""
    match body:
        case (If(condition=condition, orelse=orelse),) if orelse:
            yield condition, orelse
        case _:
            yield None, body


def _find_row(body: Body, var: str, buffers: Mapping[str, Buffer]) -> int | None:
    """Where in `body` the only long vector loop stands, two of which share reads."""
    places = [n for n, node in enumerate(body) if isinstance(node, Loop) and node.kind == "vector" and not node.is_expanded]
    if len(places) != 1:
        return None
    (place,) = places
    row = body[place]
    assert isinstance(row, Loop)
    if row.registers or row.initial or any(mentions(e, var) for e in node_expressions(row)):
        return None
    stores = [node for node in row.body if isinstance(node, Store)]
    if len(stores) != len(row.body) or not all(_is_part_of_line(buffers[s.buffer], row.lanes) for s in stores):
        return None
    values = [s.value for s in stores]
    if any(isinstance(e, Call) and e.op in INLINE for value in values for e in walk(value)):
        return None
    mine = _places(values, var)
    shared = mine & _places([substitute(value, _after(var)) for value in values], var)
    return place if len(mine) <= MOST_READS and len(shared) >= max(1, LEAST_SHARED * len(mine)) else None


def _is_part_of_line(buffer: Buffer, lanes: int) -> bool:
    """Whether vectors of the workspace are shorter than lines.  Results may go to memory, line after line."""
    return buffer.space in ("shared", "thread") and lanes * buffer.dtype.itemsize < LINE


def _places(values: list[Expr], var: str) -> set[Read]:
    """What is read, as far as it is not the same in all rows."""
    found = (r for value in values for r in reads(value) if any(mentions(s, var) for s in r.subscripts))
    return {replace(r, subscripts=tuple(map(simplify, r.subscripts))) for r in found}


def _after(var: str) -> dict[str, Expr]:
    """What stands for the number of a row in the row behind it."""
    return {var: Index(var) + 1}


def _is_independent(loop: Loop, buffers: Mapping[str, Buffer]) -> bool:
    """Whether no row reads or writes what another one writes."""
    nodes = walk_nodes(loop.body)
    if any(isinstance(n, (Update, Guard, Prefetch)) or (isinstance(n, Loop) and n.kind == "parallel") for n in nodes):
        return False
    return not carries_dependence(loop, list(accesses_in(loop.body)), buffers)


def _make_pairs(loop: Loop, border: Expr | None, inside: Body, place: int) -> Body:
    row = inside[place]
    assert isinstance(row, Loop)
    behind = _after(loop.var)

    def at(place: Mapping[str, Expr], nodes: Body) -> Body:
        return map_nodes(nodes, lambda e: substitute(e, place), lambda _, subscripts: tuple(map(simplify, subscripts)))

    def both(nodes: Body) -> Body:
        return nodes + at(behind, nodes)

    joined = replace(row, body=both(row.body), interleave=max(1, row.interleave // 2))
    pair = (*both(inside[:place]), joined, *both(inside[place + 1 :]))
    if border is None:
        length = maximum(0, loop.upper - loop.lower)
        end = simplify(loop.lower + 2 * (length // 2))
        rest = () if end == simplify(loop.upper) else (replace(loop, lower=end),)
        return (replace(loop, upper=end, step=2, body=pair), *rest)
    one = f"{loop.var}_row"
    end = simplify(minimum(loop.upper, Index(loop.var) + 2))
    single = Loop(one, Index(loop.var), end, 1, "serial", at({loop.var: Index(one)}, loop.body))
    alone: Expr = ge(behind[loop.var], loop.upper)
    for test in (border, substitute(border, behind)):
        alone = any_holds((alone, test))
    return (replace(loop, step=2, body=(If(alone, (single,), pair),)),)
