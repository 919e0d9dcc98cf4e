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

from polyc.onnx.binding import IOBinding
from polyc.onnx.compatible import InferenceSession, SessionOptions, get_available_providers, get_device
from polyc.onnx.profile import Profile
from polyc.onnx.session import Session, load

if TYPE_CHECKING:
    from polyc.onnx.backend import PolycBackend

__all__ = [
    "IOBinding",
    "InferenceSession",
    "PolycBackend",
    "Profile",
    "Session",
    "SessionOptions",
    "get_available_providers",
    "get_device",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "PolycBackend":  # it brings onnx's test machinery
        from polyc.onnx.backend import PolycBackend

        return PolycBackend
    raise AttributeError(f"module 'polyc.onnx' has no attribute {name!r}")
