"""``python -m benchmarks ablate``: what each optional pass of the compiler brings, on the workloads that it changes.

Each workload is lowered once, to see which passes change something, and once more without each of these.  Only where the LLVM
IR is another one, kernels with and without the pass take turns, as live processes (`benchmarks.coordinator`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import ablation, coordinator, sides
from benchmarks.ablation import Entry, Interval, Record
from benchmarks.workload import Workload
from benchmarks.workloads import BOARD, GROUPS, WORKLOADS

CLOSE = 1.02
"""Upper over lower end of an interval that is measured no longer."""
LEAST_ROUNDS = 6
"""Fewer have no interval of 95 %."""
MOST_TOGETHER = 5
"""Kernels that take turns with the complete one at a time: all their inputs are in memory."""


class WrongResult(Exception):
    """A kernel whose results miss the workload's tolerance."""


def measure(workload: Workload, passes: list[str], options: dict[str, Any], threads: int, rounds: int) -> dict[str, Interval]:
    """What each of `passes` brings to `workload`; a round begins and ends with the complete kernel, and runs the others back
    and forth in between.

    CPU time counts on one thread, as it says more where other processes run besides."""
    clock = "cpu" if threads == 1 else "seconds"
    variants = [options, *({**options, "disable": [p]} for p in passes)]
    workers: list[coordinator.Worker] = []
    ratios: list[list[float]] = [[] for _ in passes]
    with coordinator.reference_file(workload) as exact:
        try:
            for variant in variants:
                workers.append(coordinator.Worker(workload, "polyc", threads, False, exact, variant))
                ready = workers[-1].receive()
                if not ready["error"] <= workload.tolerance:
                    without = f" without {variant['disable'][0]}" if variant.get("disable") else ""
                    raise WrongResult(f"{workload.name}{without}: an error of {ready['error']:.1e}")
                workers[-1].wait_until_idle()
            while len(ratios[0]) < rounds:
                there = [worker.run_round(clock) for worker in workers]
                back = [worker.run_round(clock) for worker in reversed(workers)][::-1]
                seconds = [a + b for a, b in zip(there, back, strict=True)]
                for n, own in enumerate(ratios):
                    own.append(seconds[n + 1] / seconds[0])
                found = [ablation.interval(own) for own in ratios]
                if len(ratios[0]) >= LEAST_ROUNDS and all(high / low <= CLOSE for _, low, high in found):
                    break
        finally:
            for worker in workers:
                worker.close()
    return {p: (round(m, 4), round(low, 4), round(high, 4)) for p, (m, low, high) in zip(passes, found, strict=True)}


def select(entries: dict[str, Entry], passes: frozenset[str], at_most: int | None, sample: int | None) -> dict[str, list[str]]:
    """What is to be measured: by workload, the passes without which its LLVM IR is another.

    `at_most` leaves out passes that have more such workloads; of the others' workloads, `sample` are taken, spread evenly."""
    wanted: dict[str, list[str]] = {}
    for p in sorted(passes):
        places = [n for n, e in entries.items() if p in e.differs and "polyc" not in WORKLOADS[n].peers]
        if at_most is not None and len(places) > at_most:
            continue
        if sample is not None and len(places) > sample:
            places = [places[i * len(places) // sample] for i in range(sample)]
        for n in places:
            wanted.setdefault(n, []).append(p)
    return {n: wanted[n] for n in entries if n in wanted}


def print_table(console: Console, steps: list[tuple[str, Any]], entries: dict[str, Entry]) -> None:
    """A line for each pass; ratios are of the time without it to the time with it."""
    head = ("level", "pass", "lines", "changed", "IR differs", "CPU, s", "measured", "best", "worst", "mean")
    table = Table(*head, title=f"{len(entries)} workloads")
    for level, step in steps:
        worth = ablation.assess(step.name, entries)
        ends = [f"{end[0]:.3f} {end[1]}" if end else "" for end in (worth.best, worth.worst)]
        differs = f"{worth.differs}" + (f", {worth.fails} fail" if worth.fails else "")
        mean = "" if worth.mean is None else f"{worth.mean:.3f}"
        numbers = (str(ablation.lines_of(step)), str(worth.changed), differs, f"{worth.seconds:.2f}", str(worth.measured))
        table.add_row(level, step.name, *numbers, *ends, mean)
    console.print(table, markup=False)


def summarise(record: Record, steps: list[tuple[str, Any]], earlier: dict[str, Any]) -> dict[str, Any]:
    """By setting the number of workloads, and what each pass is worth there: what docs/assemble.py reads.

    Of an `earlier` summary stays what `record` has not: settings, and the times of passes that were only compared now."""
    passes: dict[str, dict[str, Any]] = {}
    for _, step in steps:
        before = earlier.get("passes", {}).get(step.name, {})
        passes[step.name] = dict(before)
        for key, entries in record.entries.items():
            own = asdict(ablation.assess(step.name, entries))
            if own["compared"] and not own["measured"] and key in before:
                own |= {k: before[key][k] for k in ("measured", "best", "worst", "mean")}
            if own["compared"] or not own["changed"] or key not in before:
                passes[step.name][key] = own
    return {
        "settings": {**earlier.get("settings", {}), **{key: len(entries) for key, entries in record.entries.items()}},
        "lines": {step.name: ablation.lines_of(step) for _, step in steps},
        "passes": passes,
    }


def expand(names: tuple[str, ...]) -> list[str]:
    """Workloads and members of groups; the whole board where none are named."""
    unknown = [n for n in names if n not in WORKLOADS and n not in GROUPS]
    if unknown:
        raise click.UsageError(f"no workload {unknown[0]!r}; python -m benchmarks --list shows them")
    return list(dict.fromkeys(m for n in (names or BOARD) for m in GROUPS.get(n, (n,))))


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    items = [item.strip() for item in value.split(",")]
    if not all(item.isdigit() and 0 < int(item) <= len(sides.cores()) for item in items):
        raise click.BadParameter(f"numbers of threads from 1 to {len(sides.cores())}, with commas: 1,2")
    return [int(item) for item in items]


@click.command()
@click.argument("names", nargs=-1, metavar="[WORKLOAD]...")
@click.option("--level", type=click.Choice(("program", "plan", "loops")), help="Only the passes of this level.")
@click.option("--pass", "only", multiple=True, metavar="NAME", help="Only this pass; may be given several times.")
@click.option("--target", default="host", type=click.Choice(("host", "x86-64-v2", "x86-64-v3", "x86-64-v4")), show_default=True)
@click.option("--dynamic", is_flag=True, help="Compile for any sizes.")
@click.option("--digests-only", is_flag=True, help="Compare LLVM IR, and measure nothing.")
@click.option("--check", is_flag=True, help="Compare results with exact ones, and measure nothing.")
@click.option("--at-most", type=click.IntRange(min=1), help="Measure only passes that make a difference to so many workloads.")
@click.option("--sample", type=click.IntRange(min=1), help="Measure each pass on so many of its workloads.")
@click.option("--threads", default="1", callback=_numbers, help="Numbers of threads, e.g. 1,2.", show_default=True)
@click.option(
    "--rounds", default=20, type=click.IntRange(min=LEAST_ROUNDS), show_default=True, help="Most rounds of a workload."
)
@click.option("--record", type=click.Path(path_type=Path), help="Keep what is found here, and take from it what it has.")
@click.option("--summary", type=click.Path(path_type=Path), help="Bring this summary up to date: docs/ablation.json.")
def main(
    names: tuple[str, ...],
    level: str | None,
    only: tuple[str, ...],
    target: str,
    dynamic: bool,
    digests_only: bool,
    check: bool,
    at_most: int | None,
    sample: int | None,
    threads: list[int],
    rounds: int,
    record: Path | None,
    summary: Path | None,
) -> None:
    """What each optional pass brings to the WORKLOADs (all of them by default; groups may be named, too).

    Each is lowered with all passes, and without each one that changed something. Where the LLVM IR differs, both kernels are
    timed in turns until the 95 % interval of their ratio is narrower than 2 %. Ratios are time without the pass over time with
    it: above 1 the pass makes the kernel faster.

    \b
    Examples:
      python -m benchmarks ablate --digests-only --target x86-64-v3
      python -m benchmarks ablate --check --threads 1,2
      python -m benchmarks ablate --level loops --at-most 3 --record found.json
      python -m benchmarks ablate polybench_medium --pass jam-rows --pass block-columns
      python -m benchmarks ablate bi_gru --pass run-sections --threads 1,2
    """
    from polyc.diagnostics import ArgumentError
    from polyc.driver import pass_levels
    from polyc.passes import check_names

    try:
        check_names(only, pass_levels())
    except ArgumentError as error:
        raise click.UsageError(error.diagnostics[0].message) from error
    if check and digests_only:
        raise click.UsageError("--check runs kernels, --digests-only does not")
    steps = [(each.name, p) for each in pass_levels() for p in each.passes if not p.required]
    chosen = [(n, p) for n, p in steps if level in (None, n) and (not only or p.name in only)]
    passes = frozenset(p.name for _, p in chosen)
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    kept, options = Record(record), {"target": target} | ({"dynamic": True} if dynamic else {})
    entries = kept.entries.setdefault(target + (", any sizes" if dynamic else ""), {})
    board = [n for n in expand(names) if not (dynamic and WORKLOADS[n].notation == "einsum")]
    with console.status("lowering") as status:
        for name in ablation.find_differences(board, options, passes, entries, lambda text: console.print(text, markup=False)):
            status.update(f"lowered {name}")
            kept.save()
    found = {n: entries[n] for n in board if n in entries}
    wanted = select(found, passes, at_most, sample)
    if digests_only:
        is_right = True
    elif check:
        is_right = _check_all(console, wanted, found, options, threads)
    else:
        is_right = _measure_all(console, kept, found, wanted, options, threads, rounds)
    print_table(console, chosen, found)
    if summary is not None:
        earlier = json.loads(summary.read_text()) if summary.exists() else {}
        summary.write_text(json.dumps(summarise(kept, steps, earlier), indent=1) + "\n")
    if not is_right:
        sys.exit(1)


def _check_all(
    console: Console, wanted: dict[str, list[str]], entries: dict[str, Entry], options: dict[str, Any], threads: list[int]
) -> bool:
    """Whether all results are right without each of the passes `wanted`, and all workloads can be lowered without any."""
    failed = [f"{n} without {p}: {why}" for n, e in entries.items() for p, why in e.fails.items()]
    for line in failed:
        console.print(line, markup=False)
    count = wrong = 0
    with console.status("checking") as status:
        for name, lines in ablation.find_wrong(wanted, options, threads):
            status.update(f"checked {name}")
            count, wrong = count + len(wanted[name]), wrong + len(lines)
            for line in lines:
                console.print(line, markup=False)
    console.print(f"without a pass: {count} kernels, {wrong} with a wrong result; {len(failed)} that could not be lowered")
    return not wrong and not failed


def _measure_all(
    console: Console,
    kept: Record,
    entries: dict[str, Entry],
    wanted: dict[str, list[str]],
    options: dict[str, Any],
    threads: list[int],
    rounds: int,
) -> bool:
    """Measure what was not measured before; whether all results were right."""
    is_right = True
    for name, passes in wanted.items():
        for n in threads:
            differs = entries[name].differs
            left = [p for p in passes if str(n) not in differs[p]]
            for first in range(0, len(left), MOST_TOGETHER):
                together = left[first : first + MOST_TOGETHER]
                try:
                    with console.status(f"{name}, {n} thread(s), without {', '.join(together)}"):
                        found = measure(WORKLOADS[name], together, options, n, rounds)
                except (WrongResult, coordinator.WorkerFailed) as failure:
                    console.print(f"{name}: {failure}", markup=False)
                    is_right = False
                    continue
                for p, ratio in found.items():
                    differs[p][str(n)] = ratio
                    console.print(f"{name}, {n} thread(s), {p}: {ratio[0]:.3f} ({ratio[1]:.3f} … {ratio[2]:.3f})", markup=False)
                kept.save()
    return is_right
