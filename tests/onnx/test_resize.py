"""Resizing and sampling in all modes, at factors and sizes that ONNX's own suite does not have."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from polyc.frontends.onnx.interpolation import as_division
from tests.onnx.nodes import assert_close, run_node, run_onnxruntime, run_reference

RNG = np.random.default_rng(5)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def check(x: np.ndarray, scales: np.ndarray | None, sizes: np.ndarray | None, **attributes: Any) -> None:
    inputs = {"x": x, "r": None, "s": scales, "n": sizes}
    constants = [n for n in ("s", "n") if inputs[n] is not None]
    rest = {"constants": constants, "opset": 19, **attributes}
    assert_close(run_node("Resize", inputs, **rest), run_reference("Resize", inputs, **rest), 1e-4, 1e-4)


@pytest.mark.pairs
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 1.7), (1, 1, 0.5, 0.25), (1, 1, 1, 1)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_smooth_modes(coordinates: str, scales: tuple[float, ...], mode: str) -> None:
    check(normal(1, 2, 5, 8), floats(*scales), None, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", NEAREST)
def test_nearest_modes(coordinates: str, nearest: str) -> None:
    for scales in ((1, 1, 2, 3), (1, 1, 0.6, 1.7)):
        given = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
        check(normal(1, 2, 6, 8), floats(*scales), None, **given)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_sizes_of_axes(policy: str, mode: str) -> None:
    x = normal(2, 6, 5, 3)
    check(x, None, np.array([7, 4]), mode=mode, axes=[2, 1], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_antialias(mode: str, exclude_outside: int) -> None:
    check(normal(1, 1, 20, 13), floats(1, 1, 0.1, 0.45), None, mode=mode, antialias=1, exclude_outside=exclude_outside)


def test_bytes_are_rounded_and_saturated() -> None:
    x = RNG.integers(0, 256, (1, 1, 4, 5)).astype(np.uint8)
    inputs = {"x": x, "r": None, "s": floats(1, 1, 1.5, 2.0)}
    for mode in ("nearest", "linear", "cubic"):
        (y,), (wanted,) = run_node("Resize", inputs, mode=mode), run_reference("Resize", inputs, mode=mode)
        assert y.dtype == np.uint8
        assert np.abs(y.astype(int) - wanted.astype(int)).max() <= 1


def test_version_10_takes_the_element_behind_when_it_shrinks() -> None:
    pytest.importorskip("onnxruntime")
    for scales in ((1, 1, 0.6, 0.6), (1, 1, 2, 1.5), (1, 1, 3, 0.5)):
        inputs = {"x": normal(1, 1, 5, 7), "s": floats(*scales)}
        for mode in ("nearest", "linear"):
            rest = {"opset": 10, "mode": mode}
            assert_close(run_node("Resize", inputs, **rest), run_onnxruntime("Resize", inputs, **rest))


@pytest.mark.parametrize("scale", [1.2, 7 / 6, 5 / 3, 1.3, 2.2, 0.7, 1 / 3])
def test_extents_and_elements_at_factors_that_are_no_binary_fractions(scale: float) -> None:
    pytest.importorskip("onnxruntime")
    for n in (6, 10, 12, 15):  # onnxruntime copies what keeps its extent
        x, scales = np.arange(n, dtype=np.float32).reshape(1, 1, 1, n), floats(1, 1, 1, scale)
        cases: list[tuple[str, dict[str, np.ndarray | None], dict[str, Any]]] = [
            ("Resize", {"x": x, "r": None, "s": scales}, {"opset": 13, "mode": "linear"}),
            (  # as PyTorch exports it
                "Resize",
                {"x": x, "r": None, "s": scales},
                {"opset": 13, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            ),
        ]
        if scale >= 1:
            cases.append(("Upsample", {"x": x, "s": scales}, {"opset": 9}))
        for op, inputs, rest in cases:
            assert_close(run_node(op, inputs, constants=["s"], **rest), run_onnxruntime(op, inputs, constants=["s"], **rest))


def test_upsample() -> None:
    x = normal(1, 2, 3, 4)
    wanted = np.repeat(np.repeat(x, 2, 2), 3, 3)
    assert_close(run_node("Upsample", {"x": x}, opset=7, scales=[1.0, 1.0, 2.0, 3.0]), [wanted])
    assert_close(run_node("Upsample", {"x": x, "s": floats(1, 1, 2, 3)}, opset=9), [wanted])


def test_other_ranks() -> None:
    check(normal(7), floats(1.5), None, mode="linear")
    check(normal(1, 1, 3, 4, 2), floats(1, 1, 2, 0.5, 2), None, mode="linear")
    x = normal(2, 0, 3)  # onnx's reference implementation fails before 1.22
    assert run_node("Resize", {"x": x, "roi": None, "scales": floats(1, 1, 2)}, mode="nearest")[0].shape == (2, 0, 6)


def test_subscripts_are_divisions_where_they_can_be() -> None:
    o = np.arange(12)
    assert as_division(o // 3, 4) == (1, 0, 3)
    assert as_division(o * 2, 24) == (2, 0, 1)
    for table in ((o + 1) // 2, np.minimum(o // 2 + 1, 6), np.minimum(o, 9), o[:1], np.zeros(5, np.int64)):
        found = as_division(table, int(table.max()) + 1)
        if found is not None:
            a, c, d = found
            assert [(a * k + c) // d for k in range(len(table))] == list(table)


@pytest.mark.parametrize(
    ("mode", "padding", "align"), list(product(["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1]))
)
def test_samples_far_outside(mode: str, padding: str, align: int) -> None:
    torch = pytest.importorskip("torch")
    x, grid = normal(2, 3, 5, 4), RNG.uniform(-3, 3, (2, 6, 7, 2)).astype(np.float32)
    name = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    wanted = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), name, padding, bool(align)).numpy()
    given = {"mode": mode, "padding_mode": padding, "align_corners": align}
    (y,) = run_node("GridSample", {"x": x, "g": grid}, opset=20, **given)
    assert_close([y], [wanted], 1e-3, 2e-4)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_partly_outside(mode: str) -> None:
    x = normal(2, 3, 8, 9)
    regions = floats(-2, -3, 5, 4, 1, 2, 20, 30, 3, 3, 3, 3).reshape(3, 4)
    inputs = {"x": x, "r": regions, "b": np.array([0, 1, 1])}
    given = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.8}
    assert_close(run_node("RoiAlign", inputs, **given), run_reference("RoiAlign", inputs, **given), 1e-4, 1e-4)
    old = {**given, "opset": 10}
    assert_close(
        run_node("RoiAlign", inputs, **old),
        run_reference("RoiAlign", inputs, coordinate_transformation_mode="output_half_pixel", **given),
        1e-4,
        1e-4,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_result_larger_than_the_memory_is_an_error(mode: str) -> None:
    from polyc.diagnostics import UnsupportedError

    with pytest.raises(UnsupportedError, match="GiB"):
        run_node("Resize", {"x": normal(1, 1, 4, 4), "r": None, "s": floats(1, 1, 1e6, 1e6)}, mode=mode)
