"""Instances of a schedule tree: what must run, when it runs, and how to show one pair of instances to a person."""

from __future__ import annotations

from dataclasses import field

import islpy

from polyc.poly.dependences import init_name
from polyc.poly.scop import Scop
from polyc.records import dataclass

QUOTA, QUOTA_PER_STATEMENT = 2_000_000, 300_000
"""isl operations for one proof, some four million of which take a second; an overrun counts as not proved."""


def proof_quota(scop: Scop) -> int:
    return QUOTA + QUOTA_PER_STATEMENT * len(scop.statements)


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


@dataclass(frozen=True, eq=False, slots=True)
class Time:
    """When the instances of one set run."""

    whole: islpy.Map  # [sizes] -> { S[i] -> [t] }, restricted to the domain, not padded
    levels: tuple[islpy.Map, ...]  # [sizes] -> { S[i] -> [t_l] }, one per dimension of the deepest t
    constants: tuple[int | None, ...]
    """The value of each level where it is the same for all instances (positions in sequences)."""


Theta = dict[str, Time]
"""Schedule of each instance set, all of one depth."""


def instance_domains(scop: Scop) -> dict[str, islpy.Set]:
    """Everything that must be scheduled: domains of statements and of initial values, by instance set name."""
    domains: dict[str, islpy.Set] = {}
    for s in scop.statements:
        domains[s.name] = s.domain
        if s.init_domain is not None:
            domains[init_name(s.name)] = s.init_domain
    return domains


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """What proofs of one schedule tree keep for each other; none of it depends on the storage."""

    theta: Theta = field(default_factory=dict)
    prefixes: dict[str, list[islpy.Map]] = field(default_factory=dict)
    """By version, the outer levels as functions of its elements that all uses of an element agree on."""

    def times(self, schedule: islpy.Schedule) -> Theta:
        """`schedule_maps` of the tree, worked out by the first proof that asks."""
        if not self.theta:
            self.theta.update(schedule_maps(schedule))
        return self.theta


def schedule_maps(schedule: islpy.Schedule) -> Theta:
    """The time of every instance that the tree runs.  Raises `islpy.Error` for trees with extension nodes."""
    whole = schedule.get_map().intersect_domain(schedule.get_domain())
    maps = {str(m.get_tuple_name(islpy.dim_type.in_)): m for m in maps_of(whole)}
    depth = max((m.dim(islpy.dim_type.out) for m in maps.values()), default=0)
    return {name: make_time(m, depth) for name, m in maps.items()}


def make_time(time: islpy.Map, depth: int) -> Time:
    """A schedule map padded with zeros to `depth` and split into its levels."""
    own = time.dim(islpy.dim_type.out)
    levels: list[islpy.Map] = []
    rest = time
    for level in range(own):
        levels.append(rest.project_out(islpy.dim_type.out, 1, own - level - 1))
        rest = rest.project_out(islpy.dim_type.out, 0, 1)
    if own < depth:
        zero = rest.add_dims(islpy.dim_type.out, 1).fix_val(islpy.dim_type.out, 0, islpy.Val(0))
        levels += [zero] * (depth - own)
    return Time(time, tuple(levels), tuple(_constant(level) for level in levels))


def _constant(level: islpy.Map) -> int | None:
    value = level.plain_get_val_if_fixed(islpy.dim_type.out, 0)
    return None if value.is_nan() else int(value.to_python())


def pairs_not_before(pairs: islpy.Map, source: Time, sink: Time) -> islpy.Map | None:
    """Pairs whose source does not run strictly before the sink, or None if there are none: a walk over the levels.

    At each level pairs whose source comes later are wrong, pairs at the same time go on to the next level; most dependences
    are decided in the first few.  Stops at the first level that shows wrong pairs.
    """
    for t_source, t_sink, a, b in zip(source.levels, sink.levels, source.constants, sink.constants, strict=True):
        if a is not None and b is not None:
            if a != b:
                return None if a < b or pairs.is_empty() else pairs
            continue
        later = pairs.intersect(t_source.lex_gt_map(t_sink))
        if not later.is_empty():
            return later
        pairs = pairs.intersect(t_source.apply_range(t_sink.reverse()))
        if pairs.is_empty():
            return None
    return None if pairs.is_empty() else pairs


def pairs_in_order(pairs: islpy.Map, first: Time, second: Time) -> islpy.Map:
    """Pairs whose first instance runs no later than the second (at the same time counts)."""
    found = islpy.Map.empty(pairs.get_space())
    for t_first, t_second, a, b in zip(first.levels, second.levels, first.constants, second.constants, strict=True):
        if a is not None and b is not None:
            if a != b:
                return found.union(pairs) if a < b else found
            continue
        found = found.union(pairs.intersect(t_first.lex_lt_map(t_second)))
        pairs = pairs.intersect(t_first.apply_range(t_second.reverse()))
        if pairs.is_empty():
            return found
    return found.union(pairs)


def maps_of(union: islpy.UnionMap) -> list[islpy.Map]:
    items = union.get_map_list()
    return [items.get_at(n) for n in range(items.n_map())]


def sets_by_name(union: islpy.UnionSet) -> dict[str, islpy.Set]:
    items = union.get_set_list()
    sets = (items.get_at(n) for n in range(items.n_set()))
    return {str(each.get_tuple_name()): each for each in sets}


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
