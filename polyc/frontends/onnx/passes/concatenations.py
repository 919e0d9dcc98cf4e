"""Concatenations of very many parts."""

from __future__ import annotations

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, change_node, is_standard

MOST_PARTS = 32
"""Parts of one node: each is a statement of its kernel, and the time to compile one grows faster than their number (600
products and their concatenation: 28 s, in steps 9)."""


def split_concatenations(graph: Graph) -> Graph:
    """Join many parts in two steps, or more.

    before::

        y = Concat(x1, …, x600)

    after::

        y.1 = Concat(x1, …, x32);  …;  y.19 = Concat(x577, …, x600);  y = Concat(y.1, …, y.19)
    """
    if not any(_is_long(node) for node in graph.nodes):
        return graph
    editing = Editing(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        while _is_long(node):
            parts = [node.inputs[k : k + MOST_PARTS] for k in range(0, len(node.inputs), MOST_PARTS)]
            names = [editing.name(node.outputs[0]) for _ in parts]
            nodes += [change_node(node, inputs=p, outputs=(n,)) for p, n in zip(parts, names, strict=True)]
            node = change_node(node, inputs=names)
        nodes.append(node)
    editing.nodes[:] = nodes
    return editing.finish()


def _is_long(node: Node) -> bool:
    return is_standard(node, "Concat") and len(node.inputs) > MOST_PARTS
