"""``python -m benchmarks models``: latency and memory of whole networks beside other runtimes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import environments, sides
from benchmarks.coordinator import Worker, WorkerFailed
from benchmarks.models.table import MODELS
from benchmarks.models.worker import BUILD

SUBJECT = "polyc"
ENOUGH = 0.8
"""Ratio to onnxruntime from which on a model counts as level with it."""


@dataclass(slots=True)
class Side:
    """What was measured of one runtime at one setting."""

    name: str
    ready: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    failure: str | None = None


class ModelWorker(Worker):
    """A live process that has loaded a model, held to `threads` cores."""

    def __init__(self, side: str, job: dict[str, Any]) -> None:
        cores = sorted(os.sched_getaffinity(0))[-job["threads"] :]
        python = environments.find_interpreter(side) or sys.executable
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.models.worker", json.dumps(job | {"side": side})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environments.clean(python, os.environ) | sides.environment(side, job["threads"]),
            cwd=Path(__file__).parent.parent.parent,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


def measure(name: str, batch: int, threads: int, names: list[str], rounds: int, folder: Path) -> list[Side]:
    """All sides on one model, taking turns; the first one's results are what the others are compared with."""
    path = find_model(name)
    sizes = {"n": batch, **MODELS[name].sizes}
    job = {"model": name, "path": str(path), "sizes": sizes, "threads": threads, "exact": str(folder / f"{name}-{batch}.npz")}
    result = [Side(n) for n in names]
    workers: dict[str, ModelWorker] = {}
    try:
        for side in result:
            worker = ModelWorker(side.name, job)
            try:
                side.ready = worker.receive()
            except WorkerFailed as failure:
                side.failure = str(failure)
                worker.close()
                continue
            workers[side.name] = worker
            worker.wait_until_idle()
        for number in range(rounds):
            turn = number % max(1, len(result))
            for side in result[turn:] + result[:turn]:
                if side.failure is None:
                    try:
                        side.seconds.append(workers[side.name].run_round())
                    except (WorkerFailed, OSError) as failure:
                        side.failure = str(failure)
                        side.seconds.clear()
    finally:
        for worker in workers.values():
            worker.close()
    return result


def find_model(name: str) -> Path:
    """The exported file; PyTorch makes it in an interpreter that has it."""
    python = environments.find_interpreter("torch") or sys.executable
    command = [python, "-m", "benchmarks.models.export", name]
    environment = environments.clean(python, os.environ)
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=Path(__file__).parent.parent.parent
    )
    return Path(done.stdout.split()[-1])


def ratio(ours: Side, other: Side) -> float | None:
    """How many times faster we are: the median of the ratios of paired rounds."""
    if not ours.seconds or not other.seconds:
        return None
    return median(o / s for s, o in zip(ours.seconds, other.seconds, strict=True))


def milliseconds(side: Side) -> str:
    return side.failure or f"{median(side.seconds) * 1e3:.2f}"


def mebibytes(side: Side) -> str:
    found = side.ready.get("memory")
    return "–" if found is None else f"{found / 2**20:.0f}"


@click.command("benchmarks models")
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--peers", default="onnxruntime,torch", help="Runtimes to compare with.", show_default=True)
@click.option("--threads", default="1,2", help="Numbers of threads.", show_default=True)
@click.option("--batch", default="1,8", help="Batch sizes.", show_default=True)
@click.option("--rounds", default=15, type=click.IntRange(min=1), help="Alternating rounds.", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every round here.")
def main(names: tuple[str, ...], peers: str, threads: str, batch: str, rounds: int, json_path: Path | None) -> None:
    """Latency of whole networks: MODELs (all by default) beside other runtimes, one process each, taking turns.

    ms: median of a run.  MiB: most memory the process has had, Python and libraries included, with the model loaded from the
    cache where an earlier run has filled it.  load and first: seconds to load the model, and of the first run (which compiles).
    """
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    wanted = [p.strip() for p in peers.split(",") if p.strip()]
    wrong = [p for p in wanted if p not in BUILD or p == SUBJECT]
    if wrong:
        raise click.UsageError(f"no peer {wrong[0]!r}; there are {', '.join(p for p in BUILD if p != SUBJECT)}")
    present = [p for p in wanted if environments.find_interpreter(p) is not None]
    for p in wanted:
        if p not in present:
            console.print(f"{p} is not installed: left out (make peers sets it up)", style="yellow")
    table = Table("model", "batch", "threads", "ms", *(f"{p} ms" for p in present), *(f"to {p}" for p in present))
    for title in ("error", "MiB", *(f"{p} MiB" for p in present), "load s", "first s"):
        table.add_column(title)
    ratios: dict[str, list[float]] = {p: [] for p in present}
    records = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="polyc-models-") as folder:
        for name in names or MODELS:
            for n in map(int, batch.split(",")):
                for t in map(int, threads.split(",")):
                    with console.status(f"{name}, batch {n}, {t} thread(s)"):
                        found = measure(name, n, t, [*present, SUBJECT], rounds, Path(folder))
                    ours = found[-1]
                    tolerance = MODELS[name].tolerance
                    failed = failed or ours.failure is not None or not ours.ready["error"] <= tolerance
                    own = [ratio(ours, s) for s in found[:-1]]
                    for p, r in zip(present, own, strict=True):
                        if r is not None:
                            ratios[p].append(r)
                    shown = ["–" if r is None else f"{r:.2f}" for r in own]
                    ready = ours.ready
                    rest = [f"{ready.get(k, math.nan):.2g}" for k in ("load", "first")]
                    error = f"{ready.get('error', math.nan):.1e}"
                    times, memory = [milliseconds(s) for s in found[:-1]], [mebibytes(s) for s in found[:-1]]
                    table.add_row(
                        name, str(n), str(t), milliseconds(ours), *times, *shown, error, mebibytes(ours), *memory, *rest
                    )
                    records += [
                        {"model": name, "batch": n, "threads": t, "side": s.name, "seconds": s.seconds, "failure": s.failure}
                        | {k: v for k, v in s.ready.items() if k != "ready"}
                        for s in found
                    ]
    console.print(table)
    for p, values in ratios.items():
        if values:
            mean = math.exp(sum(map(math.log, values)) / len(values))
            behind = sum(v < ENOUGH for v in values)
            console.print(
                f"to {p}: geometric mean {mean:.2f} over {len(values)}, least {min(values):.2f}, {behind} below {ENOUGH}"
            )
    if json_path is not None:
        json_path.write_text(json.dumps(records, indent=1))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
