"""Layers of networks: linear ones, convolutions, normalisation, losses, attention, bags of embeddings, an LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gradients.gradient import Row
from benchmarks.workload import Arrays, example, normal

LINEAR_GELU = """
def linear_gelu(float(M, K) X, float(N, K) W, float(N) B) -> (Y) {
  H(m, n) +=! X(m, k) * W(n, k)
  Y(m, n) = 0.5 * z * (1.0 + tanh(0.7978845608 * (z + 0.044715 * z * z * z))) where z = H(m, n) + B(n)
}
"""

MLP = """
def mlp(float(M, K) X, float(N, K) W1, float(N) B1, float(P, N) W2, float(P) B2, float(Q, P) W3, float(Q) B3, float(M, Q) T)
    -> (loss) {
  S(m, n) +=! X(m, k) * W1(n, k)
  A(m, n) = fmax(S(m, n) + B1(n), 0.0)
  U(m, p) +=! A(m, n) * W2(p, n)
  C(m, p) = fmax(U(m, p) + B2(p), 0.0)
  V(m, q) +=! C(m, p) * W3(q, p)
  loss +=! (V(m, q) + B3(q) - T(m, q)) * (V(m, q) + B3(q) - T(m, q)) / float(M)
}
"""

CONV_SAME = """
def conv_same(float(N, C, H, W) X, float(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k, c, r, s) where h in 0:H, w in 0:W
}
"""

CONV_STRIDED = """
def conv_strided(float(N, C, H, W) X, float(K, C, R, S) F) -> (Y) {
  Y(n, k, h, w) +=! X(n, c, 2 * h + r, 2 * w + s) * F(k, c, r, s)
}
"""

CROSS_ENTROPY = """
def cross_entropy(float(N, C) X, int64(N) label) -> (loss) {
  M(n) max=! X(n, c)
  Z(n) +=! exp(X(n, c) - M(n))
  loss +=! (log(Z(n)) + M(n) - X(n, label(n))) / float(N)
}
"""

LSTM = """
def lstm(float(T, B, I) X, float(4, K, I) W, float(4, K, K) R, float(4, K) bias, float(B, K) h0, float(B, K) c0) -> (Y) {
  G(t, b, g, k) +=! X(t, b, i) * W(g, k, i)
  S(t, b, g, k) +=! H(t, b, j) * R(g, k, j) where t in 0:T
  Z(t, b, g, k) = G(t, b, g, k) + S(t, b, g, k) + bias(g, k)
  H(0, b, k) = h0(b, k)
  C(0, b, k) = c0(b, k)
  C(t + 1, b, k) = C(t, b, k) / (1.0 + exp(-Z(t, b, 1, k))) + tanh(Z(t, b, 2, k)) / (1.0 + exp(-Z(t, b, 0, k))) where t in 0:T
  H(t + 1, b, k) = tanh(C(t + 1, b, k)) / (1.0 + exp(-Z(t, b, 3, k))) where t in 0:T
  Y(t, b, k) = H(t + 1, b, k) where t in 0:T
}
"""

FACTOR = 0.7978845608


# -- exact, in NumPy


def exact_linear_gelu(X: Any, W: Any, B: Any, d_Y: Any) -> Any:
    z = X @ W.T + B
    t = np.tanh(FACTOR * (z + 0.044715 * z**3))
    d_z = d_Y * (0.5 * (1 + t) + 0.5 * z * (1 - t * t) * FACTOR * (1 + 3 * 0.044715 * z * z))
    return d_z @ W, d_z.T @ X, d_z.sum(0)


def exact_mlp(X: Any, W1: Any, B1: Any, W2: Any, B2: Any, W3: Any, B3: Any, T: Any) -> Any:
    a = np.maximum(X @ W1.T + B1, 0)
    c = np.maximum(a @ W2.T + B2, 0)
    off = c @ W3.T + B3 - T
    d_3 = 2 * off / len(X)
    d_2 = (d_3 @ W3) * (c > 0)
    d_1 = (d_2 @ W2) * (a > 0)
    value = np.asarray((off * off).sum() / len(X))
    return value, d_1.T @ X, d_1.sum(0), d_2.T @ a, d_2.sum(0), d_3.T @ c, d_3.sum(0)


def exact_conv(pad: int, stride: int, X: Any, F: Any, d_Y: Any) -> Any:
    """Tap by tap: what each reads, and where it adds."""
    padded = np.pad(X, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    d_x, d_f = np.zeros_like(padded), np.zeros_like(F)
    height, width = d_Y.shape[2:]
    for r, s in np.ndindex(F.shape[2:]):
        place = np.s_[:, :, r : r + stride * height : stride, s : s + stride * width : stride]
        d_f[:, :, r, s] = np.tensordot(d_Y, padded[place], ((0, 2, 3), (0, 2, 3)))
        d_x[place] += np.tensordot(d_Y, F[:, :, r, s], (1, 0)).transpose(0, 3, 1, 2)
    end = [n - pad for n in padded.shape[2:]]
    return d_x[:, :, pad : end[0], pad : end[1]], d_f


def exact_depthwise(X: Any, F: Any, d_Y: Any) -> Any:
    d_x, d_f = np.zeros_like(X), np.zeros_like(F)
    height, width = d_Y.shape[2:]
    for r, s in np.ndindex(F.shape[1:]):
        place = np.s_[:, :, r : r + height, s : s + width]
        d_f[:, r, s] = (d_Y * X[place]).sum((0, 2, 3))
        d_x[place] += d_Y * F[:, r, s, None, None]
    return d_x, d_f


def exact_layernorm(X: Any, G: Any, B: Any, d_Y: Any) -> Any:
    c = X - X.mean(1, keepdims=True)
    scale = 1 / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5)
    y, d_y = c * scale, d_Y * G
    d_x = scale * (d_y - d_y.mean(1, keepdims=True) - y * (d_y * y).mean(1, keepdims=True))
    return d_x, (d_Y * y).sum(0), d_Y.sum(0)


def exact_cross_entropy(X: Any, label: Any) -> Any:
    e = np.exp(X - X.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    rows = np.arange(len(X))
    value = np.asarray(-np.log(p[rows, label]).mean())
    p[rows, label] -= 1
    return value, p / len(X)


def exact_attention(X: Any, Y: Any, Z: Any, d_O: Any) -> Any:
    found = np.empty_like(X), np.empty_like(Y), np.empty_like(Z)
    for at in np.ndindex(X.shape[:2]):  # head by head, as the scores of all are large
        x, y, z, d_o = X[at], Y[at], Z[at], d_O[at]
        p = np.exp((s := x @ y.T * 0.125) - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        d_p = d_o @ z.T
        d_s = p * (d_p - (d_p * p).sum(1, keepdims=True)) * 0.125
        for place, gradient in zip(found, (d_s @ y, d_s.T @ x, p.T @ d_o), strict=True):
            place[at] = gradient
    return found


def exact_bag(T: Any, I: Any, d_O: Any) -> Any:
    d_t = np.zeros_like(T)
    np.add.at(d_t, I, d_O[:, None])
    return d_t


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def exact_lstm(X: Any, W: Any, R: Any, bias: Any, h0: Any, c0: Any, d_Y: Any) -> Any:
    """Back through time; gates in the order input, forget, cell, output."""
    steps, h, c = [], h0, c0
    for x in X:
        z = np.einsum("bi,gki->gbk", x, W, optimize=True) + np.einsum("bj,gkj->gbk", h, R, optimize=True) + bias[:, None]
        i, f, g, o = sigmoid(z[0]), sigmoid(z[1]), np.tanh(z[2]), sigmoid(z[3])
        steps.append((x, h, c, i, f, g, o))
        c = f * c + i * g
        h = o * np.tanh(c)
    d_x, d_w, d_r, d_b = np.zeros_like(X), np.zeros_like(W), np.zeros_like(R), np.zeros_like(bias)
    d_h, d_c = np.zeros_like(h0), np.zeros_like(c0)
    for t in reversed(range(len(X))):
        x, h, c, i, f, g, o = steps[t]
        after = np.tanh(f * c + i * g)
        d_h = d_h + d_Y[t]
        d_c = d_c + d_h * o * (1 - after * after)
        d_z = np.stack((d_c * g * i * (1 - i), d_c * c * f * (1 - f), d_c * i * (1 - g * g), d_h * after * o * (1 - o)))
        d_x[t] = np.einsum("gbk,gki->bi", d_z, W, optimize=True)
        d_h = np.einsum("gbk,gkj->bj", d_z, R, optimize=True)
        d_w += np.einsum("gbk,bi->gki", d_z, x, optimize=True)
        d_r += np.einsum("gbk,bj->gkj", d_z, h, optimize=True)
        d_b += d_z.sum(1)
        d_c = d_c * f
    return d_x, d_w, d_r, d_b


# -- forward, in PyTorch


def torch_mlp(torch: Any, X: Any, W1: Any, B1: Any, W2: Any, B2: Any, W3: Any, B3: Any, T: Any) -> Any:
    linear = torch.nn.functional.linear
    off = linear(linear(linear(X, W1, B1).relu(), W2, B2).relu(), W3, B3) - T
    return (off * off).sum() / X.shape[0]


def torch_lstm(torch: Any, X: Any, W: Any, R: Any, bias: Any, h0: Any, c0: Any) -> Any:
    width = h0.shape[1]
    weights = [W.reshape(4 * width, -1), R.reshape(4 * width, width), bias.reshape(-1), torch.zeros(4 * width, dtype=X.dtype)]
    return torch._VF.lstm(X, (h0[None], c0[None]), weights, True, 1, 0.0, True, False, False)[0]


# -- forward, in JAX


def jax_linear_gelu(jax: Any, X: Any, W: Any, B: Any) -> Any:
    return jax.nn.gelu(X @ W.T + B, approximate=True)


def jax_mlp(jax: Any, X: Any, W1: Any, B1: Any, W2: Any, B2: Any, W3: Any, B3: Any, T: Any) -> Any:
    relu = jax.nn.relu
    off = relu(relu(X @ W1.T + B1) @ W2.T + B2) @ W3.T + B3 - T
    return (off * off).sum() / X.shape[0]


def jax_conv(jax: Any, pad: int, stride: int, groups: int, X: Any, F: Any) -> Any:
    return jax.lax.conv_general_dilated(X, F, (stride, stride), [(pad, pad)] * 2, feature_group_count=groups)


def jax_layernorm(jax: Any, X: Any, G: Any, B: Any) -> Any:
    c = X - X.mean(1, keepdims=True)
    return c * jax.lax.rsqrt((c * c).mean(1, keepdims=True) + 1e-5) * G + B


def jax_cross_entropy(jax: Any, X: Any, label: Any) -> Any:
    chosen = jax.numpy.take_along_axis(X, label[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(X, 1) - chosen).mean()


def jax_attention(jax: Any, X: Any, Y: Any, Z: Any) -> Any:
    scores = jax.numpy.einsum("bhqd,bhkd->bhqk", X, Y) * 0.125
    return jax.numpy.einsum("bhqk,bhke->bhqe", jax.nn.softmax(scores, -1), Z)


def jax_lstm(jax: Any, X: Any, W: Any, R: Any, bias: Any, h0: Any, c0: Any) -> Any:
    width = h0.shape[1]
    w, r = W.reshape(4 * width, -1), R.reshape(4 * width, width)
    given = X @ w.T + bias.reshape(-1)

    def step(state: Any, g: Any) -> Any:
        h, c = state
        i, f, z, o = jax.numpy.split(g + h @ r.T, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(z)
        h = jax.nn.sigmoid(o) * jax.numpy.tanh(c)
        return (h, c), h

    return jax.lax.scan(step, (h0, c0), given)[1]


# -- rows


def mlp_inputs(rng: Any) -> Arrays:
    arrays = {"X": normal(rng, 128, 1024)}
    for i in (1, 2, 3):
        arrays |= {f"W{i}": normal(rng, 1024, 1024) * np.float32(1 / 32), f"B{i}": normal(rng, 1024)}
    return arrays | {"T": normal(rng, 128, 1024)}


def conv_row(name: str, what: str, source: str, channels: tuple[int, int], size: int, pad: int, stride: int) -> Row:
    """A 3×3 convolution of eight images, by images and filters."""
    inside, outside = channels
    result = (8, outside, (size + 2 * pad - 3) // stride + 1, (size + 2 * pad - 3) // stride + 1)
    return Row(
        name,
        what,
        source,
        lambda rng: {"X": normal(rng, 8, inside, size, size), "F": normal(rng, outside, inside, 3, 3)},
        {"Y": result},
        ("X", "F"),
        lambda torch, X, F: torch.conv2d(X, F, None, stride, pad),
        lambda jax, X, F: jax_conv(jax, pad, stride, 1, X, F),
        lambda X, F, d_Y: exact_conv(pad, stride, X, F, d_Y),
        4.0 * 9 * inside * float(np.prod(result)),
    )


def attention_row(name: str, batch: int, heads: int, tokens: int) -> Row:
    shape = (batch, heads, tokens, 64)
    return Row(
        name,
        f"attention, batch {batch}, {heads} heads, {tokens} tokens, 64 features, by queries, keys and values",
        example("attention"),
        lambda rng: {n: normal(rng, *shape) for n in "XYZ"},
        {"O": shape},
        ("X", "Y", "Z"),
        lambda torch, X, Y, Z: torch.nn.functional.scaled_dot_product_attention(X, Y, Z),
        jax_attention,
        exact_attention,
        batch * heads * tokens * tokens * (2.0 * 64 * 6 + 10),
    )


def lstm_inputs(rng: Any) -> Arrays:
    steps, batch, width = 100, 32, 128
    weights = {"W": normal(rng, 4, width, width), "R": normal(rng, 4, width, width)}
    arrays = {"X": normal(rng, steps, batch, width)} | {n: a * np.float32(0.08) for n, a in weights.items()}
    return arrays | {"bias": normal(rng, 4, width), "h0": normal(rng, batch, width), "c0": normal(rng, batch, width)}


ROWS = (
    Row(
        "linear_gelu",
        "linear 512×1024 → 1024 with bias and gelu, by all of them",
        LINEAR_GELU,
        lambda rng: {"X": normal(rng, 512, 1024), "W": normal(rng, 1024, 1024) * np.float32(1 / 32), "B": normal(rng, 1024)},
        {"Y": (512, 1024)},
        ("X", "W", "B"),
        lambda torch, X, W, B: torch.nn.functional.gelu(torch.nn.functional.linear(X, W, B), approximate="tanh"),
        jax_linear_gelu,
        exact_linear_gelu,
        6.0 * 512 * 1024 * 1024,
    ),
    Row(
        "mlp3",
        "a squared error behind three layers of 1024, batch 128: value, and gradients by the weights",
        MLP,
        mlp_inputs,
        {"loss": ()},
        ("W1", "B1", "W2", "B2", "W3", "B3"),
        torch_mlp,
        jax_mlp,
        exact_mlp,
        8 * 2.0 * 128 * 1024 * 1024,
        has_value=True,
    ),
    conv_row("conv3x3", "3×3 convolution of 8 images 64×56×56, padded, by images and filters", CONV_SAME, (64, 64), 56, 1, 1),
    conv_row("conv3x3_strided", "3×3 convolution with stride 2 of 8 images 64×57×57 to 128", CONV_STRIDED, (64, 128), 57, 0, 2),
    Row(
        "depthwise",
        "depthwise 3×3 convolution of 8 images 128×58×58, by images and filters",
        example("depthwise"),
        lambda rng: {"X": normal(rng, 8, 128, 58, 58), "F": normal(rng, 128, 3, 3)},
        {"Y": (8, 128, 56, 56)},
        ("X", "F"),
        lambda torch, X, F: torch.conv2d(X, F[:, None], None, 1, 0, 1, F.shape[0]),
        lambda jax, X, F: jax_conv(jax, 0, 1, F.shape[0], X, F[:, None]),
        exact_depthwise,
        4.0 * 9 * 8 * 128 * 56 * 56,
    ),
    Row(
        "layernorm",
        "layer normalisation of 4096×1024, by all inputs",
        example("layernorm"),
        lambda rng: {"X": normal(rng, 4096, 1024), "G": normal(rng, 1024), "B": normal(rng, 1024)},
        {"Y": (4096, 1024)},
        ("X", "G", "B"),
        lambda torch, X, G, B: torch.nn.functional.layer_norm(X, (X.shape[1],), G, B, 1e-5),
        jax_layernorm,
        exact_layernorm,
        20.0 * 4096 * 1024,
    ),
    Row(
        "cross_entropy",
        "softmax and cross-entropy of 1024×8192: value and gradient",
        CROSS_ENTROPY,
        lambda rng: {"X": normal(rng, 1024, 8192), "label": rng.integers(0, 8192, 1024, dtype=np.int64)},
        {"loss": ()},
        ("X",),
        lambda torch, X, label: torch.nn.functional.cross_entropy(X, label),
        jax_cross_entropy,
        exact_cross_entropy,
        8.0 * 1024 * 8192,
        has_value=True,
    ),
    attention_row("attention_s128", 8, 12, 128),
    attention_row("attention_s2048", 1, 8, 2048),
    Row(
        "embedding_bag",
        "sums of 50 rows of a table of 100000×64, batch 1024, by the table",
        example("embedding_sum"),
        lambda rng: {"T": normal(rng, 100_000, 64), "I": rng.integers(0, 100_000, (1024, 50), dtype=np.int32)},
        {"O": (1024, 64)},
        ("T",),
        lambda torch, T, I: torch.nn.functional.embedding_bag(I, T, mode="sum"),
        lambda jax, T, I: T[I].sum(1),
        exact_bag,
        1024.0 * 50 * 64,
    ),
    Row(
        "lstm",
        "an LSTM over 100 steps, batch 32, 128 features, by inputs and weights",
        LSTM,
        lstm_inputs,
        {"Y": (100, 32, 128)},
        ("X", "W", "R", "bias"),
        torch_lstm,
        jax_lstm,
        exact_lstm,
        6.0 * 100 * 32 * 4 * 128 * 256,
        is_compiled=False,
        tolerance=2e-4,
    ),
)
