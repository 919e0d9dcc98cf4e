"""Which instances of a recurrence compute elements that are read."""

from __future__ import annotations

import islpy

from polyc.poly.domains import has_divs
from polyc.poly.scop import Scop

ROUNDS = 3
"""What only dead instances read is dead as well."""


def find_dead_instances(scop: Scop) -> dict[str, islpy.Set | None]:
    """New domains ``{ S[i] }``, zero-based, of statements that compute more than is read; None: nothing they write is read."""
    narrowed: dict[str, islpy.Set] = {}
    for _ in range(ROUNDS):
        found = _find_dead(scop, narrowed)
        if not found:
            break
        narrowed.update(found)
    return {name: None if domain.is_empty() else domain for name, domain in narrowed.items()}


def _find_dead(scop: Scop, narrowed: dict[str, islpy.Set]) -> dict[str, islpy.Set]:
    """New domains, by statement, of those that compute more than is read."""
    found: dict[str, islpy.Set] = {}
    for tensor in scop.tensors.values():
        writers = [s for s in scop.statements if s.target == tensor.name]
        if tensor.role != "temporary" or not any(a.tensor == tensor.name for s in writers for a in s.accesses):
            continue
        read = _read_elements(tensor.name, scop, narrowed)
        for s in writers:
            domain = narrowed.get(s.name, s.domain)
            if read is None or s.is_reduction or not s.writes_exactly or s.guards or domain.is_empty():
                continue
            live = domain.intersect(s.write.intersect_range(read).domain()).coalesce()
            if domain.is_subset(live):
                continue
            if live.is_empty() or (live.n_basic_set() <= max(1, domain.n_basic_set()) and not has_divs(live)):
                found[s.name] = live
    return found


def _read_elements(tensor: str, scop: Scop, narrowed: dict[str, islpy.Set]) -> islpy.Set | None:
    result: islpy.Set | None = None
    for s in scop.statements:
        for access in (*s.accesses, *s.init_accesses):
            if access.tensor != tensor:
                continue
            relation = access.relation
            if s.name in narrowed and access in s.accesses:
                relation = relation.intersect_domain(narrowed[s.name])
            elements = relation.range()
            result = elements if result is None else result.union(elements)
    return None if result is None else result.coalesce()
