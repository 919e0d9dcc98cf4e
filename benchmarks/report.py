"""The table for people and the JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import roofline
from benchmarks.coordinator import Measurement
from benchmarks.sides import ROOFS, SUBJECTS, is_streaming
from benchmarks.statistics import Quartiles, Summary, geometric_mean, is_wrong, summarise
from benchmarks.workload import Workload

BEHIND = 0.97
"""Lower quartile of the ratio to the best peer from which on a workload of a group counts as level with it."""
COMPILE_SECONDS = 3
"""CPU time of compiling a gradient above which the report names it."""
BUSY_CORES = 0.1
"""Load by other processes above which the report says so."""
_UNIT = {"fma": "GFLOP/s", "stream": "GB/s", None: "GB/s"}


def duration(seconds: float) -> str:
    """Three significant digits in ms or µs."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-4 else f"{seconds * 1e3:.3g} ms"


def size(n_bytes: int | None) -> str:
    """Bytes in KiB or MiB."""
    if n_bytes is None:
        return "–"
    return f"{n_bytes / 1024:.0f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):.1f} MiB"


def spread(times: Quartiles) -> str:
    """Median with quartiles, all in the median's unit."""
    unit = 1e6 if times.median < 1e-4 else 1e3
    return f"{duration(times.median)} [{times.lower * unit:.3g}–{times.upper * unit:.3g}]"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    versions = {}
    for package in ("polyc", "numpy", "torch", "llvmlite", "islpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), **versions}


def print_table(console: Console, measurements: list[Measurement], subject: str, peers: list[str]) -> None:
    """One row per workload and number of threads; a console that is too narrow shows no peers that are never the best."""
    summaries = [summarise(m, subject) for m in measurements]
    table = make_table(measurements, summaries, subject, peers)
    natural = console.measure(table, options=console.options.update(width=10_000)).maximum
    if natural > console.width:
        best = {s.best_peer for s in summaries}
        hidden = [p for p in peers if p not in best and p not in SUBJECTS]
        table = make_table(measurements, summaries, subject, [p for p in peers if p not in hidden])
        if hidden:
            console.print(f"too narrow to show {', '.join(hidden)}, never the best peer here; --json has them", style="dim")
    console.print(table)
    console.print(
        "to best peer: its time over ours, paired by round, median (lower quartile) and who it is; above 1 we are faster. "
        "roofline: share of the measured bound (memory: arrays read:written as shown, same volume; arithmetic: FMA peak). "
        "memory: what is kept for calls beside inputs and results (its bar: the tile buffers of the schedule).",
        style="dim",
    )


def make_table(measurements: list[Measurement], summaries: list[Summary], subject: str, peers: list[str]) -> Table:
    """The table with a column for each of `peers`."""
    table = Table(title=f"{subject} against {', '.join(peers) or 'no peer'}: medians \\[quartiles]", title_justify="left")
    for heading in ("workload", "threads", subject, *peers):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "workload" else "right")
    for heading in ("rate", "to best peer", "roofline", "memory", "error"):
        table.add_column(heading, no_wrap=True, justify="right")
    for m, summary in zip(measurements, summaries, strict=True):
        table.add_row(*row(m, summary, subject, peers))
    return table


def mix_of(workload: Workload) -> tuple[int, int]:
    """Arrays that the measured bound reads and writes."""
    return roofline.mix_of(workload.bytes_read, workload.bytes_written)


def row(m: Measurement, summary: Summary, subject: str, peers: list[str]) -> list[str]:
    cells = [m.workload.name, str(m.threads)]
    for name in (subject, *peers):
        side, times = m.sides.get(name), summary.times.get(name)
        if times is None:
            cells.append("failed" if side is not None and side.failure else "–")
        elif name == subject:
            cells.append(spread(times))
        else:
            cells.append(duration(times.median) + (" (wrong)" if is_wrong(m, name) else ""))
    side = m.sides[subject]
    cells.append(f"{summary.rate:.3g} {_UNIT[summary.bound]}" if summary.rate else "–")
    cells.append(f"{summary.ratio.median:.2f} ({summary.ratio.lower:.2f}) {summary.best_peer}" if summary.ratio else "–")
    bound = ""
    if summary.roof:
        bound = "arithmetic" if summary.bound == "fma" else "memory {}:{}".format(*mix_of(m.workload))
        if m.workload.has_same_stores:
            bound += ", streamed" if is_streaming(m.workload) else ", plain stores"
    cells.append(f"{summary.roof:.0%} {bound}" if summary.roof else "–")
    cells.append(size(side.memory) if side.planned is None else f"{size(side.memory)} ({size(side.planned)})")
    cells.append("–" if side.error is None else f"{side.error:.1e}" + (" WRONG" if is_wrong(m, subject) else ""))
    return cells


def notes(measurements: list[Measurement], subject: str) -> list[str]:
    """What the table has no room for: failures, speed-up by threads, whether results are the same bits."""
    lines = [
        f"{m.workload.name}, {m.threads} thread(s): {s.name} left out: {s.failure}"
        for m in measurements
        for s in m.sides.values()
        if s.failure
    ]
    busy = max((m.busy_elsewhere for m in measurements), default=0.0)
    if busy > BUSY_CORES:
        lines.append(f"other processes kept up to {busy:.1f} cores busy: read ratios, not times, and mistrust several threads")
    groups: dict[str, list[Measurement]] = {}
    for m in measurements:
        if m.sides[subject].seconds:
            groups.setdefault(m.workload.name, []).append(m)
    for name, group in groups.items():
        one = next((m for m in group if m.threads == 1), None)
        for m in group:
            if one is None or m is one:
                continue
            a, b = summarise(one, subject).times[subject].median, summarise(m, subject).times[subject].median
            same = "same bits" if m.sides[subject].digest == one.sides[subject].digest else "DIFFERENT BITS"
            lines.append(f"{name}: {a / b:.2f}× on {m.threads} threads, {same} as on one")
    return lines


def group_lines(measurements: list[Measurement], subject: str, groups: dict[str, list[str]]) -> list[str]:
    """Per group, precision and number of threads: means of the ratios to the best peer, and who stays behind it."""
    lines = []
    for group, names in groups.items():
        members = [m for m in measurements if m.workload.name in names]
        for dtype, threads in dict.fromkeys((m.workload.dtype, m.threads) for m in members):
            ratios = {
                m.workload.name: s.ratio
                for m in members
                if (m.workload.dtype, m.threads) == (dtype, threads) and (s := summarise(m, subject)).ratio
            }
            if not ratios:
                continue
            median, lower = (geometric_mean(getattr(r, q) for r in ratios.values()) for q in ("median", "lower"))
            behind = [f"{n} {r.lower:.2f}" for n, r in sorted(ratios.items(), key=lambda i: i[1].lower) if r.lower < BEHIND]
            lines.append(
                f"{group}, {dtype}, {threads} thread(s): {len(ratios)} workloads, geometric mean of the ratios {median:.2f}, "
                f"of their lower quartiles {lower:.2f}; below {BEHIND}: {', '.join(behind) or 'none'}"
            )
            summaries = [(m, summarise(m, subject)) for m in members if (m.workload.dtype, m.threads) == (dtype, threads)]
            if any(s.roof for _, s in summaries):
                short = [
                    f"{m.workload.name} {s.ratio.median:.2f} ({s.roof:.0%} of {m.workload.roof_bar:.0%})"
                    for m, s in summaries
                    if s.ratio and s.roof and misses_bars(m, s)
                ]
                lines.append(f"  behind the best peer and below their share of the roofline: {', '.join(short) or 'none'}")
    return lines


def misses_bars(m: Measurement, summary: Summary) -> bool:
    """Whether the subject is behind its best peer, and below the share of the measured roofline that would excuse that."""
    if summary.ratio is None or summary.roof is None:
        return False
    return summary.ratio.median < 1 and summary.roof < m.workload.roof_bar


def print_compile(console: Console, times: dict[str, Any]) -> None:
    """What it costs to start: CPU and wall seconds, and the pass that takes most of the CPU's."""
    table = Table(title="cold compile, medians of fresh processes", title_justify="left")
    for heading in ("workload", "CPU", "wall", "longest pass"):
        table.add_column(heading, justify="right" if heading in ("CPU", "wall") else "left")
    for name, entry in times.items():
        if "failure" in entry:
            table.add_row(name, "failed", "")
            console.print(f"{name}: {entry['failure']}", markup=False)
        elif "call" in entry:
            table.add_row(name, "", duration(entry["call"]))
        else:
            kind = "import" if "import" in entry else "compile"
            longest = ""
            if entry.get("passes"):
                pass_name, seconds = max(entry["passes"].items(), key=lambda item: item[1])
                longest = f"{100 * seconds / entry[kind]:.0f} % {pass_name}"
            table.add_row(name, f"{entry[kind]:.2f} s", f"{entry[kind + '_wall']:.2f} s", longest)
    console.print(table)


def print_gradients(console: Console, times: dict[str, Any]) -> None:
    """CPU seconds of compiling gradients and what they are gradients of, with what is above `COMPILE_SECONDS`."""
    table = Table(title="cold compile of gradients, CPU seconds of fresh processes", title_justify="left")
    for heading in ("workload", "forward", "gradient", "ratio"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    ratios, above = [], []
    for name, entry in times.items():
        if "failure" in entry:
            table.add_row(name, "failed", "", "")
            console.print(f"{name}: {entry['failure']}", markup=False)
            continue
        forward, gradient = entry["forward_compile"], entry["compile"]
        ratios.append(gradient / forward)
        above += [name] if gradient > COMPILE_SECONDS else []
        table.add_row(name, f"{forward:.2f}", f"{gradient:.2f}", f"{ratios[-1]:.2f}")
    console.print(table)
    if ratios:
        mean = sum(ratios) / len(ratios)
        console.print(f"mean ratio {mean:.2f}; above {COMPILE_SECONDS} s: {', '.join(above) or 'none'}", markup=False)


def as_json(measurements: list[Measurement], subject: str, compile_times: dict[str, Any]) -> str:
    """Everything, every round included."""
    rows = []
    for m in measurements:
        s = summarise(m, subject)
        rows.append(
            {
                "workload": m.workload.name,
                "what": m.workload.what,
                "dtype": m.workload.dtype,
                "threads": m.threads,
                "fresh": m.fresh,
                "busy_elsewhere": m.busy_elsewhere,
                "flops": m.workload.flops,
                "bytes_read": m.workload.bytes_read,
                "bytes_written": m.workload.bytes_written,
                "best_peer": s.best_peer,
                "ratio": s.ratio and {"lower": s.ratio.lower, "median": s.ratio.median, "upper": s.ratio.upper},
                "roofline": s.roof,
                "roofline_bar": m.workload.roof_bar,
                "bound": s.bound,
                "sides": {
                    n: {
                        "seconds": side.seconds,
                        "repetitions": side.repetitions,
                        "error": side.error,
                        "failure": side.failure,
                        "version": side.version,
                        "memory": side.memory,
                        "planned": side.planned,
                        "is_roofline": n in ROOFS,
                    }
                    for n, side in m.sides.items()
                },
            }
        )
    return json.dumps({"machine": machine(), "subject": subject, "results": rows, "compile": compile_times}, indent=1)
