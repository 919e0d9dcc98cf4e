"""Factorisations and triangular solves in blocks: sums over earlier results become sums over earlier blocks and a short rest.

before  ``S[i, j] += F[i, k] * G[k, j]`` over ``k < i, k < j``, and F, G made from S element by element
after   for blocks b of B steps, apart for j in b and i behind it, for i in b and j behind it, and for both in b:
        ``S.far[b, i, t] += F[i, k] * G[k, b*B + t]`` over ``k < b*B``, ``S.near[b, t, i] += …`` over the steps of b itself.

The far sums need earlier blocks only: they are contractions (the "left-looking" order of LAPACK's block algorithms).  That
nothing of a block needs a later one is shown on the integer sets of the program, whatever the recurrence computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
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
from polyc.ir.program import Program, Reduction, Statement, Tensor, all_reads
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, Ranges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, change_groups, find_recurrences
from polyc.scheduler.rewriting.reindexing import map_reads
from polyc.scheduler.rewriting.rules.final_values import sum_final_values
from polyc.scheduler.rewriting.rules.recurrence_blocks import Cut, find_cut


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
    def rule(members: list[Statement], program: Program, ranges: Ranges) -> tuple[Program, Ranges, str] | None:
        cut = find_cut(members, program, ranges)
        done = None if cut is None else _Rewriter(members, cut, ProgramBuilder(program, ranges)).run()
        if cut is None or done is None:
            return None
        return *done, f"blocks of {cut.size} steps: what earlier blocks add is summed apart"

    return change_groups("block-recurrences", rule, find_recurrences(program), program, ranges)


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


class _Rewriter:
    def __init__(self, members: list[Statement], cut: Cut, builder: ProgramBuilder) -> None:
        self.members, self.cut, self.builder, self.program = members, cut, builder, builder.program
        self.sums = {s.target: s for s in members if s.reduction is not None}
        self.filled: set[str] = set()
        """Tensors of parts of sums that have terms."""

    def run(self) -> tuple[Program, Ranges] | None:
        others = [s for s in self.program.statements if s not in self.members]
        if any(r.tensor in self.sums for s in others for r in all_reads(s)):
            return None
        if any(len(self.program.writers()[t]) > 1 for t in self.sums):
            return None
        used = {i for s in self.members for i in s.indices}
        if self.cut.block in used or any(f"{i}.in" in used for i in used):
            return None
        new: list[Statement] = []
        try:
            for s in sorted(self.members, key=lambda s: s.reduction is None):
                write = self._write_assignment if s.reduction is None else self._write_sum
                new += [n for part in self._parts(s) for n in write(s, part)]
        except _Refused:
            return None
        return self.builder.replace(self.members, new)

    def _parts(self, s: Statement) -> list[_Part]:
        dims = self.cut.dims[s.target]
        if len(dims) == 1:
            return [_Part(dims, ())]
        a, b = dims
        return [_Part((a, b), ()), _Part((a,), (b,)), _Part((b,), (a,))]

    def _conditions(self, s: Statement, part: _Part) -> tuple[dict[int, Expr], dict[str, Expr], list[Expr]]:
        """Steps in the block by dimension, values of the indices that are cut, and what holds in the part."""
        names = s.element_names
        inner: dict[int, Expr] = {d: Index(f"{names[d]}.in") for d in part.inside}
        place = {names[d]: self.cut.point(f"{names[d]}.in") for d in part.inside}
        bounds = [b for d in part.inside for b in self.cut.is_inside(f"{names[d]}.in")]
        return inner, place, bounds + [self.cut.is_later(Index(names[d])) for d in part.after]

    def _order(self, target: str, part: _Part, kind: str = "near") -> list[int | None]:
        """Dimensions in the order of storage, None for the block: vectors run along what is not cut."""
        rank, first = self.program.tensor(target).rank, min(self.cut.dims[target])
        if kind == "far":
            return [*range(first), None, *range(first, rank)]
        back = [d for d in range(first, rank) if d not in part.inside]
        return [*range(first), None, *part.inside, *back]

    def _element(
        self, subscripts: Sequence[Expr], order: Sequence[int | None], part: _Part, inner: Mapping[int, Expr]
    ) -> tuple[Expr, ...]:
        return tuple(Index(self.cut.block) if d is None else inner[d] if d in part.inside else subscripts[d] for d in order)

    def _move(self, points: Points, order: Sequence[str], place: Mapping[str, Expr], bounds: Sequence[Expr]) -> Points:
        """Points over the block, steps in it, and indices as they were."""
        inner = Interval(int_const(0), int_const(self.cut.size))
        new = {i: inner for i in order if i not in points.indices} | {self.cut.block: self.cut.interval}
        return points.move(order, new, place, bounds)

    def _write_sum(self, s: Statement, part: _Part) -> list[Statement]:
        assert s.reduction is not None
        (k,) = s.reduction_indices
        inner, place, bounds = self._conditions(s, part)
        own, like, reduction = self.builder.points(s), self.program.tensor(s.target), s.reduction
        result = []
        for kind in ("near", "far"):
            subscripts = self._element(s.subscripts, self._order(s.target, part, kind), part, inner)
            left = tuple(e.name for e in subscripts if isinstance(e, Index))
            here, where, last = place, [*bounds, self.cut.is_earlier(Index(k))], k
            if kind == "near":
                last = f"{k}.in"
                here, where = place | {k: self.cut.point(last)}, bounds + self.cut.is_inside(last)
            points = self._move(own, (*left, last), here, where)
            if points.domain.is_empty():
                continue
            name, target = f"{s.name}_{kind}_{part.suffix}", f"{s.target}.{kind}.{part.suffix}"
            value = self._redirect(substitute(s.value, here), s, part, {k: last} if kind == "near" else {})
            if kind == "far":
                value, more = self._scale_apart(value, name, points, like, s)
                result += more
            region = self._move(self.builder.elements(s), left, place, bounds)
            self.filled.add(self.builder.temporary(target, [points.indices[i] for i in left], like))
            result.append(self.builder.assign(name, target, subscripts, value, points, s, reduction, region=region))
            reduction = replace(reduction, init=identity_of(reduction.op, like.dtype))
        return result

    def _scale_apart(self, value: Expr, name: str, points: Points, like: Tensor, s: Statement) -> tuple[Expr, list[Statement]]:
        """Before: ``L[i, k] * D[k] * L[b*B + t, k]``.  After: ``L[i, k] * W[b, k, t]``, ``W[b, k, t] = L[b*B + t, k] * D[k]``:
        factors that move along the sum alone go to the smaller operand, once for each block."""
        *left, last = points.indices
        factors, divisors, is_negative = _factors(value)
        names = [index_names(f) for f in factors]
        own = [n & set(left) - {self.cut.block} for n in names]
        main = [f for f, moving in zip(factors, own, strict=True) if moving]
        scales = [f for f, moving in zip(factors, own, strict=True) if not moving]
        is_plain = not scales and not divisors and not is_negative
        if len(main) != 2 or is_plain or not like.dtype.is_float or any(last not in n for n in names):
            return value, []
        if any(index_names(f) - {last, self.cut.block} for f in divisors):
            return value, []
        known = {i: estimate_extent(x.extent, self.builder.ranges.typical) or 1 for i, x in points.indices.items()}
        trips = [prod(known[i] for i in moving) for moving in own if moving]
        small, other = (main[0], main[1]) if trips[0] < trips[1] else (main[1], main[0])
        kept = (self.cut.block, last, *(i for i in left if i in index_names(small) - {self.cut.block}))
        for f in scales:
            small = small * f
        for f in divisors:
            small = Call("truediv", (small, f))
        over, element = points.project(kept), tuple(map(Index, kept))
        target = self.builder.temporary(f"{name}.scaled", over.indices.values(), like)
        small = -small if is_negative else small
        scaled = self.builder.assign(f"{name}_scaled", target, element, small, over, s)
        return other * Read(target, element), [scaled]

    def _write_assignment(self, s: Statement, part: _Part) -> list[Statement]:
        inner, place, bounds = self._conditions(s, part)
        turned = self._element(s.subscripts, self._order(s.target, part), part, inner)
        points = self._move(self.builder.points(s), [e.name for e in turned if isinstance(e, Index)], place, bounds)
        if points.domain.is_empty():
            return []
        value = self._redirect(map_reads_at(substitute(s.value, place), points, lambda read, _: read), s, part, {})
        name, whole = f"{s.name}_{part.suffix}", tuple(substitute(e, place) for e in s.subscripts)
        if not self._is_turned(s.target, part):
            return [self.builder.assign(name, s.target, whole, value, points, s)]
        return self.builder.assign_twice(name, f"{s.target}.{part.suffix}", whole, value, points, s)

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
        points, size = self.builder.points(s), int_const(self.cut.size)
        for d, e in product(part.after, part.inside):
            first, later = (self.cut.step(s.subscripts[x]) // size for x in (e, d))
            points = points.where(lt(first, later)) or points
        return not points.domain.is_empty()

    def _redirect(self, value: Expr, s: Statement, part: _Part, more: Mapping[str, str]) -> Expr:
        """`value` of a part of `s` with reads of sums as those of their parts, and of turned parts where they are kept."""
        names = s.element_names
        inner = {self.cut.point(i): Index(i) for i in (*(f"{names[d]}.in" for d in part.inside), *more.values())}
        after = {Index(names[d]) for d in part.after}
        return map_reads(value, lambda read: self._read_part(read, inner, after))

    def _read_part(self, read: Read, inner: Mapping[Expr, Expr], after: set[Index]) -> Expr:
        if read.tensor not in self.cut.dims:
            return read
        dims = self.cut.dims[read.tensor]
        inside = tuple(d for d in dims if read.subscripts[d] in inner)
        part = _Part(inside, tuple(d for d in dims if read.subscripts[d] in after))
        is_part = bool(inside) and len(inside) + len(part.after) == len(dims)
        places = {d: inner[read.subscripts[d]] for d in inside}

        def at(kind: str, tensor: str) -> Expr:
            order = self._order(read.tensor, part, kind)
            return Read(tensor, self._element(read.subscripts, order, part, places), read.span)

        if read.tensor not in self.sums:
            return at("near", f"{read.tensor}.{part.suffix}") if is_part and self._is_turned(read.tensor, part) else read
        if not is_part:
            raise _Refused
        reduction = self.sums[read.tensor].reduction
        assert reduction is not None
        parts = [(kind, f"{read.tensor}.{kind}.{part.suffix}") for kind in ("far", "near")]
        terms = [at(kind, tensor) for kind, tensor in parts if tensor in self.filled]
        return join_terms(reduction, terms)


def join_terms(reduction: Reduction, terms: Sequence[Expr]) -> Expr:
    """The result of a reduction from those of its parts."""
    return reduce(lambda a, b: Call(reduction.op, (a, b)), terms) if terms else reduction.init


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
