"""An ONNX graph as plain values: what is left of the protobuf once it has been read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from polyc.diagnostics import Span
from polyc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph.

    `shape` has a number, a name or None (unknown) for each dimension, and is None where even the rank is unknown."""

    name: str
    type: str
    """As onnxruntime writes it: ``tensor(float)``, ``seq(tensor(int64))``."""
    shape: tuple[int | str | None, ...] | None

    @property
    def is_tensor(self) -> bool:
        return self.type.startswith("tensor(")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator.  A missing optional input or output is the empty name."""

    op: str
    domain: str
    version: int
    """Version of the operator set of `domain` that the model imports."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """Numbers, strings, tuples of them, NumPy arrays, and `Graph`s."""
    name: str
    proto: Any = field(repr=False)
    """The NodeProto, for what onnx itself does with it."""
    path: tuple[str, ...] = ()
    """Names of the functions that this node was expanded from, the outermost first."""
    _found: list[tuple[str, ...]] = field(default_factory=list, init=False, repr=False)
    """What `used_names` found, which runs ask for again and again; a changed copy finds its own."""

    @property
    def label(self) -> str:
        """What a user knows it by: its operator, and its name or first output."""
        from polyc.frontends.onnx.schemas import show

        kind = f"{self.domain}.{self.op}" if self.domain else self.op
        return show(f"{kind} {self.name or next((o for o in self.outputs if o), '')}".rstrip())

    @property
    def used_names(self) -> tuple[str, ...]:
        """Values that it reads, those that its subgraphs take from outside included."""
        if not self._found:
            names = [n for n in self.inputs if n]
            for graph in self.subgraphs:
                names += graph.captures
            self._found.append(tuple(names))
        return self._found[0]

    @property
    def subgraphs(self) -> list[Graph]:
        """The graphs among its attributes."""
        values = (v for a in self.attributes.values() for v in (a if isinstance(a, tuple) else (a,)))
        return [v for v in values if isinstance(v, Graph)]

    @property
    def has_subgraphs(self) -> bool:
        return bool(self.subgraphs)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in topological order, and the constants among their inputs."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    """Initializers.  One that has the name of an input is its default."""
    opsets: Mapping[str, int]
    model: Any = field(repr=False, default=None)
    """The ModelProto without its nodes and initializers: operator sets, for what onnx does with nodes, and who made it."""
    _found: list[tuple[str, ...]] = field(default_factory=list, init=False, repr=False)
    """What `captures` found."""

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that it reads and does not define: those of the graph around it."""
        if not self._found:
            self._found.append(self._find_captures())
        return self._found[0]

    def within(self, constants: Mapping[str, np.ndarray]) -> Graph:
        """The graph with those of the `constants` around it that it takes as its own."""
        return replace(self, constants={**{n: constants[n] for n in self.captures if n in constants}, **self.constants})

    def _find_captures(self) -> tuple[str, ...]:
        known = {p.name for p in self.inputs} | self.constants.keys()
        found: dict[str, None] = {}
        for node in self.nodes:
            found |= {n: None for n in node.used_names if n not in known}
            known |= set(node.outputs)
        found |= {p.name: None for p in self.outputs if p.name not in known}
        return tuple(found)


def node_span(node: Node) -> Span:
    """The node in ONNX's textual form, as the excerpt of a diagnostic."""
    from polyc.frontends.onnx.checks import node_text

    return node_text(node.proto)
