"""Rows of different lengths, one behind the other: packed sequences, bags of embeddings, neighbours in graphs, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Peer, Results, Workload, call_loops, make_once, nbytes, normal
from benchmarks.workloads.patterns import draw_power_law, draw_segments, make_csr, reduce_segments, segment_of

MakeInputs = Callable[[Any, int, int], Arrays]
"""By a random generator, segments and their elements."""
Shapes = tuple[tuple[int, ...], ...]

HEADS, WIDTH, CHANNELS, TABLE = 4, 16, 64, 50_000
"""Heads of attention, channels of a head in a layer on a graph, channels of everything else, rows of a table of embeddings."""
LENGTHS = (32, 64, 128, 256, 512)
"""Of sequences: as many of each."""

IN = "where p in ptr(i):ptr(i+1)"
BOTH = "where i in begin(b):begin(b+1), j in begin(b):begin(b+1)"
COUNT = "float(max(ptr(i+1) - ptr(i), 1))"

ATTENTION = f"""
def packed_attention(float(T, H, D) Q, float(T, H, D) K, float(T, H, D) V, int32(P) begin) -> (Y) {{
  S(h, i, j) +=! 0.125 * Q(i, h, d) * K(j, h, d) {BOTH}
  M(h, i) max=! S(h, i, j) {BOTH}
  L(h, i) +=! exp(S(h, i, j) - M(h, i)) {BOTH}
  Y(i, h, d) +=! exp(S(h, i, j) - M(h, i)) / L(h, i) * V(j, h, d) {BOTH}
}}
"""

BAGS = {
    "sum": f"  Y(i, d) +=! E(idx(p), d) {IN}",
    "mean": f"  S(i, d) +=! E(idx(p), d) {IN}\n  Y(i, d) = S(i, d) / {COUNT}",
    "max": f"  M(i, d) max=! E(idx(p), d) {IN}\n  Y(i, d) = ptr(i) < ptr(i+1) ? M(i, d) : 0.0",
    "weighted": f"  Y(i, d) +=! w(p) * E(idx(p), d) {IN}",
}

SOFTMAX = f"""
def segment_softmax(float(Z) v, int32(P) ptr) -> (w) {{
  m(i) max=! v(p) {IN}
  s(i) +=! exp(v(p) - m(i)) {IN}
  w(p) = exp(v(p) - m(i)) / s(i) {IN}
}}
"""

GAT = f"""
def gat(float(N, K) X, float(K, H, F) W, float(H, F) a, float(H, F) b, int32(Z) c, int32(P) ptr) -> (Y) {{
  T(i, h, f) +=! X(i, k) * W(k, h, f)
  A(i, h) +=! T(i, h, f) * a(h, f)
  B(i, h) +=! T(i, h, f) * b(h, f)
  z(p, h) = A(i, h) + B(c(p), h) {IN}
  e(p, h) = z(p, h) > 0.0 ? z(p, h) : 0.2 * z(p, h)
  m(i, h) max=! e(p, h) {IN}
  s(i, h) +=! exp(e(p, h) - m(i, h)) {IN}
  Y(i, h, f) +=! exp(e(p, h) - m(i, h)) / s(i, h) * T(c(p), h, f) {IN}
}}
"""

SAGE = f"""
def sage(float(N, K) X, float(K, F) W, float(K, F) U, float(F) bias, int32(Z) c, int32(P) ptr) -> (Y) {{
  S(i, k) +=! X(c(p), k) {IN}
  M(i, k) = S(i, k) / {COUNT}
  A(i, f) +=! X(i, k) * W(k, f)
  B(i, f) +=! M(i, k) * U(k, f)
  Y(i, f) = fmax(A(i, f) + B(i, f) + bias(f), 0.0)
}}
"""

STATISTICS = f"""
def mean_variance(float(Z) x, int32(P) ptr) -> (mean, variance) {{
  s(i) +=! x(p) {IN}
  mean(i) = s(i) / {COUNT}
  q(i) +=! (x(p) - mean(i)) * (x(p) - mean(i)) {IN}
  variance(i) = q(i) / {COUNT}
}}
"""

ARGMAX = f"""
def best_of_group(float(Z) x, int32(P) ptr) -> (best) {{
  best(i) argmax=! x(p) {IN}
}}
"""


def counts_of(ptr: Any) -> Any:
    """How many elements each segment has, 1 for none."""
    return np.maximum(np.diff(ptr), 1)


# -- in NumPy


def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray, begin: np.ndarray) -> np.ndarray:
    Y = np.zeros_like(Q)
    for i, j in pairwise(begin):
        if i < j:
            score = np.einsum("ihd,jhd->hij", Q[i:j], K[i:j], optimize=True) * 0.125
            score = np.exp(score - score.max(axis=2, keepdims=True))
            Y[i:j] = np.einsum("hij,jhd->ihd", score / score.sum(axis=2, keepdims=True), V[i:j], optimize=True)
    return Y


def embed(mode: str, E: np.ndarray, idx: np.ndarray, ptr: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
    rows = E[idx] if w is None else w[:, None] * E[idx]
    Y = reduce_segments(np.maximum if mode == "max" else np.add, rows, ptr)
    return Y / counts_of(ptr)[:, None] if mode == "mean" else Y


def softmax(v: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    row = segment_of(ptr)
    w = np.exp(v - reduce_segments(np.maximum, v, ptr)[row])
    return w / reduce_segments(np.add, w, ptr)[row]


def attend_neighbours(X: np.ndarray, W: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    T = np.einsum("ik,khf->ihf", X, W, optimize=True)
    z = (T * a).sum(axis=2)[segment_of(ptr)] + (T * b).sum(axis=2)[c]
    share = softmax(np.where(z > 0, z, 0.2 * z), ptr)
    return reduce_segments(np.add, share[:, :, None] * T[c], ptr)


def aggregate(X: np.ndarray, W: np.ndarray, U: np.ndarray, bias: np.ndarray, c: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    mean = reduce_segments(np.add, X[c], ptr) / counts_of(ptr)[:, None]
    return np.maximum(X @ W + mean @ U + bias, 0)


def mean_variance(x: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = reduce_segments(np.add, x, ptr) / counts_of(ptr)
    return mean, reduce_segments(np.add, (x - mean[segment_of(ptr)]) ** 2, ptr) / counts_of(ptr)


def find_best(x: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """The first element of each group that is as large as its largest."""
    is_best = x == reduce_segments(np.maximum, x, ptr)[segment_of(ptr)]
    return reduce_segments(np.minimum, np.where(is_best, np.arange(x.size), x.size), ptr)


# -- in PyTorch, as users write it: one call for each sequence, the module's own bags, scattering to the segment of each element


def make_torch_rows(torch: Any, ptr: Any) -> Any:
    return torch.repeat_interleave(torch.arange(len(ptr) - 1), torch.diff(ptr))


def torch_attention() -> Peer:
    def peer(torch: Any, out: Any, Q: Any, K: Any, V: Any, begin: Any) -> Any:
        Y = torch.empty_like(Q) if out is None else out
        attend = torch.nn.functional.scaled_dot_product_attention
        for i, j in pairwise(begin.tolist()):
            q, k, v = (x[i:j].transpose(0, 1)[None] for x in (Q, K, V))
            Y[i:j] = attend(q, k, v, scale=0.125)[0].transpose(0, 1)
        return Y

    return peer


def torch_bag(mode: str) -> Peer:
    def peer(torch: Any, out: Any, E: Any, idx: Any, ptr: Any, w: Any = None) -> Any:
        return torch.nn.functional.embedding_bag(
            idx, E, ptr, mode="sum" if mode == "weighted" else mode, per_sample_weights=w, include_last_offset=True
        )

    return peer


def torch_segment_softmax(torch: Any, v: Any, row: Any, segments: int) -> Any:
    """Along the first dimension, as layers on graphs have it."""
    at = row.reshape(-1, *[1] * (v.dim() - 1)).expand_as(v)
    high = torch.full((segments, *v.shape[1:]), -torch.inf, dtype=v.dtype).scatter_reduce_(0, at, v, "amax")
    w = torch.exp(v - high[row])
    return w / torch.zeros_like(high).index_add_(0, row, w)[row]


def torch_softmax() -> Peer:
    rows = make_once(make_torch_rows)

    def peer(torch: Any, out: Any, v: Any, ptr: Any) -> Any:
        return torch_segment_softmax(torch, v, rows(torch, ptr), len(ptr) - 1)

    return peer


def torch_gat() -> Peer:
    rows = make_once(make_torch_rows)

    def peer(torch: Any, out: Any, X: Any, W: Any, a: Any, b: Any, c: Any, ptr: Any) -> Any:
        row = rows(torch, ptr)
        T = (X @ W.reshape(len(W), -1)).reshape(len(X), *a.shape)
        score = torch.nn.functional.leaky_relu((T * a).sum(2)[row] + (T * b).sum(2)[c], 0.2)
        share = torch_segment_softmax(torch, score, row, len(ptr) - 1)
        return torch.zeros_like(T).index_add_(0, row, share[:, :, None] * T[c])

    return peer


def torch_sage() -> Peer:
    rows = make_once(make_torch_rows)

    def peer(torch: Any, out: Any, X: Any, W: Any, U: Any, bias: Any, c: Any, ptr: Any) -> Any:
        total = torch.zeros_like(X).index_add_(0, rows(torch, ptr), X[c])
        mean = total / torch.diff(ptr).clamp(min=1)[:, None]
        return torch.addmm(bias, X, W).addmm_(mean, U).relu_()

    return peer


def torch_mean_variance() -> Peer:
    rows = make_once(make_torch_rows)

    def peer(torch: Any, out: Any, x: Any, ptr: Any) -> Any:
        row, count = rows(torch, ptr), torch.diff(ptr).clamp(min=1)
        mean = x.new_zeros(len(count)).index_add_(0, row, x) / count
        return mean, x.new_zeros(len(count)).index_add_(0, row, (x - mean[row]) ** 2) / count

    return peer


def torch_argmax() -> Peer:
    rows, places = make_once(make_torch_rows), make_once(lambda torch, x: torch.arange(len(x)))

    def peer(torch: Any, out: Any, x: Any, ptr: Any) -> Any:
        row, place, groups = rows(torch, ptr), places(torch, x), len(ptr) - 1
        high = x.new_full((groups,), -torch.inf).scatter_reduce_(0, row, x, "amax")
        place = torch.where(x == high[row], place, len(x))
        return torch.full((groups,), len(x)).scatter_reduce_(0, row, place, "amin")

    return peer


# -- inputs, by segments and elements


def make_sequences(rng: np.random.Generator, sequences: int, tokens: int) -> Arrays:
    lengths = np.resize(LENGTHS, sequences)[rng.permutation(sequences)]
    begin = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return {**{n: normal(rng, tokens, HEADS, CHANNELS) for n in "QKV"}, "begin": begin}


def make_bags(rng: np.random.Generator, bags: int, entries: int) -> Arrays:
    """Some bags are empty."""
    idx = rng.integers(0, TABLE, entries).astype(np.int32)
    return {"E": normal(rng, TABLE, CHANNELS), "idx": idx, "ptr": draw_segments(rng, bags, entries)}


def make_weighted_bags(rng: np.random.Generator, bags: int, entries: int) -> Arrays:
    return make_bags(rng, bags, entries) | {"w": normal(rng, entries)}


def make_values(name: str, least: int = 0) -> MakeInputs:
    def make(rng: np.random.Generator, groups: int, entries: int) -> Arrays:
        return {name: normal(rng, entries), "ptr": draw_segments(rng, groups, entries, least)}

    return make


def make_graph(**weights: tuple[int, ...]) -> MakeInputs:
    def make(rng: np.random.Generator, nodes: int, edges: int) -> Arrays:
        ptr, c = make_csr(*draw_power_law(rng, nodes, edges), nodes)
        arrays = {n: normal(rng, *shape) / np.float32(np.sqrt(shape[0])) for n, shape in weights.items()}
        return {"X": normal(rng, nodes, CHANNELS), **arrays, "c": c, "ptr": ptr}

    return make


# -- all of them


@dataclass(frozen=True, slots=True)
class Kind:
    """One computation on segments."""

    what: str
    source: str
    per_segment: int
    """Elements of a segment on average."""
    make_inputs: MakeInputs
    exact: Callable[..., Results]
    torch: Callable[[], Peer]
    flops: float
    """For each element of a segment, about; without what is small."""
    read: Callable[[int, int], Shapes]
    """Shapes of what is read beside the ends of the segments, by segments and their elements."""
    results: Callable[[int, int], Shapes]
    scratch: Callable[[int, int], Mapping[str, int]] = lambda segments, elements: {}
    """What the temporaries of the loops in `benchmarks.numba_sparse` depend on."""
    result_type: str = "float32"
    has_loops: bool = True


def bag_kind(mode: str) -> Kind:
    weights = ", float(Z) w" if mode == "weighted" else ""
    return Kind(
        f"bags of embeddings, {mode}",
        f"def bag_{mode}(float(R, D) E, int32(Z) idx, int32(P) ptr{weights}) -> (Y) {{\n{BAGS[mode]}\n}}\n",
        20,
        make_weighted_bags if mode == "weighted" else make_bags,
        lambda **arrays: embed(mode, **arrays),
        lambda: torch_bag(mode),
        CHANNELS * (2.0 if mode == "weighted" else 1.0),
        lambda bags, entries: ((min(TABLE, entries), CHANNELS), (entries,), (entries if weights else 0,)),
        lambda bags, entries: ((bags, CHANNELS),),
    )


KINDS: Mapping[str, Kind] = {
    "attention": Kind(
        "attention over packed sequences",
        ATTENTION,
        sum(LENGTHS) // len(LENGTHS),
        make_sequences,
        attend,
        torch_attention,
        4.0 * HEADS * CHANNELS * sum(n * n for n in LENGTHS) / sum(LENGTHS),
        lambda sequences, tokens: ((3, tokens, HEADS, CHANNELS),),
        lambda sequences, tokens: ((tokens, HEADS, CHANNELS),),
        has_loops=False,
    ),
    **{f"bag_{mode}": bag_kind(mode) for mode in BAGS},
    "softmax": Kind(
        "softmax over segments",
        SOFTMAX,
        20,
        make_values("v"),
        softmax,
        torch_softmax,
        20.0,
        lambda segments, elements: ((elements,),),
        lambda segments, elements: ((elements,),),
    ),
    "gat": Kind(
        "attention of a graph's nodes to their neighbours",
        GAT,
        10,
        make_graph(W=(CHANNELS, HEADS, WIDTH), a=(HEADS, WIDTH), b=(HEADS, WIDTH)),
        attend_neighbours,
        torch_gat,
        (2.0 * WIDTH + 25) * HEADS + 2 * CHANNELS * HEADS * WIDTH / 10,
        lambda nodes, edges: ((nodes, CHANNELS), (CHANNELS + 2, HEADS, WIDTH), (edges,)),
        lambda nodes, edges: ((nodes, HEADS, WIDTH),),
        lambda nodes, edges: {"rows": nodes, "heads": HEADS, "features": WIDTH, "entries": edges},
    ),
    "sage": Kind(
        "a graph's nodes with the mean of their neighbours",
        SAGE,
        10,
        make_graph(W=(CHANNELS, CHANNELS), U=(CHANNELS, CHANNELS), bias=(CHANNELS,)),
        aggregate,
        torch_sage,
        CHANNELS + 4 * CHANNELS * CHANNELS / 10,
        lambda nodes, edges: ((nodes, CHANNELS), (2 * CHANNELS + 1, CHANNELS), (edges,)),
        lambda nodes, edges: ((nodes, CHANNELS),),
        lambda nodes, edges: {"rows": nodes, "features": CHANNELS},
    ),
    "mean_variance": Kind(
        "mean and variance of groups",
        STATISTICS,
        50,
        make_values("x"),
        mean_variance,
        torch_mean_variance,
        4.0,
        lambda groups, elements: ((elements,),),
        lambda groups, elements: ((groups,), (groups,)),
    ),
    "argmax": Kind(
        "the place of the largest element of groups",
        ARGMAX,
        50,
        make_values("x", least=1),
        find_best,
        torch_argmax,
        1.0,
        lambda groups, elements: ((elements,),),
        lambda groups, elements: ((groups,),),
        result_type="int64",
    ),
}

SIZES = ("1e4", "1e5", "1e6")
ATTENTION_SIZES = ("992", "9920")
"""Tokens, in 5 and 50 sequences."""


def make_workload(kind: str, size: str) -> Workload:
    """``ragged_<kind>_<size>``."""
    k, elements = KINDS[kind], int(float(size))
    segments = elements // k.per_segment
    results = k.results(segments, elements)
    peers: dict[str, Peer] = {"numpy": lambda module, out, **arrays: k.exact(**arrays), "torch": k.torch()}
    if k.has_loops:
        peers["numba"] = call_loops(
            f"benchmarks.numba_sparse.{kind}",
            k.scratch(segments, elements),
            lambda inputs: [np.empty(shape, k.result_type) for shape in results],
        )
    return Workload(
        f"ragged_{kind}_{size}",
        f"{k.what}: {elements:,} in {segments:,} of different lengths",
        "tc",
        k.source,
        lambda rng: k.make_inputs(rng, segments, elements),
        k.exact,
        k.flops * elements,
        nbytes(*k.read(segments, elements), (segments + 1,)),
        nbytes(*results, itemsize=np.dtype(k.result_type).itemsize),
        peers,
    )


WORKLOADS = tuple(make_workload(kind, size) for kind in KINDS for size in (ATTENTION_SIZES if kind == "attention" else SIZES))
GROUPS = {"ragged": tuple(w.name for w in WORKLOADS)}
