"""Nodes with known inputs, computed by polyc's own definitions: what onnx's evaluator gives, without loading it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.frontends.onnx import lowering
from polyc.frontends.onnx.lowering import lower_graph
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.reference import fold_node

I = np.int64
F = np.float32


def graph_of(op, inputs, attributes=None, n_outputs=1, opset=17):
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(inputs)]
    outputs = [f"o{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, outputs, **(attributes or {}))
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in zip(names, inputs, strict=True) if a is not None]
    ports = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
    proto = helper.make_graph([node], "g", [], ports, tensors)
    return read_model(helper.make_model(proto, opset_imports=[helper.make_opsetid("", opset)]))


CASES = {
    "shape": ("Shape", [np.zeros((2, 0, 5), F)]),
    "shape of a part": ("Shape", [np.zeros((2, 3, 5), F)], {"start": -2, "end": 3}),
    "size": ("Size", [np.zeros((2, 0, 5), F)]),
    "gather from the end": ("Gather", [np.arange(6, dtype=I), np.array([-1, 2])]),
    "gather one": ("Gather", [np.arange(6, dtype=I), np.array(3)]),
    "slice backwards": ("Slice", [np.arange(9, dtype=I), *(np.array([v]) for v in (8, -100, 0, -2))]),
    "slice to nothing": ("Slice", [np.arange(9, dtype=I), np.array([5]), np.array([5])]),
    "concat": ("Concat", [np.array([1, 2]), np.array([], I), np.array([3])], {"axis": 0}),
    "division of integers": ("Div", [np.array([-7, 7, -8]), np.array([2, -2, 3])]),
    "remainder": ("Mod", [np.array([-7, 7, -8]), np.array([2, -2, 3])]),
    "cast to integers": ("Cast", [np.array([-1.5, 2.7, 0.0], F)], {"to": TensorProto.INT64}),
    "cast to truth": ("Cast", [np.array([-1.5, 0.0], F)], {"to": TensorProto.BOOL}),
    "range": ("Range", [np.array(3), np.array(-4), np.array(-2)]),
    "constant of shape": ("ConstantOfShape", [np.array([2, 3])], {"value": helper.make_tensor("v", 7, [1], [5])}),
    "where": ("Where", [np.array([True, False]), np.array([1, 2]), np.array([[3, 4], [5, 6]])]),
    "expand": ("Expand", [np.array([[1], [2]]), np.array([2, 1, 3])]),
    "product": ("ReduceProd", [np.array([2, 3, 4])], {"keepdims": 0}),
    "unsqueeze": ("Unsqueeze", [np.array(5), np.array([0])]),
    "split": ("Split", [np.arange(7, dtype=I), np.array([3, 4])], {"axis": 0}, 2),
    "square root": ("Sqrt", [np.array([4.0, -1.0], F)]),
    "no division by zero": ("Div", [np.array([1.0, 0.0], F), np.array([0.0, 0.0], F)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_folded_node_is_what_the_evaluator_gives(name):
    graph = graph_of(*CASES[name])
    (node,) = graph.nodes
    state = lower_graph(graph, 0, {}, graph.constants, graph.constants)
    own = lowering._fold_own(node, lower_graph(graph, 1, {}, graph.constants, graph.constants))
    want = fold_node(node, graph, [graph.constants[n] if n else None for n in node.inputs])
    assert own is not None and len(own) == len(want)
    for a, b, o in zip(own, want, node.outputs, strict=True):
        assert a is not None and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(state.constants[o], b)


def test_what_is_rounded_to_16_bits_or_large_is_left_to_the_evaluator():
    half = graph_of("Add", [np.ones(3, np.float16), np.ones(3, np.float16)])
    assert lowering._fold_own(half.nodes[0], lower_graph(half, 1, {}, half.constants, half.constants)) is None
    large = graph_of("ConstantOfShape", [np.array([1 << 20])])
    assert lowering._fold_own(large.nodes[0], lower_graph(large, 1, {}, large.constants, large.constants)) is None


def test_shapes_are_folded_without_the_evaluator(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["k"], axis=0),
        helper.make_node("Reshape", ["x", "k"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.array([v]), n) for n, v in (("zero", 0), ("rest", -1))]
    ports = [[helper.make_tensor_value_info(n, 1, s)] for n, s in (("x", ["n", 2, 3]), ("y", None))]
    proto = helper.make_model(helper.make_graph(nodes, "g", *ports, tensors), opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    script = (
        "import sys, numpy as np, polyc.onnx\n"
        f"s = polyc.onnx.load({str(tmp_path / 'm.onnx')!r}, strict=True)\n"
        "y, = s.run(None, {'x': np.arange(24, dtype=np.float32).reshape(4, 2, 3)})\n"
        "assert y.shape == (4, 6) and (y.reshape(-1) == np.arange(24)).all()\n"
        "print([m for m in sys.modules if m.startswith('onnx.reference')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.strip() == "[]"
