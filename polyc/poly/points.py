"""Points of statements: a name for each dimension of an integer set, and sets made from others by these names."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from polyc.ir.expr import Expr, Index, Read
from polyc.ir.program import Statement
from polyc.ir.read_sites import collect_reads
from polyc.poly import isl
from polyc.poly.domains import map_domain, parameter_names, project_domain
from polyc.poly.ranges import Interval, StatementRanges
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """The points of a statement, or elements of a tensor: indices in order with their intervals, and the exact set."""

    indices: Mapping[str, Interval]
    domain: isl.Set  # [sizes] -> { points[indices] }, whatever its name

    @property
    def affine(self) -> isl.Affine:
        """Functions of the indices."""
        return isl.Affine(self.domain.get_space(), {i: n for n, i in enumerate(self.indices)})

    def where(self, condition: Expr, holds: bool = True) -> Points | None:
        """The points at which a condition holds, or does not; None where that is not affine."""
        try:
            there = self.affine.condition(condition)
        except isl.NotAffine:
            return None
        return Points(self.indices, self.domain.intersect(there) if holds else self.domain.subtract(there))

    def satisfy(self, condition: Expr) -> bool:
        """Whether a condition holds at all points; False where that is not affine."""
        try:
            return bool(self.domain.is_subset(self.affine.condition(condition)))
        except isl.NotAffine:
            return False

    def access(self, tensor: str, subscripts: Sequence[Expr]) -> isl.Map:
        """``{ S[i] -> tensor[subscripts] }``; raises `isl.NotAffine`."""
        affine, names = self.affine, [f"e{d}" for d in range(len(subscripts))]
        space = isl.set_space(parameter_names(self.domain), tensor, names)
        multi = isl.MultiPwAff.zero(affine.space.map_from_domain_and_range(space))
        for d, subscript in enumerate(subscripts):
            multi = multi.set_pw_aff(d, affine.pw_aff(subscript))
        return isl.Map.from_multi_pw_aff(multi).intersect_domain(self.domain)

    def project(self, kept: Iterable[str]) -> Points:
        """Over some of the indices, in another order."""
        names = tuple(kept)
        order = {i: self.indices[i] for i in names}
        assert len(order) == len(names), "two indices have one name"
        return Points(order, project_domain(self.domain, tuple(self.indices), "points", tuple(order)))

    def move(
        self,
        order: Iterable[str],
        new: Mapping[str, Interval],
        place: Mapping[str, Expr],
        conditions: Sequence[Expr] = (),
    ) -> Points:
        """Over the indices in `order`, some of them `new`: where the conditions hold, and the old ones, with the values that
        `place` gives them, are at one of these points."""
        names = tuple(order)
        indices = {i: new[i] if i in new else self.indices[i] for i in names}
        assert len(indices) == len(names), "two indices have one name"
        values = [place.get(i, Index(i)) for i in self.indices]
        return Points(indices, map_domain(self.domain, "points", tuple(indices), values, conditions))


def points_of(s: Statement, own: StatementRanges) -> Points:
    """Those of a statement, with the very set that it has: isl keeps in it which constraints it has found to be redundant."""
    return Points({i: own.indices[i] for i in s.indices}, own.domain)


def reading_points(s: Statement, tensors: Container[str], own: StatementRanges) -> Iterator[tuple[Read, Points]]:
    """The points at which a statement reads tensors, for each of these reads, as far as conditions are affine."""
    points = points_of(s, own)
    for site in collect_reads(s):
        if site.read.tensor in tensors:
            there = points
            for condition, holds in site.conditions:
                there = there.where(condition, holds) or there
            yield site.read, there
