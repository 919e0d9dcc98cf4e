"""How large the results of a node will be, by onnx's own shape inference: asked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.shape_inference
from onnx import numpy_helper

from polyc.frontends.onnx.graph import Node

MOST_DATA = 4096
"""Elements of an input whose contents shape inference is shown."""


def estimate_elements(node: Node, inputs: Sequence[np.ndarray | None]) -> int | None:
    """Elements of the largest output of `node`; None where onnx cannot tell, or does not know the operator.

    It may be wrong for a malformed node, never for one that can be computed."""
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, array in zip(node.inputs, inputs, strict=True):
        if not name or not isinstance(array, np.ndarray):
            continue
        try:
            number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            types[name] = onnx.helper.make_tensor_type_proto(number, array.shape)
            if array.size <= MOST_DATA:
                data[name] = numpy_helper.from_array(array)
        except (ValueError, TypeError, KeyError, NotImplementedError):
            return None
    try:
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
        imports = [onnx.helper.make_opsetid(node.domain, node.version)]
        found = onnx.shape_inference.infer_node_outputs(schema, node.proto, types, data, None, imports)
    except Exception:  # no schema, or a node that contradicts it: whoever computes it says so
        return None
    shapes = [p.tensor_type.shape for p in found.values() if p.HasField("tensor_type") and p.tensor_type.HasField("shape")]
    known = [[d.dim_value for d in s.dim] for s in shapes if all(d.HasField("dim_value") for d in s.dim)]
    return max((abs(math.prod(dims)) for dims in known), default=None)
