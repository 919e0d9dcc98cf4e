"""Proof by value: under the final schedule every read gets what it should.  `prove_values` looks at what will run, not at how
it was found: the schedule tree itself over statement instances and the instances ``init_S`` of initial values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy

from polyc.diagnostics import CompileBudgetError
from polyc.poly.dependences import Dependences, init_name
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop

QUOTA = 40_000_000
"""isl operations for one proof; an overrun counts as not proved."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a schedule must not run, with one concrete pair of instances where there is one.

    `source` must run before `sink`; both in zero-based coordinates, `sizes` are those of the example.
    """

    reason: str
    source: str | None = None
    sink: str | None = None
    sizes: str | None = None

    def __str__(self) -> str:
        text = self.reason
        if self.source and self.sink:
            text += f": {self.source} and {self.sink}"
        elif self.source:
            text += f": {self.source}"
        return text + (f" (with {self.sizes})" if self.sizes else "")


Theta = dict[str, islpy.Map]
"""Schedule of each instance set: ``[sizes] -> { S[i] -> [t] }``, all of one depth, restricted to the domain."""


def instance_domains(scop: Scop) -> dict[str, islpy.Set]:
    """Everything that must be scheduled: domains of statements and of initial values, by instance set name."""
    domains: dict[str, islpy.Set] = {}
    for s in scop.statements:
        domains[s.name] = s.domain
        if s.init_domain is not None:
            domains[init_name(s.name)] = s.init_domain
    return domains


def schedule_maps(schedule: islpy.Schedule) -> Theta:
    """The time of every instance that the tree runs.  Raises `islpy.Error` for trees with extension nodes."""
    whole = schedule.get_map().intersect_domain(schedule.get_domain())
    maps = {str(m.get_tuple_name(islpy.dim_type.in_)): m for m in _maps_of(whole)}
    depth = max((m.dim(islpy.dim_type.out) for m in maps.values()), default=0)
    for name, m in maps.items():
        missing = depth - m.dim(islpy.dim_type.out)
        if missing:
            n = m.dim(islpy.dim_type.out)
            m = m.add_dims(islpy.dim_type.out, missing)
            for d in range(n, depth):
                m = m.fix_val(islpy.dim_type.out, d, islpy.Val(0))
            maps[name] = m
    return maps


def _maps_of(union: islpy.UnionMap) -> list[islpy.Map]:
    items = union.get_map_list()
    return [items.get_at(n) for n in range(items.n_map())]


def prove_values(scop: Scop, dependences: Dependences, schedule: islpy.Schedule) -> Violation | None:
    """None if every instance runs exactly once and after everything it needs, else one reason why not.

    Every instance of a reduction precedes every reader of the element (a consumer in the middle of a sum is refused), and
    the initial value precedes all instances.  Exact; what isl cannot decide within `QUOTA` operations counts as not proved.
    """
    try:
        with operation_quota(QUOTA, "the proof of the schedule"):
            return _check_values(scop, dependences, schedule)
    except CompileBudgetError as error:
        return Violation(error.diagnostics[0].message)


def _check_values(scop: Scop, dependences: Dependences, schedule: islpy.Schedule) -> Violation | None:
    theta = schedule_maps(schedule)
    violation = check_complete(scop, theta) or _check_filters(schedule)
    if violation is not None:
        return violation
    for flow in (*dependences.flows, *dependences.init_flows):
        bad = not_before(flow.relation, theta[flow.source], theta[flow.sink])
        if bad is not None:
            return describe_pair(f"a value of {flow.tensor} would be read before it is complete", bad)
    return None


def check_complete(scop: Scop, theta: Theta) -> Violation | None:
    """Whether the instances that run are those of the Scop, each at one time."""
    domains = instance_domains(scop)
    for name in theta:
        if name not in domains:
            return Violation(f"the schedule runs {name}, which is no part of the program")
    for name, domain in domains.items():
        if name not in theta:
            if domain.is_empty():
                theta[name] = _empty_like(theta, domain)
                continue
            return Violation(f"the schedule never runs {name}")
        scheduled = theta[name].domain()
        missing = domain.subtract(scheduled)
        if not missing.is_empty():
            return describe_point("an instance is never run", missing)
        surplus = scheduled.subtract(domain)
        if not surplus.is_empty():
            return describe_point("an instance that is no part of the program would run", surplus)
        if not theta[name].is_single_valued():
            return describe_point("an instance runs more than once", scheduled)
    return None


def _empty_like(theta: Theta, domain: islpy.Set) -> islpy.Map:
    depth = next(iter(theta.values())).dim(islpy.dim_type.out) if theta else 0
    return islpy.Map.from_domain(domain).add_dims(islpy.dim_type.out, depth)


def _check_filters(schedule: islpy.Schedule) -> Violation | None:
    """Children of a sequence or set must not share instances: the schedule map of a set cannot show that they do."""
    for node in walk_tree(schedule.get_root()):
        kind: object = node.get_type()
        if kind not in (islpy.schedule_node_type.sequence, islpy.schedule_node_type.set):
            continue
        seen: dict[str, islpy.Set] = {}
        for n in range(node.n_children()):
            sets = node.get_child(n).filter_get_filter().get_set_list()
            for m in range(sets.n_set()):
                part = sets.get_at(m)
                name = str(part.get_tuple_name())
                if name in seen:
                    twice = seen[name].intersect(part)
                    if not twice.is_empty():
                        return describe_point("an instance runs more than once", twice)
                    part = part.union(seen[name])
                seen[name] = part
    return None


def walk_tree(node: islpy.ScheduleNode) -> Iterator[islpy.ScheduleNode]:
    """All nodes of a schedule tree, parents first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(top.get_child(n) for n in reversed(range(top.n_children())))


def not_before(relation: islpy.Map, source: islpy.Map, sink: islpy.Map) -> islpy.Map | None:
    """Pairs of `relation` whose source does not run strictly before the sink, or None: a walk over the levels.

    At each level pairs whose source comes later are wrong, pairs at the same time go on to the next level; most dependences
    are decided in the first few.
    """
    pairs = relation
    for level in range(source.dim(islpy.dim_type.out)):
        t_source, t_sink = _level(source, level), _level(sink, level)
        constants = _constant(t_source), _constant(t_sink)
        if constants[0] is not None and constants[1] is not None:
            if constants[0] < constants[1]:
                return None
            if constants[0] > constants[1]:
                return pairs
            continue
        later = pairs.intersect(t_source.lex_gt_map(t_sink))
        if not later.is_empty():
            return later
        pairs = pairs.intersect(t_source.apply_range(t_sink.reverse()))
        if pairs.is_empty():
            return None
    return pairs


def _level(theta: islpy.Map, level: int) -> islpy.Map:
    depth = theta.dim(islpy.dim_type.out)
    return theta.project_out(islpy.dim_type.out, level + 1, depth - level - 1).project_out(islpy.dim_type.out, 0, level)


def _constant(level: islpy.Map) -> int | None:
    value = level.plain_get_val_if_fixed(islpy.dim_type.out, 0)
    return None if value.is_nan() else int(value.to_python())


def describe_pair(reason: str, pairs: islpy.Map) -> Violation:
    """A violation showing one pair of a nonempty relation between instances."""
    wrapped = pairs.wrap()
    point = wrapped.sample_point()
    space = pairs.get_space()
    n_in = space.dim(islpy.dim_type.in_)
    values = _coordinates(point, islpy.dim_type.set, wrapped.dim(islpy.dim_type.set))
    return Violation(
        reason,
        _instance(space, islpy.dim_type.in_, values[:n_in]),
        _instance(space, islpy.dim_type.out, values[n_in:]),
        _sizes(point, space),
    )


def describe_point(reason: str, points: islpy.Set) -> Violation:
    """A violation showing one instance of a nonempty set."""
    point = points.sample_point()
    space = points.get_space()
    values = _coordinates(point, islpy.dim_type.set, points.dim(islpy.dim_type.set))
    return Violation(reason, _instance(space, islpy.dim_type.set, values), None, _sizes(point, space))


def _coordinates(point: islpy.Point, kind: islpy.dim_type, n: int) -> list[int]:
    return [int(point.get_coordinate_val(kind, d).to_python()) for d in range(n)]


def _instance(space: islpy.Space, kind: islpy.dim_type, values: list[int]) -> str:
    name = str(space.get_tuple_name(kind))
    named = [
        f"{space.get_dim_name(kind, d)}={value}" if space.has_dim_name(kind, d) else str(value)
        for d, value in enumerate(values)
    ]
    what = f"initial value of {name.removeprefix('init_')}" if name.startswith("init_") else name
    return f"{what}[{', '.join(named)}]"


def _sizes(point: islpy.Point, space: islpy.Space) -> str | None:
    n = space.dim(islpy.dim_type.param)
    values = _coordinates(point, islpy.dim_type.param, n)
    names = [space.get_dim_name(islpy.dim_type.param, p) for p in range(n)]
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)) or None
