"""Factorisations and triangular solves in blocks: sums over earlier results become sums over earlier blocks and a short rest.

before  ``S[i, j] += F[i, k] * G[k, j]`` over ``k < i, k < j``, and F, G made from S element by element
after   for blocks b of B steps, apart for j in b and i behind it, for i in b and j behind it, and for both in b:
        ``S.far[b, i, t] += F[i, k] * G[k, b*B + t]`` over ``k < b*B``, ``S.near[b, t, i] += …`` over the steps of b itself.

The far sums need earlier blocks only: they are contractions (the "left-looking" order of LAPACK's block algorithms).  That
nothing of a block needs a later one is shown on the integer sets of the program, whatever the recurrence computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Expr,
    Index,
    Read,
    Select,
    children,
    identity_of,
    index_names,
    int_const,
    lt,
    substitute,
    with_children,
)
from polyc.ir.graphs import find_components
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.poly import isl
from polyc.poly.domains import box_domain, map_domain, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.blocks import Edit, start_edit
from polyc.scheduler.rewriting.rules.final_values import sum_final_values
from polyc.scheduler.rewriting.rules.recurrence_blocks import Cut, all_site_reads, condition_set, find_cut


def block_recurrences(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Every recurrence through sums over its earlier steps, with two or more dimensions, in blocks of steps.

    Steps that add to a matrix count as sums, if blocks come of it."""
    summed, summed_ranges, settled = sum_final_values(program, ranges)
    if settled:
        new, new_ranges, blocked = _block_sums(summed, summed_ranges)
        if blocked:
            return new, new_ranges, settled + blocked
    return _block_sums(program, ranges)


def _block_sums(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    remarks: list[Remark] = []
    writers = program.writers()
    by_name = {s.name: s for s in program.statements}
    edges = [(w.name, s.name) for s in program.statements for r in all_site_reads(s) for w in writers.get(r.tensor, ())]
    for names in find_components([s.name for s in program.statements], edges):
        if (names[0], names[0]) not in edges and len(names) == 1:
            continue
        members = [by_name[n] for n in names]
        cut = find_cut(members, program, ranges)
        if cut is None:
            continue
        done = _Rewriter(members, cut, program, ranges).run()
        if done is None:
            continue
        program, ranges = done
        sums = next(s for s in members if s.reduction is not None)
        message = f"blocks of {cut.size} steps: what earlier blocks add is summed apart"
        remarks.append(Remark("passed", "block-recurrences", message, sums.name, sums.span))
    return program, ranges, remarks


@dataclass(frozen=True, slots=True)
class _Part:
    """The points of a statement, or the elements of a tensor, whose dimensions `inside` are in the block and whose other
    leading ones are in later blocks."""

    inside: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def suffix(self) -> str:
        return "block" if not self.after else "after" + "".join(map(str, self.after))


class _Refused(Exception):
    """The recurrence has a form that the parts cannot take over."""


@dataclass(slots=True)
class _Rewriter:
    members: list[Statement]
    cut: Cut
    program: Program
    ranges: Ranges
    edit: Edit = field(init=False)
    sums: dict[str, Statement] = field(init=False)
    has: dict[tuple[str, str], bool] = field(init=False)
    """Whether a sum's part has terms, by the tensor of the part."""

    def run(self) -> tuple[Program, Ranges] | None:
        self.edit = start_edit(self.program, self.ranges)
        self.sums = {s.target: s for s in self.members if s.reduction is not None}
        self.has = {}
        inside = {s.name for s in self.members}
        others = [s for s in self.program.statements if s.name not in inside]
        if any(r.tensor in self.sums for s in others for r in all_site_reads(s)):
            return None
        if any(len(self.program.writers()[t]) > 1 for t in self.sums):
            return None
        used = {i for s in self.members for i in s.indices}
        if self.cut.block in used or any(f"{i}.in" in used for i in used):
            return None
        try:
            new: list[Statement] = []
            for s in self.members:
                if s.reduction is not None:
                    new += [n for part in self._parts(s) for n in self._cut_sum(s, part)]
            for s in self.members:
                if s.reduction is None:
                    new += [n for part in self._parts(s) for n in self._cut_assignment(s, part)]
        except _Refused:
            return None
        for s in self.members:
            del self.edit.own[s.name]
        first = self.members[0].name
        for s in self.program.statements:
            if s.name == first:
                self.edit.statements += new
            if s.name not in inside:
                self.edit.statements.append(s)
        self.edit.tensors = [t for t in self.edit.tensors if t.name not in self.sums]
        return self.edit.finish()

    def _parts(self, s: Statement) -> list[_Part]:
        dims = self.cut.dims[s.target]
        if len(dims) == 1:
            return [_Part(dims, ())]
        a, b = dims
        return [_Part((a, b), ()), _Part((a,), (b,)), _Part((b,), (a,))]

    def _conditions(self, s: Statement, part: _Part) -> tuple[dict[str, Expr], list[Expr]]:
        """Values of the indices that are cut, and what holds in the part."""
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        place = {names[d]: self.cut.point(f"{names[d]}.in") for d in part.inside}
        bounds = [b for d in part.inside for b in self.cut.is_inside(f"{names[d]}.in")]
        bounds += [self.cut.is_later(Index(names[d])) for d in part.after]
        return place, bounds

    def _order(self, target: str, part: _Part) -> list[int | None]:
        """Dimensions in the order of storage, None for the block: vectors run along what is not cut."""
        dims = self.cut.dims[target]
        rank = self.program.tensor(target).rank
        front = [d for d in range(rank) if d < min(dims)]
        back = [d for d in range(rank) if d not in front and d not in part.inside]
        return [*front, None, *part.inside, *back]

    def _element(
        self, subscripts: Sequence[Expr], order: Sequence[int | None], part: _Part, inner: Mapping[int, Expr]
    ) -> tuple[Expr, ...]:
        return tuple(Index(self.cut.block) if d is None else inner[d] if d in part.inside else subscripts[d] for d in order)

    def _domain(
        self, s: Statement, name: str, indices: Sequence[str], place: Mapping[str, Expr], bounds: list[Expr]
    ) -> isl.Set:
        values = [place.get(i, Index(i)) for i in s.indices]
        return map_domain(self.ranges.statements[s.name].domain, name, indices, values, bounds)

    def _intervals(self, s: Statement, indices: Sequence[str]) -> dict[str, Interval]:
        own = self.ranges.statements[s.name].indices
        inner = Interval(int_const(0), int_const(self.cut.size))
        return {i: self.cut.interval if i == self.cut.block else own.get(i, inner) for i in indices}

    def _cut_sum(self, s: Statement, part: _Part) -> list[Statement]:
        assert s.reduction is not None
        (k,) = s.reduction_indices
        place, bounds = self._conditions(s, part)
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        inner: dict[int, Expr] = {d: Index(f"{names[d]}.in") for d in part.inside}
        like = self.program.tensor(s.target)
        result = []
        for kind in ("near", "far"):
            is_near = kind == "near"
            dims = self._order(s.target, part) if is_near else self._far_order(s.target, part)
            subscripts = self._element(s.subscripts, dims, part, inner)
            left = tuple(e.name for e in subscripts if isinstance(e, Index))
            name, target = f"{s.name}_{kind}_{part.suffix}", f"{s.target}.{kind}.{part.suffix}"
            here, where, last = dict(place), list(bounds), k
            if is_near:
                last = f"{k}.in"
                here[k] = self.cut.point(last)
                where += self.cut.is_inside(last)
            else:
                where.append(self.cut.is_earlier(Index(k)))
            indices = (*left, last)
            domain = self._domain(s, name, indices, here, where)
            self.has[s.target, f"{kind}.{part.suffix}"] = not domain.is_empty()
            if domain.is_empty():
                continue
            init = s.reduction.init if is_near or not self._has(s, "near", part) else identity_of(s.reduction.op, like.dtype)
            intervals = self._intervals(s, indices)
            value = self._redirect(substitute(s.value, here), s, part, {k: last} if is_near else {})
            if not is_near:
                value, more = self._scale_apart(value, name, domain, indices, intervals, like)
                result += more
            region = self._region(s, name, left, place, bounds)
            self.edit.own[name] = StatementRanges(intervals, domain, (), region)
            self.edit.tensors.append(Tensor(target, like.dtype, len(left), None, "temporary", like.base, like.span))
            self.edit.intervals[target] = tuple(intervals[i] for i in left)
            result.append(Statement(name, target, subscripts, indices, value, Reduction(s.reduction.op, init), (), s.span))
        return result

    def _scale_apart(
        self, value: Expr, name: str, domain: isl.Set, indices: tuple[str, ...], intervals: dict[str, Interval], like: Tensor
    ) -> tuple[Expr, list[Statement]]:
        """Before: ``L[i, k] * D[k] * L[b*B + t, k]``.  After: ``L[i, k] * W[b, k, t]``, ``W[b, k, t] = L[b*B + t, k] * D[k]``:
        factors that move along the sum alone go to the smaller operand, once for each block."""
        last = indices[-1]
        factors, divisors, is_negative = _factors(value)
        names = [index_names(f) for f in factors]
        own = [n & set(indices[:-1]) - {self.cut.block} for n in names]
        main = [f for f, left in zip(factors, own, strict=True) if left]
        scales = [f for f, left in zip(factors, own, strict=True) if not left]
        is_plain = not scales and not divisors and not is_negative
        if len(main) != 2 or is_plain or not like.dtype.is_float or any(last not in n for n in names):
            return value, []
        if any(index_names(f) - {last, self.cut.block} for f in divisors):
            return value, []
        trips = [prod(estimate_extent(intervals[i].extent, self.ranges.typical) or 1 for i in left) for left in own if left]
        small, other = (main[0], main[1]) if trips[0] < trips[1] else (main[1], main[0])
        kept = (self.cut.block, last, *(i for i in indices[:-1] if i in index_names(small) - {self.cut.block}))
        target = f"{name}.scaled"
        for f in scales:
            small = small * f
        for f in divisors:
            small = Call("truediv", (small, f))
        small = -small if is_negative else small
        self.edit.tensors.append(Tensor(target, like.dtype, len(kept), None, "temporary", like.base, like.span))
        self.edit.intervals[target] = tuple(intervals[i] for i in kept)
        statement = f"{name}_scaled"
        self.edit.own[statement] = StatementRanges(
            {i: intervals[i] for i in kept}, project_domain(domain, indices, statement, kept)
        )
        element = tuple(map(Index, kept))
        return other * Read(target, element), [Statement(statement, target, element, kept, small, None, (), like.span)]

    def _far_order(self, target: str, part: _Part) -> list[int | None]:
        rank, first = self.program.tensor(target).rank, min(self.cut.dims[target])
        return [*range(first), None, *range(first, rank)]

    def _has(self, s: Statement, kind: str, part: _Part) -> bool:
        return self.has.get((s.target, f"{kind}.{part.suffix}"), False)

    def _region(self, s: Statement, name: str, left: Sequence[str], place: Mapping[str, Expr], bounds: list[Expr]) -> isl.Set:
        """Elements that are given an initial value: of the whole sum those in this part."""
        own = self.ranges.statements[s.name]
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        whole = own.region
        if whole is None:
            box = {i: v for i, v in zip(names, self.ranges.tensors[s.target], strict=True)}
            whole = box_domain(f"init_{s.name}", names, box, self.ranges.parameters)
        return map_domain(whole, f"init_{name}", left, [place.get(i, Index(i)) for i in names], bounds)

    def _cut_assignment(self, s: Statement, part: _Part) -> list[Statement]:
        place, bounds = self._conditions(s, part)
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        inner: dict[int, Expr] = {d: Index(f"{names[d]}.in") for d in part.inside}
        name = f"{s.name}_{part.suffix}"
        order = self._order(s.target, part)
        turned = self._element(s.subscripts, order, part, inner)
        left = tuple(e.name for e in turned if isinstance(e, Index))
        domain = self._domain(s, name, left, place, bounds)
        if domain.is_empty():
            return []
        value = prune_selections(
            substitute(s.value, place), domain, isl.Affine(domain.get_space(), {i: n for n, i in enumerate(left)})
        )
        value = self._redirect(value, s, part, {})
        intervals = self._intervals(s, left)
        whole = tuple(substitute(e, place) for e in s.subscripts)
        self.edit.own[name] = StatementRanges(intervals, domain)
        if not self._is_turned(s.target, part):
            return [Statement(name, s.target, whole, left, value, None, (), s.span)]
        target = f"{s.target}.{part.suffix}"
        like = self.program.tensor(s.target)
        if target not in self.edit.intervals:
            self.edit.tensors.append(Tensor(target, like.dtype, len(left), None, "temporary", like.base, like.span))
            self.edit.intervals[target] = tuple(intervals[i] for i in left)
        copy = f"{name}_copy"
        self.edit.own[copy] = StatementRanges(intervals, domain.set_tuple_name(copy))
        return [
            Statement(name, target, turned, left, value, None, (), s.span),
            Statement(copy, s.target, whole, left, Read(target, turned), None, (), s.span),
        ]

    def _is_turned(self, target: str, part: _Part) -> bool:
        """Whether a part of a result is kept in the order of the sums as well, because its own has the vectors across."""
        if target in self.sums or not part.after:
            return False
        members = {m.name for m in self.members}
        if any(self._writes_to(w, part) for w in self.program.writers()[target] if w.name not in members):
            return False
        back = [d for d in range(self.program.tensor(target).rank) if d > min(self.cut.dims[target]) or d in part.after]
        return any(d < max(part.inside) for d in back if d not in part.inside)

    def _writes_to(self, s: Statement, part: _Part) -> bool:
        """Whether a statement beside the recurrence may write elements of a part of its target."""
        domain = self.ranges.statements[s.name].domain
        affine = isl.Affine(domain.get_space(), {i: n for n, i in enumerate(s.indices)})
        size = int_const(self.cut.size)
        for d in part.after:
            for e in part.inside:
                first, later = (self.cut.step(s.subscripts[x]) // size for x in (e, d))
                there = condition_set(affine, lt(first, later))
                if there is not None:
                    domain = domain.intersect(there)
        return not domain.is_empty()

    def _redirect(self, value: Expr, s: Statement, part: _Part, more: Mapping[str, str]) -> Expr:
        """`value` of a part of `s` with reads of sums as those of their parts, and of turned parts where they are kept."""
        names = [e.name for e in s.subscripts if isinstance(e, Index)]
        inner = {self.cut.point(i): Index(i) for i in (*(f"{names[d]}.in" for d in part.inside), *more.values())}
        after = {Index(names[d]) for d in part.after}
        return self._replace(value, inner, after)

    def _replace(self, expr: Expr, inner: Mapping[Expr, Expr], after: set[Index]) -> Expr:
        expr = with_children(expr, tuple(self._replace(c, inner, after) for c in children(expr)))
        if not isinstance(expr, Read) or expr.tensor not in self.cut.dims:
            return expr
        dims = self.cut.dims[expr.tensor]
        inside = tuple(d for d in dims if expr.subscripts[d] in inner)
        behind = tuple(d for d in dims if expr.subscripts[d] in after)
        part = _Part(inside, behind)
        is_part = bool(inside) and len(inside) + len(behind) == len(dims)
        places = {d: inner[expr.subscripts[d]] for d in inside}
        if expr.tensor not in self.sums:
            if not is_part or not self._is_turned(expr.tensor, part):
                return expr
            order = self._order(expr.tensor, part)
            return Read(f"{expr.tensor}.{part.suffix}", self._element(expr.subscripts, order, part, places), expr.span)
        if not is_part:
            raise _Refused
        reduction = self.sums[expr.tensor].reduction
        assert reduction is not None
        terms: list[Expr] = []
        for kind, order in (("far", self._far_order(expr.tensor, part)), ("near", self._order(expr.tensor, part))):
            if self.has.get((expr.tensor, f"{kind}.{part.suffix}")):
                element = self._element(expr.subscripts, order, part, places)
                terms.append(Read(f"{expr.tensor}.{kind}.{part.suffix}", element, expr.span))
        if not terms:
            return reduction.init
        return terms[0] if len(terms) == 1 else Call(reduction.op, tuple(terms))


def _factors(value: Expr) -> tuple[list[Expr], list[Expr], bool]:
    """What is multiplied, what it is divided by, and whether the sign is turned."""
    match value:
        case Call(op="neg", args=(a,)):
            factors, divisors, sign = _factors(a)
            return factors, divisors, not sign
        case Call(op=("mul" | "truediv") as op, args=(a, b)):
            left, right = _factors(a), _factors(b)
            if op == "truediv":
                right = (right[1], right[0], right[2])
            return left[0] + right[0], left[1] + right[1], left[2] != right[2]
    return [value], [], False


def prune_selections(value: Expr, domain: isl.Set, affine: isl.Affine) -> Expr:
    """`value` without the arms of selections that are never taken in `domain`."""
    if isinstance(value, Select):
        holds = condition_set(affine, value.condition)
        if holds is not None:
            inside, outside = domain.intersect(holds), domain.subtract(holds)
            if outside.is_empty():
                return prune_selections(value.then, domain, affine)
            if inside.is_empty():
                return prune_selections(value.other, domain, affine)
            return replace(
                value, then=prune_selections(value.then, inside, affine), other=prune_selections(value.other, outside, affine)
            )
    return with_children(value, tuple(prune_selections(c, domain, affine) for c in children(value)))
