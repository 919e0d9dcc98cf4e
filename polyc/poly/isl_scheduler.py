"""isl's own scheduler, set up so that its rows are usable: the second opinion, and the rung below ours.

Constant sizes where they are known, no shifts, coefficients 0 and 1, and the instances of a reduction kept in the order of
the source (given as coincidence alone, isl fails to carry them); all options are reset afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy

from polyc.poly.dependences import Dependences
from polyc.poly.instances import maps_of
from polyc.poly.isl import operation_quota
from polyc.poly.rows import Band, Kind, Leaf, Member, Node, Row, Sequence
from polyc.poly.scop import Scop

QUOTA, QUOTA_PER_STATEMENT = 4_000_000, 400_000
"""isl operations for one schedule, some four million of which take a second."""


def compute_isl_schedule(scop: Scop, dependences: Dependences) -> Node | None:
    """Rows of isl's schedule; None where one is no integer affine function of indices, or a statement has no instances.

    Raises `CompileBudgetError` where isl needs more than its quota of operations."""
    if any(s.domain.is_empty() for s in scop.statements):
        return None  # isl drops such a statement from its tree, but its initial values have to be placed
    validity = islpy.UnionMap.empty(islpy.Space.params_alloc(islpy.DEFAULT_CONTEXT, 0))
    for flow in dependences.flows:
        validity = validity.union(islpy.UnionMap.from_map(flow.relation))
    for s in scop.statements:
        if s.is_reduction:
            same = dependences.same_element[s.name]
            forward = same.intersect(islpy.Map.lex_lt(s.domain.get_space()))
            validity = validity.union(islpy.UnionMap.from_map(forward))
    domain = islpy.UnionSet.from_set(scop.statements[0].domain)
    for s in scop.statements[1:]:
        domain = domain.union(islpy.UnionSet.from_set(s.domain))
    constraints = islpy.ScheduleConstraints.on_domain(domain).set_validity(validity).set_coincidence(validity)
    constraints = constraints.set_proximity(validity)
    with operation_quota(QUOTA + QUOTA_PER_STATEMENT * len(scop.statements), "isl's scheduler"), _bounded_options():
        schedule = constraints.compute_schedule()
    return _Conversion(scop, dependences).convert(schedule.get_root())


@contextmanager
def _bounded_options() -> Iterator[None]:
    context = islpy.DEFAULT_CONTEXT
    wanted = {
        "schedule_max_constant_term": 0,
        "schedule_max_coefficient": 1,
        "schedule_outer_coincidence": 1,
        "schedule_maximize_coincidence": 1,
    }
    old = {name: getattr(context, f"get_{name}")() for name in wanted}
    try:
        for name, value in wanted.items():
            getattr(context, f"set_{name}")(value)
        yield
    finally:
        for name, value in old.items():
            getattr(context, f"set_{name}")(value)


class _Conversion:
    """An isl schedule tree as rows."""

    def __init__(self, scop: Scop, dependences: Dependences) -> None:
        self.names = [s.name for s in scop.statements]
        self.dependences = dependences

    def convert(self, node: islpy.ScheduleNode) -> Node | None:
        """None where some row is no integer affine function, or the tree has other kinds of nodes."""
        kind: object = node.get_type()
        if kind == islpy.schedule_node_type.leaf:
            names = [str(m.get_tuple_name()) for m in _sets_of(node.get_domain())]
            leaves = tuple(Leaf(name) for name in sorted(names, key=self.names.index))
            return leaves[0] if len(leaves) == 1 else Sequence(leaves)
        if kind in (islpy.schedule_node_type.sequence, islpy.schedule_node_type.set):
            flat: list[Node] = []
            for n in range(node.n_children()):
                child = self.convert(node.get_child(n).get_child(0))
                if child is None:
                    return None
                flat.extend(child.children if isinstance(child, Sequence) else (child,))
            return Sequence(tuple(flat))
        if kind == islpy.schedule_node_type.band:
            inner = self.convert(node.get_child(0))
            members = self._members(node)
            if inner is None or members is None:
                return None
            return _nest(members, inner, bool(node.band_get_permutable()))
        if kind == islpy.schedule_node_type.domain:
            return self.convert(node.get_child(0))
        return None

    def _members(self, node: islpy.ScheduleNode) -> list[Member] | None:
        partial = node.band_get_partial_schedule()
        members = []
        for n in range(node.band_n_member()):
            union = islpy.UnionMap.from_union_pw_aff(partial.get_at(n)).intersect_domain(node.get_domain())
            graphs = {str(m.get_tuple_name(islpy.dim_type.in_)): m for m in maps_of(union)}
            rows: dict[str, Row] = {}
            for name in self.names:
                if name in graphs:
                    row = _row(graphs[name])
                    if row is None:
                        return None
                    rows[name] = row
            kind: Kind = "P" if node.band_member_get_coincident(n) else "R" if self._is_coincident(graphs) else "S"
            members.append(Member(kind, rows))
        return members

    def _is_coincident(self, graphs: dict[str, islpy.Map]) -> bool:
        """Whether only reductions keep the row from being parallel: isl knows no reductions."""
        for flow in self.dependences.flows:
            if flow.source in graphs and flow.sink in graphs:
                same = graphs[flow.source].apply_range(graphs[flow.sink].reverse())
                if not flow.relation.is_subset(same):
                    return False
        return True


def _nest(members: list[Member], inner: Node, is_permutable: bool) -> Node:
    if all(m.kind != "S" for m in members):
        # Rows at distance 0 on every dependence permute, whatever isl made of the order inside reductions.
        if isinstance(inner, Band) and all(m.kind != "S" for m in inner.members):
            return Band((*members, *inner.members), inner.child)
        return Band(tuple(members), inner)
    if is_permutable:
        return Band(tuple(members), inner)
    for member in reversed(members):
        inner = Band((member,), inner)
    return inner


def _row(graph: islpy.Map) -> Row | None:
    """The coefficients of a map that is one integer affine function of the indices."""
    pieces = islpy.PwMultiAff.from_map(graph).get_pw_aff(0).get_pieces() if graph.is_single_valued() else []
    if len(pieces) != 1:
        return None
    aff = pieces[0][1]
    in_, param = islpy.dim_type.in_, islpy.dim_type.param
    if aff.dim(islpy.dim_type.div) or any(not aff.get_coefficient_val(param, p).is_zero() for p in range(aff.dim(param))):
        return None
    values = [aff.get_coefficient_val(in_, d) for d in range(aff.dim(in_))] + [aff.get_constant_val()]
    if not all(v.is_int() for v in values):
        return None
    (*coefficients, constant) = (int(v.to_python()) for v in values)
    return Row(tuple(coefficients), constant)


def _sets_of(union: islpy.UnionSet) -> list[islpy.Set]:
    items = union.get_set_list()
    return [items.get_at(n) for n in range(items.n_set())]
