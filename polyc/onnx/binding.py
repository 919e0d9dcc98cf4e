"""Inputs and outputs bound to memory once, for runs that use the same again and again: onnxruntime's ``io_binding``."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx.helper

from polyc.diagnostics import ArgumentError, Diagnostic
from polyc.frontends.onnx.element_types import onnx_name
from polyc.ir.types import from_numpy

if TYPE_CHECKING:
    from polyc.onnx.session import Session


class OrtValue:
    """What a bound output holds after a run, or an array to be bound, under onnxruntime's name."""

    def __init__(self, value: Any, type_name: str) -> None:
        self._value, self._type = value, type_name

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """The value that is this array, not a copy of it; raises as `IOBinding` where the device is not ``"cpu"``."""
        _check_device("the array", device_type)
        array = np.asarray(numpy_obj)
        dtype = from_numpy(array.dtype)
        return OrtValue(array, f"tensor({array.dtype.name if dtype is None else onnx_name(dtype)})")

    def numpy(self) -> Any:
        """The array itself, not a copy."""
        return self._value

    def shape(self) -> list[int]:
        return list(np.shape(self._value))

    def data_type(self) -> str:
        """``tensor(float)``."""
        return self._type

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def has_value(self) -> bool:
        return self._value is not None

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(np.asarray(self._value).ctypes.data)


class IOBinding:
    """Arrays by the names of inputs and outputs, for `Session.run_with_iobinding`.

    Contents of bound inputs are read, and those of bound outputs written, at each run.  All memory is the processor's; where a
    device is named, it has to be ``"cpu"`` (ArgumentError ``argument-onnx-device``)."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Let the input `name` be this array; names and types are checked when the model runs."""
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Let the input `name` be the array behind a value with a method ``numpy()``."""
        self._inputs[name] = ortvalue.numpy()

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Let the input `name` be the contiguous elements at the address `buffer_ptr`, which the caller keeps valid.

        `element_type`: a NumPy type, or the number of one of ONNX's."""
        self._inputs[name] = _view_memory(name, device_type, element_type, shape, buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for the output `name`: in new memory at each run, or, with the other arguments, at an address."""
        if buffer_ptr is None:
            _check_device(name, device_type)
            self._outputs[name] = None
        else:
            self._outputs[name] = _view_memory(name, device_type, element_type, shape or (), buffer_ptr)

    def bind_cpu_output(self, name: str, array: np.ndarray) -> None:
        """Let the output `name` be written to this array."""
        self._outputs[name] = array

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Let the output `name` be written to the array behind a value with a method ``numpy()`` that copies nothing."""
        self._outputs[name] = ortvalue.numpy()

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing is under way when a function of this session has returned."""

    def synchronize_outputs(self) -> None:
        """As `synchronize_inputs`."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        types = {p.name: p.type for p in self._session.get_outputs()}
        return [OrtValue(value, types[name]) for name, value in self._results.items()]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The arrays of the outputs of the last run, in the order in which they were bound."""
        return list(self._results.values())

    def run(self) -> None:
        """Run the session on what is bound; without bound outputs, all are given."""
        names = list(self._outputs) or [p.name for p in self._session.get_outputs()]
        out = {n: a for n, a in self._outputs.items() if a is not None}
        found = self._session.run(names, self._inputs, out=out)
        self._results = dict(zip(names, found, strict=True))


def _check_device(name: str, device_type: str) -> None:
    if device_type != "cpu":
        message = f"{name!r} is bound to memory of the device {device_type!r}"
        help = "polyc runs on the processor: copy it there, and bind it as 'cpu'"
        raise ArgumentError(Diagnostic("argument-onnx-device", message, None, help))


def _view_memory(name: str, device_type: str, element_type: Any, shape: Sequence[int], address: int) -> np.ndarray:
    _check_device(name, device_type)
    try:
        is_number = isinstance(element_type, int)
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type) if is_number else element_type)
        size = math.prod(shape) * dtype.itemsize
        if element_type is None or dtype.hasobject or size < 0 or (size and not address):
            raise ValueError
        memory: Any = (ctypes.c_uint8 * size).from_address(address) if size else b""
        return np.frombuffer(memory, dtype, math.prod(shape)).reshape(tuple(shape))
    except (TypeError, ValueError, KeyError, OverflowError):
        message = (
            f"{name!r} is bound to address {address!r}, element type {element_type!r} and shape {shape!r}, which is no memory"
        )
        help = "give the address, the NumPy type and the shape of a contiguous array, or use bind_cpu_input(name, array)"
        raise ArgumentError(Diagnostic("argument-onnx-device", message, None, help)) from None
