"""Ranges of indices at concrete sizes, for the reference interpreter alone.

The rules are those of Tensor Comprehensions' range inference, applied to plain integers: ranges given by the user are fixed
first; every read gives ``lower <= subscript < upper``; rounds solve the indices that stand alone in an inequality once the
solved ones are substituted *for all their values*; a whole round is solved before anything is substituted.  Reads in an arm
of a selection whose condition is over indices and sizes, and subscripts of padded reads that are an index alone, bound
an index only where no other read does.  Subscripts with numbers that a call gives bound what nothing
else does.  The symbolic
inference of the compiler lives elsewhere and shares no code with this file: each is a check on the other.

What conditions say of a read themselves (``n + l < N`` beside ``x(n + l)``) they keep inside: such a read bounds no index.
That holds for all sizes or not at all, so it is decided by looking at two other choices of sizes as well.

Beyond affine subscripts, an index inside one floor division, minimum or maximum is bounded by peeling that operator off where
the result is an interval; any other inequality stays a precondition, checked while statements are evaluated.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import reduce

from polyc.diagnostics import Diagnostic, RangeError
from polyc.ir.components import order_components, order_statements, reads_of_statement
from polyc.ir.expr import Expr, Index, Read, evaluate, walk
from polyc.ir.interpret_forms import Box, Form, Interval, add_forms, form_of, indices_of_form, interval_of, is_linear_form
from polyc.ir.interpret_statement import (
    clause_conditions,
    collect_inequalities,
    condition_forms,
    execution_conditions,
    open_dimensions,
    solve_statement,
)
from polyc.ir.program import Program, Statement, find_numbers
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class ConcreteRanges:
    """`statements`: per statement, the range of each index.  `tensors`: per tensor version, the range of each dimension."""

    statements: dict[str, Box]
    tensors: dict[str, tuple[Interval, ...]]


def solve_ranges(program: Program, sizes: Mapping[str, int]) -> ConcreteRanges:
    """Ranges of all statements and tensor versions at `sizes` (all symbols, defined ones may be missing).

    Raises RangeError where a range cannot be found, is negative, or does not cover a declared shape.
    """
    worlds = _solve_worlds(program, sizes, [])
    for _ in range(_MAX_ROUNDS):
        if not worlds[0].provisional:
            break
        before, worlds = worlds, _solve_worlds(program, sizes, worlds)
        if [w.statements for w in worlds] == [w.statements for w in before]:
            break
    else:
        if worlds[0].provisional:
            message = "the ranges of a recurrence grow with what is written"
            s = next(s for s in program.statements if s.target in worlds[0].provisional)
            raise RangeError(Diagnostic("range-unsolved", message, s.span, "give its indices ranges in a where clause"))
    tensors = worlds[0].tensors
    for result in program.returns:  # what the caller's array holds at entry has the coordinates of what it holds at the end
        if result.initial is not None and result.version in tensors:
            tensors.setdefault(result.initial, tensors[result.version])
    return ConcreteRanges(worlds[0].statements, tensors)


_MAX_ROUNDS = 4


def _solve_worlds(program: Program, sizes: Mapping[str, int], before: list[_World]) -> list[_World]:
    """All statements, at `sizes` and where conditions count at two other choices.  `before`: what the round before found."""
    numbers = find_numbers(program)
    worlds = [_World(sizes := complete_sizes(program, sizes), numbers)]
    if any(execution_conditions(s) for s in program.statements):
        worlds += [_World(complete_sizes(program, other), numbers) for other in _other_sizes(program, sizes)]
    for world, known in zip(worlds, before, strict=False):
        world.whole = known.tensors
    for tensor in program.tensors:
        for world in worlds if tensor.shape is not None else []:
            extents = tuple(evaluate(e, world.sizes) for e in tensor.shape or ())
            for dimension, extent in enumerate(extents):
                if extent < 0 and world is worlds[0]:
                    message = f"dimension {dimension} of {tensor.base} has the negative extent {extent}"
                    raise RangeError(Diagnostic("range-negative", message, tensor.span, "give larger sizes"))
            world.tensors[tensor.name] = tuple((0, e) for e in extents)
    unfinished = Counter(s.target for s in program.statements)
    recurrences = [frozenset(c.versions) for c in order_components(program) if c.is_recurrence]
    waiting = order_statements(program)
    while waiting:
        late: list[Statement] = []
        errors: list[RangeError] = []
        for s in waiting:
            own = next((versions for versions in recurrences if s.target in versions), frozenset[str]())
            needed = {r.tensor for r in reads_of_statement(s)}
            if late and any(unfinished[t] for t in needed - own):
                late.append(s)
                continue
            try:
                _solve_among(program, s, worlds, unfinished, own)
            except RangeError as error:
                # What others of the recurrence write may tell, or what others write of the same tensor.
                unknown = {t for t in needed & own if t not in worlds[0].tensors and t not in worlds[0].whole}
                if error.code != "range-unsolved" or not (unknown or (unfinished[s.target] > 1 and open_dimensions(s))):
                    raise
                late.append(s)
                errors.append(error)
        if len(late) == len(waiting):
            last = next((s for s in late if s.target in worlds[0].tensors and open_dimensions(s)), None)
            if last is None:
                raise errors[0]
            late.remove(last)
            _solve_among(program, last, worlds, unfinished, frozenset(), is_last=True)
        waiting = late
    return worlds


def _solve_among(
    program: Program,
    s: Statement,
    worlds: list[_World],
    unfinished: Counter[str],
    own: frozenset[str],
    is_last: bool = False,
) -> None:
    """One statement in all worlds.  What ranges of its recurrence, `own`, say that follow from a part of it counts only where
    nothing else does, and last what others write of its tensor, which counts once they are done, or wait (`is_last`)."""
    is_last = is_last or unfinished[s.target] == 1
    partial = {t for t, count in unfinished.items() if count - (t == s.target) > 0} | {s.target}
    weak = partial | (worlds[0].provisional & own)
    try:
        _solve_in_worlds(program, s, worlds, weak, is_last)
    except RangeError as error:
        if weak == partial or error.code != "range-unsolved":
            raise
        _solve_in_worlds(program, s, worlds, partial, is_last)
    unfinished[s.target] -= 1
    if program.tensor(s.target).shape is not None:
        is_shared = sum(other.target == s.target for other in program.statements) > 1
        _check_declared(program, s, worlds[0].written, worlds[0].tensors[s.target], is_shared)
    _check_extents(s, worlds[0])


def _solve_in_worlds(program: Program, s: Statement, worlds: list[_World], partial: set[str], is_last: bool) -> None:
    kept = _find_kept(s, worlds, partial) if len(worlds) > 1 else frozenset()
    for world in worlds:
        _solve_in_world(program, s, world, partial, kept, is_last)


@dataclass(slots=True)
class _World:
    """Ranges at one choice of sizes."""

    sizes: Mapping[str, int]
    numbers: frozenset[str]
    """Sizes whose values a call gives as numbers."""
    tensors: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    statements: dict[str, Box] = field(default_factory=dict)
    whole: Mapping[str, tuple[Interval, ...]] = field(default_factory=dict)
    """All that is written of tensors, as the round before found it."""
    provisional: set[str] = field(default_factory=set)
    """Versions whose ranges follow from a part of others."""
    written: tuple[Interval, ...] = ()
    """What the last statement writes."""


def _other_sizes(program: Program, sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Two other choices: larger by different numbers, and in the opposite order."""
    defined = {name for name, _ in program.defined_sizes}
    names = sorted((n for n in sizes if n not in defined), key=lambda n: (sizes[n], n))
    larger = {n: sizes[n] + 7 + 3 * k for k, n in enumerate(names)}
    return [larger, {n: 40 + 11 * (len(names) - k) for k, n in enumerate(names)}]


def _solve_in_world(
    program: Program, s: Statement, world: _World, partial: set[str], kept: frozenset[int], is_last: bool
) -> None:
    tensors, target = world.tensors, s.target
    written = tensors.get(target, ()) if is_last else ()
    box, is_provisional = solve_statement(s, world.sizes, _tensors_for(world, partial), partial, kept, written, world.numbers)
    world.statements[s.name] = box
    if is_provisional:
        world.provisional.add(target)
    known = tensors.get(target) or _initial_interval(program, s, tensors)
    whole = known or (None,) * len(s.subscripts)
    world.written = tuple(_written_interval(e, world.sizes, box, d) for e, d in zip(s.subscripts, whole, strict=True))
    if program.tensor(target).shape is None:
        pairs = zip(known or world.written, world.written, strict=True)
        tensors[target] = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)


def _tensors_for(world: _World, partial: set[str]) -> dict[str, tuple[Interval, ...]]:
    return {**world.tensors, **{t: intervals for t, intervals in world.whole.items() if t in partial}}


def _find_kept(s: Statement, worlds: list[_World], partial: set[str]) -> frozenset[int]:
    """Positions of the inequalities of reads that follow from clauses at any sizes: a sum of one to three conditions or bounds,
    with bounds and reads of one index as often as it takes, says the same over several indices, but for a number that does not
    depend on sizes."""
    found: list[dict[int, dict[tuple[object, ...], int]]] = []
    for world in worlds:
        asked = collect_inequalities(s, world.sizes, _tensors_for(world, partial), partial, world.numbers)
        wanted = [q.form for q in asked]
        forms = [f for c, _ in clause_conditions(s) for f in condition_forms(c, world.sizes)]
        held = dict(list(enumerate(f for f in forms if is_linear_form(f)))[:_MAX_CONDITIONS])
        sums = {some: reduce(add_forms, (held[k] for k in some)) for n in (1, 2, 3) for some in itertools.combinations(held, n)}
        alone = {k: f for k, f in enumerate(forms) if is_linear_form(f) and len(indices_of_form(f)) == 1}
        plain = {-1 - n: q for n, q in enumerate(asked) if not q.is_guarded and is_linear_form(q.form)}
        alone |= {k: q.form for k, q in plain.items() if len(q.indices) == 1}
        margins: dict[int, dict[tuple[object, ...], int]] = {}
        for position, form in enumerate(wanted):
            if is_linear_form(form) and len(indices_of_form(form)) > 1:
                for some, total in sums.items():
                    for way, margin in _margins(form, total, alone):
                        margins.setdefault(position, {})[some, *way] = margin
        found.append(margins)
    first, *others = found
    return frozenset(p for p, m in first.items() if any(all(o.get(p, {}).get(k) == v for o in others) for k, v in m.items()))


def _margins(wanted: Form, total: Form, alone: Mapping[int, Form]) -> Iterator[tuple[tuple[object, ...], int]]:
    """Ways to say a multiple of `wanted` by `total` and multiples of some of `alone`, and what they say beyond it."""
    ratios = {total.get(t, 0) // c for t, c in wanted.items() if t != 1 and total.get(t, 0) % c == 0}
    for times in sorted({1} | {r for r in ratios if r > 1}):
        missing = add_forms({t: c * times for t, c in wanted.items()}, total, -1)
        terms = [t for t in missing if t != 1]
        if terms and len(indices_of_form(total)) < 2:
            continue
        choices = [[k for k, f in alone.items() if (c := f.get(t, 0)) * missing[t] > 0 and missing[t] % c == 0] for t in terms]
        for chosen in itertools.islice(itertools.product(*choices), _MAX_CHOICES):
            rest = missing
            for t, k in zip(terms, chosen, strict=True):
                rest = add_forms(rest, alone[k], -(missing[t] // alone[k][t]))
            if rest.get(1, 0) > -times:
                yield (times, chosen), rest.get(1, 0)


_MAX_CONDITIONS = 8
"""Conditions of a statement, in its order, whose sums may keep a read inside."""

_MAX_CHOICES = 64
"""Ways to complete one such sum by forms of single indices."""


def complete_sizes(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with the values of the defined symbols added."""
    values = dict(sizes)
    for name, expr in program.defined_sizes:
        values[name] = evaluate(expr, values)
    return values


def _initial_interval(
    program: Program, s: Statement, tensors: Mapping[str, tuple[Interval, ...]]
) -> tuple[Interval, ...] | None:
    """The elements of the version that a reduction over a part of the tensor continues from."""
    if s.reduction is None or not s.writes_part:
        return None
    element = tuple(Index(name) for name in s.element_names)
    for node in walk(s.reduction.init):
        if isinstance(node, Read) and node.subscripts == element:
            return tensors.get(node.tensor)
    return None


def _written_interval(expr: Expr, sizes: Mapping[str, int], box: Box, known: Interval | None) -> Interval:
    """The values of a left subscript; one that depends on data reaches all of what is known of the dimension."""
    if any(isinstance(node, Read) for node in walk(expr)):
        if known is None:
            message = "the extent of this dimension depends on data"
            help = (
                "declare a result with its sizes, as in -> (float(B) H), or assign the tensor first, H(k) = 0 where k in 0:K, "
            )
            help += "and add with += (in a function: with polyc.where(0 <= k < K))"
            raise RangeError(Diagnostic("range-unsolved", message, expr.span, help))
        return known
    return interval_of(form_of(expr, sizes), box)


def _check_declared(
    program: Program, s: Statement, written: tuple[Interval, ...], declared: tuple[Interval, ...], is_merged: bool
) -> None:
    """Nothing beyond a declared shape is written; a single assignment must write all of it."""
    base = program.tensor(s.target).base
    may_leave = is_merged or s.reduction is not None or not s.has_plain_left
    for dimension, ((lower, upper), (_, extent)) in enumerate(zip(written, declared, strict=True)):
        if lower < 0 or upper > extent or (not may_leave and (lower, upper) != (0, extent)):
            message = (
                f"dimension {dimension} of {base} is declared as {extent}, but its elements {lower} to {upper - 1} are computed"
            )
            raise RangeError(Diagnostic("range-declared-shape", message, s.span, "declare the extent that is computed"))


def _check_extents(s: Statement, world: _World) -> None:
    """No range ends before it begins."""
    sizes = world.sizes
    for index, (lower, upper) in world.statements[s.name].items():
        if upper < lower:
            message = f"the range of index {index} is negative: it starts at {lower} and ends before {upper}"
            if sizes:
                message += f" (with {', '.join(f'{n}={v}' for n, v in sizes.items())})"
            help = "choose sizes that leave an extent of 0 or more"
            raise RangeError(Diagnostic("range-negative", message, s.span, help))
