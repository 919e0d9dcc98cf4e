"""Traffic and recomputation: what it costs, in cycles of one core, to compute producers whole or tile by tile.

Whole: a producer is written and read again through the level that holds what lies between (`traffic`).  In tiles: it stays in
a buffer of one tile, but what neighbouring tiles both need is computed twice, and every row of a tile starts loops and streams
anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, inf, prod

from polyc import code_limits
from polyc.ir.expr import Expr, Index, Select, index_names, reads, walk
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import collect_reads
from polyc.ir.simplify import constant_of
from polyc.machine import Level, Machine
from polyc.machine.memory import LINE
from polyc.poly.footprints import Boxes, collect_accesses, index_boxes, root_boxes, widen_boxes
from polyc.poly.ranges import Ranges, estimate_extent
from polyc.records import dataclass
from polyc.scheduler.accesses import operation_weight
from polyc.scheduler.traffic import carries_sums, find_level, pass_cycles

UNKNOWN_EXTENT = 4 * code_limits.UNKNOWN_EXTENT
"""Extent assumed of a dimension of unknown size: buffers of tiles must still fit where it is long."""

_collect_reads = lru_cache(maxsize=256)(collect_reads)
_collect_accesses = lru_cache(maxsize=256)(lambda s: collect_accesses(_collect_reads(s)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles on one core; `recomputed`: part of the producers' work that is done more than once."""

    whole: float
    tiled: float
    recomputed: float
    saved_bytes: int
    buffer_bytes: int
    """Of what is alive at the same time in a tile."""


class Model:
    """Who writes and reads each tensor, and what estimates ask of a program: extents are estimated where they are symbolic."""

    def __init__(self, program: Program, ranges: Ranges, target: Machine) -> None:
        self.program, self.ranges, self.target = program, ranges, target
        self.statements = {s.name: s for s in program.statements}
        self.writers = program.writers()
        self.sites = {s.name: _collect_reads(s) for s in program.statements}
        self.accesses = {s.name: _collect_accesses(s) for s in program.statements}
        self.read = {name: set(tensors) for name, tensors in self.accesses.items()}
        """The tensors that a statement reads."""
        self.readers: dict[str, set[str]] = {}
        for name, read in self.read.items():
            for tensor in read:
                self.readers.setdefault(tensor, set()).add(name)
        self._shapes = {t: [self.extent(i.extent) for i in shape] for t, shape in ranges.tensors.items()}
        own = ranges.statements
        self._trips = {s.name: {i: self.extent(own[s.name].indices[i].extent) for i in s.indices} for s in program.statements}
        self._work: dict[str, float] = {}
        self._tests: dict[str, float] = {}
        self._followed: dict[str, bool] = {}
        self._needed: dict[str, set[str]] = {}
        self._windows: dict[str, dict[str, tuple[int, set[str], int]]] = {}

    def reads(self, names: Iterable[str]) -> set[str]:
        """The tensors that statements read."""
        return set().union(*(self.read[n] for n in names))

    def needs(self, names: Iterable[str], others: set[str]) -> bool:
        """Whether a statement of `names` needs values of `others`, directly or not."""
        return any(not self._find_needed(name).isdisjoint(others) for name in names)

    def _find_needed(self, name: str) -> set[str]:
        if name not in self._needed:
            queue, seen = [name], set[str]()
            while queue:
                more = {w.name for t in self.read[queue.pop()] for w in self.writers.get(t, ())} - seen
                seen |= more
                queue += more
            self._needed[name] = seen
        return self._needed[name]

    def is_temporary(self, tensor: str) -> bool:
        return self.program.tensor(tensor).role == "temporary"

    def extent(self, expr: Expr) -> int:
        known = estimate_extent(expr, self.ranges.typical)
        return max(1, (UNKNOWN_EXTENT if known is None else known))

    def trips(self, s: Statement) -> Mapping[str, int]:
        return self._trips[s.name]

    def shape(self, tensor: str) -> list[int]:
        return self._shapes[tensor]

    def itemsize(self, tensor: str) -> int:
        return self.program.tensor(tensor).dtype.itemsize

    def bytes(self, tensor: str) -> int:
        return prod(self.shape(tensor)) * self.itemsize(tensor)

    def operations(self, s: Statement) -> float:
        """Operations that a cycle has room for: two of whole vectors."""
        return 2.0 * self.target.lanes(self.itemsize(s.target))

    def work(self, s: Statement) -> float:
        """Cycles of one point: a load that straddles two lines counts as two."""
        if s.name not in self._work:
            n_loads = len({site.read for site in self.sites[s.name]})
            self._work[s.name] = (1 + operation_weight(s.value) + 1.5 * n_loads) / self.operations(s)
        return self._work[s.name]

    def tests(self, s: Statement) -> float:
        """Cycles of one point to test where it is in its row."""
        if s.name not in self._tests:
            last = index_names(*s.subscripts[-1:])
            conditions = (n.condition for n in walk(s.value) if isinstance(n, Select) and not reads(n.condition))
            found = [sum(isinstance(e, Index) and e.name in last for e in walk(c)) for c in conditions]
            self._tests[s.name] = self.target.overlap.test * sum(n + 1 for n in found if n) / self.operations(s)
        return self._tests[s.name]

    def whole(self, s: Statement, n_shared: int) -> float:
        """Cycles to write all parts of a tensor and to read it again; `n_shared`: outer dimensions that readers follow at once.

        What they read passes meanwhile, too."""
        touched = sum(map(self.bytes, self.reads(part.name for part in self.writers[s.target]) | {s.target}))
        return pass_cycles(self.bytes(s.target), touched / prod(self.shape(s.target)[:n_shared]), self.target)

    # -- in tiles
    def short_row(self, s: Statement) -> int:
        """Elements of a row that is expanded."""
        costs = self.target.overlap
        return min(costs.short_row, costs.short_row_vectors * self.target.vector_bits // 8) // self.itemsize(s.target)

    def row_starts(self, s: Statement, extents: Sequence[int]) -> float:
        """Cycles to start the rows of a tile, with the streams from outside that they read."""
        if not extents:
            return 0.0
        last, left = set[str]().union(*(last for _, last, _ in self.windows(s).values())), s.left_indices
        inner = next((n for n in reversed(range(len(left))) if left[n] in last), len(left) - 1)
        rows = prod(n for d, n in enumerate(extents) if d != inner)
        # A sum takes what is beyond its register tile in parts; others have one vector more.
        short = self.short_row(s)
        if extents[inner] <= (short if s.reduction is not None else short + short // 8):
            return rows * self.target.loops.short_row_start
        n_inputs = sum(not self.is_temporary(t) for t in self.read[s.name])
        return rows * (self.target.loops.row_start + self.target.prefetchers.start * n_inputs)

    def cut_rows(self, root: Statement, sizes: Mapping[str, int]) -> tuple[float, float]:
        """What is lost because tiles hold parts of the rows of a result: a part of the time of arrays from outside, and cycles
        of that result, lines of which are read before they are filled."""
        trips, last = self.trips(root), index_names(*root.subscripts[-1:])
        cut = [size for i, size in sizes.items() if i in last and size < trips[i]]
        if not cut:
            return 0.0, 0.0
        if min(cut) > self.short_row(root):
            return self.target.overlap.cut_rows, 0.0
        size = 0 if self.is_temporary(root.target) else self.bytes(root.target)
        row = constant_of(self.ranges.tensors[root.target][-1].extent)
        # Tiles may be moved along the rows of a result to where its lines begin (`align_tiles`).
        is_movable = row is not None and row % min(cut) == 0 and min(cut) * self.itemsize(root.target) % LINE == 0
        is_filled = self.target.is_streamed(size, size) and not is_movable
        return self.target.overlap.cut_short_rows, size / self.target.memory.filled if is_filled else 0.0

    def window_cycles(self, s: Statement, row: int | None = None) -> float:
        """Cycles in which a whole statement reads rows again that a window needs, from the cache that holds those of all
        windows; `row`: elements of the rows of a tile, at most.  Of products, whose register tiles share all that they read, it
        is the arithmetic, beside which what tiles save has to count."""
        trips, windows = self.trips(s), self.windows(s).values()
        if s.reduction is not None and all(n < prod(trips[i] for i in s.left_indices) for _, _, n in windows):
            return prod(trips.values()) * (1 + operation_weight(s.value)) / self.operations(s)
        held = again = 0.0
        for tensor, (n_rows, _, n_points) in self.windows(s).items():
            shape, size = self.shape(tensor), self.itemsize(tensor)
            held += n_rows * min(shape[-1], row or shape[-1]) * size if shape else 0
            again += (n_rows - 1) * n_points * size
        return again / self.target.memory.read[find_level(held, self.target)]

    def windows(self, s: Statement) -> dict[str, tuple[int, set[str], int]]:
        """Of each tensor, the rows that one point of a statement reads, the indices along its memory, and for how many points
        it reads other elements: the others share what a register tile holds (a matrix product reads no rows of it again)."""
        if s.name not in self._windows:
            trips, found = self.trips(s), dict[str, list[tuple[Expr, ...]]]()
            for site in self.sites[s.name]:
                found.setdefault(site.read.tensor, []).append(site.read.subscripts)
            self._windows[s.name] = {}
            for tensor, reads_of in found.items():
                rows = {subscripts[:-1] for subscripts in reads_of}
                moving = index_names(*(e for row in rows for e in row))
                last = index_names(*(e for read in reads_of for e in read[-1:]))
                n_rows = len(rows) * prod(trips[i] for i in s.reduction_indices if i in moving)
                n_points = prod(trips[i] for i in s.left_indices if i in moving | last)
                self._windows[s.name][tensor] = n_rows, last, n_points
        return self._windows[s.name]

    def rows_read(self, s: Statement, extents: Sequence[int]) -> dict[str, int]:
        """Rows of each tensor that a tile of a statement reads, about: along each dimension its own and those of a window."""
        sizes, trips, rows = dict(zip(s.left_indices, extents, strict=False)), self.trips(s), dict[str, int]()
        for tensor, along in self.accesses[s.name].items():
            rows[tensor] = 1
            for runs in along[:-1]:
                forms = [{t.name for t in form if isinstance(t, Index)} for form, _, _ in runs if form is not None]
                moving = set[str]().union(*forms)
                window = sum(1 + span for _, span, _ in runs) * prod(trips[i] for i in moving if i in s.reduction_indices)
                rows[tensor] *= prod(n for i, n in sizes.items() if i in moving) + window - 1
        return rows

    def is_followed(self, p: Statement) -> bool:
        """Whether all that read a producer follow it element by element: loops that they share keep it in a line."""
        if p.name not in self._followed:
            readers = map(self.statements.__getitem__, self.readers[p.target])
            self._followed[p.name] = self.is_whole(p) and all(self._follows(s, p.target) for s in readers)
        return self._followed[p.name]

    def is_whole(self, p: Statement) -> bool:
        """Whether a statement alone writes a tensor, element by element."""
        return p.has_plain_left and len(self.writers[p.target]) == 1

    def _follows(self, s: Statement, tensor: str) -> bool:
        read, *others = {site.read for site in self.sites[s.name] if site.read.tensor == tensor}
        moving = [] if others else [index_coefficients(e) or {} for e in read.subscripts]
        named = [i for form in moving for i in form]
        is_plain = all(len(form) == 1 and abs(*form.values()) == 1 for form in moving)
        return not others and is_plain and len(set(named)) == len(named) and set(named) <= set(s.left_indices)

    def outside_bytes(self, statements: Sequence[Statement]) -> int:
        """Bytes of the arrays that come from memory or go there."""
        made = {s.target for s in statements if self.is_temporary(s.target)}
        return sum(map(self.bytes, (self.reads(s.name for s in statements) | {s.target for s in statements}) - made))


class Trial:
    """Consumers in tiles of given sizes, with more and more of their producers inside: what each adds is found once."""

    def __init__(
        self, model: Model, roots: Sequence[Statement], targets: Collection[str], sizes: Mapping[str, int], lost: float
    ) -> None:
        """`targets`: the tensors that may be inside; `lost`: cycles that tiles cost beside what is found here."""
        self.model, self.roots, self.boxes = model, roots, Boxes()
        self._targets, self._places = targets, root_boxes(roots, sizes, model.ranges)
        trips = model.trips(roots[0])
        n_tiles = [ceil(trips[i] / size) for i, size in sizes.items()]
        self._n_tiles, self._is_one_loop = prod(n_tiles), all(n == 1 for n in n_tiles[1:])
        cut = [model.cut_rows(root, sizes) for root in roots]
        self._cut_rows, self._lost = max(part for part, _ in cut), lost + sum(cycles for _, cycles in cut)
        self._is_short = any(part == model.target.overlap.cut_short_rows for part, _ in cut)
        self._inside: list[Statement] = []
        self._buffers: dict[str, int] = {}
        """Bytes by tensor."""
        self._is_too_large = False
        self._steps: dict[str, set[int]] = {}
        """Dimensions of buffers along which sums go in order with what they add up: room for one step is enough."""
        self._passes: dict[str, int] = {}
        """How often a tile passes over a buffer, if that is more than once."""
        self._sums: set[str] | None = set()
        """The sums that go in order; None where they cannot, as some need each other."""
        self._starts = self._others = self._work = self._again = 0.0
        """Cycles to start the rows of each tile; of windows and tests of borders; to compute producers once; and what tiles
        compute more than once."""
        self._rows: dict[str, int] = {}
        """What a tile reads of each tensor."""
        self._outer: dict[str, float] = {}
        """Cycles to read again what producers read of each tensor."""
        inside = [min(sizes.get(i, trips[i]), trips[i]) for i in roots[0].left_indices]
        for root in roots:
            self._add(root, inside, prod(model.trips(root).values()))

    def estimate(self, producers: Sequence[Statement], whole: float, saved_bytes: int) -> Estimate | None:
        """Cycles beyond those of the same statements without tiles and without the producers' traffic, which take `whole`.

        `producers`: readers before those they read, those of the last time in front.  None where the buffers fit no cache of a
        core."""
        if self._is_too_large:
            return None
        for p in producers[len(self._inside) :]:
            self._add_producer(p)
        target, alive = self.model.target, self._alive()
        footprint = target.overlap.beside * alive
        if find_level(footprint, target) > Level.L2:
            self._is_too_large = True  # with more of them, too
            return None
        cycles = self.least + sum(c for t, c in self._outer.items() if t not in self._buffers)
        passed = sum(size * self._passes.get(t, 1) for t, size in self._buffers.items())
        cycles += self._n_tiles * pass_cycles(passed, footprint, target)
        if self._is_short:
            n_rows = sum(n for t, n in self._rows.items() if t not in self._buffers)
            cycles += self._n_tiles * target.prefetchers.lost_row * max(0, n_rows - target.prefetchers.streams)
        if self._cut_rows:
            outside = self.model.outside_bytes((*self.roots, *producers))
            cycles += self._cut_rows * outside / target.memory.read[Level.MEMORY]
        return Estimate(whole, cycles, self._again / self._work if self._work else 0.0, saved_bytes, alive)

    @property
    def least(self) -> float:
        """Cycles that all estimates from now on have at least; infinite where the buffers fit no cache any more."""
        if self._is_too_large:
            return inf
        again = self._again * (self.model.target.overlap.recomputed if self._is_short else 1.0)
        return self._n_tiles * self._starts + self._others + again + self._lost

    def _alive(self) -> int:
        """Bytes of the buffers that are alive at the same time: others take turns with the same memory (`share_workspace`),
        where tiles are iterations of one loop, whose threads share them out."""
        if not self._is_one_loop:
            return sum(self._buffers.values())
        steps = [*reversed(self._inside), *self.roots]
        last = {tensor: s.name for s in steps for tensor in self.model.read[s.name]}
        done = dict.fromkeys(last.values(), 0)
        for tensor, size in self._buffers.items():
            done[last[tensor]] += size
        alive, most, waiting = 0, 0, dict(self._buffers)
        for s in steps:
            alive += waiting.pop(s.target, 0)
            most = max(most, alive)
            alive -= done.get(s.name, 0)
        return most

    # -- one statement more
    def _add(self, s: Statement, extents: Sequence[int], points: int) -> None:
        """A statement with tiles of these extents; `points`: those of all tiles."""
        model = self.model
        widen_boxes(self.boxes, s, self._targets, self._places, model.ranges, model.accesses)
        self._starts += model.row_starts(s, extents)
        self._others += model.window_cycles(s, extents[-1] if extents else None)
        self._others += points * model.tests(s) if self._cut_rows else 0.0
        for tensor, n in model.rows_read(s, extents).items():
            self._rows[tensor] = max(self._rows.get(tensor, 0), n)

    def _add_producer(self, p: Statement) -> None:
        model, trips, shape, extents = self.model, self.model.trips(p), self.model.shape(p.target), self._extents(p)
        self._inside.append(p)
        if model.is_whole(p):
            self._find_steps(p, extents)
        else:  # the points of a part
            inside, shape = index_boxes(p, {}, self.boxes), [trips[i] for i in p.left_indices]
            extents = [min(trips[i], inside[i].extent) if i in inside else trips[i] for i in p.left_indices]
        self._buffers[p.target] = self._buffer(p)
        volume, depth = self._n_tiles * prod(extents), prod(trips[i] for i in p.reduction_indices)
        points, once = volume * depth, prod(shape) * depth
        self._add(p, extents, points)
        self._work += once * model.work(p)
        self._again += max(0, points - once) * model.work(p)
        again = max(0.0, volume / prod(shape) - 1) / model.target.memory.read[Level.L3]
        for t in model.read[p.name]:
            self._outer[t] = self._outer.get(t, 0.0) + again * model.bytes(t)

    def _extents(self, p: Statement) -> list[int]:
        pairs = zip(self.model.shape(p.target), self.boxes[p.target], strict=True)
        return [min(n, box.extent) if box is not None else n for n, box in pairs]

    def _buffer(self, p: Statement) -> int:
        held = prod(n for d, n in enumerate(self._extents(p)) if d not in self._steps.get(p.target, ()))
        return 0 if self.model.is_followed(p) else held * self.model.itemsize(p.target)

    def _find_steps(self, p: Statement, extents: Sequence[int]) -> None:
        model, whole = self.model, {d for d, box in enumerate(self.boxes[p.target]) if box is None}
        if self._sums is None or not whole:
            return
        sites = [
            (s, site.read) for s in map(model.statements.__getitem__, model.readers[p.target]) for site in model.sites[s.name]
        ]
        readers = [(s, read.subscripts) for s, read in sites if read.tensor == p.target]
        steps = {d for d in whole if all(self._is_step(s, subscripts[d]) for s, subscripts in readers)}
        size, n_steps = model.itemsize(p.target), prod(extents[d] for d in steps)
        own = {s.name: s for s, subscripts in readers if any(_sums_over(s, subscripts[d]) for d in steps)}
        carried = sum(prod(self._extents(s)) * model.itemsize(s.target) for s in own.values())
        stored = prod(extents) * size
        if n_steps > 1 and (not own or carries_sums(stored, stored * len(own), n_steps, carried, model.target)):
            self._sums |= own.keys()
            self._steps[p.target] = steps
            self._passes |= dict.fromkeys((p.target, *(s.target for s in own.values())), n_steps)
            if model.needs([q.name for q in self._inside if q.target in self._steps], self._sums):
                self._sums, self._steps, self._passes = None, {}, {}
                self._buffers = {q.target: self._buffer(q) for q in self._inside}

    def _is_step(self, s: Statement, e: Expr) -> bool:
        return _sums_over(s, e) or any(s.subscripts[d] == e for d in self._steps.get(s.target, ()))


def _sums_over(s: Statement, e: Expr) -> bool:
    return isinstance(e, Index) and e.name in s.reduction_indices
