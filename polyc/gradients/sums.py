"""Sums of contributions: statements over the elements that they are made to.

Where the subscripts of a read can be solved for an index of each dimension (`inversion`), a contribution gathers: it is an
expression, or a sum over the indices that are left, for an element.  So the adjoint of a convolution is a convolution, and that
of a matrix product two products.  Others scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

from polyc.gradients.adjoints import Conditions, conditions_of, select
from polyc.gradients.inversion import Solution, solve
from polyc.gradients.pieces import Term
from polyc.gradients.rules import plus
from polyc.ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Pad,
    Read,
    Select,
    eq,
    index_names,
    int_const,
    operands_of,
    reads,
    rewrite,
    substitute,
    walk,
)
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Condition, RangeClause, Reduction, Statement, Where
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import difference, simplify
from polyc.ir.types import DType
from polyc.poly.domains import condition_inside, has_divs
from polyc.poly.frames import Frame, kept_to, upper_end
from polyc.poly.isl import Set
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace

Adjoints = Mapping[str, tuple[DType, Sequence[Interval]]]


@dataclass(frozen=True, slots=True)
class Part:
    """What one statement contributes to the elements at `subscripts` of a version, over `intervals` of its indices: the sum of
    `terms`, each where its conditions hold."""

    statement: Statement
    intervals: Mapping[str, Interval]
    subscripts: tuple[Expr, ...]
    terms: tuple[tuple[Expr, Conditions], ...]


def gather(part: Part, names: Sequence[str], box: Sequence[Interval], ranges: Ranges, dtype: DType) -> list[Term] | None:
    """What is contributed to the element at `names`, where at most one point reaches it; else None."""
    s = part.statement
    if any(loaded_clauses(s.where)):
        return None
    steps = {i: b.lower for i, b in part.intervals.items() if b.extent == int_const(1)}
    subscripts = [simplify(substitute(e, steps)) for e in part.subscripts]
    solution = solve(subscripts, lambda d, i: names[d], [i for i in s.indices if i not in steps])
    frame = Frame(ranges, dict(zip(names, box, strict=True)))
    # Other dimensions, of a diagonal or at a number, are conditions.
    placed = [simplify(substitute(e, solution.indices)) for e in subscripts]
    equal = [eq(Index(n), e) for n, e, i in zip(names, placed, solution.solved, strict=True) if i is None]
    solution = replace(solution, indices=solution.indices | steps)
    if len(solution.indices) < len(s.indices) or any(frame.find(test) is None for test in equal):
        return None
    whole = frame.domain
    tests = [(t, True) for t in _narrow(frame, [*equal, *_tests(part, solution)])]
    found = []
    for value, conditions in _terms(part, solution, frame):
        domain, others = frame.domain, [(t, holds) for t, holds in tests if frame.find(t) is None]
        for condition, holds in conditions:
            there = frame.find(condition, holds)
            domain = domain if there is None else domain.intersect(there)
            others += [(condition, holds)] if there is None else []
        if has_divs(domain):
            domain, others = whole, [*tests, *conditions]
        found.append(Term(domain, select(tuple(others), value, dtype)))
    return found


def scatter(part: Part, box: Sequence[Interval], ranges: Ranges, dtype: DType, adjoints: Adjoints) -> Iterator[Statement]:
    """Sums over the points of a statement, without names and targets: one for all terms where each dimension of an element is
    an index of its own, else one for each, as for those at points of which an equality of indices leaves few.  Elements are
    counted from 0.  `adjoints`: the type of each adjoint, and what it has elements in."""
    s = part.statement
    pinned = [t for t in part.terms if any(map(_is_equality, t[1]))] if len(part.terms) > 1 else []
    if pinned:
        rest = tuple(t for t in part.terms if t not in pinned)
        for own in (rest, *((t,) for t in pinned)):
            yield from scatter(replace(part, terms=own), box, ranges, dtype, adjoints) if own else ()
        return
    loaded = list(loaded_clauses(s.where))
    fixed = {w.index for w in loaded} | index_names(*(e for w in loaded for e in w.expressions))
    new: dict[str, Interval] = {}
    at: dict[int, str] = {}
    whole = Frame(ranges, part.intervals)
    equal: list[Expr] = []

    def name_element(d: int, i: str) -> str:
        if part.subscripts[d] == Index(i) and (i in fixed or all(map(whole.implies, kept_to(Index(i), box[d])))):
            at[d] = i
            return i
        name = f"{i}_to"
        while name in s.indices or name in new:
            name += "_"
        new[name], at[d] = box[d], name
        return name

    solution = solve(part.subscripts, name_element, s.indices, fixed, lambda free: _in_rows(free, part))
    moved = {i for i, e in solution.indices.items() if e != Index(i)}
    points = new | {i: part.intervals[i] for i in s.indices if i not in moved}
    left = [Index(at[d]) if d in at else _place(e, solution) for d, e in enumerate(part.subscripts)]
    frame = Frame(ranges, points)
    for d, e in enumerate(left):
        is_linear = index_coefficients(e) is not None
        if d not in at and frame.is_affine(e) and not (is_linear and all(map(frame.implies, kept_to(e, box[d])))):
            # Conditions keep it inside, or the ends of its range do not say where it lies: over all elements, where it is one.
            left[d] = Index(name_element(d, "at"))
            points[at[d]] = box[d]
            equal.append(eq(left[d], e))
    if equal:
        frame = Frame(ranges, points)
    left = [simplify(e - b.lower) for e, b in zip(left, box, strict=True)]
    where: list[Where] = [RangeClause(i, b.lower, upper_end(b)) for i, b in points.items()]
    where += [replace(w, lower=_place(w.lower, solution), upper=_place(w.upper, solution)) for w in loaded]
    tests = _narrow(frame, [*equal, *_tests(part, solution)])
    terms = list(_terms(part, solution, frame))
    if len(terms) > 1:
        tests += _narrow(frame, _find_needed(terms, frame))
        terms = list(_terms(part, solution, frame))
    if len(terms) == 1 and not terms[0][1] and tests and not equal:
        padded = _pad(terms[0][0], moved, part, tests, Frame(ranges, points), adjoints, ranges)
        if padded is not None:
            tests, terms = [], [(padded, ())]
    where += map(Condition, tests)
    reduction = Reduction("add", Const(0.0, dtype))

    def make(left: Sequence[Expr], value: Expr, where: Sequence[Where]) -> Statement:
        order = dict.fromkeys([*(n.name for e in left for n in walk(e) if isinstance(n, Index)), *points])
        return Statement("", "", tuple(left), tuple(order), value, reduction, tuple(where), s.span)

    if None not in solution.solved and len(terms) > 1:
        total = reduce(lambda a, b: plus(a, b) or a, (select(conditions, value, dtype) for value, conditions in terms))
        yield make(left, total, where)
        return
    for value, conditions in terms:
        affine = [c if holds else Call("not", (c,)) for c, holds in conditions if frame.find(c, holds) is not None]
        others = tuple((c, holds) for c, holds in conditions if frame.find(c, holds) is None)
        safe, zero = left, int_const(0)
        known = [all(map(frame.implies, kept_to(e, Interval(zero, b.extent)))) for e, b in zip(left, box, strict=True)]
        for c, holds in others:
            safe = [e if k else Select(c, e, zero) if holds else Select(c, zero, e) for e, k in zip(safe, known, strict=True)]
        yield make(safe, select(others, value, dtype), [*where, *map(Condition, affine)])


def _in_rows(free: Sequence[str], part: Part) -> Sequence[str]:
    """Of indices with ranges of the same length, up to one value, those that move along rows only of what is read: elements
    that are neighbours then read neighbours, ``Y[k, k - e]`` of a row and not ``Y[i + e, i]`` of a diagonal."""
    apart = {i for value, _ in part.terms for r in reads(value) for i in index_names(*r.subscripts[:-1])}
    lengths = [part.intervals[i].extent for i in free]
    is_one = all(difference(length, lengths[0]) in (-1, 0, 1) for length in lengths)
    return ([i for i in free if i not in apart] if is_one else []) or free


def _pad(
    value: Expr, moved: set[str], part: Part, tests: Sequence[Expr], frame: Frame, adjoints: Adjoints, ranges: Ranges
) -> Expr | None:
    """A product of an adjoint with elements, with zeros around the adjoint in place of the tests: a convolution with a border.

    None where the tests say anything else, or where the elements are not there, or not a window's, at the points left out."""
    factors = operands_of(value, "mul")
    found = [r for f in factors for r in reads(f) if r.tensor in adjoints]
    if len(found) != 1 or any(not isinstance(f.value if isinstance(f, Cast) else f, (Read, Const)) for f in factors):
        return None
    (adjoint,) = found
    dtype, box = adjoints[adjoint.tensor]
    inside = [t for e, b in zip(adjoint.subscripts, box, strict=True) for t in kept_to(e, b)]
    others = [r for e, _ in part.terms for r in reads(e) if r.tensor not in adjoints]
    if any(index_names(*r.subscripts) & moved for r in others) or any(map(reads, adjoint.subscripts)):
        return None
    padded: dict[Expr, Expr] = {adjoint: Pad(adjoint, Const(0.0, dtype))}
    kept = list(inside)
    for factor in factors:
        # What a window's phase leaves out of the other factor, and what a test that is dropped kept it to.
        read = factor.value if isinstance(factor, Cast) else factor
        if isinstance(read, Read) and read != adjoint and read.tensor in ranges.tensors:
            tests_of = [t for e, b in zip(read.subscripts, ranges.tensors[read.tensor], strict=True) for t in kept_to(e, b)]
            beyond = [t for t in tests_of if not frame.implies(t)]
            if beyond and any(isinstance(f, Cast) for f in factors):
                return None  # of another type than the adjoint
            padded |= {read: Pad(read, Const(0.0, dtype))} if beyond else {}
            kept += beyond
    for test in kept:
        frame.restrict(test)
    if not all(map(frame.implies, tests)):
        return None
    return rewrite(value, lambda node: padded.get(node) if isinstance(node, Read) else None)


def _tests(part: Part, solution: Solution) -> Iterator[Expr]:
    """What keeps the points of a statement to themselves, once its indices are what they have been solved for."""
    for i, value in solution.indices.items():
        if value != Index(i):
            yield from kept_to(value, part.intervals[i])
    for condition in conditions_of(part.statement):
        yield from operands_of(simplify(substitute(condition, solution.indices)), "and")


def _narrow(frame: Frame, tests: Iterable[Expr]) -> list[Expr]:
    """The tests that do not hold anyway; the frame is what is left of it."""
    needed = []
    for test in tests:
        if not frame.implies(test):
            needed.append(test)
            frame.restrict(test)
    return needed


def _terms(part: Part, solution: Solution, frame: Frame) -> Iterator[tuple[Expr, Conditions]]:
    """The terms with those of their conditions that do not hold anyway; none that are zero at all points of the frame."""
    for value, conditions in part.terms:
        placed = [(_place(c, solution), holds) for c, holds in conditions]
        split = [(p, holds) for c, holds in placed for p in operands_of(c, "and" if holds else "or")]
        if not any(frame.excludes(c, holds) for c, holds in split):
            yield _place(value, solution), tuple((c, holds) for c, holds in split if not frame.implies(c, holds))


def _is_equality(condition: tuple[Expr, bool]) -> bool:
    expr, holds = condition
    return holds and any(isinstance(c, Call) and c.op == "eq" and not reads(c) for c in operands_of(expr, "and"))


def _find_needed(terms: Iterable[tuple[Expr, Conditions]], frame: Frame) -> list[Expr]:
    """What holds wherever a term contributes, as far as bounds say it; nothing where that is all of the frame."""
    needed = Set.empty(frame.domain.get_space())
    for _, conditions in terms:
        found = [there for c, holds in conditions if (there := frame.find(c, holds)) is not None]
        needed = needed.union(reduce(Set.intersect, found, frame.domain))
    hull = Set.from_basic_set(needed.coalesce().simple_hull())
    is_known = frame.domain.is_subset(hull) or has_divs(hull)
    return [] if is_known else list(operands_of(condition_inside(hull, frame.domain, tuple(frame.box)), "and"))


def _place(expr: Expr, solution: Solution) -> Expr:
    """An expression at the points that indices have become, with integers as short as they were."""

    def rule(node: Expr) -> Expr | None:
        return replace(node, subscripts=tuple(map(simplify, node.subscripts))) if isinstance(node, Read) else None

    moved = {i: e for i, e in solution.indices.items() if e != Index(i)}
    if not moved:
        return expr
    placed = rewrite(substitute(expr, moved), rule)
    return placed if reads(placed) else simplify(placed)
