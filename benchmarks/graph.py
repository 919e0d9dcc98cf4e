"""An ONNX graph written down by calling it: the peers of onnxruntime describe their model with this builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

OPSET = 20
IR_VERSION = 9


@dataclass(slots=True)
class Graph:
    """What stands for the module in ``peer(module, out, **inputs)``: inputs and results are names of values.

    `shapes` are those of the inputs; `dtype` is that of every floating constant."""

    shapes: Mapping[str, tuple[int, ...]]
    dtype: str = "float32"
    nodes: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def node(self, kind: str, *operands: str, **attributes: Any) -> str:
        """Append an operation; the name of its (only) result."""
        result = f"v{len(self.nodes)}"
        self.nodes.append((kind, operands, result, attributes))
        return result

    def constant(self, values: Sequence[float] | float | np.ndarray, dtype: str | None = None) -> str:
        """A value known beforehand, in the graph's type where none is given."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype or self.dtype)
        return name


def build_model(
    graph: Graph, inputs: Mapping[str, np.ndarray], weights: Sequence[str], results: Sequence[str] | str, dtype: str
) -> bytes:
    """The serialised model: `weights` are stored in it (a runtime may then lay them out as it likes), other inputs fed."""
    from onnx import helper, numpy_helper

    def kind(name: str | np.dtype) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))

    nodes = [helper.make_node(k, list(o), [r], **attributes) for k, o, r, attributes in graph.nodes]
    names = (results,) if isinstance(results, str) else results
    positions = {r for k, _, r, _ in graph.nodes if k in ("ArgMax", "ArgMin")}
    stored = {n: inputs[n] for n in weights} | graph.constants
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "workload",
            [helper.make_tensor_value_info(n, kind(a.dtype), a.shape) for n, a in inputs.items() if n not in weights],
            [helper.make_tensor_value_info(r, kind("int64" if r in positions else dtype), None) for r in names],
            [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in stored.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    return bytes(model.SerializeToString())
