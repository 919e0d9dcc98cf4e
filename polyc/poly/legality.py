"""Proof by value: under the final schedule every read gets what it should.  `prove_values` looks at what will run, not at how
it was found: the schedule tree itself over statement instances and the instances ``init_S`` of initial values.
The proof by storage is in `storage_proof`."""

from __future__ import annotations

import islpy

from polyc.diagnostics import CompileBudgetError
from polyc.poly.dependences import Dependences
from polyc.poly.instances import (
    Known,
    Theta,
    Time,
    Violation,
    describe_pair,
    describe_point,
    instance_domains,
    make_time,
    pairs_not_before,
    proof_quota,
    sets_by_name,
)
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop
from polyc.poly.storage_proof import alias_is_safe, prove_storage

_Reach = dict[str, islpy.Set]
"""The instances that get to a node of a schedule tree, by name."""

__all__ = ["Violation", "alias_is_safe", "prove_storage", "prove_values"]


def prove_values(
    scop: Scop, dependences: Dependences, schedule: islpy.Schedule, *, known: Known | None = None
) -> Violation | None:
    """None if every instance runs exactly once and after everything it needs, else one reason why not.

    Every instance of a reduction precedes every reader of the element (a consumer in the middle of a sum is refused), and
    the initial value precedes all instances.  Exact; what isl cannot decide within its quota counts as
    not proved.  `known`: what proofs of the same tree keep for each other.
    """
    try:
        with operation_quota(proof_quota(scop), "the proof of the schedule"):
            return _check_values(scop, dependences, schedule, (known or Known()).times(schedule))
    except CompileBudgetError as error:
        return Violation(error.diagnostics[0].message)


def _check_values(scop: Scop, dependences: Dependences, schedule: islpy.Schedule, theta: Theta) -> Violation | None:
    violation = check_complete(scop, schedule)
    if violation is not None:
        return violation
    for name, domain in instance_domains(scop).items():
        if name not in theta:
            theta[name] = _never(theta, domain)
    for flow in (*dependences.flows, *dependences.init_flows):
        bad = pairs_not_before(flow.relation, theta[flow.source], theta[flow.sink])
        if bad is not None:
            return describe_pair(f"a value of {flow.tensor} would be read before it is complete", bad)
    return None


def check_complete(scop: Scop, schedule: islpy.Schedule) -> Violation | None:
    """Whether the instances that run are those of the Scop, each at one time.

    Looks at the tree node by node: an instance runs exactly once if it is in the domain, every band on its way has a value
    for it, and every sequence has it in exactly one filter.  The times themselves would say it, too, but tiles of odd sizes
    make them congruences modulo ten thousands, in which isl searches integer points without counting operations.
    """
    reach = sets_by_name(schedule.get_domain())
    domains = instance_domains(scop)
    for name in reach:
        if name not in domains:
            return Violation(f"the schedule runs {name}, which is no part of the program")
    for name, domain in domains.items():
        if name not in reach:
            if domain.is_empty():
                continue
            return Violation(f"the schedule never runs {name}")
        surplus = reach[name].subtract(domain)
        if not surplus.is_empty():
            return describe_point("an instance that is no part of the program would run", surplus)
        missing = domain.subtract(reach[name])
        if not missing.is_empty():
            return describe_point("an instance is never run", missing)
    return _check_node(schedule.get_root().get_child(0), reach)


def _never(theta: Theta, domain: islpy.Set) -> Time:
    """The time of an instance set that is empty and therefore may be missing from the tree."""
    return make_time(islpy.Map.from_domain(domain), len(next(iter(theta.values())).levels) if theta else 0)


def _check_node(node: islpy.ScheduleNode, reach: _Reach) -> Violation | None:
    """Whether each instance of `reach` runs exactly once below `node`."""
    kind: object = node.get_type()
    types = islpy.schedule_node_type
    if kind == types.leaf:
        return None
    if kind == types.set:
        return Violation("the schedule has a set node, whose children run in no particular order")
    if kind == types.sequence:
        return _check_sequence(node, reach)
    if kind == types.band:
        violation = _check_covered(reach, sets_by_name(node.band_get_partial_schedule().domain()))
        if violation is not None:
            return violation
    elif kind != types.mark:
        return Violation("the schedule has nodes of other kinds than bands, sequences and marks")
    return _check_node(node.get_child(0), reach)


def _check_sequence(node: islpy.ScheduleNode, reach: _Reach) -> Violation | None:
    """Children of a sequence share no instances and have all of them."""
    seen: _Reach = {}
    for n in range(node.n_children()):
        child = node.get_child(n)
        filters = sets_by_name(child.filter_get_filter())
        parts = {name: part.intersect(reach[name]) for name, part in filters.items() if name in reach}
        for name, part in parts.items():
            if name in seen:
                twice = seen[name].intersect(part)
                if not twice.is_empty():
                    return describe_point("an instance runs more than once", twice)
                seen[name] = seen[name].union(part)
            else:
                seen[name] = part
        violation = _check_node(child.get_child(0), parts)
        if violation is not None:
            return violation
    return _check_covered(reach, seen)


def _check_covered(reach: _Reach, runs: _Reach) -> Violation | None:
    for name, instances in reach.items():
        missing = instances.subtract(runs[name]) if name in runs else instances
        if not missing.is_empty():
            return describe_point("an instance is never run", missing)
    return None
