"""The statements of an adjoint: sums of terms, each over the elements that it is made to.

    terms   ``d_Y[i]`` where t = T, ``d_A[t+1, i-1]`` where t < T and i >= 2, ``d_A[t+1, i]`` where t < T
    pieces  ``d_A[T, i] = d_Y[i]``,  ``d_A[t, i] = d_A[t+1, i] + (i >= 2 ? d_A[t+1, i-1] : 0)   where t in 0:T``

Integer sets say which conditions are left, in their simplest form.  The step at which a recurrence begins is a statement of its
own, as people write them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce

from polyc.gradients.rules import plus
from polyc.ir.expr import Const, Expr, Index, Select, eq, int_const, reads, substitute
from polyc.ir.program import RangeClause, Statement
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.domains import condition_inside, has_divs, subtract_domain
from polyc.poly.frames import Frame, upper_end
from polyc.poly.isl import Set, dim_type
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace

MIN_TERMS = 3
"""Terms with conditions of their own from which on points at which all of them hold are told apart at once."""


@dataclass(frozen=True, slots=True)
class Term:
    """What is added to the elements in `domain`."""

    domain: Set  # { [e] }
    value: Expr


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements that one statement computes: `left` over the indices of `box`."""

    left: tuple[Expr, ...]
    box: Mapping[str, Interval]
    value: Expr


def make_pieces(
    terms: Sequence[Term], box: Mapping[str, Interval], ranges: Ranges, dtype: DType, adjoints: Collection[str]
) -> Iterator[Piece]:
    """The statements that compute all elements of a box; `adjoints`: tensors that these may be a recurrence with."""
    whole = Frame(ranges, box).domain
    end = _find_end(terms, box, ranges, adjoints)
    add = _add_apart if any(r.tensor in adjoints for t in terms for r in reads(t.value)) else add_terms
    left: tuple[Expr, ...] = tuple(map(Index, box))
    if end is None:
        yield Piece(left, box, add(terms, whole, tuple(box), dtype))
        return
    index, place, others = end
    there = Frame(ranges, box)
    there.restrict(eq(Index(index), place))
    value = substitute(add_terms(terms, there.domain, tuple(box), dtype), {index: place})
    yield Piece(tuple(substitute(e, {index: place}) for e in left), {i: b for i, b in box.items() if i != index}, value)
    yield Piece(left, {**box, index: others}, add(terms, subtract_domain(whole, there.domain), tuple(box), dtype))


def _find_end(
    terms: Sequence[Term], box: Mapping[str, Interval], ranges: Ranges, adjoints: Collection[str]
) -> tuple[str, Expr, Interval] | None:
    """An index whose first or last value has terms of its own, and none of a recurrence; that value, and the others."""
    carried = [t for t in terms if any(r.tensor in adjoints for r in reads(t.value))]
    for index, b in box.items() if carried else ():
        last, rest = simplify(upper_end(b) - 1), simplify(b.extent - 1)
        for place, others in ((last, Interval(b.lower, rest)), (b.lower, Interval(simplify(b.lower + 1), rest))):
            frame = Frame(ranges, box)
            frame.restrict(eq(Index(index), place))
            own = [t for t in terms if not t.domain.is_empty() and t.domain.is_subset(frame.domain)]
            if own and b.extent != int_const(1) and all(t.domain.is_disjoint(frame.domain) for t in carried):
                return index, place, others
    return None


def _add_apart(terms: Sequence[Term], within: Set, names: Sequence[str], dtype: DType) -> Expr:
    """The sum of all terms at the points of a set, written out for those that most terms are added to: loops over these ask one
    condition."""
    value, inside, n_met = add_terms(terms, within, names, dtype), within, 0
    for term in terms:
        met = inside.intersect(term.domain).coalesce()
        if met.n_basic_set() == 1 and not met.is_empty() and _is_solid(met, within):
            n_met += not within.is_subset(term.domain)
            inside = met
    inside = reduce(subtract_domain, (t.domain for t in terms if not inside.is_subset(t.domain)), inside).coalesce()
    if n_met < MIN_TERMS or inside.n_basic_set() != 1 or inside.is_empty():
        return value
    return Select(condition_inside(inside, within, names), add_terms(terms, inside, names, dtype), value)


def _is_solid(domain: Set, within: Set) -> bool:
    """Whether a set has no equalities but those of another one."""
    own, others = (s.affine_hull().get_constraints() for s in (domain, within))
    return sum(c.is_equality() for c in own) == sum(c.is_equality() for c in others)


def add_terms(terms: Sequence[Term], within: Set, names: Sequence[str], dtype: DType) -> Expr:
    """The sum of all terms at the points of a set."""
    left = [(t.domain.intersect(within), t.value) for t in terms]
    left = [(domain, value) for domain, value in left if not domain.is_empty()]
    total: Expr | None = None
    while left:
        domain, _ = left[0]
        value = _take(left, domain, dtype)
        if not within.is_subset(domain):
            outside = subtract_domain(within, domain)
            other = _take(left, outside, dtype)
            if outside.n_basic_set() < domain.coalesce().n_basic_set():
                value = Select(condition_inside(outside, within, names), other, value)
            else:
                value = Select(condition_inside(domain, within, names), value, other)
        total = plus(total, value)
    return Const(0.0, dtype) if total is None else total


def _take(left: list[tuple[Set, Expr]], domain: Set, dtype: DType) -> Expr:
    """The sum of the values that stand over exactly this domain, which leave the list; 0 without any."""
    total: Expr | None = None
    for entry in [e for e in left if e[0].is_equal(domain)]:
        left.remove(entry)
        total = plus(total, entry[1])
    return Const(0.0, dtype) if total is None else total


def find_reached(s: Statement, names: Sequence[str], box: Sequence[Interval], ranges: Ranges) -> Set:
    """The elements, counted from the beginnings of their box, that points of a sum are added to: at most, as far as known."""
    elements = dict(zip(names, box, strict=True))
    whole = Frame(ranges, elements).domain
    clauses = [w for w in s.where if isinstance(w, RangeClause)]
    points = {w.index: Interval(w.lower, simplify(w.upper - w.lower)) for w in clauses if w not in loaded_clauses(s.where)}
    frame = Frame(ranges, elements | points)
    if points.keys() != set(s.indices):
        return whole
    for name, b, subscript in zip(names, box, s.subscripts, strict=True):
        frame.restrict(eq(Index(name), simplify(subscript + b.lower)))  # where data names a place, anywhere
    for w in s.where:
        if not isinstance(w, RangeClause):
            for e in w.expressions:
                frame.restrict(e)
    n = len(names)
    reached = frame.domain.project_out(dim_type.set, n, len(points)).coalesce()
    return whole if has_divs(reached) else reached.intersect(whole)


def drop_repeated(s: Statement) -> tuple[Statement, list[int]]:
    """Without the dimensions whose subscript is an index that another one has: of a diagonal, one is left.  With the
    dimensions that are left."""
    kept = [d for d, e in enumerate(s.subscripts) if not isinstance(e, Index) or e not in s.subscripts[:d]]
    return replace(s, subscripts=tuple(s.subscripts[d] for d in kept)), kept
