"""Choosing elements, against NumPy's sort; ties, NaN, every axis."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ValueInfoProto, helper
from onnx.helper import make_model, make_node, make_opsetid, make_tensor_value_info, np_dtype_to_tensor_dtype

import polyc.onnx


def run_top_k(x: np.ndarray, k: int, axis: int, *, largest: int = 1, strict: bool = True) -> list[np.ndarray]:
    node = make_node("TopK", ["x", "k"], ["values", "places"], axis=axis, largest=largest)
    ports = [
        make_tensor_value_info("x", np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim),
        make_tensor_value_info("k", np_dtype_to_tensor_dtype(np.dtype(np.int64)), [1]),
    ]
    graph = helper.make_graph([node], "test", ports, [ValueInfoProto(name="values"), ValueInfoProto(name="places")])
    session = polyc.onnx.load(make_model(graph, opset_imports=[make_opsetid("", 21)]), strict=strict)
    return session.run(None, {"x": x, "k": np.array([k])})


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.float16])
@pytest.mark.parametrize(
    ("shape", "axis", "k"), [((17,), 0, 5), ((3, 8, 5), 1, 8), ((3, 8, 5), -1, 1), ((4, 1), 1, 1), ((2, 6), 1, 0)]
)
@pytest.mark.parametrize("largest", [0, 1])
def test_chooses_what_a_stable_sort_would(dtype, shape, axis, k, largest) -> None:
    x = np.random.default_rng(7).integers(0, 9, shape).astype(dtype)  # with ties
    values, places = run_top_k(x, k, axis, largest=largest)
    keys = -x.astype(np.float64) if largest else x.astype(np.float64)
    wanted = np.take(np.argsort(keys, axis=axis, kind="stable"), range(k), axis=axis)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


@pytest.mark.pairs
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
@pytest.mark.parametrize(("shape", "axis", "k"), [((2, 60), 1, 5), ((420, 2), 0, 3)])
@pytest.mark.parametrize("largest", [0, 1])
def test_few_of_many_are_searched_for_in_order(dtype, shape, axis, k, largest) -> None:
    x = np.random.default_rng(3).integers(0, 200, shape).astype(dtype)  # with ties
    n_last = shape[axis] - k + 1  # so many NaN that one is found last, of the least
    if dtype != np.uint8:
        np.moveaxis(x, axis, 0)[:n_last] = np.nan if not largest else -np.inf
        np.moveaxis(x, axis, 0)[-1] = np.inf if not largest else np.nan
    keys = -x.astype(np.float64) if largest else x.astype(np.float64)
    if largest:
        keys[np.isnan(keys)] = -np.inf
    wanted = np.take(np.argsort(keys, axis=axis, kind="stable"), range(k), axis=axis)
    values, places = run_top_k(x, k, axis, largest=largest)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


def test_nan_is_the_greatest() -> None:
    x = np.array([1, np.nan, np.inf, 3, np.nan], np.float32)
    assert run_top_k(x, 5, 0)[1].tolist() == [1, 4, 2, 3, 0]
    assert run_top_k(x, 5, 0, largest=0)[1].tolist() == [0, 3, 2, 1, 4]


def test_long_rows_are_sorted_on_the_host() -> None:
    x = np.random.default_rng(1).permutation(5000).astype(np.float32)
    values, _ = run_top_k(x, 2000, 0, strict=False)
    assert values.tolist() == list(range(4999, 2999, -1))
