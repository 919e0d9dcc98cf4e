"""One node to statements, and the functions that ONNX defines operators by to the nodes of their bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from polyc.frontends.onnx.builder import Builder, Value
from polyc.frontends.onnx.element_types import NUMBERS
from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.model import read_node
from polyc.frontends.onnx.registry import Unsupported, find_implementation
from polyc.ir.expr import Const, Expr, Index, Read, rewrite
from polyc.ir.program import Statement, Tensor
from polyc.ir.traced import is_traced
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """What one node computes: statements over tensors with the names of the graph."""

    node: Node
    outputs: tuple[Value, ...]
    """A value with a `source` is that tensor in another shape: nothing computes it."""
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    constants: Mapping[str, np.ndarray]
    """Tables that the operator's function made."""


def trace_node(node: Node, values: Mapping[str, Value]) -> Fragment:
    """The statements of `node` for inputs of these shapes.

    Raises `Unsupported` (with the reason) where no function is registered, or it does not cover the node, and `NeedsValue`
    where an input has to be known."""
    implementation = find_implementation(node.domain, node.op, node.version)
    if implementation is None:
        raise Unsupported("polyc has no function for it")
    inputs = [values[n] if n else None for n in node.inputs]
    builder = Builder(node)
    made = implementation.apply(builder, inputs)
    wanted = [o for o in node.outputs if o]
    if len(made) < len(node.outputs) and any(node.outputs[len(made) :]):
        raise Unsupported(f"output {len(made)} is not supported")
    for value in made:
        builder.check_size(value.shape, value.dtype)
    return name_outputs(builder, dict(zip(node.outputs, made, strict=False)), wanted)


def name_outputs(builder: Builder, made: Mapping[str, Value], wanted: Sequence[str]) -> Fragment:
    """Give what the function returned the names of the node's outputs."""
    own = {t.name for t in builder.tensors}
    names: dict[str, str] = {}
    outputs: list[Value] = []
    for output in wanted:
        value = made[output]
        if value.source is None and value.name in own and value.name not in names:
            names[value.name] = output
            outputs.append(replace(value, name=output))
        else:  # an input as it is, in another shape, a table, or a second name of an output
            source = value if value.source is None else value.source
            outputs.append(replace(value, name=output, source=source))
    outputs = [
        replace(v, source=replace(v.source, name=names[v.source.name])) if v.source and v.source.name in names else v
        for v in outputs
    ]
    return Fragment(
        builder.node,
        tuple(outputs),
        tuple(replace(t, name=names.get(t.name, t.name), base=names.get(t.name, t.name)) for t in builder.tensors),
        tuple(rename_statement(s, names) for s in builder.statements),
        {names.get(n, n): a for n, a in builder.constants.items()},
    )


def rename_statement(s: Statement, names: Mapping[str, str], name: str | None = None) -> Statement:
    """`s` over tensors of other names, and with another name of its own."""
    if not names and name is None:
        return s
    target = names.get(s.target, s.target)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read):
            new = names.get(node.tensor)
            return None if new is None or new == node.tensor else replace(node, tensor=new)
        if isinstance(node, Index) and node.name.startswith(f"{s.target}.d"):  # coordinates of an element (`element_names`)
            return Index(target + node.name[len(s.target) :])
        return None

    reduction = s.reduction
    if reduction is not None and not isinstance(reduction.init, Const):
        reduction = replace(reduction, init=rewrite(reduction.init, rule))
    return replace(
        s,
        name=s.name if name is None else name,
        target=target,
        subscripts=tuple(rewrite(e, rule) for e in s.subscripts),
        value=rewrite(s.value, rule),
        reduction=reduction,
    )


def may_expand(node: Node) -> bool:
    """Whether ONNX defines the operator by a function, or a node of it is evaluated where its inputs are known."""
    if node.op in ("Constant", "ConstantOfShape", "Shape", "Size") and not node.domain:
        return True
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def expand_function(node: Node, values: Mapping[str, Value], graph: Graph) -> tuple[Node, ...] | None:
    """The body of the function that ONNX defines this operator by, for these inputs; None where there is no such function.

    Names inside the body are made different from all others by the name of the node's first output.  Raises UnsupportedError
    where the attributes `axis` and `axes` name no dimensions of the first input: the nodes of some bodies take any numbers."""
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function or schema.has_context_dependent_function:
        _check_axes(node, values)
    body = _function_body(schema, node, values)
    if body is None:
        return None
    names = dict(zip(body.input, node.inputs, strict=False)) | dict(zip(body.output, node.outputs, strict=False))
    prefix = f"{next((o for o in node.outputs if o), node.op)}/"
    attributes = {a.name: a for a in node.proto.attribute}
    defaults = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    opsets = {**graph.opsets, **{o.domain: o.version for o in body.opset_import}}
    nodes = []
    for inner in body.node:
        proto = onnx.NodeProto()
        proto.CopyFrom(inner)
        _rename(proto, names, prefix)
        _bind_attributes(proto, {**defaults, **attributes})
        nodes.append(read_node(proto, opsets, graph.model, (*node.path, node.op)))
    return tuple(nodes)


def _check_axes(node: Node, values: Mapping[str, Value]) -> None:
    given = node.attributes
    x = values.get(node.inputs[0]) if node.inputs else None
    if x is not None and x.rank:
        Builder(node).axes([*given.get("axes", ()), *([given["axis"]] if "axis" in given else [])], x.rank)


def _function_body(schema: Any, node: Node, values: Mapping[str, Value]) -> onnx.FunctionProto | None:
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
        if not versions:
            return None
        types = [_type_proto(values.get(n)).SerializeToString() for n in node.inputs]
        try:
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.proto.SerializeToString(), types
            )
        except (RuntimeError, onnx.defs.SchemaError):
            return None
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        return body if body.node else None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.version]
        if not versions:
            return None
        text = schema.get_function_with_opset_version(max(versions))
        if isinstance(text, onnx.FunctionProto):
            return text
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        return body
    return None


def _type_proto(value: Value | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if value is not None:
        proto.tensor_type.elem_type = NUMBERS[value.dtype]
        for n in value.shape:
            dimension = proto.tensor_type.shape.dim.add()
            if not is_traced(n):  # the body is then one for any extent
                dimension.dim_value = n
    return proto


def _rename(proto: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> None:
    """Names of the body as names of the graph, in subgraphs too."""
    for field in (proto.input, proto.output):
        for k, name in enumerate(field):
            if name:
                field[k] = names.get(name, prefix + name) if name in names else prefix + name
    for a in proto.attribute:
        for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
            _rename_graph(graph, names, prefix)


def _rename_graph(graph: onnx.GraphProto, names: Mapping[str, str], prefix: str) -> None:
    for node in graph.node:
        _rename(node, names, prefix)
    for port in (*graph.input, *graph.output, *graph.value_info):
        port.name = names.get(port.name, prefix + port.name)
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, prefix + tensor.name)


def _bind_attributes(proto: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to the function's attributes by their values; one without a value goes."""
    kept = []
    for a in proto.attribute:
        if a.ref_attr_name:
            given = attributes.get(a.ref_attr_name)
            if given is None:
                continue
            bound = onnx.AttributeProto()
            bound.CopyFrom(given)
            bound.name = a.name
            kept.append(bound)
        else:
            if a.HasField("g"):
                for inner in a.g.node:
                    _bind_attributes(inner, attributes)
            kept.append(a)
    copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
    del proto.attribute[:]
    proto.attribute.extend(copies)
