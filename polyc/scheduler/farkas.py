"""Farkas' lemma through isl: which affine forms are not negative on a dependence, and which vanish on it."""

from __future__ import annotations

from dataclasses import dataclass

from polyc.poly import isl
from polyc.scheduler.model import Edge, Equation, equations_of_rows, unit_pairs_of


@dataclass(frozen=True, slots=True)
class ConeRow:
    """``factors . form >= 0`` (or ``= 0``) for a form (constant, source dimensions, sink dimensions)."""

    factors: tuple[int, ...]
    is_equality: bool


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A dependence that a sequential row must respect; `cone` describes the forms that are not negative on it."""

    source: str
    sink: str
    relation: isl.Map  # [sizes] -> { source[i] -> sink[j] }
    cone: tuple[ConeRow, ...]


def make_piece(source: str, sink: str, relation: isl.Map) -> Piece:
    return Piece(source, sink, relation, tuple(nonnegative_cone(relation)))


def nonnegative_cone(relation: isl.Map) -> list[ConeRow]:
    """Constraints on the forms without size coefficients that are not negative on all pairs.

    `coefficients` wants no local variables: removing them enlarges the dependence, which is safe."""
    rows: list[ConeRow] = []
    n_sizes = relation.dim(isl.dim_type.param)
    pieces = relation.remove_divs().coalesce().wrap().get_basic_set_list()
    for n in range(pieces.n_basic_set()):
        constraints = pieces.get_at(n).coefficients().get_constraint_list()
        for m in range(constraints.n_constraint()):
            constraint = constraints.get_at(m)
            width = constraint.dim(isl.dim_type.set)
            values = [int(constraint.get_coefficient_val(isl.dim_type.set, d).to_python()) for d in range(width)]
            row = ConeRow((values[0], *values[1 + n_sizes :]), bool(constraint.is_equality()))
            if any(row.factors) and row not in rows:
                rows.append(row)
    return rows


def hull_equations(relation: isl.Map) -> list[Equation]:
    """When two rows coincide on a dependence, from the equalities of its affine hull."""
    hull = relation.remove_divs().affine_hull()
    kinds = (isl.dim_type.in_, isl.dim_type.out, isl.dim_type.param, isl.dim_type.cst, isl.dim_type.div)
    matrix = hull.equalities_matrix(*kinds)
    n, m = relation.dim(isl.dim_type.in_), relation.dim(isl.dim_type.out)
    width = n + m + relation.dim(isl.dim_type.param) + 1
    rows = [[int(matrix.get_element_val(r, c).to_python()) for c in range(width)] for r in range(matrix.rows())]
    return equations_of_rows(rows, n, m, width)


def edges_of_flows(flows: list[tuple[str, str, isl.Map]]) -> tuple[Edge, ...]:
    """One edge per pair of statements for what is left of the dependences between them."""
    pairs: dict[tuple[str, str], list[Equation]] = {}
    sizes: dict[tuple[str, str], tuple[int, int]] = {}
    for source, sink, relation in flows:
        found = pairs.setdefault((source, sink), [])
        found += [e for e in hull_equations(relation) if e not in found]
        sizes[source, sink] = (relation.dim(isl.dim_type.in_), relation.dim(isl.dim_type.out))
    return tuple(Edge(a, b, tuple(e), unit_pairs_of(e, *sizes[a, b])) for (a, b), e in pairs.items())
