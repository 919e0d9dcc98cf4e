"""Ranges of the indices of one statement: rounds over the inequalities of its reads, as Tensor Comprehensions does.

Ranges that the user gives are fixed first.  Every read gives ``lower <= subscript <= upper`` for each dimension.  In a round,
each unsolved index is bounded by the inequalities in which it is the only free one; all indices solved in a round are
substituted, for all their values, at its end.  So the result depends on no order.  Conditions (``where j <= i``) cut points out
of the box of these ranges; they bound an index only where nothing else does, by the interval that some point can reach.  What
they say of a read themselves (``n + l < N`` beside ``x(n + l)``) they keep inside: such a read bounds no index.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import reduce

import islpy

from polyc.ir.expr import Call, Expr, Index, Read, ge, index_names, lt, operands_of
from polyc.ir.program import Condition, RangeClause, Statement
from polyc.ir.read_sites import Bounding, ReadSite, collect_reads, find_bounding, is_data_dependent
from polyc.ir.segments import is_loaded
from polyc.poly import isl
from polyc.poly.isl import Affine, NotAffine
from polyc.poly.linear import (
    Linear,
    add_forms,
    index_candidates,
    linear_form,
    multiply_out,
    relax_solved,
    scale_form,
    shift_form,
    subscript_inequalities,
    substitute_solved,
)
from polyc.poly.order import find_open_subscripts
from polyc.poly.sizes import Bounds, Sizes, Value
from polyc.records import dataclass

Side = tuple[int, int, int]
"""A bound of a read: its number among the statement's, the dimension, and 0 for the lower side, 1 for the upper one."""


@dataclass(frozen=True, eq=False, slots=True)
class StatementSolution:
    """`indices` holds the solved ones.  `implied`: subscripts that the ranges keep inside by construction.
    `kept`: bounds that follow from the conditions."""

    statement: Statement
    indices: dict[str, Bounds]
    sites: list[ReadSite]
    affine: Affine  # on [sizes] -> { S[indices] }
    conditions: tuple[islpy.Set, ...]  # affine `where` conditions, [sizes] -> { S[indices] }
    implied: frozenset[tuple[Read, int]]
    non_affine: tuple[Condition, ...] = ()
    kept: frozenset[Side] = frozenset()
    is_provisional: bool = False
    """Whether tensors of which a part was known bound an index: all of them may say something else."""
    reached: frozenset[tuple[str, int]] = frozenset()
    """Indices and sides (0: lower, 1: upper) that conditions alone bound, by the values that some point reaches."""

    @property
    def is_box(self) -> bool:
        return not self.conditions


@dataclass(eq=False, slots=True)
class _Inequality:
    forms: list[Linear]
    keys: list[tuple[Read, int]]
    weakness: int
    """0: bounds indices; 1: of a read that a condition on indices and sizes guards, or padded: where no other read does;
    2: of a tensor of which a part is known: where conditions do not, either; 3: of what others write of the same tensor, or
    of a subscript with a number that a call gives."""
    is_exact: bool = True


MAX_CONDITIONS = 8
"""Conditions of a statement, in its order, whose sums may keep a read inside."""

MAX_CHOICES = 64
"""Ways to complete one such sum by forms of single indices."""


class BadRange(Exception):
    """A range clause whose bounds are no affine functions of sizes and indices."""

    def __init__(self, clause: RangeClause) -> None:
        self.clause = clause


def solve_statement(
    s: Statement,
    tensors: Mapping[str, tuple[Bounds, ...]],
    sizes: Sizes,
    partial: Set[str] = frozenset(),
    may_keep: Callable[[Side], bool] = lambda side: True,
    written: Sequence[Bounds] = (),
    bounding: Sequence[Bounding] | None = None,
) -> StatementSolution:
    """Ranges of the indices of `s` from those of the tensors it reads; raises `BadRange`.

    `partial`: tensors of which only a part is known yet; like padded reads they bound an index that stands alone, where
    nothing else does, conditions included.  `may_keep`: whether conditions may be what keeps a read inside on a side.
    `written`: what others write of the same tensor; it bounds an index that is not read with and that nothing else bounds.
    `bounding`: how reads bound indices, in their order, where the program before sizes became numbers says it."""
    affine = Affine(isl.set_space(sizes.parameters, s.name, s.indices), {i: n for n, i in enumerate(s.indices)})
    sites = collect_reads(s)
    solved, given, conditions = _given_ranges(s, affine, sizes)
    non_affine: list[Condition] = []
    for clause in s.where:
        if isinstance(clause, Condition):
            try:
                conditions.append(affine.condition(clause.condition))
            except NotAffine:
                non_affine.append(clause)
    if all(i in solved for i in s.indices):  # reads bound nothing
        return StatementSolution(
            s, {i: solved[i] for i in s.indices}, sites, affine, tuple(conditions), frozenset(), tuple(non_affine)
        )
    bounding = find_bounding(sites) if bounding is None else bounding
    holding = _condition_forms(s, sizes)
    held, alone = _sums_of_conditions(holding), [f for f in holding if f.atom is None and len(f.coefficients) == 1]
    alone += _forms_of_single_indices(sites, bounding, tensors, sizes, partial) if holding else []
    pool, kept = _collect_inequalities(sites, bounding, tensors, sizes, partial, held, alone, may_keep)
    for d, sub in find_open_subscripts(s).items() if written else ():
        pool.append(_Inequality(subscript_inequalities(linear_form(sub, sizes), written[d]), [], 3))
    _substitute(pool, solved, sizes)
    used: set[int] = set()
    reached: set[tuple[str, int]] = set()
    weakest, last = 0, max((2, *(q.weakness for q in pool)))
    unsolved = [i for i in s.indices if i not in solved]
    while unsolved:
        found: dict[str, Bounds] = {}
        for index in unsolved:
            lowers, uppers = list(given.get(index, ([], []))[0]), list(given.get(index, ([], []))[1])
            sources: list[_Inequality] = []
            for q in (q for q in pool if q.weakness <= weakest):
                low, up, forms = index_candidates(index, q.forms)
                lowers += low
                uppers += up
                if forms:
                    sources.append(q)
            if lowers and uppers:
                found[index] = sizes.combine(lowers, uppers)
                used.update(id(q) for q in sources)
        if not found and weakest >= 1:
            near = [q for q in pool if q.weakness <= weakest]
            found = _bound_by_conditions(holding, unsolved, given, near, solved, sizes, reached)
        if not found and weakest == last:
            break
        if not found:
            weakest += 1
            continue
        solved |= found
        _substitute(pool, found, sizes)
        unsolved = [i for i in unsolved if i not in found]
    open_keys = {key for q in pool if id(q) not in used or not q.is_exact for key in q.keys}
    implied = frozenset(key for q in pool for key in q.keys if key not in open_keys)
    ordered = {i: solved[i] for i in s.indices if i in solved}
    is_provisional = any(q.weakness == 2 and id(q) in used for q in pool)
    return StatementSolution(
        s, ordered, sites, affine, tuple(conditions), implied, tuple(non_affine), kept, is_provisional, frozenset(reached)
    )


def _bound_by_conditions(
    forms: list[Linear],
    unsolved: list[str],
    given: Given,
    pool: list[_Inequality],
    solved: Mapping[str, Bounds],
    sizes: Sizes,
    reached: set[tuple[str, int]],
) -> dict[str, Bounds]:
    """Indices that become bounded once each condition counts that relates them to solved indices only; `reached` gets the
    sides of them that nothing else bounds."""
    found: dict[str, Bounds] = {}
    for index in unsolved:
        lowers, uppers = (list(side) for side in given.get(index, ([], [])))
        for q in pool:
            low, up, _ = index_candidates(index, q.forms)
            lowers += low
            uppers += up
        reachable = [r for f in forms if (r := relax_solved(f, index, solved)) is not None]
        low, up, _ = index_candidates(index, reachable)
        if lowers + low and uppers + up:
            found[index] = sizes.combine(lowers + low, uppers + up)
            reached |= {(index, side) for side, known in enumerate((lowers, uppers)) if not known}
    return found


def _condition_forms(s: Statement, sizes: Sizes) -> list[Linear]:
    """Linear forms that are >= 0 on the iteration space: what the conditions say one by one."""
    forms: list[Linear] = []

    def add(greater: Expr, less: Expr, offset: int) -> None:
        for high in operands_of(greater, "min"):
            for low in operands_of(less, "max"):
                with suppress(NotAffine):
                    form = shift_form(linear_form(high - low, sizes), sizes.constant(offset))
                    forms.append(multiply_out(form, sizes))

    def visit(condition: Expr) -> None:
        match condition:
            case Call("and", (a, b)):
                visit(a)
                visit(b)
            case Call("le", (a, b)) | Call("ge", (b, a)):
                add(b, a, 0)
            case Call("lt", (a, b)) | Call("gt", (b, a)):
                add(b, a, -1)
            case Call("eq", (a, b)):
                add(a, b, 0)
                add(b, a, 0)

    for clause in s.where:
        if isinstance(clause, Condition):
            visit(clause.condition)
        elif isinstance(clause, RangeClause):
            add(Index(clause.index), clause.lower, 0)
            add(clause.upper, Index(clause.index), -1)
    return forms


def _forms_of_single_indices(
    sites: list[ReadSite],
    bounding: Sequence[Bounding],
    tensors: Mapping[str, tuple[Bounds, ...]],
    sizes: Sizes,
    partial: Set[str],
) -> list[Linear]:
    """Linear forms that are >= 0 on the iteration space as plain reads with one index ask for it: ``k >= 0`` of ``x(k)``,
    which helps ``2 * k <= i`` to keep ``x(i - k)`` inside."""
    seen: set[tuple[Expr, int]] = set()
    found: list[Linear] = []
    for site, own in zip(sites, bounding, strict=True):
        is_guarded = site.is_padded or own.is_guarded
        for d, (sub, bounds) in enumerate(zip(site.read.subscripts, tensors.get(site.read.tensor, ()), strict=False)):
            if is_guarded or d in own.loose or is_data_dependent(sub) or (sub, id(bounds)) in seen:
                continue
            if len(index_names(sub)) != 1:
                continue
            if site.read.tensor in partial and not isinstance(sub, Index):
                continue
            seen.add((sub, id(bounds)))
            with suppress(NotAffine):
                found += [f for f in subscript_inequalities(linear_form(sub, sizes), bounds) if f.atom is None]
    return [f for n, f in enumerate(found) if not any(_is_same(f, g) for g in found[:n])]


def _is_same(f: Linear, g: Linear) -> bool:
    return f.coefficients == g.coefficients and bool(f.rest.plain_is_equal(g.rest))


def _sums_of_conditions(forms: Sequence[Linear]) -> list[Linear]:
    """Sums of one to three of the conditions' forms, which are >= 0 on the iteration space as well."""
    plain = [f for f in forms if f.atom is None][:MAX_CONDITIONS]
    return [reduce(add_forms, some) for n in (1, 2, 3) for some in itertools.combinations(plain, n)]


def _is_kept(side: Sequence[Linear], held: Sequence[Linear], alone: Sequence[Linear]) -> bool:
    """Whether conditions keep a read inside: what it asks for, over several indices, is what one of `held` says or less, with
    forms of single indices added as often as it takes."""
    return any(all(_follows(g, f, alone) for g in side) for f in held)


def _follows(g: Linear, held: Linear, alone: Sequence[Linear]) -> bool:
    """Whether a multiple of `g` is `held` and multiples of some of `alone`, but for a number: Farkas' lemma, in integers."""
    if g.atom is not None or len(g.coefficients) < 2:
        return False
    ratios = {held.coefficients.get(i, 0) // c for i, c in g.coefficients.items() if held.coefficients.get(i, 0) % c == 0}
    for times in sorted({1} | {r for r in ratios if r > 1}):
        multiple = scale_form(g, times)
        missing = add_forms(multiple, scale_form(held, -1))
        if missing.coefficients and len(held.coefficients) < 2:
            continue
        choices = [
            [(f, c // f.coefficients[i]) for f in alone if f.coefficients.get(i, 0) * c > 0 and c % f.coefficients[i] == 0]
            for i, c in missing.coefficients.items()
        ]
        for chosen in itertools.islice(itertools.product(*choices), MAX_CHOICES):
            rest = reduce(add_forms, (scale_form(f, -n) for f, n in chosen), missing).rest
            if rest.is_cst() and int(rest.max_val().to_python()) > -times:
                return True
    return False


Given = dict[str, tuple[list[Value], list[Value]]]


def _given_ranges(s: Statement, affine: Affine, sizes: Sizes) -> tuple[dict[str, Bounds], Given, list[islpy.Set]]:
    """Fixed ranges, indices with one side given, and conditions from bounds that mention other indices.  Bounds that read say
    nothing here: the data is checked against the ranges when the operator is called."""
    given: Given = {}
    conditions: list[islpy.Set] = []
    for clause in s.where:
        if not isinstance(clause, RangeClause):
            continue
        lowers, uppers = given.setdefault(clause.index, ([], []))
        is_lower, is_upper = (not is_loaded(bound) for bound in (clause.lower, clause.upper))
        try:
            if is_lower and index_names(clause.lower):
                conditions.append(affine.condition(ge(Index(clause.index), clause.lower)))
            if is_upper and index_names(clause.upper):
                conditions.append(affine.condition(lt(Index(clause.index), clause.upper)))
            if is_lower and not index_names(clause.lower):
                lowers += sizes.lower_candidates(clause.lower)
            if is_upper and not index_names(clause.upper):
                uppers += sizes.upper_candidates(clause.upper)
        except NotAffine:
            raise BadRange(clause) from None
    fixed = {i: sizes.combine(low, up) for i, (low, up) in given.items() if low and up}
    return fixed, {i: pair for i, pair in given.items() if i not in fixed}, conditions


def _collect_inequalities(
    sites: list[ReadSite],
    bounding: Sequence[Bounding],
    tensors: Mapping[str, tuple[Bounds, ...]],
    sizes: Sizes,
    partial: Set[str],
    held: Sequence[Linear],
    alone: Sequence[Linear],
    may_keep: Callable[[Side], bool],
) -> tuple[list[_Inequality], frozenset[Side]]:
    """One entry per distinct subscript and interval; equal subscripts of several reads share it.  What `held` and `alone` imply
    is left out, and told."""
    pool: list[_Inequality] = []
    kept: set[Side] = set()
    groups: dict[tuple[Expr, int], _Inequality] = {}
    for number, (site, own) in enumerate(zip(sites, bounding, strict=True)):
        if site.read.tensor not in tensors:
            continue
        is_partial = site.read.tensor in partial
        is_weak = site.is_padded or is_partial
        of_read = 2 if is_partial else int(is_weak or own.is_guarded)
        for d, (sub, bounds) in enumerate(zip(site.read.subscripts, tensors[site.read.tensor], strict=True)):
            if is_weak and not isinstance(sub, Index):
                continue  # bounds an index that stands alone only, where nothing else does
            weakness = 3 if d in own.loose else of_read
            known = groups.get((sub, id(bounds)))
            if known is not None:
                known.keys.append((site.read, d))
                known.weakness = min(known.weakness, weakness)
                continue
            if is_data_dependent(sub):
                continue
            try:
                form = linear_form(sub, sizes)
            except NotAffine:
                continue
            entry = groups[(sub, id(bounds))] = _Inequality([], [(site.read, d)], weakness)
            wanted = subscript_inequalities(form, bounds)
            sides = wanted[: len(bounds.lowers)], wanted[len(bounds.lowers) :]
            inside = {
                (number, d, k) for k, side in enumerate(sides) if _is_kept(side, held, alone) and may_keep((number, d, k))
            }
            kept |= inside
            entry.forms = [g for k, side in enumerate(sides) if (number, d, k) not in inside for g in side]
            entry.is_exact = form.atom is None and len(entry.forms) == len(wanted)
            pool.append(entry)
    return pool, frozenset(kept)


def _substitute(pool: list[_Inequality], solved: Mapping[str, Bounds], sizes: Sizes) -> None:
    """Replace the solved indices; inequalities without an unsolved one bound nothing any more and are dropped."""
    for q in pool:
        if any(f.atom is not None or f.coefficients.keys() & solved.keys() for f in q.forms):
            open_forms = [f for f in q.forms if f.atom is not None or not f.coefficients.keys() <= solved.keys()]
            q.forms = [g for f in open_forms for g in substitute_solved(f, solved, sizes)]
