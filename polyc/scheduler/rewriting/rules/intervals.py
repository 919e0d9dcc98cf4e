"""Recurrences over intervals in tiles: what finished tiles add becomes a contraction, and each tile a short recurrence.

before  ``M[i, j] max= T[i, k] + T[k + 1, j]`` over ``i <= k < j``, and T made from M and shorter intervals
after   for blocks b of B beginnings, and ends d blocks later:
        ``M.far[d, b, s, t] max= T[b*B + s, k] + T[k + 1, (b + d)*B + t]`` over k with terms of other tiles alone,
        ``M.near[d, b, s, t] max= …`` over the others, ``T.apart[d, b, t, s] = …`` from the two and from T,
        ``T[b*B + s, (b + d)*B + t] = T.apart[d, b, t, s]``; the tiles with both ends in one block first, without far terms.

An interval needs only what lies inside of it, so tiles as many blocks apart need nothing of each other.  That is shown on the
integer sets of the program, whatever the recurrence computes.  While a tile is made it is kept turned, as the terms within it
need it both by rows and by columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Expr,
    Index,
    Read,
    Select,
    children,
    ge,
    gt,
    identity_of,
    index_names,
    int_const,
    lt,
    reads,
    substitute,
    with_children,
)
from polyc.ir.graphs import find_components
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.read_sites import ReadSite
from polyc.ir.simplify import simplify, simplify_value
from polyc.poly import isl
from polyc.poly.domains import box_domain, map_domain, touched_elements
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.scheduler.rewriting.rules.blocks import Edit, start_edit
from polyc.scheduler.rewriting.rules.interval_tiles import Region, Tiles, affine_of, find_tiles
from polyc.scheduler.rewriting.rules.recurrence_blocks import all_site_reads, condition_set
from polyc.scheduler.rewriting.rules.recurrences import prune_selections


def block_intervals(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Every recurrence over intervals with a reduction over where they are parted, in tiles of intervals."""
    remarks: list[Remark] = []
    writers = program.writers()
    by_name = {s.name: s for s in program.statements}
    edges = [(w.name, s.name) for s in program.statements for r in all_site_reads(s) for w in writers.get(r.tensor, ())]
    for names in find_components([s.name for s in program.statements], edges):
        members = [by_name[n] for n in names]
        tiles = find_tiles(members, program, ranges) if len(names) > 1 else None
        if tiles is None or not _can_rewrite(members, tiles, program, ranges):
            continue
        program, ranges = _Rewriter(members, tiles, program, ranges).run()
        sums = next(s for s in members if s.reduction is not None)
        message = f"tiles of {tiles.size} by {tiles.size} intervals: what finished tiles add is summed apart"
        remarks.append(Remark("passed", "block-intervals", message, sums.name, sums.span))
    return program, ranges, remarks


def _can_rewrite(members: list[Statement], tiles: Tiles, program: Program, ranges: Ranges) -> bool:
    """Whether the reductions are read by assignments of the recurrence alone, each at its own interval, and what others write
    of its results are plain elements."""
    inside = {s.name for s in members}
    sums = {s.target for s in members if s.reduction is not None}
    if any(g.read.tensor in tiles.ends for s in members for g in ranges.statements[s.name].guards):
        return False
    if any(program.tensor(t).role != "temporary" or len(program.writers()[t]) > 1 for t in sums):
        return False
    for s in program.statements:
        found = [r for r in all_site_reads(s) if r.tensor in sums]
        if found and (s.name not in inside or s.reduction is not None):
            return False
        if any(
            [r.subscripts[d] for d in tiles.ends[r.tensor]] != [s.subscripts[d] for d in tiles.ends[s.target]] for r in found
        ):
            return False
    others = [s for s in program.statements if s.target in tiles.ends and s.name not in inside]
    return all(s.reduction is None and _written(s, ranges) is not None for s in others)


def _written(s: Statement, ranges: Ranges) -> isl.Set | None:
    """The elements that an assignment writes; None where data decides."""
    domain = ranges.statements[s.name].domain
    space = isl.set_space(ranges.parameters, s.target, [f"d{d}" for d in range(len(s.subscripts))])
    site = ReadSite(Read(s.target, s.subscripts), (), "value", False)
    touched, anywhere = touched_elements(site, domain, s.indices, space)
    return None if anywhere else touched


@dataclass(slots=True)
class _Rewriter:
    members: list[Statement]
    tiles: Tiles
    program: Program
    ranges: Ranges
    edit: Edit = field(init=False)
    sums: dict[str, Statement] = field(init=False)
    parts: dict[tuple[str, Region], list[str]] = field(init=False)
    """Of a reduction's target and a region, the tensors in which its terms are gathered."""

    def run(self) -> tuple[Program, Ranges]:
        self.edit = start_edit(self.program, self.ranges)
        self.sums = {s.target: s for s in self.members if s.reduction is not None}
        self.parts = {}
        regions: tuple[Region, ...] = ("before", "own", "apart")
        ordered = sorted(self.members, key=lambda s: s.reduction is None)
        new = [n for s in ordered for region in regions for n in self._cut(s, region)]
        inside = {s.name for s in self.members}
        new += [n for s in self.program.statements if s.name not in inside for n in self._load(s)]
        for name in inside:
            del self.edit.own[name]
        for s in self.program.statements:
            if s.name == self.members[0].name:
                self.edit.statements += new
            if s.name not in inside:
                self.edit.statements.append(s)
        self.edit.tensors = [t for t in self.edit.tensors if t.name not in self.sums]
        return self.edit.finish()

    def _cut(self, s: Statement, region: Region) -> list[Statement]:
        return self._cut_assignment(s, region) if s.reduction is None else self._cut_reduction(s, s.reduction, region)

    def _names(self, s: Statement) -> tuple[str, str]:
        """The left indices in which the intervals of a statement begin and end."""
        begin, end = (s.subscripts[d] for d in self.tiles.ends[s.target])
        assert isinstance(begin, Index)
        assert isinstance(end, Index)
        return begin.name, end.name

    def _place(self, s: Statement, region: Region) -> tuple[dict[str, Expr], list[Expr]]:
        """The values of the two indices in a region, and what holds there."""
        i, j = self._names(s)
        if region == "before":
            return {}, [lt(self.tiles.number(Index(j)), self.tiles.number(Index(i)))]
        place: dict[str, Expr] = {}
        bounds: list[Expr] = []
        for name, block in zip((i, j), self.tiles.tile(region), strict=True):
            inner = Index(f"{name}.in")
            place[name] = simplify(self.tiles.first(block) + inner)
            bounds += [ge(inner, 0), lt(inner, self.tiles.size)]
        if region == "apart":
            bounds.append(gt(Index(self.tiles.apart), 0))
        return place, bounds

    def _left(self, s: Statement, region: Region, is_turned: bool = False) -> tuple[str, ...]:
        """The left indices of a part of `s` in the order of storage; `is_turned`: the two of a tile the other way round."""
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        if region == "before":
            return tuple(names)
        dims = sorted(self.tiles.ends[s.target], reverse=is_turned)
        front = [n for d, n in enumerate(names) if d < min(dims)]
        back = [n for d, n in enumerate(names) if d > min(dims) and d not in dims]
        return (*front, *self.tiles.indices(region), *(f"{names[d]}.in" for d in dims), *back)

    def _intervals(self, s: Statement, indices: Sequence[str]) -> dict[str, Interval]:
        own = dict(self.ranges.statements[s.name].indices)
        own |= zip([e.name for e in s.subscripts if isinstance(e, Index)], self.ranges.tensors[s.target], strict=True)
        table = dict(own)
        blocks: list[tuple[Expr, Expr]] = []
        for name in self._names(s):
            after = simplify(own[name].lower + own[name].extent)
            last = self.tiles.number(simplify(after - 1))
            blocks.append((self.tiles.number(own[name].lower), last))
            table[f"{name}.in"] = Interval(int_const(0), int_const(self.tiles.size))
        (first, last), (_, end) = blocks
        furthest = simplify(end - first)
        latest = end + furthest if self.tiles.apart in indices else last
        table[self.tiles.place] = Interval(first, simplify(latest - first + 1))
        table[self.tiles.apart] = Interval(int_const(1), furthest)
        return {i: table[i] for i in indices}

    def _cut_reduction(self, s: Statement, reduction: Reduction, region: Region) -> list[Statement]:
        """The terms of a region, apart by which of their reads are of the tile itself."""
        place, bounds = self._place(s, region)
        left = self._left(s, region)
        indices = (*left, *s.reduction_indices)
        values = [place.get(i, Index(i)) for i in s.indices]
        whole = map_domain(self.ranges.statements[s.name].domain, s.name, indices, values, bounds)
        found: list[Statement] = []
        self.parts[s.target, region] = []
        for choice in self._choices(s, region, place, whole, indices):
            kind = "far" if choice and not any(own for _, own in choice) else "near"
            if kind == "near" and any(own for _, own in choice):
                kind += "".join(str(n) for n, (_, own) in enumerate(choice) if own)
            name, target = f"{s.name}_{kind}_{region}", f"{s.target}.{kind}.{region}"
            affine = affine_of(whole, indices)
            domain = whole
            for condition, own in choice:
                domain = domain.intersect(affine.condition(condition if own else Call("not", (condition,))))
            domain = domain.coalesce().set_tuple_name(name)
            if domain.is_empty():
                continue
            like = self.program.tensor(s.target)
            init = identity_of(reduction.op, like.dtype) if found else reduction.init
            intervals = self._intervals(s, indices)
            value = self._redirect(simplify_value(substitute(s.value, place)), s, region, domain, indices)
            self.edit.own[name] = self._ranges(s, intervals, domain, value, place, self._initial(s, name, left, place, bounds))
            self.edit.temporary(target, [intervals[i] for i in left], like)
            self.parts[s.target, region].append(target)
            element = tuple(map(Index, left))
            found.append(Statement(name, target, element, indices, value, Reduction(reduction.op, init), (), s.span))
        return found

    def _choices(
        self, s: Statement, region: Region, place: Mapping[str, Expr], domain: isl.Set, indices: Sequence[str]
    ) -> list[tuple[tuple[Expr, bool], ...]]:
        """Conditions that part the terms: each read that moves through tiles in one dimension is of the own tile, or is not."""
        if region != "apart":
            return [()]
        affine = affine_of(domain, indices)
        conditions: list[Expr] = []
        for read in dict.fromkeys(reads(s.value)):
            if read.tensor in self.tiles.ends:
                tests = self.tiles.is_inside(_substitute_read(read, place), self.tiles.tile(region))
                open_tests = [t for t in tests if not domain.is_subset(affine.condition(t))]
                if len(open_tests) == 1:
                    conditions.append(open_tests[0])
        return [tuple(zip(conditions, c, strict=True)) for c in product((False, True), repeat=len(conditions))]

    def _initial(
        self, s: Statement, name: str, left: Sequence[str], place: Mapping[str, Expr], bounds: Sequence[Expr]
    ) -> isl.Set:
        """Elements that are given an initial value: of the whole reduction those in this region."""
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        whole = self.ranges.statements[s.name].region
        if whole is None:
            box = dict(zip(names, self.ranges.tensors[s.target], strict=True))
            whole = box_domain(f"init_{s.name}", names, box, self.ranges.parameters)
        return map_domain(whole, f"init_{name}", left, [place.get(i, Index(i)) for i in names], bounds)

    def _ranges(
        self,
        s: Statement,
        intervals: dict[str, Interval],
        domain: isl.Set,
        value: Expr,
        place: Mapping[str, Expr],
        region: isl.Set | None = None,
    ) -> StatementRanges:
        present = set(reads(value))
        moved = [
            GuardedSubscript(
                _substitute_read(g.read, place),
                g.dimension,
                None if g.condition is None else simplify(substitute(g.condition, place)),
                g.shown,
            )
            for g in self.ranges.statements[s.name].guards
        ]
        return StatementRanges(intervals, domain, tuple(g for g in moved if g.read in present), region)

    def _cut_assignment(self, s: Statement, region: Region) -> list[Statement]:
        place, bounds = self._place(s, region)
        left = self._left(s, region, is_turned=True)
        name = f"{s.name}_{region}"
        values = [place.get(i, Index(i)) for i in s.indices]
        domain = map_domain(self.ranges.statements[s.name].domain, name, left, values, bounds).coalesce()
        if domain.is_empty():
            return []
        value = prune_selections(simplify_value(substitute(s.value, place)), domain, affine_of(domain, left))
        value = self._redirect(value, s, region, domain, left)
        whole = tuple(simplify(substitute(e, place)) for e in s.subscripts)
        intervals = self._intervals(s, left)
        self.edit.own[name] = self._ranges(s, intervals, domain, value, place)
        if region == "before":
            return [Statement(name, s.target, whole, left, value, None, (), s.span)]
        target, copy = self._tile_tensor(s, region), f"{name}_copy"
        self.edit.own[copy] = StatementRanges(intervals, domain.set_tuple_name(copy))
        element = tuple(map(Index, left))
        return [
            Statement(name, target, element, left, value, None, (), s.span),
            Statement(copy, s.target, whole, left, Read(target, element), None, (), s.span),
        ]

    def _tile_tensor(self, s: Statement, region: Region) -> str:
        """The tensor that keeps tiles of a result turned, which is added where it is not there yet."""
        name = f"{s.target}.{region}"
        if name not in self.edit.intervals:
            intervals = self._intervals(s, self._left(s, region, is_turned=True))
            self.edit.temporary(name, intervals.values(), self.program.tensor(s.target))
        return name

    def _load(self, other: Statement) -> list[Statement]:
        """What a statement beside the recurrence writes of its results, in the turned tiles as well."""
        like = next((s for s in self.members if s.target == other.target), None)
        elements = None if like is None else _written(other, self.ranges)
        found: list[Statement] = []
        if like is None or elements is None:
            return found
        regions: tuple[Region, ...] = ("own", "apart")
        for region in regions:
            place, bounds = self._place(like, region)
            left = self._left(like, region, is_turned=True)
            name = f"{other.name}_{region}"
            values = [simplify(substitute(e, place)) for e in like.subscripts]
            domain = map_domain(elements, name, left, values, bounds).coalesce()
            if not domain.is_empty():
                self.edit.own[name] = StatementRanges(self._intervals(like, left), domain)
                target, whole = self._tile_tensor(like, region), Read(other.target, tuple(values))
                found.append(Statement(name, target, tuple(map(Index, left)), left, whole, None, (), other.span))
        return found

    def _redirect(self, expr: Expr, s: Statement, region: Region, where: isl.Set, indices: Sequence[str]) -> Expr:
        """`expr` of a part of `s`, evaluated at the points `where`, with reads of the tile itself and of reductions' parts."""
        if isinstance(expr, Select):
            holds = condition_set(affine_of(where, indices), expr.condition)
            then, other = (where, where) if holds is None else (where.intersect(holds), where.subtract(holds))
            return replace(
                expr,
                condition=self._redirect(expr.condition, s, region, where, indices),
                then=self._redirect(expr.then, s, region, then, indices),
                other=self._redirect(expr.other, s, region, other, indices),
            )
        expr = with_children(expr, tuple(self._redirect(c, s, region, where, indices) for c in children(expr)))
        if not isinstance(expr, Read) or expr.tensor not in self.tiles.ends:
            return expr
        if expr.tensor in self.sums:
            return self._join_parts(expr, s, region)
        return self._read_tile(expr, s, region, where, indices) if region != "before" else expr

    def _join_parts(self, read: Read, s: Statement, region: Region) -> Expr:
        """The result of a reduction from its parts: the statements of a recurrence read it at their own interval."""
        own = self.sums[read.tensor]
        reduction = own.reduction
        assert reduction is not None
        parts = self.parts[read.tensor, region]
        if not parts:
            return reduction.init
        names = [e.name for e in own.subscripts if isinstance(e, Index)]
        table: dict[str, Expr] = dict(zip(names, read.subscripts, strict=True))
        for mine, other in zip(self._names(s), self._names(own), strict=True):
            table[f"{other}.in"] = Index(f"{mine}.in")
        element = tuple(table.get(i, Index(i)) for i in self._left(own, region))
        terms: list[Expr] = [Read(t, element, read.span) for t in parts]
        return reduce(lambda a, b: Call(reduction.op, (a, b)), terms)

    def _read_tile(self, read: Read, s: Statement, region: Region, where: isl.Set, indices: Sequence[str]) -> Expr:
        """A read from where its tile is kept turned: the own one, or one with both ends in a block.

        What a reduction takes along the rows of a tile that is finished stays: the whole has it in that order."""
        ends = self.tiles.ends[read.tensor]
        affine = affine_of(where, indices)
        rows, columns = (index_names(read.subscripts[d]) & set(s.reduction_indices) for d in (max(ends), min(ends)))
        is_along_rows = bool(rows) and not columns
        tile = self.tiles.tile(region)
        tests = [t for t in self.tiles.is_inside(read, tile) if not where.is_subset(affine.condition(t))]
        if not reduce(lambda a, b: a.intersect(affine.condition(b)), tests, where).is_empty():
            if (region == "own" and is_along_rows) or (tests and s.reduction is not None):
                return read
            turned = self._turned(read, region, tile)
            return Select(reduce(lambda a, b: Call("and", (a, b)), tests), turned, read) if tests else turned
        for block in () if is_along_rows else tile:
            if all(
                where.is_subset(affine.condition(t)) for d in ends for t in self.tiles.is_in_block(read.subscripts[d], block)
            ):
                return self._turned(read, "own", (block, block))
        return read

    def _turned(self, read: Read, region: Region, tile: tuple[Expr, Expr]) -> Read:
        """The same element in the tensor that keeps the tiles of a region turned."""
        ends = self.tiles.ends[read.tensor]
        inner = {d: simplify(read.subscripts[d] - self.tiles.first(b)) for d, b in zip(ends, tile, strict=True)}
        front = [e for d, e in enumerate(read.subscripts) if d < min(ends)]
        back = [e for d, e in enumerate(read.subscripts) if d > min(ends) and d not in ends]
        number = tuple(map(Index, self.tiles.indices(region))) if region == "apart" else (tile[0],)
        element = (*front, *map(simplify, number), *(inner[d] for d in sorted(ends, reverse=True)), *back)
        return Read(f"{read.tensor}.{region}", element, read.span)


def _substitute_read(read: Read, place: Mapping[str, Expr]) -> Read:
    return Read(read.tensor, tuple(simplify(substitute(e, place)) for e in read.subscripts), read.span)
