"""Nodes and constants that nothing reads."""

from __future__ import annotations

from dataclasses import replace

from polyc.frontends.onnx.graph import Graph


def remove_dead(graph: Graph) -> Graph:
    """Keep what an output of the graph depends on.

    before::

        a = Relu(x);  b = Exp(x);  return a

    after::

        a = Relu(x);  return a
    """
    needed = {p.name for p in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if any(name in needed for name in node.outputs if name):
            kept.append(node)
            needed.update(node.used_names)
    inputs = {p.name for p in graph.inputs}
    constants = {n: a for n, a in graph.constants.items() if n in needed or n in inputs}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)
