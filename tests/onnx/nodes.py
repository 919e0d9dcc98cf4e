"""One node as a model, run by polyc and by an oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx


def make_node_model(
    op: str,
    inputs: Mapping[str, np.ndarray | None],
    *,
    opset: int = 21,
    n_outputs: int = 1,
    constants: Sequence[str] = (),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; an input that is None is missing, those in `constants` are initializers."""
    names = [n if a is not None else "" for n, a in inputs.items()]
    outputs = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    given = {n: a for n, a in inputs.items() if a is not None}
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
        if n not in constants
    ]
    weights = [numpy_helper.from_array(given[n], n) for n in constants]
    graph = helper.make_graph([node], op, ports, [helper.make_empty_tensor_value_info(o) for o in outputs], weights)
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_node(op: str, inputs: Mapping[str, np.ndarray | None], **rest: Any) -> list[np.ndarray]:
    """Outputs of polyc, which must compile the node."""
    constants = rest.get("constants", ())
    model = make_node_model(op, inputs, **rest)
    feed = {n: a for n, a in inputs.items() if a is not None and n not in constants}
    return polyc.onnx.load(model, strict=True).run(None, feed)


def run_reference(op: str, inputs: Mapping[str, np.ndarray | None], **rest: Any) -> list[np.ndarray]:
    """Outputs of onnx's reference implementation."""
    constants = rest.get("constants", ())
    model = make_node_model(op, inputs, **rest)
    feed = {n: a for n, a in inputs.items() if a is not None and n not in constants}
    return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feed)]


def run_onnxruntime(op: str, inputs: Mapping[str, np.ndarray | None], **rest: Any) -> list[np.ndarray]:
    """Outputs of onnxruntime."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    constants = rest.get("constants", ())
    model = make_node_model(op, inputs, **rest)
    feed = {n: a for n, a in inputs.items() if a is not None and n not in constants}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(v) for v in session.run(None, feed)]


def assert_close(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """The same shapes, types and numbers."""
    assert len(got) == len(wanted)
    for a, e in zip(got, wanted, strict=True):
        assert np.asarray(a).shape == e.shape
        assert np.asarray(a).dtype == e.dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(e, np.float64), rtol=rtol, atol=atol)
