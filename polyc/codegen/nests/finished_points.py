"""Points of a recurrence that stay as they are from some step on (`ir.steady`): strips of points run until all of them do.

    before  ``for t { vector p in 0:N { z[p] = |z[p]| > 2 ? z[p] : f(z[p], c[p]) } }``
    after   ``for s in 0:N:W { live = true; for t { if (live) { live = false; vector p { live ||= |z[p]| <= 2; … } } } }``

Strips are short vectors, which stay in registers (`recurrences`).  A step behind the last one of a strip reads a byte.
"""

from __future__ import annotations

from polyc.code_limits import MAX_CARRIED
from polyc.ir.expr import Call, Const, Index, Read, int_const, minimum
from polyc.ir.facts import comparisons_in, cut
from polyc.ir.intervals import ranges_in
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Node, Space, Store, Update
from polyc.ir.simplify import simplify
from polyc.ir.steady import find_steady
from polyc.ir.types import BOOL
from polyc.ir.walk import Scope, rewrite_nest, substitute_nodes, walk_nodes
from polyc.machine import Machine
from polyc.records import replace


def strip_points(nest: LoopNest, target: Machine) -> LoopNest:
    """The nest where steps of such recurrences run for strips of points, one after the other."""

    def visit(node: Node, scope: Scope) -> tuple[Node, ...] | None:
        if not isinstance(node, Loop) or len(node.body) != 1 or node.step != 1 or node.registers or node.initial:
            return None
        pieces = [node]
        if node.kind == "serial" and isinstance(node.body[0], If):
            tests = (c for n in walk_nodes(node.body) if isinstance(n, If) for c in comparisons_in(n.condition))
            pieces = [piece.loop for piece in cut(node, tests, ranges_in(scope)) if piece.loop.body]
        made = tuple(_strip(piece, nest, target) or piece for piece in pieces)
        return made if any(new is not old for new, old in zip(made, pieces, strict=True)) else None

    return rewrite_nest(nest, visit)


def _strip(loop: Loop, nest: LoopNest, target: Machine) -> Loop | None:
    if (found := find_steady(loop, nest)) is None or (row := found.points).max_trip is not None:
        return None
    size, first = min(target.strip_vectors, MAX_CARRIED) * row.lanes, Index(f"{row.var}.strip")
    body, end = substitute_nodes(row.body, {row.var: first + Index(row.var)}), minimum(simplify(row.upper - first), size)
    strip = replace(row, lower=int_const(0), upper=simplify(end), body=body, max_trip=size, interleave=1)
    return Loop(first.name, row.lower, row.upper, size, "serial", (replace(loop, body=(strip,)),))


def skip_finished_points(nest: LoopNest) -> LoopNest:
    """The nest where steps of strips of points do nothing where all of these stay as they are."""
    flags: list[Buffer] = []

    def visit(node: Node, scope: Scope) -> tuple[Node, ...] | None:
        if not isinstance(node, Loop) or (found := find_steady(node, nest)) is None or found.points.max_trip is None:
            return None
        name = f"live{len(flags)}"
        space: Space = "thread" if any(loop.kind == "parallel" for loop in scope.loops) else "shared"
        flags.append(Buffer(name, BOOL, (int_const(found.n_steps),), (int_const(1),), space))
        place = (simplify(Index(node.var) % found.n_steps),)
        moves = Update(name, place, "or", Call("not", (found.test,)))
        row = replace(found.points, body=(moves, *found.points.body), registers=(name,))
        step = If(Read(name, place), (Store(name, place, Const(False, BOOL)), row))
        return (*(Store(name, (int_const(k),), Const(True, BOOL)) for k in range(found.n_steps)), replace(node, body=(step,)))

    changed = rewrite_nest(nest, visit)
    return nest if changed is nest else replace(changed, buffers=(*nest.buffers, *flags))
