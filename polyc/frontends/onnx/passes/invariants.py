"""State of loops that no iteration changes."""

from __future__ import annotations

from dataclasses import replace

from polyc.frontends.onnx.control import rename_node
from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import change_node, hand_on, is_standard


def hoist_invariants(graph: Graph) -> Graph:
    """Let the body of a `Loop` read what it hands on unchanged from around it: weights are constants in it then.

    before::

        s, w1 = Loop(n, true, s0, w) <body(k, c, s, v): t = MatMul(s, v);  u = Identity(v);  return c, t, u>

    after::

        s = Loop(n, true, s0) <body(k, c, s): t = MatMul(s, w);  return c, t>;  w1 = Identity(w)

    Exporters of TensorFlow's loops pass everything that a body reads as state."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _hoist(node)
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=False)) and len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes))


def _hoist(node: Node) -> list[Node]:
    """The node without state that never changes, and what gives its last values."""
    if node.has_subgraphs:
        node = _change_bodies(node)
    body = node.attributes.get("body")
    if not is_standard(node, "Loop") or not isinstance(body, Graph) or len(body.inputs) != len(node.inputs):
        return [node]
    n_states = len(node.inputs) - 2
    if len(body.outputs) < 1 + n_states or len(node.outputs) > len(body.outputs) - 1:
        return [node]
    taken = _defined_names(body)
    identities = {n.outputs[0]: n.inputs[0] for n in body.nodes if is_standard(n, "Identity")}
    constant: dict[int, str] = {}
    for k in range(n_states):
        source = body.outputs[1 + k].name
        while source in identities:
            source = identities[source]
        if source == body.inputs[2 + k].name and node.inputs[2 + k] not in taken:
            constant[k] = node.inputs[2 + k]
    names = {body.inputs[2 + k].name: outside for k, outside in constant.items()}
    if not names or len(names) < len(constant):
        return [node]
    changed = replace(
        body,
        inputs=tuple(p for k, p in enumerate(body.inputs) if k - 2 not in constant),
        outputs=tuple(replace(p, name=names.get(p.name, p.name)) for k, p in enumerate(body.outputs) if k - 1 not in constant),
        nodes=tuple(rename_node(n, names) for n in body.nodes),
    )
    outputs = (*node.outputs, *("",) * (n_states - len(node.outputs)))
    loop = change_node(
        node,
        inputs=[n for k, n in enumerate(node.inputs) if k - 2 not in constant],
        outputs=[n for k, n in enumerate(outputs) if k not in constant],
    )
    loop = _with_graph(loop, "body", changed)
    return [loop, *(hand_on(node, outside, outputs[k]) for k, outside in constant.items() if outputs[k])]


def _change_bodies(node: Node) -> Node:
    """The node with the same done to its graphs."""
    for name, graph in node.attributes.items():
        if isinstance(graph, Graph):
            changed = hoist_invariants(graph)
            if changed is not graph:
                node = _with_graph(node, name, changed)
    return node


def _with_graph(node: Node, name: str, graph: Graph) -> Node:
    """The node with another graph for an attribute, in its protocol buffer too."""
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    for attribute in proto.attribute:
        if attribute.name == name:
            g = attribute.g
            inputs = {p.name: p for p in g.input}
            outputs = {p.name: p for p in g.output}
            kept = [inputs[p.name] for p in graph.inputs if p.name in inputs]
            results = [outputs.get(p.name) or type(g.output[0])(name=p.name) for p in graph.outputs]
            changed = type(g)(name=g.name, node=[n.proto for n in graph.nodes], initializer=g.initializer)
            changed.sparse_initializer.extend(g.sparse_initializer)
            changed.input.extend(kept)
            changed.output.extend(results)
            g.CopyFrom(changed)
    return replace(node, attributes={**node.attributes, name: graph}, proto=proto)


def _defined_names(graph: Graph) -> set[str]:
    """Names that mean something else in `graph`, or in a graph inside it, than around it."""
    names = {p.name for p in graph.inputs} | graph.constants.keys() | {o for n in graph.nodes for o in n.outputs}
    for node in graph.nodes:
        for inner in node.subgraphs:
            names |= _defined_names(inner)
    return names
