"""`If`, `Loop` and `Scan`: driven by the host, and written out, against onnx's own reference and by hand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests

import polyc.onnx
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.control import MOST_UNROLLED, expand_control
from polyc.frontends.onnx.graph import Graph
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.reference import fold_node
from polyc.onnx.iterate import is_driven, run_control
from tests.onnx.suite import Case

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def run_graph(graph: Graph, values, is_expanded=False):
    """A graph node by node, by onnx's reference; control flow by ours."""
    known = dict(graph.constants) | dict(values)
    pending = list(graph.nodes)
    n_driven = 0
    while pending:
        node = pending.pop(0)
        made = None
        if is_expanded and is_driven(node):
            made = expand_control(node, known.get, {n: v.shape for n, v in known.items() if isinstance(v, np.ndarray)}.get)
        if made is not None:
            pending = [*made, *pending]
            continue
        if is_driven(node):
            n_driven += 1
            found = run_control(node, known, lambda g, v: run_graph(g, v, is_expanded))
        else:
            found = fold_node(node, graph, [known[n] if n else None for n in node.inputs])
        known |= {n: v for n, v in zip(node.outputs, found, strict=False) if n}
    run_graph.n_driven = n_driven
    return [known[p.name] for p in graph.outputs]


def model(nodes, inputs, outputs, opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def body(nodes, inputs, outputs, initializers=()):
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        list(initializers),
    )


def check(proto, feed, n_driven, expected=None):
    """Without `expected`, onnx's reference says what is right (of loops it gives scalars another shape than the standard)."""
    if expected is None:
        expected = onnx.reference.ReferenceEvaluator(proto).run(None, feed)
    graph = read_model(proto)
    for is_expanded in (False, True):
        found = run_graph(graph, feed, is_expanded)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert run_graph.n_driven == n_driven  # of the expanded graph


def accumulate(count, *, opset=17, stays=True, extra=()):
    """s += x[k] and the partial sums; the condition passes, or says ``s < 3``."""
    nodes = [
        helper.make_node("Gather", ["x", "k"], ["e"]),
        helper.make_node("Add", ["s", "e"], ["s1"]),
        helper.make_node("Identity", ["s1"], ["part"]),
        helper.make_node("Identity", ["c"], ["c1"]) if stays else helper.make_node("Less", ["s1", "three"], ["c1"]),
        *extra,
    ]
    inner = body(
        nodes,
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [])],
        [("c1", BOOL, []), ("s1", FLOAT, []), ("part", FLOAT, [])],
        [helper.make_tensor("three", FLOAT, [], [3.0])],
    )
    outer = [
        helper.make_node("Constant", [], ["m"], value=helper.make_tensor("m", INT, [], [count])),
        helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", BOOL, [], [True])),
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("z", FLOAT, [], [0.0])),
        helper.make_node("Loop", ["m", "true", "zero"], ["total", "parts"], body=inner),
    ]
    return model(outer, [("x", FLOAT, [None])], [("total", FLOAT, []), ("parts", FLOAT, [None])], opset)


X = np.arange(1, 31, dtype=np.float32)


@pytest.mark.parametrize(("count", "n_driven"), [(1, 0), (4, 0), (30, 1), (0, 1)])
@pytest.mark.parametrize("opset", [11, 13, 17])
def test_loop_of_a_known_count(count, n_driven, opset):
    sums = np.cumsum(X[:count], dtype=np.float32)
    check(accumulate(count, opset=opset), {"x": X}, n_driven, [sums[-1] if count else np.float32(0), sums])


def test_a_loop_that_decides_when_to_end_is_driven():
    check(accumulate(10, stays=False), {"x": np.ones(30, np.float32)}, 1, [np.float32(3), np.float32([1, 2, 3])])


def test_results_of_iterations_may_share_memory():
    """A body that writes its result to the same memory each time must not change what is stacked already."""
    graph = read_model(accumulate(4))
    memory = np.zeros((), np.float32)

    def run(inner, values):
        memory[...] += values["x"][int(values["k"])]
        return [np.asarray(True), memory, memory]

    loop = next(n for n in graph.nodes if n.op == "Loop")
    values = {"m": np.asarray(4), "true": np.asarray(True), "zero": np.zeros((), np.float32), "x": X}
    np.testing.assert_array_equal(run_control(loop, values, run)[1], [1, 3, 6, 10])


def appending(count, *, axis=0, in_front=False, is_read=False):
    """h += x and ys = Concat(ys, h), as a scripted function with a list is exported."""
    ys = ["p", "ys"] if in_front else ["ys", "p"]
    nodes = [
        helper.make_node("Add", ["h", "x"], ["h1"]),
        helper.make_node("Unsqueeze", ["h1", "axes"], ["p"]),
        helper.make_node("Concat", ys, ["ys1"], axis=axis),
        helper.make_node("Identity", ["c"], ["c1"]),
        *([helper.make_node("ReduceSum", ["ys"], ["seen"], keepdims=0)] if is_read else []),
    ]
    states = [("ys", FLOAT, [None, None]), ("h", FLOAT, [3])]
    results = [("c1", BOOL, []), ("ys1", FLOAT, [None, None]), ("h1", FLOAT, [3])]
    results += [("seen", FLOAT, [])] if is_read else []
    axes = helper.make_tensor("axes", INT, [1], [axis])
    inner = body(nodes, [("k", INT, []), ("c", BOOL, []), *states], results, [axes])
    outputs = ["ys2", "h2", *(["sums"] if is_read else [])]
    outer = [
        helper.make_node("Constant", [], ["m"], value=helper.make_tensor("m", INT, [], [count])),
        helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", BOOL, [], [True])),
        helper.make_node("Loop", ["m", "true", "ys0", "x"], outputs, body=inner),
    ]
    return model(outer, [("x", FLOAT, [3]), ("ys0", FLOAT, None)], [(o, FLOAT, None) for o in outputs])


@pytest.mark.parametrize("count", [0, 3, 90])
@pytest.mark.parametrize(
    "how", [{}, {"axis": 1}, {"axis": -1}, {"in_front": True}, {"axis": 1, "in_front": True}, {"is_read": True}]
)
def test_a_loop_that_appends_to_a_state(how, count):
    axis, x = how.get("axis", 0), np.arange(3, dtype=np.float32)
    first = np.full((2, 3) if axis == 0 else (3, 2), 7, np.float32)
    rows = [x * (2 + k) for k in range(count)]
    parts = [first, *(np.expand_dims(r, axis) for r in rows)]
    expected = [np.concatenate(parts[::-1] if how.get("in_front") else parts, axis), x * (1 + count)]
    found = run_graph(read_model(appending(count, **how)), {"x": x, "ys0": first})
    for a, b in zip(found, expected, strict=False):
        np.testing.assert_array_equal(a, b)
    if how.get("is_read"):
        np.testing.assert_array_equal(found[2], np.float32([42 + sum(3 * (2 + j) for j in range(k)) for k in range(count)]))


def test_a_loop_that_appends_has_one_plan(monkeypatch):
    """It was planned anew in each iteration: the state that grew had another shape each time."""
    plans = []
    make = polyc.onnx.runner.make_plan
    monkeypatch.setattr(polyc.onnx.runner, "make_plan", lambda *a, **k: plans.append(0) or make(*a, **k))
    x = np.ones(3, np.float32)
    ys, h = polyc.onnx.load(appending(80)).run(None, {"x": x, "ys0": np.zeros((0, 3), np.float32)})
    np.testing.assert_array_equal(ys, np.broadcast_to(np.arange(2, 82)[:, None], (80, 3)))
    np.testing.assert_array_equal(h, x * 81)
    assert len(plans) <= 2


def test_what_does_not_fit_the_state_it_is_appended_to_is_named():
    with pytest.raises(PolycError, match=r"p in Loop ys2: float32\[1, 3\] cannot be appended to float32\[2, 4\]") as caught:
        run_graph(read_model(appending(80)), {"x": np.ones(3, np.float32), "ys0": np.zeros((2, 4), np.float32)})
    assert caught.value.code == "argument-onnx-control"


def branch(name, op):
    return body([helper.make_node(op, ["x"], [name])], [], [(name, FLOAT, [None])])


def test_if_of_a_known_condition_is_written_out_and_another_is_driven():
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("same", "Relu"), else_branch=branch("same", "Neg"))
    proto = model([node], [("c", BOOL, []), ("x", FLOAT, [None])], [("y", FLOAT, [None])])
    graph = read_model(proto)
    for c in (True, False):
        check(proto, {"c": np.asarray(c), "x": X - 5}, 0)
    assert expand_control(graph.nodes[0], lambda n: None, lambda n: None) is None


def test_if_inside_if_sees_all_names_around():
    inner = helper.make_node("If", ["d"], ["z"], then_branch=branch("a", "Relu"), else_branch=branch("a", "Abs"))
    outer = body([helper.make_node("Neg", ["x"], ["w"]), inner], [], [("z", FLOAT, [None])])
    other = body([], [], [("x", FLOAT, [None])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=outer, else_branch=other)
    inputs = [("c", BOOL, []), ("d", BOOL, []), ("x", FLOAT, [None])]
    proto = model([node], inputs, [("y", FLOAT, [None])])
    for c in (True, False):
        for d in (True, False):
            check(proto, {"c": np.asarray(c), "d": np.asarray(d), "x": X - 5}, 0)


def test_names_of_a_body_may_be_those_outside():
    """The body's own `x` hides the graph's, in the body and nowhere else."""
    inner = body(
        [helper.make_node("Neg", ["x"], ["y"])],
        [("k", INT, []), ("c", BOOL, []), ("x", FLOAT, None)],
        [("c", BOOL, []), ("y", FLOAT, None)],
    )
    nodes = [
        helper.make_node("Constant", [], ["m"], value=helper.make_tensor("m", INT, [], [3])),
        helper.make_node("Loop", ["m", "", "x"], ["z"], body=inner),
        helper.make_node("Add", ["x", "z"], ["y"]),
    ]
    proto = model(nodes, [("x", FLOAT, [None])], [("y", FLOAT, [None])])
    found = run_graph(read_model(proto), {"x": X}, True)
    np.testing.assert_array_equal(found[0], 0 * X)


def scan(opset, axes=(0, 1), directions=(0, 1), out_axis=1, out_direction=1):
    inner = body(
        [
            helper.make_node("Add", ["s", "a"], ["t"]),
            helper.make_node("Mul", ["t", "b"], ["s1"]),
            helper.make_node("Sub", ["s1", "a"], ["o"]),
        ],
        [("s", FLOAT, [2]), ("a", FLOAT, [2]), ("b", FLOAT, [2])],
        [("s1", FLOAT, [2]), ("o", FLOAT, [2])],
    )
    node = helper.make_node(
        "Scan",
        ["s0", "a", "b"],
        ["s", "o"],
        body=inner,
        num_scan_inputs=2,
        scan_input_axes=list(axes),
        scan_input_directions=list(directions),
        scan_output_axes=[out_axis],
        scan_output_directions=[out_direction],
    )
    inputs = [("s0", FLOAT, [2]), ("a", FLOAT, None), ("b", FLOAT, None)]
    return model([node], inputs, [("s", FLOAT, None), ("o", FLOAT, None)], opset)


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 21])
@pytest.mark.parametrize("length", [1, 5, 40])
def test_scan_along_any_axis_and_direction(opset, length):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((length, 2)).astype(np.float32), rng.standard_normal((2, length)).astype(np.float32)
    state = rng.standard_normal(2).astype(np.float32)
    s, parts = state, []
    for k in range(length):
        s = (s + a[k]) * b[:, length - 1 - k]
        parts.append(s - a[k])
    graph = read_model(scan(opset))
    for is_expanded in (False, True):
        found = run_graph(graph, {"s0": state, "a": a, "b": b}, is_expanded)
        np.testing.assert_array_equal(found[0], s)
        np.testing.assert_array_equal(found[1], np.stack(parts[::-1], axis=1))
    assert run_graph.n_driven == (3 * length > MOST_UNROLLED)


def test_scan_of_nothing_gives_what_its_types_say():
    empty = {"s0": np.ones(2, np.float32), "a": np.zeros((0, 2), np.float32), "b": np.zeros((2, 0), np.float32)}
    found = run_graph(read_model(scan(17)), empty, True)
    assert found[1].shape == (2, 0) and found[1].dtype == np.float32
    np.testing.assert_array_equal(found[0], [1, 1])


def test_wrong_sequences_and_conditions_are_errors():
    graph = read_model(scan(17))
    feed = {"s0": np.ones(2, np.float32), "a": np.zeros((3, 2), np.float32), "b": np.zeros((2, 4), np.float32)}
    with pytest.raises(PolycError) as caught:
        run_graph(graph, feed)
    assert caught.value.code == "argument-onnx-control"
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("a", "Neg"))
    proto = model([node], [("c", BOOL, None), ("x", FLOAT, [None])], [("y", FLOAT, [None])])
    with pytest.raises(PolycError) as caught:
        run_graph(read_model(proto), {"c": np.asarray([True, False]), "x": X})
    assert caught.value.code == "argument-onnx-control"


def test_parts_of_different_shapes_are_an_error():
    inner = body(
        [helper.make_node("Identity", ["c"], ["c1"]), helper.make_node("Concat", ["s", "s"], ["s1"], axis=0)],
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, None)],
        [("c1", BOOL, []), ("s1", FLOAT, None), ("s1", FLOAT, None)],
    )
    del inner.output[2:]
    inner.output.append(helper.make_tensor_value_info("s", FLOAT, None))
    nodes = [
        helper.make_node("Constant", [], ["m"], value=helper.make_tensor("m", INT, [], [3])),
        helper.make_node("Loop", ["m", "", "x"], ["z", "y"], body=inner),
    ]
    graph = read_model(model(nodes, [("x", FLOAT, [None])], [("y", FLOAT, None)]))
    with pytest.raises(PolycError) as caught:
        run_graph(graph, {"x": X})
    assert caught.value.code == "argument-onnx-control"


def suite_cases():
    names = ("test_if", "test_loop", "test_scan", "test_range")
    return [Case(t.name, "node", t) for t in load_model_tests(kind="node") if t.name.startswith(names)]


@pytest.mark.filterwarnings("ignore")
def test_cases_of_the_backend_suite():
    seen = 0
    for case in suite_cases():
        graph = read_model(case.model)
        if case.name == "test_if_opt" or not any(is_driven(n) for n in graph.nodes):  # the reference wraps optionals once more
            continue
        for inputs, outputs in case.data():
            feed = {p.name: v for p, v in zip(graph.inputs, inputs, strict=True)}
            for is_expanded in (False, True):
                for found, wanted in zip(run_graph(graph, feed, is_expanded), outputs, strict=True):
                    if isinstance(wanted, list):
                        for a, b in zip(found, wanted, strict=True):
                            np.testing.assert_array_equal(a, b)
                    elif wanted is None:
                        assert found is None
                    else:
                        np.testing.assert_allclose(np.asarray(found, wanted.dtype), wanted, rtol=1e-3, err_msg=case.name)
                seen += 1
    assert seen >= 15


def test_loops_that_would_take_days_are_refused():
    scalar = helper.make_tensor_value_info
    step = body(
        [helper.make_node("Add", ["s", "s"], ["t"])],
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [])],
        [("c", BOOL, []), ("t", FLOAT, [])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=step)],
        "g",
        [scalar("n", INT, []), scalar("x", FLOAT, [])],
        [scalar("y", FLOAT, [])],
    )
    session = polyc.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    feed = {"x": np.array(1, np.float32)}
    assert session.run(None, {**feed, "n": np.array(5)}) == [32]
    with pytest.raises(PolycError, match="never false"):
        session.run(None, {**feed, "n": np.array(2**63 - 1)})


@pytest.mark.parametrize("first", [["m", ""], ["m", "true"]])
@pytest.mark.parametrize("count", [3, 70])
def test_a_state_that_is_stacked_too_was_refused(first, count):
    """Bodies return one value in two places, and leave out what they do not need."""
    inner = body(
        [helper.make_node("Add", ["s", "x"], ["s1"]), helper.make_node("Identity", ["c"], ["c1"])],
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [])],
        [("c1", BOOL, []), ("s1", FLOAT, []), ("s1", FLOAT, []), ("s1", FLOAT, [])],
    )
    nodes = [
        helper.make_node("Constant", [], ["m"], value=helper.make_tensor("m", INT, [], [count])),
        helper.make_node("Constant", [], ["true"], value=helper.make_tensor("t", BOOL, [], [True])),
        helper.make_node("Loop", [*first, "x"], ["total", "parts", "again"], body=inner),
    ]
    proto = model(nodes, [("x", FLOAT, [])], [("total", FLOAT, []), ("parts", FLOAT, [None]), ("again", FLOAT, [None])])
    total, parts, again = polyc.onnx.load(proto).run(None, {"x": np.float32(2)})
    assert total == 2 * count + 2
    np.testing.assert_array_equal(parts, np.arange(2, count + 2, dtype=np.float32) * 2)
    np.testing.assert_array_equal(again, parts)


def test_a_loop_without_a_condition_and_without_a_state_was_refused():
    inner = body(
        [helper.make_node("Mul", ["k", "k"], ["square"]), helper.make_node("Identity", ["c"], ["c1"])],
        [("k", INT, []), ("c", BOOL, [])],
        [("c1", BOOL, []), ("square", INT, [])],
    )
    proto = model([helper.make_node("Loop", ["m", ""], ["squares"], body=inner)], [("m", INT, [])], [("squares", INT, [None])])
    for count in (0, 4, 100):
        (squares,) = polyc.onnx.load(proto).run(None, {"m": np.int64(count)})
        np.testing.assert_array_equal(squares, np.arange(count) ** 2)


def test_branches_that_return_a_value_twice():
    def branch(op):
        return body([helper.make_node(op, ["x"], ["r"])], [], [("r", FLOAT, [3]), ("r", FLOAT, [3])])

    node = helper.make_node("If", ["c"], ["a", "b"], then_branch=branch("Neg"), else_branch=branch("Abs"))
    proto = model([node], [("c", BOOL, []), ("x", FLOAT, [3])], [("a", FLOAT, [3]), ("b", FLOAT, [3])])
    for c, wanted in ((True, [1, -2, -3]), (False, [1, 2, 3])):
        found = polyc.onnx.load(proto).run(None, {"c": np.bool_(c), "x": np.float32([-1, 2, 3])})
        np.testing.assert_array_equal(found, [wanted, wanted])
