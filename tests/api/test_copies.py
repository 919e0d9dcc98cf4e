"""Operators that are copied and pickled."""

# ruff: noqa: F821, UP037
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from tests.negative.support import refuse


@polyc.op
def doubled(x: "f32[N]"):
    y[i] = 2 * x[i]
    return y


@polyc.op
def opened(x):
    y[i] = 2 * x[i]
    return y


X = np.arange(5, dtype=np.float32)
TEXT = "def f(float(N) x, float(N) b) -> (y) { y(i) = x(i) * 2.0 + b(i) }"


def test_copies_are_the_operator_itself():
    operator = polyc.compile(TEXT)
    operator(X, X)
    assert copy.copy(operator) is operator
    assert copy.deepcopy([operator])[0] is operator


def test_an_operator_of_a_module_is_pickled_by_name():
    opened(X)
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(opened)) is opened


def test_others_are_pickled_as_programs_with_what_is_bound():
    operator = polyc.compile(TEXT).bind(b=X)
    operator(X)
    again = pickle.loads(pickle.dumps(operator))
    assert again is not operator
    assert np.array_equal(again(X), 3 * X)
    assert repr(again) == repr(operator)


def test_an_einsum_is_pickled_by_its_subscripts():
    operator = polyc.einsum_operator("i,i->")
    operator(X, X)
    assert pickle.loads(pickle.dumps(operator))(X, X) == 30


def test_what_depends_on_each_call_is_refused_by_name():
    local = polyc.op("def local(x):\n    y[i] = 2 * x[i]\n    return y")
    with pytest.raises(PolycError, match="local cannot be pickled") as caught:
        pickle.dumps(local)
    assert caught.value.code == "argument-pickle"


@pytest.mark.parametrize("name", ["llvm", "GOMP_parallel", "memcpy", "free"])
def test_names_of_the_machinery_are_names_of_operators(name):
    operator = polyc.compile(f"def {name}(float(N, N) x) -> (y) {{ y(i, j) = exp(x(i, j)) }}")
    assert np.allclose(operator(np.ones((300, 300), np.float32)), np.e)


def test_kernels_are_copied_as_functions_are_and_cannot_be_pickled():
    kernel = polyc.compile(TEXT).specialize(X, X)
    assert copy.copy(kernel) is kernel and copy.deepcopy([kernel])[0] is kernel
    for value in (kernel, polyc.compile(TEXT).lower(X, X)):
        refuse(lambda value=value: pickle.dumps(value), "argument-pickle", "cannot be pickled")
