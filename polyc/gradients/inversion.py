"""Accesses solved for the indices of their statement: which points reach an element.

``f(p) = e`` is solved dimension by dimension: an index that stands in a linear subscript with the coefficient 1 or -1 follows
from the element and the other indices, ``X[h + r]`` from ``h = e - r``.  What is solved ranges over all elements of its
dimension, with what the index had to keep to as conditions.  Where every index has another coefficient (``X[2 * i]``), a
dimension is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from polyc.ir.expr import Expr, Index, ge, lt, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.simplify import simplify
from polyc.poly.isl import Affine, NotAffine, Set, set_space
from polyc.poly.ranges import Interval, Ranges
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Solution:
    """`indices`: what each solved index is, over the elements' indices and those that are left; `solved`: which one each
    dimension was solved for, None where it was not."""

    indices: dict[str, Expr]
    solved: tuple[str | None, ...]


def solve(
    subscripts: Sequence[Expr],
    element: Callable[[int, str], str],
    indices: Collection[str],
    fixed: Collection[str] = (),
    preferred: Callable[[Sequence[str]], Sequence[str]] = tuple,
) -> Solution:
    """`element(d, i)` names the index of the elements along dimension `d`, which is solved for `i`: a new name, or `i` where
    the subscript is `i`.  `indices` are those of the statement; those of `fixed` are solved for where they stand alone only.
    `preferred`: of the indices that the last dimension could be solved for, some of which one is taken."""
    found: dict[str, Expr] = {}
    solved: list[str | None] = [None] * len(subscripts)
    alone = [d for d, e in enumerate(subscripts) if isinstance(e, Index)]
    for d in (*alone, *(d for d in range(len(subscripts)) if d not in alone)):
        subscript = simplify(substitute(subscripts[d], found))
        coefficients = {} if reads(subscript) else index_coefficients(subscript) or {}
        free = [i for i in indices if i not in found and abs(coefficients.get(i, 0)) == 1]
        if d not in alone:
            free = [i for i in free if i not in fixed]
        if not free:
            continue
        i = _choose(preferred(free) if d == len(subscripts) - 1 else free, subscripts)
        place, sign = Index(element(d, i)), coefficients[i]
        rest = simplify(subscript - sign * Index(i))
        value = simplify(sign * (place - rest))
        if value != Index(i):
            found = {name: simplify(substitute(e, {i: value})) for name, e in found.items()}
        found[i] = value
        solved[d] = i
    return Solution(found, tuple(solved))


def _choose(free: Sequence[str], subscripts: Sequence[Expr]) -> str:
    """The first one of those that stand in fewest subscripts: what is left runs through a window."""
    return min(free, key=lambda i: sum(i in (index_coefficients(e) or {}) for e in subscripts))


def kept_to(value: Expr, interval: Interval) -> list[Expr]:
    """What an index that has become `value` has to keep to."""
    return [ge(value, interval.lower), lt(value, upper_end(interval))]


def upper_end(interval: Interval) -> Expr:
    return simplify(interval.lower + interval.extent)


class Frame:
    """Points in a box, of which conditions are asked."""

    def __init__(self, ranges: Ranges, box: Mapping[str, Interval]) -> None:
        self.box = box
        self.affine = Affine(set_space(ranges.parameters, None, list(box)), {i: n for n, i in enumerate(box)})
        self.domain = Set.universe(self.affine.space).intersect_params(ranges.context)
        for i, interval in box.items():
            for test in kept_to(Index(i), interval):
                self.restrict(test)

    def find(self, condition: Expr, holds: bool = True) -> Set | None:
        """Where the condition holds, or does not; None where it is not affine."""
        try:
            found = self.affine.condition(condition)
        except NotAffine:
            return None
        return found if holds else found.complement()

    def is_affine(self, expr: Expr) -> bool:
        return self.find(ge(expr, 0)) is not None

    def restrict(self, condition: Expr) -> None:
        """Leave points out, as far as the condition is affine."""
        found = self.find(condition)
        if found is not None:
            self.domain = self.domain.intersect(found)

    def implies(self, condition: Expr, holds: bool = True) -> bool:
        found = self.find(condition, holds)
        return found is not None and bool(self.domain.is_subset(found))

    def excludes(self, condition: Expr, holds: bool = True) -> bool:
        found = self.find(condition, holds)
        return found is not None and bool(self.domain.is_disjoint(found))
