"""Steps that a model writes out share one kernel, whatever element of an input each reads."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.frontends.onnx.model import read_model
from polyc.onnx.session import Session

STEPS = 7


def unrolled(bias: bool) -> bytes:
    """``y[:, t] = x[:, t] @ W``, a step for each t; with `bias` one that grows with the step."""
    inits = [numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "W")]
    inits += [numpy_helper.from_array(np.array([t]), f"c{t}") for t in range(STEPS + 1)]
    inits += [numpy_helper.from_array(np.array([[float(t + 2)]], np.float32), f"b{t}") for t in range(STEPS)]
    nodes = []
    for t in range(STEPS):
        nodes += [
            helper.make_node("Slice", ["x", f"c{t}", f"c{t + 1}", "c1"], [f"s{t}"]),
            helper.make_node("Squeeze", [f"s{t}", "c1"], [f"q{t}"]),
            helper.make_node("MatMul", [f"q{t}", "W"], [f"m{t}"]),
            helper.make_node("Add" if bias else "Identity", [f"m{t}", *([f"b{t}"] if bias else [])], [f"y{t}"]),
        ]
    outputs = [helper.make_tensor_value_info(f"y{t}", TensorProto.FLOAT, None) for t in range(STEPS)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, STEPS, 3])
    graph = helper.make_graph(nodes, "unrolled", [x], outputs, inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("bias", [False, True])
def test_steps_that_a_model_writes_out_share_code(bias: bool) -> None:
    session = Session(read_model(unrolled(bias)))
    x = np.random.default_rng(0).standard_normal((2, STEPS, 3)).astype(np.float32)
    found = session.run(None, {"x": x})
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    for t in range(STEPS):
        np.testing.assert_allclose(found[t], x[:, t] @ weights + (t + 2 if bias else 0), rtol=1e-5, atol=1e-5)
    (segment,) = session.runner.segments()
    codes = {id(step.code) for step in segment.plan.steps}
    assert len(codes) == (STEPS if bias else 2)  # a number that is added is no position, and the first position is 0
