"""Whatever is passed, the answer is a result or a `PolycError`."""

# ruff: noqa: F821 (the bodies of operators use indices that Python never evaluates)
import itertools

import numpy as np
import pytest

import polyc

pytestmark = pytest.mark.usefixtures("lowered")

X = np.ones((2, 3), np.float32)


class Liar:
    """Says that it is an array, and is not."""

    shape = (2, 3)
    dtype = "float32"
    strides = (12, 4)

    def __array__(self, *arguments, **named):
        raise RuntimeError("no")


class Bottomless:
    def __len__(self):
        raise ValueError("no length")

    def __index__(self):
        raise OverflowError("too big")


STRANGE = [
    None,
    True,
    3,
    2**100,
    -(2**70),
    1.5,
    float("nan"),
    1j,
    "text",
    b"bytes",
    [],
    [[]],
    [[1, 2, 3], [4, 5, 6]],
    [None],
    ["a"],
    [[1], [2, 3]],
    {},
    {"Y": None},
    {1: 2},
    (X,),
    (X, X),
    (None,),
    set(),
    object(),
    Liar(),
    Bottomless(),
    np.float32(1),
    np.float64(1),
    np.datetime64("2020-01-01"),
    np.array(None),
    np.array("text"),
    np.zeros((2, 3), [("a", "f4")]),
    np.zeros((2, 3), np.float16),
    np.zeros((2, 3), ">f4"),
    np.ma.masked_array(X),
    np.zeros((2, 3, 4), np.float32)[..., 0],
    np.zeros((0, 3), np.float32),
    np.zeros((1,) * 20, np.float32),
    memoryview(b"abc"),
    memoryview(X),
    polyc.f32,
    int,
    lambda: 0,
]


@polyc.op
def scaled(X: "f32[M, N]", s: "f32", *, factor=2.0):
    Y[m, n] = X[m, n] * s * factor
    return Y


@polyc.op
def open_types(A):
    Y[i] = A[i] + A[i]
    return Y


def outcome(call) -> str:
    try:
        call()
    except polyc.PolycError as error:
        assert all(d.code and d.message for d in error.diagnostics)
        return error.code
    return "result"


@pytest.mark.parametrize("position", range(len(STRANGE)))
def test_strange_values_everywhere(position):
    value = STRANGE[position]
    codes = {
        outcome(call)
        for call in (
            lambda: scaled(value, 1.0),
            lambda: scaled(X, value),
            lambda: scaled(X, 1.0, out=value),
            lambda: scaled(X, 1.0, M=value),
            lambda: scaled(X, 1.0, factor=value),
            lambda: open_types(value),
            lambda: polyc.einsum("i,j->ij", value, X[0]),
            lambda: polyc.einsum("ij->i", X, out=value),
            lambda: scaled.specialize(value, 1.0),
            lambda: scaled.lower(M=value),
            lambda: open_types.specialize(value),
            lambda: polyc.compile(value) if not callable(value) else None,
            lambda: polyc.einsum(value, X),
            lambda: polyc.set_num_threads(value) if type(value) is not int else None,
        )
    }
    assert codes


def test_strange_pairs_of_type_and_shape():
    for dtype, shape in itertools.product(["f32", "f99", None, 3, polyc.f32, np.float32], [(2, 3), None, (-1, 3), ("a",), 5]):
        outcome(lambda d=dtype, s=shape: scaled.specialize((d, s), 1.0))


def test_option_values():
    for name, value in (("target", 3), ("scheduler", None), ("reassociate", "yes"), ("nothing", 1)):
        outcome(lambda n=name, v=value: polyc.compile("def f(float(N) X) -> (Y) { Y(i) = X(i) }", **{n: v}))
    outcome(lambda: polyc.compile("def f(float(N) X) -> (Y) { Y(i) = X(i) }", sizes={"N": "x"}))
    outcome(lambda: polyc.compile("def f(float(N) X) -> (Y) { Y(i) = X(i) }", entry=3))
