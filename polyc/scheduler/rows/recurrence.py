"""Rows for recurrences: a skewed, permutable band by integer linear programming.

Reference: Feautrier's Farkas formulation as in Pluto, one row at a time: every dependence of the band must not go backwards,
as few as possible should advance (coincidence first), and coefficients and shifts should be small (simplicity second).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf

from polyc.poly.farkas import ConeRow, Piece, hull_equalities, respects
from polyc.poly.rows import Member, Row
from polyc.records import dataclass, replace
from polyc.scheduler.rows.coincidence import Equation, equations_of_rows, null_space, unit_pairs_of
from polyc.scheduler.rows.model import Edge, Model
from polyc.scheduler.rows.solver import Budget, Problem, solve

COST_ADVANCE, COST_COEFFICIENT, COST_SHIFT, COST_BACKWARD = 1000.0, 100.0, 1.0, 20.0

WIDEST = 8
"""Elements per step that a row may be skewed by where fewer do not do: what a stencil of that radius needs."""

Rows = dict[str, Row]


@dataclass(frozen=True, slots=True)
class SequentialRows:
    """Rows of one permutable band for a component, with the dependences inside the rows before each, and inside all of them.

    `is_band`: they are all rows that the component has; else only the first one is one that all statements can go on below."""

    members: tuple[Member, ...]
    pending: list[list[Piece]]
    remaining: list[Piece]
    used: dict[str, frozenset[int]]
    is_band: bool

    @property
    def is_tiled(self) -> bool:
        """Whether loops permute, and can be tiled together."""
        return self.is_band and len(self.members) > 1


def find_sequential_row(
    dims: Mapping[str, int],
    band: Sequence[Piece],
    remaining: Sequence[Piece],
    earlier: Mapping[str, Sequence[Row]],
    budget: Budget,
    model: Model | None = None,
) -> Rows | None:
    """One row for statements with `dims` dimensions, linearly independent of their `earlier` rows; None where there is none.

    `band`: dependences that must not go backwards.  `remaining`: those of them that no earlier row of the band carries.
    Coefficients are 0 and 1 where such rows do, else at most (number of statements + 1): k statements in a time loop need
    ``k t + i + s``; those of wide stencils are larger.  Of rows that are as good otherwise, sums take one that leaves what they
    read in rows to the loops inside (`model`)."""
    row = find_shifted_row(dims, band, remaining, earlier, budget, model)
    is_last = all(n == len(earlier[name]) + 1 for name, n in dims.items())
    return align_row(row, band) if row is not None and (is_last or len(set(dims.values())) == 1) else row


def find_shifted_row(
    dims: Mapping[str, int],
    band: Sequence[Piece],
    remaining: Sequence[Piece],
    earlier: Mapping[str, Sequence[Row]],
    budget: Budget,
    model: Model | None = None,
    moving: Mapping[str, int] | None = None,
) -> Rows | None:
    """The same, with shifts between statements that let few dependences advance; `moving`: the dimension that each row moves
    with, where only that is asked for."""
    cap, find = len(dims) + 1, partial(_solve, dims, band, remaining, earlier, budget, model, moving)
    # Sums of indices first: they are found ten times as fast, as relaxed problems come the closer to what advances the less a
    # distance may be, and have unit strides.  Only a loop that must run backwards needs negative coefficients.
    row = find(1, is_signed=False) or find(cap, is_signed=False) or find(cap, is_signed=True)
    return row or (find(WIDEST, is_signed=False) if cap < WIDEST else None)


def align_row(row: Rows, band: Sequence[Piece]) -> Rows:
    """The row without its shifts, where every dependence allows it: the innermost one, and outer ones of statements with as
    many loops each (others may pass on values within a step that no loop inside would keep).

    A row that carries one dependence runs in order however many it carries, what it carries leaves the rows inside free, and
    statements of equal ranges that are not shifted against each other need no conditions around them."""
    plain = {name: replace(own, constant=0) for name, own in row.items()}
    return plain if plain != row and all(respects(plain, piece) for piece in band) else row


def _solve(
    dims: Mapping[str, int],
    band: Sequence[Piece],
    remaining: Sequence[Piece],
    earlier: Mapping[str, Sequence[Row]],
    budget: Budget,
    model: Model | None,
    moving: Mapping[str, int] | None,
    cap: int,
    is_signed: bool,
) -> Rows | None:
    problem = Problem()
    coefficients: dict[str, list[int]] = {}
    for name, n in dims.items():
        along_rows = frozenset[int]() if model is None else model.statements[name].along_rows
        costs = [COST_COEFFICIENT + 0.01 * (d + n * (d in along_rows)) for d in range(n)]
        caps = [cap if moving is None or moving.get(name) == d else 0 for d in range(n)]
        if is_signed:
            coefficients[name] = [_add_signed(problem, cost, most) for cost, most in zip(costs, caps, strict=True)]
        else:
            coefficients[name] = [problem.add_variable(cost, 0, most) for cost, most in zip(costs, caps, strict=True)]
    shifts = {name: problem.add_variable(COST_SHIFT, 0, 2 * max(cap, len(dims) + 1)) for name in dims}
    for piece in band:
        for row in piece.cone:
            problem.add_row(0, 0 if row.is_equality else inf, _form(row, piece, coefficients, shifts))
    for piece in remaining:
        advances = problem.add_variable(COST_ADVANCE, 0, 1)
        for row in piece.cone:
            terms = _form(row, piece, coefficients, shifts)
            most = sum(f * (problem.upper if f > 0 else problem.lower)[v] for v, f in terms)
            problem.add_row(-inf, 0, [*terms, (advances, -most)])
    for name in dims:
        _require_independence(problem, coefficients[name], earlier[name], cap, is_signed)
    values = solve(problem, budget)
    if values is None:
        return None
    found = {name: Row(tuple(values[v] for v in coefficients[name]), values[shifts[name]]) for name in dims}
    return found if all(respects(found, piece) for piece in band) else None


def _form(
    row: ConeRow, piece: Piece, coefficients: Mapping[str, list[int]], shifts: Mapping[str, int]
) -> list[tuple[int, float]]:
    """A constraint of the cone on the difference of two rows, phi_sink - phi_source."""
    source, sink = coefficients[piece.source], coefficients[piece.sink]
    terms: list[tuple[int, float]] = [(shifts[piece.sink], row.factors[0]), (shifts[piece.source], -row.factors[0])]
    terms += [(v, -f) for v, f in zip(source, row.factors[1 : 1 + len(source)], strict=True)]
    terms += [(v, f) for v, f in zip(sink, row.factors[1 + len(source) :], strict=True)]
    merged: dict[int, float] = {}
    for variable, factor in terms:
        merged[variable] = merged.get(variable, 0.0) + factor
    return [(v, f) for v, f in merged.items() if f]


def _add_signed(problem: Problem, cost: float, cap: int) -> int:
    """A variable in -cap .. cap whose absolute value costs, and more of it where it runs backwards: a few shifts are better."""
    variable, size = problem.add_variable(-COST_BACKWARD / 2, -cap, cap), problem.add_variable(cost + COST_BACKWARD / 2, 0, cap)
    problem.add_row(0, inf, [(size, 1), (variable, -1)])
    problem.add_row(0, inf, [(size, 1), (variable, 1)])
    return variable


def _require_independence(problem: Problem, variables: list[int], earlier: Sequence[Row], cap: int, is_signed: bool) -> None:
    """The row must leave the span of earlier rows: some vector orthogonal to them must see it."""
    orthogonal = null_space([list(r.coefficients) for r in earlier], len(variables))
    if not orthogonal:
        return
    if not is_signed and all(x >= 0 for vector in orthogonal for x in vector):
        sums = [float(sum(column)) for column in zip(*orthogonal, strict=True)]
        problem.add_row(1, inf, list(zip(variables, sums, strict=True)))
        return
    signs: list[tuple[int, float]] = []
    for vector in orthogonal:
        big = 1 + cap * sum(map(abs, vector))
        for sign in (1, -1):
            chosen = problem.add_variable(0, 0, 1)
            terms = [(v, float(sign * x)) for v, x in zip(variables, vector, strict=True)]
            problem.add_row(1 - big, inf, [*terms, (chosen, -float(big))])
            signs.append((chosen, 1.0))
    problem.add_row(1, inf, signs)


def edges_of_pieces(pieces: Sequence[Piece]) -> tuple[Edge, ...]:
    """One edge per pair of statements for what is left of the dependences between them."""
    pairs: dict[tuple[str, str], list[Equation]] = {}
    n_dims: dict[tuple[str, str], tuple[int, int]] = {}
    for piece in pieces:
        key, (n, m) = (piece.source, piece.sink), piece.n_dims
        rows = hull_equalities(piece.relation)
        width = len(rows[0]) if rows else n + m
        found = pairs.setdefault(key, [])
        found += [e for e in equations_of_rows(rows, n, m, width) if e not in found]
        n_dims[key] = (n, m)
    return tuple(Edge(a, b, tuple(e), unit_pairs_of(e, *n_dims[a, b])) for (a, b), e in pairs.items())
