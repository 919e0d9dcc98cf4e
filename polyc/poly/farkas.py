"""Farkas' lemma through isl: which rows respect a dependence, and which coincide on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from math import inf

import islpy

from polyc.poly.rows import Row
from polyc.records import dataclass

MAX_DISTANCES = 32
"""Pieces of the distances of a statement from itself beyond which their hull is taken."""

MAX_PIECES, MAX_DIMENSIONS = 4, 7
"""Pieces of a dependence, and dimensions of its two sides, beyond which a hull is taken: a cone costs exponential time in its
constraints."""


@dataclass(frozen=True, slots=True)
class ConeRow:
    """``factors . form >= 0`` (or ``= 0``) for a form (constant, source dimensions, sink dimensions)."""

    factors: tuple[int, ...]
    is_equality: bool


@dataclass(frozen=True, eq=False)
class Piece:
    """A dependence between statements."""

    source: str
    sink: str
    relation: islpy.Map  # [sizes] -> { source[i] -> sink[j] }
    cones: dict[str, list[ConeRow]] = field(default_factory=dict)
    """Of all parts of one dependence, by their text: sets of statements that are tried with one row leave the same part."""

    @property
    def n_dims(self) -> tuple[int, int]:
        return self.relation.dim(islpy.dim_type.in_), self.relation.dim(islpy.dim_type.out)

    @cached_property
    def cone(self) -> list[ConeRow]:
        """The forms without sizes that are not negative on it: most programs never need them."""
        text = str(self.relation)
        if text not in self.cones:
            self.cones[text] = nonnegative_cone(self.relation)
        return self.cones[text]


def nonnegative_cone(relation: islpy.Map) -> list[ConeRow]:
    """Constraints on the forms without size coefficients that are not negative on all pairs.

    `coefficients` wants no local variables: removing them enlarges the dependence, which is safe; so does the hull of a
    dependence in many pieces (one for each side of a border)."""
    rows: list[ConeRow] = []
    n_sizes = relation.dim(islpy.dim_type.param)
    relation = relation.remove_divs().detect_equalities().remove_redundancies()
    n_dims = relation.dim(islpy.dim_type.in_) + relation.dim(islpy.dim_type.out)
    is_own = relation.get_tuple_name(islpy.dim_type.in_) == relation.get_tuple_name(islpy.dim_type.out)
    if is_own and (relation.n_basic_map() > MAX_PIECES or n_dims > MAX_DIMENSIONS):
        return _cone_of_distances(relation)
    if relation.n_basic_map() > MAX_PIECES:
        relation = islpy.Map.from_basic_map(relation.simple_hull())
    pieces = relation.coalesce().wrap().get_basic_set_list()
    for n in range(pieces.n_basic_set()):
        constraints = pieces.get_at(n).coefficients().get_constraint_list()
        for m in range(constraints.n_constraint()):
            constraint = constraints.get_at(m)
            width = constraint.dim(islpy.dim_type.set)
            values = [int(constraint.get_coefficient_val(islpy.dim_type.set, d).to_python()) for d in range(width)]
            row = ConeRow((values[0], *values[1 + n_sizes :]), bool(constraint.is_equality()))
            if any(row.factors) and row not in rows:
                rows.append(row)
    return rows


def _cone_of_distances(relation: islpy.Map) -> list[ConeRow]:
    """The same for the distances between source and sink, of a statement on itself: forms of one row's difference have
    opposite coefficients there, and distances have half of the dimensions.  Piece by piece: a simple hull of the nine
    neighbours of a point holds distances that go backwards in every skewed row."""
    distances = relation.deltas().remove_divs().project_out(islpy.dim_type.param, 0, relation.dim(islpy.dim_type.param))
    distances = distances.coalesce()
    n = distances.dim(islpy.dim_type.set)
    rows = [ConeRow((0, *(int(e == d) for e in range(n)), *(int(e == d) for e in range(n))), True) for d in range(n)]
    if distances.n_basic_set() > MAX_DISTANCES:
        distances = islpy.Set.from_basic_set(distances.simple_hull())
    pieces = distances.get_basic_set_list()
    for number in range(pieces.n_basic_set()):
        constraints = pieces.get_at(number).coefficients().get_constraint_list()
        for m in range(constraints.n_constraint()):
            constraint = constraints.get_at(m)
            values = [int(constraint.get_coefficient_val(islpy.dim_type.set, d).to_python()) for d in range(n + 1)]
            row = ConeRow((values[0], *(0 for _ in range(n)), *values[1:]), bool(constraint.is_equality()))
            if any(row.factors) and row not in rows:
                rows.append(row)
    return rows


def hull_equalities(relation: islpy.Map) -> list[list[int]]:
    """Equalities of the affine hull over (source dimensions, sink dimensions, sizes, constant)."""
    kinds = (
        islpy.dim_type.in_,
        islpy.dim_type.out,
        islpy.dim_type.param,
        islpy.dim_type.cst,
        islpy.dim_type.div,
    )
    matrix = relation.remove_divs().affine_hull().equalities_matrix(*kinds)
    width = sum(relation.dim(kind) for kind in kinds[:3]) + 1
    return [[int(matrix.get_element_val(r, c).to_python()) for c in range(width)] for r in range(matrix.rows())]


def row_map(space: islpy.Space, row: Row) -> islpy.Map:
    """``{ S[i] -> [phi] }`` on the set space of a statement."""
    aff = islpy.Aff.zero_on_domain_space(space).set_constant_val(islpy.Val(row.constant))
    for d, coefficient in enumerate(row.coefficients):
        aff = aff.set_coefficient_val(islpy.dim_type.in_, d, islpy.Val(coefficient))
    return islpy.Map.from_aff(aff)


def _row_maps(rows: Mapping[str, Row], piece: Piece) -> tuple[islpy.Map, islpy.Map]:
    space = piece.relation.get_space()
    return row_map(space.domain(), rows[piece.source]), row_map(space.range(), rows[piece.sink])


def respects(rows: Mapping[str, Row], piece: Piece) -> bool:
    """Whether no pair of the dependence goes backwards: exact, where a solver works with tolerances."""
    source, sink = _row_maps(rows, piece)
    return bool(piece.relation.intersect(source.lex_gt_map(sink)).is_empty())


def coincides(rows: Mapping[str, Row], piece: Piece) -> bool:
    """Whether all pairs of the dependence are at distance 0."""
    source, sink = _row_maps(rows, piece)
    return bool(piece.relation.is_subset(source.apply_range(sink.reverse())))


def not_carried(rows: Mapping[str, Row], piece: Piece) -> Piece | None:
    """The part of a dependence at distance 0 under a row, or None if the row carries all of it."""
    source, sink = _row_maps(rows, piece)
    rest = piece.relation.intersect(source.apply_range(sink.reverse()))
    if rest.is_empty():
        return None
    return Piece(piece.source, piece.sink, rest, piece.cones)


def longest_distance(rows: Mapping[str, Row], piece: Piece) -> float:
    """By how many iterations the sides of the dependence are apart at most; infinite where nothing bounds that."""
    source, sink = _row_maps(rows, piece)
    longest = piece.relation.apply_domain(source).apply_range(sink).deltas().dim_max_val(0)
    return int(longest.to_python()) if longest.is_int() else inf
