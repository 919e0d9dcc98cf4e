"""The command line: ``polyc compile``, ``run``, ``explain``, ``bench``, ``doctor`` and ``cache``.

Results go to standard output and nothing else does; diagnostics, warnings and timings go to standard error.  An error
of the user's is shown as a diagnostic and ends with exit code 1, a wrong command line with 2.
"""

from __future__ import annotations

import click

from polyc.cli.bench import bench_command
from polyc.cli.cache import cache_command
from polyc.cli.compile import compile_command
from polyc.cli.doctor import doctor_command
from polyc.cli.explain import explain_command
from polyc.cli.run import run_command


@click.group("polyc", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="polyc", prog_name="polyc")
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
      polyc cache info
    """


for _command in (compile_command, run_command, explain_command, bench_command, doctor_command, cache_command):
    main.add_command(_command)
