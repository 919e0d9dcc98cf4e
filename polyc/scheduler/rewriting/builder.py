"""How rewritings of the program make statements, their ranges and tensors.

A rule recognises a form and says what it costs; `ProgramBuilder` makes what stands in its place: temporaries, statements over
points that are derived from those of others (`poly.points`), indices in blocks (`Split`), reductions in two stages (`rfactor`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from polyc.diagnostics import Remark
from polyc.ir.expr import Expr, Index, Read, ceil_div, ge, identity_of, int_const, lt, substitute, type_of
from polyc.ir.graphs import find_components
from polyc.ir.program import Program, Reduction, Statement, Tensor, all_reads
from polyc.ir.simplify import simplify_int
from polyc.ir.types import DType
from polyc.poly.domains import box_domain
from polyc.poly.points import Points
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges, StatementRanges
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Split:
    """Blocks of `size` values of an index that runs over `interval`: `block` and `inner` are the indices that take its place.

    In the tensors of blocks `block` is dimension number `position`, and `inner` stands where the index did."""

    index: str
    size: int
    interval: Interval
    position: int = 0
    is_innermost: bool = False
    """Whether `inner` is the last dimension instead, as the lanes of vectors are."""

    @property
    def block(self) -> str:
        return f"{self.index}.block"

    @property
    def inner(self) -> str:
        return f"{self.index}.in"

    def is_taken(self, s: Statement) -> bool:
        """Whether a statement has indices of these names already: it was split along an index of that name before."""
        return not {self.block, self.inner}.isdisjoint(s.indices)

    @property
    def blocks(self) -> Interval:
        return Interval(int_const(0), simplify_int(ceil_div(self.interval.extent, self.size)))

    @property
    def intervals(self) -> dict[str, Interval]:
        return {self.block: self.blocks, self.inner: Interval(int_const(0), int_const(self.size))}

    @property
    def point(self) -> Expr:
        """The value of the index in terms of `block` and `inner`."""
        first = Index(self.block) * self.size
        return simplify_int((first + Index(self.inner) if self.size > 1 else first) + self.interval.lower)

    @property
    def bounds(self) -> tuple[Expr, ...]:
        return (ge(Index(self.inner), 0), lt(Index(self.inner), self.size)) if self.size > 1 else ()

    def inside(self, indices: Iterable[str], index: str) -> tuple[str, ...]:
        """Indices with `inner` in the place of `index`; blocks of one value need none."""
        inner = (self.inner,) if self.size > 1 else ()
        return tuple(j for i in indices for j in (inner if i == index else (i,)))

    def left(self, names: Sequence[str], index: str) -> tuple[str, ...]:
        """The left indices of a statement over blocks of an index that is one of `names`, or is reduced."""
        subscripts = self.element(tuple(map(Index, names)), index)
        return tuple(e.name for e in subscripts if isinstance(e, Index))

    def element(self, subscripts: Sequence[Expr], index: str) -> tuple[Expr, ...]:
        """Subscripts of a tensor of blocks, from those of the whole tensor, at the point of `index` there."""
        inside = [Index(self.inner) if e == Index(index) else e for e in subscripts]
        if self.is_innermost:
            inside.sort(key=lambda e: e == Index(self.inner))
        return (*inside[: self.position], Index(self.block), *inside[self.position :])

    def apply(self, points: Points, index: str, order: Iterable[str]) -> Points:
        """Points over blocks of an index."""
        return points.move(order, self.intervals, {index: self.point}, self.bounds)


class ProgramBuilder:
    """A program being rewritten: statements in order, with the ranges and tensors that are added."""

    def __init__(self, program: Program, ranges: Ranges) -> None:
        self.program, self.ranges = program, ranges
        self.statements: list[Statement] = []
        self.materialised: list[Statement] = []
        self.tensors = list(program.tensors)
        self.own = dict(ranges.statements)
        self.intervals = dict(ranges.tensors)

    def finish(self) -> tuple[Program, Ranges]:
        """The rewritten program without temporaries that nothing writes any more; each statement behind those it reads, if
        there are new tensors."""
        assert len({s.name for s in self.statements}) == len(self.statements), "two statements have one name"
        is_new = any(name not in self.ranges.tensors for name in self.intervals)
        statements = tuple(_sort(self.statements) if is_new else self.statements)
        written = {s.target for s in statements}
        tensors = tuple(t for t in self.tensors if t.role != "temporary" or t.name in written)
        names, kept = {t.name for t in tensors}, {s.name for s in statements}
        program = replace(self.program, statements=statements, tensors=tensors)
        own = {n: r for n, r in self.own.items() if n in kept}
        return program, replace(self.ranges, statements=own, tensors={n: i for n, i in self.intervals.items() if n in names})

    # -- points
    def points(self, s: Statement) -> Points:
        own = self.own[s.name]
        return Points({i: own.indices[i] for i in s.indices}, own.domain.set_tuple_name("points"))

    def box(self, intervals: Mapping[str, Interval], order: Iterable[str] | None = None) -> Points:
        """All values of the indices, or of those in `order`."""
        indices = intervals if order is None else {i: intervals[i] for i in order}
        return Points(indices, box_domain("points", tuple(indices), indices, self.ranges.parameters))

    def replace(self, old: Sequence[Statement], new: Iterable[Statement]) -> tuple[Program, Ranges]:
        """`finish`, with new statements where the first of the old ones stood."""
        for s in self.program.statements:
            self.statements += new if s is old[0] else ()
            self.statements += () if any(s is o for o in old) else (s,)
        return self.finish()

    def elements(self, s: Statement) -> Points:
        """The elements that a reduction gives its initial value."""
        box = dict(zip(s.element_names, self.intervals[s.target], strict=True))
        region = self.own[s.name].region
        return self.box(box) if region is None else Points(box, region.set_tuple_name("points"))

    def set_points(
        self, name: str, points: Points, guards: tuple[GuardedSubscript, ...] = (), region: Points | None = None
    ) -> None:
        initial = None if region is None else region.domain.set_tuple_name(f"init_{name}")
        self.own[name] = StatementRanges(dict(points.indices), points.domain.set_tuple_name(name), guards, initial)

    # -- tensors
    def tensor(self, name: str) -> Tensor:
        return next(t for t in self.tensors if t.name == name)

    def free_name(self, wanted: str) -> str:
        """`wanted`, with a number behind it where a statement or a tensor has that name."""
        n, name = 1, wanted
        while name in self.own or name in self.intervals:
            name = f"{wanted}{(n := n + 1)}"
        return name

    def temporary(
        self, name: str, shape: Iterable[Interval], like: Tensor, base: str | None = None, dtype: DType | None = None
    ) -> str:
        """A temporary of this name, by default of the type of `like`, if this rewriting has not made it yet."""
        assert name not in self.ranges.tensors, f"{name} is a tensor of another rewriting"
        if name not in self.intervals:
            box = self.intervals[name] = tuple(shape)
            self.tensors.append(Tensor(name, dtype or like.dtype, len(box), None, "temporary", base or like.base, like.span))
        return name

    def add_temporary(
        self, s: Statement, suffix: str, shape: Iterable[Interval], dtype: DType | None = None, is_shared: bool = False
    ) -> str:
        """A temporary beside what `s` writes; with `is_shared`, one for all statements that write parts of that."""
        like, name = self.tensor(s.target), f"{s.target}.{suffix}"
        name = name if is_shared else self.free_name(name)
        return self.temporary(name, shape, replace(like, span=s.span), f"{like.base}.{suffix}", dtype)

    # -- statements
    def assign(
        self,
        name: str,
        target: str,
        subscripts: Sequence[Expr],
        value: Expr,
        points: Points,
        of: Statement | Tensor,
        reduction: Reduction | None = None,
        guards: tuple[GuardedSubscript, ...] = (),
        region: Points | None = None,
    ) -> Statement:
        """``target[subscripts] = value`` or the `reduction` at these points, which users are shown as a part of `of`."""
        self.set_points(name, points, guards, region)
        return Statement(name, target, tuple(subscripts), tuple(points.indices), value, reduction, (), of.span)

    def define(
        self,
        s: Statement,
        suffix: str,
        left: Sequence[str],
        value: Expr,
        summed: Sequence[str] = (),
        reduction: Reduction | None = None,
        over: Mapping[str, Interval] | Points | None = None,
        dtype: DType | None = None,
    ) -> Statement:
        """``{s.target}.{suffix}[left] = value``, or the `reduction` over `summed`: a temporary that `s` may read, by default of
        the type of its target.  Over a box of intervals or the points of these indices; where none are given, those of `s`."""
        order = (*left, *summed)
        if over is None or isinstance(over, Points):
            points = (self.points(s) if over is None else over).project(order)
        else:
            points = self.box(over, order)
        target = self.add_temporary(s, suffix, [points.indices[i] for i in left], dtype)
        name = self.free_name(f"{s.name}_{suffix}")
        return self.assign(name, target, tuple(map(Index, left)), value, points, s, reduction)

    def change(self, s: Statement, points: Points, **changes: Any) -> Statement:
        """`s` at other points, without its clauses, and with other changes."""
        self.set_points(s.name, points)
        return replace(s, indices=tuple(points.indices), where=(), **changes)

    def materialise(
        self, value: Expr, over: Points, names: tuple[str, str], like: Tensor, of: Statement, base: str | None = None
    ) -> tuple[Read, Sequence[Statement]]:
        """A temporary with an element for each point, and the statement that computes `value` there: none where one that was
        made before has these values, in whatever indices.

        `names`: of the tensor and of the statement; the span and, by default, what users are told are those of `like`."""
        element, intervals = tuple(map(Index, over.indices)), list(over.indices.values())
        for known in self.materialised:
            theirs = self.points(known)
            is_same = list(theirs.indices.values()) == intervals
            is_same = is_same and substitute(known.value, dict(zip(known.indices, element, strict=True))) == value
            if is_same and over.domain.is_subset(theirs.domain):
                return Read(known.target, element), ()
        types = {t.name: t.dtype for t in self.tensors}
        target = self.temporary(names[0], intervals, like, base, type_of(value, types))
        self.materialised.append(self.assign(names[1], target, element, value, over, of))
        return Read(target, element), self.materialised[-1:]

    # -- blocks
    def block(self, s: Statement, split: Split, index: str | None = None, suffix: str = "block") -> Statement:
        """`s` over blocks of an index (by default that of the split), into a tensor with a dimension for blocks.

        Its expressions may read what has been split already, over the indices of the split."""
        index, names = index or split.index, s.element_names if s.has_plain_left else s.left_indices
        left, place = split.left(names, index), {index: split.point}
        points = split.apply(self.points(s), index, (*left, *split.inside(s.reduction_indices, index)))
        whole = dict(zip(names, self.intervals[s.target], strict=True)) if s.has_plain_left else {}
        shape = {**points.indices, **whole, **split.intervals}
        target = self.add_temporary(s, suffix, [shape[i] for i in left], is_shared=index in names)
        reduction, region = s.reduction, None
        if reduction is not None and index in names:
            reduction = replace(reduction, init=substitute(reduction.init, place))
            region = split.apply(self.elements(s), index, left)
        elif reduction is not None:
            reduction = replace(reduction, init=identity_of(reduction.op, self.tensor(s.target).dtype), once=False)
        element, value = tuple(map(Index, left)), substitute(s.value, place)
        return self.assign(self.free_name(f"{s.name}_{suffix}"), target, element, value, points, s, reduction, (), region)

    def combine(self, s: Statement, part: Statement, split: Split, value: Expr | None = None) -> Statement:
        """`s` as the reduction of `value`, by default of its parts, over its left indices and the block."""
        value = Read(part.target, part.subscripts) if value is None else value
        return self.change(s, self.points(part).project((*s.left_indices, split.block)), value=value)

    def rfactor(self, s: Statement, split: Split, suffix: str = "block") -> tuple[Statement, Statement]:
        """A reduction in two stages: of each block, and of what the blocks have.

        Suriana, Adams, Kamil, "Parallel associative reductions in Halide", CGO 2017."""
        part = self.block(s, split, suffix=suffix)
        return part, self.combine(s, part, split)

    def restore(self, s: Statement, part: Statement, split: Split) -> Statement:
        """What a statement over blocks has made, in its place."""
        left, region = part.left_indices, self.own[part.name].region
        points = self.points(part).project(left)
        points = points if region is None else Points(points.indices, region.set_tuple_name("points"))
        element = tuple(substitute(e, {split.index: split.point}) for e in s.subscripts)
        return self.assign(s.name, s.target, element, Read(part.target, part.subscripts), points, s)


def _sort(statements: list[Statement]) -> list[Statement]:
    """Writers before readers, otherwise in the order given."""
    writers: dict[str, list[Statement]] = {}
    for s in statements:
        writers.setdefault(s.target, []).append(s)
    sources = {s.name: [w for r in all_reads(s) for w in writers.get(r.tensor, [])] for s in statements}
    seen: set[str] = set()
    result: list[Statement] = []
    for root in statements:
        stack = [(root, False)]
        while stack:
            s, is_ready = stack.pop()
            if is_ready:
                result.append(s)
            elif s.name not in seen:
                seen.add(s.name)
                stack.append((s, True))
                stack += [(w, False) for w in reversed(sources[s.name]) if w.name not in seen]
    return result


Change = tuple[Sequence[Statement], str | Sequence[str]]
"""What stands in the place of a statement, and a remark, or several, about it; without one, the pass says what it is for."""

StatementRule = Callable[..., Change | None]
"""A function of a statement, the builder and further arguments; None keeps the statement."""


def change_statements(
    name: str, rule: StatementRule, program: Program, ranges: Ranges, *arguments: Any
) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with what `rule` makes of its statements, one at a time; the remarks are of the pass `name`."""
    builder, remarks, has_changed = ProgramBuilder(program, ranges), list[Remark](), False
    for s in program.statements:
        statements, said = rule(s, builder, *arguments) or ([s], ())
        builder.statements += statements
        has_changed |= statements[0] is not s
        messages = (said,) if isinstance(said, str) else said
        remarks += [Remark("passed", name, message, s.name, s.span) for message in messages]
    if not has_changed:
        return program, ranges, remarks
    return *builder.finish(), remarks


GroupRule = Callable[..., tuple[Program, Ranges, str] | None]
"""A function of statements, the program, its ranges and further arguments: those rewritten, and what was done, or None."""


def change_groups(
    name: str, rule: GroupRule, groups: Iterable[list[Statement]], program: Program, ranges: Ranges, *arguments: Any
) -> tuple[Program, Ranges, list[Remark]]:
    """`program` with what `rule` makes of groups of its statements, as far as these are still there."""
    remarks: list[Remark] = []
    for group in groups:
        found = rule(group, program, ranges, *arguments) if all(s in program.statements for s in group) else None
        if found is not None:
            program, ranges, message = found
            first = next((s for s in group if s.reduction is not None), group[0])
            remarks.append(Remark("passed", name, message, first.name, first.span))
    return program, ranges, remarks


def find_recurrences(program: Program) -> list[list[Statement]]:
    """Statements that need each other, or themselves, in the order of the program."""
    writers, by_name = program.writers(), {s.name: s for s in program.statements}
    edges = [(w.name, s.name) for s in program.statements for r in all_reads(s) for w in writers.get(r.tensor, ())]
    found = find_components(list(by_name), edges)
    return [[by_name[n] for n in names] for names in found if len(names) > 1 or (names[0], names[0]) in edges]
