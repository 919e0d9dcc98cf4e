"""Factorisations and triangular solves in blocks: sums over all earlier results become sums over earlier blocks and a short rest.

before  ``S[i, j] += F[i, k] * G[k, j]`` over ``k < i, k < j``, and F, G made from S element by element
after   for blocks b of B steps, where ``min(i, j)`` is in b, apart for j in b and i behind it, i in b and j behind it, and both in b:
        ``S.far[b, i, t] += F[i, k] * G[k, b*B + t]`` over ``k < b*B``, ``S.near[b, t, i] += …`` over the steps of b itself.

The far sums need earlier blocks only: they are contractions (the "left-looking" order of LAPACK's block algorithms).  That
nothing of a block needs a later one is shown on the integer sets of the program, whatever the recurrence computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    children,
    identity_of,
    int_const,
    reads,
    simplify_int,
    substitute,
    walk,
    with_children,
)
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.poly import isl
from polyc.poly.domains import box_domain, map_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.poly.reads import collect_reads
from polyc.scheduler.components import find_components
from polyc.scheduler.rewriting.blocks import Edit, start_edit

BLOCKS = ((192, 64), (96, 32))
"""Fewest steps of a recurrence, and the steps of its blocks then."""
MINIMUM_RESULTS = 64
"""Results of one step below which sums over earlier blocks are as slow as they were."""


def block_recurrences(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Every recurrence through sums over its earlier steps, with two or more dimensions, in blocks of steps."""
    remarks: list[Remark] = []
    writers = program.writers()
    by_name = {s.name: s for s in program.statements}
    edges = [(w.name, s.name) for s in program.statements for r in _reads_of(s) for w in writers.get(r.tensor, ())]
    for names in find_components([s.name for s in program.statements], edges):
        if (names[0], names[0]) not in edges and len(names) == 1:
            continue
        members = [by_name[n] for n in names]
        cut = _find_cut(members, program, ranges)
        if cut is None:
            continue
        done = _Rewriter(members, cut, program, ranges).run()
        if done is None:
            continue
        program, ranges = done
        sums = next(s for s in members if s.reduction is not None)
        message = f"blocks of {cut.size} steps: what earlier blocks add is summed apart"
        remarks.append(Remark("passed", "recurrences", message, sums.name, sums.span))
    return program, ranges, remarks


@dataclass(frozen=True, slots=True)
class _Cut:
    """Blocks of `size` steps, counted from `origin` upwards or (`is_reversed`) downwards.

    `dims`: of each tensor of the recurrence, the dimensions along which it is made: an element belongs to the block of the
    first of its steps there."""

    size: int
    origin: Expr
    is_reversed: bool
    dims: Mapping[str, tuple[int, ...]]
    extent: Expr
    block: str

    def step(self, value: Expr) -> Expr:
        """The step of a subscript, from 0."""
        return Call("sub", (self.origin, value) if self.is_reversed else (value, self.origin))

    def point(self, inner: str) -> Expr:
        """The subscript of step number `inner` of the block."""
        step = Call("add", (Call("mul", (Index(self.block), int_const(self.size))), Index(inner)))
        return simplify_int(Call("sub" if self.is_reversed else "add", (self.origin, step)))

    @property
    def interval(self) -> Interval:
        count = Call("floordiv", (Call("add", (self.extent, int_const(self.size - 1))), int_const(self.size)))
        return Interval(int_const(0), simplify_int(count))

    def is_earlier(self, value: Expr) -> Expr:
        """A subscript lies in an earlier block."""
        return Call("lt", (self.step(value), Call("mul", (Index(self.block), int_const(self.size)))))

    def is_later(self, value: Expr) -> Expr:
        end = Call("mul", (Call("add", (Index(self.block), int_const(1))), int_const(self.size)))
        return Call("ge", (self.step(value), end))

    def is_inside(self, inner: str) -> list[Expr]:
        return [Call("ge", (Index(inner), int_const(0))), Call("lt", (Index(inner), int_const(self.size)))]


def _find_cut(members: list[Statement], program: Program, ranges: Ranges) -> _Cut | None:
    targets = {s.target for s in members}
    if any(not s.has_plain_left or ranges.statements[s.name].guards for s in members):
        return None
    if any(isinstance(n, Pad) and n.read.tensor in targets for s in members for n in walk(s.value)):
        return None
    sums = [s for s in members if s.reduction is not None]
    if not sums or not any(_is_contraction(s, targets, ranges) for s in sums):
        return None
    for is_reversed in (False, True):
        dims: dict[str, tuple[int, ...]] | None = {}
        for s in sums:
            found = _leading_dims(s, is_reversed, program, ranges)
            if not found:
                dims = None
                break
            assert dims is not None
            dims[s.target] = found
        dims = dims and _spread(dims, members)
        if dims is None or set(dims) != targets or max(map(len, dims.values())) > 2:
            continue
        intervals = [ranges.tensors[t][d] for t, ds in dims.items() for d in ds]
        first = intervals[0]
        if any(i != first for i in intervals):
            continue
        size = _block_size(first.extent, ranges)
        if size is None:
            return None
        last = Call("sub", (Call("add", (first.lower, first.extent)), int_const(1)))
        origin = simplify_int(last) if is_reversed else first.lower
        block = f"{members[0].left_indices[dims[members[0].target][0]]}.block"
        cut = _Cut(size, origin, is_reversed, dims, first.extent, block)
        if all(_keeps_order(s, cut, ranges) for s in members):
            return cut
    return None


def _is_contraction(s: Statement, targets: set[str], ranges: Ranges) -> bool:
    """Whether what a step adds is spread over a plane of results: two operands, each with left indices of its own."""
    moving = [r for r in dict.fromkeys(reads(s.value)) if set(_names(r)) & set(s.reduction_indices)]
    own = [set(_names(r)) & set(s.left_indices) for r in moving]
    extents = ranges.statements[s.name].indices
    is_plane = any(a - b and b - a for a in own for b in own)
    wide = sum((estimate_extent(extents[i].extent, ranges.typical) or MINIMUM_RESULTS) >= MINIMUM_RESULTS for i in s.left_indices)
    return is_plane and wide >= 2 and any(r.tensor in targets for r in moving)


def _names(expr: Expr) -> list[str]:
    return [n.name for n in walk(expr) if isinstance(n, Index)]


def _leading_dims(s: Statement, is_reversed: bool, program: Program, ranges: Ranges) -> tuple[int, ...]:
    """Dimensions of a sum's target whose index stays ahead of the index that is summed over; none where it cannot be cut."""
    assert s.reduction is not None
    tensor = program.tensor(s.target)
    if len(s.reduction_indices) != 1 or s.reduction.monoid is not None or tensor.role != "temporary":
        return ()
    if not isinstance(s.reduction.init, Const) or tensor.dtype.is_complex or tensor.dtype.is_storage:
        return ()
    (k,) = s.reduction_indices
    domain = ranges.statements[s.name].domain
    affine = _affine(domain, s)
    op = "gt" if is_reversed else "lt"
    return tuple(
        d
        for d, e in enumerate(s.subscripts)
        if domain.is_subset(affine.condition(Call(op, (Index(k), e))).align_params(domain.get_space()))
    )


def _affine(domain: isl.Set, s: Statement) -> isl.Affine:
    return isl.Affine(domain.get_space(), {i: n for n, i in enumerate(s.indices)})


def _spread(dims: dict[str, tuple[int, ...]], members: list[Statement]) -> dict[str, tuple[int, ...]]:
    """The same for what is made of the sums: its dimensions stand where those of the sums do."""
    dims = dict(dims)
    for _ in members:
        for s in members:
            if s.reduction is not None:
                continue
            found = set(dims.get(s.target, ()))
            for read in reads(s.value):
                leading = [read.subscripts[d] for d in dims.get(read.tensor, ())]
                if all(e in s.subscripts for e in leading):
                    found |= {s.subscripts.index(e) for e in leading}
            if found:
                dims[s.target] = tuple(sorted(found))
    return dims


def _block_size(extent: Expr, ranges: Ranges) -> int | None:
    steps = estimate_extent(extent, ranges.typical)
    if steps is None:
        return None
    return next((size for fewest, size in BLOCKS if steps >= fewest), None)


def _keeps_order(s: Statement, cut: _Cut, ranges: Ranges) -> bool:
    """Whether no point needs elements of a later step than its own, nor a term of a sum any beyond the term's step."""
    domain = ranges.statements[s.name].domain
    affine = _affine(domain, s)
    own = [s.subscripts[d] for d in cut.dims[s.target]]
    if s.reduction is not None:
        own += [Index(i) for i in s.reduction_indices]
    for site in collect_reads(s):
        if site.read.tensor not in cut.dims:
            continue
        try:
            where = domain
            for condition, holds in site.conditions:
                there = _condition(affine, condition)
                if there is not None:
                    where = where.intersect(there if holds else there.complement())
            for mine in own:
                within = isl.Set.empty(affine.space)
                for d in cut.dims[site.read.tensor]:
                    order = Call("le", (cut.step(site.read.subscripts[d]), cut.step(mine)))
                    within = within.union(affine.condition(order))
                if not where.is_subset(within):
                    return False
        except isl.NotAffine:
            return False
    return True


def _condition(affine: isl.Affine, condition: Expr) -> isl.Set | None:
    try:
        return affine.condition(condition)
    except isl.NotAffine:
        return None


def _reads_of(s: Statement) -> list[Read]:
    return [site.read for site in collect_reads(s)]


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
    cut: _Cut
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
        if any(r.tensor in self.sums for s in others for r in _reads_of(s)):
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

    def _element(self, subscripts: Sequence[Expr], order: Sequence[int | None], part: _Part, inner: Mapping[int, Expr]) -> tuple[Expr, ...]:
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
        own = self.ranges.statements[s.name]
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
            region = self._region(s, name, left, place, bounds)
            self.edit.own[name] = StatementRanges(intervals, domain, (), region)
            self.edit.tensors.append(Tensor(target, like.dtype, len(left), None, "temporary", like.base, like.span))
            self.edit.intervals[target] = tuple(intervals[i] for i in left)
            result.append(Statement(name, target, subscripts, indices, value, Reduction(s.reduction.op, init), (), s.span))
        return result

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
        value = _prune(substitute(s.value, place), domain, isl.Affine(domain.get_space(), {i: n for n, i in enumerate(left)}))
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
        if target in self.sums or any(s.name not in {m.name for m in self.members} for s in self.program.writers()[target]):
            return False
        back = [d for d in range(self.program.tensor(target).rank) if d > min(self.cut.dims[target]) or d in part.after]
        return bool(part.after) and any(d < max(part.inside) for d in back if d not in part.inside)

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


def _prune(value: Expr, domain: isl.Set, affine: isl.Affine) -> Expr:
    """`value` without the arms of selections that are never taken in `domain`."""
    if isinstance(value, Select):
        holds = _condition(affine, value.condition)
        if holds is not None:
            inside, outside = domain.intersect(holds), domain.subtract(holds)
            if outside.is_empty():
                return _prune(value.then, domain, affine)
            if inside.is_empty():
                return _prune(value.other, domain, affine)
            return replace(value, then=_prune(value.then, inside, affine), other=_prune(value.other, outside, affine))
    return with_children(value, tuple(_prune(c, domain, affine) for c in children(value)))
