"""Which instances of a recurrence compute elements that are read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import islpy

from polyc.ir.types import BOOL
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
        read = read_elements(tensor.name, scop, narrowed)
        for s in writers:
            domain = narrowed.get(s.name, s.domain)
            if read is None or s.is_reduction or not s.writes_exactly or s.guards or domain.is_empty():
                continue
            if tensor.dtype == BOOL and len(s.indices) == 1 and any(a.tensor == s.target for a in s.accesses):
                continue  # a flag that stays: to ask at each step whether it is needed would cost as much, and hide what it is
            live = domain.intersect(s.write.intersect_range(read).domain()).coalesce()
            if domain.is_subset(live):
                continue
            if live.is_empty() or (live.n_basic_set() <= max(1, domain.n_basic_set()) and not has_divs(live)):
                found[s.name] = live
    return found


def read_elements(tensor: str, scop: Scop, narrowed: Mapping[str, islpy.Set] = MappingProxyType({})) -> islpy.Set | None:
    """The elements of a temporary ``{ T[e] }``, zero-based, that statements read, where they have the domains of `narrowed`;
    None: none does."""
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


def find_dead_starts(scop: Scop) -> dict[str, islpy.Set]:
    """Elements ``{ init_S[elements] }``, zero-based, of reductions that need an initial value, where others are never read."""
    found: dict[str, islpy.Set] = {}
    for s in scop.statements:
        tensor = scop.tensors[s.target]
        if s.init_domain is None or tensor.role != "temporary" or not s.writes_exactly:
            continue
        read = read_elements(tensor.name, scop)
        if read is None:
            continue
        live = s.init_domain.intersect(read.set_tuple_name(s.init_domain.get_tuple_name())).coalesce()
        reached = s.write.range().set_tuple_name(s.init_domain.get_tuple_name())
        here = s.init_domain.intersect_params(live.params())  # sizes at which nothing is read are no reason
        if not reached.is_subset(live) or live.is_empty() or here.is_subset(live):
            continue
        if live.n_basic_set() == 1 and not has_divs(live):
            found[s.name] = live
    return found
