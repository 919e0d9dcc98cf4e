"""One side of ``python -m benchmarks company`` in a process of its own, which times what it reads from its input."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import sides
from benchmarks.workload import Workload, as_results, as_tuple, normal
from benchmarks.workloads import WORKLOADS, derived
from benchmarks.workloads.contractions import matmul_workload

SHORT: dict[str, Workload] = {
    "softmax_512": replace(
        WORKLOADS["softmax"], name="softmax_512", make_inputs=lambda rng: {"X": normal(rng, 512, 512)}, what="512×512"
    ),
    "matmul_192": derived.add_peers(matmul_workload("matmul_192", 192, 192, 192)),
    "matmul_256": derived.add_peers(matmul_workload("matmul_256", 256, 256, 256)),
}
"""Workloads of about 0.1 ms."""

PRODUCT = 512
"""Rows and columns of the matrices that NumPy multiplies."""

REPETITIONS, BLOCK_SECONDS = 10, 0.03


def find_workload(name: str) -> Workload:
    return SHORT[name] if name in SHORT else WORKLOADS[name]


def serve(job: dict[str, Any]) -> None:
    """A worker: says the mean seconds of each activity of every line it reads, a list of names taken in turns."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    workload, threads = find_workload(job["workload"]), job["threads"]
    arrays = workload.inputs()
    wide = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in arrays.items()}
    exact = [np.asarray(r) for r in as_tuple(workload.exact(**wide))]
    out = as_results([np.zeros(e.shape, workload.dtype if e.dtype.kind == "f" else e.dtype) for e in exact])
    run = sides.build(job["side"], workload, arrays, out, threads)
    a, b = (normal(np.random.default_rng(n), PRODUCT, PRODUCT) for n in (1, 2))
    c = np.empty_like(a)

    def run_alone() -> None:
        import polyc

        polyc.set_num_threads(1)
        try:
            run(1)
        finally:
            polyc.set_num_threads(threads)

    activities: dict[str, Callable[[], object]] = {
        "kernel": lambda: run(1),
        "one thread": run_alone,
        "product": lambda: np.matmul(a, b, out=c),
    }
    for line in itertools.chain([""], sys.stdin):
        if not line:  # warm up, and check
            found = [np.asarray(r) for r in as_tuple(run(3))]
            errors = [float(np.abs(f - e).max() / np.abs(e).max()) for f, e in zip(found, exact, strict=True)]
            answer: Any = max(errors) <= workload.tolerance
            activities["product"]()
        else:
            answer = _time([activities[name] for name in json.loads(line)])
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def _time(turns: Sequence[Callable[[], object]]) -> list[float]:
    totals, n = [0.0] * len(turns), 0
    start = time.perf_counter()
    while n < REPETITIONS or time.perf_counter() - start < BLOCK_SECONDS:
        for k, do in enumerate(turns):
            begin = time.perf_counter()
            do()
            totals[k] += time.perf_counter() - begin
        n += 1
    return [total / n for total in totals]
