"""The model: estimated cycles of a sum of products that is computed in some way, on one core.

It is written once, over amounts (`amounts`): at known sizes, where ways are chosen, it gives numbers, and over the sizes of a
call the formula by which a kernel takes one of its versions.  What a way fixes (`Way`: tile, order of the sum, copies) and
strides that are one or not are those of the contraction that it was made for; `Measures` hold the lengths that vary.

`weigh` adds up a contraction's terms.  What streams through the caches is the matter of `operand_streams` and `traffic`.  Rough
on purpose: it only has to rank choices.  The figures are those of the machine (`machine.costs`).  Each function
returns cycles unless its name says bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from math import ceil, prod
from typing import Generic

from polyc.code_limits import FEW_VECTORS, LANE_PARTS, MAX_STRIDE, MAX_UNROLLED, ROW_PARTS
from polyc.machine import Level, Machine
from polyc.machine.costs import CopyCosts
from polyc.records import dataclass
from polyc.scheduler.amounts import A, ceil_div, either, largest, product, smallest, total, whole_part
from polyc.scheduler.contractions.contraction import Contraction, Measures, View
from polyc.scheduler.contractions.operand_streams import row_stream, run_length, vector_stream
from polyc.scheduler.contractions.operands import form_extent
from polyc.scheduler.contractions.way import Way, loads_of_rows
from polyc.scheduler.tiling import RegisterTile, choose_register_tile
from polyc.scheduler.traffic import Stream, find_level, pass_cycles, stream, write_cycles


@dataclass(frozen=True, slots=True)
class Costs(Generic[A]):
    """What a contraction costs in some way."""

    cycles: dict[str, A]
    """By what they are spent on."""
    steps: A
    """Steps of the reduction, in all register tiles."""
    step: float
    """Cycles of one whose operands are in the first-level cache."""
    streams: tuple[Stream[A], Stream[A]]
    """What a step reads of the vector operand and of the row operand."""

    @property
    def total(self) -> A:
        return total(self.cycles.values())


def weigh(c: Contraction, at: Measures[A], way: Way, target: Machine, constants: Collection[str] = ()) -> Costs[A]:
    """What `c` costs where it is as long as `at` says and computed in a way that was made for it.  `constants` are tensors
    whose copies are made once, outside of the call."""
    n_tiles = ceil_div(at.trips[way.vector], way.width)
    passes = product(ceil_div(at.trips[i], way.rows.get(i, 1)) for i in c.left if i != way.vector)  # they read a panel each
    depth = product(at.trips[i] for i in c.summed)
    vectors, rows = vector_stream(c, at, way, target), row_stream(c, at, way, target)
    own, slower = arithmetic_cycles(c, way, way.n_rows, target), _border_slowdown(c, at, way, target)
    step = largest(own, vectors.cycles + rows.cycles) + _waited_cycles(c, way, vectors, rows, target)
    per_tile = target.tiles.start + depth * (step * slower)
    n_panels = panels(c, at.trips[way.vector], way.vector, way.n_rows, way.vectors, way.lanes, way.shared, target)
    arithmetic = n_panels * passes * per_tile + _loop_starts(c, at, way, n_tiles * passes, target)
    if way.shared and len(way.rows) == 1:
        part = min(way.n_rows, max(ceil(way.n_rows / ROW_PARTS), ceil(target.in_flight / way.vectors)))
        in_part = largest(arithmetic_cycles(c, way, part, target), vectors.cycles) * slower
        arithmetic = arithmetic + n_tiles * _parted_rows(
            c, at, way, part, target.tiles.start + depth * in_part, per_tile, target
        )
    arithmetic = arithmetic + n_tiles * passes * _cut_cycles(c, way, target)
    stores = n_panels * passes * _store_cycles(c, at, way, target) + _written_cycles(c, at, way, target)
    cycles = {"arithmetic": arithmetic, "stores": stores}
    view, other = way.views(c)
    copies = []
    if way.packs_vector and view.operand.read.tensor not in constants:
        copies.append((copy_at_once if way.is_whole else copy_of_panels)(c, at, way, target))
    if way.packs_rows and other.operand.read.tensor not in constants:
        copies.append(_copy_cycles(c, at, 1 - way.side, way.order[-1], _outside_of_batches(c), target))
    if copies:
        cycles["copies"] = total(copies)
    if way.block is not None:
        index, size = way.block
        cycles["blocks"] = target.tiles.partial_sum * ceil_div(at.trips[index], size) * product(at.trips[i] for i in c.left)
    return Costs(cycles, n_tiles * passes * depth, own, (vectors, rows))


def panels(c: Contraction, trips: A, vector: str, rows: int, vectors: int, lanes: int, shared: bool, target: Machine) -> A:
    """Register tiles along the vector; where its extent is not known, the last one runs as many vectors as are left."""
    parts = _partial_panels(rows, vectors, rows if shared else 1, target)
    if c.has_known_trips((vector,)) or min(parts[1:]) >= 1.0:
        return ceil_div(trips, vectors * lanes)
    rest = trips % (vectors * lanes)
    last: A = parts[-1]
    for n in reversed(range(vectors)):
        last = either(rest <= n * lanes, parts[n], last)
    return whole_part(trips, vectors * lanes) + last


def _partial_panels(rows: int, vectors: int, broadcasts: int, target: Machine) -> list[float]:
    """By the vectors that the end of a loop leaves of a tile, from none to all but for a mask: their time as a part of that of
    the whole tile.  They run by halves, and what half of these have room for, by as many.  Where masks are vectors, tiles of
    more than a few run by halves, too; one that is filled is taken to need no mask."""
    if not target.has_masks and vectors <= FEW_VECTORS:  # all are computed
        return [0.0] + [1.0] * vectors
    size = ceil(vectors / LANE_PARTS)
    times = [step_cycles(rows, n, broadcasts, n, target, False) for n in range(1, vectors + 1)]
    masked = step_cycles(rows, size, broadcasts, size * target.tiles.masked_load, target, False)

    def part(n: int) -> float:
        taken = size
        while target.has_masks and taken > 1 and n <= ceil(taken / LANE_PARTS):
            taken = ceil(taken / LANE_PARTS)
        return (times[taken - 1] if target.has_masks or n == size else masked) / times[-1]

    found = [0.0]
    for n in range(1, vectors + 1):
        found.append(part(n) if n <= size else found[size] + found[n - size])
    return found


def arithmetic_cycles(c: Contraction, way: Way, rows: int, target: Machine) -> float:
    """One step of the reduction in a tile of so many rows: products, and reads from the first-level cache."""
    view, _ = way.views(c)
    n_loads = _loads_of_step(c, way)
    # Lanes that are some elements apart are picked out of as many vectors: in copies, too, of windows that move by so many.
    apart = view.operand.lane_step(way.vector) if way.packs_vector else abs(view.strides[way.vector])
    shuffles = n_loads * (apart - 1) * target.tiles.shuffle
    n_loads *= apart
    forms = [form for form in view.operand.forms if any(i == way.vector for i, _ in form)]
    straddles = any(i != way.vector for form in forms for i, _ in form)
    return shuffles + step_cycles(rows, way.vectors, rows if way.shared else 1, n_loads, target, straddles)


def _loads_of_step(c: Contraction, way: Way) -> float:
    """Vectors that a step needs of the vector operand."""
    return float(way.vectors) if way.shared else way.vectors * loads_of_rows(c, way.views(c)[0], way.rows, way.vectors)


def _waited_cycles(c: Contraction, way: Way, vectors: Stream[A], rows: Stream[A], target: Machine) -> A:
    """What a step takes longer than its arithmetic or its streams: for far reads, lines that vectors straddle, and masks."""
    view, other = way.views(c)
    waited = target.tiles.exposed * total(x.far_cycles for x, of in ((vectors, view), (rows, other)) if of.is_given)
    if not way.packs_vector:
        waited = waited + target.tiles.straddle * way.vectors * vectors.passed
    if (view.operand.is_padded and not way.packs_vector) or way.vector in c.tested:
        # The ends of whole rows in loops that are all unrolled are constants.
        is_known = c.has_known_trips((way.vector, *c.summed)) and c.trips[way.vector] <= way.width and target.has_masks
        is_known = is_known and way.n_rows * way.vectors * c.depth <= MAX_UNROLLED
        each = 1.0 if way.shared else target.tiles.known_mask if is_known else target.tiles.row_mask
        waited = waited + _loads_of_step(c, way) * (1 if way.packs_vector else abs(view.strides[way.vector])) * each
    return waited


def _border_slowdown(c: Contraction, at: Measures[A], way: Way, target: Machine) -> A:
    """How much longer steps take on the average of tiles, of which those at borders test what rows they read in place."""
    _, other = way.views(c)
    near: A = 0.0
    if other.operand.is_padded and not way.packs_rows:
        for i in c.left:
            if other.moves(i):
                near = largest(near, 2 / largest(2, ceil_div(at.trips[i], way.rows.get(i, 1))))
    return 1 + target.tiles.border * near


def _cut_cycles(c: Contraction, way: Way, target: Machine) -> float:
    """Steps in which the border of a triangle cuts a tile: row by row, and in order where it cuts the vectors."""
    costs = target.tiles
    each = {i: costs.cut_vector if i == way.vector else costs.cut_row for i in way.tile if i in c.cut}
    return way.n_rows * way.vectors * sum((way.tile[i] - 1) * cycles for i, cycles in each.items())


def _loop_starts(c: Contraction, at: Measures[A], way: Way, tiles: A, target: Machine) -> A:
    """Starts of loops inside of tiles whose trips are known at the call alone."""
    spent: A = 0.0
    starts = tiles
    for outer, inner in pairwise(way.order):
        starts = starts * at.trips[outer]
        if not c.has_known_trips((inner,)):
            spent = spent + target.tiles.loop_start * starts
    return spent


def _parted_rows(c: Contraction, at: Measures[A], way: Way, part: int, per_part: A, per_tile: A, target: Machine) -> A:
    """What tiles of one panel that have fewer rows than others take longer: they run in parts, which wait for results."""
    ((index, size),) = way.rows.items()
    rest = at.trips[index] % size
    if isinstance(rest, int) and rest <= part:
        return 0.0
    a, b = c.views
    if not c.has_known_trips((index,)) and any(a.moves(i) and b.moves(i) for i in c.left):
        per_part = per_part + target.tiles.part_start
    longer = largest(0.0, ceil_div(rest, part) * per_part - per_tile)
    passes = product(at.trips[i] for i in c.left if i not in (way.vector, index))
    return passes * either(rest <= part, 0.0, longer)


def _store_cycles(c: Contraction, at: Measures[A], way: Way, target: Machine) -> A:
    stride = abs(c.result.get(way.vector, 0))
    row_stride = min((abs(c.result.get(i, 0)) for i in way.rows), default=0)
    apart = at.result.get(way.vector, 0) * c.itemsize
    return store_cycles(
        way.n_rows, way.vectors, way.lanes, stride, row_stride, apart, transposed_store(c, way.rows, way.vector, target), target
    )


def _written_cycles(c: Contraction, at: Measures[A], way: Way, target: Machine) -> A:
    """Results on their way to memory."""
    reached = {way.vector: smallest(at.trips[way.vector], way.width), **way.rows}
    run = run_length(sorted(reached, key=lambda i: abs(c.result.get(i, 0))), at.result, reached)
    return write_cycles(product(at.trips[i] for i in c.left) * c.itemsize, run * c.itemsize, target)


def _outside_of_batches(c: Contraction) -> set[str]:
    """Indices that a copy made outside of all that repeats it may walk over."""
    a, b = c.views
    return {i for i in c.s.indices if not (i in c.left and a.moves(i) and b.moves(i))}


def copy_at_once(c: Contraction, at: Measures[A], way: Way, target: Machine) -> A:
    """Copying all of the vector operand before the first tile, which takes it through the caches."""
    size = at.elements[way.side] * way.views(c)[0].itemsize
    return _copy_cycles(c, at, way.side, way.vector, _outside_of_batches(c), target) + pass_cycles(size, size, target)


def copy_of_panels(c: Contraction, at: Measures[A], way: Way, target: Machine) -> A:
    """Copying the vector operand panel by panel, before the tiles that read it."""
    return _copy_cycles(c, at, way.side, way.vector, {*way.order, way.vector}, target)


def _copy_cycles(c: Contraction, at: Measures[A], side: int, last: str, inside: Collection[str], target: Machine) -> A:
    """Copying an operand so that `last` becomes its fastest index, in pieces over the indices `inside`."""
    view, elements = c.views[side], at.elements[side]
    cycles = target.copies.start + elements * element_copy(view, last, inside, target.copies)
    if view.operand.is_padded:
        cycles = cycles + target.copies.row * product(form_extent(form, at.trips) for form in view.operand.forms[:-1])
    return cycles


def element_copy(view: View, last: str, inside: Collection[str], costs: CopyCosts) -> float:
    """Cycles for each element of such a copy."""
    if abs(view.strides.get(last, 0)) == 1:
        return costs.plain
    if any(abs(step) == 1 and i in inside for i, step in view.strides.items()):
        return costs.transposing
    return costs.scattered


def weigh_plain(c: Contraction, at: Measures[A], target: Machine) -> A:
    """Cycles where no register tile shares loads: lanes along the sum where both operands have it along memory, else along the
    memory of the result."""
    if (tile := streamed_tile(c, target)) is not None:
        return weigh_streamed(c, at, tile, target)
    if reduced_vector(c) is not None:
        return weigh_reduced(c, at, target)
    if batched_cycles(c, target):
        return weigh_batched(c, at, target)
    row = next((i for i in c.left if abs(c.result.get(i, 0)) == 1), None)
    vectors = 1 if row is None else ceil_div(at.trips[row], c.lanes)
    depth, rows = product(at.trips[i] for i in c.summed), product(at.trips[i] for i in c.left if i != row)
    return rows * (target.tiles.start + target.tiles.plain_loads / target.loads_per_cycle * (depth * vectors))


def reduced_vector(c: Contraction) -> str | None:
    """An index of the sum that both operands have along memory."""
    along = (i for i in c.summed if c.trips[i] >= c.lanes and all(abs(v.strides.get(i, 0)) == 1 for v in c.views))
    return next(along, None)


def weigh_reduced(c: Contraction, at: Measures[A], target: Machine) -> A:
    """Cycles with a reduction index as the vector, everything in place: lanes are summed up for every result."""
    results = product(at.trips[i] for i in c.left)
    volume = results * product(at.trips[i] for i in c.summed)
    written = write_cycles(results * c.itemsize, results * c.itemsize, target)
    side = 4 if target.n_registers >= 32 else 3
    step = step_cycles(side, side, side, side, target, False) / side**2
    sizes = [n * v.itemsize for n, v in zip(at.elements, c.views, strict=True) if v.is_given]
    far = total(stream(size, size, target).far_cycles for size in sizes)
    costs = target.tiles
    return costs.reduced * step / c.lanes * volume + costs.reduced_result * results + written + costs.exposed * far


def streamed_tile(c: Contraction, target: Machine) -> RegisterTile | None:
    """How plain loops read an operand once, in the order of memory, for few rows of results; None where they do not."""
    tile = choose_register_tile(c.s, target, c.lanes, True)
    return tile if tile.sharing else None


def _streamed_side(c: Contraction, tile: RegisterTile) -> int:
    """The number of the operand of which rows are streamed."""
    return next(n for n, v in enumerate(c.views) if v.moves(tile.vector or "") and not any(map(v.moves, tile.sharing)))


def weigh_streamed(c: Contraction, at: Measures[A], tile: RegisterTile, target: Machine) -> A:
    """Cycles where a few rows of an operand at a time pass by all rows of results, which stay near meanwhile."""
    ((_, steps),), n_rows, side = tile.streamed.items(), prod(tile.sharing.values()), _streamed_side(c, tile)
    size, width = c.views[side].itemsize, tile.sizes[tile.vector or ""]
    near = (steps * size + product(at.trips[i] for i in tile.sharing) * c.itemsize) * width
    moved = stream((steps * size + n_rows * c.itemsize) * c.lanes, near, target).cycles
    step = largest(max(n_rows, step_cycles(n_rows * steps, 1, 0, steps + n_rows, target, False)), moved) / (n_rows * steps)
    volume = product(at.trips[i] for i in (*c.left, *c.summed))
    far = stream(at.elements[side] * size, at.elements[side] * size, target).cycles
    results = product(at.trips[i] for i in c.left) * c.itemsize
    return largest(step / c.lanes * volume, far) + target.tiles.exposed * far + write_cycles(results, results, target)


def weigh_strips(c: Contraction, way: Way, cycles: float, tile: RegisterTile, target: Machine) -> float:
    """The `cycles` of a way with what they leave out, as it is little beside many rows: for the first time an operand that
    `tile` would stream comes from far, strip by strip of its rows."""
    side = _streamed_side(c, tile)
    view, is_vector = c.views[side], side == way.side
    is_packed = way.packs_vector if is_vector else way.packs_rows
    strip = (way.width if way.vector == tile.vector else way.rows.get(tile.vector or "", 1)) * view.itemsize
    touched = (ceil(strip / target.cache_line) + (not view.is_made)) * target.cache_line
    level, memory = find_level(view.bytes, target), target.memory
    rates = memory.read_prefetched if is_vector and not is_packed and strip >= target.cache_line else memory.read_strided
    waited = view.bytes * touched / strip / rates[level]
    if is_packed:  # of nearer caches the copy's own figures tell
        return cycles + (waited if level is Level.MEMORY else 0.0)
    return max(cycles, waited) + target.tiles.exposed * waited if level >= Level.L3 else cycles


def batched_cycles(c: Contraction, target: Machine) -> float:
    """Cycles of the loads, and the shuffles beside them, for a vector of products along an index that the result and both
    operands have along memory, one perhaps in steps of few elements, all of which are loaded; 0 where there is none."""
    for i in c.left:
        steps = [abs(v.strides.get(i, 0)) for v in c.views]
        if c.trips[i] >= c.lanes and abs(c.result.get(i, 0)) == 1 == min(steps) and max(steps) <= MAX_STRIDE:
            return max(sum(steps) / target.loads_per_cycle, max(steps) - 1)
    return 0.0


def weigh_batched(c: Contraction, at: Measures[A], target: Machine) -> A:
    """Cycles with such an index as the vector: each product reads a vector of one operand, the other one's serve some rows."""
    results = product(at.trips[i] for i in c.left)
    volume = results * product(at.trips[i] for i in c.summed)
    written = write_cycles(results * c.itemsize, results * c.itemsize, target)
    return batched_cycles(c, target) / c.lanes * (volume + results) + written


def step_cycles(rows: int, vectors: int, broadcasts: int, loads: float, target: Machine, straddles: bool) -> float:
    """One step of the reduction in a register tile whose operands are in the first-level cache."""
    n = loads * (1.3 if straddles else 1.0) + broadcasts
    waits = (rows * vectors / target.fma_per_cycle, n / target.loads_per_cycle, float(target.fma_latency))
    sharpness = target.tiles.sharpness
    return float(sum(w**sharpness for w in waits) ** (1 / sharpness)) + target.tiles.load * n


def transposed_store(c: Contraction, rows: Collection[str], vector: str, target: Machine) -> float:
    """Cycles per vector of a tile that is written transposed."""
    is_slow = target.fma_per_cycle == 1 and not c.has_known_trips((*rows, vector))
    return target.tiles.halved_transposed_store if is_slow else target.tiles.transposed_store


def store_cycles(
    rows: int, vectors: int, lanes: int, stride: int, row_stride: int, apart: A, transposed: float, target: Machine
) -> A:
    """Writing a register tile; strides in elements along the lanes and along the rows (0: rows are not neighbours), and bytes
    from lane to lane.  `transposed`: what `transposed_store` says."""
    if stride == 1:
        return 1.0 * rows * vectors
    if row_stride == 1 and rows >= 2:
        return transposed * vectors * (1.0 if vectors <= 2 else 1.7)
    return rows * vectors * lanes * either(apart >= target.memory.page // 2, target.tiles.far_store, target.tiles.near_store)
