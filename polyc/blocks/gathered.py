"""Sums into computed elements, as sums over the points that reach each element.

``y[2 * i + k] += f(i, k)`` does not say which points are added to an element, so that no block of y could be computed alone.
The equalities that hold between elements and points, ``e = 2 * i + k``, are solved for indices (the innermost ones first, which
keeps the order in which an element's values are added):

    y[e] += f(i, e - 2 * i)   where 0 <= e - 2 * i < K

Adjoints of borders are such sums, too: ``d[t - 1, min(max(i - 1, 0), N - 1)] += g(t, i)`` at the points with i - 1 < 0 alone is
``d[e, e'] = e' == 0 && e < T ? g(e + 1, 0) : 0``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polyc.diagnostics import PolycError
from polyc.ir.expr import (
    MONOIDS,
    Call,
    Const,
    Expr,
    Index,
    Select,
    Size,
    all_hold,
    eq,
    evaluate,
    ge,
    index_names,
    int_const,
    lt,
    operands_of,
    reads,
    rewrite,
    substitute,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Condition, Program, RangeClause, Statement, map_statement
from polyc.ir.read_sites import is_data_dependent
from polyc.ir.simplify import simplify, simplify_value
from polyc.poly.frames import Frame, kept_to
from polyc.poly.infer import infer_ranges
from polyc.poly.isl import Set, dim_type
from polyc.poly.ranges import Interval, Ranges
from polyc.records import replace


def gather_sums(program: Program, ranges: Ranges, sizes: Mapping[str, int]) -> tuple[Program, Ranges]:
    """The program with sums into computed elements solved where that can be, for sizes that are at least these.

    The caller holds the compile lock."""
    writers = program.writers()
    statements = [s if len(writers[s.target]) > 1 else _gather(program, ranges, sizes, s) for s in program.statements]
    if all(a is b for a, b in zip(statements, program.statements, strict=True)):
        return program, ranges
    changed = replace(program, statements=tuple(statements), rules=())
    try:
        found = infer_ranges(changed)
    except PolycError:
        return program, ranges
    is_same = all(found.tensors.get(s.target) == ranges.tensors[s.target] for s in program.statements)
    is_right = all(evaluate(check.condition, sizes) for check in found.checks)
    return (changed, found) if is_same and is_right else (program, ranges)


def _gather(program: Program, ranges: Ranges, sizes: Mapping[str, int], s: Statement) -> Statement:
    tests = [t for w in s.where for t in tests_of(w)]
    is_plain = s.has_plain_left and not (tests and s.reduction_indices)
    if s.reduction is None or s.reduction.op not in MONOIDS or s.reduction.once or is_plain:
        return s
    if any(map(is_data_dependent, s.subscripts)) or any(reads(e) for w in s.where for e in w.expressions):
        return s
    own, frame = ranges.statements[s.name].indices, _frame(ranges, sizes, ranges.statements[s.name].indices, tests)
    subscripts = [simplify(_drop_modulo(e, frame)) for e in s.subscripts]
    tests = [simplify(_drop_modulo(e, frame)) for e in tests]
    elements = _name_elements(program, s)
    box = {e: i for e, i in zip(elements, ranges.tensors[s.target], strict=True) if e not in own} | dict(own)
    equal = [eq(Index(e), sub) for e, sub in zip(elements, subscripts, strict=True) if Index(e) != sub]
    whole = _frame(ranges, sizes, box, [*tests, *equal])
    solved = _solve(whole.domain, list(box), [i for i in s.indices if i not in elements])
    if not solved or not all(_is_simple(value, own[i]) for i, value in solved.items()):
        return s
    indices = (*elements, *(i for i in s.indices if i not in elements and i not in solved))
    box = {i: box[i] for i in indices}
    kept = [test for i, value in solved.items() for test in kept_to(value, own[i])]
    tests = _needed(ranges, sizes, box, [simplify(substitute(e, solved)) for e in (*kept, *tests, *equal)])
    init = substitute(s.reduction.init, {n: Index(e) for n, e in zip(s.element_names, elements, strict=True)})
    clauses = [RangeClause(i, b.lower, simplify(b.lower + b.extent), s.span) for i, b in box.items()]
    gathered = replace(
        map_statement(s, lambda e: simplify_value(substitute(e, solved))),
        subscripts=tuple(map(Index, elements)),
        indices=indices,
        where=(*clauses, *(Condition(t, s.span) for t in tests)),
        reduction=replace(s.reduction, init=init),
    )
    dtype = program.types[s.target]
    if gathered.reduction_indices or dtype != dtype.computed:
        return gathered
    value: Expr = Call(s.reduction.op, (init, gathered.value))
    value = Select(all_hold(tests), value, init) if tests else value
    return replace(gathered, value=value, where=tuple(clauses), reduction=None)


def _is_simple(value: Expr, interval: Interval) -> bool:
    """Whether what an index has become keeps it in bounds that are no quotients of several sizes."""
    coefficients = index_coefficients(value) or {}
    return isinstance(interval.extent, Const) or all(abs(n) <= 1 for n in coefficients.values())


def tests_of(clause: object) -> list[Expr]:
    """What a clause asks of points beside the box."""
    match clause:
        case Condition():
            return operands_of(clause.condition, "and")
        case RangeClause() if index_names(*clause.expressions):
            return [ge(Index(clause.index), clause.lower), lt(Index(clause.index), clause.upper)]
    return []


def _name_elements(program: Program, s: Statement) -> list[str]:
    """Names for the element's coordinates: the index where it stands alone, else new ones."""
    taken = {*program.sizes, *(n for n, _ in program.defined_sizes), *s.indices, *(t.name for t in program.tensors)}
    names: list[str] = []
    for d, e in enumerate(s.subscripts):
        name = e.name if isinstance(e, Index) else ""
        if not name or name in names:
            name = f"at{d}"
            while name in taken:
                name += "_"
            taken.add(name)
        names.append(name)
    return names


def _frame(ranges: Ranges, sizes: Mapping[str, int], box: Mapping[str, Interval], tests: Sequence[Expr]) -> Frame:
    """The points of a box that keep to some tests, as far as these are affine, for sizes that are at least what they are."""
    frame = Frame(ranges, box)
    for name in ranges.parameters:
        frame.restrict(ge(Size(name), sizes[name]))
    for test in tests:
        frame.restrict(test)
    return frame


def _drop_modulo(expr: Expr, frame: Frame) -> Expr:
    """Remainders of what is at most one divisor away from its range, without the division."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Call) and node.op == "mod":
            value, divisor = node.args
            for times in (0, -1, 1):
                least = simplify(times * divisor)
                if frame.implies(ge(value, least)) and frame.implies(lt(value, simplify(least + divisor))):
                    return simplify(value - least)
        return None

    return rewrite(expr, rule)


def _needed(ranges: Ranges, sizes: Mapping[str, int], box: Mapping[str, Interval], tests: Sequence[Expr]) -> list[Expr]:
    """Those of some tests that do not follow from the others."""
    kept = [t for test in dict.fromkeys(tests) for t in operands_of(test, "and") if not (isinstance(t, Const) and t.value)]
    for test in list(kept):
        others = [t for t in kept if t is not test]
        frame = _frame(ranges, sizes, box, others)
        if frame.implies(test):
            kept = others
        elif isinstance(test, Call) and test.op == "not":
            left = [t for t in operands_of(test.args[0], "and") if not frame.implies(t)]
            kept[kept.index(test)] = Call("not", (all_hold(left),)) if left else test
    return kept


def _solve(domain: Set, names: Sequence[str], wanted: Collection[str]) -> dict[str, Expr]:
    """What some of the `wanted` names are, by equalities that hold everywhere in a domain, over the names that are left."""
    rows = _equalities(domain, names)
    found: dict[str, Expr] = {}
    for name in reversed(list(wanted)):
        row = next((r for r in rows if abs(r.get(Index(name), 0)) == 1), None)
        if row is None:
            continue
        rows.remove(row)
        sign = row[Index(name)]
        form = {term: -sign * n for term, n in row.items() if term != Index(name)}
        value = _expression(form)
        found = {other: simplify(substitute(e, {name: value})) for other, e in found.items()} | {name: value}
        for r in rows:
            factor = r.pop(Index(name), 0)
            for term, n in form.items():
                r[term] = r.get(term, 0) + factor * n
    return found


def _equalities(domain: Set, names: Sequence[str]) -> list[dict[Expr, int]]:
    """The equalities of the affine hull: coefficients of indices, sizes, and of 1 for the constant."""
    hull = domain.affine_hull().remove_divs()
    kinds = dim_type
    terms: list[tuple[dim_type, int, Expr]] = [(kinds.set, n, Index(name)) for n, name in enumerate(names)]
    terms += [(kinds.param, n, Size(str(hull.get_dim_name(kinds.param, n)))) for n in range(hull.dim(kinds.param))]
    rows = []
    for constraint in hull.get_constraints():
        if constraint.is_equality():
            row = {e: int(constraint.get_coefficient_val(kind, n).to_python()) for kind, n, e in terms}
            row[int_const(1)] = int(constraint.get_constant_val().to_python())
            rows.append({term: n for term, n in row.items() if n})
    return rows


def _expression(form: Mapping[Expr, int]) -> Expr:
    value: Expr = int_const(0)
    for term, n in form.items():
        value = value + n * term
    return simplify(value)
