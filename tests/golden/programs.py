"""The programs whose way through the default pipeline is kept in golden files."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.workloads.fusion.blocks import CONV_BN_RELU, RESIDUAL_LAYERNORM_LINEAR
from benchmarks.workloads.fusion.rows import MEAN_VAR_COLUMNS, RMSNORM, SWIGLU


@dataclass(frozen=True, slots=True)
class GoldenProgram:
    """A `.tc` text at some sizes; without sizes they stay symbolic."""

    name: str
    text: str
    sizes: dict[str, int] = field(default_factory=dict)


SOFTMAX = """def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)
  E(n, d) = exp(X(n, d) - M(n))
  Z(n) +=! E(n, d)
  O(n, d) = E(n, d) / Z(n)
}
"""
LAYERNORM = """def layernorm(float(N, D) X, float(D) g, float(D) b) -> (O) {
  S(n) +=! X(n, d)
  C(n, d) = X(n, d) - S(n) / D
  V(n) +=! C(n, d) * C(n, d)
  O(n, d) = C(n, d) * rsqrt(V(n) / D + 0.00001) * g(d) + b(d)
}
"""
MATMUL_NN = "def matmul_nn(float(M, K) A, float(K, N) B) -> (C) {\n  C(m, n) +=! A(m, k) * B(k, n)\n}\n"
MATMUL_NT = "def matmul_nt(float(M, K) A, float(N, K) B) -> (C) {\n  C(m, n) +=! A(m, k) * B(n, k)\n}\n"
MATMUL_TN = "def matmul_tn(float(K, M) A, float(K, N) B) -> (C) {\n  C(m, n) +=! A(k, m) * B(k, n)\n}\n"
CONV = """def conv_bias_relu(float(B, C, H, W) X, float(F, C, KH, KW) K, float(F) b) -> (O) {
  T(n, f, y, x) +=! X(n, c, y + i, x + j) * K(f, c, i, j)
  O(n, f, y, x) = fmax(T(n, f, y, x) + b(f), 0.0)
}
"""
ATTENTION = """def attention(float(B, H, Q, D) q, float(B, H, K, D) k, float(B, H, K, E) v, float scale) -> (O) {
  S(b, h, i, j) +=! q(b, h, i, d) * k(b, h, j, d)
  M(b, h, i) max=! S(b, h, i, j) * scale
  P(b, h, i, j) = exp(S(b, h, i, j) * scale - M(b, h, i))
  Z(b, h, i) +=! P(b, h, i, j)
  U(b, h, i, e) +=! P(b, h, i, j) * v(b, h, j, e)
  O(b, h, i, e) = U(b, h, i, e) / Z(b, h, i)
}
"""
DOT = "def dot(float(N) x, float(N) y) -> (s) {\n  s +=! x(i) * y(i)\n}\n"
GELU = """def gelu_bias(float(M, N) X, float(N) b) -> (Y) {
  T(m, n) = X(m, n) + b(n)
  Y(m, n) = 0.5 * T(m, n) * (1.0 + erf(T(m, n) * 0.70710678))
}
"""
MAXPOOL = """def maxpool(float(B, C, H, W) X) -> (Y) {
  Y(b, c, y, x) max=! X(b, c, 2 * y + i, 2 * x + j) where i in 0:2, j in 0:2
}
"""
TRANSPOSES = """def transposes(float(M, N) X) -> (Y) {
  A(n, m) = X(m, n) * 2.0
  B(m, n) = A(n, m) + X(m, n)
  Y(n, m) = B(m, n) - A(n, m)
}
"""
MTTKRP = """def mttkrp(float(I, J, K) T, float(J, R) B, float(K, R) C) -> (M) {
  M(i, r) +=! T(i, j, k) * B(j, r) * C(k, r)
}
"""

_MATMUL_SIZES = {"M": 256, "K": 512, "N": 384}

BLUR = """def blur(float(H, W) X) -> (Y) {
  R(y, x) = (X(y, x) + 4.0 * X(y, x + 1) + 6.0 * X(y, x + 2) + 4.0 * X(y, x + 3) + X(y, x + 4)) / 16.0
  Y(y, x) = (R(y, x) + 4.0 * R(y + 1, x) + 6.0 * R(y + 2, x) + 4.0 * R(y + 3, x) + R(y + 4, x)) / 16.0
}
"""
CORNERS = """def corners(float(H, W) X) -> (Y) {
  U(y, x) = pad(X(y, x + 1), clamp) - pad(X(y, x - 1), clamp) where y in 0:H, x in 0:W
  V(y, x) = pad(X(y + 1, x), clamp) - pad(X(y - 1, x), clamp) where y in 0:H, x in 0:W
  A(y, x) +=! U(y + r, x + s) * U(y + r, x + s) where r in 0:3, s in 0:3
  B(y, x) +=! V(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  C(y, x) +=! U(y + r, x + s) * V(y + r, x + s) where r in 0:3, s in 0:3
  Y(y, x) = A(y, x) * B(y, x) - C(y, x) * C(y, x)
}
"""

PROGRAMS = (
    GoldenProgram("softmax", SOFTMAX, {"N": 512, "D": 1000}),
    GoldenProgram("softmax_symbolic", SOFTMAX),
    GoldenProgram("layernorm", LAYERNORM, {"N": 512, "D": 768}),
    GoldenProgram("matmul_nn", MATMUL_NN, _MATMUL_SIZES),
    GoldenProgram("matmul_nt", MATMUL_NT, _MATMUL_SIZES),
    GoldenProgram("matmul_tn", MATMUL_TN, _MATMUL_SIZES),
    GoldenProgram("matmul_nn_symbolic", MATMUL_NN),
    GoldenProgram("matmul_nt_symbolic", MATMUL_NT),
    GoldenProgram("matmul_tn_symbolic", MATMUL_TN),
    GoldenProgram("conv_bias_relu", CONV, {"B": 1, "C": 64, "H": 58, "W": 58, "F": 64, "KH": 3, "KW": 3}),
    GoldenProgram("attention", ATTENTION, {"B": 2, "H": 4, "Q": 128, "K": 128, "D": 64, "E": 64}),
    GoldenProgram("dot", DOT, {"N": 1 << 24}),
    GoldenProgram("gelu_bias", GELU, {"M": 512, "N": 3072}),
    GoldenProgram("maxpool", MAXPOOL, {"B": 4, "C": 64, "H": 112, "W": 112}),
    GoldenProgram("transposes", TRANSPOSES, {"M": 1000, "N": 700}),
    GoldenProgram("blur", BLUR, {"H": 2052, "W": 2052}),
    GoldenProgram("blur_symbolic", BLUR),
    GoldenProgram("corners", CORNERS, {"H": 2050, "W": 2050}),
    GoldenProgram("mttkrp", MTTKRP, {"I": 64, "J": 48, "K": 96, "R": 32}),
    GoldenProgram("rmsnorm", RMSNORM, {"N": 4096, "D": 1024}),
    GoldenProgram("swiglu", SWIGLU, {"N": 4096, "D": 1024}),
    GoldenProgram("residual_layernorm_linear", RESIDUAL_LAYERNORM_LINEAR, {"N": 512, "D": 768, "E": 3072}),
    GoldenProgram("conv_bn_relu", CONV_BN_RELU, {"N": 1, "C": 64, "H": 56, "W": 56, "K": 64}),
    GoldenProgram("mean_var_columns", MEAN_VAR_COLUMNS, {"N": 65536, "D": 512}),
)
