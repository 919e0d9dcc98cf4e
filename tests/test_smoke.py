"""First to run: one kernel per front end, compared with NumPy."""

# ruff: noqa: F821, UP037 (the decorated body uses indices that Python never evaluates)

from __future__ import annotations

import numpy as np

import polyc

RNG = np.random.default_rng(3)
X = RNG.standard_normal((9, 37), dtype=np.float32)
W = RNG.standard_normal((5, 37), dtype=np.float32)
B = RNG.standard_normal(5, dtype=np.float32)


def test_tc_text() -> None:
    operator = polyc.compile("""
    def linear_relu(float(M, K) X, float(N, K) W, float(N) B) -> (Y) {
      H(m, n) +=! X(m, k) * W(n, k)
      Y(m, n) = fmax(H(m, n) + B(n), 0.0)
    }""")
    np.testing.assert_allclose(operator(X, W, B), np.maximum(X @ W.T + B, 0), rtol=1e-4, atol=1e-4)


@polyc.op
def softmax(X: "f32[N, D]"):
    M[n] = max(X[n, d])
    E[n, d] = exp(X[n, d] - M[n])
    Z[n] += E[n, d]
    Y[n, d] = E[n, d] / Z[n]
    return Y


def test_decorated_function() -> None:
    e = np.exp(X - X.max(axis=1, keepdims=True))
    np.testing.assert_allclose(softmax(X), e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_einsum() -> None:
    np.testing.assert_allclose(polyc.einsum("md,nd->mn", X, W), X @ W.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(polyc.einsum_operator("md,nd->mn")(X, W), X @ W.T, rtol=1e-4, atol=1e-4)
