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
from polyc.scheduler.overlap_boxes import Boxes, moves_with_all, tile_boxes, tile_name
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
        done |= {cluster.root.name, *(p.name for p in cluster.producers)}
        remarks.append(Remark("passed", "overlap", _describe(cluster, estimate, program_then), cluster.root.name, s.span))
    return program, ranges, remarks


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


def _producers(root: Statement, program: Program, ranges: Ranges, done: set[str]) -> list[Statement]:
    """What could be computed for tiles of `root`: temporaries that nothing else reads, readers before their producers."""
    returned = {r.version for r in program.returns}
    writer = {s.target: s for s in program.statements}
    readers: dict[str, set[str]] = {}
    for s in program.statements:
        for site in collect_reads(s):
            readers.setdefault(site.read.tensor, set()).add(s.name)
    members, found = {root.name}, []
    queue = [root]
    while queue:
        s = queue.pop(0)
        for tensor in dict.fromkeys(site.read.tensor for site in collect_reads(s)):
            p = writer.get(tensor)
            if p is None or p.name in members or p.name in done or not readers[tensor] <= members:
                continue
            if program.tensor(tensor).role != "temporary" or tensor in returned:
                continue
            if _is_eligible(p, program, ranges, as_producer=True):
                members.add(p.name)
                found.append(p)
                queue.append(p)
    return found


def _best_cluster(
    s: Statement, program: Program, ranges: Ranges, target: Target, done: set[str]
) -> tuple[Cluster, Estimate, tuple[Program, Ranges]] | None:
    if not _producers(s, program, ranges, done):
        return None
    root = s
    if s.reduction is not None:
        program, ranges, _, root = store_apart(program, ranges, s)
    producers = _producers(root, program, ranges, done)
    model = Model(program, ranges, target)
    best: tuple[float, Cluster, Estimate] | None = None
    for indices in _index_sets(root, producers, ranges):
        probe = dict.fromkeys(indices, PROBE)
        chain = _bounded(root, producers, probe, ranges)
        for n in range(1, len(chain) + 1):
            part = chain[:n]
            boxes = tile_boxes(root, part, probe, ranges)
            if boxes is None:
                continue
            overlapping = [p for p in part if _overlaps(boxes[p.target])]
            if not overlapping or not _overlaps(boxes[part[-1].target]):
                continue
            halos = _halos(part, boxes, indices)
            shared = {p.name: _shared_dimensions(p, boxes, root) for p in overlapping}
            whole = sum(model.whole(p, shared[p.name]) for p in overlapping)
            if whole == 0.0 or (best is not None and best[0] <= -whole):
                continue
            for sizes in _sizes(root, indices, halos, model):
                boxes = tile_boxes(root, part, sizes, ranges)
                assert boxes is not None
                estimate = model.tiled(root, part, sizes, boxes)
                if estimate is None or estimate.tiled > MARGIN * whole:
                    continue
                gain = estimate.tiled - whole
                if best is None or gain < best[0]:
                    volume = sum(_bytes(model, p) for p in overlapping)
                    estimate = replace(estimate, whole=whole, saved_bytes=volume)
                    best = gain, Cluster(root, tuple(part), sizes, boxes), estimate
    return None if best is None else (best[1], best[2], (program, ranges))


def _bytes(model: Model, p: Statement) -> int:
    size = model.dtype(p.target).itemsize
    for n in model.shape(p.target):
        size *= n
    return size


def _index_sets(root: Statement, producers: Sequence[Statement], ranges: Ranges) -> Iterator[tuple[str, ...]]:
    """Sets of indices of `root` to tile: all that move a producer, without those along rows, or the outermost ones only."""
    targets = {p.target for p in producers}
    moving: dict[str, None] = {}
    for site in collect_reads(root):
        if site.read.tensor in targets:
            for sub in site.read.subscripts:
                moving.update(dict.fromkeys(index_coefficients(sub) or {}))
    own = ranges.statements[root.name].indices
    left = [i for i in root.left_indices if i in moving and own[i].extent != Const(1)]
    for n in range(len(left), 0, -1):
        yield tuple(left[:n])


def _bounded(root: Statement, producers: Sequence[Statement], sizes: dict[str, int], ranges: Ranges) -> list[Statement]:
    """Those of `producers` that are another part for every tile, with nothing between them and `root` that is not."""
    kept: list[Statement] = []
    left_out: list[Statement] = []
    for p in producers:
        if any(site.read.tensor == p.target for s in left_out for site in collect_reads(s)):
            left_out.append(p)
            continue
        boxes = tile_boxes(root, [*kept, p], sizes, ranges)
        is_moving = boxes is not None and p.target in boxes and moves_with_all(boxes[p.target], map(tile_name, sizes))
        (kept if is_moving else left_out).append(p)
    return kept


def _overlaps(boxes: Sequence[object]) -> bool:
    """Whether the boxes of a tensor are larger than the tile (of `PROBE`), so that its reader does not follow at once."""
    return any(getattr(box, "extent", PROBE) != PROBE for box in boxes)


def _halos(part: Sequence[Statement], boxes: Boxes, indices: Sequence[str]) -> dict[str, bool]:
    """By index of the consumer, whether some box along it is no tile of it."""
    found = dict.fromkeys(indices, False)
    for p in part:
        for box in boxes[p.target]:
            for i in indices:
                if box is not None and box.depends_on(tile_name(i)) and box.extent != PROBE:
                    found[i] = True
    return found


def _shared_dimensions(p: Statement, boxes: Boxes, root: Statement) -> frozenset[int]:
    """Outer dimensions of a producer along which a loop over both could do without tiles."""
    rank = len(boxes[p.target])
    return frozenset(d for d, box in enumerate(boxes[p.target]) if box is not None and box.extent == PROBE and d < rank - 1)


def _sizes(root: Statement, indices: Sequence[str], halos: dict[str, bool], model: Model) -> Iterator[dict[str, int]]:
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
