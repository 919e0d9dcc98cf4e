"""Accesses solved for the indices of their statement: which points reach an element.

``f(p) = e`` is solved dimension by dimension: an index that stands in a linear subscript with the coefficient 1 or -1 follows from the element
and the other indices, ``X[h + r]`` from ``h = e - r``.  What is solved ranges over all elements of its dimension, with what the index had to keep to as
conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from polyc.ir.expr import Expr, Index, ge, lt, reads, substitute
from polyc.ir.linear import index_coefficients
from polyc.ir.simplify import simplify
from polyc.poly.ranges import Interval
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Solution:
    """`indices`: what each solved index is, over the elements' indices and those that are left; `solved`: which one each dimension was
    solved for, None where it was not."""

    indices: dict[str, Expr]
    solved: tuple[str | None, ...]

    @property
    def is_whole(self) -> bool:
        return None not in self.solved


def solve(
    subscripts: Sequence[Expr], element: Callable[[int, str], str], indices: Collection[str], fixed: Collection[str] = ()
) -> Solution:
    """`element(d, i)` names the index of the elements along dimension `d`, which is solved for `i`.  `indices` are those of the statement; those of
    `fixed` are solved for where they stand alone only."""
    found: dict[str, Expr] = {}
    solved: list[str | None] = [None] * len(subscripts)
    alone = [d for d, e in enumerate(subscripts) if isinstance(e, Index)]
    for d in (*alone, *(d for d in range(len(subscripts)) if d not in alone)):
        subscript = simplify(substitute(subscripts[d], found))
        coefficients = None if reads(subscript) else index_coefficients(subscript)
        free = [i for i in indices if i not in found and abs((coefficients or {}).get(i, 0)) == 1]
        if d not in alone:
            free = [i for i in free if i not in fixed]
        if not free or (d in alone and not isinstance(subscript, Index)):
            continue
        i = _choose(free, subscripts)
        place = Index(element(d, i))
        rest = simplify(subscript - Index(i)) if (coefficients or {})[i] == 1 else simplify(subscript + Index(i))
        value = simplify(place - rest if (coefficients or {})[i] == 1 else rest - place)
        found = {name: simplify(substitute(e, {i: value})) for name, e in found.items()} | {i: value}
        solved[d] = i
    return Solution(found, tuple(solved))


def _choose(free: Sequence[str], subscripts: Sequence[Expr]) -> str:
    """The first one of those that stand in fewest subscripts: what is left runs through a window."""
    return min(free, key=lambda i: sum(i in (index_coefficients(e) or {}) for e in subscripts))


def kept_to(value: Expr, interval: Interval, box: Interval | None) -> list[Expr]:
    """What an index that has become `value` has to keep to; `box`: what the elements run over, where `value` is their index."""
    upper = simplify(interval.lower + interval.extent)
    tests: list[Expr] = []
    if box is None or simplify(interval.lower) != simplify(box.lower):
        tests.append(ge(value, interval.lower))
    if box is None or upper != simplify(box.lower + box.extent):
        tests.append(lt(value, upper))
    return tests
