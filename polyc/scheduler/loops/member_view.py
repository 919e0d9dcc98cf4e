"""What the members of bands are to statements: which index, in which register tile, in how many lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.config import Options
from polyc.machine import Machine
from polyc.poly.rows import Member, free_positions
from polyc.poly.scop import Scop, ScopStatement
from polyc.poly.tree import Mark, Part, Plan, PlanLoop
from polyc.records import dataclass
from polyc.scheduler.accesses import is_strided_window, vector_itemsize
from polyc.scheduler.tiling import RegisterTile, choose_register_tile, choose_vector_index


@dataclass(frozen=True, slots=True)
class MemberView:
    """Answers about members of bands; names of statements may be those of initial values (``init_S``)."""

    scop: Scop
    target: Machine
    options: Options
    tiles: Mapping[str, RegisterTile]
    """Tiles that were chosen together with copies, by statement."""

    def statement(self, name: str) -> ScopStatement:
        return self.scop.statement(name.removeprefix("init_"))

    def index(self, member: Member, name: str) -> str | None:
        """The index of statement `name` that `member` runs over, if it is one."""
        position = member.rows[name].unit_index()
        if position is None:
            return None
        s = self.statement(name)
        return s.elements[position] if name.startswith("init_") else s.indices[position]

    def sums(self, member: Member, name: str) -> bool:
        """Whether statement `name` may sum over `member`: what others below the band sum over can be a left index of it."""
        index = self.index(member, name) if name in member.rows else None
        return member.kind == "R" and (index is None or index in self.statement(name).reduction_indices)

    def moved_index(self, member: Member, name: str, others: list[Member]) -> str | None:
        """The index of statement `name` that grows by one with `member` while the other members stand still, if it is one."""
        moving = free_positions(member.rows[name], [m.rows[name] for m in others if m is not member and name in m.rows])
        if len(moving) != 1 or member.rows[name].coefficients[moving[0]] != 1:
            return None
        s = self.statement(name)
        return s.elements[moving[0]] if name.startswith("init_") else s.indices[moving[0]]

    def tile(self, s: ScopStatement, lanes: int, vector: str | None = None) -> RegisterTile:
        """The tile that was chosen together with copies, or the best one for the accesses as they are; `vector`: the index of
        its vector, where that is settled."""
        known = self.tiles.get(s.name)
        return known or choose_register_tile(s, self.target, lanes, self.options.reassociate, vector)

    def shared_rows(self, statements: Sequence[ScopStatement], members: Sequence[Member]) -> list[tuple[Member, int]]:
        """The member along which all of several sums that share a pass have rows in their register tiles, and how many rows.

        All sum over the vector index that costs them least together, or each over its own where `members` do not have it;
        empty where some does not, or where registers hold no two rows of each."""
        lanes = self.lanes(list(statements))
        maps = [{s.name: i for s in statements if s.name in m.rows and (i := self.index(m, s.name))} for m in members]
        chosen = choose_vector_index(list(statements), maps, lanes, self.options.reassociate, self.scop.tensors)
        shared = {} if chosen is None or members[chosen].kind == "P" else maps[chosen]
        tiles = [self.tile(s, lanes, shared.get(s.name)) for s in statements]
        if any(t.vector not in s.reduction_indices for s, t in zip(statements, tiles, strict=True)):
            return []
        most = (self.target.n_registers - self.target.spare_registers) // (2 * len(statements))
        for m in members:
            indices = [self.index(m, s.name) if s.name in m.rows and m.kind == "P" else None for s in statements]
            size = min((t.sizes.get(i or "", 0) for i, t in zip(indices, tiles, strict=True)), default=0)
            if min(size, most) > 1:
                return [(m, min(size, most))]
        return []

    def lanes(self, statements: list[ScopStatement]) -> int:
        if not self.options.vectorize:
            return 1
        known = self.tiles.get(statements[0].name) if len(statements) == 1 else None
        if known is not None:
            return known.lanes
        lanes = min(self.target.lanes(vector_itemsize(self.scop, statements)), 64)
        is_narrow = self.target.vector_bits > self.target.streaming_bits and any(is_strided_window(s) for s in statements)
        return lanes // 2 if is_narrow else lanes


def make_loop(member: Member, child: Plan, part: Part = "whole", size: int = 0, mark: Mark | None = None) -> PlanLoop:
    """The loop of a band's member."""
    return PlanLoop(member.rows, member.kind_inside, child, part, size, mark)
