"""Factors and shifts of channels behind a convolution or a product, folded into its weights and bias."""

from __future__ import annotations

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, change_node, is_standard
from polyc.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """``y = x * scale + shift`` for each channel (float64); `scale` None: only a shift."""

    scale: np.ndarray | None
    shift: np.ndarray | None


def fold_scales(graph: Graph) -> Graph:
    """Compute a normalisation, a product or a sum with constants in the weights of the layer before it.

    before::

        h = Conv(x, w, b);  y = BatchNormalization(h, gamma, beta, mean, var)

    after::

        y = Conv(x, w * s, (b - mean) * s + beta)            s = gamma / sqrt(var + epsilon), for each channel

    Products and sums of float64 are rounded once, to the weights' type.
    """
    editing = Editing(graph)
    for i, node in enumerate(graph.nodes):
        if not is_standard(node, "BatchNormalization", "Mul", "Div", "Add", "Sub"):
            continue
        for position in (0, 1) if node.op in ("Mul", "Add") else (0,):
            name = editing.resolve(node.inputs[position])
            layer = editing.producer(name)
            if layer is None or not editing.only_use(name):
                continue
            weights = _weights(layer, editing)
            if weights is None:
                continue
            affine = _read_affine(node, position, editing, *_channels(layer, weights))
            if affine is not None and _fold(editing, layer, weights, affine, node, i):
                break
    return editing.finish()


def _weights(layer: Node, editing: Editing) -> np.ndarray | None:
    """The constant weights of a layer whose bias is constant or missing."""
    if not is_standard(layer, "Conv", "ConvTranspose", "Gemm", "MatMul"):
        return None
    weights = editing.constant(layer.inputs[1])
    if weights is None or weights.dtype not in (np.float32, np.float64):
        return None
    has_bias = len(layer.inputs) > 2 and bool(layer.inputs[2])
    if has_bias and editing.constant(layer.inputs[2]) is None:
        return None
    if layer.op in ("MatMul", "Gemm") and weights.ndim != 2:
        return None
    return weights


def _channels(layer: Node, weights: np.ndarray) -> tuple[int, int | None, int]:
    """Number of channels of the layer's result, its rank (None: unknown), and their dimension counted from the end."""
    match layer.op:
        case "Conv":
            return weights.shape[0], weights.ndim, weights.ndim - 1
        case "ConvTranspose":
            return weights.shape[1] * layer.attributes.get("group", 1), weights.ndim, weights.ndim - 1
        case "Gemm":
            return weights.shape[0 if layer.attributes.get("transB", 0) else 1], 2, 1
        case _:
            return weights.shape[1], None, 1


def _read_affine(node: Node, position: int, editing: Editing, channels: int, rank: int | None, from_end: int) -> Affine | None:
    if node.op == "BatchNormalization":
        return _read_normalisation(node, editing, channels) if from_end > 1 else None
    other = editing.constant(editing.resolve(node.inputs[1 - position]))
    if other is None or other.dtype not in (np.float32, np.float64):
        return None
    if rank is None and other.ndim > 1:  # it might add dimensions to a vector
        return None
    per_channel = _per_channel(other, channels, rank or 1, from_end)
    if per_channel is None:
        return None
    match node.op:
        case "Mul":
            return Affine(per_channel, None)
        case "Div":
            with np.errstate(divide="ignore"):
                inverse = 1 / per_channel
            return Affine(inverse, None) if np.isfinite(inverse).all() else None
        case "Add":
            return Affine(None, per_channel)
        case _:
            return Affine(None, -per_channel)


def _per_channel(array: np.ndarray, channels: int, rank: int, from_end: int) -> np.ndarray | None:
    """A constant that differs between channels only, as a vector of them; None where it does not."""
    if array.ndim > rank:
        return None
    if array.size == 1:
        return np.full(channels, array.reshape(()).item(), np.float64)
    if array.ndim < from_end or array.size != channels or array.shape[array.ndim - from_end] != channels:
        return None
    return array.reshape(-1).astype(np.float64)


def _read_normalisation(node: Node, editing: Editing, channels: int) -> Affine | None:
    if node.attributes.get("training_mode", 0) or not node.attributes.get("spatial", 1):
        return None
    if any(editing.uses[o] for o in node.outputs[1:] if o):
        return None
    values = [editing.constant(editing.resolve(n)) for n in node.inputs[1:5]]
    if len(values) != 4 or any(v is None or v.shape != (channels,) for v in values):
        return None
    gamma, beta, mean, variance = (v.astype(np.float64) for v in values if v is not None)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    return Affine(scale, beta - mean * scale) if np.isfinite(scale).all() else None


def _fold(editing: Editing, layer: Node, weights: np.ndarray, affine: Affine, node: Node, place: int) -> bool:
    """Replace `layer` and `node` behind it by one layer; False where it cannot take the shift."""
    bias = editing.constant(layer.inputs[2]) if len(layer.inputs) > 2 and layer.inputs[2] else None
    attributes = dict(layer.attributes)
    inputs = list(layer.inputs)
    channels = _channels(layer, weights)[0]
    if layer.op == "MatMul" and affine.shift is not None:
        return False
    if layer.op == "Gemm" and bias is not None:
        flat = _per_channel(bias, channels, 2, 1)
        if flat is None:
            return False
        bias = flat * attributes.get("beta", 1.0)
        attributes.pop("beta", None)
    if affine.scale is not None:
        inputs[1] = editing.add_constant(layer.inputs[1], _scale_weights(layer, weights, affine.scale))
        if layer.op == "Gemm" and attributes.pop("alpha", 1.0) != 1.0:
            alpha = layer.attributes["alpha"]
            inputs[1] = editing.add_constant(layer.inputs[1], _scale_weights(layer, weights, affine.scale * alpha))
    new_bias = np.zeros(channels) if bias is None else bias.astype(np.float64)
    if affine.scale is not None:
        new_bias = new_bias * affine.scale
    if affine.shift is not None:
        new_bias = new_bias + affine.shift
    if bias is not None or affine.shift is not None:
        base = layer.inputs[2] if bias is not None else f"{layer.outputs[0]}.bias"
        inputs = [*inputs[:2], editing.add_constant(base, new_bias.astype(weights.dtype))]
    position = editing.producers[layer.outputs[0]]
    editing.nodes[position] = None
    new = change_node(layer, inputs=inputs, outputs=node.outputs[:1], attributes=attributes)
    editing.nodes[place] = new
    editing.producers[node.outputs[0]] = place
    return True


def _scale_weights(layer: Node, weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    wide = weights.astype(np.float64)
    match layer.op:
        case "Conv":
            wide *= scale.reshape(-1, *[1] * (weights.ndim - 1))
        case "ConvTranspose":
            group = layer.attributes.get("group", 1)
            parts = wide.reshape(group, weights.shape[0] // group, *weights.shape[1:])
            parts *= scale.reshape(group, 1, -1, *[1] * (weights.ndim - 2))
        case _:
            wide *= scale[:, None] if layer.op == "Gemm" and layer.attributes.get("transB", 0) else scale
    return wide.astype(weights.dtype)
