"""Memory-bound work: reductions along rows, pointwise chains, a dot product."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.workload import Workload, example, nbytes, normal

ROWS, COLUMNS = 4096, 1024
SQRT_2_OVER_PI = 0.7978845608028654


def numpy_softmax(np: Any, out: Any, X: Any) -> Any:
    y = np.exp(np.subtract(X, X.max(axis=1, keepdims=True), out=out), out=out)
    return np.divide(y, y.sum(axis=1, keepdims=True), out=y)


def torch_softmax(torch: Any, out: Any, X: Any) -> Any:
    return torch.softmax(X, 1) if out is None else torch.softmax(X, 1, out=out)


def exact_softmax(X: np.ndarray) -> np.ndarray:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def numpy_layernorm(np: Any, out: Any, X: Any, G: Any, B: Any) -> Any:
    y = np.subtract(X, X.mean(axis=1, keepdims=True), out=out)
    scale = 1 / np.sqrt(np.einsum("nd,nd->n", y, y)[:, None] / np.float32(X.shape[1]) + np.float32(1e-5))
    y *= scale
    y *= G
    y += B
    return y


_SCRATCH: dict[int, tuple[Any, Any]] = {}


def torch_layernorm(torch: Any, out: Any, X: Any, G: Any, B: Any) -> Any:
    if out is None:
        return torch.nn.functional.layer_norm(X, (X.shape[1],), G, B, 1e-5)
    if id(out) not in _SCRATCH:
        _SCRATCH[id(out)] = (torch.empty(X.shape[0], 1), torch.empty(X.shape[0], 1))
    mean, rstd = _SCRATCH[id(out)]
    torch.ops.aten.native_layer_norm.out(X, (X.shape[1],), G, B, 1e-5, out0=out, out1=mean, out2=rstd)
    return out


def exact_layernorm(X: np.ndarray, G: np.ndarray, B: np.ndarray) -> np.ndarray:
    c = X - X.mean(axis=1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=1, keepdims=True) + 1e-5) * G + B


def numpy_gelu_bias(np: Any, out: Any, X: Any, B: Any) -> Any:
    z = X + B
    y = np.multiply(z, z, out=out)
    y *= np.float32(0.044715)
    y += np.float32(1)
    y *= z
    y *= np.float32(SQRT_2_OVER_PI)
    np.tanh(y, out=y)
    y += np.float32(1)
    y *= z
    y *= np.float32(0.5)
    return y


def torch_gelu_bias(torch: Any, out: Any, X: Any, B: Any) -> Any:
    if out is None:
        return torch.nn.functional.gelu(X + B, approximate="tanh")
    torch.add(X, B, out=out)
    return torch._C._nn.gelu_(out, approximate="tanh")


def exact_gelu_bias(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    z = X + B
    return 0.5 * z * (1 + np.tanh(SQRT_2_OVER_PI * (z + 0.044715 * z**3)))


def numpy_dot(np: Any, out: Any, A: Any, B: Any) -> Any:
    return np.dot(A, B)


def torch_dot(torch: Any, out: Any, A: Any, B: Any) -> Any:
    return torch.dot(A, B)


def rows(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"X": normal(rng, ROWS, COLUMNS)}


def rows_scaled(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"X": normal(rng, ROWS, COLUMNS), "G": normal(rng, COLUMNS), "B": normal(rng, COLUMNS)}


def square_bias(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"X": normal(rng, 4096, 4096), "B": normal(rng, 4096)}


def two_vectors(rng: np.random.Generator) -> dict[str, np.ndarray]:
    # Uniform and positive, so that the sum does not cancel and a relative bound means something.
    return {"A": rng.random(1 << 24, dtype=np.float32), "B": rng.random(1 << 24, dtype=np.float32)}


_ROW_BYTES = nbytes((ROWS, COLUMNS))

WORKLOADS = (
    Workload(
        "softmax",
        f"softmax of the rows of {ROWS}×{COLUMNS}",
        "tc",
        example("softmax"),
        rows,
        exact_softmax,
        5.0 * ROWS * COLUMNS,
        _ROW_BYTES,
        _ROW_BYTES,
        {"numpy": numpy_softmax, "torch": torch_softmax},
    ),
    Workload(
        "layernorm",
        f"layer normalisation of the rows of {ROWS}×{COLUMNS}, scaled and shifted",
        "tc",
        example("layernorm"),
        rows_scaled,
        exact_layernorm,
        8.0 * ROWS * COLUMNS,
        _ROW_BYTES,
        _ROW_BYTES,
        {"numpy": numpy_layernorm, "torch": torch_layernorm},
    ),
    Workload(
        "gelu_bias",
        "gelu(x + b), tanh form, 4096×4096",
        "tc",
        example("gelu_bias"),
        square_bias,
        exact_gelu_bias,
        10.0 * 4096 * 4096,
        nbytes((4096, 4096)),
        nbytes((4096, 4096)),
        {"numpy": numpy_gelu_bias, "torch": torch_gelu_bias},
    ),
    Workload(
        "dot",
        "dot product of 2^24 elements",
        "tc",
        example("dot"),
        two_vectors,
        lambda A, B: np.dot(A, B),
        2.0 * (1 << 24),
        nbytes((1 << 24,), (1 << 24,)),
        0.0,
        {"numpy": numpy_dot, "torch": torch_dot},
        3e-4,  # some peers sum in few accumulators
    ),
)
