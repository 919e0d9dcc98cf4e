"""Turn the rows of a scheduler into planned loops: tile bands, sink point loops, choose vector loops.

Below the tile loops each statement (or group of statements that share one innermost band) keeps point loops of its own:
point loops of outer bands are sunk below the statement's own loops, so that a reduction runs outside of its register tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from polyc.config import Options
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Select, walk
from polyc.poly.rows import Band, Leaf, Member, Node, Sequence, free_positions, statements_of
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Mark, Plan, PlanLeaf, PlanLoop, make_sequence
from polyc.scheduler.accesses import (
    MATH_WEIGHT,
    access_motions,
    index_trips,
    operation_weight,
    statement_work,
    vector_itemsize,
)
from polyc.scheduler.crossing import choose_block, tile_blocks
from polyc.scheduler.scans import scan_lanes
from polyc.scheduler.tiling import RegisterTile, choose_register_tile, choose_vector_index
from polyc.scheduler.time_tiling import tile_time
from polyc.target import Target

STREAMING_BITS = 256
"""Vector width for nests that memory bounds: arrays of NumPy start 16 bytes off a line, where every wider access
straddles two lines and only half of these do (measured: layer normalisation 1.31 to 0.90 ms)."""

HALF_RATE = ("truediv", "sqrt", "rsqrt")
"""Operations whose time is per instruction: half of a register takes as long as a whole one."""

COLUMNS = 256
"""Neighbouring columns that walk along a sequential loop together, of many: their vectors hide each other's latency.
Narrower ones read less than a prefetcher wants of each row (sums down 1024 columns: 64 wide 1.56 ms, 256 wide 1.01 ms)."""

COLUMN_TILES = 4
"""Tiles of columns for threads to share, before they are that wide."""

MAX_COLUMN_VECTORS = 8
"""Short vectors of one step that are better than longer ones with a mask."""

ALONG_TILE, ACROSS_TILE = 128, 32
"""Sides of the tile for groups whose accesses want different indices innermost: along the vector, and across it."""

MUCH_HEAVIER = 4
"""Times the work of the statement that wants a tile from which another one below the same band has its way."""

MAX_UNROLLED_ROWS = 8
"""Rows of initial values that are unrolled."""


@dataclass(frozen=True, slots=True)
class Point:
    """The point loop of a tiled member, waiting to be sunk to the leaves."""

    member: Member
    size: int


class Planner:
    """Carries what every step reads; the result is a plain `Plan` and remarks."""

    def __init__(self, scop: Scop, target: Target, options: Options, tiles: Mapping[str, RegisterTile]) -> None:
        self.scop, self.target, self.options, self.tiles = scop, target, options, tiles
        self.remarks: list[Remark] = []
        self.columns: dict[int, int] = {}
        """Members (their ids) over few columns that walk along a sequential loop, and how many."""

    # -- names ---------------------------------------------------------------------------------------------------
    def _statement(self, name: str) -> ScopStatement:
        return self.scop.statement(name.removeprefix("init_"))

    def _index(self, member: Member, name: str) -> str | None:
        """The index of statement `name` that `member` runs over, if it is one."""
        position = member.rows[name].unit_index()
        if position is None:
            return None
        s = self._statement(name)
        return s.elements[position] if name.startswith("init_") else s.indices[position]

    def _moved_index(self, member: Member, name: str, others: list[Member]) -> str | None:
        """The index of statement `name` that grows by one with `member` while the other members stand still, if it is one."""
        moving = free_positions(member.rows[name], [m.rows[name] for m in others if m is not member and name in m.rows])
        if len(moving) != 1 or member.rows[name].coefficients[moving[0]] != 1:
            return None
        s = self._statement(name)
        return s.elements[moving[0]] if name.startswith("init_") else s.indices[moving[0]]

    # -- bands ---------------------------------------------------------------------------------------------------
    def plan(self, node: Node, points: tuple[Point, ...] = ()) -> Plan:
        match node:
            case Leaf():
                return self._plan_nest([node.statement], (), points)
            case Sequence():
                if not points and _all_leaves(node):
                    return make_sequence([PlanLeaf(n) for n in statements_of(node)])
                return make_sequence([self.plan(child, points) for child in node.children])
            case Band():
                return self._plan_band(node, points)

    def _plan_band(self, band: Band, points: tuple[Point, ...]) -> Plan:
        if band.members[-1].apart is not None and not points and _all_leaves(band.child):
            return self._plan_apart(band.members, list(statements_of(band.child)))
        is_blocked = isinstance(band.child, Leaf) and any(p.member.kind == "R" for p in points)
        if not is_blocked and _all_leaves(band.child):
            return self._plan_nest(list(statements_of(band.child)), band.members, points)
        tile = self._wanted_tile(band) if self.options.tile else None
        sizes = {} if tile is None else self._member_sizes(band, tile)
        # Tiles of outer bands were cut for heavier statements: inside of them this one cuts its own.
        finer = {n: w for n, p in enumerate(points) if tile is not None and (w := self._finer(p, tile)) is not None}
        outer = [m for n, m in enumerate(band.members) if n not in sizes]
        tiled = [n for n in range(len(band.members)) if n in sizes]
        tiled.sort(key=lambda n: -sizes[n])  # the widest tile outermost: its panel is reused by the tiles inside
        cut = tuple(replace(p, size=finer.get(n, p.size)) for n, p in enumerate(points))
        new_points = cut + tuple(Point(band.members[n], sizes[n]) for n in tiled)
        plan = self.plan(band.child, new_points)
        for n in reversed(finer):
            plan = replace(self._loop(points[n].member, plan, "tile", finer[n]), period=points[n].size)
        block = self._block_size(band, sizes, tiled)
        for n in reversed(tiled):
            loop = self._loop(band.members[n], plan, "tile", sizes[n])
            if n == tiled[0] and block > sizes[n]:
                # The block's tiles innermost: its panel stays in the cache while the other tiles pass.
                continue
            plan = loop
        if tiled and block > sizes[tiled[0]]:
            n = tiled[0]
            plan = self._insert_below(
                plan, len(tiled) - 1, replace(self._loop(band.members[n], plan, "tile", sizes[n]), period=block)
            )
            plan = self._loop(band.members[n], plan, "tile", block)
        for m in reversed(outer):
            plan = self._loop(m, plan)
        return plan

    def _insert_below(self, plan: Plan, depth: int, loop: PlanLoop) -> Plan:
        """Put `loop` under the outermost `depth` loops of `plan`."""
        if depth == 0:
            return replace(loop, child=plan)
        assert isinstance(plan, PlanLoop)
        return replace(plan, child=self._insert_below(plan.child, depth - 1, loop))

    def _block_size(self, band: Band, sizes: dict[int, int], tiled: list[int]) -> int:
        """How many iterations of the outermost tiled member keep the operands they read in half of the L2 cache."""
        if len(tiled) < 2:
            return 0
        member, largest = band.members[tiled[0]], 0
        for name in member.rows:
            if name.startswith("init_") or not self._statement(name).is_reduction:
                continue
            s, index = self._statement(name), self._index(member, name)
            trips = index_trips(s)
            for m in access_motions(s):
                if index is None or m.is_write or m.motion(index) == "invariant":
                    continue
                per_step = self.scop.tensors[m.tensor].dtype.itemsize
                for i in s.reduction_indices:
                    if m.motion(i) != "invariant":
                        per_step *= trips[i]
                largest = max(largest, per_step)
        if not largest:
            return 0
        size = sizes[tiled[0]]
        if largest * size <= self.target.l1 // 2:
            return 0  # one tile's panel stays in the first-level cache: it stays, the other tiles pass
        return max(1, self.target.l2 // 2 // largest // size) * size

    def _wanted_tile(self, band: Band) -> tuple[ScopStatement, RegisterTile] | None:
        """The heaviest reduction below that wants a tile, and the tile; None where a much heavier one wants none."""
        best: tuple[int, ScopStatement, RegisterTile] | None = None
        heaviest = 0
        for group in _innermost_groups(band.child):
            statements = [self._statement(n) for n in group if not n.startswith("init_")]
            reductions = [s for s in statements if s.is_reduction]
            if not reductions:
                columns = self._wanted_columns(band, statements)
                work = sum(statement_work(s) for s in statements)
                if columns is not None and (best is None or work > best[0]):
                    best = work, *columns
                continue
            tile = self._group_tile(statements, reductions)
            work = sum(statement_work(s) for s in statements)
            heaviest = max(heaviest, work)
            if self._member_sizes(band, (reductions[0], tile)) and (best is None or work > best[0]):
                best = work, reductions[0], tile
        return None if best is None or best[0] * MUCH_HEAVIER < heaviest else best[1:]

    def _member_sizes(self, band: Band, tile: tuple[ScopStatement, RegisterTile]) -> dict[int, int]:
        """Tile sizes by member position."""
        s, wanted = tile
        sizes: dict[int, int] = {}
        for n, member in enumerate(band.members):
            index = self._index(member, s.name) if member.kind != "S" and s.name in member.rows else None
            if index is not None and wanted.sizes.get(index, 0) > 1:
                sizes[n] = wanted.sizes[index]
        return sizes

    def _finer(self, p: Point, tile: tuple[ScopStatement, RegisterTile]) -> int | None:
        """The size that a statement wants inside of a larger tile of an outer band; None where it wants no smaller one."""
        s, wanted = tile
        index = self._index(p.member, s.name) if p.member.kind == "P" and s.name in p.member.rows else None
        size = wanted.sizes.get(index or "", 0)
        return size if 1 < size < p.size else None

    def _wanted_columns(self, band: Band, statements: list[ScopStatement]) -> tuple[ScopStatement, RegisterTile] | None:
        """Before: ``P:j { S:i … }`` where j runs along rows of memory.  After: ``P:j by tile { S:i { vector j … } }``."""
        if not self.options.vectorize or len(band.members) != 1 or not _walks_in_order(band.child):
            return None
        member = band.members[0]
        indices = [(s, self._index(member, s.name)) for s in statements]
        if member.kind != "P" or any(i is None for _, i in indices):
            return None
        motions = [m.motion(i) for s, i in indices if i is not None for m in access_motions(s)]
        if "unit" not in motions or "strided" in motions:
            return None
        trips = min(index_trips(s)[i] for s, i in indices if i is not None)
        lanes = self._lanes(statements)
        size = COLUMNS
        while size > 2 * lanes and trips < COLUMN_TILES * size:
            size //= 2
        s, index = indices[-1]
        if trips <= size:
            # A few columns are one tile: each by itself would pass over as many cache lines as all of them.
            self.columns[id(member)] = size = trips
        return (s, RegisterTile(index, lanes, {index: size})) if index is not None and lanes > 1 and size > 1 else None

    def _group_tile(self, statements: list[ScopStatement], reductions: list[ScopStatement]) -> RegisterTile:
        lanes = self._lanes(statements)
        tile = self._tile(reductions[0], lanes)
        if len(statements) == 1:
            return tile
        # Statements that share a pass: only the vector index is worth a tile, and only if it is a left index of all.
        if tile.vector is None or any(tile.vector not in s.left for s in statements):
            return RegisterTile(tile.vector, lanes, {})
        return RegisterTile(tile.vector, lanes, {tile.vector: tile.sizes[tile.vector]})

    def _tile(self, s: ScopStatement, lanes: int) -> RegisterTile:
        """The tile that was chosen together with copies, or the best one for the accesses as they are."""
        known = self.tiles.get(s.name)
        return known or choose_register_tile(s, self.target, lanes, self.options.reassociate)

    def _lanes(self, statements: list[ScopStatement]) -> int:
        if not self.options.vectorize:
            return 1
        known = self.tiles.get(statements[0].name) if len(statements) == 1 else None
        if known is not None:
            return known.lanes
        return min(self.target.lanes(vector_itemsize(self.scop, statements)), 64)

    def _loop(self, member: Member, child: Plan, part: str = "whole", size: int = 0, mark: Mark | None = None) -> PlanLoop:
        return PlanLoop(member.rows, member.kind_inside, child, part, size, mark)  # type: ignore[arg-type]

    # -- innermost loops -----------------------------------------------------------------------------------------
    def _plan_nest(
        self, names: list[str], own: tuple[Member, ...], points: tuple[Point, ...], around: tuple[Member, ...] = ()
    ) -> Plan:
        """Loops of one group of statements: its own members, the sunk point loops, one of them a vector.

        `around`: members that the own rows are skewed against, whose loops are outside."""
        body = make_sequence([PlanLeaf(n) for n in names])
        candidates = [*((m, 0) for m in own), *((p.member, p.size) for p in points)]
        candidates = [c for c in candidates if all(n in c[0].rows for n in names)]
        if not candidates:
            return body
        real = [self._statement(n) for n in names if not n.startswith("init_")]
        lanes = self._lanes(real or [self._statement(n) for n in names])
        vector = self._choose_vector(names, [c[0] for c in candidates], lanes, around) if lanes > 1 else None
        if vector is not None and len(names) == len(real) == 1 and not points:
            scan = self._find_scan_along_memory(real[0], [c[0] for c in candidates], vector, lanes, around)
            if scan is not None:
                candidates.append(candidates.pop(scan))
                vector = None
        reductions = [s for s in real if s.is_reduction]
        is_tile = len(real) == 1 and bool(reductions) and bool(points)
        if is_tile and vector is not None and len(real) == len(names):
            streamed = self._plan_stream(real[0], candidates, candidates[vector][0], lanes, body)
            if streamed is not None:
                return streamed
        held = self._held_indices(real, names)
        order = self._order(names, candidates, vector, held)
        plan = body
        blocks = {id(p.member) for p in points if p.member.kind == "R"}
        for member, size in reversed(order):
            mark = None
            is_vector = vector is not None and member is candidates[vector][0]
            if is_vector:
                mark = Mark("vector", lanes, self._interleave(real, member, points))
                if size and self.columns.get(id(member)) == size:
                    mark = _mark_columns(size, lanes)
                if not points and self._is_streaming(names, member):
                    mark = Mark("vector", lanes // 2, 2 * mark.interleave)
            elif vector is None and not size and member is order[-1][0] and len(names) == len(real) == 1:
                width = scan_lanes(real[0], member, [*(m for m, _ in order), *around], self.scop, lanes, self.options)
                mark = Mark("scan", width) if width else None
            elif (
                size
                and id(member) not in blocks
                and ((is_tile and self._index(member, names[0]) in held) or (size <= MAX_UNROLLED_ROWS and not real))
            ):
                mark = Mark("unroll")
            plan = self._loop(member, plan, "point" if size else "whole", size, mark)
        if points or around:
            return plan
        if self.options.tile and all(m.kind == "S" for m, _ in order):
            return tile_time(plan, [m for m, _ in order], names, self.scop, self.target, self.options.parallel)
        return self._tile_for_locality(plan, names, order, vector, candidates)

    def _find_scan_along_memory(
        self, s: ScopStatement, members: list[Member], vector: int, lanes: int, around: tuple[Member, ...]
    ) -> int | None:
        """The member that is a scan along rows of memory, where lanes of the vector member would lie in one row each."""
        index = self._moved_index(members[vector], s.name, [*members, *around])
        if index is None or access_motions(s)[0].motion(index) != "strided":
            return None
        scans = (n for n, m in enumerate(members) if m.kind_inside == "S")
        return next((n for n in scans if scan_lanes(s, members[n], [*members, *around], self.scop, lanes, self.options)), None)

    def _plan_apart(self, members: tuple[Member, ...], names: list[str]) -> Plan:
        """``t { t+i { vector j { A } ; vector j { B } } }``: loops that only dependences between statements made sequential."""
        *outer, last = members
        assert last.apart is not None
        parts = []
        for name in names:
            own = replace(last, rows={name: last.rows[name]}, inner=last.apart[name], apart=None)
            parts.append(self._plan_nest([name], (own,), (), tuple(outer)))
        plan = make_sequence(parts)
        for m in reversed(outer):
            plan = self._loop(m, plan)
        if self.options.tile and all(m.kind == "S" for m in members):
            plan = tile_time(plan, members, names, self.scop, self.target, self.options.parallel)
        return plan

    def _plan_stream(
        self, s: ScopStatement, candidates: list[tuple[Member, int]], chosen: Member, lanes: int, body: Plan
    ) -> Plan | None:
        """``r by 8 { vector j { unroll 8 rows { S } } }`` for a reduction that streams an operand without reuse."""
        tile = self._tile(s, lanes)
        if not tile.streamed or self._index(chosen, s.name) != tile.vector:
            return None
        ((index, size),) = tile.streamed.items()
        member = next((m for m, _ in candidates if self._index(m, s.name) == index), None)
        if member is None:
            return None
        width = next(width for m, width in candidates if m is chosen)
        mark = Mark("vector", lanes // 2, 2) if self._is_streaming([s.name], chosen) else Mark("vector", lanes, 1)
        plan = self._loop(member, body, "point", size, Mark("unroll"))
        plan = self._loop(chosen, plan, "point" if width else "whole", width, mark)
        plan = self._loop(member, plan, "tile", size)
        for m, width in reversed(candidates):
            if m is not member and m is not chosen:
                plan = self._loop(m, plan, "point" if width else "whole", width)
        return plan

    def _choose_vector(
        self, names: list[str], members: list[Member], lanes: int, around: tuple[Member, ...] = ()
    ) -> int | None:
        maps: list[dict[str, str]] = []
        for member in members:
            entry: dict[str, str] = {}
            for n in names if member.kind_inside != "S" else ():
                index = self._moved_index(member, n, [*members, *around])
                if index is not None:
                    entry[self._statement(n).name] = index
            maps.append(entry)
        statements = list(dict.fromkeys(self._statement(n) for n in names))
        known = self.tiles.get(names[0]) if len(names) == 1 else None
        if known is not None and known.vector is not None:
            for position, entry in enumerate(maps):
                if entry.get(names[0]) == known.vector:
                    return position
        only_init = all(n.startswith("init_") for n in names)
        if only_init:  # the write alone decides
            for position, entry in enumerate(maps):
                motions = [access_motions(s)[0].motion(entry[s.name]) for s in statements if s.name in entry]
                if motions and all(m == "unit" for m in motions):
                    return position
            return None
        return choose_vector_index(statements, maps, lanes, self.options.reassociate)

    def _held_indices(self, real: list[ScopStatement], names: list[str]) -> set[str | None]:
        """Indices of the register tile of a reduction that stands alone: their points are unrolled."""
        if len(real) != 1 or len(names) != 1 or not real[0].is_reduction:
            return set()
        return {i for i, size in self._tile(real[0], self._lanes(real)).sizes.items() if size > 1}

    def _order(
        self, names: list[str], candidates: list[tuple[Member, int]], vector: int | None, held: set[str | None]
    ) -> list[tuple[Member, int]]:
        """Own loops outside, then unrolled points; the vector innermost unless it is a reduction over unrolled points.

        Points of a tile that is not the statement's own are outermost."""
        is_reduction = len(names) == 1 and not names[0].startswith("init_") and self._statement(names[0]).is_reduction
        foreign = [
            c
            for n, c in enumerate(candidates)
            if n != vector and c[1] and c[0].kind != "R" and is_reduction and self._index(c[0], names[0]) not in held
        ]
        whole = [c for n, c in enumerate(candidates) if n != vector and (not c[1] or c[0].kind == "R")]
        point = [c for n, c in enumerate(candidates) if n != vector and c[1] and c[0].kind != "R" and c not in foreign]
        known = self.tiles.get(names[0]) if len(names) == 1 else None
        if known is not None and known.order:
            place = {i: n for n, i in enumerate(known.order)}
            whole.sort(key=lambda c: place.get(self._index(c[0], names[0]) or "", -1))
        whole = foreign + whole
        if vector is None:
            return whole + point
        chosen = candidates[vector]
        reduces = any(
            self._index(chosen[0], n) in self._statement(n).reduction_indices for n in names if not n.startswith("init_")
        )
        return [*whole, chosen, *point] if reduces else [*whole, *point, chosen]

    def _is_streaming(self, names: list[str], member: Member) -> bool:
        """Whether memory bounds the nest, so that half of the widest registers lose less to rows off a cache line."""
        if self.target.vector_bits <= STREAMING_BITS:
            return False
        statements = [self._statement(n) for n in names]
        if sum(operation_weight(s.value) for s in statements) >= MATH_WEIGHT:
            return False
        if any(isinstance(e, Call) and e.op in HALF_RATE for s in statements for e in walk(s.value)):
            return False
        if any(s.op in ("max", "min") for s in statements):
            # With its test for NaN an extremum takes more instructions than loads: from caches they are what bounds it,
            # and everywhere what bounds the search for a place.
            points = max(prod(index_trips(s).values()) for s in statements)
            is_search = any(isinstance(e, Select) for s in statements for e in walk(s.value))
            if is_search or points * vector_itemsize(self.scop, statements) <= self.target.l2:
                return False
        indices = [(s, self._index(member, n)) for s, n in zip(statements, names, strict=True)]
        return all(i is not None and m.motion(i) != "strided" for s, i in indices for m in access_motions(s))

    def _interleave(self, statements: list[ScopStatement], member: Member, points: tuple[Point, ...]) -> int:
        """Vectors in flight: several accumulators hide the latency of a reduction along the vector."""
        reducing = [s for s in statements if self._index(member, s.name) in s.reduction_indices]
        if not reducing:
            return 2 if sum(operation_weight(s.value) for s in statements) <= 12 else 1
        unrolled = 1
        for p in points:
            unrolled *= p.size
        weight = sum(operation_weight(s.value) for s in statements)
        if unrolled >= 8 or weight > 60:
            return 1
        if unrolled >= 4 or weight > 12:
            return 2
        return 8 if weight <= 4 and self.target.vector_bits == STREAMING_BITS else 4

    def _tile_for_locality(
        self,
        plan: Plan,
        names: list[str],
        order: list[tuple[Member, int]],
        vector: int | None,
        candidates: list[tuple[Member, int]],
    ) -> Plan:
        """Tile two members where some access runs along another index than the vector's."""
        if vector is None or not self.options.tile or len(order) < 2:
            return plan
        chosen = candidates[vector][0]
        crossing: Member | None = None
        for name in names:
            if name.startswith("init_"):
                return plan
            s, index = self._statement(name), self._index(chosen, name)
            if index is None or index in s.reduction_indices:
                return plan
            for m in access_motions(s):
                if m.motion(index) != "strided":
                    continue
                for member, _ in order:
                    other = self._index(member, name)
                    if member is not chosen and other is not None and m.motion(other) == "unit" and member.kind == "P":
                        crossing = member
        if crossing is None or chosen.kind != "P":
            return plan
        found = self._choose_block(names[0], [m for m, _ in order], chosen, crossing) if len(names) == 1 else None
        sizes, outside = found or ({id(chosen.rows): ALONG_TILE, id(crossing.rows): ACROSS_TILE}, [])
        return tile_blocks(plan, sizes, outside, chosen, crossing)

    def _choose_block(
        self, name: str, members: list[Member], chosen: Member, crossing: Member
    ) -> tuple[dict[int, int], list[int]] | None:
        """Iterations of members in a block of a statement that moves elements across memory, and the order of the loops over
        blocks; members by the identity of their rows."""
        s = self._statement(name)
        along, across = self._index(chosen, name), self._index(crossing, name)
        if along is None or across is None:
            return None
        write, *read = access_motions(s)
        if write.motion(along) != "unit":
            along, across = across, along
        crossed = [m for m in read if m.motion(along) == "strided" and m.motion(across) == "unit"]
        if len(crossed) != 1 or write.motion(along) != "unit" or write.motion(across) != "strided":
            return None
        itemsize = self.scop.tensors[s.target].dtype.itemsize
        found = choose_block(crossed[0], write, index_trips(s), itemsize, self.target)
        indices = {self._index(m, name): id(m.rows) for m in members if m.kind == "P"}
        if found is None or any(i not in indices for i, size in found[0].items() if size > 1):
            return None
        block, outside = found
        return {indices[i]: size for i, size in block.items() if size > 1}, [indices[i] for i in outside if i in indices]


def _mark_columns(count: int, lanes: int) -> Mark:
    """Whole vectors over a few columns: what one step stores the next one loads, which is slow through masks."""
    whole = min(lanes, count & -count)
    if count > MAX_COLUMN_VECTORS * whole:
        return Mark("vector", lanes)
    return Mark("vector", whole) if whole > 1 else Mark("unroll")


def _walks_in_order(node: Node) -> bool:
    """Whether there is a sequential loop below, in which a vector loop would run innermost."""
    match node:
        case Leaf():
            return False
        case Sequence():
            return any(_walks_in_order(c) for c in node.children)
        case Band():
            return all(m.kind == "S" for m in node.members) and _all_leaves(node.child)


def _all_leaves(node: Node) -> bool:
    return isinstance(node, Leaf) or (isinstance(node, Sequence) and all(isinstance(c, Leaf) for c in node.children))


def _innermost_groups(node: Node) -> list[list[str]]:
    """Groups of statements that will share a nest: a leaf, or the leaves of one innermost band."""
    match node:
        case Leaf():
            return [[node.statement]]
        case Band() if _all_leaves(node.child):
            return [list(statements_of(node.child))]
        case Band():
            return _innermost_groups(node.child)
        case Sequence():
            return [g for child in node.children for g in _innermost_groups(child)]


def merge_bands(node: Node) -> Node:
    """Before: a band directly inside a band.  After: one band (all rows have distance zero, so it is permutable)."""
    match node:
        case Leaf():
            return node
        case Sequence():
            return Sequence(tuple(merge_bands(c) for c in node.children))
        case Band():
            child = merge_bands(node.child)
            if isinstance(child, Band) and all(m.kind != "S" for m in node.members + child.members):
                return Band(node.members + child.members, child.child)
            return Band(node.members, child)
