"""Write reductions by a user's monoid out as ordinary statements, which are fused, vectorised and proved like all others.

Before: ``y[i] combine= f[i, r]`` over R points.
After, where R is known, a tree: ``t1[i, h] = f[i, h] ∘ f[i, h + H]`` for the largest power of two H < R (what has no partner is
copied), then halves of halves, ``t2[i, h] = t1[i, h] ∘ t1[i, h + H/2]``, until one is left.  Each level is a vector statement,
and rounding grows with the logarithm of R.  Long rows are cut into chunks with a tree each, and a tree over the chunks.
Else, and where the order of the source is kept, a recurrence: ``s[i, 0] = identity``, ``s[i, r + 1] = s[i, r] ∘ f[i, r]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.code_limits import CHUNK, MINIMUM_ITERATIONS
from polyc.diagnostics import Remark, UnsupportedError
from polyc.ir.expr import Const, Expr, Index, Read, Select, all_hold, int_const, lt, reads, substitute, walk
from polyc.ir.monoid_recurrence import describe_monoid_recurrence
from polyc.ir.program import Program, Statement, all_reads, tuple_components
from polyc.ir.simplify import simplify_int
from polyc.ir.types import BOOL
from polyc.poly.domains import condition_inside, subtract_domain
from polyc.poly.points import Points
from polyc.poly.ranges import GuardedSubscript, Interval, Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.builder import ProgramBuilder


def lower_monoids(program: Program, ranges: Ranges, may_reassociate: bool) -> tuple[Program, Ranges, list[Remark]]:
    """Reductions by users' monoids are statements."""
    groups: dict[object, list[Statement]] = {}  # two of a group have one component where a text asks twice
    for s in program.statements:
        if s.reduction is not None and s.reduction.monoid is not None:
            if not program.made_from(s.target).isdisjoint(r.tensor for r in all_reads(s)):
                raise UnsupportedError(describe_monoid_recurrence(s))
            key = (s.reduction.monoid, tuple_components(s), s.subscripts, s.indices, s.where)
            groups.setdefault(key, []).append(s)
    if not groups:
        return program, ranges, []
    builder = ProgramBuilder(program, ranges)
    made: dict[str, list[Statement]] = {}
    remarks: list[Remark] = []
    for group in groups.values():
        writer = _Writer(group, builder, may_reassociate)
        made |= {s.name: [] for s in group} | {group[0].name: writer.write()}
        remarks.append(Remark("passed", "monoid", "; ".join(writer.words), group[0].name, group[0].span))
    builder.statements += [n for s in program.statements for n in made.get(s.name, [s])]
    return (*builder.finish(), remarks)


class _Writer:
    """The statements of one group of components."""

    def __init__(self, group: list[Statement], builder: ProgramBuilder, may_reassociate: bool) -> None:
        self.group, self.s = group, group[0]
        self.builder, self.may_reassociate = builder, may_reassociate
        reduction = self.s.reduction
        assert reduction is not None
        assert reduction.monoid is not None
        self.monoid = reduction.monoid
        self.bounds = dict(builder.points(self.s).indices)
        self.statements: list[Statement] = []
        self.words: list[str] = []
        self.n_stages = 0

    def write(self) -> list[Statement]:
        s = self.s
        values = self._masked(tuple_components(s))
        others = list(s.reduction_indices)
        while others:
            index = others.pop()
            values = self._fold(values, index, (*s.left_indices, *others))
        for member in self.group:
            assert member.reduction is not None
            value = values[member.reduction.component]
            self._rest(member)
            points = self.builder.box(self.bounds, member.left_indices)
            self.statements.append(self.builder.change(member, points, value=value, reduction=None))
        return self.statements

    def _rest(self, member: Statement) -> None:
        """Give the elements that no index reaches, where there are any, the initial value."""
        assert member.reduction is not None
        if not member.has_plain_left or len(self.builder.program.writers()[member.target]) > 1:
            return
        whole = dict(zip(member.element_names, self.builder.intervals[member.target], strict=True))
        reached = self.builder.box(self.bounds, whole)
        if whole == reached.indices:
            return
        rest = Points(whole, subtract_domain(self.builder.box(whole).domain, reached.domain))
        if not rest.domain.intersect_params(self.builder.ranges.context).is_empty():
            name, value = f"{member.name}_rest", member.reduction.init
            self.statements.append(self.builder.assign(name, member.target, member.subscripts, value, rest, member))

    def _masked(self, values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The values at all points of the box: the identity where a condition excludes a point."""
        s = self.s
        own, box = self.builder.own[s.name], self.builder.box(self.bounds, s.indices)
        inside = condition_inside(self.builder.points(s).domain, box.domain, s.indices)
        mask = () if inside == Const(True, BOOL) else (inside,)
        if mask:
            values = tuple(Select(inside, v, c) for v, c in zip(values, self.monoid.identity, strict=True))
        if not own.guards:
            return values
        # Subscripts that are checked at run time are checked once, where their values are stored.
        outer = [(*mask, *(() if g.condition is None else (g.condition,))) for g in own.guards]
        guards = [replace(g, condition=all_hold(c) if c else None) for g, c in zip(own.guards, outer, strict=True)]
        return self._read(self._store(values, s.indices, guards=guards), s.indices)

    # -- one index -----------------------------------------------------------------------------------------------
    def _fold(self, values: tuple[Expr, ...], index: str, kept: tuple[str, ...]) -> tuple[Expr, ...]:
        interval = self.bounds[index]
        extent, lower = interval.extent, interval.lower
        if not isinstance(extent, Const) or not self.may_reassociate:
            self.words.append(f"one after the other over {index}")
            return self._chain(values, index, kept, lower, extent)
        n = int(extent.value)
        if n < MINIMUM_ITERATIONS * CHUNK:
            self.words.append(f"a tree over {n} points of {index}")
            return self._tree(self._at(values, index, lower), index, kept, n, _runs_along(values, index))
        chunk = f"{index}.chunk"
        n_chunks = -(-n // CHUNK)
        self.bounds[chunk] = Interval(int_const(0), int_const(n_chunks))
        self.words.append(f"{n_chunks} trees over {CHUNK} points of {index}")
        start = simplify_int(Index(chunk) * CHUNK)
        shifted = self._at(values, index, simplify_int(start + lower))
        if n % CHUNK:
            inside = lt(simplify_int(start + Index(index)), n)
            shifted = tuple(Select(inside, v, c) for v, c in zip(shifted, self.monoid.identity, strict=True))
        along = _runs_along(values, index)
        parts = self._tree(shifted, index, (*kept, chunk), CHUNK, along)
        order = (*kept, chunk)
        return self._tree(self._read(self._store(parts, order), order), chunk, kept, n_chunks, True)

    def _at(self, values: tuple[Expr, ...], index: str, lower: Expr) -> tuple[Expr, ...]:
        """The values with the index counted from `lower`."""
        if lower == int_const(0):
            return values
        point = simplify_int(Index(index) + lower)
        return tuple(substitute(v, {index: point}) for v in values)

    def _tree(self, values: tuple[Expr, ...], index: str, kept: tuple[str, ...], n: int, along: bool) -> tuple[Expr, ...]:
        """The combination over ``0 <= index < n``."""

        def at(position: Expr) -> tuple[Expr, ...]:
            return tuple(substitute(v, {index: position}) for v in values)

        def later(step: int) -> tuple[Expr, ...]:
            return at(simplify_int(Index(index) + step))

        if n == 0:
            return self.monoid.identity
        while n > 2:
            half = 1 << ((n - 1).bit_length() - 1)
            order = (*kept, index) if along else (index, *kept)
            whole, pairs = (Interval(int_const(0), int_const(m)) for m in (half, n - half))
            names = self._store(self.monoid.combine(values, later(half)), order, {index: pairs}, {index: whole})
            if n < 2 * half:
                alone = Interval(int_const(n - half), int_const(2 * half - n))
                self._assign(names, values, order, {index: alone})
            values, n = self._read(names, order), half
        if n == 1:
            return at(int_const(0))
        return self.monoid.combine(at(int_const(0)), at(int_const(1)))

    def _chain(
        self, values: tuple[Expr, ...], index: str, kept: tuple[str, ...], lower: Expr, extent: Expr
    ) -> tuple[Expr, ...]:
        order = (*kept, index)
        first, whole = Interval(int_const(0), int_const(1)), Interval(int_const(0), simplify_int(extent + 1))
        names = self._store(self.monoid.identity, order, {index: first}, {index: whole})
        before = simplify_int(Index(index) - 1)
        old = [Read(name, (*map(Index, kept), before)) for name in names]
        point = simplify_int(before + lower)
        new = [substitute(v, {index: point}) for v in values]
        self._assign(names, self.monoid.combine(old, new), order, {index: Interval(int_const(1), extent)})
        return tuple(Read(name, (*map(Index, kept), extent)) for name in names)

    # -- making --------------------------------------------------------------------------------------------------
    def _store(
        self,
        values: Sequence[Expr],
        order: Sequence[str],
        bounds: Mapping[str, Interval] | None = None,
        whole: Mapping[str, Interval] | None = None,
        guards: Sequence[GuardedSubscript] = (),
    ) -> list[str]:
        """The components in a tensor each over the indices in `order`, of `whole` extents, where these are within `bounds`."""
        self.n_stages += 1
        like, shape = self.builder.program.tensor(self.s.target), (self.bounds | dict(whole or {}))
        names = [f"{self.s.target}.{self.s.name}.{self.n_stages}.{k}" for k in range(len(values))]
        for name, constant in zip(names, self.monoid.identity, strict=True):
            self.builder.temporary(name, [shape[i] for i in order], like, dtype=constant.dtype)
        self._assign(names, values, order, bounds or {}, guards)
        return names

    def _assign(
        self,
        names: Sequence[str],
        values: Sequence[Expr],
        order: Sequence[str],
        bounds: Mapping[str, Interval],
        guards: Sequence[GuardedSubscript] = (),
    ) -> None:
        """The components in these tensors, for each point of the indices in `order`, some within `bounds` of their own."""
        points = self.builder.box({i: bounds.get(i) or self.bounds[i] for i in order})
        for target, value in zip(names, values, strict=True):
            mine = tuple(g for g in guards if g.read in reads(value))
            name, element = f"{self.s.name}_{len(self.statements)}", tuple(map(Index, order))
            self.statements.append(self.builder.assign(name, target, element, value, points, self.s, guards=mine))

    def _read(self, names: Sequence[str], order: Sequence[str]) -> tuple[Expr, ...]:
        return tuple(Read(name, tuple(map(Index, order))) for name in names)


def _runs_along(values: tuple[Expr, ...], index: str) -> bool:
    """Whether some operand has the index consecutive in memory."""
    return any(r.subscripts and Index(index) in walk(r.subscripts[-1]) for v in values for r in reads(v))
