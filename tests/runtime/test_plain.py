"""Numbers, lists, tensors and `out` in every form take the fast way, with the results and errors of the way with all checks."""

# ruff: noqa: F821 (the bodies of operators use indices that Python never evaluates)
import itertools
import math

import numpy as np
import pytest

import polyc
from polyc import ArgumentError, ArgumentTypeError, PolycError
from polyc.api import operator
from polyc.ir.types import DTYPES
from polyc.runtime.arrays import convert_input
from polyc.runtime.kernel import Kernel
from polyc.runtime.plain import PlainArguments
from polyc.runtime.sizes import Formal

POWERS = [2**n + d for n in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64, 1030) for d in (-1, 0, 1)]
LARGEST = [float(np.finfo(t).max) for t in (np.float16, np.float32, np.float64)]
FLOATS = [
    0.0,
    0.1,
    1.0,
    65519.0,
    65520.0,
    *LARGEST,
    *[np.nextafter(x, math.inf).item() for x in LARGEST[:2]],
    math.inf,
    1e-50,
    5e-324,
]
NUMBERS = [
    *[sign * n for n in (0, *POWERS) for sign in (1, -1)],
    *[sign * x for x in FLOATS for sign in (1.0, -1.0)],
    math.nan,
    True,
    False,
    1j,
    complex(-0.0, math.inf),
    complex(math.nan, 1e300),
]
GENERIC = [t(1) for t in (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128)]

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@polyc.op
def affine(a: "f32", n: "i8", X: "f32[M, N]"):
    Y[i, j] = a * X[i, j] + n
    return Y


@polyc.op
def both(X: "f32[M, N]"):
    Y[i, j] = 2 * X[i, j]
    Z[i] += X[i, j]
    return Y, Z


@polyc.op
def shifted(X: "f32[M, N]", *, by=2.0):
    Y[i, j] = X[i, j] + by
    return Y


@pytest.fixture
def only_fast(monkeypatch):
    """Calls that take the way with all checks fail from the moment this function is called."""

    def refuse(*arguments, **named):
        raise AssertionError("the way with all checks was taken")

    def start():
        monkeypatch.setattr(Kernel, "run", refuse)
        monkeypatch.setattr(operator, "convert_inputs", refuse)

    return start


@pytest.mark.parametrize("name", [*DTYPES, None])
def test_a_number_becomes_the_array_that_all_checks_make_of_it_or_none(name):
    dtype = None if name is None else DTYPES[name]
    arguments, is_taken = PlainArguments([Formal("a", dtype, ())], ()), False
    for value in (*NUMBERS, *GENERIC):
        with np.errstate(all="raise"):
            found = arguments.inputs((value,))
        try:
            expected = convert_input(value, "a", dtype)
        except PolycError:
            # A NumPy scalar of another type has no plan; a number would be taken.
            assert found is None or isinstance(value, np.generic), value
            continue
        if found is not None:
            assert found[0].dtype == expected.dtype and found[0].shape == (), value
            assert found[0].tobytes() == expected.tobytes(), value
            is_taken |= not isinstance(value, np.generic)
    assert is_taken or name == "bf16"


def test_scalars_given_as_numbers_need_no_checks_in_later_calls(only_fast):
    ways = [
        lambda: affine(1.5, 3, X),
        lambda: affine(np.float32(1.5), np.int8(3), X),
        lambda: affine(1.5, np.array(3, np.int8), X),
        lambda: affine(a=1.5, n=3, X=X),
        lambda: affine(X=X, n=3, a=1.5),
        lambda: affine(1.5, 3, X.view(np.recarray)),
        lambda: affine(1.5, 3, memoryview(X)),
    ]
    for _, way in itertools.product(range(3), ways):
        way()
    only_fast()
    for way in ways:
        np.testing.assert_array_equal(way(), np.float32(1.5) * X + 3)
    np.testing.assert_array_equal(affine(True, -128, X), X - 128)
    assert np.isinf(affine(math.inf, 0, X)[1]).all() and np.isnan(affine(math.nan, 0, X)).all()


def test_numbers_that_a_type_cannot_hold_are_the_same_errors_in_every_call():
    wrong = [
        (1e39, 3),
        (1j, 3),
        (2**24 + 1, 3),
        (10**400, 3),
        (1.5, 128),
        (1.5, 3.0),
        (1.5, 2**70),
        (None, 3),
        ("1", 3),
        ([1.5], 3),
    ]
    wrong += [(np.float64(1.5), 3), (1.5, np.int16(3)), (X, 3), (1.5, np.zeros(1, np.int8))]

    def outcome(a, n):
        with pytest.raises((ArgumentError, ArgumentTypeError)) as caught:
            affine(a, n, X)
        return str(caught.value)

    before = [outcome(a, n) for a, n in wrong]
    for _ in range(3):
        affine(1.5, 3, X)
    assert [outcome(a, n) for a, n in wrong] == before
    assert "float64" in before[10] and "cannot hold" in before[0] and "cannot hold" in before[4]


def test_open_types_follow_the_number():
    @polyc.op
    def scaled(a, x):
        y[i] = a * x[i]
        return y

    x = np.arange(3)
    for a in (2, 2.5, 2j, np.float32(2.5), True, 2**40):
        for _ in range(4):
            y, expected = scaled(a, x), np.asarray(a) * x
            assert y.dtype == expected.dtype
            np.testing.assert_array_equal(y, expected)


def test_bound_operators_and_kernels_take_numbers(only_fast):
    bound = affine.bind(n=2)
    kernel = affine.specialize(1.5, 3, X)
    calls = [lambda: bound(1.5, X), lambda: kernel(1.5, 2, X), lambda: kernel(np.float32(1.5), 2, X)]
    for _, call in itertools.product(range(3), calls):
        call()
    only_fast()
    for call in calls:
        np.testing.assert_array_equal(call(), np.float32(1.5) * X + 2)


@pytest.mark.parametrize("kind", ["operator", "kernel"])
def test_lists_and_every_form_of_out_need_no_checks_in_later_calls(kind, only_fast):
    call = both if kind == "operator" else both.specialize(X)
    y, z = np.zeros_like(X), np.zeros(2, np.float32)
    forms = [(y, z), [y, z], {"Y": y, "Z": z}, {"Z": z, "Y": y}, (y.view(np.recarray), z)]
    for _, out in itertools.product(range(3), forms):
        call(X, out=out)
    only_fast()
    for out in forms:
        y[...], z[...] = 0, 0
        results = call(X, out=out)
        given = [out["Y"], out["Z"]] if isinstance(out, dict) else list(out)
        assert type(results) is tuple and all(r is g for r, g in zip(results, given, strict=True))
        np.testing.assert_array_equal(y, 2 * X)
        np.testing.assert_array_equal(z, X.sum(axis=1))


def test_wrong_outs_are_refused_after_right_ones():
    x = np.zeros((4, 3), np.float32)
    for out in ([X.copy(), np.zeros(2, np.float32)], {"Y": X.copy(), "Z": np.zeros(2, np.float32)}):
        for _ in range(3):
            both(X, out=out)
    y, z = X.copy(), np.zeros(2, np.float32)
    frozen = z.copy()
    frozen.flags.writeable = False
    wrong = [[y], [y, z, z], [y, frozen], [y, [0, 0]], [y, y[:, 0]], {"Y": y, "W": z}, {"Y": y, "Z": np.ma.masked_array(z)}, []]
    for out in wrong:
        with pytest.raises(PolycError):
            both(X, out=out)
    for _ in range(3):
        both(x[:2], out=[x[2:], z])
    with pytest.raises(PolycError, match="memory"):
        both(x[:2], out=[x[1:3], z])


def test_tensors_are_read_and_written_in_place_without_checks_in_later_calls(only_fast):
    torch = pytest.importorskip("torch")
    x, n = torch.from_numpy(X.copy()), torch.tensor(3, dtype=torch.int8)
    y = torch.zeros(2, 3)
    for _ in range(4):
        affine(1.5, n, x, out=y)
        affine(1.5, 3, x)
    with pytest.raises(PolycError, match="float64"):
        affine(1.5, n, x.double())
    with pytest.raises(PolycError, match="out for Y"):
        affine(1.5, n, x, out=y.double())
    with pytest.raises(PolycError, match="gradient"):
        affine(1.5, n, torch.ones(2, 3, requires_grad=True))
    only_fast()
    y.zero_()
    assert affine(1.5, n, x, out=y) is y
    np.testing.assert_array_equal(y.numpy(), np.float32(1.5) * X + 3)
    np.testing.assert_array_equal(affine(1.5, 3, x), y.numpy())


def test_constants_and_sizes_by_keyword_need_no_checks_in_later_calls(only_fast):
    for _, by in itertools.product(range(3), (1.0, 5.0)):
        shifted(X, by=by), shifted(X), shifted(X, M=2), shifted(X.tolist(), by=by, N=3)
    with pytest.raises(PolycError, match="M"):
        shifted(X, M=3)
    only_fast()
    out = np.zeros_like(X)
    for by in (5.0, 1.0, 5.0):
        np.testing.assert_array_equal(shifted(X, by=by), X + by)
        np.testing.assert_array_equal(shifted(X.tolist(), by=by, N=3), X + by)
        np.testing.assert_array_equal(shifted(X), X + 2)
        np.testing.assert_array_equal(shifted(X, M=2), X + 2)
    with pytest.raises(AssertionError, match="all checks"):
        shifted(X, by=7.0)
    with pytest.raises(AssertionError, match="all checks"):
        shifted(X, M=3)
    with pytest.raises(AssertionError, match="all checks"):
        shifted(X, by=1.0, out=out)


def test_a_forgotten_kernel_has_no_plans_under_keywords_either():
    for _ in range(3):
        shifted(X, by=9.0)
    kernel = shifted.specialize(X, by=9.0)
    tables = shifted._plans._named.values()
    assert any(p.keepalive is kernel for t in tables for p in t._plans.values())
    shifted._plans.forget(kernel)
    assert not any(p.keepalive is kernel for t in tables for p in t._plans.values())
    np.testing.assert_array_equal(shifted(X, by=9.0), X + 9)


def test_arrays_that_are_not_aligned_are_copied_and_need_no_other_checks(only_fast):
    raw = np.zeros(25, np.uint8)
    x = raw[1:].view(np.float32).reshape(2, 3)
    x[...] = X
    for _ in range(3):
        shifted(x)
    only_fast()
    np.testing.assert_array_equal(shifted(x), X + 2)
