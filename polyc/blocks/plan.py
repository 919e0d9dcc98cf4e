"""Which blocks there are, of which class each is, and what each reads and holds: arithmetic over all blocks at once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from polyc.blocks.programs import keep_results
from polyc.blocks.restriction import BlockProgram, RangeMismatch, restrict_program
from polyc.diagnostics import PolycError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, evaluate
from polyc.ir.numeric import APPLY, quiet
from polyc.ir.program import Program
from polyc.poly.block_merging import Merged, merge_classes, outline
from polyc.poly.block_model import Axis, BlockModel, make_model
from polyc.poly.block_regions import BlockClass, Widened, derive_class
from polyc.poly.ranges import Interval, Ranges

MAX_CLASSES = 256
"""That are derived one by one; a stencil of four dimensions with borders has 81."""

Chunks = tuple[tuple[int, ...], ...]
"""Lengths along each dimension."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of one program: `numbers` says which (in the order of `BlockPlan.places`), all arrays are over these.

    `classes` are those that they are of, each with the number of its blocks."""

    classes: tuple[tuple[BlockClass, int], ...]
    restricted: BlockProgram
    numbers: np.ndarray
    regions: dict[str, list[tuple[np.ndarray, np.ndarray]]]
    """First position and extent along each dimension, of each input that is needed."""
    results: dict[str, list[tuple[np.ndarray, np.ndarray]]]
    """The same of what the program makes, from the first position of the block."""
    sizes: list[np.ndarray]
    """Values of `restricted.sizes`."""
    temporary_bytes: np.ndarray
    """Of all intermediate tensors, as if each was stored."""
    merged: Merged | None = None
    """Several classes as one."""


@dataclass(frozen=True)
class BlockPlan:
    """Results of one shape, cut into `chunks`; see `plan_blocks`."""

    results: tuple[str, ...]
    chunks: Chunks
    classes: tuple[Blocks, ...]
    model: BlockModel
    n_summed: int = 0

    @cached_property
    def places(self) -> list[tuple[int, ...]]:
        """The blocks, by their numbers along each dimension."""
        return list(np.ndindex(*(len(c) for c in self.chunks)))


class NotCut(Exception):
    """Some axes (positions) of results cannot be cut; `widened` says why, where that is known."""

    def __init__(self, axes: frozenset[int], widened: Sequence[Widened] = ()) -> None:
        super().__init__(axes)
        self.axes, self.widened = axes, tuple(widened)


class NotPlanned(Exception):
    """Not even the whole of some results can be shown to get what it needs; the text says why."""


def plan_blocks(
    program: Program, ranges: Ranges, sizes: Mapping[str, int], results: Sequence[str], chunks: Chunks, n_summed: int = 0
) -> BlockPlan:
    """The blocks of `results`, versions of one shape (others than the first may have more dimensions at the end, which are not
    cut); `sizes` has a value for every size, defined ones included.

    With `n_summed` blocks have their first dimensions combined, and only the others.

    Raises `NotCut` where axes that have several chunks cannot be cut.  The caller holds the compile lock."""
    program = keep_results(program, results)
    axes = name_axes(program, chunks)
    model = make_model(program, ranges, results, axes)
    columns, n = _columns(model, sizes, chunks)
    classes: list[tuple[BlockClass, np.ndarray]] = []
    widened: list[Widened] = []
    left = np.ones(n, dtype=bool)
    while left.any():
        candidates = np.flatnonzero(left)
        if len(classes) == MAX_CLASSES:
            raise NotCut(frozenset(d for d, c in enumerate(chunks) if len(c) > 1))
        example = int(candidates[len(candidates) // 2])  # of what is left the middle: borders come last
        found = derive_class(model, {name: int(c if np.ndim(c) == 0 else c[example]) for name, c in columns.items()})
        inside = np.broadcast_to(evaluate_all(found.condition, columns), (n,)).astype(bool) & left
        assert inside[example]
        widened += found.widened
        if found.widened:
            raise NotCut(frozenset().union(*(w.axes for w in found.widened)), widened)
        classes.append((found, np.flatnonzero(inside)))
        left &= ~inside
    made = _make_all(model, classes, columns, n_summed)
    return BlockPlan(tuple(results), chunks, tuple(made), model, n_summed)


def refit_plan(plan: BlockPlan, sizes: Mapping[str, int]) -> BlockPlan | None:
    """The plan with other values of sizes, where each of its blocks is in one of its classes then."""
    columns, n = _columns(plan.model, sizes, plan.chunks)
    made: list[Blocks] = []
    left = np.ones(n, dtype=bool)
    for blocks in plan.classes:
        group: list[tuple[BlockClass, np.ndarray]] = []
        for found, _ in blocks.classes:
            inside = np.broadcast_to(evaluate_all(found.condition, columns), (n,)).astype(bool) & left
            group.append((found, np.flatnonzero(inside)))
            left &= ~inside
        if any(len(own) for _, own in group):
            again = _fill(plan.model, blocks.restricted, blocks.merged, group, columns, plan.n_summed)
            if again is None:
                return None
            made.append(again)
    return None if left.any() else BlockPlan(plan.results, plan.chunks, tuple(made), plan.model, plan.n_summed)


def plan_cuttable(
    program: Program, ranges: Ranges, sizes: Mapping[str, int], results: Sequence[str], chunks: Chunks, n_summed: int = 0
) -> tuple[BlockPlan, frozenset[int], tuple[Widened, ...]]:
    """`plan_blocks` with one chunk along the axes that cannot be cut; which these are, and the reasons as far as known.

    Raises `NotPlanned`."""
    refused: frozenset[int] = frozenset()
    reasons: list[Widened] = []
    extents = [sum(c) for c in chunks]

    def whole(axes: frozenset[int]) -> Chunks:
        return tuple((extents[d],) if d in axes else c for d, c in enumerate(chunks))

    while True:
        try:
            return plan_blocks(program, ranges, sizes, results, whole(refused), n_summed), refused, tuple(reasons)
        except NotCut as problem:
            refused |= problem.axes
            reasons += problem.widened
        except (PolycError, RangeMismatch) as problem:
            cut = [d for d, c in enumerate(whole(refused)) if len(c) > 1]
            if not cut:
                raise NotPlanned(str(problem)) from problem
            every = frozenset(range(len(chunks)))
            bad = {d for d in cut if not _can_cut(program, ranges, sizes, results, whole(every - {d}), n_summed)}
            refused |= frozenset(bad or cut)


def _can_cut(
    program: Program, ranges: Ranges, sizes: Mapping[str, int], results: Sequence[str], chunks: Chunks, n_summed: int
) -> bool:
    try:
        plan_blocks(program, ranges, sizes, results, chunks, n_summed)
    except (PolycError, RangeMismatch, NotCut):
        return False
    return True


def _taken_names(program: Program) -> set[str]:
    taken = {*program.sizes, *(n for n, _ in program.defined_sizes), *(i for s in program.statements for i in s.indices)}
    return taken | {t.name for t in program.tensors} | {t.base for t in program.tensors}


def name_axes(program: Program, chunks: Chunks) -> list[Axis | None]:
    """Names for the sizes of blocks that no other name is."""
    taken = _taken_names(program)

    def free(wanted: str) -> str:
        while wanted in taken:
            wanted += "_"
        taken.add(wanted)
        return wanted

    return [Axis(free(f"first{d}"), free(f"count{d}")) if len(c) > 1 else None for d, c in enumerate(chunks)]


def _columns(model: BlockModel, sizes: Mapping[str, int], chunks: Chunks) -> tuple[dict[str, Any], int]:
    """Every size of the model: a number, or (of blocks) an array of as many as there are blocks."""
    columns: dict[str, Any] = {name: sizes[name] for name in sizes}
    shape = tuple(len(c) for c in chunks)
    places = np.indices(shape).reshape(len(shape), prod(shape))
    for d, axis in enumerate(model.axes):
        if axis is not None:
            lengths = np.array(chunks[d], dtype=np.int64)
            starts = np.cumsum(lengths) - lengths
            columns[axis.first], columns[axis.count] = starts[places[d]], lengths[places[d]]
    return columns, prod(shape)


def _make_all(
    model: BlockModel, classes: Sequence[tuple[BlockClass, np.ndarray]], columns: Mapping[str, Any], n_summed: int
) -> list[Blocks]:
    """A program for the class with most blocks, and one for all others that have the same statements, where that can be."""
    most = max(range(len(classes)), key=lambda k: len(classes[k][1]))
    groups: dict[Hashable, list[tuple[BlockClass, np.ndarray]]] = {}
    for k, found in enumerate(classes):
        groups.setdefault(None if k == most else outline(found[0]), []).append(found)
    made: list[Blocks] = []
    for group in groups.values():
        merged = _merge(model, group, columns, n_summed) if len(group) > 1 else None
        if merged is not None:
            made.append(merged)
            continue
        made += [_make_blocks(model, x, restrict_program(model, x, n_summed), own, columns, n_summed) for x, own in group]
    return made


def _merge(
    model: BlockModel, group: Sequence[tuple[BlockClass, np.ndarray]], columns: Mapping[str, Any], n_summed: int
) -> Blocks | None:
    """The blocks of several classes, of one program; None where one cannot be shown to do for all of them."""
    merged = merge_classes(model, [found for found, _ in group], {*columns, *_taken_names(model.program)})
    try:
        restricted = restrict_program(merged.model, merged.found, n_summed)
    except (PolycError, RangeMismatch):
        return None
    return _fill(model, restricted, merged, group, columns, n_summed)


def _fill(
    model: BlockModel,
    restricted: BlockProgram,
    merged: Merged | None,
    group: Sequence[tuple[BlockClass, np.ndarray]],
    columns: Mapping[str, Any],
    n_summed: int,
) -> Blocks | None:
    """The blocks of a program of one class, or of several that are `merged`; None where what it presumes does not hold."""
    if merged is None:
        ((found, numbers),) = group
        return _make_blocks(model, found, restricted, numbers, columns, n_summed)
    columns, numbers = dict(columns), np.concatenate([n for _, n in group])
    for name, said in merged.values.items():
        column = np.zeros(int(numbers.max()) + 1, dtype=np.int64)
        for expr, (_, own) in zip(said, group, strict=True):
            column[own] = evaluate_all(expr, _select(columns, own))
        columns[name] = column
    own_columns = _select(columns, numbers)
    if not all(np.all(evaluate_all(check, own_columns)) for check in restricted.checks):
        return None
    blocks = _make_blocks(merged.model, merged.found, restricted, numbers, columns, n_summed)
    return replace(blocks, classes=tuple((found, len(n)) for found, n in group), merged=merged)


def _select(columns: Mapping[str, Any], numbers: np.ndarray) -> dict[str, Any]:
    """The values of some blocks."""
    return {name: c if np.ndim(c) == 0 else c[numbers] for name, c in columns.items()}


def _make_blocks(
    model: BlockModel,
    found: BlockClass,
    restricted: BlockProgram,
    numbers: np.ndarray,
    columns: Mapping[str, Any],
    n_summed: int,
) -> Blocks:
    own = _select(columns, numbers)
    n = len(numbers)

    def values(expr: Expr) -> np.ndarray:
        return np.broadcast_to(evaluate_all(expr, own), (n,))

    def box(intervals: Sequence[Interval]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(values(i.lower), values(i.extent)) for i in intervals]

    program = model.program
    regions = {p: box(found.tensors[p]) for p in restricted.inputs if p in found.tensors}
    results = {}
    for r in model.results:
        results[r] = [
            (low - (values(Size(a.first)) if a is not None else 0), extent)
            for (low, extent), a in zip_longest(box(found.tensors[r][n_summed:]), model.axes[n_summed:])
        ]
    held = np.zeros(n, dtype=np.int64)
    for name, intervals in found.tensors.items():
        if name not in program.parameters and name not in model.results:
            held = held + program.tensor(name).dtype.itemsize * prod((e for _, e in box(intervals)), start=1)
    sizes = [values(Size(s)) for s in restricted.sizes]
    return Blocks(((found, n),), restricted, numbers, regions, results, sizes, held)


def evaluate_all(expr: Expr, columns: Mapping[str, Any]) -> Any:
    """An integer or boolean expression over sizes at many points: `columns` are arrays of one length, or numbers."""
    match expr:
        case Const():
            return expr.value
        case Size() | Index():
            return columns[expr.name]
        case Cast():
            return evaluate_all(expr.value, columns)
        case Select():
            condition, then, other = (evaluate_all(e, columns) for e in (expr.condition, expr.then, expr.other))
            return np.where(condition, then, other)
        case Call():
            args = [evaluate_all(a, columns) for a in expr.args]
            with quiet():
                return APPLY[expr.op](*args)
        case Read() | Pad():
            raise ValueError("a read has no value on the host")


def size_values(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of all sizes, those that are computed from others included."""
    values = dict(sizes)
    for name, expr in program.defined_sizes:
        values[name] = evaluate(expr, values)
    return values
