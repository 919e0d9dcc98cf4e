"""What was lowered → plan: compiled clusters with their constants, and the memory of what they hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc import jobs
from polyc.config import Options
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.clusters import Cluster, base_name
from polyc.frontends.onnx.lowering import Lowered
from polyc.ir.expr import evaluate
from polyc.ir.traced import has_traced, whole
from polyc.onnx.arena import Buffer, plan_arena
from polyc.onnx.blocks import Blocks
from polyc.onnx.compilation import compile_clusters, make_clusters
from polyc.onnx.plan import Number, Plan, Step
from polyc.onnx.shapes import Choice, Shapes
from polyc.onnx.weights import Weights
from polyc.records import dataclass, replace
from polyc.runtime.arrays import result_type
from polyc.runtime.kernel import Kernel
from polyc.runtime.plan import Plan as CallPlan


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
