"""Sums over triangles have the values that NumPy finds; for their tiles see ``tests/loopnest/split-triangle.loops``."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

PROGRAMS = {
    "lower": ("T(m,n) +=! A(m,k)*B(k,n) where n <= m", lambda a, b: np.tril(a @ b)),
    "strictly upper": ("T(m,n) +=! A(m,k)*B(k,n) where n > m", lambda a, b: np.triu(a @ b, 1)),
    "lower triangular factor": ("T(m,n) +=! A(m,k)*B(k,n) where k <= m", lambda a, b: np.tril(a) @ b),
    "upper triangular factor": ("T(m,n) +=! A(m,k)*B(k,n) where k >= m", lambda a, b: np.triu(a) @ b),
    "triangle on the right": ("T(m,n) +=! A(m,k)*B(k,n) where k > n", lambda a, b: a @ np.tril(b, -1)),
    "band": (
        "T(m,n) +=! A(m,k)*B(k,n) where m <= n + 9, n <= m + 20",
        lambda a, b: np.tril(np.triu(a @ b, -9), 20),
    ),
    "two triangles": ("T(m,n) +=! A(m,k)*B(k,n) where k <= m, n <= k", lambda a, b: np.tril(a) @ np.tril(b)),
    "trapezoid": (
        "T(m,n) +=! A(m,k)*B(k,n) where m + n < 90",
        lambda a, b: (a @ b) * (np.add.outer(range(len(a)), range(b.shape[1])) < 90),
    ),
}


@pytest.mark.pairs
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_over_triangles(name, n, target, dynamic):
    statement, oracle = PROGRAMS[name]
    op = polyc.compile(f"def f(float(N,N) A, float(N,N) B) -> (T) {{ {statement} }}", target=target, dynamic=dynamic)
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(op(a, b), oracle(a.astype(float), b.astype(float)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 65, 131])
def test_causal_attention_over_a_triangle(n):
    op = polyc.compile(
        """def attention(float(B,M,D) Q, float(B,N,D) K, float(B,N,D) V) -> (Y) {
            S(b,m,n) +=! Q(b,m,d) * K(b,n,d) where n <= m
            X(b,m) max=! S(b,m,n) where n <= m
            E(b,m,n) = n <= m ? exp(S(b,m,n) - X(b,m)) : 0.0
            Z(b,m) +=! E(b,m,n) where n <= m
            W(b,m,d) +=! E(b,m,n) * V(b,n,d) where n <= m
            Y(b,m,d) = W(b,m,d) / Z(b,m)
        }"""
    )
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((3, n, 32)).astype(np.float32) for _ in range(3))
    scores = np.where(np.tri(n, dtype=bool), q.astype(float) @ k.transpose(0, 2, 1), -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    np.testing.assert_allclose(op(q, k, v), weights / weights.sum(2, keepdims=True) @ v, rtol=1e-4, atol=1e-4)
