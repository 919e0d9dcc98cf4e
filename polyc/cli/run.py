"""``polyc run``: compile, run on given or random inputs, and say what came out."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from polyc.cli.arrays import describe_array, format_time, read_array, time_calls, write_results
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
    set_threads,
    source_options,
)
from polyc.cli.model import is_model, refuse_options, run_model
from polyc.diagnostics import ArgumentError, Diagnostic, PolycWarning

if TYPE_CHECKING:
    import numpy as np

    from polyc.ir.program import Program
    from polyc.runtime.sizes import Formal

MEMORY_HELP = (
    "Bytes to hold at a time (2G): arrays in files, X.npy, X.zarr or F.h5:/NAME, are read and written block by block. "
    "With --vjp or --grad: bytes of temporaries; steps of a time loop are computed again to keep to it."
)


class OutputPath(click.Path):
    """A directory, or a file that holds arrays by name."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(value).is_file():
            from polyc.api.dask_files import is_hdf5

            if is_hdf5(value):
                return value
        return super().convert(value, param, ctx)


@click.command("run", cls=Verb)
@source_options
@gradient_options
@memory_option(MEMORY_HELP)
@click.option("--input", "inputs", multiple=True, metavar="[NAME=]X.npy", help="An input, by name or in order; repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="For the inputs that are not given.")
@click.option("--verify", is_flag=True, help="Compare every element with the reference interpreter (slow).")
@click.option("--output", metavar="DIR", type=OutputPath(), help="Write each result to DIR/NAME.npy.")
@model_options
@guard_errors
def run_command(
    source: str,
    entry: str | None,
    sizes: Sizes,
    target: str | None,
    vjp: str | None,
    grad: str | None,
    memory: str | None,
    inputs: tuple[str, ...],
    seed: int,
    verify: bool,
    output: str | None,
    strict: bool,
    threads: int | None,
    shapes: Shapes,
) -> None:
    """Run an operator or an ONNX model; inputs that are not given are random (the same for the same seed).

    A FILE of - is text on standard input.  A size given as ? is one that the kernel takes at the call; an input says which.

    Prints shape, range, sum and a checksum of each result; times go to standard error.  Sizes of a model are its named
    dimensions; --verify compares it with onnxruntime where that is installed, else with onnx's reference implementation.

    \b
    Examples:
      polyc run softmax.tc --size N=64,D=1000 --verify
      polyc run mm.tc --input a.npy --input B=b.npy --output results
      polyc run mm.tc --input a.npy --input b.npy --output results --memory 2G
      polyc run softmax.tc --input X=big.h5:/x --output y.h5:/y --memory 2G
      polyc run mm.tc --vjp A,B --size M=64,K=64,N=64 --verify
      polyc run pendula.tc --vjp r --memory 64KiB --size N=100,T=200
      cat mm.tc | polyc run - --size M=64,K=64,N=64 --threads 1
      polyc run model.onnx --input x.npy --output results
      polyc run model.onnx --size batch=8 --threads 1 --strict
      polyc run model.onnx --shape x=1,3,224,224
    """
    if seed < 0:
        raise click.BadParameter("must not be negative", param_hint="--seed")
    if is_model(source):
        refuse_options(entry=entry, vjp=vjp, grad=grad, memory=memory, target=target)
        return run_model(source, inputs, sizes, shapes, seed, verify, output, strict, threads)
    refuse_options(strict=strict, shape=shapes)
    set_threads(threads)
    bound = None if vjp is None and grad is None else memory
    operator = differentiate(load_operator(source, entry, target, sizes, verify=verify), vjp, grad, bound)
    program = operator.program
    from polyc.api.dask_files import is_hdf5

    if (memory is None or bound is not None) and (in_hdf5 := [p for p in (*inputs, output or "") if is_hdf5(p)]):
        raise click.BadParameter(
            f"{in_hdf5[0]}: arrays of HDF5 files are read and written with --memory", param_hint="--memory"
        )
    if memory is not None and bound is None:
        from polyc.api.checkpoints import read_bytes
        from polyc.cli.run_blocks import open_input, run_blocks

        if output is None or verify:
            raise click.BadParameter("needs --output, and has no --verify", param_hint="--memory")
        limit = read_bytes(memory)
        files = read_inputs(program, inputs, lambda path: open_input(path, limit))
        return run_blocks(operator, files, known_sizes(sizes), memory, output)
    from polyc.api.samples import join_matrices, result_arrays

    arrays, values = make_inputs(program, read_inputs(program, inputs), known_sizes(sizes), seed)
    start = time.perf_counter()
    named = {n: v for n, v in values.items() if n not in operator.input_names}
    given = list(join_matrices(program, dict(zip(program.parameters, arrays, strict=True)), values).values())
    prepared = operator.schedule(*given, **named) if bound is not None else operator.specialize(*given, **named)
    compilation = time.perf_counter() - start
    out = make_accumulated(program, arrays, values, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolycWarning)
        results = operator(*given, **({"out": out} if out else {}), **named)
    for w in caught:
        warnings.showwarning(w.message, w.category, w.filename, w.lineno)
    is_undecided = any(isinstance(w.message, PolycWarning) and w.message.code == "argument-ill-conditioned" for w in caught)
    shown = [array.copy() for array in result_arrays(results)]
    target_arrays = next(iter(out.values())) if len(out) == 1 == len(program.returns) else out or None
    if bound is not None:
        best = time_calls(lambda: operator(*given, **named))
    else:
        is_plain = not program.compressed  # a kernel has no array that tells columns
        call = functools.partial(prepared, *arrays) if is_plain else functools.partial(operator, *given, **named)
        best = time_calls(lambda: call(out=target_arrays))
    if output is not None:  # before anything is printed: an error leaves standard output empty
        write_results(Path(output), [r.name for r in program.returns], shown)
    for result, array in zip(program.returns, shown, strict=True):
        click.echo(describe_array(result.name, array))
    if verify:
        click.echo(
            "not verified: rounding errors hide whether some elements are right (see the warning); the others agree"
            if is_undecided
            else "verified: every element agrees with the reference interpreter"
        )
    if bound is not None:
        click.echo(str(prepared), err=True)
    click.echo(f"compiled in {compilation:.3f} s; a call takes {format_time(best)}", err=True)


def read_inputs(program: Program, texts: tuple[str, ...], read: Callable[[str], Any] = read_array) -> dict[str, Any]:
    """Arrays by the name of the parameter; those without a name fill the parameters in order."""
    names = list(program.parameters)
    arrays: dict[str, Any] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or (name not in names and Path(text).exists()):
            free = [n for n in names if n not in arrays]
            if not free:
                raise click.BadParameter(f"there are only {len(names)} inputs: {', '.join(names)}", param_hint="--input")
            name, path = free[0], text
        elif name not in names:
            raise click.BadParameter(f"no input is named {name}; inputs are: {', '.join(names)}", param_hint="--input")
        elif name in arrays:
            raise click.BadParameter(f"{name} is given twice", param_hint="--input")
        arrays[name] = read(path)
    return arrays


def make_inputs(
    program: Program, given: dict[str, np.ndarray], sizes: dict[str, int], seed: int
) -> tuple[list[np.ndarray], dict[str, int]]:
    """All inputs in order, random ones where none was given, and the sizes that the call must be given."""
    from polyc.api.samples import draw_array, find_index_limits, sort_segments
    from polyc.api.sources import program_formals
    from polyc.ir.expr import evaluate
    from polyc.ir.magnitude import check_magnitudes
    from polyc.runtime.arguments import check_rank, unknown_name
    from polyc.runtime.sizes import check_size, missing_sizes, number_sizes, solve_sizes

    check_magnitudes(program)
    for name, value in sizes.items():
        if name not in program.sizes:
            raise unknown_name(program.name, name, program.sizes)
        check_size(name, value)
    formals = program_formals(program)
    for formal in formals:
        if formal.name in given:
            check_rank(formal, given[formal.name])
    shapes = {n: a.shape for n, a in given.items()}
    numbers = number_sizes(program.sizes, formals, given)
    values = solve_sizes(formals, shapes, {**sizes, **numbers}, {}, program.defined_sizes)
    problem = missing_sizes(program.sizes, values)
    if problem is not None:
        missing = [n for n in program.sizes if n not in values]
        help = "give them: --size " + ",".join(f"{n}=…" for n in missing)
        raise ArgumentError(Diagnostic(problem.code, f"no value for {', '.join(missing)}", None, help))
    check_inputs_fit(formals, values, given)
    limits = find_index_limits(program, values) if len(given) < len(program.parameters) else {}
    arrays = []
    for formal, name in zip(formals, program.parameters, strict=True):
        if name in given:
            arrays.append(given[name])
        else:
            assert formal.dtype is not None and formal.shape is not None  # the text declares both
            shape = [evaluate(e, values) for e in formal.shape]
            arrays.append(draw_array(name, formal.dtype, shape, seed, limits.get(name)))
    sort_segments(program, values, {n: a for n, a in zip(program.parameters, arrays, strict=True) if n not in given})
    return arrays, {n: values[n] for n in program.sizes}


def check_inputs_fit(formals: Sequence[Formal], sizes: dict[str, int], given: dict[str, np.ndarray]) -> None:
    """``argument-too-large`` before random inputs are drawn that the machine cannot hold."""
    from polyc.ir.expr import evaluate
    from polyc.runtime.arrays import shape_label
    from polyc.runtime.memory import check_memory

    for formal in formals:
        if formal.name not in given and formal.shape is not None and formal.dtype is not None:
            shape = [evaluate(e, sizes) for e in formal.shape]
            check_memory(f"input {formal.name} of shape {shape_label(shape)}", math.prod(shape) * formal.dtype.itemsize)


def make_accumulated(program: Program, arrays: list[np.ndarray], sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Random content for the outputs that are accumulated into, by name."""
    from polyc import recall
    from polyc.api.samples import draw_array

    accumulated = [r for r in program.returns if r.initial is not None]
    if not accumulated:
        return {}
    shapes = recall.infer_shapes(program, sizes)
    return {r.name: draw_array(r.name, program.tensor(r.version).dtype, shapes[r.name][1], seed) for r in accumulated}
