"""Recurrences on arrays in chunks, in stages that go on where the one before ended (`polyc.blocks.steps`, `rolled`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc import driver
from polyc.api.dask_arrays import load_dask
from polyc.blocks.chunks import propose_chunks
from polyc.blocks.cuts import find_cut
from polyc.blocks.plan import NotPlanned, plan_cuttable
from polyc.blocks.rolled import roll_steps, step_terms
from polyc.blocks.stages import choose_count, split_steps
from polyc.blocks.steps import WHOLE, Part, State, TimeLoop
from polyc.blocks.time_loops import find_time_loops
from polyc.diagnostics import PolycError
from polyc.records import replace

if TYPE_CHECKING:
    from polyc.api.blocks import Planner

States = dict[State, Any]


@dataclass(frozen=True)
class _Stages:
    """A recurrence that goes by stages: of `most` steps each that read neighbours, or of `lengths` along chunks."""

    loop: TimeLoop
    most: int
    lengths: tuple[int, ...]


def run_recurrences(planner: Planner) -> None:
    """Put what stages make in the places of recurrences that read neighbours in other chunks, or go along chunks."""
    while planner.chunks:
        found = planner.remember(("stages",), partial(_find_stages, planner), any_start=True)
        if found is None:
            return
        loop, begin, rest = found.loop, found.loop.begin(), found.loop.rest()
        made = _make(planner, begin, {}, {})
        given = {name: made[name] for name in loop.given}
        n_before = len(planner.stages)
        states: States = {state: made[name] for state, name in begin.results.items()}
        if found.most:
            _run_unrolled(planner, loop, found.most, states, given)
        else:
            _run_rolled(planner, loop, found.lengths, states, given)
        several = Counter(planner.stages[n_before:])
        planner.stages[n_before:] = [replace(stage, repeats=n) for stage, n in several.items()]
        states |= {(name, WHOLE): array for name, array in given.items()}
        planner.inputs |= given | {name: states[state] for state, name in rest.inputs.items()}
        planner.program, planner.ranges = rest.program, rest.ranges
        planner.shapes = planner.shapes_of(rest.ranges, planner.values)


def _find_stages(planner: Planner) -> _Stages | None:
    """The first recurrence that goes by stages."""
    for loop in find_time_loops(planner.program, planner.ranges, planner.values):
        try:
            proposed = _propose(planner, loop)
            loop.rest()
            if proposed is None:
                continue
            if most := _choose_count(planner, loop, proposed):
                return _Stages(loop, most, ())
            if lengths := _cut_steps(planner, loop, proposed):
                return _Stages(loop, 0, lengths)
        except (PolycError, NotPlanned):
            continue
    return None


def _propose(planner: Planner, loop: TimeLoop) -> dict[str, Any] | None:
    """Chunks of what there is before the first step, by version; None where some of it is empty."""
    begin = planner.part(loop.begin(), planner.inputs, {})
    versions = [r.version for r in begin.program.returns]
    if any(0 in begin.shapes[v] for v in versions):
        return None
    return {
        v: propose_chunks(begin.program, begin.ranges, begin.values, [v], begin.shapes[v], planner.chunks)[0] for v in versions
    }


def _choose_count(planner: Planner, loop: TimeLoop, proposed: dict[str, Any]) -> int:
    """How many steps a stage has that reads neighbours; 0 where none of them is in another chunk."""
    names = loop.begin().results
    one = loop.advance(loop.steps.start, 1, [(v, 0) for v in loop.depths if loop.steps.start in loop.times[v]])
    values = planner.values | ({one.start: loop.steps.start} if one.start else {})
    own = {name: proposed[names[v, loop.steps.start + time]] for (v, time), name in one.inputs.items()}
    inputs = planner.chunks | own | {name: proposed[name] for name in loop.given}
    if find_cut(one.program, one.ranges, values, inputs, planner.operator.options.reassociate) is not None:
        return 1
    if not any(d < len(chunks) and len(chunks[d]) > 1 for chunks in own.values() for d in loop.crossing):
        return 0
    shapes = planner.shapes_of(one.ranges, values)
    (first, *_) = one.results.values()
    group = [name for name in one.results.values() if shapes[name] == shapes[first]]
    chunks, _ = propose_chunks(one.program, one.ranges, values, group, shapes[first], inputs)
    plan, _, _ = plan_cuttable(one.program, one.ranges, values, group, chunks)
    if all(len(c) == 1 for c in plan.chunks):
        return 0
    return choose_count(loop, plan, driver.select_target(planner.operator.options))


def _cut_steps(planner: Planner, loop: TimeLoop, proposed: dict[str, Any]) -> tuple[int, ...]:
    """Lengths of stages that end where chunks of what the steps read end; none where it is in one chunk."""
    if not loop.is_uniform:
        return ()
    program, ranges, result = step_terms(loop)
    shape = planner.shapes_of(ranges, planner.values)[result]
    if 0 in shape:
        return ()
    inputs = planner.chunks | {name: proposed[name] for name in loop.given}
    lengths = propose_chunks(program, ranges, planner.values, [result], shape, inputs)[0][loop.axis]
    if len(lengths) == 1:
        return ()
    part = roll_steps(loop)
    values = planner.values | {str(part.start): loop.steps.start, str(part.count): lengths[0]}
    shapes = planner.shapes_of(part.ranges, values)
    for name in part.results.values():  # raises where a stage cannot be planned at all
        plan_cuttable(part.program, part.ranges, values, [name], tuple((n,) for n in shapes[name]))
    return lengths


def _run_unrolled(planner: Planner, loop: TimeLoop, most: int, states: States, given: dict[str, Any]) -> None:
    """Add the states that are needed, and all states of the tensors that are kept, to those before."""
    now = loop.steps.start
    for count in split_steps(len(loop.steps), most):
        times = range(now, now + count)
        whole = {(v, time) for v in loop.kept for time in loop.times[v]}
        later = loop.carried(now + count) if now + count < loop.steps.stop else []
        wanted = [(v, time - now) for v, time in {*later, *loop.needed, *whole} if time in times]
        part = loop.advance(now, count, wanted)
        own = given | {name: states[v, now + time] for (v, time), name in part.inputs.items()}
        made = _make(planner, part, own, {part.start: now} if part.start else {})
        states |= {(v, now + time): made[name] for (v, time), name in part.results.items()}
        now += count
    for v in loop.kept:
        states[v, WHOLE] = load_dask().stack([states[v, time] for time in loop.times[v]], loop.axis)


def _run_rolled(planner: Planner, loop: TimeLoop, lengths: Sequence[int], states: States, given: dict[str, Any]) -> None:
    """Add the states that are needed, and all states of the tensors that are kept."""
    da, now, axis, part = load_dask(), loop.steps.start, loop.axis, roll_steps(loop)
    parts: dict[str, list[Any]] = {v: [] for v, _ in part.results}
    for n in lengths:
        own = given | {name: states[v, now + time] for (v, time), name in part.inputs.items()}
        made = _make(planner, part, own, {part.start: now, part.count: n})
        for (v, _), name in part.results.items():
            parts[v].append(made[name])
            for time in {t for u, t in (*loop.carried(now + n), *loop.needed) if u == v and now <= t < now + n}:
                states[v, time] = da.take(made[name], time - now, axis)
        now += n
    for v in loop.kept:
        times = range(loop.times[v].start, loop.steps.start)
        first = [da.stack([states[v, time] for time in times], axis)] if times else []
        ends = (len(times) + lengths[0], *lengths[1:])
        states[v, WHOLE] = da.concatenate([*first, *parts[v]], axis).rechunk({axis: ends})


def _make(planner: Planner, part: Part, inputs: dict[str, Any], values: dict[str | None, int]) -> dict[str, Any]:
    """Arrays for the results of a part, by version; its stages are the planner's."""
    known = {name: value for name, value in values.items() if name is not None}
    own = planner.part(part, planner.inputs | inputs | {name: np.array(value) for name, value in known.items()}, known)
    made = own.make_all(None)
    planner.stages += own.stages
    return made
