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
    walk_tree,
)
from polyc.poly.isl import operation_quota
from polyc.poly.scop import Scop
from polyc.poly.storage_proof import alias_is_safe, prove_storage

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
    violation = check_complete(scop, theta) or _check_filters(schedule)
    if violation is not None:
        return violation
    for flow in (*dependences.flows, *dependences.init_flows):
        bad = pairs_not_before(flow.relation, theta[flow.source], theta[flow.sink])
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
                theta[name] = _never(theta, domain)
                continue
            return Violation(f"the schedule never runs {name}")
        scheduled = theta[name].whole.domain()
        missing = domain.subtract(scheduled)
        if not missing.is_empty():
            return describe_point("an instance is never run", missing)
        surplus = scheduled.subtract(domain)
        if not surplus.is_empty():
            return describe_point("an instance that is no part of the program would run", surplus)
        if not theta[name].whole.is_single_valued():
            return describe_point("an instance runs more than once", scheduled)
    return None


def _never(theta: Theta, domain: islpy.Set) -> Time:
    """The time of an instance set that is empty and therefore may be missing from the tree."""
    return make_time(islpy.Map.from_domain(domain), len(next(iter(theta.values())).levels) if theta else 0)


def _check_filters(schedule: islpy.Schedule) -> Violation | None:
    """Children of a sequence must not share instances.  Sets are refused: they order nothing, but their map says they do."""
    for node in walk_tree(schedule.get_root()):
        kind: object = node.get_type()
        if kind == islpy.schedule_node_type.set:
            return Violation("the schedule has a set node, whose children run in no particular order")
        if kind != islpy.schedule_node_type.sequence:
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
