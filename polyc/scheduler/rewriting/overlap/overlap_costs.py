"""Traffic and recomputation: what it costs, in cycles of one core, to compute producers whole or tile by tile.

Whole: a producer is written and read again through the level that holds what lies between (`traffic`).  In tiles: it stays in
a buffer of one tile, but what neighbouring tiles both need is computed twice, and every row of a tile starts loops and streams
anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import ceil, prod

from polyc import code_limits
from polyc.ir.expr import Const, Expr, Index, Select, index_names, reads, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.types import DType
from polyc.machine import Level, Machine
from polyc.machine.memory import LINE
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.accesses import operation_weight
from polyc.scheduler.rewriting.overlap.overlap_boxes import Box, Boxes, Sites
from polyc.scheduler.traffic import find_level, pass_cycles

UNKNOWN_EXTENT = 4 * code_limits.UNKNOWN_EXTENT
"""Extent assumed of a dimension of unknown size: buffers of tiles must still fit where it is long."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles on one core; `recomputed`: part of the producers' work that is done more than once."""

    whole: float
    tiled: float
    recomputed: float
    saved_bytes: int
    buffer_bytes: int
    """Of what is alive at the same time in a tile."""


@dataclass(frozen=True, slots=True)
class Model:
    """What estimates read: extents are estimated where they are symbolic."""

    program: Program
    ranges: Ranges
    target: Machine
    sites: Sites
    _shapes: dict[str, list[int]] = field(default_factory=dict)
    _work: dict[str, float] = field(default_factory=dict)

    def extent(self, expr: Expr) -> int:
        known = estimate_extent(expr, self.ranges.typical)
        return max(1, (UNKNOWN_EXTENT if known is None else known))

    def trips(self, s: Statement) -> dict[str, int]:
        own = self.ranges.statements[s.name].indices
        return {i: self.extent(own[i].extent) for i in s.indices}

    def shape(self, tensor: str) -> list[int]:
        if tensor not in self._shapes:
            self._shapes[tensor] = [self.extent(i.extent) for i in self.ranges.tensors[tensor]]
        return self._shapes[tensor]

    def dtype(self, tensor: str) -> DType:
        return self.program.tensor(tensor).dtype

    def bytes(self, tensor: str) -> int:
        return prod(self.shape(tensor)) * self.dtype(tensor).itemsize

    def work(self, s: Statement) -> float:
        """Cycles of one point: two operations or loads of a whole vector at once, a load that straddles two lines as two."""
        if s.name not in self._work:
            lanes = self.target.lanes(self.dtype(s.target).itemsize)
            n_loads = len({site.read for site in self.sites[s.name]})
            self._work[s.name] = (1 + operation_weight(s.value) + 1.5 * n_loads) / (2.0 * lanes)
        return self._work[s.name]

    def tests(self, s: Statement) -> float:
        """Cycles of one point to test where it is in its row."""
        last = index_names(*s.subscripts[-1:])
        n_tests = 0
        for node in walk(s.value):
            if isinstance(node, Select) and not reads(node.condition):
                found = sum(1 for e in walk(node.condition) if isinstance(e, Index) and e.name in last)
                n_tests += found + 1 if found else 0
        return self.target.overlap.test * n_tests / (2.0 * self.target.lanes(self.dtype(s.target).itemsize))

    # -- whole
    def whole(self, s: Statement, shared: frozenset[int]) -> float:
        """Cycles to write a producer and to read it again; `shared`: dimensions along which its readers follow at once.

        What it reads passes meanwhile, too."""
        touched = {s.target, *(site.read.tensor for site in self.sites[s.name])}
        followed = prod(n for d, n in enumerate(self.shape(s.target)) if d in shared)
        return pass_cycles(self.bytes(s.target), sum(map(self.bytes, touched)) / followed, self.target)

    # -- in tiles
    def box_extents(self, boxes: Sequence[Box | None], tensor: str) -> list[int]:
        return [min(n, box.extent) if box is not None else n for n, box in zip(self.shape(tensor), boxes, strict=True)]

    def short_row(self, s: Statement) -> int:
        """Elements of a row that is expanded."""
        costs = self.target.overlap
        return min(costs.short_row, costs.short_row_vectors * self.target.vector_bits // 8) // self.dtype(s.target).itemsize

    def row_starts(self, s: Statement, extents: Sequence[int], indices: Sequence[str]) -> float:
        """Cycles to start the rows of a tile, with the streams from outside that they read."""
        if not extents:
            return 0.0
        ends = [sub for site in self.sites[s.name] for sub in site.read.subscripts[-1:]]
        last = index_names(*ends)
        inner = next((n for n in reversed(range(len(indices))) if indices[n] in last), len(indices) - 1)
        rows = prod(n for d, n in enumerate(extents) if d != inner)
        # A sum takes what is beyond its register tile in parts; others have one vector more.
        short = self.short_row(s)
        if extents[inner] <= (short if s.reduction is not None else short + short // 8):
            return rows * self.target.loops.short_row_start
        inputs = {site.read.tensor for site in self.sites[s.name] if self.program.tensor(site.read.tensor).role != "temporary"}
        return rows * (self.target.loops.row_start + self.target.prefetchers.start * len(inputs))

    def cut_rows(self, root: Statement, sizes: dict[str, int]) -> tuple[float, float]:
        """What is lost because tiles hold parts of the rows of a result: a part of the time of arrays from outside, and cycles
        of that result."""
        trips = self.trips(root)
        last = index_names(*root.subscripts[-1:])
        cut = [size for i, size in sizes.items() if i in last and size < trips[i]]
        if not cut:
            return 0.0, 0.0
        if min(cut) > self.short_row(root):
            return self.target.overlap.cut_rows, 0.0
        size = self.bytes(root.target) if self.program.tensor(root.target).role != "temporary" else 0
        is_filled = self.target.is_streamed(size, size) and not self._begins_at_lines(root, min(cut))
        return self.target.overlap.cut_short_rows, size / self.target.memory.filled if is_filled else 0.0

    def _begins_at_lines(self, root: Statement, size: int) -> bool:
        """Whether tiles of `size` elements may be moved along the rows of a result to where its lines begin (`align_tiles`)."""
        row = self.ranges.tensors[root.target][-1].extent
        if not isinstance(row, Const) or int(row.value) % size:
            return False
        return all(n * self.dtype(root.target).itemsize % LINE == 0 for n in (size, int(row.value)))

    def window_cycles(self, s: Statement, row: int | None = None) -> float:
        """Cycles in which a whole statement reads rows again that a window needs, where those of all windows leave the
        first-level cache; `row`: elements of the rows of a tile, at most."""
        trips = self.trips(s)
        held = again = 0.0
        for tensor, n_rows in self.window_rows(s).items():
            shape, size = self.shape(tensor), self.dtype(tensor).itemsize
            held += n_rows * min(shape[-1], row or shape[-1]) * size if shape else 0
            again += (n_rows - 1) * prod(trips[i] for i in s.left_indices) * size
        return again / self.target.memory.read[Level.L2] if find_level(held, self.target) > Level.L1 else 0.0

    def window_rows(self, s: Statement) -> dict[str, int]:
        """Rows of each tensor that one point of a statement reads."""
        trips = self.trips(s)
        rows: dict[str, set[tuple[Expr, ...]]] = {}
        for site in self.sites[s.name]:
            rows.setdefault(site.read.tensor, set()).add(site.read.subscripts[:-1])
        moving = {
            t: {e.name for row in found for sub in row for e in walk(sub) if isinstance(e, Index)} for t, found in rows.items()
        }
        return {t: len(found) * prod(trips[i] for i in s.reduction_indices if i in moving[t]) for t, found in rows.items()}

    def rows_read(self, s: Statement, extents: Sequence[int], indices: Sequence[str]) -> dict[str, int]:
        """Rows of each tensor that a tile of a statement reads, about: its own, and those of a window more."""
        rows: dict[str, int] = {}
        for tensor, window in self.window_rows(s).items():
            ends = [sub for site in self.sites[s.name] if site.read.tensor == tensor for sub in site.read.subscripts[-1:]]
            last = index_names(*ends)
            rows[tensor] = prod(n for n, i in zip(extents, indices, strict=False) if i not in last) + window - 1
        return rows

    def outside_bytes(self, statements: Sequence[Statement]) -> int:
        """Bytes of the arrays that come from memory or go there."""
        made = {s.target for s in statements if self.program.tensor(s.target).role == "temporary"}
        touched = {site.read.tensor for s in statements for site in self.sites[s.name]} | {s.target for s in statements}
        return sum(self.bytes(name) for name in touched - made)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one producer adds to the cycles of a tile; `outer`: cycles to read again each tensor that it reads; `rows`: what it
    reads of each of them; `windows`: cycles to read them again; `tests`: of borders, in rows that are cut."""

    buffer: int
    extra: float
    once: float
    starts: float
    outer: dict[str, float]
    rows: dict[str, int]
    windows: float
    tests: float


class Trial:
    """Consumers in tiles of given sizes, with more or fewer of their producers inside: what each adds is found once."""

    def __init__(self, model: Model, roots: Sequence[Statement], sizes: dict[str, int], boxes: Boxes) -> None:
        """`boxes`: at least of all tensors that the producers write."""
        self.model, self.roots, self.boxes = model, roots, boxes
        trips = model.trips(roots[0])
        inside = [min(sizes.get(i, trips[i]), trips[i]) for i in roots[0].left_indices]
        n_tiles = [ceil(trips[i] / size) for i, size in sizes.items()]
        self._n_tiles = prod(n_tiles)
        self._is_one_loop = all(n == 1 for n in n_tiles[1:])
        self._starts = sum(model.row_starts(root, inside, root.left_indices) for root in roots)
        self._windows = sum(model.window_cycles(root, inside[-1] if inside else None) for root in roots)
        self._rows = [model.rows_read(root, inside, root.left_indices) for root in roots]
        lost = [model.cut_rows(root, sizes) for root in roots]
        self._is_cut = any(part for part, _ in lost)
        tested = sum(model.tests(root) * prod(model.trips(root).values()) for root in roots)
        self._tests = tested if self._is_cut else 0.0
        self._is_short = any(part == model.target.overlap.cut_short_rows for part, _ in lost)
        self._cut_rows, self._filled = max(part for part, _ in lost), sum(cycles for _, cycles in lost)
        self._work = sum(model.work(root) * prod(model.trips(root).values()) for root in roots)
        self._shares: dict[str, _Share] = {}

    def estimate(self, producers: Sequence[Statement]) -> Estimate | None:
        """Cycles beyond those of the same statements without tiles and without the producers' traffic; `whole` is left at 0.

        `producers` are in an order in which every reader of a tensor comes before its writer.
        None where the buffers fit no cache of a core."""
        model, inner = self.model, {p.target for p in producers}
        costs, memory = model.target.overlap, model.target.memory
        extra = total = 0.0
        cycles = self._windows + self._tests
        buffers, starts, rows = {}, self._starts, list(self._rows)
        for n, p in enumerate(producers):
            share = self._shares.get(p.name)
            if share is None:
                share = self._shares[p.name] = self._share(p, producers[: n + 1])
            buffers[p.target] = share.buffer
            extra += share.extra
            total += share.once
            starts += share.starts
            rows.append(share.rows)
            cycles += share.windows + share.tests
            cycles += sum(c for tensor, c in share.outer.items() if tensor not in inner)
        alive = self._alive(producers, buffers)
        footprint = costs.beside * alive
        if find_level(footprint, model.target) > Level.L2:
            return None
        if self._is_short:
            read = {t for found in rows for t in found} - inner
            n_rows = sum(max(found.get(t, 0) for found in rows) for t in read)
            prefetchers = model.target.prefetchers
            starts += prefetchers.lost_row * max(0, n_rows - prefetchers.streams)
        passed = pass_cycles(sum(buffers.values()), footprint, model.target) * (costs.far_short_rows if self._is_short else 1.0)
        cycles += extra * (costs.recomputed if self._is_short else 1.0) + self._n_tiles * (passed + starts)
        if self._cut_rows:
            outside = model.outside_bytes((*self.roots, *producers)) / memory.read[Level.MEMORY]
            cycles += self._cut_rows * outside + max(0.0, self._filled - max(0.0, costs.busy * (self._work + total) - outside))
        return Estimate(0.0, cycles, extra / total if total else 0.0, 0, alive)

    def _alive(self, producers: Sequence[Statement], buffers: Mapping[str, int]) -> int:
        """Bytes of the buffers that are alive at the same time: others take turns with the same memory (`share_workspace`),
        where tiles are iterations of one loop, whose threads share them out."""
        if not self._is_one_loop:
            return sum(buffers.values())
        steps = [*reversed(producers), *self.roots]
        last = {site.read.tensor: n for n, s in enumerate(steps) for site in self.model.sites[s.name]}
        alive = most = 0
        for n, s in enumerate(steps):
            alive += buffers.get(s.target, 0)
            most = max(most, alive)
            alive -= sum(size for tensor, size in buffers.items() if last.get(tensor) == n)
        return most

    def _share(self, p: Statement, before: Sequence[Statement]) -> _Share:
        """`before`: the producers up to `p`, among which all are that read it."""
        model = self.model
        extents = model.box_extents(self.boxes[p.target], p.target)
        volume, shape = prod(extents), model.shape(p.target)
        is_kept = not is_followed(p, (*self.roots, *before), model.sites)
        trips = model.trips(p)
        depth, work = prod(trips[i] for i in p.reduction_indices), model.work(p)
        once = prod(shape) * depth * work
        again = max(0.0, self._n_tiles * volume / prod(shape) - 1)
        outer = {site.read.tensor for site in model.sites[p.name]}
        return _Share(
            volume * model.dtype(p.target).itemsize if is_kept else 0,
            max(0.0, self._n_tiles * volume * depth * work - once),
            once,
            model.row_starts(p, extents, p.left_indices),
            {t: again * model.bytes(t) / model.target.memory.read[Level.L3] for t in sorted(outer)},
            model.rows_read(p, extents, p.left_indices),
            model.window_cycles(p, extents[-1] if extents else None),
            self._n_tiles * volume * depth * model.tests(p) if self._is_cut else 0.0,
        )


def is_followed(p: Statement, readers: Sequence[Statement], sites: Sites) -> bool:
    """Whether all that read a producer follow it element by element: loops that they share keep it in a line."""
    for s in readers:
        found = {site.read for site in sites[s.name] if site.read.tensor == p.target}
        for read in found:
            moving = [index_coefficients(sub) or {} for sub in read.subscripts]
            named = [i for form in moving for i in form]
            is_plain = all(len(form) == 1 and abs(*form.values()) == 1 for form in moving)
            if len(found) > 1 or not is_plain or len(set(named)) < len(named) or not set(named) <= set(s.left_indices):
                return False
    return True
