"""Non-maximum suppression beside onnx's own, box by box."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx


@pytest.mark.parametrize("is_centre", [0, 1])
@pytest.mark.parametrize(
    ("n", "most", "overlap", "least"), [(60, 10, 0.3, 0.2), (60, 100, 0.6, 0.5), (1, 1, 0.5, 0.0), (8, 0, 0.5, 0.0)]
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
