"""Programs from other fields: products of other element types and of many operands, factorisations, sequences, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.workload import Arrays, Workload, nbytes, normal, signature_of
from benchmarks.workloads.contractions import einsum_workload

EDIT_DISTANCE = """
def edit_distance(uint8(N) a, uint8(M) b) -> (L) {
  D(0, j) = j where j in 0:M+1
  D(i, 0) = i where i in 1:N+1
  D(i, j) = min(min(D(i-1, j), D(i, j-1)) + 1, D(i-1, j-1) + (a(i-1) == b(j-1) ? 0 : 1)) where i in 1:N+1, j in 1:M+1
  L = D(N, M)
}
"""

HEAT = """
def heat(float(N, M) X) -> (Y) {
  A(0, i, j) = X(i, j)
  A(t, i, j) = 0.2 * (A(t-1, i, j) + A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1) + A(t-1, i, j+1))
    where t in 1:11, i in 1:N-1, j in 1:M-1
  A(t, 0, j) = A(t-1, 0, j) where t in 1:11, j in 0:M
  A(t, N-1, j) = A(t-1, N-1, j) where t in 1:11, j in 0:M
  A(t, i, 0) = A(t-1, i, 0) where t in 1:11, i in 1:N-1
  A(t, i, M-1) = A(t-1, i, M-1) where t in 1:11, i in 1:N-1
  Y(i, j) = A(10, i, j)
}
"""

BATCH_CHOLESKY = """
def batch_cholesky(double(B, N, N) A) -> (L) {
  S(b, i, j) +=! L(b, i, k) * L(b, j, k) where k < j, j <= i, b in 0:B, i in 0:N, j in 0:N, k in 0:N
  L(b, i, j) = i < j ? 0.0 : (i == j ? sqrt(A(b, i, i) - S(b, i, i)) : (A(b, i, j) - S(b, i, j)) / L(b, j, j))
    where b in 0:B
}
"""

BAND_CHOLESKY = """
def band_cholesky(double(N, N) A) -> (L) {
  S(i, j) +=! L(i, k) * L(j, k) where i in 0:N, j in 0:N, k in 0:N, k < j, j <= i, k + 16 >= i
  L(i, j) = j > i || i > j + 16 ? 0.0 : (i == j ? sqrt(A(i, i) - S(i, i)) : (A(i, j) - S(i, j)) / L(j, j))
    where i in 0:N, j in 0:N
}
"""

BI_GRU = """
def bi_gru(float(T, B, I) X, float(2, 3, K, I) W, float(2, 3, K, K) R, float(2, 3, K) c) -> (Y) {
  P(t, b, g, k) +=! X(t, b, i) * W(0, g, k, i)
  F(0, b, k) = 0.0 where b in 0:B, k in 0:K
  U(t, b, g, k) +=! F(t, b, j) * R(0, g, k, j) where t in 0:T
  r(t, b, k) = 1.0 / (1.0 + exp(-(P(t, b, 0, k) + U(t, b, 0, k) + c(0, 0, k))))
  z(t, b, k) = 1.0 / (1.0 + exp(-(P(t, b, 1, k) + U(t, b, 1, k) + c(0, 1, k))))
  n(t, b, k) = tanh(P(t, b, 2, k) + r(t, b, k) * U(t, b, 2, k) + c(0, 2, k))
  F(t + 1, b, k) = (1.0 - z(t, b, k)) * n(t, b, k) + z(t, b, k) * F(t, b, k) where t in 0:T
  Q(t, b, g, k) +=! X(T - 1 - t, b, i) * W(1, g, k, i) where t in 0:T
  G(0, b, k) = 0.0 where b in 0:B, k in 0:K
  V(t, b, g, k) +=! G(t, b, j) * R(1, g, k, j) where t in 0:T
  s(t, b, k) = 1.0 / (1.0 + exp(-(Q(t, b, 0, k) + V(t, b, 0, k) + c(1, 0, k))))
  y(t, b, k) = 1.0 / (1.0 + exp(-(Q(t, b, 1, k) + V(t, b, 1, k) + c(1, 1, k))))
  m(t, b, k) = tanh(Q(t, b, 2, k) + s(t, b, k) * V(t, b, 2, k) + c(1, 2, k))
  G(t + 1, b, k) = (1.0 - y(t, b, k)) * m(t, b, k) + y(t, b, k) * G(t, b, k) where t in 0:T
  Y(t, b, 0, k) = F(t + 1, b, k) where t in 0:T
  Y(t, b, 1, k) = G(T - t, b, k) where t in 0:T
}
"""

CONCAT_NORM = """
def concat_norm(float(N, D) A, float(N, E) B) -> (Y) {
  X(n, d) = A(n, d) where d in 0:D
  X(n, D + e) = B(n, e)
  S(n) +=! X(n, k) * X(n, k)
  Y(n, k) = X(n, k) * rsqrt(S(n) / (D + E) + 0.00001)
}
"""

LINEAR_ADDED = """
def linear_added(float(M, K) X, float(K, N) W, float(N) b) -> (Y) {
  Y(m, n) +=! X(m, k) * W(k, n)
  Y(m, n) += b(n)
}
"""

INT8_MATMUL = "def int8_matmul(uint8(M, K) A, int8(K, N) B) -> (C) { C(m, n) +=! int32(A(m, k)) * int32(B(k, n)) }"
SCALED_MATMUL = """
def scaled_matmul(float(M, K) A, float(K, N) B, float(M) s, float(N) t) -> (C) {
  C(m, n) +=! A(m, k) * s(m) * B(k, n) * t(n)
}
"""
STANDARDISE = (
    "def standardise(float(N, C) X, float(C) M, float(C) V) -> (Y) { Y(n, c) = (X(n, c) - M(c)) / sqrt(V(c) + 0.001) }"
)
TALL_VARIANCE = """
def tall_variance(float(N, D) X) -> (V) {
  S(d) +=! X(n, d)
  T(d) +=! (X(n, d) - S(d) / N) * (X(n, d) - S(d) / N)
  V(d) = T(d) / N
}
"""
CONCENTRATION = """
def concentration(float(N, D) X) -> (Y) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  P(n, d) = E(n, d) / Z(n)
  Y(n) +=! P(n, d) * P(n, d)
}
"""
HALF_MATMUL = "def half_matmul(float16(M, K) A, float16(K, N) B) -> (float(M, N) C) { C(m, n) +=! A(m, k) * B(k, n) }"
COMPLEX_MATMUL = "def complex_matmul(complex64(M, K) A, complex64(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
CUMULATIVE_SUM = "def cumulative_sum(float(N, D) X) -> (Y) { Y(n, d) +=! X(n, e) where e <= d, d in 0:D }"
TUCKER = """
def tucker(float(I, J, K) X, float(L, I) A, float(M, J) B, float(N, K) C) -> (Y) {
  Y(l, m, n) +=! X(i, j, k) * A(l, i) * B(m, j) * C(n, k)
}
"""
BINCOUNT = "def bincount(int32(N) key, float(N) weight) -> (float(1000) H) { H(key(n)) +=! weight(n) }"
SYMMETRIC_PART = "def symmetric_part(float(N, N) A) -> (Y) { Y(i, j) = A(i, j)  Y(j, i) += A(i, j) }"
TF_IDF = "def tf_idf(float(D, V) C, float(V) F) -> (T) { T(d, v) = C(d, v) * log(D / (1.0 + F(v))) }"


def edit_distance(a: np.ndarray, b: np.ndarray) -> np.int32:
    columns = np.arange(len(b) + 1, dtype=np.int32)
    row = columns
    for i, letter in enumerate(a):
        least = np.minimum(row[1:] + 1, row[:-1] + (b != letter))  # beside the way along the row
        row = np.minimum.accumulate(np.append(np.int32(i + 1), least).astype(np.int32) - columns) + columns
    return np.int32(row[-1])


def heat(X: np.ndarray) -> np.ndarray:
    a = X
    for _ in range(10):
        b = a.copy()
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a = b
    return a


def band_cholesky(A: np.ndarray) -> np.ndarray:
    L = np.zeros_like(A)
    for j in range(len(A)):
        low, high = max(0, j - 16), min(len(A), j + 17)
        column = A[j:high, j] - L[j:high, low:j] @ L[j, low:j]
        L[j:high, j] = column / np.sqrt(column[0])
    return L


def concentration(X: np.ndarray) -> np.ndarray:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    return (p * p).sum(axis=1)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gru(X: np.ndarray, W: np.ndarray, R: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One direction: gates in the order reset, update, new, as in PyTorch."""
    given = np.einsum("tbi,gki->tbgk", X, W, optimize=True)
    h, steps = np.zeros((X.shape[1], R.shape[1]), X.dtype), []
    for x in given:
        u = np.einsum("bj,gkj->bgk", h, R, optimize=True)
        r, z = sigmoid(x[:, 0] + u[:, 0] + c[0]), sigmoid(x[:, 1] + u[:, 1] + c[1])
        h = (1 - z) * np.tanh(x[:, 2] + r * u[:, 2] + c[2]) + z * h
        steps.append(h)
    return np.stack(steps)


def bi_gru(X: np.ndarray, W: np.ndarray, R: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.stack([gru(X, W[0], R[0], c[0]), gru(X[::-1], W[1], R[1], c[1])[::-1]], axis=2)


def concat_norm(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    x = np.concatenate([A, B], axis=1)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + A.dtype.type(1e-5))


def wide_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """In single precision at least."""
    return A.astype(np.promote_types(A.dtype, np.float32)) @ B.astype(np.promote_types(B.dtype, np.float32))


def integer_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Through floating-point numbers, which hold all sums exactly and have a fast product."""
    return (A.astype(np.float64) @ B.astype(np.float64)).astype(np.int32)


def program(
    name: str,
    what: str,
    source: str,
    make_inputs: Callable[[Any], Arrays],
    formula: Callable[..., Any],
    flops: float,
    written: float,
    tolerance: float = 2e-5,
    dtype: Any = "float32",
) -> Workload:
    """A workload whose reference and NumPy version are `formula`; `written` counts the bytes of the result."""
    read = sum(nbytes(shape, itemsize=kind.itemsize) for kind, shape in signature_of(make_inputs, dtype).values())
    peers = {"numpy": lambda np, out, **inputs: formula(**inputs)}
    return Workload(name, what, "tc", source, make_inputs, formula, flops, read, written, peers, tolerance, dtype)


def letters(rng: Any, n: int) -> np.ndarray:
    return rng.integers(0, 4, n, dtype=np.uint8)


def octets(rng: Any, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return rng.integers(*((0, 256) if dtype == np.uint8 else (-128, 128)), shape, dtype=dtype)


def complex_normal(rng: Any, *shape: int) -> np.ndarray:
    return normal(rng, *shape) + np.complex64(1j) * normal(rng, *shape)


def definite_batch(rng: Any) -> Arrays:
    a = rng.standard_normal((4096, 8, 8))
    return {"A": a @ a.swapaxes(1, 2) / 8 + np.eye(8)}


def gru_inputs(rng: Any) -> Arrays:
    scale = np.float32(128**-0.5)
    weights = {"W": normal(rng, 2, 3, 128, 128) * scale, "R": normal(rng, 2, 3, 128, 128) * scale}
    return {"X": normal(rng, 200, 1, 128), **weights, "c": normal(rng, 2, 3, 128)}


WORKLOADS = (
    program(
        "edit_distance",
        "Levenshtein distance of two texts of 2000 letters",
        EDIT_DISTANCE,
        lambda rng: {"a": letters(rng, 2000), "b": letters(rng, 2000)},
        edit_distance,
        5.0 * 2000 * 2000,
        4.0,
    ),
    program(
        "int8_matmul",
        "256×512×512, unsigned by signed bytes",
        INT8_MATMUL,
        lambda rng: {"A": octets(rng, 256, 512), "B": octets(rng, 512, 512, dtype=np.int8)},
        integer_product,
        2.0 * 256 * 512 * 512,
        4.0 * 256 * 512,
        1e-12,
    ),
    program(
        "half_matmul",
        "512×512×512 of float16, summed in float32",
        HALF_MATMUL,
        lambda rng: {n: normal(rng, 512, 512).astype(np.float16) for n in "AB"},
        wide_product,
        2.0 * 512**3,
        4.0 * 512**2,
    ),
    program(
        "scaled_matmul",
        "256×512×512, rows of one operand and columns of the other scaled",
        SCALED_MATMUL,
        lambda rng: {"A": normal(rng, 256, 512), "B": normal(rng, 512, 512), "s": normal(rng, 256), "t": normal(rng, 512)},
        lambda A, B, s, t: (A @ B) * s[:, None] * t,
        2.0 * 256 * 512 * 512,
        4.0 * 256 * 512,
        5e-5,
    ),
    einsum_workload("few_rows", "ik,kj->ij 8×3000×1000", "ik,kj->ij", {"i": 8, "j": 3000, "k": 1000}),
    program(
        "complex_matmul",
        "256×256×256 of complex64",
        COMPLEX_MATMUL,
        lambda rng: {n: complex_normal(rng, 256, 256) for n in "AB"},
        lambda A, B: A @ B,
        8.0 * 256**3,
        8.0 * 256**2,
    ),
    program(
        "cumulative_sum",
        "sums of all earlier elements in the rows of 2048×1024",
        CUMULATIVE_SUM,
        lambda rng: {"X": normal(rng, 2048, 1024)},
        lambda X: np.cumsum(X, axis=1),
        2048.0 * 1024,
        4.0 * 2048 * 1024,
    ),
    program(
        "tucker",
        "a tensor of 64³ times a factor of 32×64 along each side, as one sum",
        TUCKER,
        lambda rng: {"X": normal(rng, 64, 64, 64), **{n: normal(rng, 32, 64) for n in "ABC"}},
        lambda X, A, B, C: np.einsum("ijk,li,mj,nk->lmn", X, A, B, C, optimize=True),
        2.0 * 32 * 64 * (64 * 64 + 32 * 64 + 32 * 32),
        4.0 * 32**3,
        5e-5,
    ),
    einsum_workload(
        "chain4",
        "ij,jk,kl,lm->im, i k m 512, j l 32",
        "ij,jk,kl,lm->im",
        {"i": 512, "j": 32, "k": 512, "l": 32, "m": 512},
        flops=2.0 * 32 * (512 * 32 + 512 * 32 + 512 * 512),
        tolerance=5e-5,
    ),
    einsum_workload("batch_last", "adb,adc->cba, a 128, b c d 64", "adb,adc->cba", {"a": 128, "b": 64, "c": 64, "d": 64}),
    program(
        "bincount",
        "2²⁰ weights added up by 1000 keys",
        BINCOUNT,
        lambda rng: {"key": rng.integers(0, 1000, 1 << 20, dtype=np.int32), "weight": rng.random(1 << 20, dtype=np.float32)},
        lambda key, weight: np.bincount(key, weight, 1000).astype(weight.dtype),
        float(1 << 20),
        4000.0,
        5e-5,
    ),
    program(
        "batch_cholesky",
        "Cholesky factors of 4096 matrices of 8×8, float64",
        BATCH_CHOLESKY,
        definite_batch,
        lambda A: np.linalg.cholesky(A),
        4096 * 8**3 / 3,
        8.0 * 4096 * 64,
        1e-11,
        "float64",
    ),
    program(
        "band_cholesky",
        "Cholesky factor of 1000×1000 with 16 diagonals beside the main one, float64",
        BAND_CHOLESKY,
        lambda rng: {"A": rng.random((1000, 1000)) + 40 * np.eye(1000)},
        band_cholesky,
        1000.0 * 16 * 17,
        8.0 * 1000 * 1000,
        1e-11,
        "float64",
    ),
    program(
        "bi_gru",
        "GRU in both directions, one sequence of 200 steps, 128 → 128",
        BI_GRU,
        gru_inputs,
        bi_gru,
        2.0 * 2 * 3 * 200 * 128 * 256,
        4.0 * 200 * 256,
        1e-4,
    ),
    program(
        "concat_norm",
        "two matrices of 2048×512 side by side, their rows normalised",
        CONCAT_NORM,
        lambda rng: {n: normal(rng, 2048, 512) for n in "AB"},
        concat_norm,
        4.0 * 2048 * 1024,
        4.0 * 2048 * 1024,
    ),
    program(
        "heat",
        "ten steps of heat on 512×512, its borders in statements of their own",
        HEAT,
        lambda rng: {"X": normal(rng, 512, 512)},
        heat,
        50.0 * 512 * 512,
        4.0 * 512 * 512,
    ),
    program(
        "linear_added",
        "256×512×512, a bias added to the result",
        LINEAR_ADDED,
        lambda rng: {"X": normal(rng, 256, 512), "W": normal(rng, 512, 512), "b": normal(rng, 512)},
        lambda X, W, b: X @ W + b,
        2.0 * 256 * 512 * 512,
        4.0 * 256 * 512,
    ),
    program(
        "symmetric_part",
        "a matrix of 2048×2048 and its transpose, added",
        SYMMETRIC_PART,
        lambda rng: {"A": normal(rng, 2048, 2048)},
        lambda A: A + A.T,
        2048.0 * 2048,
        4.0 * 2048 * 2048,
    ),
    program(
        "standardise",
        "the columns of 4096×256 by given means and variances",
        STANDARDISE,
        lambda rng: {"X": normal(rng, 4096, 256), "M": normal(rng, 256), "V": rng.random(256, dtype=np.float32)},
        lambda X, M, V: (X - M) / np.sqrt(V + V.dtype.type(0.001)),
        3.0 * 4096 * 256,
        4.0 * 4096 * 256,
    ),
    program(
        "tall_variance",
        "variances of the columns of 131072×64",
        TALL_VARIANCE,
        lambda rng: {"X": normal(rng, 1 << 17, 64)},
        lambda X: X.var(axis=0),
        4.0 * (1 << 23),
        256.0,
        5e-5,
    ),
    program(
        "concentration",
        "sums of the squared softmax in the rows of 32×262144",
        CONCENTRATION,
        lambda rng: {"X": normal(rng, 32, 1 << 18)},
        concentration,
        6.0 * (1 << 23),
        128.0,
        1e-4,
    ),
    program(
        "tf_idf",
        "500×10000 counts, each by the logarithm of its column",
        TF_IDF,
        lambda rng: {"C": rng.random((500, 10_000), dtype=np.float32), "F": rng.random(10_000, dtype=np.float32)},
        lambda C, F: C * np.log(len(C) / (1 + F)),
        5e6,
        4 * 5e6,
    ),
)
