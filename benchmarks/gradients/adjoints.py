"""``python -m benchmarks adjoints``: derivatives of PolyBench's kernels in reverse mode, against jitted JAX and the kernels
themselves."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median

import click
from rich.console import Console
from rich.table import Table

from benchmarks import cold, coordinator, report, sides
from benchmarks.coordinator import Worker, WorkerFailed
from benchmarks.gradients.polybench import make_workload
from benchmarks.gradients.polybench_in_jax import FORWARD
from benchmarks.options import split_names, split_threads
from benchmarks.polybench import DATASETS, KERNELS
from benchmarks.statistics import geometric_mean

KERNEL, ADJOINT, JAX = "kernel", "adjoint", "jax"


@dataclass(slots=True)
class Row:
    """One kernel in a dataset: seconds of every round, and what went wrong, by side; the difference from JAX's results."""

    kernel: str
    dataset: str
    threads: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    error: float | None = None
    is_wrong: bool = False

    def median(self, side: str) -> float | None:
        return median(self.seconds[side]) if self.seconds.get(side) else None

    def ratio(self, over: str, under: str) -> float | None:
        """Of times, paired by round."""
        pairs = list(zip(self.seconds.get(over, ()), self.seconds.get(under, ()), strict=False))
        return median(a / b for a, b in pairs) if pairs else None


def measure(name: str, dataset: str, threads: int, rounds: int, with_scalars: bool, with_jax: bool, limit: float) -> Row:
    """The kernel, its adjoint, and that of JAX, which is given `limit` seconds for each answer and half of the memory; where it
    is not ready then, nothing is measured."""
    row = Row(name, dataset, threads)
    kernel, adjoint = (make_workload(name, dataset, with_scalars, is_forward) for is_forward in (True, False))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with tempfile.TemporaryDirectory(prefix="polyc-bench-") as folder, contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        found = Path(folder) / "jax.npz"

        def start(side: str, worker: Worker) -> bool:
            stack.callback(worker.close)
            try:
                ready = worker.receive()
            except WorkerFailed as failure:
                row.failures[side] = str(failure)
                return False
            workers[side] = worker
            row.error = ready["error"] if side == ADJOINT else row.error
            row.is_wrong |= side != JAX and ready["error"] is not None and not ready["error"] <= adjoint.tolerance
            worker.wait_until_idle()
            return True

        if with_jax:
            held = Worker(adjoint, "jax", threads, True, None, results=found, limit=limit, memory=memory)
            if not start(JAX, held):
                return row
        exact = stack.enter_context(coordinator.reference_file(kernel))
        start(KERNEL, Worker(kernel, "polyc", threads, False, exact))
        start(ADJOINT, Worker(adjoint, "polyc", threads, False, found if with_jax else None))
        for _ in range(rounds):
            for side, worker in workers.items():
                if side not in row.failures:
                    try:
                        row.seconds.setdefault(side, []).append(worker.run_round())
                    except (WorkerFailed, OSError) as failure:
                        row.failures[side] = str(failure)
    return row


def print_rows(console: Console, rows: list[Row]) -> None:
    table = Table(title="adjoints of PolyBench's kernels: medians", title_justify="left")
    for heading in ("kernel", "size", "threads", "forward", "adjoint", "adjoint / forward", "jax", "jax / adjoint", "error"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "kernel" else "right")
    for row in rows:
        times = [row.median(side) for side in (KERNEL, ADJOINT, JAX)]
        forward, adjoint, jax = ("–" if t is None else report.duration(t) for t in times)
        ratios = (row.ratio(ADJOINT, KERNEL), row.ratio(JAX, ADJOINT))
        to_forward, to_jax = ("–" if r is None else f"{r:.2f}" for r in ratios)
        error = "–" if row.error is None else f"{row.error:.1e}" + " WRONG" * row.is_wrong
        table.add_row(row.kernel, row.dataset, str(row.threads), forward, adjoint, to_forward, jax, to_jax, error)
    console.print(table)
    for row in rows:
        for side, failure in row.failures.items():
            console.print(f"{row.kernel}, {row.dataset}, {row.threads} thread(s): {side}: {failure}", markup=False)
    for line in summarise(rows):
        console.print(line, markup=False)


def summarise(rows: list[Row]) -> list[str]:
    """Means for each number of threads, and the kernels on the wrong side of them."""
    lines = []
    for threads in dict.fromkeys(r.threads for r in rows):
        own = [r for r in rows if r.threads == threads]
        to_forward = {r.kernel: ratio for r in own if (ratio := r.ratio(ADJOINT, KERNEL))}
        to_jax = {r.kernel: ratio for r in own if (ratio := r.ratio(JAX, ADJOINT))}
        if to_forward:
            above = ", ".join(f"{n} {r:.2f}" for n, r in sorted(to_forward.items(), key=lambda i: -i[1]) if r > 2.5)
            lines.append(
                f"{threads} thread(s), adjoint / forward ({len(to_forward)}): mean {fmean(to_forward.values()):.2f}, "
                f"geometric {geometric_mean(to_forward.values()):.2f}; above 2.5: {above or 'none'}"
            )
        if to_jax:
            below = ", ".join(f"{n} {r:.2f}" for n, r in sorted(to_jax.items(), key=lambda i: i[1]) if r < 1)
            mean = geometric_mean(to_jax.values())
            lines.append(
                f"{threads} thread(s), jax / adjoint ({len(to_jax)}): geometric mean {mean:.2f}; below 1: {below or 'none'}"
            )
    return lines


@click.command()
@click.argument("names", nargs=-1, metavar="[KERNEL]...")
@click.option("--size", "datasets", default="LARGE,MEDIUM", callback=split_names, show_default=True)
@click.option("--threads", default="1", callback=split_threads, help="Numbers of threads, e.g. 1,2.", show_default=True)
@click.option("--rounds", default=9, type=click.IntRange(min=1), help="Alternating rounds.", show_default=True)
@click.option(
    "--limit",
    default=60.0,
    help="Seconds for an answer of JAX: to compile and settle, and then for a round.",
    show_default=True,
)
@click.option("--scalars", "with_scalars", is_flag=True, help="Differentiate by scalar inputs as well.")
@click.option("--alone", is_flag=True, help="Without JAX: nothing is compared.")
@click.option("--compile", "with_compile", is_flag=True, help="Measure cold compile times too, in the last size.")
@click.option("--compile-only", is_flag=True, help="Measure cold compile times and nothing else.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every round here.")
def main(
    names: tuple[str, ...],
    datasets: list[str],
    threads: list[int],
    rounds: int,
    limit: float,
    with_scalars: bool,
    alone: bool,
    with_compile: bool,
    compile_only: bool,
    json_path: Path | None,
) -> None:
    """Measure the adjoints of PolyBench's KERNELs (all of them by default) by all array inputs.

    Each is measured in the first of the sizes in which JAX has an answer within the limit and half of the machine's memory.
    A result that differs from JAX's, and one that there is not, end the process with code 1.
    """
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    datasets = [d.upper() for d in datasets]
    known = [n for n in KERNELS if n in FORWARD]
    for given, there, what in ((names, known, "kernel with real numbers"), (datasets, DATASETS, "size")):
        for name in given:
            if name not in there:
                raise click.UsageError(f"no {what} {name!r}; there are {', '.join(there)}")
    if not alone and sides.interpreter("jax") is None:
        raise click.UsageError("jax is not installed (make peers sets it up); --alone goes without")
    rows: list[Row] = []
    for name in () if compile_only else names or known:
        for n in threads:
            for dataset in datasets:
                with console.status(f"{name}, {dataset}, {n} thread(s)"):
                    row = measure(name, dataset, n, rounds, with_scalars, not alone, limit)
                if JAX not in row.failures or dataset == datasets[-1]:
                    rows.append(row)
                    break
                console.print(f"{name}, {dataset}: jax: {row.failures[JAX]}", markup=False, style="dim")
    if rows:
        print_rows(console, rows)
    compile_times = {}
    if with_compile or compile_only:
        workloads = {n: make_workload(n, datasets[-1], with_scalars) for n in names or known}
        with console.status("cold compiles"):
            compile_times = cold.measure_gradients([w.name for w in workloads.values()])
        report.print_gradients(console, compile_times)
    if json_path is not None:
        json_path.write_text(json.dumps({"rows": [asdict(r) for r in rows], "compile": compile_times}, indent=1))
    if any(r.is_wrong or r.failures.keys() & {KERNEL, ADJOINT} for r in rows):
        sys.exit(1)
