"""Run the tiles of a loop that are whole, which are its first, in a loop of their own.

Before: ``for c in 0:N by 64 { if (M - r >= 4 && N - c >= 64) { A } else if (M - r >= 4) { B } else { C } }``.
After: ``if (M - r >= 4) { for c in 0:e by 64 { A } for c in e:N by 64 { B } } else { for c in 0:N by 64 { C } }``.

With the versions of a tile in one loop, the addresses of all of them are carried along: where strides are known at the call
only, one for each row of the operands, most of them in memory.  Of a single tile whose place is known, extents are: it has no
masks, and every second element of a row is picked out of whole vectors as in all others.  Iterations keep their order.
"""

from __future__ import annotations

from polyc.ir.expr import Const, Expr, all_hold, ceil_div, maximum, mentions, minimum, operands_of, substitute
from polyc.ir.facts import pieces, span_of
from polyc.ir.loops import If, Loop, LoopNest, Node, Prefetch
from polyc.ir.simplify import difference, simplify, simplify_value
from polyc.ir.walk import Body, Scope, map_bodies, map_nodes, rewrite_nest, rewrite_nodes
from polyc.records import replace


def run_first_tiles_apart(nest: LoopNest) -> LoopNest:
    """The nest with serial loops split where a condition around all that they do ceases to hold."""
    return rewrite_nest(nest, _split)


def _split(node: Node, scope: Scope) -> Body | None:
    if not isinstance(node, Loop):
        return None
    if node.registers or node.initial or node.is_expanded:
        return (node,)
    loop = replace(node, body=rewrite_nodes(node.body, _split, scope.inside(node)))
    return _split_loop(loop) or (loop,)


def _split_loop(loop: Loop) -> Body | None:
    """The nodes in the place of a loop over tiles; None where nothing about it is to be split."""
    if loop.kind != "serial" or loop.stream is not None or not loop.body:
        return None
    *ahead, node = loop.body
    if not all(isinstance(n, Prefetch) for n in ahead) or not isinstance(node, If) or not node.orelse:
        return None
    tests = operands_of(node.condition, "and")
    fixed = [t for t in tests if not mentions(t, loop.var)]
    spans = [span_of(t, loop.var) for t in tests if t not in fixed]
    ends = [s.upper for s in spans if s is not None and s.lower is None and s.upper is not None]
    if not ends or len(ends) < len(spans):
        return None
    others, outside = _under(node.orelse, fixed)
    if fixed and outside is None:
        return None
    ends += [u for u in operands_of(loop.upper, "min") if not any(_is_behind(u, e) for e in ends)]
    first = simplify(minimum(*ends))
    trips = maximum(minimum(*(ceil_div(e - loop.lower, loop.step) for e in ends)), 0)
    end = simplify(loop.lower + trips * loop.step)
    parts = pieces(loop, (loop.lower, first, (*ahead, *node.body)), (end, loop.upper, (*ahead, *others)))
    apart = _run_known(tuple(parts))
    if not fixed:
        return apart
    assert outside is not None
    return (If(all_hold(fixed), apart, (replace(loop, body=(*ahead, *outside)),)),)


def _run_known(body: Body) -> Body:
    """The nodes without choices that are known, and without loops of one known iteration."""
    result: list[Node] = []
    for node in body:
        match node:
            case If(Const(value)):
                result += _run_known(node.body if value else node.orelse)
            case Loop(kind="serial", lower=Const() as lower, upper=Const() as upper) if 0 < int(upper.value) - int(
                lower.value
            ) <= node.step and not (node.registers or node.initial or node.stream):
                result += _run_known(_substitute(node.body, node.var, lower))
            case _:
                result.append(map_bodies(node, _run_known))
    return tuple(result)


def _substitute(body: Body, var: str, value: Const) -> Body:
    """The nodes at one value of a variable."""

    def change(expr: Expr) -> Expr:
        return substitute(expr, {var: value})

    return map_nodes(body, lambda e: simplify(change(e)), stored=lambda e: simplify_value(change(e)))


def _under(body: Body, fixed: list[Expr]) -> tuple[Body, Body | None]:
    """What a body does where these tests hold, and where they do not; in place of the latter None if it is not apart."""
    match body:
        case (If(condition, then, orelse),) if orelse and set(operands_of(condition, "and")) == set(fixed):
            return then, orelse
    return body, None


def _is_behind(place: Expr, other: Expr) -> bool:
    distance = difference(place, other)
    return distance is not None and distance >= 0
