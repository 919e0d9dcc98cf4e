"""``python -m benchmarks blocks``: operators on dask arrays against dask without polyc."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import coordinator, report, sides
from benchmarks.blocks import ROWS
from benchmarks.blocks.measure import ENVIRONMENT, SUBJECT, Measured, Result, Runner, is_available
from benchmarks.options import split_names
from benchmarks.statistics import Quartiles, geometric_mean, quartiles

EXAMPLES = """\b
Examples:
  python -m benchmarks blocks blur kmeans --size small --rounds 1
  python -m benchmarks blocks --workers 2 --json out.json
  python -m benchmarks blocks covariance --scheduler processes
  python -m benchmarks blocks --faults
  python -m benchmarks blocks --overhead
"""
CLOSE = 0.2
"""Part by which the greatest memory may differ from what was said of it."""


def make_table(results: Sequence[Result], title: str) -> Table:
    """A row for each result."""
    table = Table(title=title, title_justify="left")
    for heading in (
        "row",
        "polyc",
        "best peer",
        "peer / polyc",
        "graph (first)",
        "of peer",
        "memory",
        "planned",
        "of peer",
        "error",
    ):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "row" else "right")
    for r in results:
        table.add_row(*cells(r))
    return table


def cells(result: Result) -> list[str]:
    subject, best, ratio = result.sides[SUBJECT], result.best_peer(), result.ratio()
    peer = result.sides[best] if best is not None else None
    row = [result.row.name]
    if subject.refused:
        row.append(f"refused: {subject.refused}")
    else:
        row.append(spread(quartiles(subject.seconds)) if subject.seconds else "failed")
    row.append(f"{best} {duration(quartiles(peer.seconds).median)}" if peer is not None else "–")
    row.append(f"{ratio.median:.2f} ({ratio.lower:.2f})" if ratio is not None else "–")
    row += [graph_seconds(subject, with_first=True), graph_seconds(peer), report.size(subject.memory)]
    row += [report.size(subject.planned), report.size(peer.memory if peer is not None else None)]
    row.append("–" if subject.error is None else f"{subject.error:.1e}" + (" WRONG" if result.is_wrong(SUBJECT) else ""))
    return row


def duration(seconds: float) -> str:
    """Three significant digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else report.duration(seconds)


def spread(times: Quartiles) -> str:
    """Median with quartiles."""
    return f"{duration(times.median)} [{duration(times.lower)}–{duration(times.upper)}]"


def graph_seconds(side: Measured | None, with_first: bool = False) -> str:
    """Median time of making a graph, and the first one's where it is asked for."""
    if side is None or not side.graphs:
        return "–"
    first = f" ({duration(side.first_graph)})" if with_first and side.first_graph is not None else ""
    return duration(quartiles(side.graphs).median) + first


def notes(results: Sequence[Result]) -> list[str]:
    """What the table has no room for: failures and refusals, wrong peers, and sums over all rows."""
    lines = []
    for r in results:
        for n, s in r.sides.items():
            if s.failure is not None:
                lines.append(f"{r.row.name}: {n} failed: {s.failure}")
            if n != SUBJECT and r.is_wrong(n):
                lines.append(f"{r.row.name}: {n} is wrong by {s.error:.1e}, and no bar")
    ratios = [ratio.median for r in results if (ratio := r.ratio()) is not None]
    if ratios:
        lines.append(f"{len(ratios)} row(s), geometric mean of the ratios {geometric_mean(ratios):.2f}")
    subjects = [(r.row.name, r.sides[SUBJECT]) for r in results if r.size != "small"]  # small ones drown in what Python takes
    pairs = [(name, s.memory / s.planned) for name, s in subjects if s.memory and s.planned]
    apart = [f"{name} {share:.2f}" for name, share in pairs if abs(share - 1) > CLOSE]
    if pairs:
        lines.append(f"memory over what was planned, further than {CLOSE:.0%} from it: {', '.join(apart) or 'none'}")
    whole = [r.row.name for r in results if r.sides[SUBJECT].blocks == 1]
    if whole:
        lines.append(f"not cut into blocks: {', '.join(whole)}")
    return lines


def as_json(results: Sequence[Result], runner: Runner) -> str:
    """Every round."""
    rows = []
    for r in results:
        ratio = r.ratio()
        row: dict[str, Any] = {"row": r.row.name, "what": r.row.what, "size": r.size}
        row |= {
            "sizes": dict(r.row.find_sizes(r.size)),
            "best_peer": r.best_peer(),
            "ratio": None if ratio is None else asdict(ratio),
        }
        rows.append(row | {"sides": {n: asdict(s) for n, s in r.sides.items()}})
    how = {"scheduler": runner.scheduler, "workers": runner.workers}
    return json.dumps({"machine": report.machine(), **how, "results": rows}, indent=1)


@click.command(epilog=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--size",
    type=click.Choice(["small", "full", "large"]),
    default="full",
    help="Small is for trying out; large takes minutes, and gigabytes of disk.",
    show_default=True,
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads or processes, a core each.  [default: 2, or as many cores]"
)
@click.option(
    "--scheduler",
    type=click.Choice(["threads", "processes"]),
    default="threads",
    help="Of dask: threads of one process, or a LocalCluster of processes.",
    show_default=True,
)
@click.option("--peers", callback=split_names, default="", help="Only these; the first one says what is right.")
@click.option("--rounds", default=3, type=click.IntRange(min=1), help="Measured rounds.", show_default=True)
@click.option("--limit", default=300.0, type=float, help="Seconds after which a process is killed.", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Where Zarr stores are written.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every round here.")
@click.option(
    "--faults",
    "is_faulty",
    is_flag=True,
    help="Instead: clusters in which a worker is killed, has other instructions, little memory, or a damaged cache.",
)
@click.option("--overhead", "is_overhead", is_flag=True, help="Instead: CPU time of planning, and of tasks without work.")
@click.option("--list", "list_only", is_flag=True, help="List the rows with their sizes.")
def main(
    names: tuple[str, ...],
    size: str,
    workers: int | None,
    scheduler: str,
    peers: list[str],
    rounds: int,
    limit: float,
    folder: Path | None,
    json_path: Path | None,
    is_faulty: bool,
    is_overhead: bool,
    list_only: bool,
) -> None:
    """Measure rows NAME (all of them by default) on dask arrays, against what one would write with dask.array, SciPy and numba.

    Each side computes in a new process each time, once unmeasured, in which kernels are compiled, and then in rounds; who
    begins changes from round to round.  Making the graph is timed apart.  Memory is the greatest resident one of a process,
    beyond what it had when computing began; beside it stands what a dry run says.  Results are compared with the first peer's
    in float64.

    Rows that polyc refuses are shown with the error's code.  A wrong result of polyc, and one that there is not, end the
    process with code 1.
    """
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    progress = Console(stderr=True, highlight=False, style="dim")
    if list_only:
        for row in ROWS.values():
            sizes = "; ".join(f"{n}: {' '.join(f'{k}={v}' for k, v in s.items())}" for n, s in row.sizes.items())
            console.print(f"{row.name:12} {row.what} ({sizes})", markup=False)
        return
    if is_faulty:
        from benchmarks.blocks.faults import run_faults

        sys.exit(0 if run_faults(lambda text: console.print(text, markup=False)) else 1)
    if is_overhead:
        from benchmarks.blocks.overhead import run_overhead

        run_overhead(lambda text: console.print(text, markup=False), rounds)
        return
    for name in names:
        if name not in ROWS:
            raise click.UsageError(f"no row {name!r}; there are {', '.join(ROWS)}")
    known = {peer for row in ROWS.values() for peer in row.peers}
    if unknown := [peer for peer in peers if peer not in known]:
        raise click.UsageError(f"no peer {unknown[0]!r}; there are {', '.join(sorted(known))}")
    cores = len(sides.cores())
    if workers is not None and workers > cores:
        raise click.UsageError(f"{workers} workers asked for, {cores} cores here")
    if not is_available(SUBJECT, scheduler) or not is_available("exact", scheduler):
        raise click.UsageError(
            "dask, zarr and (for processes) distributed are needed: pip install 'dask[array]' distributed zarr"
        )
    for peer in ("scipy", "numba"):
        if not is_available(peer):
            progress.print(f"{peer} is not installed: left out (make peers ARGS={ENVIRONMENT} sets it up)")
    runner = Runner(scheduler, workers or min(2, cores), limit, lambda text: progress.print(text, markup=False), peers)
    results = []
    with tempfile.TemporaryDirectory(prefix="polyc-bench-", dir=folder) as base:
        for name in names or ROWS:
            own = Path(base) / name
            own.mkdir()
            try:
                results.append(runner.measure(ROWS[name], size, rounds, own))
            except coordinator.WorkerFailed as failure:
                raise click.ClickException(str(failure)) from failure
            shutil.rmtree(own)
    title = f"{size} sizes, {runner.workers} {scheduler}: medians \\[quartiles] of {rounds} rounds"
    console.print(make_table(results, title))
    for line in notes(results):
        console.print(line, markup=False)
    if json_path is not None:
        json_path.write_text(as_json(results, runner))
    if any(r.has_failed() for r in results):
        sys.exit(1)
