"""One run of one side in a process of its own, started by `command`: prints one line of JSON, and writes samples of the result.

A job names a row, its size, a side (``polyc``, a peer, ``exact``: a peer in float64, by default the first; ``data``: write
inputs to Zarr stores and nothing else), the scheduler with its number of workers, and folders. What libraries print goes to
standard error. Modules are imported, threads and processes started, before anything is timed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blocks import ROWS
from benchmarks.blocks.row import Inputs, Peer, Row, Sizes, create_store
from benchmarks.blocks.schedulers import load, peak_memory, reset_memory, start_scheduler

WHOLE = 1 << 18
"""Results of at most so many elements are compared whole."""
SAMPLE = {1: 20_000, 2: 128}
"""Extent of a sample along each dimension, by the number of these."""


def find_build(row: Row, side: str, exact: str | None = None) -> Peer:
    """What makes the lazy result of the inputs; `exact` names the peer that does so in float64, by default the first."""
    if side == "polyc":
        return partial(row.call, row.make_operator())
    if side == "exact":
        return partial(build_exact, row.peers[exact or next(iter(row.peers))])
    return row.peers[side]


def build_exact(peer: Peer, inputs: Inputs, sizes: Sizes) -> Any:
    """The peer's result, in float64."""
    wide = {n: a.astype(np.float64) if hasattr(a, "astype") else a for n, a in inputs.items()}
    return peer(wide, sizes)


def describe_plan(row: Row, inputs: Inputs, n_workers: int, n_threads: int) -> dict[str, int]:
    """What a dry run of polyc says: the greatest memory of so many workers, for each process of `n_threads` its share, and the
    tasks of the stage with most."""
    report = row.make_operator().blocks(*inputs.values(), dry_run=True)
    return {
        "planned": report.greatest_memory(n_workers) * n_threads // n_workers,
        "blocks": max(s.n_tasks for s in report.stages),
    }


def warm_up(folder: Path) -> None:
    """Have the scheduler compute and store something small."""
    import dask.array as da

    small = da.ones((4, 4), chunks=2)
    small.sum().compute()
    da.store(small, create_store(folder / "small.zarr", (4, 4), (2, 2), small.dtype), lock=False)


def sample(result: Any) -> list[np.ndarray]:
    """The whole result where it is small; else its corners, and parts in the middle, where chunks meet."""
    shape = result.shape
    if np.prod(shape, dtype=np.int64) <= WHOLE:
        return [np.asarray(result[...])]

    def places(extent: int) -> list[slice]:
        width = min(SAMPLE[len(shape)], extent)
        return [slice(start, start + width) for start in sorted({0, (extent - width) // 2, extent - width})]

    return [np.asarray(result[box]) for box in product(*map(places, shape))]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """What the job names: seconds of making the graph and of computing, the greatest memory while computing, and what was said
    of it beforehand."""
    import dask.array as da

    row, side, folder, data = ROWS[job["row"]], job["side"], Path(job["folder"]), Path(job["data"])
    if side == "data":
        row.write_inputs(job["size"], data)
        return {}
    sizes = row.find_sizes(job["size"])
    with start_scheduler(job["scheduler"], job["workers"], folder) as run_everywhere:
        warm_up(folder)
        run_everywhere(load, side)
        build, inputs = find_build(row, side, job.get("exact")), row.open_inputs(job["size"], data)
        start = time.perf_counter()
        result = build(inputs, sizes)
        graph = time.perf_counter() - start
        run_everywhere(reset_memory)
        start = time.perf_counter()
        if row.stored is None:
            made = result.compute()
        else:
            made = create_store(folder / "result.zarr", result.shape, row.stored(sizes), result.dtype)
            da.store(result if fits(result.chunks, made.chunks) else result.rechunk(made.chunks), made, lock=False)
        seconds = time.perf_counter() - start
        answer: dict[str, Any] = {"graph": graph, "seconds": seconds, "memory": greatest(run_everywhere(peak_memory))}
    if side == "polyc":
        answer |= describe_plan(row, inputs, job["workers"], job["workers"] if job["scheduler"] == "threads" else 1)
    np.savez(folder / "samples.npz", *sample(made))
    shutil.rmtree(folder / "result.zarr", ignore_errors=True)
    return answer | {"tasks": len(result.__dask_graph__())}


def greatest(found: list[int | None]) -> int | None:
    """The greatest number; None where one is not known."""
    known = [n for n in found if n is not None]
    return max(known) if len(known) == len(found) else None


def fits(chunks: tuple[tuple[int, ...], ...], stored: tuple[int, ...]) -> bool:
    """Whether each chunk of the store is written by one task."""
    return all(n % s == 0 for lengths, s in zip(chunks, stored, strict=True) for n in lengths[:-1])


def answer_job(job: dict[str, Any]) -> dict[str, Any]:
    """`run`, or what went wrong: ``refused`` with the code of polyc's error, or ``failed``, and a message."""
    try:
        return run(job)
    except Exception as problem:
        code = getattr(problem, "code", None)
        answer = {"refused": code} if isinstance(code, str) else {"failed": type(problem).__name__}
        return answer | {"message": str(problem)}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    replies.write(json.dumps(answer_job(json.loads(sys.argv[1]))) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
