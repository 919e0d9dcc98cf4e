"""Which statements share a loop: one dimension at a time, distributing components and merging neighbours.

The order of decisions of reference [ilp]: a whole connected set that is truly parallel gets one row if that costs no more
than rows apart; otherwise components join the earliest group that a tier limit and a contiguity limit allow, then whole
groups merge in pairs.  The tier limit, tier(A + B) <= max(tier A, tier B), says that a statement that still owns a truly
parallel dimension does not give it up to run inside another one's reduction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from polyc.poly.rows import Band, Kind, Leaf, Member, Node, Row
from polyc.poly.rows import Sequence as SequenceNode
from polyc.scheduler.components import find_components
from polyc.scheduler.model import Model
from polyc.scheduler.objective import TOLERANCE, UnitRow, fusion_gain

Used = Mapping[str, frozenset[int]]
"""Dimensions that outer rows have used, by statement."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A row with its tier (1 truly coincident, 2 but for reductions) and its contiguity cost in elements."""

    row: UnitRow
    tier: int
    contiguity: int
    largest: int


@dataclass(frozen=True, slots=True)
class Group:
    """Statements that share the row of `choice`; None where they have no more rows.

    `candidates` are all rows they could share (fast path only)."""

    names: tuple[str, ...]
    choice: Choice | None
    candidates: tuple[UnitRow, ...] = ()


class RowFinder(Protocol):
    """Finds the cheapest row of the lowest tier that statements can share; None where there is none up to `max_tier`."""

    def find_whole(self, names: Sequence[str], used: Used, max_tier: int) -> Group | None: ...

    def join(self, a: Group, b: Group, used: Used, max_tier: int) -> Group | None: ...


class NoRow(Exception):
    """A component of statements has no coincident row left: a recurrence."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(", ".join(names))


class Merger:
    """Schedules groups of statements over one model with one way of finding rows."""

    def __init__(self, model: Model, finder: RowFinder) -> None:
        self.model = model
        self.finder = finder
        self.successors: dict[str, set[str]] = {name: set() for name in model.statements}
        self.related: dict[str, set[str]] = {name: set() for name in model.statements}
        self.linked: dict[str, set[str]] = {name: set() for name in model.statements}
        for edge in model.edges:
            self.successors[edge.source].add(edge.sink)
            self.related[edge.source].add(edge.sink)
            self.related[edge.sink].add(edge.source)
        for link in model.links:
            self.linked[link.first].add(link.second)
            self.linked[link.second].add(link.first)

    def schedule(self, names: Sequence[str], used: Used, members: tuple[Member, ...] = ()) -> Node:
        """The tree below a band with `members` so far.  Raises `NoRow`."""
        if all(not self._has_rows_left(name, used) for name in names):
            order = [name for part in self._components(names) for name in part]
            return _close(members, [Leaf(name) for name in order])
        components = self._components(names)
        singles = [self._single(tuple(part), used) for part in components]
        if len(singles) == 1:
            return self._descend(singles[0], used, members)
        whole = self._try_whole(names, singles, used)
        if whole is not None:
            return self._descend(whole, used, members)
        groups = self._merge_pairs(self._merge_greedily(singles, used), used)
        if len(groups) == 1:
            return self._descend(groups[0], used, members)
        return _close(members, [self.schedule(group.names, used) for group in groups])

    def _has_rows_left(self, name: str, used: Used) -> bool:
        return len(used[name]) < self.model.statements[name].n_dims

    def _components(self, names: Sequence[str]) -> list[list[str]]:
        ordered = sorted(names, key=self._position)
        inside = set(names)
        edges = [(a, b) for a in ordered for b in sorted(self.successors[a] & inside)]
        return find_components(ordered, edges)

    def _position(self, name: str) -> int:
        return self.model.statements[name].position

    def _single(self, names: tuple[str, ...], used: Used) -> Group:
        left = [self._has_rows_left(name, used) for name in names]
        if not any(left):
            return Group(names, None)
        group = self.finder.find_whole(names, used, 2) if all(left) else None
        if group is None:
            raise NoRow(names)
        return group

    def _descend(self, group: Group, used: Used, members: tuple[Member, ...]) -> Node:
        """Put the group's row into the current band (rows without dependences across them permute) and go on below."""
        if group.choice is None:
            return self.schedule(group.names, used, members)
        row, statements = group.choice.row, self.model.statements
        rows = {n: Row(tuple(int(e == row[n]) for e in range(statements[n].n_dims))) for n in group.names}
        kind: Kind = "P" if group.choice.tier == 1 else "R"
        inner = {**used, **{name: used[name] | {row[name]} for name in group.names}}
        return self.schedule(group.names, inner, (*members, Member(kind, rows)))

    def _try_whole(self, names: Sequence[str], singles: list[Group], used: Used) -> Group | None:
        choices = [group.choice for group in singles]
        if any(choice is None or choice.tier != 1 for choice in choices):
            return None
        whole = self.finder.find_whole(tuple(sorted(names, key=self._position)), used, 1)
        if whole is None or whole.choice is None:
            return None
        apart = sum(choice.contiguity for choice in choices if choice is not None)
        return whole if whole.choice.contiguity <= apart + TOLERANCE * whole.choice.largest else None

    def _try_merge(self, a: Group, b: Group, used: Used) -> Group | None:
        if a.choice is None or b.choice is None:
            return None
        inside = set(b.names)
        if not any(self.related[name] & inside for name in a.names) and (
            a.choice.tier != b.choice.tier or not any(self.linked[name] & inside for name in a.names)
        ):
            return None
        joined = self.finder.join(a, b, used, max(a.choice.tier, b.choice.tier))
        if joined is None or joined.choice is None:
            return None
        limit = a.choice.contiguity + b.choice.contiguity + TOLERANCE * joined.choice.largest
        if joined.choice.contiguity <= limit:
            return joined
        return joined if joined.choice.contiguity <= limit + fusion_gain(self.model, joined.names, (a.names, b.names)) else None

    def _merge_greedily(self, singles: list[Group], used: Used) -> list[Group]:
        """Components in topological order, each into the earliest group that follows all it needs and accepts it."""
        groups: list[Group] = []
        place: dict[str, int] = {}
        before: dict[str, set[str]] = {}
        for source, sinks in self.successors.items():
            for sink in sinks:
                before.setdefault(sink, set()).add(source)
        for single in singles:
            needed = [place[p] for name in single.names for p in before.get(name, ()) if p in place]
            near = {place[p] for name in single.names for p in self.related[name] | self.linked[name] if p in place}
            earliest = max(needed, default=0)
            position = len(groups)
            for n in sorted(n for n in near if n >= earliest):
                joined = self._try_merge(groups[n], single, used)
                if joined is not None:
                    groups[n], position = joined, n
                    break
            else:
                groups.append(single)
            for name in single.names:
                place[name] = position
        return groups

    def _merge_pairs(self, groups: list[Group], used: Used) -> list[Group]:
        """Merge whole groups while some pair accepts and no dependence leads from one to the other through a third."""
        refused: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
        groups = self._sort_groups(groups)
        changed = True
        while changed and len(groups) > 1:
            changed = False
            place = {name: n for n, group in enumerate(groups) for name in group.names}
            following = self._group_graph(groups, place)
            for i, group in enumerate(groups):
                near = {place[p] for name in group.names for p in self.related[name] | self.linked[name] if p in place}
                for j in sorted(n for n in near if n > i):
                    key = (group.names, groups[j].names)
                    if key in refused or _has_detour(following, i, j):
                        continue
                    joined = self._try_merge(group, groups[j], used)
                    if joined is None:
                        refused.add(key)
                        continue
                    groups = self._sort_groups([*(g for n, g in enumerate(groups) if n not in (i, j)), joined])
                    changed = True
                    break
                if changed:
                    break
        return groups

    def _group_graph(self, groups: list[Group], place: Mapping[str, int]) -> list[set[int]]:
        return [
            {place[t] for name in group.names for t in self.successors[name] if t in place} - {n}
            for n, group in enumerate(groups)
        ]

    def _sort_groups(self, groups: list[Group]) -> list[Group]:
        place = {name: n for n, group in enumerate(groups) for name in group.names}
        graph = self._group_graph(groups, place)
        order = sorted(range(len(groups)), key=lambda n: min(self._position(name) for name in groups[n].names))
        edges = [(str(a), str(b)) for a, sinks in enumerate(graph) for b in sorted(sinks)]
        parts = find_components([str(n) for n in order], edges)
        return [groups[int(n)] for part in parts for n in part]


def _has_detour(following: list[set[int]], source: int, sink: int) -> bool:
    """Whether `sink` can be reached from `source` through another group, in either direction."""
    for a, b in ((source, sink), (sink, source)):
        stack, seen = [n for n in following[a] if n != b], set()
        while stack:
            n = stack.pop()
            if n == b:
                return True
            if n not in seen:
                seen.add(n)
                stack.extend(following[n])
    return False


def _close(members: tuple[Member, ...], children: list[Node]) -> Node:
    flat: list[Node] = []
    for child in children:
        flat.extend(child.children if isinstance(child, SequenceNode) else (child,))
    node: Node = flat[0] if len(flat) == 1 else SequenceNode(tuple(flat))
    return Band(members, node) if members else node
