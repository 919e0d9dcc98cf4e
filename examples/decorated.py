"""Operators as decorated Python functions.

The bodies are read, not run: indices such as ``m`` need no definition, and one that does not stand on the left is summed
(or reduced by ``max``, ``min``, ``prod``).  ``polyc.indices`` defines them for those who like their linter quiet.
"""
# ruff: noqa: F821 (the bodies use indices that Python never evaluates)

import polyc

m, n, k = polyc.indices("m n k")


@polyc.op
def linear_relu(X: "f32[M, K]", W: "f32[N, K]", B: "f32[N]"):
    """A linear layer with bias and relu."""
    H[m, n] += X[m, k] * W[n, k]
    Y[m, n] = max(H[m, n] + B[n], 0)
    return Y


@polyc.op
def softmax(X: "f32[N, D]"):
    """Softmax of every row."""
    M[n] = max(X[n, d])
    E[n, d] = exp(X[n, d] - M[n])
    Z[n] += E[n, d]
    Y[n, d] = E[n, d] / Z[n]
    return Y


@polyc.op
def layernorm(X: "f32[N, D]", G: "f32[D]", B: "f32[D]", *, eps=1e-5):
    """Layer normalisation of every row; `eps` is a compile-time constant."""
    S[n] += X[n, d]
    C[n, d] = X[n, d] - S[n] / polyc.f32(D)
    V[n] += C[n, d] * C[n, d]
    Y[n, d] = C[n, d] * rsqrt(V[n] / polyc.f32(D) + eps) * G[d] + B[d]
    return Y


@polyc.op
def attention(X: "f32[B, H, Q, D]", Y: "f32[B, H, K, D]", Z: "f32[B, H, K, E]", *, scale=0.125):
    """Attention: scores, softmax over the keys, weighted sum of the values."""
    S[b, h, q, k] += X[b, h, q, d] * Y[b, h, k, d]
    M[b, h, q] = max(S[b, h, q, k])
    P[b, h, q, k] = exp((S[b, h, q, k] - M[b, h, q]) * scale)
    L[b, h, q] += P[b, h, q, k]
    A[b, h, q, e] += P[b, h, q, k] * Z[b, h, k, e]
    O[b, h, q, e] = A[b, h, q, e] / L[b, h, q]
    return O


@polyc.op
def maxpool(X: "f32[N, C, H, W]", *, stride=2):
    """Maximum over 2×2 windows; ranges that no array tells are given by `polyc.where`."""
    with polyc.where(0 <= r < 2, 0 <= s < 2):
        Y[i, c, h, w] = max(X[i, c, stride * h + r, stride * w + s])
    return Y
