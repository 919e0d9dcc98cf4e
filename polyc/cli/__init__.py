"""The command line: ``polyc compile``, ``run``, ``explain``, ``bench``, ``doctor``, ``cache``, ``calibrate`` and ``passes``.

Results go to standard output and nothing else does; diagnostics, warnings and timings go to standard error.  An error
of the user's is shown as a diagnostic and ends with exit code 1, a wrong command line with 2.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from polyc.cli.bench import bench_command
from polyc.cli.cache import cache_command
from polyc.cli.calibrate import calibrate_command
from polyc.cli.common import show_file_error
from polyc.cli.compile import compile_command
from polyc.cli.doctor import doctor_command
from polyc.cli.explain import explain_command
from polyc.cli.passes import passes_command
from polyc.cli.run import run_command
from polyc.config import VERSION


class Commands(click.Group):
    """A group of which help and version, too, show what keeps them from being written as a diagnostic."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            show_file_error(error)
            sys.exit(1)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and args[0].endswith((".tc", ".onnx")):
            context.fail(f"{args[0]!r} is a file, and a command stands before it: run {args[0]}")
        return super().resolve_command(context, args)


@click.group("polyc", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="polyc")
def main() -> None:
    """Compile tensor operators written in Einstein notation, and ONNX models.

    \b
    Examples:
      polyc run softmax.tc --size N=64,D=1000 --verify
      polyc compile softmax.tc --size N=64 --size D=1000 -o softmax.o
      polyc compile softmax.tc --emit loops
      polyc explain softmax.tc --size N=64,D=1000
      polyc run model.onnx --input x.npy
      polyc bench model.onnx --peers onnxruntime
      polyc doctor
      polyc calibrate
      polyc cache info
      polyc passes
    """


for _command in (
    compile_command,
    run_command,
    explain_command,
    bench_command,
    doctor_command,
    calibrate_command,
    cache_command,
    passes_command,
):
    main.add_command(_command)
