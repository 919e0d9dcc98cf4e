"""Models whose nodes contradict themselves, and for which onnx's reference implementation computes something all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc.onnx
from polyc.diagnostics import PolycError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.ones((1, 2, 5, 5), np.float32)
LINE = np.ones(4, np.float32)
FILTERS = np.ones((3, 2, 3, 3), np.float32)


def run(op: str, *arrays: np.ndarray, n_outputs: int = 1, known: bool = True, rank: bool = True, **attributes: Any) -> Any:
    """Load and run a model of one node, whose inputs behind the first are initializers where `known`."""
    names = [f"x{k}" for k in range(len(arrays))]
    results = [f"y{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, results, **attributes)
    n_inputs = 1 if known else len(arrays)
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape if rank else None)
        for name, a in zip(names[:n_inputs], arrays, strict=False)
    ]
    outputs = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in results]
    tensors = [numpy_helper.from_array(a, n) for n, a in zip(names[n_inputs:], arrays[n_inputs:], strict=True)]
    graph = helper.make_graph([node], "g", ports, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return polyc.onnx.load(model).run(None, dict(zip(names[:n_inputs], arrays, strict=False)))


def layer(n_gates: int) -> tuple[np.ndarray, ...]:
    """The inputs of a recurrent layer of three units."""
    return X, np.ones((1, 3 * n_gates, 4), np.float32), np.ones((1, 3 * n_gates, 3), np.float32)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


CASES: dict[str, tuple[str, tuple[np.ndarray, ...], dict[str, Any], str]] = {
    "a perm of another rank": ("Transpose", (X,), {"perm": [0, 1, 2, 3]}, "perm (0, 1, 2, 3) of a tensor of rank 3"),
    "a perm that turns and is too short": ("Transpose", (X,), {"perm": [1, 0]}, "perm (1, 0) of a tensor of rank 3"),
    "a perm with a dimension twice": ("Transpose", (X,), {"perm": [0, 0, 1]}, "does not have each dimension once"),
    "a perm that counts from the end": ("Transpose", (X,), {"perm": [-1, 0, 1]}, "does not have each dimension once"),
    "fewer outputs than parts": ("Split", (X,), {"num_outputs": 3, "axis": 2, "n_outputs": 2}, "num_outputs is 3"),
    "more outputs than parts": ("Split", (X,), {"num_outputs": 2, "axis": 2, "n_outputs": 3}, "num_outputs is 2"),
    "parts that are too long": ("Split", (X, integers(2, 3)), {"axis": 2, "n_outputs": 2}, "(2, 3) of 4 elements"),
    "more parts than outputs": ("Split", (X, integers(2, 1, 1)), {"axis": 2, "n_outputs": 2}, "2 parts of sizes (2, 1, 1)"),
    "a part of negative length": ("Split", (X, integers(5, -1)), {"axis": 2, "n_outputs": 2}, "(5, -1) of 4 elements"),
    "parts told twice": ("Split", (X, integers(2, 2)), {"axis": 2, "num_outputs": 2, "n_outputs": 2}, "both the input split"),
    "an attribute of another operator": ("Relu", (X,), {"alpha": 0.3}, "Relu has no attribute alpha"),
    "a misspelt attribute": ("Softmax", (X,), {"axes": 1}, "did you mean axis?"),
    "a bias of another length": ("Conv", (IMAGE, FILTERS, np.ones(5, np.float32)), {}, "shape (5,) for 3 channels"),
    "a bias that is a matrix": ("Conv", (IMAGE, FILTERS, np.ones((1, 3), np.float32)), {}, "shape (1, 3) for 3 channels"),
    "a padding that there is not": ("Conv", (IMAGE, FILTERS), {"auto_pad": "SAME"}, "auto_pad is SAME"),
    "an extent of minus two": ("Reshape", (X, integers(-2, 12)), {}, "-2"),
    "extents that are no integers": ("Reshape", (X, np.float32([24])), {}, "where integers are expected"),
    "positions that are no integers": ("Gather", (X, np.float32([0])), {}, "where integers are expected"),
    "more starts than ends": ("Slice", (X, integers(0, 0), integers(2)), {}, "starts and ends"),
    "repeats of another rank": ("Tile", (X, integers(2, 2)), {}, "repeats"),
    "a matrix of rank 3": ("Gemm", (X, np.ones((4, 2), np.float32)), {}, "2, 3, 4"),
    "an axis beyond the last": ("Flatten", (X,), {"axis": 9}, "axis"),
    "no channels": ("LRN", (IMAGE,), {"size": 0}, "0 channels"),
    "rows that begin behind the last axis": ("LayerNormalization", (X, LINE), {"axis": 3}, "axis 3 of a tensor of rank 3"),
    "rows that begin before the first axis": ("LayerNormalization", (X, LINE), {"axis": -4}, "axis -4 of a tensor of rank 3"),
    "an axis that is cut twice": ("CenterCropPad", (X, integers(2, 2)), {"axes": [0, -3]}, "name one axis twice"),
    "an axis that is sliced twice": (
        "Slice",
        (X, integers(0, 1), integers(1, 2), integers(1, 1)),
        {},
        "(1, 1) name one axis twice",
    ),
    "an axis by two names": ("Slice", (X, integers(0, 1), integers(1, 2), integers(1, -2)), {}, "(1, -2) name one axis twice"),
    "an axis that is summed twice": ("ReduceSum", (X, integers(1, -2)), {}, "(1, -2) name one axis twice"),
    "more parts than elements": ("Split", (X,), {"axis": 0, "num_outputs": 3, "n_outputs": 3}, "3 equal parts of 2 elements"),
    "one axis for batch and time": ("ReverseSequence", (X, integers(1, 1, 1)), {"batch_axis": 1, "time_axis": 1}, "are both 1"),
    "groups that do not divide the channels": ("GroupNormalization", (X, LINE[:3], LINE[:3]), {"num_groups": 2}, "2 groups of"),
    "scales that are no channels": ("GroupNormalization", (X, LINE[:2], LINE[:2]), {"num_groups": 1}, "3 scales are expected"),
    "blocks that do not divide the channels": (
        "DepthToSpace",
        (IMAGE,),
        {"blocksize": 2},
        "blocks of 2 of the shape (1, 2, 5, 5)",
    ),
    "blocks that do not divide the image": (
        "SpaceToDepth",
        (IMAGE,),
        {"blocksize": 3},
        "blocks of 3 of the shape (1, 2, 5, 5)",
    ),
    "an activation that is none": (
        "LSTM",
        layer(4),
        {"hidden_size": 3, "activations": ["Tanhh"] * 3},
        "activation Tanhh is unknown",
    ),
    "activations of one gate": ("GRU", layer(3), {"hidden_size": 3, "activations": ["Tanh"]}, "1 activations, 2 are expected"),
    "another hidden size": ("RNN", layer(1), {"hidden_size": 7}, "hidden_size is 7"),
    "a direction of shifts": ("BitShift", (integers(4).astype("u8"),) * 2, {"direction": "UP"}, "direction is UP"),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_nodes_that_contradict_themselves_are_refused(case: str, known: bool) -> None:
    op, arrays, attributes, fragment = CASES[case]
    with pytest.raises(PolycError) as caught:
        run(op, *arrays, known=known, **attributes)
    assert caught.value.code in {"semantic-onnx-node", "semantic-onnx-attribute", "unsupported-onnx-evaluation"}
    assert fragment in str(caught.value)
    assert op in str(caught.value)


@pytest.mark.parametrize("perm", [[0], [0, 1], [0, 1, 2, 3], [1, 0]])
@pytest.mark.parametrize("rank", [True, False])
def test_a_perm_of_another_rank_is_refused_where_the_rank_is_not_declared(perm: list[int], rank: bool) -> None:
    with pytest.raises(PolycError, match="of a tensor of rank 3"):
        run("Transpose", X, perm=perm, rank=rank)


def test_parts_of_nothing_are_empty() -> None:
    parts = run("Split", X[:0], num_outputs=2, n_outputs=2)
    assert [p.shape for p in parts] == [(0, 3, 4), (0, 3, 4)]


def test_an_identity_of_the_right_rank_is_taken_out() -> None:
    assert np.array_equal(run("Transpose", X, perm=[0, 1, 2])[0], X)
    assert np.array_equal(run("Transpose", X, perm=[0, 1, 2], rank=False)[0], X)
