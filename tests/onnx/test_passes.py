"""Passes over graphs: what they leave, and that it computes the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx
from polyc.frontends.onnx.graph import Graph
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.passes import PASSES, simplify


def build(text_nodes, inputs, outputs, constants=None, opset=17, types=None):
    """A model from nodes, inputs and outputs by name and rank, and constants."""
    value = lambda n, rank: helper.make_tensor_value_info(n, (types or {}).get(n, TensorProto.FLOAT), [None] * rank)  # noqa: E731
    graph = helper.make_graph(
        text_nodes,
        "g",
        [value(n, r) for n, r in inputs.items()],
        [value(n, r) for n, r in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def as_model(graph: Graph, like: onnx.ModelProto) -> onnx.ModelProto:
    """The graph that passes have changed, as a model again."""
    proto = onnx.ModelProto()
    proto.CopyFrom(like)
    del proto.graph.node[:]
    proto.graph.node.extend(n.proto for n in graph.nodes)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in graph.constants.items())
    onnx.checker.check_model(proto)
    return proto


def check(model, feed, graph=None, tolerance=1e-5):
    """Simplify; the result computes what the model computes.  The operators that are left."""
    graph = simplify(read_model(model)) if graph is None else graph
    expected = ReferenceEvaluator(model).run(None, feed)
    found = ReferenceEvaluator(as_model(graph, model)).run(None, feed)
    for e, f in zip(expected, found, strict=True):
        assert e.shape == f.shape and e.dtype == f.dtype
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)
    for node in graph.nodes:  # the copies agree with what onnx runs
        assert node.inputs == tuple(node.proto.input) and node.outputs == tuple(node.proto.output)
        assert node.op == node.proto.op_type and set(node.attributes) == {a.name for a in node.proto.attribute}
    return Counter(n.op for n in graph.nodes)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def normalisation(rng, channels, x="h", y="y"):
    names = ["gamma", "beta", "mean", "variance"]
    values = {n: normal(rng, channels) for n in names}
    values["variance"] = np.abs(values["variance"]) + np.float32(0.5)
    return helper.make_node("BatchNormalization", [x, *names], [y], epsilon=1e-3), values


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_a_normalisation_behind_a_convolution_goes_into_its_weights(rng, with_bias, group):
    bn, values = normalisation(rng, 6)
    values |= {"w": normal(rng, 6, 4 // group, 3, 3), "b": normal(rng, 6)}
    conv = helper.make_node("Conv", ["x", "w", *(["b"] if with_bias else [])], ["h"], group=group)
    model = build([conv, bn], {"x": 4}, {"y": 4}, values)
    assert check(model, {"x": normal(rng, 2, 4, 7, 8)}) == {"Conv": 1}


@pytest.mark.parametrize("group", [1, 2])
def test_a_normalisation_behind_a_transposed_convolution_goes_into_its_weights(rng, group):
    bn, values = normalisation(rng, 6)
    x = normal(rng, 2, 4, 5, 4)
    conv = helper.make_node("ConvTranspose", ["x", "w"], ["h"], group=group, strides=[2, 2])
    model = build([conv, bn], {"x": 4}, {"y": 4}, values | {"w": normal(rng, 4, 6 // group, 2, 2)})
    graph = simplify(read_model(model))
    (node,) = graph.nodes
    # onnx's reference has no groups here: each is computed alone.
    alone = build([helper.make_node("ConvTranspose", ["x", "w"], ["h"], strides=[2, 2])], {"x": 4, "w": 4}, {"h": 4})

    def run(weights):
        parts = zip(np.split(x, group, 1), np.split(weights, group), strict=True)
        return np.concatenate([ReferenceEvaluator(alone).run(None, {"x": a, "w": w})[0] for a, w in parts], 1)

    original = read_model(model).constants
    expected = ReferenceEvaluator(build([bn], {"h": 4}, {"y": 4}, values)).run(None, {"h": run(original["w"])})[0]
    bias = graph.constants[node.inputs[2]][:, None, None]
    np.testing.assert_allclose(run(graph.constants[node.inputs[1]]) + bias, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [0, 1])
def test_factors_and_shifts_behind_a_product_go_into_its_weights(rng, transposed):
    w = normal(rng, 5, 3) if transposed else normal(rng, 3, 5)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=transposed, alpha=0.5, beta=2.0),
        helper.make_node("Mul", ["s", "h"], ["i"]),
        helper.make_node("Sub", ["i", "t"], ["j"]),
        helper.make_node("Div", ["j", "d"], ["y"]),
    ]
    constants = {"w": w, "b": normal(rng, 1, 5), "s": normal(rng, 5), "t": normal(rng, 1, 5), "d": np.float32(4)}
    assert check(build(nodes, {"x": 2}, {"y": 2}, constants), {"x": normal(rng, 4, 3)}) == {"Gemm": 1}


@pytest.mark.parametrize(
    "constant",
    [np.ones((7, 8), np.float32), np.ones((6, 1, 8), np.float32), np.ones((3, 1, 1, 1, 1), np.float32), np.ones(8, np.float32)],
)
def test_a_factor_that_differs_inside_of_channels_stays(rng, constant):
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1] * 4), helper.make_node("Mul", ["h", "s"], ["y"])]
    model = build(nodes, {"x": 4}, {"y": max(4, constant.ndim)}, {"w": normal(rng, 6, 4, 3, 3), "s": constant})
    assert check(model, {"x": normal(rng, 2, 4, 7, 8)})["Mul"] == 1


def test_a_layer_that_two_read_keeps_its_weights(rng):
    bn, values = normalisation(rng, 6)
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), bn, helper.make_node("Relu", ["h"], ["z"])]
    model = build(nodes, {"x": 4}, {"y": 4, "z": 4}, values | {"w": normal(rng, 6, 4, 3, 3)})
    assert check(model, {"x": normal(rng, 1, 4, 5, 5)})["BatchNormalization"] == 1


def test_a_zero_divisor_stays_where_it_is(rng):
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Div", ["h", "z"], ["y"])]
    model = build(nodes, {"x": 3}, {"y": 3}, {"w": normal(rng, 2, 1, 1), "z": np.float32(0)})
    assert Counter(n.op for n in simplify(read_model(model)).nodes)["Div"] == 1


@pytest.mark.parametrize("opset", [9, 17])
def test_zeros_around_an_image_go_into_the_convolution(rng, opset):
    pads = [0, 0, 1, 2, 0, 0, 0, 1]
    pad = helper.make_node("Pad", ["x"], ["p"], pads=pads) if opset < 11 else helper.make_node("Pad", ["x", "n"], ["p"])
    conv = helper.make_node("Conv", ["p", "w"], ["y"], pads=[1, 0, 0, 1], strides=[2, 1])
    constants = {"w": normal(rng, 3, 2, 3, 3)} | ({"n": np.array(pads)} if opset >= 11 else {})
    assert check(build([pad, conv], {"x": 4}, {"y": 4}, constants, opset), {"x": normal(rng, 1, 2, 8, 9)}) == {"Conv": 1}


@pytest.mark.parametrize(
    "pads, mode, value",
    [
        ([0, 1, 0, 0, 0, 0, 0, 0], "constant", 0.0),
        ([0, 0, 1, 1, 0, 0, 1, 1], "edge", 0.0),
        ([0, 0, 1, 1, 0, 0, 1, 1], "constant", 1.0),
        ([0, 0, -1, 1, 0, 0, 1, 1], "constant", 0.0),
    ],
)
def test_other_padding_stays(rng, pads, mode, value):
    nodes = [helper.make_node("Pad", ["x", "n", "v"], ["p"], mode=mode), helper.make_node("Conv", ["p", "w"], ["y"])]
    channels = 2 + pads[1]
    constants = {"w": normal(rng, 3, channels, 3, 3), "n": np.array(pads), "v": np.float32(value)}
    assert [n.op for n in simplify(read_model(build(nodes, {"x": 4}, {"y": 4}, constants))).nodes] == ["Pad", "Conv"]


def test_transposes_meet_behind_pointwise_nodes(rng):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "s"], ["c"]),
        helper.make_node("Add", ["t", "c"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["e"]),
        helper.make_node("Transpose", ["e"], ["y"], perm=[0, 2, 3, 1]),
    ]
    constants = {"s": normal(rng, 5, 1, 1), "t": normal(rng, 4), "two": np.float32(2)}
    found = check(build(nodes, {"x": 4}, {"y": 4}, constants), {"x": normal(rng, 2, 3, 4, 5)})
    assert found["Transpose"] == 0


def test_a_transposed_sum_of_two_is_turned_once(rng):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 2, 0]),
        helper.make_node("Transpose", ["z"], ["b"], perm=[1, 2, 0]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=1),
    ]
    found = check(build(nodes, {"x": 3, "z": 3}, {"y": 3}), {n: normal(rng, 2, 3, 4) for n in "xz"})
    assert found == {"Add": 1, "Transpose": 1, "Softmax": 1}


def test_outputs_that_are_transposed_stay(rng):
    nodes = [
        helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[1, 0]),
        helper.make_node("Relu", ["y"], ["r"]),
    ]
    check(build(nodes, {"x": 2}, {"y": 2, "z": 2, "r": 2}), {"x": normal(rng, 2, 3)})


def test_transposes_of_different_kinds_are_made(rng):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Add", ["a", "x"], ["y"]),
        helper.make_node("Add", ["a", "z"], ["w"]),
    ]
    found = check(build(nodes, {"x": 2, "z": 1}, {"y": 2, "w": 2}), {"x": normal(rng, 3, 3), "z": normal(rng, 3)})
    assert found["Transpose"] == 1


def test_what_changes_nothing_goes(rng):
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Dropout", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 1]),
        helper.make_node("Pad", ["c", "zero"], ["d"]),
        helper.make_node("Sum", ["d"], ["e"]),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32(2))),
        helper.make_node("Mul", ["e", "k"], ["y"]),
    ]
    model = build(nodes, {"x": 2}, {"y": 2}, {"zero": np.zeros(4, np.int64)})
    assert check(model, {"x": normal(rng, 3, 4)}) == {"Mul": 1}


def test_an_output_that_is_an_input_stays(rng):
    model = build([helper.make_node("Identity", ["x"], ["y"])], {"x": 1}, {"y": 1})
    assert check(model, {"x": normal(rng, 3)}) == {"Identity": 1}


def test_a_dropout_that_trains_stays(rng):
    constants = {"ratio": np.float32(0.5), "training": np.array(True)}
    model = build([helper.make_node("Dropout", ["x", "ratio", "training"], ["d"]), helper.make_node("Relu", ["d"], ["y"])],
                  {"x": 1}, {"y": 1}, constants)  # fmt: skip
    assert Counter(n.op for n in simplify(read_model(model)).nodes) == {"Dropout": 1, "Relu": 1}


def test_equal_nodes_and_constants_are_computed_once(rng):
    nodes = [
        helper.make_node("Add", ["x", "k1"], ["a"]),
        helper.make_node("Add", ["x", "k2"], ["b"]),
        helper.make_node("Exp", ["a"], ["c"]),
        helper.make_node("Exp", ["b"], ["d"]),
        helper.make_node("LeakyRelu", ["a"], ["e"], alpha=0.1),
        helper.make_node("LeakyRelu", ["b"], ["f"], alpha=0.2),
        helper.make_node("Sum", ["c", "d", "e", "f"], ["y"]),
    ]
    model = build(nodes, {"x": 1}, {"y": 1}, {"k1": np.float32(3), "k2": np.float32(3)})
    assert check(model, {"x": normal(rng, 3)}) == {"Add": 1, "Exp": 1, "LeakyRelu": 2, "Sum": 1}


def test_random_numbers_are_not_shared():
    nodes = [helper.make_node("RandomNormal", [], [n], shape=[3]) for n in "ab"] + [helper.make_node("Sub", ["a", "b"], ["y"])]
    assert len(simplify(read_model(build(nodes, {}, {"y": 1}))).nodes) == 3


def test_what_nothing_reads_goes(rng):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Add", ["x", "k"], ["z"])]
    graph = simplify(read_model(build(nodes, {"x": 1}, {"y": 1}, {"k": np.float32(1)})))
    assert [n.op for n in graph.nodes] == ["Relu"] and not graph.constants


def test_what_subgraphs_read_keeps_its_name(rng):
    value = lambda n, t: helper.make_tensor_value_info(n, t, None)  # noqa: E731
    then = helper.make_graph([helper.make_node("Exp", ["b"], ["o"])], "then", [], [value("o", TensorProto.FLOAT)])
    other = helper.make_graph([helper.make_node("Neg", ["d"], ["o"])], "else", [], [value("o", TensorProto.FLOAT)])
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Transpose", ["x"], ["c"], perm=[1, 0]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0]),
        helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other),
    ]
    model = build(nodes, {"x": 2, "p": 0}, {"y": 2}, types={"p": TensorProto.BOOL})
    for flag in (True, False):
        check(model, {"x": normal(rng, 3, 3), "p": np.array(flag)})


@pytest.mark.parametrize(
    "first",
    [
        [helper.make_node("Identity", ["x"], ["a"])],
        [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Exp", ["x"], ["a"])],
    ],
    ids=["no_op", "common"],
)
def test_what_a_loop_starts_from_and_reads_inside_keeps_its_name(rng, first):
    value = lambda n, t, *shape: helper.make_tensor_value_info(n, t, shape)  # noqa: E731
    nodes = [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["s", "a"], ["t"])]
    inputs = [value("k", TensorProto.INT64), value("c", TensorProto.BOOL), value("s", TensorProto.FLOAT, 2)]
    body = helper.make_graph(nodes, "body", inputs, [value("d", TensorProto.BOOL), value("t", TensorProto.FLOAT, 2)])
    nodes = [*first, helper.make_node("Loop", ["n", "", "a"], ["y"], body=body)]
    outputs = dict.fromkeys(["y", *(n.output[0] for n in first[:-1])], 1)
    session = polyc.onnx.load(build(nodes, {"x": 1, "n": 0}, outputs, types={"n": TensorProto.INT64}))
    x = normal(rng, 2)
    expected = x if len(first) == 1 else np.exp(x)
    np.testing.assert_allclose(session.run(["y"], {"x": x, "n": np.array(3)})[0], 4 * expected, rtol=1e-6)


@pytest.mark.parametrize("run", PASSES, ids=lambda f: f.__name__)
def test_each_pass_alone_keeps_the_result(rng, run):
    bn, values = normalisation(rng, 6)
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Pad", ["i", "n"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["h"]),
        bn,
        helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Transpose", ["r"], ["z"], perm=[0, 3, 1, 2]),
        helper.make_node("Exp", ["y"], ["dead"]),
    ]
    values |= {"w": normal(rng, 6, 4, 3, 3), "n": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    model = build(nodes, {"x": 4}, {"z": 4}, values)
    check(model, {"x": normal(rng, 2, 4, 5, 6)}, run(read_model(model)))


def dequantized_layer(op, w, axis, w_scale, *, bias="constant", zero=0, group=1, x_shape=None, w_zero=None, **attributes):
    """A layer between DequantizeLinear nodes: nodes and constants."""
    rng = np.random.default_rng(1)
    n = w.shape[axis]
    constants = {"s": np.float32(0.03), "p": np.array(zero, np.uint8), "w": w, "t": w_scale}
    constants["q"] = np.full(w_scale.shape, 0 if w.dtype == np.int8 else 128, w.dtype) if w_zero is None else w_zero
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "p"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "t", "q"], ["v"], axis=axis),
    ]
    inputs = ["a", "v"]
    if bias == "constant":
        constants["b"] = rng.standard_normal(n).astype(np.float32)
        inputs.append("b")
    elif bias == "integers":
        constants |= {
            "c": rng.integers(-9, 9, n, np.int32),
            "u": (w_scale * 0.03).astype(np.float32),
            "z": np.zeros(w_scale.shape, np.int32),
        }
        nodes.append(helper.make_node("DequantizeLinear", ["c", "u", "z"], ["b"], axis=0))
        inputs.append("b")
    if group != 1:
        attributes["group"] = group
    return [*nodes, helper.make_node(op, inputs, ["y"], **attributes)], constants


def quantized_model(nodes, constants, rank):
    return build(nodes, {"x": rank}, {"y": rank}, constants, opset=21, types={"x": TensorProto.UINT8})


@pytest.mark.pairs
@pytest.mark.parametrize("bias", ["none", "constant", "integers"])
@pytest.mark.parametrize("is_each", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_convolutions_of_dequantised_bytes_multiply_integers(rng, bias, is_each, dtype):
    info = np.iinfo(dtype)
    w = rng.integers(info.min, info.max, (6, 5, 3, 2), dtype, endpoint=True)
    scale = rng.random(6).astype(np.float32) + 0.5 if is_each else np.float32(0.01)
    model = quantized_model(*dequantized_layer("Conv", w, 0, np.asarray(scale), bias=bias, zero=77, pads=[1, 0, 1, 1]), 4)
    x = rng.integers(0, 256, (2, 5, 6, 7), np.uint8)
    left = check(model, {"x": x}, tolerance=1e-4)
    assert left["ConvInteger"] == 1 and left["Conv"] == left["DequantizeLinear"] == 0
    (got,) = polyc.onnx.load(model, strict=True).run(None, {"x": x})
    np.testing.assert_allclose(got, ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("op", "turned"), [("MatMul", 0), ("Gemm", 0), ("Gemm", 1)])
def test_products_of_dequantised_bytes_multiply_integers(rng, op, turned):
    w = rng.integers(-128, 128, (7, 9) if turned else (9, 7), np.int8)
    axis, scale = 0 if turned else 1, rng.random(7).astype(np.float32)
    rest = {"transB": 1} if turned else {}
    layer = dequantized_layer(op, w, axis, scale, bias="none" if op == "MatMul" else "integers", zero=3, **rest)
    left = check(quantized_model(*layer, 2), {"x": rng.integers(0, 256, (4, 9), np.uint8)}, tolerance=1e-4)
    assert left["MatMulInteger"] == 1 and left[op] == 0


def test_layers_that_do_not_fit_words_of_bytes_stay_with_floats(rng):
    depthwise = rng.integers(-128, 128, (6, 1, 3, 3), np.int8)
    layer = dequantized_layer("Conv", depthwise, 0, np.asarray(np.float32(0.1)), bias="none", group=6)
    x = rng.integers(0, 256, (1, 6, 5, 5), np.uint8)
    assert check(quantized_model(*layer, 4), {"x": x}, tolerance=1e-4)["Conv"] == 1
    moved = rng.integers(-128, 128, (6, 6, 3, 3), np.int8)
    layer = dequantized_layer("Conv", moved, 0, np.asarray(np.float32(0.1)), bias="none", w_zero=np.array(5, np.int8))
    assert check(quantized_model(*layer, 4), {"x": x}, tolerance=1e-4)["Conv"] == 1
    scaled_rows = rng.integers(-128, 128, (9, 7), np.int8)
    layer = dequantized_layer("MatMul", scaled_rows, 0, rng.random(9).astype(np.float32), bias="none")
    x = rng.integers(0, 256, (4, 9), np.uint8)
    assert check(quantized_model(*layer, 2), {"x": x}, tolerance=1e-4)["MatMul"] == 1


def sequence_nodes(opset, split, keepdims, axis, positions):
    """Parts of x, by position; the number of parts; all of them taken together again."""
    inputs = ["x"] if split is None else ["x", "split"]
    nodes = [helper.make_node("SplitToSequence", inputs, ["s"], axis=axis, keepdims=keepdims)]
    constants = {} if split is None else {"split": np.asarray(split, np.int64)}
    for k, position in enumerate(positions):
        constants[f"p{k}"] = np.asarray(position, np.int64)
        nodes.append(helper.make_node("SequenceAt", ["s", f"p{k}"], [f"a{k}"]))
    nodes.append(helper.make_node("SequenceLength", ["s"], ["n"]))
    return nodes, constants


@pytest.mark.pairs
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    ("split", "keepdims", "positions"),
    [(None, 0, [0, 5, -1, 3]), (None, 1, [2, -6]), (4, 0, [0, 1, -1, -2]), (1, 0, [5]), ([1, 3, 0, 2], 1, [3, -4, 1, 1, 2])],
)
@pytest.mark.parametrize("axis", [1, -2])
def test_parts_of_a_sequence_are_read_from_the_tensor(rng, opset, split, keepdims, axis, positions):
    nodes, constants = sequence_nodes(opset, split, keepdims, axis, positions)
    rank = 2 if split is None and not keepdims else 3
    outputs = {f"a{k}": rank for k in range(len(positions))} | {"n": 0}
    model = build(nodes, {"x": 3}, outputs, constants, opset, {"n": TensorProto.INT64})
    feed = {"x": normal(rng, 2, 6, 5)}
    left = check(model, feed)
    assert not any("Sequence" in op for op in left)
    session = polyc.onnx.load(model, strict=True)
    for found, expected in zip(session.run(None, feed), ReferenceEvaluator(model).run(None, feed), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize(("axis", "new_axis"), [(0, 0), (-1, 0), (0, 1), (-1, 1), (1, 1)])
def test_a_sequence_that_is_filled_and_taken_together_is_a_concatenation(rng, opset, axis, new_axis):
    nodes = [
        helper.make_node("SequenceEmpty", [], ["s0"]),
        helper.make_node("SequenceInsert", ["s0", "x"], ["s1"]),
        helper.make_node("SequenceInsert", ["s1", "y", "zero"], ["s2"]),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("SequenceInsert", ["s2", "r", "back"], ["s3"]),
        helper.make_node("SequenceInsert", ["s3", "r"], ["s4"]),
        helper.make_node("SequenceErase", ["s4"], ["s5"]),
        helper.make_node("SequenceErase", ["s5", "back"], ["s6"]),
        helper.make_node("SequenceInsert", ["s6", "x", "zero"], ["s7"]),
        helper.make_node("ConcatFromSequence", ["s7"], ["z"], axis=axis, new_axis=new_axis),
        helper.make_node("SequenceLength", ["s4"], ["n"]),
    ]
    constants = {"zero": np.int64(0), "back": np.int32(-1)}
    model = build(nodes, {"x": 2, "y": 2}, {"z": 2 + new_axis, "n": 0}, constants, opset, {"n": TensorProto.INT64})
    feed = {"x": normal(rng, 3, 4), "y": normal(rng, 3, 4)}
    left = check(model, feed)
    assert not any("Sequence" in op for op in left)
    for found, expected in zip(
        polyc.onnx.load(model, strict=True).run(None, feed), ReferenceEvaluator(model).run(None, feed), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("count", "steps"), [(32, 1), (33, 3), (1025, 33 + 2 + 1)])
def test_very_many_parts_are_joined_in_steps(count, steps):
    names = [f"x{k}" for k in range(count)]
    nodes = [helper.make_node("Add", ["x", f"c{k}"], [n]) for k, n in enumerate(names)]
    nodes.append(helper.make_node("Concat", names, ["y"], axis=-1))
    model = build(nodes, {"x": 2}, {"y": 2}, {f"c{k}": np.float32(k) for k in range(count)})
    assert check(model, {"x": np.ones((2, 1), np.float32)})["Concat"] == steps


@pytest.mark.parametrize(("split", "position"), [(None, 6), (None, -7), (4, 2), (4, -3), ([4, 2], 2)])
def test_a_part_that_there_is_not_is_an_error(rng, split, position):
    nodes, constants = sequence_nodes(17, split, 1, 1, [position])
    model = build(nodes, {"x": 3}, {"a0": 3, "n": 0}, constants, 17, {"n": TensorProto.INT64})
    with pytest.raises(polyc.PolycError):
        polyc.onnx.load(model).run(None, {"x": normal(rng, 2, 6, 5)})


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_part_at_a_position_that_only_a_run_knows_is_looked_up(rng, keepdims, kind):
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=-1, keepdims=keepdims),
        helper.make_node("SequenceAt", ["s", "k"], ["a"]),
    ]
    types = {"k": helper.np_dtype_to_tensor_dtype(np.dtype(kind))}
    model = build(nodes, {"x": 2, "k": 0}, {"a": 1 + keepdims}, opset=17, types=types)
    session = polyc.onnx.load(model, strict=True)
    x = normal(rng, 3, 5)
    for k in (0, 4, -5, -1):
        feed = {"x": x, "k": np.asarray(k, kind)}
        np.testing.assert_array_equal(session.run(None, feed)[0], ReferenceEvaluator(model).run(None, feed)[0])
    for k in (5, -6):
        with pytest.raises(polyc.PolycError):
            session.run(None, {"x": x, "k": np.asarray(k, kind)})


def test_a_sequence_that_is_a_result_stays(rng):
    """Beside a part of it that is read from the tensor; a position that only a run knows is looked up in the sequence."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "one"], ["a"]),
        helper.make_node("SequenceAt", ["s", "k"], ["b"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 5]), helper.make_tensor_value_info("k", 7, [])]
    part = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(np.asarray(a, np.int64), n) for a, n in ((1, "one"), ([1, 1, 1], "sizes"))]
    outputs = [
        helper.make_value_info("s", helper.make_sequence_type_proto(part)),
        *(helper.make_value_info(n, part) for n in "ab"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {"x": normal(rng, 3, 5), "k": np.asarray(2, np.int64)}
    whole, one, two = polyc.onnx.load(model).run(None, feed)
    np.testing.assert_array_equal(np.concatenate(whole), feed["x"])
    np.testing.assert_array_equal(one, feed["x"][1:2])
    np.testing.assert_array_equal(two, feed["x"][2:])
    assert simplify(read_model(model)).nodes[-1].op == "SequenceAt"


# --- State that never changes ------------------------------------------------------------------------------------------------


def loop_with_weights(w="w", hands_on="Identity", inner=None):
    """``s = MatMul(s, v)`` while the sum of `s` is small; `v` and `b` are handed on, `v` through a node."""
    scalar = lambda n, t: helper.make_tensor_value_info(n, t, [])  # noqa: E731
    value = lambda n, rank: helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * rank)  # noqa: E731
    product = inner or [helper.make_node("MatMul", ["s", "v"], ["t"])]
    body = helper.make_graph(
        [
            *product,
            helper.make_node("Add", ["t", "b"], ["u"]),
            helper.make_node(hands_on, ["v"], ["v1"]),
            helper.make_node("ReduceSum", ["u"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "limit"], ["goes_on"]),
        ],
        "body",
        [scalar("k", TensorProto.INT64), scalar("c", TensorProto.BOOL), value("s", 2), value("v", 2), value("b", 1)],
        [scalar("goes_on", TensorProto.BOOL), value("u", 2), value("v1", 2), value("b", 1), value("t", 2)],
    )
    loop = helper.make_node("Loop", ["n", "true", "s0", w, "bias"], ["last", "v_last", "b_last", "ts"], body=body)
    nodes = [loop, helper.make_node("Relu", ["v_last"], ["y"])]
    if w == "computed":
        nodes.insert(0, helper.make_node("Neg", ["w"], [w]))
    constants = {
        "n": np.array(6),
        "true": np.array(True),
        "limit": np.array(1e6, np.float32),
        "w": 0.5 * np.ones((3, 3), np.float32),
    }
    return build(nodes, {"s0": 2, "bias": 1}, {"last": 2, "y": 2, "b_last": 1, "ts": 3}, constants)


@pytest.mark.parametrize("w", ["w", "computed"])
def test_loops_read_what_never_changes_from_around_them(rng, w):
    model = loop_with_weights(w)
    feed = {"s0": rng.standard_normal((2, 3), np.float32), "bias": rng.standard_normal(3, np.float32)}
    graph = simplify(read_model(model))
    loop = next(n for n in graph.nodes if n.op == "Loop")
    assert loop.inputs == ("n", "true", "s0") and len(loop.attributes["body"].inputs) == 3
    assert {w, "bias"} <= set(loop.attributes["body"].captures)
    check(model, feed, graph)
    for found, expected in zip(polyc.onnx.load(model).run(None, feed), ReferenceEvaluator(model).run(None, feed), strict=True):
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-5)  # onnx puts the parts in a row


def test_state_that_changes_stays(rng):
    model = loop_with_weights(hands_on="Neg")
    feed = {"s0": rng.standard_normal((2, 3), np.float32), "bias": rng.standard_normal(3, np.float32)}
    graph = simplify(read_model(model))
    loop = next(n for n in graph.nodes if n.op == "Loop")
    assert loop.inputs == ("n", "true", "s0", "w") and "bias" in loop.attributes["body"].captures
    check(model, feed, graph)


def test_a_body_may_use_the_name_for_something_else(rng):
    renamed = [helper.make_node("Sin", ["s"], ["bias"]), helper.make_node("MatMul", ["bias", "v"], ["t"])]
    model = loop_with_weights(inner=renamed)
    feed = {"s0": rng.standard_normal((2, 3), np.float32), "bias": rng.standard_normal(3, np.float32)}
    graph = simplify(read_model(model))
    loop = next(n for n in graph.nodes if n.op == "Loop")
    assert loop.inputs == ("n", "true", "s0", "bias")
    (found, *_), (expected, *_) = polyc.onnx.load(model).run(None, feed), ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def moved_integers(nodes, constants=None, outputs=("q",), dtype=np.uint8):
    """A model that dequantises x (``[2, 6]``) to a, and does `nodes`; the scale and zero point are s and p."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = {
        "s": np.float32(0.0342),
        "p": dtype(17),
        "r": np.float32(0.0343),
        "turned": np.int64([3, 4]),
        **(constants or {}),
    }
    types = {"x": kind, "x2": kind, **{n: kind for n in outputs if n.startswith("q")}}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "p"], ["a"]), *nodes]
    return build(nodes, {"x": 2, "x2": 2}, dict.fromkeys(outputs, 2), constants, opset=21, types=types)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_integers_are_moved_instead_of_their_numbers(rng, dtype):
    nodes = [
        helper.make_node("DequantizeLinear", ["x2", "s", "p"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=0),
        helper.make_node("Transpose", ["c"], ["d"], perm=[1, 0]),
        helper.make_node("QuantizeLinear", ["d", "s", "p"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "s", "p"], ["f"]),
        helper.make_node("Transpose", ["f"], ["h"], perm=[1, 0]),
        helper.make_node("QuantizeLinear", ["h", "s", "p"], ["q"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    info = np.iinfo(dtype)
    feed = {n: rng.integers(info.min, info.max, (60, 300), dtype, endpoint=True) for n in ("x", "x2")}
    left = check(moved_integers(nodes, outputs=("q", "y"), dtype=dtype), feed, tolerance=0)
    assert "QuantizeLinear" not in left and left["DequantizeLinear"] == 2  # for what Relu reads


@pytest.mark.parametrize("scale", [1e-37, 0.1, 3.3e-5, 1e30])
def test_every_integer_comes_back(scale):
    nodes = [helper.make_node("QuantizeLinear", ["a", "s", "p"], ["q"])]
    x = np.arange(1 << 16, dtype=np.uint16).reshape(2, -1)
    model = moved_integers(nodes, {"s": np.float32(scale), "p": np.uint16(40000)}, dtype=np.uint16)
    assert check(model, {"x": x, "x2": x}, tolerance=0) == {"Identity": 1}


@pytest.mark.parametrize(
    "constants",
    [{"t": np.float32(0.5)}, {"t": np.float32(0.0342), "v": np.uint8(18)}, {"s": np.float32(1e38), "t": np.float32(1e38)}],
    ids=["scale", "zero", "overflow"],
)
def test_integers_that_others_come_of_are_numbers_between(rng, constants):
    nodes = [
        helper.make_node("Reshape", ["a", "turned"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "t", "v"], ["q"]),
    ]
    x = rng.integers(16, 19, (2, 6)).astype(np.uint8)
    left = check(moved_integers(nodes, {"v": np.uint8(17), **constants}), {"x": x, "x2": x})
    assert left["QuantizeLinear"] == 1


def test_a_result_that_onnxruntimes_quantize_gives_is_the_integers(rng):
    model = moved_integers([helper.make_node("QuantizeLinear", ["a", "s", "p"], ["q"], domain="com.microsoft")])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = rng.integers(0, 256, (2, 6)).astype(np.uint8)
    np.testing.assert_array_equal(polyc.onnx.load(model).run(None, {"x": x, "x2": x})[0], x)


def test_integers_that_a_branch_reads_keep_their_name(rng):
    def branch(name):
        out = helper.make_tensor_value_info("o", TensorProto.UINT8, [None, None])
        return helper.make_graph([helper.make_node("Identity", [name], ["o"])], "branch", [], [out])

    nodes = [
        helper.make_node("QuantizeLinear", ["a", "s", "p"], ["e"]),
        helper.make_node("If", ["c"], ["q"], then_branch=branch("e"), else_branch=branch("x")),
    ]
    model = moved_integers(nodes, {"c": np.array(True)})
    x = rng.integers(0, 256, (2, 6)).astype(np.uint8)
    session = polyc.onnx.load(model)
    np.testing.assert_array_equal(session.run(None, {"x": x, "x2": x})[0], x)
