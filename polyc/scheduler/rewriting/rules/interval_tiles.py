"""Which recurrences are over intervals, and along which dimensions: shown on integer sets, for tiles of any size."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import permutations, product

from polyc.ir.expr import Call, Expr, Index, Read, ge, gt, index_names, int_const, le, lt, reads, substitute
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.poly.points import Points
from polyc.poly.ranges import Interval, Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.rewriting.rules.recurrence_blocks import Blocks, Part, Terms, reading_points, spread

SIZE = 64
"""Beginnings or ends of intervals in one block: with half as many, tiles of registers have few
terms, with twice as many too much is left to the recurrence within a tile."""
FEWEST_BLOCKS = 4
"""Blocks below which most terms are of the tiles at the diagonal."""

PLACE, APART = Index("tile.place"), Index("tile.apart")
"""The indices of a tile: where along its diagonal it is, and how many blocks its ends are behind its beginnings.

The place is ``end + apart``, so that neither later ends nor earlier beginnings are sums of the two: the scheduler then takes
the loop over `APART`, below which tiles are independent, even where one of the others would do."""

_PARTS = [
    Part("before", (), (None, None)),  # where an interval begins in a later block than it ends: it is empty
    Part("own", (PLACE,), (PLACE, PLACE), is_kept=True),
    Part("apart", (APART, PLACE), (simplify(PLACE - 2 * APART), simplify(PLACE - APART)), is_kept=True),
]


@dataclass(frozen=True, slots=True)
class Tiles(Blocks):
    """Tiles of intervals whose beginnings are in one block, and whose ends are in one: `dims` are the dimension in which the
    intervals of a tensor begin and that in which they end."""

    def parts(self, tensor: str) -> list[Part]:
        return _PARTS

    def others(self, part: Part, cut: Sequence[Expr]) -> list[Expr]:
        if part.name == "before":
            begin, end = map(self._number, cut)
            return [lt(end, begin)]
        return [gt(APART, 0)] if part.name == "apart" else []

    def intervals(self, part: Part, cut: Sequence[Interval]) -> dict[str, Interval]:
        blocks = [(self._number(i.lower), self._number(simplify(i.lower + i.extent - 1))) for i in cut]
        (first, last), (_, end) = blocks
        furthest = simplify(end - first)
        latest = end + furthest if part.name == "apart" else last
        return {
            PLACE.name: Interval(first, simplify(latest - first + 1)),
            APART.name: Interval(int_const(1), furthest),
        }

    def _number(self, value: Expr) -> Expr:
        """The block of a beginning or an end."""
        return simplify(self.step(value) // self.size)

    def terms(self, s: Statement, part: Part, place: Mapping[str, Expr], points: Points) -> Iterable[Terms]:
        """Each read that moves through tiles in one dimension is of the own tile, or is not."""
        tests: list[Expr] = []
        for read in dict.fromkeys(reads(s.value)) if part.name == "apart" else ():
            if read.tensor in self.dims:
                cut = [substitute(e, place) for e in self.cut(read.tensor, read.subscripts)]
                open_tests = [t for t in self.conditions(part, cut) if not points.satisfy(t)]
                tests += open_tests if len(open_tests) == 1 else ()
        for choice in product((False, True), repeat=len(tests)):
            own = "".join(str(n) for n, is_own in enumerate(choice) if is_own)
            conditions = [t if is_own else Call("not", (t,)) for t, is_own in zip(tests, choice, strict=True)]
            yield f"near{own}" if own or not tests else "far", {}, conditions

    def near(self, read: Read, part: Part, summed: Container[str]) -> Iterable[Part]:
        """The own tile, or one with both ends in a block.

        What a reduction takes along the rows of such a tile stays: the whole has it in that order."""
        dims = self.dims[read.tensor]
        rows, columns = ({i for i in index_names(read.subscripts[d]) if i in summed} for d in (max(dims), min(dims)))
        near = [part, *(Part("own", (b,), (b, b), True) for b in part.blocks if b is not None and part.name == "apart")]
        return [p for p in near if p.name != "own" or columns or not rows]


def find_tiles(members: list[Statement], program: Program, ranges: Ranges) -> Tiles | None:
    """Tiles for statements that need each other; None where they are not a recurrence over intervals, or a short one."""
    targets = {s.target for s in members}
    if len(members) < 2 or any(program.tensor(t).dtype.is_storage for t in targets):
        return None
    for is_turned in (False, True):
        ends = spread({s.target: found for s in members if (found := _find_ends(s, targets, is_turned))}, members)
        if set(ends) != targets or any(len(found) != 2 for found in ends.values()):
            continue
        first = next(s for s in members if s.reduction is not None)
        interval = ranges.tensors[first.target][ends[first.target][0]]
        extent = estimate_extent(interval.extent, ranges.typical)
        if extent is None or extent < FEWEST_BLOCKS * SIZE:
            return None
        description = f"tiles of {SIZE} by {SIZE} intervals: what finished tiles add is summed apart"
        tiles = Tiles(description, SIZE, interval.lower, False, ends)
        if all(_keeps_inside(s, tiles, ranges) for s in members):
            return tiles
    return None


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


def _keeps_inside(s: Statement, tiles: Tiles, ranges: Ranges) -> bool:
    """Whether every point needs intervals only that begin no earlier than its own and end no later."""
    begin, end = tiles.cut(s.target, s.subscripts)
    for read, points in reading_points(s, tiles.dims, ranges):
        first, last = tiles.cut(read.tensor, read.subscripts)
        if not points.satisfy(ge(first, begin)) or not points.satisfy(le(last, end)):
            return False
    return True
