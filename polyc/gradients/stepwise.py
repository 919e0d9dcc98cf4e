"""Products, and reductions by a monoid of the user, as recurrences, for the reverse mode.

    before  ``T[i] *= v[i, r]``
    after   ``P[i, r] = r > 0 ? P[i, r - 1] * v[i, r - 1] : init``, ``T[i] = P[i, R]``

The adjoint of that runs backwards and combines what stands behind each value.  So the derivative by a factor is the product of
all others, whatever is 0 or rounds to it; that of any associative function is right, whether what it does can be undone or not;
and so are derivatives of derivatives.  It is the rule of scans from both sides (Bruun, Larsen, Henriksen, Oancea, "Reverse-mode
AD of multi-reduce and scan in Futhark", IFL 2023).  Of several indices the last one is reduced first.  Products with running
ends share their steps: ``T[n] *= v[k] where k <= n`` is ``P[n + 1]``.

A monoid's first value is taken as it is, and values that conditions leave out are passed by: an identity is not combined with
anything, as the derivative there may be NaN (that of ``logaddexp`` at -inf).
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.gradients.adjoints import conditions_of
from polyc.gradients.inputs import Names
from polyc.gradients.rules import is_differentiable
from polyc.ir.expr import (
    Call,
    Const,
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
    operands_of,
    reads,
    substitute,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, RangeClause, Statement, Tensor, Where, tuple_components
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import simplify
from polyc.ir.types import BOOL, DType
from polyc.poly.frames import Frame, kept_to, upper_end
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace


def write_out_steps(program: Program, wrt: Sequence[str]) -> Program:
    """The program with recurrences for the products and monoids that depend on `wrt`, where each element of the result is at a
    place that indices name; the very same program where there are none."""
    inside = {n for r in program.rules for n in r.inside}
    moving = set().union(*(program.made_from(n) for n in wrt)) - inside
    groups: dict[object, list[Statement]] = {}
    for s in program.statements:
        if s.target in moving and _is_ordered(s, program):
            assert s.reduction is not None
            own = s.reduction.monoid
            key = s.name if own is None else (own, s.subscripts, tuple_components(s), s.where)
            groups.setdefault(key, []).append(s)
    if not groups:
        return program
    writer = _Writer(program, infer_ranges(program))
    new = {s.name: [s] for s in program.statements}
    for group in groups.values():
        if writer.write_out(group):
            new |= {s.name: [] for s in group} | {group[0].name: writer.statements}
            writer.statements = []
    statements = tuple(s for own in new.values() for s in own)  # in place: what reads them is inferred from what stands before
    return replace(program, tensors=(*program.tensors, *writer.tensors), statements=statements)


def _is_ordered(s: Statement, program: Program) -> bool:
    r = s.reduction
    if r is None or not s.has_plain_left or any(loaded_clauses(s.where)):
        return False
    return r.monoid is not None or (r.op == "mul" and is_differentiable(program.types[s.target]))


@dataclass(frozen=True, slots=True)
class _Values:
    """What is combined at points of some indices, component by component; `present`: which of it is there (None: all)."""

    components: tuple[Expr, ...]
    present: Expr | None = None


class _Writer:
    """What the reductions of one program become."""

    def __init__(self, program: Program, ranges: Ranges) -> None:
        self.program, self.ranges, self.names = program, ranges, Names(program)
        self.writers = program.writers()
        self.sizes = Frame(ranges, {})
        self.tensors: list[Tensor] = []
        self.statements: list[Statement] = []

    def write_out(self, group: Sequence[Statement]) -> bool:
        """Whether it is done for the components of one reduction: the elements have to be those of the points."""
        s = self.s = group[0]
        assert s.reduction is not None
        self.intervals = self.ranges.statements[s.name].indices
        for one in group:
            own = [self.intervals[i] for i in s.left_indices]
            if len(self.writers[one.target]) == 1 and own != list(self.ranges.tensors[one.target]):
                return False
        self.monoid = s.reduction.monoid
        if self.monoid is None:
            self._write_product(s)
        else:
            values = self._reduce(
                s.left_indices, self._begin(list(conditions_of(s)), tuple_components(s)), self.monoid.identity
            )
            for one in group:
                assert one.reduction is not None
                self._assign(one, values.components[one.reduction.component])
        return True

    def _write_product(self, s: Statement) -> None:
        assert s.reduction is not None
        init, one = s.reduction.init, identity_of("mul", self.program.types[s.target])
        conditions = list(conditions_of(s))
        running = self._find_running_end(conditions) if len(s.reduction_indices) == 1 else None
        left, end = s.left_indices, None
        if running is not None:
            index, end, test = running
            conditions.remove(test)
            left = tuple(i for i in left if i != index)
        starts_there = running is None and len(s.reduction_indices) == 1
        values = self._begin(conditions, (s.value,), left)
        values = self._reduce(left, values, (init if starts_there else one,), end)
        (value,) = values.components
        self._assign(s, value if starts_there or init == one else Call("mul", (init, value)))

    def _begin(self, conditions: Sequence[Expr], values: Sequence[Expr], left: Sequence[str] | None = None) -> _Values:
        """The values at all points, stored."""
        indices = (*(self.s.left_indices if left is None else left), *self.s.reduction_indices)
        identities = self._identities()
        present = all_hold(conditions) if conditions else None
        found = []
        for value, identity in zip(values, identities, strict=True):
            chosen = value if present is None else Select(present, value, identity)
            found.append(self._define("values", identity.dtype, indices, chosen))
        if present is not None and self.monoid is not None:
            return _Values(tuple(found), self._define("present", BOOL, indices, present))
        return _Values(tuple(found))

    def _reduce(self, left: Sequence[str], values: _Values, starts: Sequence[Expr], end: Expr | None = None) -> _Values:
        """All of them combined, for each point of `left`; `end`: how far, where that is not the end of the range."""
        for n in range(len(self.s.reduction_indices), 0, -1):
            outer, r = (*left, *self.s.reduction_indices[: n - 1]), self.s.reduction_indices[n - 1]
            values = self._step(outer, r, values, starts, end)
        return values

    def _step(self, outer: tuple[str, ...], r: str, values: _Values, starts: Sequence[Expr], end: Expr | None) -> _Values:
        """The values combined along one index."""
        interval, place = self.intervals[r], Index(r)
        before, upper = simplify(place - 1), upper_end(interval)
        indices, element = (*outer, r), tuple(map(Index, outer))
        steps = Interval(interval.lower, simplify(interval.extent + 1))
        dtypes = [c.dtype for c in self._identities()]
        names = [self._declare("steps", dtype, len(indices)) for dtype in dtypes]
        held = [Read(n, (*element, before), self.s.span) for n in names]
        here = [substitute(v, {r: before}) for v in values.components]
        begun: Expr = gt(before, interval.lower)
        present = None if values.present is None else substitute(values.present, {r: before})
        flag = None
        if present is not None:
            flag = self._declare("begun", BOOL, len(indices))
            begun = Read(flag, (*element, before), self.s.span)
            any_ = Select(gt(place, interval.lower), Call("or", (begun, present)), Const(False, BOOL))
            self._add(flag, indices, any_, {r: steps})
        for k, combined in enumerate(self._combine(held, here)):
            value = combined if self.monoid is None else Select(begun, combined, here[k])
            if present is not None:
                value = Select(present, value, held[k])
            self._add(names[k], indices, Select(gt(place, interval.lower), value, starts[k]), {r: steps})
        there = (*element, upper if end is None else end)
        is_empty = not self.sizes.implies(ge(interval.extent, 0)) and end is None
        some = gt(interval.extent, 0)
        found = [Read(n, there, self.s.span) for n in names]
        components = tuple(Select(some, f, i) if is_empty else f for f, i in zip(found, starts, strict=True))
        if flag is not None:
            last = Read(flag, there, self.s.span)
            return _Values(components, Select(some, last, Const(False, BOOL)) if is_empty else last)
        is_some = self.monoid is None or self.sizes.implies(some)
        return _Values(components, None if is_some else some)

    def _identities(self) -> tuple[Const, ...]:
        return (identity_of("mul", self.program.types[self.s.target]),) if self.monoid is None else self.monoid.identity

    def _combine(self, left: Sequence[Expr], right: Sequence[Expr]) -> Sequence[Expr]:
        return [Call("mul", (*left, *right))] if self.monoid is None else self.monoid.combine(left, right)

    def _find_running_end(self, conditions: Sequence[Expr]) -> tuple[str, Expr, Expr] | None:
        """A left index that says, by one condition and nothing else, where the factors of an element end: the index, the end,
        and the condition."""
        (r,), frame = self.s.reduction_indices, Frame(self.ranges, {i: self.intervals[i] for i in self.s.left_indices})
        interval = self.intervals[r]
        for n in self.s.left_indices:
            tests = [c for c in conditions if n in index_names(c)]
            if len(tests) != 1 or n in index_names(self.s.value) or len(operands_of(tests[0], "and")) > 1:
                continue
            end = _end_by(tests[0], r)
            if end is None or index_names(end) != {n} or abs((index_coefficients(end) or {}).get(n, 0)) != 1:
                continue
            if all(map(frame.implies, kept_to(end, Interval(interval.lower, simplify(interval.extent + 1))))):
                return n, end, tests[0]
        return None

    # -- statements
    def _define(self, wanted: str, dtype: DType, indices: tuple[str, ...], value: Expr) -> Expr:
        """A temporary for a value at all points of some indices; its element there."""
        name = self._declare(wanted, dtype, len(indices))
        self._add(name, indices, value, {})
        return Read(name, tuple(map(Index, indices)), self.s.span)

    def _declare(self, wanted: str, dtype: DType, rank: int) -> str:
        name = self.names.add(f"{self.s.target}.{wanted}")
        base = self.program.tensor(self.s.target).base
        self.tensors.append(Tensor(name, dtype, rank, None, "temporary", base, self.s.span))
        return name

    def _add(self, target: str, indices: tuple[str, ...], value: Expr, other: dict[str, Interval]) -> None:
        box = {i: other.get(i, self.intervals[i]) for i in indices}
        where: tuple[Where, ...] = tuple(RangeClause(i, b.lower, upper_end(b)) for i, b in box.items())
        element = tuple(map(Index, indices))
        name = self.names.add(f"S_{target}")
        self.statements.append(Statement(name, target, element, indices, value, None, where, self.s.span))

    def _assign(self, s: Statement, value: Expr) -> None:
        where = tuple(RangeClause(i, self.intervals[i].lower, upper_end(self.intervals[i])) for i in s.left_indices)
        self.statements.append(Statement(s.name, s.target, s.subscripts, s.left_indices, value, None, where, s.span))


def _end_by(test: Expr, r: str) -> Expr | None:
    """What `r` is less than where a comparison holds; None for others."""
    if not isinstance(test, Call) or test.op not in ("lt", "le", "gt", "ge") or reads(test):
        return None
    less, more = test.args if test.op in ("lt", "le") else test.args[::-1]
    rest = simplify(more - less)
    if (index_coefficients(rest) or {}).get(r) != -1:
        return None
    end = simplify(rest + Index(r))
    return simplify(end + int_const(1)) if test.op in ("le", "ge") else end
