"""`If`, `Loop` and `Scan` whose course is known when the graph is compiled: their bodies take their place.

before::

    y = If(c) <then: t = Relu(x), else: e = Neg(x)>          with c known to be true
    s, ys = Loop(3, true, s0) <body>                          few iterations of a small body

after::

    y/t = Relu(x);  y = Identity(y/t)
    s/0/… = body(0, s0);  s/1/… = body(1, s/0/…);  s/2/… = body(2, s/1/…);  ys = Concat of the parts

The others are driven by the host, which runs their bodies as graphs of their own (`iterate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from polyc.frontends.onnx.graph import Graph, Node
from polyc.records import dataclass, replace

MOST_UNROLLED = 64
"""Nodes, over all iterations, up to which a body is written out; beyond it is compiled once and run by the host."""
_LISTS = 13
"""First operator set whose `Squeeze` and `Unsqueeze` take their axes as an input."""

Known = Callable[[str], "np.ndarray | None"]
"""Contents of the value of a name, where they are known."""
Rank = Callable[[str], "int | None"]
Shape = Callable[[str], "Sequence[int] | None"]


def expand_control(node: Node, known: Known, shape: Shape) -> tuple[Node, ...] | None:
    """The nodes that compute what `node` does, where that is known; None for what the host has to drive, or has no subgraphs.

    `known` and `shape` tell of the values that the node reads; names of new values begin with the node's first output."""
    if node.domain:
        return None
    match node.op:
        case "If":
            condition = known(node.inputs[0])
            if condition is None or condition.size != 1:
                return None
            branch = node.attributes["then_branch" if condition.reshape(-1)[0] else "else_branch"]
            return tuple(_Writer(node).inline(branch, {}, dict(enumerate(node.outputs))))
        case "Loop":
            return _unroll_loop(node, known)
        case "Scan" if node.version >= 9:
            return _unroll_scan(node, shape)
    return None


def count_nodes(graph: Graph) -> int:
    """Nodes of `graph` and of the graphs inside it."""
    return sum(1 + sum(count_nodes(g) for g in n.subgraphs) for n in graph.nodes)


def rename_node(node: Node, names: Mapping[str, str]) -> Node:
    """`node` over values of other names, in its subgraphs too where these read values from around them."""
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    _rename_proto(proto, names)

    def renamed(value: Any) -> Any:
        if isinstance(value, Graph):
            return _rename_graph(value, names)
        if isinstance(value, tuple) and value and isinstance(value[0], Graph):
            return tuple(_rename_graph(g, names) for g in value)
        return value

    return replace(
        node,
        inputs=tuple(names.get(n, n) for n in node.inputs),
        outputs=tuple(names.get(n, n) for n in node.outputs),
        attributes={k: renamed(v) for k, v in node.attributes.items()},
        proto=proto,
    )


def _rename_graph(graph: Graph, names: Mapping[str, str]) -> Graph:
    own = {p.name for p in graph.inputs} | set(graph.constants) | {o for n in graph.nodes for o in n.outputs}
    free = {old: new for old, new in names.items() if old not in own}
    if not free:
        return graph
    return replace(
        graph,
        nodes=tuple(rename_node(n, free) for n in graph.nodes),
        outputs=tuple(replace(p, name=free.get(p.name, p.name)) for p in graph.outputs),
    )


def _rename_proto(proto: NodeProto, names: Mapping[str, str]) -> None:
    for values in (proto.input, proto.output):
        for k, name in enumerate(values):
            if name in names:
                values[k] = names[name]
    for a in proto.attribute:
        for graph in (*((a.g,) if a.HasField("g") else ()), *a.graphs):
            _rename_graph_proto(graph, names)


def _rename_graph_proto(graph: GraphProto, names: Mapping[str, str]) -> None:
    own = {p.name for p in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    free = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        _rename_proto(node, free)
    for port in graph.output:
        port.name = free.get(port.name, port.name)


@dataclass(slots=True)
class _Writer:
    """Writes bodies of `node` into the graph around it; all names are new."""

    node: Node
    shared: dict[str, str] = field(default_factory=dict)
    """Names, in the graph around, of the constants of a body, which its iterations share."""
    n_names: int = 0

    @property
    def prefix(self) -> str:
        return next((o for o in self.node.outputs if o), self.node.op)

    def name(self, hint: str) -> str:
        self.n_names += 1
        return f"{self.prefix}/{hint}.{self.n_names}"

    def make(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> Node:
        """A node of the default domain; lists are integers."""
        proto = onnx.helper.make_node(op, inputs, [output], **attributes)
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
        version = self.node.version
        return Node(op, "", version, tuple(inputs), (output,), plain, output, proto, (*self.node.path, self.node.op))

    def constant(self, value: np.ndarray, name: str) -> Node:
        proto = NodeProto(op_type="Constant", output=[name])
        attribute = proto.attribute.add(name="value", type=AttributeProto.TENSOR)
        if value.dtype != object and value.size <= 1 << 16:  # more is in `attributes`, where folding finds it
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(value))
        path = (*self.node.path, self.node.op)
        return Node("Constant", "", self.node.version, (), (name,), {"value": value}, name, proto, path)

    def inline(self, body: Graph, inputs: Mapping[str, str], outputs: Mapping[int, str]) -> list[Node]:
        """`body` with `inputs` for its own (by name); `outputs` names some of its results, by position."""
        nodes: list[Node] = []
        names = dict(inputs)
        for name, value in body.constants.items():
            if name in inputs:
                continue
            if name not in self.shared:
                self.shared[name] = self.name(name)
                nodes.append(self.constant(value, self.shared[name]))
            names[name] = self.shared[name]
        for inner in body.nodes:
            for output in inner.outputs:
                if output:
                    names[output] = self.name(output)
        nodes += [
            replace(rename_node(n, names), path=(*self.node.path, self.node.op, *n.path), name=n.name) for n in body.nodes
        ]
        nodes += [
            self.make("Identity", [names.get(body.outputs[k].name, body.outputs[k].name)], name)
            for k, name in outputs.items()
            if name
        ]
        return nodes

    def slice_one(self, x: str, k: int, axis: int) -> tuple[list[Node], str]:
        """Element `k` of `x` along `axis`, which is gone then."""
        index, result = self.name("k"), self.name("element")
        nodes = [self.constant(np.asarray(k, np.int64), index), self.make("Gather", [x, index], result, axis=axis)]
        return nodes, result

    def stack(self, parts: Sequence[str], output: str, axis: int) -> list[Node]:
        """`parts` along a new `axis`."""
        nodes, wide = [], []
        axes = self.name("axes")
        if self.node.version >= _LISTS:
            nodes.append(self.constant(np.asarray([axis], np.int64), axes))
        for part in parts:
            wide.append(self.name("part"))
            if self.node.version >= _LISTS:
                nodes.append(self.make("Unsqueeze", [part, axes], wide[-1]))
            else:
                nodes.append(self.make("Unsqueeze", [part], wide[-1], axes=[axis]))
        nodes.append(self.make("Concat", wide, output, axis=axis))
        return nodes


def _unroll_loop(node: Node, known: Known) -> tuple[Node, ...] | None:
    body: Graph = node.attributes["body"]
    limit, start = ([*node.inputs, "", ""])[:2]
    if start and ((given := known(start)) is None or given.size != 1):
        return None
    is_started = not start or bool(given.reshape(-1)[0])  # type: ignore[union-attr]
    count = known(limit) if limit else None
    if count is None or count.size != 1 or (is_started and not stays_true(body)):
        return None
    n = max(int(count.reshape(-1)[0]), 0) if is_started else 0
    initial = list(node.inputs[2:])
    n_states = len(initial)
    has_scans = any(node.outputs[n_states:])
    if n * count_nodes(body) > MOST_UNROLLED or (has_scans and not n):
        return None
    if any(not p.is_tensor for p in body.outputs):
        return None
    writer, nodes = _Writer(node), []
    condition = writer.name("cond")
    nodes.append(writer.constant(np.asarray(True), condition))
    state, parts = initial, [[] for _ in body.outputs[1 + n_states :]]  # type: list[str], list[list[str]]
    for k in range(n):
        step = writer.name("step")
        nodes.append(writer.constant(np.asarray(k, np.int64), step))
        made = {k: writer.name("out") for k in range(1, len(body.outputs))}
        given_names = dict(zip((p.name for p in body.inputs), (step, condition, *state), strict=False))
        nodes += writer.inline(body, given_names, made)
        state = [made[1 + k] for k in range(n_states)]
        for part, k in zip(parts, range(1 + n_states, len(body.outputs)), strict=True):
            part.append(made[k])
    nodes += _finish(writer, state, parts, [0] * len(parts))
    return tuple(nodes)


def _finish(writer: _Writer, state: Sequence[str], parts: Sequence[Sequence[str]], axes: Sequence[int]) -> list[Node]:
    """Give the last state and the stacked parts the names of the node's outputs."""
    nodes: list[Node] = []
    outputs = writer.node.outputs
    for name, output in zip(state, outputs, strict=False):
        if output:
            nodes.append(writer.make("Identity", [name], output))
    for part, output, axis in zip(parts, outputs[len(state) :], axes, strict=False):
        if output:
            nodes += writer.stack(part, output, axis)
    return nodes


def stays_true(body: Graph) -> bool:
    """Whether the condition that a loop's body gives is true whenever the one that it got was."""
    writers = {o: n for n in body.nodes for o in n.outputs}
    name = body.outputs[0].name
    for _ in range(len(body.nodes) + 1):
        if len(body.inputs) > 1 and name == body.inputs[1].name:
            return True
        if name in body.constants:
            return bool(np.all(body.constants[name]))
        source = writers.get(name)
        if source is None:
            return False
        if source.op == "Constant" and not source.domain:
            value = source.attributes.get("value")
            return isinstance(value, np.ndarray) and bool(np.all(value))
        if source.op not in ("Identity", "Cast"):
            return False
        name = source.inputs[0]
    return False


def _unroll_scan(node: Node, shape: Shape) -> tuple[Node, ...] | None:
    body: Graph = node.attributes["body"]
    plan = ScanPlan.of(node)
    n_states = plan.n_states
    shapes = [shape(n) for n in node.inputs[n_states:]]
    if any(s is None for s in shapes):
        return None
    lengths = {s[axis % len(s)] for s, axis in zip(shapes, plan.input_axes, strict=True) if s}
    if len(lengths) != 1:
        return None
    n = lengths.pop()
    if not n or n * count_nodes(body) > MOST_UNROLLED:
        return None
    if any(axis < 0 for axis in plan.output_axes) and node.version < 11:
        return None
    writer = _Writer(node)
    nodes: list[Node] = []
    state = list(node.inputs[:n_states])
    parts: list[list[str]] = [[] for _ in plan.output_axes]
    for k in range(n):
        elements = []
        for x, axis, s, is_reversed in zip(node.inputs[n_states:], plan.input_axes, shapes, plan.input_reversed, strict=True):
            assert s is not None
            made, element = writer.slice_one(x, n - 1 - k if is_reversed else k, axis % len(s))
            nodes += made
            elements.append(element)
        results = {k: writer.name("out") for k in range(len(body.outputs))}
        nodes += writer.inline(body, dict(zip((p.name for p in body.inputs), (*state, *elements), strict=True)), results)
        state = [results[k] for k in range(n_states)]
        for j, part in enumerate(parts):
            part.append(results[n_states + j])
    ordered = [part[::-1] if is_reversed else part for part, is_reversed in zip(parts, plan.output_reversed, strict=True)]
    nodes += _finish(writer, state, ordered, plan.output_axes)
    return tuple(nodes)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What the attributes of a `Scan` say, with their defaults."""

    n_states: int
    input_axes: tuple[int, ...]
    input_reversed: tuple[bool, ...]
    output_axes: tuple[int, ...]
    output_reversed: tuple[bool, ...]

    @classmethod
    def of(cls, node: Node) -> ScanPlan:
        """The plan of a `Scan` of operator set 9 or later."""
        n_scans = int(node.attributes["num_scan_inputs"])
        n_states = len(node.inputs) - n_scans
        n_results = len(node.attributes["body"].outputs) - n_states

        def of_each(name: str, count: int) -> tuple[int, ...]:
            given = tuple(int(v) for v in node.attributes.get(name, ()))
            return given if len(given) == count else (0,) * count

        return cls(
            n_states,
            of_each("scan_input_axes", n_scans),
            tuple(map(bool, of_each("scan_input_directions", n_scans))),
            of_each("scan_output_axes", n_results),
            tuple(map(bool, of_each("scan_output_directions", n_results))),
        )
