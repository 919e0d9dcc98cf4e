"""A plan: kernels in order, their addresses filled in once, intermediates in one block of memory.

What is made for given shapes of the inputs (`make_plan`) runs as a list of jumps (`Plan.run`): no array is made and nothing is
checked between kernels.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyc import jobs
from polyc.config import Options
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.clusters import Cluster, base_name, build_cluster
from polyc.frontends.onnx.lowering import Lowered
from polyc.frontends.onnx.partition import partition
from polyc.ir.expr import evaluate, reads
from polyc.onnx.arena import ALIGNMENT, Arena, Buffer, plan_arena
from polyc.onnx.weights import Weights
from polyc.runtime import memory, threads
from polyc.runtime.arrays import contiguous_strides, data_address, result_type
from polyc.runtime.kernel import Kernel
from polyc.runtime.plan import Plan as CallPlan

_ERROR = ctypes.c_int64 * 3
EMPTY: Mapping[str, np.ndarray] = {}


@dataclass(slots=True, eq=False)
class Step:
    """One kernel on its operands: `addresses` is what its entry point takes, `open_slots` those filled in at each run."""

    cluster: Cluster
    call: CallPlan
    addresses: Any
    open_slots: list[tuple[int, str]] = field(default_factory=list)
    code: Any = None
    """What was compiled: a `Lowered`, or what was kept of one."""
    operands: tuple[int | str | np.ndarray, ...] = ()
    """What the addresses are of: an offset in the arena, a value from outside or a result, a constant."""


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
    _memory: np.ndarray | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self,
        given: Mapping[str, np.ndarray],
        profile: Callable[[Step], Any] | None = None,
        n_threads: int | None = None,
        out: Mapping[str, np.ndarray] = EMPTY,
    ) -> dict[str, np.ndarray]:
        """The results by name.  Runs of one plan from several threads wait for each other.

        `out` may have arrays for results (contiguous, apart from all inputs): those of a result's type and shape are written
        instead of new ones.  At most `n_threads` threads are used."""
        fresh = {}
        for n, v in self.fresh.items():
            dtype, target = result_type(n, v.dtype), out.get(n)
            is_fit = target is not None and target.shape == v.shape and target.dtype == dtype
            fresh[n] = target if target is not None and is_fit else memory.allocate_result(v.shape, dtype)
        place = {n: data_address(a) for n, a in fresh.items()}
        for name in self.inputs:
            place[name] = data_address(given[name])
        team_size = threads.team_size()
        n_threads = team_size if n_threads is None else min(team_size, n_threads)
        error = _ERROR()
        with self._lock:
            for step in self.steps:
                addresses, call = step.addresses, step.call
                for slot, name in step.open_slots:
                    addresses[slot] = place[name]
                team = n_threads if call.is_parallel else 1
                size = call.workspace_sizes.get(team)
                if size is None:
                    size = call.workspace_sizes[team] = call.workspace(call.block_address, team)
                workspace = memory.workspace_address(size) if size else 0
                if profile is None:
                    status = call.entry(addresses, call.block_address, workspace, error, team)
                else:
                    with profile(step):
                        status = call.entry(addresses, call.block_address, workspace, error, team)
                if status:
                    call.raise_bounds_error(status, error[1], error[2])
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


def make_plan(
    lowered: Lowered,
    inputs: Mapping[str, Value],
    wanted: Sequence[str],
    weights: Weights,
    options: Options,
    n_workers: int | None = None,
    progress: jobs.Progress | None = None,
) -> Plan:
    """Partition, compile and place what was lowered; `wanted` are the values that a run gives."""
    clusters = make_clusters(lowered, wanted)
    compiled = compile_clusters(clusters, options, n_workers, progress)
    made = {n for c in clusters for n in c.outputs}
    results = {n: lowered.values[n] for n in wanted if n in lowered.values}
    constants = {n: lowered.constants[n] for n in wanted if n in lowered.constants}
    bases = {n: n if v.source is None else v.source.name for n, v in results.items() if n not in constants}
    fresh = {b: lowered.values[b] for b in bases.values() if b in made}
    outside = {n: v for n, v in inputs.items() if n not in lowered.constants}
    arena, offsets = _place(clusters, lowered.values, fresh)
    block = np.empty(arena.size + ALIGNMENT, np.uint8) if arena.size else None
    start = 0 if block is None else -(-data_address(block) // ALIGNMENT) * ALIGNMENT
    kernels: dict[int, tuple[Kernel, CallPlan]] = {}
    keepalive: list[Any] = [block, compiled]
    steps = []
    for cluster, code in zip(clusters, compiled, strict=True):
        ready = weights.prepare(code, cluster, lowered.constants)
        prepared, given = ready.prepared, ready.given
        found = kernels.get(id(code))
        if found is None:
            kernel = code.compile(prepared)
            arrays = [_blank(cluster, n) for n in cluster.program.parameters]
            outs = [_blank(cluster, r.version) for r in cluster.program.returns]
            found = kernels[id(code)] = kernel, kernel.plan(arrays, outs, {})[0]
        call = found[1]
        operands: list[int | str | np.ndarray] = []
        for n in cluster.inputs:
            base = base_name(n, lowered.values)
            operands.append(given[n] if n in given else offsets.get(base, base))
        operands += [*prepared, *(offsets.get(n, n) for n in cluster.outputs)]
        addresses = [_address(o, start) for o in operands]
        open_slots = [(slot, o) for slot, o in enumerate(operands) if isinstance(o, str)]
        steps.append(Step(cluster, call, call.addresses(*addresses), open_slots, code, tuple(operands)))
        keepalive.append(ready)
    keepalive.append(kernels)
    used = {n for s in steps for _, n in s.open_slots if n not in fresh}
    used |= {b for b in bases.values() if b not in made}
    return Plan(steps, {n: v for n, v in outside.items() if n in used}, results, fresh, constants, arena, keepalive)


def _address(operand: int | str | np.ndarray, start: int) -> int:
    """Of an operand, where it is known beforehand; else 0."""
    if isinstance(operand, np.ndarray):
        return data_address(operand)
    return start + operand if isinstance(operand, int) else 0


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
    return [build_cluster([kept[k] for k in g], lowered.values, needed, lowered.constants.keys()) for g in groups]


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
    clusters: Sequence[Cluster], options: Options, n_workers: int | None, progress: jobs.Progress | None
) -> list[Any]:
    """Code for each cluster; equal programs with equal constants are compiled once."""
    distinct: dict[Any, int] = {}
    todo: list[jobs.Job] = []
    numbers = []
    for c in clusters:
        key = (c.program, c.constants)
        if key not in distinct:
            distinct[key] = len(todo)
            todo.append(jobs.Job(c.program, {}, _strides(c), options, c.constants))
        numbers.append(distinct[key])
    compiled = jobs.compile_all(todo, n_workers, progress)
    return [compiled[n] for n in numbers]


def _strides(cluster: Cluster) -> Any:
    """Contiguous ones, for parameters and results."""
    program = cluster.program
    tensors = [program.tensor(n) for n in (*program.parameters, *(r.version for r in program.returns))]
    shapes = [tuple(evaluate(e, {}) for e in t.shape or ()) for t in tensors]
    return tuple(contiguous_strides(s, t.dtype.itemsize) for s, t in zip(shapes, tensors, strict=True))


def _place(
    clusters: Sequence[Cluster], values: Mapping[str, Value], fresh: Mapping[str, Value]
) -> tuple[Arena, dict[str, int]]:
    """Offsets of what clusters hand to each other."""
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
    names = list(first)
    sizes = [values[n].size * values[n].dtype.itemsize for n in names]
    arena = plan_arena([Buffer(size, first[n], last[n]) for n, size in zip(names, sizes, strict=True)])
    return arena, dict(zip(names, arena.offsets, strict=True))


def _blank(cluster: Cluster, name: str) -> np.ndarray:
    """An array of the type and shape of a parameter or result, for what depends on these only."""
    t = cluster.program.tensor(name)
    return np.empty(tuple(evaluate(e, {}) for e in t.shape or ()), result_type(name, t.dtype))
