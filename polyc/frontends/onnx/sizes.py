"""How large the results of a node will be, by onnx's own shape inference: asked before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.shape_inference
from onnx import numpy_helper

from polyc.frontends.onnx.element_types import NUMBERS
from polyc.frontends.onnx.graph import Node
from polyc.frontends.onnx.schemas import is_equation
from polyc.ir.types import DType

MOST_DATA = 4096
"""Elements of an input whose contents shape inference is shown."""


def infer_outputs(
    node: Node, inputs: Mapping[str, tuple[DType, tuple[int, ...]]], contents: Mapping[str, np.ndarray]
) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Number of the element type and shape of each output that onnx can tell from types, shapes and known contents."""
    types = {n: onnx.helper.make_tensor_type_proto(NUMBERS[dtype], shape) for n, (dtype, shape) in inputs.items()}
    data = {n: numpy_helper.from_array(a) for n in inputs if (a := contents.get(n)) is not None and a.size <= MOST_DATA}
    found = {}
    for name, proto in _infer(node, types, data).items():
        tensor = proto.tensor_type
        if (
            proto.HasField("tensor_type")
            and tensor.HasField("shape")
            and all(d.HasField("dim_value") for d in tensor.shape.dim)
        ):
            found[name] = tensor.elem_type, tuple(int(d.dim_value) for d in tensor.shape.dim)
    return found


def _infer(
    node: Node, types: Mapping[str, onnx.TypeProto], data: Mapping[str, onnx.TensorProto]
) -> Mapping[str, onnx.TypeProto]:
    """Types of outputs by onnx's inference; none where it has no schema, or the node contradicts it: whoever computes the node
    says so."""
    if not _is_safe(node):
        return {}
    try:
        return _infer_strictly(node, types, data)
    except Exception:
        return {}


def _is_safe(node: Node) -> bool:
    """Whether onnx's inference comes back from the node."""
    return node.op != "Einsum" or all(is_equation(a.s) for a in node.proto.attribute if a.name == "equation")


def _infer_strictly(
    node: Node, types: Mapping[str, onnx.TypeProto], data: Mapping[str, onnx.TensorProto]
) -> Mapping[str, onnx.TypeProto]:
    schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    imports = [onnx.helper.make_opsetid(node.domain, node.version)]
    return dict(onnx.shape_inference.infer_node_outputs(schema, node.proto, dict(types), dict(data), None, imports))


def estimate_elements(node: Node, inputs: Sequence[np.ndarray | None]) -> int | None:
    """Elements of the largest output of `node`; None where onnx cannot tell, or does not know the operator.

    It may be wrong for a malformed node, never for one that can be computed."""
    given = _describe(node, inputs)
    if given is None:
        return None
    found = _infer(node, *given)
    shapes = [p.tensor_type.shape for p in found.values() if p.HasField("tensor_type") and p.tensor_type.HasField("shape")]
    known = [[d.dim_value for d in s.dim] for s in shapes if all(d.HasField("dim_value") for d in s.dim)]
    return max((abs(math.prod(dims)) for dims in known), default=None)


def find_misfit(node: Node, inputs: Sequence[Any]) -> str | None:
    """In onnx's words, how the shapes and contents of `inputs` contradict the node; None where it sees no fault.

    onnx's reference implementation computes something for many such nodes: it leaves out what does not fit."""
    if node.has_subgraphs or not all(isinstance(a, np.ndarray) for a, n in zip(inputs, node.inputs, strict=True) if n):
        return None
    given = _describe(node, inputs)
    if given is None or not _is_safe(node):
        return None
    try:
        _infer_strictly(node, *given)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        return " ".join(str(error).removeprefix("[ShapeInferenceError]").removeprefix("[TypeInferenceError]").split())
    except Exception:  # no schema
        return None
    return None


Description = tuple[dict[str, onnx.TypeProto], dict[str, onnx.TensorProto]]


def _describe(node: Node, inputs: Sequence[Any]) -> Description | None:
    """Types and small contents of the arrays among `inputs`; None for an element type that onnx does not have."""
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
    return types, data
