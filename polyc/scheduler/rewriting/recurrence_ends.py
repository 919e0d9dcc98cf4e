"""Let the first step of a recurrence read where its initial state comes from, and what reads its last step compute it.

Before: ``A[0, i] = X[i]``, ``A[t, i] = f(A[t-1, i-1], A[t-1, i]) where t in 1:T+1``, ``Y[i] = A[T, i]``.
After: ``A[t, i] = t == 1 ? f(X[i-1], X[i]) : f(A[t-1, i-1], A[t-1, i]) where t in 1:T``, ``Y[i] = f(A[T-1, i-1], A[T-1, i])``.
Copies are as many passes over memory as steps are: of one step they were two passes of three.  What a statement reads is
substituted where integer sets show which statement has written it (index-set splitting, forward substitution).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from math import prod

from polyc.code_limits import LONG_ROW, MAX_NODES
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Expr, Index, Read, Select, all_hold, eq, index_names, int_const, lt, reads, substitute, walk
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import ReadSite, collect_reads
from polyc.ir.simplify import constant_of, difference, simplify
from polyc.machine import Level, Machine, Share
from polyc.poly.domains import (
    condition_inside,
    has_divs,
    is_box,
    longest_run,
    reads_within,
    stays_inside,
    subtract_domain,
    touched_elements,
)
from polyc.poly.isl import Set, dim_type
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.loops.time_tiling import MINIMUM_STEPS
from polyc.scheduler.rewriting.builder import ProgramBuilder
from polyc.scheduler.rewriting.parts import Place, choose_value, find_place
from polyc.scheduler.rewriting.reindexing import drop_unit_indices, map_reads, simplify_subscripts
from polyc.scheduler.rewriting.rules.analysis import replace_node

LEAST_ELEMENTS = 1024
"""Elements of a step below which a copy of them costs no more than what starts its loops."""


def forward_ends(
    program: Program, ranges: Ranges, target: Machine, shared: Collection[str] = ()
) -> tuple[Program, Ranges, list[Remark]]:
    """Forward substitution: the first and the last step of a recurrence read and write the caller's arrays.

    `shared` inputs, whose memory results share, are copied."""
    remarks: list[Remark] = []
    tensors = {t.name: t.base for t in program.tensors if t.role == "temporary" and _is_recurrence(t.name, program, ranges)}
    for tensor, base in tensors.items():
        last = _compute_last(tensor, program, ranges, target)
        if last is not None:
            program, ranges, reader = last
            message = f"the last step of {base} is computed where it is read"
            remarks.append(Remark("passed", "recurrence-ends", message, reader.name, reader.span))
    program, ranges, starts = _forward_starts(tensors, program, ranges, shared)
    for start in starts:
        message = f"the first step of {tensors[start.target]} reads its initial state in place"
        remarks.append(Remark("passed", "recurrence-ends", message, start.name, start.span))
    if remarks:
        program, ranges = drop_unit_indices(program, ranges)
    return program, ranges, remarks


def _is_recurrence(tensor: str, program: Program, ranges: Ranges) -> bool:
    """Whether a tensor is made of several statements, or of its own elements."""
    writers = program.writers().get(tensor, [])
    if any(s.reduction is not None or ranges.statements[s.name].guards for s in writers):
        return False
    return any(r.tensor == tensor for s in writers for r in reads(s.value))


# -- the last step


def _compute_last(tensor: str, program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, Statement] | None:
    """The program with the last step of a tensor computed by the only statement that reads it, which is told."""
    steps = [s for s in program.writers()[tensor] if any(r.tensor == tensor for r in reads(s.value))]
    readers = [s for s in program.statements if s.target != tensor and any(r.tensor == tensor for r in reads(s.value))]
    found = (_move_step(step, reader, program, ranges, target) for step in steps for reader in readers)
    return next((moved for moved in found if moved is not None), None)


def _move_step(
    step: Statement, reader: Statement, program: Program, ranges: Ranges, target: Machine
) -> tuple[Program, Ranges, Statement] | None:
    """The program with the value of `step` in the place of what `reader` reads of it, if nothing else reads those elements."""
    place = find_place(step, ranges)
    own = [site for site in collect_reads(reader) if site.read.tensor == step.target]
    if place is None or len({site.read for site in own}) != 1 or any(site.is_padded or site.place != "value" for site in own):
        return None
    read = own[0].read
    at = find_place(replace(reader, subscripts=read.subscripts), ranges)
    is_small = _count_elements(reader, ranges) < LEAST_ELEMENTS
    if at is None or not at.fixed or not reader.indices or place.fixed or is_small or _may_keep(step):
        return None
    points = _points(reader, ranges)
    read_there = points.access(step.target, read.subscripts)
    elements = read_there.range()
    others = ((site, q) for q in program.statements if q is not reader for site in collect_reads(q))
    if not all(_is_apart(site, q, ranges, elements) for site, q in others if site.read.tensor == step.target):
        return None
    written = points_of(step, ranges.statements[step.name]).access(step.target, step.subscripts)
    inside = read_there.intersect_range(written.range()).domain()
    if inside.is_empty():
        return None
    value = _value_at(step, place, read)
    condition = condition_inside(inside, points.domain, reader.indices)
    if not isinstance(condition, Const):  # there are points, so that a constant is true
        value = Select(condition, value, read)
    new = replace(reader, value=replace_node(reader.value, read, value), where=())
    before = _points(step, ranges)
    live = subtract_domain(before.domain, written.intersect_range(elements).domain())
    counting = {place.dims[d][0] for d in at.fixed}
    runs = [longest_run(before.domain, n) for n, i in enumerate(before.indices) if i in counting]
    is_long = _count_elements(reader, ranges) * _bytes_per_point(step, program) > target.room(Level.L2, Share.ALL)
    if is_long and any(run is None or run >= MINIMUM_STEPS for run in runs):
        return None  # tiles of time find the last step in the cache
    is_simple = live.n_basic_set() <= max(1, before.domain.n_basic_set()) and not has_divs(live)
    if not is_simple or sum(1 for _ in walk(new.value)) > MAX_NODES:
        return None
    builder = ProgramBuilder(program, ranges)
    builder.statements += [new if s is reader else s for s in program.statements if s is not step or not live.is_empty()]
    builder.set_points(step.name, _confine(Points(before.indices, live)))
    return *builder.finish(), new


def _may_keep(step: Statement) -> bool:
    """Whether data decides if elements stay as they were: a recurrence that has ended needs nothing else of its last step."""
    choices = (e for e in walk(step.value) if isinstance(e, Select) and any(True for _ in reads(e.condition)))
    return any(isinstance(arm, Read) and arm.tensor == step.target for e in choices for arm in (e.then, e.other))


def _confine(points: Points) -> Points:
    """The points with intervals of one value less where that is enough."""
    intervals = dict(points.indices)
    for i, own in points.indices.items():
        extent = constant_of(own.extent)
        if extent and points.satisfy(lt(Index(i), own.lower + (extent - 1))):
            intervals[i] = Interval(own.lower, int_const(extent - 1))
    return Points(intervals, points.domain)


def _bytes_per_point(step: Statement, program: Program) -> int:
    """Memory per point of space that a step touches: two steps of what is computed, one of what is only read."""
    tensors = {program.tensor(name) for name in (step.target, *(r.tensor for r in reads(step.value)))}
    return sum((2 if t.role == "temporary" else 1) * t.dtype.itemsize for t in tensors)


# -- the first steps


@dataclass(frozen=True, eq=False, slots=True)
class _Start:
    """A statement that copies an input, or a constant, into a step."""

    statement: Statement
    place: Place
    region: Set  # { A[e] }

    def is_step(self, read: Read) -> Expr:
        """What holds where a read is of the step that the statement begins."""
        return all_hold(eq(read.subscripts[d], self.place.dims[d][1]) for d in self.place.fixed)


class _Refused(Exception):
    """A start has to stay; it is told."""


def _forward_starts(
    tensors: Collection[str], program: Program, ranges: Ranges, shared: Collection[str]
) -> tuple[Program, Ranges, list[Statement]]:
    """The program without the statements, which are told, that only copy: what reads their elements reads what they read."""
    found = (_find_start(s, program, ranges, shared) for s in program.statements if s.target in tensors)
    starts = [start for start in found if start is not None]
    made = {start.statement.target for start in starts}
    if any(_needs_own_step(q, start, made) for q in program.statements for start in starts):
        return program, ranges, []
    changed: dict[str, Statement] = {}
    while starts and not changed:
        try:
            changed = {q.name: _read_in_place(q, starts, ranges) for q in program.statements}
        except _Refused as refused:
            starts.remove(refused.args[0])
    if not starts:
        return program, ranges, []
    builder, gone = ProgramBuilder(program, ranges), [x.statement for x in starts]
    builder.statements += [changed[q.name] for q in program.statements if q not in gone]
    for tensor in {s.target for s in gone}:
        builder.intervals[tensor] = _needed_extents(tensor, builder)
    return *builder.finish(), gone


def _find_start(s: Statement, program: Program, ranges: Ranges, shared: Collection[str]) -> _Start | None:
    value = s.value
    is_plain = isinstance(value, Const)
    if isinstance(value, Read) and program.tensor(value.tensor).role == "input" and value.tensor not in shared:
        is_plain = not any(True for e in value.subscripts for _ in reads(e))
    place = find_place(s, ranges) if is_plain else None
    if place is None or not place.fixed or len(place.fixed) == len(place.dims) or _count_elements(s, ranges) < LEAST_ELEMENTS:
        return None
    return _Start(s, place, _points(s, ranges).access(s.target, s.subscripts).range())


def _read_in_place(q: Statement, starts: list[_Start], ranges: Ranges) -> Statement:
    """A statement that reads what `starts` copy, chosen by the step where it does so in some only."""
    own, points = ranges.statements[q.name], _points(q, ranges)
    cases: list[tuple[Set, dict[Read, _Start]]] = []
    counting: set[str] = set()
    last: _Start | None = None
    for site in collect_reads(q):
        for start in starts:
            if site.read.tensor != start.statement.target or _is_apart(site, q, ranges, start.region):
                continue
            there = points.where(start.is_step(site.read))
            if q.reduction is not None or own.guards or site.place != "value" or there is None:
                raise _Refused(start)
            steps = there.domain
            if steps.is_empty():
                continue
            same = next((found for other, found in cases if steps.is_equal(other)), None)
            is_mixed = same is None and any(not steps.is_disjoint(other) for other, _ in cases)
            if is_mixed or not _may_stand(site, steps, q, start, ranges):
                raise _Refused(start)
            if same is None:
                cases.append((steps, same := {}))
            same[site.read] = last = start
            counting |= index_names(*(site.read.subscripts[d] for d in start.place.fixed))
    if last is None:
        return q
    rest = reduce(subtract_domain, (steps for steps, _ in cases), points.domain)
    is_long = any(isinstance(e := own.indices[i].extent, Const) and int(e.value) > LONG_ROW for i in counting)
    values = [(steps, _substitute_reads(q.value, found)) for steps, found in cases]
    value = choose_value(values, q.value, points.domain, q.indices)
    if (is_long and not rest.is_empty()) or sum(1 for _ in walk(value)) > MAX_NODES:
        raise _Refused(last)
    return replace(q, value=value, where=())


def _needs_own_step(q: Statement, start: _Start, made: Collection[str]) -> bool:
    """Whether a statement that writes what `start` begins reads one of the tensors `made` in the same step: statements of a
    step then run in order, or side by side in tiles of time, and are written once."""
    return q.target == start.statement.target and any(
        read.tensor in made
        and len(read.subscripts) == len(start.place.dims)
        and all(difference(read.subscripts[d], q.subscripts[d]) == 0 for d in start.place.fixed)
        for read in reads(q.value)
    )


def _may_stand(site: ReadSite, steps: Set, q: Statement, start: _Start, ranges: Ranges) -> bool:
    """Whether all that is read of the step is what `start` makes."""
    if not site.is_padded:
        return reads_within(site, steps, q.indices, start.region)
    # Borders are where the tensor ends: what is read instead has to end there, too, and all of it be copied.
    s, source = start.statement, start.statement.value
    dims = [(d, i) for d, (i, offset) in enumerate(start.place.dims) if i is not None and offset == int_const(0)]
    if not isinstance(source, Read) or source.subscripts != tuple(Index(i) for _, i in dims) or len(dims) < len(s.indices):
        return False
    own, whole = ranges.statements[s.name], ranges.tensors[source.tensor]
    is_whole = all(ranges.tensors[s.target][d] == own.indices[i] == box for (d, i), box in zip(dims, whole, strict=True))
    return is_whole and is_box(own.domain, own.indices, s.indices)


def _substitute_reads(value: Expr, found: Mapping[Read, _Start]) -> Expr:
    """`value` with what is copied in the place of reads of copies."""
    return map_reads(value, lambda r: _value_at(found[r].statement, found[r].place, r) if r in found else r)


def _needed_extents(tensor: str, builder: ProgramBuilder) -> tuple[Interval, ...]:
    """The extents of a tensor that the only statement that makes it needs."""
    box, writers = builder.intervals[tensor], [s for s in builder.statements if s.target == tensor]
    place = find_place(writers[0], builder.ranges) if len(writers) == 1 else None
    if place is None:
        return box
    own, one = builder.own[writers[0].name].indices, Interval(int_const(0), int_const(1))
    made = [(one if i is None else own[i], offset) for i, offset in place.dims]
    needed = [Interval(simplify(i.lower + offset), i.extent) for i, offset in made]
    return tuple(
        i if isinstance(i.extent, Const) and isinstance(b.extent, Const) else b for i, b in zip(needed, box, strict=True)
    )


# -- sets


def _points(s: Statement, ranges: Ranges) -> Points:
    points = points_of(s, ranges.statements[s.name])
    return Points(points.indices, points.domain.intersect_params(ranges.context))


def _value_at(s: Statement, place: Place, read: Read) -> Expr:
    """What a statement that writes there computes for the element that is read."""
    values = {i: simplify(sub - offset) for (i, offset), sub in zip(place.dims, read.subscripts, strict=True) if i is not None}
    return simplify_subscripts(substitute(s.value, values))


def _is_apart(site: ReadSite, q: Statement, ranges: Ranges, elements: Set) -> bool:
    """Whether a read touches none of `elements`."""
    domain = _points(q, ranges).domain
    touched, _ = touched_elements(site, domain, q.indices, elements.get_space())
    if site.is_padded and site.mode != "value":
        for d, (subscript, box) in enumerate(zip(site.read.subscripts, ranges.tensors[site.read.tensor], strict=True)):
            if not stays_inside(domain, q.indices, [subscript - box.lower], [box.extent]):
                touched = touched.eliminate(dim_type.set, d, 1)
    return bool(touched.is_disjoint(elements))


def _count_elements(s: Statement, ranges: Ranges) -> float:
    return float(prod(trip_count(i.extent) for i in ranges.statements[s.name].indices.values()))
