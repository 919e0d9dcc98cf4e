"""Tile permutable bands of recurrences: steps of time together with skewed blocks of space, so that a block stays in the cache.

Before: ``t { t+i { vector t+j { S } } }``, which streams whole planes once per step.  After: tiles of T steps by blocks of
space (Wolf and Lam, "A loop transformation theory", 1991; the skewed band is what `recurrence` finds, as in Bondhugula's
Pluto).  Every distance of the band is non-negative in every member, so tiles may run in the order of their numbers, and
columns of tiles along a dimension of space at the same time, if none of them is ahead of those before it: a pipeline.  Where
the cores together hold a plane in their caches, or columns wait for most of the one before, threads share each step instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, prod

from polyc.code_limits import ROW_SIZES, powers
from polyc.ir.expr import Index, reads
from polyc.machine import Level, Machine, Share
from polyc.poly.rows import Member, free_positions
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Mark, Plan, PlanLoop, PlanSequence, make_sequence
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import index_trips, statement_work
from polyc.scheduler.traffic import room_bytes

STEPS, BLOCKS, STREAM_BLOCKS = powers(4, 64, (1, 3)), powers(6, 128, (1, 3)), (2, 4)
"""Of tiles: steps of time, elements of a dimension of space across the vector, and of one along which a tile streams."""

MINIMUM_STEPS = min(STEPS)


@dataclass(frozen=True, slots=True)
class _Space:
    """One dimension of space: elements, how far the band skews it per step, and the sizes that may be tried."""

    trips: int
    skew: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Sizes by loop (0: not tiled), and the loops over tiles, outermost first, by position."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_streaming(self) -> bool:
        """Whether the loops inside all others are those along the first dimension of space."""
        return self.order[-1] < self.order[-2]

    @property
    def columns(self) -> int:
        """How many of the loops over tiles say which column it is: the next one is the longest, so that threads follow each
        other closely."""
        return len(self.order) - 1 if self.is_streaming else 1


def tile_time(plan: Plan, members: Sequence[Member], names: list[str], scop: Scop, target: Machine, parallel: bool) -> Plan:
    """Tiles for the chain of whole loops `plan` over `members`, outermost first, all of one band; the plan where none pay.

    The last of the chain may be several loops, one after the other, where a member has its statements apart."""
    loops, last = _chain(plan, len(members))
    loops, members = _order_by_memory(loops, members, names, scop)
    found = _choose_sizes([*loops, *last], members, names, scop, target, parallel) if last else None
    if found is None:
        return plan
    sized = list(zip(loops, members, found.sizes, strict=False))
    result = make_sequence([_cut(x, members[-1], found.sizes[-1]) for x in last])
    if found.is_streaming and all(m.kind_inside != "S" for m in members[1:-1]):
        sized.append(sized.pop(1))  # the few planes next to each other, row by row: each row is read for all of them
    for loop, member, size in reversed(sized):
        result = replace(_cut(loop, member, size), child=result)
    tiles = [PlanLoop(members[n].rows, "S", result, "tile", found.sizes[n]) for n in found.order]
    for tile in reversed(tiles):
        result = replace(tile, child=result)
    assert isinstance(result, PlanLoop)
    return replace(result, mark=Mark("pipeline", columns=found.columns)) if parallel else result


def _chain(plan: Plan, length: int) -> tuple[list[PlanLoop], list[PlanLoop]]:
    """`length` - 1 loops, outermost first, and the loops that stand where the next one would: none if that is no chain."""
    loops: list[PlanLoop] = []
    while isinstance(plan, PlanLoop) and len(loops) < length - 1:
        loops.append(plan)
        plan = plan.child
    last = plan.children if isinstance(plan, PlanSequence) else (plan,)
    found = [x for x in last if isinstance(x, PlanLoop)]
    return loops, found if len(found) == len(last) and len(loops) == length - 1 else []


def _cut(loop: PlanLoop, member: Member, size: int) -> PlanLoop:
    """The loop inside of tiles of `size` of its member; 0: there are none."""
    if size:
        return replace(loop, part="point", size=size)
    return loop if member.apart else replace(loop, kind=member.kind_inside)


def _choose_sizes(
    loops: list[PlanLoop], members: Sequence[Member], names: list[str], scop: Scop, target: Machine, parallel: bool
) -> _Tiles | None:
    """A size per loop (0: not tiled) with the least time of whose tiles a step fits into most of the second-level cache."""
    if len(members) < 2 or any(x.part != "whole" or x.period for x in loops) or any(m.kind != "S" for m in members):
        return None
    inner = loops[len(members) - 1 :]
    if any(x.mark is None or x.mark.kind not in ("vector", "scan") for x in inner):
        return None
    if any(n.startswith("init_") for n in names):
        return None
    statements = [scop.statement(n) for n in names]
    if any(s.is_reduction or not s.writes_exactly for s in statements):
        return None
    time = _time_index(members[0], statements)
    if time is None:
        return None
    spaces = _find_spaces(members, statements, time)
    if spaces is None:
        return None
    steps = min(index_trips(s)[time[s.name]] for s in statements)
    per_point = _bytes_per_point(statements, scop)
    limit = target.room(Level.L2, Share.ALL)
    if steps < MINIMUM_STEPS or per_point * prod(space.trips for space in spaces) <= limit:
        return None
    work = sum(map(statement_work, statements)) // steps
    is_shared = parallel and members[1].kind_inside == "P" and work >= target.threads.work_per_step
    cores = target.cores if parallel else 1
    best: tuple[float, _Tiles | None] = _whole_steps_cost(work, spaces, per_point, limit, cores, is_shared, target), None
    for n_steps in STEPS:
        if n_steps > 2 * steps:
            break
        for tiles in _candidates(n_steps, spaces):
            cost = _cost(tiles, steps, work, spaces, per_point, limit, cores, target)
            if cost is not None and cost < best[0]:
                best = cost, tiles
    return best[1]


def _candidates(n_steps: int, spaces: list[_Space]) -> Iterator[_Tiles]:
    """Tiles of `n_steps` steps: their blocks in the order of memory, or streaming along the first dimension of space."""
    first, *others = spaces
    for sizes in product(first.sizes, *(space.sizes for space in others)):
        yield _Tiles((n_steps, *sizes), tuple(n for n, size in enumerate((n_steps, *sizes)) if size))
    if not any(first.sizes) or not others:
        return
    for sizes in product(STREAM_BLOCKS, *(space.sizes for space in others)):
        if any(sizes[1:]):
            cut = tuple(n for n, size in enumerate(sizes[1:], 2) if size)
            yield _Tiles((n_steps, *sizes), (0, *cut, 1))


def _cost(
    tiles: _Tiles, steps: int, work: int, spaces: list[_Space], per_point: int, limit: int, cores: int, target: Machine
) -> float | None:
    """Time per element of the tiles, in that of one element in the cache; None where a step holds more than `limit` bytes.
    `work`: operations of a step."""
    costs = target.time_tiles
    n_steps, *sizes = tiles.sizes
    if not any(sizes) or any(max(size, n_steps) % min(size, n_steps) for size in sizes if size):
        return None  # where blocks begin would be a quotient: few loops know it to be linear, and proofs take minutes
    streamed = tiles.order[-1] - 1 if tiles.is_streaming else None
    step, whole, traffic, rows = per_point, per_point, per_point / n_steps, 1
    for n, (size, space) in enumerate(zip(sizes, spaces, strict=True)):
        block, skewed = size or space.trips, n_steps * space.skew
        step *= min(block + 2 * space.skew, space.trips)
        # Where a tile streams, planes of all steps are held until those of the next ones come.
        whole *= min(block + (skewed if streamed in (None, n) else 2 * space.skew), space.trips)
        # Blocks along which a tile streams find in the cache what they share with the one before.
        traffic *= 1 if n == streamed else min(block + skewed, space.trips + space.skew) / block
        rows *= block if n not in (streamed, len(sizes) - 1) else 1
    if step > limit or whole > costs.held * limit:
        return None
    cost = 1 + _far_byte(spaces, per_point, target) * traffic
    cost += costs.row_start / (sizes[-1] or spaces[-1].trips) + (costs.cut_row if sizes[-1] and len(sizes) > 1 else 0)
    cost += costs.visit / rows if streamed is not None and len(sizes) > 2 else 0
    together = cost * cores * _pipeline_time(tiles, steps, spaces, cores)
    if cores > 1:
        tile = work * n_steps * prod((size or space.trips) / space.trips for size, space in zip(sizes, spaces, strict=True))
        together += target.threads.work_per_wait / tile
    return cost + target.threads.idle * (together - cost)


def _whole_steps_cost(
    work: int, spaces: list[_Space], per_point: int, limit: int, cores: int, is_shared: bool, target: Machine
) -> float:
    """The same of steps one after the other, of `work` operations each, that stream the whole plane; `is_shared`: all cores
    share each of them, and meet behind it."""
    plane = per_point * prod(space.trips for space in spaces)
    near = 1 + target.time_tiles.row_start / spaces[-1].trips
    alone = near + per_point * _far_byte(spaces, per_point, target)
    if not is_shared:
        return alone * (1 + target.threads.idle * (cores - 1))
    together = near if plane <= cores * limit else alone
    turns = ceil(spaces[0].trips / cores) / spaces[0].trips + target.threads.least_work / work
    return alone + target.threads.idle * (together * cores * turns - alone)


def _far_byte(spaces: list[_Space], per_point: int, target: Machine) -> float:
    """Time of a byte that the second-level cache does not hold from one step to the next."""
    plane, costs = per_point * prod(space.trips for space in spaces), target.time_tiles
    return costs.far_byte if plane > room_bytes(Level.L3, target) else costs.near_byte


def _pipeline_time(tiles: _Tiles, steps: int, spaces: list[_Space], cores: int) -> float:
    """How long columns of tiles take that follow each other, in the time of all of them on one core."""

    def count(position: int) -> float:
        if not position:
            return steps / tiles.sizes[0]
        space = spaces[position - 1]
        return (space.trips + tiles.sizes[0] * space.skew) / tiles.sizes[position]

    columns = 1.0
    for position in tiles.order[: tiles.columns]:
        columns *= max(1.0, count(position))
    # A column begins when the one before has left its first tile behind; the first of the next steps, which begins as far along
    # as these have skewed it, when the one before has come as far.
    along = tiles.order[tiles.columns]
    behind = tiles.sizes[0] * spaces[along - 1].skew / tiles.sizes[along] * ceil(count(0)) / max(1.0, columns)
    distance = min(1.0, (1 + behind) / max(1.0, count(along)))
    whole = int(columns)
    turns = whole // cores + (1 if whole % cores else columns - whole)
    taken = max(turns + (min(cores, ceil(columns)) - 1) * distance, 1 + (columns - 1) * distance)
    return min(1.0, taken / columns)


def _order_by_memory(
    loops: list[PlanLoop], members: Sequence[Member], names: list[str], scop: Scop
) -> tuple[list[PlanLoop], Sequence[Member]]:
    """The loops between the step of time and the last one in the order in which memory holds what they move along: blocks
    of consecutive rows stream into the cache, scattered ones do not."""
    inner = range(1, len(loops))
    places: dict[int, int] = {}
    for n in inner:
        for s in map(scop.statement, (x for x in names if not x.startswith("init_"))):
            free = free_positions(members[n].rows[s.name], [m.rows[s.name] for m in members if m is not members[n]])
            found = [d for d, e in enumerate(s.subscripts) if len(free) == 1 and e == Index(s.indices[free[0]])]
            if len(found) != 1 or places.setdefault(n, found[0]) != found[0]:
                return loops, members
    order = sorted(inner, key=places.__getitem__)
    if order == list(inner) or any(m.kind_inside == "S" for m in members[1:-1]):
        # What stands still inside of all loops before it may move once these change places.
        return loops, members
    return [loops[0], *(loops[n] for n in order)], [members[0], *(members[n] for n in order), members[-1]]


def _time_index(member: Member, statements: list[ScopStatement]) -> dict[str, str] | None:
    """By statement the only index that the outermost member runs over."""
    found: dict[str, str] = {}
    for s in statements:
        moving = [n for n, c in enumerate(member.rows[s.name].coefficients) if c]
        if len(moving) != 1:
            return None
        found[s.name] = s.indices[moving[0]]
    return found


def _find_spaces(members: Sequence[Member], statements: list[ScopStatement], time: dict[str, str]) -> list[_Space] | None:
    """The dimensions of space that the other members run over, each skewed by the steps of time; those that are skewed by
    others as well stay whole."""
    spaces: list[_Space] = []
    for position, member in enumerate(members[1:], 1):
        trips, skew, is_cut = 1, 0, True
        for s in statements:
            row = member.rows[s.name]
            free = free_positions(row, [m.rows[s.name] for m in members[:position]])
            if len(free) != 1 or row.coefficients[free[0]] != 1:
                return None
            moving = {s.indices[n] for n, c in enumerate(row.coefficients) if c}
            is_cut = is_cut and moving <= {time[s.name], s.indices[free[0]]}
            skew = max(skew, abs(row.coefficients[s.indices.index(time[s.name])]))
            trips = max(trips, index_trips(s)[s.indices[free[0]]])
        wanted = ROW_SIZES if position == len(members) - 1 else BLOCKS
        sizes = tuple(size for size in wanted if 2 * size <= trips and is_cut)
        # Columns go along the first dimension of space; of the others short ones stay whole.
        spaces.append(_Space(trips, skew, sizes if position == 1 and len(members) > 2 else (*sizes, 0)))
    return spaces if all(space.sizes for space in spaces) else None


def _bytes_per_point(statements: list[ScopStatement], scop: Scop) -> int:
    """Memory per point of space: two steps of what is written, one of what is only read."""
    written = {s.target for s in statements}
    read = {r.tensor for s in statements for r in reads(s.value)} - written
    return sum(2 * scop.tensors[t].dtype.itemsize for t in written) + sum(scop.tensors[t].dtype.itemsize for t in read)
