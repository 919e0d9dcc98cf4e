"""Sums of products with a factor in common are one sum, of that factor and the sum of the others.

    before  ``d_A.part[i, k] += d_P[i, j] * A[j, k]``   where j <= i
            ``d_A.part2[i, k] += d_P[j, i] * A[j, k]``  where j >= i
    after   ``d_A.factor[i, j] = (j <= i ? d_P[i, j] : 0) + (j >= i ? d_P[j, i] : 0)``
            ``d_A.part[i, k] += d_A.factor[i, j] * A[j, k]``

So the adjoint of the product of a matrix with itself, or of a triangle of that, is one product, too.  Only products of matrices
are put together: the new factor has fewer elements than there are products with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import permutations

from polyc.gradients.pieces import Term, add_terms
from polyc.ir.expr import Const, Expr, Index, Read, index_names, operands_of, padded_reads, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.program import Condition, RangeClause, Statement
from polyc.ir.segments import loaded_clauses
from polyc.ir.simplify import simplify
from polyc.ir.types import DType
from polyc.poly.domains import condition_inside, unite_domains
from polyc.poly.frames import Frame
from polyc.poly.isl import Set, dim_type
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass, replace

Store = Callable[[Statement, Sequence[Interval]], Read]
"""Writes a statement that has no target yet, over a box of elements counted from 0, and gives the read of its element."""

MOST_SUMMED = 3
"""Indices of a sum whose orders are tried."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A sum of the products of `factors` over the points of `domain`, which lie in the `box` of its indices."""

    statement: Statement
    factors: list[Expr]
    box: Mapping[str, Interval]
    domain: Set


def add_common_factors(sums: Sequence[Statement], ranges: Ranges, dtype: DType, store: Store) -> list[Statement]:
    """The same sums, from 0 and into the same elements, of which those that have a factor in common are one."""
    left, found = list(sums), list[Statement]()
    while left:
        s = left.pop(0)
        for other in left:
            made = _unite(s, other, ranges, dtype, store)
            if made is not None:
                left[left.index(other)] = made
                break
        else:
            found.append(s)
    return found


def _unite(s: Statement, other: Statement, ranges: Ranges, dtype: DType, store: Store) -> Statement | None:
    a = _as_product(s, ranges)
    if a is None:
        return None
    for b in (_as_product(t, ranges) for t in _renamed(other, s)):
        if b is None or b.box != a.box:
            continue
        common = [f for f in a.factors if f in b.factors]
        rests = [[f for f in p.factors if f not in common] for p in (a, b)]
        if not _is_matrix_product(s, common, rests):
            continue
        kept = [i for i in s.indices if i in index_names(*rests[0])]
        union = unite_domains([a.domain, b.domain], ranges.context)
        outside = [n for n, i in enumerate(s.indices) if i not in kept]
        if union is None or not all(_along(p.domain, outside).intersect(union).is_subset(p.domain) for p in (a, b)):
            continue
        box = {i: a.box[i] for i in kept}
        within = Frame(ranges, box).domain.intersect_params(union.params())
        terms = [Term(_without(p.domain, outside), _product(rest)) for p, rest in zip((a, b), rests, strict=True)]
        value = add_terms(terms, within, kept, dtype)
        clauses = tuple(w for w in s.where if isinstance(w, RangeClause))
        place = tuple(simplify(Index(i) - box[i].lower) for i in kept)
        own = tuple(w for w in clauses if w.index in kept)
        read = store(Statement("", "", place, tuple(kept), value, None, own, s.span), list(box.values()))
        whole = Frame(ranges, a.box).domain
        tests = [] if whole.is_subset(union) else [Condition(condition_inside(union, whole, s.indices))]
        return replace(s, value=_product([read, *common]), where=(*clauses, *tests))
    return None


def _as_product(s: Statement, ranges: Ranges) -> _Product | None:
    """A sum over a box with affine conditions as one of products; None where it is none."""
    clauses = [w for w in s.where if isinstance(w, RangeClause)]
    factors = operands_of(s.value, "mul")
    if len(factors) < 2 or len(set(factors)) < len(factors) or any(loaded_clauses(s.where)) or not s.has_plain_left:
        return None
    if {w.index for w in clauses} != set(s.indices) or padded_reads(s.value):
        return None
    by_index = {w.index: Interval(w.lower, simplify(w.upper - w.lower)) for w in clauses}
    box = {i: by_index[i] for i in s.indices}
    frame = Frame(ranges, box)
    for w in s.where:
        if isinstance(w, Condition):
            if frame.find(w.condition) is None:
                return None
            frame.restrict(w.condition)
    return _Product(s, factors, box, frame.domain)


def _renamed(s: Statement, like: Statement) -> Iterator[Statement]:
    """A statement with the indices of another one that has as many on its left side, and in its sum: in all orders of these."""
    own, names = s.reduction_indices, like.reduction_indices
    plain = all(isinstance(e, Index) for e in (*s.subscripts, *like.subscripts))
    if not plain or len(s.subscripts) != len(like.subscripts) or len(own) != len(names) or len(own) > MOST_SUMMED:
        return
    for order in permutations(own):
        old = (*(e.name for e in s.subscripts if isinstance(e, Index)), *order)
        new = (*(e.name for e in like.subscripts if isinstance(e, Index)), *names)
        by_name: dict[str, Expr] = {i: Index(n) for i, n in zip(old, new, strict=True)}

        def place(e: Expr, by_name: dict[str, Expr] = by_name) -> Expr:
            return substitute(e, by_name)

        where = tuple(
            replace(w, index=dict(zip(old, new, strict=True))[w.index], lower=place(w.lower), upper=place(w.upper))
            if isinstance(w, RangeClause)
            else Condition(place(w.condition))
            for w in s.where
            if isinstance(w, (RangeClause, Condition))
        )
        yield replace(s, subscripts=like.subscripts, indices=like.indices, value=place(s.value), where=where)


def _is_matrix_product(s: Statement, common: list[Expr], rests: list[list[Expr]]) -> bool:
    """Whether the common factors and the others, which have the same indices and no windows, each move with left indices
    that leave the other ones alone."""
    if not common or not all(rests) or index_names(*rests[0]) != index_names(*rests[1]):
        return False
    if not all(map(_has_plain_reads, (*common, *rests[0], *rests[1]))):
        return False
    shared, others, left, summed = index_names(*common), index_names(*rests[0]), set(s.left_indices), set(s.reduction_indices)
    return all((shared & summed, others & summed, left & (shared - others), left & (others - shared)))


def _has_plain_reads(expr: Expr) -> bool:
    forms = [index_coefficients(e) for r in reads(expr) for e in r.subscripts]
    return isinstance(expr, Const) or all(f is not None and len(f) <= 1 for f in forms)


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda x, y: x * y, factors)


def _along(domain: Set, dimensions: Sequence[int]) -> Set:
    """The points that agree with those of a set but for these dimensions."""
    return reduce(lambda found, d: found.eliminate(dim_type.set, d, 1), dimensions, domain)


def _without(domain: Set, dimensions: Sequence[int]) -> Set:
    return reduce(lambda found, d: found.project_out(dim_type.set, d, 1), reversed(dimensions), domain)
