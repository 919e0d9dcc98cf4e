"""Let the first step of a recurrence read where its initial state comes from, and what reads its last step compute it.

Before: ``A[0, i] = X[i]``, ``A[t, i] = f(A[t-1, i-1], A[t-1, i]) where t in 1:T+1``, ``Y[i] = A[T, i]``.
After: ``A[t, i] = t == 1 ? f(X[i-1], X[i]) : f(A[t-1, i-1], A[t-1, i]) where t in 1:T``, ``Y[i] = f(A[T-1, i-1], A[T-1, i])``.
Copies are as many passes over memory as steps are: of one step they were two passes of three.  What a statement reads is
substituted where integer sets show which statement has written it (index-set splitting, forward substitution).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from math import inf, prod

from polyc.code_limits import LONG_ROW, MAX_NODES
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    eq,
    index_names,
    int_const,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import ReadSite, collect_reads
from polyc.ir.simplify import constant_of, simplify
from polyc.machine import Level, Machine, Share
from polyc.poly.domains import (
    box_domain,
    condition_inside,
    has_divs,
    longest_run,
    parameter_names,
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
from polyc.scheduler.rewriting.reindexing import drop_unit_indices, simplify_subscripts
from polyc.scheduler.rewriting.rules.analysis import replace_node

LEAST_ELEMENTS = 1024
"""Elements of a step below which a copy of them costs no more than what starts its loops."""


def forward_ends(
    program: Program, ranges: Ranges, target: Machine, shared: Collection[str] = ()
) -> tuple[Program, Ranges, list[Remark]]:
    """The program without copies of whole steps into recurrences and out of them; `shared` inputs, whose memory results share,
    are copied."""
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
    for step in program.writers()[tensor]:
        if not any(r.tensor == tensor for r in reads(step.value)):
            continue
        for reader in program.statements:
            if reader.target != tensor and any(r.tensor == tensor for r in reads(reader.value)):
                found = _move_step(step, reader, program, ranges, target)
                if found is not None:
                    return found
    return None


def _move_step(
    step: Statement, reader: Statement, program: Program, ranges: Ranges, target: Machine
) -> tuple[Program, Ranges, Statement] | None:
    """The program with the value of `step` in the place of what `reader` reads of it, if nothing else reads those elements."""
    place = find_place(step, ranges)
    sites = [site for site in collect_reads(reader) if site.read.tensor == step.target]
    found = dict.fromkeys(site.read for site in sites)
    if place is None or len(found) != 1 or any(site.is_padded or site.place != "value" for site in sites):
        return None
    (read,) = found
    at = find_place(replace(reader, subscripts=read.subscripts), ranges)
    if at is None or not at.fixed or not reader.indices or any(i is None for i, _ in place.dims):
        return None
    if _count_elements(reader, ranges) < LEAST_ELEMENTS:
        return None
    points = _points(reader, ranges)
    read_there = points.access(step.target, read.subscripts)
    elements = read_there.range()
    for q in program.statements:
        for site in collect_reads(q):
            if site.read.tensor != step.target or (q is reader and site.read == read):
                continue
            if not _is_apart(site, q, ranges, elements):
                return None
    written = points_of(step, ranges.statements[step.name]).access(step.target, step.subscripts)
    inside = read_there.intersect_range(written.range()).domain()
    if inside.is_empty():
        return None
    value = _value_at(step, place.dims, read)
    condition = condition_inside(inside, points.domain, reader.indices)
    if not isinstance(condition, Const):  # there are points, so that a constant is true
        value = Select(condition, value, read)
    new = replace(reader, value=replace_node(reader.value, read, value), where=())
    if sum(1 for _ in walk(new.value)) > MAX_NODES:
        return None
    gone = written.intersect_range(elements).domain()
    before = _points(step, ranges).domain
    live = subtract_domain(before, gone)
    is_long = _count_elements(reader, ranges) * _bytes_per_point(step, program) > target.room(Level.L2, Share.ALL)
    if is_long and _count_steps(before, step, at.fixed, place) >= MINIMUM_STEPS:
        return None  # tiles of time find the last step in the cache
    if live.n_basic_set() > max(1, before.n_basic_set()) or has_divs(live):
        return None
    builder = ProgramBuilder(program, ranges)
    builder.statements += [new if s is reader else s for s in program.statements if s is not step or not live.is_empty()]
    builder.set_points(step.name, _confine(Points(builder.points(step).indices, live)))
    return *builder.finish(), new


def _confine(points: Points) -> Points:
    """The points with intervals of one value less where that is enough."""
    intervals = dict(points.indices)
    for i, interval in points.indices.items():
        extent = constant_of(interval.extent)
        if extent:
            shorter = intervals | {i: Interval(interval.lower, int_const(extent - 1))}
            box = box_domain(str(points.domain.get_tuple_name()), tuple(shorter), shorter, parameter_names(points.domain))
            intervals = shorter if points.domain.is_subset(box) else intervals
    return Points(intervals, points.domain)


def _bytes_per_point(step: Statement, program: Program) -> int:
    """Memory per point of space that a step touches: two steps of what is computed, one of what is only read."""
    tensors = {program.tensor(name) for name in (step.target, *(r.tensor for r in reads(step.value)))}
    return sum((2 if t.role == "temporary" else 1) * t.dtype.itemsize for t in tensors)


def _count_steps(domain: Set, step: Statement, fixed: list[int], place: Place) -> float:
    """How many steps the points of a statement belong to at most."""
    runs = [longest_run(domain, step.indices.index(index)) for d in fixed if (index := place.dims[d][0]) is not None]
    return max(inf if run is None else run for run in runs)


# -- the first steps


@dataclass(frozen=True, eq=False, slots=True)
class _Start:
    """A statement that copies an input, or a constant, into a step."""

    statement: Statement
    dims: tuple[tuple[str | None, Expr], ...]
    region: Set  # { A[e] }


def _forward_starts(
    tensors: Collection[str], program: Program, ranges: Ranges, shared: Collection[str]
) -> tuple[Program, Ranges, list[Statement]]:
    """The program without the statements, which are told, that only copy: what reads their elements reads what they read."""
    found = (_find_start(s, program, ranges, shared) for s in program.statements if s.target in tensors)
    starts = [start for start in found if start is not None]
    made = {start.statement.target for start in starts}
    if any(_needs_own_step(q, start, made) for q in program.statements for start in starts):
        return program, ranges, []
    while starts:
        changed: dict[str, Statement] = {}
        refused: _Start | None = None
        for q in program.statements:
            new = _read_in_place(q, starts, ranges)
            if isinstance(new, _Start):
                refused = new
                break
            changed[q.name] = new
        if refused is None:
            break
        starts.remove(refused)
    if not starts:
        return program, ranges, []
    builder, gone = ProgramBuilder(program, ranges), {x.statement.name for x in starts}
    builder.statements += [changed[q.name] for q in program.statements if q.name not in gone]
    for tensor in {x.statement.target for x in starts}:
        builder.intervals[tensor] = _needed_extents(tensor, builder)
    return *builder.finish(), [x.statement for x in starts]


def _find_start(s: Statement, program: Program, ranges: Ranges, shared: Collection[str]) -> _Start | None:
    value = s.value
    if _count_elements(s, ranges) < LEAST_ELEMENTS:
        return None
    if isinstance(value, Read):
        is_plain = (
            program.tensor(value.tensor).role == "input"
            and value.tensor not in shared
            and not any(True for e in value.subscripts for _ in reads(e))
        )
    else:
        is_plain = isinstance(value, Const)
    place = find_place(s, ranges) if is_plain else None
    if place is None or not place.fixed or len(place.fixed) == len(place.dims):
        return None
    return _Start(s, place.dims, _points(s, ranges).access(s.target, s.subscripts).range())


def _read_in_place(q: Statement, starts: list[_Start], ranges: Ranges) -> Statement | _Start:
    """A statement that reads what `starts` copy, chosen by the step where it does so in some only; the start for which that
    cannot be."""
    own, points = ranges.statements[q.name], _points(q, ranges)
    domain = points.domain
    cases: list[tuple[Set, dict[Read, _Start]]] = []
    counting: set[str] = set()
    last: _Start | None = None
    for site in collect_reads(q):
        for start in starts:
            if site.read.tensor != start.statement.target or _is_apart(site, q, ranges, start.region):
                continue
            if q.reduction is not None or own.guards or site.place != "value":
                return start
            steps = _steps_of(site.read, start, points)
            if steps is not None and steps.is_empty():
                continue
            if steps is None or not _may_stand(site, steps, q, start, ranges):
                return start
            same = next((found for other, found in cases if steps.is_equal(other)), None)
            if same is None:
                if any(not steps.is_disjoint(other) for other, _ in cases):
                    return start
                cases.append((steps, same := {}))
            same[site.read] = last = start
            fixed = (e for (index, _), e in zip(start.dims, site.read.subscripts, strict=True) if index is None)
            counting |= index_names(*fixed)
    if last is None:
        return q
    rest = reduce(subtract_domain, (steps for steps, _ in cases), domain)
    is_long = any(isinstance(e := own.indices[i].extent, Const) and int(e.value) > LONG_ROW for i in counting)
    if is_long and not rest.is_empty():
        return last
    values = [(steps, _substitute_reads(q.value, found)) for steps, found in cases]
    value = choose_value(values, q.value, domain, q.indices)
    return replace(q, value=value, where=()) if sum(1 for _ in walk(value)) <= MAX_NODES else last


def _needs_own_step(q: Statement, start: _Start, made: Collection[str]) -> bool:
    """Whether a statement that writes what `start` begins reads one of the tensors `made` in the same step: statements of a
    step then run in order, or side by side in tiles of time, and are written once."""
    fixed = [d for d, (index, _) in enumerate(start.dims) if index is None]
    return q.target == start.statement.target and any(
        read.tensor in made
        and len(read.subscripts) == len(start.dims)
        and all(simplify(read.subscripts[d] - q.subscripts[d]) == int_const(0) for d in fixed)
        for read in reads(q.value)
    )


def _steps_of(read: Read, start: _Start, points: Points) -> Set | None:
    """The points at which what is read is of the step that `start` makes; None where that is not affine."""
    fixed = [eq(sub, at) for (index, at), sub in zip(start.dims, read.subscripts, strict=True) if index is None]
    there = points.where(all_hold(fixed))
    return None if there is None else there.domain


def _may_stand(site: ReadSite, steps: Set, q: Statement, start: _Start, ranges: Ranges) -> bool:
    """Whether all that is read of the step is what `start` makes."""
    if not site.is_padded:
        return reads_within(site, steps, q.indices, start.region)
    # Borders are where the tensor ends: what is read instead has to end there, too.
    source = start.statement.value
    if not isinstance(source, Read) or len(source.subscripts) != len(start.dims) - sum(i is None for i, _ in start.dims):
        return False
    box = ranges.tensors[start.statement.target]
    own = [(i, offset, interval) for (i, offset), interval in zip(start.dims, box, strict=True) if i is not None]
    if source.subscripts != tuple(Index(i) for i, _, _ in own) or any(offset != int_const(0) for _, offset, _ in own):
        return False
    if tuple(interval for _, _, interval in own) != ranges.tensors[source.tensor]:
        return False
    indices = {f"e{d}": interval for d, interval in enumerate(box)}
    domain = box_domain(start.statement.target, tuple(indices), indices, parameter_names(start.region))
    fixed = [eq(Index(e), at) for e, (index, at) in zip(indices, start.dims, strict=True) if index is None]
    step = Points(indices, domain).where(all_hold(fixed))
    return step is not None and bool(step.domain.is_subset(start.region))


def _substitute_reads(value: Expr, found: Mapping[Read, _Start]) -> Expr:
    """`value` with what is copied in the place of reads of copies."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read) or node not in found:
            return None
        return _value_at(found[node].statement, found[node].dims, node)

    return rewrite(value, rule)


def _needed_extents(tensor: str, builder: ProgramBuilder) -> tuple[Interval, ...]:
    """The extents of a tensor that the only statement that makes it needs."""
    box, writers = builder.intervals[tensor], [s for s in builder.statements if s.target == tensor]
    place = find_place(writers[0], builder.ranges) if len(writers) == 1 else None
    if place is None:
        return box
    needed = []
    for (index, offset), interval in zip(place.dims, box, strict=True):
        one = Interval(int_const(0), int_const(1))
        made = one if index is None else builder.own[writers[0].name].indices[index]
        is_known = isinstance(made.extent, Const) and isinstance(interval.extent, Const)
        needed.append(Interval(simplify(made.lower + offset), made.extent) if is_known else interval)
    return tuple(needed)


# -- sets


def _points(s: Statement, ranges: Ranges) -> Points:
    points = points_of(s, ranges.statements[s.name])
    return Points(points.indices, points.domain.intersect_params(ranges.context))


def _value_at(s: Statement, dims: Sequence[tuple[str | None, Expr]], read: Read) -> Expr:
    """What a statement that writes to `dims` computes for the element that is read."""
    values = {i: simplify(sub - offset) for (i, offset), sub in zip(dims, read.subscripts, strict=True) if i is not None}
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
