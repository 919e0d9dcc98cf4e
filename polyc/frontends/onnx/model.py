"""A ModelProto to a `Graph`: reading the file, the checks that everything later relies on, functions of the model inlined."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnx.numpy_helper
from google.protobuf.message import DecodeError

from polyc.diagnostics import ArgumentError, ArgumentTypeError, Diagnostic, PolycError, SemanticError
from polyc.frontends.onnx.element_types import type_name
from polyc.frontends.onnx.graph import Graph, Node, Port

ModelSource = Any
"""A path, the bytes of a file, or a ModelProto."""


def read_model(source: ModelSource) -> Graph:
    """The graph of a model; raises a `PolycError` where it is none, or is malformed."""
    model = _load_proto(source)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    shell = onnx.ModelProto()
    shell.ir_version = model.ir_version
    shell.opset_import.extend(model.opset_import)
    graph = read_graph(model.graph, opsets, shell)
    if model.ir_version < 4:  # every constant had to be an input then: they are no defaults
        graph = replace(graph, inputs=tuple(p for p in graph.inputs if p.name not in graph.constants))
    return graph


def _load_proto(source: ModelSource) -> onnx.ModelProto:
    if isinstance(source, onnx.ModelProto):
        return source
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            return onnx.load(str(path))
        except FileNotFoundError:
            raise _error("argument-onnx-file", f"there is no file {path}", "check the path of the model") from None
        except DecodeError as error:
            raise _malformed(str(path), str(error)) from None
    if isinstance(source, (bytes, bytearray, memoryview)):
        model = onnx.ModelProto()
        try:
            model.ParseFromString(bytes(source))
        except DecodeError as error:
            raise _malformed("the bytes given", str(error)) from None
        return model
    message = f"a model is a path, bytes or a ModelProto, not {type(source).__name__}"
    raise ArgumentTypeError(
        Diagnostic("argument-type-onnx-model", message, None, 'give the file: polyc.onnx.load("model.onnx")')
    )


def _malformed(what: str, why: str) -> PolycError:
    return _error("semantic-onnx-model", f"{what} is no ONNX model: {why}", "export it again, or check the download")


def _error(code: str, message: str, help: str | None) -> PolycError:
    cls = ArgumentError if code.startswith("argument") else SemanticError
    return cls(Diagnostic(code, message, None, help))


def read_graph(proto: onnx.GraphProto, opsets: Mapping[str, int], model: onnx.ModelProto) -> Graph:
    """A graph, or a subgraph of an attribute."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in proto.initializer}
    nodes = tuple(read_node(n, opsets, model) for n in proto.node)
    inputs = tuple(_read_port(p) for p in proto.input)
    outputs = tuple(_read_port(p) for p in proto.output)
    return Graph(proto.name, inputs, outputs, nodes, constants, opsets, model)


def read_node(proto: onnx.NodeProto, opsets: Mapping[str, int], model: onnx.ModelProto, path: tuple[str, ...] = ()) -> Node:
    """A node with its attributes as Python values."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    attributes = {a.name: _read_attribute(a, opsets, model) for a in proto.attribute}
    version = opsets.get(domain, 1)
    return Node(proto.op_type, domain, version, tuple(proto.input), tuple(proto.output), attributes, proto.name, proto, path)


def _read_attribute(a: onnx.AttributeProto, opsets: Mapping[str, int], model: onnx.ModelProto) -> Any:
    value = onnx.helper.get_attribute_value(a)
    match a.type:
        case onnx.AttributeProto.STRING:
            return _decode(value)
        case onnx.AttributeProto.STRINGS:
            return tuple(_decode(v) for v in value)
        case onnx.AttributeProto.TENSOR:
            return onnx.numpy_helper.to_array(value)
        case onnx.AttributeProto.TENSORS:
            return tuple(onnx.numpy_helper.to_array(v) for v in value)
        case onnx.AttributeProto.GRAPH:
            return read_graph(value, opsets, model)
        case onnx.AttributeProto.GRAPHS:
            return tuple(read_graph(v, opsets, model) for v in value)
        case onnx.AttributeProto.INTS | onnx.AttributeProto.FLOATS:
            return tuple(value)
    return value


def _decode(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _read_port(p: onnx.ValueInfoProto) -> Port:
    shape: tuple[int | str | None, ...] | None = None
    if p.type.WhichOneof("value") == "tensor_type" and p.type.tensor_type.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in p.type.tensor_type.shape.dim)
    return Port(p.name, type_name(p.type), shape)


def array_from_constant(node: Node) -> np.ndarray | None:
    """What a `Constant` node holds; None where it is no dense tensor of numbers."""
    for name, value in node.attributes.items():
        match name:
            case "value":
                return value if isinstance(value, np.ndarray) else None
            case "value_float" | "value_floats":
                return np.asarray(value, np.float32)
            case "value_int" | "value_ints":
                return np.asarray(value, np.int64)
            case "value_string" | "value_strings":
                return np.asarray(value, object)
    return None
