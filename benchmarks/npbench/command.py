"""``python -m benchmarks npbench``: the programs of NPBench against NumPy and loops in numba, in its sizes S and M."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks import cold, coordinator, report, sides, statistics
from benchmarks.coordinator import Measurement
from benchmarks.npbench import PROGRAMS, SIZES, polybench
from benchmarks.options import split_names, split_threads

SUBJECT = "polyc"
LEVEL = 0.95
"""Median ratio to the better peer from which on a program counts as level with it."""


def summarise_sizes(measurements: list[Measurement], sizes: list[str]) -> list[str]:
    """For each size and number of threads: geometric means of the ratios to the better peer, and the programs behind it."""
    apart = {p.name for p in PROGRAMS.values()} - {p.name for p in polybench.PROGRAMS}
    lines = []
    for size in sizes:
        for threads in dict.fromkeys(m.threads for m in measurements):
            ratios: dict[str, float] = {}
            for m in measurements:
                program, _, its_size = m.workload.name.removeprefix("npbench_").rpartition("_")
                if (its_size, m.threads) == (size, threads) and (found := statistics.summarise(m, SUBJECT).ratio):
                    ratios[program] = found.median
            parts = []
            for what, names in (
                ("of PolyBench", ratios.keys() - apart),
                ("others", ratios.keys() & apart),
                ("all", ratios.keys()),
            ):
                if names:
                    parts.append(f"{what} ({len(names)}) {statistics.geometric_mean(ratios[n] for n in names):.2f}")
            behind = [f"{n} {r:.2f}" for n, r in sorted(ratios.items(), key=lambda item: item[1]) if r < LEVEL]
            if parts:
                means = ", ".join(parts)
                lines.append(
                    f"{size}, {threads} thread(s): geometric means {means}; below {LEVEL}: {', '.join(behind) or 'none'}"
                )
    return lines


@click.command()
@click.argument("names", nargs=-1, metavar="[PROGRAM]...")
@click.option("--size", "sizes", default="S,M", callback=split_names, help="NPBench's sizes.", show_default=True)
@click.option("--threads", default="1", callback=split_threads, help="Numbers of threads, e.g. 1,2.", show_default=True)
@click.option("--peers", default="numpy,numba", callback=split_names, help="Peers to compare with.", show_default=True)
@click.option("--rounds", default=15, type=click.IntRange(min=1), help="Alternating rounds.", show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every round here.")
@click.option("--dynamic", is_flag=True, help="One kernel of polyc for any sizes, instead of one for these.")
@click.option("--compile-only", is_flag=True, help="Measure cold compile times and nothing else.")
@click.option("--list", "list_only", is_flag=True, help="List the programs.")
def main(
    names: tuple[str, ...],
    sizes: list[str],
    threads: list[int],
    peers: list[str],
    rounds: int,
    json_path: Path | None,
    dynamic: bool,
    compile_only: bool,
    list_only: bool,
) -> None:
    """Measure PROGRAMs of NPBench (all of them by default).

    A wrong result of polyc, and one that there is not, end the process with code 1.
    """
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    if list_only:
        for p in PROGRAMS.values():
            console.print(f"{p.name:26} {p.what}", markup=False)
        return
    for given, known, what in ((names, PROGRAMS, "program"), (sizes, SIZES, "size"), (peers, ("numpy", "numba"), "peer")):
        for name in given:
            if name not in known:
                raise click.UsageError(f"no {what} {name!r}; there are {', '.join(known)}")
    if compile_only:
        workloads = [PROGRAMS[name].make_workload(size).name for name in names or PROGRAMS for size in sizes]
        return report.print_compile(console, cold.measure_compile(workloads, min(rounds, cold.RUNS)))
    cores = len(sides.cores())
    if max(threads) > cores:
        raise click.UsageError(f"{max(threads)} threads asked for, {cores} cores here")
    available = [p for p in peers if sides.interpreter(p) is not None]
    for peer in peers:
        if peer not in available:
            console.print(f"{peer} is not installed: left out (make peers sets it up)", style="yellow")
    measurements = []
    for name in names or PROGRAMS:
        for size in sizes:
            workload = PROGRAMS[name].make_workload(size)
            with coordinator.reference_file(workload) as exact:
                for n in threads:
                    with console.status(f"{name}, {size}, {n} thread(s)"):
                        options = {"dynamic": True} if dynamic else None
                        measurements.append(
                            coordinator.measure(workload, [SUBJECT, *available], n, rounds, False, exact, options)
                        )
    report.print_table(console, measurements, SUBJECT, available)
    for note in (*report.notes(measurements, SUBJECT), *summarise_sizes(measurements, sizes)):
        console.print(note, markup=False)
    if json_path is not None:
        json_path.write_text(report.as_json(measurements, SUBJECT, {}))
    if any(m.sides[SUBJECT].failure or statistics.is_wrong(m, SUBJECT) for m in measurements):
        sys.exit(1)
