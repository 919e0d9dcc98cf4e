"""The verbs on ONNX models: `polyc run`, `explain` and `compile` come here for a file ``*.onnx``."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from polyc.cli.arrays import describe_array, format_time, read_array, time_calls, write_results
from polyc.cli.common import Shapes, Sizes, known_sizes
from polyc.diagnostics import ArgumentError, Diagnostic

if TYPE_CHECKING:
    import numpy as np

    from polyc.onnx import Session


def is_model(source: str) -> bool:
    """Whether a file is an ONNX model, by its name."""
    return source.lower().endswith(".onnx")


def refuse_options(**given: object) -> None:
    """A usage error for options that say nothing about a model, or nothing about an operator."""
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} does not apply to this kind of file")


def load_session(source: str, strict: bool, threads: int | None, target: str | None = None) -> Session:
    """A session that tells on standard error how far a long compilation is."""
    from polyc.config import default_options
    from polyc.onnx import load

    options = default_options()
    return load(
        source,
        strict=strict,
        threads=threads,
        options=options if target is None else options.replace(target=target),
        progress=Progress(),
    )


class Progress:
    """``compiled 12 of 40 kernels`` on standard error, for what takes longer than `jobs.PATIENCE`."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        from polyc.jobs import PATIENCE

        now = time.perf_counter()
        if done == 0:
            self.begin = now
        if total < 2 or (now - self.begin < PATIENCE and not self.shown):
            return
        is_terminal = sys.stderr.isatty()
        if is_terminal or done in (0, total) or done * 10 // total != (done - 1) * 10 // total:
            self.shown = done < total
            click.echo(
                f"{chr(13) if is_terminal else ''}compiled {done} of {total} kernels",
                err=True,
                nl=not is_terminal or done == total,
            )


def first_run(
    session: Session, texts: Sequence[str], sizes: Sizes, shapes: Shapes, seed: int
) -> tuple[dict[str, np.ndarray], list[Any], float]:
    """A feed, the results of the session's first run with it, and the seconds that took."""
    from polyc.onnx.samples import run_drawn

    feed, drawn = _read_feed(session, texts, sizes, shapes, seed)
    begin = time.perf_counter()
    results = run_drawn(lambda f: session.run(None, f), feed, drawn)
    return feed, results, time.perf_counter() - begin


def _read_feed(
    session: Session, texts: Sequence[str], sizes: Sizes, shapes: Shapes, seed: int
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays from files, by name or in order; the rest, whose names are given too, at random."""
    from polyc.onnx.samples import draw_feed

    if any(n is None for n in sizes.values()):
        raise click.BadParameter("a model is compiled for the sizes of its inputs: give numbers", param_hint="--size")
    ports = session.get_inputs()
    names = [p.name for p in ports]
    arrays: dict[str, Any] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or (name not in names and Path(text).exists()):
            free = [n for n in names if n not in arrays]
            if not free:
                message = f"there are only {len(names)} inputs: {', '.join(names)}"
                raise click.BadParameter(message, param_hint="--input")
            name, path = free[0], text
        elif name not in names:
            message = f"no input is named {name}; inputs are: {', '.join(names)}"
            raise click.BadParameter(message, param_hint="--input")
        elif name in arrays:
            raise click.BadParameter(f"{name} is given twice", param_hint="--input")
        arrays[name] = read_array(path)
    return draw_feed(ports, known_sizes(sizes), seed, arrays, shapes), [n for n in names if n not in arrays]


def run_model(
    source: str,
    inputs: Sequence[str],
    sizes: Sizes,
    shapes: Shapes,
    seed: int,
    verify: bool,
    output: str | None,
    strict: bool,
    threads: int | None,
) -> None:
    """``polyc run model.onnx``."""

    session = load_session(source, strict, threads)
    feed, results, first = first_run(session, inputs, sizes, shapes, seed)
    names = [p.name for p in session.get_outputs()]
    if verify:
        who = compare_with_reference(source, names, results, feed)
    best = time_calls(lambda: session.run(None, feed))
    arrays = [(n, r) for n, r in zip(names, results, strict=True) if hasattr(r, "dtype")]
    if output is not None:
        write_results(Path(output), [file_name(n, k) for k, (n, _) in enumerate(arrays)], [a for _, a in arrays])
    for name, result in zip(names, results, strict=True):
        is_number = hasattr(result, "dtype") and result.dtype.kind in "biuf"
        click.echo(describe_array(name, result) if is_number else f"{name}: {type(result).__name__}")
    if verify:
        click.echo(f"verified: the results agree with those of {who}")
    for remark in session.remarks:
        click.echo(str(remark), err=True)
    click.echo(f"the first run took {first:.3f} s; the next ones take {format_time(best)}", err=True)


def compare_with_reference(source: str, names: Sequence[str], results: Sequence[Any], feed: Mapping[str, Any]) -> str:
    """Who agrees; an error where a result differs from what another implementation gives by more than rounding explains."""
    import numpy as np

    from polyc.onnx.reference import run_reference

    who, expected = run_reference(source, feed)
    for name, found, wanted in zip(names, results, expected, strict=True):
        if not isinstance(wanted, np.ndarray):
            continue
        a, b = (np.asarray(x, np.float64) if np.asarray(x).dtype.kind in "fV" else np.asarray(x) for x in (found, wanted))
        is_float = b.dtype.kind == "f"
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)) if is_float else 0.0
        is_equal = a.shape == b.shape
        if is_equal and is_float:
            is_equal = np.allclose(a, b, rtol=1e-3, atol=1e-4 * max(scale, 1e-3), equal_nan=True)
        elif is_equal:
            is_equal = np.array_equal(a, b)
        if not is_equal:
            message = f"the output {name} differs from what {who} computes"
            help = "compare with a second implementation, and report it with the model if polyc is wrong"
            raise ArgumentError(Diagnostic("internal-verify", message, None, help))
    return who


def file_name(name: str, position: int) -> str:
    """A name of a result as that of a file: a model can call its outputs anything, ``../../x`` too."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).strip(".")[:80]
    return safe or f"output{position}"


def explain_model(
    source: str, sizes: Sizes, shapes: Shapes, is_measured: bool, strict: bool, threads: int | None, target: str | None
) -> None:
    """``polyc explain model.onnx``."""
    from polyc.onnx.explain import explain_session

    session = load_session(source, strict, threads, target)
    feed, _, _ = first_run(session, (), sizes, shapes, 0)
    measured = session.profile(feed) if is_measured else None
    click.echo(explain_session(session))
    if measured is not None:
        click.echo(f"\n== measured ==\n{measured}")


def compile_model(
    source: str, sizes: Sizes, shapes: Shapes, target: str | None, output: str | None, weights_beside: bool
) -> None:
    """``polyc compile model.onnx``."""
    from polyc.cli.common import file_error
    from polyc.onnx.ahead import compile_ahead

    path = Path(output) if output is not None else Path(source).with_suffix(".so")
    if path.suffix in (".h", ".weights", ".onnx"):
        raise click.BadParameter(f"{path} is no name for a library; call it {path.with_suffix('.so')}", param_hint="--output")
    if not path.parent.is_dir():
        raise file_error(path, FileNotFoundError(2, "there is no such folder"))
    session = load_session(source, True, None, target)
    feed, _, _ = first_run(session, (), sizes, shapes, 0)
    try:
        written = compile_ahead(session, feed, path, weights_beside=weights_beside)
    except OSError as error:
        raise file_error(error.filename or path, error) from error
    click.echo("\n".join(map(str, written)))


_ROUNDS = 5
_PAUSE = 0.05
"""Seconds in which idle threads of one runtime stop spinning: on all cores, they would take turns with those of the next."""


def time_in_turns(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Durations of each call, which all have `seconds`: in rounds, so that all see the same machine."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            time.sleep(_PAUSE)
            call()
            begin = time.perf_counter()
            count = 0
            while count < 2 or time.perf_counter() - begin < seconds / _ROUNDS:
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
                count += 1
    return times
