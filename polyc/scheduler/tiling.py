"""Register tiles: which indices of a statement to carry as a vector and which to unroll, and how far.

A tile of MR rows by n vectors needs ``MR*n + n + 1`` registers (accumulators, vectors of one operand, a broadcast);
loads per fused multiply-add fall with ``MR*n / (MR + n)``.  Nothing here knows what the statement computes: an operand is
broadcast if it does not move with the vector index, reused if it does not move with an unrolled one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import product
from math import prod

from polyc.code_limits import ENOUGH_ROWS, LONG_ROW, MAX_STRIDE, SHORT_SUM, STREAM_ROWS, TILE_ROWS
from polyc.ir.expr import Const, Expr
from polyc.machine import Level, Machine, Share
from polyc.poly.scop import ScopStatement, ScopTensor
from polyc.records import dataclass
from polyc.scheduler.accesses import AccessMotion, access_motions, held_left, index_trips, is_constant, is_strided_window

Rows = Mapping[tuple[str, tuple[Expr, ...]], float]
"""Operations by tensor and subscripts, of accesses to elements of rows that are accessed whole."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`vector` index in steps of `lanes`; `sizes`: tile size by index (the vector index in elements).  A reduction index
    with a size is cut into blocks, which are no part of the tile but of the loops around it.

    `streamed`: a reduction index to cut into few rows that run innermost, while the accumulators of a long vector stay in
    the first-level cache: the way to read an operand without reuse in the order of memory.  `sharing`: left indices whose
    values pass over such rows one after the other, before the next rows come, and how many of them at once.
    """

    vector: str | None
    lanes: int
    sizes: dict[str, int]
    streamed: dict[str, int] = field(default_factory=dict)
    sharing: dict[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    """Reduction indices, outermost first, where their order was chosen."""


OPERATIONS_OF_ROW = 3.0
"""Loads and shuffles for each element of short rows that are accessed whole: three vectors take 9, four take 12."""


def vector_cost(
    motions: Sequence[AccessMotion], index: str, trip: int, lanes: int, reduction_trip: int, rows: Rows | None = None
) -> float:
    """Memory operations per vector of `lanes` elements along `index`, scaled by the share of useful lanes.

    `rows`: what `find_rows` finds, where elements of one row are accessed by several statements or reads."""
    cost = 0.5
    for m in motions:
        weight = 1.0 / reduction_trip if m.is_write else 1.0
        if rows and (m.tensor, m.subscripts) in rows:
            cost += weight * min(lanes, rows[m.tensor, m.subscripts])
            continue
        match m.motion(index):
            case "unit":
                cost += weight
            case "invariant":
                cost += 0.5 * weight
            case "strided":
                cost += weight * lanes
    return cost * (-(-trip // lanes) * lanes / trip) if trip else cost


def lane_cost(
    motions: Sequence[AccessMotion],
    index: str,
    trips: Mapping[str, int],
    summed: Sequence[str],
    lanes: int,
    rows: Rows | None = None,
) -> float:
    """`vector_cost` of a statement that sums over `summed`; lanes of a sum are added up behind it."""
    cost = vector_cost(motions, index, trips[index], lanes, _product(trips[r] for r in summed), rows)
    return cost + (4.0 * lanes / max(trips[index], 1) if index in summed else 0.0)


def find_rows(statements: list[ScopStatement], candidate: Mapping[str, str], tensors: Mapping[str, ScopTensor]) -> Rows:
    """Operations for each access to one of several elements of short rows, which are loaded or stored whole and put into lanes.

    Components of points are such elements; `candidate`: the index of the points, by statement.  An access that is alone in
    its rows is left out."""
    found: dict[str, set[tuple[Expr, ...]]] = {}
    lengths: dict[tuple[str, tuple[Expr, ...]], int] = {}
    for s in statements:
        for m in access_motions(s):
            length = _row_length(m, candidate[s.name], tensors)
            if length is not None:
                found.setdefault(m.tensor, set()).add(m.subscripts[-1:])
                lengths[m.tensor, m.subscripts] = length
    counts = {tensor: len(places) for tensor, places in found.items() if len(places) > 1}
    return {access: OPERATIONS_OF_ROW * length / counts[access[0]] for access, length in lengths.items() if access[0] in counts}


def _row_length(m: AccessMotion, index: str, tensors: Mapping[str, ScopTensor]) -> int | None:
    """Elements from one value of `index` to the next, where these are few and nothing else moves among them."""
    if m.tensor not in tensors or any(c is None for c in m.coefficients):
        return None
    moving = [d for d, c in enumerate(m.coefficients) if c and index in c]
    if moving != [len(m.coefficients) - 2] or m.coefficients[-2] != {index: 1} or m.coefficients[-1]:
        return None
    extent = tensors[m.tensor].shape[-1]
    return int(extent.value) if isinstance(extent, Const) and 2 <= extent.value <= MAX_STRIDE else None


def gathered_index(s: ScopStatement) -> str | None:
    """The index of a short sum over elements that data names, by numbers along rows of memory (the rows of a sparse matrix);
    None where `s` is no such sum, or where other indices run along memory."""
    if len(s.reduction_indices) != 1 or not is_constant(s.extents[s.reduction_indices[0]]):
        return None
    (index,) = s.reduction_indices
    operands = [m for m in access_motions(s) if not m.is_write]
    gathered = any(
        c is None and index in names
        for m in operands
        if m.is_placed_by_data
        for c, names in zip(m.coefficients, m.named, strict=True)
    )
    if not gathered or not 2 <= index_trips(s)[index] <= SHORT_SUM:
        return None
    is_along = any(m.motion(index) == "unit" for m in operands)
    return index if is_along and not any(m.motion(i) == "unit" for m in operands for i in s.left) else None


def choose_vector_index(
    statements: list[ScopStatement],
    candidates: list[dict[str, str]],
    lanes: int,
    allow_reduction: bool,
    tensors: Mapping[str, ScopTensor] | None = None,
) -> int | None:
    """Position of the cheapest candidate; each candidate maps statement name to its index.  None: no vector pays.

    `tensors`: those whose rows may be accessed whole."""
    best: tuple[float, int] | None = None
    if any(gathered_index(s) is not None for s in statements):
        return None
    for n, candidate in enumerate(candidates):
        cost, scalar, legal = 0.0, 0.0, True
        is_for_all = tensors is not None and all(s.name in candidate for s in statements)
        rows = find_rows(statements, candidate, tensors) if tensors and is_for_all else None
        for s in statements:
            index = candidate.get(s.name)
            if index is None:
                legal = False
                break
            motions, trips = access_motions(s), index_trips(s)
            is_reduction = index in s.reduction_indices
            legal = legal and (s.writes_exactly or index in s.separate_left)
            legal = legal and not any(r.is_partition and index in r.outer for r in s.loaded_ranges.values())
            legal = legal and (allow_reduction or not is_reduction)
            cost += lane_cost(motions, index, trips, s.reduction_indices, lanes, rows)
            scalar += (len(motions) + 0.5) * lanes
        if legal and cost < 0.9 * scalar and (best is None or cost <= best[0]):
            best = (cost, n)
    return None if best is None else best[1]


def choose_register_tile(
    s: ScopStatement, target: Machine, lanes: int, allow_reduction: bool, vector: str | None = None
) -> RegisterTile:
    """The register tile of one reduction statement, over all its indices; `vector`: the index of the vector, where statements
    that share a pass have chosen it together."""
    motions, trips = access_motions(s), index_trips(s)
    operands = [m for m in motions if not m.is_write]
    if vector is None:
        chosen = choose_vector_index([s], [{s.name: i} for i in s.indices], lanes, allow_reduction)
        if chosen is None:
            return RegisterTile(None, 1, {})
        vector = s.indices[chosen]
    reusing = [i for i in held_left(s) if i != vector and any(m.motion(i) == "invariant" for m in operands)]
    reusing.sort(key=lambda i: (trips[i] < ENOUGH_ROWS, _distance_from_unit(operands, i), s.left.index(i)))
    if vector in s.left:
        # Rows share the loads of operands that move with the vector index.
        rows = [i for i in reusing if any(m.motion(i) == "invariant" and m.motion(vector) == "unit" for m in operands)]
        columns = -(-trips[vector] // lanes)
        sharing = {i: trips[i] for i in rows if trips[i] > 1}
        if not sharing or _is_streamed_by_rows(s, operands, vector, sharing, lanes, target):
            streamed = _streamed_index(s, operands, vector, trips, 4 * lanes)
            if streamed is not None:
                return _stream_rows(s, vector, streamed, sharing, lanes, target)
        is_narrow = is_strided_window(s) and target.vector_bits > target.streaming_bits
        is_bound = is_narrow or any(c is None for m in operands for c in m.coefficients)
        mr, n = _tile_shape(target.n_registers, trips[rows[0]] if rows else 1, columns, is_bound)
        is_plain = all(c is not None and len(c) <= 1 for m in operands for c in m.coefficients)
        if mr == 1 and is_plain and target.n_registers < 32:
            n = max(1, min(target.in_flight, columns))
        sizes = {vector: n * lanes}
        if rows and mr > 1:
            sizes[rows[0]] = mr
        return RegisterTile(vector, lanes, sizes)
    second = [i for i in reusing[1:] if _shared(operands, i) != _shared(operands, reusing[0])]
    if second:  # each shares what the other one moves
        pair = reusing[0], second[0]
        shape = _pair_shape(4 if target.n_registers >= 32 else 3, *(s.start_steps.get(i, 0) for i in pair))
        return RegisterTile(vector, lanes, {i: min(n, trips[i]) for i, n in zip(pair, shape, strict=True) if trips[i] > 1})
    return RegisterTile(vector, lanes, {i: min(4, trips[i]) for i in reusing[:1] if trips[i] > 1})


def _pair_shape(side: int, first_start: int, second_start: int) -> tuple[int, int]:
    """Sizes of two indices that each share what the other one moves, of no more results than a square of this side: those with
    the fewest loads for each multiply-add among the divisors of the steps in which the loops over them begin (0: at 0)."""
    tried = ((n, m) for n in range(1, side * side + 1) for m in range(1, side * side // n + 1))
    fitting = (t for t in tried if first_start % t[0] == 0 == second_start % t[1])
    return max(fitting, key=lambda t: t[0] * t[1] / (t[0] + t[1]))


def _is_streamed_by_rows(
    s: ScopStatement, operands: list[AccessMotion], vector: str, rows: Mapping[str, int], lanes: int, target: Machine
) -> bool:
    """Whether few rows of results pass over an operand, once, that no near cache holds, and of which register tiles would read
    strips."""
    trips, summed = index_trips(s), s.reduction_indices
    if len(rows) != 1 or any(n > STREAM_ROWS or not is_constant(s.extents[i]) for i, n in rows.items()):
        return False
    size = target.vector_bits // 8 // lanes * _product(trips[i] for i in (vector, *summed))
    if (
        size <= target.l2
        or _product(trips[i] for i in summed) < 4 * STREAM_ROWS
        or access_motions(s)[0].motion(vector) != "unit"
    ):
        return False
    others = [i for i in s.left if trips[i] > 1 and i != vector]
    read_once = (m for m in operands if m.motion(vector) == "unit")
    return any([i for i in others if m.motion(i) == "invariant"] == list(rows) for m in read_once)


def _shared(operands: list[AccessMotion], index: str) -> set[int]:
    """Positions of the operands whose elements serve all values of `index`."""
    return {n for n, m in enumerate(operands) if m.motion(index) == "invariant"}


def _distance_from_unit(operands: list[AccessMotion], index: str) -> tuple[int, int]:
    """Dimensions between `index` and the fastest one, and its step there, in the operand where it is nearest."""
    last = ((len(m.coefficients) - 1, m.coefficients) for m in operands)
    found = [(n - d, abs(c[index])) for n, dims in last for d, c in enumerate(dims) if c and c.get(index, 0)]
    return min(found, default=(0, 0))


def _streamed_index(
    s: ScopStatement, operands: list[AccessMotion], vector: str, trips: dict[str, int], narrow: int
) -> str | None:
    """The reduction index that walks whole rows of an operand longer than a register tile; None if rows are short."""
    if trips[vector] <= 2 * narrow:
        return None
    for m in operands:
        if m.motion(vector) != "unit" or any(c is None for c in m.coefficients):
            continue  # rows that data names follow each other nowhere
        long = [i for i in s.reduction_indices if trips[i] >= TILE_ROWS and i not in s.loaded_ranges]
        strided = [i for i in long if m.motion(i) == "strided"]
        if len(strided) == len(s.reduction_indices) and strided:
            return strided[-1]
    return None


def _stream_rows(
    s: ScopStatement, vector: str, streamed: str, sharing: dict[str, int], lanes: int, target: Machine
) -> RegisterTile:
    """Rows of an operand that pass by those of results, of which none or some share them.

    At once as many of both as have the fewest loads and stores for each multiply-add in registers, which hold what is
    broadcast, results, and an element of a passing row."""
    all_rows, free = _product(sharing.values()), target.n_registers - target.spare_registers
    tried = product((n for n in range(1, all_rows + 1) if all_rows % n == 0), (TILE_ROWS, TILE_ROWS // 2, TILE_ROWS // 4))
    fitting = (t for t in tried if t[0] * (t[1] + 1) < free or t == (1, TILE_ROWS))
    rows, steps = min(fitting, key=lambda t: 1 / t[0] + 2 / t[1])
    if is_constant(s.extents[streamed]) and (trip := index_trips(s)[streamed]) <= 4 * TILE_ROWS:
        steps = max((n for n in range(TILE_ROWS // 2, steps + 1) if trip % n == 0), default=steps)  # no rest with its own tests
    most = (
        target.room(Level.L2, Share.QUARTER) * 8 // target.vector_bits // (all_rows + steps)
        if sharing
        else target.rows.streamed
    )
    others = _product(index_trips(s)[i] for i in s.separate_left if i != vector and i not in sharing)
    chunk = _streamed_columns(index_trips(s)[vector], lanes, max(1, target.cores // others), most)
    at_once = dict.fromkeys(sharing, rows)
    return RegisterTile(vector, lanes, {vector: chunk, **sharing}, {streamed: steps}, sharing=at_once)


def _streamed_columns(trip: int, lanes: int, cores: int, most: int) -> int:
    """Columns of one chunk, of `most` vectors at most: as many chunks for each of the cores that share them, two where that
    leaves them wide enough."""
    vectors = -(-trip // lanes)
    share = cores if cores == 1 or vectors < 2 * cores * LONG_ROW else 2 * cores
    chunks = share * -(-vectors // (share * most))
    return lanes * max(LONG_ROW // 4, -(-vectors // chunks))


def _tile_shape(registers: int, max_rows: int, max_columns: int, is_bound: bool) -> tuple[int, int]:
    """Rows and vectors per row with the fewest loads per multiply-add that fit into the registers.

    `is_bound`: memory bounds it.  Where data names the rows of an operand, each pass along them reads the names and their cache
    misses again; windows have vectors of half the width (`Machine.streaming_bits`)."""
    widest = 4 if registers >= 32 else 2
    best = (0.0, 1, 1)
    for n in range(1, min(widest, max_columns) + 1):
        rows = min(max_rows, (registers - n - 2) // n, 14)
        if rows >= 1:
            score = rows * n / (rows + n) if rows > 1 else n / (n + 1)
            best = max(best, (score, rows, n))
    _, rows, n = best
    if rows == 1:  # no reuse: several vectors in flight hide the latency of the accumulators
        return 1, max(1, min(2 * widest if is_bound else widest, max_columns))
    if max_rows > rows:  # balance the row tiles instead of leaving a short one
        rows = -(-max_rows // -(-max_rows // rows))
    return rows, n


def _product(values: Iterable[int]) -> int:
    return max(prod(values), 1)
