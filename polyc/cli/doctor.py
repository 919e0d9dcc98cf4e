"""``polyc doctor``: what this machine offers, and what to do where something is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator

import click

from polyc.cli.common import guard_errors
from polyc.config import ENVIRONMENT
from polyc.crash import describe_crash
from polyc.diagnostics import PolycError
from polyc.machine import is_runnable

PACKAGES = ("numpy", "islpy", "llvmlite", "highspy", "lark", "opt_einsum", "threadpoolctl", "click", "rich", "platformdirs")


@click.command("doctor")
@guard_errors
def doctor_command() -> None:
    """Show versions, the machine, OpenMP and threads, run a small operator, and say what to do.

    Exit code 0 where kernels compile and run, else 1.

    \b
    Example:
      polyc doctor
    """
    advice: list[str] = []
    for section, lines in (
        ("versions", list(describe_versions(advice))),
        ("machine", list(describe_machine(advice))),
        ("threads", list(describe_threads(advice))),
        ("environment", list(describe_environment())),
    ):
        click.echo(f"{section}:")
        for line in lines:
            click.echo(f"  {line}")
    problem = run_self_test()
    click.echo(f"self test: {problem or 'a small operator compiles, runs and gives the right numbers'}")
    click.echo("what to do:")
    for line in [*advice, *(["report the failed self test with this output"] if problem else [])] or ["nothing: all is well"]:
        click.echo(f"  {line}")
    if problem:
        sys.exit(1)


def describe_versions(advice: list[str]) -> Iterator[str]:

    yield f"polyc {_version('polyc') or 'not installed'}, Python {platform.python_version()}, {platform.platform()}"
    for name in PACKAGES:
        version = _version(name)
        yield f"{name} {version or 'missing'}"
        if version is None:
            advice.append(f"install {name}: pip install {name}")


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe_machine(advice: list[str]) -> Iterator[str]:
    from polyc.runtime.threads import count_cores

    try:
        from polyc.codegen.objects.host import host_target, physical_host

        target, physical = host_target(), physical_host()
    except Exception as error:
        is_ours = isinstance(error, PolycError)
        found = error.diagnostics[0] if isinstance(error, PolycError) else describe_crash(error).diagnostics[0]
        yield f"target: unknown ({found.message})"
        advice.append(
            found.help if is_ours and found.help else "check that llvmlite imports: python -c 'import llvmlite.binding'"
        )
        return
    fma = "with" if target.has_fma else "without"
    masks = "masks" if target.has_masks else "no masks"
    yield f"target {target.name} ({target.triple}), {target.vector_bits}-bit vectors {fma} fma, {masks}"
    cores = count_cores() if target is physical else target.cores
    yield f"caches L1 {target.l1 >> 10} KiB, L2 {target.l2 >> 10} KiB, L3 {target.l3 >> 10} KiB; cores {cores}"
    yield f"features {target.features or 'none'}"
    if target is physical:
        yield from describe_calibration()
    else:
        runs = "runs its code" if is_runnable(target, physical) else "lacks some of its instructions: its code is not run"
        yield f"POLYC_MACHINE puts it in the place of this machine, which {runs}"
        advice.append("unset POLYC_MACHINE to compile for this machine")


def describe_calibration() -> Iterator[str]:
    from polyc.codegen.objects.host import host_calibration

    found = host_calibration()
    if found is None:
        yield "not calibrated: rates are those of its kind of processor; polyc calibrate measures them"
        return
    from polyc.cli.calibrate import describe_values
    from polyc.machine.calibration import to_plain

    yield "calibrated (polyc calibrate --forget removes it):"
    for line in describe_values(to_plain(found)):
        yield f"  {line}"


def describe_threads(advice: list[str]) -> Iterator[str]:
    from polyc.runtime import threads

    loaded = threads.loaded_runtimes()
    found = threads.find_openmp()
    if threads.HAS_POOL:
        yield "kernels have a pool of threads of their own"
    if found is None and threads.HAS_POOL:
        yield "no OpenMP runtime, whose limit of threads would count"
    elif found is None:
        yield "no OpenMP runtime: kernels run on one thread"
        if loaded:
            yield f"loaded, but without the GOMP entry points: {', '.join(loaded)}"
        advice.append("install an OpenMP runtime: apt install libgomp1, or dnf install libgomp")
    else:
        yield f"OpenMP {found.path}, {'already in the process' if found.loaded_before else 'loaded by polyc'}"
        yield f"its own limit is {found.max_threads()}"
    if len(loaded) > 1 and not threads.HAS_POOL:
        yield f"several OpenMP runtimes in one process: {', '.join(loaded)}"
        advice.append("several OpenMP runtimes in one process compete for cores: import torch before the first polyc call")
    yield f"threads per call: {threads.get_num_threads()} of {threads.count_cores()} cores"
    if threads.get_num_threads() < threads.count_cores():
        advice.append("fewer threads than cores: set POLYC_NUM_THREADS, or polyc.set_num_threads(n)")


def describe_environment() -> Iterator[str]:
    for name in (*ENVIRONMENT, "OMP_NUM_THREADS"):
        yield f"{name}={os.environ[name]}" if name in os.environ else f"{name} is not set"


def run_self_test() -> str | None:
    """Compile and run a small reduction; None, or what went wrong."""
    import numpy as np

    import polyc

    text = "def self_test(float(N, D) X) -> (O) { O(n) +=! X(n, d) * X(n, d) }"
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    try:
        result = polyc.compile(text)(x)
    except PolycError as error:
        return f"failed: {error.diagnostics[0].message}"
    except Exception as error:
        return f"failed: {describe_crash(error).diagnostics[0].message}"
    return None if np.array_equal(result, (x * x).sum(axis=1)) else "failed: wrong numbers"
