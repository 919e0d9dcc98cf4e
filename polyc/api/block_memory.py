"""The greatest memory of a graph of tasks, found by going through it as dask's scheduler of threads does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """What a task needs of others (by key), and bytes: of its result, which stays until the last task that needs it is done,
    and of what it holds beside these while it runs.

    A task whose result is a part of another one's memory has no bytes of its own, and `shares` the key of that.
    `is_lent`: the bytes are memory that polyc lends."""

    needs: tuple[Any, ...]
    result: int
    working: int = 0
    shares: Any = None
    is_lent: bool = False


Jobs = dict[Any, Job]
"""By key."""


def greatest_memory(jobs: Mapping[Any, Job], n_workers: int) -> int:
    """The most bytes that are there at once, with results that no task needs gone when they are there.

    The scheduler starts with the least task in the order of `dask.order`, and goes on with those that have become ready last.
    Tasks are taken to run as long as they have bytes.  Memory that polyc lends (`polyc.runtime.memory`) is used again and not
    given back: of that the most stays."""
    from dask.order import order

    rank = order({key: (len, *job.needs) for key, job in jobs.items()})
    owners: dict[Any, Any] = {}  # what holds the bytes of each task
    for key in sorted(jobs, key=rank.__getitem__):
        job = jobs[key]
        owners[key] = key if job.shares is None else owners[job.shares]
    waiting = {key: set(job.needs) for key, job in jobs.items()}
    dependents: defaultdict[Any, list[Any]] = defaultdict(list)
    users: defaultdict[Any, int] = defaultdict(int)  # tasks to come that need the bytes of one
    for key, needs in waiting.items():
        for n in needs:
            dependents[n].append(key)
            users[owners[n]] += 1
        users[owners[key]] += 1  # itself
    ready = sorted((key for key, needs in waiting.items() if not needs), key=rank.__getitem__, reverse=True)
    running: list[tuple[float, int, Any]] = []
    now, held, lent, most_lent, most = 0.0, 0, 0, 0, 0
    while ready or running:
        while ready and len(running) < n_workers:
            key = ready.pop()
            job = jobs[key]
            if job.is_lent:
                lent += job.result + job.working
            else:
                held += job.result + job.working
            length = job.result + job.working + sum(jobs[n].result for n in job.needs)
            heappush(running, (now + length, rank[key], key))
        most_lent = max(most_lent, lent)
        most = max(most, held + most_lent)
        now, _, key = heappop(running)
        for n in sorted(dependents[key], key=rank.__getitem__, reverse=True):
            waiting[n].discard(key)
            if not waiting[n]:
                ready.append(n)
        freed = {key: jobs[key].working}
        for owner in (owners[key], *(owners[n] for n in set(jobs[key].needs))):
            users[owner] -= 1
            if not users[owner]:
                freed[owner] = freed.get(owner, 0) + jobs[owner].result
        for n, size in freed.items():
            if jobs[n].is_lent:
                lent -= size
            else:
                held -= size
    return most
