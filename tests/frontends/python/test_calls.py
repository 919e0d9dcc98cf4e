"""Functions that call functions: read in place, scheduled as a whole."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import linecache

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.python import read_function
from polyc.ir.expr import evaluate
from polyc.ir.interpret import interpret


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


def norm(v: "f32[N]"):
    q += v[i]
    y[i] = v[i] / q
    return y


def ping(X):
    Y = pong(X)
    return Y


def pong(X):
    Y = ping(X)
    return Y


@polyc.op
def scaled(X: "f32[M, N]", s: "f32"):
    Y[m, n] = X[m, n] * s
    return Y


@polyc.op
def ints(X: "i32[M, N]", s: "i32"):
    Y[m, n] = X[m, n] * s
    return Y


layer = linear.bind(b=np.zeros(3, np.float32))
product = polyc.einsum_operator("ij,ij->ij")
text = polyc.compile("def text(float(M, N) X) -> (S, D) { S(m) +=! X(m, n)  D(n) +=! X(m, n) }")


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
        ("y = linear(b, w, b)", "semantic-rank", "X of linear has 2 dimensions"),
        ("y = linear(n, w, b)", "type-call", "X of linear is f32, and n is i32"),
        ("y = leaky(x, slope=b[0])", "semantic-call", "slope takes a number"),
        ("y, z = leaky(x)", "semantic-call", "leaky returns 1 tensor, and 2 are assigned"),
        ("with polyc.where(0 <= i < 3):\n    y = leaky(x)", "semantic-call", "whole tensors"),
        ("y = f(x)", "semantic-recursion", "f calls itself"),
        ("y = leaky(b)", "semantic-rank", "b"),
        ("y = ping(x)", "semantic-recursion", "ping calls itself: ping → pong → ping"),
        ("y = layer(x)", "semantic-call", "linear has inputs that are bound"),
        ("y = product(x, x)", "semantic-call", "the program of einsum is not known"),
        ("y = leaky(moments(x))", "semantic-call", "moments returns 2 tensors, and an argument is one"),
        ("y, y = moments(x)", "semantic-call", "have the same name"),
        ("z = leaky(x)\nz[0, 0] = 1\ny[i] = z[i, 0]", "semantic-call-part", "z is the result of a call"),
        ("z[0] = 1\ny = norm(z)\nz[i + 1] = b[i]", "semantic-call-part", "z is given to a call above"),
        ("y[i, j] = z[i, j] + x[i, j]\nz = leaky(y)", "semantic-undefined", "z"),
        ("y = scaled(x, 'a')", "semantic-expression", ""),
        ("y = scaled(x, n)", "semantic-rank", "s of scaled has 0 dimensions"),
        ("y = scaled(x, i)", "semantic-call", "must be the name of a tensor"),
        ("y = ints(n, 0.5)", "type-call", "s of ints is i32, and the argument is f64"),
    ],
)
def test_calls_that_do_not_fit(body: str, code: str, words: str) -> None:
    with pytest.raises(PolycError) as caught:
        _read(body)
    found = {d.code: d.message for d in caught.value.diagnostics}
    assert code in found, caught.value
    assert words in str(caught.value)


def smoothed(a: "f32[N]", w: "f32[K]"):
    s[i] += a[i + k - 1] * w[k]  # starts at 1
    return s


@polyc.op
def windows(a: "f32[N]", w: "f32[K]"):
    t[i] = a[i - 2]  # the tensor starts at 2, and what is called sees it from 0 on
    u = smoothed(t, w)
    u = norm(u)
    v[i] = u[i] * u.shape[0]
    return v


def test_what_is_called_counts_from_zero() -> None:
    a, w = draw(12), draw(3)
    u = np.correlate(a, w, "valid")
    np.testing.assert_allclose(windows(a, w), u / u.sum() * len(u), rtol=1e-4)


@polyc.op
def mixed(x: "f32[M, N]", y: "f32[M2, N]"):
    sums, _ = text(x)
    z = scaled(scaled(y, 2), x.shape[1])
    r[m, n] = z[m, n] + sums[m]
    return r


def test_text_numbers_and_calls_in_calls() -> None:
    x, y = draw(3, 4), draw(3, 4)
    np.testing.assert_allclose(mixed(x, y), y * 8 + x.sum(1)[:, None], rtol=1e-5)
    names = {t.base for t in mixed.program.tensors}
    assert "S" in names and "D" not in names  # what is not used is not computed


@polyc.op
def unified(x: "f32[M, K]", w: "f32[N, L]", b: "f32[N]"):
    y = linear(x, w, b)
    return y


def test_sizes_that_a_call_unifies_are_checked() -> None:
    x, w, b = draw(3, 4), draw(5, 4), draw(5)
    np.testing.assert_allclose(unified(x, w, b), x @ w.T + b, rtol=1e-4, atol=1e-5)
    with pytest.raises(PolycError, match="dimension 1 of W of linear has extent 4, and what is given for it has 7 there"):
        unified(x, draw(5, 7), b)
    kernel = unified.specialize()  # for all sizes
    np.testing.assert_allclose(kernel(x, w, b), x @ w.T + b, rtol=1e-4, atol=1e-5)
    with pytest.raises(PolycError, match="dimension 1 of W of linear has extent K"):
        kernel(x, draw(5, 7), b)


def test_unused_results_are_warned_of() -> None:
    def f(x: "f32[M, N]"):
        mean, var = moments(x)  # noqa: RUF059
        return mean

    with pytest.warns(polyc.PolycWarning, match="var, a result of moments, is not used"):
        operator = polyc.op(f)
    assert {t.base for t in operator.program.tensors} == {"x", "s", "mean"}


@pytest.mark.parametrize("operator", [network, normalized, four_times, crossed, windows, mixed])
def test_calls_agree_with_the_reference_interpreter(operator: polyc.Operator) -> None:
    sizes = dict.fromkeys(operator.program.sizes, 6) | {"K": 3}
    inputs = {
        p: draw(*(evaluate(e, sizes) for e in operator.program.tensor(p).shape or ())) for p in operator.program.parameters
    }
    expected = interpret(operator.program, inputs)
    got = operator(*inputs.values())
    np.testing.assert_allclose(got, expected[operator.program.returns[0].name], rtol=1e-4, atol=1e-5)
