"""Compute producers tile by tile of their consumer, twice where tiles overlap, instead of storing them whole.

Before: ``R = blur(X) along x ; Y = blur(R) along y``, where R goes through memory.  After: for every tile of Y the rows of R
that it needs, in a buffer of the tile (`overlap_rewrite`).  For graphs of stencils, pointwise statements, pooling and
convolutions whose reads have boxes of constant size (`overlap_boxes`), wherever `overlap_costs` finds the traffic that is
saved dearer than what is computed again ("overlapped tiling": Krishnamoorthy et al., PLDI 2007; Halide's ``compute_at``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product

from polyc.code_limits import MARGIN, MINIMUM_ITERATIONS, powers
from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Index, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.ir.read_sites import collect_reads
from polyc.machine import Machine
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.overlap.overlap_boxes import Box, Boxes, Root, moves_with_all, tile_boxes, tile_name
from polyc.scheduler.rewriting.overlap.overlap_costs import Estimate, Model, Trial
from polyc.scheduler.rewriting.overlap.overlap_rewrite import Cluster, store_apart, tile_cluster
from polyc.scheduler.rewriting.rules.analysis import writes_whole

ROW_SIZES = powers(128, 2048)[::-1]
"""Sizes that are tried along the rows of memory, besides whole rows and short ones."""

SIZES = powers(4, 128)[::-1]
"""Sizes that are tried across them."""

PROBE = 16
"""A size to find out what boxes tiles have at all."""

MAX_PRODUCERS = 32
"""Most statements that a tile computes for its consumers: what is tried for each stays bounded, however long a program."""


class _Graph:
    """Who writes and who reads each version of a tensor, found once for each form of the program."""

    def __init__(self, program: Program, ranges: Ranges, target: Machine) -> None:
        self.program, self.ranges, self.target = program, ranges, target
        self.statements = {s.name: s for s in program.statements}
        self.writers = program.writers()
        self.sites = {s.name: _collect_reads(s) for s in program.statements}
        self.readers: dict[str, set[str]] = {}
        for name, sites in self.sites.items():
            for site in sites:
                self.readers.setdefault(site.read.tensor, set()).add(name)
        self.model = Model(program, ranges, target, self.sites)

    def reads(self, names: Iterable[str]) -> set[str]:
        """The tensors that statements read."""
        return {site.read.tensor for n in names for site in self.sites[n]}


_collect_reads = lru_cache(maxsize=256)(collect_reads)


def overlap_tiles(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Overlapped tiling: producers are computed a tile at a time."""
    remarks: list[Remark] = []
    done: set[str] = set()
    graph = _Graph(program, ranges, target)
    for name in [s.name for s in reversed(program.statements)]:
        s = graph.statements[name]
        if name in done or not _is_eligible(s, graph, as_producer=False):
            continue
        found = _best_cluster(s, graph, done)
        if found is None:
            continue
        cluster, estimate, (program_then, ranges_then) = found
        result = tile_cluster(program_then, ranges_then, cluster)
        if result is None:
            remarks.append(Remark("missed", "overlap", "not proved that a tile computes all that it reads", name, s.span))
            continue
        graph = _Graph(*result, target)
        done |= {x.name for x in cluster.statements}
        remarks.append(Remark("passed", "overlap", _describe(cluster, estimate, program_then), name, s.span))
    return graph.program, graph.ranges, remarks


def is_faster(tiled: float, whole: float) -> bool:
    """Whether tiles are worth it, by cycles of both."""
    return tiled < MARGIN * whole


def _describe(cluster: Cluster, estimate: Estimate, program: Program) -> str:
    names = ", ".join(dict.fromkeys(program.tensor(p.target).base for p in cluster.producers))
    tile = " x ".join(f"{i} {size}" for i, size in cluster.sizes.items())
    return (
        f"{names} in tiles of {tile}, {estimate.buffer_bytes} bytes: {100 * estimate.recomputed:.0f} % computed again; "
        f"about {estimate.tiled:.2g} cycles instead of {estimate.whole:.2g} for {estimate.saved_bytes} bytes"
    )


def _is_eligible(s: Statement, graph: _Graph, *, as_producer: bool) -> bool:
    """Whether a statement can be cut into tiles."""
    if graph.ranges.statements[s.name].guards or any(r.tensor == s.target for r in reads(s.value)):
        return False
    if s.reduction is not None and (s.reduction.monoid is not None or reads(s.reduction.init)):
        return False
    if any(reads(e) for e in s.subscripts):
        return False
    if as_producer or s.reduction is not None:
        return s.has_plain_left and len(graph.writers[s.target]) == 1 and (as_producer or writes_whole(s, graph.ranges))
    return True


def _producers(roots: Sequence[Statement], graph: _Graph, done: set[str]) -> list[Statement]:
    """What could be computed for tiles of `roots`: temporaries that nothing else reads, readers before their producers."""
    members, found = {s.name for s in roots}, []
    queue = deque(roots)
    while queue:
        s = queue.popleft()
        for tensor in dict.fromkeys(site.read.tensor for site in graph.sites[s.name]):
            p = graph.writers[tensor][-1] if graph.writers.get(tensor) else None
            if p is None or p.name in members or p.name in done or not graph.readers[tensor] <= members:
                continue
            if graph.program.tensor(tensor).role == "temporary" and _is_eligible(p, graph, as_producer=True):
                members.add(p.name)
                found.append(p)
                queue.append(p)
                if len(found) == MAX_PRODUCERS:
                    return found
    return found


def _companions(root: Statement, graph: _Graph, done: set[str]) -> list[Statement]:
    """Other consumers, of the same extents, of what `root` and its producers read, where neither needs the other."""
    roots = [root]
    while True:
        members = {s.name for s in (*roots, *_producers(roots, graph, done))}
        near = (
            {n for t in graph.reads(members) if graph.program.tensor(t).role == "temporary" for n in graph.readers[t]}
            - members
            - done
        )
        fitting = [
            s
            for s in graph.program.statements
            if s.name in near
            and s.reduction is None
            and _is_eligible(s, graph, as_producer=False)
            and _same_extents(root, s, graph.ranges)
            and not _depends([s.name], members, graph)
            and not _depends(members, {s.name}, graph)
        ]
        if not fitting:
            return roots[1:]
        roots.append(fitting[0])


def _same_extents(a: Statement, b: Statement, ranges: Ranges) -> bool:
    ours, theirs = ranges.statements[a.name].indices, ranges.statements[b.name].indices
    return [ours[i] for i in a.left_indices] == [theirs[i] for i in b.left_indices]


def _depends(names: Iterable[str], others: set[str], graph: _Graph) -> bool:
    """Whether a statement of `names` needs values of `others`, directly or not."""
    seen: set[str] = set()
    queue = list(names)
    while queue:
        for tensor in graph.reads([queue.pop()]) - seen:
            seen.add(tensor)
            writers = {w.name for w in graph.writers.get(tensor, ())}
            if writers & others:
                return True
            queue += writers
    return False


def _best_cluster(s: Statement, graph: _Graph, done: set[str]) -> tuple[Cluster, Estimate, tuple[Program, Ranges]] | None:
    if not any(graph.program.tensor(t).role == "temporary" for t in graph.reads([s.name])):
        return None
    root = s
    if s.reduction is not None:
        program, ranges, root = store_apart(graph.program, graph.ranges, s)
        graph = _Graph(program, ranges, graph.target)
    best: tuple[float, Cluster, Estimate] | None = None
    companions = _companions(root, graph, done)
    for others in [companions, []] if companions else [[]]:
        statements = [root, *others]
        producers = _producers(statements, graph, done)
        for indices in _index_sets(root, producers, graph) if producers else ():
            roots = tuple(Root(r, dict(zip(r.left_indices, root.left_indices, strict=True))) for r in statements)
            roots = tuple(replace(r, tiles={i: t for i, t in r.tiles.items() if t in indices}) for r in roots)
            for found in _clusters(roots, producers, indices, graph.model):
                if best is None or found[0] < best[0]:
                    best = found
        if best is not None:
            break
    return None if best is None else (best[1], best[2], (graph.program, graph.ranges))


def _clusters(
    roots: tuple[Root, ...], producers: Sequence[Statement], indices: tuple[str, ...], model: Model
) -> Iterator[tuple[float, Cluster, Estimate]]:
    """Clusters that are faster in tiles, with the cycles that they take less (negative).

    Tried are the nearest producer, the nearest two, and so on.  What a tile needs of a producer follows from its readers, which
    come before it: so the boxes for all of them hold for each part, and are found once for each size."""
    probe = dict.fromkeys(indices, PROBE)
    chain, probed = _bounded(roots, producers, probe, model)
    tried: dict[tuple[int, ...], Trial] = {}
    statements = [r.statement for r in roots]
    overlapping: list[Statement] = []
    whole = sum(map(model.window_cycles, statements))
    for n, p in enumerate(chain, 1):
        whole += model.window_cycles(p)
        if not _overlaps(probed[p.target]):
            continue
        part = chain[:n]
        overlapping.append(p)
        whole += model.whole(p, _shared_dimensions(probed[p.target]))
        if not is_faster(0.0, whole):
            continue
        for sizes in _sizes(roots[0].statement, indices, _halos(part, probed, indices), model):
            key = tuple(sizes.values())
            if key not in tried:
                boxes = tile_boxes(roots, chain, sizes, model.ranges, model.sites)
                assert boxes is not None
                tried[key] = Trial(model, statements, sizes, boxes)
            trial = tried[key]
            estimate = trial.estimate(part)
            if estimate is not None and is_faster(estimate.tiled, whole):
                volume = sum(model.bytes(q.target) for q in overlapping)
                estimate = replace(estimate, whole=whole, saved_bytes=volume)
                own = {q.target: trial.boxes[q.target] for q in part}
                yield estimate.tiled - whole, Cluster(roots, tuple(part), sizes, own), estimate


def _index_sets(root: Statement, producers: Sequence[Statement], graph: _Graph) -> Iterator[tuple[str, ...]]:
    """Sets of indices of `root` to tile: all that move a producer, then without the innermost ones."""
    targets = {p.target for p in producers}
    moving: set[str] = set()
    for site in graph.sites[root.name]:
        if site.read.tensor in targets:
            for sub in site.read.subscripts:
                moving |= set(index_coefficients(sub) or ())
    own = graph.ranges.statements[root.name].indices
    left = [i for i in root.left_indices if i in moving and own[i].extent != Const(1)]
    for n in range(len(left), 0, -1):
        yield tuple(left[:n])


def _bounded(
    roots: Sequence[Root], producers: Sequence[Statement], sizes: dict[str, int], model: Model
) -> tuple[list[Statement], Boxes]:
    """Those of `producers` that are another part for every tile, with nothing between them and the roots that is not.

    Also the boxes of their tensors in tiles of `sizes`."""
    kept: list[Statement] = []
    left_out: set[str] = set()
    """What is not wanted in tiles: tensors that such statements write or read."""
    boxes = tile_boxes(roots, producers, sizes, model.ranges, model.sites)
    for p in producers if boxes is not None else ():
        assert boxes is not None
        tiles = map(tile_name, sizes)
        if p.target not in left_out and p.target in boxes and moves_with_all(boxes[p.target], tiles):
            kept.append(p)
        else:
            left_out |= {p.target, *(site.read.tensor for site in model.sites[p.name])}
    return kept, {} if boxes is None else boxes


def _overlaps(boxes: Sequence[Box | None]) -> bool:
    """Whether the boxes of a tensor are larger than the tile (of `PROBE`), so that its reader does not follow at once."""
    return any(box is not None and box.extent != PROBE for box in boxes)


def _halos(part: Sequence[Statement], boxes: Boxes, indices: Sequence[str]) -> dict[str, bool]:
    """By index of the consumer, whether some box along it is no tile of it."""
    found = dict.fromkeys(indices, False)
    for box in (box for p in part for box in boxes[p.target] if box is not None and box.extent != PROBE):
        for i in indices:
            found[i] = found[i] or box.depends_on(tile_name(i))
    return found


def _shared_dimensions(boxes: Sequence[Box | None]) -> frozenset[int]:
    """Outermost dimensions of a producer along which a loop over it and its reader could do without tiles."""
    ends = (d for d, box in enumerate(boxes) if box is None or box.extent != PROBE)
    return frozenset(range(min(next(ends, len(boxes)), len(boxes) - 1)))


def _sizes(root: Statement, indices: Sequence[str], halos: dict[str, bool], model: Model) -> Iterator[dict[str, int]]:
    """Tile sizes to try: along rows, across them, and single iterations where neighbouring ones share nothing."""
    trips = model.trips(root)
    last = {e.name for e in root.subscripts[-1:] if isinstance(e, Index)}
    choices: list[tuple[int, ...]] = []
    for i in indices:
        if i in last:
            tried = (*ROW_SIZES, model.short_row(root))
            choices.append(tuple(n for n in tried if n < trips[i]) or (trips[i],))
        elif halos[i]:
            fitting = [n for n in SIZES if n < trips[i]] or [trips[i]]
            shared = [n for n in fitting if trips[i] >= n * MINIMUM_ITERATIONS]
            choices.append(tuple(shared or fitting[-1:]) if i == indices[0] else tuple(fitting))
        else:
            choices.append((1,))
    for sizes in product(*choices):
        yield dict(zip(indices, sizes, strict=True))
