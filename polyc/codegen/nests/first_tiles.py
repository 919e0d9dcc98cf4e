"""Run the tiles of a loop that are whole, which are its first, in a loop of their own.

Before: ``for c in 0:N by 64 { if (M - r >= 4 && N - c >= 64) { A } else if (M - r >= 4) { B } else { C } }``.
After: ``if (M - r >= 4) { for c in 0:e by 64 { A } for c in e:N by 64 { B } } else { for c in 0:N by 64 { C } }``.

With the versions of a tile in one loop, the addresses of all of them are carried along: where strides are known at the call
only, one for each row of the operands, most of them in memory.  Of a single tile whose place is known, extents are: it has no
masks, and every second element of a row is picked out of whole vectors as in all others.  Iterations keep their order.
"""

from __future__ import annotations

from polyc.codegen.nests.interiors import bound_of
from polyc.ir.expr import Call, Const, Expr, Index, all_hold, ceil_div, maximum, minimum, operands_of, substitute, walk
from polyc.ir.loops import If, Loop, LoopNest, Node, Prefetch
from polyc.ir.simplify import simplify, simplify_value
from polyc.ir.walk import map_nodes
from polyc.records import replace


def run_first_tiles_apart(nest: LoopNest) -> LoopNest:
    """The nest with serial loops split where a condition around all that they do ceases to hold."""
    return replace(nest, body=_split(nest.body))


def _split(body: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(new for node in body for new in _split_node(node))


def _split_node(node: Node) -> tuple[Node, ...]:
    match node:
        case If():
            return (replace(node, body=_split(node.body), orelse=_split(node.orelse)),)
        case Loop():
            if node.registers or node.initial or node.is_expanded:
                return (node,)
            loop = replace(node, body=_split(node.body))
            return _split_loop(loop) or (loop,)
    return (node,)


def _split_loop(loop: Loop) -> tuple[Node, ...] | None:
    """The nodes in the place of a loop over tiles; None where nothing about it is to be split."""
    if loop.kind != "serial" or loop.stream is not None or not loop.body:
        return None
    *ahead, node = loop.body
    if not all(isinstance(n, Prefetch) for n in ahead) or not isinstance(node, If) or not node.orelse:
        return None
    tests = operands_of(node.condition, "and")
    fixed = [t for t in tests if not _mentions(t, loop.var)]
    bounds = [bound_of(t, loop.var) if isinstance(t, Call) else None for t in tests if t not in fixed]
    ends = [b[1] for b in bounds if b is not None and b[0] == "upper"]
    if not ends or len(ends) < len(bounds):
        return None
    others, outside = _under(node.orelse, fixed)
    if fixed and outside is None:
        return None
    ends += [u for u in operands_of(loop.upper, "min") if not any(_is_behind(u, e) for e in ends)]
    first = simplify(_least(ends))
    trips = maximum(_least([_trips(loop, e) for e in ends]), 0)
    end = simplify(loop.lower + trips * loop.step)
    apart: list[Node] = []
    for part in (replace(loop, upper=first, body=(*ahead, *node.body)), replace(loop, lower=end, body=(*ahead, *others))):
        trip = simplify(part.upper - part.lower)
        if not (isinstance(trip, Const) and int(trip.value) <= 0):
            apart += _run_known((part,))
    if not fixed:
        return tuple(apart)
    assert outside is not None
    return (If(all_hold(fixed), tuple(apart), (replace(loop, body=(*ahead, *outside)),)),)


def _run_known(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes without choices that are known, and without loops of one known iteration."""
    result: list[Node] = []
    for node in body:
        match node:
            case If(Const(value)):
                result += _run_known(node.body if value else node.orelse)
            case If():
                result.append(replace(node, body=_run_known(node.body), orelse=_run_known(node.orelse)))
            case Loop(kind="serial", lower=Const() as lower, upper=Const() as upper) if 0 < int(upper.value) - int(
                lower.value
            ) <= node.step and not (node.registers or node.initial or node.stream):
                result += _run_known(_substitute(node.body, node.var, lower))
            case Loop():
                result.append(replace(node, body=_run_known(node.body)))
            case _:
                result.append(node)
    return tuple(result)


def _substitute(body: tuple[Node, ...], var: str, value: Const) -> tuple[Node, ...]:
    """The nodes at one value of a variable."""

    def change(expr: Expr) -> Expr:
        return substitute(expr, {var: value})

    return map_nodes(body, lambda e: simplify(change(e)), lambda e: e, lambda e: simplify_value(change(e)))


def _under(body: tuple[Node, ...], fixed: list[Expr]) -> tuple[tuple[Node, ...], tuple[Node, ...] | None]:
    """What a body does where these tests hold, and where they do not; in place of the latter None if it is not apart."""
    match body:
        case (If(condition, then, orelse),) if orelse and set(operands_of(condition, "and")) == set(fixed):
            return then, orelse
    return body, None


def _trips(loop: Loop, end: Expr) -> Expr:
    """Iterations of the loop in front of `end`; negative where that lies in front of its begin."""
    return ceil_div(end - loop.lower, loop.step)


def _is_behind(place: Expr, other: Expr) -> bool:
    distance = simplify(place - other)
    return isinstance(distance, Const) and int(distance.value) >= 0


def _least(values: list[Expr]) -> Expr:
    result = values[0]
    for value in values[1:]:
        result = minimum(result, value)
    return result


def _mentions(expr: Expr, var: str) -> bool:
    return any(isinstance(node, Index) and node.name == var for node in walk(expr))
