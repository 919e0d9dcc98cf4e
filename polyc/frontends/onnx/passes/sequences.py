"""Sequences whose elements are known by position: exporters take tensors apart into them and put them together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node
from polyc.frontends.onnx.passes.editing import Editing, captured_names, change_node, is_standard
from polyc.records import dataclass, replace

_LISTS = 13
"""First operator set whose `Split` and `Unsqueeze` take sizes and axes as an input."""
MOST_PARTS = 4096
"""Elements of a sequence up to which it is resolved."""


def resolve_sequences(graph: Graph) -> Graph:
    """Read the elements of a sequence from where they come from; what nothing reads any more goes with `remove_dead`.

    before::

        s = SplitToSequence<axis=1, keepdims=0>(x);  a = SequenceAt(s, 3)
        t = SequenceInsert(SequenceConstruct(a, b), c);  y = ConcatFromSequence<axis=0>(t)

    after::

        a = Gather<axis=1>(x, 3);  y = Concat<axis=0>(a, b, c)

    A split into parts of one given size has begins ``r = Range(0, n, size)`` for n elements, so that a position that there is
    not is an error as before: part k is the slice from ``Gather(r, k)`` on.
    """
    if not any(is_standard(n, "SequenceAt", "SequenceLength", "ConcatFromSequence") for n in graph.nodes):
        return graph
    return _Resolving(graph).run()


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of one tensor along an axis, whose number its shape tells."""

    x: str
    axis: int
    size: int
    """Elements of a part along the axis."""
    keeps: bool
    """Whether a part of one element keeps the dimension."""
    split: Node


Elements = tuple[str, ...] | _Pieces
"""The elements of a sequence by name, or as parts of a tensor."""


@dataclass(slots=True)
class _Resolving:
    graph: Graph
    editing: Editing = field(init=False)
    pinned: frozenset[str] = field(init=False)
    known: dict[str, Elements] = field(default_factory=dict)
    begins: dict[_Pieces, str] = field(default_factory=dict)
    nodes: list[Node | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.editing = Editing(self.graph)
        self.pinned = captured_names(self.graph)

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if not self._replace(node):
                self.nodes.append(node)
                found = self._elements(node)
                if found is not None:
                    self.known[node.outputs[0]] = found
        self.editing.nodes = self.nodes
        return self.editing.finish()

    def _elements(self, node: Node) -> Elements | None:
        """What a node puts into a sequence, where that is known."""
        if node.domain not in ("", "ai.onnx"):
            return None
        match node.op:
            case "SequenceEmpty":
                return ()
            case "SequenceConstruct":
                return node.inputs
            case "SequenceInsert" | "SequenceErase":
                return self._changed(node)
            case "SplitToSequence":
                return self._split(node)
            case _:
                return None

    def _changed(self, node: Node) -> Elements | None:
        """A sequence with one more element, or one less."""
        before = self.known.get(node.inputs[0])
        is_insert = node.op == "SequenceInsert"
        if not isinstance(before, tuple) or len(before) >= MOST_PARTS:
            return None
        given = node.inputs[2 if is_insert else 1 :]
        if given and given[0]:
            at = self._number(given[0])
        else:
            at = len(before) if is_insert else len(before) - 1
        last = len(before) if is_insert else len(before) - 1
        if at is None or not -len(before) <= at <= last:
            return None
        at += len(before) if at < 0 else 0
        return (*before[:at], node.inputs[1], *before[at:]) if is_insert else (*before[:at], *before[at + 1 :])

    def _split(self, node: Node) -> Elements | None:
        axis = int(node.attributes.get("axis", 0))
        if len(node.inputs) < 2 or not node.inputs[1]:
            return _Pieces(node.inputs[0], axis, 1, bool(node.attributes.get("keepdims", 1)), node)
        sizes = self.editing.constant(self.editing.resolve(node.inputs[1]))
        if sizes is None or sizes.ndim > 1 or not 1 <= sizes.size <= MOST_PARTS:
            return None
        if sizes.ndim == 0:
            return _Pieces(node.inputs[0], axis, int(sizes), True, node) if sizes > 0 else None
        parts = tuple(self.editing.name(node.outputs[0]) for _ in sizes)
        attributes: dict[str, Any] = {"axis": axis}
        inputs: Sequence[str] = (node.inputs[0],)
        if node.version < _LISTS:
            attributes["split"] = [int(n) for n in sizes]
        else:
            inputs = (*inputs, self.editing.add_constant(node.outputs[0], sizes.astype(np.int64)))
        self._add(node, "Split", inputs, parts, attributes)
        return parts

    def _replace(self, node: Node) -> bool:
        """Write what computes the result of a node that reads a sequence of known elements."""
        if not is_standard(node, "SequenceAt", "SequenceLength", "ConcatFromSequence"):
            return False
        sequence = self.known.get(node.inputs[0])
        if sequence is None:
            return False
        write: Callable[[Node, Elements], bool] = {
            "SequenceAt": self._write_element,
            "SequenceLength": self._write_length,
            "ConcatFromSequence": self._write_concatenation,
        }[node.op]
        return write(node, sequence)

    def _write_element(self, node: Node, sequence: Elements) -> bool:
        if isinstance(sequence, _Pieces):
            return self._write_piece(node, sequence)
        at = self._number(node.inputs[1])
        if at is None or not -len(sequence) <= at < len(sequence):
            return False
        output = node.outputs[0]
        if self.editing.is_output(output) or output in self.pinned:
            self._add(node, "Identity", (sequence[at],), (output,))
        else:
            self.editing.rename(output, sequence[at])
        return True

    def _write_piece(self, node: Node, pieces: _Pieces) -> bool:
        output = node.outputs[0]
        at = self._number(node.inputs[1])
        if pieces.size == 1:
            if at is not None:
                index = self._integers(output, [at] if pieces.keeps else at)
            else:  # looked up at each run
                index = self.editing.name(output)
                shape = self._integers(output, [1] if pieces.keeps else [])
                self._add(node, "Reshape", (node.inputs[1], shape), (index,))
            self._add(node, "Gather", (pieces.x, index), (output,), {"axis": pieces.axis})
            return True
        if at is None:
            return False
        names = [self.editing.name(output) for _ in range(2)]
        index, size = self._integers(output, [at]), self._integers(output, [pieces.size])
        self._add(node, "Gather", (self._begins(pieces), index), (names[0],), {"axis": 0})
        self._add(node, "Add", (names[0], size), (names[1],))
        axis = self._integers(output, [pieces.axis])
        self._add(node, "Slice", (pieces.x, names[0], names[1], axis), (output,))
        return True

    def _begins(self, pieces: _Pieces) -> str:
        """Where each part begins."""
        if pieces not in self.begins:
            base = pieces.split.outputs[0]
            begins = self.begins[pieces] = self.editing.name(base)
            zero, step = self._integers(base, 0), self._integers(base, pieces.size)
            self._add(pieces.split, "Range", (zero, self._extent(pieces, self.editing.name(base)), step), (begins,))
        return self.begins[pieces]

    def _extent(self, pieces: _Pieces, output: str) -> str:
        """The scalar `output`: elements of the tensor along the axis."""
        base = pieces.split.outputs[0]
        shape = self.editing.name(base)
        self._add(pieces.split, "Shape", (pieces.x,), (shape,))
        self._add(pieces.split, "Gather", (shape, self._integers(base, pieces.axis)), (output,), {"axis": 0})
        return output

    def _write_length(self, node: Node, sequence: Elements) -> bool:
        output = node.outputs[0]
        if isinstance(sequence, tuple):
            self._add(node, "Identity", (self._integers(output, len(sequence)),), (output,))
        elif sequence.size == 1:
            self._extent(sequence, output)
        else:
            self._add(node, "Size", (self._begins(sequence),), (output,))
        return True

    def _write_concatenation(self, node: Node, sequence: Elements) -> bool:
        if not isinstance(sequence, tuple) or not sequence:
            return False
        axis, parts = int(node.attributes["axis"]), sequence
        if node.attributes.get("new_axis", 0):
            parts = tuple(self.editing.name(node.outputs[0]) for _ in sequence)
            attributes = {"axes": [axis]} if node.version < _LISTS else {}
            axes = () if node.version < _LISTS else (self._integers(node.outputs[0], [axis]),)
            for x, wide in zip(sequence, parts, strict=True):
                self._add(node, "Unsqueeze", (x, *axes), (wide,), attributes)
        self._add(node, "Concat", parts, node.outputs, {"axis": axis})
        return True

    def _number(self, name: str) -> int | None:
        """A position that is a constant."""
        value = self.editing.constant(self.editing.resolve(name))
        return int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def _integers(self, base: str, value: int | Sequence[int]) -> str:
        return self.editing.add_constant(base, np.asarray(value, np.int64))

    def _add(
        self, like: Node, op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any] | None = None
    ) -> None:
        made = change_node(like, op=op, inputs=inputs, outputs=outputs, attributes=attributes or {})
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in made.attributes.items()}
        self.nodes.append(replace(made, attributes=plain))
