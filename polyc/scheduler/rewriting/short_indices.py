"""Statements over a few components of many points are written out, one for each component.

    before  ``c[n, k] = a[n, (k+1) % 3] * b[n, (k+2) % 3]``   k in 0:3  ;  ``q[n] += c[n, k] * c[n, k]``
    after   ``c.0[n] = a[n, 1] * b[n, 2]`` and so on           ;  ``q[n] = c.0[n] * c.0[n] + …``

Three components fill no vector, and a remainder takes them from places that no vector load reaches.  Written out, components
are elements between each other along memory, vectors run along the points, and each component of a temporary is a tensor of
its own, which can be computed where it is read.

So are a few components, and sums over them, of a recurrence in which each step needs all components of the one before: as
loops, it would wait for them to be stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from itertools import product
from math import prod

from polyc.code_limits import FULL_ROW, MAX_COPIES, MAX_NODES, MAX_STRIDE
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Read,
    identity_of,
    index_names,
    int_const,
    padded_reads,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.program import Program, Statement, all_reads
from polyc.ir.simplify import constant_of, difference, simplify, simplify_value
from polyc.machine import Machine
from polyc.machine.memory import LINE
from polyc.poly.domains import is_box
from polyc.poly.ranges import Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import trip_count
from polyc.scheduler.rewriting.builder import ProgramBuilder, find_recurrences
from polyc.scheduler.rewriting.rules.analysis import has_own_elements, writes_whole
from polyc.scheduler.rewriting.rules.shared_rows import share_rows

Values = Mapping[str, int]
"""A value for each index that is written out."""


@dataclass(slots=True)
class Plan:
    """What is written out: indices by statement, and the dimensions of temporaries that become tensors of their own."""

    program: Program
    ranges: Ranges
    may_reassociate: bool
    most_values: int = MAX_STRIDE
    most_places: int = MAX_STRIDE
    recurrent: Collection[str] = ()
    """Statements that may read what they write at other values, and what lies beside a tensor along other dimensions."""
    indices: dict[str, set[str]] = field(default_factory=dict)
    dimensions: dict[str, set[int]] = field(default_factory=dict)

    def can_write_out(self, s: Statement, index: str) -> bool:
        """Whether nothing about a statement depends on all values of `index` being in one loop."""
        own = self.ranges.statements[s.name]
        extent = own.indices[index].extent
        if not isinstance(extent, Const) or not 1 <= extent.value <= self.most_values:
            return False
        if not isinstance(own.indices[index].lower, Const) or own.guards or own.region is not None:
            return False
        if s.reduction is not None:
            if s.reduction.monoid is not None or not isinstance(s.reduction.init, Const):
                return False
            if s.reduction.op not in ("add", "mul", "max", "min") or self.program.tensor(s.target).dtype.is_storage:
                return False
            is_alone = len(self.program.writers()[s.target]) == 1
            if not has_own_elements(s, self.ranges) or (is_alone and not writes_whole(s, self.ranges)):
                return False
        is_plain = s.name not in self.recurrent
        if is_plain and (any(r.tensor == s.target for r in all_reads(s)) or padded_reads(s.value)):
            return False
        return is_box(own.domain, own.indices, s.indices)

    def spread(self, tensor: str, dimension: int) -> bool:
        """Take `dimension` of a temporary apart if all that write and read it can be written out there; whether that is new."""
        if self.program.tensor(tensor).role != "temporary" or dimension in self.dimensions.get(tensor, ()):
            return False
        found: dict[str, set[str]] = {}
        places = self.ranges.tensors[tensor][dimension]
        if not isinstance(places.lower, Const) or not 1 <= trip_count(places.extent) <= self.most_places:
            return False
        for s in self.program.statements:
            accesses = [access.subscripts for access in _accesses(s) if access.tensor == tensor]
            is_padded = s.name not in self.recurrent and tensor in (r.tensor for r in padded_reads(s.value))
            own = self.ranges.statements[s.name]
            if any(g.read.tensor == tensor for g in own.guards):
                return False
            if accesses and (is_padded or own.guards or (s.target == tensor and own.region is not None)):
                return False
            for subscripts in accesses:
                inside = index_names(subscripts[dimension])
                if not all(self.can_write_out(s, i) for i in inside):
                    return False
                if not _stays_inside(subscripts[dimension], sorted(inside), own, places):
                    return False
                found.setdefault(s.name, set()).update(inside)
        for name, inside in found.items():
            self.indices.setdefault(name, set()).update(inside)
        self.dimensions.setdefault(tensor, set()).add(dimension)
        return True

    def spread_numbers(self, s: Statement) -> bool:
        """Take apart what a statement writes and reads other parts of, along dimensions where only numbers stand."""
        if all(r.tensor != s.target for r in reads(s.value)):
            return False
        places = zip(
            *(a.subscripts for x in self.program.statements for a in _accesses(x) if a.tensor == s.target), strict=True
        )
        numbered = [d for d, along in enumerate(places) if all(isinstance(e, Const) for e in along)]
        return any([self.spread(s.target, d) for d in numbered])

    def follow(self) -> None:
        """Everything that has to be, or may be, written out because something else is."""
        is_new = True
        while is_new:
            is_new = False
            for s in self.program.statements:
                mine = self.indices.get(s.name, set())
                for access in _accesses(s):
                    for d, e in enumerate(access.subscripts):
                        if not mine.isdisjoint(index_names(e)):
                            is_new |= self.spread(access.tensor, d)

    def is_small(self) -> bool:
        """Whether no statement is written out as too many, and no sum keeps a loop that its order would be changed for."""
        for s in self.program.statements:
            mine = self.indices.get(s.name, set())
            count = prod(trip_count(self.ranges.statements[s.name].indices[i].extent) for i in mine)
            if count > MAX_COPIES or count * sum(1 for _ in walk(s.value)) > MAX_NODES:
                return False
            summed = set(s.reduction_indices)
            if mine & summed and not summed <= mine and not self.may_reassociate:
                return False
        return True


def write_out_short_indices(
    program: Program, ranges: Ranges, target: Machine, may_reassociate: bool
) -> tuple[Program, Ranges, list[Remark]]:
    """Full unrolling of short dimensions."""
    _, _, shared = share_rows(program, ranges, target)
    if shared:
        return program, ranges, []  # sums along rows and down columns go in one pass, which costs less
    coupled = _find_coupled(program, ranges)
    plan = Plan(program, ranges, may_reassociate, recurrent=coupled)
    written: set[str] = set()
    for s in program.statements:
        seeds = coupled.get(s.name) or _find_seeds(s, written, program, ranges)
        own = ranges.statements[s.name].indices
        has_points = any(i not in seeds and trip_count(own[i].extent) >= FULL_ROW for i in s.left_indices)
        if seeds and has_points and all(plan.can_write_out(s, i) for i in seeds):
            plan.indices[s.name] = seeds
            written.add(s.target)
    first = dict(plan.indices)
    plan.follow()
    if not first or not plan.is_small():
        return program, ranges, []
    remarks = []
    for s in program.statements:
        if s.name in first:
            names = ", ".join(i for i in s.indices if i in plan.indices[s.name])
            remarks.append(Remark("passed", "short-indices", f"{s.target} is written out over {names}", s.name, s.span))
    return (*write_out(plan, target), remarks)


def write_out(plan: Plan, target: Machine) -> tuple[Program, Ranges]:
    """The program of a plan with all written out that it says."""
    builder = ProgramBuilder(plan.program, plan.ranges)
    for tensor, dimensions in plan.dimensions.items():
        _take_apart(builder, tensor, dimensions)
    for s in plan.program.statements:
        mine = plan.indices.get(s.name, set())
        builder.statements += _write_out(s, mine, plan, builder, target) if mine else [_redirect(s, plan)]
    return builder.finish()


def _find_seeds(s: Statement, written: set[str], program: Program, ranges: Ranges) -> set[str]:
    """Indices that had better be written out: those that take elements out of order, under a remainder or a division, and all
    short ones of a sum of few terms for each of many points, none of which has anything to do with the others, or of what
    reads tensors that are `written` so."""
    remainders = [
        n for r in reads(s.value) for e in r.subscripts for n in walk(e) if isinstance(n, Call) and n.op in ("mod", "floordiv")
    ]
    found = index_names(*remainders)
    extents = ranges.statements[s.name].indices
    long = {i for i in s.left_indices if trip_count(extents[i].extent) >= FULL_ROW}
    for read in reads(s.value):
        long &= index_names(*read.subscripts)
    is_with_sums = s.reduction is not None or any(r.tensor in written for r in reads(s.value))
    short = {i for i in s.indices if i not in long}
    return found | short if long and is_with_sums and _are_components(short, s, program, extents) else found


def _find_coupled(program: Program, ranges: Ranges) -> dict[str, set[str]]:
    """By statement of a recurrence: the indices of its sum, if that is of few terms, and the short ones on the left that count
    no steps, and along which it reads other elements than its own, if that makes few statements."""
    short: dict[str, set[str]] = {}
    for s in program.statements:
        extents = ((i, ranges.statements[s.name].indices[i].extent) for i in s.indices)
        short[s.name] = {i for i, e in extents if isinstance(e, Const) and 1 <= e.value <= MAX_STRIDE}
    found: dict[str, set[str]] = {}
    for group in find_recurrences(program) if any(short.values()) else ():
        targets = {s.target for s in group}
        for s in group:
            summed, mine = set(s.reduction_indices), [r for r in reads(s.value) if r.tensor in targets]
            left = {i for i in short[s.name] - summed if {_distance(r, i) for r in mine} in ({None}, {None, 0})}
            trips = ranges.statements[s.name].indices
            is_few = prod(trip_count(trips[i].extent) for i in summed | left) <= MAX_COPIES
            if summed <= short[s.name] and (seeds := summed | left if is_few else summed):
                found[s.name] = seeds
    return found


def _distance(read: Read, index: str) -> int | None:
    """How far from `index` the subscript is that moves with it alone; None where none does."""
    found = (difference(e, Index(index)) for e in read.subscripts)
    return next((n for n in found if n is not None), None)


def _are_components(short: set[str], s: Statement, program: Program, extents: Mapping[str, Interval]) -> bool:
    """Whether these indices stand alone in subscripts, as those of windows do not, and those that are summed up run along
    memory, in rows that are not loaded as vectors as well."""
    accesses = (Read(s.target, s.subscripts), *dict.fromkeys(reads(s.value)))
    for e in (e for r in accesses for e in r.subscripts):
        if not isinstance(e, Index) and not short.isdisjoint(index_names(e)):
            return False
    names: list[Expr] = [Index(i) for i in sorted(short)]
    rows = [r for r in accesses[1:] if r.subscripts and r.subscripts[-1] in names]
    if s.reduction is None:
        return bool(rows)
    sums: list[Expr] = [Index(i) for i in s.reduction_indices]
    if all(len(r.subscripts) > 1 and r.subscripts[-1] in sums and r.subscripts[-2] in sums for r in rows):
        return False  # the sums run along one longer row
    lasts = {e.name for r in rows if isinstance(e := r.subscripts[-1], Index)}
    if not rows or not lasts <= set(s.reduction_indices):
        return False
    sizes = [trip_count(extents[i].extent) * program.tensor(r.tensor).dtype.itemsize for r in rows for i in lasts]
    return len(rows) == 1 or max(sizes) < LINE // 2


def _accesses(s: Statement) -> list[Read]:
    """What a statement writes, as if it were read, and what it reads."""
    return [Read(s.target, s.subscripts), *all_reads(s)]


def _stays_inside(subscript: Expr, inside: list[str], own: StatementRanges, places: Interval) -> bool:
    """Whether a subscript is a number, and one of `places`, at all values of the indices `inside` of it."""
    for at in _values(inside, own):
        place = simplify(substitute(subscript, {i: int_const(v) for i, v in at.items()}))
        if not isinstance(place, Const) or place.value not in places.values:
            return False
    return True


def _take_apart(builder: ProgramBuilder, tensor: str, dimensions: set[int]) -> None:
    """A tensor for each place along `dimensions`."""
    like, own = builder.tensor(tensor), builder.intervals[tensor]
    for place in product(*(own[d].values for d in sorted(dimensions))):
        builder.temporary(_part_name(tensor, place), (i for d, i in enumerate(own) if d not in dimensions), like)


def _part_name(tensor: str, place: tuple[int | None, ...]) -> str:
    return f"{tensor}.at{'_'.join(map(str, place))}"


def _write_out(s: Statement, indices: set[str], plan: Plan, builder: ProgramBuilder, target: Machine) -> list[Statement]:
    """The statements in the place of `s`, one for each combination of values of those `indices` that stand on the left."""
    own = builder.ranges.statements[s.name]
    left = [i for i in s.left_indices if i in indices]
    summed = [i for i in s.reduction_indices if i in indices]
    kept = tuple(i for i in s.indices if i not in indices)
    is_whole = s.reduction is not None and all(i in indices for i in s.reduction_indices)
    made = []
    for at in _values(left, own):
        terms = [_place(s.value, {**at, **more}, plan) for more in _values(summed, own)]
        name = f"{s.name}.at{'_'.join(map(str, at.values()))}" if at else s.name
        value = terms[0] if s.reduction is None else _combine(s, terms, is_whole, builder.program, target)
        element = _element(s, at, plan)
        # A box: the values of the indices that are summed up make no difference.
        values = {i: own.indices[i].lower for i in summed} | {i: int_const(n) for i, n in at.items()}
        points = builder.points(s).move(kept, {}, values)
        reduction = None if is_whole else s.reduction
        made.append(builder.assign(name, element.tensor, element.subscripts, value, points, s, reduction))
    return made


def _redirect(s: Statement, plan: Plan) -> Statement:
    """A statement that stays, with single components of the tensors that are taken apart as tensors of their own."""
    if not any(access.tensor in plan.dimensions for access in _accesses(s)):
        return s
    element = _element(s, {}, plan)
    reduction = s.reduction and replace(s.reduction, init=_place(s.reduction.init, {}, plan))
    value = _place(s.value, {}, plan)
    return replace(s, target=element.tensor, subscripts=element.subscripts, value=value, reduction=reduction)


def _values(indices: list[str], own: StatementRanges) -> Iterator[dict[str, int]]:
    for place in product(*(own.indices[i].values for i in indices)):
        yield dict(zip(indices, place, strict=True))


def _place(expr: Expr, at: Values, plan: Plan) -> Expr:
    """`expr` at values of indices, reading the parts of the tensors that are taken apart."""

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Read):
            return None
        subscripts = tuple(map(simplify, node.subscripts))
        apart = plan.dimensions.get(node.tensor, set())
        if not apart:
            return Read(node.tensor, subscripts, node.span)
        name = _part_name(node.tensor, tuple(constant_of(subscripts[d]) for d in sorted(apart)))
        return Read(name, tuple(e for d, e in enumerate(subscripts) if d not in apart), node.span)

    return simplify_value(rewrite(substitute(expr, {i: int_const(v) for i, v in at.items()}), rule))


def _element(s: Statement, at: Values, plan: Plan) -> Read:
    """What a statement writes at values of indices."""
    element = _place(Read(s.target, s.subscripts), at, plan)
    assert isinstance(element, Read)
    return element


def _combine(s: Statement, terms: list[Expr], is_whole: bool, program: Program, target: Machine) -> Expr:
    """The terms combined; with the initial value where nothing else is left to combine.

    A product is added as sums of products are: rounded once, where hardware can."""
    assert s.reduction is not None
    op, dtype = s.reduction.op, program.tensor(s.target).dtype
    is_fused = op == "add" and dtype.is_float and target.has_fma
    starts_plain = not is_whole or (s.reduction.init == identity_of(op, dtype) and not (op == "add" and dtype.is_float))
    total, *others = terms if starts_plain else [s.reduction.init, *terms]
    for term in others:
        match term:
            case Call(op="mul", args=(a, b)) if is_fused:
                total = Call("fma", (a, b, total), s.span)
            case _:
                total = Call(op, (total, term), s.span)
    return total
