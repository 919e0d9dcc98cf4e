"""Histograms and sums by key over many values: a table for each part of them."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.machine import Threads

N = Threads().work_per_part + 77
TWO_CORES = "x86-64-v2"


@pytest.fixture(autouse=True)
def two_threads():
    before = polyc.get_num_threads()
    polyc.set_num_threads(2)
    yield
    polyc.set_num_threads(before)


def is_split(op, *arrays):
    return "private-tables" in {r.pass_name for r in op.lower(*arrays).remarks}


@pytest.mark.each
@pytest.mark.parametrize("size", [1, 9, 300])
@pytest.mark.parametrize(
    ("text", "ufunc"), [("+=!", np.add), ("max=!", np.maximum), ("min=!", np.minimum), ("*=!", np.multiply)]
)
def test_many_values_into_a_small_table_are_those_of_numpy(text, ufunc, size):
    rng = np.random.default_rng(size)
    keys = rng.integers(0, size, N).astype("i4")
    weights = rng.integers(-8, 8, N).astype("i8" if ufunc is np.multiply else "f4")
    kind = "int64" if ufunc is np.multiply else "float"
    op = polyc.compile(f"def f(int32(N) k, {kind}(N) w) -> ({kind}({size}) H) {{ H(k(i)) {text} w(i) }}", target=TWO_CORES)
    start = {np.add: 0, np.multiply: 1, np.maximum: -np.inf, np.minimum: np.inf}[ufunc]
    want = np.full(size, start, weights.dtype)
    with np.errstate(over="ignore"):
        ufunc.at(want, keys, weights)
    np.testing.assert_array_equal(op(keys, weights), want)
    assert is_split(op, keys, weights)


def test_sums_by_key_have_the_same_bits_at_one_thread_and_at_two():
    rng = np.random.default_rng(0)
    keys, weights = rng.integers(0, 50, N), rng.standard_normal(N).astype("f4")
    op = polyc.compile("def f(int64(N) k, float(N) w) -> (float(50) H) { H(k(i)) +=! w(i) }", target=TWO_CORES)
    two = op(keys, weights)
    polyc.set_num_threads(1)
    np.testing.assert_array_equal(op(keys, weights), two)


@pytest.mark.parametrize("place", [0, N // 2, N - 1])
def test_a_key_outside_is_reported_with_the_dimension_of_the_users_table(place):
    keys = np.zeros((N, 2), np.int32)
    keys[place, 1] = 4
    op = polyc.compile("def f(int32(N, 2) k, float(N) w) -> (float(3, 4) H) { H(k(i, 0), k(i, 1)) +=! w(i) }", target=TWO_CORES)
    assert is_split(op, keys, np.ones(N, "f4"))
    with pytest.raises(polyc.PolycError, match="subscript 4 of dimension 1 of H is outside 0 <= subscript < 4"):
        op(keys, np.ones(N, "f4"))


def test_rows_are_added_to_what_is_there():
    rng = np.random.default_rng(1)
    n = Threads().work_per_part // 16 + 5
    keys, rows = rng.integers(0, 40, n), rng.integers(-8, 8, (n, 20)).astype("f4")
    start = rng.integers(-8, 8, (40, 20)).astype("f4")
    op = polyc.compile(
        "def f(int64(N) k, float(N, D) w, float(M, D) s) -> (H) { H(m, d) = s(m, d)  H(k(i), d) += w(i, d) }", target=TWO_CORES
    )
    want = start.copy()
    np.add.at(want, keys, rows)
    np.testing.assert_array_equal(op(keys, rows, start), want)
    assert is_split(op, keys, rows, start)


def test_a_large_table_and_ordered_sums_stay_one_table():
    keys, weights = np.arange(N) % 1000, np.ones(N, "f4")
    text = "def f(int64(N) k, float(N) w) -> (float({}) H) {{ H(k(i)) +=! w(i) }}"
    assert not is_split(polyc.compile(text.format(N), target=TWO_CORES), keys, weights)
    assert not is_split(polyc.compile(text.format(1000), target=TWO_CORES, reassociate=False), keys, weights)
