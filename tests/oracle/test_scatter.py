"""Reductions into elements that data chooses: histograms, sums by key, gradients of lookups."""

# ruff: noqa: F821, UP037
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc.diagnostics import BoundsError, PolycError
from polyc.ir.interpret import interpret

Array = np.ndarray[Any, Any]


def keys(*shape: int, below: int = 7) -> Array:
    return np.random.default_rng(sum(shape)).integers(0, below, shape).astype(np.int32)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def scatter(ufunc: Any, start: Array, where: Any, values: Any) -> Array:
    ufunc.at(start, where, values)
    return start


BINS = np.zeros(7, np.float32)

CASES: dict[str, tuple[str, tuple[Array, ...], Any]] = {
    "histogram": (
        "def f(int32(N) k, float(M) bins) -> (int32(M) H) { H(k(i)) +=! 1 }",
        (keys(1000), BINS),
        lambda k, b: np.bincount(k, minlength=len(b)),
    ),
    "sums_by_key": (
        "def f(int32(N) k, float(N) v, float(M) bins) -> (float(M) H) { H(k(i)) +=! v(i) }",
        (keys(500), draw(500), BINS),
        lambda k, v, b: scatter(np.add, np.zeros_like(b), k, v),
    ),
    "largest_by_key": (
        "def f(int32(N) k, float(N) v, float(M) bins) -> (float(M) H) { H(k(i)) max=! v(i) }",
        (keys(50), draw(50), BINS),
        lambda k, v, b: scatter(np.maximum, np.full_like(b, -np.inf), k, v),
    ),
    "rows_by_key": (
        "def f(int32(N) k, float(N, D) v, float(M) bins) -> (float(M, D) H) { H(k(i), d) +=! v(i, d) }",
        (keys(90), draw(90, 37), BINS),
        lambda k, v, b: scatter(np.add, np.zeros((len(b), 37), np.float32), k, v),
    ),
    "a_histogram_for_each_row": (
        "def f(int32(R, N) k, float(M) bins) -> (int32(R, M) H) { H(r, k(r, i)) +=! 1 }",
        (keys(40, 100), BINS),
        lambda k, b: np.stack([np.bincount(row, minlength=len(b)) for row in k]),
    ),
    "added_to_what_is_there": (
        "def f(int32(N) k, float(N) v, float(M) start) -> (H) { H(m) = start(m)  H(k(i)) += v(i) }",
        (keys(30), draw(30), draw(7)),
        lambda k, v, s: scatter(np.add, s.copy(), k, v),
    ),
    "sums_of_rows_by_key": (
        "def f(int32(N) k, float(N, D) v, float(M) bins) -> (float(M) H) { H(k(i)) +=! v(i, d) }",
        (keys(90), draw(90, 33), BINS),
        lambda k, v, b: scatter(np.add, np.zeros_like(b), k, v.sum(1)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_numpy_and_the_interpreter(name: str) -> None:
    text, inputs, reference = CASES[name]
    operator = polyc.compile(text)
    program = operator.program
    (own,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    expected = reference(*inputs)
    for got in (operator(*inputs), operator.lower().compile()(*inputs), own):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_results_are_the_same_at_any_number_of_threads() -> None:
    text, _, _ = CASES["rows_by_key"]
    operator = polyc.compile(text)
    inputs = (keys(3000), draw(3000, 300), BINS)
    try:
        polyc.set_num_threads(1)
        alone = operator(*inputs)
        polyc.set_num_threads(2)
        np.testing.assert_array_equal(operator(*inputs), alone)
    finally:
        polyc.set_num_threads(None)


def test_keys_outside_are_named() -> None:
    operator = polyc.compile(CASES["histogram"][0])
    for bad in (7, -1):
        with pytest.raises(BoundsError, match=f"subscript {bad} of dimension 0 of H"):
            operator(np.array([1, bad, 2], np.int32), BINS)
    with pytest.raises(PolycError):
        operator(np.array([1], np.int32), BINS[:0])


def test_no_keys_give_the_starting_value() -> None:
    assert polyc.compile(CASES["histogram"][0])(np.zeros(0, np.int32), BINS).tolist() == [0] * 7


def test_assigning_is_refused() -> None:
    with pytest.raises(PolycError, match="semantic-scatter"):
        polyc.compile("def f(int32(N) k, float(N) v) -> (H) { H(k(i)) = v(i) }")
    with pytest.raises(PolycError, match="declare H among the results with its sizes"):
        polyc.compile("def f(int32(N) k, float(N) v) -> (H) { H(k(i)) +=! v(i) }").lower()


@polyc.op
def sums_by_key(k: "i32[N]", v: "f32[N]", start: "f32[M]"):
    h[m] = start[m]
    h[k[i]] += v[i]
    return h


@polyc.op
def histogram(k: "i32[N]", *, bins=7) -> "i64[bins]":
    h[k[i]] += 1
    return h


def test_functions() -> None:
    k, v = keys(60), draw(60)
    np.testing.assert_allclose(sums_by_key(k, v, BINS), scatter(np.add, BINS.copy(), k, v), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(histogram(k), np.bincount(k, minlength=7))
