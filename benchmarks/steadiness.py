"""``python -m benchmarks steadiness``: how far the slow calls of a kernel are from its median call, in several processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import sides
from benchmarks.options import split_threads
from benchmarks.worker import settle
from benchmarks.workload import as_results, as_tuple
from benchmarks.workloads import GROUPS, WORKLOADS

BAR = 1.25
"""The 95th percentile of a process's calls is at most so many times their median."""


def time_calls(name: str, threads: int, calls: int, seconds: float, sending: Any) -> None:
    """Send the seconds of each of `calls` calls of workload `name`, fewer where they take more than `seconds` together."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    workload = WORKLOADS[name]
    inputs = workload.inputs()
    results = [np.array(r) for r in as_tuple(sides.build("polyc", workload, inputs, None, threads)(1))]
    run = sides.build("polyc", workload, inputs, as_results(results), threads)
    settle(run)
    times: list[float] = []
    while len(times) < calls and sum(times) < seconds:
        start = time.perf_counter()
        run(1)
        times.append(time.perf_counter() - start)
    sending.send(times)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="WORKLOAD...")
@click.option("--threads", default="1", callback=split_threads, help="Numbers of threads, e.g. 1,2.", show_default=True)
@click.option("--calls", default=200, type=click.IntRange(min=20), help="Calls in each process.", show_default=True)
@click.option("--processes", default=3, type=click.IntRange(min=1), help="Each has its arrays elsewhere.", show_default=True)
@click.option("--seconds", default=5.0, type=click.FloatRange(min=0), help="Of calls in each process.", show_default=True)
def main(names: tuple[str, ...], threads: list[int], calls: int, processes: int, seconds: float) -> None:
    """Compare the 95th percentile of calls of WORKLOADs with their median.

    A WORKLOAD may be a group.  Of several processes the worst is shown, and the largest median over the smallest, which tells
    what depends on where arrays lie.  Run it on a machine that does nothing else.

    Example: python -m benchmarks steadiness pipelines --threads 1,2
    """
    members = [member for name in names for member in GROUPS.get(name, (name,))]
    if unknown := [name for name in members if name not in WORKLOADS]:
        raise click.UsageError(f"no workload {', '.join(unknown)}; see python -m benchmarks --list")
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    table = Table("workload", "threads", "median", "95th / median", "largest / median", "largest median / smallest")
    context, worst = multiprocessing.get_context("spawn"), []
    for name in members:
        for n in threads:
            runs = []
            for _ in range(processes):
                receiving, sending = context.Pipe(duplex=False)
                process = context.Process(target=time_calls, args=(name, n, calls, seconds, sending))
                process.start()
                sending.close()
                try:
                    runs.append(np.array(receiving.recv()))
                except EOFError:
                    raise click.ClickException(f"{name}: the process that calls it failed") from None
                process.join()
            medians = [np.median(run) for run in runs]
            tails = [np.percentile(run, 95) / m for run, m in zip(runs, medians, strict=True)]
            peaks = [run.max() / m for run, m in zip(runs, medians, strict=True)]
            worst.append((max(tails), f"{name} {max(tails):.2f}"))
            spread = max(medians) / min(medians)
            numbers = (max(tails), max(peaks), spread)
            table.add_row(name, str(n), f"{1e3 * float(np.median(medians)):.3g} ms", *(f"{x:.2f}" for x in numbers))
    console.print(table)
    above = [text for tail, text in worst if tail > BAR]
    console.print(
        f"95th percentile above {BAR} of the median: {', '.join(above) or 'none'} ({len(above)} of {len(worst)})", markup=False
    )
