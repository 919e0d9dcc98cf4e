"""Bytes that become numbers to be moved, and bytes again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, captured_names, change_node, hand_on, is_standard, rename_inputs
from polyc.records import dataclass, replace

MOVES = ("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that give elements of their first input as they are."""
MOST = 1 << 17
"""No number stands farther from its zero point, counted in scales."""

Parameters = tuple[float, int, str]
"""Scale, zero point, and the type of both sides."""


@dataclass(frozen=True, slots=True)
class _Number:
    """What a value is known to be: numbers that integers stand for, or such numbers moved."""

    parameters: Parameters
    integers: str | None
    """Dequantised from this value; None where `node` has moved them."""
    node: Node


def cancel_quantization(graph: Graph) -> Graph:
    """Move integers instead of the numbers that they stand for, where these become the same integers again.

    before::

        a = DequantizeLinear(x, s, p);  b = Transpose(a);  y = QuantizeLinear(b, s, p)

    after::

        y = Transpose(x)

    The same integers: of types up to 16 bits, whose products with a scale in float32 are rounded by far less than half of it.
    """
    if not any(_is_quantize(n) for n in graph.nodes):
        return graph
    rewriting = _Rewriting(Editing(graph), captured_names(graph))
    for node in graph.nodes:
        rewriting.add(rename_inputs(node, rewriting.editing))
    return replace(graph, nodes=tuple(rewriting.nodes))


def _is_quantize(node: Node) -> bool:
    return node.op == "QuantizeLinear" and node.domain in _DOMAINS


_DOMAINS = ("", "ai.onnx", "com.microsoft")


@dataclass(slots=True)
class _Rewriting:
    editing: Editing
    captured: frozenset[str]
    """Values that subgraphs may read: they keep their names."""
    nodes: list[Node] = field(default_factory=list)
    numbers: dict[str, _Number] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """Integers behind numbers that were moved, by the name of the numbers."""

    def add(self, node: Node) -> None:
        """Take over a node, or what stands for it."""
        out = node.outputs[0] if node.outputs else ""
        if _is_quantize(node):
            number = self.numbers.get(node.inputs[0])
            if number is not None and number.parameters == self._parameters(node) and out not in self.captured:
                found = self._integers(node.inputs[0])
                if self.editing.is_output(out):
                    self.nodes.append(hand_on(node, found, out))
                else:
                    self.editing.rename(out, found)
                return
        elif node.op == "DequantizeLinear" and node.domain in _DOMAINS:
            parameters = self._parameters(node)
            if parameters is not None:
                self.numbers[out] = _Number(parameters, node.inputs[0], node)
        elif is_standard(node, *MOVES, "Concat") and len(node.outputs) == 1:
            sources = node.inputs if node.op == "Concat" else node.inputs[:1]
            known = {n.parameters if (n := self.numbers.get(name)) is not None else None for name in sources}
            (first, *others) = known or {None}
            if first is not None and not others:
                self.numbers[out] = _Number(first, None, node)
        self.nodes.append(node)

    def _parameters(self, node: Node) -> Parameters | None:
        """None where they vary, or a number might become another integer than the one that it was."""
        if node.attributes.keys() - {"axis", "saturate"} or len(node.inputs) != 3:
            return None
        scale, zero = (self.editing.constant(n) for n in node.inputs[1:])
        if scale is None or zero is None or scale.size != 1 or zero.size != 1 or scale.dtype not in (np.float32, np.float64):
            return None
        limits, factor = np.finfo(scale.dtype), float(scale.reshape(()))
        if zero.dtype not in (np.uint8, np.int8, np.uint16, np.int16) or not limits.tiny <= factor < limits.max / MOST:
            return None
        return factor, int(zero.reshape(())), f"{zero.dtype} {scale.dtype}"

    def _integers(self, name: str) -> str:
        """The integers that the numbers `name` stand for; what moves them is added."""
        for missing in self._missing(name):
            node = self.numbers[missing].node
            moved = len(node.inputs) if node.op == "Concat" else 1
            inputs = (*(self._known(n) for n in node.inputs[:moved]), *node.inputs[moved:])
            self.made[missing] = made = self.editing.name(missing)
            self.nodes.append(change_node(node, inputs=inputs, outputs=(made,)))
        return self._known(name)

    def _known(self, name: str) -> str:
        integers = self.numbers[name].integers
        return self.made[name] if integers is None else integers

    def _missing(self, name: str) -> Iterator[str]:
        """Moved numbers whose integers are wanted and not there yet, each behind what it is made of."""
        stack = [name]
        while stack:
            current = stack[-1]
            number = self.numbers[current]
            if number.integers is not None or current in self.made:
                stack.pop()
                continue
            sources = number.node.inputs if number.node.op == "Concat" else number.node.inputs[:1]
            wanted = [s for s in sources if self.numbers[s].integers is None and s not in self.made]
            if wanted:
                stack += wanted
            else:
                stack.pop()
                yield current
