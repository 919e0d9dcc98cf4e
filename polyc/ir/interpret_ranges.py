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
from math import prod

import numpy as np

from polyc.diagnostics import Diagnostic, RangeError
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, children, evaluate, walk
from polyc.ir.program import Condition, Exists, Program, RangeClause, Statement
from polyc.ir.types import BOOL

Interval = tuple[int, int]
"""Half open: ``lower <= x < upper``."""
Box = dict[str, Interval]
Form = dict[Expr | int, int]
"""A sum of coefficient * term; terms are `Index` nodes or expressions that are not affine; the key 1 holds the constant."""


_MAX_POINTS = 1 << 22


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
    for statement in _order_statements(program):
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
        held = dict(list(enumerate(f for f in forms if _is_linear(f)))[:_MAX_CONDITIONS])
        margins: dict[int, dict[tuple[int, ...], int]] = {}
        sums = {some: reduce(_add, (held[k] for k in some)) for n in (1, 2, 3) for some in itertools.combinations(held, n)}
        for position, form in enumerate(wanted):
            if not _is_linear(form) or len(_indices(form)) < 2:
                continue
            for some, total in sums.items():
                rest = _add(form, total, -1)
                if rest.keys() <= {1} and rest.get(1, 0) >= 0:
                    margins.setdefault(position, {})[some] = rest.get(1, 0)
        found.append(margins)
    first, *others = found
    return frozenset(p for p, m in first.items() if any(all(o.get(p, {}).get(k) == v for o in others) for k, v in m.items()))


_MAX_CONDITIONS = 8
"""Conditions of a statement, in its order, whose sums may keep a read inside."""


def _is_linear(form: Form) -> bool:
    return all(isinstance(term, int | Index) for term in form)


def complete_sizes(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """`sizes` with the values of the defined symbols added."""
    values = dict(sizes)
    for name, expr in program.defined_sizes:
        values[name] = evaluate(expr, values)
    return values


@dataclass(frozen=True, slots=True)
class Component:
    """Tensor versions that need each other, with the statements that write them; one version where there is no recurrence."""

    versions: tuple[str, ...]
    statements: tuple[Statement, ...]
    is_recurrence: bool


def order_components(program: Program) -> list[Component]:
    """Components in topological order of their reads, source order breaking ties."""
    writers: dict[str, list[Statement]] = {}
    for s in program.statements:
        writers.setdefault(s.target, []).append(s)
    needs = {v: {r.tensor for s in group for r in _all_reads(s)} & writers.keys() for v, group in writers.items()}
    reach = {v: _reachable(v, needs) for v in writers}
    remaining, done = list(writers), set[str]()
    ordered: list[Component] = []
    while remaining:
        first = next(v for v in remaining if all(u in done or v in reach[u] for u in reach[v]))
        versions = tuple(v for v in remaining if v == first or (v in reach[first] and first in reach[v]))
        statements = tuple(s for s in program.statements if s.target in versions)
        ordered.append(Component(versions, statements, first in reach[first]))
        done |= set(versions)
        remaining = [v for v in remaining if v not in done]
    return ordered


def _reachable(start: str, needs: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    stack = [start]
    while stack:
        fresh = needs[stack.pop()] - found
        found |= fresh
        stack.extend(fresh)
    return found


def _order_statements(program: Program) -> list[Statement]:
    """Statements after those whose tensors they read; source order breaks ties, and cycles where they begin."""
    writers: dict[str, set[str]] = {}
    for s in program.statements:
        writers.setdefault(s.target, set()).add(s.name)
    waiting = {s.name: {w for r in _all_reads(s) for w in writers.get(r.tensor, ())} - {s.name} for s in program.statements}
    remaining, done = list(program.statements), set[str]()
    ordered: list[Statement] = []
    while remaining:
        s = next((s for s in remaining if waiting[s.name] <= done), remaining[0])
        ordered.append(s)
        done.add(s.name)
        remaining.remove(s)
    return ordered


def _all_reads(statement: Statement) -> Iterator[Read]:
    roots = [statement.value, *statement.subscripts]
    if statement.reduction is not None:
        roots.append(statement.reduction.init)
    for clause in statement.where:
        if not isinstance(clause, RangeClause):
            roots.append(clause.value if isinstance(clause, Exists) else clause.condition)
    for root in roots:
        yield from (node for node in walk(root) if isinstance(node, Read))


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
                if _indices_of(x) and any(isinstance(node, Index | Size) for node in walk(y)):
                    return False
        case Call("floordiv" | "mod", (a, b)):
            if any(isinstance(node, Index) for node in walk(b)) or (_indices_of(a) and not _is_literal(b)):
                return False
        case Call() if expr.op not in _AFFINE:
            return False
    return all(_is_affine_condition(child) for child in children(expr))


_AFFINE = frozenset("add sub neg max min lt le gt ge eq ne and or not".split())


def _is_literal(expr: Expr) -> bool:
    return not any(isinstance(node, Index | Size | Read) for node in walk(expr))


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
                yield Call("le", (clause.lower, Index(clause.index))), not _indices_of(clause.lower)
                yield Call("lt", (Index(clause.index), clause.upper)), not _indices_of(clause.upper)


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
    return _interval_of(_form(expr, sizes), box)


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
            help_text = f"give it in a where clause, such as: where {unsolved[0]} in 0:N"
            help_text += f" (in a function: with polyc.where(0 <= {unsolved[0]} < N))"
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
            if own not in form or _indices(others) & {index} or not _indices(others) <= box.keys():
                continue
            least = _minimum(_add({1: 0}, others, -1), box)  # minus the largest value of the others
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
            return [_add(_add(_form(high, sizes), _form(low, sizes), -1), {1: 0 if plain == "le" else -1})]
        case Call("eq", args):
            return [form for op in ("ge", "le") for form in _condition_forms(Call(op, args), sizes)]
    return []


def _given_ranges(s: Statement, sizes: Mapping[str, int]) -> tuple[Box, list[_Inequality]]:
    """Ranges that the user fixed; where a bound depends on another index, the other bound as an inequality."""
    lowers: dict[str, list[int]] = {}
    uppers: dict[str, list[int]] = {}
    for clause in s.where:
        if isinstance(clause, RangeClause):
            if not _indices_of(clause.lower):
                lowers.setdefault(clause.index, []).append(evaluate(clause.lower, sizes))
            if not _indices_of(clause.upper):
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
                form = _form(sub, sizes)
                for inequality in (_add(form, {1: -lower}), _add({1: upper - 1}, form, -1)):
                    result.append(_Inequality(inequality, _indices(inequality), 2 if is_own else int(is_guarded)))
    return result


def _bound_index(index: str, inequalities: list[_Inequality], unsolved: list[str], box: Box) -> tuple[int | None, int | None]:
    lower: int | None = None
    upper: int | None = None
    for q in inequalities:
        if index not in q.indices or len(q.indices.intersection(unsolved)) != 1:
            continue
        low, up = _solve_nonnegative(q.form, index, box) or (None, None)
        lower = low if lower is None else lower if low is None else max(lower, low)
        upper = up if upper is None else upper if up is None else min(upper, up)
    return lower, upper


# --- Forms -----------------------------------------------------------------------------------------------------------


def _add(a: Form, b: Form, factor: int = 1) -> Form:
    result = dict(a)
    for term, coefficient in b.items():
        result[term] = result.get(term, 0) + factor * coefficient
    return {term: c for term, c in result.items() if c or term == 1}


def _form(expr: Expr, sizes: Mapping[str, int]) -> Form:
    match expr:
        case Const():
            return {1: int(expr.value)}
        case Size():
            return {1: sizes[expr.name]}
        case Index():
            return {expr: 1, 1: 0}
        case Cast() if expr.dtype.is_integer:  # subscripts are far from the ends of any integer type that holds them
            return _form(expr.value, sizes)
        case Call("add", (a, b)):
            return _add(_form(a, sizes), _form(b, sizes))
        case Call("sub", (a, b)):
            return _add(_form(a, sizes), _form(b, sizes), -1)
        case Call("neg", (a,)):
            return _add({1: 0}, _form(a, sizes), -1)
        case Call("mul", (a, b)):
            x, y = _form(a, sizes), _form(b, sizes)
            if len(x) == 1 and 1 in x:
                return _add({1: 0}, y, x[1])
            if len(y) == 1 and 1 in y:
                return _add({1: 0}, x, y[1])
    if not any(isinstance(node, Index | Read) for node in walk(expr)):
        return {1: evaluate(expr, sizes)}
    return {_fold(expr, sizes): 1, 1: 0}


def _fold(expr: Expr, sizes: Mapping[str, int]) -> Expr:
    """`expr` with operands that hold no index as constants, so that terms can be evaluated without sizes."""
    if isinstance(expr, Call):
        return Call(expr.op, tuple(_fold(a, sizes) for a in expr.args))
    if any(isinstance(node, Index | Read) for node in walk(expr)):
        return expr
    return Const(evaluate(expr, sizes))


def _indices(form: Form) -> frozenset[str]:
    names = (_indices_of(term) for term in form if not isinstance(term, int))
    return frozenset().union(*names)


def _indices_of(expr: Expr) -> frozenset[str]:
    return frozenset(node.name for node in walk(expr) if isinstance(node, Index))


def _interval_of(form: Form, box: Box) -> Interval:
    """Smallest and one beyond the largest value over the box; the bounds as they stand for a plain index."""
    lower, minus_upper = _minimum(form, box), _minimum(_add({1: 0}, form, -1), box)
    if lower is None or minus_upper is None:
        message = "this left subscript has no range that can be found"
        raise RangeError(Diagnostic("range-unsolved", message, None, "write an index name, or an affine expression"))
    return lower, 1 - minus_upper


def _minimum(form: Form, box: Box) -> int | None:
    """The least value over the box.  An index with an empty range counts with its bounds as they stand, so that extents
    stay the same formula at every size."""
    total = form.get(1, 0)
    seen: set[str] = set()
    joint: Form = {}
    for term, coefficient in form.items():
        if isinstance(term, int):
            continue
        if isinstance(term, Index):
            lower, upper = box[term.name]
            total += coefficient * (lower if coefficient > 0 else upper - 1)
        else:
            joint[term] = coefficient
        if seen & _indices_of(term):
            joint = {t: c for t, c in form.items() if not isinstance(t, int)}
            total = form.get(1, 0)
            break
        seen |= _indices_of(term)
    if not joint:
        return total
    names = sorted(_indices(joint))
    if prod(max(box[n][1] - box[n][0], 1) for n in names) > _MAX_POINTS:
        return None
    axes = np.ix_(*(np.arange(box[n][0], max(box[n][1], box[n][0] + 1), dtype=np.int64) for n in names))
    values = dict(zip(names, axes, strict=True))
    sums = sum((c * _evaluate_many(t, values) for t, c in joint.items() if not isinstance(t, int)), np.int64(0))
    return total + int(np.min(sums))


def _evaluate_many(expr: Expr, values: Mapping[str, np.ndarray]) -> np.ndarray:
    names = sorted(_indices_of(expr))
    points = np.broadcast_arrays(*(values[n] for n in names))
    flat = [p.ravel().tolist() for p in points]
    results = [evaluate(expr, dict(zip(names, point, strict=True))) for point in zip(*flat, strict=True)]
    return np.array(results, np.int64).reshape(points[0].shape)


# --- Inequalities in one unknown -------------------------------------------------------------------------------------

Bounds = tuple[int | None, int | None]


def _solve_nonnegative(form: Form, index: str, box: Box) -> Bounds | None:
    """The interval of `index` where ``form >= 0`` for all values of the other indices; None: not an interval we can find."""
    holding = [t for t in form if not isinstance(t, int) and index in _indices_of(t)]
    if not holding:
        return None, None  # says nothing about the index: a precondition
    if len(holding) > 1:
        return None
    term = holding[0]
    rest = {t: c for t, c in form.items() if t != term}
    if _indices_of(term) & _indices(rest):
        return None
    least = _minimum(rest, box)
    if least is None:
        return None
    coefficient = form[term]
    if isinstance(term, Index):
        if coefficient > 0:
            return -(least // coefficient), None
        return None, least // -coefficient + 1
    if coefficient > 0:
        return _peel(term, -(least // coefficient), 1, index, box)
    return _peel(term, least // -coefficient, -1, index, box)


def _peel(term: Expr, bound: int, sign: int, index: str, box: Box) -> Bounds | None:
    """Solve ``term >= bound`` (sign 1) or ``term <= bound`` (sign -1)."""
    match term:
        case Call("floordiv", (a, Const(divisor))) if divisor > 0:
            limit = bound * int(divisor) + (0 if sign > 0 else int(divisor) - 1)
            return _solve_nonnegative(_toward(a, limit, sign), index, box)
        case Call("max" | "min" as op, (a, b)):
            parts = [_toward(x, bound, sign) for x in (a, b)]
            if (op == "min") == (sign > 0):  # both must hold
                return _intersect(_solve_nonnegative(parts[0], index, box), _solve_nonnegative(parts[1], index, box))
            for part, other in itertools.permutations(parts):  # one of them must hold
                if index not in _indices(part) and (least := _minimum(part, box)) is not None:
                    return (None, None) if least >= 0 else _solve_nonnegative(other, index, box)
            return None
    return None


def _toward(expr: Expr, bound: int, sign: int) -> Form:
    """The form that is >= 0 where ``expr >= bound`` (sign 1) or ``expr <= bound`` (sign -1)."""
    return _add({1: -sign * bound}, _form(expr, {}), sign)


def _intersect(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    if a is None or b is None:
        return a or b  # what is known still bounds the index; the rest is checked during evaluation
    lowers = [x for x in (a[0], b[0]) if x is not None]
    uppers = [x for x in (a[1], b[1]) if x is not None]
    return max(lowers, default=None), min(uppers, default=None)
