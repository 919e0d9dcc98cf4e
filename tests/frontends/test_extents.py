"""Extents of assigned tensors: given to calls, and asked for in a text, where they are no affine functions of sizes as well."""

# ruff: noqa: F821

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError, RangeError
from polyc.frontends.core.extents import infer_intervals
from polyc.frontends.tc import read_tc
from polyc.ir.expr import evaluate, int_const
from polyc.ir.program import specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.poly.describe import print_expr
from polyc.poly.infer import infer_ranges
from tests.frontends.python.evaluate import errors_of, run, run_body

rng = np.random.default_rng(39)
LINEAR = "def linear(float(M,K) X, float(N,K) W) -> (Y) { Y(m,n) +=! X(m,k) * W(n,k) }"


BODIES = [
    "T(n, h * W + w) = x(n,h,w)",
    "T((n * H + h) * W + w) = x(n,h,w)",
    "T(h * W + w + 5) = x(0,h,w)",
    "T(h * W + w) = x(0,h,w) where h in 1:H, w in 0:W",
    "T(n * N - h * W) +=! x(n,h,w)",
    "T(h * W + w) = x(0,h,w)  T(H * W + h * W + w) = x(1,h,w)",
    "c(h,w) = x(0,h,w) + x(0,h+2,w+1)  T(h * c.1 + w) = c(h,w)",
    "T(h * W + w) +=! x(n,h,w)  U(v * N + n) = T(v) * x(n,0,0)",
    "T(h * (N - H)) +=! x(n,h,w)",
    "T(h * W + w) = x(0,h,w) + T((h - 1) * W + w) where h in 1:H, w in 0:W  T(w) = x(0,0,w) where w in 0:W",
]


@pytest.mark.parametrize("body", BODIES)
def test_joined_dimensions_extend_as_range_inference_finds_for_numbers(body: str) -> None:
    (program,) = read_tc(f"def f(float(N,H,W) x) -> (T) {{ {body} }}")
    found, n_compared = infer_intervals(program), 0
    for sizes in ({"N": 3, "H": 4, "W": 5}, {"N": 4, "H": 3, "W": 2}, {"N": 2, "H": 3, "W": 1}):
        numbers = define_sizes(specialize_sizes(program, {name: int_const(n) for name, n in sizes.items()}))
        try:
            ranges = infer_ranges(numbers)
        except RangeError:  # for these sizes elements are written twice, or never, which has nothing to do with extents
            continue
        n_compared += 1
        for name, dims in ranges.tensors.items():
            expected = [(evaluate(i.lower, sizes), evaluate(i.extent, sizes)) for i in dims]
            assert [(evaluate(i.lower, sizes), evaluate(i.extent, sizes)) for i in found[name]] == expected, (name, sizes)
    assert n_compared


def test_extents_are_polynomials_of_sizes() -> None:
    for body, expected in ((BODIES[0], "H*W"), (BODIES[1], "H*N*W"), (BODIES[5], "2*H*W")):
        (program,) = read_tc(f"def f(float(N,H,W) x) -> (T) {{ {body} }}")
        assert (
            print_expr(infer_intervals(program)["T"][-1].extent).replace(" ", "").replace("(", "").replace(")", "") == expected
        )


def test_flattened_tensors_are_given_to_calls_of_text() -> None:
    network = f"""{LINEAR}
    def net(float(N,C,H,V) x, float(O,K) w, float(R,R) q) -> (y) {{
      c(n,k,h,v) +=! x(n,k,h+r,v+s) * q(r,s)
      f(n, (k * c.2 + h) * c.3 + v) = c(n,k,h,v)
      y = linear(f, w)
    }}"""
    op = polyc.compile(network, entry="net")
    x, q, w = (rng.random(shape, np.float32) for shape in ((2, 2, 5, 4), (2, 2), (3, 24)))
    c = sum(q[r, s] * x[:, :, r : r + 4, s : s + 3] for r in range(2) for s in range(2))
    np.testing.assert_allclose(op(x, w, q), c.reshape(2, -1) @ w.T, rtol=1e-5)
    with pytest.raises(PolycError, match="declared as 23, but index i1 runs from 0 to before 24"):
        op(x, w[:, 1:], q)


def linear(X, W):
    Y[m, n] += X[m, k] * W[n, k]
    return Y


def flatten(x):
    f[n, h * x.shape[2] + v] = x[n, h, v]
    return f


def test_flattened_tensors_are_given_to_calls_of_functions() -> None:
    @polyc.op
    def net(x: "f32[N, H, V]", w: "f32[O, K]"):
        f = flatten(x)
        y = linear(f, w)
        z[n, o] = y[n, o] / f.shape[1]
        return z

    x, w = rng.random((2, 3, 4), np.float32), rng.random((5, 12), np.float32)
    np.testing.assert_allclose(net(x, w), x.reshape(2, 12) @ w.T / 12, rtol=1e-5)


def test_assigned_tensors_have_shapes() -> None:
    body = """
    q[i, j] += X[i + k, j] * Y[k]
    n, m = q.shape
    mean = 0.0
    mean += q[i, j] / q.size
    with polyc.where(0 <= i < len(q) - 1):
        d[i, j] = q[i + 1, j] - q[i, j] + q.ndim + q.T.shape[0]
    R[i] = mean + d[i, 0] + n * m
    """
    x, y = rng.random((9, 4)), rng.random(3)
    q = np.array([[sum(x[i + k, j] * y[k] for k in range(3)) for j in range(4)] for i in range(7)])
    np.testing.assert_allclose(run_body(body, x, y), q.mean() + np.diff(q[:, 0]) + 2 + 4 + 28)
    turned = (
        "def f(float(N) a, float(K) w) -> (O) { T(i) +=! a(i + k) * w(k)  O(i) = T(T.0 - 1 - i) / float(T.0) where i in 0:T.0 }"
    )
    op, a, w = polyc.compile(turned), rng.random(9, np.float32), rng.random(3, np.float32)
    np.testing.assert_allclose(op(a, w), np.correlate(a, w, "valid")[::-1] / 7, rtol=1e-5)


def test_a_shape_is_that_of_all_parts() -> None:
    joined = "q[i] = X[i]\nq[X.shape[0] + i] = X[i]\nR[i] = X[i] * q.shape[0]"
    np.testing.assert_array_equal(run_body(joined, np.arange(3.0)), [0, 6, 12])
    (error,) = errors_of("def f(x: 'f32[N]'):\n    q[0] = x[0]\n    s = q.shape[0]\n    q[i + 1] = x[i]\n    return q, s")
    assert error.code == "semantic-call-part" and "its extents are used there" in error.message


def test_extents_of_what_is_assigned_further_down_are_no_crash() -> None:
    source = "def f(x: 'f64[N]', L: 'f64[N, N]'):\n    with polyc.where(j < i):\n        s[i] += L[i, j] * y[j]\n"
    source += "    n = s.shape[0]\n    y[i] = x[i] - s[i]\n    return y"
    (error,) = errors_of(source)
    assert error.code == "unsupported-extent" and "extents of y" in error.message
    text = "def twice(float(N) v) -> (w) { w(i) = 2.0 * v(i) } def f(float(N) x, float(N,N) L) -> (y) {"
    text += " s(i) +=! L(i,j) * y(j) where j < i  z = twice(s)  y(i) = x(i) - s(i) + z(i) }"
    with pytest.raises(PolycError, match="extents of y are not known here: s is made of it") as caught:
        read_tc(text)
    assert caught.value.code == "unsupported-extent"


def test_shapes_in_functions_agree_with_the_interpreter() -> None:
    def f(x):
        q[i] = x[i + 2] - x[i]
        with polyc.where(0 <= i < q.shape[0]):
            r[i] = q[q.shape[0] - 1 - i] * len(q)
        return r

    x = rng.random(8)
    np.testing.assert_allclose(run(f, x), (x[2:] - x[:-2])[::-1] * 6)
