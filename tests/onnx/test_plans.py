"""Clusters and plans: what is compiled together, views across and inside of kernels, and that it computes the same."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc import jobs
from polyc.config import default_options
from polyc.diagnostics import Diagnostic, UnsupportedError
from polyc.frontends.onnx.builder import Value
from polyc.frontends.onnx.lowering import lower_graph
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.registry import operator
from polyc.frontends.tc import read_tc
from polyc.ir.types import from_numpy
from polyc.onnx.assembly import make_plan
from polyc.onnx.compilation import make_clusters
from polyc.onnx.weights import Weights

DOMAIN = "polyc.test"
"""Operators of these tests only; ONNX's own have tests of their own."""


@operator("Product", domain=DOMAIN)
def product(b, x, w):
    """``y[i, j] = Σ x[i, k] * w[k, j]``."""
    shape = (x.shape[0], w.shape[1])
    return b.reduce("add", shape, (x.shape[1],), x.dtype, lambda i, j, k: x[i, k] * w[k, j])


@operator("Double", domain=DOMAIN)
def double(b, x):
    return b.map(x.shape, x.dtype, lambda *i: x[i] * 2)


@operator("Plus", domain=DOMAIN)
def plus(b, x, y):
    shape = b.broadcast(x.shape, y.shape)
    return b.map(shape, x.dtype, lambda *i: x.spread(i) + y.spread(i))


@operator("Turn", domain=DOMAIN)
def turn(b, x):
    return b.map(x.shape[::-1], x.dtype, lambda *i: x[i[::-1]])


@operator("View", domain=DOMAIN)
def view(b, x, *, shape):
    return b.view(x, shape)


@operator("Total", domain=DOMAIN)
def total(b, x):
    return b.reduce("add", x.shape[:-1], x.shape[-1:], x.dtype, lambda *i: x[i])


@operator("Shift", domain=DOMAIN)
def shift(b, x):
    return b.map(x.shape, x.dtype, lambda *i: x.padded((*i[:-1], i[-1] - 1), 3))


NUMPY = {
    "Product": lambda x, w: x @ w,
    "Double": lambda x: x * 2,
    "Plus": lambda x, y: x + y,
    "Turn": lambda x: x.T.copy(),
    "View": lambda x, shape: x.reshape(shape),
    "Total": lambda x: x.sum(-1),
    "Shift": lambda x: np.concatenate([np.full_like(x[..., :1], 3), x[..., :-1]], -1),
}


def build(nodes, feed, outputs, constants=None):
    """The graph of ``("Double", ["x"], "y", {…attributes})``… for inputs of these shapes."""
    protos = [helper.make_node(op, i, [o], domain=DOMAIN, **(rest[0] if rest else {})) for op, i, o, *rest in nodes]
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None)  # noqa: E731
    initializers = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(protos, "g", [value(n) for n in feed], [value(n) for n in outputs], initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return read_model(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def lower(graph, feed):
    values = {n: Value(n, from_numpy(a.dtype), a.shape) for n, a in feed.items()}
    lowered = lower_graph(graph, 0, values, graph.constants, graph.constants.keys())
    assert lowered.stop == len(graph.nodes), lowered.reason
    return lowered, values


def expect(nodes, feed, constants=None):
    env = {**feed, **(constants or {})}
    for op, inputs, output, *rest in nodes:
        env[output] = NUMPY[op](*(env[i] for i in inputs), *(r["shape"] for r in rest))
    return env


def check(nodes, feed, outputs, constants=None):
    """The plan's results are NumPy's, twice; the operators of each cluster."""
    graph = build(nodes, feed, outputs, constants)
    lowered, values = lower(graph, feed)
    plan = make_plan(lowered, values, outputs, Weights(default_options()), default_options(), n_workers=0)
    expected = expect(nodes, feed, constants)
    for _ in range(2):
        results = plan.run({n: feed[n] for n in plan.inputs})
        for n in outputs:
            np.testing.assert_allclose(results[n], expected[n], rtol=1e-5, atol=1e-5)
    return [c.program.name for c in make_clusters(lowered, outputs)]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_pointwise_work_rides_on_a_product(rng):
    nodes = [("Product", ["x", "w"], "a"), ("Plus", ["a", "b"], "c"), ("Plus", ["c", "r"], "d"), ("Double", ["d"], "y")]
    feed = {"x": normal(rng, 16, 32), "r": normal(rng, 16, 24)}
    assert check(nodes, feed, ["y"], {"w": normal(rng, 32, 24), "b": normal(rng, 24)}) == ["product_plus_double"]


def test_products_and_sums_behind_them_have_kernels_of_their_own(rng):
    nodes = [("Product", ["x", "w"], "a"), ("Product", ["a", "v"], "b"), ("Total", ["b"], "t"), ("Double", ["t"], "y")]
    feed = {"x": normal(rng, 16, 32)}
    constants = {"w": normal(rng, 32, 24), "v": normal(rng, 24, 12)}
    assert check(nodes, feed, ["y"], constants) == ["product", "product", "total_double"]


def test_a_copy_in_front_of_a_product_is_read_through(rng):
    nodes = [("Turn", ["x"], "a"), ("Product", ["a", "w"], "y")]
    assert check(nodes, {"x": normal(rng, 32, 16)}, ["y"], {"w": normal(rng, 32, 24)}) == ["turn_product"]


def test_a_copy_that_two_products_read_is_made_once(rng):
    nodes = [("Turn", ["x"], "a"), ("Product", ["a", "w"], "y"), ("Product", ["a", "v"], "z")]
    constants = {"w": normal(rng, 32, 24), "v": normal(rng, 32, 8)}
    assert check(nodes, {"x": normal(rng, 32, 16)}, ["y", "z"], constants) == ["turn", "product", "product"]


def test_no_cluster_needs_itself(rng):
    # The sum of both joins the product only because it depends on the total, which depends on the product, too.
    nodes = [
        ("Product", ["x", "w"], "a"),
        ("Total", ["a"], "t"),
        ("View", ["t"], "v", {"shape": [16, 1]}),
        ("Plus", ["a", "v"], "y"),
    ]
    names = check(nodes, {"x": normal(rng, 16, 32)}, ["y"], {"w": normal(rng, 32, 24)})
    assert names == ["product", "total_plus"] or names == ["product", "total", "plus"]


def test_views_between_kernels_are_read_in_their_own_shape(rng):
    nodes = [
        ("Product", ["x", "w"], "a"),
        ("View", ["a"], "v", {"shape": [8, 48]}),
        ("Product", ["v", "u"], "y"),
    ]
    feed = {"x": normal(rng, 16, 32)}
    graph = build(nodes, feed, ["y"], {"w": normal(rng, 32, 24), "u": normal(rng, 48, 12)})
    lowered, _ = lower(graph, feed)
    second = make_clusters(lowered, ["y"])[1].program
    assert [e.value for e in second.tensor("x0").shape] == [8, 48]
    check(nodes, feed, ["y"], {"w": normal(rng, 32, 24), "u": normal(rng, 48, 12)})


def test_views_inside_of_a_kernel(rng):
    nodes = [
        ("Double", ["x"], "a"),
        ("View", ["a"], "v", {"shape": [6, 4]}),
        ("Turn", ["v"], "t"),
        ("View", ["t"], "u", {"shape": [2, 12]}),
        ("Shift", ["u"], "s"),
        ("View", ["s"], "w", {"shape": [24]}),
        ("Double", ["w"], "y"),
    ]
    assert check(nodes, {"x": normal(rng, 3, 8)}, ["y", "v", "u"]) == ["double_turn_shift"]


def test_a_view_of_something_padded(rng):
    nodes = [("Double", ["x"], "a"), ("View", ["a"], "v", {"shape": [2, 12]}), ("Shift", ["v"], "y")]
    check(nodes, {"x": normal(rng, 4, 6)}, ["y"])


def test_views_of_views_of_inputs_and_constants(rng):
    nodes = [
        ("View", ["x"], "a", {"shape": [4, 6]}),
        ("View", ["a"], "b", {"shape": [3, 8]}),
        ("View", ["c"], "d", {"shape": [3, 8]}),
        ("Plus", ["b", "d"], "y"),
    ]
    check(nodes, {"x": normal(rng, 2, 12)}, ["y", "a", "b", "d"], {"c": normal(rng, 24)})


def test_outputs_share_no_memory(rng):
    nodes = [("Double", ["x"], "y"), ("View", ["y"], "v", {"shape": [12]}), ("View", ["x"], "w", {"shape": [12]})]
    feed = {"x": normal(rng, 3, 4)}
    graph = build(nodes, feed, ["y", "v", "w"])
    lowered, values = lower(graph, feed)
    plan = make_plan(lowered, values, ["y", "v", "w"], Weights(default_options()), default_options(), n_workers=0)
    results = plan.run(feed)
    arrays = [*results.values(), feed["x"]]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_equal_layers_share_code(rng):
    nodes = [("Product", ["x", "w1"], "a"), ("Product", ["a", "w2"], "b"), ("Product", ["b", "w3"], "y")]
    feed = {"x": normal(rng, 16, 24)}
    graph = build(nodes, feed, ["y"], {f"w{k}": normal(rng, 24, 24) for k in (1, 2, 3)})
    lowered, values = lower(graph, feed)
    plan = make_plan(lowered, values, ["y"], Weights(default_options()), default_options(), n_workers=0)
    assert len(plan.steps) == 3 and len({id(s.call) for s in plan.steps}) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_weights_of_several_shapes_are_prepared_by_one_kernel(rng, monkeypatch, fails):
    def scale(m, n):
        text = f"def scale(float({m},{n}) w) -> (v) {{ v(i,j) = w(i,j) * 0.5 + w(i,2) where i in 0:{m}, j in 0:{n} }}"
        (program,) = read_tc(text, "scale.tc")
        return program

    compiled = []
    real = jobs.compile_all

    def count(wanted, n_workers):
        if fails and any(job.program.sizes for job in wanted):
            raise UnsupportedError(Diagnostic("unsupported-test", "not for any sizes"))
        compiled.extend(wanted)
        return real(wanted, n_workers)

    monkeypatch.setattr(jobs, "compile_all", count)
    programs = [scale(4, 6), scale(8, 6), scale(5, 9)]
    weights = Weights(default_options())
    weights.compile([SimpleNamespace(preparations=programs)], 0)
    for program, shape in zip(programs, [(4, 6), (8, 6), (5, 9)], strict=True):
        w = normal(rng, *shape)
        (v,) = weights.run(program, [w])
        np.testing.assert_allclose(v, w * 0.5 + w[:, 2:3], rtol=1e-6)
    assert len(compiled) == (3 if fails else 1)


def test_what_nobody_needs_is_not_compiled(rng):
    nodes = [("Double", ["x"], "y"), ("Turn", ["x"], "z")]
    assert check(nodes, {"x": normal(rng, 3, 4)}, ["y"]) == ["double"]


def branching(condition_nodes, inputs):
    """``y = If(c) <x * 2, -x>`` with nodes that make c."""
    value = lambda n, t=TensorProto.FLOAT: helper.make_tensor_value_info(n, t, None)  # noqa: E731
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["o"])], "then", [], [value("o")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "else", [], [value("o")])
    branch = helper.make_node("If", ["c"], ["h"], then_branch=then, else_branch=other)
    nodes = [*condition_nodes, branch, helper.make_node("Abs", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value(n, t) for n, t in inputs.items()], [value("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_a_branch_that_a_small_input_decides_is_part_of_the_plan(rng):
    model = branching([helper.make_node("Equal", ["r", "r0"], ["c"])], {"x": 1, "r": 7, "r0": 7})
    session = polyc.onnx.load(model)
    x = normal(rng, 5)
    for rate, factor in ((16000, 2), (8000, 1), (16000, 2)):
        (y,) = session.run(None, {"x": x, "r": np.array(rate), "r0": np.array(16000)})
        np.testing.assert_allclose(y, abs(x * factor))
    segments = session.runner.segments()
    assert [s.node for s in segments] == [None, None]
    assert all(len(s.plan.steps) == 1 for s in segments)


def test_a_branch_that_data_decides_is_compiled_with_what_is_behind_it(rng):
    nodes = [helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0), helper.make_node("Greater", ["t", "z"], ["c"])]
    session = polyc.onnx.load(branching(nodes, {"x": 1, "z": 1}))
    x = abs(normal(rng, 3000))
    for sign in (1, -1, 1):
        (y,) = session.run(None, {"x": sign * x, "z": np.float32(0)})
        np.testing.assert_allclose(y, x * (2 if sign > 0 else 1))
    assert all(s.node is None for s in session.runner.segments())
    assert len(session.runner.segments()) == 3
