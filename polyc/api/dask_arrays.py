"""Operators on dask arrays: a plan of blocks (`polyc.blocks`) as a graph of tasks.  Only here dask is imported."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product, repeat
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc import driver
from polyc.api.block_tasks import BlockKernels, Region, Slices, Task, combine_parts, run_block, take_part
from polyc.api.sources import FixedSource
from polyc.blocks.chunks import propose_chunks
from polyc.blocks.cuts import Cut, find_cut
from polyc.blocks.model import check_program
from polyc.blocks.plan import BlockPlan, Blocks, Chunks, plan_cuttable, size_values
from polyc.blocks.regions import Widened
from polyc.diagnostics import Diagnostic, PolycError, UnsupportedError
from polyc.driver.sized import Sized, size_program
from polyc.ir.expr import evaluate
from polyc.ir.program import Program, integer_parameters
from polyc.poly.infer import concrete_shapes, infer_ranges
from polyc.records import dataclass
from polyc.runtime.arrays import argument_error, has_chunks
from polyc.runtime.kernel import host_check_error
from polyc.runtime.sizes import Formal

if TYPE_CHECKING:
    from polyc.api.operator import Operator

FAN_IN = 8
"""Partial results that one task combines."""


def check_chunks(formals: Sequence[Formal], inputs: Sequence[Any]) -> None:
    """Refuse arrays that have no known shape, and those whose elements are numbers that a plan depends on."""
    load_dask()
    for f, value in zip(formals, inputs, strict=True):
        if has_chunks(value) and any(math.isnan(n) for n in value.shape):
            message = f"{f.name} has chunks of unknown lengths"
            raise argument_error("argument-chunks", message, f.span, f"find them first: {f.name}.compute_chunk_sizes()")


def call_blocks(operator: Operator, inputs: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
    """A call with dask arrays."""
    if out is not None:
        message = "results of dask arrays are dask arrays, which out= cannot be"
        raise argument_error("argument-type-out", message, None, "store them: dask.array.store(result, out)")
    return operator.blocks(*inputs, **named)


def load_dask() -> Any:
    """The package; an `UnsupportedError` where it is not installed."""
    try:
        import dask.array
    except ImportError as problem:
        message = "blocks of arrays need dask, which is not installed"
        help = "pip install 'polyc[dask]'"
        raise UnsupportedError(Diagnostic("unsupported-package", message, None, help)) from problem
    return dask.array


def make_blocks(
    operator: Operator,
    program: Program,
    sizes: Mapping[str, int],
    inputs: Sequence[Any],
    chunks: Any = None,
) -> Any:
    """The results as dask arrays, of several a tuple; `inputs` by the parameters of `program`, dask arrays among them."""
    check_program(program)
    for number in integer_parameters(program):
        if has_chunks(dict(zip(program.parameters, inputs, strict=True))[number]):
            message = f"{number} is a number that ranges depend on, which a dask array does not tell yet"
            raise argument_error("argument-chunks", message, program.tensor(number).span, f"compute it: int({number})")
    given = dict(zip(program.parameters, inputs, strict=True))
    with driver.compiling():
        sized, values = _size(program, sizes)
        maker = _Maker(operator, sized, values, {n: _as_chunked(a) for n, a in given.items()})
        shapes = maker.shapes
        maker.cut_reductions()
        versions = list(dict.fromkeys(r.version for r in program.returns))
        made: dict[str, Any] = {}
        while versions:
            group = [v for v in versions if shapes[v] == shapes[versions[0]]]
            versions = [v for v in versions if v not in group]
            made |= maker.make(group, _ask_chunks(program, group, shapes[group[0]], chunks))
    results = tuple(made[r.version] for r in program.returns)
    return results if len(results) > 1 else results[0]


def _size(program: Program, sizes: Mapping[str, int]) -> tuple[Sized, dict[str, int]]:
    """The program with symbolic sizes where its ranges can be inferred then, else with numbers, and the values of all sizes."""
    try:
        sized = size_program(program, {})
        values = size_values(sized.program, sizes)
        _ = sized.ranges
    except PolycError:  # with numbers, if anything
        sized = size_program(program, sizes)
        values = size_values(sized.program, sizes)
    for check in sized.ranges.checks:
        if not evaluate(check.condition, values):
            raise host_check_error(check, values)
    return sized, values


def _as_chunked(value: Any) -> Any:
    """A dask array; a value without dimensions that is none as it is."""
    if has_chunks(value) or value.ndim == 0:
        return value
    return load_dask().from_array(value, chunks=-1)


def _ask_chunks(program: Program, group: Sequence[str], shape: tuple[int, ...], chunks: Any) -> Chunks | None:
    if chunks is None:
        return None
    from dask.array.core import normalize_chunks

    names = [r.name for r in program.returns if r.version in group]
    asked = chunks.get(names[0]) if isinstance(chunks, dict) else chunks
    if asked is None:
        return None
    dtype = program.tensor(group[0]).dtype.numpy
    try:
        found: Chunks = normalize_chunks(asked, shape, dtype=dtype)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError) as problem:
        message = f"chunks={asked!r} does not fit {names[0]}, whose shape is {shape}: {problem}"
        raise argument_error("argument-chunks", message, None, "lengths along each dimension, as dask takes them") from problem
    return found


class _Maker:
    """Makes dask arrays for versions of one program."""

    def __init__(self, operator: Operator, sized: Sized, values: Mapping[str, int], inputs: Mapping[str, Any]) -> None:
        self.operator, self.values, self.inputs = operator, values, dict(inputs)
        self.program, self.ranges = sized.program, sized.ranges
        shapes = concrete_shapes(sized.ranges, values)
        self.shapes = {name: tuple(extent for _, extent in dims) for name, dims in shapes.items()}

    @property
    def chunks(self) -> dict[str, Chunks]:
        return {n: a.chunks for n, a in self.inputs.items() if has_chunks(a)}

    def cut_reductions(self) -> None:
        """Put totals of partial results in the place of reductions over chunked axes."""
        while True:
            cut = find_cut(self.program, self.ranges, self.values, self.chunks)
            if cut is None:
                return
            self.inputs[cut.total] = self._total(cut)
            self.program, self.ranges = cut.rest, infer_ranges(cut.rest)

    def make(self, group: Sequence[str], asked: Chunks | None) -> dict[str, Any]:
        """Arrays for versions of one shape."""
        program, ranges, shape = self.program, self.ranges, self.shapes[group[0]]
        if 0 in shape:
            da = load_dask()
            return {v: da.zeros(shape, dtype=program.tensor(v).dtype.numpy, chunks=asked or shape) for v in group}
        chunks = asked or propose_chunks(program, ranges, self.values, group, shape, self.chunks)
        plan, refused, reasons = plan_cuttable(program, ranges, self.values, group, chunks)
        if asked is not None and refused:
            raise self._refusal(group[0], refused, reasons)
        tasks = self._tasks(plan)
        versions = [r.version for r in program.returns if r.version in plan.results]
        if len(versions) == 1:
            return {versions[0]: self._array(tasks.graph, tasks.name, plan.chunks, versions[0])}
        made: dict[str, Any] = {}
        for k, version in enumerate(versions):
            own = f"{tasks.name}-{program.tensor(version).base}"
            chosen = {(own, *place): (getitem, (tasks.name, *place), k) for place in plan.places}
            made[version] = self._array(_add_layer(tasks, own, chosen), own, plan.chunks, version)
        return made

    def _refusal(self, result: str, axes: frozenset[int], reasons: Sequence[Widened]) -> UnsupportedError:
        d = min(axes)
        why = next((w for w in reasons if d in w.axes), None)
        tensor = self.program.tensor(result)
        message = f"{tensor.base} cannot be cut along dimension {d}"
        span = tensor.span
        if why is not None:
            needed = self.program.tensor(why.tensor).base
            message += f": {why.reason}, so that a block needs all of dimension {why.dimension} of {needed}"
            span = next((s.span for s in self.program.statements if s.target == why.tensor), span)
        help = f"leave dimension {d} in one chunk: chunks={{{d}: -1}}"
        return UnsupportedError(Diagnostic("unsupported-block-axis", message, span, help))

    def _total(self, cut: Cut) -> Any:
        """Partial results combined in a tree, neighbours first: which are combined depends on the chunks alone."""
        tasks = self._tasks(cut.plan)
        chunks = cut.plan.chunks[cut.n_cut :]
        name = f"{tasks.name}-{cut.op}"
        layer: dict[Any, Any] = {}
        parts = list(np.ndindex(*(len(c) for c in cut.plan.chunks[: cut.n_cut])))
        for place in np.ndindex(*(len(c) for c in chunks)):
            keys: list[Any] = [(tasks.name, *part, *place) for part in parts]
            level = 0
            while len(keys) > FAN_IN:
                groups = [keys[n : n + FAN_IN] for n in range(0, len(keys), FAN_IN)]
                keys = [(f"{name}-{level}", n, *place) for n in range(len(groups))]
                layer |= {key: (combine_parts, cut.op, group) for key, group in zip(keys, groups, strict=True)}
                level += 1
            layer[(name, *place)] = (combine_parts, cut.op, keys)
        return self._array(_add_layer(tasks, name, layer), name, chunks, cut.total, cut.rest)

    def _tasks(self, plan: BlockPlan) -> _Tasks:
        """A task for each block."""
        from dask.base import tokenize
        from dask.highlevelgraph import HighLevelGraph

        inputs = {n: a.name if has_chunks(a) else a for n, a in self.inputs.items()}
        token = tokenize(str(self.program), repr(self.operator.options), dict(self.values), plan.results, plan.chunks, inputs)
        name, kernels_key = f"{self.operator.name}-{token}", f"polyc-kernels-{token}"
        parts = _Parts(f"polyc-part-{token}")
        kernels: list[Operator] = []
        values: list[tuple[Any, ...]] = []
        layer: dict[Any, Any] = {}
        for number, blocks in enumerate(plan.classes):
            kernel, scalars = self._kernel(blocks)
            kernels.append(kernel)
            values.append(scalars)
            arrays = {n: self.inputs[n] for n in blocks.regions if has_chunks(self.inputs[n])}
            met = [parts.meet(a.name, split_regions(a.chunks, blocks.regions[n])) for n, a in arrays.items()]
            sizes = zip(*(v.tolist() for v in blocks.sizes), strict=True) if blocks.sizes else repeat(())
            taken = self._taken(plan, blocks)
            places = [plan.places[n] for n in blocks.numbers.tolist()]
            for place, own, out, *regions in zip(places, sizes, taken, *met, strict=False):
                task = Task(number, tuple(r for r, _ in regions), own, out)
                keys = [key for _, chosen in regions for key in chosen]
                layer[(name, *place)] = (run_block, kernels_key, task, keys)
        layer[kernels_key] = BlockKernels(tuple(kernels), tuple(values))
        layer |= parts.layer
        dependencies = [a for a in self.inputs.values() if has_chunks(a)]
        return _Tasks(name, HighLevelGraph.from_collections(name, layer, dependencies=dependencies))

    def _taken(self, plan: BlockPlan, blocks: Blocks) -> Iterator[tuple[Slices, ...]]:
        """For each block the part that it is of each result that its program makes."""
        known: dict[tuple[int, ...], tuple[Slices, ...]] = {}
        boxes = [blocks.results[r.version] for r in blocks.restricted.program.returns]
        n_left = len(plan.chunks) - len(boxes[0])
        starts = np.array([-low for box in boxes for low, _ in box], dtype=np.int64).reshape(-1, len(blocks.numbers)).T.tolist()
        for start, n in zip(starts, blocks.numbers.tolist(), strict=True):
            lengths = [c[k] for c, k in zip(plan.chunks[n_left:], plan.places[n][n_left:], strict=True)] * len(boxes)
            key = (*start, *lengths)
            if key not in known:
                slices = [slice(s, s + length) for s, length in zip(start, lengths, strict=True)]
                rank = len(boxes[0])
                known[key] = tuple(tuple(slices[k * rank : (k + 1) * rank]) for k in range(len(boxes)))
            yield known[key]

    def _array(self, graph: Any, name: str, chunks: Chunks, version: str, program: Program | None = None) -> Any:
        dtype = (program or self.program).tensor(version).dtype.numpy
        return load_dask().Array(graph, name, chunks, dtype=dtype, meta=np.empty((0,) * len(chunks), dtype))

    def _kernel(self, blocks: Blocks) -> tuple[Operator, tuple[Any, ...]]:
        """The operator of a class, compiled for any sizes, and the values of its inputs that are in no chunks."""
        program = blocks.restricted.program
        scalars = tuple(None if has_chunks(self.inputs[n]) else self.inputs[n] for n in blocks.restricted.inputs)
        described: list[Any] = []
        for n, value in zip(blocks.restricted.inputs, scalars, strict=True):
            shape = tuple(int(e[0]) for _, e in blocks.regions.get(n, ()))
            described.append((program.tensor(n).dtype.numpy, shape) if value is None else value)
        return self.compile_block(program, described, [int(s[0]) for s in blocks.sizes]), scalars

    def compile_block(self, program: Program, described: Sequence[Any], sizes: Sequence[int]) -> Operator:
        """An operator with a kernel for regions as `described` (type and shape), contiguous, and for any others."""
        from polyc.api.operator import Operator

        options = self.operator.options.replace(parallel=False)
        operator = Operator(FixedSource(program), self.operator.name, options, dynamic=True)
        operator.specialize(*described, *sizes)
        return operator


@dataclass(frozen=True, slots=True)
class _Tasks:
    """A graph whose layer `name` has a task for each block."""

    name: str
    graph: Any


def _add_layer(tasks: _Tasks, name: str, layer: dict[Any, Any]) -> Any:
    from dask.highlevelgraph import HighLevelGraph

    graph = tasks.graph
    return HighLevelGraph({**graph.layers, name: layer}, {**graph.dependencies, name: {tasks.name}})


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a region meets along one dimension: for each chunk its number, the part of it that is taken (None: all), and the
    place of that in the region."""

    extent: int
    chunks: tuple[int, ...]
    taken: tuple[tuple[int, int] | None, ...]
    places: tuple[tuple[int, int], ...]


def split_regions(chunks: Chunks, box: Sequence[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[Meeting, ...]]:
    """For each block what its region meets along each dimension."""
    dimensions = [_split_dimension(lengths, low, extent) for lengths, (low, extent) in zip(chunks, box, strict=True)]
    return zip(*dimensions, strict=True) if dimensions else repeat(())


def _split_dimension(lengths: Sequence[int], lows: np.ndarray, extents: np.ndarray) -> list[Meeting]:
    ends = np.cumsum(np.array(lengths, dtype=np.int64)).tolist()
    known: dict[tuple[int, int], Meeting] = {}
    found = []
    for low, extent in zip(lows.tolist(), extents.tolist(), strict=True):
        if (low, extent) not in known:
            known[low, extent] = _meet_chunks(lengths, ends, low, extent)
        found.append(known[low, extent])
    return found


def _meet_chunks(lengths: Sequence[int], ends: Sequence[int], low: int, extent: int) -> Meeting:
    k, at, high = bisect_right(ends, low), low, low + extent
    chunks: list[int] = []
    taken: list[tuple[int, int] | None] = []
    places: list[tuple[int, int]] = []
    while at < high:
        start, stop = ends[k] - lengths[k], min(ends[k], high)
        if stop > at:
            chunks.append(k)
            taken.append(None if (at, stop) == (start, ends[k]) else (at - start, stop - start))
            places.append((at - low, stop - low))
            at = stop
        k += 1
    return Meeting(extent, tuple(chunks), tuple(taken), tuple(places))


class _Parts:
    """Parts of chunks that blocks need: a chunk itself, or a task that cuts it, one for all blocks that need the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.layer: dict[Any, Any] = {}
        self._known: dict[Any, Any] = {}
        self._regions: dict[Any, Region] = {}

    def meet(self, array: str, blocks: Iterable[tuple[Meeting, ...]]) -> Iterator[tuple[Region, list[Any]]]:
        """For each block its region, and the keys of what is put together in it."""
        for meetings in blocks:
            keys = list(product((array,), *(m.chunks for m in meetings)))
            parts = product(*(m.taken for m in meetings))
            keys = [key if not any(part) else self._cut(key, part) for key, part in zip(keys, parts, strict=True)]
            where = tuple([(m.extent, m.places) for m in meetings])
            region = self._regions.get(where)
            if region is None:
                places = [tuple(slice(*p) for p in place) for place in product(*(m.places for m in meetings))]
                region = self._regions[where] = Region(tuple(m.extent for m in meetings), tuple(places))
            yield region, keys

    def _cut(self, key: Any, part: Sequence[tuple[int, int] | None]) -> Any:
        known = key, part
        own = self._known.get(known)
        if own is None:
            own = self._known[known] = (self.name, len(self._known))
            self.layer[own] = (take_part, key, tuple([slice(None) if p is None else slice(*p) for p in part]))
        return own
