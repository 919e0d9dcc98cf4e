# ruff: noqa: F821
"""Python numbers as arguments adapt to what they meet, on every way of a call; scalars with a type of their own do not."""

import numpy as np
import pytest

import polyc

ARRAYS = [np.arange(5).astype(t) for t in ("bool", "int8", "uint8", "int32", "float16", "float32", "float64", "complex64")]


@polyc.op
def axpy(a, x, y):
    z[i] = a * x[i] + y[i]
    return z


@polyc.op
def scale(a, x):
    y[i] = a * x[i]
    return y


@polyc.op
def less(a, x):
    y[i] = x[i] < a
    return y


@pytest.mark.parametrize("a", [2, 2.5, True, 1 + 2j, np.float64(2), np.float32(1.5), np.int8(3)], ids=repr)
@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: x.dtype.name)
def test_result_has_numpys_type_at_every_call(a, x):
    expected = a * x + x
    for _ in range(3):  # compiled, planned, found by compiled code
        found = axpy(a, x, x)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_weak_and_strong_numbers_do_not_share_plans():
    x = np.ones(4, np.float32)
    found = [scale(a, x).dtype.name for _ in range(4) for a in (2.0, np.float64(2), np.array(2.0), np.float32(2), 2)]
    assert found == ["float32", "float64", "float64", "float32", "float32"] * 4


@pytest.mark.parametrize("value", [128, -129, 300, 2**63, 2**80, -(2**80)])
def test_integer_that_does_not_fit_raises_after_ones_that_do(value):
    x = np.arange(5, dtype=np.int8)
    for good in (1, 127, -128, 5):
        np.testing.assert_array_equal(scale(good, x), good * x)
    for _ in range(3):
        with pytest.raises(OverflowError) as caught:
            scale(value, x)
        assert caught.value.code == "argument-number"
    np.testing.assert_array_equal(scale(300, x.astype(np.int32)), 300 * x.astype(np.int32))
    np.testing.assert_array_equal(scale(300, x.astype(np.float32)), 300 * x.astype(np.float32))


def test_sum_of_integers_that_does_not_fit_raises():
    @polyc.op
    def shifted(a, b, x):
        t = a + b
        y[i] = x[i] + t * 2
        return y

    x = np.arange(5, dtype=np.uint8)
    for _ in range(3):
        np.testing.assert_array_equal(shifted(10, 20, x), x + 60)
        with pytest.raises(OverflowError, match=r"260 \(at a=100, b=30\) does not fit u8"):
            shifted(100, 30, x)


def test_comparison_with_an_integer_beyond_the_type_is_exact():
    for x in (np.array([-128, 0, 127], np.int8), np.array([0, 7, 255], np.uint8), np.array([-5, 5, 2**31 - 1], np.int32)):
        for a in (-(2**40), -129, 5, 127, 300, 2**40):
            np.testing.assert_array_equal(less(a, x), [int(v) < a for v in x])


def test_unsigned_integers_beyond_int64_adapt():
    x = np.arange(4, dtype=np.uint64)
    np.testing.assert_array_equal(scale(2**63 + 1, x), (2**63 + 1) * x)
    assert scale(2**63, x.astype(np.float32)).dtype == np.float32


def test_python_booleans_add_up_as_numbers():
    @polyc.op
    def total(a, b):
        s = a + b
        return s

    assert total(True, True) == 2 and total(True, True).dtype == np.int64
    assert total(np.True_, np.True_).dtype == np.bool_
    assert total(1, 0.5) == 1.5


def test_numbers_passed_on_to_other_operators_stay_weak():
    @polyc.op
    def outer(a, x):
        t = a * 2
        y = scale(t, x)
        z = scale(3, x)
        w = scale(a + 1, x)
        return y, z, w

    for x in (np.ones(3, np.float32), np.ones(3, np.int8)):
        a = 2 if x.dtype == np.int8 else 2.5
        for found, expected in zip(outer(a, x), (a * 2 * x, 3 * x, (a + 1) * x), strict=True):
            assert found.dtype == expected.dtype == x.dtype
            np.testing.assert_array_equal(found, expected)
    assert [r.dtype.name for r in outer(np.float64(2), np.ones(3, np.float32))] == ["float64", "float32", "float64"]


def test_result_of_a_function_of_numbers_is_a_number():
    @polyc.op
    def add(a, b):
        c = a + b
        return c

    @polyc.op
    def times(a, b, x):
        c = add(a, b)
        y[i] = c * x[i]
        return y

    assert times(1.0, 2, np.ones(3, np.float32)).dtype == np.float32
    assert times(np.float64(1), 2, np.ones(3, np.float32)).dtype == np.float64


def test_bound_named_and_described_numbers_are_weak():
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    bound = scale.bind(a=2.5)
    for _ in range(3):
        np.testing.assert_array_equal(bound(x), np.float32(2.5) * x)
        assert scale(a=2.5, x=x, out=out) is out
        assert bound(x).dtype == scale(a=2.5, x=x).dtype == np.float32
        assert scale(2.5, [0.5, 1]).dtype == np.float64
    assert scale.bind(a=np.float64(2.5))(x).dtype == np.float64
    assert "y: f32" in scale.lower(2.5, x).as_text("program") and "y: f64" in scale.lower(("f8", ()), x).as_text("program")
    assert polyc.op(scale.__wrapped__, verify=True)(2.5, x).dtype == np.float32


def test_einsum_takes_numbers_for_arrays_as_numpy_does():
    x = np.ones(3, np.float32)
    assert polyc.einsum(",i->i", 2.0, x).dtype == np.einsum(",i->i", 2.0, x).dtype == np.float64
