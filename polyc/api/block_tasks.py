"""What runs as one task: a block's kernel on the regions of its inputs, which are put together of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from polyc.blocks.selections import Combined
from polyc.ir.interpret import combine_arrays
from polyc.ir.interpret_values import Scope
from polyc.ir.program import Monoid
from polyc.records import dataclass
from polyc.runtime import memory
from polyc.runtime.arrays import convert_input

Box = tuple[tuple[int, int], ...]
"""From where to where along each dimension."""


def make_slices(box: Box) -> tuple[slice, ...]:
    return tuple([slice(*p) for p in box])


@dataclass(frozen=True, slots=True)
class Region:
    """An input's part for one block: its shape, and for each chunk that it meets the place in the region.

    What is given for a chunk has it or a part of it, or is a tuple that has: `taken` says which of the tuple (None: it is none)
    and what part of that (None: all)."""

    shape: tuple[int, ...]
    places: tuple[Box, ...]
    taken: tuple[tuple[int | None, Box | None], ...]

    def gather(self, given: Sequence[Any]) -> np.ndarray:
        """The region, contiguous.  Masked arrays are an `ArgumentTypeError`."""
        parts = [self._take(g, *taken) for g, taken in zip(given, self.taken, strict=True)]
        if len(parts) == 1 and parts[0].shape == self.shape:
            return np.ascontiguousarray(parts[0]).reshape(self.shape)
        result = memory.allocate_result(self.shape, parts[0].dtype)  # reused: C libraries keep what they are given back
        for place, part in zip(self.places, parts, strict=True):
            result[make_slices(place)] = part
        return result

    @staticmethod
    def _take(given: Any, member: int | None, box: Box | None) -> np.ndarray:
        array = given if member is None else given[member]
        array = array if type(array) is np.ndarray else convert_input(array, "a chunk", None)
        return array if box is None else array[make_slices(box)]


@dataclass(frozen=True, slots=True)
class Task:
    """What a block is but for its data: its class, regions of inputs in order, numbers, and its part of each result."""

    number: int
    regions: tuple[Region, ...]
    sizes: tuple[int, ...]
    parts: tuple[Box, ...]


class BlockKernels:
    """An operator's kernels, one for each class of blocks; the same object serves all tasks of a graph in a process.

    `examples` are arguments of `Operator.specialize` for one block of each class: kernels are compiled for any sizes, but tuned
    by those that come first, so that every process asks for these first and finds them in the disk cache.  `inputs` are for
    each class the inputs in order, None for one that has a region."""

    def __init__(
        self, operators: tuple[Any, ...], examples: tuple[tuple[Any, ...], ...], inputs: tuple[tuple[Any, ...], ...]
    ) -> None:
        self.operators, self.examples, self.inputs = operators, examples, inputs
        self._ready: set[int] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockKernels, (self.operators, self.examples, self.inputs)

    def prepare(self, number: int) -> None:
        """Have the kernel of a class, compiled or from the disk cache."""
        if number not in self._ready:
            self.operators[number].specialize(*self.examples[number])
            self._ready.add(number)

    def run(self, task: Task, parts: Sequence[np.ndarray]) -> Any:
        """The block's part of a result; of several results a tuple.  `parts` are those of all regions, one behind the other."""
        self.prepare(task.number)
        left = iter(parts)
        regions = iter([r.gather([next(left) for _ in r.places]) for r in task.regions])
        arrays = [next(regions) if value is None else value for value in self.inputs[task.number]]
        made = self.operators[task.number](*arrays, *task.sizes)
        results = made if isinstance(made, tuple) else (made,)
        blocks = tuple(r[make_slices(part)] for r, part in zip(results, task.parts, strict=True))
        return blocks if len(blocks) > 1 else blocks[0]


def run_block(kernels: BlockKernels, task: Task, parts: Sequence[np.ndarray]) -> Any:
    """`BlockKernels.run`, as a function that tasks name."""
    return kernels.run(task, parts)


def take_parts(chunk: np.ndarray, boxes: Sequence[Box]) -> tuple[np.ndarray, ...]:
    """Parts of a chunk, copied, so that they do not keep it in memory."""
    return tuple([chunk[make_slices(box)].copy() for box in boxes])


_MONOIDS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def _combine_tuples(monoid: Monoid, left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
    scope = Scope({}, {}, {}, {}, {}, {}, None)
    made = zip(combine_arrays(monoid, left, right, scope), monoid.identity, strict=True)
    return [np.asarray(v, c.dtype.numpy) for v, c in made]


def combine_parts(combined: Sequence[Combined], parts: Sequence[Any]) -> Any:
    """Partial results of blocks, of several results tuples, each by its monoid from left to right."""
    columns = list(zip(*(p if isinstance(p, tuple) else (p,) for p in parts), strict=True))
    totals: list[np.ndarray] = []
    with np.errstate(all="ignore"):  # as in kernels
        monoid = combined[0].monoid
        if monoid is not None:
            totals = reduce(partial(_combine_tuples, monoid), map(list, zip(*columns, strict=True)))
            return tuple(totals) if len(totals) > 1 else totals[0]
        for how, values in zip(combined, columns, strict=True):
            if how.law is not None:
                blocks = zip(*columns, strict=True)
                values = tuple(how.law.apply(v, own, totals) for v, own in zip(values, blocks, strict=True))
            for n in how.agreeing:
                agree = [(t == totals[n]) | ((t != t) & (totals[n] != totals[n])) for t in columns[n]]
                values = tuple(np.where(a, v, v.dtype.type(how.none)) for a, v in zip(agree, values, strict=True))
            totals.append(np.asarray(reduce(_MONOIDS[how.op], values)))
    return tuple(totals) if len(totals) > 1 else totals[0]
