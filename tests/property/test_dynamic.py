"""One kernel for every size: random sizes around 0, 1, tiles and lanes, against NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc

SIZES = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 100, 129])
SMALL = st.sampled_from([0, 1, 2, 3, 4, 5])

SOURCES = {
    "mm": "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "conv": """def conv(float(N,C,H,W) X, float(K,C,R,S) F, float(K) B) -> (Y) {
      T(n,k,h,w) +=! pad(X(n, c, h + r - 1, w + s - 1), 0.0) * F(k,c,r,s) where h in 0:H, w in 0:W
      Y(n,k,h,w) = fmax(T(n,k,h,w) + B(k), 0.0) }""",
    "softmax": """def softmax(float(N,D) X) -> (Y) {
      M(n) max=! X(n,d)  E(n,d) = exp(X(n,d) - M(n))  Z(n) +=! E(n,d)  Y(n,d) = E(n,d) / Z(n) }""",
    "layernorm": """def layernorm(float(N,D) X, float(D) G, float(D) B) -> (Y) {
      S(n) +=! X(n,d)
      C(n,d) = X(n,d) - S(n) / D
      V(n) +=! C(n,d) * C(n,d)
      Y(n,d) = C(n,d) * rsqrt(V(n) / D + 0.00001) * G(d) + B(d) }""",
    "prefix": "def prefix(double(N,D) X) -> (P) { P(n,0) = X(n,0) where n in 0:N  P(n,i) = P(n,i-1) + X(n,i) where i in 1:D }",
    "cell": """def cell(float(T,B,I) X, float(H,I) W, float(H,H) U, float(B,H) H0) -> (S) {
      S(0,b,h) = H0(b,h)
      G(t,b,h) +=! X(t,b,i) * W(h,i)
      R(t,b,h) +=! S(t,b,j) * U(h,j) where t in 0:T
      S(t+1,b,h) = tanh(G(t,b,h) + R(t,b,h)) where t in 0:T }""",
    "scatter": """def scatter(int32(N) key, float(N,D) V, float(M,D) start) -> (int32(M) H, S) {
      H(key(n)) +=! 1
      S(m,d) = start(m,d)
      S(key(n),d) += V(n,d) }""",
}


@functools.cache
def dynamic_operator(name: str) -> polyc.Operator:
    return polyc.compile(SOURCES[name], dynamic=True)


def run(name: str, *arrays: np.ndarray) -> np.ndarray:
    """The result of the one kernel for every size; a second one would fail."""
    operator = dynamic_operator(name)
    result = operator(*arrays)
    assert len([r for r in operator.remarks if r.pass_name == "dynamic"]) == 1
    return result


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(SIZES, SIZES, SIZES, st.booleans())
@settings(max_examples=40, deadline=None)
def test_matrix_product(m, k, n, transposed):
    a = draw(0, m, k)
    b = draw(1, n, k).T if transposed and n > 1 and k > 1 else draw(1, k, n)
    operator = dynamic_operator("mm")
    np.testing.assert_allclose(operator(a, b), a @ b, rtol=1e-4, atol=1e-4)
    # One for contiguous operands, one for transposed ones.
    assert len([r for r in operator.remarks if r.pass_name == "dynamic"]) <= 2


@given(SMALL, SMALL, SIZES, SIZES, SMALL, SMALL, SMALL)
@settings(max_examples=40, deadline=None)
def test_padded_convolution(n, c, h, w, k, r, s):
    h, w = min(h, 33), min(w, 65)
    x, f, bias = draw(0, n, c, h, w), draw(1, k, c, r, s), draw(2, k)
    padded = np.zeros((n, c, h + r + 1, w + s + 1), np.float64)
    padded[:, :, 1 : h + 1, 1 : w + 1] = x
    wanted = np.zeros((n, k, h, w)) + bias[None, :, None, None]
    for i in range(r):
        for j in range(s):
            wanted += np.einsum("nchw,kc->nkhw", padded[:, :, i : i + h, j : j + w], f[:, :, i, j].astype(np.float64))
    np.testing.assert_allclose(run("conv", x, f, bias), np.maximum(wanted, 0), rtol=1e-4, atol=1e-4)


@given(SIZES, SIZES)
@settings(max_examples=40, deadline=None)
def test_softmax(n, d):
    x = draw(0, n, d)
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf)) if d else x
    np.testing.assert_allclose(run("softmax", x), e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)


@given(SIZES, SIZES)
@settings(max_examples=40, deadline=None)
def test_layer_normalisation(n, d):
    x, g, b = draw(0, n, d), draw(1, d), draw(2, d)
    centred = x - x.mean(axis=1, keepdims=True) if d else x
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) if d else 1
    np.testing.assert_allclose(run("layernorm", x, g, b), centred * scale * g + b, rtol=1e-3, atol=1e-3)


@given(SIZES, SIZES)
@settings(max_examples=40, deadline=None)
def test_prefix_sums(n, d):
    x = draw(0, n, d).astype(np.float64)
    if d == 0:
        with pytest.raises(polyc.PolycError):  # the first element of no element is written
            dynamic_operator("prefix")(x)
        return
    np.testing.assert_allclose(run("prefix", x), np.cumsum(x, axis=1), rtol=1e-9, atol=1e-9)


@given(SMALL, SIZES, SIZES, SIZES)
@settings(max_examples=40, deadline=None)
def test_recurrent_cell(t, b, i, h):
    x, w, u, h0 = draw(0, t, b, i), draw(1, h, i) / 8, draw(2, h, h) / 8, draw(3, b, h)
    states = [h0]
    for step in range(t):
        states.append(np.tanh(x[step] @ w.T + states[-1] @ u.T))
    np.testing.assert_allclose(run("cell", x, w, u, h0), np.stack(states), rtol=1e-3, atol=1e-3)


@given(SIZES, SMALL, SIZES)
@settings(max_examples=40, deadline=None)
def test_scatter(n, d, m):
    key = np.random.default_rng(0).integers(0, max(m, 1), n if m else 0).astype(np.int32)
    v, start = draw(1, len(key), d), draw(2, m, d)
    sums = start.astype(np.float64)
    np.add.at(sums, key, v)
    count, result = run("scatter", key, v, start)
    np.testing.assert_array_equal(count, np.bincount(key, minlength=m)[:m] if m else [])
    np.testing.assert_allclose(result, sums, rtol=1e-4, atol=1e-4)


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf)) if x.shape[1] else x
    return e / e.sum(axis=1, keepdims=True)


def layernorm_of(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True) if x.shape[1] else x
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * g + b if x.shape[1] else x


def convolved(x: np.ndarray, f: np.ndarray, bias: np.ndarray) -> np.ndarray:
    h, w = x.shape[2:]
    r, s = f.shape[2:]
    padded = np.zeros((*x.shape[:2], h + r + 1, w + s + 1), np.float32)
    padded[:, :, 1 : h + 1, 1 : w + 1] = x
    windows = np.lib.stride_tricks.sliding_window_view(padded, (h, w), axis=(2, 3))[:, :, :r, :s]
    sums = np.einsum("ncrshw,kcrs->nkhw", windows, f, optimize=True)
    return np.maximum(sums + bias[None, :, None, None], 0)


TRIANGULAR = "def tri(float(N,N) A, float(N,M) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) where k <= i }"

RANDOM = {
    # source, largest size of each argument of `make`, `make`, NumPy's answer
    "mm": (SOURCES["mm"], (300, 300, 300), lambda m, k, n: (draw(0, m, k), draw(1, k, n)), lambda a, b: a @ b),
    "conv": (
        SOURCES["conv"],
        (3, 20, 40, 40, 40, 4),
        lambda n, c, h, w, k, r: (draw(0, n, c, h, w), draw(1, k, c, r, r), draw(2, k)),
        convolved,
    ),
    "softmax": (SOURCES["softmax"], (300, 300), lambda n, d: (draw(0, n, d),), softmax_of),
    "layernorm": (
        SOURCES["layernorm"],
        (300, 300),
        lambda n, d: (draw(0, n, d), draw(1, d), draw(2, d)),
        layernorm_of,
    ),
    "triangular": (TRIANGULAR, (200, 200), lambda n, m: (draw(0, n, n), draw(1, n, m)), lambda a, b: np.tril(a) @ b),
}


@pytest.mark.parametrize("name", RANDOM)
def test_two_hundred_random_sizes_compile_once(name):
    source, largest, make, wanted = RANDOM[name]
    operator = polyc.compile(source, dynamic=True)
    rng = np.random.default_rng(5)
    for _ in range(200):
        # Half of the sizes are small: the borders of tiles are there.
        arrays = make(*(int(rng.integers(0, n + 1 if rng.random() < 0.5 else min(n, 20) + 1)) for n in largest))
        np.testing.assert_allclose(operator(*arrays), wanted(*arrays), rtol=1e-3, atol=1e-3)
    assert compilations(operator) == 1


def compilations(operator: polyc.Operator) -> int:
    return len([r for r in operator.remarks if r.pass_name == "dynamic" and ": kernel " in r.message])


def test_two_hundred_random_sizes_compile_eight_times_where_nobody_said_that_they_vary(monkeypatch):
    from polyc import recall

    made = []
    original = recall.compile_program
    monkeypatch.setattr(recall, "compile_program", lambda *a, **k: made.append(a) or original(*a, **k))
    operator = polyc.compile(SOURCES["mm"])
    rng = np.random.default_rng(6)
    for _ in range(200):
        m, k, n = (int(x) for x in rng.integers(0, 100, 3))
        a, b = draw(0, m, k), draw(1, k, n)
        np.testing.assert_allclose(operator(a, b), a @ b, rtol=1e-3, atol=1e-3)
    # Each of them has a remark, with the reason.
    assert compilations(operator) == len(made) <= 8
    messages = [r.message for r in operator.remarks if r.pass_name == "dynamic"]
    assert "M any, K any, N any" in messages[-1] and "combinations of sizes" in messages[-1]


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_narrower_instruction_sets(target):
    operator = polyc.compile(SOURCES["mm"], dynamic=True, target=target)
    for m, k, n in [(0, 3, 4), (1, 1, 1), (7, 5, 9), (33, 0, 17), (64, 65, 63)]:
        a, b = draw(0, m, k), draw(1, k, n)
        np.testing.assert_allclose(operator(a, b), a @ b, rtol=1e-4, atol=1e-4)
