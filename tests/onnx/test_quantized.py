"""Quantised operators at every rounding, axis and zero point, against NumPy and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.nodes import assert_close, run_node, run_onnxruntime, run_reference

RNG = np.random.default_rng(3)


def bytes_of(dtype: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def weights_of_bytes(*shape: int) -> np.ndarray:
    """Signed bytes of seven bits: onnxruntime adds two products in 16 bits, saturated, on processors without VNNI."""
    return RNG.integers(-64, 64, shape, np.int8)


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def check_near(op: str, inputs: dict[str, Any], **rest: Any) -> None:
    """The same integers as onnxruntime's, or the next ones where a number lies in the middle."""
    pytest.importorskip("onnxruntime")
    rest = {"domain": "com.microsoft", "opset": 17, **rest}
    for a, e in zip(run_node(op, inputs, **rest), run_onnxruntime(op, inputs, **rest), strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        assert np.abs(a.astype(np.int64) - e.astype(np.int64)).max(initial=0) <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_halves_are_rounded_to_even_and_ends_saturate(dtype: Any) -> None:
    x = np.array([-1e9, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49, 1e9, -np.inf, np.inf], np.float32)
    zero = np.array(3, dtype)
    (y,) = run_node("QuantizeLinear", {"x": x, "s": number(1), "z": zero})
    info = np.iinfo(dtype)
    wanted = np.clip(np.rint(x.astype(np.float64)) + 3, info.min, info.max)
    assert_close([y], [wanted.astype(dtype)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scales_along_an_axis(axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    n = x.shape[axis]
    given = {"x": x, "s": RNG.random(n).astype(np.float32) + 0.1, "z": bytes_of(np.int8, n)}
    quantized = run_node("QuantizeLinear", given, axis=axis)
    assert_close(quantized, run_reference("QuantizeLinear", given, axis=axis))
    back = {**given, "x": quantized[0]}
    assert_close(run_node("DequantizeLinear", back, axis=axis), run_reference("DequantizeLinear", back, axis=axis))


def test_scales_of_blocks() -> None:
    x = RNG.standard_normal((2, 7, 3)).astype(np.float32)
    shape = (2, 3, 3)  # blocks of three, the last one shorter
    given = {"x": x, "s": RNG.random(shape).astype(np.float32) + 0.1, "z": bytes_of(np.uint8, *shape)}
    index = np.minimum(np.arange(7) // 3, 2)
    scales, zeros = given["s"][:, index], given["z"][:, index].astype(np.float64)
    wanted = np.clip(np.rint((x / scales).astype(np.float64)) + zeros, 0, 255).astype(np.uint8)
    assert_close(run_node("QuantizeLinear", given, axis=1, block_size=3), [wanted])


def test_numbers_of_other_types() -> None:
    x = bytes_of(np.int16, 3, 4).astype(np.int32)
    assert_close(run_node("DequantizeLinear", {"x": x, "s": number(0.5)}), [x.astype(np.float32) * np.float32(0.5)])
    x16 = RNG.standard_normal((3, 4)).astype(np.float16)
    (y,) = run_node("QuantizeLinear", {"x": x16, "s": np.array(0.25, np.float16), "z": np.array(0, np.int8)})
    assert_close([y], [np.rint(x16.astype(np.float32) / np.float32(0.25)).astype(np.int8)])


@pytest.mark.parametrize("x", [np.zeros((2, 3), np.float32), np.array([-3.0, -1.0], np.float32), np.array([2.0], np.float32)])
def test_dynamic_range_holds_zero(x: np.ndarray) -> None:
    got = run_node("DynamicQuantizeLinear", {"x": x}, n_outputs=3)
    assert_close(got, run_reference("DynamicQuantizeLinear", {"x": x}, n_outputs=3), 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 2)), ((5,), (5, 3)), ((4, 5), (5,)), ((5,), (5,)), ((0, 5), (5, 3))],
)
def test_products_of_bytes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = bytes_of(np.uint8, *left), bytes_of(np.int8, *right)
    wanted = np.matmul(x.astype(np.int32) - 200, y.astype(np.int32) + 7).astype(np.int32)
    given = {"x": x, "y": y, "a": np.array(200, np.uint8), "b": np.array(-7, np.int8)}
    assert_close(run_node("MatMulInteger", given), [np.asarray(wanted)])


def test_zero_points_of_rows_and_columns() -> None:
    x, y = bytes_of(np.uint8, 4, 5), bytes_of(np.uint8, 5, 3)
    a, c = bytes_of(np.uint8, 4), bytes_of(np.uint8, 3)
    wanted = (x.astype(np.int32) - a[:, None]) @ (y.astype(np.int32) - c)
    assert_close(run_node("MatMulInteger", {"x": x, "y": y, "a": a, "b": c}), [wanted.astype(np.int32)])


@pytest.mark.parametrize("group", [1, 2])
def test_convolution_of_bytes(group: int) -> None:
    x, w = bytes_of(np.uint8, 1, 4, 6, 5), bytes_of(np.uint8, 6, 4 // group, 3, 3)
    given = {"x": x, "w": w, "a": np.array(130, np.uint8), "b": np.array(120, np.uint8)}
    attributes = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": group}
    floats = {"x": x.astype(np.float64) - 130, "w": w.astype(np.float64) - 120}
    (wanted,) = run_reference("Conv", floats, **attributes)
    assert_close(run_node("ConvInteger", given, **attributes), [wanted.astype(np.int32)])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_scaled_convolution_of_bytes(dtype: Any) -> None:
    given = {
        "x": bytes_of(dtype, 1, 3, 5, 5),
        "xs": number(0.02),
        "xz": np.array(5, dtype),
        "w": weights_of_bytes(4, 3, 3, 3),
        "ws": RNG.random(4).astype(np.float32) * 0.01,
        "wz": np.zeros(4, np.int8),
        "ys": number(0.3),
        "yz": np.array(7, dtype),
        "b": RNG.integers(-999, 999, 4).astype(np.int32),
    }
    check_near("QLinearConv", given, domain="", pads=[1, 1, 1, 1])


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_and_products(op: str, dtype: Any) -> None:
    given = {
        "x": bytes_of(dtype, 2, 3, 4),
        "xs": number(0.1),
        "xz": np.array(3, dtype),
        "y": bytes_of(dtype, 3, 1),
        "ys": number(0.2),
        "yz": np.array(4, dtype),
        "s": number(0.3),
        "z": np.array(9, dtype),
    }
    check_near(op, given)


def test_zero_points_that_are_missing() -> None:
    given = {"x": bytes_of(np.int8, 2, 3), "xs": number(0.1), "xz": None, "y": bytes_of(np.int8, 3), "ys": number(0.2)}
    (z,) = run_node("QLinearAdd", {**given, "yz": None, "s": number(0.3)}, domain="com.microsoft")
    wanted = np.clip(np.rint((given["x"] * 0.1 + given["y"] * 0.2) / 0.3), -128, 127)
    assert z.dtype == np.int8
    assert np.abs(z - wanted).max() <= 1


def test_an_attribute_that_is_missing() -> None:
    from polyc.diagnostics import UnsupportedError

    with pytest.raises(UnsupportedError, match="attribute axis is missing"):
        run_node("QLinearConcat", {"s": number(1), "z": np.array(0, np.uint8)}, domain="com.microsoft")


def test_functions() -> None:
    given = {"x": bytes_of(np.uint8, 3, 7), "xs": number(0.05), "xz": np.array(99, np.uint8), "s": number(0.004)}
    given["z"] = np.array(0, np.uint8)
    check_near("QLinearSigmoid", given)
    check_near("QLinearLeakyRelu", {**given, "s": number(0.1), "z": np.array(50, np.uint8)}, alpha=0.2)


@pytest.mark.parametrize("opset", [12, 13])
def test_softmax(opset: int) -> None:
    import onnx
    from onnx import helper

    import polyc.onnx

    x = bytes_of(np.uint8, 2, 3, 4)
    given = {"x": x, "xs": number(0.05), "xz": np.array(99, np.uint8), "s": number(1 / 256), "z": np.array(0, np.uint8)}
    node = helper.make_node("QLinearSoftmax", list(given), ["y"], domain="com.microsoft", axis=1, opset=opset)
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
    graph = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (y,) = polyc.onnx.load(model, strict=True).run(None, given)
    numbers = (x.astype(np.float64) - 99) * 0.05
    axes = (1, 2) if opset < 13 else 1
    e = np.exp(numbers - numbers.max(axis=axes, keepdims=True))
    wanted = np.clip(np.rint(e / e.sum(axis=axes, keepdims=True) * 256), 0, 255)
    assert np.abs(y.astype(np.int64) - wanted).max() <= 1


def test_concatenation() -> None:
    given = {"s": number(0.2), "z": np.array(10, np.uint8)}
    for k, n in enumerate((2, 3)):
        given |= {f"x{k}": bytes_of(np.uint8, 2, n, 3), f"s{k}": number(0.1 + k / 10), f"z{k}": np.array(k, np.uint8)}
    check_near("QLinearConcat", given, axis=1)


def test_poolings() -> None:
    given = {"x": bytes_of(np.uint8, 1, 3, 6, 5), "xs": number(0.1), "xz": np.array(20, np.uint8), "s": number(0.2)}
    given["z"] = np.array(30, np.uint8)
    check_near("QLinearAveragePool", given, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    check_near("QLinearGlobalAveragePool", given)
    check_near("QLinearGlobalAveragePool", given, channels_last=1)


@pytest.mark.parametrize("is_stored", [False, True])
def test_product_with_bias(is_stored: bool) -> None:
    given = {
        "x": bytes_of(np.uint8, 5, 4),
        "xs": number(0.01),
        "xz": np.array(100, np.uint8),
        "y": weights_of_bytes(3, 5),
        "ys": RNG.random(3).astype(np.float32) * 0.01,
        "yz": np.zeros(3, np.int8),
        "b": RNG.integers(-999, 999, 3).astype(np.int32),
    }
    if is_stored:
        given |= {"s": number(0.02), "z": np.array(128, np.uint8)}
        check_near("QGemm", given, transA=1, transB=1, alpha=1.0)
    else:
        rest = {"domain": "com.microsoft", "opset": 17, "transA": 1, "transB": 1}
        pytest.importorskip("onnxruntime")
        assert_close(run_node("QGemm", given, **rest), run_onnxruntime("QGemm", given, **rest), 1e-4, 1e-4)


def test_products_of_numbers_and_bytes() -> None:
    pytest.importorskip("onnxruntime")
    rest = {"domain": "com.microsoft", "opset": 17}
    y, scales, bias = weights_of_bytes(6, 3), RNG.random(3).astype(np.float32) * 0.01, RNG.random(3).astype(np.float32)
    given = {"x": RNG.standard_normal((4, 6)).astype(np.float32), "y": y, "s": scales, "z": None, "b": bias}
    assert_close(
        run_node("DynamicQuantizeMatMul", given, **rest), run_onnxruntime("DynamicQuantizeMatMul", given, **rest), 1e-3, 1e-3
    )
    ints = {
        "x": bytes_of(np.uint8, 4, 6),
        "y": y,
        "xs": number(0.1),
        "ys": scales,
        "a": np.array(3, np.uint8),
        "c": None,
        "b": bias,
    }
    assert_close(
        run_node("MatMulIntegerToFloat", ints, **rest), run_onnxruntime("MatMulIntegerToFloat", ints, **rest), 1e-4, 1e-3
    )


SHAPES = [
    ((5, 13), (13, 7)),
    ((1, 64), (64, 40)),
    ((2, 1, 6, 9), (3, 9, 33)),
    ((3, 4), (4,)),
    ((20,), (20, 3)),
    ((40, 300), (300, 50)),
]


@pytest.mark.pairs
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("constants", [(), ("y", "p", "q")], ids=["given", "constant"])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str)
def test_products_of_bytes_of_any_kind_and_length_are_exact(shapes: Any, constants: Any, types: Any) -> None:
    x, y = (bytes_of(t, *s) for s, t in zip(shapes, types, strict=True))
    p, q = (bytes_of(t) for t in types)
    (got,) = run_node("MatMulInteger", {"x": x, "y": y, "p": p, "q": q}, constants=constants)
    np.testing.assert_array_equal(got, (x.astype(np.int32) - int(p)) @ (y.astype(np.int32) - int(q)))
    (plain,) = run_node("MatMulInteger", {"x": x, "y": y}, constants=[c for c in constants if c == "y"])
    np.testing.assert_array_equal(plain, x.astype(np.int32) @ y.astype(np.int32))


def test_zero_points_of_rows_and_columns_of_products_of_bytes() -> None:
    x, y, p, q = bytes_of(np.uint8, 2, 6, 11), bytes_of(np.int8, 2, 11, 9), bytes_of(np.uint8, 6), bytes_of(np.int8, 9)
    (got,) = run_node("MatMulInteger", {"x": x, "y": y, "p": p, "q": q})
    np.testing.assert_array_equal(got, (x.astype(np.int32) - p[:, None].astype(np.int32)) @ (y.astype(np.int32) - q))


def test_sums_of_products_of_bytes_do_not_saturate() -> None:
    x, y = np.full((3, 70_000), 255, np.uint8), np.full((70_000, 2), -128, np.int8)
    (got,) = run_node("MatMulInteger", {"x": x, "y": y})
    np.testing.assert_array_equal(got, (x.astype(np.int64) @ y.astype(np.int64)).astype(np.int32))


@pytest.mark.each
@pytest.mark.parametrize("constants", [("w", "p", "q"), ("w",), ()], ids=str)
@pytest.mark.parametrize("channels", [(3, 1), (8, 2), (6, 1), (6, 3), (4, 4), (5, 5)], ids=str)
@pytest.mark.parametrize(
    "types", [(np.uint8, np.int8, 0), (np.int8, np.int8, 0), (np.uint8, np.uint8, 128), (np.uint8, np.int8, 7)]
)
def test_convolutions_of_bytes_pad_with_the_zero_point(channels: Any, types: Any, constants: Any) -> None:
    (n_channels, group), (left, right, zero) = channels, types
    x, w = bytes_of(left, 2, n_channels, 7, 6), bytes_of(right, 2 * group, n_channels // group, 3, 2)
    given = {"x": x, "w": w, "p": bytes_of(left), "q": np.array(zero, right)}
    numbers = {"x": x.astype(np.float64) - int(given["p"]), "w": w.astype(np.float64) - zero}
    rest = {"pads": [1, 2, 0, 1], "strides": [2, 1], "group": group}
    (got,) = run_node("ConvInteger", given, constants=constants, **rest)
    (wanted,) = run_reference("Conv", numbers, **rest)
    np.testing.assert_array_equal(got, wanted)
