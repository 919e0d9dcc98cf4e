"""Points in a box over sizes, of which conditions are asked."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.ir.expr import Expr, Index, ge, lt
from polyc.ir.simplify import simplify
from polyc.poly.isl import Affine, NotAffine, Set, set_space
from polyc.poly.ranges import Interval, Ranges


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
