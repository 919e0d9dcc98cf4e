"""How a sum of products is computed: which index is the vector, what the register tile holds, which operands are copied.

The vector operand is loaded as vectors, the row operand is broadcast element by element from where it lies.  Every choice of
vector, tile and copies is given its cycles by `costs`, and the cheapest is taken (structure: Goto and van de Geijn, "Anatomy
of high-performance matrix multiplication", TOMS 2008; one copy is often enough).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import ceil, prod
from types import MappingProxyType

from polyc.code_limits import CLOSE, MAX_REMEMBERED, MAX_STRIDE
from polyc.ir.expr import Read
from polyc.machine import Machine
from polyc.records import dataclass, replace
from polyc.scheduler.amounts import A
from polyc.scheduler.contractions import costs
from polyc.scheduler.contractions.contraction import Contraction, Measures, measure
from polyc.scheduler.contractions.operands import Operand
from polyc.scheduler.contractions.way import Way, find_block, reduction_order

MAX_ROWS = 14
"""Rows of a register tile; more only lengthen the code."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How to compute a contraction, and what that costs."""

    way: Way
    vector_operand: Operand
    row_operand: Operand
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
    target: Machine,
    constants: Collection[str] = (),
    in_place: Collection[Read] = (),
    within: Mapping[str, int] = MappingProxyType({}),
) -> Choice | None:
    """The cheapest way to compute a contraction; None where no register tile with shared loads beats plain loops.

    `constants` are tensors whose copies are made once, outside of the call; `in_place`: reads that cannot be copied; `within`:
    pieces that loops shared with other statements are cut into, which the tile has to divide."""
    reads = [v.operand.read for v in c.views]
    asked = c.form, target, *((r.tensor in constants, r in in_place) for r in reads), tuple(within.items())
    known = _chosen.get(asked)
    if known is None:  # every pass asks, of each schedule that it tries
        while len(_chosen) >= MAX_REMEMBERED:
            _chosen.pop(next(iter(_chosen)), None)
        known = _chosen[asked] = (_find_best(c, target, constants, in_place, within),)
    (found,) = known
    if found is None:
        return None
    view, other = found.way.views(c)
    return replace(found, vector_operand=view.operand, row_operand=other.operand)


_chosen: dict[Hashable, tuple[Choice | None]] = {}


def _find_best(
    c: Contraction, target: Machine, constants: Collection[str], in_place: Collection[Read], within: Mapping[str, int]
) -> Choice | None:
    at = measure(c)
    tried = list(_combinations(c, target, in_place, within))
    found = _find_cheapest(c, at, tried, target, constants)
    best = None if found is None else found[0]
    usual = _find_cheapest(c, at, tried, target, ()) if best is not None and constants else None
    if best is not None and usual is not None:
        alike = [x for x in tried if _differs_in_constants(c, x, usual[1], constants)]
        same = _find_cheapest(c, at, alike, target, constants)
        best = same[0] if same is not None and best.total > CLOSE * same[0].total else best
    if best is None or not (best.way.packs_vector or any(i != best.way.vector for i in best.way.tile)):
        return None  # nothing is shared
    tile = costs.streamed_tile(c, target)
    is_bound = any(v.operand.read.tensor in constants for v in c.views)
    if tile is not None and not is_bound:
        in_strips = costs.weigh_strips(c, best.way, best.total, tile, target)
        if in_strips >= costs.weigh_streamed(c, at, tile, target):
            return None
    if costs.reduced_vector(c) is not None and best.total >= costs.weigh_reduced(c, at, target):
        return None
    return None if costs.batched_cycles(c, target) and best.total >= costs.weigh_batched(c, at, target) else best


def _find_cheapest(
    c: Contraction, at: Measures[float], tried: Sequence[_Combination], target: Machine, constants: Collection[str]
) -> tuple[Choice, _Combination] | None:
    best: Choice | None = None
    first = 0
    # Those that can be best come first, and the rest need no estimate; of equal ones the first of all is taken.
    for least, n in sorted((x.least, n) for n, x in enumerate(tried)):
        if best is not None and least > best.total:
            break
        if _leaves_no_mask(c, tried[n], target, constants):
            continue
        found = _make_choice(c, at, _make_way(c, at, tried[n], target, constants), target, constants)
        if best is None or (found.total, n) < (best.total, first):
            best, first = found, n
    return None if best is None else (best, tried[first])


def _differs_in_constants(c: Contraction, x: _Combination, other: _Combination, constants: Collection[str]) -> bool:
    """Whether two combinations differ at most in which constants are copied: once, so that it costs no call anything."""
    view, row_view = c.views[other.side], c.views[1 - other.side]
    kept_vector = x.packs_vector == other.packs_vector or view.operand.read.tensor in constants
    kept_rows = x.packs_rows == other.packs_rows or row_view.operand.read.tensor in constants
    return kept_vector and kept_rows and replace(x, packs_vector=other.packs_vector, packs_rows=other.packs_rows) == other


def _leaves_no_mask(c: Contraction, x: _Combination, target: Machine, constants: Collection[str]) -> bool:
    """Whether the mask of a partial last tile has no register, where masks are vectors.

    Panels that are copied once for all calls run inside of the loop over rows, so that whole and partial tiles share that loop,
    and LLVM keeps the mask in a register and an accumulator in memory (512x1024 by 1024x1024 on AVX2: 21 ms in tiles of 4 x 24,
    10 in tiles of 6 x 16).  Panels that are copied in the call have a loop over rows of their own."""
    is_copied = x.packs_vector and c.views[x.side].operand.read.tensor in constants
    is_partial = c.trips[x.vector] % (x.vectors * c.lanes) != 0
    if target.has_masks or not (is_copied and x.shared and is_partial):
        return False
    taken = prod(x.rows.values()) * x.vectors + x.vectors + 1
    return x.vectors > 1 and taken > target.n_registers - target.spare_registers - 1


@dataclass(frozen=True, slots=True)
class _Combination:
    """A vector operand (`Way.side`) and index, a register tile, and what is copied."""

    side: int
    vector: str
    rows: dict[str, int]
    vectors: int
    packs_vector: bool
    packs_rows: bool
    shared: bool
    least: float
    """Cycles that `weigh` says at least."""


def _combinations(
    c: Contraction, target: Machine, in_place: Collection[Read], within: Mapping[str, int]
) -> Iterator[_Combination]:
    for n, view in enumerate(c.views):
        other = c.views[1 - n]
        rows = [i for i in c.left if other.moves(i) and not view.moves(i) and i in c.separate_left]
        shared, has_windows = bool(rows), other.operand.lies_like_a_copy
        if has_windows:
            rows.sort(key=lambda i: abs(c.result.get(i, 0)))  # of equal tiles the first is taken: one along memory
        if not shared:  # what the row operand does not move with shares at least its broadcasts
            rows = [i for i in c.columns(view) if i in c.separate_left]
        for vector in c.columns(view):
            if vector not in c.separate_left or c.trips[vector] < max(2, c.lanes // 4):
                continue
            step = abs(view.strides[vector])
            in_vectors = step == 1 or (not shared and target.has_masks and 2 <= step <= MAX_STRIDE)
            tiles = []
            # What is short at the first call may be shorter at others: one image after two.
            whole = {i for i in rows if not has_windows or c.has_known_trips((i,))}
            for tile, vectors in _tiles(c, vector, [i for i in rows if i != vector], shared, target, whole):
                sizes = {vector: vectors * c.lanes, **tile} if within else {}
                if not any(within.get(i, size) % size for i, size in sizes.items()):
                    tiles.append((tile, vectors, _least_cycles(c, vector, tile, vectors, shared, target)))
            for packs_vector, packs_rows in product((False, True), repeat=2):
                copied = ((view, packs_vector), (other, packs_rows))
                if not (packs_vector or in_vectors) or any(x and not c.is_worth_a_copy(v, in_place) for v, x in copied):
                    continue
                if packs_rows and (has_windows or c.lies_together(other, target.memory.page)):
                    continue  # broadcasts would read the copy as they read the operand
                for tile, vectors, least in tiles:
                    yield _Combination(n, vector, tile, vectors, packs_vector, packs_rows, shared, least)


def _least_cycles(c: Contraction, vector: str, rows: Mapping[str, int], vectors: int, shared: bool, target: Machine) -> float:
    """What `weigh` says at least: arithmetic and stores of all tiles, with everything in the first-level cache."""
    n_rows, lanes = prod(rows.values()), _lanes(c, vector)
    n_tiles = costs.panels(c, c.trips[vector], vector, n_rows, vectors, lanes, shared, target)
    passes = prod(ceil(c.trips[i] / rows.get(i, 1)) for i in c.left if i != vector)
    step = costs.step_cycles(n_rows, vectors, n_rows if shared else 1, vectors, target, False)
    row_stride = min((abs(c.result.get(i, 0)) for i in rows), default=0)
    stride = abs(c.result.get(vector, 0))
    transposed = costs.transposed_store(c, rows, vector, target)
    store = costs.store_cycles(n_rows, vectors, lanes, stride, row_stride, stride * c.itemsize, transposed, target)
    return n_tiles * passes * (target.tiles.start + c.depth * step + store)


def _make_way(c: Contraction, at: Measures[float], x: _Combination, target: Machine, constants: Collection[str]) -> Way:
    """A combination with what follows from it."""
    view, other = c.views[x.side], c.views[1 - x.side]
    order = reduction_order(c, view, other, () if x.shared else tuple(x.rows))
    lanes = _lanes(c, x.vector)
    panel = prod(c.trips[i] for i in order if view.moves(i)) * x.vectors * lanes * view.itemsize
    block = find_block(c, order, view, panel, target) if x.packs_vector else None
    way = Way(x.side, x.vector, lanes, x.rows, x.vectors, x.packs_vector, x.packs_rows, x.shared, order, block)
    if not x.packs_vector or block is not None or view.operand.read.tensor in constants:
        return way
    # Windows in place that outgrow the second-level cache would pass by for each panel; with all panels at hand a row stays.
    is_far = not x.packs_rows and other.operand.lies_like_a_copy and other.bytes > target.l2
    if is_far and view.bytes <= target.tiles.whole_panels * target.l2:
        return replace(way, is_whole=True)
    at_once = costs.copy_at_once(c, at, way, target)
    return replace(way, is_whole=at_once < costs.copy_of_panels(c, at, way, target))


def _lanes(c: Contraction, vector: str) -> int:
    """Of a vector along an index: accesses of few lanes stay within a line where wide ones with a mask straddle two."""
    lanes = c.lanes
    while lanes >= 2 * c.trips[vector]:
        lanes //= 2
    return lanes


def _tiles(
    c: Contraction, vector: str, rows: list[str], shared: bool, target: Machine, whole: Collection[str]
) -> Iterator[tuple[dict[str, int], int]]:
    """Register tiles: elements of the row indices, and vectors.  Accumulators, a row of vectors and a broadcast must fit beside
    what the target needs itself.  Where masks take vector registers and the only tile is partial, one accumulator may go
    through the stack: that is faster than a smaller tile (1024 x 10 doubles on AVX2: 4.3 µs, else 6.0).  Not of a single
    vector, where it would be two for a row of many.  `whole`: rows that share a tile with others where it holds all of them."""
    widest = min(4 if target.n_registers >= 32 else 3, ceil(c.trips[vector] / c.lanes))
    for vectors in range(1, widest + 1):
        free = target.n_registers - target.spare_registers
        is_masked = vectors == 1 and not target.has_masks and c.trips[vector] < c.lanes
        room = min(MAX_ROWS, (free - vectors - 1) // vectors - is_masked)
        if not shared:
            room = min(room, (target.n_registers // 2 - (vectors == 1)) // vectors)
        yield {}, vectors
        for first in rows:
            trip = c.trips[first]
            for size in {min(trip, r) for r in range(2, room + 1)}:
                if size != ceil(trip / ceil(trip / size)):
                    continue  # a smaller one makes as many tiles
                yield {first: size}, vectors
                if size < trip or first not in whole:
                    continue
                for second in rows:
                    for more in range(2, min(c.trips[second], room // size) + 1) if second != first else ():
                        yield {first: size, second: more}, vectors


def _make_choice(c: Contraction, at: Measures[float], way: Way, target: Machine, constants: Collection[str]) -> Choice:
    """A way with what it costs at the sizes that it is chosen for."""
    found = costs.weigh(c, at, way, target, constants)
    view, other = way.views(c)
    vectors, rows = found.streams
    traffic = {v.operand.read.tensor: found.steps * x.bytes * x.passed for v, x in ((view, vectors), (other, rows))}
    copies = [(view, way.packs_vector), (other, way.packs_rows)]
    copied = [v.bytes for v, packs in copies if packs and v.operand.read.tensor not in constants]
    if copied:
        traffic["copied"] = float(sum(copied))
    step = {"arithmetic": found.step, "caches": vectors.cycles + rows.cycles}
    return Choice(way, view.operand, other.operand, found.cycles, traffic, step)


def find_way(c: Contraction, choice: Choice) -> Way:
    """The way of a choice for a contraction of the same form, at these or other sizes, whose operands may stand the other way
    round."""
    side = next(n for n, v in enumerate(c.views) if v.operand.read == choice.vector_operand.read)
    return replace(choice.way, side=side)


def estimate(c: Contraction, at: Measures[A], choice: Choice | None, target: Machine, constants: Collection[str] = ()) -> A:
    """Cycles of a contraction that is as long as `at` says where it is computed as `choose` found best for `c`; None: by plain
    loops."""
    if choice is None:
        return costs.weigh_plain(c, at, target)
    return costs.weigh(c, at, find_way(c, choice), target, constants).total


def estimate_cycles(c: Contraction, choice: Choice | None, target: Machine, constants: Collection[str] = ()) -> float:
    """Cycles of a contraction at its own sizes where it is computed as `choose` found best at others; None: by plain loops."""
    return estimate(c, measure(c), choice, target, constants)


def describe(choice: Choice) -> str:
    """The choice in words: ``n 64 x m 6, vectors of 16 along n; copies B; 1.2e+06 cycles (arithmetic 95 %, …)``."""
    way = choice.way
    tile = " x ".join(f"{i} {size}" for i, size in way.tile.items())
    copied = [
        o.read.tensor for o, packs in ((choice.vector_operand, way.packs_vector), (choice.row_operand, way.packs_rows)) if packs
    ]
    total = choice.total
    shares = ", ".join(f"{what} {100 * x / total:.0f} %" for what, x in choice.cycles.items())
    blocks = f"; {way.block[0]} in blocks of {way.block[1]}" if way.block else ""
    return (
        f"{tile}, vectors of {way.lanes} along {way.vector}; "
        f"copies {' and '.join(copied) or 'nothing'}{blocks}; about {total:.2g} cycles ({shares})"
    )
