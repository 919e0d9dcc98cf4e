"""Blocks of rows: tiles that each pass over the same large operands, block after block, pass over one block of these together.

Before: ``q by 6 { c { S[q, c] … } ; E[q] … }`` where S reads Y[c], for all c more than the second-level cache holds.
After:  ``q by 96 { c { q by 6 { S … } } ; q by 6 { E … } }``: a block of Y comes from afar once for sixteen tiles.

Legal wherever rows need nothing of each other (a coincident loop): each of them runs its own statements in the same order as
before.  What a row keeps for later parts waits in buffers for the whole block of rows, which are as many as leave room.
The order is that of Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

from itertools import groupby
from math import prod

from polyc.code_limits import MINIMUM_ITERATIONS, MINIMUM_REUSE
from polyc.machine import Level, Machine, Share
from polyc.poly.rows import Row
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Plan, PlanLoop, PlanSequence, make_sequence, plan_statements
from polyc.records import dataclass, replace
from polyc.scheduler.accesses import AccessMotion, access_motions, index_trips
from polyc.scheduler.traffic import find_level


def block_rows(plan: Plan, scop: Scop, target: Machine, around: tuple[PlanLoop, ...] = ()) -> Plan:
    """The plan with blocks of rows where tiles of rows stream what they share from beyond the second-level cache.

    `around`: the loops outside of `plan`."""
    match plan:
        case PlanSequence():
            return PlanSequence(tuple(block_rows(child, scop, target, around) for child in plan.children))
        case PlanLoop(kind="P", mark=None):
            blocked = _block(plan, scop, target, around)
            return blocked or replace(plan, child=block_rows(plan.child, scop, target, (*around, plan)))
    return plan


def _block(rows: PlanLoop, scop: Scop, target: Machine, around: tuple[PlanLoop, ...]) -> PlanLoop | None:
    """A loop over tiles of rows as one over blocks of tiles; None where that is of no use."""
    if rows.part != "tile" or rows.period or not isinstance(rows.child, PlanSequence):
        return None
    parts = rows.child.children
    streams = [_find_stream(part, rows, around, scop) for part in parts]
    if not any(s.level_of_all(target) > Level.L2 for s in streams if s is not None):
        return None
    block = max(s.bytes for s in streams if s is not None)
    size = _block_size(rows, block, scop, target, around)
    if size <= rows.size:
        return None
    inner = replace(rows, period=size)

    def below(part: Plan) -> Plan:
        return replace(inner, rows=_rows_of(part, rows), child=part)

    children: list[Plan] = []
    for is_streamed, run in groupby(zip(parts, streams, strict=True), key=lambda p: p[1] is not None):
        found = [part for part, _ in run]
        if is_streamed:
            children += [replace(part, child=below(part.child)) for part in found if isinstance(part, PlanLoop)]
        else:
            children.append(below(make_sequence(found)))
    return replace(rows, size=size, child=make_sequence(children))


def _rows_of(part: Plan, rows: PlanLoop) -> dict[str, Row]:
    return {name: rows.rows[name] for name in plan_statements(part)}


@dataclass(frozen=True, slots=True)
class _Stream:
    """What a loop inside of a tile reads that all tiles of rows share."""

    bytes: int
    """In one of its iterations."""
    trips: int

    def level_of_all(self, target: Machine) -> Level:
        """Where the next tile finds it."""
        return find_level(self.bytes * self.trips, target)


def _find_stream(part: Plan, rows: PlanLoop, around: tuple[PlanLoop, ...], scop: Scop) -> _Stream | None:
    """What a coincident loop over several statements reads anew in each iteration, the same for all rows; None where it is no
    such loop, or reads nothing of that kind."""
    if not isinstance(part, PlanLoop) or part.kind != "P" or part.part != "whole" or part.mark is not None:
        return None
    if not isinstance(part.child, PlanSequence):
        return None
    total, trips = 0, 1
    for s in _statements(part, scop):
        row, own = _index(rows, s), _index(part, s)
        if row is None or own is None:
            return None
        trips = max(trips, index_trips(s)[own])
        outside = {own, *(_index(loop, s) for loop in around)}
        for m in access_motions(s):
            if not m.is_write and m.motion(row) == "invariant" and m.motion(own) != "invariant":
                total += _bytes(m, s, outside, scop)
    return _Stream(total, trips) if total else None


def _block_size(rows: PlanLoop, block: int, scop: Scop, target: Machine, around: tuple[PlanLoop, ...]) -> int:
    """Rows whose buffers fit half of the second-level cache, beside operands of `block` bytes, and leave threads enough blocks;
    as many in each block."""
    if not target.fits(block, Level.L2, Share.QUARTER):
        return 0
    kept: dict[str, int] = {}
    outer = n_rows = 1
    for s in _statements(rows, scop):
        row, trips = _index(rows, s), index_trips(s)
        if row is None:
            return 0
        indices = [_index(loop, s) for loop in around]
        outer, n_rows = max(outer, prod(trips[i] for i in indices if i)), max(n_rows, trips[row])
        for m in access_motions(s):
            if m.motion(row) != "invariant" and not _is_inside(m.tensor, rows, scop):
                kept[m.tensor] = max(kept.get(m.tensor, 0), _bytes(m, s, {row, *indices}, scop))
    tiles = -(-n_rows // rows.size)
    most = min(MINIMUM_REUSE, target.room(Level.L2, Share.HALF) // max(1, sum(kept.values())) // rows.size)
    if outer < MINIMUM_ITERATIONS:
        most = min(most, tiles * outer // MINIMUM_ITERATIONS)
    return rows.size * -(-tiles // -(-tiles // most)) if most > 1 else 0


def _is_inside(tensor: str, rows: PlanLoop, scop: Scop) -> bool:
    """Whether only statements of one part use a tensor: it stays in the buffer of a tile."""
    assert isinstance(rows.child, PlanSequence)
    users = [
        n
        for n, part in enumerate(rows.child.children)
        if any(m.tensor == tensor for s in _statements(part, scop) for m in access_motions(s))
    ]
    return len(users) < 2 and scop.tensors[tensor].role == "temporary"


def _bytes(m: AccessMotion, s: ScopStatement, outside: set[str | None], scop: Scop) -> int:
    """Bytes that an access touches while the indices `outside` stand still."""
    trips = index_trips(s)
    moving = {i for names in m.named for i in names if i in trips and i not in outside}
    return scop.tensors[m.tensor].dtype.itemsize * prod(trips[i] for i in moving)


def _statements(plan: Plan, scop: Scop) -> list[ScopStatement]:
    return [scop.statement(n) for n in plan_statements(plan) if not n.startswith("init_")]


def _index(loop: PlanLoop, s: ScopStatement) -> str | None:
    """The index of a statement that a loop runs over, if it is one."""
    position = loop.rows[s.name].unit_index() if s.name in loop.rows else None
    return None if position is None else s.indices[position]
