"""What one step of a contraction's register tile reads of its operands, and from which cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from polyc.machine import Level, Machine, Share
from polyc.scheduler.amounts import A, Truth, either, largest, product, smallest
from polyc.scheduler.contractions.contraction import Contraction, Measures, View
from polyc.scheduler.contractions.way import Way
from polyc.scheduler.traffic import Stream, asked_ahead, choose_stream, has_sets, holds_rows, stream


def vector_stream(c: Contraction, at: Measures[A], way: Way, target: Machine) -> Stream[A]:
    """What a step reads of the vector operand: a panel of all steps, which passes by once for each row tile."""
    view, _ = way.views(c)
    size, line, n_reads = way.width * view.itemsize, target.cache_line, 1 if way.shared else way.n_rows
    steps = {i: at.trips[i] for i in way.order if view.moves(i)}
    if way.packs_vector and way.block is not None and way.block[0] in steps:
        index, most = way.block
        steps[index] = smallest(steps[index], most)
    panel = product(steps.values())

    def in_order() -> Stream[A]:
        return stream(n_reads * size, panel * size, target)

    if way.packs_vector or not steps:
        return in_order()
    inner = list(steps)[-1]
    stride = at.strides[way.side].get(inner, 0) * view.itemsize
    # Whole lines, and one more: arrays of others start anywhere in a line.
    touched = (ceil(size / line) + (not view.is_made)) * line

    def apart() -> Stream[A]:
        lines = stream(n_reads * touched, panel * touched, target, stride, touched)
        if not way.shared or not view.is_given:
            return lines
        return asked_ahead(lines, size, at.trips[inner], at.elements[way.side] * view.itemsize, target)

    return choose_stream(stride > size, apart, in_order)


def row_stream(c: Contraction, at: Measures[A], way: Way, target: Machine) -> Stream[A]:
    """What a step reads of the row operand: all of it passes by for every panel."""
    _, view = way.views(c)
    rows: Mapping[str, int] = way.rows if way.shared else {}
    n_rows = way.n_rows if way.shared else 1
    size, line = view.itemsize, target.cache_line
    footprint, strides = at.elements[1 - way.side] * size, at.strides[1 - way.side]
    inner: list[str] = [i for i in reversed(way.order) if view.moves(i)]

    def in_order() -> Stream[A]:
        return stream(n_rows * size, footprint, target)

    if not inner:
        return in_order()
    depth = product(at.trips[i] for i in inner)
    if not way.packs_rows and abs(view.strides[inner[0]]) != 1:
        stride = strides[inner[0]] * size
        if not any(abs(view.strides.get(i, 0)) == 1 for i in rows):
            return stream(n_rows * line, at.elements[1 - way.side] * line, target, stride)
        # Lines of one row tile serve the next ones where they stay in the cache meanwhile.
        kept = (depth * line <= target.room(Level.L2, Share.HALF)) & has_sets(depth * line, stride, Level.L2, target)
        return choose_stream(
            kept,
            lambda: stream(n_rows * size, footprint, target, stride),
            lambda: stream(n_rows * size + line, footprint, target, stride),
        )

    def along_lines() -> Stream[A]:
        if way.packs_rows:
            return in_order()
        order = sorted(dict.fromkeys((*inner, *rows)), key=lambda i: abs(view.strides.get(i, 0)))
        run = run_length(order, strides, {**at.trips, **rows}) * size
        # Windows that move along memory go on with the next tile where this one ends.
        goes_on: Truth = view.operand.lies_like_a_copy and any(
            0 < abs(view.strides.get(i, 0)) <= _known_run(c, view, inner) for i in rows
        )
        goes_on = goes_on and depth * line <= target.room(Level.L2, Share.HALF)
        pieces = _bytes_of_runs(view.strides, strides, rows, at.trips[inner[0]], size, line)
        return choose_stream(
            (run >= target.prefetchers.run) | (run >= footprint) | goes_on,
            in_order,
            lambda: stream(largest(n_rows * size, pieces), footprint, target, line),
        )

    # Steps go along lines, one for each row: one that another row's pushes out is fetched again before its next element.
    starts = _packed_strides(at.trips, rows, depth) if way.packs_rows else {i: strides.get(i, 0) for i in rows}
    lost = n_rows * line
    return choose_stream(
        holds_rows(n_rows, [n * size for n in starts.values()], target),
        along_lines,
        lambda: Stream(lost, lost / target.memory.read_strided[Level.L2], 0.0, 1.0),
    )


def _known_run(c: Contraction, view: View, inner: Iterable[str]) -> float:
    """Consecutive elements that indices of the sum reach at the sizes that a way is chosen for."""
    strides = {i: abs(n) for i, n in view.strides.items()}
    return run_length(sorted(inner, key=lambda i: strides[i]), strides, c.trips)


def _bytes_of_runs(
    order: Mapping[str, int], strides: Mapping[str, A], rows: Mapping[str, int], steps: A, size: int, line: int
) -> A:
    """What one of so many steps along memory takes of the lines that these and the rows of a tile touch: each piece of memory
    that they reach together may start anywhere in a line.  `order`: strides of which the sizes are known."""
    touched: A = steps * size
    n_pieces: A = 1
    for i, n in sorted(rows.items(), key=lambda pair: abs(order.get(pair[0], 0))):
        step = strides.get(i, 0) * size
        is_near = step < line + touched
        touched = touched + either(is_near, step * (n - 1), 0)
        n_pieces = n_pieces * either(is_near, 1, n)
    return n_pieces * (touched + line) / steps


def _packed_strides(trips: Mapping[str, A], rows: Iterable[str], depth: A) -> dict[str, A]:
    """Elements between neighbours along each row index in a copy that has the sum's indices inside."""
    names = list(rows)
    return {i: depth * product(trips[j] for j in names[n + 1 :]) for n, i in enumerate(names)}


def run_length(indices: Iterable[str], strides: Mapping[str, A], trips: Mapping[str, A]) -> A:
    """Consecutive elements that these indices reach together, which are in the order of their strides."""
    run: A = 1
    for i in indices:
        step = strides.get(i, 0)
        if isinstance(step, int) and step == 0:
            continue
        run = run + either(step <= run, step * (trips[i] - 1), 0)
    return run
