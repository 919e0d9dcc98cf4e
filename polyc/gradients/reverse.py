"""Reverse mode: the program of the adjoints of a program.

    a read            ``T[g(p)] += e(X[f(p)])``
    its contribution  ``d_X[f(p)] += d_T[g(p)] * ∂e/∂X``      over the same points

No tape is kept: what contributions need of the program's own values is read from its statements, which stand in the result.  Where ``f`` can be
solved for an index of each dimension (`inversion`), a contribution gathers: it is a statement over the elements of ``d_X``, so that the adjoint
of a convolution is a convolution, and that of a recurrence a recurrence that runs backwards.  One that is no sum then stands in the statement
that adds the contributions up.  Others scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from polyc.gradients.adjoints import Conditions, Scene, select
from polyc.gradients.forward import drop_unused
from polyc.gradients.inputs import Names, check_inputs, check_results
from polyc.gradients.inversion import kept_to, solve
from polyc.gradients.reductions import seeds_of
from polyc.gradients.rules import is_differentiable, plus, refuse
from polyc.ir.expr import Cast, Const, Expr, Index, Read, Select, ge, index_names, int_const, lt, reads, rewrite, substitute
from polyc.ir.program import Condition, Exists, Program, RangeClause, Reduction, Return, Statement, Tensor, Where
from polyc.ir.segments import is_loaded, is_segmented
from polyc.ir.simplify import simplify
from polyc.ir.storage_types import widen_arithmetic
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval
from polyc.records import dataclass, replace


def vjp(
    program: Program,
    wrt: Sequence[str],
    of: Sequence[str] | None = None,
    *,
    keep: Sequence[str] = (),
    seeded: bool = False,
) -> Program:
    """The program of the products of cotangents with the Jacobian of `program`.

    It takes the inputs of `program`, then a cotangent ``d_Y`` for each of the results `of` (by default all that have derivatives), and returns
    ``d_X`` for each of `wrt`, in the shape and type of X.  The results `keep` of the program itself stand before them.  `seeded`: the cotangents
    are 1 everywhere, and no inputs.  Adjoints of 16-bit floats are summed in f32, and rounded once.

    Raises ArgumentError ``argument-gradient`` for what is no floating-point input or result, and UnsupportedError
    ``unsupported-gradient`` for a statement that cannot be differentiated."""
    wide = widen_arithmetic(program)
    return _Reverse(wide, check_inputs(program, wrt), check_results(wide, of), keep, seeded).run()


@dataclass(frozen=True, slots=True)
class _Part:
    """What one statement contributes to the elements at `subscripts` of a version."""

    statement: Statement
    subscripts: tuple[Expr, ...]
    terms: tuple[tuple[Expr, Conditions], ...]


class _Reverse:
    """The adjoints of one program."""

    def __init__(
        self, program: Program, wrt: tuple[str, ...], of: tuple[Return, ...], keep: Sequence[str], seeded: bool
    ) -> None:
        self.program, self.wrt, self.of, self.keep, self.seeded = program, wrt, of, keep, seeded
        self.types, self.names, self.writers = program.types, Names(program), program.writers()
        self.ranges = infer_ranges(program)
        self.boxes = self.ranges.tensors
        self.active = self._find_active()
        self.tensors: list[Tensor] = []
        self.statements: list[Statement] = []
        self.cotangents = {} if seeded else {r.version: self._declare_cotangent(r) for r in of}
        self.parts: dict[str, list[_Part]] = {}
        self.gradients = {n: self.names.add(f"d_{n.removesuffix('.data')}") for n in wrt}
        self.read_actively = {
            r.tensor for s in program.statements if s.target in self.active for e in _values(s) for r in reads(e)
        } & self.active

    def _find_active(self) -> set[str]:
        """Versions that depend on `wrt` and that results depend on, through values that have derivatives."""
        statements = [s for s in self.program.statements if is_differentiable(self.types[s.target])]
        needs = {(s.target, r.tensor) for s in statements for e in _values(s) for r in reads(e) if is_differentiable(self.types[r.tensor])}
        forward, backward = set(self.wrt), {r.version for r in self.of}
        for found, ends in ((forward, {(b, a) for a, b in needs}), (backward, needs)):
            size = -1
            while size < len(found):
                size = len(found)
                found |= {b for a, b in ends if a in found}
        return forward & backward

    # -- tensors
    def _shape(self, version: str) -> tuple[Expr, ...]:
        """The extents of its adjoint, which has elements from 0 on."""
        t = self.program.tensor(version)
        if t.shape is not None:
            return t.shape
        for interval in self.boxes[version]:
            if isinstance(low := simplify(interval.lower), Const) and int(low.value) < 0:
                message = f"{t.base} has elements before 0, and no derivative is taken through it"
                raise refuse(message, t.span, "move its indices, so that they begin with 0")
        return tuple(simplify(i.lower + i.extent) for i in self.boxes[version])

    def _declare_cotangent(self, result: Return) -> str:
        name = self.names.add(f"d_{result.name}")
        t = self.program.tensor(result.version)
        self.tensors.append(Tensor(name, t.dtype, t.rank, self._shape(t.name), "input", name, t.span))
        return name

    def _cotangent(self, version: str, element: tuple[Expr, ...]) -> Expr | None:
        """What a call gives for an element of a result."""
        dtype = self.types[version]
        if not any(r.version == version for r in self.of):
            return None
        if self.seeded:
            return Const(1.0, dtype.computed)
        given = Read(self.cotangents[version], element)
        return Cast(given, dtype.computed) if dtype.is_storage else given

    def _adjoint(self, version: str, element: tuple[Expr, ...]) -> Expr:
        """The adjoint of an element."""
        if version not in self.read_actively:
            given = self._cotangent(version, element)
            assert given is not None
            return given
        return Read(self._adjoint_name(version), element)

    def _adjoint_name(self, version: str) -> str:
        if version not in self.gradients:
            self.gradients[version] = self.names.add(f"d_{version}" if version not in self.cotangents else f"d_{version}.sum")
        return self.gradients[version]

    def _temporary(self, version: str, suffix: str) -> Tensor:
        t = self.program.tensor(version)
        name = self.names.add(f"{self._adjoint_name(version)}.{suffix}")
        return Tensor(name, t.dtype.computed, t.rank, self._shape(version), "temporary", f"d_{t.base}", t.span)

    # -- the program
    def run(self) -> Program:
        for s in self.program.statements:
            if s.target in self.active:
                self._differentiate(s)
        for version in (t.name for t in self.program.tensors if t.name in self.read_actively or t.name in self.wrt):
            self._sum(version)
        program = self.program
        kept = [r for r in program.returns if r.name in self.keep]
        versions = {r.version for r in kept} | {r.initial for r in kept}
        own = tuple(
            replace(t, role="temporary") if t.role == "output" and t.name not in versions else t for t in program.tensors
        )
        returns = [*kept, *(Return(self.gradients[n], self.gradients[n]) for n in self.wrt)]
        made = drop_unused(
            replace(
                program,
                name=f"{program.name}_vjp",
                tensors=(*own, *self.tensors),
                parameters=(*program.parameters, *self.cotangents.values()),
                returns=tuple(returns),
                statements=(*program.statements, *self.statements),
            ),
            set(),
        )
        for t in made.tensors:
            if t.role == "accumulated" and t.name not in versions:
                message = f"the derivative needs what {t.base} holds before the call"
                raise refuse(message, t.span, f"start {t.base} with a value, or take the values before the call as an input")
        return made

    def _differentiate(self, s: Statement) -> None:
        """The contributions of a statement to what it reads."""
        shape = self._shape(s.target)
        seeds = seeds_of(s, self.program, self.names.add, shape)
        self.tensors += seeds.tensors
        self.statements += seeds.statements
        self._contribute(s, s.value, *seeds.cotangent(s.value, s.subscripts, self._adjoint(s.target, s.subscripts)))
        if s.reduction is not None and any(r.tensor in self.active for r in reads(s.reduction.init)):
            if len(self.writers[s.target]) > 1:
                message = "the derivative of a reduction into a part of a tensor that starts with computed values is not supported"
                raise refuse(message, s.span, "reduce into a tensor of its own, and assign from there")
            names = s.element_names
            element = tuple(Index(i) for i in names)
            where = tuple(RangeClause(i, b.lower, simplify(b.lower + b.extent)) for i, b in zip(names, self.boxes[s.target], strict=True))
            start = Statement(f"{s.name}.start", s.target, element, names, s.reduction.init, None, where, s.span)
            self._contribute(start, start.value, *seeds.cotangent(start.value, element, self._adjoint(s.target, element)))

    def _contribute(self, s: Statement, value: Expr, cotangent: Expr, conditions: Conditions) -> None:
        scene = Scene(self.active, self.types, self.boxes)
        found: dict[tuple[str, tuple[Expr, ...]], dict[Conditions, Expr]] = {}
        for c in scene.contributions(value, cotangent, conditions):
            terms = found.setdefault((c.read.tensor, c.read.subscripts), {})
            total = plus(terms.get(c.conditions), c.value)
            assert total is not None
            terms[c.conditions] = total
        for (version, subscripts), terms in found.items():
            part = _Part(s, subscripts, tuple((value, conditions) for conditions, value in terms.items()))
            self.parts.setdefault(version, []).append(part)

    # -- sums of contributions
    def _sum(self, version: str) -> None:
        """The statements that make the adjoint of a version."""
        t = self.program.tensor(version)
        is_result = version in self.wrt
        names = tuple(f"i{d}" for d in range(t.rank))
        element = tuple(Index(i) for i in names)
        dtype = t.dtype.computed
        target = Tensor(
            self._adjoint_name(version),
            t.dtype if is_result else dtype,
            t.rank,
            self._shape(version),
            "output" if is_result else "temporary",
            f"d_{t.base}",
            t.span,
        )
        total = self._cotangent(version, element)
        apart: list[Statement] = []
        for part in self.parts.get(version, ()):
            gathered = self._gather(part, version, names)
            if gathered is not None:
                total = plus(total, gathered)
                continue
            apart += self._reduce(part, version)
        if total is None and len(apart) == 1 and target.dtype == dtype:
            self.tensors.append(target)
            self.statements.append(replace(apart[0], target=target.name))
            return
        for s in apart:
            made = self._temporary(version, "part")
            self.tensors.append(made)
            self.statements.append(replace(s, target=made.name))
            total = plus(total, Read(made.name, element))
        total = Const(0.0, dtype) if total is None else total
        total = total if target.dtype == dtype else Cast(total, target.dtype)
        where = tuple(RangeClause(i, b.lower, simplify(b.lower + b.extent)) for i, b in zip(names, self.boxes[version], strict=True))
        self.tensors.append(target)
        self.statements.append(Statement(self.names.add(f"S_{target.name}"), target.name, element, names, total, None, where, t.span))

    def _intervals(self, s: Statement) -> dict[str, Interval]:
        known = self.ranges.statements.get(s.name)
        if known is not None:
            return known.indices
        return {w.index: Interval(w.lower, simplify(w.upper - w.lower)) for w in s.where if isinstance(w, RangeClause)}

    def _gather(self, part: _Part, version: str, names: tuple[str, ...]) -> Expr | None:
        """What is contributed to the element at `names`, where at most one point reaches it; else None."""
        s = part.statement
        if is_segmented(s) or any(is_loaded(w.condition) for w in s.where if isinstance(w, Condition)):
            return None
        solution = solve(part.subscripts, lambda d, i: names[d], s.indices)
        if None in solution.solved or len(solution.indices) < len(s.indices):
            return None
        intervals, boxes = self._intervals(s), self.boxes[version]
        tests: list[Expr] = []
        for i, value in solution.indices.items():
            own = next((boxes[d] for d, solved in enumerate(solution.solved) if solved == i and value == Index(names[d])), None)
            tests += kept_to(value, intervals[i], own)
        tests += [simplify(substitute(c, solution.indices)) for c in _conditions(s, intervals)]
        total: Expr | None = None
        for value, conditions in part.terms:
            moved = tuple((self._place(c, solution.indices), holds) for c, holds in conditions)
            total = plus(total, select(moved, self._place(value, solution.indices), self.types[version].computed))
        assert total is not None
        return select(tuple((t, True) for t in tests), total, self.types[version].computed)

    @staticmethod
    def _place(expr: Expr, indices: dict[str, Expr]) -> Expr:
        """An expression at the points that indices have become, with subscripts as short as they were."""

        def rule(node: Expr) -> Expr | None:
            return replace(node, subscripts=tuple(map(simplify, node.subscripts))) if isinstance(node, Read) else None

        return rewrite(substitute(expr, indices), rule)

    def _reduce(self, part: _Part, version: str) -> Iterator[Statement]:
        """Sums over the points of a statement, one for all terms where each element has them in a row, else one for each."""
        s, dtype = part.statement, self.types[version].computed
        intervals, boxes, shape = self._intervals(s), self.boxes[version], self._shape(version)
        fixed = {w.index for w in s.where if isinstance(w, RangeClause) and (is_loaded(w.lower) or is_loaded(w.upper))}
        fixed |= {i for w in s.where if isinstance(w, RangeClause) and is_segmented(s) for e in w.expressions for i in index_names(e)}
        new: dict[int, str] = {}

        def name_element(d: int, i: str) -> str:
            if part.subscripts[d] == Index(i):
                return i
            new[d] = f"{i}.to" if f"{i}.to" not in s.indices else f"{i}.to{d}"
            return new[d]

        solution = solve(part.subscripts, name_element, s.indices, fixed)
        indices = {i: e for i, e in solution.indices.items() if e != Index(i)}
        left = tuple(
            self._place(e, indices) if solved is None else Index(new[d]) if d in new else e
            for d, (e, solved) in enumerate(zip(part.subscripts, solution.solved, strict=True))
        )
        where: list[Where] = []
        for i in s.indices:
            if i in indices:
                where += [Condition(test) for test in kept_to(indices[i], intervals[i], None)]
            elif i not in fixed:
                own = intervals[i]
                where.append(RangeClause(i, own.lower, simplify(own.lower + own.extent)))
        where += [RangeClause(i, boxes[d].lower, shape[d]) for d, i in new.items()]
        where += [Condition(simplify(substitute(c, indices))) for c in _conditions(s, intervals)]
        if is_segmented(s):
            where += [w for w in s.where if not isinstance(w, Condition)]
            where += [Exists(s.value)] if not indices else []
        names = dict.fromkeys(n for e in left for n in _in_order(e))
        rest = [i for i in s.indices if i not in indices and i not in names]
        is_plain = None not in solution.solved
        terms = [
            (self._place(value, indices), tuple((self._place(c, indices), holds) for c, holds in conditions))
            for value, conditions in part.terms
        ]
        if is_plain:
            total = reduce(plus, (select(conditions, value, dtype) for value, conditions in terms))
            assert total is not None
            yield self._statement(s, version, left, (*names, *rest), total, tuple(where))
            return
        for value, conditions in terms:
            safe, own_where = left, list(where)
            for condition, holds in conditions:
                if not reads(condition) and holds:
                    own_where.append(Condition(condition))
                else:
                    at = condition
                    safe = tuple(
                        e if isinstance(e, Index) else Select(at, e, int_const(0)) if holds else Select(at, int_const(0), e)
                        for e in safe
                    )
            kept = tuple((c, holds) for c, holds in conditions if reads(c) or not holds)
            yield self._statement(s, version, safe, (*names, *rest), select(kept, value, dtype), tuple(own_where))

    def _statement(
        self, s: Statement, version: str, left: tuple[Expr, ...], indices: tuple[str, ...], value: Expr, where: tuple[Where, ...]
    ) -> Statement:
        names = dict.fromkeys(n for e in left for n in _in_order(e))
        ordered = (*names, *(i for i in indices if i not in names))
        reduction = Reduction("add", Const(0.0, self.types[version].computed))
        return Statement(self.names.add(f"{s.name}_{self._adjoint_name(version)}"), "", left, ordered, value, reduction, where, s.span)


def _values(s: Statement) -> Iterator[Expr]:
    yield s.value
    if s.reduction is not None:
        yield s.reduction.init


def _in_order(expr: Expr) -> list[str]:
    from polyc.ir.expr import walk

    return [n.name for n in walk(expr) if isinstance(n, Index)]


def _conditions(s: Statement, intervals: dict[str, Interval]) -> Iterator[Expr]:
    """The conditions of a statement, and the bounds of its ranges that other indices make."""
    for w in s.where:
        if isinstance(w, Condition):
            yield w.condition
        elif isinstance(w, RangeClause) and not (is_loaded(w.lower) or is_loaded(w.upper)):
            if index_names(w.lower):
                yield ge(Index(w.index), w.lower)
            if index_names(w.upper):
                yield lt(Index(w.index), w.upper)
