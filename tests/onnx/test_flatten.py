"""Dimensions that are walked together become one, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import polyc.onnx
from polyc.frontends.onnx.flatten import flatten_dimensions
from polyc.ir.interpret import interpret
from polyc.ir.program import Program
from tests.scheduler.support import read

CONV = """def f(float(2, 3, 4, 5) x, float(6, 3) w, float(2, 6, 4, 5) z) -> (float(2, 6, 4, 5) t, float(2, 6, 4, 5) y) {
  t(n, m, h, v) +=! x(n, c, h, v) * w(m, c) where n in 0:2, m in 0:6, h in 0:4, v in 0:5, c in 0:3
  y(n, m, h, v) = max(t(n, m, h, v), 0.0) + z(n, m, h, v) where n in 0:2, m in 0:6, h in 0:4, v in 0:5
}"""
ROWS = """def f(float(2, 3, 4) x, float(4) w) -> (float(2, 3) s, float(2, 3, 4) y) {
  s(b, i) +=! x(b, i, k) where b in 0:2, i in 0:3, k in 0:4
  y(b, i, k) = x(b, i, k) * w(k) - s(b, i) where b in 0:2, i in 0:3, k in 0:4
}"""
TURNED = """def f(float(2, 3, 4) x) -> (float(3, 2, 4) y) {
  y(i, b, k) = x(b, i, k) where b in 0:2, i in 0:3, k in 0:4
}"""
USED = """def f(float(2, 3) x) -> (float(2, 3) y) {
  y(i, j) = j < 2 ? x(i, j) : 0.0 where i in 0:2, j in 0:3
}"""
PART = """def f(float(4, 3) x) -> (float(2, 3) y) {
  y(i, j) = x(i + 2, j) where i in 0:2, j in 0:3
}"""


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {t.name: tuple(e.value for e in t.shape) for t in program.tensors}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (CONV, {"x": (2, 3, 20), "w": (6, 3), "z": (2, 6, 20), "t": (2, 6, 20), "y": (2, 6, 20)}),
        (ROWS, {"x": (6, 4), "w": (4,), "s": (6,), "y": (6, 4)}),
        (TURNED, None),
        (USED, None),
        (PART, None),
    ],
)
def test_before_and_after(text, wanted) -> None:
    program = read(text)
    found = flatten_dimensions(program, ("w",))
    if wanted is None:
        assert found is program
        return
    assert shapes(found) == wanted
    rng = np.random.default_rng(0)
    old = {p: rng.standard_normal(shapes(program)[p]).astype(np.float32) for p in program.parameters}
    new = {p: a.reshape(shapes(found)[p]) for p, a in old.items()}
    results = interpret(found, new)
    for name, result in interpret(program, old).items():
        np.testing.assert_array_equal(results[name].reshape(result.shape), result)


def test_dimensions_of_constants_stay() -> None:
    program = read(
        "def f(float(2, 3) x, float(2, 3) w) -> (float(2, 3) y) { y(i, j) = x(i, j) * w(i, j) where i in 0:2, j in 0:3 }"
    )
    assert flatten_dimensions(program, ("w",)) is program
    assert shapes(flatten_dimensions(program, ())) == {"x": (6,), "w": (6,), "y": (6,)}


def test_one_size_is_symbolic_where_an_image_is_one_row() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
    ports = [[helper.make_tensor_value_info(n, 1, ["n", 2, "h", "w"])] for n in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=[helper.make_opsetid("", 17)])
    session = polyc.onnx.load(model, dynamic=True)
    for shape in ((1, 2, 3, 4), (2, 2, 5, 3), (3, 2, 2, 2), (1, 2, 7, 6)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0) + x)
    programs = [s.cluster.program for segment in session.runner.segments() for s in segment.plan.steps]
    assert programs and all(t.rank == 1 for p in programs for t in p.tensors)
