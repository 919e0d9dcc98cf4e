"""The matrices of minimal filtering: m results of a filter with r taps from m + r - 1 products instead of m * r.

Toom and Cook multiply polynomials by their values at points; transposed, that is a filter (Winograd, "Arithmetic Complexity of
Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, equation 6):

    ``y = A^T ((G g) * (B^T d))``   where   ``y[i] = sum over k of d[i + k] * g[k]``
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import prod

from polyc.records import dataclass

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, slots=True)
class Transforms:
    """`data` is B^T (points x points), `filter` G (points x taps), `result` A^T (results x points)."""

    data: Matrix
    filter: Matrix
    result: Matrix

    @property
    def n_points(self) -> int:
        return len(self.data)

    @property
    def n_results(self) -> int:
        return len(self.result)


@cache
def make_transforms(n_results: int, n_taps: int, points: Sequence[Fraction | int]) -> Transforms:
    """Interpolation at `points`, as many as results and taps less 2, and at infinity.  Raises ValueError for another number."""
    n = n_results + n_taps - 1
    if len(set(points)) != n - 1 or len(points) != n - 1:
        raise ValueError(f"{n_results} results of {n_taps} taps need {n - 1} different points, not {list(points)}")
    at = [Fraction(p) for p in points]
    data, filters = [], []
    for j, a in enumerate(at):
        others = at[:j] + at[j + 1 :]
        scale = prod((a - b for b in others), start=Fraction(1))
        sign = 1 if scale > 0 else -1  # so that a filter's part has the sign of its value at the point
        data.append(tuple(sign * c for c in (*_product_of_roots(others), Fraction(0))))
        filters.append(tuple(sign * a**k / scale for k in range(n_taps)))
    data.append(_product_of_roots(at))
    filters.append(tuple(Fraction(k == n_taps - 1) for k in range(n_taps)))
    result = tuple((*(a**i for a in at), Fraction(i == n_results - 1)) for i in range(n_results))
    return Transforms(tuple(data), tuple(filters), result)


def _product_of_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of ``prod (x - root)``, the constant one first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *coefficients], [*(-root * c for c in coefficients), Fraction(0)]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(coefficients)
