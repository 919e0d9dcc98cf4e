"""Instances of which data lets one happen at most: those of one element of a partition in different parts.

``for i, p in ptr[i]:ptr[i + 1]`` has an instance for all i and p in the model, which knows nothing of data.  Where the entry
point checks that the parts are in order, an element p is in one of them: two instances [i, p] and [i', p] need nothing of each
other, and never write the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy

from polyc.ir.expr import Expr, Index, substitute
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Positions, among the indices of a statement, of the one that counts parts and of the one that counts elements; statements
    of one `key` have the same parts."""

    key: tuple[Expr, Expr]
    part: int
    element: int


def find_parts(scop: Scop) -> Mapping[str, Part]:
    """By statement, the partition that it runs through, if that is checked: if some statement assigns its elements."""
    if not any(s.assigns_parts for s in scop.statements):
        return {}
    found = {s.name: part for s in scop.statements if (part := _find_part(s)) is not None}
    checked = {found[s.name].key for s in scop.statements if s.assigns_parts and s.name in found}
    return {name: part for name, part in found.items() if part.key in checked}


def _find_part(s: ScopStatement) -> Part | None:
    for index, r in s.loaded_ranges.items():
        if r.is_partition and r.begin is not None and len(r.outer) == 1:
            (outer,) = r.outer
            begin = substitute(r.begin, {outer: Index("part")})
            return Part((begin, s.extents[outer]), s.indices.index(outer), s.indices.index(index))
    return None


def drop_exclusive(pairs: islpy.Map, a: Part | None, b: Part | None) -> islpy.Map:
    """Pairs of instances of two statements without those of which one at most happens."""
    if a is None or b is None or a.key != b.key:
        return pairs
    source, sink = islpy.dim_type.in_, islpy.dim_type.out
    same = pairs.equate(source, a.element, sink, b.element)
    return pairs.subtract(same.subtract(same.equate(source, a.part, sink, b.part)))
