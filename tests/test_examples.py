"""Every ``.tc`` file under examples/ computes what NumPy, SciPy's definitions or PyTorch compute, and no file is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import polyc

EXAMPLES = Path(__file__).parents[1] / "examples"
RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def dominant(n: int) -> np.ndarray:
    """A matrix that is factored without pivots."""
    return normal(n, n, dtype="f8") + 2 * n * np.eye(n)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def lu(a: np.ndarray) -> np.ndarray:
    f = a.copy()
    for k in range(len(f)):
        f[k + 1 :, k] /= f[k, k]
        f[k + 1 :, k + 1 :] -= np.outer(f[k + 1 :, k], f[k, k + 1 :])
    return f


def floyd_warshall(d: np.ndarray) -> np.ndarray:
    s = d.copy()
    for k in range(len(s)):
        s = np.minimum(s, s[:, k, None] + s[k])
    return s


def histogram(sample: np.ndarray, weight: np.ndarray, low: float, high: float, edges: np.ndarray) -> tuple[np.ndarray, ...]:
    position = np.clip((sample - low) / np.float32(high - low), 0, 1) * np.float32(len(edges))
    bins = np.minimum(position.astype(int), len(edges) - 1)
    return np.bincount(bins, minlength=len(edges)), np.bincount(bins, weight, len(edges))


def lstm(x: np.ndarray, w: np.ndarray, r: np.ndarray, bias: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, ...]:
    steps = []
    for xt in x:
        z = np.einsum("bi,gki->gbk", xt, w) + np.einsum("bj,gkj->gbk", h, r) + bias[:, None]
        c = sigmoid(z[1]) * c + sigmoid(z[0]) * np.tanh(z[2])
        h = sigmoid(z[3]) * np.tanh(c)
        steps.append(h)
    return np.stack(steps) if steps else np.empty((0, *h.shape)), c


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T / np.sqrt(q.shape[1])
    return softmax(np.where(np.tri(len(q), dtype=bool), scores, -np.inf)) @ v


def pad_conv(x: np.ndarray, f: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("bchwrs,kcrs->bkhw", windows, f) + bias[:, None, None], 0)


Case = tuple[Callable[[int], tuple[object, ...]], Callable[..., object]]
CASES: dict[str, Case] = {
    "lu": (lambda n: (dominant(n),), lu),
    "cholesky": (lambda n: ((lambda a: a @ a.T + n * np.eye(n))(normal(n, n, dtype="f8")),), np.linalg.cholesky),
    "triangular_solve": (
        lambda n: (np.tril(dominant(n)), normal(n, n // 2 + 1, dtype="f8")),
        lambda low, b: np.linalg.solve(low, b),
    ),
    "floyd_warshall": (lambda n: (RNG.uniform(1, 10, (n, n)).astype("f4"),), floyd_warshall),
    "prefix_sum": (lambda n: (normal(3, n),), lambda x: np.cumsum(x, 1)),
    "histogram": (lambda n: (normal(50 * n), normal(50 * n), np.float32(-2), np.float32(2), normal(n)), histogram),
    "lstm": (
        lambda n: (normal(n, 3, 5), normal(4, n, 5) / 4, normal(4, n, n) / 8, normal(4, n), normal(3, n), normal(3, n)),
        lstm,
    ),
    "causal_attention": (lambda n: (normal(n, 8), normal(n, 8), normal(n, 6)), causal_attention),
    "concat": (
        lambda n: (normal(n, 5), normal(n, 2 * n), normal(3, 5)),
        lambda a, b, c: (np.concatenate((a, b), 1), np.concatenate((a, c))),
    ),
    "pad_conv": (lambda n: (normal(2, 3, n + 1, n + 4), normal(5, 3, 3, 3), normal(5)), pad_conv),
}
IN_THE_DEMONSTRATION = {
    *("attention", "conv_bias_relu", "depthwise", "dot", "embedding_sum", "gelu_bias", "jacobi", "layernorm", "linear_relu"),
    *("maxpool", "softmax", "unsharp"),
}
"""Checked at full size by ``make demo``."""


@pytest.mark.parametrize("n", [1, 34])
@pytest.mark.parametrize("name", CASES)
def test_examples_compute_what_numpy_does(name: str, n: int) -> None:
    make, reference = CASES[name]
    arrays = make(n)
    results, expected = polyc.compile(EXAMPLES / f"{name}.tc")(*arrays), reference(*arrays)
    pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_serves_all_sizes(name: str) -> None:
    make, reference = CASES[name]
    operator = polyc.compile(EXAMPLES / f"{name}.tc", dynamic=True)
    for n in (2, 3, 8, 9, 17):
        arrays = make(n)
        results, expected = operator(*arrays), reference(*arrays)
        pairs = zip(results, expected, strict=True) if isinstance(results, tuple) else [(results, expected)]
        for got, wanted in pairs:
            np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-4)
    assert len([r for r in operator.remarks if r.pass_name == "dynamic"]) == 1


def test_no_example_is_left_out() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.tc")}
    assert found == {*CASES, *IN_THE_DEMONSTRATION, "transformer_block"}


def test_the_transformer_block_does_what_the_interpreter_does() -> None:
    from polyc.ir.interpret import interpret

    operator = polyc.compile(EXAMPLES / "transformer_block.tc", "transformer_block")
    sizes = {name: 2 + position for position, name in enumerate(operator.program.sizes)}
    arrays = {}
    for name in operator.program.parameters:
        shape = [sizes[e.name] for e in operator.program.tensor(name).shape or ()]  # type: ignore[union-attr]
        arrays[name] = normal(*shape)
    expected = interpret(operator.program, arrays)
    results = operator(**arrays)
    for got, wanted in zip(results if isinstance(results, tuple) else (results,), expected.values(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_a_network_is_trained_with_numpy_arrays() -> None:
    from examples.train_network import train

    before, after, wrong = train(steps=200, n=128)
    assert after < 0.2 * before and wrong <= 6


def test_the_start_of_a_heat_equation_is_recovered_through_two_hundred_steps() -> None:
    from examples.heat_initial_state import recover

    assert recover()[1] < 0.02


def test_the_parameters_of_a_pendulum_are_found() -> None:
    from examples.fit_pendulum import TRUTH, fit

    np.testing.assert_allclose(fit(), TRUTH, rtol=0.02)
