"""Iterations of a `Loop` as statements over a step dimension, against the same loop run node by node, and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import polyc.onnx
from polyc.diagnostics import PolycError
from polyc.frontends.onnx.model import read_model
from polyc.frontends.onnx.steps import FIRST_STEPS, MOST_STEPS
from polyc.onnx.explain import explain_session
from tests.onnx.test_control_flow import BOOL, FLOAT, INT, body, model, run_graph

node = helper.make_node


def tensor(name, dtype, values):
    array = np.asarray(values)
    return helper.make_tensor(name, dtype, array.shape, array.reshape(-1).tolist())


def loop(inner, states, inputs, n_scans=0, with_limit=True, opset=17):
    """``Loop(n, c, *states)`` around `inner`; results ``r0, r1, …``, the last `n_scans` of them stacked."""
    results = [f"r{k}" for k in range(len(states) + n_scans)]
    outer = node("Loop", ["n" if with_limit else "", "c0", *states], results, body=inner)
    given = [("c0", BOOL, []), *([("n", INT, [])] if with_limit else []), *inputs]
    types = [p.type.tensor_type.elem_type for p in inner.output[1:]]
    return model([outer], given, [(n, t, None) for n, t in zip(results, types, strict=True)], opset)


def run_both(proto, feed, **options):
    """The session's results, compared with those of the loop run node by node; and the session."""
    session = polyc.onnx.load(proto, **options)
    found = session.run(None, feed)
    for a, b in zip(found, run_graph(read_model(proto), feed), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return found, session


def is_compiled(session):
    return not any("run by the host" in str(r) for r in session.remarks)


RELAX = body(
    [
        node("MatMul", ["A", "x"], ["y"]),
        node("Sub", ["b", "y"], ["r"]),
        node("Mul", ["r", "half"], ["d"]),
        node("Add", ["x", "d"], ["x1"]),
        node("Abs", ["r"], ["a"]),
        node("ReduceMax", ["a"], ["e"], keepdims=0),
        node("Greater", ["e", "eps"], ["c1"]),
    ],
    [("k", INT, []), ("c", BOOL, []), ("x", FLOAT, [None])],
    [("c1", BOOL, []), ("x1", FLOAT, [None]), ("e", FLOAT, [])],
    [tensor("half", FLOAT, 0.5)],
)
"""Richardson's iteration until the residual is small; the residuals are a result of each iteration."""


@pytest.mark.parametrize("n", [5])
def test_a_loop_until_a_residual_is_small(n):
    proto = loop(RELAX, ["x0"], [("A", FLOAT, [n, n]), ("b", FLOAT, [n]), ("x0", FLOAT, [n]), ("eps", FLOAT, [])], 1)
    rng = np.random.default_rng(0)
    noise = rng.random((n, n)).astype(np.float32)
    feed = {"A": np.eye(n, dtype=np.float32) + 0.1 * noise / n, "b": rng.random(n).astype(np.float32)}
    feed |= {"x0": np.zeros(n, np.float32), "c0": np.array(True), "eps": np.float32(1e-4)}
    seen = set()
    for limit in (0, 1, 3, 1000):
        (_, residuals), session = run_both(proto, {**feed, "n": np.array(limit)})
        assert is_compiled(session)
        seen.add(len(residuals))
    assert seen >= {0, 1, 3} and 3 < max(seen) < 1000
    (x, residuals), _ = run_both(proto, {**feed, "n": np.array(1000), "c0": np.array(False)})
    assert residuals.shape == (0,) and not x.any()


COLLATZ = body(
    [
        node("Mod", ["v", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node("Div", ["v", "two"], ["down"]),
        node("Mul", ["v", "three"], ["v3"]),
        node("Add", ["v3", "one"], ["up"]),
        node("Where", ["is_odd", "up", "down"], ["v1"]),
        node("Equal", ["v1", "one"], ["done"]),
        node("Not", ["done"], ["c1"]),
        node("Identity", ["v1"], ["seen"]),
    ],
    [("k", INT, []), ("c", BOOL, []), ("v", INT, [])],
    [("c1", BOOL, []), ("v1", INT, []), ("seen", INT, [])],
    [tensor(name, INT, value) for name, value in (("one", 1), ("two", 2), ("three", 3))],
)


@pytest.mark.parametrize("limit", [None, 40])
def test_a_loop_of_more_iterations_than_one_call_makes(limit):
    """Collatz' sequence from 871 on has 178 steps, from 2 on one; nothing bounds them beforehand."""
    proto = loop(COLLATZ, ["v0"], [("v0", INT, [])], 1, limit is not None)
    session = polyc.onnx.load(proto)
    for start in (871, 2, 97):
        path, v = [], start
        while (v != 1 and (limit is None or len(path) < limit)) or not path:
            v = 3 * v + 1 if v % 2 else v // 2
            path.append(v)
        feed = {"v0": np.array(start), "c0": np.array(True)} | ({} if limit is None else {"n": np.array(limit)})
        last, seen = session.run(None, feed)
        assert last == path[-1]
        np.testing.assert_array_equal(seen, path)
    assert is_compiled(session) and FIRST_STEPS + MOST_STEPS < 178


def test_places_behind_the_end_are_not_looked_up():
    """``s += x[k]`` while ``x[k + 1] > 0``: the iterations that one call makes go on behind the end of x."""
    inner = body(
        [
            node("Gather", ["x", "k"], ["e"]),
            node("Add", ["s", "e"], ["s1"]),
            node("Add", ["k", "one"], ["k1"]),
            node("Gather", ["x", "k1"], ["f"]),
            node("Greater", ["f", "zero"], ["c1"]),
        ],
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [2])],
        [("c1", BOOL, []), ("s1", FLOAT, [2]), ("s", FLOAT, [2]), ("k", INT, [])],
        [tensor("one", INT, 1), tensor("zero", FLOAT, 0.0)],
    )
    proto = loop(inner, ["s0"], [("x", FLOAT, [None]), ("s0", FLOAT, [2])], 2)
    x = np.array([3, 1, 4, 1, 5, -1], np.float32)
    feed = {"x": x, "s0": np.array([0, 1], np.float32), "c0": np.array(True), "n": np.array(100)}
    (s, before, k), session = run_both(proto, feed)
    assert is_compiled(session)
    np.testing.assert_array_equal(s, [14, 15])
    np.testing.assert_array_equal(before[:, 0], [0, 3, 4, 8, 9])
    np.testing.assert_array_equal(k, range(5))
    with pytest.raises(PolycError):  # nothing ends it here before x does
        session.run(None, {**feed, "x": x[:5]})


def test_states_that_change_places_and_grow():
    """``a, b, ys = b, a @ b, [*ys, a]``: values handed on, products of carried matrices, and what iterations only append to."""
    inner = body(
        [
            node("MatMul", ["a", "b"], ["p"]),
            node("Mul", ["p", "scale"], ["b1"]),
            node("Unsqueeze", ["a", "axes"], ["part"]),
            node("Concat", ["ys", "part"], ["ys1"], axis=0),
            node("ReduceSum", ["p"], ["t"], keepdims=0),
            node("Less", ["t", "most"], ["c1"]),
        ],
        [("k", INT, []), ("c", BOOL, []), ("a", FLOAT, [3, 3]), ("ys", FLOAT, None), ("b", FLOAT, [3, 3])],
        [("c1", BOOL, []), ("b", FLOAT, [3, 3]), ("ys1", FLOAT, None), ("b1", FLOAT, [3, 3]), ("b", FLOAT, [3, 3])],
        [tensor("axes", INT, [0]), tensor("most", FLOAT, 50.0), tensor("scale", FLOAT, 1.25)],
    )
    inputs = [("a0", FLOAT, [3, 3]), ("y0", FLOAT, None), ("b0", FLOAT, [3, 3])]
    proto = loop(inner, ["a0", "y0", "b0"], inputs, 1)
    feed = {"a0": np.eye(3, dtype=np.float32), "b0": np.full((3, 3), 0.4, np.float32), "y0": np.zeros((1, 3, 3), np.float32)}
    (_, ys, _, bs), session = run_both(proto, {**feed, "c0": np.array(True), "n": np.array(300)})
    assert is_compiled(session)
    assert 3 < len(bs) < 300 and len(ys) == len(bs) + 1


def test_loops_of_which_no_steps_are_made_say_why():
    """A state that changes its shape, and one that decides a shape."""
    doubled = body(
        [node("Concat", ["s", "s"], ["s1"], axis=0), node("Size", ["s1"], ["m"]), node("Less", ["m", "most"], ["c1"])],
        [("k", INT, []), ("c", BOOL, []), ("s", FLOAT, [None])],
        [("c1", BOOL, []), ("s1", FLOAT, [None])],
        [tensor("most", INT, 20)],
    )
    feed = {"s0": np.ones(3, np.float32), "c0": np.array(True), "n": np.array(30)}
    (s,), session = run_both(loop(doubled, ["s0"], [("s0", FLOAT, [None])]), feed)
    assert s.shape == (24,)
    assert "run by the host: Loop r0 (s is float32[3] before an iteration and float32[6] behind it)" in str(session.remarks[0])
    assert "run by the host" in explain_session(session)
    tables = body(
        [
            node("Range", ["zero", "v", "one"], ["all"]),
            node("ReduceSum", ["all"], ["v1"], keepdims=0),
            node("Less", ["v1", "most"], ["c1"]),
        ],
        [("k", INT, []), ("c", BOOL, []), ("v", INT, [])],
        [("c1", BOOL, []), ("v1", INT, [])],
        [tensor("most", INT, 20), tensor("zero", INT, 0), tensor("one", INT, 1)],
    )
    (v,), session = run_both(
        loop(tables, ["v0"], [("v0", INT, [])]), {"v0": np.array(4), "c0": np.array(True), "n": np.array(30)}
    )
    assert v == 105 and "which an iteration computes" in str(session.remarks[0])


def test_a_body_takes_a_value_that_is_called_like_the_limit_of_its_steps():
    inner = body(
        [node("Add", ["s", "r0/limit"], ["s1"]), node("Less", ["s1", "r0/count"], ["c1"])],
        [("k", INT, []), ("c", BOOL, []), ("s", INT, [])],
        [("c1", BOOL, []), ("s1", INT, [])],
        [tensor("r0/count", INT, 20)],
    )
    proto = loop(inner, ["s0"], [("s0", INT, []), ("r0/limit", INT, [])])
    feed = {"s0": np.array(0), "r0/limit": np.array(3), "c0": np.array(True), "n": np.array(100)}
    (s,), session = run_both(proto, feed)
    assert is_compiled(session) and s == 21


def test_a_recurrence_of_many_statements_is_left_to_the_host():
    """Twelve values handed on: none is computed, but each has two statements of the recurrence."""
    names = [f"s{j}" for j in range(12)]
    inner = body(
        [node("Less", ["k", "most"], ["c1"])],
        [("k", INT, []), ("c", BOOL, []), *((s, INT, []) for s in names)],
        [("c1", BOOL, []), *((s, INT, []) for s in (*names[1:], names[0]))],
        [tensor("most", INT, 3)],
    )
    proto = loop(inner, [f"{s}0" for s in names], [(f"{s}0", INT, []) for s in names])
    feed = {f"{s}0": np.array(j) for j, s in enumerate(names)} | {"c0": np.array(True), "n": np.array(20)}
    found, session = run_both(proto, feed)
    assert [int(s) for s in found] == [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3]
    assert "its iterations are 27 statements, 24 are the most" in str(session.remarks[0])
