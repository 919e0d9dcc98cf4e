"""Nodes that compute what another one computes, and constants that are equal."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, captured_names

RANDOM = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""Operators that compute something else each time."""
MAX_COMPARED = 1 << 16
"""Bytes of a constant up to which it is compared with others: layers share masks and shapes, not weights."""


def merge_common(graph: Graph) -> Graph:
    """Compute equal things once.

    before::

        a = Shape(x);  b = Shape(x);  c = Gather(a, 0);  d = Gather(b, 0)

    after::

        a = Shape(x);  c = Gather(a, 0)                      (d is c)
    """
    editing = Editing(graph)
    pinned = captured_names(graph)
    known: dict[Hashable, Node] = {}
    contents: dict[Hashable, str] = {}
    for name, array in graph.constants.items():
        if array.nbytes > MAX_COMPARED or array.dtype == object or editing.constant(name) is None:
            continue
        first = contents.setdefault(_constant_key(array), name)
        if first != name and name not in pinned and not editing.is_output(name):
            editing.renamed[name] = first
    for i, node in enumerate(graph.nodes):
        if node.has_subgraphs or (node.op in RANDOM and node.domain in ("", "ai.onnx")):
            continue
        key = _node_key(node, editing)
        if key is None:
            continue
        first_node = known.setdefault(key, node)
        if first_node is node:
            continue
        if any(editing.is_output(o) or o in pinned for o in node.outputs):
            continue
        editing.nodes[i] = None
        for old, new in zip(node.outputs, first_node.outputs, strict=True):
            if old:
                editing.renamed[old] = new
    return editing.finish()


def _constant_key(array: np.ndarray) -> Hashable:
    return (array.dtype.str, array.dtype.name, array.shape, array.tobytes())


def _node_key(node: Node, editing: Editing) -> Hashable | None:
    """What two nodes must have in common to compute the same; None where it cannot be told."""
    try:
        attributes = tuple(sorted((k, _attribute_key(v)) for k, v in node.attributes.items()))
        key = (
            node.domain,
            node.op,
            node.version,
            tuple(editing.resolve(n) for n in node.inputs),
            tuple(bool(o) for o in node.outputs),
            attributes,
        )
        hash(key)
    except TypeError:
        return None
    return key


def _attribute_key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _constant_key(value)
    if isinstance(value, tuple):
        return tuple(_attribute_key(v) for v in value)
    return (type(value).__name__, value)
