"""Ranges of indices at concrete sizes, for the reference interpreter alone.

The rules are those of Tensor Comprehensions' range inference, applied to plain integers: ranges given by the user are fixed
first; every read gives ``lower <= subscript < upper``; rounds solve the indices that stand alone in an inequality once the
solved ones are substituted *for all their values*; a whole round is solved before anything is substituted.  Reads in an arm
of a selection whose condition is over indices and sizes, and subscripts of padded reads that are an index alone, bound
an index only where no other read does.  The symbolic
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
from dataclasses import dataclass, field
from functools import reduce

from polyc.diagnostics import Diagnostic, RangeError
from polyc.ir.advice import help_range
from polyc.ir.components import order_statements
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, children, evaluate, walk
from polyc.ir.interpret_forms import (
    Box,
    Form,
    Interval,
    add_forms,
    form_of,
    indices_of,
    indices_of_form,
    interval_of,
    is_linear_form,
    minimum_of,
    solve_nonnegative,
)
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement
from polyc.ir.types import BOOL


@dataclass(frozen=True, slots=True)
class ConcreteRanges:
    """`statements`: per statement, the range of each index.  `tensors`: per tensor version, the range of each dimension."""

    statements: dict[str, Box]
    tensors: dict[str, tuple[Interval, ...]]


def solve_ranges(program: Program, sizes: Mapping[str, int]) -> ConcreteRanges:
    """Ranges of all statements and tensor versions at `sizes` (all symbols, defined ones may be missing).

    Raises RangeError where a range cannot be found, is negative, or does not cover a declared shape.
    """
    worlds = [_World(sizes := complete_sizes(program, sizes))]
    if any(execution_conditions(s) for s in program.statements):
        worlds += [_World(complete_sizes(program, other)) for other in _other_sizes(program, sizes)]
    for tensor in program.tensors:
        for world in worlds if tensor.shape is not None else []:
            extents = tuple(evaluate(e, world.sizes) for e in tensor.shape or ())
            for dimension, extent in enumerate(extents):
                if extent < 0 and world is worlds[0]:
                    message = f"dimension {dimension} of {tensor.base} has the negative extent {extent}"
                    raise RangeError(Diagnostic("range-negative", message, tensor.span, "give larger sizes"))
            world.tensors[tensor.name] = tuple((0, e) for e in extents)
    unfinished = Counter(s.target for s in program.statements)
    is_merged = {target for target, count in unfinished.items() if count > 1}
    for statement in order_statements(program):
        unfinished[statement.target] -= 1
        partial = {t for t, count in unfinished.items() if count} | {statement.target}
        kept = _find_kept(statement, worlds, partial) if len(worlds) > 1 else frozenset()
        for world in worlds:
            _solve_in_world(program, statement, world, partial, kept)
        if program.tensor(statement.target).shape is not None:
            is_shared = statement.target in is_merged
            _check_declared(program, statement, worlds[0].written, worlds[0].tensors[statement.target], is_shared)
        _check_extents(statement, worlds[0])
    tensors = worlds[0].tensors
    for result in program.returns:  # what the caller's array holds at entry has the coordinates of what it holds at the end
        if result.initial is not None and result.version in tensors:
            tensors.setdefault(result.initial, tensors[result.version])
    return ConcreteRanges(worlds[0].statements, tensors)


@dataclass(slots=True)
class _World:
    """Ranges at one choice of sizes."""

    sizes: Mapping[str, int]
    tensors: dict[str, tuple[Interval, ...]] = field(default_factory=dict)
    statements: dict[str, Box] = field(default_factory=dict)
    written: tuple[Interval, ...] = ()
    """What the last statement writes."""


def _other_sizes(program: Program, sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Two other choices: larger by different numbers, and in the opposite order."""
    defined = {name for name, _ in program.defined_sizes}
    names = sorted((n for n in sizes if n not in defined), key=lambda n: (sizes[n], n))
    larger = {n: sizes[n] + 7 + 3 * k for k, n in enumerate(names)}
    return [larger, {n: 40 + 11 * (len(names) - k) for k, n in enumerate(names)}]


def _solve_in_world(program: Program, s: Statement, world: _World, partial: set[str], kept: frozenset[int]) -> None:
    tensors, target = world.tensors, s.target
    box = world.statements[s.name] = _solve_statement(s, world.sizes, tensors, partial, kept)
    known = tensors.get(target) or _initial_interval(program, s, tensors)
    whole = known or (None,) * len(s.subscripts)
    world.written = tuple(_written_interval(e, world.sizes, box, d) for e, d in zip(s.subscripts, whole, strict=True))
    if program.tensor(target).shape is None:
        pairs = zip(known or world.written, world.written, strict=True)
        tensors[target] = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)


def _find_kept(s: Statement, worlds: list[_World], partial: set[str]) -> frozenset[int]:
    """Positions of the inequalities of reads that follow from clauses at any sizes: a sum of one to three conditions or bounds
    says the same over several indices, but for a number that does not depend on sizes."""
    found: list[dict[int, dict[tuple[int, ...], int]]] = []
    for world in worlds:
        wanted = [q.form for q in _collect_inequalities(s, world.sizes, world.tensors, partial)]
        forms = [f for c, _ in _clause_conditions(s) for f in _condition_forms(c, world.sizes)]
        held = dict(list(enumerate(f for f in forms if is_linear_form(f)))[:_MAX_CONDITIONS])
        margins: dict[int, dict[tuple[int, ...], int]] = {}
        sums = {some: reduce(add_forms, (held[k] for k in some)) for n in (1, 2, 3) for some in itertools.combinations(held, n)}
        for position, form in enumerate(wanted):
            if not is_linear_form(form) or len(indices_of_form(form)) < 2:
                continue
            for some, total in sums.items():
                rest = add_forms(form, total, -1)
                if rest.keys() <= {1} and rest.get(1, 0) >= 0:
                    margins.setdefault(position, {})[some] = rest.get(1, 0)
        found.append(margins)
    first, *others = found
    return frozenset(p for p, m in first.items() if any(all(o.get(p, {}).get(k) == v for o in others) for k, v in m.items()))


_MAX_CONDITIONS = 8
"""Conditions of a statement, in its order, whose sums may keep a read inside."""


def complete_sizes(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with the values of the defined symbols added."""
    values = dict(sizes)
    for name, expr in program.defined_sizes:
        values[name] = evaluate(expr, values)
    return values


def _constraining_reads(expr: Expr, is_guarded: bool) -> Iterator[tuple[Read, bool, bool]]:
    """Reads that bound indices, whether something guards them (a condition on indices and sizes, or padding), and whether
    only their subscripts that are an index alone count (those of padded reads)."""
    match expr:
        case Pad():
            yield expr.read, True, True
            for child in (*expr.read.subscripts, expr.value):
                yield from _constraining_reads(child, is_guarded)
        case Select():
            yield from _constraining_reads(expr.condition, is_guarded)
            for arm, holds in ((expr.then, True), (expr.other, False)):
                yield from _constraining_reads(arm, is_guarded or _guards(expr.condition, holds))
        case _:
            if isinstance(expr, Read):
                yield expr, is_guarded, False
            for child in children(expr):
                yield from _constraining_reads(child, is_guarded)


def _guards(condition: Expr, holds: bool) -> bool:
    """Whether it says something about indices and sizes that `condition` holds, or does not."""
    match condition:
        case Call("not", (a,)):
            return _guards(a, not holds)
        case Call("and" | "or" as op, (a, b)) if (op == "and") == holds:
            return _guards(a, holds) or _guards(b, holds)
    return _is_affine_condition(condition)


def _is_affine_condition(expr: Expr) -> bool:
    """Affine at any sizes: made of indices, sizes and constants, an index being multiplied by constants only."""
    match expr:
        case Read() | Pad():
            return False
        case Const() | Cast():
            if not (expr.dtype.is_integer or expr.dtype == BOOL):
                return False
        case Call("mul", (a, b)):
            for x, y in ((a, b), (b, a)):
                if indices_of(x) and any(isinstance(node, (Index, Size)) for node in walk(y)):
                    return False
        case Call("floordiv" | "mod", (a, b)):
            if any(isinstance(node, Index) for node in walk(b)) or (indices_of(a) and not _is_literal(b)):
                return False
        case Call() if expr.op not in _AFFINE:
            return False
    return all(_is_affine_condition(child) for child in children(expr))


_AFFINE = frozenset("add sub neg max min lt le gt ge eq ne and or not".split())


def _is_literal(expr: Expr) -> bool:
    return not any(isinstance(node, (Index, Size, Read)) for node in walk(expr))


def execution_conditions(s: Statement) -> list[Expr]:
    """What restricts the iteration space inside the box of the ranges: conditions, and bounds that depend on other indices."""
    return [condition for condition, is_given in _clause_conditions(s) if not is_given]


def _clause_conditions(s: Statement) -> Iterator[tuple[Expr, bool]]:
    """What the clauses say, in their order, and whether it is a bound without other indices."""
    for clause in s.where:
        match clause:
            case Condition():
                yield clause.condition, False
            case RangeClause():
                yield Call("le", (clause.lower, Index(clause.index))), not indices_of(clause.lower)
                yield Call("lt", (Index(clause.index), clause.upper)), not indices_of(clause.upper)


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


# --- One statement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Inequality:
    form: Form
    """Is >= 0."""
    indices: frozenset[str]
    weakness: int = 0
    """1: counts where no stronger one bounds the index; 2: where conditions do not, either."""


def _solve_statement(
    s: Statement,
    sizes: Mapping[str, int],
    tensors: Mapping[str, tuple[Interval, ...]],
    partial: set[str],
    kept: frozenset[int] = frozenset(),
) -> Box:
    """`partial`: tensors of which only a part is known; like padded reads, they bound an index that stands alone.
    `kept`: positions of the reads' inequalities that conditions imply."""
    box, inequalities = _given_ranges(s, sizes)
    wanted = _collect_inequalities(s, sizes, tensors, partial)
    inequalities += [q for position, q in enumerate(wanted) if position not in kept]
    # a read that a condition guards bounds an index only where no other read does
    weakest = 0
    while unsolved := [i for i in s.indices if i not in box]:
        found: Box = {}
        for index in unsolved:
            lower, upper = _bound_index(index, [q for q in inequalities if q.weakness <= weakest], unsolved, box)
            if lower is not None and upper is not None:
                found[index] = (lower, upper)
        if not found and weakest >= 1:
            found = _bound_by_conditions(s, sizes, [q for q in inequalities if q.weakness <= weakest], unsolved, box)
        if not found and weakest < 2:
            weakest += 1
            continue
        if not found:
            names = ", ".join(unsolved)
            message = f"the range of {names} does not follow from what is read"
            help_text = f"give it one, such as: {help_range(s.span, unsolved[0])}"
            raise RangeError(Diagnostic("range-unsolved", message, s.span, help_text))
        box |= found
    return {index: box[index] for index in s.indices}


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


def _bound_by_conditions(
    s: Statement, sizes: Mapping[str, int], inequalities: list[_Inequality], unsolved: list[str], box: Box
) -> Box:
    """Where nothing else bounds an index, it runs over all values that some point of the conditions reaches."""
    forms = [form for condition in execution_conditions(s) for form in _condition_forms(condition, sizes)]
    found: Box = {}
    for index in unsolved:
        lower, upper = _bound_index(index, inequalities, unsolved, box)
        for form in forms:
            own = Index(index)
            others = {t: c for t, c in form.items() if t != own}
            if own not in form or indices_of_form(others) & {index} or not indices_of_form(others) <= box.keys():
                continue
            least = minimum_of(add_forms({1: 0}, others, -1), box)  # minus the largest value of the others
            if least is None:
                continue
            c = form[own]
            if c > 0:
                bound = -(-least // c)
                lower = bound if lower is None else max(lower, bound)
            else:
                bound = -least // -c + 1
                upper = bound if upper is None else min(upper, bound)
        if lower is not None and upper is not None:
            found[index] = (lower, upper)
    return found


def _condition_forms(condition: Expr, sizes: Mapping[str, int]) -> list[Form]:
    """Forms that are >= 0 where the condition holds."""
    match condition:
        case Call("and", (a, b)):
            return _condition_forms(a, sizes) + _condition_forms(b, sizes)
        case Call("le" | "lt" | "ge" | "gt" as op, (a, b)):
            low, high = (a, b) if op in ("le", "lt") else (b, a)
            plain = "le" if op in ("le", "ge") else "lt"
            if isinstance(high, Call) and high.op == "min":
                return [f for part in high.args for f in _condition_forms(Call(plain, (low, part)), sizes)]
            if isinstance(low, Call) and low.op == "max":
                return [f for part in low.args for f in _condition_forms(Call(plain, (part, high)), sizes)]
            return [add_forms(add_forms(form_of(high, sizes), form_of(low, sizes), -1), {1: 0 if plain == "le" else -1})]
        case Call("eq", args):
            return [form for op in ("ge", "le") for form in _condition_forms(Call(op, args), sizes)]
    return []


def _given_ranges(s: Statement, sizes: Mapping[str, int]) -> tuple[Box, list[_Inequality]]:
    """Ranges that the user fixed; where a bound depends on another index, the other bound as an inequality."""
    lowers: dict[str, list[int]] = {}
    uppers: dict[str, list[int]] = {}
    for clause in s.where:
        if isinstance(clause, RangeClause):
            if not indices_of(clause.lower):
                lowers.setdefault(clause.index, []).append(evaluate(clause.lower, sizes))
            if not indices_of(clause.upper):
                uppers.setdefault(clause.index, []).append(evaluate(clause.upper, sizes))
    box = {i: (max(lowers[i]), min(uppers[i])) for i in lowers if i in uppers}
    rest = [_Inequality({Index(i): 1, 1: -max(v)}, frozenset({i})) for i, v in lowers.items() if i not in box]
    rest += [_Inequality({Index(i): -1, 1: min(v) - 1}, frozenset({i})) for i, v in uppers.items() if i not in box]
    return box, rest


def _collect_inequalities(
    s: Statement, sizes: Mapping[str, int], tensors: Mapping[str, tuple[Interval, ...]], partial: set[str]
) -> list[_Inequality]:
    """What the reads ask for.  Data-dependent subscripts ask for nothing here."""
    roots = [s.value, *s.subscripts] + [clause.value for clause in s.where if isinstance(clause, Exists)]
    if s.reduction is not None:
        roots.append(s.reduction.init)
    result = []
    for root in roots:
        for read, is_guarded, is_padded in _constraining_reads(root, False):
            for sub, (lower, upper) in zip(read.subscripts, tensors.get(read.tensor, ()), strict=False):
                is_own = read.tensor in partial
                if any(isinstance(node, Read) for node in walk(sub)) or ((is_padded or is_own) and not isinstance(sub, Index)):
                    continue
                form = form_of(sub, sizes)
                for inequality in (add_forms(form, {1: -lower}), add_forms({1: upper - 1}, form, -1)):
                    result.append(_Inequality(inequality, indices_of_form(inequality), 2 if is_own else int(is_guarded)))
    return result


def _bound_index(index: str, inequalities: list[_Inequality], unsolved: list[str], box: Box) -> tuple[int | None, int | None]:
    lower: int | None = None
    upper: int | None = None
    for q in inequalities:
        if index not in q.indices or len(q.indices.intersection(unsolved)) != 1:
            continue
        low, up = solve_nonnegative(q.form, index, box) or (None, None)
        lower = low if lower is None else lower if low is None else max(lower, low)
        upper = up if upper is None else upper if up is None else min(upper, up)
    return lower, upper
