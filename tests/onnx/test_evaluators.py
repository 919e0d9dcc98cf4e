"""Operators evaluated with NumPy, beside onnx's own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx
from polyc.frontends.onnx.evaluators import rank_greatest, rank_least


@pytest.mark.parametrize("is_centre", [0, 1])
@pytest.mark.parametrize(
    ("n", "most", "overlap", "least"),
    [(60, 10, 0.3, 0.2), (200, 70, 0.1, 0.3), (60, 100, 0.6, 0.5), (1, 1, 0.5, 0.0), (8, 0, 0.5, 0.0)],
)
def test_chooses_the_boxes_that_onnx_does(is_centre, n, most, overlap, least) -> None:
    rng = np.random.default_rng(n + most)
    feed = {
        "boxes": rng.random((2, n, 4)).astype(np.float32),
        "scores": np.round(rng.random((2, 3, n)), 1).astype(np.float32),  # with ties
        "most": np.array([most]),
        "overlap": np.array([overlap], np.float32),
        "least": np.array([least], np.float32),
    }
    node = helper.make_node("NonMaxSuppression", list(feed), ["z"], center_point_box=is_centre)
    ports = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feed.items()]
    result = helper.make_tensor_value_info("z", onnx.TensorProto.INT64, [None, 3])
    model = helper.make_model(helper.make_graph([node], "test", ports, [result]), opset_imports=[helper.make_opsetid("", 11)])
    (found,) = polyc.onnx.load(model).run(None, feed)
    np.testing.assert_array_equal(found, np.reshape(ReferenceEvaluator(model).run(None, feed)[0], (-1, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64])
@pytest.mark.parametrize("n_kept", [0, 1, 7, 39, 40])
def test_ranks_are_those_of_a_stable_sort(dtype, n_kept) -> None:
    row = np.random.default_rng(n_kept).integers(0, 9, 40).astype(dtype)  # with ties
    if row.dtype.kind == "f":
        row[[3, 11]] = np.inf, -np.inf
    order = sorted(range(40), key=lambda k: row[k])
    np.testing.assert_array_equal(rank_least(row, n_kept), order[:n_kept])
    np.testing.assert_array_equal(rank_greatest(row, n_kept), sorted(range(40), key=lambda k: -float(row[k]))[:n_kept])
    if row.dtype.kind == "f":
        row[[5, 20]] = np.nan  # the greatest of all
        assert list(rank_greatest(row, n_kept))[:2] == [5, 20][:n_kept]
        assert not np.isnan(row[rank_least(row, min(n_kept, 38))]).any()


@pytest.mark.parametrize(("axis", "largest"), [(-1, 1), (0, 0), (1, 1)])
def test_the_greatest_of_more_elements_than_are_ranked_by_kernels(axis, largest) -> None:
    x = np.moveaxis(np.random.default_rng(1).permutation(4400).reshape(2, 1100, 2), 1, axis)
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, None) for n in "xkvi"]
    model = helper.make_model(helper.make_graph([node], "g", ports[:2], ports[2:]), opset_imports=[helper.make_opsetid("", 17)])
    values, places = polyc.onnx.load(model).run(None, {"x": x, "k": np.asarray([3])})
    ranked = np.sort(x, axis) if not largest else -np.sort(-x, axis)
    np.testing.assert_array_equal(values, np.take(ranked, range(3), axis))
    np.testing.assert_array_equal(np.take_along_axis(x, places, axis), values)
