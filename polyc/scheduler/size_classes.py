"""Which sizes a kernel for any sizes should be compiled for, as several versions, and which of them a call takes.

What is best for one size may be twice as slow for another: a register tile for ten rows, vectors along the width of an image
that is seven wide, a copy that few rows pay for.  The cost model of contractions ranks the choices without compiling: sizes are
drawn over magnitudes, always the same ones; each is given the best choice of its own, in each form that rewritings can give
the program; and of the sizes as representatives those few are taken that leave least to be gained.  A call takes the version
that costs least by the same model at its own sizes, which it computes (`size_costs`).

Extents of windows are few and seldom change, but decide much: sums over three taps may be filtered, those over one are no
windows at all.  Where they are symbolic, some forms take the first call's for known; behind these there is always a version for
any others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from math import inf, prod

import numpy as np

from polyc.ir.expr import Const, Expr, int_const
from polyc.ir.versions import evaluate_arrays, sizes_as_arrays
from polyc.machine import Machine
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass
from polyc.scheduler.amounts import Formula, as_expr, product
from polyc.scheduler.contractions.contraction import find_contraction
from polyc.scheduler.size_costs import CostModel, Form
from polyc.scheduler.size_samples import LARGEST_WINDOW, draw_sizes, grid, side_sizes, window_sizes, with_sides

MAX_CONTRACTIONS = 6
"""Contractions that are looked at, those with most work first."""

PREFERENCE = 0.04
"""Part of the time that a representative may lose to a later one: what the model does not see, the first sizes and those that
are all large get right."""

SMALL_PREFERENCE = PREFERENCE / 2
"""The same for versions beside the first."""

ENOUGH_WORK = 1 << 24
"""Products from which a call counts in full: far below, its time is mostly that of the call."""

MOST_ELEMENTS = 1 << 30
"""Of one array: calls with longer ones are not expected, and sizes that are all drawn large give such."""

FIRST_SHARE = 0.1
"""Weight of the first call's sizes among all samples."""

WORTHWHILE = (0.0, 0.08, 0.1)
"""Parts of the time, on the average of all samples, that a second and a third version must save: the cost model is hardly more
precise, and each takes as long to compile as the first."""

OTHER_FORM = 0.05
"""The same for a version of a form that none has: it is far better at sizes that few samples have, as three channels."""


@dataclass(frozen=True, slots=True)
class Version:
    """`typical`: what estimates take symbolic sizes for; `form`: which of those that `count_forms` counts; `known`: sizes that
    all calls of the version have."""

    typical: dict[str, int]
    form: int = 0
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SizeClasses:
    """A call takes the version of least cost at its sizes."""

    versions: tuple[Version, ...]
    costs: tuple[Expr, ...]


def find_windows(scop: Scop, target: Machine) -> dict[str, int]:
    """The first call's extents of windows, by size symbol, where they are few: other calls may be expected to have the same."""
    found = {name: scop.ranges.typical.get(name, 0) for name in sorted(window_sizes(_contractions(scop, target)))}
    return found if all(1 <= n <= LARGEST_WINDOW for n in found.values()) else {}


def is_worth_known_sizes(form: Form, plain: Form, target: Machine) -> bool:
    """Whether a form of known sizes is another program than `plain`, for any.  A loop over a few taps inside of a loop over
    channels runs as fast where their number is not known; but sums over taps alone share what they read where all of them are
    unrolled."""
    sums = ([s.extents[i] for i in s.reduction_indices] for s in _contractions(form.scop, target))
    return form.folds != plain.folds or any(all(isinstance(e, Const) for e in extents) for extents in sums)


def find_size_classes(forms: Sequence[Form], target: Machine, constants: Collection[str] = ()) -> SizeClasses | None:
    """The versions that a kernel of this program is worth; None where nothing is to choose.

    The first of `forms` is the program as written, for any sizes; all have typical values for symbolic sizes."""
    scop = forms[0].scop
    first = {n: v for n, v in scop.ranges.typical.items() if n in scop.program.sizes}
    statements = _contractions(scop, target)
    if not first or not statements:
        return None
    models = [CostModel(form, target, constants, _contractions(form.scop, target), len(forms) > 1) for form in forms]
    windows, sides = window_sizes(statements), side_sizes(statements)
    # Where several contractions may be fused, sizes that differ decide more than the model sees.
    corners = [first]
    for sizes in grid(first, windows, len(statements) == 1):
        if sizes not in corners:
            corners.append(sizes)
    # What is planned for many images leaves threads nothing to share in one.
    large = next(grid(first, windows, False))
    kept = {name: first[name] for name in models[0].tiled_sizes(large)[1] - sides - windows}
    near = with_sides(first, windows, sides, kept) if sides and len(statements) == 1 else corners
    representatives = [first]
    for sizes in (_without_cuts(models, {**sizes, **kept}, kept) for sizes in near):
        if sizes not in representatives:
            representatives.append(sizes)
    samples = [*corners, *draw_sizes(first, windows, sides)]
    values = sizes_as_arrays(samples, scop.program.defined_sizes)
    work = np.maximum(evaluate_arrays(models[0].work(), values), 1).tolist()
    fits = np.max([evaluate_arrays(extent, values) for extent in _elements(scop)], axis=0) <= MOST_ELEMENTS
    expected = (fits | (not fits[1:].any())).tolist()  # of arrays in very many dimensions all
    weights = [min(1.0, w / ENOUGH_WORK) ** 0.5 if own else 0.0 for w, own in zip(work, expected, strict=True)]
    weights[0] = FIRST_SHARE * sum(weights[1:])
    total = sum(weights)
    weights = [w / total for w in weights]
    # Candidates are numbered by representatives, those of each form in turn.
    made = [(form, n) for n in range(len(representatives)) for form in range(len(forms))]
    found = [models[form].at(representatives[n]) for form, n in made]
    choices = [models[form].choose(own) for (form, _), own in zip(made, found, strict=True)]
    alike: dict[str, list[int]] = {}
    for n, own in enumerate(choices):
        told = [c and (c.way.tile, c.way.lanes, c.way.packs_vector, c.way.packs_rows, c.way.block) for c in own]
        alike.setdefault(repr((made[n][0], told)), []).append(n)
    candidates = [numbers[0] for numbers in alike.values()]
    if len(candidates) == 1:
        typical = forms[0].fold(first)
        return None if typical == first else SizeClasses((Version(typical),), (int_const(0),))
    formulas = {n: models[made[n][0]].cost(found[n], choices[n]) for n in candidates}
    runs = [np.array([form.fits(sizes) for sizes in samples]) for form in forms]
    cycles = {n: np.where(runs[made[n][0]], np.maximum(evaluate_arrays(formulas[n], values), 1), inf) for n in candidates}
    least = np.min(list(cycles.values()), axis=0)
    costs = {n: (own / least).tolist() for n, own in cycles.items()}
    numbers = [form for form, _ in made]
    is_real = work[0] >= target.threads.work_per_fork  # not a trial: its sizes are ones to be good at
    taken = _select(candidates, costs, weights, numbers, lambda n: bool(forms[numbers[n]].known), is_real)
    used = sorted(set(np.argmin([cycles[n] for n in taken], axis=0).tolist()))
    chosen = [taken[k] for k in used]
    costs_of = {n: formulas[n] for n in chosen}
    groups = [next(numbers for numbers in alike.values() if numbers[0] == n) for n in chosen]
    places = _where_taken(costs_of, sizes_as_arrays(representatives, scop.program.defined_sizes), len(representatives))
    versions = []
    for n, group in zip(chosen, groups, strict=True):
        form, place = made[min(group, key=lambda m: max(1.0, places[n][made[m][1]]))]
        versions.append(Version(forms[form].fold(representatives[place]), forms[form].number, forms[form].known))
    return SizeClasses(tuple(versions), tuple(costs_of.values()))


def _where_taken(costs: Mapping[int, Expr], sizes: Mapping[str, np.ndarray], count: int) -> dict[int, list[float]]:
    """What each version costs at `count` sizes, as a part of the one that costs least: other decisions than that of the tile
    follow the sizes that a version is made for, which should be some at which calls take it."""
    found = {n: np.broadcast_to(np.maximum(evaluate_arrays(cost, sizes), 1), count) for n, cost in costs.items()}
    least = np.min(list(found.values()), axis=0)
    return {n: (own / least).tolist() for n, own in found.items()}


def _elements(scop: Scop) -> list[Expr]:
    """Of each argument."""
    shapes = [t.shape for t in scop.tensors.values() if t.role != "temporary"]
    return [as_expr(product(map(Formula, shape)), 1) for shape in shapes]


def _without_cuts(models: Sequence[CostModel], sizes: dict[str, int], kept: Collection[str]) -> dict[str, int]:
    """`sizes`, but 1 for those of `kept` that a tile would cut: for calls with one image half of it would be empty."""
    if all(sizes[name] == 1 for name in kept):
        return sizes
    cut = {name for m in models if m.form.fits(sizes) for name in m.tiled_sizes(sizes)[0]}
    return sizes | dict.fromkeys(cut & set(kept), 1)


def _contractions(scop: Scop, target: Machine) -> list[ScopStatement]:
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
        return sum(w * min(shares) for w, *shares in zip(weights, *(costs[n] for n in versions), strict=True))

    def first_best(options: Sequence[list[int]]) -> list[int]:
        totals = [total(versions) for versions in options]
        return options[next(n for n, t in enumerate(totals) if t <= min(totals) + PREFERENCE)]

    def of_first(among: Sequence[int]) -> Sequence[int]:
        return [min(among, key=lambda n: costs[n][0])] if prefers_first else among

    general, known = [n for n in candidates if not is_known(n)], [n for n in candidates if is_known(n)]
    taken = first_best([[n] for n in of_first(general)])
    if known:
        pair = min(([n, special] for special in of_first(known) for n in of_first(general)), key=total)
        if min(total(taken), total(pair[:1])) - total(pair) >= WORTHWHILE[1]:
            taken = pair
    while len(taken) < len(WORTHWHILE):
        present, now, least = {forms[n] for n in taken}, total(taken), WORTHWHILE[len(taken)]
        totals = {n: total([*taken, n]) for n in candidates}
        enough = [n for n in candidates if now - totals[n] >= (least if forms[n] in present else OTHER_FORM)]
        if not enough:
            break
        best = min(enough, key=lambda n: (forms[n] in present, totals[n]))
        alike = (n for n in enough if forms[n] == forms[best] and totals[n] <= totals[best] + SMALL_PREFERENCE)
        taken.append(next(alike))
    return taken
