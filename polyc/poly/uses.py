"""Accesses as the proof by storage sees them: which cells of which buffer the instances of a statement touch.

before  ``S: A[t, i] = A[t-1, i]`` with ``A`` folded to two rows
after   a write ``S[t, i] -> A[t mod 2, i]`` and a read ``S[t, i] -> A[(t - 1) mod 2, i]``
"""

from __future__ import annotations

import islpy

from polyc.poly.dependences import init_name, init_write
from polyc.poly.exclusive import Part, find_parts
from polyc.poly.scop import Scop
from polyc.poly.storage import Folding, Storage
from polyc.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Use:
    """All accesses of one instance set to one version.  An update (`reduces`) is a write and a read."""

    instances: str
    version: str
    buffer: str
    space: str
    is_write: bool
    reduces: bool
    is_exact: bool
    to_element: islpy.Map  # [sizes] -> { I[i] -> T[e] }
    cells: islpy.Map  # [sizes] -> { T[e] -> buffer[c] }, for all integer e
    to_cell: islpy.Map  # [sizes] -> { I[i] -> buffer[c] }
    part: Part | None = None


def collect_uses(scop: Scop, storage: Storage, buffer: str | None = None) -> list[Use]:
    """Every access of every instance set that has instances, with the cells it touches; of one buffer alone, if it is given."""
    uses: list[Use] = []
    parts = find_parts(scop)

    def folding(version: str) -> Folding:
        tensor = scop.tensors[version]
        whole = (None,) * len(tensor.shape)
        return storage.get(version) or Folding(version, whole, "shared" if tensor.role == "temporary" else "argument")

    def add(
        instances: str, version: str, relation: islpy.Map, is_write: bool, reduces: bool = False, is_exact: bool = True
    ) -> None:
        place = folding(version)
        if (buffer is not None and place.buffer != buffer) or relation.is_empty():
            return  # instances that never run have no place in the schedule
        cells = element_to_cell(relation.range().get_space(), place)
        to_cell = relation.apply_range(cells)
        kind, maps = (is_write, reduces, is_exact), (relation, cells, to_cell)
        uses.append(Use(instances, version, place.buffer, place.space, *kind, *maps, parts.get(instances)))

    for s in scop.statements:
        add(s.name, s.target, s.write, True, s.is_reduction, s.writes_exactly)
        for tensor, relation in s.read_relations.items():
            add(s.name, tensor, relation, False)
        if s.init_domain is not None:
            add(init_name(s.name), s.target, init_write(s), True)
            for tensor, relation in s.init_relations.items():
                add(init_name(s.name), tensor, relation, False)
    return uses


def element_to_cell(space: islpy.Space, folding: Folding) -> islpy.Map:
    """``[sizes] -> { T[e] -> buffer[e mod moduli] }`` for the set space of T."""
    local = islpy.LocalSpace.from_space(space)
    target = space.map_from_set().set_tuple_name(islpy.dim_type.out, folding.buffer)
    cells = islpy.MultiAff.zero(target)
    for d, modulus in enumerate(folding.moduli):
        value = islpy.Aff.var_on_domain(local, islpy.dim_type.set, d)
        cells = cells.set_aff(d, value if modulus is None else value.mod_val(islpy.Val(modulus)))
    return islpy.Map.from_multi_aff(cells)
