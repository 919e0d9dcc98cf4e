"""Nests for one segment of a partition, and the loop that runs them for all segments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from polyc.ir.expr import Const, Expr, Index, Select, any_holds, int_const, le, lt, substitute
from polyc.ir.loops import Buffer, If, Loop, LoopNest, Store
from polyc.ir.segments import BEGIN, LENGTH, NUMBER, SegmentRuns
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL
from polyc.ir.walk import Body, loops_in, make_nest, map_nodes
from polyc.records import replace


def run_segments(nest: LoopNest) -> LoopNest:
    """The nest with a loop over all segments around its body, in which NUMBER, BEGIN and LENGTH are variables.

    Before: ``S[i, j] = Q[BEGIN + i] * K[BEGIN + j]`` for i, j < LENGTH.  After: the same inside of ``parallel for b < count {
    for begin in ptr[b]:ptr[b] + 1 { for length in ptr[b + 1] - begin:ptr[b + 1] - begin + 1 { … } } }``, and before it initial
    values of results where the segments leave positions out."""
    runs = nest.segments
    if runs is None:
        return nest
    taken = {*nest.parameters, *(loop.var for loop in loops_in(nest.body))}
    names = (f"c{n}" for n in count() if f"c{n}" not in taken)
    number, begin, length = (Index(next(names)) for _ in range(3))
    sizes: dict[str, Expr] = {NUMBER: number, BEGIN: begin, LENGTH: length}
    lower, upper = (substitute(e, {}, sizes) for e in (runs.lower, runs.upper))
    segments = _loop(number, int_const(0), runs.count)
    if runs.is_parallel:
        segments = replace(segments, kind="parallel", least_part=1, is_uneven=True)
    around = (segments, _loop(begin, lower, lower + 1), _loop(length, upper - begin, upper - begin + 1))
    body = make_nest(around, map_nodes(nest.body, lambda e: substitute(e, {}, sizes)))
    fill = tuple(n for name, value in runs.initial for n in _fill(nest.buffer(name), value, names))
    buffers = nest.buffers
    if runs.is_parallel:
        buffers = tuple(replace(b, space="thread") if b.space == "shared" else b for b in buffers)
    parameters = tuple(p for p in nest.parameters if p not in sizes)
    body = (*_start(runs, fill), *body)
    return replace(nest, parameters=parameters, buffers=buffers, body=body, segments=None)


def _loop(var: Index, lower: Expr, upper: Expr) -> Loop:
    return Loop(var.name, lower, upper, 1, "serial", ())


def _fill(buffer: Buffer, value: Expr, names: Iterator[str]) -> Body:
    places = [(Index(next(names)), extent) for extent in buffer.shape]
    loops = [_loop(place, int_const(0), extent) for place, extent in places]
    return make_nest(loops, (Store(buffer.name, tuple(place for place, _ in places), value),))


def _start(runs: SegmentRuns, fill: Body) -> Body:
    """Initial values of all elements, where there are positions before the first segment or behind the last one."""
    if not fill:
        return ()
    first = substitute(runs.lower, {}, {NUMBER: int_const(0)})
    end = substitute(runs.upper, {}, {NUMBER: simplify(runs.count - 1)})
    is_outside = any_holds([lt(0, first), lt(end, runs.positions)])
    has_none = le(runs.count, 0)  # there may be no ends to read then
    return (If(Select(has_none, Const(True, BOOL), is_outside), fill),)
