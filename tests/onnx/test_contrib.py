"""onnxruntime's own operators, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.nodes import assert_close, run_node, run_onnxruntime

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(op: str, inputs: dict[str, Any], n_outputs: int = 1, tolerance: float = 1e-4, **attributes: Any) -> None:
    rest = {"n_outputs": n_outputs, "domain": "com.microsoft", "opset": 17, **attributes}
    assert_close(run_node(op, inputs, **rest), run_onnxruntime(op, inputs, **rest), tolerance, tolerance)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("LeakyRelu", [0.3]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", []), ("", [])],
)
@pytest.mark.parametrize("is_added", [False, True])
def test_convolution_with_activation(activation: str, parameters: list[float], is_added: bool) -> None:
    if is_added and activation not in ("", "Relu"):
        pytest.skip("onnxruntime has no such kernel")
    inputs = {"x": normal(1, 3, 5, 6), "w": normal(4, 3, 3, 3), "b": normal(4), "z": normal(1, 4, 5, 6) if is_added else None}
    attributes: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    attributes |= {"activation": activation} if activation else {}
    attributes |= {"activation_params": parameters} if parameters else {}
    check("FusedConv", inputs, **attributes)


@pytest.mark.parametrize(
    ("left", "right", "attributes"),
    [
        ((2, 3, 4), (2, 4, 5), {"alpha": 0.5}),
        ((2, 4, 3), (5, 4), {"transA": 1, "transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((4, 2, 3), (4, 2, 5), {"transBatchA": 1, "transBatchB": 1, "transA": 1}),
    ],
)
def test_fused_product(left: tuple[int, ...], right: tuple[int, ...], attributes: dict[str, Any]) -> None:
    check("FusedMatMul", {"x": normal(*left), "y": normal(*right)}, **attributes)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu(op: str) -> None:
    check(op, {"x": normal(3, 7) * 3})


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu"])
def test_gelu_with_bias(op: str) -> None:
    check(op, {"x": normal(2, 3, 7) * 3, "b": normal(7)})


@pytest.mark.parametrize("has_bias", [False, True])
def test_skip_normalisations(has_bias: bool) -> None:
    bias = normal(8) if has_bias else None
    inputs = {"x": normal(2, 3, 8), "s": normal(2, 3, 8), "g": normal(8), "b": normal(8), "c": bias}
    names = {"x": inputs["x"], "s": inputs["s"], "g": inputs["g"], "c": bias}
    check("SkipLayerNormalization", inputs)
    check("SkipSimplifiedLayerNormalization", names, epsilon=1e-5)


def test_embedding_of_words() -> None:
    words = RNG.integers(0, 20, (2, 5)).astype(np.int32)
    inputs = {
        "i": words,
        "s": RNG.integers(0, 2, (2, 5)).astype(np.int32),
        "w": normal(20, 8),
        "p": normal(9, 8),
        "t": normal(2, 8),
        "g": normal(8),
        "b": normal(8),
        "m": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    }
    check("EmbedLayerNormalization", inputs, n_outputs=2)
    check("EmbedLayerNormalization", {**inputs, "s": None, "t": None, "m": None}, n_outputs=2)


@pytest.mark.parametrize("mask", ["", "lengths", "keys", "rows"])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(mask: str, unidirectional: int) -> None:
    masks = {
        "": None,
        "lengths": np.array([3, 5], np.int32),
        "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        "rows": RNG.integers(0, 2, (2, 5, 5)).astype(np.int32),
    }
    inputs = {"x": normal(2, 5, 8), "w": normal(8, 24), "b": normal(24), "m": masks[mask]}
    check("Attention", inputs, num_heads=2, unidirectional=unidirectional, tolerance=1e-3)


def test_attention_with_past() -> None:
    inputs = {"x": normal(2, 1, 8), "w": normal(8, 24), "b": normal(24), "m": None, "p": normal(2, 2, 2, 3, 4)}
    check("Attention", inputs, num_heads=2, unidirectional=1, n_outputs=2, tolerance=1e-3)


@pytest.mark.parametrize("has_bias", [False, True])
def test_attention_of_many_heads(has_bias: bool) -> None:
    inputs = {
        "q": normal(2, 4, 8),
        "k": normal(2, 6, 8),
        "v": normal(2, 6, 8),
        "b": normal(24) if has_bias else None,
        "m": np.array([[1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 1, 1]], np.int32),
        "a": normal(1, 2, 4, 6),
    }
    check("MultiHeadAttention", inputs, num_heads=2, tolerance=1e-3)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_last_of_fewer_rows_than_keys_saw_only_the_keys_in_front(rows: int) -> None:
    """A decoder's step with keys that the model joins itself saw the first one alone."""
    inputs = {"q": normal(2, rows, 8), "k": normal(2, 5, 8), "v": normal(2, 5, 8)}
    check("MultiHeadAttention", inputs, num_heads=2, unidirectional=1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("is_shared", [False, True])
def test_rotary_embedding(interleaved: int, is_shared: bool) -> None:
    angles = normal(16, 4)
    positions = np.array([3], np.int64) if is_shared else RNG.integers(0, 16, (2, 5))
    inputs = {"x": normal(2, 5, 16), "p": positions, "c": np.cos(angles), "s": np.sin(angles)}
    check("RotaryEmbedding", inputs, interleaved=interleaved)


def test_types_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.diagnostics import UnsupportedError

    monkeypatch.delenv("POLYC_DEBUG", raising=False)
    with pytest.raises(UnsupportedError, match="do not fit"):
        run_node("BiasGelu", {"x": normal(2, 3), "b": normal(3).astype(np.float64)}, domain="com.microsoft")
