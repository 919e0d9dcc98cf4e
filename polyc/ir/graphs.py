"""Strongly connected components of statements and the like, in an order that dependences allow."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence


def find_components(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Components in topological order; earlier names first where dependences leave the choice.

    `edges` are (source, sink); those that leave `names` are ignored.  Names inside a component keep their order.
    Tarjan's algorithm without recursion, then Kahn's with a heap.
    """
    position = {name: n for n, name in enumerate(names)}
    successors: dict[str, list[str]] = {name: [] for name in names}
    for source, sink in edges:
        if source in position and sink in position and source != sink:
            successors[source].append(sink)
    component = _number_components(names, successors)
    members: dict[int, list[str]] = {}
    for name in names:
        members.setdefault(component[name], []).append(name)
    following: dict[int, set[int]] = {c: set() for c in members}
    n_before = dict.fromkeys(members, 0)
    for source, sinks in successors.items():
        for sink in sinks:
            a, b = component[source], component[sink]
            if a != b and b not in following[a]:
                following[a].add(b)
                n_before[b] += 1
    ready = [(position[members[c][0]], c) for c in members if n_before[c] == 0]
    heapq.heapify(ready)
    result: list[list[str]] = []
    while ready:
        _, c = heapq.heappop(ready)
        result.append(members[c])
        for d in following[c]:
            n_before[d] -= 1
            if n_before[d] == 0:
                heapq.heappush(ready, (position[members[d][0]], d))
    return result


def _number_components(names: Sequence[str], successors: Mapping[str, Sequence[str]]) -> dict[str, int]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    component: dict[str, int] = {}
    open_names: list[str] = []
    for root in names:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            name, n = work.pop()
            if n == 0:
                index[name] = low[name] = len(index)
                open_names.append(name)
            else:
                low[name] = min(low[name], low[successors[name][n - 1]])
            for m in range(n, len(successors[name])):
                step = successors[name][m]
                if step not in index:
                    work += [(name, m + 1), (step, 0)]
                    break
                if step not in component:
                    low[name] = min(low[name], index[step])
            else:
                if low[name] == index[name]:
                    number = index[name]
                    while True:
                        member = open_names.pop()
                        component[member] = number
                        if member == name:
                            break
    return component
