"""Inputs whose shapes keep changing: few kernels, the results of onnx's reference, and a remark for whatever is compiled."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx
from polyc import jobs
from polyc.onnx import runner
from polyc.onnx.blocks import Blocks
from tests.onnx.nodes import run_node

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, constants=None, opset=17):
    tensors = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    ports = [[helper.make_tensor_value_info(n, t, s) for n, t, s in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def draw(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def attention():
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "q"], ["a"]),
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["a", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["y"]),
    ]
    return model(nodes, [("x", FLOAT, ["b", "s", 8])], [("y", FLOAT, ["b", "s", 8])], {"q": draw(8, 8)})


def network():
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[2, 3], keepdims=0),
        node("Shape", ["x"], ["d"]),
        node("Gather", ["d", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["k"], axis=0),
        node("Reshape", ["m", "k"], ["y"]),
    ]
    constants = {"w": draw(6, 3, 3, 3), "zero": np.array([0]), "rest": np.array([2, -1])}
    return model(nodes, [("x", FLOAT, ["n", 3, "h", "w0"])], [("y", FLOAT, None)], constants)


@pytest.fixture
def compiled(monkeypatch):
    """The programs that were asked for, one list for each plan."""
    seen = []
    real = jobs.compile_all

    def counted(todo, *rest):
        seen.append([j.program for j in todo])
        return real(todo, *rest)

    monkeypatch.setattr(jobs, "compile_all", counted)
    return seen


def check(proto, session, feed):
    want = ReferenceEvaluator(proto).run(None, feed)
    for a, b in zip(session.run(None, feed), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("proto", [attention(), network()], ids=["attention", "network"])
def test_many_shapes_are_served_by_few_kernels(proto, compiled):
    session = polyc.onnx.load(proto, strict=True)
    shapes = [(2, 15), (2, 16), (2, 17), (3, 17), (3, 21), (4, 19), (5, 15), (2, 30), (7, 13)]
    for b, s in shapes:
        x = draw(b, s, 8) if len(proto.graph.input[0].type.tensor_type.shape.dim) == 3 else draw(b, 3, 2 * s, 2 * s)
        check(proto, session, {"x": x})
    by_plan = [{p for p in plan} for plan in compiled]
    known = set().union(*by_plan[:5])
    assert all(plan <= known for plan in by_plan[5:])  # two sizes have varied by then
    assert all(not p.sizes for plan in by_plan[:2] for p in plan) and any(p.sizes for p in known)
    remarks = [r for r in session.remarks if r.pass_name == "shapes"]
    assert remarks and all("compiled for any sizes" in r.message for r in remarks)


def test_shapes_that_return_keep_the_code_of_their_own(compiled):
    session = polyc.onnx.load(attention())
    for s in (5, 6, 7, 8):
        session.run(None, {"x": draw(2, s, 8)})
    n_plans = len(compiled)
    for s in (5, 6, 7, 8):
        check(attention(), session, {"x": draw(2, s, 8)})
    assert len(compiled) == n_plans


@pytest.mark.parametrize(("dynamic", "expected"), [(False, [False] * 4), (True, [False, True]), ("auto", [False, False, True])])
def test_when_sizes_become_symbolic(dynamic, expected, compiled):
    session = polyc.onnx.load(attention(), dynamic=dynamic)
    for s in (11, 13, 14, 17):  # the last ones are those of a template
        check(attention(), session, {"x": draw(3, s, 8)})
    assert [any(p.sizes for p in plan) for plan in compiled] == expected


def test_code_for_any_shape_that_cannot_be_made_is_replaced_and_told(monkeypatch):
    real = jobs.compile_all

    def refuse(todo, *rest):
        if any(j.program.sizes for j in todo):
            raise polyc.diagnostics.UnsupportedError(polyc.diagnostics.Diagnostic("unsupported-test", "sizes are too much"))
        return real(todo, *rest)

    monkeypatch.setattr(jobs, "compile_all", refuse)
    session = polyc.onnx.load(attention(), strict=True)
    for s in (5, 6, 7, 8):
        check(attention(), session, {"x": draw(2, s, 8)})
    (told,) = [r for r in session.remarks if r.kind == "missed"]
    assert "sizes are too much" in told.message and "MatMul" in told.message


def test_empty_inputs_among_many_shapes():
    session = polyc.onnx.load(attention())
    for s in (5, 6, 0, 7, 1, 8):
        check(attention(), session, {"x": draw(2, s, 8)})


def test_runs_of_equal_shapes_do_not_share_memory():
    proto = attention()
    session = polyc.onnx.load(proto)
    feeds = [{"x": draw(3, 40, 8) * k} for k in range(1, 7)]
    want = [session.run(None, f)[0] for f in feeds]
    wrong = []

    def work(k):
        for _ in range(60):
            if not np.array_equal(session.run(None, feeds[k])[0], want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(feeds))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_blocks_are_lent_to_one_run_each_and_used_again():
    blocks = Blocks(limit=2)
    a, b = blocks.lend(100), blocks.lend(100)
    assert a is not None and b is not None and a is not b
    entered = threading.Event()

    def third():
        blocks.give(blocks.lend(100))
        entered.set()

    waiting = threading.Thread(target=third)
    waiting.start()
    time.sleep(0.05)
    assert not entered.is_set()  # two are the limit
    blocks.give(a)
    blocks.give(b)
    waiting.join()
    again = blocks.lend(50)
    assert again is a or again is b
    blocks.give(again)
    large, none = blocks.lend(500), blocks.lend(0)
    assert large is not None and large.size >= 500 and large.address % 64 == 0 and none is None
    blocks.give(large)
    blocks.give(none)
    assert blocks.held() <= 600  # a small one made room for it


def test_contents_that_change_for_some_shapes_stop_new_plans_for_all(monkeypatch):
    """Else what is left to the contents for one shape would be made anew for the next, run by run."""
    made = []
    monkeypatch.setattr(runner, "make_plan", lambda *a, _make=runner.make_plan, **k: made.append(a) or _make(*a, **k))
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Slice", ["z", "k", "last", "one"], ["y"])]
    constants = {"one": np.array([1]), "last": np.array([40])}
    ports = [("x", FLOAT, ["n", 40]), ("k", INT, [1])]
    session = polyc.onnx.load(model(nodes, ports, [("y", FLOAT, ["n", "m"])], constants))
    plans = []
    for n in range(12):
        for size, begin in ((3, n), (4, 2)):
            x = draw(size, 40)
            found = session.run(None, {"x": x, "k": np.array([begin])})[0]
            np.testing.assert_array_equal(found, np.maximum(x, 0)[:, begin:])
        plans.append(len(made))
    assert plans[-1] == plans[-3]


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ((9, 0, 2, 7), (0, 0, -1), (9, 0, 14)),
        ((0, 6, 4), (0, -1), (0, 24)),
        ((0, 6, 4), (0, 2, -1, 4), (0, 2, 3, 4)),
        ((3, 0), (0, -1), (3, 0)),
        ((0,), (-1,), (0,)),
    ],
)
def test_an_empty_batch_keeps_its_features_when_it_is_reshaped(
    shape: tuple[int, ...], wanted: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    inputs = {"x": np.zeros(shape, np.float32), "shape": np.array(wanted)}
    (y,) = run_node("Reshape", inputs, constants=["shape"])
    assert y.shape == expected
