"""Innermost nests: the loops of one group of statements, in their order, with marks for vectors and unrolled rows.

The members of the group's own band and the points of tiles around it are candidates alike: point loops of outer bands are
sunk below the statement's own loops, so that a reduction runs outside of its register tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.code_limits import CHAINS, FUNCTION_WORK, MAX_CARRIED, SHORT_SUM, TILE_ROWS
from polyc.ir.expr import Call, Const, Index, Pad, Select, reads, walk
from polyc.poly.rows import Member
from polyc.poly.scop import ScopStatement
from polyc.poly.tree import Mark, Plan, PlanLeaf, make_sequence
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import access_motions, call_weight, index_trips, operation_weight, vector_itemsize
from polyc.scheduler.loops.crossing import tile_for_locality
from polyc.scheduler.loops.member_view import MemberView, make_loop
from polyc.scheduler.loops.read_order import follow_reads
from polyc.scheduler.loops.scans import scan_lanes
from polyc.scheduler.loops.time_tiling import tile_time
from polyc.scheduler.tiling import choose_vector_index, gathered_index

HALF_RATE = ("truediv", "sqrt", "rsqrt")
"""Operations whose time is per instruction: half of a register takes as long as a whole one."""

MAX_COLUMN_VECTORS = 8
"""Short vectors of one step that are better than longer ones with a mask."""

MANY_STATEMENTS = 4
"""Statements of one loop that keep a core busy without a second vector of each."""

MANY_VECTORS = 64
"""Vectors of a row from which on eight accumulators of it are worth what it takes to combine them."""

MOST_CUT_READS = 3
"""Elements that each lane of several vectors that are cut to one reads for its value: more of them, with what else short values
need, do not fit into registers."""


@dataclass(frozen=True, slots=True)
class Point:
    """The point loop of a tiled member, waiting to be sunk to the leaves."""

    member: Member
    size: int


class NestPlanner:
    """Plans nests; `columns` are members (their ids) over few columns that walk along a sequential loop, and how many."""

    def __init__(self, view: MemberView, columns: Mapping[int, int]) -> None:
        self.view, self.columns = view, columns

    def plan_nest(
        self, names: list[str], own: tuple[Member, ...], points: tuple[Point, ...], around: tuple[Member, ...] = ()
    ) -> Plan:
        """Loops of one group of statements: its own members, the sunk point loops, one of them a vector.

        `around`: members that the own rows are skewed against, whose loops are outside."""
        body = make_sequence([PlanLeaf(n) for n in names])
        candidates = [*((m, 0) for m in own), *((p.member, p.size) for p in points)]
        candidates = [c for c in candidates if all(n in c[0].rows for n in names)]
        if not candidates:
            return body
        real = [self.view.statement(n) for n in names if not n.startswith("init_")]
        lanes = self.view.lanes(real or [self.view.statement(n) for n in names])
        vector = self._choose_vector(names, [c[0] for c in candidates], lanes, around) if lanes > 1 else None
        if vector is not None and self._waits_for_elements(names, candidates[vector][0]):
            vector = None
        if vector is not None and len(names) == len(real) == 1 and self._is_gathered(real[0], candidates[vector][0]):
            vector = None
        if vector is not None and len(names) == len(real) == 1 and not points:
            scan = self._find_scan_along_memory(real[0], [c[0] for c in candidates], vector, lanes, around)
            if scan is not None:
                candidates.append(candidates.pop(scan))
                vector = None
        reductions = [s for s in real if s.is_reduction]
        is_tile = len(real) == 1 and bool(reductions) and bool(points)
        if points and vector is not None and len(reductions) == len(names):
            streamed = self._plan_stream(reductions, candidates, candidates[vector][0], lanes, body)
            if streamed is not None:
                return streamed
        held = self._held_indices(real, names)
        if points and len(reductions) == len(names) > 1:
            shared = self.view.shared_rows(reductions, [m for m, _ in candidates])
            held = {self.view.index(m, names[0]) for m, _ in shared}
            is_tile = bool(shared)
        order = self._order(names, candidates, vector, held)
        plan = body
        blocks = {id(p.member) for p in points if any(self.view.sums(p.member, n) for n in names)}
        for member, size in reversed(order):
            mark = None
            is_vector = vector is not None and member is candidates[vector][0]
            if is_vector:
                mark = Mark("vector", lanes, self._interleave(real, member, points))
                few = self._few_columns(names, member, order) if not points else 0
                if size and self.columns.get(id(member)) == size:
                    mark = _mark_columns(size, lanes)
                elif few:
                    mark = _mark_columns(few, lanes)
                elif not points and self._is_streaming(names, member):
                    narrow = self._streaming_lanes([self.view.statement(n) for n in names], lanes)
                    mark = Mark("vector", narrow, lanes // narrow * mark.interleave)
                elif not points and self._waits_for_functions(real):
                    mark = Mark("vector", 2 * lanes, max(1, mark.interleave // 2))
                elif not points and mark.interleave > 1 and (n_cut := self._count_cut_vectors(names, member, lanes)) > 1:
                    mark = Mark("vector", n_cut * lanes, max(1, mark.interleave // n_cut))
            elif vector is None and not size and member is order[-1][0] and len(names) == len(real) == 1:
                width = scan_lanes(real[0], member, [*(m for m, _ in order), *around], self.view.scop, lanes, self.view.options)
                mark = Mark("scan", width) if width else None
                gathered = gathered_index(real[0])
                if gathered is not None and gathered == self.view.index(member, names[0]):
                    mark = Mark("unroll")
                if chains := self._count_chains(real[0], member):
                    mark = Mark("vector", 1, chains)
            elif (
                size
                and id(member) not in blocks
                and ((is_tile and self.view.index(member, names[0]) in held) or (size <= TILE_ROWS and not real))
            ):
                mark = Mark("unroll")
            plan = make_loop(member, plan, "point" if size else "whole", size, mark)
        if points or around:
            return plan
        if self.view.options.tile and all(m.kind == "S" for m, _ in order):
            return tile_time(plan, [m for m, _ in order], names, self.view.scop, self.view.target, self.view.options.parallel)
        if vector is None:
            return plan
        members = [m for m, _ in order]
        tiled = tile_for_locality(plan, names, members, candidates[vector][0], self.view)
        return follow_reads(plan, names[0], members, self.view) if tiled is plan and len(names) == 1 else tiled

    def _find_scan_along_memory(
        self, s: ScopStatement, members: list[Member], vector: int, lanes: int, around: tuple[Member, ...]
    ) -> int | None:
        """The member that is a scan along rows of memory, where lanes of the vector member would lie in one row each."""
        index = self.view.moved_index(members[vector], s.name, [*members, *around])
        if index is None or access_motions(s)[0].motion(index) != "strided":
            return None
        scans = (n for n, m in enumerate(members) if m.kind_inside == "S")
        return next(
            (n for n in scans if scan_lanes(s, members[n], [*members, *around], self.view.scop, lanes, self.view.options)), None
        )

    def plan_apart(self, members: tuple[Member, ...], names: list[str]) -> Plan:
        """``t { t+i { vector j { A } ; vector j { B } } }``: loops that only dependences between statements made sequential."""
        *outer, last = members
        assert last.apart is not None
        parts = []
        for name in names:
            own = replace(last, rows={name: last.rows[name]}, inner=last.apart[name], apart=None)
            parts.append(self.plan_nest([name], (own,), (), tuple(outer)))
        plan = make_sequence(parts)
        for m in reversed(outer):
            plan = make_loop(m, plan)
        if self.view.options.tile and all(m.kind == "S" for m in members):
            plan = tile_time(plan, members, names, self.view.scop, self.view.target, self.view.options.parallel)
        return plan

    def _plan_stream(
        self, sums: list[ScopStatement], candidates: list[tuple[Member, int]], chosen: Member, lanes: int, body: Plan
    ) -> Plan | None:
        """``r by 8 { vector j { unroll 8 rows { S } } }`` for reductions that stream operands without reuse, and with rows i of
        results that share them ``r by 8 { i by 2 { vector j { unroll 2 { unroll 8 { S } } } } }``."""
        member, size = None, 0
        for s in sums:
            tile = self.view.tile(s, lanes)
            if not tile.streamed or self.view.index(chosen, s.name) != tile.vector:
                return None
            ((index, size),) = tile.streamed.items()
            own = next((m for m, _ in candidates if self.view.index(m, s.name) == index), None)
            if own is None or (member is not None and own is not member):
                return None
            member = own
        assert member is not None
        width = next(width for m, width in candidates if m is chosen)
        is_streaming = self._is_streaming([s.name for s in sums], chosen)
        wanted = self.view.tile(sums[0], lanes).sharing if len(sums) == 1 else {}
        sharing = [(m, rows, wanted.get(self.view.index(m, sums[0].name) or "", 0)) for m, rows in candidates if rows]
        sharing = [(m, rows, n) for m, rows, n in sharing if n]
        narrow = self._streaming_lanes(sums, lanes) if is_streaming and not sharing else lanes
        mark = Mark("vector", narrow, lanes // narrow)
        plan = make_loop(member, body, "point", size, Mark("unroll"))
        for m, _, n in sharing:
            plan = make_loop(m, plan, "point", n, Mark("unroll"))
        plan = make_loop(chosen, plan, "point" if width else "whole", width, mark)
        for m, rows, n in sharing:
            plan = replace(make_loop(m, plan, "tile", n), period=rows)
        plan = make_loop(member, plan, "tile", size)
        inside = {id(m) for m in (member, chosen, *(m for m, *_ in sharing))}
        for m, width in reversed(candidates):
            if id(m) not in inside:
                plan = make_loop(m, plan, "point" if width else "whole", width)
        return plan

    def _choose_vector(
        self, names: list[str], members: list[Member], lanes: int, around: tuple[Member, ...] = ()
    ) -> int | None:
        maps: list[dict[str, str]] = []
        for member in members:
            entry: dict[str, str] = {}
            for n in names if member.kind_inside != "S" else ():
                index = self.view.moved_index(member, n, [*members, *around])
                if index is not None:
                    entry[self.view.statement(n).name] = index
            maps.append(entry)
        statements = list(dict.fromkeys(self.view.statement(n) for n in names))
        known = self.view.tiles.get(names[0]) if len(names) == 1 else None
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
        return choose_vector_index(statements, maps, lanes, self.view.options.reassociate, self.view.scop.tensors)

    def _waits_for_elements(self, names: list[str], member: Member) -> bool:
        """Whether a short sum along `member` reads elements of its row that the recurrence it belongs to has just stored one by
        one: vectors of them wait until these stores have left for the cache (Cholesky in band storage, 8 terms: 348 µs, one by
        one 158)."""
        if len(names) != 1 or names[0].startswith("init_"):
            return False
        s, index = self.view.statement(names[0]), self.view.index(member, names[0])
        if index not in s.reduction_indices or index_trips(s)[index] > SHORT_SUM:
            return False
        needing = self.view.scop.program.made_from(s.target)
        return any(
            r.tensor in needing and r.subscripts[:-1] == s.subscripts[:-1] and Index(index) in walk(r.subscripts[-1])
            for r in reads(s.value)
            if r.subscripts
        )

    def _is_gathered(self, s: ScopStatement, member: Member) -> bool:
        """Whether a sum between loaded ends reads at places that data names, and gathers are no faster than single loads."""
        index = self.view.index(member, s.name)
        places = (names for m in access_motions(s) for c, names in zip(m.coefficients, m.named, strict=True) if c is None)
        is_segment = index in s.loaded_ranges and index in s.reduction_indices
        return is_segment and any(index in names for names in places) and not self.view.target.has_fast_gather

    def _count_chains(self, s: ScopStatement, member: Member) -> int:
        """Partial sums of single elements of a segment, so that additions of as many do not wait for each other: 1 where few
        elements are expected, which machines with strips for them sum in vectors; 0 where one loop is to have all, in order."""
        options, index = self.view.options, self.view.index(member, s.name)
        if index not in s.loaded_ranges or index not in s.reduction_indices or not (options.vectorize and options.reassociate):
            return 0
        has_strips = s.loaded_ranges[index].is_partition and self.view.target.copies_gathered
        return CHAINS if index_trips(s)[index] >= CHAINS else int(has_strips)

    def _held_indices(self, real: list[ScopStatement], names: list[str]) -> set[str | None]:
        """Indices of the register tile of a reduction that stands alone: their points are unrolled."""
        if len(real) != 1 or len(names) != 1 or not real[0].is_reduction:
            return set()
        return {i for i, size in self.view.tile(real[0], self.view.lanes(real)).sizes.items() if size > 1}

    def _order(
        self, names: list[str], candidates: list[tuple[Member, int]], vector: int | None, held: set[str | None]
    ) -> list[tuple[Member, int]]:
        """Own loops outside, then unrolled points; the vector innermost unless it is a reduction over unrolled points.

        Points of a tile that is not the statement's own are outermost."""
        is_reduction = (
            not any(n.startswith("init_") for n in names)
            and (len(names) == 1 or bool(held))
            and self.view.statement(names[0]).is_reduction
        )
        blocks = [any(self.view.sums(m, n) for n in names) for m, _ in candidates]
        foreign = [
            c
            for n, c in enumerate(candidates)
            if n != vector and c[1] and not blocks[n] and is_reduction and self.view.index(c[0], names[0]) not in held
        ]
        whole = [c for n, c in enumerate(candidates) if n != vector and (not c[1] or blocks[n])]
        point = [c for n, c in enumerate(candidates) if n != vector and c[1] and not blocks[n] and c not in foreign]
        known = self.view.tiles.get(names[0]) if len(names) == 1 else None
        if known is not None and known.order:
            place = {i: n for n, i in enumerate(known.order)}
            whole.sort(key=lambda c: place.get(self.view.index(c[0], names[0]) or "", -1))
        whole = foreign + whole
        if vector is None:
            return whole + point
        chosen = candidates[vector]
        reduces = any(
            self.view.index(chosen[0], n) in self.view.statement(n).reduction_indices
            for n in names
            if not n.startswith("init_")
        )
        return [*whole, chosen, *point] if reduces else [*whole, *point, chosen]

    def _is_streaming(self, names: list[str], member: Member) -> bool:
        """Whether memory bounds the nest, so that half of the widest registers lose less to rows off a cache line."""
        if self.view.target.vector_bits <= self.view.target.streaming_bits:
            return False
        statements = [self.view.statement(n) for n in names]
        if sum(operation_weight(s.value) for s in statements) >= FUNCTION_WORK:
            return False
        if any(isinstance(e, Call) and e.op in HALF_RATE for s in statements for e in walk(s.value)):
            return False
        if any(s.op in ("max", "min") for s in statements):
            # With its test for NaN an extremum takes more instructions than loads: from caches they are what bounds it,
            # and everywhere what bounds the search for a place.
            points = max(prod(index_trips(s).values()) for s in statements)
            is_search = any(isinstance(e, Select) for s in statements for e in walk(s.value))
            if is_search or points * vector_itemsize(self.view.scop, statements) <= self.view.target.l2:
                return False
        elif any(map(_reads_neighbours, statements)) and self._stays_in_l2(statements):
            return False
        indices = [(s, self.view.index(member, n)) for s, n in zip(statements, names, strict=True)]
        accesses = [(m, i) for s, i in indices for m in access_motions(s)]
        return all(i is not None and m.motion(i) != "strided" and not m.is_permuted(i) for m, i in accesses)

    def _streaming_lanes(self, statements: list[ScopStatement], lanes: int) -> int:
        """Half of the widest registers; windows that step on have no more lanes anyway (`MemberView.lanes`)."""
        return min(lanes, max(lanes // 2, self.view.target.streaming_bits // 8 // vector_itemsize(self.view.scop, statements)))

    def _stays_in_l2(self, statements: list[ScopStatement]) -> bool:
        """Whether everything that statements touch, each tensor once, stays in the second-level cache."""
        sizes: dict[str, int] = {}
        for s in statements:
            for m in access_motions(s):
                trips = index_trips(s)
                count = prod(trips[i] for i in {i for names in m.named for i in names} if i in trips)
                sizes[m.tensor] = max(sizes.get(m.tensor, 0), count * self.view.scop.tensors[m.tensor].dtype.itemsize)
        return sum(sizes.values()) <= self.view.target.l2

    def _few_columns(self, names: list[str], member: Member, order: list[tuple[Member, int]]) -> int:
        """The iterations of a vector loop that is all inside of a loop in order, where they are known; else 0."""
        s, index = self.view.statement(names[0]), self.view.index(member, names[0])
        if index is None or not isinstance(s.extents[index], Const) or not any(m.kind_inside == "S" for m, _ in order):
            return 0
        count = index_trips(s)[index]
        whole = count & -count
        return count if count <= (MAX_COLUMN_VECTORS if whole == 1 else MAX_CARRIED * whole) else 0

    def _waits_for_functions(self, statements: list[ScopStatement]) -> bool:
        """Whether functions of one vector are chains that a core waits for: those of two registers advance together.

        With AVX-512 there is a short way for most (AVX2, 4096 floats: exp .351 to .3 ns each)."""
        if self.view.target.has_masks:
            return False
        return any(isinstance(e, Call) and call_weight(e) >= FUNCTION_WORK for s in statements for e in walk(s.value))

    def _count_cut_vectors(self, names: list[str], member: Member, lanes: int) -> int:
        """How many vectors of what is computed fill one of the narrower integers (or truth values) that are stored along a row.

        Without AVX-512 one instruction cuts two vectors to half their width; one alone takes shuffles of its halves and fills a
        part of a register (AVX2, 100,000 floats clamped to uint8: 16.2 to 11.9 µs).  Conversions of float64 to integers, and
        integers of 64 bits, which no such instruction takes, gain nothing."""
        if self.view.target.has_masks:
            return 1
        statements = [self.view.statement(n) for n in names]
        widest = vector_itemsize(self.view.scop, statements)
        n_cut = MAX_CARRIED
        if sum(len(access_motions(s)) - 1 for s in statements) > MOST_CUT_READS:
            return 1
        for name, s in zip(names, statements, strict=True):
            index, target = self.view.index(member, name), self.view.scop.tensors[s.target].dtype
            if name.startswith("init_") or s.is_reduction or index is None or target.kind not in ("b" if widest > 4 else "biu"):
                return 1
            for m in access_motions(s):
                if m.motion(index) == "strided" or (m.coefficients and abs((m.coefficients[-1] or {}).get(index, 0)) > 1):
                    return 1
            n_cut = min(n_cut, widest // target.itemsize)
            if index_trips(s)[index] < 2 * n_cut * lanes:
                return 1
        return n_cut

    def _interleave(self, statements: list[ScopStatement], member: Member, points: tuple[Point, ...]) -> int:
        """Vectors in flight: several accumulators hide the latency of a reduction along the vector."""
        reducing = [s for s in statements if self.view.index(member, s.name) in s.reduction_indices]
        if not reducing:
            is_short = len(statements) < MANY_STATEMENTS and sum(operation_weight(s.value) for s in statements) <= 12
            return 2 if is_short else 1
        rows = [(s, self.view.index(member, s.name) or "") for s in reducing]
        if any(index in s.loaded_ranges for s, index in rows):  # whatever is in flight is combined behind each segment
            vectors = min(index_trips(s)[index] for s, index in rows) // self.view.lanes(statements)
            return next((n for n in (4, 2) if vectors >= 2 * n), 1)
        unrolled = len(statements) if points else 1
        for p in points:
            unrolled *= p.size
        weight = sum(operation_weight(s.value) for s in statements)
        if unrolled >= 8 or weight > 60:
            return 1
        if unrolled >= 4 or weight > 12:
            return 2
        if weight > 4 or self.view.target.vector_bits != self.view.target.streaming_bits:
            return 4
        # Eight are combined behind the loop: rows of few vectors are done as soon with four.
        shortest = min(index_trips(s)[index] for s, index in rows)
        return 8 if shortest >= MANY_VECTORS * self.view.lanes(statements) else 4


def _reads_neighbours(s: ScopStatement) -> bool:
    """Whether a statement without a sum reads several elements of one row: what they share of whole lines is loaded once and
    shuffled, and from caches instructions are what bounds it (median of three neighbours, 20,000 floats: 3.8 to 2.9 µs).

    Not so where it chooses: rows of few vectors are written out, and no loop is left to take its borders off."""
    if s.is_reduction or any(isinstance(e, (Pad, Select)) for e in walk(s.value)):
        return False
    rows = [(r.tensor, r.subscripts[:-1]) for r in dict.fromkeys(reads(s.value)) if r.subscripts]
    return len(set(rows)) < len(rows)


def _mark_columns(count: int, lanes: int) -> Mark:
    """Whole vectors over a few columns: what one step stores the next one loads, which is slow through masks."""
    whole = min(lanes, count & -count)
    if count > MAX_COLUMN_VECTORS * whole:
        return Mark("vector", lanes)
    return Mark("vector", whole) if whole > 1 else Mark("unroll")
