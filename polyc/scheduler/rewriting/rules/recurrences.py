"""Recurrences in blocks: sums over earlier results become sums over finished blocks, and a short rest within each block.

Steps (factorisations, triangular solves): ``S[i, j] += F[i, k] * G[k, j]`` over ``k < i, k < j``, and F, G made from S
element by element.  For blocks b of B steps, apart for j in b and i behind it, for i in b and j behind it, and for both in b:
``S.far[b, i, t] += F[i, k] * G[k, b*B + t]`` over ``k < b*B``, ``S.near[b, t, i] += …`` over the steps of b itself.

Intervals: ``M[i, j] max= T[i, k] + T[k + 1, j]`` over ``i <= k < j``, and T made from M and shorter intervals.  For blocks of B
beginnings, and ends d blocks later: ``M.far[d, b, s, t] max= …`` over k with terms of other tiles alone, ``M.near[d, b, s, t]
max= …`` over the others, ``T.apart[d, b, t, s] = …`` from the two and from T, ``T[…] = T.apart[d, b, t, s]``; the tiles with
both ends in one block first, without far terms.

The far sums need finished blocks only: they are contractions (the "left-looking" order of LAPACK's block algorithms).  That
nothing of a block needs a later one is shown on the integer sets of the program, whatever the recurrence computes.  What has
the vectors across is kept turned while it is made, so that the terms within a block run in vectors as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    all_hold,
    children,
    identity_of,
    index_names,
    int_const,
    mentions,
    reads,
    substitute,
    walk,
    with_children,
)
from polyc.ir.program import Program, Statement, Tensor, all_reads
from polyc.ir.simplify import simplify, simplify_value
from polyc.poly import isl
from polyc.poly.points import Points
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, change_groups, find_recurrences
from polyc.scheduler.rewriting.rules.final_values import sum_final_values
from polyc.scheduler.rewriting.rules.products import flatten_product
from polyc.scheduler.rewriting.rules.recurrence_blocks import Blocks, Part, find_steps, find_tiles


def block_recurrences(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Factorisations, triangular solves and recurrences over intervals by blocks.

    Every recurrence through sums over its earlier steps, or over where intervals are parted.  Steps that add to a matrix count
    as sums, if blocks come of it."""
    summed, summed_ranges, settled = sum_final_values(program, ranges)
    if settled:
        new, new_ranges, blocked = _block_sums(summed, summed_ranges)
        if blocked:
            return new, new_ranges, settled + blocked
    return _block_sums(program, ranges)


def _block_sums(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    def rule(members: list[Statement], program: Program, ranges: Ranges) -> tuple[Program, Ranges, str] | None:
        if not _has_sums(members, program, ranges):
            return None
        blocks = find_steps(members, program, ranges, False) or find_tiles(members, program, ranges)
        blocks = blocks or find_steps(members, program, ranges, True)
        done = None if blocks is None else _Writer(members, blocks, ProgramBuilder(program, ranges)).run()
        return None if blocks is None or done is None else (*done, blocks.description)

    return change_groups("block-recurrences", rule, find_recurrences(program), program, ranges)


def _has_sums(members: list[Statement], program: Program, ranges: Ranges) -> bool:
    """Whether there are reductions, which statements of the recurrence alone read, and all could be written in parts."""
    targets, sums = {s.target for s in members}, {s.target: s.reduction for s in members if s.reduction is not None}
    if not sums or not all(s.has_plain_left for s in members):
        return False
    if any(r.monoid is not None or not isinstance(r.init, Const) for r in sums.values()):
        return False
    if any(program.tensor(t).role != "temporary" or len(program.writers()[t]) > 1 for t in sums):
        return False
    if any(isinstance(n, Pad) and n.read.tensor in targets for s in members for n in walk(s.value)):
        return False
    if any(g.read.tensor in targets for s in members for g in ranges.statements[s.name].guards):
        return False
    return not any(r.tensor in sums for s in program.statements if s not in members for r in all_reads(s))


class _Refused(Exception):
    """The recurrence has a form that the parts cannot take over."""


@dataclass(frozen=True, eq=False, slots=True)
class _Piece:
    """What a statement of the recurrence computes in a part of its target."""

    s: Statement
    part: Part
    place: Mapping[str, Expr]
    """The values of the indices that are cut."""
    points: Points

    @property
    def tensor(self) -> str:
        """What holds this part alone."""
        return f"{self.s.target}.{self.part.name}"

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.part.name}"

    def move(self, expr: Expr) -> Expr:
        return simplify_value(substitute(expr, self.place))

    @property
    def subscripts(self) -> tuple[Expr, ...]:
        """Of the whole target."""
        return tuple(simplify(substitute(e, self.place)) for e in self.s.subscripts)


class _Writer:
    def __init__(self, members: list[Statement], blocks: Blocks, builder: ProgramBuilder) -> None:
        self.members, self.blocks, self.builder, self.program = members, blocks, builder, builder.program
        self.sums = {s.target: s.reduction for s in members if s.reduction is not None}
        self.others = [s for s in self.program.statements if s.target in blocks.dims and s not in members]
        self.kept: set[str] = set()
        """Tensors that keep a part turned: not where data says what others write."""
        self.terms: dict[str, list[tuple[str, str]]] = {}
        """By part of a sum, the kinds of its terms and the tensors in which they are gathered."""

    def run(self) -> tuple[Program, Ranges] | None:
        used = {i for s in self.members for i in s.indices}
        places = (e for t in self.blocks.dims for part in self.blocks.parts(t) for e in part.place)
        if not used.isdisjoint({f"{i}.in" for i in used} | index_names(*places)):
            return None
        pieces = [self._piece(s, part) for s in self.members for part in self.blocks.parts(s.target)]
        pieces = [p for p in pieces if not p.points.domain.is_empty() or p.s.target in self.sums]
        unknown = {s.target for s in self.others if self._find_written(s) is None}
        kept = [p for p in pieces if p.part.is_kept and p.s.target not in unknown | self.sums.keys()]
        self.kept = {p.tensor for p in kept}
        try:
            new = [n for p in pieces if p.s.target in self.sums for n in self._write_sum(p)]
            new += [n for p in pieces if p.s.target not in self.sums for n in self._write_assignment(p)]
        except _Refused:
            return None
        new += [n for p in kept for other in self.others if p.s.target == other.target for n in self._load(other, p)]
        return self.builder.replace(self.members, new)

    def _piece(self, s: Statement, part: Part) -> _Piece:
        blocks = zip(self.blocks.cut(s.target, s.element_names), part.blocks, strict=True)
        place = {i: self.blocks.point(block, Index(f"{i}.in")) for i, block in blocks if block is not None}
        piece = _Piece(s, part, place, self.builder.points(s))
        return replace(piece, points=self._points(piece, "kept" if part.is_kept and s.reduction is None else "near"))

    def _points(
        self,
        p: _Piece,
        kind: str,
        old: Points | None = None,
        inner: Mapping[str, Expr] | None = None,
        conditions: Sequence[Expr] = (),
    ) -> Points:
        """The points of a statement in a part, or `old` ones: over the subscripts that an element of this kind has there, and
        what is reduced; `inner`: the values of those of these indices that are counted within a block."""
        s, inner = p.s, inner or {}
        old = self.builder.points(s) if old is None else old
        left = [e.name for e in self.blocks.element(s.target, p.subscripts, p.part, kind) if isinstance(e, Index)]
        order = [*left, *(f"{i}.in" if i in inner else i for i in s.reduction_indices if i in old.indices)]
        within = Interval(int_const(0), int_const(self.blocks.size))
        new = {i: within for i in order if i not in old.indices}
        new |= self.blocks.intervals(p.part, self.blocks.cut(s.target, self.builder.intervals[s.target]))
        bounds = self.blocks.conditions(p.part, self.blocks.cut(s.target, p.subscripts))
        points = old.move(order, new, {**p.place, **inner}, bounds)
        points = reduce(lambda there, c: there.where(c) or there, conditions, points)
        return Points(points.indices, points.domain.coalesce())

    def _write_sum(self, p: _Piece) -> list[Statement]:
        """The terms of a sum in a part, apart by whether they need it."""
        s, like, reduction = p.s, self.program.tensor(p.s.target), p.s.reduction
        assert reduction is not None
        result, gathered = list[Statement](), list[tuple[str, str]]()
        for kind, inner, conditions in self.blocks.terms(s, p.part, p.place, p.points):
            here = replace(p, place={**p.place, **inner}, points=self._points(p, kind, None, inner, conditions))
            if here.points.domain.is_empty():
                continue
            name, target = f"{s.name}_{kind}_{p.part.name}", f"{s.target}.{kind}.{p.part.name}"
            value, guards = self._value(here)
            if kind == "far":
                value, scaled = self._scale_apart(value, name, here, like)
                result += scaled
            region = self._points(p, kind, self.builder.elements(s))
            self.builder.temporary(target, [here.points.indices[i] for i in region.indices], like)
            gathered.append((kind, target))
            element = tuple(map(Index, region.indices))
            result.append(self.builder.assign(name, target, element, value, here.points, s, reduction, guards, region))
            reduction = replace(reduction, init=identity_of(reduction.op, like.dtype))
        self.terms[p.tensor] = sorted(gathered, key=lambda term: term[0] != "far")
        return result

    def _scale_apart(self, value: Expr, name: str, p: _Piece, like: Tensor) -> tuple[Expr, Sequence[Statement]]:
        """Before: ``L[i, k] * D[k] * L[b*B + t, k]``.  After: ``L[i, k] * W[b, k, t]``, ``W[b, k, t] = L[b*B + t, k] * D[k]``:
        factors that move along the sum alone go to the smaller operand, once for each block."""
        *left, last = p.points.indices
        block = index_names(*p.part.place)
        is_negative = isinstance(value, Call) and value.op == "neg"
        factors, divisors = flatten_product(value.args[0] if isinstance(value, Call) and is_negative else value)
        main = [f for f in factors if index_names(f) & set(left) - block]
        scales = [f for f in factors if f not in main]
        if len(main) != 2 or not (scales or divisors or is_negative) or not like.dtype.is_float:
            return value, []
        if not all(mentions(f, last) for f in factors) or any(index_names(f) - {last} - block for f in divisors):
            return value, []
        if len(block) > 1:
            return value, []  # for each tile they would be more than the operand
        known = {i: estimate_extent(x.extent, self.builder.ranges.typical) or 1 for i, x in p.points.indices.items()}
        small, other = sorted(reversed(main), key=lambda f: prod(known[i] for i in index_names(f) & set(left) - block))
        over = p.points.project((*block, last, *(i for i in left if i in index_names(small) - block)))
        small = reduce(lambda a, f: Call("truediv", (a, f)), divisors, reduce(lambda a, f: a * f, scales, small))
        small = -small if is_negative else small
        read, scaled = self.builder.materialise(small, over, (f"{name}.scaled", f"{name}_scaled"), like, p.s)
        return other * read, scaled

    def _write_assignment(self, p: _Piece) -> list[Statement]:
        """The results of a part, by way of a tensor that keeps them turned where there is one."""
        s, (value, guards), element = p.s, self._value(p), tuple(map(Index, p.points.indices))
        if p.tensor not in self.kept:
            return [self.builder.assign(p.name, s.target, p.subscripts, value, p.points, s, None, guards)]
        self.builder.temporary(p.tensor, p.points.indices.values(), self.program.tensor(s.target))
        return [
            self.builder.assign(p.name, p.tensor, element, value, p.points, s, None, guards),
            self.builder.assign(f"{p.name}_copy", s.target, p.subscripts, Read(p.tensor, element), p.points, s),
        ]

    def _find_written(self, s: Statement) -> isl.Set | None:
        """The elements that an assignment writes; None where data decides."""
        try:
            return None if s.reduction is not None else self.builder.points(s).access(s.target, s.subscripts).range()
        except isl.NotAffine:
            return None

    def _load(self, other: Statement, p: _Piece) -> list[Statement]:
        """What a statement beside the recurrence writes of its results, in a tensor that keeps them turned as well."""
        elements, written = self.builder.elements(p.s), self._find_written(other)
        points = self._points(p, "kept", Points(elements.indices, written)) if written is not None else elements
        if written is None or points.domain.is_empty():
            return []
        name, element = f"{other.name}_{p.part.name}", tuple(map(Index, points.indices))
        return [self.builder.assign(name, p.tensor, element, Read(other.target, p.subscripts), points, other)]

    def _value(self, p: _Piece) -> tuple[Expr, tuple[GuardedSubscript, ...]]:
        """The value of a piece, and the guards of reads that are left in it."""
        value = map_reads_at(p.move(p.s.value), p.points, lambda read, points: self._read(read, p, points))
        guards = (g.map(p.move) for g in self.builder.own[p.s.name].guards)
        return value, tuple(g for g in guards if g.read in reads(value))

    def _read(self, read: Read, p: _Piece, points: Points) -> Expr:
        """What a piece reads at these points: sums from their parts, and results from where they are kept turned."""
        reduction = self.sums.get(read.tensor)
        for part in self.blocks.near(read, p.part, p.s.reduction_indices) if read.tensor in self.blocks.dims else ():
            tensor = f"{read.tensor}.{part.name}"
            if tensor not in (self.kept if reduction is None else self.terms):
                continue
            terms = [("kept", tensor)] if reduction is None else self.terms[tensor]
            elements: list[Expr] = [
                Read(t, self.blocks.element(read.tensor, read.subscripts, part, kind), read.span) for kind, t in terms
            ]
            tests = self.blocks.conditions(part, self.blocks.cut(read.tensor, read.subscripts))
            tests = [t for t in tests if not points.satisfy(t)]
            if not tests and reduction is not None:
                op = reduction.op
                return reduce(lambda a, b: Call(op, (a, b)), elements) if elements else reduction.init
            if not tests:
                return elements[0]
            inside = points.where(all_hold(tests))
            if reduction is None and part == p.part and (inside is None or not inside.domain.is_empty()):
                return read if p.s.reduction is not None else Select(all_hold(tests), elements[0], read)
        if reduction is not None:
            raise _Refused
        return read


def map_reads_at(expr: Expr, points: Points, change: Callable[[Read, Points], Expr]) -> Expr:
    """`expr`, evaluated at these points, with something else in the place of each read; without the arms of selections that
    are never taken there."""
    if isinstance(expr, Select):
        then, other = points.where(expr.condition) or points, points.where(expr.condition, False) or points
        if other.domain.is_empty():
            return map_reads_at(expr.then, points, change)
        if then.domain.is_empty():
            return map_reads_at(expr.other, points, change)
        parts = ((expr.condition, points), (expr.then, then), (expr.other, other))
        condition, *arms = (map_reads_at(e, there, change) for e, there in parts)
        return replace(expr, condition=condition, then=arms[0], other=arms[1])
    expr = with_children(expr, tuple(map_reads_at(c, points, change) for c in children(expr)))
    return change(expr, points) if isinstance(expr, Read) else expr
