"""Which recurrences can be cut into blocks of steps, and along which dimensions: shown on integer sets, for any block size."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from polyc.ir.expr import Call, Const, Expr, Index, Pad, Read, any_holds, ceil_div, ge, gt, int_const, le, lt, reads, walk
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import simplify_int
from polyc.poly.points import Points, points_of
from polyc.poly.ranges import Interval, Ranges, estimate_extent
from polyc.records import dataclass

BLOCKS = ((640, 64), (96, 32))
"""Fewest steps of a recurrence, and the steps of its blocks then."""
MINIMUM_RESULTS = 64
"""Results of one step below which sums over earlier blocks are as slow as they were."""

LONG_SOLVE = 1024
"""Steps of a triangle and one vector from which blocks pay: a fork and join for each of them."""
LONG_BLOCK = 128
"""Steps of these blocks: what a block adds is then worth sharing out among threads (`machine.Threads.work_per_step`)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Blocks of `size` steps, counted from `origin` upwards or (`is_reversed`) downwards.

    `dims`: of each tensor of the recurrence, the dimensions along which it is made: an element belongs to the block of the
    first of its steps there."""

    size: int
    origin: Expr
    is_reversed: bool
    dims: Mapping[str, tuple[int, ...]]
    extent: Expr
    block: str

    def step(self, value: Expr) -> Expr:
        """The step of a subscript, from 0."""
        return Call("sub", (self.origin, value) if self.is_reversed else (value, self.origin))

    def point(self, inner: str) -> Expr:
        """The subscript of step number `inner` of the block."""
        step = Index(self.block) * self.size + Index(inner)
        return simplify_int(Call("sub" if self.is_reversed else "add", (self.origin, step)))

    @property
    def interval(self) -> Interval:
        count = ceil_div(self.extent, self.size)
        return Interval(int_const(0), simplify_int(count))

    def is_earlier(self, value: Expr) -> Expr:
        """A subscript lies in an earlier block."""
        return lt(self.step(value), Index(self.block) * self.size)

    def is_later(self, value: Expr) -> Expr:
        end = (Index(self.block) + 1) * self.size
        return ge(self.step(value), end)

    def is_inside(self, inner: str) -> list[Expr]:
        return [ge(Index(inner), 0), lt(Index(inner), self.size)]


def find_cut(members: list[Statement], program: Program, ranges: Ranges) -> Cut | None:
    """Blocks for statements that need each other; None where there is no sum to cut, or an order that blocks would not keep."""
    targets = {s.target for s in members}
    if any(not s.has_plain_left or ranges.statements[s.name].guards for s in members):
        return None
    if any(isinstance(n, Pad) and n.read.tensor in targets for s in members for n in walk(s.value)):
        return None
    sums = [s for s in members if s.reduction is not None]
    if not sums or not any(_is_contraction(s, targets, ranges) for s in sums):
        return None
    for is_reversed in (False, True):
        dims: dict[str, tuple[int, ...]] | None = {}
        for s in sums:
            found = _leading_dims(s, is_reversed, program, ranges)
            if not found:
                dims = None
                break
            assert dims is not None
            dims[s.target] = found
        dims = dims and _spread(dims, members)
        if dims is None or set(dims) != targets or max(map(len, dims.values())) > 2:
            continue
        intervals = [ranges.tensors[t][d] for t, ds in dims.items() for d in ds]
        first = intervals[0]
        if any(i != first for i in intervals):
            continue
        size = _block_size(first.extent, ranges)
        if size is None or all(_is_band(s, size, dims[s.target], ranges) for s in sums):
            return None
        if all(len(s.left_indices) == 1 for s in sums):
            size = LONG_BLOCK
        last = first.lower + first.extent - 1
        origin = simplify_int(last) if is_reversed else first.lower
        block = f"{members[0].left_indices[dims[members[0].target][0]]}.block"
        cut = Cut(size, origin, is_reversed, dims, first.extent, block)
        if all(_keeps_order(s, cut, ranges) for s in members):
            return cut
    return None


def _is_contraction(s: Statement, targets: set[str], ranges: Ranges) -> bool:
    """Whether what a step adds is spread over a plane of results: two operands, each with left indices of its own."""
    moving = [r for r in dict.fromkeys(reads(s.value)) if set(_names(r)) & set(s.reduction_indices)]
    own = [set(_names(r)) & set(s.left_indices) for r in moving]
    extents = ranges.statements[s.name].indices
    if len(s.left_indices) == 1:  # a matrix and a vector: what a block adds is summed by all threads
        (i,) = s.left_indices
        steps = estimate_extent(extents[i].extent, ranges.typical) or 0
        return len(moving) == 2 and steps >= LONG_SOLVE and any(r.tensor in targets for r in moving)
    is_plane = any(a - b and b - a for a in own for b in own)
    wide = sum(
        (estimate_extent(extents[i].extent, ranges.typical) or MINIMUM_RESULTS) >= MINIMUM_RESULTS for i in s.left_indices
    )
    return is_plane and wide >= 2 and any(r.tensor in targets for r in moving)


def _names(expr: Expr) -> list[str]:
    return [n.name for n in walk(expr) if isinstance(n, Index)]


def _leading_dims(s: Statement, is_reversed: bool, program: Program, ranges: Ranges) -> tuple[int, ...]:
    """Dimensions of a sum's target whose index stays ahead of the index that is summed over; none where it cannot be cut."""
    assert s.reduction is not None
    tensor = program.tensor(s.target)
    if len(s.reduction_indices) != 1 or s.reduction.monoid is not None or tensor.role != "temporary":
        return ()
    if not isinstance(s.reduction.init, Const) or tensor.dtype.is_complex or tensor.dtype.is_storage:
        return ()
    (k,) = s.reduction_indices
    points, op = points_of(s, ranges.statements[s.name]), "gt" if is_reversed else "lt"
    return tuple(d for d, e in enumerate(s.subscripts) if points.satisfy(Call(op, (Index(k), e))))


def _is_band(s: Statement, size: int, dims: tuple[int, ...], ranges: Ranges) -> bool:
    """Whether no term of a sum is more than `size` steps behind the element: blocks have next to nothing behind them."""
    (k,) = s.reduction_indices
    points = points_of(s, ranges.statements[s.name])
    steps = [Call("sub", pair) for d in dims for pair in ((s.subscripts[d], Index(k)), (Index(k), s.subscripts[d]))]
    return all(points.domain.is_disjoint(points.affine.condition(gt(step, size))) for step in steps)


def _spread(dims: dict[str, tuple[int, ...]], members: list[Statement]) -> dict[str, tuple[int, ...]]:
    """The same for what is made of the sums: its dimensions stand where those of the sums do."""
    dims = dict(dims)
    for _ in members:
        for s in members:
            if s.reduction is not None:
                continue
            found = set(dims.get(s.target, ()))
            for read in reads(s.value):
                leading = [read.subscripts[d] for d in dims.get(read.tensor, ())]
                if all(e in s.subscripts for e in leading):
                    found |= {s.subscripts.index(e) for e in leading}
            if found:
                dims[s.target] = tuple(sorted(found))
    return dims


def _block_size(extent: Expr, ranges: Ranges) -> int | None:
    steps = estimate_extent(extent, ranges.typical)
    if steps is None:
        return None
    return next((size for fewest, size in BLOCKS if steps >= fewest), None)


def _keeps_order(s: Statement, cut: Cut, ranges: Ranges) -> bool:
    """Whether no point needs elements of a later step than its own, nor a term of a sum any beyond the term's step."""
    own = [s.subscripts[d] for d in cut.dims[s.target]]
    if s.reduction is not None:
        own += [Index(i) for i in s.reduction_indices]
    for read, points in reading_points(s, cut.dims, ranges):
        steps = [cut.step(read.subscripts[d]) for d in cut.dims[read.tensor]]
        for mine in own:
            if not points.satisfy(any_holds(le(step, cut.step(mine)) for step in steps)):
                return False
    return True


def reading_points(s: Statement, tensors: Container[str], ranges: Ranges) -> Iterator[tuple[Read, Points]]:
    """The points at which a statement reads tensors, for each of these reads, as far as conditions are affine."""
    points = points_of(s, ranges.statements[s.name])
    for site in collect_reads(s):
        if site.read.tensor in tensors:
            there = points
            for condition, holds in site.conditions:
                there = there.where(condition, holds) or there
            yield site.read, there
