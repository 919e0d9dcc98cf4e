"""Transpositions that meet others, on the other side of pointwise work."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, change_node, is_standard
from polyc.records import dataclass, replace

UNARY = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN "
    "LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh "
    "ThresholdedRelu".split()
)
"""Operators of one input that treat every element alike."""
BINARY = frozenset(
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or Pow PRelu Sub "
    "Sum Xor".split()
)
"""The same of several inputs, which are broadcast."""


@dataclass(frozen=True, slots=True)
class Turned:
    """A value that is ``Transpose<perm>(source)`` and has not been made yet."""

    source: str
    perm: tuple[int, ...]
    node: Node
    """A transposition, to make others like it."""

    @property
    def is_source(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))


def cancel_transposes(graph: Graph) -> Graph:
    """Move transpositions behind pointwise nodes, and let two that meet become one, or none.

    before::

        a = Transpose<perm=[0, 3, 1, 2]>(x);  b = Relu(a);  y = Transpose<perm=[0, 2, 3, 1]>(b)

    after::

        y = Relu(x)

    A transposition is put off until somebody reads its result who is neither pointwise nor a transposition.
    """
    if not any(is_standard(n, "Transpose") for n in graph.nodes):
        return graph
    rewriting = _Rewriting(Editing(graph))
    for node in graph.nodes:
        rewriting.add(node)
    for port in graph.outputs:
        rewriting.make(port.name, keeps_name=True)
    return replace(graph, nodes=tuple(rewriting.nodes), constants=rewriting.editing.constants)


@dataclass(slots=True)
class _Rewriting:
    editing: Editing
    nodes: list[Node] = field(default_factory=list)
    turned: dict[str, Turned] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    """Transposed values that have been made after all, by the name under which users read them."""

    def add(self, node: Node) -> None:
        """Take over a node, or put it off."""
        if is_standard(node, "Transpose") and node.attributes.get("perm") is not None:
            outer = tuple(int(p) for p in node.attributes["perm"])
            inner = self.turned.get(node.inputs[0])
            rank = self.editing.find_rank(node.inputs[0])
            is_fit = rank == len(outer) or (rank is None and outer != tuple(range(len(outer))))
            if inner is None and is_fit:
                self.turned[node.outputs[0]] = Turned(node.inputs[0], outer, node)
                return
            if inner is not None and len(inner.perm) == len(outer):
                self.turned[node.outputs[0]] = Turned(inner.source, tuple(inner.perm[p] for p in outer), node)
                return
        if is_standard(node, *UNARY, *BINARY) and len(node.outputs) == 1 and self._put_off(node):
            return
        if node.has_subgraphs:  # a subgraph reads values by their names
            for name in node.used_names:
                self.make(name, keeps_name=True)
        inputs = tuple(self.make(n) for n in node.inputs)
        self.nodes.append(node if inputs == node.inputs else change_node(node, inputs=inputs))

    def _put_off(self, node: Node) -> bool:
        """``f(Transpose p x, c)`` → ``Transpose p f(x, c')``, c' being the constant c transposed the other way."""
        found = [self.turned.get(n) for n in node.inputs]
        perms = {t.perm for t in found if t is not None}
        if len(perms) != 1:
            return False
        (perm,) = perms
        constants = [None if t is not None else self.editing.constant(n) for n, t in zip(node.inputs, found, strict=True)]
        if any(t is None and (c is None or c.ndim > len(perm)) for t, c in zip(found, constants, strict=True)):
            return False
        inputs = []
        for name, turned, array in zip(node.inputs, found, constants, strict=True):
            if turned is not None:
                inputs.append(turned.source)
            else:
                assert array is not None
                full = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
                inputs.append(name if array.ndim == 0 else self.editing.add_constant(name, full.transpose(np.argsort(perm))))
        inner = self.editing.name(node.outputs[0])
        self.nodes.append(change_node(node, inputs=inputs, outputs=(inner,)))
        example = next(t.node for t in found if t is not None)
        self.turned[node.outputs[0]] = Turned(inner, perm, example)
        return True

    def make(self, name: str, keeps_name: bool = False) -> str:
        """The name under which a value can be read; it is made where that has been put off."""
        turned = self.turned.get(name)
        if turned is None:
            return name
        if turned.is_source and not keeps_name:
            return turned.source
        known = self.made.get(name)
        if known is None:
            op, attributes = ("Identity", {}) if turned.is_source else ("Transpose", {"perm": turned.perm})
            new = change_node(turned.node, op=op, inputs=(turned.source,), outputs=(name,), attributes=attributes)
            self.nodes.append(new)
            known = self.made[name] = name
        return known
