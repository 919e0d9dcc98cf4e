"""One side of one model in a process of its own; the protocol is that of `benchmarks.worker`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.table import MODELS, Feed, make_feed
from benchmarks.worker import largest_error, reply, serve, settle

ROUND_SECONDS = 0.05
"""A round runs the model for at least this long."""

Results = list[np.ndarray]
Once = Callable[[Feed], Results]


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.loads(sys.argv[1])
    try:
        run, ready = prepare(job)
    except Exception as error:
        reply(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    reply(replies, ready)
    serve(run, ready["repetitions"], ready["seconds"], replies)


def prepare(job: dict[str, Any]) -> tuple[Callable[[int], Any], dict[str, Any]]:
    """Load the model, compare its results with those on disk (or put them there), find the number of repetitions."""
    model = MODELS[job["model"]]
    feed = make_feed(model, job["sizes"])
    start = time.perf_counter()
    session = BUILD[job["side"]](job)
    loaded = time.perf_counter() - start
    session(feed)
    first = time.perf_counter() - start - loaded

    def run(count: int) -> None:
        for _ in range(count):
            session(feed)

    seconds = settle(run)
    repetitions = max(1, round(0.5 + ROUND_SECONDS / seconds))
    memory = peak_memory()  # before results are compared, which takes several copies of them
    ready = {"ready": True, "seconds": seconds, "repetitions": repetitions, "error": compare(session(feed), Path(job["exact"]))}
    return run, ready | {"load": loaded, "first": first, "memory": memory, "details": details(session)}


def compare(results: Results, exact: Path) -> float:
    """The largest error of results against those in a file; the first side that comes writes it."""
    if not exact.exists():
        np.savez(exact, *results)
        return 0.0
    with np.load(exact) as file:
        return largest_error(results, [a.astype(np.float64) for a in file.values()])


def peak_memory() -> int | None:
    """Most bytes of memory this process has had, code and Python included; None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def details(session: Once) -> dict[str, Any]:
    """What a side tells of itself."""
    return getattr(session, "details", {})


def build_polyc(job: dict[str, Any]) -> Once:
    import polyc

    polyc.set_num_threads(job["threads"])
    session = polyc.onnx.load(job["path"], strict=True)
    return lambda feed: session.run(None, feed)


def build_onnxruntime(job: dict[str, Any]) -> Once:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job["path"], options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def build_torch(job: dict[str, Any]) -> Once:
    import torch

    from benchmarks.models.export import build_module

    torch.set_num_threads(job["threads"])
    torch.set_grad_enabled(False)
    module: Any = build_module(MODELS[job["model"]])

    def run(feed: Feed) -> Results:
        found = module(*(torch.from_numpy(a) for a in feed.values()))
        return [t.numpy() for t in (found if isinstance(found, tuple) else (found,))]

    return run


BUILD: dict[str, Callable[[dict[str, Any]], Once]] = {
    "polyc": build_polyc,
    "onnxruntime": build_onnxruntime,
    "torch": build_torch,
}

if __name__ == "__main__":
    main()
