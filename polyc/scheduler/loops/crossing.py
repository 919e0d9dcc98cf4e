"""Blocks for nests whose accesses want different indices innermost, as transposes do.

Before: ``i { j { k { vector l { Y[l', k', j', i'] = X[…] } } } }``, with one access along memory and the other one across it.
After: ``tiles { block { … } }``, where a block covers whole runs of memory in both: neighbouring elements of the fastest
dimensions of each access, so many that processors fetch and write back in order, and so few that a block stays in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.code_limits import FULL_ROW, MINIMUM_ITERATIONS
from polyc.ir.expr import Const
from polyc.machine import Level, Machine, Share
from polyc.poly.rows import Member
from polyc.poly.tree import Plan, PlanLoop
from polyc.scheduler.accesses import AccessMotion, access_motions, index_trips
from polyc.scheduler.loops.member_view import MemberView


def tile_for_locality(plan: Plan, names: list[str], members: list[Member], chosen: Member, view: MemberView) -> Plan:
    """Tile two of a nest's `members` where some access runs along another index than that of `chosen`, the vector's."""
    if not view.options.tile or len(members) < 2:
        return plan
    crossing: Member | None = None
    for name in names:
        if name.startswith("init_"):
            return plan
        s, index = view.statement(name), view.index(chosen, name)
        if index is None or index in s.reduction_indices:
            return plan
        for m in access_motions(s):
            if m.motion(index) != "strided":
                continue
            for member in members:
                other = view.index(member, name)
                if member is not chosen and other is not None and m.motion(other) == "unit" and member.kind == "P":
                    crossing = member
    if crossing is None or chosen.kind != "P":
        return plan
    found = _choose_statement_block(names[0], members, chosen, crossing, view) if len(names) == 1 else None
    sizes, outside = found or ({id(chosen.rows): 8 * FULL_ROW, id(crossing.rows): 2 * FULL_ROW}, [])
    return tile_blocks(plan, sizes, outside, chosen, crossing)


def _choose_statement_block(
    name: str, members: list[Member], chosen: Member, crossing: Member, view: MemberView
) -> tuple[dict[int, int], list[int]] | None:
    """Iterations of members in a block of a statement that moves elements across memory, and the order of the loops over
    blocks; members by the identity of their rows."""
    s = view.statement(name)
    along, across = view.index(chosen, name), view.index(crossing, name)
    if along is None or across is None:
        return None
    write, *read = access_motions(s)
    if write.motion(along) != "unit":
        along, across = across, along
    crossed = [m for m in read if m.motion(along) == "strided" and m.motion(across) == "unit"]
    if len(crossed) != 1 or write.motion(along) != "unit" or write.motion(across) != "strided":
        return None
    dtype = view.scop.tensors[s.target].dtype
    target = replace(view.target, l3=1 << 62) if dtype.unit else view.target  # not streamed
    is_alone = all(m is crossed[0] or m.motion(along) != "unit" for m in read)
    is_known = all(isinstance(e, Const) for e in s.extents.values())
    found = choose_block(crossed[0], write, index_trips(s), dtype.itemsize, target, is_alone, is_known)
    indices = {view.index(m, name): id(m.rows) for m in members if m.kind == "P"}
    if found is None or any(i not in indices for i, size in found[0].items() if size > 1):
        return None
    block, outside = found
    return {indices[i]: size for i, size in block.items() if size > 1}, [indices[i] for i in outside if i in indices]


def choose_block(
    read: AccessMotion,
    write: AccessMotion,
    trips: Mapping[str, int],
    itemsize: int,
    target: Machine,
    is_alone: bool = True,
    is_known: bool = True,
) -> tuple[dict[str, int], list[str]] | None:
    """Iterations of each index in a block for accesses that lie across each other, and the order of the loops over blocks.

    `is_alone`: nothing else is read along the rows that are written, of which a block would see little pieces.
    `is_known`: `trips` are those of all calls, and no estimates.
    Indices that are in neither run outside.  None where subscripts are more than one index each."""
    trips = {i: max(1, trip) for i, trip in trips.items()}
    orders = []
    for access in (read, write):
        found = [only_index(c) for c in reversed(access.coefficients)]
        if None in found:
            return None
        orders.append([i for i in found if i])
    most, most_near = (
        max(1, target.room(level, share) // itemsize) for level, share in ((Level.L2, Share.QUARTER), (Level.L1, Share.HALF))
    )
    size = math.prod(trips[i] for i in orders[1]) * itemsize
    row = trips[orders[1][0]] * itemsize
    limits, followed = target.transposes, target.prefetchers.run
    short, lengths = limits.short, (followed, followed)
    is_staged = is_joined = is_long = False
    joined = _join_rows(orders[1], orders[0][0], trips, itemsize, target) if is_alone else 0
    is_streamed = target.is_streamed(size, size)
    is_whole_lines = is_streamed and row % target.cache_line == 0
    if is_whole_lines and is_alone and short < row <= limits.whole and _follow_each_other(orders, trips, itemsize, target):
        lengths = (FULL_ROW * itemsize, row)
    elif is_whole_lines and (row > followed or (row > short and not is_alone)):
        if _is_read_whole(orders, trips, target):
            n_lines = limits.meeting_lines if is_known and _do_written_rows_meet(orders, trips, itemsize, target) else 1
            return {orders[0][0]: trips[orders[0][0]], orders[1][0]: n_lines * target.cache_line // itemsize}, orders[0][::-1]
        lengths = (limits.whole, short)
        is_long = trips[orders[0][0]] * itemsize >= limits.long_read
    elif is_whole_lines and row <= short and not joined:
        lengths = (short, short)
    elif is_streamed and row <= followed and joined and not (is_whole_lines and row >= 2 * short):
        lengths, is_joined = (limits.streamed_read, joined), True
    elif is_streamed and row <= followed:
        lengths, is_staged = (short, target.memory.page), True
    elif is_streamed and is_alone:
        lengths = (limits.streamed_read, limits.streamed_write)
    wanted = [length // itemsize for length in lengths]
    block = {order[0]: min(FULL_ROW, trips[order[0]]) for order in orders}
    open_sides = [0, 1]
    while open_sides:
        runs = [_run(order, block, trips) for order in orders]
        side = open_sides[-1] if is_joined else min(open_sides, key=lambda n: runs[n] / wanted[n])
        is_next_run = is_joined and side == 0 and block[orders[0][0]] == trips[orders[0][0]]
        limit = most_near if is_next_run else most
        grown = _grow(orders[side], block, trips, wanted[side], limit, is_staged) if runs[side] < wanted[side] else None
        if grown is None:
            open_sides.remove(side)
        else:
            block = grown
    outside = orders[0 if is_staged or is_long else 1][::-1]
    if is_joined:  # blocks that go on with the same rows one after the other, then as they are read
        run = orders[1][: orders[1].index(orders[0][0])]
        outside = [i for i in orders[0][::-1] if i not in run] + run[::-1]
    _leave_tasks(block, outside, trips)
    return block, outside


def _follow_each_other(orders: Sequence[Sequence[str]], trips: Mapping[str, int], itemsize: int, target: Machine) -> bool:
    """Whether rows that are written follow each other along the index that is read along, and what is read for one of them
    does not meet in few sets of a cache."""
    (across, *read), (along, *write) = orders
    if write[:1] != [across] or along not in read:
        return False
    distance = math.prod(trips[i] for i in orders[0][: orders[0].index(along)]) * itemsize
    return not target.conflicts(trips[along], distance, soon_used=True)


def _is_read_whole(orders: Sequence[Sequence[str]], trips: Mapping[str, int], target: Machine) -> bool:
    """Whether rows of whole vectors that are read follow each other along the index that is written along, and a few of them,
    as fill lines of the result, are a small part of the second-level cache."""
    (across, *read), (along, *_) = orders
    if read[:1] != [along] or trips[across] % FULL_ROW or trips[across] == FULL_ROW:
        return False
    return target.fits(trips[across] * target.cache_line, Level.L2, Share.CORNER)


def _do_written_rows_meet(orders: Sequence[Sequence[str]], trips: Mapping[str, int], itemsize: int, target: Machine) -> bool:
    """Whether the rows of the result that a row of the operand goes to agree in their place within a page, or nearly so."""
    across, write = orders[0][0], orders[1]
    distance = math.prod(trips[i] for i in write[: write.index(across)]) * itemsize
    is_short = target.vector_bits // 8 < target.cache_line
    return is_short and target.conflicts(trips[across], distance, soon_used=True)


def _join_rows(order: list[str], across: str, trips: Mapping[str, int], itemsize: int, target: Machine) -> int:
    """Bytes of a run of whole lines, `TransposeBlocks.short` or more, that is made of short rows which follow each other in
    front of the index `across`; 0 where there is none, or the next blocks would not go on with it."""
    run, line, short = itemsize, target.cache_line, target.transposes.short
    for index in order:
        if index == across:
            break
        if run * trips[index] >= 2 * short:
            count = line // math.gcd(run, line)
            count *= -(-short // (run * count))
            return run * count if 2 * count <= trips[index] else 0
        run *= trips[index]
    return 0


def _leave_tasks(block: dict[str, int], outside: list[str], trips: Mapping[str, int]) -> None:
    """Make blocks shorter along the outermost index that is cut, where no loop over blocks balances over threads."""
    if any(-(-trips[i] // block.get(i, 1)) >= MINIMUM_ITERATIONS for i in outside):
        return
    index = max(outside, key=lambda i: trips[i])
    while block.get(index, 1) > 2 * FULL_ROW and -(-trips[index] // block[index]) < MINIMUM_ITERATIONS:
        block[index] = max(2 * FULL_ROW, block[index] // 2 // FULL_ROW * FULL_ROW)


def only_index(coefficients: Mapping[str, int] | None) -> str | None:
    """The index that a subscript is; an empty text where it is a constant; None for anything else."""
    if coefficients is None or len(coefficients) > 1 or any(c != 1 for c in coefficients.values()):
        return None
    return next(iter(coefficients), "")


def _run(order: list[str], block: Mapping[str, int], trips: Mapping[str, int]) -> int:
    """Neighbouring elements of one access in the block."""
    run = 1
    for index in order:
        run *= block.get(index, 1)
        if block.get(index, 1) < trips[index]:
            break
    return run


def _grow(
    order: list[str], block: dict[str, int], trips: Mapping[str, int], wanted: int, most: int, is_whole: bool
) -> dict[str, int] | None:
    """The block with a longer run along `order`; None where it would be too large, or all of the access is one run.

    `is_whole`: rather all of an index than more than half."""
    run, index = 1, None
    for candidate in order:
        if block.get(candidate, 1) < trips[candidate]:
            index = candidate
            break
        run *= trips[candidate]
    if index is None:
        return None
    others = 1
    for i, size in block.items():
        others *= size if i != index else 1
    size = min(trips[index], -(-wanted // run), max(1, most // others))
    if is_whole and trips[index] <= min(2 * size, max(1, most // others)):
        size = trips[index]
    if size < trips[index] and size > FULL_ROW:
        size -= size % FULL_ROW
    return {**block, index: size} if size > block.get(index, 1) else None


def tile_blocks(plan: Plan, sizes: Mapping[int, int], order: Sequence[int], vector: Member, crossing: Member) -> Plan:
    """The loops of `plan` in blocks: loops over tiles outside, points inside, the crossing loop and the vector innermost.

    `sizes`: iterations in a block, `order`: loops outside from the outermost on (empty: as they are), both by the identity of
    a loop's rows; loops that have no size run outside."""
    loops: list[PlanLoop] = []
    inner = plan
    while isinstance(inner, PlanLoop):
        loops.append(inner)
        inner = inner.child
    points: list[PlanLoop] = []
    tiles: list[PlanLoop] = []
    for loop in loops:
        size = sizes.get(id(loop.rows))
        if size is None:
            tiles.append(loop)
        else:
            points.append(replace(loop, part="point", size=size))
            tiles.append(replace(loop, part="tile", size=size, mark=None))
    if order:
        tiles.sort(key=lambda loop: order.index(id(loop.rows)) if id(loop.rows) in order else -1)
    points.sort(key=lambda loop: (loop.rows is vector.rows, loop.rows is crossing.rows))
    for loop in reversed([*tiles, *points]):
        inner = replace(loop, child=inner)
    return inner
