"""Compute producers tile by tile of their consumer, twice where tiles overlap, instead of storing them whole.

Before: ``R = blur(X) along x ; Y = blur(R) along y``, where R goes through memory.  After: for every tile of Y the rows of R
that it needs, in a buffer of the tile (`tiles`).  For graphs of stencils, pointwise statements, pooling and
convolutions whose reads have boxes of constant size (`footprints`), wherever `costs` finds the traffic that is
saved dearer than what is computed again ("overlapped tiling": Krishnamoorthy et al., PLDI 2007; Halide's ``compute_at``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product, takewhile
from math import lcm

from polyc.code_limits import MARGIN, MINIMUM_ITERATIONS, ROW_SIZES, powers
from polyc.diagnostics import Remark
from polyc.ir.expr import Call, Const, Index, reads, walk
from polyc.ir.linear import index_coefficients, index_steps
from polyc.ir.program import Program, Statement
from polyc.machine import Level, Machine
from polyc.poly.footprints import Boxes, has_steps_left, moving_tiles, root_boxes, tile_boxes
from polyc.poly.ranges import Ranges
from polyc.records import replace
from polyc.scheduler.rewriting.overlap.costs import Model, Trial
from polyc.scheduler.rewriting.overlap.tiles import Cluster, store_apart, tile_cluster
from polyc.scheduler.rewriting.rules.analysis import writes_whole
from polyc.scheduler.traffic import find_level

SIZES = powers(4, 128)[::-1]
"""Sizes that are tried across them."""

PROBE = 16
"""About the size that finds out what boxes tiles have at all."""

MAX_PRODUCERS = 32
"""Most statements that a tile computes for its consumers: what is tried for each stays bounded, however long a program."""

PATIENCE = 8
"""So many more producers are tried where no tiles are faster yet, or none are any more."""


def overlap_tiles(program: Program, ranges: Ranges, target: Machine) -> tuple[Program, Ranges, list[Remark]]:
    """Overlapped tiling: producers are computed a tile at a time."""
    remarks: list[Remark] = []
    done: set[str] = set()
    model = Model(program, ranges, target)
    for name in [s.name for s in reversed(program.statements)]:
        s = model.statements.get(name)
        if s is None or name in done or not _is_eligible(s, model, as_producer=False):
            continue
        found = _best_cluster(s, model, done)
        if found is None:
            continue
        cluster, apart = found
        result = tile_cluster(apart.program, apart.ranges, cluster)
        if result is None:
            remarks.append(Remark("missed", "overlap", "not proved that a tile computes all that it reads", name, s.span))
            continue
        model = Model(*result, target)
        done |= {x.name for x in cluster.statements}
        remarks.append(Remark("passed", "overlap", _describe(cluster, apart.program), name, s.span))
    return model.program, model.ranges, remarks


def is_faster(tiled: float, whole: float) -> bool:
    """Whether tiles are worth it, by cycles of both."""
    return tiled < MARGIN * whole


def _describe(cluster: Cluster, program: Program) -> str:
    names = ", ".join(dict.fromkeys(program.tensor(p.target).base for p in cluster.producers))
    tile, estimate = " x ".join(f"{i} {size}" for i, size in cluster.sizes.items()), cluster.estimate
    return (
        f"{names} in tiles of {tile}, {estimate.buffer_bytes} bytes: {100 * estimate.recomputed:.0f} % computed again; "
        f"about {estimate.tiled:.2g} cycles instead of {estimate.whole:.2g} for {estimate.saved_bytes} bytes"
    )


# -- consumers and producers


def _is_eligible(s: Statement, model: Model, *, as_producer: bool) -> bool:
    """Whether a statement can be cut into tiles."""
    if any(r.tensor == s.target for r in reads(s.value)):
        return False
    if s.reduction is not None and (s.reduction.monoid is not None or reads(s.reduction.init)):
        return False
    if any(reads(e) for e in s.subscripts):
        return False
    if s.reduction is not None:
        return model.is_whole(s) and (as_producer or writes_whole(s, model.ranges))
    # Parts of what sums make (a convolution that is filtered minimally) leave the sums the register tiles of whole products.
    is_of_sums = any(w.reduction is not None for t in model.read[s.name] for w in model.writers.get(t, ()))
    return not as_producer or model.is_whole(s) or (has_steps_left(s) and not is_of_sums)


def _producers(roots: Sequence[Statement], model: Model, done: set[str]) -> list[Statement]:
    """What could be computed for tiles of `roots`: temporaries that nothing else reads, readers before their producers."""
    members, found = {s.name for s in roots}, list[Statement]()
    queue = deque(roots)
    while queue:
        for tensor in model.accesses[queue.popleft().name]:
            parts = model.writers.get(tensor, [])
            names = {p.name for p in parts}
            if names & (members | done) or not model.readers[tensor] <= members or len(found) + len(parts) > MAX_PRODUCERS:
                continue
            if model.is_temporary(tensor) and all(_is_eligible(p, model, as_producer=True) for p in parts):
                members |= names
                found += parts
                queue += parts
    return found


def _companions(root: Statement, model: Model, done: set[str]) -> list[Statement]:
    """Other consumers, of the same extents, of what `root` and its producers read, where neither needs the other."""

    def extents(s: Statement) -> list[object]:
        return [model.ranges.statements[s.name].indices[i] for i in s.left_indices]

    @cache
    def is_alike(name: str) -> bool:
        s = model.statements[name]
        return s.reduction is None and extents(s) == own and _is_eligible(s, model, as_producer=False)

    def fits(name: str, members: set[str]) -> bool:
        return is_alike(name) and not model.needs([name], members) and not model.needs(members, {name})

    roots, own = [root], extents(root)
    while True:
        members = {s.name for s in (*roots, *_producers(roots, model, done))}
        near = set[str]().union(*(model.readers[t] for t in model.reads(members) if model.is_temporary(t))) - members - done
        fitting = next((s for s in model.program.statements if s.name in near and fits(s.name, members)), None)
        if fitting is None:
            return roots[1:]
        roots.append(fitting)


# -- what to try


def _best_cluster(s: Statement, model: Model, done: set[str]) -> tuple[Cluster, Model] | None:
    """The cluster that is the fastest, and the program that it is part of: a sum is stored apart."""
    if not any(map(model.is_temporary, model.read[s.name])):
        return None
    root = s
    if s.reduction is not None:
        program, ranges, root = store_apart(model.program, model.ranges, s)
        model = Model(program, ranges, model.target)
    companions = _companions(root, model, done)
    for others in [companions, []] if companions else [[]]:
        roots = (root, *others)
        producers = _producers(roots, model, done)
        indices = _tiled_indices(root, producers, model)
        divisor = _divisor([*roots, *producers], model)
        unit = _unit([*roots, *producers], divisor, model)
        # What reads rows of a consumer at once reads them from memory then.
        lost = sum(model.whole(root, 0) for root in roots if divisor > 1 and model.is_temporary(root.target))
        best: Cluster | None = None
        for some in _index_sets(roots, producers, indices, unit, model):
            best = _find_cluster(roots, producers, some, unit, lost, model, best)
        if best is not None:
            return replace(best, sizes=_order_tiles(best, model)), model
    return None


def _order_tiles(cluster: Cluster, model: Model) -> dict[str, int]:
    """Sizes of tiles, those of the outermost loops first: along the inner ones the same parts are read of large arrays."""
    roots, same = root_boxes(cluster.roots, cluster.sizes, model.ranges), dict.fromkeys(cluster.sizes, 0)
    for s in cluster.statements:
        for t in model.read[s.name] - cluster.boxes.keys():
            places = (e for site in model.sites[s.name] if site.read.tensor == t for e in site.read.subscripts)
            moving = moving_tiles(s, places, roots, cluster.boxes)
            if moving and find_level(model.bytes(t), model.target) > Level.L2:
                same |= {i: same[i] + model.bytes(t) for i in same.keys() - moving}
    return {i: cluster.sizes[i] for i in sorted(same, key=lambda i: same[i])}


def _index_sets(
    roots: Sequence[Statement], producers: Sequence[Statement], indices: list[str], unit: int, model: Model
) -> list[tuple[str, ...]]:
    """Indices of consumers to tile: all that move a producer, those that move all of the nearest ones, and each set without the
    innermost ones."""
    probed = _probe_boxes(roots, producers, indices, _probe(unit), model)
    moving, found = indices, [indices]
    for p in producers:
        own = [box for box in probed.get(p.target, ()) if box is not None]
        moving = [i for i in moving if any(box.moves_with(i) for box in own)]
        found += [moving] if moving and moving not in found else []
    return [*dict.fromkeys(tuple(some[:n]) for some in found for n in range(len(some), 0, -1))]


def _probe_boxes(
    roots: Sequence[Statement], producers: Sequence[Statement], indices: Sequence[str], probe: int, model: Model
) -> Boxes:
    """The boxes of tiles of one size along all indices."""
    places = root_boxes(roots, dict.fromkeys(indices, probe), model.ranges)
    return tile_boxes(roots, producers, places, model.ranges, model.accesses)


def _tiled_indices(root: Statement, producers: Sequence[Statement], model: Model) -> list[str]:
    """Indices of `root` that move a producer."""
    targets, own = {p.target for p in producers}, model.ranges.statements[root.name].indices
    subscripts = (e for site in model.sites[root.name] if site.read.tensor in targets for e in site.read.subscripts)
    moving = {i for e in subscripts for i in index_steps(e) or ()}
    return [i for i in root.left_indices if i in moving and own[i].extent != Const(1)]


def _find_cluster(
    roots: tuple[Statement, ...],
    producers: Sequence[Statement],
    indices: Sequence[str],
    unit: int,
    lost: float,
    model: Model,
    best: Cluster | None,
) -> Cluster | None:
    """The cluster with the largest gain among `best` and those with tiles of these indices that are faster.

    Tried are the nearest producer, the nearest two, and so on.  What a tile needs of a producer follows from its readers, which
    come before it: so what is found for fewer of them holds for more, and is a bound of what these cost."""
    probe = _probe(unit)
    probed = _probe_boxes(roots, producers, indices, probe, model)
    chain, halos = _bounded(producers, probed, indices, model), set[str]()
    targets = {p.target for p in chain}
    tried: dict[tuple[int, ...], Trial] = {}
    whole, saved, slower = sum(map(model.window_cycles, roots)), 0, 0
    for n, p in enumerate(chain, 1):
        whole += model.window_cycles(p)
        if any(q.target == p.target for q in chain[n : n + 1]):  # all parts of a tensor together
            continue
        wider = [box for box in probed[p.target] if box is not None and box.extent != probe]
        if not wider:  # its reader follows at once
            continue
        halos |= {i for i in indices if any(box.moves_with(i) for box in wider)}
        saved += model.bytes(p.target)
        # A loop over outer dimensions that run along with a tile, and over the reader, needs no tiles.
        outer = probed[p.target][:-1] if model.is_whole(p) else ()
        shared = takewhile(lambda box: box is not None and box.extent == probe, outer)
        whole += model.whole(p, len(list(shared)))
        if not is_faster(lost, whole):
            continue
        slower += 1
        for sizes in _sizes(roots[0], indices, halos, unit, model):
            key = tuple(sizes.values())
            if key not in tried:
                tried[key] = Trial(model, roots, targets, sizes, lost)
            trial = tried[key]
            if best is not None and whole - trial.least <= best.gain:  # it may be faster, but not the fastest
                slower = 0 if is_faster(trial.least, whole) else slower
                continue
            estimate = trial.estimate(chain[:n], whole, saved)
            if estimate is not None and is_faster(estimate.tiled, whole):
                slower = 0
                if best is None or whole - estimate.tiled > best.gain:
                    boxes = {q.target: trial.boxes[q.target] for q in chain[:n]}
                    best = Cluster(roots, tuple(chain[:n]), sizes, boxes, estimate)
        if slower == PATIENCE:
            break
    return best


def _bounded(producers: Sequence[Statement], boxes: Boxes, indices: Sequence[str], model: Model) -> list[Statement]:
    """Those of `producers` that are another part for every tile, as what does not move would be computed again for each, with
    nothing between them and the consumers that is not."""
    kept: list[Statement] = []
    left_out: set[str] = set()
    """What is not wanted in tiles: tensors that such statements write or read."""
    for p in producers:
        own = [box for box in boxes.get(p.target, ()) if box is not None]
        if p.target not in left_out and all(any(box.moves_with(i) for box in own) for i in indices):
            kept.append(p)
        else:
            left_out |= {p.target, *model.read[p.name]}
    return kept


def _unit(statements: Sequence[Statement], divisor: int, model: Model) -> int:
    """What sizes are multiples of, so that quotients in subscripts and parts of tensors begin alike in every tile."""
    parts = (index_coefficients(e) or {} for s in statements if model.is_temporary(s.target) for e in s.subscripts)
    unit = divisor * lcm(*(abs(c) for steps in parts for c in steps.values()))
    return unit if unit <= 4 * PROBE else 1


def _divisor(statements: Sequence[Statement], model: Model) -> int:
    """The least number that all divisors of quotients in subscripts divide."""
    nodes = (n for s in statements for site in model.sites[s.name] for e in site.read.subscripts for n in walk(e))
    divisors = (n.args[1] for n in nodes if isinstance(n, Call) and n.op == "floordiv")
    return lcm(*(int(e.value) for e in divisors if isinstance(e, Const) and e.value > 0))


def _probe(unit: int) -> int:
    """A size that finds out which boxes tiles have at all."""
    return PROBE - PROBE % unit or unit


def _sizes(root: Statement, indices: Sequence[str], halos: set[str], unit: int, model: Model) -> Iterator[dict[str, int]]:
    """Tile sizes to try: along rows, across them, and single iterations where neighbouring ones share nothing."""
    trips, last = model.trips(root), {e.name for e in root.subscripts[-1:] if isinstance(e, Index)}
    choices: list[Sequence[int]] = []
    for i in indices:
        if i in last:
            tried = [
                n for size in (*reversed(ROW_SIZES), model.short_row(root)) if (n := size - size % unit or unit) < trips[i]
            ]
            choices.append(tried or [trips[i]])
        elif i in halos:
            fitting = [n for size in SIZES if (n := size - size % unit or unit) < trips[i]] or [trips[i]]
            shared = [n for n in fitting if trips[i] >= n * MINIMUM_ITERATIONS] or fitting[-1:]
            choices.append(shared if i == indices[0] else fitting)
        else:
            choices.append([1])
    for sizes in product(*choices):
        yield dict(zip(indices, sizes, strict=True))
