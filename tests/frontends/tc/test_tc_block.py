"""The example of calls: a whole transformer block as one program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import polyc

TEXT = Path(__file__).parents[3] / "examples" / "transformer_block.tc"


def _norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift


def _block(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    n = _norm(x, w["g1"], w["b1"])
    q, k, v = (np.einsum("si,hei->hse", n, w[name]) for name in ("WQ", "WK", "WV"))
    a = np.einsum("hse,hte->hst", q, k) / np.sqrt(q.shape[2])
    p = np.exp(a - a.max(2, keepdims=True))
    o = np.einsum("hst,hte->hse", p / p.sum(2, keepdims=True), v)
    y = x + np.einsum("hse,dhe->sd", o, w["WO"])
    f = np.maximum(_norm(y, w["g2"], w["b2"]) @ w["W1"].T + w["c1"], 0)
    return y + f @ w["W2"].T + w["c2"]


def test_a_transformer_block() -> None:
    sizes = {"S": 9, "D": 12, "H": 2, "E": 6, "F": 20}
    operator = polyc.compile(TEXT, entry="transformer_block")
    rng = np.random.default_rng(0)
    arrays = {
        t.name: rng.standard_normal([sizes[e.name] for e in t.shape or ()]).astype(np.float32)
        for t in operator.program.tensors
        if t.role == "input"
    }
    x = arrays.pop("x")
    np.testing.assert_allclose(operator(x, **arrays), _block(x, arrays), rtol=1e-3, atol=1e-4)
    assert operator.program.sizes == ("S", "D", "H", "E", "F")
