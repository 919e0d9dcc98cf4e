"""States of a loop that its iterations only append to: kept in parts, which are joined when the loop has ended.

before::

    ys = Loop(n, c, ys0, h0) <body(…, ys, h): …; p = Unsqueeze(h'); ys' = Concat<axis=0>(ys, p)>

after::

    the body gives p in the place of ys', and ys is Concat<axis=0>(ys0, p of each iteration)

Lists in a scripted function are exported like this.  As a state, such a tensor has another shape in each iteration, for each of
which the body would be planned, and all of it would be copied each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyc.frontends.onnx.graph import Graph, Node, Port
from polyc.records import dataclass, replace
from polyc.runtime.memory import check_memory

_UNCHECKED = 1 << 20
"""Bytes up to which nobody asks for memory."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How a state grows: along `axis`, in front of what it was or behind it."""

    axis: int
    is_in_front: bool


def take_out_growing(body: Graph) -> tuple[Graph, Mapping[int, Growth]]:
    """The body of a `Loop` with what it appends to states that it does not read otherwise in the place of these, and how each
    of them (by its number) grows."""
    makers = {o: n for n in body.nodes for o in n.outputs}
    growths: dict[int, Growth] = {}
    dropped: set[int] = set()
    outputs = list(body.outputs)
    for k in range(min(len(body.inputs) - 2, len(body.outputs) - 1)):
        name, result = body.inputs[2 + k].name, body.outputs[1 + k]
        node = makers.get(result.name)
        if node is None or node.op != "Concat" or node.domain or len(node.inputs) != 2 or node.inputs.count(name) != 1:
            continue
        is_in_front = node.inputs[1] == name
        part = node.inputs[0 if is_in_front else 1]
        if part not in makers or not _is_only_use(body, node, name, result.name):
            continue
        growths[k] = Growth(int(node.attributes["axis"]), is_in_front)
        dropped.add(id(node))
        outputs[1 + k] = Port(part, result.type, None)
    if not growths:
        return body, growths
    inputs = tuple(p for k, p in enumerate(body.inputs) if k - 2 not in growths)
    nodes = tuple(n for n in body.nodes if id(n) not in dropped)
    return replace(body, inputs=inputs, outputs=tuple(outputs), nodes=nodes), growths


def _is_only_use(body: Graph, node: Node, name: str, result: str) -> bool:
    """Whether nothing but `node` reads the state, and nothing in the body its result."""
    if any(p.name == name for p in body.outputs) or sum(p.name == result for p in body.outputs) != 1:
        return False
    return all(n is node or (name not in n.used_names and result not in n.used_names) for n in body.nodes)


class Parts:
    """What the iterations append to a state."""

    def __init__(self, label: str, growth: Growth, first: np.ndarray) -> None:
        self._label, self._growth = label, growth
        self._parts = [first]
        self._size = first.nbytes
        self._checked = _UNCHECKED

    def add(self, part: np.ndarray) -> None:
        """Append a copy: its memory may be written again by the next iteration.  Raises ValueError where it does not fit."""
        first = self._parts[0]
        axis = self._growth.axis
        if part.ndim != first.ndim or not -first.ndim <= axis < first.ndim or part.dtype != first.dtype:
            raise ValueError(f"{_describe(part)} cannot be appended to {_describe(first)} along axis {axis}")
        if _without(part.shape, axis) != _without(first.shape, axis):
            raise ValueError(f"{_describe(part)} cannot be appended to {_describe(first)} along axis {axis}")
        self._size += part.nbytes
        if self._size > self._checked:
            check_memory(f"the result of {self._label}", 2 * self._size)
            self._checked = 2 * self._size
        self._parts.append(part.copy())

    def joined(self) -> np.ndarray:
        """The state behind the last iteration."""
        parts = [*self._parts[:0:-1], self._parts[0]] if self._growth.is_in_front else self._parts
        return np.concatenate(parts, self._growth.axis) if len(parts) > 1 else parts[0]


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    axis %= len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
