"""Reductions along chunked axes: sums of products, statistics, positions, and what needs a maximum before a sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.blocks.row import Chunk, Inputs, Noise, Row, Sizes

COVARIANCE = """def covariance(float(N, D) x) -> (c) {
  m(j) +=! x(i, j) / float(N)
  s(j, k) +=! (x(i, j) - m(j)) * (x(i, k) - m(k))
  c(j, k) = s(j, k) / float(N - 1)
}"""
ASSIGN = """def assign(float(N, D) x, float(K, D) c) -> (p) {
  d(i, k) +=! (x(i, j) - c(k, j)) * (x(i, j) - c(k, j))
  p(i) argmin=! d(i, k)
}"""
HISTOGRAM = """def histogram(float(N) x, int64 B) -> (h) {
  h(b) = 0 where b in 0:B
  h(min(int64(x(i) * float(B)), B - 1)) += 1
}"""
LOGSUMEXP = """def logsumexp(float(M, N) x) -> (y) {
  m(i) max=! x(i, j)
  s(i) +=! exp(x(i, j) - m(i))
  y(i) = m(i) + log(s(i))
}"""
ARGMAX = "def argmax(float(M, N) x) -> (p) { p(i) argmax=! x(i, j) }"
ATTENTION = """def attention(float(M, D) q, float(N, D) k, float(N, D) v) -> (o) {
  s(i, j) +=! q(i, d) * k(j, d)
  m(i) max=! s(i, j) * 0.125
  e(i, j) = exp(s(i, j) * 0.125 - m(i))
  l(i) +=! e(i, j)
  a(i, d) +=! e(i, j) * v(j, d)
  o(i, d) = a(i, d) / l(i)
}"""


def draw_points(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Few points, of as few bits as those that are looked for."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.float32) / np.float32(256)


def multiply_in_einsum(inputs: Inputs, _: Sizes) -> Any:
    import dask.array as da

    return da.einsum("ikl,klj->ij", inputs["a"], inputs["b"])


def multiply_in_tensordot(inputs: Inputs, _: Sizes) -> Any:
    import dask.array as da

    return da.tensordot(inputs["a"], inputs["b"], axes=((1, 2), (0, 1)))


def covariance(inputs: Inputs, _: Sizes) -> Any:
    import dask.array as da

    return da.cov(inputs["x"], rowvar=False)


def covariance_by_products(inputs: Inputs, sizes: Sizes) -> Any:
    """In the precision of the data: `dask.array.cov` computes in float64."""
    d = inputs["x"] - inputs["x"].mean(axis=0)
    return (d.T @ d) / (sizes["N"] - 1)


def sum_products(inputs: Inputs, _: Sizes) -> Any:
    return (inputs["a"] * inputs["b"]).sum(axis=0)


def assign(inputs: Inputs, _: Sizes) -> Any:
    """Squares of distances, but for those of the points, which are the same for all means."""
    x, c = inputs["x"], inputs["c"]
    return ((c * c).sum(axis=1) - 2 * (x @ c.T)).argmin(axis=1)


def assign_in_numba(inputs: Inputs, _: Sizes) -> Any:
    from benchmarks.blocks import numba_loops

    x, c = inputs["x"], inputs["c"]
    chunks = (x.chunks[0],)
    return x.map_blocks(numba_loops.assign, c, drop_axis=1, chunks=chunks, meta=np.empty(0, np.int64))


def histogram(inputs: Inputs, sizes: Sizes) -> Any:
    import dask.array as da

    counts, _ = da.histogram(inputs["x"], bins=sizes["B"], range=(0.0, 1.0))
    return counts


def log_sum_exp(inputs: Inputs, _: Sizes) -> Any:
    import dask.array as da

    x = inputs["x"]
    m = x.max(axis=1, keepdims=True)
    return m[:, 0] + da.log(da.exp(x - m).sum(axis=1))


def argmax(inputs: Inputs, _: Sizes) -> Any:
    return inputs["x"].argmax(axis=1)


def attend(inputs: Inputs, _: Sizes) -> Any:
    import dask.array as da

    s = (inputs["q"] @ inputs["k"].T) * inputs["q"].dtype.type(0.125)
    e = da.exp(s - s.max(axis=1, keepdims=True))
    return (e @ inputs["v"]) / e.sum(axis=1, keepdims=True)


def make_factors(s: Sizes) -> dict[str, Any]:
    k, length, chunk = s["K"], s["L"], s["chunk"]
    a = Noise((s["M"], k, length), (s["M"], k // 2, chunk))
    return {"a": a, "b": Noise((k, length, s["N"]), (k // 2, chunk, s["N"]))}


def make_table(s: Sizes) -> Noise:
    """As many rows in a chunk as is said."""
    return Noise((s["N"], s["D"]), (s["chunk"], s["D"]))


def make_points(s: Sizes) -> dict[str, Any]:
    return {"x": Noise((s["N"], s["D"]), (s["chunk"], s["D"]), bits=8), "c": draw_points(1, (s["K"], s["D"]))}


def make_rows(s: Sizes) -> dict[str, Any]:
    """Few rows, whose columns are in chunks."""
    return {"x": Noise((s["M"], s["N"]), (s["M"], s["chunk"]))}


def make_keys(s: Sizes) -> dict[str, Any]:
    queries = Noise((s["M"], 64), (s["M"], 64))
    return {"q": queries, "k": make_table({**s, "D": 64}), "v": make_table({**s, "D": 64})}


def chunk_of_labels(sizes: Sizes) -> Chunk:
    return (sizes["chunk"],)


SMALL_TABLE = {"N": 500, "D": 7, "chunk": 110}
SMALL_ROWS = {"M": 9, "N": 1000, "chunk": 300}
FULL_ROWS = {"M": 1000, "N": 200_000, "chunk": 10_000}

ROWS = (
    Row(
        "einsum",
        "ikl,klj->ij, both summed axes in chunks",
        {
            "small": {"M": 9, "K": 6, "L": 40, "N": 11, "chunk": 16},
            "full": {"M": 256, "K": 64, "L": 4096, "N": 256, "chunk": 1024},
        },
        "ikl,klj->ij",
        make_factors,
        {"dask": multiply_in_einsum, "tensordot": multiply_in_tensordot},
    ),
    Row(
        "covariance",
        "of columns; rows in chunks",
        {
            "small": SMALL_TABLE,
            "full": {"N": 1_000_000, "D": 200, "chunk": 50_000},
            "large": {"N": 10_000_000, "D": 200, "chunk": 50_000},
        },
        COVARIANCE,
        lambda s: {"x": make_table(s)},
        {"dask": covariance, "products": covariance_by_products},
    ),
    Row(
        "dot",
        "(a * b).sum(axis=0), rows in chunks",
        {"small": SMALL_TABLE, "full": {"N": 400_000, "D": 500, "chunk": 20_000}},
        "xy,xy->y",
        lambda s: {"a": make_table(s), "b": make_table(s)},
        {"dask": sum_products},
    ),
    Row(
        "kmeans",
        "the nearest of K means for each point",
        {
            "small": SMALL_TABLE | {"K": 5},
            "full": {"N": 20_000_000, "D": 8, "K": 16, "chunk": 1_000_000},
            "large": {"N": 100_000_000, "D": 8, "K": 16, "chunk": 1_000_000},
        },
        ASSIGN,
        make_points,
        {"dask": assign, "numba": assign_in_numba},
        chunk_of_labels,
        0.0,
    ),
    Row(
        "histogram",
        "counts of B equal parts of [0, 1)",
        {
            "small": {"N": 5000, "B": 64, "chunk": 1200},
            "full": {"N": 200_000_000, "B": 64, "chunk": 10_000_000},
            "large": {"N": 1_000_000_000, "B": 64, "chunk": 10_000_000},
        },
        HISTOGRAM,
        lambda s: {"x": Noise((s["N"],), (s["chunk"],)), "B": s["B"]},
        {"dask": histogram},
        tolerance=0.0,
    ),
    Row(
        "logsumexp",
        "of rows, whose columns are in chunks",
        {"small": SMALL_ROWS, "full": FULL_ROWS},
        LOGSUMEXP,
        make_rows,
        {"dask": log_sum_exp},
    ),
    Row(
        "argmax",
        "of rows, whose columns are in chunks",
        {"small": SMALL_ROWS, "full": FULL_ROWS},
        ARGMAX,
        make_rows,
        {"dask": argmax},
        tolerance=0.0,
    ),
    Row(
        "attention",
        "64 features, keys in chunks",
        {"small": {"M": 9, "N": 500, "chunk": 110}, "full": {"M": 1024, "N": 100_000, "chunk": 5000}},
        ATTENTION,
        make_keys,
        {"dask": attend},
    ),
)
