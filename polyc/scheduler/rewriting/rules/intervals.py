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
from functools import reduce
from itertools import product

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Expr,
    Index,
    Read,
    Select,
    all_hold,
    ge,
    gt,
    identity_of,
    index_names,
    int_const,
    lt,
    reads,
    substitute,
)
from polyc.ir.program import Program, Reduction, Statement, all_reads
from polyc.ir.simplify import simplify, simplify_value
from polyc.poly import isl
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, change_groups, find_recurrences
from polyc.scheduler.rewriting.rules.interval_tiles import Region, Tiles, find_tiles
from polyc.scheduler.rewriting.rules.recurrences import join_terms, map_reads_at


def block_intervals(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Every recurrence over intervals with a reduction over where they are parted, in tiles of intervals."""

    def rule(members: list[Statement], program: Program, ranges: Ranges) -> tuple[Program, Ranges, str] | None:
        tiles = find_tiles(members, program, ranges) if len(members) > 1 else None
        if tiles is None or not _can_rewrite(members, tiles, program, ranges):
            return None
        message = f"tiles of {tiles.size} by {tiles.size} intervals: what finished tiles add is summed apart"
        return *_Rewriter(members, tiles, ProgramBuilder(program, ranges)).run(), message

    return change_groups("block-intervals", rule, find_recurrences(program), program, ranges)


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
        found = [r for r in all_reads(s) if r.tensor in sums]
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
    try:
        return points_of(s, ranges.statements[s.name]).access(s.target, s.subscripts).range()
    except isl.NotAffine:
        return None


class _Rewriter:
    def __init__(self, members: list[Statement], tiles: Tiles, builder: ProgramBuilder) -> None:
        self.members, self.tiles, self.builder = members, tiles, builder
        self.sums = {s.target: s for s in members if s.reduction is not None}
        self.parts: dict[tuple[str, Region], list[str]] = {}
        """Of a reduction's target and a region, the tensors in which its terms are gathered."""

    def run(self) -> tuple[Program, Ranges]:
        regions: tuple[Region, ...] = ("before", "own", "apart")
        ordered = sorted(self.members, key=lambda s: s.reduction is None)
        new = [n for s in ordered for region in regions for n in self._write(s, region)]
        new += [n for s in self.builder.program.statements if s not in self.members for n in self._load(s)]
        return self.builder.replace(self.members, new)

    def _write(self, s: Statement, region: Region) -> list[Statement]:
        return self._write_assignment(s, region) if s.reduction is None else self._write_reduction(s, s.reduction, region)

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
        names = s.element_names
        if region == "before":
            return names
        dims = sorted(self.tiles.ends[s.target], reverse=is_turned)
        front = [n for d, n in enumerate(names) if d < min(dims)]
        back = [n for d, n in enumerate(names) if d > min(dims) and d not in dims]
        return (*front, *self.tiles.indices(region), *(f"{names[d]}.in" for d in dims), *back)

    def _move(self, s: Statement, points: Points, order: Sequence[str], region: Region) -> Points:
        """Points of `s`, or elements of its target, in a region."""
        new = dict(zip(s.element_names, self.builder.intervals[s.target], strict=True))
        blocks: list[tuple[Expr, Expr]] = []
        for name in self._names(s):
            last = simplify(new[name].lower + new[name].extent - 1)
            blocks.append((self.tiles.number(new[name].lower), self.tiles.number(last)))
            new[f"{name}.in"] = Interval(int_const(0), int_const(self.tiles.size))
        (first, last), (_, end) = blocks
        furthest = simplify(end - first)
        latest = end + furthest if region == "apart" else last
        new[self.tiles.place] = Interval(first, simplify(latest - first + 1))
        new[self.tiles.apart] = Interval(int_const(1), furthest)
        return points.move(order, new, *self._place(s, region))

    def _write_reduction(self, s: Statement, reduction: Reduction, region: Region) -> list[Statement]:
        """The terms of a region, apart by which of their reads are of the tile itself."""
        place, like, left = self._place(s, region)[0], self.builder.program.tensor(s.target), self._left(s, region)
        whole = self._move(s, self.builder.points(s), (*left, *s.reduction_indices), region)
        initial = self._move(s, self.builder.elements(s), left, region)
        found: list[Statement] = []
        self.parts[s.target, region] = []
        for choice in self._choices(s, region, place, whole):
            own = [n for n, (_, is_own) in enumerate(choice) if is_own]
            kind = "near" + "".join(map(str, own)) if own or not choice else "far"
            conditions = (c if is_own else Call("not", (c,)) for c, is_own in choice)
            there = reduce(lambda points, c: points.where(c) or points, conditions, whole)
            points = Points(whole.indices, there.domain.coalesce())
            if points.domain.is_empty():
                continue
            value = self._redirect(simplify_value(substitute(s.value, place)), s, region, points)
            target = self.builder.temporary(f"{s.target}.{kind}.{region}", [points.indices[i] for i in left], like)
            self.parts[s.target, region].append(target)
            name, element = f"{s.name}_{kind}_{region}", tuple(map(Index, left))
            guards = self._guards(s, value, place)
            found.append(self.builder.assign(name, target, element, value, points, s, reduction, guards, initial))
            reduction = replace(reduction, init=identity_of(reduction.op, like.dtype))
        return found

    def _choices(
        self, s: Statement, region: Region, place: Mapping[str, Expr], points: Points
    ) -> list[tuple[tuple[Expr, bool], ...]]:
        """Conditions that part the terms: each read that moves through tiles in one dimension is of the own tile, or is not."""
        if region != "apart":
            return [()]
        conditions: list[Expr] = []
        for read in dict.fromkeys(reads(s.value)):
            if read.tensor in self.tiles.ends:
                moved = replace(read, subscripts=tuple(simplify(substitute(e, place)) for e in read.subscripts))
                tests = self.tiles.is_inside(moved, self.tiles.tile(region))
                open_tests = [t for t in tests if not points.satisfy(t)]
                if len(open_tests) == 1:
                    conditions.append(open_tests[0])
        return [tuple(zip(conditions, c, strict=True)) for c in product((False, True), repeat=len(conditions))]

    def _guards(self, s: Statement, value: Expr, place: Mapping[str, Expr]) -> tuple[GuardedSubscript, ...]:
        """Those of the reads that are left in `value`."""
        moved = (g.map(lambda e: simplify_value(substitute(e, place))) for g in self.builder.own[s.name].guards)
        return tuple(g for g in moved if g.read in reads(value))

    def _write_assignment(self, s: Statement, region: Region) -> list[Statement]:
        place, _ = self._place(s, region)
        points = self._move(s, self.builder.points(s), self._left(s, region, is_turned=True), region)
        points = Points(points.indices, points.domain.coalesce())
        if points.domain.is_empty():
            return []
        value = self._redirect(simplify_value(substitute(s.value, place)), s, region, points)
        name, whole = f"{s.name}_{region}", tuple(simplify(substitute(e, place)) for e in s.subscripts)
        made = [self.builder.assign(name, s.target, whole, value, points, s)]
        if region != "before":
            made = self.builder.assign_twice(name, f"{s.target}.{region}", whole, value, points, s)
        self.builder.set_points(name, points, self._guards(s, value, place))
        return made

    def _load(self, other: Statement) -> list[Statement]:
        """What a statement beside the recurrence writes of its results, in the turned tiles as well."""
        like = next((s for s in self.members if s.target == other.target), None)
        elements = None if like is None else _written(other, self.builder.ranges)
        found: list[Statement] = []
        if like is None or elements is None:
            return found
        written = Points(self.builder.elements(like).indices, elements)
        regions: tuple[Region, ...] = ("own", "apart")
        for region in regions:
            points = self._move(like, written, self._left(like, region, is_turned=True), region)
            if not points.domain.is_empty():
                place, _ = self._place(like, region)
                value = Read(other.target, tuple(simplify(substitute(e, place)) for e in like.subscripts))
                tensor = self.builder.program.tensor(other.target)
                target = self.builder.temporary(f"{other.target}.{region}", points.indices.values(), tensor)
                points = Points(points.indices, points.domain.coalesce())
                element = tuple(map(Index, points.indices))
                found.append(self.builder.assign(f"{other.name}_{region}", target, element, value, points, other))
        return found

    def _redirect(self, expr: Expr, s: Statement, region: Region, points: Points) -> Expr:
        """`expr` of a part of `s`, evaluated at these points, with reads of the tile itself and of reductions' parts."""

        def change(read: Read, there: Points) -> Expr:
            if read.tensor in self.sums:
                return self._join_parts(read, s, region)
            return read if read.tensor not in self.tiles.ends or region == "before" else self._read_tile(read, s, region, there)

        return map_reads_at(expr, points, change)

    def _join_parts(self, read: Read, s: Statement, region: Region) -> Expr:
        """The result of a reduction from its parts: the statements of a recurrence read it at their own interval."""
        own = self.sums[read.tensor]
        assert own.reduction is not None
        table: dict[str, Expr] = dict(zip(own.element_names, read.subscripts, strict=True))
        for mine, other in zip(self._names(s), self._names(own), strict=True):
            table[f"{other}.in"] = Index(f"{mine}.in")
        element = tuple(table.get(i, Index(i)) for i in self._left(own, region))
        return join_terms(own.reduction, [Read(t, element, read.span) for t in self.parts[read.tensor, region]])

    def _read_tile(self, read: Read, s: Statement, region: Region, points: Points) -> Expr:
        """A read from where its tile is kept turned: the own one, or one with both ends in a block.

        What a reduction takes along the rows of a tile that is finished stays: the whole has it in that order."""
        ends = self.tiles.ends[read.tensor]
        rows, columns = (index_names(read.subscripts[d]) & set(s.reduction_indices) for d in (max(ends), min(ends)))
        is_along_rows = bool(rows) and not columns
        tile = self.tiles.tile(region)
        tests = [t for t in self.tiles.is_inside(read, tile) if not points.satisfy(t)]
        own = points.where(all_hold(tests)) if tests else points
        if own is None or not own.domain.is_empty():
            if (region == "own" and is_along_rows) or (tests and s.reduction is not None):
                return read
            turned = self._turned(read, region, tile)
            return Select(all_hold(tests), turned, read) if tests else turned
        for block in () if is_along_rows else tile:
            if all(points.satisfy(t) for d in ends for t in self.tiles.is_in_block(read.subscripts[d], block)):
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
