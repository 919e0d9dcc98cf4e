"""Layers with what stands between them: contractions whose operands and results are pointwise or normalised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.graph import Graph
from benchmarks.workload import Arrays, example, nbytes, normal
from benchmarks.workloads import layers, models
from benchmarks.workloads.fusion.common import fused

TOKENS, WIDTH, HIDDEN = 512, 768, 3072
IMAGE = (1, 64, 56, 56)
LONG = (1, 12, 2048, 64)

RESIDUAL_LAYERNORM_LINEAR = """
def residual_layernorm_linear(float(N, D) X, float(N, D) R, float(D) G, float(D) B, float(E, D) W, float(E) C) -> (Y) {
  H(n, d) = X(n, d) + R(n, d)
  S(n) +=! H(n, d)
  T(n, d) = H(n, d) - S(n) / D
  V(n) +=! T(n, d) * T(n, d)
  L(n, d) = T(n, d) * rsqrt(V(n) / D + 0.00001) * G(d) + B(d)
  P(n, e) +=! L(n, d) * W(e, d)
  Y(n, e) = P(n, e) + C(e)
}
"""

LINEAR_GELU_LINEAR = """
def linear_gelu_linear(float(N, D) X, float(E, D) W1, float(E) B1, float(D, E) W2, float(D) B2) -> (Y) {
  P(n, e) +=! X(n, d) * W1(e, d)
  H(n, e) = 0.5 * z * (1.0 + tanh(0.7978845608 * (z + 0.044715 * z * z * z))) where z = P(n, e) + B1(e)
  Q(n, d) +=! H(n, e) * W2(d, e)
  Y(n, d) = Q(n, d) + B2(d)
}
"""

CONV_BN_RELU = """
def conv_bn_relu(float(N, C, H, W) X, float(K, C, 3, 3) F, float(K) M, float(K) V, float(K) G, float(K) B) -> (Y) {
  T(n, k, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k, c, r, s) where h in 0:H, w in 0:W
  Y(n, k, h, w) = fmax((T(n, k, h, w) - M(k)) * rsqrt(V(k) + 0.00001) * G(k) + B(k), 0.0)
}
"""

CONV3_CONV1 = """
def conv3_conv1(float(N, C, H, W) X, float(K, C, 3, 3) F, float(L, K) G) -> (Y) {
  T(n, k, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k, c, r, s) where h in 0:H, w in 0:W
  R(n, k, h, w) = fmax(T(n, k, h, w), 0.0)
  Y(n, l, h, w) +=! G(l, k) * R(n, k, h, w)
}
"""

DEPTHWISE_SEPARABLE = """
def depthwise_separable(float(N, C, H, W) X, float(C, 3, 3) F, float(K, C) G) -> (Y) {
  T(n, c, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(c, r, s) where h in 0:H, w in 0:W
  R(n, c, h, w) = fmax(T(n, c, h, w), 0.0)
  P(n, k, h, w) +=! G(k, c) * R(n, c, h, w)
  Y(n, k, h, w) = fmax(P(n, k, h, w), 0.0)
}
"""

QKV = """
def qkv(float(N, D) X, float(E, D) P, float(E, D) Q, float(E, D) R) -> (A, B, C) {
  A(n, e) +=! X(n, d) * P(e, d)
  B(n, e) +=! X(n, d) * Q(e, d)
  C(n, e) +=! X(n, d) * R(e, d)
}
"""


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal, so small that sums over all but the first dimension stay of the inputs' size."""
    return normal(rng, *shape) * np.float32(1 / math.sqrt(np.prod(shape[1:])))


def attention(xp: Any, X: Any, Y: Any, Z: Any) -> Any:
    s = X @ Y.swapaxes(-1, -2) * 0.125
    p = xp.exp(s - s.max(axis=-1, keepdims=True))
    return p @ Z / p.sum(axis=-1, keepdims=True)


def layernorm(X: Any, G: Any, B: Any) -> Any:
    c = X - X.mean(axis=1, keepdims=True)
    return c / ((c * c).mean(axis=1, keepdims=True) + 1e-5) ** 0.5 * G + B


def residual_inputs(rng: np.random.Generator) -> Arrays:
    arrays = {n: normal(rng, TOKENS, WIDTH) for n in "XR"} | {n: normal(rng, WIDTH) for n in "GB"}
    return arrays | {"W": weight(rng, HIDDEN, WIDTH), "C": normal(rng, HIDDEN)}


def residual_layernorm_linear(xp: Any, X: Any, R: Any, G: Any, B: Any, W: Any, C: Any) -> Any:
    return layernorm(X + R, G, B) @ W.T + C


def torch_residual_layernorm_linear(torch: Any, out: Any, X: Any, R: Any, G: Any, B: Any, W: Any, C: Any) -> Any:
    hidden = torch.nn.functional.layer_norm(X + R, (X.shape[1],), G, B, 1e-5)
    return torch.nn.functional.linear(hidden, W, C) if out is None else torch.addmm(C, hidden, W.T, out=out)


def onnx_residual_layernorm_linear(graph: Graph, out: Any, X: str, R: str, G: str, B: str, W: str, C: str) -> str:
    hidden = graph.node("LayerNormalization", graph.node("Add", X, R), G, B, axis=1, epsilon=1e-5)
    return graph.node("Gemm", hidden, W, C, transB=1)


def feed_forward_inputs(rng: np.random.Generator) -> Arrays:
    first = {"X": normal(rng, TOKENS, WIDTH), "W1": weight(rng, HIDDEN, WIDTH), "B1": normal(rng, HIDDEN)}
    return first | {"W2": weight(rng, WIDTH, HIDDEN), "B2": normal(rng, WIDTH)}


def linear_gelu_linear(xp: Any, X: Any, W1: Any, B1: Any, W2: Any, B2: Any) -> Any:
    z = X @ W1.T + B1
    return 0.5 * z * (1 + xp.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z))) @ W2.T + B2


def torch_linear_gelu_linear(torch: Any, out: Any, X: Any, W1: Any, B1: Any, W2: Any, B2: Any) -> Any:
    hidden = torch.nn.functional.gelu(torch.nn.functional.linear(X, W1, B1), approximate="tanh")
    return torch.nn.functional.linear(hidden, W2, B2) if out is None else torch.addmm(B2, hidden, W2.T, out=out)


def onnx_linear_gelu_linear(graph: Graph, out: Any, X: str, W1: str, B1: str, W2: str, B2: str) -> str:
    hidden = graph.node("Gelu", graph.node("Gemm", X, W1, B1, transB=1), approximate="tanh")
    return graph.node("Gemm", hidden, W2, B2, transB=1)


def conv3x3(xp: Any, X: Any, F: Any) -> Any:
    """With padding 1: nine matrix products over shifted images."""
    n, c, h, w = X.shape
    wide = xp.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifted = [wide[:, :, r : r + h, s : s + w].reshape(n, c, h * w) for r in range(3) for s in range(3)]
    return sum(F[:, :, i // 3, i % 3] @ image for i, image in enumerate(shifted)).reshape(n, -1, h, w)


def pointwise(F: Any, X: Any) -> Any:
    return (F @ X.reshape(X.shape[0], X.shape[1], -1)).reshape(X.shape[0], -1, *X.shape[2:])


def jax_conv3x3(jax: Any, X: Any, F: Any, groups: int = 1) -> Any:
    numbers = ("NCHW", "OIHW", "NCHW")
    padding = [(1, 1), (1, 1)]
    return jax.lax.conv_general_dilated(X, F, (1, 1), padding, dimension_numbers=numbers, feature_group_count=groups)


def conv_bn_inputs(rng: np.random.Generator) -> Arrays:
    arrays = {"X": normal(rng, *IMAGE), "F": weight(rng, 64, 64, 3, 3), "M": normal(rng, 64)}
    return arrays | {"V": rng.random(64, dtype=np.float32) + np.float32(0.5), "G": normal(rng, 64), "B": normal(rng, 64)}


def bn_relu(xp: Any, T: Any, M: Any, V: Any, G: Any, B: Any) -> Any:
    scale = G / xp.sqrt(V + 1e-5)
    return xp.maximum((T - M[:, None, None]) * scale[:, None, None] + B[:, None, None], 0)


def conv_bn_relu(xp: Any, X: Any, F: Any, **p: Any) -> Any:
    return bn_relu(xp, conv3x3(xp, X, F), **p)


def jax_conv_bn_relu(jax: Any, out: Any, X: Any, F: Any, **p: Any) -> Any:
    return bn_relu(jax.numpy, jax_conv3x3(jax, X, F), **p)


def torch_conv_bn_relu(torch: Any, out: Any, X: Any, F: Any, M: Any, V: Any, G: Any, B: Any) -> Any:
    return torch.nn.functional.batch_norm(torch.conv2d(X, F, padding=1), M, V, G, B, eps=1e-5).relu_()


def onnx_conv_bn_relu(graph: Graph, out: Any, X: str, F: str, M: str, V: str, G: str, B: str) -> str:
    # onnxruntime folds the normalisation into the filters, and relu into the convolution.
    conv = graph.node("Conv", X, F, pads=[1] * 4)
    return graph.node("Relu", graph.node("BatchNormalization", conv, G, B, M, V, epsilon=1e-5))


def conv3_conv1_inputs(rng: np.random.Generator) -> Arrays:
    return {"X": normal(rng, *IMAGE), "F": weight(rng, 64, 64, 3, 3), "G": weight(rng, 256, 64)}


def conv3_conv1(xp: Any, X: Any, F: Any, G: Any) -> Any:
    return pointwise(G, xp.maximum(conv3x3(xp, X, F), 0))


def jax_conv3_conv1(jax: Any, out: Any, X: Any, F: Any, G: Any) -> Any:
    return pointwise(G, jax.nn.relu(jax_conv3x3(jax, X, F)))


def torch_conv3_conv1(torch: Any, out: Any, X: Any, F: Any, G: Any) -> Any:
    return torch.conv2d(torch.conv2d(X, F, padding=1).relu_(), G[:, :, None, None])


def onnx_conv3_conv1(graph: Graph, out: Any, X: str, F: str, G: str) -> str:
    filters = graph.node("Reshape", G, graph.constant([*graph.shapes[G], 1, 1], "int64"))
    return graph.node("Conv", graph.node("Relu", graph.node("Conv", X, F, pads=[1] * 4)), filters)


SEPARABLE = (1, 128, 56, 56)


def separable_inputs(rng: np.random.Generator) -> Arrays:
    return {"X": normal(rng, *SEPARABLE), "F": weight(rng, 128, 3, 3), "G": weight(rng, 128, 128)}


def depthwise_separable(xp: Any, X: Any, F: Any, G: Any) -> Any:
    h, w = X.shape[2:]
    wide = xp.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    each = sum(wide[:, :, r : r + h, s : s + w] * F[:, r, s][:, None, None] for r in range(3) for s in range(3))
    return xp.maximum(pointwise(G, xp.maximum(each, 0)), 0)


def jax_depthwise_separable(jax: Any, out: Any, X: Any, F: Any, G: Any) -> Any:
    return jax.nn.relu(pointwise(G, jax.nn.relu(jax_conv3x3(jax, X, F[:, None], X.shape[1]))))


def torch_depthwise_separable(torch: Any, out: Any, X: Any, F: Any, G: Any) -> Any:
    each = torch.conv2d(X, F[:, None], padding=1, groups=X.shape[1]).relu_()
    return torch.conv2d(each, G[:, :, None, None]).relu_()


def onnx_depthwise_separable(graph: Graph, out: Any, X: str, F: str, G: str) -> str:
    channels = graph.shapes[F][0]
    each = graph.node("Reshape", F, graph.constant([channels, 1, 3, 3], "int64"))
    filters = graph.node("Reshape", G, graph.constant([*graph.shapes[G], 1, 1], "int64"))
    hidden = graph.node("Relu", graph.node("Conv", X, each, pads=[1] * 4, group=channels))
    return graph.node("Relu", graph.node("Conv", hidden, filters))


def qkv_inputs(rng: np.random.Generator) -> Arrays:
    return {"X": normal(rng, TOKENS, WIDTH)} | {n: weight(rng, WIDTH, WIDTH) for n in "PQR"}


def qkv(xp: Any, X: Any, P: Any, Q: Any, R: Any) -> Any:
    return X @ P.T, X @ Q.T, X @ R.T


def torch_qkv(torch: Any, out: Any, X: Any, P: Any, Q: Any, R: Any) -> Any:
    places = (None, None, None) if out is None else out
    return tuple(torch.mm(X, w.T) if o is None else torch.mm(X, w.T, out=o) for w, o in zip((P, Q, R), places, strict=True))


def onnx_qkv(graph: Graph, out: Any, X: str, P: str, Q: str, R: str) -> tuple[str, ...]:
    return tuple(graph.node("Gemm", X, w, transB=1) for w in (P, Q, R))


WORKLOADS = (
    fused(
        "attention_2048",
        "attention, batch 1, 12 heads, 2048 tokens, 64 features",
        example("attention"),
        lambda rng: {n: normal(rng, *LONG) for n in "XYZ"},
        attention,
        (LONG,),
        12 * 2048 * 2048 * (2.0 * 64 * 2 + 5),
        nbytes(LONG, LONG, LONG),
        "attention",
        {"torch": layers.torch_attention, "jax": models.jax_attention, "onnxruntime": models.onnx_attention},
    ),
    fused(
        "residual_layernorm_linear",
        f"linear(layernorm(x + r)), {TOKENS}×{WIDTH} → {HIDDEN}",
        RESIDUAL_LAYERNORM_LINEAR,
        residual_inputs,
        residual_layernorm_linear,
        ((TOKENS, HIDDEN),),
        2.0 * TOKENS * WIDTH * HIDDEN,
        nbytes((TOKENS, WIDTH), (TOKENS, WIDTH), (HIDDEN, WIDTH)),
        "residual_layernorm_linear",
        {"torch": torch_residual_layernorm_linear, "onnxruntime": onnx_residual_layernorm_linear},
        weights=("G", "B", "W", "C"),
    ),
    fused(
        "linear_gelu_linear",
        f"feed-forward layer of a transformer, {TOKENS}×{WIDTH} → {HIDDEN} → {WIDTH}",
        LINEAR_GELU_LINEAR,
        feed_forward_inputs,
        linear_gelu_linear,
        ((TOKENS, WIDTH),),
        4.0 * TOKENS * WIDTH * HIDDEN,
        nbytes((TOKENS, WIDTH), (HIDDEN, WIDTH), (HIDDEN, WIDTH)),
        "linear_gelu_linear",
        {"torch": torch_linear_gelu_linear, "onnxruntime": onnx_linear_gelu_linear},
        weights=("W1", "B1", "W2", "B2"),
    ),
    fused(
        "conv_bn_relu",
        "3×3, 64 → 64 channels, 56×56, padding 1, normalised by given statistics, relu",
        CONV_BN_RELU,
        conv_bn_inputs,
        conv_bn_relu,
        (IMAGE,),
        2.0 * 64 * 64 * 9 * 56 * 56,
        nbytes(IMAGE, (64, 64, 3, 3)),
        "conv_bn_relu",
        {"torch": torch_conv_bn_relu, "jax": jax_conv_bn_relu, "onnxruntime": onnx_conv_bn_relu},
        5e-5,
        ("F", "M", "V", "G", "B"),
    ),
    fused(
        "conv3_conv1",
        "3×3, 64 → 64 channels, relu, 1×1 → 256 channels, 56×56",
        CONV3_CONV1,
        conv3_conv1_inputs,
        conv3_conv1,
        ((1, 256, 56, 56),),
        2.0 * (64 * 64 * 9 + 64 * 256) * 56 * 56,
        nbytes(IMAGE, (64, 64, 3, 3), (256, 64)),
        "conv3_conv1",
        {"torch": torch_conv3_conv1, "jax": jax_conv3_conv1, "onnxruntime": onnx_conv3_conv1},
        5e-5,
        ("F", "G"),
    ),
    fused(
        "depthwise_separable",
        "3×3 depthwise, relu, 1×1, relu, 128 channels, 56×56",
        DEPTHWISE_SEPARABLE,
        separable_inputs,
        depthwise_separable,
        (SEPARABLE,),
        2.0 * (128 * 9 + 128 * 128) * 56 * 56,
        nbytes(SEPARABLE, (128, 3, 3), (128, 128)),
        "depthwise_separable",
        {"torch": torch_depthwise_separable, "jax": jax_depthwise_separable, "onnxruntime": onnx_depthwise_separable},
        5e-5,
        ("F", "G"),
    ),
    fused(
        "qkv",
        f"three projections of one input, {TOKENS}×{WIDTH} → {WIDTH} each",
        QKV,
        qkv_inputs,
        qkv,
        ((TOKENS, WIDTH),) * 3,
        6.0 * TOKENS * WIDTH * WIDTH,
        nbytes((TOKENS, WIDTH), *[(WIDTH, WIDTH)] * 3),
        "qkv",
        {"torch": torch_qkv, "onnxruntime": onnx_qkv},
        weights=("P", "Q", "R"),
    ),
)
