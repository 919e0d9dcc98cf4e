"""Tensors that are read above their first assignment: allowed where a recurrence needs it, an error anywhere else.

``S(i) +=! L(i, k) * x(k) where k < i`` may stand above the statement that makes ``x`` from ``S``: order has no meaning but
through values.  Others may then read such a tensor there, too.  A statement that only stands too far up is still told so.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.ir.components import reachable
from polyc.records import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """An assignment: the name and the rank of what it writes, and the names that it reads."""

    target: str
    rank: int
    reads: frozenset[str]
    needs_itself: bool
    """Whether it needs the very element that it writes, which then stands above it."""


def find_forward_reads(events: Sequence[Event], parameters: frozenset[str]) -> dict[str, int]:
    """Rank by name of the tensors that may be read above their first assignment."""
    first: dict[str, int] = {}
    needs: dict[str, set[str]] = {}
    for position, e in enumerate(events):
        first.setdefault(e.target, position)
    for e in events:
        needs.setdefault(e.target, set()).update(e.reads & (first.keys() - parameters))
    allowed: dict[str, int] = {}
    refused: set[str] = set()
    for position, e in enumerate(events):
        for name in sorted(e.reads & (first.keys() - parameters)):
            if first[name] < position:
                continue
            if name == e.target and e.needs_itself:
                refused.add(name)
            elif e.target in reachable(name, needs):
                allowed[name] = events[first[name]].rank
    return {name: rank for name, rank in allowed.items() if name not in refused}
