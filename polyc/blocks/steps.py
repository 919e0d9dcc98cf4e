"""Time loops whose steps read neighbours: a chain of programs of a few steps each, which blocks exchange halos between.

A recurrence ``S[t, i] = f(S[t-1, i-1], S[t-1, i], …)`` needs all of its axes in one block, if all steps are one task.  Here it
is cut along t: the program of k steps has the states before them as inputs, ``S₀[i]``, … and its steps written out as
statements ``S₁[i] = f(S₀[i-1], …)``, so that regions, borders and what cannot be cut are those of any chain of statements:
a block reads a halo k times as deep as a step's, and computes what is left of it after each step (overlapped, or trapezoidal,
tiling; Krishnamoorthy et al., "Effective automatic parallelization of stencil computations", PLDI 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from polyc.blocks.programs import keep_results
from polyc.ir.components import Component, order_components
from polyc.ir.expr import (
    Const,
    Expr,
    Index,
    Read,
    Size,
    evaluate,
    ge,
    index_names,
    int_const,
    lt,
    map_children,
    mentions,
    reads,
    size_names,
    substitute,
)
from polyc.ir.program import (
    Condition,
    Program,
    RangeClause,
    Return,
    Statement,
    Tensor,
    map_statement,
    statement_expressions,
    statement_reads,
)
from polyc.ir.simplify import simplify
from polyc.ir.types import I64
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval, Ranges
from polyc.records import replace

State = tuple[str, int]
"""A tensor of a time loop, at one time."""

WHOLE = -1 << 62
"""The time of all states of a tensor together, as one array."""


@dataclass(frozen=True, eq=False)
class Part:
    """A program that makes some states, and other tensors, by their names: `results` says which is which."""

    program: Program
    ranges: Ranges
    results: Mapping[State, str]
    inputs: Mapping[State, str]
    """The states it is given, counted from its first step."""
    start: str | None = None
    """The number that its first step is, where it speaks of it."""
    count: str | None = None
    """The number of its steps, where that is any."""


@dataclass(frozen=True, eq=False)
class TimeLoop:
    """A recurrence over `steps` along dimension `axis` of its tensors.

    `depths`: for each tensor how many steps back it is read.  `needed`: states that the rest of the program reads; `kept`:
    tensors of which it reads all, or that are results.
    `crossing`: dimensions of states along which a step reads neighbours."""

    program: Program
    ranges: Ranges
    sizes: Mapping[str, int]
    component: Component
    axis: int
    steps: range
    depths: Mapping[str, int]
    needed: frozenset[State]
    kept: frozenset[str]
    crossing: frozenset[int]
    _parts: dict[object, Part] = field(default_factory=dict)

    @property
    def given(self) -> list[str]:
        """Tensors that steps read and that are computed before."""
        computed = {s.target for s in self.program.statements} - set(self.component.versions)
        found = (r.tensor for s in self.moving for r in statement_reads(s) if r.tensor in computed)
        return list(dict.fromkeys(found))

    def carried(self, now: int) -> list[State]:
        """What a step at time `now` may read of those before."""
        return [(v, now - back) for v, depth in self.depths.items() for back in range(1, depth + 1)]

    def begin(self) -> Part:
        """What there is before the first step: states, by absolute times, and the tensors `given` under their own names."""
        wanted = self.before_first()
        fixed = [(s, self.fixed_time(s.subscripts[self.axis])) for s in self.component.statements]
        return self.remember("begin", lambda: self._make([(s, t, int_const(t)) for s, t in fixed if t is not None], wanted))

    def first_time(self, tensor: str) -> int:
        """The first time that a tensor has."""
        return evaluate(self.ranges.tensors[tensor][self.axis].lower, self.sizes)

    def before_first(self) -> list[State]:
        """The states before the first step that something reads."""
        before = [(v, time) for v in sorted(self.kept) for time in range(self.first_time(v), self.steps.start)]
        return [*self.carried(self.steps.start), *(s for s in self.needed if s[1] < self.steps.start), *before]

    def advance(self, count: int, wanted: Iterable[State]) -> Part:
        """`count` steps, with results `wanted`; times are counted from the first of them."""
        wanted = tuple(sorted(set(wanted)))
        start = free("step", self.names())
        moments = [(s, t, simplify(Size(start) + t)) for t in range(count) for s in self.moving]
        return self.remember((count, wanted), lambda: self._make(moments, wanted, start))

    def rest(self) -> Part:
        """What is left of the program, with the states `needed` and the tensors `given` as inputs, and at the time `WHOLE` the
        tensors `kept` and those among `given` that are results."""
        program, taken = self.program, self.names()
        names = {state: free(f"{program.tensor(state[0]).base}_at{state[1]}", taken) for state in sorted(self.needed)}
        returned = {r.version for r in program.returns}.intersection(self.given)
        whole = {v: free(f"{program.tensor(v).base}_all", taken) for v in sorted({*self.kept, *returned})}

        def change(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in self.component.versions and node.tensor not in self.kept:
                time = self.fixed_time(node.subscripts[self.axis])
                assert time is not None
                return self.read_input(node.tensor, names[node.tensor, time], map(change, self.others(node.subscripts)))
            return map_children(node, change)

        outside = [s for s in program.statements if s.target not in self.component.versions]
        statements = [map_statement(s, change) for s in outside if s.target not in self.given]
        tensors = [self.input(v, name) for (v, _), name in names.items()]
        for v, name in whole.items():
            box = self.ranges.tensors[v]
            own = replace(program.tensor(v), name=name, base=name, shape=tuple(i.extent for i in box), role="input")
            tensors += [own, program.tensor(v)] if v in self.kept else [own]
            statements.append(copy_tensor(v, box, partial(read_shifted, name, box=box)))
        given = [name for name in self.given if name not in returned]
        made = self.finish(statements, tensors, [*names.values(), *whole.values()], program.returns, given)
        return Part(*made, {}, names | {(v, WHOLE): name for v, name in whole.items()})

    def remember(self, key: object, make: Callable[[], Part]) -> Part:
        if key not in self._parts:
            self._parts[key] = make()
        return self._parts[key]

    @property
    def moving(self) -> list[Statement]:
        """The statements of a step."""
        return [s for s in self.component.statements if isinstance(s.subscripts[self.axis], Index)]

    def fixed_time(self, at: Expr) -> int | None:
        return None if index_names(at) else evaluate(at, self.sizes)

    def others(self, subscripts: Sequence[Expr]) -> list[Expr]:
        return [e for d, e in enumerate(subscripts) if d != self.axis]

    def names(self) -> set[str]:
        p = self.program
        names = {*p.sizes, *(n for n, _ in p.defined_sizes), *(t.name for t in p.tensors), *(t.base for t in p.tensors)}
        return names | {i for s in p.statements for i in s.indices} | {s.name for s in p.statements}

    def box(self, tensor: str) -> list[Interval]:
        """Of a state; of another tensor its own."""
        box = self.ranges.tensors[tensor]
        return [i for d, i in enumerate(box) if d != self.axis or tensor not in self.component.versions]

    def input(self, tensor: str, name: str) -> Tensor:
        box = self.box(tensor)
        return replace(
            self.program.tensor(tensor), name=name, base=name, rank=len(box), shape=tuple(i.extent for i in box), role="input"
        )

    def read_input(self, tensor: str, name: str, subscripts: Iterable[Expr]) -> Read:
        """A read of what was computed before, which is counted from 0."""
        return read_shifted(name, subscripts, self.box(tensor))

    def _make(self, moments: Sequence[tuple[Statement, int, Expr]], wanted: Iterable[State], start: str | None = None) -> Part:
        """The program of statements at times, each with the value of its time."""
        program, taken = self.program, self.names() | {start or ""}
        names: dict[State, str] = {}
        inputs: dict[State, str] = {}
        for s, time, _ in moments:
            if (s.target, time) not in names:
                names[s.target, time] = free(f"{program.tensor(s.target).base}_step{time}", taken)

        def read(tensor: str, time: int, subscripts: Sequence[Expr], _: Expr) -> Expr:
            if (tensor, time) in names:
                return Read(names[tensor, time], tuple(subscripts))
            if (tensor, time) not in inputs:
                inputs[tensor, time] = free(f"{program.tensor(tensor).base}_before{-time}", taken)
            return self.read_input(tensor, inputs[tensor, time], subscripts)

        statements = [self.place(s, time, value, names[s.target, time], read, taken) for s, time, value in moments]
        tensors = [self.input(v, name) for (v, _), name in inputs.items()]
        for (v, _), name in names.items():
            own = program.tensor(v)
            shape = None if own.shape is None else tuple(self.others(own.shape))
            tensors.append(replace(own, name=name, rank=own.rank - 1, shape=shape, role="output"))
        results = {state: names[state] for state in wanted if state in names}
        if start is None:  # before the first step
            statements += [s for s in program.statements if s.target not in self.component.versions]
            returned = [*results.values(), *self.given]
            whole = self._whole(statements, tensors, list(inputs.values()), [Return(n, n) for n in returned])
            kept = keep_results(whole, returned)
            return Part(kept, infer_ranges(kept), results, inputs)
        made = self.finish(
            statements, tensors, list(inputs.values()), [Return(n, n) for n in results.values()], self.given, [start]
        )
        return Part(*made, results, inputs, start if start in made[0].parameters else None)

    def finish(
        self,
        statements: Sequence[Statement],
        tensors: Sequence[Tensor],
        inputs: Sequence[str],
        returns: Sequence[Return],
        taken: Sequence[str],
        numbers: Sequence[str] = (),
    ) -> tuple[Program, Ranges]:
        """The program of `statements`, with the tensors `taken` as inputs, too, and those of `numbers` that it speaks of."""
        given = {name: self.input(name, name) for name in taken}

        def change(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in given:
                return self.read_input(node.tensor, node.tensor, map(change, node.subscripts))
            return map_children(node, change)

        whole = self._whole([map_statement(s, change) for s in statements], tensors, [*inputs, *given], returns)
        whole = replace(whole, tensors=tuple(given.get(t.name, t) for t in whole.tensors))
        used = {n for s in whole.statements for e in statement_expressions(s) for n in size_names(e)}
        numbers = [n for n in numbers if n in used]
        whole = replace(
            whole,
            sizes=(*whole.sizes, *numbers),
            parameters=(*whole.parameters, *numbers),
            tensors=(*whole.tensors, *(Tensor(n, I64, 0, (), "input", n) for n in numbers)),
        )
        kept = keep_results(whole, list(dict.fromkeys(r.version for r in returns)))
        return kept, infer_ranges(kept)

    def _whole(
        self, statements: Sequence[Statement], tensors: Sequence[Tensor], inputs: Sequence[str], returns: Sequence[Return]
    ) -> Program:
        versions, names = {r.version for r in returns}, {t.name for t in tensors}
        known = [*(t for t in self.program.tensors if t.name not in self.component.versions), *tensors]
        known = [replace(t, role="output") if t.name in versions and t.role != "input" else t for t in known]
        assert len(names) == len(tensors)
        return replace(
            self.program,
            tensors=tuple(known),
            parameters=(*self.program.parameters, *inputs),
            returns=tuple(returns),
            statements=tuple(statements),
            rules=(),
        )

    def place(
        self,
        s: Statement,
        time: int,
        value: Expr,
        target: str,
        read: Callable[[str, int, Sequence[Expr], Expr], Expr],
        taken: set[str],
    ) -> Statement:
        """A statement at one time, whose value is given: it writes `target`."""
        at = s.subscripts[self.axis]
        t = at.name if isinstance(at, Index) else None

        def change(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in self.component.versions:
                when = node.subscripts[self.axis]
                back = _distance(when, t)
                moment = self.fixed_time(when) if back is None else time - back
                assert moment is not None
                return read(node.tensor, moment, tuple(map(change, self.others(node.subscripts))), when)
            return value if isinstance(node, Index) and node.name == t else map_children(node, change)

        own = self.ranges.statements[s.name].indices
        where: list[RangeClause | Condition] = []
        for i in s.indices:
            if i != t:
                where.append(RangeClause(i, own[i].lower, simplify(own[i].lower + own[i].extent), s.span))
        for w in s.where:
            if isinstance(w, Condition):
                where.append(Condition(change(w.condition), w.span))
            elif isinstance(w, RangeClause) and index_names(*w.expressions):
                where.append(Condition(ge(Index(w.index), change(w.lower)), w.span))
                where.append(Condition(lt(Index(w.index), change(w.upper)), w.span))
        placed = replace(
            s,
            name=free(s.name, taken),
            target=target,
            subscripts=tuple(map(change, self.others(s.subscripts))),
            indices=tuple(i for i in s.indices if i != t),
            value=change(s.value),
            where=tuple(where),
        )
        if s.reduction is not None:
            elements = dict(zip(self._others_of(s.element_names), map(Index, placed.element_names), strict=True))
            init = substitute(s.reduction.init, {**elements, s.element_names[self.axis]: value})
            placed = replace(placed, reduction=replace(s.reduction, init=change(init)))
        return placed

    def _others_of(self, names: Sequence[str]) -> list[str]:
        return [n for d, n in enumerate(names) if d != self.axis]


def find_time_loops(program: Program, ranges: Ranges, sizes: Mapping[str, int]) -> Iterator[TimeLoop]:
    """The recurrences over steps, in order, and along each dimension that may be that of steps."""
    for component in order_components(program):
        if component.is_recurrence:
            for axis in range(min(program.tensor(v).rank for v in component.versions)):
                found = _read_time_loop(program, ranges, sizes, component, axis)
                if found is not None:
                    yield found


def _read_time_loop(
    program: Program, ranges: Ranges, sizes: Mapping[str, int], component: Component, axis: int
) -> TimeLoop | None:
    """The component as a time loop along one dimension, if it is one."""
    spans: list[range] = []
    fixed: set[State] = set()
    depths: dict[str, int] = {}
    crossing = set[int]()
    for s in component.statements:
        at = s.subscripts[axis]
        t = at.name if isinstance(at, Index) else None
        if t is None and (index_names(at) or reads(at)):
            return None
        if t is None:
            fixed.add((s.target, evaluate(at, sizes)))
        else:
            own = ranges.statements[s.name].indices[t]
            first = evaluate(own.lower, sizes)
            spans.append(range(first, first + evaluate(own.extent, sizes)))
            elsewhere = [e for d, e in enumerate(s.subscripts) if d != axis]
            elsewhere += [e for w in s.where if not isinstance(w, RangeClause) or w.index != t for e in w.expressions]
            if any(mentions(e, t) for e in elsewhere):
                return None
            if any(index_names(*w.expressions) for w in s.where if isinstance(w, RangeClause) and w.index == t):
                return None
        if s.reduction is not None and any(r.tensor in component.versions for r in reads(s.reduction.init)):
            return None
        for r in statement_reads(s):
            if r.tensor not in component.versions:
                continue
            when = r.subscripts[axis]
            back = _distance(when, t)
            if (t is None and index_names(when)) or (t is not None and (back is None or back < 0)):
                return None
            if back:
                depths[r.tensor] = max(back, depths.get(r.tensor, 0))
            if t is not None:
                pairs = [p for d, p in enumerate(zip_longest(r.subscripts, s.subscripts)) if d != axis]
                crossing |= {d for d, (a, b) in enumerate(pairs) if a is not None and a != b}
    if not depths or not spans or any(span != spans[0] for span in spans) or not spans[0]:
        return None
    kept = {r.version for r in program.returns} & set(component.versions)
    single = set[State]()
    for s in program.statements:
        for r in statement_reads(s) if s.target not in component.versions else ():
            if r.tensor in component.versions:
                if index_names(r.subscripts[axis]) or reads(r.subscripts[axis]):
                    kept.add(r.tensor)
                else:
                    single.add((r.tensor, evaluate(r.subscripts[axis], sizes)))
    needed = frozenset(state for state in single if state[0] not in kept)
    found = TimeLoop(program, ranges, sizes, component, axis, spans[0], depths, needed, frozenset(kept), frozenset(crossing))
    before = {s for s in found.before_first() if s[1] < spans[0].start}
    return found if before <= fixed and all(time < spans[0].start for _, time in fixed) else None


def _distance(when: Expr, t: str | None) -> int | None:
    """How many steps before `t` a subscript is; None where that is no number."""
    if t is None or not mentions(when, t):
        return None
    back = simplify(Index(t) - when)
    return int(back.value) if isinstance(back, Const) else None


def read_shifted(name: str, subscripts: Iterable[Expr], box: Sequence[Interval]) -> Read:
    """A read of a tensor that is counted from 0, at subscripts in `box`."""
    places = zip(subscripts, box, strict=True)
    return Read(name, tuple(e if i.lower == int_const(0) else simplify(e - i.lower) for e, i in places))


def copy_tensor(target: str, box: Sequence[Interval], read: Callable[[Sequence[Expr]], Expr]) -> Statement:
    """The statement that fills a box of a tensor with what `read` makes of the subscripts."""
    names = [f"e{d}" for d in range(len(box))]
    places: list[Expr] = [Index(n) for n in names]
    where = tuple(RangeClause(n, i.lower, simplify(i.lower + i.extent)) for n, i in zip(names, box, strict=True))
    return Statement(f"{target}_copy", target, tuple(places), tuple(names), read(places), None, where)


def free(wanted: str, taken: set[str]) -> str:
    name, k = wanted, 2
    while name in taken:
        name, k = f"{wanted}_{k}", k + 1
    taken.add(name)
    return name
