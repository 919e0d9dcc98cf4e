"""Loops over tiles: where the last tile is smaller, it gets a version with extents of its own, and then a loop of its own.

Copies of known extents, of which each tile has one of two sizes (`split_last_tiles`):

    before  ``for c0 < 200 step 32 { for k < min(32, 200 - c0) { … } }``
    after   ``for c0 < 200 step 32 { if (c0 < 192) for k < 32 { … } else for k < 8 { … } }``

All loops over tiles of which there are versions, in the end (`split_full_tiles`):

    before  ``for c in 0:N by 64 { if (M - r >= 4 && N - c >= 64) { A } else if (M - r >= 4) { B } else { C } }``
    after   ``if (M - r >= 4) { for c in 0:e by 64 { A } for c in e:N by 64 { B } } else { for c in 0:N by 64 { C } }``

With the versions of a tile in one loop, the addresses of all of them are carried along: where strides are known at the call
only, one for each row of the operands, most of them in memory.  Of a single tile whose place is known, extents are: it has no
masks, and every second element of a row is picked out of whole vectors as in all others.  Iterations keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.codegen.nests.copies import copy_nest
from polyc.ir.expr import Const, Expr, Index, all_hold, ceil_div, lt, maximum, mentions, minimum, operands_of
from polyc.ir.facts import is_empty, pieces, span_of
from polyc.ir.intervals import ranges_in, tighten
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Prefetch, do_bounds_depend
from polyc.ir.simplify import constant_of, simplify
from polyc.ir.walk import TOP, Body, Scope, loops_in, map_bodies, rewrite_inside, rewrite_nest, substitute_nodes
from polyc.records import replace

# -- versions


def split_last_tiles(nest: LoopNest) -> LoopNest:
    """Give whole tiles and the last tile of copies versions of their own, both with constant extents."""
    by_name = {b.name: b for b in nest.buffers}

    def split(node: Node, scope: Scope) -> Node | None:
        return _version_tiles(node, TOP) if isinstance(node, Loop) and _are_copies(node, by_name) else None

    return rewrite_nest(nest, split)


def _are_copies(node: Node, buffers: Mapping[str, Buffer]) -> bool:
    """Whether a nest is a copy, or loops around one whose tiles overlap (`align_tiles`)."""
    if isinstance(node, Loop) and len(node.body) == 1 and not node.registers and not node.initial:
        return copy_nest(node, buffers) is not None or _are_copies(node.body[0], buffers)
    return copy_nest(node, buffers) is not None


def _version_tiles(node: Node, scope: Scope) -> Node | None:
    if not isinstance(node, Loop):
        return None
    ranges = ranges_in(scope)
    node = replace(node, lower=tighten(node.lower, ranges), upper=tighten(node.upper, ranges))
    low, high = constant_of(node.lower), constant_of(node.upper)
    if node.max_trip is not None and low == 0 and high is not None:
        node = replace(node, max_trip=min(node.max_trip, high))
    rest = 0 if low is None or high is None or low + node.step >= high else (high - low) % node.step
    if high is not None and rest and do_bounds_depend(loops_in(node.body), node.var):
        is_whole = lt(Index(node.var), high - rest)
        node = replace(node, body=(If(is_whole, node.body, node.body),))
    return rewrite_inside(node, _version_tiles, scope)


# -- loops


def split_full_tiles(nest: LoopNest) -> LoopNest:
    """The nest with serial loops split where a condition around all that they do ceases to hold."""

    def split(node: Node, scope: Scope) -> Body | None:
        if not isinstance(node, Loop):
            return None
        if node.registers or node.initial or node.is_expanded:
            return (node,)
        loop = rewrite_inside(node, split, scope)
        return _split_loop(loop) or (loop,)

    return rewrite_nest(nest, split)


def _split_loop(loop: Node) -> Body | None:
    """The nodes in the place of a loop over tiles; None where nothing about it is to be split."""
    if not isinstance(loop, Loop) or loop.kind != "serial" or loop.stream is not None or not loop.body:
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
    ends += [u for u in operands_of(loop.upper, "min") if not any(is_empty(u, e) for e in ends)]
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
            case Loop(kind="serial", lower=Const() as first, upper=Const() as end) if (
                0 < end.value - first.value <= node.step and not (node.registers or node.initial or node.stream)
            ):
                result += _run_known(substitute_nodes(node.body, {node.var: first}))
            case _:
                result.append(map_bodies(node, _run_known))
    return tuple(result)


def _under(body: Body, fixed: list[Expr]) -> tuple[Body, Body | None]:
    """What a body does where these tests hold, and where they do not; in place of the latter None if it is not apart."""
    match body:
        case (If(condition, then, orelse),) if orelse and set(operands_of(condition, "and")) == set(fixed):
            return then, orelse
    return body, None
