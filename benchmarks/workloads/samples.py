"""Samples in space and time: pictures, filters, points, and copies that change their layout."""

from __future__ import annotations

import numpy as np

from benchmarks.workload import normal
from benchmarks.workloads.convolutions import direct
from benchmarks.workloads.programs import complex_normal, octets, program

TRIANGLE_NORMALS = """
def triangle_normals(float(N, 3, 3) corner) -> (M) {
  u(n, k) = corner(n, 1, k) - corner(n, 0, k)
  v(n, k) = corner(n, 2, k) - corner(n, 0, k)
  c(n, k) = u(n, (k+1) % 3) * v(n, (k+2) % 3) - u(n, (k+2) % 3) * v(n, (k+1) % 3) where k in 0:3
  q(n) +=! c(n, k) * c(n, k)
  M(n, k) = c(n, k) / sqrt(q(n) + 0.01)
}
"""

TRANSPOSED_CONV = """
def transposed_conv(float(N, K, P, Q) G, float(K, M, 4, 4) W) -> (Y) {
  Y(n, m, 2 * p + r, 2 * q + s) +=! G(n, k, p, q) * W(k, m, r, s)
}
"""

REFLECT_BLUR = """
def reflect_blur(float(H, W) X, float(5, 5) K) -> (Y) {
  Y(h, w) +=! pad(X(h + i - 2, w + j - 2), reflect) * K(i, j) where h in 0:H, w in 0:W
}
"""

BOX_FILTER = """
def box_filter(uint8(H, W) X) -> (Y) {
  S(h, w) +=! int32(X(h + i, w + j)) where i in 0:3, j in 0:3
  Y(h, w) = uint8(S(h, w) / 9)
}
"""

INT8_CONV = """
def int8_conv(uint8(N, C, H, W) X, int8(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! int32(X(n, c, h + r, w + s)) * int32(F(k, c, r, s))
}
"""

CONV_LAST = """
def conv_last(float(N, H, W, C) X, float(R, S, C, K) F) -> (Y) {
  Y(n, h, w, k) +=! X(n, h + r, w + s, c) * F(r, s, c, k)
}
"""

COMPLEX_TRANSPOSE = "def complex_transpose(complex64(M, N) X) -> (Y) { Y(j, i) = X(i, j) }"
IMAGE_HISTOGRAM = "def image_histogram(uint8(H, W) X) -> (int32(256) count) { count(int32(X(h, w))) +=! 1 }"
ROTATE_POINTS = "def rotate_points(float(N, 3, 3) R, float(N, 3) X) -> (Y) { Y(n, i) +=! R(n, i, j) * X(n, j) }"
RGB_INTERLEAVE = "def rgb_interleave(uint8(C, H, W) X) -> (Y) { Y(h, w, c) = X(c, h, w) }"
REVERSE_AXES = "def reverse_axes(float(C, H, W) X) -> (Y) { Y(w, h, c) = X(c, h, w) }"
ROWS_LAST = "def rows_last(double(N, C, P) X) -> (Y) { Y(n, p, c) = X(n, c, p) }"
ODD_ROWS = "def odd_rows(double(A, B, C, D, E) X) -> (Y) { Y(c, a, e, b, d) = X(a, b, c, d, e) }"
UPSAMPLE = "def upsample(float(H, W) X, float(2, 4) P) -> (Y) { Y(i, 2 * j + q) +=! X(i, j + b) * P(q, b) }"


def triangle_normals(corner: np.ndarray) -> np.ndarray:
    c = np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0])
    return c / np.sqrt((c * c).sum(axis=1, keepdims=True) + corner.dtype.type(0.01))


def transposed_conv(G: np.ndarray, W: np.ndarray) -> np.ndarray:
    n, _, p, q = G.shape
    y = np.zeros((n, W.shape[1], 2 * p + 2, 2 * q + 2), G.dtype)
    products = np.einsum("nkpq,kmrs->rsnmpq", G, W, optimize=True)
    for r in range(4):
        for s in range(4):
            y[:, :, r : r + 2 * p : 2, s : s + 2 * q : 2] += products[r, s]
    return y


def reflect_blur(X: np.ndarray, K: np.ndarray) -> np.ndarray:
    h, w = X.shape
    padded = np.pad(X, 2, mode="reflect")
    return sum(K[i, j] * padded[i : i + h, j : j + w] for i in range(5) for j in range(5))


def box_filter(X: np.ndarray) -> np.ndarray:
    h, w = X.shape[0] - 2, X.shape[1] - 2
    wide = X.astype(np.uint16)
    return (sum(wide[i : i + h, j : j + w] for i in range(3) for j in range(3)) // 9).astype(np.uint8)


def upsample(X: np.ndarray, P: np.ndarray) -> np.ndarray:
    return (np.lib.stride_tricks.sliding_window_view(X, 4, axis=1) @ P.T).reshape(len(X), -1)


POINTS = 1 << 17
HD = (1080, 1920)

WORKLOADS = (
    program(
        "int8_conv",
        "3×3, 64 → 64 channels, 28×28, unsigned by signed bytes",
        INT8_CONV,
        lambda rng: {"X": octets(rng, 1, 64, 30, 30), "F": octets(rng, 64, 64, 3, 3, dtype=np.int8)},
        lambda X, F: direct(X.astype(np.float64), F.astype(np.float64)).astype(np.int32),
        2.0 * 64 * 64 * 9 * 28 * 28,
        4.0 * 64 * 28 * 28,
        1e-12,
    ),
    program(
        "conv_last",
        "3×3, 32 → 32 channels, 224×224, channels last (image given padded)",
        CONV_LAST,
        lambda rng: {"X": normal(rng, 1, 226, 226, 32), "F": normal(rng, 3, 3, 32, 32)},
        lambda X, F: direct(X.transpose(0, 3, 1, 2), F.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1),
        2.0 * 32 * 32 * 9 * 224 * 224,
        4.0 * 32 * 224 * 224,
        5e-5,
    ),
    program(
        "transposed_conv",
        "4×4 stride 2 transposed, 128 → 64 channels, 28×28",
        TRANSPOSED_CONV,
        lambda rng: {"G": normal(rng, 1, 128, 28, 28), "W": normal(rng, 128, 64, 4, 4)},
        transposed_conv,
        2.0 * 128 * 64 * 16 * 28 * 28,
        4.0 * 64 * 58 * 58,
        5e-5,
    ),
    program(
        "complex_transpose",
        "1024×1536 of complex64",
        COMPLEX_TRANSPOSE,
        lambda rng: {"X": complex_normal(rng, 1024, 1536)},
        lambda X: X.T.copy(),
        1024.0 * 1536,
        8.0 * 1024 * 1536,
        1e-9,
    ),
    program(
        "image_histogram",
        "how often each byte is in 1080×1920 pixels",
        IMAGE_HISTOGRAM,
        lambda rng: {"X": octets(rng, *HD)},
        lambda X: np.bincount(X.ravel(), minlength=256).astype(np.int32),
        1080.0 * 1920,
        1024.0,
    ),
    program(
        "rotate_points",
        "2¹⁷ vectors of three by a matrix each",
        ROTATE_POINTS,
        lambda rng: {"R": normal(rng, POINTS, 3, 3), "X": normal(rng, POINTS, 3)},
        lambda R, X: (R @ X[..., None])[..., 0],
        18.0 * POINTS,
        12.0 * POINTS,
    ),
    program(
        "triangle_normals",
        "normals of 2¹⁷ triangles",
        TRIANGLE_NORMALS,
        lambda rng: {"corner": normal(rng, POINTS, 3, 3)},
        triangle_normals,
        27.0 * POINTS,
        12.0 * POINTS,
        2e-4,
    ),
    program(
        "rgb_interleave",
        "three planes of 1080×1920 bytes to pixels",
        RGB_INTERLEAVE,
        lambda rng: {"X": octets(rng, 3, *HD)},
        lambda X: X.transpose(1, 2, 0).copy(),
        3.0 * 1080 * 1920,
        3.0 * 1080 * 1920,
    ),
    program(
        "reverse_axes",
        "three planes of 1080×1920, axes reversed",
        REVERSE_AXES,
        lambda rng: {"X": normal(rng, 3, *HD)},
        lambda X: X.T.copy(),
        3.0 * 1080 * 1920,
        12.0 * 1080 * 1920,
        1e-9,
    ),
    program(
        "rows_last",
        "32×50×3136, channels last, float64",
        ROWS_LAST,
        lambda rng: {"X": rng.standard_normal((32, 50, 3136))},
        lambda X: X.transpose(0, 2, 1).copy(),
        32.0 * 50 * 3136,
        8.0 * 32 * 50 * 3136,
        1e-15,
        "float64",
    ),
    program(
        "odd_rows",
        "abcde → caebd, 8×23×17×41×47, float64",
        ODD_ROWS,
        lambda rng: {"X": rng.standard_normal((8, 23, 17, 41, 47))},
        lambda X: X.transpose(2, 0, 4, 1, 3).copy(),
        8.0 * 23 * 17 * 41 * 47,
        8.0 * 8 * 23 * 17 * 41 * 47,
        1e-15,
        "float64",
    ),
    program(
        "reflect_blur",
        "5×5 filter of 1024×1024, mirrored at its borders",
        REFLECT_BLUR,
        lambda rng: {"X": normal(rng, 1024, 1024), "K": rng.random((5, 5), dtype=np.float32)},
        reflect_blur,
        50.0 * 1024 * 1024,
        4.0 * 1024 * 1024,
    ),
    program(
        "box_filter",
        "3×3 mean of 1080×1920 bytes",
        BOX_FILTER,
        lambda rng: {"X": octets(rng, *HD)},
        box_filter,
        10.0 * 1078 * 1918,
        1078.0 * 1918,
        1e-12,
    ),
    program(
        "upsample",
        "rows of 512×1024 by two, four taps for each phase",
        UPSAMPLE,
        lambda rng: {"X": normal(rng, 512, 1024), "P": normal(rng, 2, 4)},
        upsample,
        16.0 * 512 * 1021,
        8.0 * 512 * 1021,
    ),
)
