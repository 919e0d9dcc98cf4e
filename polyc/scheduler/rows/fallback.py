"""The rungs below our own scheduler: isl's scheduler, and the order of the source."""

from __future__ import annotations

from polyc.ir.expr import Index
from polyc.ir.graphs import find_components
from polyc.poly.dependences import Dependences
from polyc.poly.isl_scheduler import compute_isl_schedule
from polyc.poly.rows import Band, Kind, Leaf, Member, Node, Row, Sequence
from polyc.poly.scop import Scop, ScopStatement


def schedule_with_isl(scop: Scop, dependences: Dependences) -> Node | None:
    """isl's own scheduler; None where it finds no rows that are integer affine functions of indices.

    Best with constant sizes: with symbolic ones isl shifts by whole extents.  Raises `CompileBudgetError` over its quota."""
    return compute_isl_schedule(scop, dependences)


def schedule_source_order(scop: Scop, dependences: Dependences) -> Node:
    """One nest per statement: left indices, then reduction indices; statements in topological order, ties by source order.

    A statement that needs its own values keeps the order of its indices, one sequential loop each.
    """
    edges = [(flow.source, flow.sink) for flow in dependences.flows]
    own = {flow.source for flow in dependences.flows if flow.source == flow.sink}
    names = [s.name for s in scop.statements]
    order = [name for component in find_components(names, edges) for name in component]
    nests = tuple(_statement_nest(scop.statement(name), name in own) for name in order)
    return nests[0] if len(nests) == 1 else Sequence(nests)


def _statement_nest(s: ScopStatement, is_recurrence: bool) -> Node:
    node: Node = Leaf(s.name)
    if is_recurrence:
        for position in reversed(range(len(s.indices))):
            node = Band((_unit_member(s, "S", position),), node)
        return node
    # An index that is a subscript by itself is fixed by the element, so no two instances of one element differ in it.
    fixed = {sub.name for sub in s.subscripts if isinstance(sub, Index)} if s.is_reduction else set(s.indices)
    for kind in ("R", "P"):
        positions = [n for n, i in enumerate(s.indices) if (i in fixed) == (kind == "P")]
        if positions:
            node = Band(tuple(_unit_member(s, kind, n) for n in positions), node)
    return node


def _unit_member(s: ScopStatement, kind: Kind, position: int) -> Member:
    return Member(kind, {s.name: Row(tuple(int(n == position) for n in range(len(s.indices))))})
