"""Checks of subscripts from data, made for blocks of iterations at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.codegen.emission.checks import BLOCK
from polyc.machine import X86_64_V4
from tests.scheduler.support import lower

SIZES = [0, 1, 7, 15, 16, 17, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 21]
SUMS = "def f(int64(N) k, float(N) w) -> (float(9) H) { H(k(i)) +=! w(i) }"


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("size", SIZES)
def test_sums_by_key_are_those_of_numpy_at_every_length(size, target):
    rng = np.random.default_rng(size)
    keys, weights = rng.integers(0, 9, size), rng.integers(-8, 8, size).astype("f4")
    want = np.zeros(9, "f4")
    np.add.at(want, keys, weights)
    np.testing.assert_array_equal(polyc.compile(SUMS, target=target)(keys, weights), want)


@pytest.mark.parametrize("wrong", [-1, 9, -(2**62), 2**62])
@pytest.mark.parametrize("place", [0, 8, BLOCK - 1, BLOCK, 2 * BLOCK + 16, 2 * BLOCK + 20])
def test_one_key_outside_is_reported_wherever_it_stands(place, wrong):
    keys = np.zeros(2 * BLOCK + 21, np.int64)
    keys[place] = wrong
    with pytest.raises(polyc.PolycError) as caught:
        polyc.compile(SUMS)(keys, np.ones(keys.size, "f4"))
    assert f"{wrong} of dimension 0 of H" in str(caught.value)


def test_two_checked_subscripts_and_narrow_keys():
    op = polyc.compile("def f(int32(N) a, uint8(N) b, float(N) w) -> (float(5, 7) H) { H(a(i) - 1, b(i)) max=! w(i) }")
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 6, 1500, dtype="i4"), rng.integers(0, 7, 1500, dtype="u1")
    w = rng.standard_normal(1500).astype("f4")
    w[700] = np.nan
    want = np.full((5, 7), -np.inf, "f4")
    np.maximum.at(want, (a - 1, b), w)
    np.testing.assert_array_equal(op(a, b, w), want)
    b[1111] = 7
    with pytest.raises(polyc.PolycError, match="7 of dimension 1 of H"):
        op(a, b, w)


def test_a_key_of_what_is_read_and_one_of_what_is_written():
    """Two checks in one iteration, one of them of a read."""
    op = polyc.compile("def f(int64(N) k, int64(N) t, float(M) w) -> (float(9) H) { H(k(i)) +=! w(t(i)) }")
    rng = np.random.default_rng(1)
    k, t, w = rng.integers(0, 9, 1030), rng.integers(0, 50, 1030), rng.integers(0, 99, 50).astype("f4")
    want = np.zeros(9, "f4")
    np.add.at(want, k, w[t])
    np.testing.assert_array_equal(op(k, t, w), want)
    t[1029] = 50
    with pytest.raises(polyc.PolycError, match="50 of dimension 0 of w"):
        op(k, t, w)


ROWS = "def f(float(N, K) V, {}(N, K) C, float(M) x) -> (y) {{ y(i) +=! V(i, k) * x(C(i, k)) }}"


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("length", [0, 1, 2, 5, 8, 16, 17])
def test_rows_of_a_sparse_matrix_are_those_of_numpy_at_every_length(length, target):
    rng = np.random.default_rng(length)
    for rows, kind in ((0, "int32"), (1, "int64"), (37, "uint8"), (130, "int32")):
        op = polyc.compile(ROWS.format(kind), target=target)
        columns, values = rng.integers(0, 23, (rows, length), dtype=kind), rng.integers(-8, 8, (rows, length)).astype("f4")
        x = rng.integers(-8, 8, 23).astype("f4")
        np.testing.assert_array_equal(op(values, columns, x), (values * x[columns]).sum(1))


@pytest.mark.parametrize("wrong", [-1, 23, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("place", [(0, 0), (3, 4), (36, 1)])
def test_one_column_outside_is_reported_wherever_it_stands(place, wrong):
    columns = np.ones((37, 5), np.int32)
    columns[place] = wrong
    with pytest.raises(polyc.PolycError, match=f"{wrong} of dimension 0 of x"):
        polyc.compile(ROWS.format("int32"))(np.ones((37, 5), "f4"), columns, np.ones(23, "f4"))


def test_columns_inside_of_a_short_row_are_neither_gathered_nor_put_in_bounds():
    op = polyc.compile(ROWS.format("int32"), target="x86-64-v3")
    rows = np.ones((99, 5), "f4")
    text = op.lower(rows, np.zeros((99, 5), "i4"), np.ones(23, "f4")).as_text("s")
    usual = [block.split("\n\tj")[0] for block in text.split("\n.L") if "vfmadd" in block]  # up to the next check
    assert len(usual) >= 5  # one behind each check
    assert not any(word in block for block in usual for word in ("gather", "cmov", "pmax", "andn"))


@pytest.mark.parametrize("cache", [32 << 10, 48 << 10])
def test_positions_are_gathered_where_that_is_faster(cache):
    target = replace(X86_64_V4, l1=cache)
    text = "def f(float(K, N) V, int32(K, N) C, float(M) x) -> (y) { y(i) +=! V(k, i) * x(C(k, i)) }"
    lowered = lower(text, {"K": 4, "N": 512, "M": 99}, target=target)
    assert ("vgather" in lowered.as_text("s")) == (cache > 32 << 10)
