"""``polyc compile``: object code and header, or any stage as text."""

from __future__ import annotations

from pathlib import Path

import click

from polyc.cli.common import (
    STANDARD,
    Shapes,
    Sizes,
    Verb,
    file_error,
    guard_errors,
    known_sizes,
    load_operator,
    name_output,
    parse_shapes,
    source_options,
)
from polyc.cli.model import compile_model, is_model, refuse_options

STAGES = ("program", "scop", "sched", "loops", "ll", "s")


@click.command("compile", cls=Verb)
@source_options
@click.option("--emit", type=click.Choice(STAGES), help="Write this stage as text instead of an object file.")
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
    emit: str | None,
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
      polyc compile op.tc --emit loops                     the loop nest, to read
      polyc compile - --emit loops < op.tc                 of a text from elsewhere
      polyc compile op.tc --emit s --target x86-64-v3      assembly for AVX2
      polyc compile op.tc --target aarch64 -o op_arm.o     for 64-bit ARM
      polyc compile model.onnx --size batch=1 -o model.so  a library and model.h
      polyc compile model.onnx --weights beside            model.so, model.h and model.weights
    """
    if is_model(source):
        refuse_options(entry=entry, emit=emit)
        return compile_model(source, sizes, shapes, target, output, weights == "beside")
    refuse_options(shape=shapes, weights=weights)
    operator = load_operator(source, entry, target, sizes)
    known = known_sizes(sizes)
    if emit is not None:
        text = operator.lower(**known).as_text(emit)
        text = text if text.endswith("\n") else text + "\n"
        if output is None or output == STANDARD:
            click.echo(text, nl=False)
        else:
            spare_source(source, Path(output))
            write_file(Path(output), text.encode())
        return
    if output == STANDARD:
        raise click.BadParameter("an object file and a header are written, so name a file", param_hint="--output")
    own_path = Path(f"{operator.name}.o") if source == STANDARD else Path(source).with_suffix(".o")
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
