"""What the kernels of a model take, beside what this machine could do at best."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.frontends.onnx.clusters import Cluster
from polyc.frontends.onnx.graph import Node
from polyc.frontends.onnx.partition import extents
from polyc.ir.expr import Call, Cast, Expr, Pad, Read, Select, evaluate
from polyc.onnx.plan import Step

_STREAMED = 64 << 20
"""Bytes that the copy which finds the bandwidth of the memory moves: more than the caches hold."""


@dataclass(slots=True, eq=False)
class Entry:
    """One kernel, or one node that onnx's reference implementation computes."""

    name: str
    nodes: tuple[str, ...]
    """The nodes of the graph that it computes."""
    operations: int | None
    """Arithmetic operations of one call, a function counting as one; None where nobody knows."""
    n_bytes: int | None
    """Its inputs and results: what it has to move at least."""
    times: list[tuple[int, float, float]] = field(default_factory=list)
    """Number of the run, begin and duration in seconds, of each call."""

    def seconds(self, n_runs: int) -> float:
        """Of all calls of a run; the median over the runs."""
        totals = [0.0] * n_runs
        for run, _, duration in self.times:
            totals[run] += duration
        return statistics.median(totals)


@dataclass(slots=True, eq=False)
class Profile:
    """Times of the parts of a model.  As text it is a table; `save` writes a trace for ``chrome://tracing`` or Perfetto."""

    entries: list[Entry]
    """In the order in which they first ran."""
    runs: list[tuple[float, float]]
    """Begin and duration of each run, in seconds."""
    n_threads: int
    peak: float
    """Operations a second that the cores' multiply-add units allow, at the clock that was measured."""
    bandwidth: float
    """Bytes a second of a copy in memory."""

    @property
    def seconds(self) -> float:
        """The median run."""
        return statistics.median(d for _, d in self.runs)

    def roofline(self, entry: Entry) -> float | None:
        """Share of what arithmetic and memory allow that a kernel reaches; it may exceed 1 where caches hold the data."""
        seconds = entry.seconds(len(self.runs))
        calls = len(entry.times) / len(self.runs)
        if entry.operations is None or entry.n_bytes is None or not seconds:
            return None
        return calls * max(entry.operations / self.peak, entry.n_bytes / self.bandwidth) / seconds

    def __str__(self) -> str:
        total = self.seconds
        lines = [
            f"{len(self.runs)} runs, at most {self.n_threads} threads, median {total * 1e3:.3f} ms; "
            f"roofline {self.peak / 1e9:.0f} GFLOP/s, {self.bandwidth / 1e9:.1f} GB/s",
            f"{'time':>10} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7} {'of roof':>7}  kernel: nodes",
        ]
        inside = 0.0
        for e in sorted(self.entries, key=lambda e: -e.seconds(len(self.runs))):
            seconds = e.seconds(len(self.runs))
            inside += seconds
            calls = len(e.times) / len(self.runs)
            flops = "" if e.operations is None or not seconds else f"{calls * e.operations / seconds / 1e9:.1f}"
            moved = "" if e.n_bytes is None or not seconds else f"{calls * e.n_bytes / seconds / 1e9:.1f}"
            roof = self.roofline(e)
            share = f"{seconds / total:.1%}" if total else ""
            what = f"{e.name}: {', '.join(e.nodes)}"
            what = what if len(what) <= 100 else f"{what[:99]}…"
            shown = "" if roof is None else f"{roof:.0%}"
            lines.append(f"{seconds * 1e6:>8.1f} µs {share:>6} {flops:>8} {moved:>7} {shown:>7}  {what}")
        lines.append(f"{(total - inside) * 1e6:>8.1f} µs {(total - inside) / total if total else 0:>6.1%} between kernels")
        return "\n".join(lines)

    def chrome_trace(self) -> dict[str, Any]:
        """The runs as events of the Trace Event Format, times in microseconds."""
        first = self.runs[0][0]

        def event(name: str, begin: float, duration: float, track: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
            times = {"ts": (begin - first) * 1e6, "dur": duration * 1e6}
            return {"name": name, "ph": "X", "pid": 1, "tid": track, **times, "args": dict(arguments)}

        events = [event(f"run {k}", begin, duration, 0, {}) for k, (begin, duration) in enumerate(self.runs)]
        for e in self.entries:
            arguments = {"nodes": list(e.nodes), "operations": e.operations, "bytes": e.n_bytes}
            events += [event(e.name, begin, duration, 1, arguments) for _, begin, duration in e.times]
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `chrome_trace` as JSON.  Raises OSError."""
        Path(path).write_text(json.dumps(self.chrome_trace()))


class Watch:
    """Collects what runs do; its methods give context managers."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.run = 0
        self._keepalive: list[object] = []

    def step(self, step: Step) -> _Timer:
        """For one kernel."""
        entry = self.entries.get(id(step))
        if entry is None:
            cluster = step.cluster
            counts = step.number(count_operations(cluster)), step.number(count_bytes(cluster))
            entry = Entry(cluster.program.name, cluster.labels, *counts)
            self.entries[id(step)] = entry
            self._keepalive.append(step)
        return _Timer(entry, self.run)

    def node(self, node: Node) -> _Timer:
        """For one node of the reference implementation."""
        entry = self.entries.get(id(node))
        if entry is None:
            entry = self.entries[id(node)] = Entry(f"onnx.reference {node.op}", (node.label,), None, None)
            self._keepalive.append(node)
        return _Timer(entry, self.run)


@dataclass(slots=True)
class _Timer:
    entry: Entry
    run: int
    begin: float = 0.0

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.entry.times.append((self.run, self.begin, time.perf_counter() - self.begin))


def profile_runs(run: Any, watch: Watch, n_runs: int, n_threads: int) -> Profile:
    """Call `run` `n_runs` times, with `watch` at work."""
    if isinstance(n_runs, bool) or not isinstance(n_runs, int) or n_runs < 1:
        message = f"the number of runs must be a positive integer, not {n_runs!r}"
        raise ArgumentError(Diagnostic("argument-option", message, None, "leave it out for 10"))
    spans = []
    for k in range(n_runs):
        watch.run = k
        begin = time.perf_counter()
        run()
        spans.append((begin, time.perf_counter() - begin))
    entries = [e for e in watch.entries.values() if e.times]
    return Profile(entries, spans, n_threads, find_peak(n_threads), find_bandwidth(n_threads))


def count_operations(cluster: Cluster) -> int:
    """Arithmetic operations of one call, over the boxes of the indices; what computes subscripts does not count."""
    total = 0
    for s in cluster.program.statements:
        box = extents(s)
        points = prod(box.get(i, 1) for i in s.indices)
        total += points * (_calls(s.value) + (s.reduction is not None))
    return total


def _calls(e: Expr) -> int:
    match e:
        case Call(_, args):
            return 1 + sum(map(_calls, args))
        case Cast(value, _):
            return _calls(value)
        case Select(condition, then, other):
            return sum(map(_calls, (condition, then, other)))
        case Read() | Pad():
            return 0
    return 0


def count_bytes(cluster: Cluster) -> int:
    """Bytes of inputs and results."""
    program = cluster.program
    total = 0
    for name in (*program.parameters, *(r.version for r in program.returns)):
        t = program.tensor(name)
        total += prod(evaluate(e, {}) for e in t.shape or ()) * t.dtype.itemsize
    return total


@cache
def find_peak(n_threads: int) -> float:
    """Operations a second of float32 multiply-adds on all vector units of so many cores."""
    from polyc.codegen.objects.clock import CYCLES, time_chain
    from polyc.codegen.objects.host import physical_host

    target = physical_host()
    clock = CYCLES / min(time_chain() for _ in range(5))
    return clock * target.lanes(4) * target.fma_per_cycle * (2 if target.has_fma else 1) * n_threads


@cache
def find_bandwidth(n_threads: int) -> float:
    """Bytes a second, read and written, of copies by so many threads."""
    size = _STREAMED // n_threads
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(n_threads)]
    best = float("inf")
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(lambda p: np.copyto(*p), pairs))
            best = min(best, time.perf_counter() - begin)
    return 2 * size * n_threads / best
