"""Graphs of tasks for planned blocks (`polyc.blocks`), as dask arrays.  Only here dask is imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import getitem
from typing import Any

import numpy as np

from polyc.api.block_memory import Job, Jobs
from polyc.api.block_parts import Parts, split_regions
from polyc.api.block_report import count_bytes
from polyc.api.block_tasks import BlockKernels, Box, Task, combine_parts, run_block
from polyc.blocks.cuts import Cut
from polyc.blocks.plan import BlockPlan, Blocks, Chunks
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.ir.program import Program
from polyc.runtime.arrays import argument_error, has_chunks
from polyc.runtime.sizes import Formal

FAN_IN = 8
"""Partial results that one task combines."""


def load_dask() -> Any:
    """The package; an `UnsupportedError` where it is not installed."""
    try:
        import dask.array
    except ImportError as problem:
        message = "blocks of arrays need dask, which is not installed"
        help = "pip install 'polyc[dask]'"
        raise UnsupportedError(Diagnostic("unsupported-package", message, None, help)) from problem
    return dask.array


def make_lock(name: str) -> Any:
    """The lock of this name: for a C library that does one thing at a time, so that threads need not wait in it."""
    from dask.utils import SerializableLock

    return SerializableLock(name)


def check_chunks(formals: Sequence[Formal], inputs: Sequence[Any]) -> None:
    """Refuse arrays that have no known shape."""
    for f, value in zip(formals, inputs, strict=True):
        if has_chunks(value) and any(math.isnan(n) for n in value.shape):
            message = f"{f.name} has chunks of unknown lengths"
            raise argument_error("argument-chunks", message, f.span, f"find them first: {f.name}.compute_chunk_sizes()")


def as_chunked(value: Any) -> Any:
    """A dask array, in chunks of which none is empty but where all are; a value without dimensions that is none as it is."""
    if has_chunks(value) and any(0 in lengths and len(lengths) > 1 for lengths in value.chunks):
        return value.rechunk(tuple(tuple(n for n in lengths if n) or (0,) for lengths in value.chunks))
    if has_chunks(value) or value.ndim == 0:
        return value
    return load_dask().from_array(value, chunks=-1)


def is_in_file(array: Any) -> bool:
    """Whether the chunks of a dask array are what lies in a file (Zarr, HDF5, a mapped one), and nothing is computed of it."""
    stored = f"original-{array.name}"
    if set(array.dask.layers) != {stored, array.name}:
        return False
    source = array.dask.layers[stored].get(stored)
    return type(getattr(source, "value", source)) is not np.ndarray


def read_again(array: Any, number: int) -> Any:
    """An array that `is_in_file`, with chunks that are read once more; `number` tells several such arrays from each other."""
    from dask.highlevelgraph import HighLevelGraph

    stored, layer = f"original-{array.name}", array.dask.layers[array.name]
    made, _ = layer.clone(set(array.dask.layers[array.name].get_output_keys()), f"polyc-{number}")
    (name,) = {key[0] for key in made.get_output_keys()}
    graph = HighLevelGraph({stored: array.dask.layers[stored], name: made}, {stored: set(), name: {stored}})
    return load_dask().Array(graph, name, array.chunks, dtype=array.dtype, meta=array._meta)


def read_chunks(asked: Any, result: str, shape: tuple[int, ...], dtype: np.dtype) -> Chunks:
    """Chunks as dask takes them: a length, a text, or lengths along each dimension."""
    from dask.array.core import normalize_chunks

    try:
        found: Chunks = normalize_chunks(asked, shape, dtype=dtype)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as problem:
        message = f"chunks={asked!r} does not fit {result}, whose shape is {shape}: {problem}"
        raise argument_error("argument-chunks", message, None, "lengths along each dimension, as dask takes them") from problem
    return found


MakeOperator = Callable[[Program], Any]
"""The operator of a class of blocks, by its program."""


@dataclass(frozen=True)
class Graphs:
    """Makes dask arrays: of blocks of `program`, which are compiled now unless it is a `dry_run`, on `inputs` by name.

    `name` begins the names of arrays; with `identity` it is all that these depend on beside plans and inputs.  `jobs` are told
    what tasks hold; kernels store `share` times what temporaries are."""

    name: str
    identity: tuple[Any, ...]
    program: Program
    inputs: Mapping[str, Any]
    make_operator: MakeOperator
    dry_run: bool
    jobs: Jobs

    def results(self, plan: BlockPlan, share: float) -> dict[str, Any]:
        """The arrays of a plan's results, by version."""
        tasks = self._tasks(plan, share)
        versions = [r.version for r in self.program.returns if r.version in plan.results]
        return self._take(tasks, versions, self.program, plan, plan.chunks, plan.places)

    def totals(self, cut: Cut, share: float) -> dict[str, Any]:
        """Partial results combined in a tree, neighbours first: which are combined depends on the chunks alone.  By name, those
        that are needed."""
        tasks = self._tasks(cut.plan, share)
        chunks = cut.plan.chunks[cut.n_cut :]
        name = f"{tasks.name}-{'-'.join(c.op for c in cut.combined)}"
        layer: dict[Any, Any] = {}
        parts = list(np.ndindex(*(len(c) for c in cut.plan.chunks[: cut.n_cut])))
        places = list(np.ndindex(*(len(c) for c in chunks)))

        def combine(key: Any, group: list[Any]) -> None:
            layer[key] = (combine_parts, cut.combined, group)
            size = max(self.jobs[k].result for k in group)
            self.jobs[key] = Job(size, size)

        for place in places:
            keys: list[Any] = [(tasks.name, *part, *place) for part in parts]
            level = 0
            while len(keys) > FAN_IN:
                groups = [keys[n : n + FAN_IN] for n in range(0, len(keys), FAN_IN)]
                keys = [(f"{name}-{level}", n, *place) for n in range(len(groups))]
                for key, group in zip(keys, groups, strict=True):
                    combine(key, group)
                level += 1
            combine((name, *place), keys)
        made = _Tasks(name, _add_layer(tasks, name, layer))
        return self._take(made, cut.totals, cut.rest, cut.plan, chunks, places)

    def _take(
        self,
        tasks: _Tasks,
        versions: Sequence[str | None],
        program: Program,
        plan: BlockPlan,
        chunks: Chunks,
        places: Sequence[tuple[int, ...]],
    ) -> dict[str, Any]:
        """The arrays of what tasks give, of several results tuples; None is not wanted."""
        if len(versions) == 1 and versions[0] is not None:
            return {versions[0]: _make_array(tasks.graph, tasks.name, chunks, program, versions[0])}
        made: dict[str, Any] = {}
        for k, version in enumerate(versions):
            if version is not None:
                own = f"{tasks.name}-{version}"
                whole = _whole_extents(plan, k, len(chunks))
                zeros = (0,) * len(whole)
                chosen = {(own, *place, *zeros): (getitem, (tasks.name, *place), k) for place in places}
                all_chunks = (*chunks, *((n,) for n in whole))
                made[version] = _make_array(_add_layer(tasks, own, chosen), own, all_chunks, program, version)
                self.jobs.update({key: Job(0, shares=made_by) for key, (_, made_by, _) in chosen.items()})
        return made

    def _tasks(self, plan: BlockPlan, share: float) -> _Tasks:
        """A task for each block."""
        from dask.base import tokenize
        from dask.highlevelgraph import HighLevelGraph

        inputs = {n: a.name if has_chunks(a) else a for n, a in self.inputs.items()}
        token = tokenize(str(self.program), self.identity, plan.results, plan.chunks, inputs)
        name, kernels_key = f"{self.name}-{token}", f"polyc-kernels-{token}"
        parts = Parts(f"polyc-parts-{token}", self.jobs)
        layer: dict[Any, Any] = {kernels_key: self._kernels(plan)}
        for number, blocks in enumerate(plan.classes):
            arrays = {n: self.inputs[n] for n in blocks.regions if has_chunks(self.inputs[n])}
            met = [
                parts.meet(a.name, a.chunks, a.dtype.itemsize, split_regions(a.chunks, blocks.regions[n]))
                for n, a in arrays.items()
            ]
            sizes = zip(*(v.tolist() for v in blocks.sizes), strict=True) if blocks.sizes else repeat(())
            places = [plan.places[n] for n in blocks.numbers.tolist()]
            own_bytes = count_bytes(blocks, {n: a.chunks for n, a in arrays.items()})
            held = zip(own_bytes.results.tolist(), own_bytes.copies.tolist(), own_bytes.workspace(share).tolist(), strict=True)
            for place, own, out, (made, copies, workspace), *regions in zip(
                places, sizes, _take_results(plan, blocks), held, *met, strict=False
            ):
                task = Task(number, tuple(r for r, _ in regions), own, out)
                keys = [key for _, chosen in regions for key in chosen]
                layer[(name, *place)] = (run_block, kernels_key, task, keys)
                self.jobs[(name, *place)] = Job(made, copies, workspace, is_lent=True)
        layer |= parts.layer
        dependencies = [a for a in self.inputs.values() if has_chunks(a)]
        return _Tasks(name, HighLevelGraph.from_collections(name, layer, dependencies=dependencies))

    def _kernels(self, plan: BlockPlan) -> BlockKernels:
        """The kernels of all classes, tuned for the largest block of each."""
        operators, examples, inputs = [], [], []
        for blocks in plan.classes:
            program, names = blocks.restricted.program, blocks.restricted.inputs
            scalars = tuple(None if has_chunks(self.inputs[n]) else self.inputs[n] for n in names)
            (first, *_) = blocks.results.values()
            largest = int(np.argmax(math.prod((extent for _, extent in first), start=np.ones(len(blocks.numbers), np.int64))))
            described: list[Any] = []
            for n, value in zip(names, scalars, strict=True):
                shape = tuple(int(e[largest]) for _, e in blocks.regions.get(n, ()))
                described.append((program.tensor(n).dtype.numpy, shape) if value is None else value)
            operators.append(self.make_operator(program))
            examples.append((*described, *(int(s[largest]) for s in blocks.sizes)))
            inputs.append(scalars)
        kernels = BlockKernels(tuple(operators), tuple(examples), tuple(inputs))
        for number in range(0 if self.dry_run else len(operators)):
            kernels.prepare(number)
        return kernels


def _make_array(graph: Any, name: str, chunks: Chunks, program: Program, version: str) -> Any:
    dtype = program.tensor(version).dtype.numpy
    return load_dask().Array(graph, name, chunks, dtype=dtype, meta=np.empty((0,) * len(chunks), dtype))


def _take_results(plan: BlockPlan, blocks: Blocks) -> Iterator[tuple[Box, ...]]:
    """For each block the part that it is of each result that its program makes."""
    known: dict[tuple[int, ...], tuple[Box, ...]] = {}
    boxes = [blocks.results[r.version] for r in blocks.restricted.program.returns]
    rank = min(map(len, boxes))
    n_left = len(plan.chunks) - rank
    more = [[int(extent[0]) for _, extent in box[rank:]] for box in boxes]
    starts = np.array([-low for box in boxes for low, _ in box], dtype=np.int64).reshape(-1, len(blocks.numbers)).T.tolist()
    for start, n in zip(starts, blocks.numbers.tolist(), strict=True):
        own = [c[k] for c, k in zip(plan.chunks[n_left:], plan.places[n][n_left:], strict=True)]
        key = (*start, *own)
        if key not in known:
            left = iter(start)
            known[key] = tuple(tuple([(s, s + n) for n, s in zip((*own, *m), left, strict=False)]) for m in more)
        yield known[key]


def _whole_extents(plan: BlockPlan, k: int, rank: int) -> list[int]:
    """Of a result (by its number) the dimensions behind those that are cut."""
    blocks = plan.classes[0]
    box = blocks.results[blocks.restricted.program.returns[k].version]
    return [int(extent[0]) for _, extent in box[rank:]]


@dataclass(frozen=True, slots=True)
class _Tasks:
    """A graph whose layer `name` has a task for each block."""

    name: str
    graph: Any


def _add_layer(tasks: _Tasks, name: str, layer: dict[Any, Any]) -> Any:
    from dask.highlevelgraph import HighLevelGraph

    graph = tasks.graph
    return HighLevelGraph({**graph.layers, name: layer}, {**graph.dependencies, name: {tasks.name}})
