"""Binding a call: positional and named arguments to the arrays of the entry point, with every check that can be made.

Nothing here knows what the operator computes: `sizes.Formal` and `ir.signature.ArraySpec` say what is expected, and every
message uses the names and sizes of the user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, fields
from typing import Any

import numpy as np

from polyc.config import Options
from polyc.diagnostics import Diagnostic, PolycError, RangeError, suggest_name
from polyc.ir.expr import evaluate
from polyc.ir.signature import ArraySpec, Signature
from polyc.records import dataclass
from polyc.runtime.arrays import (
    argument_error,
    check_output,
    convert_input,
    is_same_memory,
    overlaps,
    shape_label,
)
from polyc.runtime.sizes import Formal, check_size

Alias = tuple[str, str]
"""Result and input that are exactly the same memory."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call sorted out by name: values of inputs in declared order, sizes, compile-time constants."""

    inputs: tuple[Any, ...]
    sizes: dict[str, int]
    constants: dict[str, Any]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of matrices in compressed rows, which no input is by itself."""
    shape_sizes: dict[str, int] = field(default_factory=dict)
    """The sizes that these tell."""


def count_label(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def sort_arguments(
    operator_name: str,
    inputs: Sequence[str],
    sizes: Collection[str],
    constants: Collection[str],
    args: Sequence[Any],
    named: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Call:
    """Assign positional and named arguments, and `defaults`.  Errors: too many, missing, given twice, unknown name."""
    listing = ", ".join(inputs)
    if len(args) > len(inputs):
        message = f"{operator_name} expected {count_label(len(inputs), 'input')} ({listing}), but got {len(args)}"
        raise argument_error("argument-count", message, None, "results go to out=, sizes and constants by name")
    values: dict[str, Any] = dict(zip(inputs, args, strict=False))
    given_sizes: dict[str, int] = {}
    given_constants: dict[str, Any] = {}
    for name, value in named.items():
        if name in inputs:
            if name in values:
                raise argument_error("argument-twice", f"{name} is given by position and by name", None, "give it once")
            values[name] = value
        elif name in constants:
            given_constants[name] = value
        elif name in sizes:
            given_sizes[name] = check_size(name, value)
        else:
            raise unknown_name(operator_name, name, [*inputs, *sizes, *constants])
    n_given = len(values)
    values = {**(defaults or {}), **values}
    missing = [n for n in inputs if n not in values]
    if missing:
        message = (
            f"{operator_name} expected {count_label(len(inputs), 'input')} ({listing}), "
            f"but got {n_given}: {', '.join(missing)} missing"
        )
        raise argument_error("argument-count", message, None, "give inputs by position or by name")
    return Call(tuple(values[n] for n in inputs), given_sizes, given_constants)


def unknown_name(operator_name: str, name: str, known: Sequence[str]) -> PolycError:
    message = f"{operator_name} has no input, size or constant named {name}"
    if name in (*(f.name for f in fields(Options)), "dynamic", "sizes"):
        help = f"{name} is an option: give it to polyc.compile, or to @polyc.op(...)"
        return argument_error("argument-name", message, None, help)
    return argument_error("argument-name", message, None, with_suggestion(name, known, "its names are"))


def with_suggestion(name: str, known: Sequence[str], listing: str) -> str:
    """Help for a name that is not among `known`: the nearest, and all of them."""
    close = suggest_name(name, known)
    every = f"{listing}: {', '.join(known) or 'none'}"
    return f"{close} ({every})" if close else every


def convert_inputs(formals: Sequence[Formal], values: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Arrays of the declared element types and ranks; weak numbers where an input takes them."""
    return tuple(
        check_rank(f, convert_input(v, f.name, f.dtype, f.span, f.takes_weak)) for f, v in zip(formals, values, strict=True)
    )


def check_rank(formal: Formal, array: np.ndarray) -> np.ndarray:
    if formal.shape is not None and array.ndim != len(formal.shape):
        raise rank_error(formal, array.shape)
    return array


def rank_error(formal: Formal, shape: tuple[int, ...]) -> PolycError:
    rank = len(formal.shape or ())
    found = f"found tensor with {count_label(len(shape), 'dimension')} (shape {shape_label(shape)})"
    if rank == 0:
        message = f"{formal.name}: expected a tensor with 0 dimensions (a scalar), but {found}"
    else:
        message = f"{formal.name}: expected {count_label(rank, 'dimension')} but {found}"
    return argument_error("argument-rank", message, formal.span, "reshape the array, or change the declaration")


def result_specs(signature: Signature) -> tuple[ArraySpec, ...]:
    return tuple(a for a in signature.arrays if a.role in ("output", "inout"))


def constant_specs(signature: Signature) -> tuple[ArraySpec, ...]:
    """What was made of bound inputs; in the argument block it stands between inputs and results."""
    return tuple(a for a in signature.arrays if a.role == "constant")


def input_specs(signature: Signature) -> tuple[ArraySpec, ...]:
    return tuple(a for a in signature.arrays if a.role == "input")


def sort_outputs(names: Sequence[str], accumulated: Collection[str], out: Any) -> tuple[Any, ...]:
    """What was given for each result (None: allocate).  `out` is None, an array, a tuple or list, or a dict by name."""
    values: tuple[Any, ...]
    if out is None:
        values = (None,) * len(names)
    elif isinstance(out, Mapping):
        for name in out:
            if name not in names:
                help = with_suggestion(str(name), names, "results are")
                raise argument_error("argument-out-name", f"there is no result named {name}", None, help)
        values = tuple(out.get(name) for name in names)
    elif isinstance(out, (tuple, list)):
        if len(out) != len(names):
            message = f"expected {count_label(len(names), 'output')} ({', '.join(names)}), but out has {len(out)}"
            raise argument_error("argument-out-count", message, None, "give None where an array should be allocated")
        values = tuple(out)
    else:
        if len(names) != 1:
            message = f"expected {count_label(len(names), 'output')} ({', '.join(names)}), but out is one {type(out).__name__}"
            raise argument_error("argument-out-count", message, None, "give a tuple, or a dict by name")
        values = (out,)
    for name, value in zip(names, values, strict=True):
        if value is None and name in accumulated:
            raise argument_error(
                "argument-out-required",
                f"{name} is accumulated into, so its content before the call matters and no array was given for it",
                None,
                f"give it: out={{{name!r}: array}}; or initialise it in the operator (`+=!` in .tc)",
            )
    return values


def convert_outputs(
    specs: Sequence[ArraySpec], values: Sequence[Any], sizes: Mapping[str, int]
) -> tuple[np.ndarray | None, ...]:
    """Writable arrays for the outputs that were given, checked against the shapes that the sizes imply."""
    return tuple(
        None if v is None else check_output(v, s.name, s.dtype, result_shape(s, sizes))
        for s, v in zip(specs, values, strict=True)
    )


def result_shape(spec: ArraySpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Extents of a result; `range-negative` where one is negative at these sizes."""
    shape = tuple(evaluate(e, sizes) for e in spec.shape)
    for dimension, extent in enumerate(shape):
        if extent < 0:
            where = ", ".join(f"{n}={v}" for n, v in sizes.items())
            raise RangeError(
                Diagnostic(
                    "range-negative",
                    f"dimension {dimension} of {spec.name} would have extent {extent} at {where}",
                    None,
                    "the inputs are too small for this operator",
                )
            )
    return shape


def find_aliases(
    input_names: Sequence[str],
    inputs: Sequence[np.ndarray],
    output_names: Sequence[str],
    outputs: Sequence[np.ndarray | None],
) -> tuple[Alias, ...]:
    """Outputs that are exactly an input.  Any other overlap, or two outputs sharing memory, is an `ArgumentError`."""
    aliases: list[Alias] = []
    for i, (name, output) in enumerate(zip(output_names, outputs, strict=True)):
        if output is None:
            continue
        for other_name, other in zip(output_names[:i], outputs[:i], strict=True):
            if other is not None and overlaps(output, other):
                raise argument_error(
                    "argument-overlap", f"out for {name} and out for {other_name} share memory", None, "pass separate arrays"
                )
        for input_name, array in zip(input_names, inputs, strict=True):
            if is_same_memory(output, array):
                aliases.append((name, input_name))
            elif overlaps(output, array):
                raise argument_error(
                    "argument-overlap",
                    f"out for {name} shares part of its memory with {input_name}",
                    None,
                    f"pass an array of its own as out, or a copy of {input_name}",
                )
    return tuple(aliases)


def check_input_strides(spec: ArraySpec, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """A kernel specialised for byte strides takes no others (dimensions of extent 1 do not matter)."""
    if spec.strides is None or 0 in shape:
        return
    for dimension, (expected, actual, extent) in enumerate(zip(spec.strides, strides, shape, strict=True)):
        if expected is not None and extent > 1 and expected != actual:
            raise argument_error(
                "argument-strides",
                f"{spec.name} has stride {actual} bytes in dimension {dimension}, but this kernel was compiled for {expected}",
                None,
                "call the operator, which picks a kernel by layout, or pass a contiguous array",
            )


def signature_formals(signature: Signature) -> tuple[Formal, ...]:
    """Declarations of the inputs and accumulated outputs of a kernel."""
    return tuple(Formal(a.name, a.dtype, a.shape) for a in signature.arrays if a.role == "input")
