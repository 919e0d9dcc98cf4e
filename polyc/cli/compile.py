"""``polyc compile``: object code and header, or any stage as text."""

from __future__ import annotations

from pathlib import Path

import click

from polyc.cli.common import (
    STANDARD,
    Shapes,
    Sizes,
    Verb,
    differentiate,
    file_error,
    gradient_options,
    guard_errors,
    known_sizes,
    load_operator,
    name_output,
    parse_shapes,
    source_options,
)
from polyc.cli.model import compile_model, is_model, refuse_options
from polyc.cli.passes import STAGES, describe_changes, describe_times, disable_option, emit_stage, parse_emit
from polyc.passes import recording


@click.command("compile", cls=Verb)
@source_options
@gradient_options
@click.option(
    "--emit",
    metavar=f"[{'|'.join(STAGES)}|STAGE:after=PASS]",
    callback=parse_emit,
    help="Write this stage as text instead of an object file; program and loops also before or after one pass.",
)
@disable_option
@click.option("--print-changed", is_flag=True, help="Show on standard error what each pass changes.")
@click.option("--time-passes", is_flag=True, help="Show on standard error how long each pass takes.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    callback=name_output,
    help="Where to write.",
)
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=N,N,…", callback=parse_shapes, help="ONNX: shape of an input.")
@click.option("--weights", type=click.Choice(("inside", "beside")), help="ONNX: in the library (default), or a file beside it.")
@guard_errors
def compile_command(
    source: str,
    entry: str | None,
    sizes: Sizes,
    target: str | None,
    vjp: str | None,
    grad: str | None,
    emit: str | None,
    disable: tuple[str, ...],
    print_changed: bool,
    time_passes: bool,
    output: str | None,
    shapes: Shapes,
    weights: str | None,
) -> None:
    """Compile an operator to an object file, or an ONNX model to a shared library, and a C header beside it.

    A FILE of - is text on standard input, and the object file then has the operator's name.

    Sizes that are not given, or given as ?, stay symbolic: they are arguments of the compiled function.  With --emit, one
    stage of the compilation is written as text, to standard output unless -o says otherwise.

    A model is compiled for the shapes of its inputs, which --size (named dimensions) and --shape tell, into a library with one
    function; its header says how to call it.  It is linked by the system's C compiler.

    \b
    Examples:
      polyc compile op.tc                                  op.o and op.h, for any sizes
      polyc compile op.tc --size M=128,K=64 -o op128.o     op128.o and op128.h
      polyc compile op.tc --size B=? --size S=512          for any B
      polyc compile mm.tc --vjp A,B                        mm_vjp.o and mm_vjp.h, its derivative
      polyc compile op.tc --emit loops                     the loop nest, to read
      polyc compile - --emit loops < op.tc                 of a text from elsewhere
      polyc compile op.tc --emit loops:after=partition-loops
      polyc compile op.tc --disable-pass stream-stores     without non-temporal stores
      polyc compile op.tc --emit ll --print-changed        what each pass changes, on standard error
      polyc compile op.tc --emit s --target x86-64-v3      assembly for AVX2
      polyc compile op.tc --target aarch64 -o op_arm.o     for 64-bit ARM
      polyc compile model.onnx --size batch=1 -o model.so  a library and model.h
      polyc compile model.onnx --weights beside            model.so, model.h and model.weights
    """
    if is_model(source):
        refuse_options(
            entry=entry,
            vjp=vjp,
            grad=grad,
            emit=emit,
            disable_pass=disable,
            print_changed=print_changed,
            time_passes=time_passes,
        )
        return compile_model(source, sizes, shapes, target, output, weights == "beside")
    refuse_options(shape=shapes, weights=weights)
    operator = differentiate(
        load_operator(source, entry, target, sizes, **({"disable": disable} if disable else {})), vjp, grad
    )
    known = known_sizes(sizes)
    if emit is not None or print_changed or time_passes:
        with recording() as sessions:
            lowered = operator.lower(**known)
        if print_changed:
            click.echo(describe_changes(lowered.session.ran), err=True)
        if time_passes:
            click.echo(describe_times(sessions), err=True)
    if emit is not None:
        text = emit_stage(lowered, emit)
        text = text if text.endswith("\n") else text + "\n"
        if output is None or output == STANDARD:
            click.echo(text, nl=False)
        else:
            spare_source(source, Path(output))
            write_file(Path(output), text.encode())
        return
    if output == STANDARD:
        raise click.BadParameter("an object file and a header are written, so name a file", param_hint="--output")
    name = Path(f"{operator.name}.o")
    is_derivative = vjp is not None or grad is not None
    own_path = (
        name if source == STANDARD else Path(source).with_name(name.name) if is_derivative else Path(source).with_suffix(".o")
    )
    path = Path(output) if output is not None else own_path
    if path.suffix == ".h":
        raise click.BadParameter(f"{path} is where the header goes; name the object file", param_hint="--output")
    spare_source(source, path, path.with_suffix(".h"))
    made = operator.compiled(**known)
    code, header = made.object_code(), made.c_header()
    write_file(path, code)
    write_file(path.with_suffix(".h"), header.encode())
    click.echo(f"{path}\n{path.with_suffix('.h')}")


def spare_source(source: str, *paths: Path) -> None:
    """Refuse to write over the text that is compiled."""
    for path in paths:
        if source != STANDARD and path.exists() and path.samefile(source):
            raise click.BadParameter(f"{path} is the text that is compiled; name another file", param_hint="--output")


def write_file(path: Path, content: bytes) -> None:
    """In one step: where the disk is full, the file that was there stays."""
    from polyc.codegen.objects.aot import write_object

    try:
        write_object(content, path)
    except OSError as error:
        raise file_error(path, error) from error
