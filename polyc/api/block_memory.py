"""The greatest memory of a graph of tasks, found by going through it as dask's scheduler of threads does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import product
from typing import Any

import numpy as np

from polyc.runtime.memory import REUSE_FROM
from polyc.runtime.pages import round_up

MAPPED_FROM = 32 << 20
"""Bytes from which the C library always maps memory, and gives it back to the system when it is freed."""


@dataclass(frozen=True, slots=True)
class Job:
    """Bytes of a task: of its result, which stays until the last task that needs it is done, and of what it holds beside that
    and what it is given while it runs: `copies`, and the `workspace` of its kernel.

    A task whose result is a part of another one's memory has no bytes of its own, and `shares` the key of that.
    `is_lent`: result and copies are memory that polyc lends."""

    result: int
    copies: int = 0
    workspace: int = 0
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
    system: the C library keeps it for the thread that asked for it, what lends results (`polyc.runtime.memory`) for blocks of
    the same size, and each thread keeps its workspace.  Of each of these pools the most stays.  Which thread asks is a matter
    of chance: each but one is taken to keep one of the largest chunks, while others hold more of them."""
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
        own[key] = replace(job, copies=job.copies + job.result) if is_read else job
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
    idle = list(range(n_workers))
    running: list[tuple[float, int, Any]] = []
    threads: dict[Any, int] = {}
    pools = _Pools()
    now, last = 0.0, None

    def give_up(owner: Any) -> None:
        users[owner] -= 1
        if not users[owner]:
            pools.add(jobs[owner], -jobs[owner].result, "result")

    while ready or running:
        while ready and idle:
            key, thread = ready.pop(), idle.pop()
            job = jobs[key]
            threads[key] = thread
            pools.add(job, job.result, "result")
            pools.add(job, job.copies, "copies")
            pools.note(("workspace", thread), job.workspace)
            length = job.result + job.copies + job.workspace + sum(jobs[n].result for n in needs[key])
            heappush(running, (now + length, rank[key], key))
        now, _, key = heappop(running)
        pools.add(jobs[key], -jobs[key].copies, "copies")
        idle.append(threads.pop(key))
        for n in sorted(dependents[key], key=rank.__getitem__, reverse=True):
            waiting[n].discard(key)
            if not waiting[n]:
                ready.append(n)
        for n in needs[key]:
            give_up(owners[n])
        if last is not None:
            give_up(owners[last])
        last = key
    return sum(pools.most.values()) + (n_workers - 1) * pools.largest


class _Pools:
    """Memory that is used again for the same alone: what is held of each pool, and the most of it."""

    def __init__(self) -> None:
        self.held: defaultdict[Any, int] = defaultdict(int)
        self.most: defaultdict[Any, int] = defaultdict(int)
        self.largest = 0
        """Bytes of the largest result that the C library keeps for a thread once it is freed."""

    def note(self, pool: Any, held: int) -> None:
        self.most[pool] = max(self.most[pool], held)

    def add(self, job: Job, n_bytes: int, use: str) -> None:
        """Bytes of a job for a ``result`` or ``copies``, or less of them.  What is read from a store is copies, by threads of
        the store's own."""
        size = abs(n_bytes)
        pool: Any = use
        if job.is_lent:
            pool = round_up(size) if size >= REUSE_FROM else "result"
        elif size >= MAPPED_FROM:
            pool = "mapped"
        elif use == "result":
            self.largest = max(self.largest, size)
        self.held[pool] += n_bytes
        self.note(pool, self.held[pool])
