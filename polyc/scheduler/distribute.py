"""Take a fused band apart where the fusion would stream a large operand once per iteration.

Before: ``[P:m]{ [P:n]{ [R:k] H0 ; R0 } ; [P:n]{ [R:k] H1 ; R1 } }`` (every row of m reads all weights of both layers).
After: ``[P:m]{ [P:n]{ … } } ; [P:m]{ [P:n]{ … } }``.  Always legal: the rows have distance zero on every dependence between
the statements of a band, so running all of one part first keeps each source before its sinks.
"""

from __future__ import annotations

from polyc.poly.rows import Band, Leaf, Member, Node, Sequence, statements_of
from polyc.poly.scop import Scop, ScopStatement
from polyc.scheduler.accesses import access_motions, index_trips
from polyc.target import Target


def distribute_bands(node: Node, scop: Scop, target: Target) -> Node:
    """Separate the parts of a sequence under a band that each reread an operand beyond half of the second-level cache."""
    match node:
        case Leaf():
            return node
        case Sequence():
            return Sequence(tuple(distribute_bands(c, scop, target) for c in node.children))
        case Band():
            child = distribute_bands(node.child, scop, target)
            if not isinstance(child, Sequence) or any(m.kind == "S" for m in node.members):
                return Band(node.members, child)
            groups: list[list[Node]] = [[]]
            streams = False
            for part in child.children:
                part_streams = not isinstance(part, Leaf) and any(
                    _rereads(node.members, scop.statement(name), scop, target) for name in statements_of(part)
                )
                if part_streams and streams:
                    groups.append([])
                    streams = False
                streams = streams or part_streams
                groups[-1].append(part)
            if len(groups) == 1:
                return Band(node.members, child)
            return Sequence(tuple(_band_over(node.members, g) for g in groups))


def _band_over(members: tuple[Member, ...], parts: list[Node]) -> Band:
    child = parts[0] if len(parts) == 1 else Sequence(tuple(parts))
    names = list(statements_of(child))
    return Band(tuple(Member(m.kind, {n: m.rows[n] for n in names}) for m in members), child)


def _rereads(members: tuple[Member, ...], s: ScopStatement, scop: Scop, target: Target) -> bool:
    """Whether `s` reduces over an operand that no member of the band moves and that is large."""
    if not s.is_reduction:
        return False
    trips = index_trips(s)
    fixed = [s.indices[p] for m in members if (p := m.rows[s.name].unit_index()) is not None]
    for access in access_motions(s):
        if access.is_write or any(access.motion(i) != "invariant" for i in fixed):
            continue
        footprint = scop.tensors[access.tensor].dtype.itemsize
        for i in s.indices:
            if access.motion(i) != "invariant":
                footprint *= trips[i]
        if footprint > target.l2 // 2:
            return True
    return False
