"""What a contraction costs at any sizes, computed in one way: an expression that a call evaluates.

The model is that of `choice`: register tiles, times the cycles of one, which depend on the caches that hold the operands.
Extents, strides and footprints are those of the call; runs of memory and masks are taken as at the sizes that the way was
chosen for, and caches as if all their sets were used alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from math import prod

from polyc.ir.expr import Call, Const, Expr, Select, Size, int_const, simplify_int
from polyc.ir.linear import index_coefficients
from polyc.poly.ranges import estimate_extent
from polyc.poly.scop import Scop, ScopStatement, ScopTensor
from polyc.scheduler.contractions import costs
from polyc.scheduler.contractions.choice import PLAIN_LOADS, Choice, element_copy
from polyc.scheduler.contractions.contraction import Contraction, View
from polyc.scheduler.contractions.operand_streams import LONG_RUN, loads_of_rows, run_length
from polyc.scheduler.contractions.size_algebra import ceil_div, if_at_most, product, scaled, total
from polyc.scheduler.traffic import PAGE, PASSED, READ, READ_STRIDED, WRITTEN, Level, l1_ways, room_bytes
from polyc.target import Target

RUN_STEPS = (3, 16, 64)
"""Steps along memory that short, longer and long runs are taken for, where their number is that of the call."""

LOOP_START = 2.5
"""Cycles until a loop in a register tile runs, where nothing is known of its trips."""


def by_level(footprint: Expr, cost: Callable[[Level], Expr], target: Target) -> Expr:
    """What `cost` says of the nearest level that has room for so many bytes."""
    found = cost(Level.MEMORY)
    for level in (Level.L3, Level.L2, Level.L1):
        nearer = cost(level)
        if nearer != found:
            found = if_at_most(footprint, int_const(int(room_bytes(level, target))), nearer, found)
    return found


def write_cost(size: Expr, factor: float, target: Target) -> Expr:
    """Writing so many bytes of results once; `factor`: for lines at ends that are moved twice."""
    return by_level(size, lambda level: product([size, int_const(scaled(factor / WRITTEN[level]))]), target)


def pass_cost(size: Expr, target: Target) -> Expr:
    """Writing so many bytes, and reading them again."""
    return by_level(size, lambda level: product([size, int_const(scaled(1 / PASSED[level]))]), target)


@dataclass(frozen=True, slots=True)
class _Stream:
    """What a step of a register tile reads of an operand that takes `footprint` bytes in caches."""

    bytes: float
    footprint: Expr
    is_given: bool
    is_strided: bool = False
    """Whether its lines do not follow each other."""
    is_in_runs: bool = False
    """Whether each step reads several such lines in order."""

    def cycles(self, level: Level) -> float:
        return self.bytes / (READ_STRIDED if (self.is_in_runs if level <= Level.L2 else self.is_strided) else READ)[level]

    def far_cycles(self, level: Level) -> float:
        return self.cycles(level) if self.is_given and level >= Level.L3 else 0.0


def known_trips(s: ScopStatement) -> dict[str, Expr]:
    """Iterations of the loop over each index of a statement, at least 1."""
    return {i: e if isinstance(e, (Const, Size)) else Call("max", (e, int_const(1))) for i, e in s.extents.items()}


def contraction_cost(
    c: Contraction, choice: Choice | None, scop: Scop, target: Target, constants: Collection[str], shared: Collection[str] = ()
) -> Expr:
    """The cost of `c` under a choice that was made for its sizes.  Loops over the indices `shared` are shared with other
    statements: each pass of them is weighed alone."""
    known = known_trips(c.s)
    trips = {i: int_const(1) if i in shared else n for i, n in known.items()}
    one = _plain_cost(c, trips, target) if choice is None else _tiled_cost(c, choice, trips, scop, target, constants)
    return product([*(known[i] for i in shared), one])


def _extents(view: View, trips: Mapping[str, Expr]) -> list[Expr]:
    """Of the dimensions in which an operand is read."""
    extents = []
    for form in view.operand.forms:
        steps = [product([int_const(abs(by)), total([trips[i], int_const(-1)])]) for i, by in form]
        extents.append(trips[form[0][0]] if len(form) == 1 and abs(form[0][1]) == 1 else total([int_const(1), *steps]))
    return extents


def _stride_bytes(subscripts: Sequence[Expr], tensor: ScopTensor, index: str) -> Expr:
    """By how much an index moves an access to an array in C order."""
    terms, step = list[Expr](), product([int_const(tensor.dtype.itemsize)])
    for subscript, extent in zip(reversed(subscripts), reversed(tensor.shape), strict=True):
        by = abs((index_coefficients(subscript) or {}).get(index, 0))
        terms.append(product([step, int_const(by)]))
        step = product([step, extent])
    return total(terms)


def _tiled_cost(
    c: Contraction, choice: Choice, trips: Mapping[str, Expr], scop: Scop, target: Target, constants: Collection[str]
) -> Expr:
    view = next(v for v in c.views if v.operand.read == choice.vector_operand.read)
    other = c.views[1 - c.views.index(view)]
    rows = {i: n for i, n in choice.tile.items() if i != choice.vector}
    vectors, n_rows = choice.tile[choice.vector] // choice.lanes, prod(rows.values())
    shares_loads = all(other.moves(i) and not view.moves(i) for i in rows)
    tiles = product([ceil_div(trips[i], choice.tile.get(i, 1)) for i in c.left])
    depth = product([trips[i] for i in c.summed])

    n_loads = float(vectors) if shares_loads else vectors * loads_of_rows(c, view, rows, vectors)
    shuffles = 0.0
    if not choice.packs_vector:
        shuffles = n_loads * (abs(view.strides[choice.vector]) - 1) * costs.SHUFFLE
        n_loads *= abs(view.strides[choice.vector])
    straddles = any(i != choice.vector for form in view.operand.forms if (choice.vector, 1) in form for i, _ in form)

    def arithmetic(rows: int) -> float:
        broadcasts = rows if shares_loads else 1
        return shuffles + costs.step_cycles(rows, vectors, broadcasts, n_loads, target, straddles)

    masked = 0.0
    if (view.operand.is_padded and not choice.packs_vector) or choice.vector in c.tested:
        masked = n_loads * (1.0 if shares_loads else costs.ROW_MASK)
    tested = 1.0
    if other.operand.is_padded and not choice.packs_rows:
        near = max((2 / max(2, -(-c.trips[i] // rows.get(i, 1))) for i in other.indices if i in c.left), default=0.0)
        tested += costs.BORDER_SLOWDOWN * near

    def step(loads: _Stream, near: Level, broadcasts: _Stream, level: Level) -> float:
        cycles = max(arithmetic(n_rows), loads.cycles(near) + broadcasts.cycles(level))
        cycles += costs.NOT_HIDDEN * (loads.far_cycles(near) + broadcasts.far_cycles(level)) + masked
        if not choice.packs_vector and near > Level.L1:
            cycles += costs.LINE_STRADDLE * vectors
        return cycles * tested

    def steps(loads: _Stream, broadcasts: _Stream) -> Expr:
        def at(near: Level) -> Expr:
            return by_level(broadcasts.footprint, lambda level: int_const(scaled(step(loads, near, broadcasts, level))), target)

        return by_level(loads.footprint, at, target)

    def over_rows(loads: _Stream) -> Expr:
        return _over_row_streams(c, other, choice, trips, rows if shares_loads else {}, partial(steps, loads), scop, target)

    one_step = _over_vector_streams(view, choice, trips, 1 if shares_loads else n_rows, vectors, over_rows, scop, target)
    row_stride = min((abs(c.result.get(i, 0)) for i in rows), default=0)
    stride = abs(c.result.get(choice.vector, 0))

    def store(stride: int) -> Expr:
        cycles = costs.store_cycles(n_rows, vectors, choice.lanes, stride, row_stride, c.itemsize)
        return int_const(scaled(costs.TILE_START + cycles))

    one_store = store(stride)
    if stride != 1:
        apart = _stride_bytes(c.s.subscripts, scop.tensors[c.s.target], choice.vector)
        one_store = if_at_most(apart, int_const(costs.FAR_STRIDE - 1), store(2), store(costs.FAR_STRIDE))
    one_tile = total([one_store, product([depth, one_step])])
    terms = [product([tiles, one_tile])]
    if shares_loads and len(rows) == 1:
        terms.append(_partial_rows(c, choice, trips, rows, depth, one_step, arithmetic, tested))
    results = product([int_const(c.itemsize), *(trips[i] for i in c.left)])
    stored = {i: _stride_bytes(c.s.subscripts, scop.tensors[c.s.target], i) for i in choice.tile}
    together = [i for i, by in stored.items() if isinstance(by, Const)]
    run = run_length(together, c.result, {**choice.tile, choice.vector: vectors * choice.lanes}) * c.itemsize
    terms.append(write_cost(results, 1 + 0.5 * target.cache_line / run, target))
    terms += _copies(c, choice, view, other, trips, target, constants)
    if choice.block is not None:
        n_blocks = ceil_div(trips[choice.block[0]], choice.block[1])
        terms.append(product([int_const(scaled(0.2)), n_blocks, *(trips[i] for i in c.left)]))
    terms += _inner_loops(c, choice, view, trips, tiles, rows, vectors, target)
    return total(terms)


def _over_vector_streams(
    view: View,
    choice: Choice,
    trips: Mapping[str, Expr],
    n_rows: int,
    vectors: int,
    steps: Callable[[_Stream], Expr],
    scop: Scop,
    target: Target,
) -> Expr:
    """`steps` of what a step reads of the vector operand: a panel of which all passes by for each row tile."""
    width, line = vectors * choice.lanes * view.itemsize, target.cache_line
    panel = {i: trips[i] for i in choice.reduction_order if view.moves(i)}
    if choice.packs_vector and choice.block is not None and choice.block[0] in panel:
        index, size = choice.block
        panel[index] = Call("min", (panel[index], int_const(size)))
    packed = _Stream(n_rows * width, product([*panel.values(), int_const(width)]), view.is_given)
    if choice.packs_vector or not panel:
        return steps(packed)
    touched = (-(-width // line) + 1) * line  # whole lines, and one more: arrays of others start anywhere in a line
    apart = _Stream(n_rows * touched, product([*panel.values(), int_const(touched)]), view.is_given, True, True)
    read = view.operand.read
    stride = _stride_bytes(read.subscripts, scop.tensors[read.tensor], list(panel)[-1])
    return if_at_most(stride, int_const(width), steps(packed), steps(apart))


def _over_row_streams(
    c: Contraction,
    other: View,
    choice: Choice,
    trips: Mapping[str, Expr],
    rows: Mapping[str, int],
    steps: Callable[[_Stream], Expr],
    scop: Scop,
    target: Target,
) -> Expr:
    """`steps` of what a step reads of the row operand, all of which passes by for every panel (`row_stream`)."""
    size, line, n_rows = other.itemsize, target.cache_line, prod(rows.values())
    inner = [i for i in reversed(choice.reduction_order) if other.moves(i)]
    elements = product(_extents(other, trips))
    near = _Stream(n_rows * size, product([elements, int_const(size)]), other.is_given)
    if not inner:
        return steps(near)
    read, whole = other.operand.read, product([trips[i] for i in inner])
    if choice.packs_rows:
        strides = {i: product([whole, int_const(size)]) for i in list(rows)[-1:]}
    else:
        strides = {i: _stride_bytes(read.subscripts, scop.tensors[read.tensor], i) for i in (*inner, *rows)}
    if choice.packs_rows or abs(other.strides[inner[0]]) == 1:
        in_line = steps(near)
        if len(rows) == 1 and n_rows > l1_ways(target):
            # Steps go along lines, one for each row: in one set of the cache each is fetched again before its next element.
            margin = (line - 1) // l1_ways(target)
            apart = Call("mod", (total([strides[next(iter(rows))], int_const(margin)]), int_const(PAGE)))
            lost = _Stream(n_rows * line, int_const(target.l1), False, is_in_runs=True)
            in_line = if_at_most(simplify_int(apart), int_const(2 * margin), steps(lost), in_line)
        if choice.packs_rows:
            return in_line
        ordered = sorted(strides, key=lambda i: abs(other.strides[i]))
        lengths = {**trips, **{i: int_const(n) for i, n in rows.items()}}
        in_order = _is_longer([(strides[i], lengths[i]) for i in ordered], LONG_RUN, size)
        if in_order is True:
            return in_line

        def in_pieces(n: int) -> Expr:
            pieces = _bytes_of_pieces(rows, trips[inner[0]], n, strides, size, line)
            return steps(_Stream(max(n_rows * size, pieces), near.footprint, other.is_given, True))

        extent = trips[inner[0]]
        *shorter, longest = (int(extent.value),) if isinstance(extent, Const) else RUN_STEPS
        broken = in_pieces(longest)
        for n in reversed(shorter):
            broken = if_at_most(extent, int_const(2 * n), in_pieces(n), broken)
        return broken if in_order is False else Select(in_order, in_line, broken)
    if not any(abs(other.strides.get(i, 0)) == 1 for i in rows):
        return steps(_Stream(n_rows * line, product([elements, int_const(line)]), other.is_given, True))
    kept = _Stream(n_rows * size, near.footprint, other.is_given, True)
    lost = _Stream(n_rows * size + line, near.footprint, other.is_given, True)
    lines = product([*(trips[i] for i in inner), int_const(line)])
    return if_at_most(lines, int_const(target.l2 // 2), steps(kept), steps(lost))


def _is_longer(steps: Sequence[tuple[Expr, Expr]], bound: int, size: int) -> Expr | bool:
    """Whether elements of `size` bytes along indices of these strides in bytes and extents, in the order of strides, reach
    `bound` bytes without a gap.  Between a known length and a stride that is not known there is one."""
    run: Expr = int_const(size)
    near, found = list[Expr](), list[Expr]()
    for stride, extent in steps:
        if stride == int_const(0):
            continue
        if not isinstance(run, Const):
            near.append(Call("le", (stride, run)))
        elif not isinstance(stride, Const) or int(stride.value) > int(run.value):
            break
        run = total([run, product([stride, total([extent, int_const(-1)])])])
        if not isinstance(run, Const):
            found.append(reduce(_both, [*near, Call("ge", (run, int_const(bound)))]))
        elif int(run.value) >= bound:
            return True
    return reduce(lambda a, b: Call("or", (a, b)), found) if found else False


def _both(a: Expr, b: Expr) -> Expr:
    return Call("and", (a, b))


def _bytes_of_pieces(
    rows: Mapping[str, int], extent: Expr, steps: int, strides: Mapping[str, Expr], size: int, line: int
) -> float:
    """What each of so many steps along memory takes of the lines that these and the rows of a tile touch, where rows whose
    strides are not known, and do not follow from the number of steps (`extent`) either, lie apart."""
    touched, n_pieces = steps * size, 1
    given = {extent.name: steps} if isinstance(extent, Size) else {}
    known = {i: estimate_extent(strides[i], given) for i in rows}
    for i, n in sorted(rows.items(), key=lambda pair: known[pair[0]] or 0):
        step = known[i]
        if step is not None and step < line + touched:
            touched += step * (n - 1)
        else:
            n_pieces *= n
    return n_pieces * (touched + line) / steps


def _partial_rows(
    c: Contraction,
    choice: Choice,
    trips: Mapping[str, Expr],
    rows: Mapping[str, int],
    depth: Expr,
    one_step: Expr,
    arithmetic: Callable[[int], float],
    tested: float,
) -> Expr:
    """What tiles of fewer rows take longer than whole ones, in parts that wait for results."""
    ((index, size),) = rows.items()
    part = -(-size // costs.ROW_PARTS)
    rest = simplify_int(Call("mod", (trips[index], int_const(size))))
    in_part = total([int_const(scaled(costs.TILE_START)), product([depth, int_const(scaled(arithmetic(part) * tested))])])
    whole = total([int_const(scaled(costs.TILE_START)), product([depth, one_step])])
    more = Call("sub", (product([ceil_div(rest, part), in_part]), whole))
    lost = if_at_most(rest, int_const(part), int_const(0), Call("max", (more, int_const(0))))
    tile = choice.tile[choice.vector]
    return product([ceil_div(trips[choice.vector], tile), *(trips[i] for i in c.left if i not in (choice.vector, index)), lost])


def _copies(
    c: Contraction,
    choice: Choice,
    view: View,
    other: View,
    trips: Mapping[str, Expr],
    target: Target,
    constants: Collection[str],
) -> list[Expr]:
    """Of operands that are copied at each call."""
    whole = {i for i in c.s.indices if not (i in c.left and view.moves(i) and other.moves(i))}
    terms = []
    for v, packs, last, inside in (
        (view, choice.packs_vector, choice.vector, whole if choice.is_whole else {*choice.reduction_order, choice.vector}),
        (other, choice.packs_rows, choice.reduction_order[-1], whole),
    ):
        if not packs or v.operand.read.tensor in constants:
            continue
        elements = product(_extents(v, trips))
        terms += [int_const(scaled(costs.COPY_START)), product([elements, int_const(scaled(element_copy(v, last, inside)))])]
        if v.operand.is_padded:
            outer = _extents(v, trips)[:-1]
            terms.append(product([*outer, int_const(scaled(costs.COPIED_ROW))]))
        if v is view and choice.is_whole:
            terms.append(pass_cost(product([elements, int_const(v.itemsize)]), target))
    return terms


def _inner_loops(
    c: Contraction,
    choice: Choice,
    view: View,
    trips: Mapping[str, Expr],
    tiles: Expr,
    rows: dict[str, int],
    vectors: int,
    target: Target,
) -> list[Expr]:
    """Starts of loops inside of tiles whose trips are not known, and reads that only unrolled windows would share."""
    terms, starts = [], tiles
    for outer, inner in pairwise(choice.reduction_order):
        starts = product([starts, trips[outer]])
        if not isinstance(c.s.extents[inner], Const):
            terms.append(product([starts, int_const(scaled(LOOP_START))]))
    moved = {i: n for i, n in rows.items() if view.moves(i)}
    if moved and not all(isinstance(c.s.extents[i], Const) for i in c.summed):
        alone = prod(moved.values()) - loads_of_rows(c, view, moved, vectors)
        each = scaled(alone * vectors / target.loads_per_cycle)
        terms.append(product([tiles, *(trips[i] for i in c.summed), int_const(each)]))
    return terms


def _plain_cost(c: Contraction, trips: Mapping[str, Expr], target: Target) -> Expr:
    """In loops that share nothing: lanes along the sum where both operands have it along memory, else along the result."""
    depth, results = product([trips[i] for i in c.summed]), product([trips[i] for i in c.left])
    for i in c.summed:
        if c.trips[i] >= c.lanes and all(abs(v.strides.get(i, 0)) == 1 for v in c.views):
            side = 4 if target.n_registers >= 32 else 3
            step = costs.step_cycles(side, side, side, side, target, False) / side**2
            written = write_cost(product([results, int_const(c.itemsize)]), 1.0, target)
            return total(
                [
                    product([results, depth, int_const(scaled(1.3 * step / c.lanes))]),
                    product([results, int_const(scaled(1.5))]),
                    written,
                ]
            )
    row = next((i for i in c.left if abs(c.result.get(i, 0)) == 1), None)
    rows = product([trips[i] for i in c.left if i != row])
    vectors = int_const(1) if row is None else ceil_div(trips[row], c.lanes)
    loads = int_const(scaled(PLAIN_LOADS / target.loads_per_cycle))
    return product([rows, total([int_const(scaled(costs.TILE_START)), product([loads, depth, vectors])])])
