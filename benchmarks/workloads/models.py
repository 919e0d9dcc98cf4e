"""What neither subscripts nor a convolution's numbers say: layers and pointwise work for JAX and as ONNX graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.graph import Graph
from benchmarks.workload import Peer
from benchmarks.workloads.stencils import blur, exact_jacobi


def jax_linear_relu(jax: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    return jax.nn.relu(X @ W.T + B)


def onnx_linear_relu(graph: Graph, out: Any, X: str, W: str, B: str) -> str:
    return graph.node("Relu", graph.node("Gemm", X, W, B, transB=1))


def jax_mlp3(jax: Any, out: Any, X: Any, **p: Any) -> Any:
    for i in (1, 2, 3):
        X = jax_linear_relu(jax, None, X, p[f"W{i}"], p[f"B{i}"])
    return X


def onnx_mlp3(graph: Graph, out: Any, X: str, **p: str) -> str:
    for i in (1, 2, 3):
        X = onnx_linear_relu(graph, None, X, p[f"W{i}"], p[f"B{i}"])
    return X


def jax_matmul_bias_gelu(jax: Any, out: Any, X: Any, W: Any, B: Any) -> Any:
    return jax.nn.gelu(X @ W.T + B, approximate=False)


def onnx_matmul_bias_gelu(graph: Graph, out: Any, X: str, W: str, B: str) -> str:
    # MatMul and Add, not Gemm: onnxruntime fuses bias and gelu behind a MatMul.
    product = graph.node("MatMul", X, graph.node("Transpose", W, perm=[1, 0]))
    return graph.node("Gelu", graph.node("Add", product, B))


def jax_attention(jax: Any, out: Any, X: Any, Y: Any, Z: Any) -> Any:
    scores = jax.numpy.einsum("bhqd,bhkd->bhqk", X, Y) * 0.125
    return jax.numpy.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), Z)


def onnx_attention(graph: Graph, out: Any, X: str, Y: str, Z: str) -> str:
    scores = graph.node("MatMul", X, graph.node("Transpose", Y, perm=[0, 1, 3, 2]))
    scaled = graph.node("Mul", scores, graph.constant(0.125))
    return graph.node("MatMul", graph.node("Softmax", scaled, axis=-1), Z)


def jax_embedding_sum(jax: Any, out: Any, T: Any, I: Any) -> Any:
    return T[I].sum(axis=1)


def onnx_embedding_sum(graph: Graph, out: Any, T: str, I: str) -> str:
    return graph.node("ReduceSum", graph.node("Gather", T, I), graph.constant([1], "int64"), keepdims=0)


def jax_softmax(jax: Any, out: Any, X: Any) -> Any:
    return jax.nn.softmax(X, axis=1)


def onnx_softmax(graph: Graph, out: Any, X: str) -> str:
    return graph.node("Softmax", X, axis=1)


def jax_layernorm(jax: Any, out: Any, X: Any, G: Any, B: Any) -> Any:
    c = X - X.mean(axis=1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(axis=1, keepdims=True) + 1e-5) * G + B


def onnx_layernorm(graph: Graph, out: Any, X: str, G: str, B: str) -> str:
    return graph.node("LayerNormalization", X, G, B, axis=1, epsilon=1e-5)


def jax_gelu_bias(jax: Any, out: Any, X: Any, B: Any) -> Any:
    return jax.nn.gelu(X + B, approximate=True)


def onnx_gelu_bias(graph: Graph, out: Any, X: str, B: str) -> str:
    return graph.node("Gelu", graph.node("Add", X, B), approximate="tanh")


def jax_dot(jax: Any, out: Any, A: Any, B: Any) -> Any:
    return jax.numpy.dot(A, B)


def onnx_dot(graph: Graph, out: Any, A: str, B: str) -> str:
    return graph.node("MatMul", A, B)


def jax_maxpool(jax: Any, out: Any, X: Any) -> Any:
    return jax.lax.reduce_window(X, -jax.numpy.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def onnx_maxpool(graph: Graph, out: Any, X: str) -> str:
    return graph.node("MaxPool", X, kernel_shape=[2, 2], strides=[2, 2])


def jax_jacobi(jax: Any, out: Any, A: Any) -> Any:
    return exact_jacobi(A)


def jax_unsharp(jax: Any, out: Any, X: Any) -> Any:
    return jax.numpy.clip(4 * X[:, 2:-2, 2:-2] - 3 * blur(X), 0, 1)


JAX: Mapping[str, Peer] = {
    "softmax": jax_softmax,
    "layernorm": jax_layernorm,
    "gelu_bias": jax_gelu_bias,
    "dot": jax_dot,
    "linear_relu_bert": jax_linear_relu,
    "matmul_bias_relu": jax_linear_relu,
    "mlp3": jax_mlp3,
    "matmul_bias_gelu": jax_matmul_bias_gelu,
    "attention": jax_attention,
    "embedding_sum": jax_embedding_sum,
    "maxpool": jax_maxpool,
    "jacobi": jax_jacobi,
    "unsharp": jax_unsharp,
}

ONNX: Mapping[str, Peer] = {
    "softmax": onnx_softmax,
    "layernorm": onnx_layernorm,
    "gelu_bias": onnx_gelu_bias,
    "dot": onnx_dot,
    "linear_relu_bert": onnx_linear_relu,
    "matmul_bias_relu": onnx_linear_relu,
    "mlp3": onnx_mlp3,
    "matmul_bias_gelu": onnx_matmul_bias_gelu,
    "attention": onnx_attention,
    "embedding_sum": onnx_embedding_sum,
    "maxpool": onnx_maxpool,
}

ONNX_SINGLE_ONLY = frozenset({"matmul_bias_gelu"})
"""Graphs with an operation that onnxruntime has in single precision only."""
