"""Dependences: who needs whose values, as isl relations between statement instances.

A single-assignment program has flow dependences only, and the flow through a tensor version is the composition
``write . read^-1``: no dataflow analysis is needed.  Of a reduction every instance that reduces into an element is a
source, so a consumer depends on the whole sum and never on a part of it.
"""

from __future__ import annotations

import islpy

from polyc.poly.exclusive import drop_exclusive, find_parts
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass, replace

QUOTA, QUOTA_PER_STATEMENT = 2_000_000, 300_000
"""isl operations, some four million of which take a second."""


@dataclass(frozen=True, eq=False, slots=True)
class Flow:
    """Instances of `sink` that need a value which instances of `source` write into `tensor`.

    `source` and `sink` are names of instance sets: a statement ``S``, or the initial values ``init_S`` of a reduction.
    """

    source: str
    sink: str
    tensor: str
    relation: islpy.Map  # [sizes] -> { source[i] -> sink[j] }


@dataclass(frozen=True, eq=False, slots=True)
class Dependences:
    """All dependences of a Scop, sorted by source, sink and tensor in the order of the source text.

    `flows` relate statements only and are what a scheduler must keep; the reads of an initial value count as reads of all
    instances that reduce into that element, since the initial value precedes them.  `init_flows` are the rest of what the
    proofs check: from writers to ``init_S``, from ``init_S`` to the instances of S on its element, and from ``init_S`` to
    the readers of elements that no instance of S writes (empty reductions).  `same_element` holds the equivalence
    E_S = W . W^-1 of every reduction: its instances may run in any order, but never at the same time.
    """

    flows: tuple[Flow, ...]
    init_flows: tuple[Flow, ...]
    same_element: dict[str, islpy.Map]  # S: [sizes] -> { S[i] -> S[j] }

    def has_recurrence(self) -> bool:
        """Whether some statement needs its own values, directly or through others."""
        successors: dict[str, set[str]] = {}
        for flow in self.flows:
            successors.setdefault(flow.source, set()).add(flow.sink)
        state: dict[str, int] = {}
        for root in successors:
            stack = [(root, iter(sorted(successors[root])))] if root not in state else []
            state.setdefault(root, 1)
            while stack:
                name, rest = stack[-1]
                step = next(rest, None)
                if step is None:
                    state[name] = 2
                    stack.pop()
                elif state.get(step) == 1:
                    return True
                elif step not in state:
                    state[step] = 1
                    stack.append((step, iter(sorted(successors.get(step, ())))))
        return False

    def reads_initial_values_alone(self) -> bool:
        """Whether some statement reads only such elements of another that no instance reduces into: no flow orders the two."""
        ordered = {(f.source, f.sink) for f in self.flows}
        started = [f for f in self.init_flows if f.source.startswith("init_")]
        pairs = {(f.source.removeprefix("init_"), f.sink.removeprefix("init_")) for f in started}
        return any(source != sink and (source, sink) not in ordered for source, sink in pairs)


def init_name(statement: str) -> str:
    """Name of the instance set of a reduction's initial values."""
    return f"init_{statement}"


def init_write(s: ScopStatement) -> islpy.Map:
    """The element that each initial value belongs to: ``[sizes] -> { init_S[left] -> T[e] }``."""
    assert s.init_domain is not None
    rank = s.init_domain.dim(islpy.dim_type.set)
    element = islpy.Map.identity(s.init_domain.get_space().map_from_set())
    element = element.set_tuple_name(islpy.dim_type.out, s.target)
    assert rank == len(s.subscripts)
    return element.intersect_domain(s.init_domain)


def init_to_instances(s: ScopStatement) -> islpy.Map:
    """``[sizes] -> { init_S[left] -> S[i] }``: the instances that reduce into the element."""
    return init_write(s).apply_range(s.write.reverse())


def residual_init(s: ScopStatement) -> islpy.Set | None:
    """``[sizes] -> { init_S[left] }``: elements that no instance of S reduces into; None where there are none."""
    if s.init_domain is None:
        return None
    rest = s.init_domain.subtract(init_to_instances(s).domain())
    return None if rest.is_empty() else rest


def compute_dependences(scop: Scop) -> Dependences:
    """Scop → Dependences.  Raises `CompileBudgetError` where subscripts are too involved for isl's quota."""
    with operation_quota(QUOTA + QUOTA_PER_STATEMENT * len(scop.statements), "dependence analysis"):
        return _compute(scop)


def keep_initial_values(scop: Scop, dependences: Dependences) -> Dependences | None:
    """`dependences` in which the readers of an initial value that no instance reduces into depend on the point of the reduction
    at that element, which is outside its domain; None where there are no such readers.

    The loops of an initial value are those of its reduction.  Where the reduction has few points its rows may be anything
    elsewhere, and the initial value comes too late for a recurrence: these flows hold the rows to an order for it as well."""
    flows = {(f.source, f.sink, f.tensor): f for f in dependences.flows}
    has_new = False
    for flow in dependences.init_flows:
        s = scop.statement(flow.source.removeprefix("init_"))
        if flow.source != init_name(s.name) or flow.sink == s.name or flow.sink.startswith("init_"):
            continue
        if s.init_domain is None or not s.origin.has_plain_left:
            continue
        to_element = islpy.Map.universe(s.domain.get_space().map_from_domain_and_range(s.init_domain.get_space()))
        for position, index in enumerate(s.indices):
            if index in s.elements:
                element = s.elements.index(index)
                to_element = to_element.equate(islpy.dim_type.in_, position, islpy.dim_type.out, element)
            else:
                to_element = to_element.fix_val(islpy.dim_type.in_, position, 0)
        relation = to_element.apply_range(flow.relation)
        key = (s.name, flow.sink, flow.tensor)
        known = flows.get(key)
        flows[key] = Flow(*key, relation if known is None else known.relation.union(relation).coalesce())
        has_new = True
    return replace(dependences, flows=tuple(flows.values())) if has_new else None


def _compute(scop: Scop) -> Dependences:
    writers: dict[str, list[ScopStatement]] = {}
    for s in scop.statements:
        writers.setdefault(s.target, []).append(s)
    order = {s.name: n for n, s in enumerate(scop.statements)}
    parts = find_parts(scop)
    residual = {s.name: residual_init(s) for s in scop.statements}
    flows: dict[tuple[str, str, str], islpy.Map] = {}
    init_flows: list[Flow] = []

    def add(source: str, sink: str, tensor: str, relation: islpy.Map) -> None:
        relation = drop_exclusive(relation, parts.get(source), parts.get(sink))
        if not relation.is_empty():
            key = (source, sink, tensor)
            flows[key] = flows[key].union(relation) if key in flows else relation

    def add_init(source: str, sink: str, tensor: str, relation: islpy.Map) -> None:
        if not relation.is_empty():
            init_flows.append(Flow(source, sink, tensor, relation))

    for sink in scop.statements:
        for tensor, read in sink.read_relations.items():
            for source in writers.get(tensor, ()):
                add(source.name, sink.name, tensor, source.write.apply_range(read.reverse()))
                rest = residual[source.name]
                if rest is not None:
                    never_written = init_write(source).intersect_domain(rest)
                    add_init(init_name(source.name), sink.name, tensor, never_written.apply_range(read.reverse()))
        if not sink.is_reduction:
            continue
        to_instances = init_to_instances(sink)
        add_init(init_name(sink.name), sink.name, sink.target, to_instances)
        for tensor, read in sink.init_relations.items():
            for source in writers.get(tensor, ()):
                to_init = source.write.apply_range(read.reverse())
                add_init(source.name, init_name(sink.name), tensor, to_init)
                add(source.name, sink.name, tensor, to_init.apply_range(to_instances))
                rest = residual[source.name]
                if rest is not None:
                    never_written = init_write(source).intersect_domain(rest)
                    add_init(init_name(source.name), init_name(sink.name), tensor, never_written.apply_range(read.reverse()))

    def position(flow: Flow) -> tuple[int, int, str, str, str]:
        source, sink = flow.source.removeprefix("init_"), flow.sink.removeprefix("init_")
        return (order.get(source, -1), order.get(sink, -1), flow.tensor, flow.source, flow.sink)

    between = [Flow(source, sink, tensor, relation.coalesce()) for (source, sink, tensor), relation in flows.items()]
    reductions = [(s, parts.get(s.name)) for s in scop.statements if s.is_reduction]
    same_element = {s.name: drop_exclusive(s.write.apply_range(s.write.reverse()), part, part) for s, part in reductions}
    return Dependences(tuple(sorted(between, key=position)), tuple(sorted(init_flows, key=position)), same_element)
