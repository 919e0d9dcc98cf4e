"""A ModelProto to a `Graph`: reading the file, the checks that everything later relies on, functions of the model inlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from polyc.frontends.onnx.checks import check_model, read_opsets
from polyc.frontends.onnx.element_types import type_name
from polyc.frontends.onnx.files import load_proto
from polyc.frontends.onnx.graph import Graph, Node, Port
from polyc.frontends.onnx.node_order import sort_nodes
from polyc.frontends.onnx.tensors import Folder, read_tensor

ModelSource = Any
"""A path, the bytes of a file, or a ModelProto."""


def read_model(source: ModelSource) -> Graph:
    """The graph of a model; raises a `PolycError` where it is none, or is malformed."""
    model, folder = load_proto(source)
    check_model(model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    shell = onnx.ModelProto()
    shell.ir_version = model.ir_version
    shell.opset_import.extend(model.opset_import)
    shell.producer_name, shell.producer_version, shell.domain = model.producer_name, model.producer_version, model.domain
    shell.model_version, shell.doc_string = model.model_version, model.doc_string
    shell.metadata_props.extend(model.metadata_props)
    shell.graph.name, shell.graph.doc_string = model.graph.name, model.graph.doc_string
    graph = read_graph(model.graph, read_opsets(model), shell, folder)
    if model.ir_version < 4:  # every constant had to be an input then: they are no defaults
        graph = replace(graph, inputs=tuple(p for p in graph.inputs if p.name not in graph.constants))
    return graph


def read_graph(
    proto: onnx.GraphProto, opsets: Mapping[str, int], model: onnx.ModelProto, folder: Folder | None = None
) -> Graph:
    """A graph, or a subgraph of an attribute.  Tensors may be in files of `folder`."""
    if len({p.name for p in proto.output}) < len(proto.output):
        proto = _name_results_apart(proto)
    constants = {t.name: read_tensor(t, folder) for t in proto.initializer}
    sorted_nodes = sort_nodes(proto.node)
    assert sorted_nodes is not None  # `check_model` has looked
    nodes = tuple(read_node(n, opsets, model, folder=folder) for n in sorted_nodes)
    inputs = tuple(_read_port(p) for p in proto.input)
    outputs = tuple(_read_port(p) for p in proto.output)
    return Graph(proto.name, inputs, outputs, nodes, constants, opsets, model)


def _name_results_apart(proto: onnx.GraphProto) -> onnx.GraphProto:
    """A body that returns one value twice (a state that is stacked, too) with a copy of it for each of the others."""
    apart = onnx.GraphProto()
    apart.CopyFrom(proto)
    seen: set[str] = set()
    used = {name for n in proto.node for name in (*n.input, *n.output)} | {p.name for p in (*proto.input, *proto.output)}
    for port in apart.output:
        if port.name in seen:
            copy = next(name for k in count(1) if (name := f"{port.name}/{k}") not in used)
            apart.node.add(op_type="Identity", input=[port.name], output=[copy])
            port.name = copy
            used.add(copy)
        seen.add(port.name)
    return apart


def read_node(
    proto: onnx.NodeProto,
    opsets: Mapping[str, int],
    model: onnx.ModelProto,
    path: tuple[str, ...] = (),
    folder: Folder | None = None,
) -> Node:
    """A node with its attributes as Python values."""
    own = onnx.NodeProto()
    own.CopyFrom(proto)  # a part of a message keeps all of it alive
    proto = own
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    attributes = {a.name: _read_attribute(a, opsets, model, folder) for a in proto.attribute}
    version = opsets.get(domain, 1)
    return Node(proto.op_type, domain, version, tuple(proto.input), tuple(proto.output), attributes, proto.name, proto, path)


def _read_attribute(a: onnx.AttributeProto, opsets: Mapping[str, int], model: onnx.ModelProto, folder: Folder | None) -> Any:
    value = onnx.helper.get_attribute_value(a)
    match a.type:
        case onnx.AttributeProto.STRING:
            return _decode(value)
        case onnx.AttributeProto.STRINGS:
            return tuple(_decode(v) for v in value)
        case onnx.AttributeProto.TENSOR:
            return read_tensor(value, folder)
        case onnx.AttributeProto.TENSORS:
            return tuple(read_tensor(v, folder) for v in value)
        case onnx.AttributeProto.GRAPH:
            return read_graph(value, opsets, model, folder)
        case onnx.AttributeProto.GRAPHS:
            return tuple(read_graph(v, opsets, model, folder) for v in value)
        case onnx.AttributeProto.INTS | onnx.AttributeProto.FLOATS:
            return tuple(value)
    return value


def _decode(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _dimension_name(text: str) -> str | None:
    """The name of a dimension; some exporters write a mark where they know none."""
    return text if text.strip("?*- ") else None


def _read_port(p: onnx.ValueInfoProto) -> Port:
    shape: tuple[int | str | None, ...] | None = None
    if p.type.WhichOneof("value") == "tensor_type" and p.type.tensor_type.HasField("shape"):
        shape = tuple(
            (d.dim_value if d.dim_value >= 0 else None) if d.HasField("dim_value") else _dimension_name(d.dim_param)
            for d in p.type.tensor_type.shape.dim
        )
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
