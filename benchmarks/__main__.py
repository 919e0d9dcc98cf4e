"""Command line of the benchmark runner."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import cold, coordinator, environments, report, sides, statistics
from benchmarks.options import split_names, split_threads
from benchmarks.workloads import BOARD, GROUPS, WORKLOADS

MOST_LISTED = 150
"""Of larger groups the first members are listed, which tell how the others are named."""


@click.command()
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--threads", callback=split_threads, help="Numbers of threads, e.g. 1,2.  [default: 1; 1,2 for groups]")
@click.option("--peers", default=",".join(sides.PEERS), callback=split_names, help="Peers to compare with.", show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "float64"]), help="Only the workloads of a group in this precision.")
@click.option("--rounds", default=15, type=click.IntRange(min=1), help="Alternating rounds; fewer than 15 are for trying out.")
@click.option("--fresh", is_flag=True, help="Every side allocates its own result each time, instead of reusing one.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every round here.")
@click.option("--compile", "with_compile", is_flag=True, help="Measure cold compile times too (in five fresh processes).")
@click.option("--compile-only", is_flag=True, help="Measure cold compile times and nothing else.")
@click.option("--subject", default="polyc", help="The side to report on.", show_default=True)
@click.option("--no-roofline", is_flag=True, help="Leave the machine's own bounds out.")
@click.option("--list", "list_only", is_flag=True, help="List the workloads.")
def main(
    names: tuple[str, ...],
    threads: list[int],
    peers: list[str],
    dtype: str | None,
    rounds: int,
    fresh: bool,
    json_path: Path | None,
    with_compile: bool,
    compile_only: bool,
    subject: str,
    no_roofline: bool,
    list_only: bool,
) -> None:
    """Measure WORKLOADs (by default all but sparse and ragged ones, solvers and pipelines) against peers, side by side.

    A WORKLOAD may be the name of a group: its members are measured in each precision that it has.
    Peers that are not installed are left out; `make peers` sets them up, each in an environment of its own.
    With `--subject polyc_bound` the weights of layers are bound beforehand.
    """
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False)
    if list_only:
        for w in WORKLOADS.values():
            console.print(f"{w.name:20} {w.what}", markup=False)
        for group, members in GROUPS.items():
            named = ", ".join(members if len(members) <= MOST_LISTED else (*members[:3], "…"))
            console.print(f"{group:20} group of {len(members)}: {named}", markup=False)
        return
    unknown = [n for n in names if n not in WORKLOADS and n not in GROUPS]
    if unknown:
        raise click.UsageError(f"no workload {unknown[0]!r}; --list shows them")
    groups = {n: [m for m in GROUPS[n] if dtype in (None, WORKLOADS[m].dtype)] for n in names if n in GROUPS}
    everything = [n for n in BOARD if WORKLOADS[n].dtype == (dtype or "float32")]
    expanded = dict.fromkeys(m for n in (names or everything) for m in groups.get(n, [n]))
    selected = [WORKLOADS[n] for n in expanded]
    threads = threads or ([n for n in (1, 2) if n <= len(sides.cores())] if groups else [1])
    available = [p for p in peers if p != subject and sides.interpreter(p) is not None]
    for peer in peers:
        if peer not in available and peer != subject:
            way_out = " (make peers sets it up)" if environments.package_of(peer) in environments.REQUIREMENTS else ""
            console.print(f"{peer} is not installed: left out{way_out}", style="yellow")
    for peer in available:
        lacking = [w.name for w in selected if peer not in w.peers]
        if lacking and peer in ("numpy", "torch"):  # others are known to be for some workloads only
            console.print(f"{peer} has no version of {', '.join(lacking)}: left out there", style="yellow")
    cores = len(sides.cores())
    if max(threads) > cores:
        raise click.UsageError(f"{max(threads)} threads asked for, {cores} cores here")

    compile_times: dict[str, Any] = {}
    if with_compile or compile_only:
        with console.status("cold compiles"):
            times = min(rounds, cold.RUNS)
            plain = [w.name for w in selected if "polyc" not in w.peers and w.gradient is None]
            compile_times = cold.measure_compile(plain, times)
            gradients = cold.measure_gradients([w.name for w in selected if w.gradient is not None], times)
        report.print_compile(console, compile_times)
        if gradients:
            report.print_gradients(console, gradients)
            compile_times |= gradients
    measurements = []
    for workload in () if compile_only else selected:
        work = {"fma": workload.flops, "stream": workload.bytes_read}
        roofs = [r for r in sides.ROOFS if not no_roofline and work.get(r, 1)]
        with coordinator.reference_file(workload) as exact:
            for n in threads:
                with console.status(f"{workload.name}, {n} thread(s)"):
                    order = [subject, *(p for p in available if p in workload.peers or p in sides.SUBJECTS), *roofs]
                    measurements.append(coordinator.measure(workload, order, n, rounds, fresh, exact))
    if measurements:
        measured = [p for p in available if any(p in m.sides for m in measurements)]
        report.print_table(console, measurements, subject, measured)
        for note in (*report.notes(measurements, subject), *report.group_lines(measurements, subject, groups)):
            console.print(note, markup=False)
    if json_path is not None:
        json_path.write_text(report.as_json(measurements, subject, compile_times))
    if any(m.sides[subject].failure or statistics.is_wrong(m, subject) for m in measurements):
        sys.exit(1)


COMMANDS = {
    "adjoints": "benchmarks.gradients.adjoints",
    "ablate": "benchmarks.ablate",
    "against": "benchmarks.against",
    "blocks": "benchmarks.blocks.command",
    "bound": "benchmarks.bound",
    "cold": "benchmarks.cold_loads",
    "company": "benchmarks.company",
    "dynamic": "benchmarks.dynamic",
    "einsum": "benchmarks.einsum",
    "models": "benchmarks.models.bench",
    "npbench": "benchmarks.npbench.command",
    "process": "benchmarks.new_process",
    "steadiness": "benchmarks.steadiness",
}
"""Measurements with options of their own, by the first word of the command line."""

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        importlib.import_module(COMMANDS[sys.argv[1]]).main(sys.argv[2:])
    else:
        main()
