"""``polyc explain``: what the compiler understood, decided, and why."""

from __future__ import annotations

import click

from polyc.cli.common import (
    Shapes,
    Sizes,
    Verb,
    differentiate,
    gradient_options,
    guard_errors,
    known_sizes,
    load_operator,
    memory_option,
    model_options,
    parse_shapes,
    set_threads,
    source_options,
)
from polyc.cli.explain_blocks import explain_blocks
from polyc.cli.model import explain_model, is_model, refuse_options
from polyc.cli.passes import disable_option


@click.command("explain", cls=Verb)
@source_options
@gradient_options
@memory_option(
    "With --vjp or --grad: bytes of temporaries, such as 256MiB; steps of a time loop are computed again to keep to it."
)
@click.option(
    "--chunk",
    "chunks",
    multiple=True,
    metavar="INPUT=N,N,…",
    callback=parse_shapes,
    help="Explain the tasks for an input in chunks of these extents (dask arrays); all sizes must be given.",
)
@click.option("--measure", "is_measured", is_flag=True, help="Also run it on random inputs; all sizes must be given.")
@disable_option
@model_options
@guard_errors
def explain_command(
    source: str,
    entry: str | None,
    sizes: Sizes,
    target: str | None,
    vjp: str | None,
    grad: str | None,
    memory: str | None,
    chunks: Shapes,
    is_measured: bool,
    disable: tuple[str, ...],
    strict: bool,
    threads: int | None,
    shapes: Shapes,
) -> None:
    """Show domains, dependences, schedule and tiles with their reasons, and the loops as pseudo-C.

    Of an ONNX model: what is fused into which kernels, which are shared, what is not compiled, and the plan of the memory, for
    the sizes given (dimensions without a number are 1).

    With --measure, time, cycles, operations and bytes of a run stand at the end, on one thread and on all.

    \b
    Examples:
      polyc explain softmax.tc
      polyc explain softmax.tc --size N=64,D=1000 --target x86-64-v4
      polyc explain softmax.tc --size N=64,D=1000 --measure
      polyc explain mm.tc --vjp A --size M=64,K=64,N=64
      polyc explain mm.tc --size M=9000,K=9000,N=9000 --chunk A=3000,3000
      polyc explain pendula.tc --vjp r --memory 64KiB --size N=100,T=200
      polyc explain model.onnx --size batch=8 --measure
    """
    if is_model(source):
        refuse_options(entry=entry, vjp=vjp, grad=grad, memory=memory, disable_pass=disable, chunk=chunks)
        return explain_model(source, sizes, shapes, is_measured, strict, threads, target)
    refuse_options(strict=strict, shape=shapes)
    set_threads(threads)
    operator = differentiate(
        load_operator(source, entry, target, sizes, **({"disable": disable} if disable else {})), vjp, grad, memory
    )
    measured, known = None, known_sizes(sizes)
    if chunks:
        if is_measured or memory is not None:
            raise click.UsageError("--chunk explains without running, and goes neither with --measure nor with --memory")
        return explain_blocks(operator, known, chunks)
    if memory is not None and is_measured:
        raise click.UsageError("--measure counts the cycles of one kernel, and a derivative with --memory is several")
    if memory is not None or is_measured:  # before anything is printed: an error leaves standard output empty
        from polyc.api.samples import join_matrices
        from polyc.cli.run import make_accumulated, make_inputs

        arrays, values = make_inputs(operator.program, {}, known, 0)
        named = {n: v for n, v in values.items() if n not in operator.input_names}
        drawn = dict(zip(operator.program.parameters, arrays, strict=True))
        given = join_matrices(operator.program, drawn, values).values()
        if memory is not None:
            click.echo(operator.explain(*given, **named).rstrip("\n"))
            return
        click.echo(f"measuring {operator.name} on random inputs", err=True)
        out = make_accumulated(operator.program, arrays, values, 0) or None
        measured = operator.measure(*given, out=out, **named)
    click.echo(operator.lower(**known).explain().rstrip("\n"))
    if measured is not None:
        click.echo(f"\n== measured ==\n{measured}")
