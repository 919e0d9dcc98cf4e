"""ONNX models: `load` gives a `Session`, which runs like onnxruntime's.

Needs the package onnx: ``pip install 'polyc[onnx]'``.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from polyc.diagnostics import ArgumentError, Diagnostic

if importlib.util.find_spec("onnx") is None:
    raise ArgumentError(
        Diagnostic("argument-onnx-missing", "the package onnx is not installed", None, "run: pip install 'polyc[onnx]'")
    )

from polyc.onnx.binding import IOBinding, OrtValue
from polyc.onnx.compatible import (
    ExecutionMode,
    GraphOptimizationLevel,
    InferenceSession,
    RunOptions,
    SessionOptions,
    get_available_providers,
    get_device,
    set_default_logger_severity,
)
from polyc.onnx.profile import Profile
from polyc.onnx.session import Session, load

if TYPE_CHECKING:
    from polyc.onnx.backend import PolycBackend

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "OrtValue",
    "PolycBackend",
    "Profile",
    "RunOptions",
    "Session",
    "SessionOptions",
    "get_available_providers",
    "get_device",
    "load",
    "set_default_logger_severity",
]


def __getattr__(name: str) -> Any:
    if name == "PolycBackend":  # it brings onnx's test machinery
        from polyc.onnx.backend import PolycBackend

        return PolycBackend
    raise AttributeError(f"module 'polyc.onnx' has no attribute {name!r}")
