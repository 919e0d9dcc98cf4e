"""Nests in order that do not need each other run at the same time, each on a thread of its own.

Before: ``t { h[t + 1] = f(h[t]) } ; t { k[t + 1] = g(k[t]) }``.
After: ``parallel section { t { h … } ; t { k … } }``, a loop over the numbers of the nests, behind what both need and before
what needs one of them.

The steps of such a loop wait for each other, so threads could share out a single step at most, and would wait for each other
at every one; the two directions of a recurrent layer need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.machine import Machine
from polyc.poly.rows import Row
from polyc.poly.scop import Scop
from polyc.poly.tree import Mark, Plan, PlanLoop, PlanSequence, make_sequence, plan_loops, plan_statements
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import statement_work
from polyc.scheduler.parallel import has_symbolic_extent, trip_of


@dataclass(frozen=True, slots=True, eq=False)
class _Nest:
    """A part of the outermost sequence, and the memory that it touches."""

    plan: Plan
    read: frozenset[str]
    written: frozenset[str]
    work: int
    has_checks: bool


def run_sections(plan: Plan, scop: Scop, target: Machine, aliases: tuple[tuple[str, str], ...] = ()) -> Plan:
    """The plan with nests in order that are independent and long brought together in parallel sections."""
    same = dict(aliases)
    nests = [_describe(child, scop, same) for child in _parts(plan, scop)]
    while (group := _find_group(nests, target)) is not None:
        section = _describe(_join([nests[i].plan for i in group]), scop, same)
        needed = _ancestors(nests, group)
        before = [nest for i, nest in enumerate(nests) if i in needed]
        behind = [nest for i, nest in enumerate(nests) if i not in needed and i not in group]
        nests = [*before, section, *behind]
        plan = make_sequence([nest.plan for nest in nests])
    return plan


def _parts(plan: Plan, scop: Scop) -> Iterator[Plan]:
    """Nests one after the other, those in loops of one iteration as well: tiles that hold everything."""
    match plan:
        case PlanSequence():
            for child in plan.children:
                yield from _parts(child, scop)
        case PlanLoop(child=PlanSequence()) if (
            plan.mark is None and not has_symbolic_extent(plan, scop) and trip_of(plan, scop) == 1
        ):
            yield from _parts(plan.child, scop)
        case _:
            yield plan


def _describe(plan: Plan, scop: Scop, same: dict[str, str]) -> _Nest:
    # Versions of the caller's arrays are the same memory.
    memory = {t.name: t.name if t.role == "temporary" else same.get(t.base, t.base) for t in scop.tensors.values()}
    read: set[str] = set()
    written: set[str] = set()
    work, has_checks = 0, False
    for name in plan_statements(plan):
        s, is_init = scop.statement(name.removeprefix("init_")), name.startswith("init_")
        written.add(memory[s.target])
        read |= {memory[a.tensor] for a in (s.init_accesses if is_init else s.accesses)}
        if not is_init:
            work += statement_work(s)
            has_checks |= bool(s.guards)
    return _Nest(plan, frozenset(read), frozenset(written), work, has_checks)


def _find_group(nests: Sequence[_Nest], target: Machine) -> list[int] | None:
    """Positions of at least two nests, none of which needs another, that share out enough work."""
    least = target.threads.work_per_part
    candidates = [i for i, nest in enumerate(nests) if _is_in_order(nest.plan) and not nest.has_checks and nest.work >= least]
    for first in candidates:
        group = [first]
        for other in candidates:
            if other > first and len(group) < target.cores and all(_are_independent(nests, i, other) for i in group):
                group.append(other)
        if any(_has_parallel(nests[i].plan) for i in group) and len(group) < target.cores:
            continue  # more threads than nests: each step is shared out better
        if sum(nests[i].work for i in group) - max(nests[i].work for i in group) >= least:
            return group
    return None


def _is_in_order(plan: Plan) -> bool:
    return isinstance(plan, PlanLoop) and plan.mark is None


def _has_parallel(plan: Plan) -> bool:
    return any(loop.mark is not None and loop.mark.kind in ("parallel", "pipeline") for loop in plan_loops(plan))


def _are_independent(nests: Sequence[_Nest], first: int, second: int) -> bool:
    """Whether neither of the two needs what the other makes, directly or through nests between them."""
    return first not in _ancestors(nests, [second]) and second not in _ancestors(nests, [first])


def _ancestors(nests: Sequence[_Nest], group: Sequence[int]) -> set[int]:
    """Nests that have to stand before one of `group`, without those of `group`."""
    found: set[int] = set()
    stack = list(group)
    while stack:
        i = stack.pop()
        for k in range(i):
            if k not in found and _conflict(nests[k], nests[i]):
                found.add(k)
                stack.append(k)
    return found.difference(group)


def _conflict(a: _Nest, b: _Nest) -> bool:
    is_ordered = a.has_checks and b.has_checks  # the first check that fails is the one that is reported
    return is_ordered or bool(a.written & (b.read | b.written) or b.written & a.read)


def _join(group: Sequence[Plan]) -> PlanLoop:
    """The parallel loop over the nests of a group; loops inside that were parallel run on one thread each."""
    rows: dict[str, Row] = {}
    sections: list[Plan] = []
    for k, plan in enumerate(map(_run_alone, group)):
        assert isinstance(plan, PlanLoop)
        rows |= {name: Row((0,) * len(row.coefficients), k) for name, row in plan.rows.items()}
        sections.append(replace(plan, mark=Mark("section")))
    return PlanLoop(rows, "P", PlanSequence(tuple(sections)), mark=Mark("parallel"))


def _run_alone(plan: Plan) -> Plan:
    match plan:
        case PlanSequence():
            return PlanSequence(tuple(map(_run_alone, plan.children)))
        case PlanLoop():
            is_shared = plan.mark is not None and plan.mark.kind in ("parallel", "pipeline")
            return replace(plan, mark=None if is_shared else plan.mark, child=_run_alone(plan.child))
    return plan
