"""Whole layers: linear with bias and relu, a multilayer perceptron, attention, an embedding sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Workload, example, nbytes, normal

MLP3 = """
def mlp3(float(M, K) X, float(N, K) W1, float(N) B1, float(P, N) W2, float(P) B2, float(Q, P) W3, float(Q) B3) -> (Y) {
  S(m, n) +=! X(m, k) * W1(n, k)
  T(m, n) = fmax(S(m, n) + B1(n), 0.0)
  U(m, p) +=! T(m, n) * W2(p, n)
  V(m, p) = fmax(U(m, p) + B2(p), 0.0)
  W(m, q) +=! V(m, p) * W3(q, p)
  Y(m, q) = fmax(W(m, q) + B3(q), 0.0)
}
"""


def linear_inputs(m: int, n: int, k: int) -> Any:
    def make(rng: np.random.Generator) -> Arrays:
        return {"X": normal(rng, m, k), "W": normal(rng, n, k), "B": normal(rng, n)}

    return make


def numpy_linear_relu(np: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    y = np.matmul(X, W.T, out=out)
    y += B
    return np.maximum(y, 0, out=y)


def torch_linear_relu(torch: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    if out is None:
        return torch.nn.functional.linear(X, W, B).relu_()
    return torch.addmm(B, X, W.T, out=out).relu_()


def exact_linear_relu(X: np.ndarray, W: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.maximum(X @ W.T + B, 0)


def mlp_inputs(rng: np.random.Generator) -> Arrays:
    scale = np.float32(1 / 32)
    arrays = {"X": normal(rng, 128, 1024)}
    for i in (1, 2, 3):
        arrays |= {f"W{i}": normal(rng, 1024, 1024) * scale, f"B{i}": normal(rng, 1024)}
    return arrays


def numpy_mlp3(np: Any, out: Any, X: Any, **p: Any) -> Any:
    for i in (1, 2, 3):
        X = numpy_linear_relu(np, out if i == 3 else None, X, p[f"W{i}"], p[f"B{i}"])
    return X


def torch_mlp3(torch: Any, out: Any, X: Any, **p: Any) -> Any:
    for i in (1, 2, 3):
        X = torch_linear_relu(torch, out if i == 3 else None, X, p[f"W{i}"], p[f"B{i}"])
    return X


def exact_mlp3(X: np.ndarray, **p: np.ndarray) -> np.ndarray:
    for i in (1, 2, 3):
        X = exact_linear_relu(X, p[f"W{i}"], p[f"B{i}"])
    return X


def attention_inputs(rng: np.random.Generator) -> Arrays:
    return {n: normal(rng, 8, 12, 128, 64) for n in "XYZ"}


def numpy_attention(np: Any, out: Any, X: Any, Y: Any, Z: Any) -> Any:
    s = X @ Y.swapaxes(-1, -2)
    s -= s.max(axis=-1, keepdims=True)
    s *= np.float32(0.125)
    np.exp(s, out=s)
    y = np.matmul(s, Z, out=out)
    y /= s.sum(axis=-1, keepdims=True)
    return y


def torch_attention(torch: Any, out: Any, X: Any, Y: Any, Z: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(X, Y, Z)


def exact_attention(X: np.ndarray, Y: np.ndarray, Z: np.ndarray) -> np.ndarray:
    s = X @ Y.swapaxes(-1, -2) * 0.125
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ Z / p.sum(axis=-1, keepdims=True)


def embedding_inputs(rng: np.random.Generator) -> Arrays:
    return {"T": normal(rng, 100_000, 64), "I": rng.integers(0, 100_000, (128, 50), dtype=np.int32)}


def numpy_embedding_sum(np: Any, out: Any, T: Any, I: Any) -> Any:
    return T[I].sum(axis=1, out=out)


def torch_embedding_sum(torch: Any, out: Any, T: Any, I: Any) -> Any:
    return torch.nn.functional.embedding_bag(I, T, mode="sum")


WORKLOADS = (
    Workload(
        "linear_relu_bert",
        "linear 128×768 → 3072 with bias and relu",
        "tc",
        example("linear_relu"),
        linear_inputs(128, 3072, 768),
        exact_linear_relu,
        2.0 * 128 * 3072 * 768,
        nbytes((128, 768), (3072, 768), (3072,)),
        nbytes((128, 3072)),
        {"numpy": numpy_linear_relu, "torch": torch_linear_relu},
        weights=("W", "B"),
    ),
    Workload(
        "matmul_bias_relu",
        "linear 512×1024 → 1024 with bias and relu",
        "tc",
        example("linear_relu"),
        linear_inputs(512, 1024, 1024),
        exact_linear_relu,
        2.0 * 512 * 1024 * 1024,
        nbytes((512, 1024), (1024, 1024), (1024,)),
        nbytes((512, 1024)),
        {"numpy": numpy_linear_relu, "torch": torch_linear_relu},
        weights=("W", "B"),
    ),
    Workload(
        "mlp3",
        "128×1024 through three layers of 1024",
        "tc",
        MLP3,
        mlp_inputs,
        exact_mlp3,
        3 * 2.0 * 128 * 1024 * 1024,
        nbytes((128, 1024), *[(1024, 1024), (1024,)] * 3),
        nbytes((128, 1024)),
        {"numpy": numpy_mlp3, "torch": torch_mlp3},
        weights=("W1", "B1", "W2", "B2", "W3", "B3"),
    ),
    Workload(
        "attention",
        "attention, batch 8, 12 heads, 128 tokens, 64 features",
        "tc",
        example("attention"),
        attention_inputs,
        exact_attention,
        8 * 12 * 128 * 128 * (2.0 * 64 * 2 + 5),
        nbytes(*[(8, 12, 128, 64)] * 3),
        nbytes((8, 12, 128, 64)),
        {"numpy": numpy_attention, "torch": torch_attention},
    ),
    Workload(
        "embedding_sum",
        "sum of 50 rows of a table of 100000×64, batch 128",
        "tc",
        example("embedding_sum"),
        embedding_inputs,
        lambda T, I: T[I].sum(axis=1),
        128.0 * 50 * 64,
        nbytes((128, 50), (128, 50, 64)),
        nbytes((128, 64)),
        {"numpy": numpy_embedding_sum, "torch": torch_embedding_sum},
        weights=("T",),
    ),
)
