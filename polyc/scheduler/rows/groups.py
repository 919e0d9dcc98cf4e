"""Groups of statements that share a row, and the graph of dependences between groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from polyc.ir.graphs import find_components
from polyc.poly.rows import Kind
from polyc.records import dataclass
from polyc.scheduler.rows.objective import UnitRow

Used = Mapping[str, frozenset[int]]
"""Dimensions that outer rows have used, by statement."""

IN_ORDER = 3
"""The tier of rows that carry sums: steps in order, each with what sums add up of it."""

KINDS: Mapping[int, Kind] = {1: "P", 2: "R", IN_ORDER: "S"}
"""What a row of each tier is to a band."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A row with its tier (1 truly coincident, 2 but for reductions, or `IN_ORDER`) and its contiguity cost in elements."""

    row: UnitRow
    tier: int
    contiguity: int
    largest: int


@dataclass(frozen=True, slots=True)
class Group:
    """Statements that share the row of `choice`; None where they have no more rows.

    `candidates` are all rows they could share (fast path only).  `is_recurrence`: they have dimensions left, but only a
    row that carries dependences can come next."""

    names: tuple[str, ...]
    choice: Choice | None
    candidates: tuple[UnitRow, ...] = ()
    is_recurrence: bool = False


class RowFinder(Protocol):
    """Finds the cheapest row of the lowest tier that statements can share; None where there is none up to `max_tier`."""

    def find_whole(self, names: Sequence[str], used: Used, max_tier: int) -> Group | None: ...

    def join(self, a: Group, b: Group, used: Used, max_tier: int) -> Group | None: ...


class NoRow(Exception):
    """A component of statements has no legal row at all."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(", ".join(names))


def group_graph(groups: Sequence[Group], place: Mapping[str, int], successors: Mapping[str, set[str]]) -> list[set[int]]:
    """Numbers of the groups that depend on each group; `place` is the group of each statement."""
    return [{place[t] for name in group.names for t in successors[name] if t in place} - {n} for n, group in enumerate(groups)]


def sort_groups(groups: Sequence[Group], successors: Mapping[str, set[str]], position: Callable[[str], int]) -> list[Group]:
    """Topological order; the group with the earliest statement first where dependences leave the choice."""
    place = {name: n for n, group in enumerate(groups) for name in group.names}
    graph = group_graph(groups, place, successors)
    order = sorted(range(len(groups)), key=lambda n: min(position(name) for name in groups[n].names))
    edges = [(str(a), str(b)) for a, sinks in enumerate(graph) for b in sorted(sinks)]
    parts = find_components([str(n) for n in order], edges)
    return [groups[int(n)] for part in parts for n in part]


def has_detour(following: list[set[int]], source: int, sink: int) -> bool:
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
