"""A model's protobuf: from a path, bytes, or as it is.  Nothing is written, and no more is read than the file itself."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, PolycError, SemanticError
from polyc.frontends.onnx.tensors import Folder, open_regular
from polyc.frontends.onnx.wire import cut_tensors

MOST_BYTES = (1 << 31) - 1
"""Bytes that a protobuf can have; larger models keep their weights in files beside it."""


def load_proto(source: Any) -> tuple[onnx.ModelProto, Folder | None]:
    """The model in a file, in bytes, or given as a ModelProto; and the folder that its other files may be in.

    Raises ArgumentError (``argument-onnx-file``) where the file cannot be read, SemanticError (``semantic-onnx-model``) where
    it is no protobuf of a model, ArgumentTypeError (``argument-type-onnx-model``) for anything else."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        content = _map_file(path)
        shortened = None if content is None else cut_tensors(memoryview(content))
        if content is None or shortened is None:
            return parse_model(_read_file(path), str(path)), Folder.of(path)
        return parse_model(shortened, str(path)), replace(Folder.of(path), content=content)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return parse_model(bytes(source), "the bytes given"), None
    message = f"a model is a path, bytes or a ModelProto, not {type(source).__name__}"
    if hasattr(source, "read"):
        raise ArgumentTypeError(
            Diagnostic("argument-type-onnx-model", message, None, "give its name, or what its read() gives")
        )
    if isinstance(source, onnx.GraphProto):
        help = "make a model of it: onnx.helper.make_model(graph)"
        raise ArgumentTypeError(Diagnostic("argument-type-onnx-model", message, None, help))
    raise ArgumentTypeError(
        Diagnostic("argument-type-onnx-model", message, None, 'give the file: polyc.onnx.load("model.onnx")')
    )


def parse_model(content: bytes, what: str) -> onnx.ModelProto:
    """The model that `content` is; `what` names it in the error."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, RuntimeError) as error:
        reason = "it is empty" if not content else "it is cut short, or of another format"
        message = f"{what} is no ONNX model: {reason}"
        help = "give a model in ONNX's binary format; export it again, or check the download"
        raise SemanticError(Diagnostic("semantic-onnx-model", message, None, help)) from error
    return model


def _map_file(path: Path) -> mmap.mmap | None:
    """The file as memory that is read when it is looked at; None where that is impossible, or the file is too large."""
    try:
        with open_regular(path.resolve()) as file:
            if os.fstat(file.fileno()).st_size > MOST_BYTES:
                return None
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, RuntimeError):  # `_read_file` says what is wrong
        return None


def _read_file(path: Path) -> bytes:
    try:
        file = open_regular(path.resolve())
    except FileNotFoundError:
        raise _file_error(f"there is no file {path}", "check the path of the model") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _file_error(f"{path} cannot be opened: {reason}", "give the model's .onnx file") from error
    with file:
        status = os.fstat(file.fileno())
        if status.st_size > MOST_BYTES:
            message = f"{path} has {status.st_size} bytes, a protobuf has less than 2 GiB"
            raise _file_error(message, "save the model with external data: onnx.save(model, path, save_as_external_data=True)")
        try:
            return file.read(MOST_BYTES)
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or "there is not enough memory"
            raise _file_error(f"{path} cannot be read: {reason}", "check the file and the memory that is free") from error


def _file_error(message: str, help: str) -> PolycError:
    return ArgumentError(Diagnostic("argument-onnx-file", message, None, help))
