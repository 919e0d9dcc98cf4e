"""Plans for shapes that keep changing: right for every shape, also where shapes decide, and planned once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx
from polyc.onnx import runner

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def model(nodes, inputs, outputs, constants=None, opset=17):
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    ports = [[helper.make_tensor_value_info(n, t, s) for n, t, s in side] for side in (inputs, outputs)]
    return helper.make_model(helper.make_graph(nodes, "g", *ports, tensors), opset_imports=[helper.make_opsetid("", opset)])


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def decoder():
    """A step of attention over a cache that grows, with positions computed of its length."""
    nodes = [
        node("Concat", ["cache", "x"], ["keys"], axis=0),
        node("Shape", ["keys"], ["shape"]),
        node("Gather", ["shape", "zero"], ["length"]),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Cast", ["places"], ["numbers"], to=FLOAT),
        node("Mul", ["numbers", "rate"], ["angles"]),
        node("Sin", ["angles"], ["waves"]),
        node("Transpose", ["keys"], ["turned"], perm=[1, 0]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Add", ["scores", "waves"], ["placed"]),
        node("Sub", ["length", "one"], ["last"]),
        node("Cast", ["last"], ["divisor"], to=FLOAT),
        node("Div", ["placed", "divisor"], ["scaled"]),
        node("Softmax", ["scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "keys"], ["y"]),
    ]
    ports = [("x", FLOAT, ["n", 8]), ("cache", FLOAT, ["p", 8])]
    constants = {"zero": np.int64(0), "one": np.int64(1), "rate": np.float32(0.3)}
    return model(nodes, ports, [("y", FLOAT, ["n", 8]), ("keys", FLOAT, ["m", 8])], constants)


def windows():
    """Slices, paddings and strides whose results depend on whether extents are even, and on which is the larger."""
    nodes = [
        node("Slice", ["x", "from", "to", "axes"], ["inner"]),
        node("Conv", ["inner", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Shape", ["p"], ["s"]),
        node("Gather", ["s", "last"], ["extents"]),
        node("Concat", ["both", "extents"], ["target"], axis=0),
        node("Reshape", ["p", "target"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[2], keepdims=1),
        node("Sub", ["r", "m"], ["y"]),
    ]
    constants = {
        "from": np.array([1, -100]),
        "to": np.array([1 << 60, -1]),
        "axes": np.array([2, 3]),
        "w": draw(4, 3, 3, 3),
        "last": np.array([2, 3]),
        "both": np.array([-1, 2]),
    }
    return model(nodes, [("x", FLOAT, ["n", 3, "h", "v"])], [("y", FLOAT, None)], constants)


@pytest.fixture
def n_planned(monkeypatch):
    """How often the graph was gone over."""
    calls = itertools.count()
    real = runner.lower_graph
    monkeypatch.setattr(runner, "lower_graph", lambda *a, **k: (next(calls), real(*a, **k))[1])
    return lambda: next(calls)


def check(session, proto, feed):
    want = ReferenceEvaluator(proto).run(None, feed)
    for a, b in zip(session.run(None, feed), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_cache_that_grows_is_planned_three_times(n_planned):
    proto = decoder()
    session = polyc.onnx.load(proto)
    for p in range(10, 14):
        check(session, proto, {"x": draw(1, 8), "cache": draw(p, 8)})
    before = n_planned()
    for p in (14, 15, 16, 40, 23, 300):
        check(session, proto, {"x": draw(1, 8), "cache": draw(p, 8)})
    assert n_planned() == before + 1  # the call that asks counts
    for p in (14, 1, 2):  # one of them again, and shapes that decide otherwise
        check(session, proto, {"x": draw(2, 8), "cache": draw(p, 8)})


def test_shapes_that_decide_get_plans_of_their_own():
    proto = windows()
    session = polyc.onnx.load(proto)
    for n, h, v in [
        (1, 9, 12),
        (2, 10, 15),
        (3, 13, 9),
        (1, 30, 21),
        (4, 7, 8),
        (1, 5, 5),
        (2, 64, 3),
        (1, 8, 64),
    ]:
        check(session, proto, {"x": draw(n, 3, h, v)})


def test_shapes_that_cannot_be_are_refused_as_always():
    proto = decoder()
    session = polyc.onnx.load(proto)
    for p in range(2, 7):
        session.run(None, {"x": draw(1, 8), "cache": draw(p, 8)})
    check(session, proto, {"x": draw(1, 8), "cache": draw(0, 8)} | {"x": draw(2, 8)})
    assert session.run(["keys"], {"x": draw(0, 8), "cache": draw(9, 8)})[0].shape == (9, 8)
