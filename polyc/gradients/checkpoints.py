"""A program with a time loop in three parts, so that its adjoint can be taken from a few kept states.

    before   U(0) = x ;  U(t) = f(U(t-1), θ) for t in 1:T+1 ;  y = g(U(T), θ)
    start    state = U(0)                                           (x, θ) → state at step `first`
    segment  U'(0) = state ;  U'(n) = f(U'(n-1), θ) for `count` steps       (state, θ, first, count) → the state behind them
    finish   y = g(state, θ)                                        (state, sums, θ) → results

The adjoint of the whole is that of `finish`, then those of segments from the last to the first, each of a state that was kept
or computed again, then that of `start`; what they give for θ is added up.  Which states are kept is `revolve`'s subject.

Reference: Griewank and Walther, "Algorithm 799: revolve" (ACM TOMS 26, 2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from polyc.gradients.forward import drop_unused
from polyc.gradients.inputs import Names
from polyc.gradients.reverse import vjp
from polyc.gradients.rules import plus, refuse
from polyc.gradients.time_loops import Place, TimeLoop, find_time_loop, place_of
from polyc.ir.expr import Expr, Index, Read, Size, ge, identity_of, index_names, int_const, lt, rewrite, substitute
from polyc.ir.program import (
    Condition,
    Program,
    RangeClause,
    Return,
    Role,
    Statement,
    Tensor,
    Where,
    find_sizes,
    integer_parameters,
    map_statement,
    statement_reads,
)
from polyc.ir.segments import is_loaded
from polyc.ir.simplify import constant_of, difference, simplify
from polyc.ir.types import I64
from polyc.poly.frames import upper_end
from polyc.poly.infer import infer_ranges
from polyc.poly.ranges import Interval
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Parts:
    """`states` and `sums` are the names of what is handed on: results of one part in this order, and inputs of the next behind
    those of the program.  The last two inputs of `segment` are the number of its first step, and how many it has."""

    loop: TimeLoop
    start: Program
    segment: Program
    finish: Program
    states: tuple[str, ...]
    sums: tuple[str, ...]

    @property
    def first(self) -> int:
        return self.loop.first

    @property
    def end(self) -> Expr:
        """The step behind the last, over sizes of the program."""
        return self.loop.end


def split(program: Program, wrt: Sequence[str], of: Sequence[str]) -> Parts | None:
    """The parts of `program` for its adjoint; None where that reads no values of a loop over steps, and so stores none.

    Raises UnsupportedError ``unsupported-gradient`` where there is one, but no state to continue it from."""
    own = {s.name for s in program.statements}
    later = [r for s in vjp(program, wrt, of).statements if s.name not in own for r in statement_reads(s)]
    ranges = infer_ranges(program)
    loop = find_time_loop(program, ranges, later)
    if loop is None:
        return None
    _refuse_others(program, loop, wrt)
    return _Splitter(program, loop, ranges.tensors, {n: r.indices for n, r in ranges.statements.items()}).run()


def _refuse_others(program: Program, loop: TimeLoop, wrt: Sequence[str]) -> None:
    """UnsupportedError for what a state cannot hold, or parts do not know."""
    for name in (*loop.axes, *loop.sums, *wrt):
        t = program.tensor(name)
        if t.dtype.is_storage:
            message = f"with memory=, what is made of {t.base} would be rounded to {t.dtype} at every state that is kept"
            raise refuse(message, t.span, f"let {t.base} be float32; casts of it may be {t.dtype}")
    if program.rules:
        message = f"memory= does not know derivatives of one's own, as {program.rules[0].name} has"
        raise refuse(message, None, "leave out memory=, or the rule")
    initial = next((r for r in program.returns if r.initial is not None), None)
    if initial is not None:
        message = f"with memory=, a result that adds to what {initial.name} holds is not supported"
        raise refuse(message, program.tensor(initial.version).span, f"let it set the starting value of {initial.name} itself")


class _Splitter:
    """Writes the three parts.

    Steps of a segment are counted from 0, its states' from `window`: step n of it is step ``n + first - window``."""

    def __init__(
        self,
        program: Program,
        loop: TimeLoop,
        boxes: Mapping[str, Sequence[Interval]],
        intervals: Mapping[str, Mapping[str, Interval]],
    ) -> None:
        self.program, self.loop, self.boxes, self.intervals = program, loop, boxes, intervals
        self.names = Names(program)
        self.names.taken |= {i for s in program.statements for i in s.indices}
        self.states = {v: self.names.add(f"{v}.state") for v in loop.states}
        self.totals = {v: self.names.add(f"{v}.total") for v in program.types if v in loop.sums}
        self.first, self.count = Size(self.names.add("first")), Size(self.names.add("count"))
        self.window = loop.window
        self.stepped = [s for s in program.statements if s.target in loop.axes]
        self.others = [s for s in program.statements if s.target not in loop.axes and s.target not in loop.sums]
        self.adders = [s for s in program.statements if s.target in loop.sums]

    def run(self) -> Parts:
        states, totals = tuple(self.states.values()), tuple(self.totals.values())
        return Parts(self.loop, self._start(), self._segment(), self._finish(), states, totals)

    # -- parts
    def _start(self) -> Program:
        """The states in front of step `first`."""
        made, new, returns = [*self._starting(), *self.others], list[Tensor](), list[Return]()
        for v in self.states:
            self._hand_on(v, int_const(self.loop.first), made, new, returns)
        return self._program("start", made, self._whole(), [*new], (), returns)

    def _segment(self) -> Program:
        """The states behind `count` steps from `first` on, and sums over these steps."""
        made, new, returns = list(self.others), list[Tensor](), list[Return]()
        given = [self._state(v, "input") for v in self.states]
        for v, name in self.states.items():
            made.append(self._take(v, name))
        made += [self._shifted(s) for s in self.stepped if self._place(s)[0] is not None]
        for v in self.states:
            self._hand_on(v, self.count + self.window, made, new, returns)
        for s in self.adders:
            name = self.names.add(f"{s.target}.part")
            made.append(self._shifted(s, name))
            new.append(replace(self._total(s.target), name=name, role="output", base=name))
            returns.append(Return(name, name))
        counts = [Tensor(size.name, I64, 0, (), "input", size.name) for size in (self.first, self.count)]
        tensors = [replace(t, shape=None) if t.name in self.loop.axes else t for t in self._whole()]
        return self._program("segment", made, tensors, new, (*given, *counts), returns)

    def _finish(self) -> Program:
        """The results."""
        made = [*self._starting(), *(self._behind(s) for s in self.others), *(self._completed(s) for s in self.adders)]
        given = [self._state(v, "input") for v in self.states] + [self._total(v) for v in self.totals]
        return self._program("finish", made, list(self.program.tensors), [], given, self.program.returns)

    def _whole(self) -> list[Tensor]:
        return [replace(t, role="temporary") if t.role == "output" else t for t in self.program.tensors]

    def _program(
        self,
        what: str,
        statements: Sequence[Statement],
        tensors: Sequence[Tensor],
        new: Sequence[Tensor],
        given: Sequence[Tensor],
        returns: Sequence[Return],
    ) -> Program:
        program = self.program
        draft = replace(
            program,
            name=f"{program.name}_{what}",
            tensors=(*tensors, *given, *new),
            returns=tuple(returns),
            statements=tuple(statements),
            compressed=(),
        )
        made = drop_unused(draft, set())
        used = find_sizes(made.statements, made.tensors) | {r.tensor for s in made.statements for r in statement_reads(s)}
        idle = set(integer_parameters(program)) - used
        counts = tuple(t.name for t in given if t.name in (self.first.name, self.count.name))
        return replace(
            made,
            sizes=(*(n for n in program.sizes if n not in idle), *counts),
            tensors=tuple(t for t in made.tensors if t.name not in idle),
            parameters=(*(p for p in program.parameters if p not in idle), *(t.name for t in given)),
        )

    # -- states
    def _spread(self, version: str) -> tuple[int, list[Interval]]:
        axis = self.loop.axes[version]
        return axis, [b for d, b in enumerate(self.boxes[version]) if d != axis]

    def _state(self, version: str, role: Role) -> Tensor:
        """The last steps of a version: a dimension of them, then the others from 0."""
        t, (_, box) = self.program.tensor(version), self._spread(version)
        shape = (int_const(self.loop.windows[version]), *(simplify(b.extent) for b in box))
        return Tensor(self.states[version], t.dtype, t.rank, shape, role, self.states[version], t.span)

    def _total(self, version: str) -> Tensor:
        t = self.program.tensor(version)
        shape = tuple(simplify(b.extent) for b in self.boxes[version])
        return Tensor(self.totals[version], t.dtype, t.rank, shape, "input", self.totals[version], t.span)

    def _hand_on(self, version: str, end: Expr, made: list[Statement], new: list[Tensor], returns: list[Return]) -> None:
        """A result: the steps of a version before `end`."""
        axis, box = self._spread(version)
        t = self._state(version, "output")
        name = self.names.add(f"{version}.next")
        indices = [f"{self.names.add('k')}"] + [self.names.add(f"i{d}") for d in range(len(box))]
        step = simplify(end - self.loop.windows[version] + Index(indices[0]))
        there = [simplify(Index(i) + b.lower) for i, b in zip(indices[1:], box, strict=True)]
        there.insert(axis, step)
        assert t.shape is not None
        where = tuple(RangeClause(i, int_const(0), e) for i, e in zip(indices, t.shape, strict=True))
        element = tuple(map(Index, indices))
        made.append(
            Statement(
                self.names.add(f"S_{name}"), name, element, tuple(indices), Read(version, tuple(there)), None, where, t.span
            )
        )
        new.append(replace(t, name=name, base=name))
        returns.append(Return(name, name))

    def _take(self, version: str, name: str) -> Statement:
        """The steps of a segment that are given to it."""
        axis, box = self._spread(version)
        t, window = self.program.tensor(version), self.loop.windows[version]
        step = self.names.add("k")
        indices = [self.names.add(f"i{d}") for d in range(len(box))]
        where = [RangeClause(step, int_const(self.window - window), int_const(self.window))]
        where += [RangeClause(i, b.lower, upper_end(b)) for i, b in zip(indices, box, strict=True)]
        element: list[Expr] = [Index(i) for i in indices]
        from_zero = [simplify(Index(i) - b.lower) for i, b in zip(indices, box, strict=True)]
        value = Read(name, (simplify(Index(step) - (self.window - window)), *from_zero))
        element.insert(axis, Index(step))
        order = tuple(e.name for e in element if isinstance(e, Index))
        return Statement(self.names.add(f"S_{name}"), version, tuple(element), order, value, None, tuple(where), t.span)

    # -- statements
    def _place(self, s: Statement) -> Place:
        place = place_of(s.subscripts[self.loop.axes[s.target]])
        assert place is not None
        return place

    def _starting(self) -> Iterator[Statement]:
        """What computes steps before `first`."""
        for s in self.stepped:
            t, offset = self._place(s)
            if t is None:
                yield self._pinned(s)
            elif self._begins_before(s, t, offset):
                yield self._pinned(s, {t: (None, int_const(self.loop.first - offset))})

    def _begins_before(self, s: Statement, t: str, offset: int) -> bool:
        lower = constant_of(self.intervals[s.name][t].lower)
        return lower is None or lower + offset < self.loop.first

    def _shifted(self, s: Statement, total: str = "") -> Statement:
        """A statement with steps in a segment; `total`: one that adds steps up, to a sum over the segment."""
        t, offset = self._steps_of(s) if total else self._place(s)
        assert t is not None
        absolute = simplify(Index(t) + self.first - (self.window + offset))
        interval = self.intervals[s.name][t]
        lowest, end = constant_of(simplify(interval.lower + offset)), simplify(upper_end(interval) + offset)
        tests: list[Expr] = []
        if total and (lowest is None or lowest > self.loop.first):
            tests.append(ge(absolute, interval.lower))
        beyond = difference(end, self.loop.end)
        if total and (beyond is None or beyond < 0):
            tests.append(lt(absolute, upper_end(interval)))

        def place(node: Expr) -> Expr | None:
            if isinstance(node, Read) and node.tensor in self.loop.axes:
                d = self.loop.axes[node.tensor]
                local = simplify(node.subscripts[d] - self.first + self.window)
                return replace(node, subscripts=(*node.subscripts[:d], local, *node.subscripts[d + 1 :]))
            return None

        new = map_statement(s, lambda e: rewrite(substitute(e, {t: absolute}), place))
        window = int_const(self.window)
        where = self._pins(s, {t: (window, simplify(self.count + self.window))}, new.where, {t: absolute})
        where += [Condition(e) for e in tests]
        if total:
            assert s.reduction is not None
            zero = identity_of("add", self.program.types[s.target])
            element = [simplify(e - b.lower) for e, b in zip(new.subscripts, self.boxes[s.target], strict=True)]
            reduction = replace(s.reduction, init=zero)
            name, left = self.names.add(f"S_{total}"), tuple(element)
            return replace(new, name=name, target=total, subscripts=left, reduction=reduction, where=tuple(where))
        axis = self.loop.axes[s.target]
        left = (*new.subscripts[:axis], Index(t), *new.subscripts[axis + 1 :])
        return replace(new, subscripts=left, where=tuple(where))

    def _steps_of(self, s: Statement) -> Place:
        """Of a sum over steps, the index and the last step that it reads at one of them."""
        places = [p for r in self.loop.reads(s) if (p := self.loop.place(r.tensor, r.subscripts)) is not None]
        return places[0][0], max(offset for _, offset in places)

    def _behind(self, s: Statement) -> Statement:
        """A statement behind the loop, which reads states in the place of the last steps."""
        if not self.loop.reads(s):
            return s

        def place(node: Expr) -> Expr | None:
            if not isinstance(node, Read) or node.tensor not in self.loop.axes:
                return None
            axis, box = self._spread(node.tensor)
            where = self.loop.place(node.tensor, node.subscripts)
            if where is not None and where[0] is None and where[1] < self.loop.first:
                return node
            behind = difference(self.loop.end, node.subscripts[axis])
            assert behind is not None
            rest = [e for d, e in enumerate(node.subscripts) if d != axis]
            at = (simplify(e - b.lower) for e, b in zip(rest, box, strict=True))
            return Read(self.states[node.tensor], (int_const(self.loop.windows[node.tensor] - behind), *at), node.span)

        new = map_statement(s, lambda e: rewrite(e, place))
        return replace(new, where=tuple(self._pins(s, {}, new.where)))

    def _completed(self, s: Statement) -> Statement:
        """A sum over steps: those before `first`, and the total of all others."""
        (t, offset), box = self._steps_of(s), self.boxes[s.target]
        assert t is not None
        assert s.reduction is not None
        names = s.element_names
        total = Read(self.totals[s.target], tuple(simplify(Index(n) - b.lower) for n, b in zip(names, box, strict=True)))
        init = plus(s.reduction.init, total)
        assert init is not None
        if self._begins_before(s, t, offset):
            return self._pinned(
                replace(s, reduction=replace(s.reduction, init=init)), {t: (None, int_const(self.loop.first - offset))}
            )
        where = tuple(RangeClause(n, b.lower, upper_end(b)) for n, b in zip(names, box, strict=True))
        return Statement(s.name, s.target, tuple(map(Index, names)), names, init, None, where, s.span)

    def _pinned(self, s: Statement, ends: Mapping[str, tuple[Expr | None, Expr]] = MappingProxyType({})) -> Statement:
        return replace(s, where=tuple(self._pins(s, ends, s.where)))

    def _pins(
        self,
        s: Statement,
        ends: Mapping[str, tuple[Expr | None, Expr]],
        clauses: Sequence[Where],
        at: Mapping[str, Expr] = MappingProxyType({}),
    ) -> list[Where]:
        """Ranges as inferred, but for those in `ends`, with all other `clauses`.  `at`: what indices have become."""
        where: list[Where] = []
        for i, b in self.intervals[s.name].items():
            lower, upper = ends.get(i, (b.lower, upper_end(b)))
            if lower is None:
                lower, own = b.lower, upper_end(b)
                beyond = difference(own, upper)
                upper = own if beyond is not None and beyond < 0 else upper
                where += [Condition(lt(Index(i), own))] if beyond is None else []
            where.append(RangeClause(i, lower, upper))
        for w in clauses:
            if isinstance(w, Condition):
                where.append(w)
            elif isinstance(w, RangeClause):
                if is_loaded(w.lower) or is_loaded(w.upper):
                    where.append(w)
                else:
                    place = at.get(w.index, Index(w.index))
                    where += [Condition(ge(place, w.lower))] if index_names(w.lower) else []
                    where += [Condition(lt(place, w.upper))] if index_names(w.upper) else []
        return where
