"""All nodes of a graph that are not compiled, found before anything runs, from what is declared of its inputs.

Whether a function covers a node may depend on shapes and contents.  Where the graph declares shapes, lowering it tells; behind
a node that is not covered it goes on with the shapes that onnx infers for its outputs, and nodes of which nothing is known are
passed over: a run will tell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from polyc.diagnostics import Diagnostic, PolycError
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.element_types import find_dtype, numpy_type
from polyc.frontends.onnx.graph import Graph, Node, Port, node_span
from polyc.frontends.onnx.lowering import Lowered, lower_graph
from polyc.frontends.onnx.schemas import NEWEST, find_schema
from polyc.frontends.onnx.sizes import infer_outputs
from polyc.ir.types import from_numpy

MOST_STOPS = 256
"""Nodes that lowering may stop at, after which the rest is not looked at."""
DRIVEN = frozenset({"If", "Loop", "Scan"})
"""Nodes whose bodies are compiled, whoever drives them."""

Refusals = dict[Node, str]
"""Reasons by node, in the order of the graph."""


def declared_values(ports: Collection[Port], unknown: int) -> dict[str, Value]:
    """The inputs that have an element type and a rank, with `unknown` for extents that are not declared."""
    found = {}
    for port in ports:
        dtype = numpy_type(port.type)
        known = None if dtype is None else from_numpy(dtype)
        if known is not None and port.shape is not None:
            shape = tuple(d if isinstance(d, int) else unknown for d in port.shape)
            found[port.name] = Value(port.name, known, shape)
    return found


def find_refused(
    graph: Graph, start: int, given: Mapping[str, Value], known: Mapping[str, np.ndarray], literals: Collection[str]
) -> tuple[Refusals, Lowered]:
    """Nodes from `start` on that no function covers for these inputs, and what was lowered up to the first stop.

    The arguments are those of `lower_graph`."""
    first = state = lower_graph(graph, start, given, known, literals)
    refused: Refusals = {}
    for _ in range(MOST_STOPS):
        if state.stop >= len(graph.nodes):
            break
        node = graph.nodes[state.stop]
        is_known = all(n in state.values or n in state.constants for n in node.used_names)
        if is_known and state.wanted is None and not (node.op in DRIVEN and not node.domain):
            refused[node] = state.reason or "its inputs are no tensors of numbers"
        values = {**state.values, **_infer(node, state)}
        try:
            state = lower_graph(graph, state.stop + 1, values, state.constants, literals)
        except PolycError:  # of what a run would be told
            break
    return refused, first


def _infer(node: Node, state: Lowered) -> dict[str, Value]:
    """The outputs of a node, as far as onnx can tell their types and shapes."""
    inputs = [state.values.get(n) for n in node.inputs]
    if any(v is None for v, n in zip(inputs, node.inputs, strict=True) if n):
        return {}
    shapes = {n: (v.dtype, v.shape) for n, v in zip(node.inputs, inputs, strict=True) if v is not None}
    found = {}
    for name, (number, shape) in infer_outputs(node, shapes, state.constants).items():
        dtype = find_dtype(number)
        if dtype is not None:
            found[name] = Value(name, dtype, shape)
    return found


def strict_problem(node: Node, reason: str) -> Diagnostic:
    """What `strict` says of a node that is not compiled."""
    help = "load the model without strict=True to let onnx's reference implementation compute it"
    if find_schema(node.op, NEWEST, "" if node.domain == "ai.onnx" else node.domain) is None:
        help = "onnx has no implementation of it either: define it as a function of the model, in operators of ONNX"
    return Diagnostic("unsupported-onnx-strict", f"{node.label} is not compiled: {reason}", node_span(node), help)
