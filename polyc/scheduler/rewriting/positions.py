"""Make positions of extremes fast: long rows are searched in the one block that holds the extreme, positions are 32 bits wide.

Before: ``m max= f[k]``, ``p min= f[k] == m ? k : none`` over K points, in 64 bits.
After, for blocks of T points: ``m.b[c] max= f[c*T + t]``, ``m max= m.b[c]``; the first block with the extreme (or a NaN) is
``b min= m.b[c] == m ? c : none``, its first point ``base = min(b*T, K - T)``, and ``q min= f[base + t] == m ? t : none`` in 32
bits reads that block alone; then ``p = base + q``.  The last block is moved back to end with the row: what it shares with the
block before cannot be the extreme, or that block had been the first.  Short rows are only narrowed.  A row of unknown length is
searched in blocks where it is long at the typical sizes; at others it may be shorter than a block, or have no point.
"""

from __future__ import annotations

from functools import reduce
from math import isqrt, prod
from typing import cast

from polyc.code_limits import CHUNK, ENOUGH_TASKS, MINIMUM_BLOCKS
from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Read,
    Select,
    eq,
    identity_of,
    int_const,
    maximum,
    minimum,
    ne,
    padded_reads,
    reads,
    substitute,
)
from polyc.ir.program import Program, Reduction, Statement
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I32, I64, DType
from polyc.poly.domains import is_box
from polyc.poly.ranges import Ranges, estimate_extent, known_shape
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.builder import ProgramBuilder, Split
from polyc.scheduler.rewriting.rules.analysis import writes_whole

SUMMING_UP = 40
"""Points that are searched in the time it takes to reduce the vectors of a block to one value."""

SMALLEST_BLOCK = 128
"""Points; those of `CHUNK` stay in the first caches."""

MOST_BLOCKS = 8
"""Blocks that are worth a second stage (500 rows with AVX2: of 512 in 41 instead of 51 µs, of 768 in 51 instead of 72), and
blocks of one row of known length where that stage is written out for each of many rows."""

_NONE = identity_of("min", I32)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The statements of an extreme and of its positions along `index`."""

    best: Statement
    place: Statement
    index: str
    dtype: DType


def block_positions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Arg-reductions go by blocks."""
    builder = ProgramBuilder(program, ranges)
    made: dict[str, list[Statement]] = {}
    remarks: list[Remark] = []
    for place in program.statements:
        pair = _find_pair(program, place, ranges)
        if pair is None or not writes_whole(pair.place, ranges) or not writes_whole(pair.best, ranges):
            continue
        extents = ranges.statements[place.name].indices
        extent, results = extents[pair.index].extent, known_shape(extents[i] for i in place.left_indices)
        has_few = results is not None and prod(results) < ENOUGH_TASKS
        length = estimate_extent(extent, ranges.typical)
        if length is None or length >= 1 << 31 or pair.best.name in made:
            continue
        size = _block_size(length, has_few)
        if length >= MINIMUM_BLOCKS * size and _runs_along(program, pair) and len(program.writers()[place.target]) == 1:
            made[pair.best.name], made[place.name] = _block(pair, size, builder)
            message = f"blocks of {size} points of {pair.index}"
        elif isinstance(extent, Const) and pair.dtype.itemsize < program.tensor(place.target).dtype.itemsize:
            made[place.name] = _narrow(pair, builder)
            message = f"{pair.index} is compared in 32 bits"
        else:
            continue
        remarks.append(Remark("passed", "block-positions", message, place.name, place.span))
    builder.statements += [n for s in program.statements for n in made.get(s.name, [s])]
    return (*builder.finish(), remarks) if remarks else (program, ranges, remarks)


def _find_pair(program: Program, place: Statement, ranges: Ranges) -> _Pair | None:
    """The pair that `polyc.frontends.core.reductions` (or a user) has written as two statements."""
    if place.reduction is None or place.reduction.op != "min" or not place.has_plain_left or len(place.reduction_indices) != 1:
        return None
    (index,) = place.reduction_indices
    dtype = program.tensor(place.target).dtype
    none = identity_of("min", dtype)
    here: Expr = Index(index) if dtype.name == "i64" else Cast(Index(index), dtype)
    found = (s for r in reads(place.value) if r.subscripts == place.subscripts for s in program.writers().get(r.tensor, ()))

    def is_chosen(s: Statement) -> bool:  # where a NaN is the extreme, and is not asked for, no point is: that must not change
        extreme = _is_extreme(s.value, Read(s.target, place.subscripts), program.tensor(s.target).dtype)
        return place.value == Select(extreme, here, none)

    best = next((s for s in found if s.reduction is not None and s.reduction.op in ("max", "min") and is_chosen(s)), None)
    if best is None or best.reduction is None or len(program.writers()[best.target]) != 1:
        return None
    kind, value = program.tensor(best.target).dtype, best.value
    if (best.subscripts, best.indices, best.where) != (place.subscripts, place.indices, place.where):
        return None
    if place.reduction.init != none or best.reduction.init != identity_of(best.reduction.op, kind):
        return None
    if any(r.tensor in (best.target, place.target) for r in reads(value)):
        return None
    for s in (best, place):
        own = ranges.statements[s.name]
        if own.guards or not is_box(own.domain, own.indices, s.indices):
            return None
    return _Pair(best, place, index, kind)


def _block_size(extent: int, has_few: bool) -> int:
    """The power of two that makes summing up all blocks and searching one cheapest."""
    best = isqrt(SUMMING_UP * extent)
    if has_few:
        return min(max(_next_power(best), SMALLEST_BLOCK), CHUNK)
    return max(_next_power(best), SMALLEST_BLOCK, _next_power(-(-extent // MOST_BLOCKS)))


def _next_power(n: int) -> int:
    """The least power of two that is not below a positive `n`."""
    return 1 << (n - 1).bit_length()


def _runs_along(program: Program, pair: _Pair) -> bool:
    """Whether the points lie one after the other in inputs, whose elements can be read again in any order."""
    found = reads(pair.best.value)
    is_plain = all(r.subscripts and r.subscripts[-1] == Index(pair.index) and r.tensor in program.parameters for r in found)
    return bool(found) and is_plain and not padded_reads(pair.best.value)


def _narrow(pair: _Pair, builder: ProgramBuilder) -> list[Statement]:
    """Positions from the lower bound on in 32 bits, and converted in a statement of their own."""
    place, index, target = pair.place, pair.index, builder.program.tensor(pair.place.target)
    points = builder.points(place)
    lower, left = points.indices[index].lower, {i: points.indices[i] for i in place.left_indices}
    assert isinstance(place.value, Select)
    value = replace(place.value, then=Cast(simplify_int(Index(index) - lower), I32), other=_NONE)
    first = builder.define(place, "i32", tuple(left), value, (index,), Reduction("min", _NONE), dtype=I32)
    # Also where there is nothing to choose from.
    result = _position(lower, Read(first.target, place.subscripts), target.dtype)
    return [first, builder.change(place, builder.box(left), value=result, reduction=None)]


def _position(origin: Expr, offset: Expr, dtype: DType, has_points: bool = False) -> Expr:
    """``origin + offset`` in the type of a position; where there is none, what says so."""
    position = simplify_int(origin + Cast(offset, I64))
    position = position if dtype == I64 else Cast(position, dtype)
    return position if has_points else Select(eq(offset, _NONE), identity_of("min", dtype), position)


def _block(pair: _Pair, size: int, builder: ProgramBuilder) -> tuple[list[Statement], list[Statement]]:
    """What stands in the place of the extreme, and of its position."""
    best, place, target = pair.best, pair.place, builder.program.tensor(pair.place.target)
    left, own = place.left_indices, builder.points(place).indices
    interval, rows = own[pair.index], {i: own[i] for i in left}
    split, smallest = Split(pair.index, size, interval, len(left)), Reduction("min", _NONE)
    part, whole = builder.rfactor(best, split, "values")
    points, value, found = builder.points(part), Read(part.target, part.subscripts), Read(best.target, place.subscripts)
    n_blocks = split.blocks.extent
    if not isinstance(n_blocks, Const) or n_blocks.value > MOST_BLOCKS:
        in_block = Select(_is_extreme(value, found, pair.dtype), Cast(Index(split.block), I32), _NONE)
        first = builder.define(place, "block", left, in_block, (split.block,), smallest, points, I32)
    else:
        assert part.reduction is not None
        op = part.reduction.op
        parts = [Read(part.target, (*place.subscripts, int_const(c))) for c in range(int(n_blocks.value))]
        total = reduce(lambda a, b: Call(op, (a, b)), parts[1:], cast(Expr, parts[0]))
        whole = builder.change(best, points.project(left), value=total, reduction=None)
        # no nested selections: branches on data would be mispredicted
        nowhere = Const(n_blocks.value, I32)
        places: list[Expr] = [Select(_is_extreme(p, found, pair.dtype), Const(c, I32), nowhere) for c, p in enumerate(parts)]
        first = builder.define(place, "block", left, minimum(*places), over=points, dtype=I32)
    start: Expr = Cast(Read(first.target, place.subscripts), I64) * size
    moved_back = simplify_int(interval.extent - size)
    start = minimum(start, moved_back if isinstance(interval.extent, Const) else maximum(moved_back, 0))
    # Where a row begins, and the result, are there also where there is nothing to choose from.
    begin = builder.define(place, "base", left, simplify_int(start + interval.lower), over=rows, dtype=I64)
    origin = Read(begin.target, place.subscripts)
    again = substitute(best.value, {pair.index: origin + Index(split.inner)})
    in_row = Select(_is_extreme(again, found, pair.dtype), Cast(Index(split.inner), I32), _NONE)
    search = builder.define(place, "offset", left, in_row, (split.inner,), smallest, points, I32)
    offset = Read(search.target, place.subscripts)
    result = _position(origin, offset, target.dtype, has_points=isinstance(interval.extent, Const))
    last = builder.change(place, builder.box(rows), value=result, reduction=None)
    return [part, whole], [first, begin, search, last]


def _is_extreme(value: Expr, best: Read, dtype: DType) -> Expr:
    same = eq(value, best)
    return Call("or", (same, ne(value, value))) if dtype.is_float else same
