"""Time loops on arrays in chunks, a stage for each few steps (`polyc.blocks.steps`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc import driver
from polyc.blocks.chunks import propose_chunks
from polyc.blocks.cuts import find_cut
from polyc.blocks.plan import NotPlanned, plan_cuttable
from polyc.blocks.steps import Part, State, TimeLoop, choose_count, find_time_loop, split_steps
from polyc.diagnostics import PolycError
from polyc.records import replace

if TYPE_CHECKING:
    from polyc.api.blocks import Planner


def run_time_loops(planner: Planner) -> None:
    """Put states of time loops whose steps read neighbours in other chunks in the place of the recurrences."""
    refused = set[str]()
    while planner.chunks and (loop := find_time_loop(planner.program, planner.ranges, planner.values, refused)) is not None:
        try:
            begin, rest, most = loop.begin(), loop.rest(), _choose_count(planner, loop)
        except (PolycError, NotPlanned):
            most = 0
        if not most:
            refused.update(loop.component.versions)
            continue
        made = _make(planner, begin, {}, {})
        given = {name: made[name] for name in loop.given}
        states = _run(planner, loop, most, {state: made[name] for state, name in begin.results.items()}, given)
        planner.inputs |= given | {name: states[state] for state, name in rest.inputs.items()}
        planner.program, planner.ranges = rest.program, rest.ranges


def _choose_count(planner: Planner, loop: TimeLoop) -> int:
    """How many steps a stage has; 0 where no block would read neighbours in other chunks."""
    begin = planner.part(loop.begin(), planner.inputs, {})
    if any(0 in begin.shapes[r.version] for r in begin.program.returns):
        return 0
    proposed = {
        r.version: propose_chunks(
            begin.program, begin.ranges, begin.values, [r.version], begin.shapes[r.version], planner.chunks
        )
        for r in begin.program.returns
    }
    names = loop.begin().results
    states = [proposed[name] for name in names.values()]
    one = loop.advance(1, [(v, 0) for v in loop.depths])
    values = planner.values | ({one.start: loop.steps.start} if one.start else {})
    own = {name: proposed[names[v, loop.steps.start + time]] for (v, time), name in one.inputs.items()}
    inputs = planner.chunks | own | {name: proposed[name] for name in loop.given}
    if find_cut(one.program, one.ranges, values, inputs, planner.operator.options.reassociate) is not None:
        return 1
    if not any(d < len(chunks) and len(chunks[d]) > 1 for chunks in states for d in loop.crossing):
        return 0
    shapes = planner.shapes_of(one.ranges, values)
    (first, *_) = one.results.values()
    group = [name for name in one.results.values() if shapes[name] == shapes[first]]
    chunks = propose_chunks(one.program, one.ranges, values, group, shapes[first], inputs)
    plan, _, _ = plan_cuttable(one.program, one.ranges, values, group, chunks)
    if all(len(c) == 1 for c in plan.chunks):
        return 0
    return choose_count(loop, plan, driver.select_target(planner.operator.options))


def _run(planner: Planner, loop: TimeLoop, most: int, states: dict[State, Any], given: dict[str, Any]) -> dict[State, Any]:
    """The states after all steps, with those before."""
    now, n_before = loop.steps.start, len(planner.stages)
    for count in split_steps(len(loop.steps), most):
        times = range(now, now + count)
        wanted = [(v, time - now) for v, time in {*loop.carried(now + count), *loop.needed} if time in times]
        part = loop.advance(count, wanted)
        own = given | {name: states[v, now + time] for (v, time), name in part.inputs.items()}
        own |= {part.start: np.array(now)} if part.start else {}
        made = _make(planner, part, own, {part.start: now} if part.start else {})
        states |= {(v, now + time): made[name] for (v, time), name in part.results.items()}
        now += count
    several = Counter(planner.stages[n_before:])
    planner.stages[n_before:] = [replace(stage, repeats=n) for stage, n in several.items()]
    return states


def _make(planner: Planner, part: Part, inputs: dict[str, Any], values: dict[str, int]) -> dict[str, Any]:
    """Arrays for the results of a part, by version; its stages are the planner's."""
    own = planner.part(part, planner.inputs | inputs, values)
    made = own.make_all(None)
    planner.stages += own.stages
    return made
