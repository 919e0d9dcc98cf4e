"""Schedulers of dask, and the memory of the processes that compute (a module of its own, which workers of a cluster import)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RunEverywhere = Callable[..., list[Any]]
"""Calls a function with arguments in each process that computes."""


@contextlib.contextmanager
def start_scheduler(kind: str, workers: int, folder: Path) -> Iterator[RunEverywhere]:
    """The default scheduler from here on: ``threads`` of this process, or ``processes`` of one thread each."""
    import dask

    if kind == "threads":
        with dask.config.set(scheduler="threads", num_workers=workers):
            yield lambda function, *args: [function(*args)]
        return
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None, "local_directory": str(folder)}
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
        yield lambda function, *args: list(client.run(function, *args).values())


class Memory:
    """The greatest memory of this process since `reset`, beyond what it had then; None where the system does not tell."""

    def __init__(self) -> None:
        self.before: int | None = None

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
            self.before = read_memory("VmRSS")

    def peak(self) -> int | None:
        greatest = read_memory("VmHWM") if self.before is not None else None
        return None if greatest is None or self.before is None else max(0, greatest - self.before)


MEMORY = Memory()
"""Of this process."""


def read_memory(field: str) -> int | None:
    """Bytes by /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    return None


def reset_memory() -> None:
    MEMORY.reset()


def peak_memory() -> int | None:
    return MEMORY.peak()


def load(side: str) -> None:
    """Load what a side needs in a process that computes; polyc runs a kernel for that, and numba its loops."""
    match side:
        case "polyc":
            load_polyc()
        case "scipy":
            import scipy.ndimage  # noqa: F401
        case "numba":
            from benchmarks.blocks import numba_loops

            numba_loops.load()


def load_polyc() -> None:
    import polyc
    import polyc.api.block_tasks

    polyc.compile("def increase(float(N) x) -> (y) { y(i) = x(i) + 1.0 }")(np.ones(4, np.float32))
