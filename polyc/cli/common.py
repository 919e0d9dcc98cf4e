"""What the verbs share: options, sizes, and turning errors and warnings into diagnostics on standard error."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

import click

from polyc.crash import describe_crash
from polyc.diagnostics import MOST_SHOWN, ArgumentError, Diagnostic, PolycError, PolycWarning
from polyc.machine import MODELS

F = TypeVar("F", bound=Callable[..., Any])

STANDARD = "-"
"""The file name that means standard input or output."""
SIZE_HELP = "Value of a size symbol, ? for any; several with commas, or the option again."
_SIZE = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9.:/-]*)\s*=\s*([0-9]+|\?)\s*")

Sizes = dict[str, int | None]
"""Sizes of the command line by name; None: any."""


def parse_sizes(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Sizes:
    """``("M=128,K=64", "N=?")`` as a dictionary; anything else is a usage error."""
    sizes: Sizes = {}
    for part in ",".join(values).split(",") if values else ():
        match = _SIZE.fullmatch(part)
        if match is None:
            message = f"{part[:80]!r} is not of the form NAME=NUMBER with a number of 0 or more, such as N=128, or N=?"
            raise click.BadParameter(message, context, parameter)
        if len(match[2]) > 100:
            raise click.BadParameter(f"{match[1]} is a number of {len(match[2])} digits", context, parameter)
        name, number = match[1], None if match[2] == "?" else int(match[2])
        if sizes.setdefault(name, number) != number:
            given = "?" if sizes[name] is None else sizes[name]
            raise click.BadParameter(f"{name} is given as {given} and as {match[2]}", context, parameter)
    return sizes


def name_source(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The file name of a source; a usage error where it is empty, which a shell makes of a variable that is not set."""
    if not value:
        raise click.BadParameter("the name is empty", context, parameter)
    return value


def name_output(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The name of a file to write; a usage error where it is none."""
    if value is not None and (not value or value.endswith(("/", os.sep))):
        raise click.BadParameter(f"{value!r} is no name of a file", context, parameter)
    return value


def source_options(function: F) -> F:
    """The argument and options of every verb that reads an operator."""
    function = click.option(
        "--target", type=click.Choice(tuple(MODELS)), help="Instruction set to compile for (default: this machine's)."
    )(function)
    function = click.option("--size", "sizes", multiple=True, metavar="NAME=N[,NAME=N…]", callback=parse_sizes, help=SIZE_HELP)(
        function
    )
    function = click.option("--entry", metavar="NAME", help="The def to take where the file has several.")(function)
    return click.argument("source", metavar="FILE", callback=name_source)(function)


def gradient_options(function: F) -> F:
    """Options of the verbs that take a derivative in the place of an operator."""
    for mode, what in (("vjp", "products of cotangents with the Jacobian"), ("grad", "the gradient of the scalar result")):
        option = click.option(f"--{mode}", metavar="X[,Y…]", help=f"Take {what}, by these inputs, in the operator's place.")
        function = option(function)
    return function


def memory_option(help: str) -> Callable[[F], F]:
    """The option of the verbs that keep to a bound of memory, or explain how."""
    return click.option("--memory", metavar="BYTES", help=help)


def differentiate(operator: Any, vjp: str | None, grad: str | None, memory: str | None = None) -> Any:
    """The derivative that `gradient_options` ask for, or the operator itself."""
    if vjp is not None and grad is not None:
        raise click.UsageError("--vjp and --grad are two derivatives: give one of them")
    if memory is not None and vjp is None and grad is None:
        raise click.UsageError("--memory bounds the temporaries of a derivative: give --vjp or --grad, too")
    bound: dict[str, Any] = (
        {} if memory is None else {"memory": int(memory) if memory.isascii() and memory.isdigit() else memory}
    )
    for mode, names in (("vjp", vjp), ("grad", grad)):
        if names is not None:
            return getattr(operator, mode)(wrt=tuple(n.strip() for n in names.split(",") if n.strip()), **bound)
    return operator


Shapes = dict[str, tuple[int, ...]]
"""Shapes of the command line by the names of inputs."""


def parse_shapes(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Shapes:
    """``("x=1,3,224,224",)`` as a dictionary; anything else is a usage error."""
    shapes: Shapes = {}
    for text in values:
        name, equals, extents = text.rpartition("=")
        parts = [e.strip() for e in extents.split(",")] if extents.strip() else []
        if not equals or not all(e.isascii() and e.isdigit() and len(e) < 19 for e in parts):
            message = f"{text[:80]!r} is not of the form INPUT=N,N,…, such as x=1,3,224,224"
            raise click.BadParameter(message, context, parameter)
        shapes[name.strip()] = tuple(map(int, parts))
    return shapes


def model_options(function: F) -> F:
    """Options of the verbs that run ONNX models."""
    function = click.option(
        "--shape", "shapes", multiple=True, metavar="INPUT=N,N,…", callback=parse_shapes, help="ONNX: shape of an input."
    )(function)
    function = click.option("--strict", is_flag=True, help="ONNX: nodes that polyc does not compile are an error.")(function)
    return click.option("--threads", type=click.IntRange(min=1), help="Threads of a run (default: all cores).")(function)


def load_operator(source: str, entry: str | None, target: str | None, sizes: Sizes, **options: Any) -> Any:
    """The operator in the file `source` (``-``: standard input), with the sizes that are given as ``?`` symbolic; its text is
    read whatever the file is called."""
    from pathlib import Path

    from polyc.api import functions

    if target is not None:
        options["target"] = target
    dynamic = tuple(n for n, value in sizes.items() if value is None) or "auto"
    if source == STANDARD and sys.stdin is None:
        raise ArgumentError(
            Diagnostic("argument-file", "standard input is closed", None, "name a file, or give a text: < op.tc")
        )
    if source != STANDARD:
        return functions.compile(Path(source), entry, dynamic=dynamic, **options)
    text = functions.decode_text(sys.stdin.buffer.read(functions.MOST_TEXT + 1), "<stdin>")
    return functions.compile_text(text, "<stdin>", entry, functions.make_options(options), {}, dynamic)


def set_threads(n: int | None) -> None:
    """For kernels of this process; None leaves the default."""
    from polyc.runtime.threads import set_num_threads

    if n is not None:
        set_num_threads(n)


def known_sizes(sizes: Sizes) -> dict[str, int]:
    """Those that are numbers."""
    return {n: value for n, value in sizes.items() if value is not None}


class Verb(click.Command):
    """A command that says how to give what stands behind the file by itself: ``polyc run op.tc a.npy``."""

    allow_extra_args = True

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        rest = super().parse_args(context, arguments)
        if context.args and not context.resilient_parsing:
            options = {option for p in self.params for option in p.opts}
            raise click.UsageError(f"unexpected {context.args[0]!r}: {_say_option(context.args[0], options)}", context)
        return rest


def _say_option(text: str, options: set[str]) -> str:
    """How a verb with these options takes what was given without one."""
    if text.endswith(".npy") and "--input" in options:
        return f"inputs are given with --input {text}"
    if "--size" in options and all(_SIZE.fullmatch(part) for part in text.split(",")):
        return f"sizes are given with --size {text}"
    if "--output" in options and "-o" in options and not text.endswith((".tc", ".onnx")):
        return f"the file to write is given with -o {text}"
    return "there is one FILE, and all else is given by options"


def guard_errors(function: F) -> F:
    """Show errors as diagnostics and leave with exit code 1; warnings as diagnostics too."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with show_warnings():
            try:
                return function(*args, **kwargs)
            except PolycError as error:
                show_diagnostics(error.diagnostics)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except BrokenPipeError:
                raise  # click leaves quietly: the reader of our output has gone
            except (MemoryError, RecursionError) as error:
                message = (
                    "there is not enough memory for these sizes" if isinstance(error, MemoryError) else "nested too deeply"
                )
                show_diagnostics([Diagnostic("argument-too-large", message, None, "try smaller sizes")])
            except OSError as error:
                show_file_error(error)
            except Exception as error:
                if is_interrupted(error):
                    raise KeyboardInterrupt from error
                show_diagnostics(describe_crash(error).diagnostics)
        sys.exit(1)

    return guarded  # type: ignore[return-value]


def show_file_error(error: OSError) -> None:
    """Show what is wrong with a file, or with standard output where there is none.

    What standard output could not take is dropped: Python would write it at its end again, fail again and say so."""
    show_diagnostics(file_error(error.filename or "standard output", error).diagnostics)
    if error.filename is None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_interrupted(error: BaseException | None) -> bool:
    """Whether an error comes of Ctrl-C: what is interrupted while modules are read is told by errors of other kinds, too."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def file_error(path: object, error: Exception) -> PolycError:
    reason = getattr(error, "strerror", None) or str(error)
    return ArgumentError(
        Diagnostic("argument-file", f"cannot use {path}: {reason}", None, "check the path and its permissions")
    )


@contextmanager
def show_warnings() -> Iterator[None]:
    """Show `PolycWarning`s as diagnostics, once each."""
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if isinstance(message, PolycWarning):
            if str(message) not in shown:
                shown.add(str(message))
                show_diagnostics([message.diagnostic])
        else:
            original(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PolycWarning)
        original = warnings.showwarning
        warnings.showwarning = show
        yield


def show_diagnostics(diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
    """On standard error; coloured where that is a terminal."""
    for diagnostic in diagnostics[:MOST_SHOWN]:
        text = diagnostic.render()
        if not sys.stderr.isatty():
            click.echo(text, err=True)
            continue
        from rich.console import Console
        from rich.text import Text

        head, _, rest = text.partition("\n")
        styled = Text(head, style="bold red" if diagnostic.severity == "error" else "bold yellow")
        styled.append(f"\n{rest}" if rest else "", style="default")
        styled.highlight_regex(r"(?m)^ *\| +(\^+)", style="bold red")
        styled.highlight_regex(r"(?m)^ +help:", style="bold cyan")
        Console(stderr=True, soft_wrap=True).print(styled, highlight=False)
    if len(diagnostics) > MOST_SHOWN:
        click.echo(f"… and {len(diagnostics) - MOST_SHOWN} more", err=True)
