"""Which recurrences of a program are time loops, along which dimension, in which direction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from polyc.blocks.gathered import tests_of
from polyc.blocks.retiming import retime
from polyc.blocks.steps import State, TimeLoop, distance, is_of_time
from polyc.ir.components import Component, order_components
from polyc.ir.expr import Index, evaluate, index_names, mentions, reads
from polyc.ir.program import Program, statement_reads
from polyc.poly.ranges import Interval, Ranges


def find_time_loops(program: Program, ranges: Ranges, sizes: Mapping[str, int]) -> Iterator[TimeLoop]:
    """The recurrences over steps, in order, and along each dimension that may be that of steps."""
    for component in order_components(program):
        if component.is_recurrence:
            for axis in range(min(program.tensor(v).rank for v in component.versions)):
                retimed = retime(program, ranges, sizes, component, axis)
                found = None if retimed is None else _read_time_loop(*retimed, sizes, axis)
                if found is not None:
                    yield found


def _read_time_loop(
    program: Program, ranges: Ranges, component: Component, sizes: Mapping[str, int], axis: int
) -> TimeLoop | None:
    """The component, in which no read lies ahead, as a time loop along one dimension, if it is one."""

    def times_of(interval: Interval) -> range:
        first = evaluate(interval.lower, sizes)
        return range(first, first + evaluate(interval.extent, sizes))

    spans: dict[str, range] = {}
    moving: list[range] = []
    times = {v: times_of(ranges.tensors[v][axis]) for v in component.versions}
    depths: dict[str, int] = {}
    crossing = set[int]()
    for s in component.statements:
        at = s.subscripts[axis]
        t = at.name if isinstance(at, Index) else None
        if t is None:
            spans[s.name] = range(first := evaluate(at, sizes), first + 1)
        else:
            spans[s.name] = times_of(ranges.statements[s.name].indices[t])
            moving.append(spans[s.name])
            elsewhere = [e for d, e in enumerate(s.subscripts) if d != axis]
            if s.reduction is None:  # all elements of a state are computed at the same times
                elsewhere += [e for w in s.where for e in tests_of(w) if not is_of_time(e, t)]
            if any(mentions(e, t) for e in elsewhere):
                return None
        if s.reduction is not None and any(r.tensor in component.versions for r in reads(s.reduction.init)):
            return None
        for r in statement_reads(s):
            if r.tensor not in component.versions:
                continue
            when = r.subscripts[axis]
            fixed = t is None and not index_names(when) and not reads(when)
            back = evaluate(at, sizes) - evaluate(when, sizes) if fixed else distance(when, t)
            if back is not None and back > 0:
                depths[r.tensor] = max(back, depths.get(r.tensor, 0))
            if t is not None:
                pairs = [p for d, p in enumerate(zip_longest(r.subscripts, s.subscripts)) if d != axis]
                crossing |= {d for d, (a, b) in enumerate(pairs) if a is not None and a != b}
    if not depths or not moving or any(not span for span in (*moving, *times.values())):
        return None
    kept = {r.version for r in program.returns} & set(component.versions)
    single = set[State]()
    for s in program.statements:
        for r in statement_reads(s) if s.target not in component.versions else ():
            if r.tensor in component.versions:
                if index_names(r.subscripts[axis]) or reads(r.subscripts[axis]):
                    kept.add(r.tensor)
                else:
                    single.add((r.tensor, evaluate(r.subscripts[axis], sizes)))
    needed = frozenset(state for state in single if state[0] not in kept)
    if any(time not in times[v] for v, time in needed):
        return None
    first = max([min(span.start for span in moving), *(times[v].start + depth for v, depth in depths.items())])
    stop = max([first, *(times[v].stop for v in kept), *(time + 1 for _, time in needed)])
    n_before = first - min(span.start for span in times.values())
    if first == stop or n_before > max([stop - first, *depths.values()]):
        return None
    return TimeLoop(
        program,
        ranges,
        sizes,
        component,
        axis,
        range(first, stop),
        spans,
        times,
        depths,
        needed,
        frozenset(kept),
        frozenset(crossing),
    )
