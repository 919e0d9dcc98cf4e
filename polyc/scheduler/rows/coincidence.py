"""When rows of two statements coincide: linear equations over the coefficients of rows, exact in whole numbers.

before  ``S[i, k]`` writes ``T[i]``, ``R[h, j]`` reads ``T[j]``
after   rows are equal wherever both touch one element if the coefficients of i and j are, and those of k and h vanish
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm

from polyc.ir.expr import Call, Cast, Const, Expr, Index, Size
from polyc.poly.exclusive import Part
from polyc.poly.scop import ScopStatement
from polyc.records import dataclass

Equation = tuple[tuple[tuple[int, int], int], ...]
"""Terms ((side, dimension), coefficient) whose sum over row coefficients must vanish; side 0 is the source, 1 the sink."""

_Touched = tuple[ScopStatement, tuple[Expr, ...]]
"""A statement, and the subscripts of an access in it."""


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``sum coefficients[d] * index_d + sum sizes[p] * p + constant``."""

    coefficients: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]
    constant: int

    def unit(self) -> int | None:
        """The index that is the whole form, or None."""
        if self.constant or self.sizes or sum(map(abs, self.coefficients)) != 1 or 1 not in self.coefficients:
            return None
        return self.coefficients.index(1)


def linear_form(expr: Expr, indices: tuple[str, ...]) -> LinearForm | None:
    """`expr` as a linear form over `indices` and sizes; None where it is not linear."""
    coefficients = [0] * len(indices)
    sizes: dict[str, int] = {}
    constant = 0

    def add(node: Expr, factor: int) -> bool:
        nonlocal constant
        match node:
            case Const() if not node.dtype.is_float:
                constant += factor * int(node.value)
            case Index():
                coefficients[indices.index(node.name)] += factor
            case Size():
                sizes[node.name] = sizes.get(node.name, 0) + factor
            case Cast() if node.dtype.is_integer and node.dtype.bits >= 32:
                return add(node.value, factor)
            case Call("add", (a, b)):
                return add(a, factor) and add(b, factor)
            case Call("sub", (a, b)):
                return add(a, factor) and add(b, -factor)
            case Call("neg", (a,)):
                return add(a, -factor)
            case Call("mul", (Const() as a, b)) | Call("mul", (b, Const() as a)) if not a.dtype.is_float:
                return add(b, factor * int(a.value))
            case _:
                return False
        return True

    if not add(expr, 1):
        return None
    return LinearForm(tuple(coefficients), tuple(sorted((k, v) for k, v in sizes.items() if v)), constant)


def coincidence_equations(
    source: ScopStatement, written: tuple[Expr, ...], sink: ScopStatement, read: tuple[Expr, ...]
) -> list[Equation]:
    """When a row of `source` and a row of `sink` are equal on all pairs that touch the same element.

    phi_sink - phi_source vanishes on the pairs iff it is a combination of the equalities ``written_d(i) = read_d(j)``, that is,
    orthogonal to their null space (the affine hull of the dependence).  Bounds of the domains play no part, so that a size
    of 1 gives the same schedule as any other; subscripts that are not linear give no equality, which only hides coincidence.
    """
    n, m = len(source.indices), len(sink.indices)
    rows: list[tuple[LinearForm, LinearForm]] = []
    for a, b in zip(written, read, strict=True):
        left, right = linear_form(a, source.indices), linear_form(b, sink.indices)
        if left is not None and right is not None:
            rows.append((left, right))
    units = [(left.unit(), right.unit()) for left, right in rows]
    lefts, rights = [a for a, _ in units], [b for _, b in units]
    if None not in lefts and None not in rights and len(set(lefts)) == len(lefts) and len(set(rights)) == len(rights):
        # Every equality is "this index = that index": those coincide, and all other indices are free.
        equations: list[Equation] = [(((0, a or 0), -1), ((1, b or 0), 1)) for a, b in units]
        equations += [(((0, d), 1),) for d in range(n) if d not in lefts]
        equations += [(((1, d), 1),) for d in range(m) if d not in rights]
        return equations
    sizes = sorted({name for left, right in rows for name, _ in (*left.sizes, *right.sizes)})
    matrix = []
    for left, right in rows:
        shift = dict(left.sizes)
        for name, value in right.sizes:
            shift[name] = shift.get(name, 0) - value
        tail = [shift.get(name, 0) for name in sizes]
        matrix.append([*left.coefficients, *(-c for c in right.coefficients), *tail, left.constant - right.constant])
    return equations_of_rows(matrix, n, m, n + m + len(sizes) + 1)


def touching_equations(written: _Touched, read: _Touched, parts: Mapping[str, Part]) -> list[Equation]:
    """When rows are equal on all pairs that touch the same element: what touches one of a partition does so in one part."""
    (source, left), (sink, right) = written, read
    a, b = parts.get(source.name), parts.get(sink.name)
    if a is not None and b is not None and a.key == b.key:
        element = Index(source.indices[a.element]), Index(sink.indices[b.element])
        if element in zip(left, right, strict=True):
            left, right = (*left, Index(source.indices[a.part])), (*right, Index(sink.indices[b.part]))
    return coincidence_equations(source, left, sink, right)


def equations_of_rows(matrix: list[list[int]], n: int, m: int, width: int) -> list[Equation]:
    """Coincidence equations from equalities over (n source dimensions, m sink dimensions, sizes and constant)."""
    equations: list[Equation] = []
    for vector in null_space(matrix, width):
        terms = [((0, d), -vector[d]) for d in range(n) if vector[d]]
        terms += [((1, d), vector[n + d]) for d in range(m) if vector[n + d]]
        if terms:
            equations.append(tuple(terms))
    return equations


def pivot_columns(matrix: list[list[int]], width: int) -> list[int]:
    """As many columns as the matrix has independent rows, in which these are independent."""
    return _eliminate(matrix, width)[1]


def _eliminate(matrix: Sequence[Sequence[int]], width: int) -> tuple[list[list[Fraction]], list[int]]:
    """The reduced echelon form, and its pivot columns."""
    rows = [[Fraction(x) for x in row] for row in matrix]
    pivots: list[int] = []
    for column in range(width):
        found = next((r for r in range(len(pivots), len(rows)) if rows[r][column]), None)
        if found is None:
            continue
        top = len(pivots)
        rows[top], rows[found] = rows[found], rows[top]
        rows[top] = [x / rows[top][column] for x in rows[top]]
        for r in range(len(rows)):
            if r != top and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[top], strict=True)]
        pivots.append(column)
    return rows, pivots


def null_space(matrix: list[list[int]], width: int) -> list[list[int]]:
    """A basis, in integers, of the vectors orthogonal to every row."""
    return [list(vector) for vector in _null_space(tuple(map(tuple, matrix)), width)]


@lru_cache(maxsize=1024)
def _null_space(matrix: tuple[tuple[int, ...], ...], width: int) -> tuple[tuple[int, ...], ...]:
    """Statements of one form, of which a program may have dozens, ask for the same."""
    rows, pivots = _eliminate(matrix, width)
    basis = []
    for free in (c for c in range(width) if c not in pivots):
        vector = [Fraction(0)] * width
        vector[free] = Fraction(1)
        for r, pivot in enumerate(pivots):
            vector[pivot] = -rows[r][free]
        scale = lcm(*(x.denominator for x in vector))
        basis.append(tuple(int(x * scale) for x in vector))
    return tuple(basis)


def unit_pairs_of(equations: list[Equation] | tuple[Equation, ...], n: int, m: int) -> frozenset[tuple[int, int]]:
    """Pairs of single indices that satisfy all equations."""

    def holds(equation: Equation, a: int, b: int) -> bool:
        return sum(factor for (side, d), factor in equation if d == (b if side else a)) == 0

    return frozenset((a, b) for a in range(n) for b in range(m) if all(holds(e, a, b) for e in equations))
