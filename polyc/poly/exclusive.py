"""Instances of which data lets one happen at most: those of one element of a partition in different parts.

``for i, p in ptr[i]:ptr[i + 1]`` has an instance for all i and p in the model, which knows nothing of data.  Where the entry
point checks that the parts are in order, an element p is in one of them: two instances [i, p] and [i', p] need nothing of each
other, and never write the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy

from polyc.ir.expr import Expr, Index, lt, substitute
from polyc.ir.simplify import simplify
from polyc.poly.ranges import DataCheck
from polyc.poly.scop import Scop, ScopStatement
from polyc.records import dataclass

_PART = Index("·part")


@dataclass(frozen=True, slots=True)
class Part:
    """Positions, among the indices of a statement, of the one that counts parts and of the one that counts elements; statements
    of one `key` have the same parts."""

    key: tuple[Expr, Expr]
    part: int
    element: int


def find_parts(scop: Scop) -> Mapping[str, Part]:
    """By statement, the partition that it runs through, if the call checks that its parts are in order."""
    checks = scop.ranges.data_checks
    found = {s.name: part for s in scop.statements if checks and (part := _find_part(s)) is not None}
    return {name: part for name, part in found.items() if any(_is_order(check, part) for check in checks)}


def _is_order(check: DataCheck, part: Part) -> bool:
    """Whether a check refuses parts that end before they begin."""
    begin, extent = part.key
    if len(check.box) != 1:
        return False
    ((index, interval),) = check.box
    end = substitute(begin, {_PART.name: _PART + 1})
    decreases = simplify(substitute(lt(end, begin), {_PART.name: Index(index) - interval.lower}))
    return simplify(interval.extent) == extent and simplify(check.violated) == decreases


def _find_part(s: ScopStatement) -> Part | None:
    for index, r in s.loaded_ranges.items():
        if r.is_partition and r.begin is not None and len(r.outer) == 1:
            (outer,) = r.outer
            if s.is_reduction and outer not in s.separate_left and not s.writes_parts:
                return None  # its loop may add the identity beside the part, which stores to elements of others
            begin = substitute(r.begin, {outer: _PART})
            return Part((begin, s.extents[outer]), s.indices.index(outer), s.indices.index(index))
    return None


def drop_exclusive(pairs: islpy.Map, a: Part | None, b: Part | None) -> islpy.Map:
    """Pairs of instances of two statements without those of which one at most happens."""
    if a is None or b is None or a.key != b.key:
        return pairs
    source, sink = islpy.dim_type.in_, islpy.dim_type.out
    same = pairs.equate(source, a.element, sink, b.element)
    return pairs.subtract(same.subtract(same.equate(source, a.part, sink, b.part)))
