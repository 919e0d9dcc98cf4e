"""Operators evaluated with NumPy, beside onnx's own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import polyc.onnx
from polyc.frontends.onnx.evaluators import choose_boxes, rank_greatest, rank_least, suppress_boxes
from polyc.frontends.onnx.model import read_node
from polyc.onnx.boxes import Suppression


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


def test_the_kernel_keeps_the_boxes_that_numpy_does() -> None:
    rng = np.random.default_rng(0)
    kernel = Suppression(polyc.Options())
    for rows, n, n_taken in ((2, 70, 0), (3, 33, 9)):
        corners = rng.random((2, rows, n + n_taken))
        boxes = np.concatenate([corners, corners + 0.1 * rng.random((2, rows, n + n_taken))]).astype(np.float32)
        boxes[:, 0, 3] = boxes[2:, 0, 3].repeat(2)  # without area
        given = np.ascontiguousarray(boxes[..., :n]), np.ascontiguousarray(boxes[..., n:]), np.float32(0.2)
        kept = kernel(*given).astype(bool)
        np.testing.assert_array_equal(kept, suppress_boxes(*given))
        assert not kept.all()


def test_boxes_of_a_crowd_are_compared_in_parts() -> None:
    rng = np.random.default_rng(1)
    corners = rng.random((1, 700, 2))
    feed = [np.concatenate([corners, corners + 0.2], 2).astype(np.float32), rng.random((1, 2, 700)).astype(np.float32)]
    node = helper.make_node("NonMaxSuppression", ["b", "s", "m", "o"], ["z"])
    boxes, numbers = feed[0][0].astype(np.float64), []
    for label in range(2):
        taken: list[int] = []
        for k in np.argsort(-feed[1][0, label]):
            sides = np.maximum(0.2 - np.abs(boxes[taken, :2] - boxes[k, :2]), 0)
            shared = sides.prod(1)
            if len(taken) < 200 and not (shared / (0.08 - shared) > 0.6).any():
                taken.append(int(k))
        numbers += [[0, label, k] for k in taken]
    (found,) = choose_boxes(
        read_node(node, {"": 11}, onnx.ModelProto()), [*feed, np.array([200]), np.array([0.6], np.float32)], suppress_boxes
    )
    assert len(found) > 128
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize(("n_batch", "n_labels", "n"), [(1, 2, 0), (0, 2, 3), (1, 0, 3)])
def test_no_boxes_are_chosen_of_none(n_batch, n_labels, n) -> None:
    node = read_node(helper.make_node("NonMaxSuppression", ["b", "s", "m"], ["z"]), {"": 11}, onnx.ModelProto())
    given = np.zeros((n_batch, n, 4), np.float32), np.zeros((n_batch, n_labels, n), np.float32), np.array([3])
    (found,) = choose_boxes(node, given, suppress_boxes)
    assert found.shape == (0, 3) and found.dtype == np.int64


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


@pytest.mark.parametrize(("axis", "largest", "dtype"), [(-1, 1, np.int64), (0, 0, np.int64), (1, 1, np.int32)])
def test_the_greatest_of_more_elements_than_are_ranked_by_kernels(axis, largest, dtype) -> None:
    x = np.moveaxis(np.random.default_rng(1).permutation(4400).reshape(2, 1100, 2).astype(dtype), 1, axis)
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    own, long = helper.np_dtype_to_tensor_dtype(x.dtype), onnx.TensorProto.INT64
    ports = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip("xkvi", (own, long, own, long), strict=True)]
    model = helper.make_model(helper.make_graph([node], "g", ports[:2], ports[2:]), opset_imports=[helper.make_opsetid("", 17)])
    values, places = polyc.onnx.load(model).run(None, {"x": x, "k": np.asarray([700])})
    ranked = np.sort(x, axis) if not largest else -np.sort(-x, axis)
    np.testing.assert_array_equal(values, np.take(ranked, range(700), axis))
    np.testing.assert_array_equal(np.take_along_axis(x, places, axis), values)


@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((12,), None), ((3, 4), None), ((9, 2), 0), ((2, 9), -1), ((9, 2, 1), 0)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_what_is_there_once_comes_in_the_order_asked_for(n_outputs, is_sorted, shape, axis, dtype) -> None:
    """onnx's evaluator sorts where the values alone are asked for, and takes no matrices without an axis."""
    x = np.random.default_rng(2).integers(0, 3, shape).astype(dtype)
    rest = {} if axis is None else {"axis": axis}
    node = helper.make_node("Unique", ["x"], [f"y{k}" for k in range(n_outputs)], sorted=is_sorted, **rest)
    ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)]
    graph = helper.make_graph([node], "test", ports, [onnx.ValueInfoProto(name=o) for o in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    found = polyc.onnx.load(model).run(None, {"x": x})
    slices = list(x.reshape(-1)) if axis is None else [part.tolist() for part in np.moveaxis(x, axis, 0)]
    keys = [str(s) for s in slices]
    order = sorted(set(keys), key=keys.index)
    if is_sorted:
        order.sort(key=lambda k: slices[keys.index(k)])
    wanted = [slices[keys.index(k)] for k in order]
    values = found[0] if axis is None else np.moveaxis(found[0], axis, 0)
    assert values.tolist() == wanted and found[0].dtype == dtype
    if n_outputs > 1:
        assert [n.tolist() for n in found[1:]] == [
            [keys.index(k) for k in order],
            [order.index(k) for k in keys],
            [keys.count(k) for k in order],
        ]
