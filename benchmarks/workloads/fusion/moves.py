"""Transpositions, look-ups in tables and pooling: work that is all movement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.graph import Graph
from benchmarks.workload import Arrays, Workload, example, nbytes, normal
from benchmarks.workloads import layers, models
from benchmarks.workloads.fusion.common import fused

FEATURES, BATCH, INDICES = 64, 128, 50
POOLED = (8, 64, 112, 112)
FIVE = (16, 24, 16, 40, 48)
COPY_BAR = 0.75
"""Share of the speed of a copy with the same kind of stores that a permutation should have: one array read, one written,
both in order and from the beginning of a line on."""

EMBEDDING_2 = """
def embedding_2(float(E, D) T, int32(B, L) I, float(F, D) U, int32(B, L) J) -> (O, P) {
  O(b, d) +=! T(I(b, l), d)
  P(b, d) +=! U(J(b, l), d)
}
"""

AVGPOOL = """
def avgpool(float(N, C, H, W) X) -> (Y) {
  S(n, c, h, w) +=! X(n, c, 2 * h + r, 2 * w + s) where r in 0:2, s in 0:2
  Y(n, c, h, w) = 0.25 * S(n, c, h, w)
}
"""


def permutation(name: str, what: str, loops: str, axes: tuple[int, ...], shape: tuple[int, ...]) -> Workload:
    """A copy whose dimension ``d`` is dimension ``axes[d]`` of the input."""
    letters = "abcde"[: len(shape)]
    sizes, left = ", ".join(letters.upper()), ", ".join(letters[a] for a in axes)
    source = f"def permute(float({sizes}) X) -> (Y) {{ Y({left}) = X({', '.join(letters)}) }}"
    result = tuple(shape[a] for a in axes)

    def formula(xp: Any, X: Any) -> Any:
        return xp.transpose(X, axes).copy()

    def numpy_peer(np: Any, out: Any, X: Any) -> Any:
        if out is None:
            return X.transpose(axes).copy()
        np.copyto(out, X.transpose(axes))
        return out

    def torch_peer(torch: Any, out: Any, X: Any) -> Any:
        turned = X.permute(axes)
        return turned.contiguous() if out is None else out.copy_(turned)

    def onnx_peer(graph: Graph, out: Any, X: str) -> str:
        return graph.node("Transpose", X, perm=list(axes))

    peers = {"numpy": numpy_peer, "torch": torch_peer, "onnxruntime": onnx_peer}
    moved = float(np.prod(shape))
    make_inputs = lambda rng: {"X": normal(rng, *shape)}  # noqa: E731
    workload = fused(name, what, source, make_inputs, formula, (result,), moved, nbytes(shape), loops, peers, 1e-9)
    return replace(workload, roof_bar=COPY_BAR, has_same_stores=True)


def look_up(entries: int) -> Callable[[np.random.Generator], Arrays]:
    """A table and what to sum of it."""
    return lambda rng: {
        "T": normal(rng, entries, FEATURES),
        "I": rng.integers(0, entries, (BATCH, INDICES), dtype=np.int32),
    }


def look_up_twice(entries: int) -> Callable[[np.random.Generator], Arrays]:
    """Two tables and what to sum of them."""

    def make(rng: np.random.Generator) -> Arrays:
        other = look_up(entries)(rng)
        return look_up(entries)(rng) | {"U": other["T"], "J": other["I"]}

    return make


def embedding(xp: Any, T: Any, I: Any) -> Any:
    return T[I].sum(axis=1)


def embedding_2(xp: Any, T: Any, I: Any, U: Any, J: Any) -> Any:
    return T[I].sum(axis=1), U[J].sum(axis=1)


def torch_embedding_2(torch: Any, out: Any, T: Any, I: Any, U: Any, J: Any) -> Any:
    bag = torch.nn.functional.embedding_bag
    return bag(I, T, mode="sum"), bag(J, U, mode="sum")


def onnx_embedding_2(graph: Graph, out: Any, T: str, I: str, U: str, J: str) -> tuple[str, str]:
    return models.onnx_embedding_sum(graph, None, T, I), models.onnx_embedding_sum(graph, None, U, J)


def avgpool(xp: Any, X: Any) -> Any:
    n, c, h, w = X.shape
    return X.reshape(n, c, h // 2, 2, w // 2, 2).mean(axis=(3, 5))


def torch_avgpool(torch: Any, out: Any, X: Any) -> Any:
    return torch.nn.functional.avg_pool2d(X, 2)


def onnx_avgpool(graph: Graph, out: Any, X: str) -> str:
    return graph.node("AveragePool", X, kernel_shape=[2, 2], strides=[2, 2])


ROWS_READ = nbytes((BATCH, INDICES), (BATCH, INDICES, FEATURES))


def bag(name: str, entries: int, rows: str) -> Workload:
    """The sums of some rows of a table."""
    return fused(
        name,
        f"sum of 50 rows of a table of {rows}×64, batch 128",
        example("embedding_sum"),
        look_up(entries),
        embedding,
        ((BATCH, FEATURES),),
        1.0 * BATCH * INDICES * FEATURES,
        ROWS_READ,
        "embedding",
        {"torch": layers.torch_embedding_sum, "onnxruntime": models.onnx_embedding_sum},
        weights=("T",),
    )


def two_bags(name: str, entries: int, rows: str) -> Workload:
    """The sums of some rows of two tables."""
    return fused(
        name,
        f"sums of 50 rows of two tables of {rows}×64, batch 128",
        EMBEDDING_2,
        look_up_twice(entries),
        embedding_2,
        ((BATCH, FEATURES), (BATCH, FEATURES)),
        2.0 * BATCH * INDICES * FEATURES,
        2 * ROWS_READ,
        "embedding_2",
        {"torch": torch_embedding_2, "onnxruntime": onnx_embedding_2},
        weights=("T", "U"),
    )


LARGE = (bag("embedding_1lut_10m", 10_000_000, "10⁷"), two_bags("embedding_2lut_10m", 10_000_000, "10⁷"))
"""Tables that take 2.6 and 5.1 GB in the process of each side, and three times as much while the reference is computed."""

WORKLOADS = (
    permutation("transpose", "4096×4096", "transpose", (1, 0), (4096, 4096)),
    permutation("nchw_nhwc", "32×64×56×56, channels last", "nchw_nhwc", (0, 2, 3, 1), (32, 64, 56, 56)),
    permutation("nhwc_nchw", "32×56×56×64, channels first", "nhwc_nchw", (0, 3, 1, 2), (32, 56, 56, 64)),
    permutation("permute_caebd", "abcde → caebd, 16×24×16×40×48", "permute_caebd", (2, 0, 4, 1, 3), FIVE),
    permutation("permute_dbeac", "abcde → dbeac, 16×24×16×40×48", "permute_dbeac", (3, 1, 4, 0, 2), FIVE),
    bag("embedding_1lut", 1_000_000, "10⁶"),
    two_bags("embedding_2lut_100k", 100_000, "10⁵"),
    two_bags("embedding_2lut", 1_000_000, "10⁶"),
    fused(
        "avgpool",
        "2×2 mean, 64 channels, 112×112, batch 8",
        AVGPOOL,
        lambda rng: {"X": normal(rng, *POOLED)},
        avgpool,
        ((8, 64, 56, 56),),
        4.0 * 8 * 64 * 56 * 56,
        nbytes(POOLED),
        "avgpool",
        {"torch": torch_avgpool, "onnxruntime": onnx_avgpool},
    ),
)
