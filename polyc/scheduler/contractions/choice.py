"""How a sum of products is computed: which index is the vector, what the register tile holds, which operands are copied.

The vector operand is loaded as vectors, the row operand is broadcast element by element from where it lies.  Every choice of
vector, tile and copies is given its cycles by `costs`, and the cheapest is taken (structure: Goto and van de Geijn, "Anatomy
of high-performance matrix multiplication", TOMS 2008; one copy is often enough).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import ceil, prod
from types import MappingProxyType

from polyc.ir.expr import Const, Read
from polyc.scheduler.contractions import costs
from polyc.scheduler.contractions.contraction import Contraction, View
from polyc.scheduler.contractions.operand_streams import (
    UNROLLED_PRODUCTS,
    find_block,
    loads_of_rows,
    reduction_order,
    row_stream,
    run_length,
)
from polyc.scheduler.contractions.operands import Operand, form_extent
from polyc.scheduler.traffic import asked_ahead, pass_cycles, stream, write_cycles
from polyc.target import Target

FEW_ACCUMULATORS = 16
"""Accumulators of a tile that shares broadcasts only, at most, and half of the registers: with few, short windows are unrolled,
and their loads shared as well."""

PLAIN_LOADS = 4.0
"""Of a vector of products where nothing is shared, in loads: two, and often a store."""

MAX_ROWS = 14
"""Rows of a register tile; more only lengthen the code."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How to compute a contraction.  `tile`: elements of each left index in the register tile, where more than one.

    `block`: a reduction index that is cut into blocks of so many, so that the copy of a block stays in the cache."""

    vector: str
    lanes: int
    tile: dict[str, int]
    vector_operand: Operand
    row_operand: Operand
    packs_vector: bool
    packs_rows: bool
    reduction_order: tuple[str, ...]
    block: tuple[str, int] | None = None
    is_whole: bool = False
    """Whether the vector operand is copied at once, not panel by panel: its lines lie along an index outside of a panel."""
    cycles: dict[str, float] = field(default_factory=dict)
    """Estimated cycles by what they are spent on."""
    traffic: dict[str, float] = field(default_factory=dict)
    """Bytes that come from beyond the first-level cache, by operand, and bytes copied."""
    step: dict[str, float] = field(default_factory=dict)
    """Cycles of one step of the tile by what it may wait for: its arithmetic and reads, and the caches that feed them."""

    @property
    def total(self) -> float:
        return sum(self.cycles.values())


def choose(
    c: Contraction,
    target: Target,
    constants: Collection[str] = (),
    in_place: Collection[Read] = (),
    within: Mapping[str, int] = MappingProxyType({}),
) -> Choice | None:
    """The cheapest way to compute a contraction; None where no register tile with shared loads beats plain loops.

    `constants` are tensors whose copies are made once, outside of the call; `in_place`: reads that cannot be copied; `within`:
    pieces that loops shared with other statements are cut into, which the tile has to divide."""
    best: Choice | None = None
    first = 0
    tried = list(_combinations(c, target, in_place, within))
    # Those that can be best come first, and the rest need no estimate; of equal ones the first of all is taken.
    for least, n in sorted((_least_cycles(c, x, target), n) for n, x in enumerate(tried)):
        if best is not None and least > best.total:
            break
        x = tried[n]
        other = c.views[1 - c.views.index(x.view)]
        found = _estimate(
            c, target, x.view, other, x.vector, x.rows, x.vectors, x.packs_vector, x.packs_rows, constants, x.shared
        )
        if best is None or (found.total, n) < (best.total, first):
            best, first = found, n
    if best is None or not (best.packs_vector or any(i != best.vector for i in best.tile)):
        return None  # nothing is shared
    return best if best.total < min(_cycles_along_reduction(c, target), _cycles_along_batch(c, target)) else None


@dataclass(frozen=True, slots=True)
class _Combination:
    """A vector operand and index, a register tile, and what is copied; arguments of `_estimate`."""

    view: View
    vector: str
    rows: dict[str, int]
    vectors: int
    packs_vector: bool
    packs_rows: bool
    shared: bool


def _combinations(
    c: Contraction, target: Target, in_place: Collection[Read], within: Mapping[str, int]
) -> Iterator[_Combination]:
    for n, view in enumerate(c.views):
        other = c.views[1 - n]
        rows = [i for i in c.left if other.moves(i) and not view.moves(i) and i in c.separate_left]
        shared = bool(rows)
        if not shared:  # what the row operand does not move with shares at least its broadcasts
            rows = [i for i in c.columns(view) if i in c.separate_left]
        for vector in c.columns(view):
            if vector not in c.separate_left or c.trips[vector] < max(2, c.lanes // 4):
                continue
            for packs_vector, packs_rows in product((False, True), repeat=2):
                step = abs(view.strides[vector])
                if not packs_vector and step != 1 and (shared or not target.has_masks or step not in costs.SMALL_STEPS):
                    continue
                if any(
                    packs and not c.is_worth_a_copy(v, in_place) for v, packs in ((view, packs_vector), (other, packs_rows))
                ):
                    continue
                for tile, vectors in _tiles(c, vector, [i for i in rows if i != vector], shared, target):
                    sizes = {vector: vectors * c.lanes, **tile} if within else {}
                    if not any(within.get(i, size) % size for i, size in sizes.items()):
                        yield _Combination(view, vector, tile, vectors, packs_vector, packs_rows, shared)


def _least_cycles(c: Contraction, x: _Combination, target: Target) -> float:
    """What `_estimate` says at least: arithmetic and stores of all tiles, with everything in the first-level cache."""
    n_rows = prod(x.rows.values())
    n_tiles = _panels(c, x.vector, n_rows, x.vectors, _lanes(c, x.vector), x.shared, target)
    passes = prod(ceil(c.trips[i] / x.rows.get(i, 1)) for i in c.left if i != x.vector)
    step = costs.step_cycles(n_rows, x.vectors, n_rows if x.shared else 1, x.vectors, target, False)
    store = _store_cycles(c, x.vector, x.rows, x.vectors, _lanes(c, x.vector))
    return n_tiles * passes * (costs.TILE_START + c.depth * step + store)


def _panels(c: Contraction, vector: str, n_rows: int, vectors: int, lanes: int, shared: bool, target: Target) -> float:
    """Register tiles along the vector; of an extent that is not known the last one runs as many vectors as there are."""
    size = vectors * lanes
    if isinstance(c.s.extents[vector], Const):
        return ceil(c.trips[vector] / size)
    whole, rest = divmod(c.trips[vector], size)
    return whole + costs.partial_panels(n_rows, vectors, n_rows if shared else 1, target)[ceil(rest / lanes)]


def _passes_in_parts(c: Contraction, vector: str, rows: Mapping[str, int]) -> tuple[int, int, int]:
    """Tiles for each panel that have fewer rows than others, in how many parts each of them runs, and the rows of a part."""
    if len(rows) != 1:
        return 0, 0, 0
    ((index, size),) = rows.items()
    rest, part = c.trips[index] % size, ceil(size / costs.ROW_PARTS)
    return prod(c.trips[i] for i in c.left if i not in (vector, index)), ceil(rest / part), part


def _store_cycles(c: Contraction, vector: str, rows: Mapping[str, int], vectors: int, lanes: int) -> float:
    row_stride = min((abs(c.result.get(i, 0)) for i in rows), default=0)
    return costs.store_cycles(prod(rows.values()), vectors, lanes, abs(c.result.get(vector, 0)), row_stride, c.itemsize)


def _lanes(c: Contraction, vector: str) -> int:
    """Of a vector along an index: accesses of few lanes stay within a line where wide ones with a mask straddle two."""
    lanes = c.lanes
    while lanes >= 2 * c.trips[vector]:
        lanes //= 2
    return lanes


def _tiles(c: Contraction, vector: str, rows: list[str], shared: bool, target: Target) -> Iterator[tuple[dict[str, int], int]]:
    """Register tiles: elements of the row indices, and vectors.  Accumulators, a row of vectors and a broadcast must fit beside
    what the target needs itself.  Where masks take vector registers and the only tile is partial, one accumulator may go
    through the stack: that is faster than a smaller tile (1024 x 10 doubles on AVX2: 4.3 µs, else 6.0).  Not of a single
    vector, where it would be two for a row of many."""
    widest = min(4 if target.n_registers >= 32 else 3, ceil(c.trips[vector] / c.lanes))
    for vectors in range(1, widest + 1):
        free = target.n_registers - target.spare_registers
        is_masked = vectors == 1 and not target.has_masks and c.trips[vector] < c.lanes
        room = min(MAX_ROWS, (free - vectors - 1) // vectors - is_masked)
        if not shared:
            room = min(room, FEW_ACCUMULATORS // vectors, (target.n_registers // 2 - (vectors == 1)) // vectors)
        yield {}, vectors
        for first in rows:
            trip = c.trips[first]
            for size in {min(trip, r) for r in range(2, room + 1)}:
                if size != ceil(trip / ceil(trip / size)):
                    continue  # a smaller one makes as many tiles
                yield {first: size}, vectors
                if size < trip:
                    continue
                for second in rows:
                    for more in range(2, min(c.trips[second], room // size) + 1) if second != first else ():
                        yield {first: size, second: more}, vectors


def _estimate(
    c: Contraction,
    target: Target,
    view: View,
    other: View,
    vector: str,
    rows: dict[str, int],
    vectors: int,
    packs_vector: bool,
    packs_rows: bool,
    constants: Collection[str],
    shared: bool,
    lanes: int | None = None,
) -> Choice:
    """`shared`: the rows share the loads of the vector operand; else they share the broadcasts of the other one.  `lanes`:
    where they are given."""
    trips = c.trips
    if lanes is None:
        lanes = _lanes(c, vector)
    n_rows = prod(rows.values())
    n_tiles = ceil(trips[vector] / (vectors * lanes))
    panels = _panels(c, vector, n_rows, vectors, lanes, shared, target)
    passes = prod(ceil(trips[i] / rows.get(i, 1)) for i in c.left if i != vector)  # row tiles that read a panel
    order = reduction_order(c, view, other, () if shared else tuple(rows))
    straddles = any(i != vector for form in view.operand.forms if any(i == vector for i, _ in form) for i, _ in form)
    n_loads = float(vectors) if shared else vectors * loads_of_rows(c, view, rows, vectors)
    shuffles = 0.0
    if not packs_vector:
        # Lanes that are some elements apart are picked out of as many vectors.
        shuffles = n_loads * (abs(view.strides[vector]) - 1) * costs.SHUFFLE
        n_loads *= abs(view.strides[vector])
    step = shuffles + costs.step_cycles(n_rows, vectors, n_rows if shared else 1, n_loads, target, straddles)
    # The vector operand: a panel of all steps, read once for each row tile.
    width = vectors * lanes * view.itemsize
    panel = prod(trips[i] for i in order if view.moves(i)) * width
    block = None
    if packs_vector:
        block = find_block(c, order, view, panel, target)
        held = panel if block is None else panel // trips[block[0]] * block[1]
        loads = stream(width if shared else n_rows * width, held, target)
    else:
        inner = next((i for i in reversed(order) if view.moves(i)), None)
        stride = abs(view.strides[inner]) * view.itemsize if inner is not None else 0
        if stride > width:  # whole lines, and one more: arrays of others start anywhere in a line
            touched = (ceil(width / target.cache_line) + 1) * target.cache_line
            loads = stream(touched if shared else n_rows * touched, panel / width * touched, target, stride, touched)
            if shared and view.is_given and inner is not None:
                loads = asked_ahead(loads, width, trips[inner], view.bytes, target)
        else:
            loads = stream(width if shared else n_rows * width, panel, target)
    # The row operand: all of it passes by for every panel.
    broadcasts = row_stream(c, other, rows if shared else {}, order, packs_rows, target)
    waits = {"arithmetic": step, "caches": loads.cycles + broadcasts.cycles}
    step = max(waits.values())
    step += costs.NOT_HIDDEN * sum(x.far_cycles for x, of in ((loads, view), (broadcasts, other)) if of.is_given)
    if not packs_vector and loads.rate != float("inf"):
        step += costs.LINE_STRADDLE * vectors
    tested = 1.0
    if (view.operand.is_padded and not packs_vector) or vector in c.tested:
        # The ends of whole rows in loops that are all unrolled are constants.
        is_known = n_tiles == 1 and target.has_masks and n_rows * vectors * c.depth <= UNROLLED_PRODUCTS
        step += n_loads * (1.0 if shared else costs.KNOWN_MASK if is_known else costs.ROW_MASK)
    if other.operand.is_padded and not packs_rows:
        near = max((2 / max(2, ceil(trips[i] / rows.get(i, 1))) for i in other.indices if i in c.left), default=0.0)
        tested += costs.BORDER_SLOWDOWN * near
    store = _store_cycles(c, vector, rows, vectors, lanes)
    reached = {vector: min(trips[vector], vectors * lanes), **rows}
    written = write_cycles(
        prod(trips[i] for i in c.left) * c.itemsize, run_length(list(reached), c.result, reached) * c.itemsize, target
    )
    steps = n_tiles * passes * c.depth
    per_tile = costs.TILE_START + c.depth * step * tested
    arithmetic = panels * passes * per_tile
    partial, n_parts, part = _passes_in_parts(c, vector, rows)
    if shared and n_parts > 1:  # what is left of a tile takes as long as a tile, and longer in parts that wait for results
        in_part = max(shuffles + costs.step_cycles(part, vectors, part, n_loads, target, straddles), loads.cycles)
        arithmetic += n_tiles * partial * max(0.0, n_parts * (costs.TILE_START + c.depth * in_part * tested) - per_tile)
    spent = {
        "arithmetic": arithmetic,
        "stores": panels * passes * store + written,
    }
    traffic = {
        view.operand.read.tensor: 0.0 if loads.rate == float("inf") else steps * loads.bytes,
        other.operand.read.tensor: 0.0 if broadcasts.rate == float("inf") else steps * broadcasts.bytes,
    }
    copied, is_whole = 0.0, False
    whole = {i for i in c.s.indices if not (i in c.left and view.moves(i) and other.moves(i))}
    if packs_vector and view.operand.read.tensor not in constants:
        panels, at_once = _copy_cycles(c, view, vector, {*order, vector}), _copy_cycles(c, view, vector, whole)
        at_once += pass_cycles(view.bytes, view.bytes, target)
        is_whole = block is None and at_once < panels
        copied += min(at_once, panels) if block is None else panels
        traffic["copied"] = view.bytes
    if packs_rows and other.operand.read.tensor not in constants:
        copied += _copy_cycles(c, other, order[-1], whole)
        traffic["copied"] = traffic.get("copied", 0.0) + other.bytes
    if copied:
        spent["copies"] = copied
    if block is not None:
        spent["blocks"] = 0.2 * ceil(trips[block[0]] / block[1]) * prod(trips[i] for i in c.left)
    tile = {i: size for i, size in rows.items() if size > 1} | {vector: vectors * lanes}
    return Choice(
        vector,
        lanes,
        tile,
        view.operand,
        other.operand,
        packs_vector,
        packs_rows,
        order,
        block,
        is_whole,
        spent,
        traffic,
        waits,
    )


def _copy_cycles(c: Contraction, view: View, last: str, inside: Collection[str]) -> float:
    """Copying an operand so that `last` becomes its fastest index, in pieces over the indices `inside`."""
    rows = view.elements / form_extent(view.operand.forms[-1], c.trips) if view.operand.is_padded else 0.0
    return costs.COPY_START + view.elements * element_copy(view, last, inside) + rows * costs.COPIED_ROW


def element_copy(view: View, last: str, inside: Collection[str]) -> float:
    """Cycles for each element of such a copy."""
    if abs(view.strides.get(last, 0)) == 1:
        return costs.PLAIN_COPY
    if any(abs(step) == 1 and i in inside for i, step in view.strides.items()):
        return costs.TRANSPOSING_COPY
    return costs.SCATTERED_COPY


def _cycles_along_reduction(c: Contraction, target: Target) -> float:
    """The same with a reduction index as the vector, everything in place: lanes are summed up for every result."""
    volume = prod(c.trips[i] for i in c.s.indices)
    results = prod(c.trips[i] for i in c.left)
    written = write_cycles(results * c.itemsize, results * c.itemsize, target)
    for i in c.summed:
        if c.trips[i] >= c.lanes and all(abs(v.strides.get(i, 0)) == 1 for v in c.views):
            side = 4 if target.n_registers >= 32 else 3
            step = costs.step_cycles(side, side, side, side, target, False) / side**2
            far = sum(stream(v.bytes, v.bytes, target).far_cycles for v in c.views if v.is_given)
            return 1.3 * step * volume / c.lanes + 1.5 * results + written + costs.NOT_HIDDEN * far
    return float("inf")


def estimate_cycles(c: Contraction, choice: Choice | None, target: Target, constants: Collection[str] = ()) -> float:
    """Cycles of a contraction at its own sizes where it is computed as `choose` found best at others; None: by plain loops."""
    if choice is None:
        along = _cycles_along_reduction(c, target)
        return along if along != float("inf") else _cycles_plain(c, target)
    view = next(v for v in c.views if v.operand.read == choice.vector_operand.read)
    other = c.views[1 - c.views.index(view)]
    vectors = choice.tile[choice.vector] // choice.lanes
    rows = {i: n for i, n in choice.tile.items() if i != choice.vector}
    shared = all(other.moves(i) and not view.moves(i) for i in rows)
    return _estimate(
        c,
        target,
        view,
        other,
        choice.vector,
        rows,
        vectors,
        choice.packs_vector,
        choice.packs_rows,
        constants,
        shared,
        choice.lanes,
    ).total


def _cycles_plain(c: Contraction, target: Target) -> float:
    """The same in loops that share nothing: vectors along the memory of the result, whole ones to the end of each row."""
    row = next((c.trips[i] for i in c.left if abs(c.result.get(i, 0)) == 1), 1)
    rows = prod(c.trips[i] for i in c.left) / row
    return rows * (costs.TILE_START + PLAIN_LOADS / target.loads_per_cycle * c.depth * ceil(row / c.lanes))


def _cycles_along_batch(c: Contraction, target: Target) -> float:
    """The same with an index as the vector that the result and both operands have along memory: each product reads a vector of
    one operand, the other one's serve some rows."""
    volume = prod(c.trips[i] for i in c.s.indices)
    results = prod(c.trips[i] for i in c.left)
    written = write_cycles(results * c.itemsize, results * c.itemsize, target)
    for i in c.left:
        if c.trips[i] >= c.lanes and abs(c.result.get(i, 0)) == 1 and all(abs(v.strides.get(i, 0)) == 1 for v in c.views):
            return 2 / target.loads_per_cycle * (volume + results) / c.lanes + written
    return float("inf")


def describe(choice: Choice) -> str:
    """The choice in words: ``n 64 x m 6, vectors of 16 along n; copies B; 1.2e+06 cycles (arithmetic 95 %, …)``."""
    tile = " x ".join(f"{i} {size}" for i, size in choice.tile.items())
    copied = [
        o.read.tensor
        for o, packs in ((choice.vector_operand, choice.packs_vector), (choice.row_operand, choice.packs_rows))
        if packs
    ]
    total = choice.total
    shares = ", ".join(f"{what} {100 * x / total:.0f} %" for what, x in choice.cycles.items())
    blocks = f"; {choice.block[0]} in blocks of {choice.block[1]}" if choice.block else ""
    return (
        f"{tile}, vectors of {choice.lanes} along {choice.vector}; "
        f"copies {' and '.join(copied) or 'nothing'}{blocks}; about {total:.2g} cycles ({shares})"
    )
