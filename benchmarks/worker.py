"""One side of one workload in a process of its own; started by the coordinator, spoken to over a pipe.

Protocol: one JSON line each way.  The worker says ``{"ready": …}`` or ``{"failed": "reason"}``; to ``run`` it answers with
seconds per repetition, and with CPU seconds; the end of its input ends it.  Anything a library prints goes to standard error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from importlib import metadata
from typing import Any, TextIO

import numpy as np

from benchmarks import environments, npbench, sides
from benchmarks.gradients import polybench as adjoints
from benchmarks.polybench import native
from benchmarks.workload import Workload, as_results, as_tuple
from benchmarks.workloads import WORKLOADS

ROUND_SECONDS = 0.005
"""A round repeats the computation for at least this long."""
LONG_SECONDS = 0.05
"""Computations longer than this are not repeated once more to warm the caches before each round."""


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.argv[1])
    try:
        run, ready = prepare(find_workload(job["workload"]), job)
    except Exception as error:
        reply(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    reply(replies, ready)
    serve(run, ready["repetitions"], ready["seconds"], replies)


def find_workload(name: str) -> Workload:
    """A workload of the runner's table, a derivative of a kernel of PolyBench, or a program of NPBench in one of its sizes."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    return (adjoints if name.startswith(adjoints.PREFIX) else npbench).find_workload(name)


def load(path: str | None) -> list[np.ndarray]:
    """The arrays of a file; none without one."""
    if path is None:
        return []
    with np.load(path) as file:
        return list(file.values())


def reply(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def prepare(workload: Workload, job: dict[str, Any]) -> tuple[sides.Run, dict[str, Any]]:
    """Build the side, check its result against the float64 reference where there is one, find the number of repetitions.

    The result is written to the file ``results`` of the job, where that is named."""
    side, options = job["side"], job.get("options", {})
    if side in sides.ROOFS:
        run, ready = sides.build(side, workload, {}, None if job["fresh"] else (), job["threads"]), {}
    else:
        exact = load(job["exact"])
        arrays = [prefaulted(e.shape, result_type(e.dtype, workload)) for e in exact]
        out = None if job["fresh"] or not exact else as_results(arrays)
        run = sides.build(side, workload, workload.inputs(), out, job["threads"], options)
        results = [np.asarray(r) for r in as_tuple(run(1))]
        if job.get("results"):
            np.savez(job["results"], *results)
        ready = {
            "error": largest_error(results, exact) if exact else None,
            "version": version_of(side),
            "digest": hashlib.sha256(b"".join(np.ascontiguousarray(r).tobytes() for r in results)).hexdigest(),
            "memory": sides.kept_memory(side),
            "planned": None if options else sides.planned_memory(side, workload, job["threads"]),
        }
        del results, arrays, exact
    seconds = settle(run)
    ready |= {"ready": True, "seconds": seconds, "repetitions": max(1, round(0.5 + ROUND_SECONDS / seconds))}
    return run, ready


def version_of(side: str) -> str | None:
    """Package and version behind a side, in this environment."""
    if side in native.SIDES:
        return native.version(side)
    package = environments.package_of(side)
    try:
        return f"{package} {metadata.version(environments.DISTRIBUTION.get(package, package))}"
    except metadata.PackageNotFoundError:
        return None


def result_type(exact: np.dtype, workload: Workload) -> str:
    """The element type of a result whose exact values are of this one: floats and complex numbers are in the workload's
    precision."""
    match exact.kind:
        case "f":
            return workload.dtype
        case "c":
            return "complex64" if workload.dtype == "float32" else "complex128"
    return str(exact)


def prefaulted(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A result array whose pages are all mapped."""
    out = np.empty(shape, dtype)
    out.fill(0)
    return out


def largest_error(results: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest `relative_error` of all results; infinite where there are not as many as there should be."""
    if len(results) != len(exact):
        return float("inf")
    return max(relative_error(r, e) for r, e in zip(results, exact, strict=True))


def relative_error(result: np.ndarray, exact: np.ndarray) -> float:
    """Largest error over all elements, relative to the largest exact value; infinite where the shape differs or NaN appears."""
    if result.shape != exact.shape or not np.isfinite(result).all():
        return float("inf")
    scale = float(np.abs(exact).max(initial=0)) or 1.0
    wide = result.astype(np.complex128 if result.dtype.kind == "c" else np.float64)
    return float(np.abs(wide - exact).max(initial=0)) / scale


def settle(run: sides.Run) -> float:
    """Warm up until two repetitions in a row take about the same time (or a second has passed); their smaller time."""
    begin = previous = time.perf_counter()
    last = float("inf")
    while True:
        run(1)
        now = time.perf_counter()
        seconds, previous = now - previous, now
        if (abs(seconds - last) < 0.1 * seconds and now - begin > 0.02) or now - begin > 1:
            return min(seconds, last)
        last = seconds


def serve(run: sides.Run, repetitions: int, seconds: float, replies: TextIO) -> None:
    """Answer ``run`` until the input ends."""
    for line in sys.stdin:
        if line.strip() != "run":
            return
        if seconds < LONG_SECONDS:
            run(1)
        start, cpu = time.perf_counter(), time.process_time()
        run(repetitions)
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
        reply(replies, {"seconds": seconds / repetitions, "cpu": cpu / repetitions})


if __name__ == "__main__":
    main()
