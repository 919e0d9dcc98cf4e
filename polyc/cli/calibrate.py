"""``polyc calibrate``: measure this machine, so that kernels are chosen for it."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from polyc.cli.common import file_error, guard_errors
from polyc.config import cache_directory, cache_settings, debugging, machine_name
from polyc.diagnostics import ArgumentError, Diagnostic

FULL, QUICK = (7, 1.0), (1, 0.01)
"""Rounds of each measurement, and part of its time and arrays: for use, and for tests of the command."""


@click.command("calibrate")
@click.option("--forget", is_flag=True, help="Remove what was measured of this machine, and measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write an object with the file and the measured values.")
@click.option("--quick", is_flag=True, hidden=True)
@guard_errors
def calibrate_command(forget: bool, as_json: bool, quick: bool) -> None:
    """Measure this machine, and choose kernels by what was found from then on.

    Takes some seconds, best while little else runs: rates of caches and memory with one thread and all, arithmetic, gathers,
    forks, NumPy.  The result is kept for this processor, its caches and cores, beside the disk cache; `polyc doctor` shows it.
    Results of kernels do not depend on it but for the order of sums.  POLYC_MACHINE=NAME puts another machine in its place.

    \b
    Examples:
      polyc calibrate
      polyc calibrate --json
      polyc calibrate --forget
    """
    from polyc.api import calibration
    from polyc.codegen.objects.host import host_target
    from polyc.machine.calibration import to_plain

    host_target()  # POLYC_MACHINE is the name of a machine
    if cache_settings() is None or debugging():
        off = "POLYC_DEBUG" if debugging() else "POLYC_CACHE"
        message = "the disk cache is off, and the calibration of this machine is kept beside it"
        raise ArgumentError(Diagnostic("argument-file", message, help=f"unset {off}, or give POLYC_CACHE_DIR a place"))
    try:
        if forget:
            removed = calibration.forget()
            what = {"file": None if removed is None else str(removed), "values": None}
            click.echo(json.dumps(what, indent=2) if as_json else f"removed {removed or 'nothing: none was kept'}")
            return
        found, file = calibration.calibrate(_report, *(QUICK if quick else FULL))
    except OSError as error:
        raise file_error(error.filename or cache_directory() or "the disk cache", error) from error
    if machine_name():
        click.echo(f"POLYC_MACHINE={machine_name()} is set, and puts another machine in the place of this one", err=True)
    values = to_plain(found)
    if as_json:
        click.echo(json.dumps({"file": str(file), "values": values}, indent=2))
        return
    for line in describe_values(values):
        click.echo(line)
    click.echo(f"kept in {file}")


def describe_values(values: dict[str, Any]) -> list[str]:
    """What was measured, for people."""
    v = values
    lines = [
        f"multiply-adds wait {v['fma_latency']:.1f} cycles, {v['fma_per_cycle']:.2f} a cycle; "
        f"{v['loads_per_cycle']:.2f} loads a cycle"
    ]
    if v["gather"] is not None:
        lines.append(f"a gather takes {v['gather']:.2f} of the time of single loads")
    lines.append("bytes a cycle of each core    L2       L3   memory")
    names = {
        "read": "read",
        "read_strided": "read in pieces",
        "read_prefetched": "the same, prefetched",
        "written": "written",
        "passed": "written and read again",
    }
    for name, text in names.items():
        rates = v[name]
        lines.append(f"  {text:22} {rates[0]:7.1f}  {rates[1]:7.1f}  {rates[2]:7.1f}")
    lines.append(f"  {'written past caches':22} {'':7}  {'':7}  {v['streamed']:7.1f}")
    lines.append(f"threads: fork and join {v['fork']:.0f} cycles, waking one {v['wake'] / 1000:.1f} us")
    lines.append(
        f"NumPy, per ns: {v['numpy_product']:.1f} products, {v['numpy_step']:.1f} steps, {v['numpy_copied']:.1f} bytes copied"
    )
    return lines


def _report(text: str) -> None:
    click.echo(f"measuring {text}", err=True)
    sys.stderr.flush()
