"""Functions that call functions: read in place, scheduled as a whole."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import linecache

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.python import read_function


@polyc.op
def linear(X: "f32[M, K]", W: "f32[N, K]", b: "f32[N]"):
    H[m, n] += X[m, k] * W[n, k]
    Y[m, n] = H[m, n] + b[n]
    return Y


def leaky(X, *, slope=0.0):
    Y[m, n] = max(X[m, n], slope * X[m, n])
    return Y


def moments(X: "f32[M, N]"):
    """Mean and variance of rows."""
    s[m] += X[m, n]
    mean[m] = s[m] / X.shape[1]
    v[m] += (X[m, n] - mean[m]) ** 2
    var[m] = v[m] / f32(N)
    return mean, var


def twice(X: "f32[M, N]"):
    A = leaky(X, slope=0.5)
    B = leaky(A, slope=0.5)
    return B


@polyc.op
def network(x: "f32[B, K]", W1: "f32[H, K]", b1: "f32[H]", W2: "f32[O, H]", b2: "f32[O]"):
    h = linear(x, W1, b1)
    h = leaky(h, slope=0.1)
    y = linear(X=h, W=W2, b=b2)
    return y


@polyc.op
def normalized(x: "f32[M, N]"):
    mu, va = moments(x)
    y[m, n] = (x[m, n] - mu[m]) / sqrt(va[m] + 1e-5)
    return y


@polyc.op
def four_times(x: "f32[M, N]"):
    y = twice(x)
    for _step in range(1):
        y = twice(y)
    return y


@polyc.op
def crossed(m: "f32[A, B]"):
    s = leaky(m)  # `m` is an index in there, and a tensor here
    n[a] += s[a, b]
    return n


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_network_of_calls() -> None:
    x, w1, b1, w2, b2 = draw(9, 8), draw(7, 8), draw(7), draw(5, 7), draw(5)
    h = x @ w1.T + b1
    h = np.maximum(h, np.float32(0.1) * h)
    np.testing.assert_allclose(network(x, w1, b1, w2, b2), h @ w2.T + b2, rtol=1e-4, atol=1e-4)


def test_several_results_sizes_and_docstrings() -> None:
    x = draw(9, 30)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(normalized(x), expected, rtol=1e-4, atol=1e-4)


def test_calls_in_calls_and_in_loops() -> None:
    x = draw(4, 5)
    np.testing.assert_allclose(four_times(x), np.where(x < 0, x / 16, x), rtol=1e-6)


def test_names_do_not_meet() -> None:
    m = draw(4, 5)
    np.testing.assert_allclose(crossed(m), np.maximum(m, 0).sum(1), rtol=1e-5, atol=1e-6)


def test_both_functions_are_one_program() -> None:
    assert len(network.program.statements) == 5
    assert {t.name for t in network.program.tensors} >= {"linear.1.H", "leaky.2.Y", "linear.3.Y"}


def _read(body: str) -> None:
    """Read a function whose globals are those of this module."""
    namespace = dict(globals())
    lines = "\n".join("    " + line for line in body.split("\n"))
    source = f"def f(x: 'f32[M, K]', w: 'f32[N, L]', b: 'f32[N]', n: 'i32[M, K]'):\n{lines}\n    return y\n"
    name = f"<calls {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), namespace)
    read_function(namespace["f"])


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("y = linear(x, w)", "semantic-call", "needs a tensor for b"),
        ("y = linear(x, w, b, b)", "semantic-call", "takes 3 tensors"),
        ("y = linear(x, w, b, z=b)", "semantic-call", "has no parameter z"),
        ("y = linear(x, W=w, X=x, b=b)", "semantic-call", "given twice"),
        ("y = linear(x + x, w, b)", "semantic-call", "must be the name of a tensor"),
        ("y = linear(x, w, b)", "semantic-call", "K of linear is dimension 1 of x and 1 of w"),
        ("y = linear(b, w, b)", "semantic-rank", "X of linear has 2 dimensions"),
        ("y = linear(n, w, b)", "type-call", "X of linear is f32, and n is i32"),
        ("y = leaky(x, slope=b[0])", "semantic-call", "slope takes a number"),
        ("y, z = leaky(x)", "semantic-call", "leaky returns 1 tensor, and 2 are assigned"),
        ("with polyc.where(0 <= i < 3):\n    y = leaky(x)", "semantic-call", "whole tensors"),
        ("y = f(x)", "semantic-recursion", "f calls itself"),
        ("y = leaky(b)", "semantic-rank", "b"),
    ],
)
def test_calls_that_do_not_fit(body: str, code: str, words: str) -> None:
    with pytest.raises(PolycError) as caught:
        _read(body)
    found = {d.code: d.message for d in caught.value.diagnostics}
    assert code in found, caught.value
    assert words in str(caught.value)
