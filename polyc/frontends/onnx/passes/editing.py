"""What passes share: who uses a value, which values are constants, new nodes and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node


def count_uses(graph: Graph) -> Counter[str]:
    """How often each value is read by nodes, subgraphs and the graph's outputs."""
    uses: Counter[str] = Counter()
    for node in graph.nodes:
        uses.update(node.used_names)
    uses.update(p.name for p in graph.outputs)
    return uses


def find_producers(graph: Graph) -> dict[str, int]:
    """The position of the node that makes each value."""
    return {name: i for i, node in enumerate(graph.nodes) for name in node.outputs if name}


def is_standard(node: Node, *names: str) -> bool:
    """Whether this is one of these operators of ONNX's own domain."""
    return node.op in names and node.domain in ("", "ai.onnx")


@dataclass(slots=True)
class Editing:
    """A graph that is being changed: nodes by position (None: removed), constants, values renamed to others."""

    graph: Graph
    nodes: list[Node | None] = field(init=False)
    constants: dict[str, np.ndarray] = field(init=False)
    uses: Counter[str] = field(init=False)
    producers: dict[str, int] = field(init=False)
    renamed: dict[str, str] = field(default_factory=dict)
    _inputs: frozenset[str] = field(init=False)
    _outputs: frozenset[str] = field(init=False)
    _names: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = list(self.graph.nodes)
        self.constants = dict(self.graph.constants)
        self.uses = count_uses(self.graph)
        self.producers = find_producers(self.graph)
        self._inputs = frozenset(p.name for p in self.graph.inputs)
        self._outputs = frozenset(p.name for p in self.graph.outputs)
        self._names = set(self.constants) | set(self.producers) | self._inputs | set(self.uses)

    def constant(self, name: str) -> np.ndarray | None:
        """The contents of a value that is the same in every run.  A default of an input may be replaced: it is none."""
        return None if name in self._inputs else self.constants.get(name)

    def is_output(self, name: str) -> bool:
        return name in self._outputs

    def producer(self, name: str) -> Node | None:
        """The node that makes a value, as it stands now."""
        position = self.producers.get(name)
        return None if position is None else self.nodes[position]

    def find_rank(self, name: str) -> int | None:
        """How many dimensions an input, a constant or the result of a Transpose has; None where that is not told."""
        port = next((p for p in self.graph.inputs if p.name == name), None)
        if port is not None:
            return None if port.shape is None else len(port.shape)
        if name in self.constants:
            return self.constants[name].ndim
        maker = self.producer(name)
        perm = maker.attributes.get("perm") if maker is not None and is_standard(maker, "Transpose") else None
        return None if perm is None else len(perm)

    def only_use(self, name: str) -> bool:
        """Whether a value is read once, by a node."""
        return self.uses[name] == 1 and name not in self._outputs

    def name(self, base: str) -> str:
        """A name that no other value has."""
        count = 1
        while f"{base}.{count}" in self._names:
            count += 1
        name = f"{base}.{count}"
        self._names.add(name)
        return name

    def add_constant(self, base: str, contents: np.ndarray) -> str:
        """A new constant; its name begins with `base`."""
        name = self.name(base)
        self.constants[name] = np.asarray(contents, order="C")
        return name

    def resolve(self, name: str) -> str:
        """The value that stands for `name` now."""
        while name in self.renamed:
            name = self.renamed[name]
        return name

    def rename(self, old: str, new: str) -> None:
        """Let all users of `old` read `new`."""
        self.renamed[old] = new
        self.uses[new] += self.uses.pop(old, 0) - 1

    def finish(self) -> Graph:
        """The changed graph; nodes whose inputs were renamed are made anew."""
        kept = [n if not self.renamed else rename_inputs(n, self) for n in self.nodes if n is not None]
        return replace(self.graph, nodes=tuple(kept), constants=self.constants)


def rename_inputs(node: Node, editing: Editing) -> Node:
    """The node with renamed inputs.  A node with subgraphs reads by names inside of them: those values are never renamed."""
    inputs = tuple(editing.resolve(n) if n else n for n in node.inputs)
    return node if inputs == node.inputs else change_node(node, inputs=inputs)


def change_node(
    node: Node,
    *,
    op: str | None = None,
    inputs: Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Node:
    """The node with other inputs, outputs or attributes, its protocol buffer too."""
    from onnx import helper

    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    op = node.op if op is None else op
    proto.op_type = op
    new_inputs = node.inputs if inputs is None else tuple(inputs)
    new_outputs = node.outputs if outputs is None else tuple(outputs)
    del proto.input[:]
    proto.input.extend(new_inputs)
    del proto.output[:]
    proto.output.extend(new_outputs)
    if attributes is not None:
        del proto.attribute[:]
        proto.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    new_attributes = node.attributes if attributes is None else dict(attributes)
    return replace(node, op=op, inputs=new_inputs, outputs=new_outputs, attributes=new_attributes, proto=proto)


def captured_names(graph: Graph) -> frozenset[str]:
    """Values that subgraphs read: they keep their names."""
    return frozenset(n for node in graph.nodes for inner in node.subgraphs for n in inner.captures)


def hand_on(like: Node, source: str, result: str) -> Node:
    """A node that gives `source` as `result`, in the place of `like`."""
    from onnx import helper

    proto = helper.make_node("Identity", [source], [result])
    return Node("Identity", "", like.version, (source,), (result,), {}, result, proto, like.path)
