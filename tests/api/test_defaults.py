# ruff: noqa: F821
"""Scalar parameters of decorated functions with defaults, declared and not."""

import inspect
import pickle

import numpy as np
import pytest

import polyc
from polyc.diagnostics import ArgumentError, SemanticError

X = np.arange(1, 5, dtype=np.float32)


@polyc.op
def norm(x: "f32[N]", eps: "f32" = 0.5, n: "i32" = 3):
    y[i] = x[i] / (eps + n)
    return y


@polyc.op
def leaky(x, slope=0.5):
    y[i] = x[i] if x[i] > 0 else slope * x[i]
    return y


def test_left_out_scalars_have_their_defaults_at_every_call():
    for _ in range(3):
        for found, divisor in (
            (norm(X), 3.5),
            (norm(x=X), 3.5),
            (norm(X, 1.0), 4),
            (norm(X, eps=1), 4),
            (norm(X, n=1), 1.5),
            (norm(X, n=0, eps=2), 2),
            (norm(X, 2.0, 2), 4),
        ):
            np.testing.assert_array_equal(found, X / np.float64(divisor))  # f32 beside i32 is f64
    out = np.zeros(4)
    assert norm(X, out=out) is out and norm(X, n=1, out=(out,)) is out
    np.testing.assert_array_equal(out, X / np.float64(1.5))


def test_default_without_a_type_is_weak():
    for _ in range(3):
        assert leaky(-X).dtype == np.float32
        assert leaky(-X.astype(np.float64)).dtype == leaky(-X, np.float64(2)).dtype == np.float64
    np.testing.assert_array_equal(leaky(-X), -X / 2)
    np.testing.assert_array_equal(leaky.bind(slope=2.0)(-X), -X * 2)
    np.testing.assert_array_equal(leaky.bind(x=-X)(), -X / 2)


def test_calls_between_operators_use_defaults():
    @polyc.op
    def outer(x, b=2):
        t = leaky(x)
        y = norm(t)
        z = leaky(t, b)
        return y, z

    y, z = outer(-X)
    np.testing.assert_array_equal(y, -X / 2 / np.float64(3.5))
    np.testing.assert_array_equal(z, -X)
    assert z.dtype == np.float32


def test_signature_and_representation_show_defaults():
    assert str(inspect.signature(norm)) == "(x: 'f32[N]', eps: 'f32' = 0.5, n: 'i32' = 3, *, out=None, N=None)"
    assert repr(norm) == "<polyc operator norm(x: f32[N], eps: f32 = 0.5, n: i32 = 3) -> (y)>"
    text = polyc.op('def f(x: "f32[N]", a: "f32" = 2.0):\n    y[i] = a * x[i]\n    return y\n')
    assert str(inspect.signature(text)) == "(x, a=2.0, *, out=None, N=None)"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(text))(X), 2 * X)


def test_described_and_measured_calls_use_defaults():
    assert "f32" in norm.explain(X)
    assert norm.specialize(X) is norm.specialize(X, 0.5, 3)
    assert norm.measure(X).one_thread > 0


@pytest.mark.parametrize(
    "parameters, message",
    [
        ("x: 'f32[N]' = 0", "x is an array, and has no default"),
        ("x, a=None", "the default of a is None"),
        ("x, a='1'", "is no number"),
        ("x, a: 'i8' = 300", "a is i8, which does not hold its default 300"),
        ("x, a: 'i8' = 1.5", "does not hold its default 1.5"),
        ("x, a: 'f32' = 1j", "does not hold its default"),
    ],
)
def test_default_that_is_no_scalar_is_refused(parameters, message):
    with pytest.raises(SemanticError, match=message):
        polyc.op(f"def f({parameters}):\n    y[i] = x[i]\n    return y\n")


@pytest.mark.parametrize(
    "arguments, named, message",
    [
        ((), {}, "x missing"),
        ((X,), {"foo": 1}, "foo"),
        ((X, 1, 2, 3), {}, "but got 4"),
        ((X, 1), {"eps": 2}, "by position and"),
    ],
)
def test_wrong_calls_are_refused_as_without_defaults(arguments, named, message):
    with pytest.raises(ArgumentError, match=message):
        norm(*arguments, **named)
