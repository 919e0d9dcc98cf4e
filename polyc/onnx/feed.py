"""What a run is given, checked against what the model declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, PolycError
from polyc.frontends.onnx.element_types import numpy_type
from polyc.frontends.onnx.graph import Port
from polyc.ir.types import from_numpy
from polyc.runtime.arrays import convert_input, overlaps


def check_output_names(outputs: Sequence[Port], names: Sequence[str] | None) -> list[str]:
    """The names of the outputs that a run gives; raises ArgumentError for one that the model does not have."""
    known = [p.name for p in outputs]
    if names is None:
        return known
    if isinstance(names, str):
        message = f"output_names is the string {names!r}"
        raise ArgumentTypeError(Diagnostic("argument-type-onnx-outputs", message, None, f"pass a list: run([{names!r}], feed)"))
    if not isinstance(names, Iterable):
        message = f"the names of outputs are a list, not {type(names).__name__}"
        raise ArgumentTypeError(
            Diagnostic("argument-type-onnx-outputs", message, None, f"pass a list, run({known[:1]}, feed), or None for all")
        )
    names = list(names)
    for name in names:
        if name not in known:
            message = f"the model has no output {name!r}"
            raise ArgumentError(Diagnostic("argument-onnx-output", message, None, f"its outputs are: {', '.join(known)}"))
    return names


Plain = dict[str, tuple[np.dtype, tuple[int | str | None, ...]]]
"""Element types and declared shapes of inputs, by name."""


def plain_inputs(inputs: Sequence[Port]) -> Plain | None:
    """What `is_plain` compares with; None where an input is no tensor of numbers with a declared shape."""
    found: Plain = {}
    for port in inputs:
        dtype = numpy_type(port.type) if port.is_tensor else None
        if dtype is None or port.shape is None:
            return None
        found[port.name] = dtype, tuple(port.shape)
    return found


def is_plain(plain: Plain | None, feed: Any) -> bool:
    """Whether a feed has NumPy arrays of the declared types and shapes for all inputs and nothing else, as most have: then
    nothing is left to be checked or converted."""
    if plain is None or type(feed) is not dict or len(feed) != len(plain):
        return False
    for name, (dtype, declared) in plain.items():
        value = feed.get(name)
        if type(value) is not np.ndarray or value.dtype != dtype:
            return False
        shape = value.shape
        if shape != declared and (
            len(shape) != len(declared) or any(n != d for n, d in zip(shape, declared, strict=True) if isinstance(d, int))
        ):
            return False
    return True


def check_feed(inputs: Sequence[Port], defaults: Mapping[str, Port], feed: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by name.  Raises ArgumentError or ArgumentTypeError, for all that is wrong at once."""
    if not isinstance(feed, Mapping):
        message = f"the inputs of a run are given by name, not as {type(feed).__name__}"
        example = inputs[0].name if inputs else "x"
        raise ArgumentTypeError(
            Diagnostic("argument-type-onnx-feed", message, None, f"pass a dict: run(None, {{{example!r}: array}})")
        )
    if len(feed) == len(inputs) and all(_is_as_declared(p, feed.get(p.name)) for p in inputs):
        return dict(feed)
    errors: list[Diagnostic] = []
    ports = {p.name: p for p in inputs} | dict(defaults)
    for name in feed:
        if name not in ports:
            known = ", ".join(ports) or "none"
            errors.append(
                Diagnostic("argument-onnx-input", f"the model has no input {name!r}", None, f"its inputs are: {known}")
            )
    for port in inputs:
        if port.name not in feed and not port.type.startswith("optional("):
            message = f"the input {port.name!r} ({describe_port(port)}) is missing"
            errors.append(Diagnostic("argument-onnx-input", message, None, "give it in the dict of inputs"))
    found: dict[str, Any] = {p.name: None for p in inputs if p.name not in feed and p.type.startswith("optional(")}
    for name, value in feed.items():
        if name in ports:
            found[name] = _check_value(ports[name], value, errors)
    if errors:
        is_type = all(e.code.startswith("argument-type") for e in errors)
        raise (ArgumentTypeError if is_type else ArgumentError)(*errors)
    return found


def check_out(outputs: Sequence[Port], out: Mapping[str, np.ndarray], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Those arrays of `out` that kernels may write directly; raises for one that cannot be a result.

    Shapes are known when the results are."""
    known = [p.name for p in outputs]
    if not isinstance(out, Mapping):
        message = f"the arrays of out are given by the names of outputs, not as {type(out).__name__}"
        raise ArgumentTypeError(
            Diagnostic("argument-type-onnx-outputs", message, None, f"pass a dict: out={{{(known or ['y'])[0]!r}: array}}")
        )
    direct: dict[str, np.ndarray] = {}
    seen: list[np.ndarray] = []
    for name, array in out.items():
        if name not in known:
            message = f"the model has no output {name!r}"
            raise ArgumentError(Diagnostic("argument-onnx-output", message, None, f"its outputs are: {', '.join(known)}"))
        problem = None
        if not isinstance(array, np.ndarray):
            problem = f"is no NumPy array but {type(array).__name__}"
        elif not array.flags.writeable:
            problem = "cannot be written to"
        elif any(overlaps(array, other) for other in seen):
            problem = "shares memory with another result"
        elif any(overlaps(array, v) for v in given.values() if isinstance(v, np.ndarray)):
            problem = "shares memory with an input"
        if problem is not None:
            message = f"out[{name!r}] {problem}"
            raise ArgumentError(Diagnostic("argument-onnx-out", message, None, "give a writable array of its own"))
        seen.append(array)
        if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
            direct[name] = array
    return direct


def _is_as_declared(port: Port, value: Any) -> bool:
    """Whether an array is certainly what `_check_value` would give for it; most are."""
    if type(value) is not np.ndarray or port.shape is None or value.ndim != len(port.shape):
        return False
    if not port.is_tensor or value.dtype != numpy_type(port.type) or not value.dtype.isnative:
        return False
    return all(n == declared or not isinstance(declared, int) for n, declared in zip(value.shape, port.shape, strict=True))


def _check_value(port: Port, value: Any, errors: list[Diagnostic]) -> Any:
    if not port.is_tensor:
        return value
    wanted = numpy_type(port.type)
    try:
        array = _as_array(port, wanted, value)
    except PolycError as error:
        errors += error.diagnostics
        return None
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        message = f"the input {port.name!r} is no array of {port.type}: {error}"
        errors.append(Diagnostic("argument-type-onnx-input", message, None, "give a NumPy array"))
        return None
    if wanted is not None and array.dtype.newbyteorder("=") != wanted:
        message = f"the input {port.name!r} has element type {array.dtype}, but the model declares {wanted}"
        errors.append(Diagnostic("argument-type-onnx-input", message, None, f"convert it: x.astype(np.{wanted})"))
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if port.shape is None:
        return array
    if array.ndim != len(port.shape):
        message = f"the input {port.name!r} has shape {array.shape}, but the model declares {describe_port(port)}"
        errors.append(Diagnostic("argument-onnx-shape", message, None, f"give it {len(port.shape)} dimensions"))
        return array
    for d, (n, declared) in enumerate(zip(array.shape, port.shape, strict=True)):
        if isinstance(declared, int) and n != declared:
            message = f"dimension {d} of the input {port.name!r} is {n}, but the model declares {declared}"
            errors.append(Diagnostic("argument-onnx-shape", message, None, f"the whole shape is {describe_port(port)}"))
    return array


def _as_array(port: Port, wanted: np.dtype | None, value: Any) -> np.ndarray:
    """What `value` means as an array; anything but a NumPy array as operators take it, where they have its element type."""
    dtype = None if wanted is None else from_numpy(wanted)
    if dtype is None or type(value) is np.ndarray or isinstance(value, (np.generic, np.memmap)):
        return np.asarray(value)
    return convert_input(value, port.name, dtype)


def describe_port(port: Port) -> str:
    """``float[n, 3, 224, 224]``."""
    kind = port.type.removeprefix("tensor(").removesuffix(")") if port.is_tensor else port.type
    if port.shape is None:
        return kind
    return f"{kind}[{', '.join('?' if d is None else str(d) for d in port.shape)}]"
