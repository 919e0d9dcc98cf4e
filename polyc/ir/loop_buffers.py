"""The arrays that stand for the buffers of an interpreted loop nest: arguments checked, workspaces made of garbage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from polyc.diagnostics import Diagnostic, InternalError
from polyc.ir.expr import evaluate
from polyc.ir.halves import is_bfloat16
from polyc.ir.loops import Buffer


def fail(message: str) -> NoReturn:
    """Raise InternalError."""
    raise InternalError(Diagnostic("internal-invalid-loops", message))


def check_argument(buffer: Buffer, array: np.ndarray, values: Mapping[str, int]) -> np.ndarray:
    """The array of an argument, seen in the shape of its buffer.  Raises InternalError where it does not fit."""
    shape = tuple(evaluate(e, values) for e in buffer.shape)
    strides = tuple(evaluate(e, values) for e in buffer.strides)
    if array.shape != shape and array.size == math.prod(shape):
        array = _merge_dimensions(array, shape)
    if array.shape != shape or array.dtype != buffer.dtype.numpy:
        fail(f"{buffer.name} is {buffer.dtype}{list(shape)}, the array is {array.dtype}{list(array.shape)}")
    if array.size and any(s != a for s, a, n in zip(strides, array.strides, shape, strict=True) if n > 1):
        fail(f"{buffer.name} has the byte strides {list(strides)}, the array {list(array.strides)}")
    return array


def _merge_dimensions(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array` seen with fewer dimensions, where each of `shape` stands for neighbours without a gap; else as it is."""
    groups, d = [], 0
    for extent in shape:
        first, product = d, 1
        while d < array.ndim and (d == first or product < extent or (array.shape[d] == 1 and extent == product)):
            product *= array.shape[d]
            d += 1
        groups.append(product)
    if tuple(groups) != shape or d != array.ndim:
        return array
    view = array.view()
    try:
        view.shape = shape
    except AttributeError:  # there is a gap
        return array
    return view


def allocate(buffers: Sequence[Buffer], values: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Workspace buffers of garbage, those in one memory as such.  Their byte strides must keep elements apart; the layout
    itself does not matter here."""
    shapes = {b.name: _shape(b, values) for b in buffers}
    n_bytes: dict[str, int] = {}
    for b in buffers:
        n_bytes[b.place] = max(n_bytes.get(b.place, 0), math.prod(shapes[b.name]) * b.dtype.numpy.itemsize)
    memory = {place: np.empty(size, np.uint8) for place, size in n_bytes.items()}
    arrays = {}
    for b in buffers:
        dtype, shape = b.dtype.numpy, shapes[b.name]
        arrays[b.name] = memory[b.place][: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        poison(arrays[b.name])
    return arrays


def _shape(buffer: Buffer, values: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(evaluate(e, values) for e in buffer.shape)
    strides = tuple(evaluate(e, values) for e in buffer.strides)
    reach = buffer.dtype.itemsize
    for stride, extent in sorted(zip(map(abs, strides), shape, strict=True)):
        if extent > 1 and min(shape) > 0:  # an array without elements has nothing to keep apart
            if stride < reach:
                fail(f"the strides {list(strides)} of {buffer.name} let elements of the shape {list(shape)} overlap")
            reach = stride * (extent - 1) + reach
    return tuple(max(e, 0) for e in shape)


def poison(array: np.ndarray) -> None:
    """Fill with what shows where it is used: NaN, or the bytes 0x7f."""
    if is_bfloat16(array.dtype):
        array.view(np.uint16).fill(0x7FC0)
        return
    array.fill(np.nan if array.dtype.kind == "f" else False if array.dtype.kind == "b" else _garbage(array.dtype))


def _garbage(dtype: np.dtype) -> int:
    return int.from_bytes(b"\x7f" * dtype.itemsize, "little")
