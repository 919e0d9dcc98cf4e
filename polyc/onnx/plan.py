"""A plan: kernels in order, their addresses filled in once, intermediates in one block of memory.

What is made for given shapes of the inputs (`assembly`) runs as a list of jumps (`Plan.run`): no array is made and nothing is
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

from polyc import recall
from polyc.call_layout import ERROR
from polyc.codegen.objects.sequence import STEP
from polyc.diagnostics import BoundsError, Diagnostic
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.clusters import Cluster
from polyc.ir.traced import whole
from polyc.onnx.arena import Arena
from polyc.onnx.blocks import Blocks
from polyc.runtime import memory, threads
from polyc.runtime.arrays import data_address, result_type
from polyc.runtime.plan import Plan as CallPlan

_ERROR = ctypes.c_int64 * len(ERROR)
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
        self.words = (ctypes.c_int64 * (len(STEP) * len(steps)))()
        self.count = (ctypes.c_int64 * 1)(len(steps))
        for k, (step, addresses) in enumerate(zip(steps, self.addresses, strict=True)):
            entry = ctypes.cast(step.call.entry, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
            self.words[len(STEP) * k : len(STEP) * k + 3] = [entry, ctypes.addressof(addresses), step.call.block_address]

    def place_arena(self, base: int) -> None:
        """Intermediates at `base`."""
        if self.base != base:
            for step, addresses in zip(self.steps, self.addresses, strict=True):
                for slot, offset in step.arena_slots:
                    addresses[slot] = base + offset
            self.base = base

    def place_workspace(self, n_threads: int) -> object:
        """A workspace for the calling thread's run, large enough for any step; what is to be held until the run is over."""
        if self.team != n_threads:
            self.workspace_size = 0
            for k, step in enumerate(self.steps):
                team = n_threads if step.call.is_parallel else 1
                self.workspace_size = max(self.workspace_size, step.call.workspace(step.call.block_address, team))
                self.words[len(STEP) * k + STEP.index("team")] = team
            self.team = n_threads
        workspace, held = memory.hold_workspace(self.workspace_size) if self.workspace_size else (0, None)
        if self.workspace != workspace:
            for k in range(len(self.steps)):
                self.words[len(STEP) * k + STEP.index("workspace")] = workspace
            self.workspace = workspace
        return held


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
                held = frame.place_workspace(n_threads)
                for addresses, slot, name in frame.open:
                    addresses[slot] = place[name]
                self._run_steps(frame, profile)
                del held
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
        error, size = frame.error, ctypes.sizeof(ctypes.c_int64) * len(STEP)
        if profile is None:
            status = _sequence()(frame.words, frame.count, None, error, 1)
            if status:
                raise_bounds_error(self.steps[error[ERROR.index("step")]], status, error[1], error[2])
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
