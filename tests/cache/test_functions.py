"""Decorated functions are read once, and again where anything that they were read with means something else."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import polyc

X = np.arange(12, dtype=np.float32).reshape(3, 4)

TEXT = """
import math
import numpy as np
import polyc
from {other} import shifted
import {other} as other

SCALE = 2.0
ROWS = "f32[N, D]"
i = polyc.indices("r")[0]

def scaled(x, factor=3.0):
    return SCALE * factor * x

def numbers(X):
    S[n] += scaled(X[n, d]) + shifted(X[n, d]) + math.pi * other.twice(X[n, d])
    return S

def annotated(X: ROWS, *, power=2):
    S[n] += X[n, d] ** power
    return S

@polyc.op
def inner(X):
    T[a, b] = X[a, b] + 1
    return T

def calling(X):
    H = inner(X)
    S[n] += H[n, d]
    return S

@polyc.monoid(identity=0.0)
def plus(a, b):
    return a + b

def combining(X):
    S[n] = plus(X[n, d])
    return S

def make(offset):
    def enclosed(x):
        return x + offset
    def closing(X):
        S[n] += enclosed(X[n, d])
        return S
    return closing

def indexed(X):
    S[n] += X[n, i]
    return S

def shift_by(offset):
    def shift(x):
        return x + offset
    return shift

one = other_one = shift_by(1.0)

def aliases(X):
    S[n] += one(X[n, d]) + 10 * other_one(X[n, d])
    return S

def defaults(X, factor=np.float64(2.5)):
    S[n] += X[n, d] * factor
    return S
"""
OTHER = """
OFFSET = 1.0

def shifted(x):
    return x + OFFSET

def twice(x):
    return 2 * x
"""


def load(directory: Path, name: str, text: str) -> ModuleType:
    """A module of that text, as a process has it that begins now."""
    path = directory / f"{name}.py"
    path.write_text(text)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(__import__("sys").modules, "polyc_test_other", load(tmp_path, "polyc_test_other", OTHER))
    return load(tmp_path, "polyc_test_functions", TEXT.format(other="polyc_test_other"))


def plus_one(x):
    return x + 1


def add_two(X):
    T[a, b] = X[a, b] + 2  # noqa: F821
    return T  # noqa: F821


def largest(a, b):
    return max(a, b)


class Rounded(float):
    def __repr__(self) -> str:
        return f"{float(self):.0f}"


def scaled_by(scale: float) -> np.ndarray:
    return (3 * scale * X + X + 1 + np.pi * 2 * X).sum(1)


class Unwilling:
    def __getattr__(self, name: str) -> None:
        raise RuntimeError(name)


Change = Callable[[ModuleType], Any]
CHANGES: dict[str, tuple[str, Change, Callable[[ModuleType], np.ndarray]]] = {
    "a number": ("numbers", lambda m: vars(m).update(SCALE=5.0), lambda m: (15 * X + X + 1 + np.pi * 2 * X).sum(1)),
    "a default": (
        "numbers",
        lambda m: setattr(m.scaled, "__defaults__", (1.0,)),
        lambda m: (2 * X + X + 1 + np.pi * 2 * X).sum(1),
    ),
    "a number of another module": (
        "numbers",
        lambda m: vars(m.other).update(OFFSET=7.0) or m.shifted.__globals__.update(OFFSET=7.0),
        lambda m: (6 * X + X + 7 + np.pi * 2 * X).sum(1),
    ),
    "a function of another module": (
        "numbers",
        lambda m: vars(m.other).update(twice=plus_one),
        lambda m: (6 * X + X + 1 + np.pi * (X + 1)).sum(1),
    ),
    "a function": ("numbers", lambda m: vars(m).update(scaled=plus_one), lambda m: (X + 1 + X + 1 + np.pi * 2 * X).sum(1)),
    "an annotation": ("annotated", lambda m: vars(m).update(ROWS="f64[N, D]"), lambda m: (X.astype(np.float64) ** 2).sum(1)),
    "a constant": ("annotated", lambda m: m.annotated.__kwdefaults__.update(power=3), lambda m: (X**3).sum(1)),
    "a called operator": ("calling", lambda m: vars(m).update(inner=polyc.op(add_two)), lambda m: (X + 2).sum(1)),
    "what a monoid does": (
        "combining",
        lambda m: vars(m).update(plus=polyc.monoid(identity=0.0)(largest)),
        lambda m: X.max(1),
    ),
    "a second name of a function": (
        "aliases",
        lambda m: vars(m).update(other_one=m.shift_by(2.0)),
        lambda m: (X + 1 + 10 * (X + 2)).sum(1),
    ),
    "a number that shows less than it is": (
        "numbers",
        lambda m: vars(m).update(SCALE=Rounded(2.25)),
        lambda m: scaled_by(2.25),
    ),
    "an index": ("indexed", lambda m: vars(m).update(i=polyc.indices("n")[0]), lambda m: np.diag(X[:, :3])),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_function_is_read_again_when_names_mean_something_else(what: str, module: ModuleType, calls: list[str]) -> None:
    name, change, expected = CHANGES[what]
    argument = X
    first = polyc.op(getattr(module, name))(argument)
    assert {"read_function", "read_signature"} <= set(calls)
    calls.clear()
    np.testing.assert_array_equal(polyc.op(getattr(module, name))(argument), first)
    assert calls == [], "nothing has changed"
    change(module)
    if what == "an annotation":
        argument = X.astype(np.float64)
    found = polyc.op(getattr(module, name))(argument)
    np.testing.assert_allclose(found, expected(module), rtol=1e-5)
    assert "read_function" in calls and found.dtype == expected(module).dtype
    calls.clear()
    np.testing.assert_array_equal(polyc.op(getattr(module, name))(argument), found)
    assert calls == []


def test_a_function_sees_the_values_that_enclose_it(module: ModuleType, calls: list[str]) -> None:
    for offset in (1.0, 2.0, 2.0):
        calls.clear()
        np.testing.assert_allclose(polyc.op(module.make(offset))(X), (X + offset).sum(1), rtol=1e-6)
    assert "read_function" not in calls


def test_a_changed_file_is_read_again(module: ModuleType, tmp_path: Path, calls: list[str]) -> None:
    polyc.op(module.calling)(X)
    calls.clear()
    text = TEXT.format(other="polyc_test_other")
    again = load(tmp_path, "polyc_test_functions", text)
    polyc.op(again.calling)(X)
    assert calls == []
    other = load(tmp_path, "polyc_test_functions", text.replace("X[a, b] + 1", "X[a, b] * 3"))
    np.testing.assert_allclose(polyc.op(other.calling)(X), (X * 3).sum(1), rtol=1e-6)
    with pytest.raises(polyc.SemanticError, match="changed after the function was defined"):
        polyc.op(again.inner.__wrapped__)(X)  # of a file that says something else now


def test_what_a_process_cannot_describe_is_read_each_time(module: ModuleType, calls: list[str]) -> None:
    module.inner = polyc.compile("def inner(float(N, D) X) -> (T) { T(n, d) = X(n, d) + 1.0 }")
    for _ in range(2):
        calls.clear()
        np.testing.assert_allclose(polyc.op(module.calling)(X), (X + 1).sum(1), rtol=1e-6)
        assert "read_function" in calls


def test_a_number_of_a_class_of_its_own_counts_as_a_whole(module: ModuleType) -> None:
    for scale in (2.0, 2.25, 2.0):
        module.SCALE = Rounded(scale)
        np.testing.assert_allclose(polyc.op(module.numbers)(X), scaled_by(scale), rtol=1e-5)
        np.testing.assert_allclose(polyc.op(module.annotated)(X, power=Rounded(scale)), (X**scale).sum(1), rtol=1e-5)


def test_the_type_of_a_result_is_that_of_the_first_process(module: ModuleType) -> None:
    first, second = (polyc.op(module.defaults)(X) for _ in range(2))
    assert first.dtype == second.dtype
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("value", [10**5000, Unwilling()], ids=["long number", "raises when asked"])
def test_a_global_that_cannot_be_described_is_hidden_by_the_index_of_its_name(module: ModuleType, value: object) -> None:
    module.n = value
    for _ in range(2):
        np.testing.assert_allclose(polyc.op(module.calling)(X), (X + 1).sum(1), rtol=1e-6)


def test_errors_of_a_function_are_told_each_time(module: ModuleType) -> None:
    module.scaled = "no function"
    for _ in range(2):
        with pytest.raises(polyc.SemanticError, match="unknown function 'scaled'"):
            polyc.op(module.numbers)(X)


def test_proposals_of_a_function_that_was_read_before_are_in_its_notation(module: ModuleType) -> None:
    operators = [polyc.op(module.annotated) for _ in range(2)]
    places = [operator.formals[0].span for operator in operators]
    assert places[0] == places[1] and all(p is not None and p.source.is_function for p in places)
