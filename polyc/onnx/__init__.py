"""ONNX models: `load` gives a `Session`, which runs like onnxruntime's.

Needs the package onnx: ``pip install 'polyc[onnx]'``.
"""

from __future__ import annotations

import importlib.util

from polyc.diagnostics import ArgumentError, Diagnostic

if importlib.util.find_spec("onnx") is None:
    raise ArgumentError(
        Diagnostic("argument-onnx-missing", "the package onnx is not installed", None, "run: pip install 'polyc[onnx]'")
    )

from polyc.onnx.backend import PolycBackend
from polyc.onnx.profile import Profile
from polyc.onnx.session import Session, load

__all__ = ["PolycBackend", "Profile", "Session", "load"]
