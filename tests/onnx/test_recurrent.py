"""Recurrent layers: directions, layouts, activations, lengths and missing inputs, against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnx.nodes import assert_close, run_node, run_onnxruntime, run_reference

RNG = np.random.default_rng(13)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def normal(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def layer(op: str, steps: int, batch: int, size: int, hidden: int, n_directions: int, **given: Any) -> dict[str, Any]:
    """Inputs by name; those not `given` are missing, True makes a random one."""
    rows = GATES[op] * hidden
    shapes = {
        "x": (steps, batch, size),
        "w": (n_directions, rows, size),
        "r": (n_directions, rows, hidden),
        "b": (n_directions, 2 * rows),
        "l": None,
        "h": (n_directions, batch, hidden),
    }
    if op == "LSTM":
        shapes |= {"c": (n_directions, batch, hidden), "p": (n_directions, 3 * hidden)}
    made: dict[str, Any] = {}
    for name, shape in shapes.items():
        wanted = True if name in "xwr" else given.get(name)
        made[name] = normal(*shape) if wanted is True and shape is not None else wanted
    return made


def check(op: str, inputs: dict[str, Any], **attributes: Any) -> None:
    pytest.importorskip("onnxruntime")
    rest = {"n_outputs": 3 if op == "LSTM" else 2, "opset": 17, "constants": ("w", "r"), **attributes}
    rest["hidden_size"] = inputs["r"].shape[2]
    assert_close(run_node(op, inputs, **rest), run_onnxruntime(op, inputs, **rest), 1e-4, 1e-4)


@pytest.mark.pairs
@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [3, 5, 1, 0]])
def test_directions_and_lengths(op: str, direction: str, lengths: list[int] | None) -> None:
    n = 2 if direction == "bidirectional" else 1
    counts = None if lengths is None else np.array(lengths, np.int32)
    check(op, layer(op, 5, 4, 3, 6, n, b=True, h=True, c=True, l=counts), direction=direction)


@pytest.mark.parametrize("op", list(GATES))
def test_one_step_and_one_unit(op: str) -> None:
    check(op, layer(op, 1, 1, 3, 4, 1, b=True, h=True, c=True))
    check(op, layer(op, 4, 2, 3, 1, 1))


@pytest.mark.parametrize("op", list(GATES))
def test_batch_first(op: str) -> None:
    inputs = layer(op, 3, 2, 3, 4, 1, b=True, h=True)
    rest = {"n_outputs": 3 if op == "LSTM" else 2, "hidden_size": 4}
    plain = run_node(op, inputs, **rest)
    turned = {**inputs, "x": inputs["x"].swapaxes(0, 1).copy(), "h": inputs["h"].swapaxes(0, 1).copy()}
    got = run_node(op, turned, layout=1, **rest)
    assert_close([got[0]], [plain[0].transpose(2, 0, 1, 3)])
    assert_close(got[1:], [v.swapaxes(0, 1) for v in plain[1:]])


@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_reset_gate(linear_before_reset: int) -> None:
    check("GRU", layer("GRU", 4, 2, 3, 5, 1, b=True, h=True), linear_before_reset=linear_before_reset)
    check("GRU", layer("GRU", 4, 2, 3, 5, 1), linear_before_reset=linear_before_reset)


def test_peepholes_and_coupled_gates() -> None:
    check("LSTM", layer("LSTM", 4, 2, 3, 5, 1, b=True, c=True, p=True))
    check("LSTM", layer("LSTM", 4, 2, 3, 5, 1, b=True, c=True), input_forget=1)


@pytest.mark.parametrize(
    "name", ["Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "Elu", "HardSigmoid", "LeakyRelu", "Affine"]
)
def test_activations(name: str) -> None:
    parameters = {"Elu": (0.7,), "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.2,), "Affine": (0.5, 0.1)}.get(name, ())
    attributes: dict[str, Any] = {"activations": [name]}
    if parameters:
        attributes["activation_alpha"] = [parameters[0]]
    if len(parameters) > 1:
        attributes["activation_beta"] = [parameters[1]]
    check("RNN", layer("RNN", 4, 2, 3, 5, 1, b=True), **attributes)


def test_clip() -> None:
    inputs = layer("RNN", 4, 2, 3, 5, 1, b=True)
    inputs["x"] = inputs["x"] * 10
    check("RNN", inputs, clip=0.5)
    check("LSTM", {**layer("LSTM", 4, 2, 3, 5, 1), "x": inputs["x"]}, clip=0.5)


def test_double_precision() -> None:
    inputs = {n: None if a is None else a.astype(np.float64) for n, a in layer("LSTM", 3, 2, 3, 4, 1, b=True).items()}
    rest = {"n_outputs": 2, "hidden_size": 4}
    assert_close(run_node("LSTM", inputs, **rest), run_reference("LSTM", inputs, **rest), 1e-10, 1e-10)


def test_no_steps() -> None:
    inputs = layer("GRU", 0, 2, 3, 4, 1, b=True, h=True)
    y, last = run_node("GRU", inputs, n_outputs=2, hidden_size=4)
    assert y.shape == (0, 1, 2, 4)
    np.testing.assert_array_equal(last, inputs["h"])


@pytest.mark.parametrize(
    ("direction", "batch", "hidden", "kind", "per_row"),
    [("forward", 1, 8, np.uint8, False), ("bidirectional", 1, 7, np.int8, True)],
)
def test_weights_of_bytes(direction: str, batch: int, hidden: int, kind: type, per_row: bool) -> None:
    pytest.importorskip("onnxruntime")
    n, steps, size = 2 if direction == "bidirectional" else 1, 5, 6
    low, rows = np.iinfo(kind).min, (4 * hidden,) if per_row else ()
    # Seven bits where signed: onnxruntime adds two products in 16 bits, saturated, on processors without VNNI.
    least, end = (64, 192) if kind is np.int8 else (0, 256)
    inputs: dict[str, Any] = {
        "x": normal(steps, batch, size),
        "w": (RNG.integers(least, end, (n, size, 4 * hidden)) + low).astype(kind),
        "r": (RNG.integers(least, end, (n, hidden, 4 * hidden)) + low).astype(kind),
        "b": normal(n, 8 * hidden),
        "l": None,
        "h": normal(n, batch, hidden),
        "c": normal(n, batch, hidden),
        "p": None,
        "ws": RNG.uniform(0.005, 0.01, (n, *rows)).astype(np.float32),
        "wz": np.full((n, *rows), 0 if per_row else 120, kind),  # onnxruntime has no other for signed bytes
        "rs": RNG.uniform(0.01, 0.02, (n, *rows)).astype(np.float32),
        "rz": np.full((n, *rows), 0 if per_row else 130, kind),
    }
    rest = {"n_outputs": 3, "opset": 17, "domain": "com.microsoft", "direction": direction, "hidden_size": hidden}
    rest["constants"] = ("w", "r", "ws", "wz", "rs", "rz")
    got, wanted = run_node("DynamicQuantizeLSTM", inputs, **rest), run_onnxruntime("DynamicQuantizeLSTM", inputs, **rest)
    assert_close(got, wanted, 1e-3, 1e-3)
