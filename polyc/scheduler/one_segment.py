"""Programs over the segments of a partition, as programs for one segment of any length.

Before: ``S[i, j] += Q[i, d] * K[j, d] where i in ptr[b]:ptr[b + 1], j in ptr[b]:ptr[b + 1]``, over all i, j < T and all b.
After: ``S[i, j] += Q[i, d] * K[j, d]`` over BEGIN <= i, j < BEGIN + LENGTH, which are sizes as NUMBER is, the value of b.

To everything behind this it is a product of dense matrices, with tiles, copies of operands and temporaries of at most LENGTH
rows; `ir.segment_runs` puts the loop over the segments around the loops that are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import prod

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    Size,
    ge,
    index_names,
    int_const,
    lt,
    padded_reads,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.program import Program, Statement, map_statement, statement_expressions, statement_reads
from polyc.ir.segments import BEGIN, LENGTH, NUMBER, SEGMENT_SIZES, SegmentRuns, is_segmented, loaded_clauses, segment_reads
from polyc.ir.simplify import simplify
from polyc.machine import Machine
from polyc.poly import isl
from polyc.poly.domains import is_box
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.poly.sizes import Sizes
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import find_recurrences
from polyc.scheduler.rewriting.reindexing import without_indices

Kind = tuple[str, ...]
"""By dimension of what a program computes: ``position`` in a segment, ``part``, the number of a segment, or "" for others."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The index of a statement that counts segments, if one does, and those that are positions in the same segment."""

    part: str
    positions: frozenset[str] = frozenset()

    def kind_of(self, s: Statement) -> Kind:
        return tuple(
            "part" if e == Index(self.part) else "position" if isinstance(e, Index) and e.name in self.positions else ""
            for e in s.subscripts
        )


@dataclass(frozen=True, slots=True)
class _Partition:
    """All statements of a program in their places; `ends`: where a segment begins and ends, over NUMBER."""

    places: Mapping[str, _Place]
    kinds: Mapping[str, Kind]
    ends: tuple[Expr, Expr]
    count: Expr
    positions: Expr
    initial: tuple[tuple[str, Expr], ...] = ()
    """As in `SegmentRuns`."""


def schedule_one_segment(
    program: Program, ranges: Ranges, options: Options, target: Machine, constants: frozenset[str], shared: frozenset[str]
) -> tuple[Program, Ranges, list[Remark]]:
    """Products of matrices in segments are computed segment by segment."""
    product = next((s for s in program.statements if _multiplies_in_segments(s)), None)
    if product is None:
        return program, ranges, []
    found: _Partition | str = "what is bound may be copied once for all segments"
    if not constants:
        found = "a result has the memory of an argument" if shared else _find_partition(program, ranges)
    if isinstance(found, str):
        return program, ranges, [Remark("missed", "one-segment", f"all segments at once: {found}", product.name, product.span)]
    program, ranges = _restrict(program, ranges, found)
    is_parallel = options.parallel and _are_enough(program, ranges, found, target)
    runs = SegmentRuns(found.count, *found.ends, found.positions, found.initial, is_parallel)
    who = "threads share segments" if is_parallel else "threads share the work on each segment"
    remark = Remark("passed", "one-segment", f"one segment at a time: {who}", product.name, product.span)
    return program, replace(ranges, segments=runs), [remark]


def _segments_of(s: Statement) -> list[tuple[str, Expr, Expr, str]]:
    """The indices that are positions in segments, where these begin and end, and the index that counts them."""
    pairs = [(c, segment_reads(c)) for c in loaded_clauses(s.where)]
    return [(c.index, c.lower, c.upper, found[2]) for c, found in pairs if found is not None]


def _multiplies_in_segments(s: Statement) -> bool:
    """Whether a statement sums products that share what they read, as those of matrices do, into elements of segments."""
    segments, op = _segments_of(s), "" if s.reduction is None else s.reduction.op
    if op != "add" or {index for index, *_ in segments}.isdisjoint(s.left_indices):
        return False
    parts = {part for *_, part in segments}
    left, summed = set(s.left_indices) - parts, set(s.reduction_indices) - parts
    moved = [index_names(*r.subscripts) for r in reads(s.value)]
    return any((a & left) - b and (b & left) - a and a & b & summed for a, b in combinations(moved, 2))


def _find_partition(program: Program, ranges: Ranges) -> _Partition | str:
    """The one partition that all statements run through, or why there is none such."""
    places: dict[str, _Place] = {}
    ends: set[tuple[Expr, Expr]] = set()
    counts: set[Interval] = set()
    spans: set[Interval] = set()
    for s in program.statements:
        own = ranges.statements[s.name].indices
        for index, lower, upper, part in _segments_of(s):
            if index_names(lower, upper) != {part}:
                return "several indices say where a segment begins"
            known = places.setdefault(s.name, _Place(part))
            if known.part != part:
                return f"{program.tensor(s.target).base} has two partitions"
            places[s.name] = _Place(part, known.positions | {index})
            ends.add((_over_number(lower, part), _over_number(upper, part)))
            counts.add(own[part])
            spans.add(own[index])
    if max(len(ends), len(counts), len(spans)) > 1:
        return "there are several partitions"
    (pair,), (count,), (span,) = ends, counts, spans
    if count.lower != int_const(0) or span.lower != int_const(0):
        return "segments, or positions in them, do not begin with 0"
    kinds = {s.target: places[s.name].kind_of(s) for s in program.statements if s.name in places}
    rest = [s for s in program.statements if s.name not in places]
    while rest:
        ready = {s.name: place for s in rest if (place := _follow(s, kinds) or _lead(s, program, places)) is not None}
        if not ready:
            return f"{program.tensor(rest[0].target).base} is not computed in segments"
        places |= ready
        kinds |= {s.target: places[s.name].kind_of(s) for s in rest if s.name in ready}
        rest = [s for s in rest if s.name not in places]
    found = _Partition(places, kinds, pair, count.extent, span.extent)
    intervals = {"part": count, "position": span}
    reason = next((r for s in program.statements if (r := _refuse(s, program, ranges, found, intervals)) is not None), None)
    if reason is not None or find_recurrences(program):
        return reason or "there are recurrences"
    return _fill_results(program, found)


def _over_number(end: Expr, part: str) -> Expr:
    return simplify(substitute(end, {part: Size(NUMBER)}))


def _follow(s: Statement, kinds: Mapping[str, Kind]) -> _Place | None:
    """The place of a statement that says nothing of segments, by what it reads: of each segment, or at one position."""
    found: dict[str, set[str]] = {"part": set(), "position": set()}
    for r in statement_reads(s):
        for kind, e in zip(kinds.get(r.tensor, ()), r.subscripts, strict=r.tensor in kinds):
            if kind and isinstance(e, Index):
                found[kind].add(e.name)
    parts, positions = found["part"], found["position"]
    if len(parts) + len(positions) != 1:
        return None
    return _Place(next(iter(parts))) if parts else _Place("", frozenset(positions))


def _lead(s: Statement, program: Program, places: Mapping[str, _Place]) -> _Place | None:
    """The place of a statement that says nothing of segments, by the one dimension in which these read what it writes."""
    found = [(places[r.name], e) for r in program.readers(s.target) if r.name in places for e in statement_reads(r)]
    uses = [[e in [Index(i) for i in p.positions] for e in read.subscripts] for p, read in found if read.tensor == s.target]
    along = [e.name for d, e in enumerate(s.subscripts) if isinstance(e, Index) and uses and all(use[d] for use in uses)]
    return _Place("", frozenset(along)) if len(along) == 1 else None


def _fill_results(program: Program, found: _Partition) -> _Partition | str:
    """The partition with what results hold at positions in no segment; or which one that has to be computed for."""
    statements, known = {s.name: s for s in program.statements}, dict[str, Expr]()
    if any(is_segmented(s) for s in program.statements):  # the call checks that segments cover all positions
        return found

    def start(e: Expr) -> Expr | None:
        return known.get(e.tensor) if isinstance(e, Read) else None

    for name, place in found.places.items():
        s = statements[name]
        if s.reduction is not None and place.part:
            known[s.target] = s.reduction.init
        elif s.reduction is None:
            value = rewrite(s.value, start)
            known.update({} if reads(value) or index_names(value) else {s.target: value})
    results = [r.version for r in program.returns if "position" in found.kinds[r.version]]
    missing = next((r for r in results if r not in known), None)
    if missing is not None:
        return f"{program.tensor(missing).base} is computed at positions in no segment, too"
    return replace(found, initial=tuple((r, known[r]) for r in results))


def _refuse(s: Statement, program: Program, ranges: Ranges, found: _Partition, intervals: Mapping[str, Interval]) -> str | None:
    """Why a statement cannot be run for one segment alone; None where it can."""
    place, own, kind = found.places[s.name], ranges.statements[s.name], found.kinds[s.target]
    name = program.tensor(s.target).base
    if not s.has_plain_left or len(program.writers()[s.target]) > 1 or own.region is not None:
        return f"{name} is written in parts"
    if own.guards:
        return f"only data tells whether {program.tensor(own.guards[0].read.tensor).base} has what {name} reads"
    if s.reduction is not None and not isinstance(s.reduction.init, Const):
        return f"{name} starts from other elements"
    if not any(kind):
        return f"{name} is accumulated over segments"
    if any(r.version == s.target for r in program.returns) and sum(map(bool, kind)) > 1:
        return f"the result {name} has elements for pairs in different segments"
    indices = {place.part: intervals["part"], **dict.fromkeys(place.positions, intervals["position"])}
    if any(own.indices[i] != interval for i, interval in indices.items() if i):
        return f"{name} is computed for other segments, or at other positions"
    if not place.part and not is_box(own.domain, own.indices, s.indices):
        return f"{name} is written in parts"
    if any(k and interval != intervals[k] for k, interval in zip(kind, ranges.tensors[s.target], strict=True)):
        return f"{name} has elements beside those of segments"
    if any(r.tensor in found.kinds for r in padded_reads(*statement_expressions(s))):
        return f"{name} reads beyond a border"
    for r in statement_reads(s):
        for k, e in zip(found.kinds.get(r.tensor, ()), r.subscripts, strict=r.tensor in found.kinds):
            same = place.positions if k == "position" else {place.part}
            if k and not (isinstance(e, Index) and e.name in same):
                return f"{name} reads {program.tensor(r.tensor).base} at other positions"
    return None


def _average(found: _Partition, ranges: Ranges) -> int | None:
    """Elements of a segment on average, where sizes say that."""
    count, positions = (estimate_extent(e, ranges.typical) for e in (found.count, found.positions))
    return None if count is None or positions is None else positions // max(1, count)


def _are_enough(program: Program, ranges: Ranges, found: _Partition, target: Machine) -> bool:
    """Whether there are segments, and work, enough for threads to share; where sizes do not say that there are."""
    trips = [tuple(ranges.trips(s.name).values()) for s in program.statements]
    known = [[n for n in own if n is not None] for own in trips]
    count = estimate_extent(found.count, ranges.typical)
    if count is None or any(None in own for own in trips):
        return True
    return count >= target.threads.parts_per_core * target.cores and count * sum(map(prod, known)) >= target.threads.least_work


def _restrict(program: Program, ranges: Ranges, found: _Partition) -> tuple[Program, Ranges]:
    """The program for one segment, whose number, begin and length are sizes."""
    names = (*ranges.parameters, *SEGMENT_SIZES)
    number, begin, length = map(Size, SEGMENT_SIZES)
    sizes = Sizes(names)
    context = ranges.context.align_params(sizes.context.get_space())
    zero = sizes.constant(0)
    for low, high in ((zero, sizes.value(begin)), (zero, sizes.value(length)), (zero, sizes.value(number))):
        context = context.intersect(low.le_set(high))
    context = context.intersect(sizes.value(begin + length).le_set(sizes.value(found.positions)))
    context = context.intersect(sizes.value(number).lt_set(sizes.value(found.count)))
    intervals = {"part": Interval(number, int_const(1)), "position": Interval(begin, length)}
    statements, own = [], dict(ranges.statements)
    for s in program.statements:
        new, own[s.name] = _restrict_statement(s, own[s.name], found.places[s.name], intervals, context)
        statements.append(new)
    tensors = {
        name: tuple(intervals.get(k, old) for k, old in zip(found.kinds[name], box, strict=True))
        if name in found.kinds
        else box
        for name, box in ranges.tensors.items()
    }
    average = _average(found, ranges)
    typical = {} if average is None else {NUMBER: 0, BEGIN: 0, LENGTH: max(1, average)}
    inferred = tuple(replace(t, shape=None) if t.name in found.kinds else t for t in program.tensors)
    program = replace(program, sizes=(*program.sizes, *SEGMENT_SIZES), statements=tuple(statements), tensors=inferred)
    return program, replace(
        ranges,
        parameters=names,
        context=context,
        statements=own,
        tensors=tensors,
        typical={**ranges.typical, **typical},
    )


def _restrict_statement(
    s: Statement, own: StatementRanges, place: _Place, intervals: Mapping[str, Interval], context: isl.Set
) -> tuple[Statement, StatementRanges]:
    domain = own.domain.align_params(context.get_space())
    affine = isl.Affine(domain.get_space(), {i: n for n, i in enumerate(s.indices)})
    places = {place.part: intervals["part"]} if place.part else {}
    places |= dict.fromkeys(place.positions, intervals["position"])
    for i, interval in places.items():
        domain = domain.intersect(affine.condition(ge(Index(i), interval.lower)))
        domain = domain.intersect(affine.condition(lt(Index(i), interval.lower + interval.extent)))
    own = replace(own, indices={**own.indices, **places}, domain=domain.gist_params(context).coalesce())
    kept = tuple(c for c in loaded_clauses(s.where) if segment_reads(c) is None)
    s = replace(s, where=kept)  # the domain has what the others say
    if not place.part or place.part in s.left_indices:
        return s, own
    s = map_statement(s, lambda e: substitute(e, {place.part: Size(NUMBER)}))
    return without_indices(s, own, [place.part])
