"""Vectors of a stencil from neighbouring vectors: ``A[i - 1]``, ``A[i]``, ``A[i + 1]`` without a load of each.

A wide vector that begins anywhere else than a cache line straddles two lines, and takes two loads.  Where rows begin at lines,
and so does the target of a store, whole lines are loaded and what lies between them is shuffled: unrolled copies of the loop
share the lines, so that there is little more than one load for each vector of memory.  Otherwise, of vectors that overlap, the
ones in the middle are put together from the outer ones, and nothing is read that the program does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.codegen.emission.context import Context, State
from polyc.codegen.emission.linear import Linear, constant_of, split_lane
from polyc.codegen.writer.builder import Val
from polyc.ir.expr import Call, Const, Expr, Read, int_const
from polyc.ir.loops import Buffer
from polyc.ir.simplify import simplify
from polyc.machine.costs import LoopCosts
from polyc.machine.memory import LINE

Reads = dict[int, Read]
"""Reads of one row by their offset in elements."""


def has_aligned_rows(buffer: Buffer) -> bool:
    """Whether each row of the buffer begins at a cache line, and there is memory of the workspace around it."""
    if buffer.space != "shared" or len(buffer.strides) < 2:
        return False
    *outer, last = buffer.strides
    return last == int_const(buffer.dtype.itemsize) and all(_is_multiple(s, LINE) for s in outer)


def _is_multiple(expr: Expr, n: int) -> bool:
    """Whether an integer expression is known to be a multiple of `n`."""
    match expr:
        case Const(value):
            return int(value) % n == 0
        case Call("add" | "sub", args):
            return all(_is_multiple(a, n) for a in args)
        case Call("mul", args):
            return any(_is_multiple(a, n) for a in args)
    return False


def share_lines(
    state: State,
    ctx: Context,
    found: list[tuple[Read, Linear]],
    target: tuple[Buffer, Expr] | None,
    n_operations: int,
) -> dict[Read, Val]:
    """Values of some of the reads, which are surely made, `found` with their byte offsets.

    `target`: the buffer and the last subscript of the store whose value the reads are for.  `n_operations`: of that value."""
    values: dict[Read, Val] = {}
    lanes = ctx.lanes
    for row in _rows(state, ctx, found):
        itemsize = state.by_name[next(iter(row.values())).tensor].dtype.itemsize
        is_whole = itemsize * lanes >= state.target.cache_line
        centre = _centre(state, row, target)
        if centre is not None:
            near = {o - centre: read for o, read in row.items() if abs(o - centre) < lanes}
            if not is_whole:
                near = _balance(near, len(found), n_operations, state.target.loops)
            if len(near) > 1 or 0 not in near:
                values |= _from_lines(state, ctx, near)
            continue
        if not is_whole:
            continue
        first, last = min(row), max(row)
        if len(row) < 3 or last - first > lanes:
            continue
        a, b = state.evaluate(ctx, row[first]), state.evaluate(ctx, row[last])
        for offset, read in row.items():
            if first < offset < last:
                places = (offset - first + k for k in range(lanes))
                chosen = [p if p < lanes else p + lanes - (last - first) for p in places]
                values[read] = state.fn.shuffle(a, b, chosen)
    return values


def _balance(near: Reads, n_loads: int, n_operations: int, costs: LoopCosts) -> Reads:
    """The reads of a row, by their distance from half a line, that are worth putting together where a vector is half a line:
    shuffles take the place of additions, but of two such loads one straddles lines."""
    apart = sorted(distance for distance in near if distance)

    def cycles(n: int) -> float:
        straddling = costs.straddling_load * (len(apart) - n)
        shuffles = n + 1 if n else 0
        return max(costs.load * (n_loads - len(apart)) + straddling, (n_operations + shuffles) * costs.shuffled)

    best = min(range(len(apart) + 1), key=cycles)
    return {distance: near[distance] for distance in (0, *apart[:best]) if distance in near}


def _rows(state: State, ctx: Context, found: list[tuple[Read, Linear]]) -> Iterator[Reads]:
    """Reads that lie near each other along memory, each vector overlapping with the next."""
    groups: dict[tuple[str, frozenset[tuple[tuple[Expr, ...], int]]], Reads] = {}
    for read, place in found:
        itemsize = state.by_name[read.tensor].dtype.itemsize
        split = split_lane(place, ctx.lane)
        if split is None or constant_of(split[1]) != itemsize:
            continue
        uniform: Linear = dict(split[0])
        start: int = uniform.pop((), 0)
        if start % itemsize == 0:
            groups.setdefault((read.tensor, frozenset(uniform.items())), {})[start // itemsize] = read
    for group in groups.values():
        row: Reads = {}
        for offset in sorted(group):
            if row and offset - max(row) >= ctx.lanes:
                yield row
                row = {}
            row[offset] = group[offset]
        yield row


def _centre(state: State, row: Reads, target: tuple[Buffer, Expr] | None) -> int | None:
    """The offset in a row at which vectors begin at lines."""
    if target is None or not has_aligned_rows(target[0]):
        return None
    for offset, read in row.items():
        if has_aligned_rows(state.by_name[read.tensor]):
            apart = simplify(read.subscripts[-1] - target[1])
            if isinstance(apart, Const):
                return offset - int(apart.value)
    return None


def _from_lines(state: State, ctx: Context, near: Reads) -> dict[Read, Val]:
    """Reads by their distance from a line: each from the line that it begins in and the one behind."""
    lanes = ctx.lanes

    def line(number: int) -> Val:
        distance, read = next(iter(near.items()))
        *outer, last = read.subscripts
        shifted = last + (number * lanes - distance)
        return state.evaluate(ctx, Read(read.tensor, (*outer, shifted)))

    values: dict[Read, Val] = {}
    for distance, read in near.items():
        first = distance // lanes
        inside = distance - first * lanes
        if not inside:
            values[read] = line(first)
        else:
            values[read] = state.fn.shuffle(line(first), line(first + 1), range(inside, inside + lanes))
    return values
