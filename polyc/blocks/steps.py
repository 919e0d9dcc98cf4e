"""Time loops whose steps read neighbours: a chain of programs of a few steps each, which blocks exchange halos between.

A recurrence ``S[t, i] = f(S[t-1, i-1], S[t-1, i], …)`` needs all of its axes in one block, if all steps are one task.  Here it
is cut along t: the program of k steps has the states before them as inputs, ``S₀[i]``, … and its steps written out as
statements ``S₁[i] = f(S₀[i-1], …)``, so that regions, borders and what cannot be cut are those of any chain of statements:
a block reads a halo k times as deep as a step's, and computes what is left of it after each step (overlapped, or trapezoidal,
tiling; Krishnamoorthy et al., "Effective automatic parallelization of stencil computations", PLDI 2007).

What depends on the time alone is decided for each step: which statements run, and conditions such as ``t >= 1``, unless their
value changes more than twice.  So the first and the last steps may differ from the others, as those of adjoints do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from polyc.blocks.gathered import tests_of
from polyc.blocks.plan import NotPlanned, evaluate_all
from polyc.blocks.programs import keep_results
from polyc.blocks.tensors import copy_tensor, free, read_shifted
from polyc.ir.components import Component
from polyc.ir.expr import (
    Call,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    Size,
    evaluate,
    index_names,
    int_const,
    map_children,
    mentions,
    reads,
    size_names,
    substitute,
    walk,
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
from polyc.ir.simplify import is_i64, simplify, simplify_value
from polyc.ir.types import BOOL, I64
from polyc.poly.frames import upper_end
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
    """A recurrence over `steps` along dimension `axis` of its tensors; what lies before them is computed at once.

    `spans`: the times at which each statement runs, and `times`: those of the states of each tensor.  `depths`: for each
    tensor how many steps back it is read.  `needed`: states that the rest of the program reads; `kept`: tensors of which it
    reads all, or that are results.  `crossing`: dimensions of states along which a step reads neighbours."""

    program: Program
    ranges: Ranges
    sizes: Mapping[str, int]
    component: Component
    axis: int
    steps: range
    spans: Mapping[str, range]
    times: Mapping[str, range]
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
        return [(v, now + time) for v, time in self.before if now + time in self.times[v]]

    @property
    def before(self) -> list[State]:
        """The states that a step reads, if there are all of them: how many steps before it, as a negative number."""
        return [(v, -back) for v, depth in self.depths.items() for back in range(1, depth + 1)]

    def begin(self) -> Part:
        """What there is before the first step: states, by absolute times, and the tensors `given` under their own names."""
        return self.remember("begin", lambda: self._make(0, range(self.steps.start), self.before_first(), None))

    def before_first(self) -> list[State]:
        """The states before the first step that something reads."""
        kept = [(v, time) for v in sorted(self.kept) for time in self.times[v]]
        return [*self.carried(self.steps.start), *(s for s in (*self.needed, *kept) if s[1] < self.steps.start)]

    def advance(self, now: int, count: int, wanted: Iterable[State]) -> Part:
        """`count` steps from `now` on, with results `wanted`; times are counted from the first of them."""
        wanted = tuple(sorted(set(wanted)))
        key = (tuple(self._outline(time) for time in range(now, now + count)), wanted)
        return self.remember(key, lambda: self._make(now, range(count), wanted, free("step", self.names())))

    def _outline(self, time: int) -> tuple[object, ...]:
        """All that distinguishes a step from others."""
        active = tuple(s.name for s in self.component.statements if time in self.spans[s.name])
        decided = tuple(bool(holds[time - self.steps.start]) for holds in self._decided.values())
        return active, decided, tuple((v, time - before) for v, before in self.carried(time))

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
        """The statements of steps."""
        return [s for s in self.component.statements if set(self.spans[s.name]) & set(self.steps)]

    @property
    def is_uniform(self) -> bool:
        """Whether all steps have the same statements."""
        spans = [self.spans[s.name] for s in self.moving if isinstance(s.subscripts[self.axis], Index)]
        first, stop = self.steps.start, self.steps.stop
        return len(spans) == len(self.moving) and all(span.start <= first and stop <= span.stop for span in spans)

    @cached_property
    def _decided(self) -> dict[tuple[str, Expr], np.ndarray]:
        """Conditions on the time alone that change at most twice over the steps: for each step whether they hold."""
        found: dict[tuple[str, Expr], np.ndarray] = {}
        for s in self.moving:
            at = s.subscripts[self.axis]
            nodes = (n for e in statement_expressions(s) for n in walk(e)) if isinstance(at, Index) else ()
            for node in nodes:
                if isinstance(at, Index) and (s.name, node) not in found and is_of_time(node, at.name):
                    values = {**self.sizes, at.name: np.arange(self.steps.start, self.steps.stop)}
                    holds = np.broadcast_to(evaluate_all(node, values), len(self.steps))
                    if np.count_nonzero(holds[1:] != holds[:-1]) <= 2:
                        found[s.name, node] = holds
        return found

    def _decide(self, s: Statement, condition: Expr, time: int | None) -> Expr:
        """A condition on the time alone at one time, where that decides it; at None where it is the same at all steps."""
        at = s.subscripts[self.axis]
        assert isinstance(at, Index)
        if time is not None and time not in self.steps:
            return Const(bool(evaluate(condition, {**self.sizes, at.name: time})), BOOL)
        holds = self._decided.get((s.name, condition))
        if holds is None or (time is None and holds.any() != holds.all()):
            return condition
        return Const(bool(holds[0 if time is None else time - self.steps.start]), BOOL)

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

    def _make(self, now: int, times: range, wanted: Iterable[State], start: str | None) -> Part:
        """The program of the statements at some times, which are counted from `now` on: that is the value of `start`."""
        program, taken = self.program, self.names() | {start or ""}
        moments = [(s, time) for time in times for s in self.component.statements if now + time in self.spans[s.name]]
        names: dict[State, str] = {}
        inputs: dict[State, str] = {}
        for s, time in moments:
            if (s.target, time) not in names:
                names[s.target, time] = free(f"{program.tensor(s.target).base}_step{time}", taken)

        def read(tensor: str, time: int, subscripts: Sequence[Expr], _: Expr) -> Expr:
            if (tensor, time) in names:
                return Read(names[tensor, time], tuple(subscripts))
            if now + time not in self.times[tensor]:
                raise NotPlanned(f"a step reads {program.tensor(tensor).base} where that has none")
            if (tensor, time) not in inputs:
                inputs[tensor, time] = free(f"{program.tensor(tensor).base}_before{-time}", taken)
            return self.read_input(tensor, inputs[tensor, time], subscripts)

        statements: list[Statement] = []
        for s, time in moments:
            value = int_const(time) if start is None else simplify(Size(start) + time)
            placed = self.place(s, time, now, value, names[s.target, time], read, taken)
            statements += [] if placed is None else [placed]
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
        now: int | None,
        value: Expr,
        target: str,
        read: Callable[[str, int, Sequence[Expr], Expr], Expr],
        taken: set[str],
    ) -> Statement | None:
        """A statement at one time, whose value is given and which is `now` + `time` (None: any step): it writes `target`.  None
        where no point is left."""
        at = s.subscripts[self.axis]
        t = at.name if isinstance(at, Index) else None

        def change(node: Expr) -> Expr:
            if isinstance(node, Pad) and now is not None and self._lacks_state(node, t, now + time):
                return change(node.value)
            if isinstance(node, Read) and node.tensor in self.times:
                moment = self._moment(node, t, time, now or 0)
                others = tuple(map(change, self.others(node.subscripts)))
                return read(node.tensor, moment, others, node.subscripts[self.axis])
            if isinstance(node, Select):  # what is never chosen may read states that there are not
                condition = simplify_value(change(node.condition))
                if isinstance(condition, Const):
                    return change(node.then if condition.value else node.other)
                return replace(node, condition=condition, then=change(node.then), other=change(node.other))
            if t is not None and is_of_time(node, t):
                node = self._decide(s, node, None if now is None else now + time)
            return value if isinstance(node, Index) and node.name == t else map_children(node, change)

        own = self.ranges.statements[s.name].indices
        clauses = [RangeClause(i, own[i].lower, upper_end(own[i]), s.span) for i in s.indices if i != t]
        tests = [simplify(change(test)) for w in s.where for test in tests_of(w)]
        is_empty = any(isinstance(test, Const) and not test.value for test in tests)
        if is_empty and s.reduction is None:
            return None
        conditions = [Condition(test, s.span) for test in tests if not isinstance(test, Const)]
        placed = replace(
            s,
            name=free(s.name, taken),
            target=target,
            subscripts=tuple(map(change, self.others(s.subscripts))),
            indices=tuple(i for i in s.indices if i != t),
            value=s.value if is_empty else simplify_value(change(s.value)),
            where=(*clauses, *conditions),
        )
        if s.reduction is not None:
            elements = dict(zip(self._others_of(s.element_names), map(Index, placed.element_names), strict=True))
            init = change(substitute(s.reduction.init, {**elements, s.element_names[self.axis]: value}))
            placed = replace(placed, reduction=replace(s.reduction, init=init))
            if is_empty:
                left = [c for c in clauses if c.index in placed.left_indices]
                placed = replace(placed, indices=placed.left_indices, value=init, where=tuple(left), reduction=None)
        return placed

    def _lacks_state(self, node: Pad, t: str | None, time: int) -> bool:
        """Whether a padded read has its value for want of a state."""
        times = self.times.get(node.read.tensor)
        return node.mode == "value" and times is not None and self._moment(node.read, t, time, 0) not in times

    def _moment(self, read: Read, t: str | None, time: int, now: int) -> int:
        """The time of a state that a statement at `time` reads."""
        when = read.subscripts[self.axis]
        back = distance(when, t)
        return evaluate(when, self.sizes) - now if back is None else time - back

    def _others_of(self, names: Sequence[str]) -> list[str]:
        return [n for d, n in enumerate(names) if d != self.axis]


def distance(when: Expr, t: str | None) -> int | None:
    """How many steps before `t` a subscript is; None where that is no number."""
    if t is None or not mentions(when, t):
        return None
    back = simplify(Index(t) - when)
    return int(back.value) if isinstance(back, Const) else None


def is_of_time(node: Expr, t: str) -> bool:
    """Whether an expression is a comparison of integers that are known with the time."""
    if not isinstance(node, Call) or node.op not in ("lt", "le", "gt", "ge", "eq", "ne") or reads(node):
        return False
    return index_names(node) == {t} and any(map(is_i64, node.args))
