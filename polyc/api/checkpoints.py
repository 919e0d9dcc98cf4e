"""Derivatives in the reverse mode within a bound of memory: states of a time loop are kept or computed again.

Before: one kernel that stores all steps that the adjoint reads.  After: the parts of the program, each a kernel for any number
of steps (`polyc.gradients.checkpoints`), called in the order of `polyc.gradients.revolve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from polyc import driver
from polyc.api.sources import FixedSource
from polyc.config import parse_bytes
from polyc.crash import name_crashes
from polyc.diagnostics import ArgumentError, Diagnostic, PolycError
from polyc.gradients import revolve
from polyc.gradients.checkpoints import split
from polyc.gradients.reverse import vjp
from polyc.gradients.rules import is_differentiable
from polyc.ir.expr import evaluate
from polyc.ir.program import Program
from polyc.records import dataclass
from polyc.runtime import memory, threads
from polyc.runtime.arguments import convert_inputs
from polyc.runtime.weak import without_weakness

if TYPE_CHECKING:
    from polyc.api.operator import Operator

Arrays = dict[str, np.ndarray]

MOST_KEPT = 256
"""States that are kept at most: with two computations of each step they go back through 33,000 segments."""
MOST_SCHEDULES = 64
"""Sizes whose schedules an operator remembers."""
SMALL = 1 << 20
"""Bytes by which temporaries may grow with the number of steps and still count as those of few."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one call goes back: in segments of `length` steps, with `kept` states, in `memory` bytes.

    `chunk`: the most steps that one call of a kernel computes.  `length` 0: in one kernel that stores all steps it reads."""

    steps: int
    length: int
    kept: int
    chunk: int
    memory: int
    workspace: int = 0
    state: int = 0
    stored: int = 0
    """Bytes of the largest kernel's temporaries, of a state, and at least of all steps together."""

    @property
    def n_segments(self) -> int:
        return -(-self.steps // self.length)

    @property
    def repeated(self) -> int:
        """Steps that are computed beside those that every segment computes for its own adjoint."""
        return revolve.count_advances(self.n_segments, self.kept) * self.length + self.length if self.length else 0

    def __str__(self) -> str:
        if not self.length:
            return f"{self.steps} steps, none computed again: {show_bytes(self.memory)} of temporaries"
        return (
            f"{self.steps} steps in {self.n_segments} segments of {self.length}, "
            f"{self.kept} states of {show_bytes(self.state)} kept: "
            f"{show_bytes(self.memory)} of temporaries, where all steps are at least {show_bytes(self.stored)}; "
            f"{self.repeated} steps are computed again, {self.repeated / self.steps:.1f} times each"
        )


class Checkpointed:
    """A derivative in the reverse mode (`vjp`, `grad`, `value_and_grad`) within `memory` bytes beside inputs and results.

    It takes and returns what the same derivative without `memory` does.  Where a kernel that stores all steps keeps to the
    bound it is that one; else steps of the time loop are computed again: `explain` says how many, and in how many bytes.
    ArgumentError ``argument-memory``, before anything runs, where the least that would do is more."""

    def __init__(
        self, whole: Operator, program: Program, wrt: Sequence[str], of: Sequence[str], memory: int, **mode: Any
    ) -> None:
        self.whole, self.memory, self.wrt = whole, memory, tuple(wrt)
        self.n_kept = len(mode.get("keep", ()))
        self._schedules: dict[Any, Schedule] = {}
        with driver.compiling(), name_crashes(f"splitting {program.name}"):
            self.parts = parts = split(program, wrt, of)
            if parts is None:
                return
            self.moving = [k for k, n in enumerate(parts.states) if is_differentiable(parts.segment.tensor(n).dtype)]
            states = [parts.states[k] for k in self.moving]
            before, behind = ([p.returns[k].name for k in self.moving] for p in (parts.start, parts.segment))
            behind += [r.name for r in parts.segment.returns[len(parts.states) :]]
            self.by = tuple(_reaching(p, wrt) for p in (parts.start, parts.segment, parts.finish))
            start = vjp(parts.start, self.by[0], before) if self.by[0] and before else None
            segment = vjp(parts.segment, [*states, *self.by[1]], behind)
            finish = vjp(parts.finish, [*states, *parts.sums, *self.by[2]], of, **mode)
        self.start, self.segment = self._make(parts.start), self._make(parts.segment, True)
        self.start_back = None if start is None else self._make(start)
        self.segment_back, self.finish_back = self._make(segment, True), self._make(finish)
        n = 0 if mode.get("seeded") else len(of)
        self._weights = dict(zip(_last(finish.parameters, n), _last(whole.program.parameters, n), strict=True))

    def _make(self, program: Program, is_counting: bool = False) -> Operator:
        """The operator of a part, with the choices of the whole; numbers of steps are symbolic."""
        from polyc.api.operator import Operator

        choice, counts = self.whole._dynamic.dynamic, self.counts if is_counting else ()
        if choice is not True:
            named = choice if isinstance(choice, tuple) else ()
            choice = (*(n for n in named if n in program.sizes), *counts) if named or counts else choice
        sizes = {n: v for n, v in self.whole._fixed_sizes.items() if n in program.sizes}
        return Operator(FixedSource(program), program.name, self.whole.options, sizes, dynamic=choice)

    @property
    def counts(self) -> tuple[str, str]:
        """The inputs of a segment that say which step is its first, and how many it has."""
        assert self.parts is not None
        first, count = self.parts.segment.parameters[-2:]
        return first, count

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def program(self) -> Program:
        """The program of the derivative, as one kernel would compute it."""
        return self.whole.program

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.whole.input_names

    def __repr__(self) -> str:
        return f"{self.whole!r} within {show_bytes(self.memory)}"

    def __call__(self, /, *inputs: Any, **named: Any) -> Any:
        given, schedule = self._prepare(inputs, named)
        if not schedule.length:
            return self.whole(*inputs, **named)
        results = _Run(self, given, schedule).run()
        return results[0] if len(results) == 1 else results

    def schedule(self, /, *inputs: Any, **named: Any) -> Schedule:
        """What is kept and computed again for these arguments, which are those of a call."""
        return self._prepare(inputs, named)[1]

    def explain(self, /, *inputs: Any, **named: Any) -> str:
        """The same in words, then what was decided for the kernels."""
        given, schedule = self._prepare(inputs, named)
        if not schedule.length:
            return f"{schedule}\n\n{self.whole.explain(*inputs, **named)}"
        fake = self._fake(given, schedule.length, self.whole.sizes_of_call(inputs, named))
        texts = [op.explain(*(fake[n] for n in op.input_names)) for op in (self.segment, self.segment_back)]
        return "\n\n".join([str(schedule), *texts])

    # -- what is kept
    def _prepare(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Arrays, Schedule]:
        whole = self.whole
        arrays = convert_inputs(whole.formals, whole.sort_call(inputs, named).inputs)
        given = {f.name: without_weakness(a) for f, a in zip(whole.formals, arrays, strict=True)}
        sizes = whole.sizes_of_call(inputs, named)
        if self.parts is not None:
            given |= {own: given[shared] for own, shared in self._weights.items()}
        key = tuple(sizes.items()), threads.team_size()
        if key not in self._schedules:
            if len(self._schedules) >= MOST_SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = self._choose(given, sizes, inputs, named)
        schedule = self._schedules[key]
        if schedule.memory > self.memory:
            raise self._too_little(schedule)
        return given, schedule

    def _choose(self, given: Arrays, sizes: Mapping[str, int], inputs: Sequence[Any], named: Mapping[str, Any]) -> Schedule:
        parts = self.parts
        steps = 0 if parts is None else max(0, evaluate(parts.end, sizes) - parts.first)
        stored = 0
        if parts is not None and steps > 1:
            fake = self._fake(given, 1, sizes)
            stored = sum(fake[n].nbytes // max(1, len(fake[n])) for n in parts.states) * steps
        if stored <= self.memory:
            size = _measure(lambda: self.whole.temporary_bytes(inputs, named))
            if size <= self.memory or steps < 2:
                return Schedule(steps, 0, 0, 0, size)
        found = self._choose_segments(given, sizes, steps, stored)
        if self.memory < found.memory and self.memory < stored <= found.memory:  # which is less is what the error says
            size = _measure(lambda: self.whole.temporary_bytes(inputs, named))
        elif found.memory <= self.memory or stored > found.memory:
            return found
        return Schedule(steps, 0, 0, 0, size) if size < found.memory else found

    def _choose_segments(self, given: Arrays, sizes: Mapping[str, int], steps: int, stored: int) -> Schedule:
        """The segments and states with which fewest steps are computed again; those with the least memory where none fit."""
        assert self.parts is not None
        fake = self._fake(given, 1, sizes)

        def measure(op: Operator, count: int = 1) -> int:
            fake[self.counts[1]] = np.array(count)
            return _measure(lambda: op.temporary_bytes([fake[n] for n in op.input_names], {}))

        state = sum(fake[n].nbytes for n in self.parts.states)
        ends = max(measure(op) for op in (self.start, self.start_back, self.finish_back) if op is not None)
        # The adjoint of a state before a segment and behind it, one state in the works, and what segments give for inputs.
        handed = 3 * state + 2 * sum(fake[n].nbytes for n in self.parts.sums)
        handed += sum(given[n].nbytes for n in {n for names in self.by for n in names})
        one, all_steps = measure(self.segment), measure(self.segment, steps)
        is_folded = all_steps <= 2 * one + SMALL
        best: Schedule | None = None
        for length in _lengths(steps):
            forward = all_steps if is_folded else measure(self.segment, length)
            workspace = max(ends, forward, measure(self.segment_back, length))
            used = handed + workspace
            n_segments = -(-steps // length)
            kept = max(1, min((self.memory - used) // max(1, state), n_segments, MOST_KEPT))
            chunk = steps if is_folded else length
            found = Schedule(steps, length, kept, chunk, used + kept * state, workspace, state, stored)
            if best is None or (found.memory <= self.memory and found.repeated < best.repeated):
                best = found
            elif found.memory > self.memory:
                break
        assert best is not None
        return best

    def _too_little(self, schedule: Schedule) -> ArgumentError:
        least = show_bytes(schedule.memory, up=True)
        what = "one step and its adjoint" if schedule.length else "temporaries"
        message = (
            f"{self.name} takes {least} beside inputs and results for {what}, more than memory={show_bytes(self.memory)!r}"
        )
        return ArgumentError(Diagnostic("argument-memory", message, None, f"give memory={least!r} or more"))

    def _fake(self, given: Arrays, count: int, sizes: Mapping[str, int]) -> Arrays:
        """The arguments of all parts, with no memory behind those that only a call has."""
        assert self.parts is not None
        first, length = self.counts
        fake = {**given, first: np.array(self.parts.first), length: np.array(count)}
        for op in (self.start, self.segment, self.start_back, self.segment_back, self.finish_back):
            for name in () if op is None else op.program.parameters:
                assert op is not None
                t = op.program.tensor(name)
                if name not in fake:
                    shape = tuple(evaluate(e, sizes) for e in t.shape or ())
                    fake[name] = _without_memory(shape, np.dtype(t.dtype.numpy))
        return fake


class _Run:
    """One call of a `Checkpointed` in segments."""

    def __init__(self, owner: Checkpointed, given: Arrays, schedule: Schedule) -> None:
        assert owner.parts is not None
        self.owner, self.parts, self.schedule, self.given = owner, owner.parts, schedule, given
        self.gradients: Arrays = {}
        self.totals: list[np.ndarray] = []
        self.kept: tuple[np.ndarray, ...] = ()
        self.adjoints: Sequence[np.ndarray] | None = None
        """Of the state behind the steps that are still to be gone back through."""
        self.weights: Sequence[np.ndarray] = ()
        """Cotangents of the sums over steps."""

    def run(self) -> tuple[np.ndarray, ...]:
        owner = self.owner
        memory.hold_workspace(self.schedule.workspace)  # once: one that grows leaves smaller ones behind
        start: Sequence[np.ndarray] = _call(owner.start, self.given)
        revolve.go_back(self.schedule.n_segments, self.schedule.kept, start, self._advance, self._take)
        if owner.start_back is not None:
            self._add(owner.by[0], _call(owner.start_back, self.given, *(self.adjoints or ())))
        missing = {n: np.zeros_like(self.given[n]) for n in owner.wrt if n not in self.gradients}
        return (*self.kept, *(missing[n] if n in missing else self.gradients[n] for n in owner.wrt))

    def _advance(self, state: Sequence[np.ndarray], low: int, high: int) -> Sequence[np.ndarray]:
        """The state at the beginning of segment `high`, from that of `low`."""
        at, end = low * self.schedule.length, min(high * self.schedule.length, self.schedule.steps)
        while at < end:
            count = min(end - at, self.schedule.chunk)
            found = _call(self.owner.segment, self._numbers(at, count), *state)
            state, sums = found[: len(self.parts.states)], found[len(self.parts.states) :]
            if self.adjoints is None:  # for the first time
                self.totals = [a + b for a, b in zip(self.totals, sums, strict=True)] if self.totals else list(sums)
            at += count
        return state

    def _take(self, segment: int, state: Sequence[np.ndarray]) -> None:
        """The adjoint of a segment, from the state at its beginning."""
        owner, n_states = self.owner, len(self.owner.moving)
        if self.adjoints is None:
            found = _call(owner.finish_back, self.given, *self._advance(state, segment, segment + 1), *self.totals)
            self.kept, found = found[: owner.n_kept], found[owner.n_kept :]
            self.adjoints, found = found[:n_states], found[n_states:]
            self.weights = found[: len(self.parts.sums)]
            self._add(owner.by[2], found[len(self.parts.sums) :])
        at = segment * self.schedule.length
        given = self._numbers(at, min(self.schedule.length, self.schedule.steps - at))
        found = _call(owner.segment_back, given, *state, *self.adjoints, *self.weights)
        self.adjoints = found[:n_states]
        self._add(owner.by[1], found[n_states:])

    def _numbers(self, at: int, count: int) -> Arrays:
        first, length = self.owner.counts
        return {**self.given, first: np.array(self.parts.first + at), length: np.array(count)}

    def _add(self, names: Sequence[str], found: Sequence[np.ndarray]) -> None:
        for name, value in zip(names, found, strict=True):
            if name in self.gradients:
                np.add(self.gradients[name], value, out=self.gradients[name])
            else:
                self.gradients[name] = value


def _reaching(program: Program, wrt: Sequence[str]) -> list[str]:
    """The inputs that results depend on."""
    results = {r.version for r in program.returns}
    return [n for n in wrt if n in program.parameters and program.made_from(n) & results]


def _last(names: Sequence[str], n: int) -> Sequence[str]:
    return names[len(names) - n :]


def _call(op: Operator, values: Arrays, *handed: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of an operator of which `handed` are the inputs, in order, that have no values by name."""
    more = iter(handed)
    found = op(*(values[n] if n in values else next(more) for n in op.input_names))
    return found if isinstance(found, tuple) else (found,)


def _measure(temporaries: Callable[[], int]) -> int:
    """Bytes; beyond all bounds where a kernel is refused for as many."""
    try:
        return temporaries()
    except PolycError as error:
        if error.code != "argument-too-large":
            raise
        return 1 << 62


def _lengths(steps: int) -> list[int]:
    """Lengths of segments to choose from, an eighth apart."""
    found, length = [], 1
    while length < steps:
        found.append(length)
        length += max(1, length // 8)
    return [*found, steps]


def _without_memory(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array in C order whose elements nobody may look at."""
    strides = np.cumprod([dtype.itemsize, *(max(1, n) for n in reversed(shape[1:]))])[::-1] if shape else ()
    return as_strided(np.empty(1, dtype), shape, tuple(int(s) for s in strides), writeable=False)


def show_bytes(size: int, up: bool = False) -> str:
    """``"1.5 MiB"``-like text, in whole numbers, which `memory=` takes; `up`: not less than `size`."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 10 << shift:
            return f"{-(-size >> shift) if up else size >> shift}{unit}iB"
    return f"{size}B"


def read_bytes(memory: Any) -> int:
    """``memory=`` as a number; ArgumentError ``argument-memory`` for what is none."""
    found = parse_bytes(memory) if isinstance(memory, str) else memory
    if isinstance(found, (int, np.integer)) and not isinstance(found, bool) and found > 0:
        return int(found)
    message = f"memory cannot be {memory!r}"
    raise ArgumentError(Diagnostic("argument-memory", message, None, 'give bytes: memory=256 << 20, or memory="256 MiB"'))
