"""Normalisations, activations and reductions: rows and columns of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.graph import Graph
from benchmarks.workload import Arrays, Workload, example, nbytes, normal
from benchmarks.workloads import models, normalisations
from benchmarks.workloads.fusion.common import fused

ROWS, COLUMNS, SQUARE = 4096, 1024, 4096
IMAGES = (8, 64, 56, 56)
GROUPED = (8, 8, 8, 56, 56)

RMSNORM = """
def rmsnorm(float(N, D) X, float(D) G) -> (Y) {
  V(n) +=! X(n, d) * X(n, d)
  Y(n, d) = X(n, d) * rsqrt(V(n) / D + 0.00001) * G(d)
}
"""

BATCHNORM = """
def batchnorm(float(N, C, H, W) X, float(C) G, float(C) B) -> (Y) {
  S(c) +=! X(n, c, h, w)
  T(n, c, h, w) = X(n, c, h, w) - S(c) / (N * H * W)
  V(c) +=! T(n, c, h, w) * T(n, c, h, w)
  Y(n, c, h, w) = T(n, c, h, w) * rsqrt(V(c) / (N * H * W) + 0.00001) * G(c) + B(c)
}
"""

GROUPNORM = """
def groupnorm(float(N, K, C, H, W) X, float(K, C) G, float(K, C) B) -> (Y) {
  S(n, k) +=! X(n, k, c, h, w)
  T(n, k, c, h, w) = X(n, k, c, h, w) - S(n, k) / (C * H * W)
  V(n, k) +=! T(n, k, c, h, w) * T(n, k, c, h, w)
  Y(n, k, c, h, w) = T(n, k, c, h, w) * rsqrt(V(n, k) / (C * H * W) + 0.00001) * G(k, c) + B(k, c)
}
"""

SWIGLU = """
def swiglu(float(N, D) A, float(N, D) B) -> (Y) {
  Y(n, d) = A(n, d) / (1.0 + exp(-A(n, d))) * B(n, d)
}
"""

SUM_ALL = "def sum_all(float(N, D) X) -> (Y) { Y +=! X(n, d) }"
SUM_ROWS = "def sum_rows(float(N, D) X) -> (Y) { Y(n) +=! X(n, d) }"
SUM_COLUMNS = "def sum_columns(float(N, D) X) -> (Y) { Y(d) +=! X(n, d) }"
ARGMAX_ROWS = "def argmax_rows(float(N, D) X) -> (Y) { Y(n) argmax=! X(n, d) }"

MEAN_VAR_ROWS = """
def mean_var_rows(float(N, D) X) -> (M, V) {
  S(n) +=! X(n, d)
  M(n) = S(n) / D
  T(n) +=! (X(n, d) - M(n)) * (X(n, d) - M(n))
  V(n) = T(n) / D
}
"""

MEAN_VAR_COLUMNS = """
def mean_var_columns(float(N, D) X) -> (M, V) {
  S(d) +=! X(n, d)
  M(d) = S(d) / N
  T(d) +=! (X(n, d) - M(d)) * (X(n, d) - M(d))
  V(d) = T(d) / N
}
"""


def softmax(xp: Any, X: Any) -> Any:
    e = xp.exp(X - X.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def rmsnorm(xp: Any, X: Any, G: Any) -> Any:
    return X / xp.sqrt((X * X).mean(axis=1, keepdims=True) + 1e-5) * G


def torch_rmsnorm(torch: Any, out: Any, X: Any, G: Any) -> Any:
    return torch.nn.functional.rms_norm(X, (X.shape[1],), G, 1e-5)


def onnx_rmsnorm(graph: Graph, out: Any, X: str, G: str) -> str:
    # The pattern that onnxruntime replaces by SimplifiedLayerNormalization.
    mean = graph.node("ReduceMean", graph.node("Pow", X, graph.constant(2.0)), graph.constant([-1], "int64"), keepdims=1)
    root = graph.node("Sqrt", graph.node("Add", mean, graph.constant(1e-5)))
    return graph.node("Mul", graph.node("Div", X, root), G)


def scaled(X: Any, axes: tuple[int, ...], G: Any, B: Any) -> Any:
    c = X - X.mean(axis=axes, keepdims=True)
    return c / ((c * c).mean(axis=axes, keepdims=True) + 1e-5) ** 0.5 * G + B


def batchnorm(xp: Any, X: Any, G: Any, B: Any) -> Any:
    return scaled(X, (0, 2, 3), G[:, None, None], B[:, None, None])


def torch_batchnorm(torch: Any, out: Any, X: Any, G: Any, B: Any) -> Any:
    return torch.nn.functional.batch_norm(X, None, None, G, B, training=True, eps=1e-5)


def groupnorm(xp: Any, X: Any, G: Any, B: Any) -> Any:
    return scaled(X, (2, 3, 4), G[:, :, None, None], B[:, :, None, None])


def torch_groupnorm(torch: Any, out: Any, X: Any, G: Any, B: Any) -> Any:
    images, groups = X.flatten(1, 2), X.shape[1]
    return torch.nn.functional.group_norm(images, groups, G.flatten(), B.flatten(), 1e-5).reshape(X.shape)


def onnx_groupnorm(graph: Graph, out: Any, X: str, G: str, B: str) -> str:
    # One row per group, normalised without scales, which are then one multiply-add per channel.
    shape = graph.shapes[X]
    rows = graph.node("Reshape", X, graph.constant([1, shape[0] * shape[1], -1], "int64"))
    ones, zeros = (graph.constant(np.full(shape[0] * shape[1], v)) for v in (1.0, 0.0))
    normal = graph.node("Reshape", graph.node("InstanceNormalization", rows, ones, zeros), graph.constant(shape, "int64"))
    wide = graph.constant([*shape[1:3], 1, 1], "int64")
    return graph.node("Add", graph.node("Mul", normal, graph.node("Reshape", G, wide)), graph.node("Reshape", B, wide))


def swiglu(xp: Any, A: Any, B: Any) -> Any:
    return A / (1 + xp.exp(-A)) * B


def torch_swiglu(torch: Any, out: Any, A: Any, B: Any) -> Any:
    if out is None:
        return torch.nn.functional.silu(A) * B
    torch.ops.aten.silu.out(A, out=out)
    return out.mul_(B)


def onnx_swiglu(graph: Graph, out: Any, A: str, B: str) -> str:
    return graph.node("Mul", graph.node("Mul", A, graph.node("Sigmoid", A)), B)


def summing(axis: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """The sum along these axes: formula, and the peers of NumPy, PyTorch and onnxruntime."""

    def formula(xp: Any, X: Any) -> Any:
        return X.sum(axis=axis)

    def numpy_peer(np: Any, out: Any, X: Any) -> Any:
        return np.sum(X, axis=axis, out=out)

    def torch_peer(torch: Any, out: Any, X: Any) -> Any:
        return torch.sum(X, axis) if out is None else torch.sum(X, axis, out=out)

    def onnx_peer(graph: Graph, out: Any, X: str) -> str:
        return graph.node("ReduceSum", X, graph.constant(axis, "int64"), keepdims=0)

    return formula, numpy_peer, torch_peer, onnx_peer


def argmax_rows(xp: Any, X: Any) -> Any:
    return xp.argmax(X, axis=1)


def torch_argmax_rows(torch: Any, out: Any, X: Any) -> Any:
    return torch.argmax(X, 1) if out is None else torch.argmax(X, 1, out=out)


def onnx_argmax_rows(graph: Graph, out: Any, X: str) -> str:
    return graph.node("ArgMax", X, axis=1, keepdims=0)


def moments(axis: int) -> tuple[Any, Any, Any]:
    """Mean and variance along an axis: formula, and the peers of PyTorch and onnxruntime."""

    def formula(xp: Any, X: Any) -> Any:
        return X.mean(axis=axis), X.var(axis=axis)

    def torch_peer(torch: Any, out: Any, X: Any) -> Any:
        variance, mean = torch.var_mean(X, axis, correction=0)
        return mean, variance

    def onnx_peer(graph: Graph, out: Any, X: str) -> tuple[str, str]:
        axes = graph.constant([axis], "int64")
        mean = graph.node("ReduceMean", X, axes, keepdims=1)
        centred = graph.node("Sub", X, mean)
        variance = graph.node("ReduceMean", graph.node("Mul", centred, centred), axes, keepdims=0)
        return graph.node("Squeeze", mean, axes), variance

    return formula, torch_peer, onnx_peer


def wide_rows(rng: np.random.Generator) -> Arrays:
    return {"X": normal(rng, 128, 32000)}


def scaled_images(shape: tuple[int, ...], channels: tuple[int, ...]) -> Any:
    def make(rng: np.random.Generator) -> Arrays:
        return {"X": normal(rng, *shape), "G": normal(rng, *channels), "B": normal(rng, *channels)}

    return make


def positive_square(rng: np.random.Generator) -> Arrays:
    # Uniform and positive, so that sums do not cancel and a relative bound means something.
    return {"X": rng.random((SQUARE, SQUARE), dtype=np.float32)}


def shifted_rows(rng: np.random.Generator) -> Arrays:
    return {"X": normal(rng, ROWS, COLUMNS) + np.float32(3)}


def gates(rng: np.random.Generator) -> Arrays:
    return {"A": normal(rng, ROWS, 2816), "B": normal(rng, ROWS, 2816)}


def sum_workload(name: str, what: str, source: str, axis: tuple[int, ...], result: tuple[int, ...]) -> Workload:
    formula, numpy_peer, torch_peer, onnx_peer = summing(axis)
    peers = {"numpy": numpy_peer, "torch": torch_peer, "onnxruntime": onnx_peer}
    size = (SQUARE, SQUARE)
    # Some peers sum in few accumulators.
    return fused(name, what, source, positive_square, formula, (result,), float(SQUARE**2), nbytes(size), name, peers, 3e-4)


def moments_workload(name: str, what: str, source: str, axis: int, result: tuple[int, ...]) -> Workload:
    formula, torch_peer, onnx_peer = moments(axis)
    peers = {"torch": torch_peer, "onnxruntime": onnx_peer}
    size = (ROWS, COLUMNS)
    flops = 4.0 * ROWS * COLUMNS
    return fused(name, what, source, shifted_rows, formula, (result, result), flops, nbytes(size), name, peers, 5e-5)


WORKLOADS = (
    fused(
        "softmax_wide",
        "softmax of the rows of 128×32000",
        example("softmax"),
        wide_rows,
        softmax,
        ((128, 32000),),
        5.0 * 128 * 32000,
        nbytes((128, 32000)),
        "softmax",
        {"numpy": normalisations.numpy_softmax, "torch": normalisations.torch_softmax, "onnxruntime": models.onnx_softmax},
    ),
    fused(
        "rmsnorm",
        f"root mean square normalisation of the rows of {ROWS}×{COLUMNS}, scaled",
        RMSNORM,
        lambda rng: {"X": normal(rng, ROWS, COLUMNS), "G": normal(rng, COLUMNS)},
        rmsnorm,
        ((ROWS, COLUMNS),),
        5.0 * ROWS * COLUMNS,
        nbytes((ROWS, COLUMNS), (COLUMNS,)),
        "rmsnorm",
        {"torch": torch_rmsnorm, "onnxruntime": onnx_rmsnorm},
        weights=("G",),
    ),
    fused(
        "batchnorm",
        "batch normalisation by the batch's own statistics, 8×64×56×56",
        BATCHNORM,
        scaled_images(IMAGES, (64,)),
        batchnorm,
        (IMAGES,),
        7.0 * 8 * 64 * 56 * 56,
        nbytes(IMAGES),
        "batchnorm",
        {"torch": torch_batchnorm},
        weights=("G", "B"),
    ),
    fused(
        "groupnorm",
        "normalisation of 8 groups of 8 channels, batch 8, 56×56",
        GROUPNORM,
        scaled_images(GROUPED, (8, 8)),
        groupnorm,
        (GROUPED,),
        7.0 * 8 * 64 * 56 * 56,
        nbytes(GROUPED),
        "groupnorm",
        {"torch": torch_groupnorm, "onnxruntime": onnx_groupnorm},
        weights=("G", "B"),
    ),
    fused(
        "swiglu",
        f"silu(a)·b, {ROWS}×2816",
        SWIGLU,
        gates,
        swiglu,
        ((ROWS, 2816),),
        5.0 * ROWS * 2816,
        nbytes((ROWS, 2816), (ROWS, 2816)),
        "swiglu",
        {"torch": torch_swiglu, "onnxruntime": onnx_swiglu},
    ),
    sum_workload("sum_all", f"sum of {SQUARE}×{SQUARE}", SUM_ALL, (0, 1), ()),
    sum_workload("sum_columns", f"sums of the columns of {SQUARE}×{SQUARE}", SUM_COLUMNS, (0,), (SQUARE,)),
    sum_workload("sum_rows", f"sums of the rows of {SQUARE}×{SQUARE}", SUM_ROWS, (1,), (SQUARE,)),
    fused(
        "argmax_rows",
        f"position of the greatest element of each row of {ROWS}×{COLUMNS}",
        ARGMAX_ROWS,
        lambda rng: {"X": normal(rng, ROWS, COLUMNS)},
        argmax_rows,
        ((ROWS,),),
        1.0 * ROWS * COLUMNS,
        nbytes((ROWS, COLUMNS)),
        "argmax_rows",
        {"torch": torch_argmax_rows, "onnxruntime": onnx_argmax_rows},
        1e-9,
        dtype="int64",
    ),
    moments_workload("mean_var_rows", f"mean and variance of the rows of {ROWS}×{COLUMNS}", MEAN_VAR_ROWS, 1, (ROWS,)),
    moments_workload(
        "mean_var_columns", f"mean and variance of the columns of {ROWS}×{COLUMNS}", MEAN_VAR_COLUMNS, 0, (COLUMNS,)
    ),
)
