"""Reverse mode: the program of the adjoints of a program.

    a read            ``T[g(p)] += e(X[f(p)])``
    its contribution  ``d_X[f(p)] += d_T[g(p)] * ∂e/∂X``      over the same points

No tape is kept: what contributions need of the program's own values is read from its statements, which stand in the result.
`sums` makes statements of contributions; adjoints of what a recurrence computes are a recurrence that runs backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

from polyc.gradients.adjoints import Conditions, Scene, find_stored
from polyc.gradients.choices import store_choices
from polyc.gradients.common_factors import add_common_factors
from polyc.gradients.custom import Spliced, rules_of
from polyc.gradients.forward import drop_unused
from polyc.gradients.inputs import Names, check_inputs, check_results, drop_unread, shown_name, take_initial_values
from polyc.gradients.phases import Phased, by_phases
from polyc.gradients.pieces import Term, drop_repeated, find_reached, make_pieces
from polyc.gradients.reductions import seeds_of
from polyc.gradients.rules import is_differentiable, plus, refuse
from polyc.gradients.sharing import share_values
from polyc.gradients.stepwise import write_out_steps
from polyc.gradients.sums import Adjoints, Part, gather, scatter
from polyc.ir.custom_rules import Rule
from polyc.ir.expr import Cast, Const, Expr, Index, Read, int_const, reads
from polyc.ir.program import Program, RangeClause, Return, Statement, Tensor, statement_reads
from polyc.ir.simplify import simplify
from polyc.ir.storage_types import widen_arithmetic
from polyc.ir.types import DType
from polyc.poly.frames import Frame, upper_end
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval
from polyc.records import replace


def vjp(
    program: Program,
    wrt: Sequence[str],
    of: Sequence[str] | None = None,
    *,
    keep: Sequence[str] = (),
    seeded: bool = False,
) -> Program:
    """The program of the products of cotangents with the Jacobian of `program`.

    It takes the inputs of `program`, then a cotangent ``d_Y`` for each of the results `of` (by default all that have
    derivatives), and returns ``d_X`` for each of `wrt`, in the shape and type of X.  The results `keep` of the program itself
    stand before them.  `seeded`: the cotangents are 1 everywhere, and no inputs.  Adjoints of 16-bit floats are summed in f32,
    and rounded once.  What a result Y that is accumulated into holds before the call is one more input ``Y_in``, behind the
    others, where the derivative needs it; `wrt` may name Y for the derivative by that.

    Raises ArgumentError ``argument-gradient`` for what is no floating-point input or result, and UnsupportedError
    ``unsupported-gradient`` for a statement that cannot be differentiated."""
    program, initial = take_initial_values(program, keep)
    inputs = check_inputs(program, [initial.get(n, n) for n in wrt])
    wide = write_out_steps(share_values(widen_arithmetic(program)), inputs)
    return drop_unread(_Reverse(wide, inputs, check_results(wide, of), keep, seeded).run(), initial.values())


class _Reverse:
    """The adjoints of one program."""

    def __init__(
        self, program: Program, wrt: tuple[str, ...], of: tuple[Return, ...], keep: Sequence[str], seeded: bool
    ) -> None:
        self.program, self.wrt, self.of, self.keep, self.seeded = program, wrt, of, keep, seeded
        self.types, self.names, self.writers = program.types, Names(program), program.writers()
        self.ranges = infer_ranges(program)
        self.boxes = self.ranges.tensors
        indices = {i for s in program.statements for i in s.indices}
        self.prefix = next(p for p in ("e" + "_" * n for n in count()) if not any(i.startswith(p) for i in indices))
        moving = set().union(*(program.made_from(n) for n in wrt)) if program.rules else set[str]()
        self.rules = rules_of(program, "vjp", moving)
        self.inside = {n for r in self.rules for n in r.inside}
        self.active = self._find_active()
        self.tensors: list[Tensor] = []
        self.statements: list[Statement] = []
        self.spliced: list[Rule] = []
        self.cotangents = [] if seeded else [(r.version, self._declare_cotangent(r)) for r in of]
        self.gradients = {n: self.names.add(f"d_{shown_name(program, n)}") for n in wrt}
        self.parts: dict[str, list[Part]] = {}
        self.read_actively = {
            r.tensor
            for s in program.statements
            if s.target in self.active and s.target not in self.inside
            for e in _values(s)
            for r in reads(e)
        } & self.active
        self.read_actively |= {n for r in self.rules if not self.active.isdisjoint(r.results) for n in r.inputs} & self.active

    def _find_active(self) -> set[str]:
        """Versions that depend on `wrt` and that results depend on, through values that have derivatives."""
        needs: dict[str, set[str]] = {}
        for s in self.program.statements:
            if is_differentiable(self.types[s.target]) and s.target not in self.inside:
                found = (r.tensor for e in _values(s) for r in reads(e))
                needs.setdefault(s.target, set()).update(n for n in found if is_differentiable(self.types[n]))
        for rule in self.rules:
            for name in rule.results:
                needs.setdefault(name, set()).update(rule.inputs)
        used: dict[str, set[str]] = {}
        for target, read in needs.items():
            for name in read:
                used.setdefault(name, set()).add(target)
        return _reachable(self.wrt, used) & _reachable([r.version for r in self.of], needs)

    # -- tensors
    def _extents(self, version: str) -> tuple[Expr, ...]:
        shape = self.program.tensor(version).shape
        return tuple(simplify(b.extent) for b in self.boxes[version]) if shape is None else shape

    def _from_zero(self, version: str, element: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where an element stands in a tensor whose elements are counted from 0."""
        return tuple(simplify(e - b.lower) for e, b in zip(element, self.boxes[version], strict=True))

    def _declare_cotangent(self, result: Return) -> str:
        name = self.names.add(f"d_{result.name}")
        t = self.program.tensor(result.version)
        self.tensors.append(Tensor(name, t.dtype, t.rank, self._extents(t.name), "input", name, t.span))
        return name

    def _cotangent(self, version: str, element: tuple[Expr, ...]) -> Expr | None:
        """What a call gives for an element of a result."""
        dtype = self.types[version]
        if self.seeded:
            return Const(1.0, dtype.computed) if any(r.version == version for r in self.of) else None
        total: Expr | None = None
        for name in (n for v, n in self.cotangents if v == version):
            given: Expr = Read(name, self._from_zero(version, element))
            total = plus(total, Cast(given, dtype.computed) if dtype.is_storage else given)
        return total

    def _adjoints(self) -> Adjoints:
        """The cotangents and adjoints that can be read: their types, and what they have elements in."""
        given = {n: (self.types[v], [Interval(int_const(0), e) for e in self._extents(v)]) for v, n in self.cotangents}
        return given | {name: (self.types[v].computed, self.boxes[v]) for v, name in self.gradients.items()}

    def adjoint(self, version: str, element: tuple[Expr, ...]) -> Expr:
        """The adjoint of an element."""
        if version not in self.read_actively:
            given = self._cotangent(version, element)
            assert given is not None
            return given
        return Read(self._adjoint_name(version), element)

    def _adjoint_name(self, version: str) -> str:
        if version not in self.gradients:
            self.gradients[version] = self.names.add(
                f"d_{version}.sum" if f"d_{version}" in self.names.taken else f"d_{version}"
            )
        return self.gradients[version]

    # -- the program
    def run(self) -> Program:
        for s in self.program.statements:
            if s.target in self.active and s.target not in self.inside:
                self._differentiate(s)
        for rule in self.rules:
            if not self.active.isdisjoint(rule.results):
                self._apply(rule)
        program = self.program
        others = {r.tensor for s in self.statements for r in statement_reads(s)}
        self.parts, tensors, statements = store_choices(program, self.ranges, self.parts, others, self.names)
        self.tensors += tensors
        self.statements += statements
        for version in (t.name for t in program.tensors if t.name in self.read_actively or t.name in self.wrt):
            self._sum(version)
        kept = [r for r in program.returns if r.name in self.keep]
        versions = {r.version for r in kept} | {r.initial for r in kept}
        own = (replace(t, role="temporary") if t.role == "output" and t.name not in versions else t for t in program.tensors)
        made = replace(
            program,
            name=f"{program.name}_vjp",
            tensors=(*own, *self.tensors),
            parameters=(*program.parameters, *(name for _, name in self.cotangents)),
            returns=(*kept, *(Return(self.gradients[n], self.gradients[n]) for n in self.wrt)),
            statements=(*program.statements, *self.statements),
            rules=(*program.rules, *self.spliced),
        )
        return drop_unused(made, set())

    def _apply(self, rule: Rule) -> None:
        """The contributions of a call with a rule of the user: what that makes of the adjoints of its results."""
        spliced = Spliced(rule, self.names)
        for name, version in zip(spliced.directions, rule.results, strict=True):
            spliced.direct(name, partial(self._rounded_adjoint, version) if version in self.active else None)
        self.tensors += spliced.tensors
        self.statements += spliced.statements
        self.spliced += spliced.rules
        for version, derived in zip(rule.inputs, spliced.derived, strict=True):
            if version in self.active:
                t, box = self.program.tensor(version), self.boxes[version]
                names = tuple(f"i{d}" for d in range(t.rank))
                element = tuple(Index(i, t.span) for i in names)
                value: Expr = Read(derived, self._from_zero(version, element))
                value = Cast(value, t.dtype.computed) if t.dtype.is_storage else value
                s = Statement(derived, version, element, names, value, None, (), t.span)
                self.parts.setdefault(version, []).append(Part(s, dict(zip(names, box, strict=True)), element, ((value, ()),)))

    def _rounded_adjoint(self, version: str, element: tuple[Expr, ...]) -> Expr:
        """The adjoint of an element in the version's own type."""
        dtype, found = self.types[version], self.adjoint(version, element)
        return Cast(found, dtype) if dtype.is_storage else found

    def _differentiate(self, s: Statement) -> None:
        """The contributions of a statement to what it reads."""
        seeds = seeds_of(s, self.program, self.names.add)
        self.tensors += seeds.tensors
        self.statements += seeds.statements
        cotangent = seeds.cotangent(s.value, s.subscripts, self.adjoint(s.target, s.subscripts))
        self._contribute(s, self.ranges.statements[s.name].indices, s.value, *cotangent, find_stored(s, self.types))
        if s.reduction is None or not any(r.tensor in self.active for r in reads(s.reduction.init)):
            return
        init, box = s.reduction.init, self.boxes[s.target]
        if len(self.writers[s.target]) == 1:
            names = s.element_names
            element: tuple[Expr, ...] = tuple(Index(i) for i in names)
        elif s.has_plain_left:
            names, element = s.left_indices, s.subscripts
            box = tuple(self.ranges.statements[s.name].indices[i] for i in names)
        else:
            message = "the derivative of a reduction into a part of a tensor, at computed subscripts, is not supported"
            raise refuse(message, s.span, "reduce into a tensor of its own, and assign from there")
        start = Statement(s.name, s.target, element, names, init, None, (), s.span)
        cotangent = seeds.cotangent(init, element, self.adjoint(s.target, element))
        self._contribute(start, dict(zip(names, box, strict=True)), init, *cotangent, {})

    def _contribute(
        self,
        s: Statement,
        intervals: dict[str, Interval],
        value: Expr,
        cotangent: Expr,
        conditions: Conditions,
        stored: dict[Expr, Read],
    ) -> None:
        scene = Scene(self.active, self.types, self.boxes, stored)
        found: dict[tuple[str, tuple[Expr, ...]], dict[Conditions, Expr]] = {}
        for c in scene.contributions(value, cotangent, conditions):
            terms = found.setdefault((c.read.tensor, c.read.subscripts), {})
            total = plus(terms.get(c.conditions), c.value)
            assert total is not None
            terms[c.conditions] = total
        for (version, subscripts), terms in found.items():
            pairs = tuple((value, conditions) for conditions, value in terms.items())
            self.parts.setdefault(version, []).append(Part(s, intervals, subscripts, pairs))

    # -- sums of contributions
    def _sum(self, version: str) -> None:
        """The statements that make the adjoint of a version."""
        t, box = self.program.tensor(version), self.boxes[version]
        is_result = version in self.wrt
        names = tuple(f"{self.prefix}{d}" for d in range(t.rank))
        element = tuple(Index(i) for i in names)
        dtype, name = t.dtype.computed, self._adjoint_name(version)
        own, role = (t.dtype, "output") if is_result else (dtype, "temporary")
        target = Tensor(name, own, t.rank, t.shape, role, f"d_{t.base}", t.span)  # type: ignore[arg-type]
        given, frame = self._cotangent(version, element), Frame(self.ranges, dict(zip(names, box, strict=True)))
        terms = [] if given is None else [Term(frame.domain, given)]
        apart: list[Statement] = []
        for part in self.parts.get(version, ()):
            gathered = gather(part, names, box, self.ranges, dtype)
            if gathered is not None:
                terms += gathered
            else:
                phased = by_phases(part, box, element)
                if phased.part is part:
                    apart += scatter(part, box, self.ranges, dtype, self._adjoints())
                else:
                    summed = self._sum_by_phases(phased, target, dtype)
                    terms += [] if summed is None else [Term(frame.domain, summed)]
        apart = add_common_factors(apart, self.ranges, dtype, partial(self._store_factor, target, dtype))
        begins_at_zero = all(b.lower == int_const(0) for b in box)
        if not terms and len(apart) == 1 and own == dtype and begins_at_zero:
            self._write(replace(target, shape=self._extents(version)), apart[0])
            return
        extents, place = self._extents(version), self._from_zero(version, element)
        for s in apart:
            reached = find_reached(s, names, box, self.ranges)
            s, kept = drop_repeated(s)
            part_name = self.names.add(f"{name}.part")
            made = Tensor(part_name, dtype, len(kept), tuple(extents[d] for d in kept), "temporary", target.base, t.span)
            self._write(made, s)
            terms.append(Term(reached, Read(made.name, tuple(place[d] for d in kept))))
        for n, piece in enumerate(make_pieces(terms, frame.box, self.ranges, dtype, self.gradients.values())):
            total = piece.value if own == dtype else Cast(piece.value, own)
            where = tuple(RangeClause(i, b.lower, upper_end(b)) for i, b in piece.box.items())
            self._write(None if n else target, Statement("", name, piece.left, tuple(piece.box), total, None, where, t.span))

    def _store_factor(self, like: Tensor, dtype: DType, s: Statement, box: Sequence[Interval]) -> Read:
        """The element at the indices of `s` of a temporary that it is the statement of."""
        extents = tuple(simplify(b.extent) for b in box)
        name = self.names.add(f"{like.name}.factor")
        self._write(Tensor(name, dtype, len(extents), extents, "temporary", like.base, like.span), s)
        return Read(name, s.subscripts)

    def _sum_by_phases(self, phased: Phased, like: Tensor, dtype: DType) -> Expr | None:
        """The contributions of a strided window to the element at `phased.element`."""
        total: Expr | None = None
        element = tuple(simplify(e - b.lower) for e, b in zip(phased.element, phased.box, strict=True))
        for s in scatter(phased.part, phased.box, self.ranges, dtype, self._adjoints()):
            extents = tuple(simplify(b.extent) for b in phased.box)
            own_name = self.names.add(f"{like.name}.phases")
            self._write(Tensor(own_name, dtype, len(extents), extents, "temporary", like.base, like.span), s)
            total = plus(total, Read(own_name, element))
        return total

    def _write(self, target: Tensor | None, s: Statement) -> None:
        """A statement, with its target where that is not declared yet."""
        if target is not None:
            self.tensors.append(target)
            s = replace(s, target=target.name)
        self.statements.append(replace(s, name=self.names.add(f"S_{s.target}")))


def _values(s: Statement) -> Iterator[Expr]:
    yield s.value
    if s.reduction is not None:
        yield s.reduction.init


def _reachable(names: Sequence[str], steps: dict[str, set[str]]) -> set[str]:
    found, stack = set(names), list(names)
    while stack:
        fresh = steps.get(stack.pop(), set()) - found
        found |= fresh
        stack.extend(fresh)
    return found
