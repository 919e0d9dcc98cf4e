"""Tensors of a model file as arrays, and everything that may be wrong with them: a file can say anything.

What a tensor claims (extents, a length, a place in another file) is compared with what is there before memory is taken for it.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto

from polyc.diagnostics import ArgumentError, Diagnostic, PolycError, SemanticError
from polyc.frontends.onnx.wire import PLACE
from polyc.records import dataclass

MOST_ELEMENTS = 1 << 62
"""Extents whose product is greater are no shape: their bytes would not fit into 64 bits."""

_BITS = {
    getattr(TensorProto, name): bits
    for name, bits in {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}.items()
    if hasattr(TensorProto, name)
}
"""Types of which several elements share a byte."""
_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_PER_COMPLEX: dict[int, int] = {TensorProto.COMPLEX64: 2, TensorProto.COMPLEX128: 2}


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the files that belong to a model may be: the folder of its path, and the one that path leads to."""

    path: Path
    target: Path
    content: mmap.mmap | None = field(default=None, compare=False, repr=False)
    """The model's own file, where tensors have been left in it (`wire`)."""

    @classmethod
    def of(cls, model: Path) -> Folder:
        """The folder of the model file `model`."""
        return cls(model.parent, model.resolve().parent)

    def allows(self, path: Path) -> bool:
        """Whether `path`, with all links followed, lies inside."""
        return path.is_relative_to(self.path.resolve()) or path.is_relative_to(self.target)


def element_count(dims: Sequence[int], what: str) -> int:
    """The product of extents; ``semantic-onnx-shape`` for a negative one, or a product beyond 64 bits."""
    if any(d < 0 for d in dims):
        raise SemanticError(_shape_problem(dims, what, "a negative extent"))
    if 0 in dims:
        return 0
    count = math.prod(dims)
    if count > MOST_ELEMENTS:
        raise SemanticError(_shape_problem(dims, what, "more elements than 64 bits count"))
    return count


def _shape_problem(dims: Sequence[int], what: str, why: str) -> Diagnostic:
    shown = ", ".join(map(str, list(dims)[:8])) + (", …" if len(dims) > 8 else "")
    return Diagnostic("semantic-onnx-shape", f"{what} has the shape [{shown}]: {why}", None, "export the model again")


def describe_tensor_problem(tensor: onnx.TensorProto) -> Diagnostic | None:
    """What is wrong with a tensor as it stands in the file; its external data is not looked at."""
    what = f"tensor {tensor.name}" if tensor.name else "a tensor without a name"
    try:
        count = element_count(tensor.dims, what)
    except SemanticError as error:
        return error.diagnostics[0]
    if tensor.HasField("segment"):
        return _problem(f"{what} is split into segments, which no runtime reads")
    if tensor.data_type == TensorProto.UNDEFINED or tensor.data_type not in TensorProto.DataType.values():
        return _problem(f"{what} has the element type {tensor.data_type}, which is none of ONNX's")
    if tensor.data_location == TensorProto.EXTERNAL:
        return None
    if tensor.HasField("raw_data"):
        if tensor.data_type == TensorProto.STRING:
            return _problem(f"{what} holds strings as raw bytes")
        given, wanted = len(tensor.raw_data), byte_count(tensor.data_type, count)
        return None if given == wanted else _problem(f"{what} holds {given} bytes, its type and shape say {wanted}")
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    others = [f for f in _FIELDS if f != field and len(getattr(tensor, f))]
    if others:
        return _problem(f"{what} holds {others[0]}, its element type is kept in {field}")
    given, wanted = len(getattr(tensor, field)), count * _PER_COMPLEX.get(tensor.data_type, 1)
    if tensor.data_type in _BITS:
        wanted = byte_count(tensor.data_type, count)
    return None if given == wanted else _problem(f"{what} holds {given} numbers, its shape says {wanted}")


def byte_count(data_type: int, count: int) -> int:
    """Bytes of `count` elements of ``TensorProto.DataType`` `data_type` in ``raw_data``."""
    bits = _BITS.get(data_type)
    if bits is not None:
        return (count * bits + 7) // 8
    return count * int(onnx.helper.tensor_dtype_to_np_dtype(data_type).itemsize)


def read_tensor(tensor: onnx.TensorProto, folder: Folder | None = None) -> np.ndarray:
    """The array that `tensor` holds, here or in a file beside the model.

    Raises SemanticError (``semantic-onnx-tensor``, ``semantic-onnx-shape``) where it contradicts itself, ArgumentError
    (``argument-onnx-external``) where its file is missing, too short or outside of `folder`."""
    problem = describe_tensor_problem(tensor)
    if problem is not None:
        raise SemanticError(problem)
    if tensor.data_location == TensorProto.EXTERNAL and folder is not None and folder.content is not None:
        found = _read_in_place(tensor, folder.content)
        if found is not None:
            return found
    if tensor.data_location == TensorProto.EXTERNAL:
        local = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        data = _read_external(tensor, folder)
        if tensor.data_type not in _BITS and tensor.data_type != TensorProto.STRING:
            return data.view(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))
        local.raw_data = data.tobytes()
        tensor = local
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, UnicodeDecodeError) as error:
        raise SemanticError(_problem(f"tensor {tensor.name} cannot be read: {error}")) from error


def _read_in_place(tensor: onnx.TensorProto, content: mmap.mmap) -> np.ndarray | None:
    """A tensor that `wire.cut_tensors` has left in the model's file, read-only; None for any other."""
    entries: dict[str, str] = {e.key: e.value for e in tensor.external_data}
    if PLACE not in entries:
        return None
    what = f"tensor {tensor.name}" if tensor.name else "a tensor without a name"
    place, given = _number(entries[PLACE], what, PLACE), _number(entries.get("length", "0"), what, "length")
    count = element_count(tensor.dims, what)
    if tensor.data_type == TensorProto.STRING:
        raise SemanticError(_problem(f"{what} holds strings as raw bytes"))
    wanted = byte_count(tensor.data_type, count)
    if given != wanted or place + given > len(content):
        raise SemanticError(_problem(f"{what} holds {given} bytes, its type and shape say {wanted}"))
    if tensor.data_type in _BITS:
        local = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        local.raw_data = content[place : place + given]
        return np.asarray(onnx.numpy_helper.to_array(local))
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")
    return np.frombuffer(content, dtype, count, place).reshape(tuple(tensor.dims))


def _read_external(tensor: onnx.TensorProto, folder: Folder | None) -> np.ndarray:
    """The bytes that `tensor` says are in a file beside the model."""
    entries: dict[str, str] = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    what = f"the data of tensor {tensor.name}"
    if folder is None:
        message = f"{what} is in the file {location or '?'}, but the model came without a path"
        raise _external_error(message, "give the path of the model file, so that its folder is known")
    wanted = byte_count(tensor.data_type, element_count(tensor.dims, f"tensor {tensor.name}"))
    offset = _number(entries.get("offset", "0"), what, "offset")
    length = _number(entries.get("length", str(wanted)), what, "length")
    if length != wanted:
        raise _external_error(f"{what} takes {length} bytes, its type and shape say {wanted}", "export the model again")
    path = _find_external(location, folder, what)
    try:
        file = open_regular(path)
    except OSError as error:
        raise _external_error(f"{what} should be in {location}: {error.strerror}", "put the file beside the model") from error
    with file:
        status = os.fstat(file.fileno())
        if offset + length > status.st_size:
            message = f"{what} ends at byte {offset + length} of {location}, which has {status.st_size}"
            raise _external_error(message, "the file is cut short, or belongs to another model: fetch it again")
        try:
            return np.fromfile(file, np.uint8, length, offset=offset)
        except (MemoryError, OSError) as error:
            raise _external_error(f"{what} cannot be read: {error}", "check the file and the memory that is free") from error


def open_regular(path: Path) -> BinaryIO:
    """The ordinary file `path`, to read; raises OSError for anything else, and waits for nothing."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(0, "it is a folder" if stat.S_ISDIR(mode) else "it is no ordinary file", str(path))
    return os.fdopen(handle, "rb")


def _find_external(location: str, folder: Folder, what: str) -> Path:
    """The file `location`, with all links followed; an error where it is outside of `folder`."""
    help = "polyc reads files inside the model's folder only: move the file there, and export the model with its plain name"
    parts = PurePosixPath(location).parts
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise _external_error(f"{what} is in another file, whose name is missing", "export the model again")
    if PurePosixPath(location).is_absolute() or windows.is_absolute() or windows.drive or windows.root:
        raise _external_error(f"{what} is in {location}, an absolute path", help)
    if ".." in parts or ".." in windows.parts:
        raise _external_error(f"{what} is in {location}, which leads out of the model's folder", help)
    try:
        path = (folder.path / location).resolve()
    except (OSError, RuntimeError) as error:
        raise _external_error(f"{what} is in {location}, a link that leads nowhere", help) from error
    if not folder.allows(path):
        raise _external_error(f"{what} is in {location}, a link to a file outside of the model's folder", help)
    return path


def _number(text: str, what: str, key: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _external_error(f"{what} has the {key} {text[:40]!r}, which is no number of bytes", "export the model again")
    return int(text)


def _external_error(message: str, help: str) -> PolycError:
    return ArgumentError(Diagnostic("argument-onnx-external", message, None, help))


def _problem(message: str) -> Diagnostic:
    return Diagnostic("semantic-onnx-tensor", message, None, "export the model again")
