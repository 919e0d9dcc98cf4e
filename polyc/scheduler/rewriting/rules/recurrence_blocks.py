"""Blocks of a recurrence's indices, and the parts of its tensors: blocks of steps (`Steps`), tiles of intervals (`Tiles`).

Which recurrences can be cut, and along which dimensions, is shown on integer sets, for blocks of any size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import permutations, product
from typing import TypeVar

from polyc.ir.expr import Call, Expr, Index, Read, any_holds, ceil_div, ge, index_names, int_const, le, lt, reads, substitute
from polyc.ir.program import Program, Statement
from polyc.ir.simplify import simplify
from polyc.machine.memory import LINE
from polyc.poly.points import Points, points_of, reading_points
from polyc.poly.ranges import Interval, Ranges, estimate_extent
from polyc.records import dataclass

BLOCK = 64
"""Steps, or beginnings or ends of intervals, in one block, and results of one step that make blocks pay: with half as many,
tiles of registers have few terms, with twice as many too much is left to the recurrence within a block."""
BLOCKS = ((640, BLOCK), (256, BLOCK // 2))
"""Fewest steps of a recurrence, and the steps of its blocks then; blocks of shorter ones are a cache line of results."""
FEWEST_BLOCKS = 3
"""Such blocks of steps and of results of a step that make blocks pay."""

LONG_SOLVE = 1024
"""Steps of a triangle and one vector from which blocks pay: a fork and join for each of them."""
LONG_BLOCK = 128
"""Steps of these blocks: what a block adds is then worth sharing out among threads (`machine.Threads.work_per_step`)."""

FEWEST_TILES = 4
"""Blocks below which most terms are of the tiles at the diagonal."""


@dataclass(frozen=True, slots=True)
class Part:
    """Elements of a tensor, and the points that make them, in certain blocks of the dimensions that are cut."""

    name: str
    place: tuple[Expr, ...]
    """The number of the block or tile, as subscripts of the tensors that hold this part alone."""
    blocks: tuple[Expr | None, ...]
    """The block in each dimension that is cut; None where subscripts stay as they are."""
    is_kept: bool = False
    """Whether its results are kept turned beside the whole tensor, whose own order has the vectors across."""


Terms = tuple[str, dict[str, Expr], list[Expr]]
"""Terms of a sum: those which need their own block (``near…``) or not (``far``), the values of the indices that are counted
within the block, and what holds."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Blocks(ABC):
    """Blocks of `size` values, counted from `origin` upwards or (`is_reversed`) downwards.

    `dims`: of each tensor of the recurrence, the dimensions that are cut.  `description`: what users are told."""

    description: str
    size: int
    origin: Expr
    is_reversed: bool
    dims: Mapping[str, tuple[int, ...]]

    def cut(self, tensor: str, values: Sequence[_T]) -> list[_T]:
        """Of what a tensor has in each dimension, subscripts or intervals, that in the dimensions that are cut."""
        return [values[d] for d in self.dims[tensor]]

    def step(self, value: Expr) -> Expr:
        """The step of a subscript, from 0."""
        return self.origin - value if self.is_reversed else value - self.origin

    def inner(self, value: Expr, block: Expr) -> Expr:
        """The place of a subscript within a block."""
        return simplify(self.step(value) - block * self.size)

    def point(self, block: Expr, inner: Expr) -> Expr:
        """The subscript of that place in a block."""
        step = block * self.size + inner
        return simplify(self.origin - step if self.is_reversed else step + self.origin)

    def conditions(self, part: Part, cut: Sequence[Expr]) -> list[Expr]:
        """What holds of the subscripts in dimensions that are cut where an element belongs to a part."""
        inner = [self.inner(value, block) for value, block in zip(cut, part.blocks, strict=True) if block is not None]
        return [c for e in inner for c in (ge(e, 0), lt(e, self.size))] + self.others(part, cut)

    def element(self, tensor: str, subscripts: Sequence[Expr], part: Part, kind: str) -> tuple[Expr, ...]:
        """An element of a part in a tensor that holds this part alone.

        ``kept`` ones are turned within a tile, and vectors run along what is not cut; ``far`` sums have the tensor's order."""
        dims = self.dims[tensor]
        inner = {d: self.inner(subscripts[d], b) for d, b in zip(dims, part.blocks, strict=True) if b is not None}
        front, rest = subscripts[: min(dims)], range(min(dims), len(subscripts))
        order = rest if kind == "far" else [*sorted(inner, reverse=kind == "kept"), *(d for d in rest if d not in inner)]
        return (*front, *part.place, *(inner.get(d, subscripts[d]) for d in order))

    @abstractmethod
    def parts(self, tensor: str) -> list[Part]:
        """All elements of a tensor, each in one part."""

    @abstractmethod
    def others(self, part: Part, cut: Sequence[Expr]) -> list[Expr]:
        """What holds in a part beside that subscripts are in their blocks."""

    @abstractmethod
    def intervals(self, part: Part, cut: Sequence[Interval]) -> dict[str, Interval]:
        """The values of the indices of blocks in a part of a tensor of these intervals."""

    @abstractmethod
    def terms(self, s: Statement, part: Part, place: Mapping[str, Expr], points: Points) -> Iterable[Terms]:
        """The terms of a sum in a part, at these points, where indices have the values in `place`."""

    @abstractmethod
    def near(self, read: Read, part: Part, summed: Container[str]) -> Iterable[Part]:
        """Parts to which what is read in a part may belong; `summed`: the indices that are reduced there."""


@dataclass(frozen=True, slots=True)
class Steps(Blocks):
    """Blocks of steps: `dims` are the dimensions along which a tensor is made, one or two, and an element belongs to the block
    of the first of its steps there, or (`is_last`) of the last one.  `block` is the index of all blocks."""

    extent: Expr
    block: str
    is_last: bool

    def parts(self, tensor: str) -> list[Part]:
        dims, block = self.dims[tensor], Index(self.block)
        whole = Part("block", (block,), (block,) * len(dims))
        if len(dims) == 1:
            return [whole]
        side = "before" if self.is_last else "after"
        beside = Part(f"{side}{dims[1]}", (block,), (block, None))
        return [whole, beside, Part(f"{side}{dims[0]}", (block,), (None, block), True)]

    def others(self, part: Part, cut: Sequence[Expr]) -> list[Expr]:
        first, end = Index(self.block) * self.size, (Index(self.block) + 1) * self.size
        steps = [self.step(value) for value, block in zip(cut, part.blocks, strict=True) if block is None]
        return [lt(step, first) if self.is_last else ge(step, end) for step in steps]

    def intervals(self, part: Part, cut: Sequence[Interval]) -> dict[str, Interval]:
        return {self.block: Interval(int_const(0), simplify(ceil_div(self.extent, self.size)))}

    def terms(self, s: Statement, part: Part, place: Mapping[str, Expr], points: Points) -> Iterable[Terms]:
        (k,) = s.reduction_indices
        block, inner = Index(self.block), Index(f"{k}.in")
        yield "near", {k: self.point(block, inner)}, [ge(inner, 0), lt(inner, self.size)]
        yield "far", {}, [lt(self.step(Index(k)), block * self.size)]

    def near(self, read: Read, part: Part, summed: Container[str]) -> Iterable[Part]:
        return self.parts(read.tensor)


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
        return [ge(APART, 1)] if part.name == "apart" else []

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


def find_steps(members: list[Statement], program: Program, ranges: Ranges, is_last: bool) -> Steps | None:
    """Blocks for statements that need each other, of the first steps of elements or the last ones; None where there is no sum
    to cut, or an order that blocks would not keep."""
    targets, sums = {s.target for s in members}, [s for s in members if s.reduction is not None]
    dtypes = [program.tensor(s.target).dtype for s in sums]
    line = LINE // min((t.itemsize for t in dtypes), default=LINE)
    is_plain = not any(t.is_complex or t.is_storage for t in dtypes) and all(len(s.reduction_indices) == 1 for s in sums)
    is_plane = any(_is_contraction(s, targets, FEWEST_BLOCKS * line, ranges) for s in sums)
    if not is_plain or not is_plane or any(ranges.statements[s.name].guards for s in members):
        return None
    for is_reversed in (False, True):
        dims = {s.target: _leading_dims(s, is_reversed, is_last, ranges) for s in sums}
        dims = spread(dims, members) if all(dims.values()) else {}
        dims = {t: tuple(sorted(_spread_back(t, dims, members) if is_last else found)) for t, found in dims.items()}
        intervals = [ranges.tensors[t][d] for t, ds in dims.items() for d in ds]
        if set(dims) != targets or max(map(len, dims.values())) > 2 or any(i != intervals[0] for i in intervals):
            continue
        first, steps = intervals[0], estimate_extent(intervals[0].extent, ranges.typical)
        size = next((n for least, n in (*BLOCKS, (FEWEST_BLOCKS * line, line)) if steps is not None and steps >= least), None)
        if size is None or all(_is_band(s, size, dims[s.target], ranges) for s in sums):
            return None
        if all(len(s.left_indices) == 1 for s in sums):
            size = LONG_BLOCK
        origin = simplify(first.lower + first.extent - 1) if is_reversed else first.lower
        block = f"{members[0].left_indices[dims[members[0].target][0]]}.block"
        description = f"blocks of {size} steps: what earlier blocks add is summed apart"
        found = Steps(description, size, origin, is_reversed, dims, first.extent, block, is_last)
        if all(_keeps_order(s, found, ranges) for s in members):
            return found
    return None


def _is_contraction(s: Statement, targets: set[str], fewest: int, ranges: Ranges) -> bool:
    """Whether what a step adds is spread over a plane, `fewest` each way: two operands, each with left indices of its own."""
    moving = [r for r in dict.fromkeys(reads(s.value)) if index_names(r) & set(s.reduction_indices)]
    own = [index_names(r) & set(s.left_indices) for r in moving]
    extents = ranges.statements[s.name].indices
    known = [estimate_extent(extents[i].extent, ranges.typical) for i in s.left_indices]
    if not any(r.tensor in targets for r in moving):
        return False
    if len(known) == 1:  # a matrix and a vector: what a block adds is summed by all threads
        return len(moving) == 2 and (known[0] or 0) >= LONG_SOLVE
    is_plane = any(a - b and b - a for a in own for b in own)
    return is_plane and sum(n is None or n >= fewest for n in known) >= 2


def _leading_dims(s: Statement, is_reversed: bool, is_last: bool, ranges: Ranges) -> tuple[int, ...]:
    """Dimensions of a sum's target whose index stays ahead of the index that is summed over, or (`is_last`) is no less."""
    (k,) = s.reduction_indices
    points, last, is_before = points_of(s, ranges.statements[s.name]), Index(k), le if is_last else lt
    pairs = [(e, last) if is_reversed else (last, e) for e in s.subscripts]
    return tuple(d for d, pair in enumerate(pairs) if points.satisfy(is_before(*pair)))


def _is_band(s: Statement, size: int, dims: tuple[int, ...], ranges: Ranges) -> bool:
    """Whether no term of a sum is more than `size` steps behind the element: blocks have next to nothing behind them."""
    (k,) = s.reduction_indices
    points = points_of(s, ranges.statements[s.name])
    steps = [s.subscripts[d] - Index(k) for d in dims]
    return all(points.satisfy(le(step, size)) and points.satisfy(ge(step, -size)) for step in steps)


def spread(dims: dict[str, tuple[int, ...]], members: list[Statement]) -> dict[str, tuple[int, ...]]:
    """Of these tensors and what is made of them, the dimensions in which the same indices stand."""
    found = dict(dims)
    for _ in members:
        for s in members:
            for read in reads(s.value) if s.target not in dims else ():
                known, places = found.get(s.target, ()), [_place(read.subscripts[d], s) for d in found.get(read.tensor, ())]
                more = tuple(dict.fromkeys(d for d in places if d is not None))
                if places and None not in places:
                    found[s.target] = more if set(known) < set(more) else tuple(dict.fromkeys((*known, *more)))
    return found


def _spread_back(tensor: str, dims: Mapping[str, tuple[int, ...]], members: list[Statement]) -> set[int]:
    """Of a tensor, these dimensions and those with an index that stands in such a dimension of what is made of it."""
    found = set(dims[tensor])
    for s in members:
        cut = [s.subscripts[d] for d in dims.get(s.target, ())] if s.reduction is None else []
        found |= {d for r in reads(s.value) if r.tensor == tensor for d, e in enumerate(r.subscripts) if e in cut}
    return found


def _place(subscript: Expr, s: Statement) -> int | None:
    """The dimension of the target of `s` with the one index that stands in a subscript."""
    names = index_names(subscript)
    return next((d for d, e in enumerate(s.subscripts) if isinstance(e, Index) and {e.name} == names), None)


def _keeps_order(s: Statement, blocks: Steps, ranges: Ranges) -> bool:
    """Whether no point needs elements of a later step than its own, nor a term of a sum any beyond the term's step.

    By last steps, one of the element's steps may be beyond the term's where it is no later than those of the sum other than its
    last: what stands beside a block is finished before the block itself."""
    own, terms = ([blocks.step(e) for e in es] for es in (blocks.cut(s.target, s.subscripts), map(Index, s.reduction_indices)))
    for read, points in reading_points(s, blocks.dims, ranges.statements[s.name]):
        theirs, others = [blocks.step(e) for e in blocks.cut(read.tensor, read.subscripts)], own
        if terms and len(own) > 1:
            last = next((e for e in own if all(points.satisfy(le(mine, e)) for mine in own)), None)
            others = [e for e in own if last not in (None, e)]
        orders = [[le(e, mine) for e in theirs] for mine in (terms if blocks.is_last else (*own, *terms))]
        orders += [[le(e, mine) for mine in (*terms, *others)] for e in theirs] if blocks.is_last else []
        if not all(points.satisfy(any_holds(order)) for order in orders):
            return False
    return True


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
        if extent is None or extent < FEWEST_TILES * BLOCK:
            return None
        description = f"tiles of {BLOCK} by {BLOCK} intervals: what finished tiles add is summed apart"
        tiles = Tiles(description, BLOCK, interval.lower, False, ends)
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
    found = reading_points(s, tiles.dims, ranges.statements[s.name])
    ends = ((points, tiles.cut(read.tensor, read.subscripts)) for read, points in found)
    return all(points.satisfy(ge(first, begin)) and points.satisfy(le(last, end)) for points, (first, last) in ends)
