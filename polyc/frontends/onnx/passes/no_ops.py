"""Nodes that hand on their input, or a constant."""

from __future__ import annotations

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.model import array_from_constant
from polyc.frontends.onnx.passes.editing import Editing, captured_names, is_standard


def remove_no_ops(graph: Graph) -> Graph:
    """Let users of a node that changes nothing read its input; Constant nodes become constants of the graph.

    before::

        a = Identity(x);  b = Dropout(a);  c = Transpose<perm=[0, 1]>(b);  k = Constant<value=2>;  y = Mul(c, k)

    after::

        y = Mul(x, k)                                        (k is a constant)
    """
    editing = Editing(graph)
    pinned = captured_names(graph)
    for i, node in enumerate(graph.nodes):
        constant = array_from_constant(node) if is_standard(node, "Constant") else None
        if constant is not None:
            editing.constants[node.outputs[0]] = constant
            editing.nodes[i] = None
        elif _hands_on(node, editing) and not editing.is_output(node.outputs[0]) and node.outputs[0] not in pinned:
            editing.nodes[i] = None
            editing.rename(node.outputs[0], node.inputs[0])
    return editing.finish()


def _hands_on(node: Node, editing: Editing) -> bool:
    """Whether the first output is the first input."""
    if any(editing.uses[o] for o in node.outputs[1:] if o):
        return False
    match node.op:
        case _ if node.domain not in ("", "ai.onnx"):
            return False
        case "Identity":
            return True
        case "Dropout":  # from version 12 on training is an input, which is false where it is missing
            training = editing.constant(editing.resolve(node.inputs[2])) if len(node.inputs) > 2 and node.inputs[2] else None
            is_told = len(node.inputs) > 2 and bool(node.inputs[2])
            return node.version >= 7 and (not is_told or (training is not None and not training.any()))
        case "Transpose":
            perm, source = node.attributes.get("perm"), editing.resolve(node.inputs[0])  # of another rank it is an error
            return perm is not None and tuple(perm) == tuple(range(len(perm))) and editing.find_rank(source) == len(perm)
        case "Pad":
            pads = _pads(node, editing)
            return pads is not None and not pads.any()
        case "Concat" | "Sum" | "Max" | "Min" | "Mean":
            return len(node.inputs) == 1
        case _:
            return False


def _pads(node: Node, editing: Editing) -> np.ndarray | None:
    if "pads" in node.attributes:
        return np.asarray(node.attributes["pads"])
    return editing.constant(editing.resolve(node.inputs[1])) if len(node.inputs) > 1 else None
