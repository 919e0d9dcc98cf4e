"""Runs that compiled code makes from the second one on: they are what the long way gives, and refuse what it refuses."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import polyc.onnx
from polyc.diagnostics import BoundsError, PolycError
from polyc.onnx import direct
from polyc.runtime import fastcalls

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)


def make_session(nodes, inputs, outputs, initializers=(), **options):
    values = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs]
    graph = helper.make_graph(nodes, "g", values, results, initializers)
    return polyc.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), **options)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHT = random(8, 8)


def perceptron(**options):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(WEIGHT, "w")]
    inputs = [("x", FLOAT, ["n", 8]), ("unread", INT64, [2])]
    return make_session(nodes, inputs, [("y", FLOAT), ("r", FLOAT)], weights, **options)


def expected(x):
    r = np.maximum(x @ WEIGHT, 0)
    return r @ WEIGHT, r


@pytest.fixture
def counted(monkeypatch):
    """How many runs compiled code has made."""
    count = [0]
    run = direct.DirectRuns.run

    def counting(self, env):
        found = run(self, env)
        count[0] += found is not None
        return found

    monkeypatch.setattr(direct.DirectRuns, "run", counting)
    return count


needs_table = pytest.mark.skipif(
    not fastcalls._is_laid_out_as_expected(), reason="compiled calls need CPython and its NumPy as they are"
)


@needs_table
@pytest.mark.parametrize("dynamic", [False, True])
def test_later_runs_are_made_by_compiled_code(counted, dynamic):
    session = perceptron(dynamic=dynamic)
    unread = np.zeros(2, np.int64)
    kept = []
    for n in (3, 5, 3, 5, 3, 17, 17, 3):
        x = random(n, 8)
        results = session.run(None, {"unread": unread, "x": x})
        kept.append((results, expected(x)))
    assert counted[0] == 5
    for results, wanted in kept:  # each run has results of its own
        for r, w in zip(results, wanted, strict=True):
            np.testing.assert_allclose(r, w, rtol=1e-4, atol=1e-5)


@needs_table
def test_outputs_by_name_are_those_asked_for(counted):
    session, x = perceptron(), random(3, 8)
    feed = {"x": x, "unread": np.zeros(2, np.int64)}
    for names in (None, ["y", "r"], ["r", "y"], ["r"], ["r", "r"], ["y", "r"]):
        wanted = dict(zip(("y", "r"), expected(x), strict=True))
        for name, result in zip(names or ("y", "r"), session.run(names, feed), strict=True):
            np.testing.assert_allclose(result, wanted[name], rtol=1e-4, atol=1e-5)


@needs_table
def test_outputs_that_are_views_of_others_are_made_by_compiled_code(counted):
    """The same elements in two shapes, and an input in another one."""
    axes = onnx.numpy_helper.from_array(np.asarray([0]), "axes")
    flat = onnx.numpy_helper.from_array(np.asarray([-1]), "flat")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Unsqueeze", ["r", "axes"], ["u"]),
        helper.make_node("Reshape", ["x", "flat"], ["f"]),
    ]
    session = make_session(nodes, [("x", FLOAT, ["n", 2])], [("u", FLOAT), ("r", FLOAT), ("f", FLOAT)], [axes, flat])
    for n in (3, 3, 4, 4, 3):
        x = random(n, 2)
        u, r, f = session.run(None, {"x": x})
        for found, wanted in ((u, np.maximum(x, 0)[None]), (r, np.maximum(x, 0)), (f, x.ravel())):
            np.testing.assert_array_equal(found, wanted)
        assert not any(np.may_share_memory(a, b) for a, b in ((u, r), (f, x)))
    assert counted[0] == 3


def test_inputs_are_checked_at_every_run():
    session, x, unread = perceptron(), random(3, 8), np.zeros(2, np.int64)
    for _ in range(3):
        session.run(None, {"x": x, "unread": unread})
    wrong = [
        {"x": x},
        {"x": x, "unread": unread, "more": x},
        {"x": x, "other": unread},
        {"x": x.astype(np.float64), "unread": unread},
        {"x": x, "unread": np.zeros(3, np.int64)},
        {"x": x, "unread": np.zeros(2, np.int32)},
        {"x": random(3, 7), "unread": unread},
        {"x": random(8), "unread": unread},
        [x, unread],
    ]
    for feed in wrong:
        with pytest.raises(PolycError):
            session.run(None, feed)
    with pytest.raises(PolycError):
        session.run(["nothing"], {"x": x, "unread": unread})


def test_arrays_of_any_layout_give_the_same():
    session, unread = perceptron(), np.zeros(2, np.int64)
    base = random(6, 16)
    swapped = base[:3, :8].astype(">f4")
    shifted = np.frombuffer(b"\0" + base[:3, :8].tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 8)
    for x in (base[:3, :8], base[::2, ::2], base[:3, 8:][:, ::-1], base.T[:8, :3].T, swapped, shifted, base[:3, :8].tolist()):
        for _ in range(3):
            y, r = session.run(None, {"x": x, "unread": unread})
            wanted = expected(np.asarray(x, np.float32))
            np.testing.assert_allclose(y, wanted[0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(r, wanted[1], rtol=1e-4, atol=1e-5)


def test_several_threads_may_run_at_once():
    session, faults = perceptron(threads=1), []

    def work():
        for k in range(200):
            x = random(3 + k % 2, 8)
            y, r = session.run(None, {"x": x, "unread": np.zeros(2, np.int64)})
            wanted = expected(x)
            if not (np.allclose(y, wanted[0], atol=1e-4) and np.allclose(r, wanted[1], atol=1e-4)):
                faults.append(k)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not faults


def test_a_kernel_that_fails_is_named():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Softmax", ["h"], ["s"]),
        helper.make_node("Gather", ["s", "i"], ["y"], name="second"),
    ]
    weights = [onnx.numpy_helper.from_array(WEIGHT, "w")]
    session = make_session(nodes, [("x", FLOAT, [4, 8]), ("i", INT64, [3])], [("y", FLOAT)], weights)
    x = random(4, 8)
    for index in (0, 1, 2, 3):
        session.run(None, {"x": x, "i": np.full(3, index)})
        with pytest.raises(BoundsError, match="second"):
            session.run(None, {"x": x, "i": np.array([0, 4 + index, 0])})


def test_branches_and_what_is_behind_them():
    then = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["t"])], "t", [], [helper.make_tensor_value_info("t", FLOAT, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["e"])], "e", [], [helper.make_tensor_value_info("e", FLOAT, None)]
    )
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "half"], ["c"]),
        helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        helper.make_node("Neg", ["z"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in (("w", WEIGHT), ("half", np.array(0.5, np.float32)))]
    session = make_session(nodes, [("x", FLOAT, ["n", 8])], [("y", FLOAT), ("z", FLOAT), ("s", FLOAT)], weights)
    for k in range(12):
        x = random(2 + k % 3, 8) + (-1) ** k
        s = 1 / (1 + np.exp(-x))
        z = s @ WEIGHT if s.mean() > 0.5 else s
        results = session.run(None, {"x": x})
        for r, w in zip(results, (-z, z, s), strict=True):
            np.testing.assert_allclose(r, w, rtol=1e-4, atol=1e-4)
        for r in results:  # they share no memory, with each other or with later runs
            r[...] = np.nan


def test_contents_that_decide_a_shape_are_looked_at():
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    session = make_session(nodes, [("x", FLOAT, [24]), ("shape", INT64, [2])], [("y", FLOAT)])
    x = random(24)
    for shape in ((2, 12), (3, 8), (2, 12), (24, 1), (3, 8), (4, 6), (6, 4), (1, 24), (12, 2), (2, 12), (8, 3)):
        (y,) = session.run(None, {"x": x, "shape": np.array(shape)})
        e = np.exp(x.reshape(shape))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)


@needs_table
def test_contents_are_compared_where_they_decide(counted):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    session = make_session(nodes, [("x", FLOAT, ["n"]), ("shape", INT64, [2])], [("y", FLOAT)])
    for k, shape in enumerate([(2, 12), (2, 12), (3, 8), (2, 12), (3, 8), (-1, 12), (2, 12)]):
        x = random(24)
        (y,) = session.run(None, {"x": x, "shape": np.array(shape)})
        e = np.exp(x.reshape(shape))
        np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
        with pytest.raises(PolycError):
            session.run(None, {"x": x, "shape": np.array((5, 7 + k))})
        with pytest.raises(PolycError):
            session.run(None, {"x": x, "shape": "2 12"})
    assert counted[0] == 4
