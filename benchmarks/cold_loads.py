"""``python -m benchmarks cold``: CPU time of loading models, and of their first run, with nothing in the cache."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from benchmarks.coordinator import failure_line
from benchmarks.models.cold import CASES, MODELS

LOAD = """
import sys
import numpy as np, polyc
session = polyc.onnx.load(sys.argv[1])
rng = np.random.default_rng(1)
feed = {p.name: rng.standard_normal(p.shape, dtype=np.float32) for p in session.get_inputs()}
np.savez(sys.argv[2], *session.run(None, feed))
"""
HERE = Path(__file__).parent.parent
ADOPT_ORPHANS = 36
"""``PR_SET_CHILD_SUBREAPER``: whoever a worker leaves behind is counted, too."""


def load_once(checkout: Path, model: Path, result: Path) -> tuple[float, float]:
    """CPU and wall seconds of a fresh process, those of its workers included.  Raises RuntimeError with its error."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"POLYC_CACHE": "1", "POLYC_CACHE_DIR": cache, "PYTHONPATH": str(checkout)}
        environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"} | settings
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-P", "-c", LOAD, str(model), str(result)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - begin
        try:
            while True:
                os.wait()
        except ChildProcessError:
            pass
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(failure_line(done.stderr))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def differ(a: Path, b: Path) -> float:
    """The largest difference of results, as a part of the largest element."""
    import numpy as np

    with np.load(a) as one, np.load(b) as other:
        return max(float(np.abs(one[n] - other[n]).max() / np.abs(one[n]).max()) for n in one.files)


@click.command("benchmarks cold")
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout of polyc.")
@click.option("--rounds", default=1, type=click.IntRange(min=1), help="Loads of each model, in turns.", show_default=True)
def main(names: tuple[str, ...], against: Path | None, rounds: int) -> None:
    """CPU time of cold loads of MODELs (ten by default), each with its first run, in fresh processes with an empty cache.

    With --against another checkout takes turns, and its results are compared with ours.
    """
    known = {**MODELS, **CASES}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; there are {', '.join(known)}")
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
    checkouts = {"CPU s": HERE} if against is None else {"CPU s": HERE, "theirs": against.resolve()}
    table = Table("model", *checkouts, *(["ratio"] if against else []), "wall s", *(["difference"] if against else []))
    totals = dict.fromkeys(checkouts, 0.0)
    with tempfile.TemporaryDirectory(prefix="polyc-cold-") as folder:
        for name in names or MODELS:
            path = Path(folder, f"{name}.onnx")
            known[name](path)
            results = {side: path.with_suffix(f".{k}.npz") for k, side in enumerate(checkouts)}
            runs = [{side: load_once(c, path, results[side]) for side, c in checkouts.items()} for _ in range(rounds)]
            cpu = {side: median(r[side][0] for r in runs) for side in checkouts}
            totals = {side: totals[side] + cpu[side] for side in checkouts}
            wall = median(r["CPU s"][1] for r in runs)
            row = [f"{s:.2f}" for s in cpu.values()]
            if against is not None:
                row.append(f"{cpu['CPU s'] / cpu['theirs']:.2f}")
            row.append(f"{wall:.2f}")
            if against is not None:
                row.append(f"{differ(*results.values()):.1e}")
            table.add_row(name, *row)
    sums = [f"{s:.2f}" for s in totals.values()]
    table.add_row("all", *sums, *([f"{totals['CPU s'] / totals['theirs']:.2f}"] if against else []))
    Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(table)
