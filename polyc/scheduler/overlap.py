"""Compute producers tile by tile of their consumer, twice where tiles overlap, instead of storing them whole.

Before: ``R = blur(X) along x ; Y = blur(R) along y``, where R goes through memory.  After: for every tile of Y the rows of R
that it needs, in a buffer of the tile (`overlap_rewrite`).  For graphs of stencils, pointwise statements, pooling and
convolutions whose reads have boxes of constant size (`overlap_boxes`), wherever `overlap_costs` finds the traffic that is
saved dearer than what is computed again ("overlapped tiling": Krishnamoorthy et al., PLDI 2007; Halide's ``compute_at``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from polyc.diagnostics import Remark
from polyc.ir.expr import Const, Index, reads
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Program, Statement
from polyc.poly.ranges import Ranges
from polyc.poly.reads import collect_reads
from polyc.scheduler.overlap_boxes import Box, Boxes, Root, moves_with_all, tile_boxes, tile_name
from polyc.scheduler.overlap_costs import Estimate, Model
from polyc.scheduler.overlap_rewrite import Cluster, store_apart, tile_cluster
from polyc.scheduler.parallel import MINIMUM_ITERATIONS
from polyc.target import Target

ROW_SIZES = (2048, 1024, 512, 256, 128)
"""Sizes that are tried along the rows of memory, besides whole rows."""

SIZES = (128, 64, 32, 16, 8, 4)
"""Sizes that are tried across them."""

PROBE = 16
"""A size to find out what boxes tiles have at all."""

MARGIN = 0.9
"""Part of the cost of whole producers below which tiles must stay."""


def overlap_tiles(program: Program, ranges: Ranges, target: Target) -> tuple[Program, Ranges, list[Remark]]:
    """Tile consumers of stencils together with their producers, where that is estimated to be faster."""
    remarks: list[Remark] = []
    done: set[str] = set()
    for name in [s.name for s in reversed(program.statements)]:
        s = next(s for s in program.statements if s.name == name)
        if name in done or not _is_eligible(s, program, ranges, as_producer=False):
            continue
        found = _best_cluster(s, program, ranges, target, done)
        if found is None:
            continue
        cluster, estimate, (program_then, ranges_then) = found
        result = tile_cluster(program_then, ranges_then, cluster)
        if result is None:
            remarks.append(Remark("missed", "overlap", "not proved that a tile computes all that it reads", name, s.span))
            continue
        program, ranges = result
        done |= {x.name for x in cluster.statements}
        remarks.append(Remark("passed", "overlap", _describe(cluster, estimate, program_then), name, s.span))
    return program, ranges, remarks


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


def _is_eligible(s: Statement, program: Program, ranges: Ranges, *, as_producer: bool) -> bool:
    """Whether a statement can be cut into tiles."""
    if ranges.statements[s.name].guards or any(r.tensor == s.target for r in reads(s.value)):
        return False
    if s.reduction is not None and (s.reduction.monoid is not None or reads(s.reduction.init)):
        return False
    if any(reads(e) for e in s.subscripts):
        return False
    if as_producer or s.reduction is not None:
        return s.has_plain_left and sum(w.target == s.target for w in program.statements) == 1
    return True


def _producers(roots: Sequence[Statement], program: Program, ranges: Ranges, done: set[str]) -> list[Statement]:
    """What could be computed for tiles of `roots`: temporaries that nothing else reads, readers before their producers."""
    writer = {s.target: s for s in program.statements}
    readers = _readers(program)
    members, found = {s.name for s in roots}, []
    queue = list(roots)
    while queue:
        s = queue.pop(0)
        for tensor in dict.fromkeys(site.read.tensor for site in collect_reads(s)):
            p = writer.get(tensor)
            if p is None or p.name in members or p.name in done or not readers[tensor] <= members:
                continue
            if program.tensor(tensor).role == "temporary" and _is_eligible(p, program, ranges, as_producer=True):
                members.add(p.name)
                found.append(p)
                queue.append(p)
    return found


def _readers(program: Program) -> dict[str, set[str]]:
    readers: dict[str, set[str]] = {}
    for s in program.statements:
        for site in collect_reads(s):
            readers.setdefault(site.read.tensor, set()).add(s.name)
    return readers


def _companions(root: Statement, program: Program, ranges: Ranges, done: set[str]) -> list[Statement]:
    """Other consumers, of the same extents, of what `root` and its producers read, where neither needs the other."""
    by_name = {s.name: s for s in program.statements}
    readers = _readers(program)
    roots = [root]
    while True:
        members = {s.name for s in (*roots, *_producers(roots, program, ranges, done))}
        needed = {site.read.tensor for n in members for site in collect_reads(by_name[n])}
        near = {n for t in needed if program.tensor(t).role == "temporary" for n in readers[t]} - members - done
        fitting = [
            s
            for s in program.statements
            if s.name in near
            and s.reduction is None
            and _is_eligible(s, program, ranges, as_producer=False)
            and _same_extents(root, s, ranges)
            and not _depends(s, members, program)
            and not any(_depends(by_name[n], {s.name}, program) for n in members)
        ]
        if not fitting:
            return roots[1:]
        roots.append(fitting[0])


def _same_extents(a: Statement, b: Statement, ranges: Ranges) -> bool:
    ours, theirs = ranges.statements[a.name].indices, ranges.statements[b.name].indices
    return [ours[i] for i in a.left_indices] == [theirs[i] for i in b.left_indices]


def _depends(s: Statement, others: set[str], program: Program) -> bool:
    """Whether `s` needs values of `others`, directly or not."""
    writers: dict[str, list[Statement]] = program.writers()
    seen: set[str] = set()
    queue = [s]
    while queue:
        for tensor in {site.read.tensor for site in collect_reads(queue.pop())} - seen:
            seen.add(tensor)
            for writer in writers.get(tensor, ()):
                if writer.name in others:
                    return True
                queue.append(writer)
    return False


def _best_cluster(
    s: Statement, program: Program, ranges: Ranges, target: Target, done: set[str]
) -> tuple[Cluster, Estimate, tuple[Program, Ranges]] | None:
    if not any(program.tensor(site.read.tensor).role == "temporary" for site in collect_reads(s)):
        return None
    root = s
    if s.reduction is not None:
        program, ranges, root = store_apart(program, ranges, s)
    model = Model(program, ranges, target, {x.name: collect_reads(x) for x in program.statements})
    best: tuple[float, Cluster, Estimate] | None = None
    companions = _companions(root, program, ranges, done)
    for others in [companions, []] if companions else [[]]:
        statements = [root, *others]
        producers = _producers(statements, program, ranges, done)
        for indices in _index_sets(root, producers, ranges) if producers else ():
            roots = tuple(Root(r, dict(zip(r.left_indices, root.left_indices, strict=True))) for r in statements)
            roots = tuple(replace(r, tiles={i: t for i, t in r.tiles.items() if t in indices}) for r in roots)
            for found in _clusters(roots, producers, indices, model):
                if best is None or found[0] < best[0]:
                    best = found
        if best is not None:
            break
    return None if best is None else (best[1], best[2], (program, ranges))


def _clusters(
    roots: tuple[Root, ...], producers: Sequence[Statement], indices: tuple[str, ...], model: Model
) -> Iterator[tuple[float, Cluster, Estimate]]:
    """Clusters that are faster in tiles, with the cycles that they take less (negative)."""
    ranges, sites = model.ranges, model.sites
    probe = dict.fromkeys(indices, PROBE)
    chain = _bounded(roots, producers, probe, model)
    for n in range(1, len(chain) + 1):
        part = chain[:n]
        boxes = tile_boxes(roots, part, probe, ranges, sites)
        if boxes is None or not _overlaps(boxes[part[-1].target]):
            continue
        overlapping = [p for p in part if _overlaps(boxes[p.target])]
        halos = _halos(part, boxes, indices)
        whole = sum(model.whole(p, _shared_dimensions(boxes[p.target])) for p in overlapping)
        for sizes in _sizes(roots[0].statement, indices, halos, model):
            boxes = tile_boxes(roots, part, sizes, ranges, sites)
            assert boxes is not None
            estimate = model.tiled([r.statement for r in roots], part, sizes, boxes)
            if estimate is not None and is_faster(estimate.tiled, whole):
                volume = sum(model.bytes(p.target) for p in overlapping)
                estimate = replace(estimate, whole=whole, saved_bytes=volume)
                yield estimate.tiled - whole, Cluster(roots, tuple(part), sizes, boxes), estimate


def _index_sets(root: Statement, producers: Sequence[Statement], ranges: Ranges) -> Iterator[tuple[str, ...]]:
    """Sets of indices of `root` to tile: all that move a producer, then without the innermost ones."""
    targets = {p.target for p in producers}
    moving: set[str] = set()
    for site in collect_reads(root):
        if site.read.tensor in targets:
            for sub in site.read.subscripts:
                moving |= set(index_coefficients(sub) or ())
    own = ranges.statements[root.name].indices
    left = [i for i in root.left_indices if i in moving and own[i].extent != Const(1)]
    for n in range(len(left), 0, -1):
        yield tuple(left[:n])


def _bounded(roots: Sequence[Root], producers: Sequence[Statement], sizes: dict[str, int], model: Model) -> list[Statement]:
    """Those of `producers` that are another part for every tile, with nothing between them and the roots that is not."""
    kept: list[Statement] = []
    left_out: list[Statement] = []
    for p in producers:
        if any(site.read.tensor == p.target for s in left_out for site in model.sites[s.name]):
            left_out.append(p)
            continue
        boxes = tile_boxes(roots, [*kept, p], sizes, model.ranges, model.sites)
        is_moving = boxes is not None and p.target in boxes and moves_with_all(boxes[p.target], map(tile_name, sizes))
        (kept if is_moving else left_out).append(p)
    return kept


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
            choices.append(tuple(n for n in ROW_SIZES if n < trips[i]) or (trips[i],))
        elif halos[i]:
            fitting = [n for n in SIZES if n < trips[i]] or [trips[i]]
            shared = [n for n in fitting if trips[i] >= n * MINIMUM_ITERATIONS]
            choices.append(tuple(shared or fitting[-1:]) if i == indices[0] else tuple(fitting))
        else:
            choices.append((1,))
    for sizes in product(*choices):
        yield dict(zip(indices, sizes, strict=True))
