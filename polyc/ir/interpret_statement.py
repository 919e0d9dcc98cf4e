"""Ranges of the indices of one statement at concrete sizes, for the reference interpreter alone: see `interpret_ranges`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from polyc.diagnostics import Diagnostic, RangeError
from polyc.ir.advice import help_range
from polyc.ir.expr import Call, Cast, Const, Expr, Index, Pad, Read, Select, Size, children, evaluate, le, lt, walk
from polyc.ir.interpret_forms import (
    Box,
    Form,
    Interval,
    add_forms,
    form_of,
    indices_of,
    indices_of_form,
    minimum_of,
    multiply_out,
    solve_nonnegative,
)
from polyc.ir.program import Condition, Exists, RangeClause, Statement
from polyc.ir.segments import is_loaded, loaded_clauses
from polyc.ir.types import BOOL
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class _Inequality:
    form: Form
    """Is >= 0."""
    indices: frozenset[str]
    weakness: int = 0
    """1: counts where no stronger one bounds the index; 2: where conditions do not, either; 3: where nothing else does."""
    is_guarded: bool = False
    """Whether it is asked where a condition on indices and sizes holds only, or by a padded read."""


def solve_statement(
    s: Statement,
    sizes: Mapping[str, int],
    tensors: Mapping[str, tuple[Interval, ...]],
    partial: set[str],
    kept: frozenset[int] = frozenset(),
    written: tuple[Interval, ...] = (),
    numbers: Set[str] = frozenset(),
) -> tuple[Box, bool]:
    """The range of each index, and whether tensors of which a part is known bound one.

    `partial`: tensors of which only a part is known; like padded reads, they bound an index that stands alone.
    `kept`: positions of the reads' inequalities that conditions imply.  `written`: what others write of the tensor.
    `numbers`: sizes whose values a call gives as numbers, which bound what nothing else does."""
    box, inequalities = _given_ranges(s, sizes)
    wanted = collect_inequalities(s, sizes, tensors, partial, numbers)
    inequalities += [q for position, q in enumerate(wanted) if position not in kept]
    for d in open_dimensions(s) if written else ():
        first, end = written[d]
        for form in (add_forms({1: -first}, {s.subscripts[d]: 1}), add_forms({1: end - 1}, {s.subscripts[d]: 1}, -1)):
            inequalities.append(_Inequality(form, indices_of_form(form), 3))
    # a read that a condition guards bounds an index only where no other read does
    weakest, last = 0, max([2, *(q.weakness for q in inequalities)])
    is_provisional = False
    empty: Box = {}
    while unsolved := [i for i in s.indices if i not in box]:
        found: Box = {}
        for index in unsolved:
            lower, upper = _bound_index(index, [q for q in inequalities if q.weakness <= weakest], unsolved, box)
            if lower is not None and upper is not None:
                found[index] = (lower, upper)
        if not found and weakest >= 1:
            found = _bound_by_conditions(s, sizes, [q for q in inequalities if q.weakness <= weakest], unsolved, box, empty)
        is_provisional = is_provisional or (weakest == 2 and bool(found))
        if not found and weakest < last:
            weakest += 1
            continue
        if not found:
            names = ", ".join(unsolved)
            message = f"the range of {names} does not follow from what is read"
            help_text = f"give it one, such as: {help_range(s.span, unsolved[0])}"
            raise RangeError(Diagnostic("range-unsolved", message, s.span, help_text))
        box |= found
    return {index: empty.get(index, box[index]) for index in s.indices}, is_provisional


def open_dimensions(s: Statement) -> list[int]:
    """Dimensions of the left side whose subscript is an index that no subscript of a read has."""
    read = frozenset[str]()
    for root in _roots(s):
        for node in walk(root):
            if isinstance(node, Read):
                read = read.union(*(indices_of(sub) for sub in node.subscripts))
    return [d for d, sub in enumerate(s.subscripts) if isinstance(sub, Index) and sub.name not in read]


def _bound_by_conditions(
    s: Statement, sizes: Mapping[str, int], inequalities: list[_Inequality], unsolved: list[str], box: Box, empty: Box
) -> Box:
    """Where nothing else bounds an index, it runs over all values that some point of the conditions reaches.  What no point
    reaches (``j in i+1:N`` where there is no ``i``) is none; `empty` gets it, from the end that is given."""
    forms = [form for condition in execution_conditions(s) for form in condition_forms(condition, sizes)]
    found: Box = {}
    for index in unsolved:
        lower, upper = given = _bound_index(index, inequalities, unsolved, box)
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
            if upper < lower and None in given:
                empty[index] = (lower, lower) if given[1] is None else (upper, upper)
    return found


def condition_forms(condition: Expr, sizes: Mapping[str, int]) -> list[Form]:
    """Forms that are >= 0 where the condition holds; none of what data says."""
    match condition:
        case Call("and", (a, b)):
            return condition_forms(a, sizes) + condition_forms(b, sizes)
        case Call("le" | "lt" | "ge" | "gt" as op, (a, b)):
            low, high = (a, b) if op in ("le", "lt") else (b, a)
            plain = "le" if op in ("le", "ge") else "lt"
            if isinstance(high, Call) and high.op == "min":
                return [f for part in high.args for f in condition_forms(Call(plain, (low, part)), sizes)]
            if isinstance(low, Call) and low.op == "max":
                return [f for part in low.args for f in condition_forms(Call(plain, (part, high)), sizes)]
            if is_loaded(low) or is_loaded(high):
                return []
            form = add_forms(add_forms(form_of(high, sizes), form_of(low, sizes), -1), {1: 0 if plain == "le" else -1})
            return [multiply_out(form)]
        case Call("eq", args):
            return [form for op in ("ge", "le") for form in condition_forms(Call(op, args), sizes)]
    return []


def _given_ranges(s: Statement, sizes: Mapping[str, int]) -> tuple[Box, list[_Inequality]]:
    """Ranges that the user fixed; where a bound depends on another index, the other bound as an inequality."""
    lowers: dict[str, list[int]] = {}
    uppers: dict[str, list[int]] = {}
    for clause in s.where:
        if isinstance(clause, RangeClause):
            if not indices_of(clause.lower) and not is_loaded(clause.lower):
                lowers.setdefault(clause.index, []).append(evaluate(clause.lower, sizes))
            if not indices_of(clause.upper) and not is_loaded(clause.upper):
                uppers.setdefault(clause.index, []).append(evaluate(clause.upper, sizes))
    box = {i: (max(lowers[i]), min(uppers[i])) for i in lowers if i in uppers}
    rest = [_Inequality({Index(i): 1, 1: -max(v)}, frozenset({i})) for i, v in lowers.items() if i not in box]
    rest += [_Inequality({Index(i): -1, 1: min(v) - 1}, frozenset({i})) for i, v in uppers.items() if i not in box]
    return box, rest


def collect_inequalities(
    s: Statement,
    sizes: Mapping[str, int],
    tensors: Mapping[str, tuple[Interval, ...]],
    partial: set[str],
    numbers: Set[str] = frozenset(),
) -> list[_Inequality]:
    """What the reads ask for.  Data-dependent subscripts ask for nothing here."""
    result = []
    for root in _roots(s):
        for read, is_guarded, is_padded in _constraining_reads(root, False, numbers):
            for sub, (lower, upper) in zip(read.subscripts, tensors.get(read.tensor, ()), strict=False):
                is_own = read.tensor in partial
                if any(isinstance(node, Read) for node in walk(sub)) or ((is_padded or is_own) and not isinstance(sub, Index)):
                    continue
                is_loose = any(isinstance(node, Size) and node.name in numbers for node in walk(sub))
                form = form_of(sub, sizes)
                for inequality in (add_forms(form, {1: -lower}), add_forms({1: upper - 1}, form, -1)):
                    weakness = 3 if is_loose else 2 if is_own else int(is_guarded)
                    result.append(_Inequality(inequality, indices_of_form(inequality), weakness, is_guarded or is_loose))
    return result


def _roots(s: Statement) -> list[Expr]:
    """The expressions of a statement that read."""
    initial = [s.reduction.init] if s.reduction is not None else []
    told = [clause.value for clause in s.where if isinstance(clause, Exists)]
    told += [bound for clause in loaded_clauses(s.where) for bound in (clause.lower, clause.upper)]
    return [s.value, *s.subscripts, *told, *initial]


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


def _constraining_reads(expr: Expr, is_guarded: bool, numbers: Set[str]) -> Iterator[tuple[Read, bool, bool]]:
    """Reads that bound indices, whether something guards them (a condition on indices and sizes, or padding), and whether
    only their subscripts that are an index alone count (those of padded reads)."""
    match expr:
        case Pad():
            yield expr.read, True, True
            for child in (*expr.read.subscripts, expr.value):
                yield from _constraining_reads(child, is_guarded, numbers)
        case Select():
            yield from _constraining_reads(expr.condition, is_guarded, numbers)
            for arm, holds in ((expr.then, True), (expr.other, False)):
                yield from _constraining_reads(arm, is_guarded or _guards(expr.condition, holds, numbers), numbers)
        case _:
            if isinstance(expr, Read):
                yield expr, is_guarded, False
            for child in children(expr):
                yield from _constraining_reads(child, is_guarded, numbers)


def _guards(condition: Expr, holds: bool, numbers: Set[str]) -> bool:
    """Whether it says something about indices and sizes that `condition` holds, or does not."""
    match condition:
        case Call("not", (a,)):
            return _guards(a, not holds, numbers)
        case Call("and" | "or" as op, (a, b)) if (op == "and") == holds:
            return _guards(a, holds, numbers) or _guards(b, holds, numbers)
    of_numbers = any(isinstance(node, Size) and node.name in numbers for node in walk(condition))
    return not of_numbers and _is_affine_condition(condition)


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
    return [condition for condition, is_given in clause_conditions(s) if not is_given]


def clause_conditions(s: Statement) -> Iterator[tuple[Expr, bool]]:
    """What the clauses say, in their order, and whether it is a bound without other indices."""
    for clause in s.where:
        match clause:
            case Condition():
                yield clause.condition, False
            case RangeClause():
                lower, upper = clause.lower, clause.upper
                yield le(lower, Index(clause.index)), not indices_of(lower) and not is_loaded(lower)
                yield lt(Index(clause.index), upper), not indices_of(upper) and not is_loaded(upper)
