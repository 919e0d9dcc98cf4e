"""Normalisations, transforms, losses and determinants at sizes, types and versions that ONNX's own suite does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.nodes import assert_close, run_node, run_reference

RNG = np.random.default_rng(17)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3), (0, 3, 4), (5, 3, 2, 2, 2)])
def test_batch_normalisation(opset: int, shape: tuple[int, ...]) -> None:
    x, scale, bias, mean, var = normal(*shape), normal(3), normal(3), normal(3), RNG.random(3).astype(np.float32) + 0.1
    wide = [v.astype(np.float64).reshape(3, *(1,) * (len(shape) - 2)) for v in (scale, bias, mean, var)]
    wanted = wide[0] * (x - wide[2]) / np.sqrt(wide[3] + 1e-5) + wide[1]
    inputs = {"x": x, "s": scale, "b": bias, "m": mean, "v": var}
    assert_close(run_node("BatchNormalization", inputs, opset=opset), [wanted.astype(np.float32)])


def test_batch_normalisation_of_elements() -> None:
    x, numbers = normal(2, 3, 4), [normal(3, 4) for _ in range(3)]
    var = RNG.random((3, 4)).astype(np.float32) + 0.1
    wanted = numbers[0] * (x - numbers[2]) / np.sqrt(var + 1e-5) + numbers[1]
    inputs = {"x": x, "s": numbers[0], "b": numbers[1], "m": numbers[2], "v": var}
    assert_close(run_node("BatchNormalization", inputs, opset=7, spatial=0), [wanted], 1e-4, 1e-4)


def test_batch_normalisation_in_training() -> None:
    inputs = {"x": normal(4, 3, 5), "s": normal(3), "b": normal(3), "m": normal(3), "v": RNG.random(3).astype(np.float32)}
    rest = {"training_mode": 1, "momentum": 0.7, "n_outputs": 3}
    assert_close(
        run_node("BatchNormalization", inputs, **rest), run_reference("BatchNormalization", inputs, **rest), 1e-4, 1e-4
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_types(dtype: Any) -> None:
    tolerance = 5e-3 if dtype == np.float16 else 1e-4
    x, scale, bias = (normal(*s).astype(dtype) for s in ((2, 4, 3, 5), (4,), (4,)))
    for op, rest in (("InstanceNormalization", {}), ("GroupNormalization", {"num_groups": 2})):
        inputs = {"x": x, "s": scale, "b": bias}
        wanted = run_reference(op, {n: v.astype(np.float64) for n, v in inputs.items()}, **rest)
        assert_close(run_node(op, inputs, **rest), [wanted[0].astype(dtype)], tolerance, tolerance)
    row = normal(5).astype(dtype)
    wide = x.astype(np.float64)
    wanted = [(wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * row.astype(np.float64)).astype(dtype)]
    assert_close(run_node("RMSNormalization", {"x": x, "s": row}, opset=23), wanted, tolerance, tolerance)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_response_of_neighbours(size: int) -> None:
    x = normal(5, 4, 3, 2)  # the reference implementation counts channels by the batch
    rest = {"size": size, "alpha": 0.5, "beta": 0.6, "bias": 2.0}
    before, after = (size - 1) // 2, size // 2
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (before, after), (0, 0), (0, 0)))
    sums = sum(squares[:, k : k + 4] for k in range(size))
    wanted = x / (2.0 + 0.5 / size * sums) ** 0.6
    assert_close(run_node("LRN", {"x": x}, **rest), [wanted.astype(np.float32)])


@pytest.mark.parametrize("p", [1, 2])
def test_norm_along_an_axis(p: int) -> None:
    x = normal(3, 4, 5) - 0.5
    x[1] = 0
    norm = np.abs(x).sum(1, keepdims=True) if p == 1 else np.sqrt((x**2).sum(1, keepdims=True))
    wanted = np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm))
    assert_close(run_node("LpNormalization", {"x": x}, axis=1, p=p), [wanted.astype(np.float32)])


@pytest.mark.each
@pytest.mark.parametrize("n", [1, 2, 7, 32, 33, 37, 60, 400, 512])
@pytest.mark.parametrize("onesided", [0, 1])
def test_transform(n: int, onesided: int) -> None:
    x = normal(2, n, 1)
    exact = np.fft.fft(x[..., 0].astype(np.float64), axis=1)[:, : n // 2 + 1 if onesided else n]
    wanted = np.stack([exact.real, exact.imag], -1)
    (y,) = run_node("DFT", {"x": x}, opset=17, axis=1, onesided=onesided)
    assert y.shape == wanted.shape
    np.testing.assert_allclose(y, wanted, rtol=0, atol=2e-6 * n + 1e-5)


@pytest.mark.parametrize(("n", "length"), [(40, None), (40, 64), (64, 40), (13, None)])
def test_transform_and_back(n: int, length: int | None) -> None:
    x = normal(3, n, 2)
    size = length or n
    signal = x[..., 0] + 1j * x[..., 1]
    given = {"x": x, "n": None if length is None else np.array(length), "a": np.array(1)}
    exact = np.fft.fft(signal, size, axis=1)
    (y,) = run_node("DFT", given, opset=20, constants=("a",) if length is None else ("a", "n"))
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], exact, atol=1e-4)
    (back,) = run_node("DFT", {"x": y}, opset=20, inverse=1)
    padded = np.fft.ifft(exact, axis=1)
    np.testing.assert_allclose(back[..., 0] + 1j * back[..., 1], padded, atol=1e-4)


def test_half_of_a_transform_back() -> None:
    for n in (16, 17, 96):
        x = normal(2, n)
        half = np.fft.rfft(x, axis=1)
        given = {"x": np.stack([half.real, half.imag], -1).astype(np.float32), "n": np.array(n)}
        (y,) = run_node("DFT", given, opset=20, constants=("n",), inverse=1, onesided=1)
        np.testing.assert_allclose(y[..., 0], x, atol=1e-5)


@pytest.mark.each
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("has_window", [False, True])
def test_transform_of_frames(onesided: int, has_window: bool) -> None:
    x, n, hop = normal(2, 300, 1), 80, 33
    window = RNG.random(n).astype(np.float32) if has_window else None
    frames = np.stack([x[:, k : k + n, 0] for k in range(0, 300 - n + 1, hop)], 1)
    exact = np.fft.fft(frames * (1 if window is None else window), axis=-1)[..., : n // 2 + 1 if onesided else n]
    given = {"x": x, "s": np.array(hop), "w": window, "n": np.array(n)}
    (y,) = run_node("STFT", given, opset=17, constants=("s", "n"), onesided=onesided)
    np.testing.assert_allclose(y, np.stack([exact.real, exact.imag], -1), atol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_determinants(n: int) -> None:
    x = normal(3, n, n)
    x[1, 0, 0] = 0
    x[2] = 0
    wanted = np.linalg.det(x.astype(np.float64))
    (y,) = run_node("Det", {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-4)


def test_a_class_that_is_ignored_may_be_none() -> None:
    x, target = normal(3, 4, 2), np.array([[0, -1], [3, 2], [-1, -1]])
    inputs = {"x": x, "t": target, "w": RNG.random(4).astype(np.float32)}
    for reduction in ("none", "sum", "mean"):
        rest = {"ignore_index": -1, "reduction": reduction, "n_outputs": 2}
        wanted = run_reference("SoftmaxCrossEntropyLoss", inputs, **rest)
        wanted[0] = wanted[0].astype(np.float32)
        assert_close(run_node("SoftmaxCrossEntropyLoss", inputs, **rest), wanted, 1e-4, 1e-4)


def test_a_class_that_is_not_there() -> None:
    from polyc.diagnostics import PolycError

    with pytest.raises((PolycError, IndexError)):
        run_node("NegativeLogLikelihoodLoss", {"x": normal(2, 3), "t": np.array([0, 7])})


@pytest.mark.parametrize("mean", [0, 100, 1e4])
@pytest.mark.parametrize("axis", [-1, 1])
def test_rows_far_from_zero_had_no_digit_left(mean: float, axis: int) -> None:
    """By the operator's function, the mean of squares less the square of the mean, deviations around 10000 were NaN."""
    x = normal(3, 4, 64) + np.float32(mean)
    row = x.shape[axis:]
    inputs = {"x": x, "w": normal(*row), "b": normal(*row)}
    over, wide = tuple(range(axis % 3, 3)), x.astype(np.float64)
    center, deviation = wide.mean(over, keepdims=True), np.sqrt(wide.var(over, keepdims=True) + 1e-5)
    y, means, inverse = run_node("LayerNormalization", inputs, axis=axis, n_outputs=3)
    np.testing.assert_allclose(y, (wide - center) / deviation * inputs["w"] + inputs["b"], rtol=0, atol=2e-6 * max(mean, 10))
    np.testing.assert_allclose(means, center, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / deviation, rtol=2e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("stash", [1, 11])
def test_rows_of_each_type(dtype: Any, stash: int) -> None:
    tolerance = 5e-3 if dtype == np.float16 else 1e-5
    inputs = {"x": normal(3, 40).astype(dtype), "w": normal(40).astype(dtype)}
    wide = {n: v.astype(np.float64) for n, v in inputs.items()}
    (wanted,) = run_reference("LayerNormalization", wide)
    y, means, _ = run_node("LayerNormalization", inputs, stash_type=stash, n_outputs=3)
    assert_close([y], [wanted.astype(dtype)], tolerance, tolerance)
    assert means.dtype == {1: np.float32, 11: np.float64}[stash] and means.shape == (3, 1)
