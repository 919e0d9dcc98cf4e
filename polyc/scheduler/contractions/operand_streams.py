"""How a register tile reads its operands: in which order of the sum, in blocks of which size, and from which cache."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from math import ceil, prod

from polyc.scheduler.contractions.contraction import Contraction, View
from polyc.scheduler.traffic import READ_STRIDED, Level, Stream, collides, l1_ways, lines_in_a_set, stream
from polyc.target import Target

LONG_RUN = 1024
"""Bytes of consecutive memory from which prefetchers keep up with a stream."""

UNROLLED_PRODUCTS = 80
"""Products of a tile and a loop around it that code generation unrolls completely."""


def loads_of_rows(c: Contraction, view: View, rows: dict[str, int], vectors: int) -> float:
    """Rows to load in each step for the rows of a tile that shares broadcasts only: with the loops over windows along the rows
    unrolled, a row of the operand is loaded once for all products that it is part of."""
    n_rows = prod(rows.values())
    for form in view.operand.forms:
        along, window = [i for i, _ in form if i in rows], [i for i, _ in form if i in c.summed]
        if len(form) == 2 and along and window and rows[along[0]] == n_rows:
            steps, by = dict(form)[along[0]], dict(form)[window[0]]
            n = c.trips[window[0]]
            if vectors * n_rows * n <= UNROLLED_PRODUCTS:
                return len({steps * r + by * k for r in range(n_rows) for k in range(n)}) / n
    return n_rows


def reduction_order(c: Contraction, view: View, other: View, rows: tuple[str, ...]) -> tuple[str, ...]:
    """Reduction indices, outermost first: the row operand is read along its memory, its smallest stride innermost.

    Where rows share broadcasts only, those that walk over the same elements are innermost: unrolled they share loads."""
    walked = {i for form in view.operand.forms for i, _ in form if any(j in rows for j, _ in form)}
    last = [i for i in c.summed if i in walked]
    own = [i for i in c.summed if other.moves(i) and i not in last]
    rest = [i for i in c.summed if not other.moves(i) and i not in last]
    return (*rest, *sorted(own, key=lambda i: -abs(other.strides[i])), *last)


def find_block(c: Contraction, order: tuple[str, ...], view: View, panel: int, target: Target) -> tuple[str, int] | None:
    """Which reduction index to cut so that a packed panel stays in the second-level cache, and how often."""
    if panel <= 0.6 * target.l2:
        return None
    plain = [i for i in order if view.operand.is_plain(i)]
    if not plain:
        return None
    index = plain[0]
    wanted = ceil(panel / (0.5 * target.l2))
    size = ceil(c.trips[index] / wanted)
    if size >= 16:
        size = ceil(size / 16) * 16
    return (index, size) if 1 <= size < c.trips[index] else None


def row_stream(
    c: Contraction, other: View, rows: dict[str, int], order: tuple[str, ...], packs: bool, target: Target
) -> Stream:
    """What a step of a register tile reads of the row operand: all of it passes by for every panel."""
    n_rows, size, line = prod(rows.values()), other.itemsize, target.cache_line
    inner = [i for i in reversed(order) if other.moves(i)]
    if not inner:
        return stream(n_rows * size, other.bytes, target)
    depth = prod(c.trips[i] for i in inner)
    if packs or abs(other.strides[inner[0]]) == 1:
        # Steps go along lines, one for each row: one that another row's pushes out is fetched again before its next element.
        strides = _packed_strides(c, rows, depth) if packs else other.strides
        if lines_in_a_set(_row_starts(rows, strides, size), target) > l1_ways(target):
            return Stream(n_rows * line, READ_STRIDED[Level.L2])
        if packs:
            return stream(n_rows * size, other.bytes, target)
        run = run_length([*inner, *rows], other.strides, {**c.trips, **rows}) * size
        if run >= LONG_RUN or run >= other.bytes:
            return stream(n_rows * size, other.bytes, target)
        return stream(max(n_rows * size, _bytes_of_runs(c, other, rows, inner[0], line)), other.bytes, target, run)
    stride = abs(other.strides[inner[0]]) * size
    neighbours = any(abs(other.strides.get(i, 0)) == 1 for i in rows)
    # Lines of one row tile serve the next ones where they stay in the cache meanwhile.
    kept = neighbours and depth * line <= target.l2 // 2 and not collides(depth * line, stride, target.l2, target)
    used = n_rows * size if kept else (n_rows * size + line if neighbours else n_rows * line)
    footprint = other.bytes if kept or neighbours else other.elements * line
    return stream(used, footprint, target, stride)


def _bytes_of_runs(c: Contraction, other: View, rows: Mapping[str, int], inner: str, line: int) -> float:
    """What one of the steps along `inner` takes of the lines that these and the rows of a tile touch: each piece of memory that
    they reach together may start anywhere in a line."""
    steps = c.trips[inner]
    touched, n_pieces = steps, 1
    for i, n in sorted(rows.items(), key=lambda pair: abs(other.strides.get(pair[0], 0))):
        step = abs(other.strides.get(i, 0))
        if step * other.itemsize < line + touched * other.itemsize:
            touched += step * (n - 1)
        else:
            n_pieces *= n
    return n_pieces * (touched * other.itemsize + line) / steps


def _packed_strides(c: Contraction, rows: Collection[str], depth: int) -> dict[str, int]:
    """Elements between neighbours along each row index in a copy that has the sum's indices inside."""
    return {i: depth * prod(c.trips[j] for j in list(rows)[n + 1 :]) for n, i in enumerate(rows)}


def _row_starts(rows: Mapping[str, int], strides: Mapping[str, int], itemsize: int) -> list[int]:
    """Bytes from the first row of a register tile to each of its rows."""
    along = ([abs(strides.get(i, 0)) * itemsize * k for k in range(n)] for i, n in rows.items())
    return [sum(at) for at in product(*along)]


def run_length(indices: list[str], strides: dict[str, int], trips: dict[str, int]) -> int:
    """Consecutive elements that these indices reach together."""
    run = 1
    for i in sorted(dict.fromkeys(indices), key=lambda i: abs(strides.get(i, 0))):
        step = abs(strides.get(i, 0))
        if 0 < step <= run:
            run += step * (trips[i] - 1)
    return run
