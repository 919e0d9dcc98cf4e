"""Strided and transposed access by whole rows: contiguous loads and stores with shuffles between them.

A gather costs about one load per lane.  Where the lanes are a few elements apart, or where a block of lanes and unrolled
copies covers whole rows, contiguous accesses and two-source shuffles do the same work several times faster.  Nothing outside
the elements asked for is touched: the last part of a strided load ends at its last element.
"""

from __future__ import annotations

from polyc.code_limits import MAX_STRIDE
from polyc.codegen.writer import vectors
from polyc.codegen.writer.builder import Function, Val, int_val, memory_type, vector_const, zero_val
from polyc.ir.types import U8, DType
from polyc.machine import Machine


def is_small_stride(dtype: DType, step: int) -> bool:
    """Whether lanes `step` bytes apart are so near that they are accessed with all elements in between at little cost."""
    return step % dtype.itemsize == 0 and 2 <= abs(step) // dtype.itemsize <= MAX_STRIDE


def load_strided(
    fn: Function,
    target: Machine,
    dtype: DType,
    pointer: Val,
    lanes: int,
    stride: int,
    mask: Val | None,
    epoch: str,
    other: Val | None = None,
) -> Val:
    """Every `stride`-th element (2 … 4, or down) from `pointer`; inactive lanes give `other` (or 0)."""
    reach = abs(stride)
    places = [lane * reach for lane in range(lanes)]
    if stride < 0:
        places.reverse()
        pointer = vectors.offset_pointer(fn, pointer, -places[0] * dtype.itemsize)
    last_start = (reach - 1) * (lanes - 1)  # its part ends at the last element
    starts = [min(part * lanes, last_start) for part in range(reach - 1)] + [last_start]
    total: Val | None = None
    chosen: dict[int, int] = {}
    for number, start in enumerate(starts):
        inside = {lane: place - start for lane, place in enumerate(places) if min(place // lanes, reach - 1) == number}
        part_mask = None
        n_active = None if mask is None or stride < 0 else vectors.prefix_count(fn, mask)
        if n_active is not None:  # the elements in between are there as well
            last = fn.binary("mul", fn.binary("sub", n_active, int_val(1)), int_val(reach))
            part_mask = vectors.first_lanes(fn, target, fn.binary("sub", last, int_val(start - 1)), lanes)
        elif mask is not None:
            owner = {place: lane for lane, place in inside.items()}
            part_mask = fn.shuffle(mask, zero_val("i1", lanes), [owner.get(e, lanes) for e in range(lanes)])
        first = vectors.offset_pointer(fn, pointer, start * dtype.itemsize)
        part = vectors.load_contiguous(fn, dtype, first, lanes, part_mask, epoch)
        if total is None:
            total, chosen = part, inside
            continue
        picks = [lanes + inside[lane] if lane in inside else chosen.get(lane, -1) for lane in range(lanes)]
        total = fn.shuffle(total, part, picks)
        chosen = {lane: lane for lane in chosen | inside}  # from the first shuffle on, lanes are in their places
    assert total is not None
    if mask is not None and other is not None and other != zero_val(other.type, other.lanes):
        total = fn.select(mask, total, other)
    return total


def load_interleaved(
    fn: Function, target: Machine, dtype: DType, pointer: Val, lanes: int, stride: int, mask: Val | None, epoch: str
) -> list[Val]:
    """All of the ``lanes * stride`` elements from `pointer`, a vector for each of the `stride` (2 … 4) phases.

    Lanes that `mask` leaves out are not loaded in any phase, and hold anything."""
    parts: list[Val] = []
    active = _constant_mask(mask, lanes)
    count = None if mask is None or active is not None else vectors.prefix_count(fn, mask)
    for start in range(0, stride * lanes, lanes):
        owners = [place // stride for place in range(start, start + lanes)]
        part_mask: Val | None = None
        if active is not None:
            inside = [active[owner] for owner in owners]
            if not any(inside):
                parts.append(vectors.from_memory(fn, zero_val(memory_type(dtype), lanes), dtype))
                continue
            part_mask = None if all(inside) else vector_const([int(bit) for bit in inside], "i1")
        elif count is not None:
            left = fn.binary("sub", fn.binary("mul", count, int_val(stride)), int_val(start))
            part_mask = vectors.first_lanes(fn, target, left, lanes)
        elif mask is not None:
            part_mask = fn.shuffle(mask, None, owners)
        first = vectors.offset_pointer(fn, pointer, start * dtype.itemsize)
        parts.append(vectors.load_contiguous(fn, dtype, first, lanes, part_mask, epoch))
    return _pick_phases(fn, parts)


def _pick_phases(fn: Function, parts: list[Val]) -> list[Val]:
    """As many phases as there are parts."""
    lanes, stride = parts[0].lanes, len(parts)
    if stride == 2:
        return [fn.shuffle(parts[0], parts[1], range(phase, 2 * lanes, 2)) for phase in range(2)]
    if stride == 4:
        even, odd = zip(_pick_phases(fn, parts[:2]), _pick_phases(fn, parts[2:]), strict=True)
        (a, c), (b, d) = _pick_phases(fn, list(even)), _pick_phases(fn, list(odd))
        return [a, b, c, d]
    phases: list[Val] = []
    for phase in range(stride):
        total = parts[0]
        chosen = [phase + stride * lane for lane in range(lanes)]
        known = {lane: place for lane, place in enumerate(chosen) if place < lanes}
        for number, part in enumerate(parts[1:], start=1):
            inside = {lane: place - number * lanes for lane, place in enumerate(chosen) if place // lanes == number}
            picks = [lanes + inside[lane] if lane in inside else known.get(lane, -1) for lane in range(lanes)]
            total = fn.shuffle(total, part, picks)
            known = {lane: lane for lane in known | inside}
        phases.append(total)
    return phases


def store_strided(fn: Function, dtype: DType, pointer: Val, value: Val, stride: int, mask: Val | None) -> None:
    """Every `stride`-th element (2 … 4, or down) from `pointer`, by masked stores of whole parts."""
    lanes, reach = value.lanes, abs(stride)
    value = vectors.to_memory(fn, value)
    places = [lane * reach for lane in range(lanes)]
    if stride < 0:
        places.reverse()
        pointer = vectors.offset_pointer(fn, pointer, -places[0] * dtype.itemsize)
    active = mask if mask is not None else fn.splat(Val("true", "i1"), lanes)
    for start in range(0, reach * lanes, lanes):
        owner = {place - start: lane for lane, place in enumerate(places) if 0 <= place - start < lanes}
        spread = fn.shuffle(value, None, [owner.get(e, -1) for e in range(lanes)])
        part_mask = fn.shuffle(active, zero_val("i1", lanes), [owner.get(e, lanes) for e in range(lanes)])
        first = vectors.offset_pointer(fn, pointer, start * dtype.itemsize)
        vectors.store_contiguous(fn, dtype, first, spread, part_mask)


def interleave(fn: Function, columns: list[Val]) -> list[Val]:
    """As many vectors, side by side the first lanes of all `columns`, then the second ones, and so on."""
    n, lanes = len(columns), columns[0].lanes
    if n == 1:
        return columns
    if n % 2 == 0:
        halves = zip(interleave(fn, columns[::2]), interleave(fn, columns[1::2]), strict=True)
        spread = [lane for t in range(lanes) for lane in (t, lanes + t)]
        return [fn.shuffle(a, b, spread[part : part + lanes]) for a, b in halves for part in (0, lanes)]
    result: list[Val] = []
    for part in range(n):
        total = columns[0]
        for c, column in enumerate(columns[1:], start=1):
            places = [divmod(part * lanes + t, n) for t in range(lanes)]
            earlier = [t if c > 1 else lane for t, (lane, _) in enumerate(places)]
            total = fn.shuffle(total, column, [lanes + lane if i == c else earlier[t] for t, (lane, i) in enumerate(places)])
        result.append(total)
    return result


def interleaved_mask(fn: Function, target: Machine, mask: Val, n_columns: int, part: int) -> Val:
    """The lanes that are wanted of vector `part` of those that `interleave` makes of columns with the lanes `mask`."""
    lanes, count = mask.lanes, vectors.prefix_count(fn, mask)
    if count is None:
        return fn.shuffle(mask, None, [place // n_columns for place in range(part * lanes, (part + 1) * lanes)])
    wanted = fn.binary("sub", fn.binary("mul", count, int_val(n_columns)), int_val(part * lanes))
    return vectors.first_lanes(fn, target, wanted, lanes)


# -- transposes


def transpose(fn: Function, rows: list[Val | None], n_columns: int) -> list[Val]:
    """Columns ``0 … n_columns - 1`` of a square block given by its rows (None: lanes nobody needs), one vector each.

    The rows have as many lanes as there are rows, a power of two.  Half of the stages move units of 128 bits between
    vectors, the other half interleave elements inside the units: each is one two-source shuffle of every instruction set."""
    size = len(rows)
    sample = next(row for row in rows if row is not None)
    unit = unit_lanes(sample.type, size)
    n_units = size // unit
    n_wanted = -(-n_columns // unit)
    poison = Val("poison", sample.type, size)
    result: list[Val | None] = [None] * size
    if None in rows[unit:]:  # few rows: their elements first, so that the empty units are never moved
        inner = [_transpose_in_units(fn, rows[first : first + unit], unit) for first in range(0, size, unit)]
        for c in range(unit):
            moved = _transpose_units(fn, [group[c] for group in inner], unit, [u < n_wanted for u in range(n_units)])
            for u, value in enumerate(moved):
                result[u * unit + c] = value
    else:
        wanted = [u < n_wanted for u in range(n_units)]
        outer = [_transpose_units(fn, rows[r::unit], unit, wanted) for r in range(unit)]
        for u in range(n_wanted):
            result[u * unit : (u + 1) * unit] = _transpose_in_units(fn, [group[u] for group in outer], unit)
    return [poison if value is None else value for value in result[:n_columns]]


def unit_lanes(type: str, lanes: int) -> int:
    """Lanes of a unit of 128 bits in vectors of `lanes`."""
    return min(lanes, max(1, 128 // _BITS[type]))


_BITS = {"float": 32, "double": 64, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def _pick(fn: Function, a: Val | None, b: Val | None, lanes: list[int]) -> Val | None:
    known = a or b
    if known is None:
        return None
    poison = Val("poison", known.type, known.lanes)
    return fn.shuffle(a or poison, b or poison, lanes)


def _transpose_in_units(fn: Function, rows: list[Val | None], unit: int) -> list[Val | None]:
    """Each unit of `unit` lanes of as many vectors, transposed for itself: interleaving halves, log2(unit) times."""
    size = next((row.lanes for row in rows if row is not None), 0)
    half = unit // 2
    low = [lane for first in range(0, size, unit) for t in range(half) for lane in (first + t, size + first + t)]
    for _ in range(unit.bit_length() - 1):
        pairs = list(zip(rows[:half], rows[half:], strict=True))
        rows = [_pick(fn, a, b, lanes) for a, b in pairs for lanes in (low, [lane + half for lane in low])]
    return rows


def _transpose_units(fn: Function, rows: list[Val | None], unit: int, wanted: list[bool]) -> list[Val | None]:
    """Unit u of vector v becomes unit v of vector u; only those `wanted`."""
    if len(rows) == 1 or not any(wanted):
        return rows if any(wanted) else [None] * len(rows)
    size = next((row.lanes for row in rows if row is not None), 0)
    even = [lane for first in range(0, 2 * size, 2 * unit) for lane in range(first, first + unit)]
    result: list[Val | None] = [None] * len(rows)
    for parity in (0, 1):
        if any(wanted[parity::2]):
            picked = [_pick(fn, a, b, [e + parity * unit for e in even]) for a, b in zip(rows[::2], rows[1::2], strict=True)]
            result[parity::2] = _transpose_units(fn, picked, unit, wanted[parity::2])
    return result


def load_columns(
    fn: Function,
    target: Machine,
    dtype: DType,
    rows: list[Val],
    n_columns: int,
    mask: Val | None,
    epoch: str,
    in_units: bool = False,
) -> list[Val]:
    """``n_columns`` vectors, lane l of vector c being element c behind ``rows[l]``; rows whose lane in `mask` is off give 0.

    Every row is read by contiguous loads of no more than its `n_columns` elements; `in_units`: of 128 bits each, if whole."""
    active = _constant_mask(mask, len(rows))
    width = min(len(rows), target.lanes(dtype.itemsize))
    unit = unit_lanes(memory_type(dtype), width)
    if dtype.kind == "b":  # moved as they lie in memory
        return [vectors.from_memory(fn, c, dtype) for c in load_columns(fn, target, U8, rows, n_columns, mask, epoch, in_units)]
    columns: list[Val] = []
    for start in range(0, n_columns, width):
        n = min(width, n_columns - start)
        # The last columns of several groups end a whole group: its first ones are there already.
        skipped = width - n if start else 0
        first, n = start - skipped, n + skipped
        if in_units and mask is None and n % unit == 0:
            places = [vectors.offset_pointer(fn, pointer, first * dtype.itemsize) for pointer in rows]
            groups = [_load_in_units(fn, dtype, places[r : r + width], n, unit, epoch) for r in range(0, len(rows), width)]
            columns += [vectors.concatenate(fn, [group[c] for group in groups]) for c in range(skipped, n)]
            continue
        loaded: list[Val | None] = []
        for lane, pointer in enumerate(rows):
            if active is not None and not active[lane]:
                loaded.append(zero_val(memory_type(dtype), width))
                continue
            if mask is not None and active is None:
                pointer = vectors.pointer_or_zeros(fn, fn.extract(mask, lane), pointer)
            loaded.append(
                _load_row(fn, target, dtype, vectors.offset_pointer(fn, pointer, first * dtype.itemsize), n, width, epoch)
            )
        parts = [transpose(fn, loaded[r : r + width], n) for r in range(0, len(rows), width)]
        columns += [vectors.concatenate(fn, [part[c] for part in parts]) for c in range(skipped, n)]
    return columns


def _load_in_units(fn: Function, dtype: DType, rows: list[Val], n_columns: int, unit: int, epoch: str) -> list[Val]:
    """Columns of a square block as of `transpose`, whose stages that move units are part of the loads."""
    columns: list[Val] = []
    for first in range(0, n_columns, unit):
        places = [vectors.offset_pointer(fn, row, first * dtype.itemsize) for row in rows]
        units = [vectors.load_contiguous(fn, dtype, place, unit, None, epoch) for place in places]
        joined: list[Val | None] = [vectors.concatenate(fn, units[r::unit]) for r in range(unit)]
        columns += [column for column in _transpose_in_units(fn, joined, unit) if column is not None]
    return columns


def _constant_mask(mask: Val | None, lanes: int) -> list[bool] | None:
    if mask is None:
        return [True] * lanes
    if not mask.ref.startswith("<"):
        return None
    return [part.split()[-1] != "0" for part in mask.ref[1:-1].split(",")]


def _load_row(fn: Function, target: Machine, dtype: DType, pointer: Val, n: int, width: int, epoch: str) -> Val:
    """`n` consecutive elements as the first lanes of `width`."""
    if n == width:
        return vectors.load_contiguous(fn, dtype, pointer, n, None, epoch)
    if target.has_masks:
        return vectors.load_contiguous(fn, dtype, pointer, width, vectors.first_lanes(fn, target, int_val(n), width), epoch)
    piece = 1 << (n.bit_length() - 1)
    if piece == 1:
        one = vectors.load_scalar(fn, dtype, pointer, None, epoch)
        return fn.insert(Val("poison", one.type, width), one, 0)
    wide = [e if e < piece else -1 for e in range(width)]
    row = fn.shuffle(vectors.load_contiguous(fn, dtype, pointer, piece, None, epoch), None, wide)
    if piece == n:
        return row
    rest = n - piece  # the second load overlaps the first: it ends at the last element
    second = vectors.load_contiguous(fn, dtype, vectors.offset_pointer(fn, pointer, rest * dtype.itemsize), piece, None, epoch)
    moved = fn.shuffle(second, None, [e - rest if piece <= e < n else -1 for e in range(width)])
    return fn.shuffle(row, moved, [e if e < piece else width + e if e < n else -1 for e in range(width)])


def store_rows(
    fn: Function,
    target: Machine,
    dtype: DType,
    rows: list[Val],
    columns: list[Val],
    mask: Val | None,
    conditions: list[Val | None],
) -> None:
    """The reverse of `load_columns`: lane l of ``columns[c]`` becomes element c behind ``rows[l]``.

    Lanes whose bit in `mask` is off, and columns whose condition does not hold (on targets with masks), are left alone."""
    active = _constant_mask(mask, len(rows))
    width = min(len(rows), target.lanes(dtype.itemsize))
    columns = [vectors.to_memory(fn, c) for c in columns]
    for first in range(0, len(columns), width):
        part, tests = columns[first : first + width], conditions[first : first + width]
        kept = _column_mask(fn, target, tests, width)
        for r in range(0, len(rows), width):
            if active is not None and not any(active[r : r + width]):
                continue
            own = [v if v.lanes == width else fn.shuffle(v, None, range(r, r + width)) for v in part]
            for lane, row in enumerate(transpose(fn, own + [None] * (width - len(own)), width), start=r):
                if active is not None and not active[lane]:
                    continue
                bit = None if mask is None or active is not None else fn.extract(mask, lane)
                pointer = vectors.offset_pointer(fn, rows[lane], first * dtype.itemsize)
                _store_row(fn, target, dtype, pointer, row, len(part), kept, bit)


def _column_mask(fn: Function, target: Machine, tests: list[Val | None], width: int) -> Val | None:
    """The mask of a row of `width` lanes; None where all of them are stored."""
    if len(tests) < width or any(t is not None for t in tests):
        result = vectors.first_lanes(fn, target, int_val(len(tests)), width)
        if all(t is None for t in tests):
            return result
        result = zero_val("i1", width)
        for lane, test in enumerate(tests):
            result = fn.insert(result, test or Val("true", "i1"), lane)
        return result
    return None


def _store_row(
    fn: Function, target: Machine, dtype: DType, pointer: Val, row: Val, n: int, kept: Val | None, bit: Val | None
) -> None:
    """The first `n` lanes of `row`, those of the mask `kept`, where the scalar `bit` holds."""
    if target.has_masks:
        mask = fn.and_(kept, None if bit is None else fn.splat(bit, row.lanes))
        vectors.store_contiguous(fn, dtype, vectors.pointer_or_spare(fn, bit, pointer), row, mask)
        return
    with fn.when(bit):
        done = 0
        while done < n:
            piece = 1 << ((n - done).bit_length() - 1)
            lanes = range(done, done + piece)
            place = vectors.offset_pointer(fn, pointer, done * dtype.itemsize)
            part = row if piece == row.lanes else fn.shuffle(row, None, lanes)
            vectors.store_contiguous(fn, dtype, place, part, None)
            done += piece
