"""Accesses solved for the indices of their statement: which points reach an element.

``f(p) = e`` is solved dimension by dimension: an index that stands in a linear subscript with the coefficient 1 or -1 follows
from the element and the other indices, ``X[h + r]`` from ``h = e - r``.  What is solved ranges over all elements of its
dimension, with what the index had to keep to as conditions.  Where every index has another coefficient (``X[2 * i]``), a
dimension is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from polyc.ir.expr import Expr, Index, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.simplify import simplify
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
