"""Forward mode: beside every statement one for its tangent.

    before  ``H[m, n] += X[m, k] * W[n, k]``
    after   that, and ``t_H[m, n] += t_X[m, k] * W[n, k] + X[m, k] * t_W[n, k] exists X[m, k] * W[n, k]``

Points and regions are those of the statement itself, which is why its value stays as an `Exists` clause.  Sums of tangents are
tangents of sums; of other reductions:

- ``T max= e``: the mean of the tangents of all e that are the largest value, as sums and numbers of those.
- ``T *= e``: products of dual numbers (p, p'), a monoid of tuples, which is exact whatever factors are 0.
- a user's monoid: the same with each component beside its tangent: the derivative of an associative function is one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from polyc.gradients.custom import Spliced, rules_of
from polyc.gradients.inputs import Names, add_number, check_inputs, check_results, differentiable_results, shown_name
from polyc.gradients.rules import is_differentiable, plus, refuse, tangent, times
from polyc.gradients.sharing import share_values
from polyc.ir.custom_rules import Rule
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    identity_of,
    index_names,
    int_const,
    reads,
    substitute,
    walk,
)
from polyc.ir.program import (
    Exists,
    Monoid,
    Program,
    RangeClause,
    Reduction,
    Return,
    Role,
    Statement,
    Tensor,
    element_names,
    statement_expressions,
    tuple_components,
)
from polyc.ir.simplify import simplify
from polyc.ir.storage_types import widen_arithmetic
from polyc.poly.infer import infer_ranges
from polyc.records import replace


def jvp(program: Program, wrt: Sequence[str]) -> Program:
    """The program that takes a tangent for each input in `wrt` (``t_X``, in the shape of X) behind its inputs, and returns the
    tangent of each floating-point result (``t_Y``) behind its results.

    Names that the program has already get a number: ``t_X2``.  Other inputs, and what a result that is accumulated into holds
    before, count as constants.  Raises ArgumentError ``argument-gradient`` for what is no floating-point input, and
    UnsupportedError ``unsupported-gradient``."""
    return _Forward(share_values(widen_arithmetic(program)), check_inputs(program, wrt)).run()


class _Forward:
    """The tangents of one program."""

    def __init__(self, program: Program, wrt: tuple[str, ...]) -> None:
        self.program, self.types, self.wrt = program, program.types, wrt
        self.results = check_results(program)
        self.names = Names(program)
        self.writers = program.writers()
        self.new: dict[str, Tensor] = {}
        self.statements: list[Statement] = []
        self.rules: list[Rule] = []
        self.spliced: list[Rule] = []
        self.inside: set[str] = set()
        moving = self._find_moving()
        if program.rules:
            self.rules = [r for r in rules_of(program, "jvp", moving) if not moving.isdisjoint(r.inputs)]
            self.inside = {n for r in self.rules for n in r.inside}
        wanted = [t.name for t in program.tensors if t.name in moving]
        self.tangents = {n: self.names.add(f"t_{shown_name(program, n)}") for n in dict.fromkeys((*wrt, *wanted))}

    def _find_moving(self) -> set[str]:
        """Versions that have a tangent: those that depend on `wrt`, the results, and where one in `Pad` needs it."""
        moving, is_new = set(self.wrt), True
        while is_new:
            found = {s.target for s in self.program.statements if s.target not in moving and self._moves(s, moving)}
            is_new = bool(found)
            moving |= found
        moving |= {r.version for r in self.results}
        for s in self.program.statements:
            pads = [n for e in statement_expressions(s) for n in walk(e) if isinstance(n, Pad)]
            moving |= {n.read.tensor for n in pads if any(r.tensor in moving for r in reads(n.value))}
        return moving

    def _moves(self, s: Statement, moving: set[str]) -> bool:
        if not is_differentiable(self.types[s.target]):
            return False

        def of_read(expr: Expr) -> Expr | None:
            own = [expr] if isinstance(expr, Read) else [expr.read, expr.value] if isinstance(expr, Pad) else []
            return expr if any(r.tensor in moving for e in own for r in _outer_reads(e)) else None

        values = [s.value] if s.reduction is None else [*self._components(s), s.reduction.init]
        return any(tangent(v, self.types, of_read) is not None for v in values)

    def _components(self, s: Statement) -> tuple[Expr, ...]:
        is_tuple = s.reduction is not None and s.reduction.monoid is not None
        return tuple_components(s) if is_tuple else (s.value,)

    # -- expressions
    def move(self, expr: Expr) -> Expr | None:
        """The tangent of an expression."""
        return tangent(expr, self.types, self._move_read)

    def _move_read(self, expr: Expr) -> Expr | None:
        match expr:
            case Read(name, subscripts, span):
                return Read(self.tangents[name], subscripts, span) if name in self.tangents else None
            case Pad(read, value, span, mode):
                inside, outside = self._move_read(read), self.move(value)
                if inside is None:
                    return None
                assert isinstance(inside, Read)
                return Pad(inside, outside or identity_of("add", self.types[read.tensor]), span, mode)
        return None

    def zero(self, version: str) -> Const:
        return identity_of("add", self.types[version])

    # -- the program
    def run(self) -> Program:
        program = self.program
        for name in self.wrt:
            self._declare(name, "input")
        for t in program.tensors:
            if t.name in self.tangents and t.name not in self.wrt:
                self._declare(t.name, "output" if any(r.version == t.name for r in self.results) else "temporary")
                if t.role in ("input", "accumulated"):
                    self._stand_still(t)
        for s in program.statements:
            self.statements.append(s)
            if s.target in self.tangents and s.target not in self.inside:
                self._add_tangent(s)
        for rule in self.rules:
            self._add_rule(rule)
        returns = [*program.returns, *(self._return(r) for r in differentiable_results(program))]
        moved = replace(
            program,
            name=f"{program.name}_jvp",
            tensors=(*program.tensors, *self.new.values()),
            parameters=(*program.parameters, *(self.tangents[n] for n in self.wrt)),
            returns=tuple(returns),
            statements=tuple(self.statements),
            rules=(*program.rules, *self.spliced),
        )
        return drop_unused(moved, {t.name for t in program.tensors})

    def _declare(self, version: str, role: Role) -> None:
        t, name = self.program.tensor(version), self.tangents[version]
        base, shape = name if role == "input" else f"t_{t.base}", t.shape
        if shape is None and any(reads(e) for s in self.writers.get(version, ()) for e in s.subscripts):
            # What is added to says how large it is, and its tangent may be 0.
            box = infer_ranges(self.program).tensors[version]
            shape = tuple(simplify(b.extent) for b in box) if all(b.lower == int_const(0) for b in box) else None
        self.new[name] = replace(t, name=name, role=role, base=base, shape=shape)

    def _return(self, r: Return) -> Return:
        taken = {x.name for x in self.program.returns} | {*self.program.parameters, *(self.tangents[n] for n in self.wrt)}
        return replace(r, name=add_number(f"t_{r.name}", taken), version=self.tangents[r.version], initial=None)

    def _add_rule(self, rule: Rule) -> None:
        """What the user's rule makes of the tangents of the inputs, for the results of a call."""
        spliced = Spliced(rule, self.names)
        for name, version in zip(spliced.directions, rule.inputs, strict=True):
            moved = self.tangents.get(version)
            spliced.direct(name, None if moved is None else lambda element, moved=moved: Read(moved, element))  # type: ignore[misc]
        self.new |= {t.name: t for t in spliced.tensors}
        self.statements += spliced.statements
        self.spliced += spliced.rules
        for version, derived in zip(rule.results, spliced.derived, strict=True):
            if version in self.tangents:
                t = self.program.tensor(version)
                element = tuple(Index(f"i{d}", t.span) for d in range(t.rank))
                name, order = self.names.add(f"S_{self.tangents[version]}"), tuple(i.name for i in element)
                value = Read(derived, element)
                self.statements.append(Statement(name, self.tangents[version], element, order, value, None, (), t.span))

    def _stand_still(self, t: Tensor) -> None:
        """A tangent of zeros, of an input that does not move."""
        indices = tuple(f"i{d}" for d in range(t.rank))
        element = tuple(Index(i, t.span) for i in indices)
        where = (Exists(Read(t.name, element, t.span), t.span),) if t.rank else ()
        name = self.names.add(f"{self.tangents[t.name]}_0")
        self.statements.append(Statement(name, self.tangents[t.name], element, indices, self.zero(t.name), None, where, t.span))

    def _add_tangent(self, s: Statement) -> None:
        if s.reduction is None:
            self._add(s, value=self.move(s.value) or self.zero(s.target))
        elif s.reduction.monoid is not None:
            self._add_of_monoid(s)
        elif s.reduction.op == "add":
            init = self._init(s, self.tangents[s.target], self.move(s.reduction.init))
            reduction = replace(s.reduction, init=init)
            self._add(s, value=self.move(s.value) or self.zero(s.target), reduction=reduction)
        elif all(e is None for e in (self.move(s.value), self.move(s.reduction.init))):
            self._reduce(s, self.tangents[s.target], self.zero(s.target), Reduction("add", self.zero(s.target)))
        elif s.reduction.op in ("max", "min"):
            self._add_of_extremum(s)
        elif s.reduction.op == "mul":
            self._add_of_product(s)
        else:
            raise refuse(f"the derivative of a reduction by {s.reduction.op} is not supported", s.span, "sum, or multiply")

    def _add(self, s: Statement, **changes: object) -> None:
        """The statement for the tangent of what `s` writes, at the same points."""
        told = [e for e in self._components(s) if reads(e)]
        reduction = changes.get("reduction", s.reduction)
        if isinstance(reduction, Reduction) and s.reduction is not None and s.has_plain_left and not reads(reduction.init):
            start = substitute(s.reduction.init, dict(zip(s.element_names, s.subscripts, strict=True)))
            told += [start] if reads(start) else []  # it bounds what its tangent, which is 0, does not
        where = (*s.where, *(Exists(e, s.span) for e in told))
        fields = {"target": self.tangents[s.target], "where": where} | changes
        self.statements.append(replace(s, name=self.names.add(f"{s.name}_t"), **fields))  # type: ignore[arg-type]

    def _init(self, s: Statement, target: str, init: Expr | None) -> Expr:
        """An initial value over the names of the elements of `target`."""
        if init is None:
            return identity_of("add", self.types[s.target])
        new = element_names(target, s.subscripts)
        return substitute(init, {old: Index(name) for old, name in zip(s.element_names, new, strict=True)})

    # -- reductions
    def _helper(self, s: Statement, suffix: str) -> str:
        """A temporary in the shape of what `s` writes."""
        like = self.program.tensor(s.target)
        name = self.names.add(f"{s.target}.{suffix}")
        self.new[name] = replace(like, name=name, role="temporary", base=f"{like.base}.{suffix}")
        return name

    def _reduce(self, s: Statement, target: str, value: Expr, reduction: Reduction) -> None:
        self._add(s, target=target, value=value, reduction=reduction)

    def _add_of_region(self, s: Statement, value: Expr) -> None:
        """``t_T[…] = value`` for the elements that a reduction writes, by `Statement.element_names`."""
        names = s.element_names
        where: tuple[RangeClause, ...] = ()
        if len(self.writers[s.target]) > 1:
            left = set(s.left_indices)
            where = tuple(w for w in s.where if isinstance(w, RangeClause) and w.index in left)
            if not s.has_plain_left or not index_names(*(e for w in where for e in w.expressions)) <= left:
                raise self._refuse_part(s)
        name = self.names.add(f"{s.name}_t")
        element = tuple(Index(n, s.span) for n in names)
        self.statements.append(Statement(name, self.tangents[s.target], element, names, value, None, where, s.span))

    def _refuse_part(self, s: Statement) -> Exception:
        message = "the derivative of a reduction into a part of a tensor, at computed subscripts, is not supported"
        return refuse(message, s.span, "reduce into a tensor of its own, and assign from there")

    def _add_of_extremum(self, s: Statement) -> None:
        """The mean of the tangents at all points where the value is the largest (least); the initial value, where it is none
        of no points, is one of them.  NaN where there are points and none is found (see `reductions`)."""
        assert s.reduction is not None
        dtype = self.types[s.target]
        value, init = s.value, s.reduction.init
        total, number = self._helper(s, "tangents"), self._helper(s, "ties")
        one, zero = Const(1.0, dtype), self.zero(s.target)
        hit = Call("eq", (value, Read(s.target, s.subscripts, s.span)))
        moved = self.move(value) or zero
        starts: dict[str, Expr] = {total: zero, number: zero}
        if init != identity_of(s.reduction.op, dtype):
            first = Call("eq", (init, Read(s.target, tuple(map(Index, s.element_names)), s.span)))
            starts = {total: Select(first, self.move(init) or zero, zero), number: Select(first, one, zero)}
        for target, then, other in ((total, moved, zero), (number, one, zero)):
            start = self._init(s, target, starts[target])
            self._reduce(s, target, Select(hit, then, other), Reduction("add", start))
        element = tuple(map(Index, s.element_names))
        ties = Read(number, element)
        mean = Call("truediv", (Read(total, element), Call("max", (ties, one))))
        has_points = Call("ne", (Read(s.target, element), identity_of(s.reduction.op, dtype)))
        is_lost = Call("and", (Call("eq", (ties, zero)), has_points))
        self._add_of_region(s, Select(is_lost, Const(nan, dtype), mean))

    def _add_of_product(self, s: Statement) -> None:
        """Products of dual numbers: (p, p') (q, q') = (p q, p q' + p' q)."""
        assert s.reduction is not None
        self._check_monoid(s)
        dtype, init = self.types[s.target], s.reduction.init
        one, zero = identity_of("mul", dtype), self.zero(s.target)
        dual = _move_monoid(Monoid("product", (one,), (Call("mul", (_side("left", 0), _side("right", 0))),)))
        moved = self.move(s.value) or zero
        if init == one:
            value = Call("tuple", (moved, s.value))
            self._add(s, value=value, reduction=Reduction("combine", zero, dual, 1))
            return
        product, change = self._helper(s, "factor"), self._helper(s, "tangents")
        self._reduce(s, product, s.value, Reduction("mul", one))
        self._reduce(s, change, Call("tuple", (moved, s.value)), Reduction("combine", zero, dual, 1))
        element = tuple(map(Index, s.element_names))
        total = plus(times(self.move(init), Read(product, element)), times(init, Read(change, element)))
        assert total is not None
        self._add_of_region(s, total)

    def _add_of_monoid(self, s: Statement) -> None:
        """The component of the monoid of components and their tangents."""
        assert s.reduction is not None
        assert s.reduction.monoid is not None
        monoid, k = s.reduction.monoid, s.reduction.component
        values = tuple_components(s)
        places = [j for j, c in enumerate(monoid.identity) if is_differentiable(c.dtype)]
        moved = [self.move(values[j]) or identity_of("add", monoid.identity[j].dtype) for j in places]
        wider = _move_monoid(monoid)
        own = len(values) + places.index(k)
        components = [*values, *moved]
        value = Call("tuple", (components[own], *components[:own], *components[own + 1 :]))
        self._add(s, value=value, reduction=Reduction("combine", wider.identity[own], wider, own))

    def _check_monoid(self, s: Statement) -> None:
        """UnsupportedError where a product cannot be one of tuples."""
        made = self.program.made_from(s.target)
        if any(r.tensor in made for e in statement_expressions(s) for r in reads(e)):
            message = "the derivative of a product of values that depend on it is not supported"
            raise refuse(message, s.span, "multiply step by step: P(n) = P(n - 1) * x(n)")
        if not s.has_plain_left:
            message = "the derivative of a product at computed subscripts is not supported in the forward mode"
            raise refuse(message, s.span, "use the reverse mode, vjp, or sort the factors into rows first")


def _outer_reads(expr: Expr) -> list[Read]:
    return [expr] if isinstance(expr, Read) else list(reads(expr))


def _side(side: str, k: int) -> Read:
    return Read(f"{side}.{k}", ())


def _move_monoid(monoid: Monoid) -> Monoid:
    """The monoid of the components and, behind them, the tangents of those that have one."""
    n = len(monoid.identity)
    places = [j for j, c in enumerate(monoid.identity) if is_differentiable(c.dtype)]
    own = {f"{side}.{j}": _side(side, n + p) for side in ("left", "right") for p, j in enumerate(places)}

    def of_read(expr: Expr) -> Expr | None:
        return own.get(expr.tensor) if isinstance(expr, Read) else None

    zeros = [identity_of("add", monoid.identity[j].dtype) for j in places]
    moved = [tangent(monoid.results[j], monoid.types, of_read) for j in places]
    results = [m or z for m, z in zip(moved, zeros, strict=True)]
    return Monoid(f"tangent of {monoid.name}", (*monoid.identity, *zeros), (*monoid.results, *results))


def drop_unused(program: Program, kept: set[str]) -> Program:
    """The program without statements for versions that no result needs, those of `kept` excepted."""
    needs: dict[str, set[str]] = {}
    for s in program.statements:
        needs.setdefault(s.target, set()).update(r.tensor for e in statement_expressions(s) for r in reads(e))
    stack = [r.version for r in program.returns] + [n for n in needs if n in kept]
    live = set(stack)
    while stack:
        fresh = needs.get(stack.pop(), set()) - live
        live |= fresh
        stack.extend(fresh)
    tensors = tuple(t for t in program.tensors if t.name in live or t.name in kept or t.role == "input")
    return replace(program, tensors=tensors, statements=tuple(s for s in program.statements if s.target in live))
