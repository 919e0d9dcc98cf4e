"""The greatest memory of a graph of tasks, found by going through it as dask's scheduler of threads does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import product
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Job:
    """Bytes of a task: of its result, which stays until the last task that needs it is done, and of what it holds beside that
    and what it is given while it runs.

    A task whose result is a part of another one's memory has no bytes of its own, and `shares` the key of that.
    `is_lent`: the bytes are memory that polyc lends."""

    result: int
    working: int = 0
    shares: Any = None
    is_lent: bool = False


Jobs = dict[Any, Job]
"""By key."""


NOTHING = Job(0)


def greatest_memory(arrays: Sequence[Any], jobs: Mapping[Any, Job], n_workers: int) -> int:
    """The most bytes that there are where dask's scheduler of threads computes these arrays, and stores each block when it is
    there.

    Tasks that have no job (those that come before chunks) hold nothing.  One that reads from a store holds what it reads beside
    the chunk.  Tasks are taken to run as long as they have bytes.  What is freed is used again, but seldom given back to the
    system, neither by the C library nor by what lends results (`polyc.runtime.memory`): of both the most stays."""
    from dask.highlevelgraph import HighLevelGraph
    from dask.order import order

    graph = HighLevelGraph.merge(*(a.dask for a in arrays))
    needs: dict[Any, set[Any]] = {key: set(found) for key, found in graph.get_all_dependencies().items()}
    there = {key for key, found in needs.items() if not found and key not in jobs}  # from the start
    stores = {key for key in there if not isinstance(getattr(graph[key], "value", graph[key]), np.ndarray)}
    own: dict[Any, Job] = {}
    for key, found in needs.items():
        job = jobs.get(key, NOTHING)
        is_read = not job.is_lent and not stores.isdisjoint(found)
        own[key] = replace(job, working=job.working + job.result) if is_read else job
    results = [key for a in arrays for key in product([a.name], *map(range, a.numblocks))]
    stored = {("polyc-stored", *key): {key} for key in results}
    needs.update(stored)
    needs["polyc-done"] = set(stored)
    rank = order({**graph, **{key: (len, *found) for key, found in needs.items() if key not in graph}})
    needs = {key: found - there for key, found in needs.items() if key not in there}
    return _simulate({key: own.get(key, NOTHING) for key in needs}, needs, rank, n_workers)


def _simulate(jobs: Mapping[Any, Job], needs: Mapping[Any, set[Any]], rank: Mapping[Any, int], n_workers: int) -> int:
    """The scheduler starts with the least task by rank, and goes on with those that have become ready last.  Until the next one
    is done it has the result of the last."""
    owners: dict[Any, Any] = {}  # what holds the bytes of each task
    for key in sorted(jobs, key=rank.__getitem__):
        shares = jobs[key].shares
        owners[key] = key if shares is None else owners[shares]
    dependents: defaultdict[Any, list[Any]] = defaultdict(list)
    users: defaultdict[Any, int] = defaultdict(int)  # tasks to come that need the bytes of one
    waiting = {key: set(found) for key, found in needs.items()}
    for key, found in needs.items():
        for n in found:
            dependents[n].append(key)
            users[owners[n]] += 1
        users[owners[key]] += 1  # itself
    ready = sorted((key for key, found in needs.items() if not found), key=rank.__getitem__, reverse=True)
    running: list[tuple[float, int, Any]] = []
    now, last = 0.0, None
    held, most = [0, 0], [0, 0]  # of what others allocate, and of what polyc lends

    def give_up(owner: Any) -> None:
        users[owner] -= 1
        if not users[owner]:
            held[jobs[owner].is_lent] -= jobs[owner].result

    while ready or running:
        while ready and len(running) < n_workers:
            key = ready.pop()
            job = jobs[key]
            held[job.is_lent] += job.result + job.working
            length = job.result + job.working + sum(jobs[n].result for n in needs[key])
            heappush(running, (now + length, rank[key], key))
        most = [max(pair) for pair in zip(most, held, strict=True)]
        now, _, key = heappop(running)
        held[jobs[key].is_lent] -= jobs[key].working
        for n in sorted(dependents[key], key=rank.__getitem__, reverse=True):
            waiting[n].discard(key)
            if not waiting[n]:
                ready.append(n)
        for n in needs[key]:
            give_up(owners[n])
        if last is not None:
            give_up(owners[last])
        last = key
    return sum(most)
