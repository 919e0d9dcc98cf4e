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
from math import isqrt
from typing import cast

from polyc.diagnostics import Remark
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    ceil_div,
    eq,
    ge,
    identity_of,
    int_const,
    lt,
    maximum,
    minimum,
    ne,
    reads,
    substitute,
    walk,
)
from polyc.ir.program import Program, Reduction, Statement, Tensor
from polyc.ir.simplify import simplify_int
from polyc.ir.types import I32, I64, DType
from polyc.poly.domains import box_domain, is_box, map_domain, project_domain
from polyc.poly.ranges import Interval, Ranges, StatementRanges, estimate_extent
from polyc.records import dataclass, replace
from polyc.scheduler.rewriting.rules.blocks import writes_whole

SUMMING_UP = 40
"""Points that are searched in the time it takes to reduce the vectors of a block to one value."""

SMALLEST_BLOCK, LARGEST_BLOCK = 128, 4096
"""Points; the largest stay in the first-level cache."""

MINIMUM_BLOCKS, MOST_BLOCKS = 2, 8
"""Blocks that are worth a second stage (500 rows with AVX2: of 512 in 41 instead of 51 µs, of 768 in 51 instead of 72), and
blocks of one row of known length where that stage is written out for each of many rows."""

FEW_RESULTS = 16
"""Results from which threads and passes go along rows, not along blocks."""

_NONE = identity_of("min", I32)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The statements of an extreme and of its positions along `index`."""

    best: Statement
    place: Statement
    index: str
    dtype: DType


def block_positions(program: Program, ranges: Ranges) -> tuple[Program, Ranges, list[Remark]]:
    """Narrow the positions of extremes, and compute those of few long rows in blocks."""
    remarks: list[Remark] = []
    for place in program.statements:
        pair = _find_pair(program, place, ranges)
        if pair is None or not writes_whole(pair.place, ranges) or not writes_whole(pair.best, ranges):
            continue
        extents = ranges.statements[place.name].indices
        extent, has_few = extents[pair.index].extent, _count_results(place, ranges) < FEW_RESULTS
        length = estimate_extent(extent, ranges.typical)
        if length is None or length >= 1 << 31:
            continue
        size = _block_size(length, has_few)
        if length >= MINIMUM_BLOCKS * size and _runs_along(program, pair) and _is_alone(program, pair):
            program, ranges = _block(program, ranges, pair, size)
            remarks.append(
                Remark("passed", "block-positions", f"blocks of {size} points of {pair.index}", place.name, place.span)
            )
        elif isinstance(extent, Const) and pair.dtype.itemsize < program.tensor(place.target).dtype.itemsize:
            program, ranges = _narrow(program, ranges, pair)
            remarks.append(Remark("passed", "block-positions", f"{pair.index} is compared in 32 bits", place.name, place.span))
    return program, ranges, remarks


def _find_pair(program: Program, place: Statement, ranges: Ranges) -> _Pair | None:
    """The pair that `polyc.frontends.core.reductions` (or a user) has written as two statements."""
    if place.reduction is None or place.reduction.op != "min" or not place.has_plain_left or len(place.reduction_indices) != 1:
        return None
    (index,) = place.reduction_indices
    dtype = program.tensor(place.target).dtype
    none = identity_of("min", dtype)
    here: Expr = Index(index) if dtype.name == "i64" else Cast(Index(index), dtype)
    match place.value:
        case Select(condition, then, other) if then == here and other == none and place.reduction.init == none:
            pass
        case _:
            return None
    match condition:
        case Call("or", (Call("eq", (value, Read() as read)), Call("ne", (a, b)))) if a == b == value:
            pass
        case Call("eq", (value, Read() as read)):
            pass
        case _:
            return None
    writers = [s for s in program.statements if s.target == read.tensor]
    if len(writers) != 1 or read.subscripts != place.subscripts:
        return None
    (best,) = writers
    kind = program.tensor(best.target).dtype
    if best.reduction is None or best.reduction.op not in ("max", "min") or best.value != value:
        return None
    if best.subscripts != place.subscripts or best.indices != place.indices or best.where != place.where:
        return None
    if best.reduction.init != identity_of(best.reduction.op, kind):
        return None
    if kind.is_float and condition == eq(value, read):
        return None  # where a NaN is the extreme, no point is: that must not change
    if any(r.tensor in (best.target, place.target) for r in reads(value)):
        return None
    for s in (best, place):
        own = ranges.statements[s.name]
        if own.guards or not is_box(own.domain, own.indices, s.indices):
            return None
    return _Pair(best, place, index, kind)


def _count_results(s: Statement, ranges: Ranges) -> int:
    results = 1
    for i in s.left_indices:
        extent = ranges.statements[s.name].indices[i].extent
        results *= int(extent.value) if isinstance(extent, Const) else FEW_RESULTS
    return results


def _block_size(extent: int, has_few: bool) -> int:
    """The power of two that makes summing up all blocks and searching one cheapest."""
    best = isqrt(SUMMING_UP * extent)
    if has_few:
        return min(max(_next_power(best), SMALLEST_BLOCK), LARGEST_BLOCK)
    return max(_next_power(best), SMALLEST_BLOCK, _next_power(-(-extent // MOST_BLOCKS)))


def _next_power(n: int) -> int:
    """The least power of two that is not below a positive `n`."""
    return 1 << (n - 1).bit_length()


def _runs_along(program: Program, pair: _Pair) -> bool:
    """Whether the points lie one after the other in inputs, whose elements can be read again in any order."""
    found = reads(pair.best.value)
    is_plain = all(r.subscripts and r.subscripts[-1] == Index(pair.index) and r.tensor in program.parameters for r in found)
    return bool(found) and is_plain and not any(isinstance(node, Pad) for node in walk(pair.best.value))


def _is_alone(program: Program, pair: _Pair) -> bool:
    """Whether both versions are written by these statements alone."""
    return all(sum(s.target == target for s in program.statements) == 1 for target in (pair.best.target, pair.place.target))


def _narrow(program: Program, ranges: Ranges, pair: _Pair) -> tuple[Program, Ranges]:
    """Positions from the lower bound on in 32 bits, and converted in a statement of their own."""
    place, index = pair.place, pair.index
    own = ranges.statements[place.name]
    target = program.tensor(place.target)
    narrow = Tensor(f"{place.target}.i32.{place.name}", I32, target.rank, None, "temporary", target.base, place.span)
    lower = own.indices[index].lower
    assert isinstance(place.value, Select)
    offset = simplify_int(Index(index) - lower)
    first = replace(
        place,
        name=f"{place.name}_i32",
        target=narrow.name,
        value=replace(place.value, then=Cast(offset, I32), other=_NONE),
        reduction=Reduction("min", _NONE),
    )
    read = Read(narrow.name, place.subscripts)
    found = _wide(lower, read, target.dtype)
    value = Select(eq(read, _NONE), identity_of("min", target.dtype), found)
    second = Statement(place.name, place.target, place.subscripts, place.left_indices, value, None, (), place.span)
    kept = {i: own.indices[i] for i in place.left_indices}
    domain = box_domain(place.name, place.left_indices, kept, ranges.parameters)  # also where there is nothing to choose from
    added = {
        first.name: StatementRanges(own.indices, own.domain.set_tuple_name(first.name)),
        place.name: StatementRanges(kept, domain),
    }
    left = tuple(own.indices[i] for i in place.left_indices)
    return _replace(program, ranges, {place.name: (first, second)}, (narrow,), added, {narrow.name: left})


def _wide(base: Expr, offset: Expr, dtype: DType) -> Expr:
    """``base + offset`` in the type of a position."""
    base = simplify_int(base)
    wide, start = Cast(offset, dtype), base if dtype.name == "i64" else Cast(base, dtype)
    return wide if base == int_const(0) else start + wide


def _block(program: Program, ranges: Ranges, pair: _Pair, size: int) -> tuple[Program, Ranges]:
    best, place, index = pair.best, pair.place, pair.index
    own = ranges.statements[place.name]
    interval, left = own.indices[index], place.left_indices
    extent = interval.extent
    block, inner = f"{index}.block", f"{index}.in"
    target, element = program.tensor(place.target), (*left, block)

    def tensor(name: str, dtype: DType, rank: int) -> Tensor:
        return Tensor(f"{place.target}.{name}.{place.name}", dtype, rank, None, "temporary", target.base, place.span)

    values, chosen = tensor("values", pair.dtype, len(element)), tensor("block", I32, len(left))
    base, offset = tensor("base", I64, len(left)), tensor("offset", I32, len(left))

    def statement(suffix: str, target: str, names: tuple[str, ...], over: tuple[str, ...], value: Expr, op: str) -> Statement:
        reduction = Reduction(op, identity_of(op, pair.dtype if target == values.name else I32)) if op else None
        return Statement(
            f"{place.name}_{suffix}", target, tuple(map(Index, names)), (*names, *over), value, reduction, (), place.span
        )

    point = simplify_int(Index(block) * size + interval.lower)
    point = simplify_int(point + Index(inner))
    assert best.reduction is not None
    op = best.reduction.op
    found = Read(best.target, place.subscripts)
    value = Read(values.name, tuple(map(Index, element)))
    part = statement("values", values.name, element, (inner,), substitute(best.value, {index: point}), op)
    n_blocks = simplify_int(ceil_div(extent, size))
    if not isinstance(n_blocks, Const) or n_blocks.value > MOST_BLOCKS:
        whole = replace(best, indices=element, value=value, where=())
        in_block = Select(_is_extreme(value, found, pair.dtype), Cast(Index(block), I32), _NONE)
        first = statement("block", chosen.name, left, (block,), in_block, "min")
    else:
        parts = [Read(values.name, (*place.subscripts, int_const(c))) for c in range(int(n_blocks.value))]
        total = reduce(lambda a, b: Call(op, (a, b)), parts[1:], cast(Expr, parts[0]))
        whole = replace(best, indices=left, value=total, reduction=None, where=())
        # no nested selections: branches on data would be mispredicted
        nowhere = Const(n_blocks.value, I32)
        places: list[Expr] = [
            Select(_is_extreme(part, found, pair.dtype), Const(c, I32), nowhere) for c, part in enumerate(parts)
        ]
        where = minimum(*places)
        first = statement("block", chosen.name, left, (), where, "")
    start: Expr = Cast(Read(chosen.name, place.subscripts), I64) * size
    moved_back = simplify_int(extent - size)
    start = minimum(start, moved_back if isinstance(extent, Const) else maximum(moved_back, 0))
    begin = statement("base", base.name, left, (), simplify_int(start + interval.lower), "")
    origin = Read(base.name, place.subscripts)
    again = substitute(best.value, {index: origin + Index(inner)})
    in_row = Select(_is_extreme(again, found, pair.dtype), Cast(Index(inner), I32), _NONE)
    search = statement("offset", offset.name, left, (inner,), in_row, "min")
    place_in_row = Read(offset.name, place.subscripts)
    sum = origin + Cast(place_in_row, I64)
    result: Expr = sum if target.dtype == I64 else Cast(sum, target.dtype)
    if not isinstance(extent, Const):  # there may be nothing to choose from
        result = Select(eq(place_in_row, _NONE), identity_of("min", target.dtype), result)
    last = Statement(place.name, place.target, place.subscripts, left, result, None, (), place.span)

    points: list[Expr] = [point if i == index else Index(i) for i in place.indices]
    bounds = [ge(Index(inner), 0), lt(Index(inner), size)]
    blocks, inside = Interval(int_const(0), n_blocks), Interval(int_const(0), int_const(size))
    kept = {i: own.indices[i] for i in left}
    domain = map_domain(own.domain, part.name, part.indices, points, bounds)
    added = {part.name: StatementRanges({**kept, block: blocks, inner: inside}, domain)}
    for s in (whole, first, begin, search, last):
        intervals = {n: {block: blocks, inner: inside}.get(n) or kept[n] for n in s.indices}
        own_domain = project_domain(domain, part.indices, s.name, s.indices)
        if s in (begin, last):  # also where there is nothing to choose from
            own_domain = box_domain(s.name, left, kept, ranges.parameters)
        added[s.name] = StatementRanges(intervals, own_domain)
    made = {best.name: (part, whole), place.name: (first, begin, search, last)}
    rows = tuple(kept[i] for i in left)
    sizes = {values.name: (*rows, blocks), chosen.name: rows, base.name: rows, offset.name: rows}
    return _replace(program, ranges, made, (values, chosen, base, offset), added, sizes)


def _is_extreme(value: Expr, best: Read, dtype: DType) -> Expr:
    same = eq(value, best)
    return Call("or", (same, ne(value, value))) if dtype.is_float else same


def _replace(
    program: Program,
    ranges: Ranges,
    made: dict[str, tuple[Statement, ...]],
    tensors: tuple[Tensor, ...],
    added: dict[str, StatementRanges],
    intervals: dict[str, tuple[Interval, ...]],
) -> tuple[Program, Ranges]:
    statements = tuple(n for s in program.statements for n in made.get(s.name, (s,)))
    new = replace(program, statements=statements, tensors=(*program.tensors, *tensors))
    return new, replace(ranges, statements={**ranges.statements, **added}, tensors={**ranges.tensors, **intervals})
