"""Which recurrences are over intervals, and along which dimensions: shown on integer sets, for tiles of any size."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Literal

from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, ge, index_names, le, lt, reads, walk
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.rewriting.rules.recurrence_blocks import reading_points

SIZE = 64
"""Beginnings or ends of intervals in one block: with half as many, tiles of registers have few
terms, with twice as many too much is left to the recurrence within a tile."""
FEWEST_BLOCKS = 4
"""Blocks below which most terms are of the tiles at the diagonal."""

Region = Literal["before", "own", "apart"]
"""Where an interval begins in a later block than it ends (it is empty), in the same one, and in an earlier one."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of intervals whose beginnings are in one block of `size` values counted from `origin`, and whose ends are in one.

    `ends`: of each tensor of the recurrence, the dimension in which its intervals begin and that in which they end.  `apart`
    and `place` are the indices of a tile: how many blocks its ends are behind its beginnings, and where along that diagonal
    it is.  The place is ``end + apart``, so that neither later ends nor earlier beginnings are sums of the two: the scheduler
    then takes the loop over `apart`, below which tiles are independent, even where one of the others would do."""

    size: int
    origin: Expr
    ends: Mapping[str, tuple[int, int]]
    place: str
    apart: str

    def number(self, value: Expr) -> Expr:
        """The block of a beginning or an end."""
        return simplify((value - self.origin) // self.size)

    def indices(self, region: Region) -> tuple[str, ...]:
        """The indices of a tile."""
        return {"before": (), "own": (self.place,), "apart": (self.apart, self.place)}[region]

    def tile(self, region: Region) -> tuple[Expr, Expr]:
        """The block of the beginnings and that of the ends."""
        place, apart = Index(self.place), Index(self.apart)
        if region != "apart":
            return place, place
        end = place - apart
        return end - apart, end

    def first(self, block: Expr) -> Expr:
        """The first beginning or end of a block."""
        return simplify(block * self.size + self.origin)

    def is_inside(self, read: Read, tile: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
        """What holds where a read, of an interval that lies within one of a tile, is of the tile itself."""
        begin, end = (read.subscripts[d] for d in self.ends[read.tensor])
        return self.is_in_block(begin, tile[0])[1], self.is_in_block(end, tile[1])[0]

    def is_in_block(self, value: Expr, block: Expr) -> tuple[Expr, Expr]:
        """What holds where a beginning or an end is of a block."""
        after = simplify(self.first(block) + self.size)
        return ge(value, self.first(block)), lt(value, after)


def find_tiles(members: list[Statement], program: Program, ranges: Ranges) -> Tiles | None:
    """Tiles for statements that need each other; None where they are not a recurrence over intervals, or a short one."""
    targets = {s.target for s in members}
    if any(isinstance(n, Pad) and n.read.tensor in targets for s in members for n in walk(s.value)):
        return None
    if not all(_can_cut(s, program) for s in members):
        return None
    for is_turned in (False, True):
        ends = _spread({s.target: found for s in members if (found := _find_ends(s, targets, is_turned))}, members)
        if not ends or set(ends) != targets:
            continue
        first = next(s for s in members if s.reduction is not None)
        interval = ranges.tensors[first.target][ends[first.target][0]]
        extent = estimate_extent(interval.extent, ranges.typical)
        if extent is None or extent < FEWEST_BLOCKS * SIZE:
            return None
        tiles = Tiles(SIZE, interval.lower, ends, "tile.place", "tile.apart")
        if all(_keeps_inside(s, tiles, ranges) for s in members):
            return tiles
    return None


def _can_cut(s: Statement, program: Program) -> bool:
    dtype = program.tensor(s.target).dtype
    if not s.has_plain_left or dtype.is_storage or any(f"{i}.in" in s.indices for i in s.indices):
        return False
    return s.reduction is None or (s.reduction.monoid is None and isinstance(s.reduction.init, Const))


def _find_ends(s: Statement, targets: set[str], is_turned: bool) -> tuple[int, int] | None:
    """Of a reduction over where an interval is parted, the dimensions of its target where the one part begins and where the
    other one ends: ``T[i, k]`` and ``T[k + 1, j]``.  `is_turned`: the other way round."""
    if s.reduction is None:
        return None
    left = {e: d for d, e in enumerate(s.subscripts)}
    parts = [r for r in dict.fromkeys(reads(s.value)) if r.tensor in targets]
    for k in s.reduction_indices:
        for a, b in permutations([r for r in parts if k in index_names(r)], 2):
            for p, q in permutations(range(min(len(a.subscripts), len(b.subscripts))), 2):
                is_parted = k in index_names(a.subscripts[q]) and k in index_names(b.subscripts[p])
                if is_parted and a.subscripts[p] in left and b.subscripts[q] in left:
                    begin, end = left[a.subscripts[p]], left[b.subscripts[q]]
                    return (end, begin) if is_turned else (begin, end)
    return None


def _spread(ends: dict[str, tuple[int, int]], members: list[Statement]) -> dict[str, tuple[int, int]]:
    """The same for what is made of the reductions: intervals begin and end in the indices that they do in what is read."""
    for _ in members:
        for s in members:
            for read in reads(s.value):
                if s.target not in ends and read.tensor in ends:
                    begin, end = (_place(read.subscripts[d], s) for d in ends[read.tensor])
                    if begin is not None and end is not None and begin != end:
                        ends[s.target] = begin, end
    return ends


def _place(subscript: Expr, s: Statement) -> int | None:
    """The dimension of the target of `s` with the one index that stands in a subscript."""
    names = index_names(subscript)
    found = [d for d, e in enumerate(s.subscripts) if isinstance(e, Index) and {e.name} == names]
    return found[0] if found else None


def _keeps_inside(s: Statement, tiles: Tiles, ranges: Ranges) -> bool:
    """Whether every point needs intervals only that begin no earlier than its own and end no later."""
    begin, end = (s.subscripts[d] for d in tiles.ends[s.target])
    for read, points in reading_points(s, tiles.ends, ranges):
        first, last = (read.subscripts[d] for d in tiles.ends[read.tensor])
        if not points.satisfy(Call("and", (ge(first, begin), le(last, end)))):
            return False
    return True
