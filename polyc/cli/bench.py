"""``polyc bench``: a model beside other runtimes, in turns in one process."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from math import isfinite
from typing import Any

import click

from polyc.cli.common import SIZE_HELP, Shapes, Sizes, Verb, guard_errors, parse_shapes, parse_sizes
from polyc.cli.model import first_run, is_model, load_session, time_in_turns
from polyc.diagnostics import ArgumentError, Diagnostic

PEERS = ("onnxruntime",)


def _check_seconds(_context: click.Context, _parameter: click.Parameter, seconds: float) -> float:
    """The number, if it is one that measuring comes to the end of."""
    if not isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no length of time; give seconds, as in --seconds 2")
    return seconds


@click.command("bench", cls=Verb)
@click.argument("source", metavar="MODEL.onnx")
@click.option("--peers", default="", metavar="NAME[,NAME…]", help=f"Runtimes to measure beside polyc: {', '.join(PEERS)}.")
@click.option("--input", "inputs", multiple=True, metavar="[NAME=]X.npy", help="An input, by name or in order; repeatable.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=N[,NAME=N…]", callback=parse_sizes, help=SIZE_HELP)
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=N,N,…", callback=parse_shapes, help="Shape of an input.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each runtime (default: all cores).")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.01),
    default=2.0,
    show_default=True,
    callback=_check_seconds,
    help="Measuring time for each runtime.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="For the inputs that are not given.")
@click.option("--profile", is_flag=True, help="Also show the time of each kernel.")
@click.option("--trace", metavar="FILE.json", type=click.Path(dir_okay=False), help="Write a Chrome trace of the kernels.")
@guard_errors
def bench_command(
    source: str,
    peers: str,
    inputs: tuple[str, ...],
    sizes: Sizes,
    shapes: Shapes,
    threads: int | None,
    seconds: float,
    seed: int,
    profile: bool,
    trace: str | None,
) -> None:
    """Measure an ONNX model, beside other runtimes if you like.

    The runtimes take turns, so that all see the same machine; shown are minimum and median, and how many times as fast as
    the peer polyc is (medians).  Results are compared as well.

    \b
    Examples:
      polyc bench model.onnx --peers onnxruntime
      polyc bench model.onnx --size batch=8 --threads 1 --profile
      polyc bench model.onnx --input x.npy --trace trace.json
    """
    import numpy as np

    if not is_model(source):
        raise click.BadParameter(
            f"{source} is no .onnx file; `polyc explain --measure` times operators", param_hint="MODEL.onnx"
        )
    names = [p.strip() for p in peers.split(",") if p.strip()]
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"no peer {name!r}; peers are: {', '.join(PEERS)}", param_hint="--peers")
        if importlib.util.find_spec(name) is None:
            message = f"the package {name} is not installed"
            raise ArgumentError(Diagnostic("argument-option", message, None, f"run: pip install {name}"))
    session = load_session(source, False, threads)
    feed, results, _ = first_run(session, inputs, sizes, shapes, seed)
    calls: dict[str, Callable[[], object]] = {"polyc": lambda: session.run(None, feed)}
    notes = []
    for name in names:
        run = _open_onnxruntime(source, threads)
        other = run(feed)
        calls[name] = lambda run=run: run(feed)  # type: ignore[misc]
        for port, a, b in zip(session.get_outputs(), results, other, strict=True):
            if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.shape == np.shape(b) and a.size:
                error = float(np.max(np.abs(a.astype(np.float64) - b), initial=0)) / max(float(np.max(np.abs(b))), 1e-30)
                notes.append(f"{port.name}: largest difference from {name} {error:.1e} of the largest value")
            elif not np.array_equal(a, b):
                notes.append(f"{port.name}: differs from {name}")
    measured = session.profile(feed) if profile or trace else None
    times = time_in_turns(calls, seconds)
    own = statistics.median(times["polyc"])
    click.echo(f"{'runtime':<12} {'minimum':>12} {'median':>12} {'runs':>6}  polyc is")
    for name, found in times.items():
        middle = statistics.median(found)
        ratio = "" if name == "polyc" else f"{middle / own:.2f} times as fast"
        click.echo(f"{name:<12} {min(found) * 1e3:>9.3f} ms {middle * 1e3:>9.3f} ms {len(found):>6}  {ratio}".rstrip())
    for note in notes:
        click.echo(note)
    if measured is not None and profile:
        click.echo(f"\n{measured}")
    if measured is not None and trace:
        measured.save(trace)
        click.echo(f"trace: {trace}", err=True)
    for remark in session.remarks:
        click.echo(str(remark), err=True)


def _open_onnxruntime(source: str, threads: int | None) -> Callable[[Any], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        message = f"onnxruntime cannot load {source}: {error}"
        raise ArgumentError(Diagnostic("argument-file", message, None, "leave --peers out")) from error
    return lambda feed: session.run(None, feed)
