"""A plan: kernels in order, their addresses filled in once, intermediates in one block of memory.

What is made for given shapes of the inputs (`make_plan`) runs as a list of jumps (`Plan.run`): no array is made and nothing is
checked between kernels.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from polyc import jobs, recall
from polyc.api.dynamic import known_strides
from polyc.cache import identify_program
from polyc.codegen.objects.sequence import FAILED, WORDS
from polyc.config import Options
from polyc.diagnostics import BoundsError, Diagnostic, PolycError
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.clusters import Cluster, base_name, build_cluster
from polyc.frontends.onnx.flatten import flatten_dimensions
from polyc.frontends.onnx.lowering import Lowered
from polyc.frontends.onnx.partition import partition
from polyc.ir.expr import evaluate, reads
from polyc.ir.program import Program
from polyc.ir.traced import has_traced, is_traced, whole
from polyc.onnx.arena import Arena, Buffer, plan_arena
from polyc.onnx.blocks import Blocks
from polyc.onnx.shapes import Choice, Shapes, shape_of
from polyc.onnx.weights import Weights
from polyc.runtime import memory, threads
from polyc.runtime.arrays import contiguous_strides, data_address, result_type
from polyc.runtime.kernel import Kernel
from polyc.runtime.plan import Plan as CallPlan

_ERROR = ctypes.c_int64 * (FAILED + 1)
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
Number = Callable[[Any], int]
"""What a traced number is for one plan; plain numbers stay."""
EMPTY: Mapping[str, np.ndarray] = {}


@dataclass(slots=True, eq=False)
class Step:
    """One kernel on its operands, whose addresses its entry point takes."""

    cluster: Cluster
    call: CallPlan
    operands: tuple[int | str | np.ndarray, ...]
    """An offset in the arena, the name of a value from outside or of a result, a constant."""
    code: Any = None
    """What was compiled: a `Lowered`, or what was kept of one."""
    number: Number = whole
    """What the traced numbers of `cluster` are here."""
    open_slots: list[tuple[int, str]] = field(init=False)
    arena_slots: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.open_slots = [(slot, o) for slot, o in enumerate(self.operands) if isinstance(o, str)]
        self.arena_slots = [(slot, o) for slot, o in enumerate(self.operands) if isinstance(o, int)]

    def addresses(self) -> Any:
        """What the entry point takes, with the addresses of constants."""
        return self.call.addresses(*(data_address(o) if isinstance(o, np.ndarray) else 0 for o in self.operands))


class _Frame:
    """What one run at a time writes to: the addresses of all steps, and the steps as `codegen.objects.sequence` reads them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.addresses = [s.addresses() for s in steps]
        self.base = -1
        """Where the arena begins; addresses in it are counted from there."""
        self.team = -1
        self.workspace = -1
        self.workspace_size = 0
        self.error = _ERROR()
        self.open = [(a, slot, name) for s, a in zip(steps, self.addresses, strict=True) for slot, name in s.open_slots]
        self.words = (ctypes.c_int64 * (WORDS * len(steps)))()
        self.count = (ctypes.c_int64 * 1)(len(steps))
        for k, (step, addresses) in enumerate(zip(steps, self.addresses, strict=True)):
            entry = ctypes.cast(step.call.entry, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
            self.words[WORDS * k : WORDS * k + 3] = [entry, ctypes.addressof(addresses), step.call.block_address]

    def place_arena(self, base: int) -> None:
        """Intermediates at `base`."""
        if self.base != base:
            for step, addresses in zip(self.steps, self.addresses, strict=True):
                for slot, offset in step.arena_slots:
                    addresses[slot] = base + offset
            self.base = base

    def place_workspace(self, n_threads: int) -> None:
        """A workspace for the calling thread's run, large enough for any step."""
        if self.team != n_threads:
            self.workspace_size = 0
            for k, step in enumerate(self.steps):
                team = n_threads if step.call.is_parallel else 1
                self.workspace_size = max(self.workspace_size, step.call.workspace(step.call.block_address, team))
                self.words[WORDS * k + 4] = team
            self.team = n_threads
        workspace = memory.workspace_address(self.workspace_size) if self.workspace_size else 0
        if self.workspace != workspace:
            for k in range(len(self.steps)):
                self.words[WORDS * k + 3] = workspace
            self.workspace = workspace


@dataclass(slots=True, eq=False)
class Plan:
    """Runs clusters for inputs of the shapes that it was made for."""

    steps: list[Step]
    inputs: dict[str, Value]
    """Values from outside that kernels read; a run is given arrays of exactly these types and shapes, contiguous."""
    results: dict[str, Value]
    """Values that a run gives."""
    fresh: dict[str, Value]
    """Tensors that are allocated at each run, because results are made of them."""
    constants: dict[str, np.ndarray]
    """Contents of results that are known."""
    arena: Arena
    keepalive: list[Any]
    blocks: Blocks = field(default_factory=Blocks)
    is_indirect: bool = False
    """Whether compiled code cannot make whole runs of it (`onnx.direct`)."""
    _idle: list[_Frame] = field(default_factory=list)
    """What runs that are over have used."""
    _makers: dict[str, tuple[np.dtype, Callable[[], np.ndarray]]] = field(default_factory=dict)
    """Types of fresh tensors, and what allocates them."""

    def run(
        self,
        given: Mapping[str, np.ndarray],
        profile: Callable[[Step], Any] | None = None,
        n_threads: int | None = None,
        out: Mapping[str, np.ndarray] = EMPTY,
    ) -> dict[str, np.ndarray]:
        """The results by name.  Several threads may run one plan at once, each in memory of its own.

        `out` may have arrays for results (contiguous, apart from all inputs): those of a result's type and shape are written
        instead of new ones.  At most `n_threads` threads are used."""
        fresh = self._run_kernels(given, profile, n_threads, out) if self.steps else {}
        results = {}
        taken = set()
        for name, value in self.results.items():
            base = name if value.source is None else value.source.name
            if name in self.constants:
                results[name] = self.constants[name].copy()
            elif base in fresh:
                array = fresh[base].reshape(value.shape)
                results[name] = array.copy() if base in taken else array
                taken.add(base)
            else:
                results[name] = given[base].reshape(value.shape).copy()
        return results

    def _run_kernels(
        self,
        given: Mapping[str, np.ndarray],
        profile: Callable[[Step], Any] | None,
        n_threads: int | None,
        out: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """The tensors that results are made of."""
        fresh = {}
        for n, v in self.fresh.items():
            maker = self._makers.get(n)
            if maker is None:
                dtype = result_type(n, v.dtype)
                maker = self._makers[n] = dtype, memory.make_allocator(v.shape, dtype)
            target = out.get(n) if out else None
            is_fit = target is not None and target.shape == v.shape and target.dtype == maker[0]
            fresh[n] = target if target is not None and is_fit else maker[1]()
        place = {n: data_address(a) for n, a in fresh.items()}
        for name in self.inputs:
            place[name] = data_address(given[name])
        team_size = threads.team_size()
        n_threads = team_size if n_threads is None else min(team_size, n_threads)
        block = self.blocks.lend(self.arena.size)
        try:
            frame = self._frame()
            try:
                frame.place_arena(0 if block is None else block.address)
                frame.place_workspace(n_threads)
                for addresses, slot, name in frame.open:
                    addresses[slot] = place[name]
                self._run_steps(frame, profile)
            finally:
                self._idle.append(frame)
        finally:
            self.blocks.give(block)
        return fresh

    def _frame(self) -> _Frame:
        try:
            return self._idle.pop()
        except IndexError:
            return _Frame(self.steps)

    def _run_steps(self, frame: _Frame, profile: Callable[[Step], Any] | None) -> None:
        error, size = frame.error, ctypes.sizeof(ctypes.c_int64) * WORDS
        if profile is None:
            status = _sequence()(frame.words, frame.count, None, error, 1)
            if status:
                raise_bounds_error(self.steps[error[FAILED]], status, error[1], error[2])
            return
        frame.count[0], first = 1, ctypes.addressof(frame.words)
        try:
            for k, step in enumerate(self.steps):
                with profile(step):
                    status = _sequence()(first + k * size, frame.count, None, error, 1)
                if status:
                    raise_bounds_error(step, status, error[1], error[2])
        finally:
            frame.count[0] = len(self.steps)


@functools.cache
def _sequence() -> Callable[..., int]:
    """The compiled function that runs steps one after the other."""
    return _ENTRY(recall.load_sequence().entry_address)  # `recall` keeps the code


def raise_bounds_error(step: Step, status: int, index: int, bound: int) -> NoReturn:
    """BoundsError in the names of the graph."""
    try:
        step.call.raise_bounds_error(status, index, bound)
    except BoundsError as error:
        found = in_graph_names(step.cluster, error.diagnostics[0])
        if index < 0:
            help = "check the index values; where negative ones count from the end, the extent has been added already"
            found = replace(found, help=help)
        raise BoundsError(found) from error


def in_graph_names(cluster: Cluster, found: Diagnostic) -> Diagnostic:
    """What was found about a cluster's program, told of its nodes and their tensors."""
    program = cluster.program
    names = dict(zip(program.parameters, cluster.inputs, strict=True))
    names |= dict(zip((r.version for r in program.returns), cluster.outputs, strict=True))
    message = re.sub(r"\b[wxy]\d+\b", lambda m: names.get(m[0], m[0]), found.message)
    return replace(found, message=f"{', '.join(cluster.labels)}: {message}")


def make_plan(
    lowered: Lowered,
    inputs: Mapping[str, Value],
    wanted: Sequence[str],
    weights: Weights,
    options: Options,
    n_workers: int | None = None,
    progress: jobs.Progress | None = None,
    shapes: Shapes | None = None,
    blocks: Blocks | None = None,
) -> Plan:
    """Partition, compile and place what was lowered; `wanted` are the values that a run gives.

    `shapes` decides which clusters are compiled for any sizes (None: none)."""
    clusters = make_clusters(lowered, wanted)
    choices, compiled = compile_clusters(clusters, options, n_workers, progress, shapes or Shapes(False))
    return Assembly(lowered, inputs, wanted, clusters, choices, compiled, weights).plan(blocks or Blocks())


class Assembly:
    """Compiled clusters, and all of a plan that does not depend on numbers which are traced (`ir.traced`), where some are."""

    def __init__(
        self,
        lowered: Lowered,
        inputs: Mapping[str, Value],
        wanted: Sequence[str],
        clusters: Sequence[Cluster],
        choices: Sequence[Choice],
        compiled: Sequence[Any],
        weights: Weights,
    ) -> None:
        self.values = lowered.values
        self.parts = list(zip(clusters, choices, compiled, strict=True))
        made = {n for c in clusters for n in c.outputs}
        self.results = {n: lowered.values[n] for n in wanted if n in lowered.values}
        self.constants = {n: lowered.constants[n] for n in wanted if n in lowered.constants}
        self.bases = {n: n if v.source is None else v.source.name for n, v in self.results.items() if n not in self.constants}
        self.fresh = {b: lowered.values[b] for b in self.bases.values() if b in made}
        weights.compile([code for _, _, code in self.parts])
        self.ready = [weights.prepare(code, cluster, lowered.constants) for cluster, _, code in self.parts]
        self.kernels: dict[int, Kernel] = {}
        for (_, _, code), ready in zip(self.parts, self.ready, strict=True):
            if id(code) not in self.kernels:
                self.kernels[id(code)] = code.compile(ready.prepared)
        # Known contents that are traced are made for each plan.
        self.tables = {n: a for c in clusters for n in c.inputs if has_traced(a := lowered.constants.get(n))}
        outside = {n: v for n, v in inputs.items() if n not in lowered.constants}
        used = {base_name(n, self.values) for c in clusters for n in c.inputs} | set(self.bases.values())
        self.read = {n: v for n, v in outside.items() if n in used and n not in made}
        self.buffers = _live_ranges(clusters, self.values, self.fresh)
        self.arrays = [
            [_array(cluster, n) for n in (*cluster.program.parameters, *(r.version for r in cluster.program.returns))]
            for cluster, _, _ in self.parts
        ]

    def plan(self, blocks: Blocks, number: Number = whole) -> Plan:
        """The plan where each traced number is what `number` gives for it."""
        names, sizes = [b.name for b in self.buffers], [number(b.size) for b in self.buffers]
        arena = plan_arena([Buffer(n, b.first, b.last) for n, b in zip(sizes, self.buffers, strict=True)])
        offsets = dict(zip(names, arena.offsets, strict=True))
        tables = {n: _table(a, number) for n, a in self.tables.items()}
        calls: dict[Any, CallPlan] = {}
        steps = []
        for (cluster, choice, code), ready, specs in zip(self.parts, self.ready, self.arrays, strict=True):
            chosen = {n: number(v) for n, v in choice.sizes.items()}
            key = (id(code), tuple(chosen.items()))
            call = calls.get(key)
            if call is None:
                arrays = [np.empty(tuple(map(number, shape)), dtype) for shape, dtype in specs]
                count = len(cluster.inputs)
                call = calls[key] = self.kernels[id(code)].plan(arrays[:count], arrays[count:], chosen)[0]
            operands: list[int | str | np.ndarray] = []
            for n in cluster.inputs:
                base = base_name(n, self.values)
                if n in ready.given:
                    operands.append(ready.given[n])
                else:
                    operands.append(tables[n] if n in tables else offsets.get(base, base))
            operands += [*ready.prepared, *(offsets.get(n, n) for n in cluster.outputs)]
            steps.append(Step(cluster, call, tuple(operands), code, number))
        return Plan(
            steps,
            {n: _numbered(v, number) for n, v in self.read.items()},
            {n: _numbered(v, number) for n, v in self.results.items()},
            {n: _numbered(v, number) for n, v in self.fresh.items()},
            {n: _table(a, number) if has_traced(a) else a for n, a in self.constants.items()},
            arena,
            [self],
            blocks,
        )


def _numbered(v: Value, number: Number) -> Value:
    return v if number is whole else replace(v, shape=tuple(map(number, v.shape)))


def _table(array: np.ndarray, number: Number) -> np.ndarray:
    return np.array([number(n) for n in array.reshape(-1)], np.int64).reshape(array.shape)


def make_clusters(lowered: Lowered, wanted: Sequence[str]) -> list[Cluster]:
    """The clusters of what was lowered, in an order in which they can run; those that nobody needs are left out."""
    fragments = lowered.fragments
    maker = {t.name: i for i, f in enumerate(fragments) for t in f.tensors}
    read = [{r.tensor for s in f.statements for e in (s.value, *s.subscripts) for r in reads(e)} for f in fragments]
    for f, names in zip(fragments, read, strict=True):
        names |= {r.tensor for s in f.statements if s.reduction is not None for r in reads(s.reduction.init)}
    read = [{base_name(n, lowered.values) for n in names} for names in read]
    producers = [sorted({maker[n] for n in names if n in maker and maker[n] != i}) for i, names in enumerate(read)]
    ends = {v.name if v.source is None else v.source.name for n in wanted if (v := lowered.values.get(n)) is not None}
    alive = _alive(producers, [maker[n] for n in ends if n in maker])
    position = {old: new for new, old in enumerate(alive)}
    kept = [fragments[i] for i in alive]
    groups = partition(kept, [[position[p] for p in producers[i]] for i in alive])
    group_of = {alive[k]: g for g, group in enumerate(groups) for k in group}
    needed = set(ends)
    for i in alive:
        if i in group_of:
            needed |= {n for n in read[i] if n in maker and group_of.get(maker[n]) != group_of[i]}
    known = {n for n, a in lowered.constants.items() if not has_traced(a)}
    clusters = [build_cluster([kept[k] for k in g], lowered.values, needed, known) for g in groups]
    return [replace(c, program=flatten_dimensions(c.program, c.constants)) for c in clusters]


def _alive(producers: Sequence[Sequence[int]], ends: Sequence[int]) -> list[int]:
    """Fragments that the ends depend on, ascending."""
    seen: set[int] = set()
    stack = list(ends)
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack += producers[i]
    return sorted(seen)


def compile_clusters(
    clusters: Sequence[Cluster],
    options: Options,
    n_workers: int | None,
    progress: jobs.Progress | None,
    shapes: Shapes,
) -> tuple[list[Choice], list[Any]]:
    """What is compiled for each cluster, and its code; equal programs with equal constants are compiled once."""
    choices = [shapes.choose(c) for c in clusters]
    while True:
        distinct: dict[Any, int] = {}
        todo: list[jobs.Job] = []
        numbers = []
        for choice in choices:
            # The text tells 0.0 from -0.0, which are equal.
            key = (identify_program(choice.program).text, choice.constants, tuple(choice.typical.items()))
            if key not in distinct:
                distinct[key] = len(todo)
                todo.append(_job(choice, options))
            numbers.append(distinct[key])
        try:
            compiled = jobs.compile_all(todo, n_workers, progress)
        except PolycError:
            if not any(choice.is_general for choice in choices):
                raise
            if any(is_traced(n) for choice in choices for n in choice.sizes.values()):
                raise  # there is no code of their own for shapes that are traced
            choices = _replace_failing(clusters, choices, options, shapes)
        else:
            found = [compiled[n] for n in numbers]
            free = [_without_varying(choice, code) for choice, code in zip(choices, found, strict=True)]
            if all(a is b for a, b in zip(free, choices, strict=True)):
                return choices, found
            choices = free


def _without_varying(choice: Choice, code: Any) -> Choice:
    """`choice` without the constants of which its code would want something made for each size anew: they are read as they
    are."""
    varying = {p for program in code.preparations if program.sizes for p in program.parameters}
    if not varying:
        return choice
    kept = tuple(c for c in choice.constants if c not in varying)
    return replace(choice, constants=kept if len(kept) < len(choice.constants) else ())


def _job(choice: Choice, options: Options) -> jobs.Job:
    return jobs.Job(choice.program, {}, _strides(choice), options, choice.constants, choice.typical)


def _replace_failing(clusters: Sequence[Cluster], choices: Sequence[Choice], options: Options, shapes: Shapes) -> list[Choice]:
    """The choices without those general programs that cannot be compiled; where all can, another program is at fault, and none
    is general any more."""
    failed: dict[Program, PolycError] = {}
    for choice in {c.program: c for c in choices if c.is_general}.values():
        try:
            jobs.compile_all([_job(choice, options)], 0)
        except PolycError as error:
            failed[choice.program] = error
    result = []
    for cluster, choice in zip(clusters, choices, strict=True):
        problem = failed.get(choice.program)
        if problem is not None:
            result.append(shapes.refuse(cluster, problem))
        else:
            result.append(choice if failed else Choice(cluster.program, cluster.constants))
    return result


def _strides(choice: Choice) -> Any:
    """Contiguous ones, for parameters and results; None where they depend on sizes."""
    program = choice.program
    symbolic = frozenset(choice.sizes)
    found = []
    for n in (*program.parameters, *(r.version for r in program.returns)):
        t = program.tensor(n)
        strides = contiguous_strides(shape_of(program, n, choice.sizes), t.dtype.itemsize)
        found.append(known_strides(strides, t.shape or (), symbolic))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Range:
    """A tensor of `size` bytes that is needed from step `first` to step `last`."""

    name: str
    size: int
    first: int
    last: int


def _live_ranges(clusters: Sequence[Cluster], values: Mapping[str, Value], fresh: Mapping[str, Value]) -> list[_Range]:
    """What clusters hand to each other."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, c in enumerate(clusters):
        for n in c.outputs:
            if n not in fresh:
                first[n] = last[n] = step
        for n in c.inputs:
            base = base_name(n, values)
            if base in first:
                last[base] = step
    return [_Range(n, values[n].size * values[n].dtype.itemsize, first[n], last[n]) for n in first]


def _array(cluster: Cluster, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a parameter or result."""
    t = cluster.program.tensor(name)
    return tuple(evaluate(e, {}) for e in t.shape or ()), result_type(name, t.dtype)
