"""What the tasks of a plan read, write and hold, before any of them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from polyc.api.block_memory import Jobs, greatest_memory
from polyc.api.checkpoints import show_bytes
from polyc.blocks.plan import BlockPlan, Blocks, Chunks
from polyc.ir.simplify import simplify
from polyc.ir.text import format_expr
from polyc.ir.types import DType
from polyc.poly.block_regions import BlockClass
from polyc.poly.ranges import Interval

SHOWN = (1, 2, 4, 8, 16)
"""Numbers of threads for which an explanation says the greatest memory."""


@dataclass(frozen=True)
class Stage:
    """The tasks for results, or for partial results of a reduction (`combines`: by what they are combined).

    Bytes: `read` of all regions together, `written` of all results together, `held` of the task that holds most.  `whole` says
    of which dimensions the results are one chunk, and why; `classes` what blocks of each class read."""

    result: str
    n_tasks: int
    n_kernels: int
    read: int
    written: int
    held: int
    combines: str | None = None
    whole: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    """Inputs that are read from their files once more, as an earlier stage has not kept them."""
    repeats: int = 1
    """How many stages of a time loop are alike; the other numbers are those of one."""

    def __str__(self) -> str:
        what = f"parts of {self.result}, combined by {self.combines}" if self.combines else self.result
        again = f" ({', '.join(self.again)} again)" if self.again else ""
        moved = f"{show_bytes(self.read)} read{again}, {show_bytes(self.written)} written"
        what += f", {self.repeats} times" if self.repeats > 1 else ""
        held = f"at most {show_bytes(self.held)} held by a task"
        return "\n  ".join((f"{what}: {self.n_tasks} tasks, {self.n_kernels} kernels, {moved}, {held}", *self.whole))


@dataclass(frozen=True)
class BlockReport:
    """The stages of an operator on arrays in chunks, in their order; its text is a line for each."""

    stages: tuple[Stage, ...]
    jobs: Jobs = field(default_factory=dict, repr=False, compare=False)
    arrays: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def held(self) -> int:
        """Most bytes that a task holds: the regions that it is given, their copies side by side where they are not whole
        chunks, what its kernel stores of intermediate tensors, and its results."""
        return max((s.held for s in self.stages), default=0)

    def greatest_memory(self, n_threads: int) -> int:
        """The most bytes that a process has where dask computes in so many threads, and stores results when they are there:
        what tasks hold, and chunks and partial results that wait for those that need them.

        Chunks of inputs count from when they are made; what their own graphs hold before does not."""
        return greatest_memory(self.arrays, self.jobs, n_threads)

    def explain(self) -> str:
        """What is read by the blocks of each class, why dimensions are one chunk, and the greatest memory."""
        lines = [line for s in self.stages for line in (str(s), *(f"  {c}" for c in s.classes))]
        sizes = (f"{n} {show_bytes(self.greatest_memory(n), up=True)}" for n in SHOWN)
        return "\n".join((*lines, f"greatest memory, by threads: {', '.join(sizes)}"))

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))


@dataclass(frozen=True)
class TaskBytes:
    """Of the tasks of one class, each an array: the `regions` of inputs, the `copies` that are made of those that are not whole
    chunks, `temporaries` as if each was stored, and `results`."""

    regions: np.ndarray
    copies: np.ndarray
    temporaries: np.ndarray
    results: np.ndarray

    def workspace(self, share: float) -> np.ndarray:
        """What a kernel stores that takes so many times the temporaries."""
        return np.ceil(share * self.temporaries).astype(np.int64)

    def held(self, share: float) -> np.ndarray:
        return np.asarray(self.regions + self.copies + self.workspace(share) + self.results)


def count_bytes(blocks: Blocks, inputs: Mapping[str, Chunks]) -> TaskBytes:
    """Bytes of the tasks of a class; `inputs` are the chunks of arrays that have any."""
    types = blocks.restricted.program.types
    regions = {n: _bytes_of(types[n], len(blocks.numbers), box) for n, box in blocks.regions.items()}
    copies = [np.where(_is_chunk(inputs[n], blocks.regions[n]), 0, size) for n, size in regions.items() if n in inputs]
    results = [_bytes_of(types[n], len(blocks.numbers), box) for n, box in blocks.results.items()]
    none = np.zeros(len(blocks.numbers), dtype=np.int64)
    return TaskBytes(sum(regions.values(), none), sum(copies, none), blocks.temporary_bytes, sum(results, none))


def describe_plan(
    plan: BlockPlan,
    inputs: Mapping[str, Chunks],
    result: str,
    combines: str | None = None,
    share: float = 1.0,
    whole: tuple[str, ...] = (),
) -> Stage:
    """The stage of a plan whose kernels store so many times what their temporaries are."""
    read = written = held = 0
    classes: list[tuple[int, str]] = []
    for blocks in plan.classes:
        own = count_bytes(blocks, inputs)
        read, written = read + int(np.sum(own.regions)), written + int(np.sum(own.results))
        held = max(held, int(np.max(own.held(share))))
        classes += [(n, _describe_class(found, n, list(blocks.regions))) for found, n in blocks.classes]
    lines = tuple(line for _, line in sorted(classes, key=lambda c: -c[0]))
    return Stage(result, len(plan.places), len(plan.classes), read, written, held, combines, whole, lines)


def _describe_class(found: BlockClass, n_blocks: int, inputs: Sequence[str]) -> str:
    """How many blocks there are, and what they read."""

    def show(i: Interval) -> str:
        return f"{format_expr(i.lower)} : {format_expr(simplify(i.lower + i.extent))}"

    read = ", ".join(f"{name}[{', '.join(map(show, found.tensors[name]))}]" for name in inputs)
    return f"{n_blocks} read {read or 'nothing'} where {format_expr(found.condition)}"


def _bytes_of(dtype: DType, n: int, box: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Of a box for each of `n` blocks."""
    return np.asarray(dtype.itemsize * prod((extent for _, extent in box), start=np.ones(n, dtype=np.int64)))


def _is_chunk(chunks: Chunks, box: Sequence[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Whether a box is one whole chunk."""
    found: Any = True
    for lengths, (low, extent) in zip(chunks, box, strict=True):
        ends = np.cumsum(np.array(lengths, dtype=np.int64))
        k = np.minimum(np.searchsorted(ends, low, "right"), len(ends) - 1)
        found = found & (low == ends[k] - np.array(lengths)[k]) & (low + extent == ends[k])
    return found
