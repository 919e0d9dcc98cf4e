"""Convolutions and poolings: strides, dilations, paddings, groups and ranks that ONNX's own suite does not combine."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import polyc
import polyc.onnx
from polyc.frontends.onnx.windows import Windows
from tests.onnx.nodes import assert_close, run_node, run_onnxruntime, run_reference

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def direct_conv(
    x: np.ndarray, w: np.ndarray, pads: list[int], strides: list[int], dilations: list[int], group: int
) -> np.ndarray:
    """A convolution in float64, one window after the other."""
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per, filters = w.shape[1], w.shape[0] // group
    for g in range(group):
        image, weights = padded[:, g * per : (g + 1) * per], w[g * filters : (g + 1) * filters].astype(np.float64)
        for o in np.ndindex(*out):
            window = tuple(slice(p * s, p * s + r, d) for p, s, r, d in zip(o, strides, reach, dilations, strict=True))
            part = image[(slice(None), slice(None), *window)]
            y[(slice(None), slice(g * filters, (g + 1) * filters), *o)] = np.tensordot(
                part, weights, axes=(list(range(1, x.ndim)), list(range(1, w.ndim)))
            )
    return y


@pytest.mark.each
@pytest.mark.parametrize(
    ("image", "filters", "attributes"),
    [
        ((2, 3, 7), (4, 3, 3), {"pads": [2, 1], "strides": [2], "dilations": [2]}),
        ((1, 4, 5, 6), (6, 2, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": 2}),
        ((1, 5, 6, 4), (5, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 5}),
        ((1, 3, 4, 4), (6, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 3}),
        ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), {"pads": [0, 1, 1, 1, 0, 0], "strides": [1, 2, 1]}),
        ((0, 3, 5, 5), (2, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 3, 5, 5), (2, 3, 1, 1), {"strides": [2, 2]}),
        ((2, 3, 1, 2), (4, 3, 3, 5), {"pads": [1, 3, 1, 2]}),  # elements that stay in the padding
    ],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(image: tuple[int, ...], filters: tuple[int, ...], attributes: dict[str, Any], has_bias: bool) -> None:
    x, w, bias = normal(*image), normal(*filters), normal(filters[0])
    rank = len(image) - 2
    given = {"pads": [0] * 2 * rank, "strides": [1] * rank, "dilations": [1] * rank, "group": 1, **attributes}
    exact = direct_conv(x, w, **given)
    if has_bias:
        exact = exact + bias.reshape(-1, *(1,) * rank)
    (y,) = run_node("Conv", {"x": x, "w": w, "b": bias if has_bias else None}, constants=("w",), **attributes)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


def test_elements_of_windows_that_stay_in_the_padding_are_left_out() -> None:
    for n, k, s, d, p, q in product(range(1, 5), range(1, 6), (1, 2, 3), (1, 2), range(5), range(5)):
        outputs = (n + p + q - (k - 1) * d - 1) // s + 1
        if outputs < 1:
            continue
        kept, (first,) = Windows((n,), (k,), (s,), (d,), (p,), (q,), (outputs,)).inside()
        reached = {t for t in range(k) for o in range(outputs) if 0 <= o * s + t * d - p < n}
        assert reached <= set(range(first, first + kept.kernel[0]))
        assert kept.before[0] == p - first * d
        if reached and s == d == 1:
            assert reached == set(range(first, first + kept.kernel[0]))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_padding_that_is_chosen(auto_pad: str, stride: int) -> None:
    pytest.importorskip("onnxruntime")
    x, w = normal(1, 2, 8, 7), normal(3, 2, 4, 3)
    given = {"x": x, "w": w}
    attributes = {"auto_pad": auto_pad, "strides": [stride, stride]}
    assert_close(run_node("Conv", given, **attributes), run_onnxruntime("Conv", given, **attributes), 1e-4, 1e-4)
    for op in ("MaxPool", "AveragePool"):
        more = {**attributes, "kernel_shape": [4, 3]}
        assert_close(run_node(op, {"x": x}, **more), run_onnxruntime(op, {"x": x}, **more))


@pytest.mark.parametrize(
    ("image", "filters", "attributes"),
    [
        ((1, 3, 5, 4), (3, 2, 2, 2), {"strides": [2, 2]}),  # each phase one element
        ((1, 3, 5, 4), (3, 2, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),  # two, cropped
        ((1, 3, 5, 4), (3, 2, 3, 3), {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),  # phases apart
        ((1, 2, 4, 3), (2, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 0, 1]}),  # one dimension of each kind
        ((1, 4, 3), (4, 3, 5), {"strides": [17]}),  # a stride beyond the filter: elements that nothing reaches
        ((1, 4, 6), (4, 1, 3), {"strides": [2], "group": 2, "dilations": [2], "pads": [2, 1]}),
        ((2, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 3], "output_shape": [10, 9], "auto_pad": "SAME_LOWER"}),
        ((2, 2, 3, 3), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 2, 3, 2, 3), (2, 2, 3, 2, 3), {"strides": [2, 1, 2]}),
    ],
)
def test_transposed_convolution(image: tuple[int, ...], filters: tuple[int, ...], attributes: dict[str, Any]) -> None:
    pytest.importorskip("onnxruntime")
    group = attributes.get("group", 1)
    inputs = {"x": normal(*image), "w": normal(*filters), "b": normal(filters[1] * group)}
    wanted = run_onnxruntime("ConvTranspose", inputs, **attributes)
    assert_close(run_node("ConvTranspose", inputs, constants=("w",), **attributes), wanted, 1e-4, 1e-4)


def test_infinities_meet_the_filter_elements_that_reach_them_only() -> None:
    x = normal(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.inf
    w = np.abs(normal(1, 1, 3, 3)) + 1
    (y,) = run_node("ConvTranspose", {"x": x, "w": w}, strides=[2, 2])
    assert not np.isnan(y).any()
    assert np.isinf(y).sum() == 9


@pytest.mark.pairs
@pytest.mark.parametrize("constants", [("w",), ()])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 2]},
        {"strides": [3, 1], "pads": [1, 0, 1, 1]},
        {"dilations": [2, 1]},
        {"group": 2, "strides": [2, 3]},
    ],
)
def test_filters_that_are_not_finite_meet_the_image_only(attributes: dict[str, Any], value: float, constants: Any) -> None:
    pytest.importorskip("onnxruntime")
    x, w = normal(2, 2, 4, 4), normal(2, 3, 3, 3)
    w[0, 0, 0, 0], w[1, 2, 2, 1] = value, -value
    inputs = {"x": x, "w": w, "b": normal(3 * attributes.get("group", 1))}
    wanted = run_onnxruntime("ConvTranspose", inputs, constants=constants, **attributes)
    assert np.isfinite(wanted[0]).sum() > wanted[0].size / 4
    assert_close(run_node("ConvTranspose", inputs, constants=constants, **attributes), wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("filters", [(2, 3, 3, 2), (2, 3, 2, 3)])
def test_dilated_filters_meet_infinities_with_their_own_elements_only(filters: tuple[int, ...]) -> None:
    pytest.importorskip("onnxruntime")
    x = normal(1, 2, 5, 4)
    x[0, 0, 2, 1] = np.inf
    inputs = {"x": x, "w": np.abs(normal(*filters)) + 1}
    for attributes in ({"dilations": [2, 3]}, {"dilations": [3, 1], "pads": [1, 0, 2, 1]}):
        wanted = run_onnxruntime("ConvTranspose", inputs, constants=("w",), **attributes)
        assert_close(run_node("ConvTranspose", inputs, constants=("w",), **attributes), wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("shape", [(1, 2, 9), (2, 1, 7, 6)])
def test_average_counts_what_is_there(shape: tuple[int, ...], ceil_mode: int, count_include_pad: int) -> None:
    torch = pytest.importorskip("torch")
    x, rank = normal(*shape), len(shape) - 2
    pool = {1: torch.nn.functional.avg_pool1d, 2: torch.nn.functional.avg_pool2d}[rank]
    wanted = pool(torch.tensor(x), 3, 2, 1, bool(ceil_mode), bool(count_include_pad)).numpy()
    attributes = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * 2 * rank}
    got = run_node("AveragePool", {"x": x}, ceil_mode=ceil_mode, count_include_pad=count_include_pad, **attributes)
    assert_close(got, [wanted])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int8])
@pytest.mark.parametrize("storage_order", [0, 1])
def test_positions_of_maxima(dtype: Any, storage_order: int) -> None:
    torch = pytest.importorskip("torch")
    x = (normal(2, 3, 7, 5) * 20).astype(dtype)
    wanted, positions = torch.nn.functional.max_pool2d(torch.tensor(x.astype(np.float64)), 3, 2, 1, 1, True, True)
    n, c = np.indices(positions.shape)[:2]
    row, column = np.divmod(positions.numpy(), 5)
    flat = row * 5 + column if storage_order == 0 else row + column * 7
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    got = run_node("MaxPool", {"x": x}, n_outputs=2, storage_order=storage_order, **attributes)
    first = [wanted.numpy().astype(dtype)]
    assert_close(got[:1], first)
    if np.issubdtype(dtype, np.floating):  # integers have equal maxima, of which torch takes others
        assert_close(got[1:], [((n * 3 + c) * 35 + flat).astype(np.int64)])


def test_maximum_of_not_a_number() -> None:
    x = normal(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    y, positions = run_node("MaxPool", {"x": x}, n_outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    assert np.isnan(y[0, 0, 0, 0])
    assert positions[0, 0, 0, 0] == 5
    assert not np.isnan(y[0, 0, 1:]).any()


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norm_over_windows(p: int) -> None:
    x = normal(1, 2, 6, 5)
    attributes = {"kernel_shape": [2, 3], "strides": [2, 1], "p": p}
    assert_close(
        run_node("LpPool", {"x": x}, opset=18, **attributes), run_reference("LpPool", {"x": x}, opset=18, **attributes)
    )
    whole = (np.abs(x.astype(np.float64)) ** p).sum(axis=(2, 3), keepdims=True) ** (1 / p)
    assert_close(run_node("GlobalLpPool", {"x": x}, p=p), [whole.astype(np.float32)])


def test_deformed_window_without_offsets_is_a_window() -> None:
    x, w = normal(1, 4, 6, 5), normal(2, 2, 3, 3)
    offsets = np.zeros((1, 2 * 9 * 2, 6, 5), np.float32)
    attributes = {"pads": [1, 1, 1, 1], "group": 2}
    wanted = direct_conv(x, w, [1, 1, 1, 1], [1, 1], [1, 1], 2).astype(np.float32)
    got = run_node("DeformConv", {"x": x, "w": w, "o": offsets}, opset=19, offset_group=2, **attributes)
    assert_close(got, [wanted], 1e-4, 1e-4)


def test_a_window_larger_than_the_image_is_not_compiled() -> None:
    from polyc.diagnostics import UnsupportedError

    with pytest.raises(UnsupportedError, match="slides over"):
        run_node("MaxPool", {"x": normal(1, 1, 3, 3)}, kernel_shape=[4, 4])


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_averages_of_large_half_floats_were_infinite(count_include_pad: int) -> None:
    x = np.full((1, 2, 9, 9), 60000, np.float16)
    (y,) = run_node("AveragePool", {"x": x}, kernel_shape=[3, 3], count_include_pad=count_include_pad, opset=19)
    np.testing.assert_array_equal(y, np.full((1, 2, 7, 7), 60000, np.float16))


@pytest.mark.optimised
@pytest.mark.parametrize("activation", ["Sigmoid", "Softmax"])
@pytest.mark.parametrize(("width", "pads"), [(14, [1, 8, 0, 0]), (16, [1, 0, 0, 8])])
def test_padded_activations_with_avx(width: int, pads: list[int], activation: str) -> None:
    """Whole registers of padding, in rows that are padding and others."""
    nodes = [onnx.helper.make_node("Pad", ["x", "n"], ["p"]), onnx.helper.make_node(activation, ["p"], ["a"])]
    nodes.append(onnx.helper.make_node("Mul", ["p", "a"], ["y"]))
    port = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, width])
    result = onnx.helper.make_empty_tensor_value_info("y")
    constants = [onnx.numpy_helper.from_array(np.array(pads), "n")]
    graph = onnx.helper.make_graph(nodes, "padded", [port], [result], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=8)
    session = polyc.onnx.load(model, strict=True, options=polyc.Options(target="x86-64-v3"))
    x = normal(5, width)
    assert_close(session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x}))
