"""``+=`` inside of recurrences: a sum where the elements have no values yet, else an error that shows the recurrence."""

# ruff: noqa: F821

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from tests.frontends.python.evaluate import errors_of, run

rng = np.random.default_rng(7)


def test_adding_to_parts_that_nothing_has_assigned_starts_from_zero() -> None:
    def f(x: "f64[T, N]", W: "f64[N, N]"):
        with polyc.where(0 <= i < N):
            H[0, i] = x[0, i]
        with polyc.where(1 <= t < T):
            H[t, i] += W[i, j] * H[t - 1, j]
        p[0] = x[0, 0]
        with polyc.where(1 <= t < T):
            p[t] *= p[t - 1] * x[t, i]
        return H, p

    x, w = rng.random((4, 3)), rng.random((3, 3))
    expected, products = [x[0]], [x[0, 0]]
    for t in range(1, 4):
        expected.append(w @ expected[-1])
        products.append(np.prod(products[-1] * x[t]))
    H, p = run(f, x, w)
    np.testing.assert_allclose(H, expected)
    np.testing.assert_allclose(p, products)
    np.testing.assert_allclose(polyc.op(f)(x, w)[0], expected)


def test_parts_that_overlap_are_no_recurrence() -> None:
    source = """def f(L: 'f64[4, 4]', b: 'f64[4]'):
    with polyc.where(0 <= i < 4):
        x[i] = b[i]
    with polyc.where(0 <= i < 4, 0 <= j < i):
        x[i] -= L[i, j] * x[j]
    return x"""
    with pytest.raises(PolycError) as caught:
        polyc.op(source)(np.eye(4), np.ones(4))
    (error,) = caught.value.diagnostics
    assert error.code == "range-written-twice" and "x[i] = b[i] - sum(L[i, j] * x[j])" in (error.help or "")


def test_subtracting_from_whole_tensors_shows_the_recurrence() -> None:
    source = """def f(L: 'f64[N, N]', b: 'f64[N]'):
        x[i] = b[i]
        with polyc.where(j < i):
            x[i] -= L[i, j] * x[j]
        return x"""
    (error,) = errors_of(source)
    assert error.code == "unsupported-recurrence" and "x[i] = b[i] - sum(L[i, j] * x[j])" in (error.help or "")


def test_text_says_which_operator_starts_from_zero() -> None:
    text = "def f(float(T,N) x, float(N,N) W) -> (H) { H(0,i) = x(0,i)  H(t,i) += W(i,j) * H(t-1,j) where t in 1:T }"
    with pytest.raises(PolycError, match="\\+=! starts from zero, in a recurrence, too"):
        polyc.compile(text)(np.ones((4, 3), np.float32), np.ones((3, 3), np.float32))
    fixed = polyc.compile(text.replace("+=", "+=!"))
    np.testing.assert_allclose(fixed(np.ones((4, 3), np.float32), np.ones((3, 3), np.float32))[:, 0], [1, 3, 9, 27])
