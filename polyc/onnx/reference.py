"""A whole model by another implementation: the oracle that results are compared with."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from polyc.diagnostics import Diagnostic, UnsupportedError


def run_reference(source: str, feed: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The outputs of the model in the file `source`, in order, and who computed them: onnxruntime where it is installed (onnx's
    reference implementation deviates for some attributes), else onnx.

    Raises UnsupportedError (``unsupported-onnx-evaluation``) where neither can run the model."""
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        with contextlib.suppress(Exception):  # it does not know the model: onnx may
            session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
            return "onnxruntime", list(session.run(None, dict(feed)))
    try:
        with np.errstate(all="ignore"):
            return "onnx's reference implementation", list(ReferenceEvaluator(source).run(None, dict(feed)))
    except Exception as error:
        message = f"onnx's reference implementation cannot run the model: {type(error).__name__}: {error}"
        raise UnsupportedError(Diagnostic("unsupported-onnx-evaluation", message, None, "run it without --verify")) from error
