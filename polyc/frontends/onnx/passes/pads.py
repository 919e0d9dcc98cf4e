"""Padding that a convolution does itself."""

from __future__ import annotations

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, change_node, is_standard


def merge_pads(graph: Graph) -> Graph:
    """Give the zeros of a Pad in front of a convolution to its own padding.

    before::

        p = Pad<mode="constant">(x, [0, 0, 1, 1, 0, 0, 1, 1]);  y = Conv<pads=[0, 0, 0, 0]>(p, w)

    after::

        y = Conv<pads=[1, 1, 1, 1]>(x, w)
    """
    editing = Editing(graph)
    for i, node in enumerate(graph.nodes):
        if not is_standard(node, "Conv") or node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            continue
        pad = editing.producer(node.inputs[0])
        if pad is None or not is_standard(pad, "Pad") or not editing.only_use(node.inputs[0]):
            continue
        added = _spatial_zeros(pad, editing)
        if added is None:
            continue
        own = np.asarray(node.attributes.get("pads") or [0] * len(added))
        if node.attributes.get("auto_pad") == "VALID":
            own = np.zeros_like(added)
        if len(own) != len(added) or (own < 0).any():
            continue
        attributes = {k: v for k, v in node.attributes.items() if k != "auto_pad"}
        attributes["pads"] = tuple(int(n) for n in own + added)
        editing.nodes[editing.producers[node.inputs[0]]] = None
        editing.nodes[i] = change_node(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes)
    return editing.finish()


def _spatial_zeros(node: Node, editing: Editing) -> np.ndarray | None:
    """What a Pad adds around the spatial dimensions, begins before ends; None where it does anything else."""
    if node.attributes.get("mode", "constant") != "constant":
        return None
    if "pads" in node.attributes:  # before version 11
        pads: np.ndarray | None = np.asarray(node.attributes["pads"])
        value: float | np.ndarray | None = node.attributes.get("value", 0.0)
    else:
        pads = editing.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        value = editing.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(())
        if len(node.inputs) > 3 and node.inputs[3]:  # of some axes only
            return None
    if pads is None or value is None or np.any(np.asarray(value) != 0) or len(pads) % 2 or len(pads) < 6:
        return None
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    if (pads < 0).any() or begins[:2].any() or ends[:2].any():
        return None
    return np.concatenate([begins[2:], ends[2:]]).astype(np.int64)
