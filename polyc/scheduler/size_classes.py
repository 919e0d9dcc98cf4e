"""Which sizes a kernel for any sizes should be compiled for, as several versions, and which of them a call takes.

What is best for one size may be twice as slow for another: a register tile for ten rows, vectors along the width of an image
that is seven wide, a copy that few rows pay for.  The cost model of contractions ranks the choices without compiling: sizes are
drawn over magnitudes, always the same ones; each is given the best choice of its own, in each form that rewritings can give
the program; and of the sizes as representatives those few are taken that leave least to be gained.  Tests of sizes, grown like
a decision tree, lead a call to its version.

Extents of windows are few and seldom change, but decide much: sums over three taps may be filtered, those over one are no
windows at all.  Where they are symbolic, some forms take the first call's for known; the first test of the tree is for these,
and behind it there is always a version for any others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, isinf, prod

from polyc.ir.expr import Call, Const, Size, int_const, walk
from polyc.ir.versions import SizeTest, Tree, leaves, renumber
from polyc.poly.ranges import assume_sizes, estimate_extent
from polyc.poly.scop import Scop, ScopStatement
from polyc.scheduler.accesses import NEAR, access_motions
from polyc.scheduler.contractions.choice import Choice, choose, estimate_cycles
from polyc.scheduler.contractions.contraction import Contraction, find_contraction
from polyc.scheduler.contractions.operand_streams import loads_of_rows
from polyc.scheduler.contractions.operands import form_extent
from polyc.scheduler.size_samples import LARGEST_WINDOW, draw_sizes, grid, near_first, side_sizes, window_sizes
from polyc.scheduler.traffic import write_cycles
from polyc.target import Target

MAX_CLASSES = 3
"""Versions of a kernel: each takes as long to compile as the first."""

MAX_CONTRACTIONS = 6
"""Contractions that are looked at, those with most work first."""

PREFERENCE = 0.04
"""Part of the time that a representative may lose to a later one: what the model does not see, the first sizes and those that
are all large get right."""

ENOUGH_WORK = 1 << 24
"""Products from which a call counts in full: far below, its time is mostly that of the call."""

REAL_WORK = 1 << 20
"""Products from which the first call's sizes are taken as ones to be good at, not as those of a trial."""

FIRST_SHARE = 0.1
"""Weight of the first call's sizes among all samples."""

WORTHWHILE = 0.08
"""Part of the time, on the average of all samples, that a second version must save, as the cost model is no more precise; a
third one must save twice as much."""

MISTAKEN = 0.05
"""Part of the calls that tests lead to the worst of the versions: one that is far behind for other sizes is a risk."""

WORTH_A_TEST = 0.01
"""Part of the time, on the average of all samples, that one more test must save."""

MAX_DEPTH, MIN_LEAF = 4, 3
"""Tests on the way to a version, and samples on each side of one."""

LOOP_START = 2.5
"""Cycles until a loop in a register tile runs, where nothing is known of its trips."""

READ_CYCLES, FAR_READ_CYCLES, VECTOR_BYTES = 1.8, 12.0, 64
"""Of a statement that is no contraction, for each read of a vector of so many bytes: along memory, and lane by lane."""


@dataclass(frozen=True, slots=True)
class Version:
    """`typical`: what estimates take symbolic sizes for; `form`: which of those that `count_forms` counts; `known`: sizes that
    all calls of the version have."""

    typical: dict[str, int]
    form: int = 0
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Form:
    """A program before scheduling, rewritten as `Version.form` and `Version.known` say; `folds`: pairs of sizes that a call
    replaces by 1 and their product (`fold_sizes`)."""

    scop: Scop
    number: int = 0
    known: Mapping[str, int] = field(default_factory=dict)
    folds: Sequence[tuple[str, str]] = ()

    def fits(self, sizes: Mapping[str, int]) -> bool:
        return all(sizes[name] == value for name, value in self.known.items())

    def fold(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes` as the code meets them."""
        folded = dict(sizes)
        for first, second in self.folds:
            folded[first], folded[second] = 1, folded[first] * folded[second]
        return folded


@dataclass(frozen=True, slots=True)
class SizeClasses:
    """`tree` chooses among the versions."""

    versions: tuple[Version, ...]
    tree: Tree


def find_windows(scop: Scop, target: Target) -> dict[str, int]:
    """The first call's extents of windows, by size symbol, where they are few: other calls may be expected to have the same."""
    found = {name: scop.ranges.typical.get(name, 0) for name in sorted(window_sizes(_contractions(scop, target)))}
    return found if all(1 <= n <= LARGEST_WINDOW for n in found.values()) else {}


def is_worth_known_sizes(form: Form, plain: Form, target: Target) -> bool:
    """Whether a form of known sizes is another program than `plain`, for any.  A loop over a few taps inside of a loop over
    channels runs as fast where their number is not known; but sums over taps alone share what they read where all of them are
    unrolled."""
    sums = ([s.extents[i] for i in s.reduction_indices] for s in _contractions(form.scop, target))
    return form.folds != plain.folds or any(all(isinstance(e, Const) for e in extents) for extents in sums)


def find_size_classes(forms: Sequence[Form], target: Target, constants: Collection[str] = ()) -> SizeClasses | None:
    """The versions that a kernel of this program is worth; None where nothing is to choose.

    The first of `forms` is the program as written, for any sizes; all have typical values for symbolic sizes."""
    scop = forms[0].scop
    first = {n: v for n, v in scop.ranges.typical.items() if n in scop.program.sizes}
    statements = _contractions(scop, target)
    if not first or not statements:
        return None
    models = [_Model(form, target, constants, _contractions(form.scop, target), len(forms) > 1) for form in forms]
    windows, sides = window_sizes(statements), side_sizes(statements)
    # Where several contractions may be fused, sizes that differ decide more than the model sees.
    corners = [first]
    for sizes in grid(first, windows, len(statements) == 1):
        if sizes not in corners:
            corners.append(sizes)
    # What is planned for many images leaves threads nothing to share in one.
    large = next(grid(first, windows, False))
    kept = {name: first[name] for name in models[0].tiled_sizes(large)[1] - sides - windows}
    near = near_first(first, windows, sides, kept) if sides and len(statements) == 1 else corners
    representatives = [first]
    for sizes in (_without_cuts(models, {**sizes, **kept}, kept) for sizes in near):
        if sizes not in representatives:
            representatives.append(sizes)
    samples = [*corners, *draw_sizes(first, windows, sides)]
    at = [[model.at(sizes) for sizes in samples] for model in models]
    work = [sum(prod(c.trips.values()) for c in found.contractions if c is not None) for found in at[0]]
    weights = [min(1.0, w / ENOUGH_WORK) ** 0.5 for w in work]
    weights[0] = FIRST_SHARE * sum(weights[1:])
    total = sum(weights)
    weights = [w / total for w in weights]
    # Candidates are numbered by representatives, those of each form in turn.
    made = [(form, n) for n in range(len(representatives)) for form in range(len(forms))]
    choices = [models[form].choose(models[form].at(representatives[n])) for form, n in made]
    distinct: dict[str, int] = {}
    for n, own in enumerate(choices):
        told = [c and (c.tile, c.lanes, c.packs_vector, c.packs_rows, c.block) for c in own]
        distinct.setdefault(repr((made[n][0], told)), n)
    candidates = list(distinct.values())
    if len(candidates) == 1:
        typical = forms[0].fold(first)
        return None if typical == first else SizeClasses((Version(typical),), 0)
    cycles = {
        n: [
            max(1.0, models[form].cycles(found, choices[n])) if forms[form].fits(sizes) else inf
            for found, sizes in zip(at[form], samples, strict=True)
        ]
        for n in candidates
        for form in (made[n][0],)
    }
    least = [min(known) for known in zip(*cycles.values(), strict=True)]
    costs = {n: [c / b for c, b in zip(own, least, strict=True)] for n, own in cycles.items()}
    numbers = [form for form, _ in made]
    taken = _select(candidates, costs, weights, numbers, lambda n: bool(forms[numbers[n]].known), work[0] >= REAL_WORK)
    known = next((forms[made[n][0]].known for n in taken if forms[made[n][0]].known), {})
    tree = _grow_all([costs[n] for n in taken], weights, samples, known)
    used = sorted(set(leaves(tree)))
    versions = []
    for form, n in (made[taken[k]] for k in used):
        versions.append(Version(forms[form].fold(representatives[n]), forms[form].number, forms[form].known))
    return SizeClasses(tuple(versions), renumber(tree, {n: k for k, n in enumerate(used)}))


def _without_cuts(models: Sequence[_Model], sizes: dict[str, int], kept: Collection[str]) -> dict[str, int]:
    """`sizes`, but 1 for those of `kept` that a tile would cut: for calls with one image half of it would be empty."""
    if all(sizes[name] == 1 for name in kept):
        return sizes
    cut = {name for m in models if m.form.fits(sizes) for name in m.tiled_sizes(sizes)[0]}
    return sizes | dict.fromkeys(cut & set(kept), 1)


@dataclass(frozen=True, slots=True)
class _Found:
    """At some sizes: the contractions among a model's statements, and the cycles of what is none."""

    contractions: list[Contraction | None]
    other_cycles: float


class _Model:
    """The contractions of a program at any sizes, and what they cost; `whole`: with all other statements."""

    def __init__(
        self,
        form: Form,
        target: Target,
        constants: Collection[str],
        statements: Sequence[ScopStatement],
        whole: bool,
    ) -> None:
        self.form, scop = form, form.scop
        self.scop, self.target, self.constants, self.statements = scop, target, constants, statements
        taken = {s.name for s in statements}
        self.others = [(s, _weigh_reads(s, target, scop)) for s in scop.statements if s.name not in taken] if whole else []

    def at(self, sizes: Mapping[str, int]) -> _Found:
        ranges = assume_sizes(self.scop.ranges, self.scop.program.defined_sizes, self.form.fold(sizes))
        scop = replace(self.scop, ranges=ranges)
        found = []
        for s in self.statements:
            estimates = {i: estimate_extent(s.extents[i], ranges.typical) for i in s.trips}
            trips = {i: max(1, n) for i, n in estimates.items() if n is not None}
            found.append(find_contraction(replace(s, trips=trips), scop, self.target))
        cycles, written = 0.0, Counter[str]()
        for s, (along, per_vector, lanes) in self.others:
            n = {i: estimate_extent(e, ranges.typical) or 0 for i, e in s.extents.items()}
            cycles += per_vector * prod(ceil(v / lanes) if i == along else v for i, v in n.items())
            if not s.is_reduction and not self._is_passed_on(s.target):
                written[s.target] += scop.tensors[s.target].dtype.itemsize * prod(n.values())
        cycles += sum(write_cycles(size, size, self.target) for size in written.values() if size)
        return _Found(found, cycles)

    def tiled_sizes(self, sizes: Mapping[str, int]) -> tuple[set[str], set[str]]:
        """Sizes that are extents of left indices along which register tiles at `sizes` have several elements; and others."""
        found = self.at(sizes)
        cut, left = set[str](), set[str]()
        for c, choice in zip(found.contractions, self.choose(found), strict=True):
            if c is None or choice is None:
                continue
            for i in c.left:
                (cut if i in choice.tile else left).update(n.name for n in walk(c.s.extents[i]) if isinstance(n, Size))
        return cut, left - cut

    def choose(self, found: _Found) -> list[Choice | None]:
        return [None if c is None else choose(c, self.target, self.constants) for c in found.contractions]

    def cycles(self, found: _Found, choices: Sequence[Choice | None]) -> float:
        pairs = [(c, choice) for c, choice in zip(found.contractions, choices, strict=True) if c is not None]
        return found.other_cycles + sum(self._contraction_cycles(c, choice) for c, choice in pairs)

    def _contraction_cycles(self, c: Contraction, choice: Choice | None) -> float:
        """Where loops are shared with what makes an operand and what reads the results, a pass of them is weighed alone."""
        n_passes, one = 1, c
        shared = {} if choice is None else {i: c.trips[i] for i in self._shared_loops(c) if i not in choice.tile}
        if shared:
            n_passes, one = prod(shared.values()), _one_pass(c, shared)
        return n_passes * (estimate_cycles(one, choice, self.target, self.constants) + _loop_cycles(one, choice, self.target))

    def _shared_loops(self, c: Contraction) -> list[str]:
        """Left indices that move the result and one operand, both of which other statements of the program have to do with."""
        if not self._is_passed_on(c.s.target):
            return []
        movers = {i: [v for v in c.views if v.moves(i)] for i in c.left}
        return [i for i, moved in movers.items() if len(moved) == 1 and self._is_passed_on(moved[0].operand.read.tensor)]

    def _is_passed_on(self, tensor: str) -> bool:
        return self.scop.tensors[tensor].role == "temporary"


def _one_pass(c: Contraction, shared: Mapping[str, int]) -> Contraction:
    """One pass of loops over the indices `shared` around a contraction: the parts of one follow each other in memory."""

    def near(strides: Mapping[str, int]) -> dict[str, int]:
        return {
            i: by // prod(n for j, n in shared.items() if 0 < abs(strides.get(j, 0)) < abs(by)) for i, by in strides.items()
        }

    trips = {**c.trips, **dict.fromkeys(shared, 1)}
    views = [
        replace(v, strides=near(v.strides), elements=prod(form_extent(form, trips) for form in v.operand.forms))
        for v in c.views
    ]
    return replace(c, trips=trips, views=(views[0], views[1]), result=near(c.result))


def _loop_cycles(c: Contraction, choice: Choice | None, target: Target) -> float:
    """What loops inside of a register tile cost where their trips are not known: their starts, those of windows of one element
    too, and reads that only unrolled windows would share."""
    if choice is None:
        return 0.0
    tiles = prod(ceil(c.trips[i] / choice.tile.get(i, 1)) for i in c.left)
    cycles, starts = 0.0, tiles
    for outer, inner in pairwise(choice.reduction_order):
        starts *= c.trips[outer]
        cycles += 0.0 if isinstance(c.s.extents[inner], Const) else LOOP_START * starts
    view = next(v for v in c.views if v.operand.read == choice.vector_operand.read)
    rows = {i: n for i, n in choice.tile.items() if i != choice.vector and view.moves(i)}
    if rows and not all(isinstance(c.s.extents[i], Const) for i in c.summed):
        vectors = choice.tile[choice.vector] // choice.lanes
        alone = prod(rows.values()) - loads_of_rows(c, view, rows, vectors)
        cycles += tiles * c.depth * alone * vectors / target.loads_per_cycle
    return cycles


def _weigh_reads(s: ScopStatement, target: Target, scop: Scop) -> tuple[str | None, float, int]:
    """Of a statement that is no contraction: the index along memory of what it writes, cycles per vector, and its lanes."""
    write, *read = access_motions(s)
    last = (write.coefficients[-1] if write.coefficients else None) or {}
    along = next((i for i, step in last.items() if abs(step) <= NEAR), None)
    if along is None:
        return None, READ_CYCLES * len(read), 1
    size = scop.tensors[s.target].dtype.itemsize
    lanes = max(1, target.lanes(size))
    cycles = sum(FAR_READ_CYCLES if m.motion(along) == "strided" else READ_CYCLES for m in read)
    return along, cycles * lanes * size / VECTOR_BYTES, lanes


def _contractions(scop: Scop, target: Target) -> list[ScopStatement]:
    """Statements that are contractions, with symbolic extents among theirs, those with most work first."""
    found = [(s, find_contraction(s, scop, target)) for s in scop.statements if s.trips]
    known = [(prod(c.trips.values()), s) for s, c in found if c is not None and c.lanes > 1]
    return [s for _, s in sorted(known, key=lambda pair: -pair[0])[:MAX_CONTRACTIONS]]


def _select(
    candidates: Sequence[int],
    costs: Mapping[int, Sequence[float]],
    weights: Sequence[float],
    forms: Sequence[int],
    is_known: Callable[[int], bool],
    prefers_first: bool,
) -> list[int]:
    """The candidate that is best alone, of those for any sizes; or with another one for known sizes (`is_known`), where that is
    worth a version.  Then each time the one that saves most, as long as that is worth a version, of a form that none has before
    all others: forms lie further apart than tiles do.  `prefers_first`: best means at the first sizes, which are the known
    ones.  `costs` are times as parts of the least one at the same sizes."""

    def total(versions: Sequence[int]) -> float:
        own = zip(weights, *(costs[n] for n in versions), strict=True)
        fitting = ((w, [x for x in logs if not isinf(x)]) for w, *logs in own)
        return sum(w * ((1 - MISTAKEN) * min(logs) + MISTAKEN * max(logs)) for w, logs in fitting)

    def first_best(options: Sequence[list[int]]) -> list[int]:
        totals = [total(versions) for versions in options]
        return options[next(n for n, t in enumerate(totals) if t <= min(totals) + PREFERENCE)]

    def of_first(among: Sequence[int]) -> Sequence[int]:
        return [min(among, key=lambda n: costs[n][0])] if prefers_first else among

    general, known = [n for n in candidates if not is_known(n)], [n for n in candidates if is_known(n)]
    taken = first_best([[n] for n in of_first(general)])
    if known:
        pair = min(([n, special] for special in of_first(known) for n in of_first(general)), key=total)
        if min(total(taken), total(pair[:1])) - total(pair) >= WORTHWHILE:
            taken = pair
    while len(taken) < MAX_CLASSES:
        most = total(taken) - WORTHWHILE * len(taken)
        totals = {n: t for n in candidates if (t := total([*taken, n])) <= most}
        if not totals:
            break
        taken.append(min(totals, key=lambda n: (forms[n] in {forms[t] for t in taken}, totals[n])))
    return taken


def _grow_all(
    costs: Sequence[Sequence[float]],
    weights: Sequence[float],
    samples: Sequence[Mapping[str, int]],
    known: Mapping[str, int],
) -> Tree:
    """A tree for all samples; where some versions are for `known` sizes only, nothing but tests for these leads to them."""
    fitting = [n for n, sizes in enumerate(samples) if all(sizes[name] == value for name, value in known.items())]
    then = _grow(costs, weights, samples, fitting, MAX_DEPTH)
    if not known:
        return then
    rest = [n for n in range(len(samples)) if n not in fitting]
    tree = _grow(costs, weights, samples, rest, MAX_DEPTH)
    for name, value in reversed(list(known.items())):
        then = SizeTest(Call("eq", (Size(name), int_const(value))), then, tree)
    return then


def _grow(
    costs: Sequence[Sequence[float]],
    weights: Sequence[float],
    samples: Sequence[Mapping[str, int]],
    inside: Sequence[int],
    depth: int,
) -> Tree:
    """A tree for the samples `inside`: each test is the one that leaves least time."""

    def best(part: Sequence[int]) -> tuple[float, int]:
        return min((sum(weights[n] * own[n] for n in part), version) for version, own in enumerate(costs))

    least, version = best(inside)
    chosen: tuple[float, str, int] | None = None
    if depth and len(inside) >= 2 * MIN_LEAF:
        for name in samples[0]:
            for bound in _bounds(samples[n][name] for n in inside):
                below = [n for n in inside if samples[n][name] < bound]
                if not MIN_LEAF <= len(below) <= len(inside) - MIN_LEAF:
                    continue
                rest = [n for n in inside if samples[n][name] >= bound]
                left = best(below)[0] + best(rest)[0]
                if left < least - WORTH_A_TEST and (chosen is None or left < chosen[0]):
                    chosen = left, name, bound
    if chosen is None:
        return version
    _, name, bound = chosen
    then = _grow(costs, weights, samples, [n for n in inside if samples[n][name] < bound], depth - 1)
    other = _grow(costs, weights, samples, [n for n in inside if samples[n][name] >= bound], depth - 1)
    return then if then == other else SizeTest(Call("lt", (Size(name), int_const(bound))), then, other)


def _bounds(values: Iterator[int]) -> list[int]:
    """Powers of two, and the numbers halfway between them, among the values."""
    found = {v for value in values if value > 0 for p in (1 << (value.bit_length() - 1),) for v in (p, p + p // 2) if v > 1}
    return sorted(found)
