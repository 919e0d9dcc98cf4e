"""Random arguments for an operator: what `polyc run` uses where the user gives no input."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.ir.expr import Expr, Index, Read, evaluate, index_names, int_const, reads, rewrite, walk
from polyc.ir.halves import narrow
from polyc.ir.interpret_ranges import solve_ranges
from polyc.ir.program import Exists, Program, Statement, integer_parameters
from polyc.ir.segments import loaded_clauses, segment_reads
from polyc.ir.types import DType

Limits = tuple[int, int]
"""Half-open range of the values that an array of index values may hold."""

_MAX_CORNERS = 1 << 10


def draw_array(name: str, dtype: DType, shape: Sequence[int], seed: int, limits: Limits | None = None) -> np.ndarray:
    """The same numbers for the same name, type, shape and seed, whatever else is drawn.

    Floats are standard normal, integers small; with `limits` all are whole numbers within."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shape = tuple(shape)
    if dtype.is_complex:
        pairs = rng.standard_normal((*shape, 2)).astype(dtype.part.numpy)
        return pairs.view(dtype.numpy)[..., 0]
    if dtype.is_float and limits is None:
        values = rng.standard_normal(shape)
        return narrow(values, dtype) if dtype.is_storage else values.astype(dtype.numpy)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    low, high = limits or (0 if dtype.kind == "u" else -8, 9)
    if dtype.is_integer:
        high = min(high, 1 << (dtype.bits - (1 if dtype.kind == "i" else 0)))
    drawn = rng.integers(low, max(low + 1, high), shape)
    return narrow(drawn, dtype) if dtype.is_storage else drawn.astype(dtype.numpy)


def find_index_limits(program: Program, sizes: Mapping[str, int]) -> dict[str, Limits]:
    """The values that inputs may hold whose elements serve as subscripts, on either side, or as bounds: all stay inside; of
    inputs that are sizes as well, these.

    Exact where one such element, times a positive factor, is added to index expressions."""
    ranges = solve_ranges(program, sizes)
    limits: dict[str, Limits] = {}
    for statement in program.statements:
        box = ranges.statements[statement.name]
        sites = [
            (e, span) for r in _all_reads(statement) for e, span in zip(r.subscripts, ranges.tensors[r.tensor], strict=True)
        ]
        sites += zip(statement.subscripts, ranges.tensors[statement.target], strict=True)
        for clause in loaded_clauses(statement.where):
            start, stop = box[clause.index]
            sites += [(bound, (start, stop + 1)) for bound in (clause.lower, clause.upper)]
        for expr, (start, stop) in sites:
            for inner in reads(expr):
                if inner.tensor in program.parameters:
                    low, high = _fit(expr, start, stop, {**sizes}, box)
                    before = limits.get(inner.tensor, (low, high))
                    limits[inner.tensor] = max(low, before[0]), min(high, before[1])
    return limits | {n: (sizes[n], sizes[n] + 1) for n in integer_parameters(program)}


def sort_segments(program: Program, sizes: Mapping[str, int], drawn: Mapping[str, np.ndarray]) -> None:
    """Make segments of all elements of what was drawn for inputs that say where segments begin and end."""
    found = [
        (s, c, pair) for s in program.statements for c in loaded_clauses(s.where) if (pair := segment_reads(c)) is not None
    ]
    for s, clause, (lower, _, along) in found:
        if lower.tensor in drawn:
            axis = next(d for d, e in enumerate(lower.subscripts) if along in index_names(e))
            elements = np.moveaxis(drawn[lower.tensor], axis, 0)
            elements.sort(0)
            start, stop = solve_ranges(program, sizes).statements[s.name][clause.index]
            elements[:1], elements[1:][-1:] = start, stop
    for m in program.compressed:  # also where no statement reads the offsets
        if m.format == "ragged" and m.indptr in m.parts and m.indptr in drawn:
            drawn[m.indptr][:] = np.linspace(0, evaluate(m.n_entries, sizes), len(drawn[m.indptr])).astype(int)


def join_matrices(program: Program, drawn: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> dict[str, Any]:
    """The inputs of a call: a matrix in compressed rows for the three arrays that were drawn for it."""
    if not program.compressed:
        return dict(drawn)
    from polyc.ir.ragged import Ragged
    from polyc.runtime.compressed import Rows
    from polyc.runtime.ragged import Packed

    owners = {part: m for m in program.compressed for part in m.parts}
    joined: dict[str, Any] = {}
    for name, array in drawn.items():
        matrix = owners.get(name)
        if matrix is None:
            joined[name] = array
        elif isinstance(matrix, Ragged):
            joined[matrix.name] = Packed(drawn[matrix.data], drawn[matrix.indptr])
        elif matrix.name not in joined:
            rows, columns = (evaluate(e, sizes) for e in matrix.shape)
            data, indices, indptr = (drawn[part] for part in matrix.parts)
            joined[matrix.name] = Rows(data, indices, indptr, (rows, columns))
    return joined


def result_arrays(results: Any) -> list[np.ndarray]:
    """The results of a call that gave matrices as `join_matrices` does: of sparse and ragged ones what they hold."""
    from polyc.runtime.ragged import Packed

    found = results if isinstance(results, tuple) else (results,)
    return [a if isinstance(a, np.ndarray) else a.values if isinstance(a, Packed) else a.data for a in found]


def _all_reads(statement: Statement) -> list[Read]:
    roots = [statement.value, *statement.subscripts]
    roots += [w.value for w in statement.where if isinstance(w, Exists)]
    return [node for root in roots for node in reads(root)]


def _fit(subscript: Expr, start: int, stop: int, sizes: dict[str, int], box: Mapping[str, Limits]) -> Limits:
    """Values of the reads in `subscript` that keep it in ``[start, stop)`` at every corner of `box`."""

    def at(value: int, corner: dict[str, int]) -> int:
        plain = rewrite(subscript, lambda node: int_const(value) if isinstance(node, Read) else None)
        return evaluate(plain, {**sizes, **corner})

    used = list(dict.fromkeys(n.name for n in walk(subscript) if isinstance(n, Index) and n.name in box))
    ends = [sorted({box[name][0], max(box[name][0], box[name][1] - 1)}) for name in used]
    corners = [dict(zip(used, c, strict=True)) for c in itertools.islice(itertools.product(*ends), _MAX_CORNERS)]
    offsets = [at(0, corner) for corner in corners]
    factor = max(1, at(1, corners[0]) - offsets[0])
    return -((min(offsets) - start) // factor), (stop - 1 - max(offsets)) // factor + 1
