"""Layers of numbers that were quantised: computed of the integers themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, change_node, is_standard
from polyc.records import dataclass, replace

LONGEST = ((1 << 31) - 1) // (255 * 128)
"""Products that a sum in int32 holds."""
SHORTEST = 4
FLOAT = 1
"""onnx's number of float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A DequantizeLinear of bytes: what it reads, its scale and its zero point, both constant."""

    name: str
    scale: np.ndarray
    zero: np.ndarray
    zero_name: str
    axis: int


def multiply_integers(graph: Graph) -> Graph:
    """Let a layer whose inputs are dequantised bytes multiply the bytes, and scale the sums.

    before::

        a = DequantizeLinear(x, s, p);  v = DequantizeLinear(w, t, q);  y = Conv(a, v, b)

    after::

        y = Cast<float>(ConvInteger(x, w, p, q)) * (s * t) + b

    The weights and the bias are constant, the sums exact: `MatMul` and `Gemm` become `MatMulInteger` the same way.
    """
    editing = Editing(graph)
    changed = {i: tuple(_rewrite(node, editing)) for i, node in enumerate(graph.nodes) if is_standard(node, *_LAYERS)}
    nodes = tuple(n for i, node in enumerate(graph.nodes) for n in changed.get(i) or (node,))
    return replace(graph, nodes=nodes, constants=editing.constants)


_LAYERS = {"Conv": "ConvInteger", "MatMul": "MatMulInteger", "Gemm": "MatMulInteger"}


def _rewrite(node: Node, editing: Editing) -> Iterator[Node]:
    """The nodes that stand for a layer; none where it stays."""
    x, w = _quantized(node.inputs[0], editing), _quantized(node.inputs[1], editing)
    weights = None if w is None else editing.constant(w.name)
    if x is None or w is None or weights is None or x.scale.size != 1:
        return
    own = node.attributes
    is_turned = node.op == "Gemm" and bool(own.get("transB", 0))
    if node.op == "Gemm" and (own.get("transA", 0) or own.get("alpha", 1.0) != 1 or own.get("beta", 1.0) != 1):
        return
    if weights.ndim < 3 if node.op == "Conv" else weights.ndim != 2:
        return
    channel = 0 if node.op == "Conv" or is_turned else 1
    n_channels, n_terms = weights.shape[channel], weights.size // max(weights.shape[channel], 1)
    if not SHORTEST <= n_terms <= LONGEST or not _suits(node, weights, w):
        return
    if w.scale.size != 1 and (w.scale.shape != (n_channels,) or w.axis % weights.ndim != channel):
        return
    columns = (n_channels, *[1] * (weights.ndim - 2)) if node.op == "Conv" else (n_channels,)
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = _numbers(node.inputs[2], editing) if has_bias else None
    if has_bias and (bias is None or (node.op == "Conv" and bias.shape != (n_channels,))):
        return
    name = w.name if not is_turned else editing.add_constant(w.name, weights.T)
    factor = x.scale.reshape(()) * (w.scale.reshape(()) if w.scale.size == 1 else w.scale.reshape(columns))
    base = node.outputs[0]
    sums, floats, scaled = editing.name(base), editing.name(base), base if bias is None else editing.name(base)
    attributes = dict(own) if node.op == "Conv" else {}
    inputs = (x.name, name, x.zero_name, w.zero_name)
    yield change_node(node, op=_LAYERS[node.op], inputs=inputs, outputs=(sums,), attributes=attributes)
    yield change_node(node, op="Cast", inputs=(sums,), outputs=(floats,), attributes={"to": FLOAT})
    by = editing.add_constant(base, np.asarray(factor, np.float32))
    yield change_node(node, op="Mul", inputs=(floats, by), outputs=(scaled,), attributes={})
    if bias is not None:
        shift = editing.add_constant(base, bias.reshape(columns) if node.op == "Conv" else bias)
        yield change_node(node, op="Add", inputs=(scaled, shift), outputs=(base,), attributes={})


def _quantized(name: str, editing: Editing) -> Quantized | None:
    node = editing.producer(name)
    if node is None or not is_standard(node, "DequantizeLinear") or node.attributes.keys() - {"axis"}:
        return None
    if len(node.inputs) < 3 or not node.inputs[2]:
        return None
    scale, zero = (editing.constant(n) for n in node.inputs[1:3])
    if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype not in (np.uint8, np.int8):
        return None
    return Quantized(node.inputs[0], scale, zero, node.inputs[2], node.attributes.get("axis", 1))


def _suits(node: Node, weights: np.ndarray, w: Quantized) -> bool:
    """Whether such bytes multiply faster than floats: their zero point is in the middle, their channels fill words."""
    if weights.dtype != w.zero.dtype or np.any(w.zero != (0 if w.zero.dtype == np.int8 else 128)):
        return False
    group = node.attributes.get("group", 1)
    return node.op != "Conv" or (weights.shape[1] > 1 and (group == 1 or weights.shape[1] % 4 == 0))


def _numbers(name: str, editing: Editing) -> np.ndarray | None:
    """A constant float32 bias, or one that is dequantised from constants."""
    found = editing.constant(name)
    if found is not None:
        return found if found.dtype == np.float32 else None
    node = editing.producer(name)
    if node is None or not is_standard(node, "DequantizeLinear") or node.attributes.keys() - {"axis"}:
        return None
    value, scale, *zero = (editing.constant(n) for n in node.inputs if n)
    if value is None or scale is None or scale.dtype != np.float32 or (zero and (zero[0] is None or np.any(zero[0] != 0))):
        return None
    if scale.size != 1 and scale.shape != value.shape:
        return None
    return np.asarray(value.astype(np.float32) * scale.reshape(value.shape if scale.size != 1 else ()), np.float32)
