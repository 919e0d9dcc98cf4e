"""Peers that follow from what a workload is: an einsum, a convolution, or lines that PyTorch runs already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.graph import Graph
from benchmarks.workload import Convolution, Peer, Workload
from benchmarks.workloads import fusion, models


def add_peers(workload: Workload) -> Workload:
    """The workload with all peers that can be derived for it in its precision; those it has already stay."""
    if "polyc" in workload.peers:  # not the same computation at each call: nothing to prepare for
        return workload
    more: dict[str, Peer] = {}
    if "torch" in workload.peers:
        more["torch_compile"] = workload.peers["torch"]
    single = workload.dtype == "float32"
    if workload.notation == "einsum":
        more |= {"jax": jax_einsum(workload.source), "onnxruntime": onnx_einsum(workload.source)}
    elif workload.convolution is not None:
        more["jax"] = jax_convolution(workload.convolution)
        if single:  # neither oneDNN nor onnxruntime convolve in double precision
            more["torch_blocked"] = torch_blocked_convolution(workload.convolution)
            more["onnxruntime"] = onnx_convolution(workload.convolution)
    else:
        name = workload.name.removesuffix("_f64")
        if single and name in fusion.NUMBA:
            more["numba"] = fusion.NUMBA[name]
        if name in models.JAX:
            more["jax"] = models.JAX[name]
        if name in models.ONNX and (single or name not in models.ONNX_SINGLE_ONLY):
            more["onnxruntime"] = models.ONNX[name]
    return replace(workload, peers=more | dict(workload.peers))


def jax_einsum(subscripts: str) -> Peer:
    def peer(jax: Any, out: Any, **arrays: Any) -> Any:
        return jax.numpy.einsum(subscripts, *arrays.values(), optimize="optimal")

    return peer


def onnx_einsum(subscripts: str) -> Peer:
    """As a person would write it for onnxruntime: a matrix product where the subscripts are one, else Einsum.

    Matrix times vector stays Einsum: on one core 2.0 ms for 4096×4096, with MatMul 22 ms."""
    left, right = subscripts.split("->")
    terms = left.split(",")

    def peer(graph: Graph, out: Any, **names: str) -> str:
        forms = matrix_product(terms, right)
        if forms is None:
            return graph.node("Einsum", *names.values(), equation=subscripts)
        if len(right) == 2:
            a, b = names.values()
            return graph.node("Gemm", a, b, transA=int(forms[0]), transB=int(forms[1]))
        operands = []
        for name, is_turned in zip(names.values(), forms, strict=True):
            axes = [*range(len(right) - 2), len(right) - 1, len(right) - 2]
            operands.append(graph.node("Transpose", name, perm=axes) if is_turned else name)
        return graph.node("MatMul", *operands)

    return peer


def matrix_product(terms: list[str], right: str) -> tuple[bool, bool] | None:
    """Whether each operand of a (batched) matrix product is transposed in memory; None where it is not such a product."""
    if len(terms) != 2 or len(right) < 2 or len(set(right)) != len(right):
        return None
    batch, m, n = right[:-2], right[-2], right[-1]
    a, b = terms
    if len(a) != len(right) or len(b) != len(right) or not (a.startswith(batch) and b.startswith(batch)):
        return None
    a, b = a[len(batch) :], b[len(batch) :]
    for k in set(a) - set(right):
        if sorted(a) == sorted(m + k) and sorted(b) == sorted(k + n):
            return a != m + k, b != k + n
    return None


def jax_convolution(conv: Convolution) -> Peer:
    def peer(jax: Any, out: Any, X: Any, F: Any, B: Any = None) -> Any:
        image, filters = conv.as_plain(X, F)
        y = jax.lax.conv_general_dilated(
            image,
            filters,
            (conv.stride, conv.stride),
            [(conv.pad, conv.pad)] * 2,
            rhs_dilation=(conv.dilation, conv.dilation),
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
            feature_group_count=conv.groups,
        ).reshape(conv.result)
        return jax.nn.relu(y + B[:, None, None]) if conv.bias_relu else y

    return peer


def onnx_convolution(conv: Convolution) -> Peer:
    """Inputs and result are plain: one dimension for all channels."""

    def peer(graph: Graph, out: Any, X: str, F: str, **bias: str) -> str:
        y = graph.node(
            "Conv",
            X,
            F,
            *bias.values(),
            pads=[conv.pad] * 4,
            strides=[conv.stride] * 2,
            dilations=[conv.dilation] * 2,
            group=conv.groups,
        )
        return graph.node("Relu", y) if conv.bias_relu else y

    return peer


def torch_blocked_convolution(conv: Convolution) -> Peer:
    """Inputs come plain and in oneDNN's layouts; the result stays in one."""

    def peer(torch: Any, out: Any, X: Any, F: Any, B: Any = None) -> Any:
        y = torch.conv2d(X, F, B, conv.stride, conv.pad, conv.dilation, conv.groups)
        return y.relu_() if conv.bias_relu else y

    return peer
