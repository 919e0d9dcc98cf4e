"""Ranges of indices at concrete sizes, for the reference interpreter alone.

The rules are those of Tensor Comprehensions' range inference, applied to plain integers: ranges given by the user are fixed
first; every read gives ``lower <= subscript < upper``; rounds solve the indices that stand alone in an inequality once the
solved ones are substituted *for all their values*; a whole round is solved before anything is substituted.  Reads in an arm
of a selection whose condition is over indices and sizes, and subscripts of padded reads that are an index alone, bound
an index only where no other read does.  The symbolic
inference of the compiler lives elsewhere and shares no code with this file: each is a check on the other.

Beyond affine subscripts, an index inside one floor division, minimum or maximum is bounded by peeling that operator off where
the result is an interval; any other inequality stays a precondition, checked while statements are evaluated.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    sizes = complete_sizes(program, sizes)
    tensors: dict[str, tuple[Interval, ...]] = {}
    for tensor in program.tensors:
        if tensor.shape is not None:
            extents = tuple(evaluate(e, sizes) for e in tensor.shape)
            for dimension, extent in enumerate(extents):
                if extent < 0:
                    message = f"dimension {dimension} of {tensor.base} has the negative extent {extent}"
                    raise RangeError(Diagnostic("range-negative", message, tensor.span, "give larger sizes"))
            tensors[tensor.name] = tuple((0, e) for e in extents)
    statements: dict[str, Box] = {}
    unfinished = Counter(s.target for s in program.statements)
    is_merged = {target for target, count in unfinished.items() if count > 1}
    for statement in _order_statements(program):
        target = statement.target
        unfinished[target] -= 1
        box = _solve_statement(statement, sizes, tensors, {t for t, count in unfinished.items() if count} | {target})
        statements[statement.name] = box
        if program.tensor(target).shape is not None:
            written = tuple(
                _written_interval(e, sizes, box, d) for e, d in zip(statement.subscripts, tensors[target], strict=True)
            )
            _check_declared(program, statement, written, tensors[target], target in is_merged)
            continue
        known = tensors.get(target) or _initial_interval(program, statement, tensors)
        if known is None:
            tensors[target] = tuple(_written_interval(e, sizes, box, None) for e in statement.subscripts)
            continue
        written = tuple(_written_interval(e, sizes, box, d) for e, d in zip(statement.subscripts, known, strict=True))
        tensors[target] = tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(known, written, strict=True))
    for result in program.returns:  # what the caller's array holds at entry has the coordinates of what it holds at the end
        if result.initial is not None and result.version in tensors:
            tensors.setdefault(result.initial, tensors[result.version])
    return ConcreteRanges(statements, tensors)


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
    found: list[Expr] = []
    for clause in s.where:
        match clause:
            case Condition():
                found.append(clause.condition)
            case RangeClause():
                if _indices_of(clause.lower):
                    found.append(Call("le", (clause.lower, Index(clause.index))))
                if _indices_of(clause.upper):
                    found.append(Call("lt", (Index(clause.index), clause.upper)))
    return found


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
            help = "declare the result, as in -> (float(B) H), or accumulate onto a tensor that was assigned before"
            raise RangeError(Diagnostic("range-unsolved", message, None, help))
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
    is_guarded: bool


def _solve_statement(
    s: Statement, sizes: Mapping[str, int], tensors: Mapping[str, tuple[Interval, ...]], partial: set[str]
) -> Box:
    """`partial`: tensors of which only a part is known; like padded reads, they bound an index that stands alone."""
    box, inequalities = _given_ranges(s, sizes)
    inequalities += _collect_inequalities(s, sizes, tensors, partial)
    # a read that a condition guards bounds an index only where no other read does
    admitted = [q for q in inequalities if not q.is_guarded]
    while unsolved := [i for i in s.indices if i not in box]:
        found: Box = {}
        for index in unsolved:
            lower, upper = _bound_index(index, admitted, unsolved, box)
            if lower is not None and upper is not None:
                found[index] = (lower, upper)
        if not found and len(admitted) < len(inequalities):
            admitted = inequalities
            continue
        if not found:
            found = _bound_by_conditions(s, sizes, inequalities, unsolved, box)
        if not found:
            names = ", ".join(unsolved)
            message = f"the range of {names} does not follow from what is read"
            help_text = f"give it in a where clause, such as: where {unsolved[0]} in 0:N"
            help_text += f" (in a function: with polyc.where(0 <= {unsolved[0]} < N))"
            raise RangeError(Diagnostic("range-unsolved", message, s.span, help_text))
        box |= found
    for index in s.indices:
        lower, upper = box[index]
        if upper < lower:
            message = f"the range of index {index} is negative: it starts at {lower} and ends before {upper}"
            if sizes:
                message += f" (with {', '.join(f'{n}={v}' for n, v in sizes.items())})"
            help = "choose sizes that leave an extent of 0 or more"
            raise RangeError(Diagnostic("range-negative", message, s.span, help))
    return {index: box[index] for index in s.indices}


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
        case Call("eq", (a, b)):
            difference = _add(_form(a, sizes), _form(b, sizes), -1)
            return [difference, _add({1: 0}, difference, -1)]
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
    rest = [_Inequality({Index(i): 1, 1: -max(v)}, frozenset({i}), False) for i, v in lowers.items() if i not in box]
    rest += [_Inequality({Index(i): -1, 1: min(v) - 1}, frozenset({i}), False) for i, v in uppers.items() if i not in box]
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
                    result.append(_Inequality(inequality, _indices(inequality), is_guarded or is_own))
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
