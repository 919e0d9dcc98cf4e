"""Arrays beyond 2³¹ elements, none of which is ever in memory, and requests that no memory holds."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

import polyc
from polyc.limits import available_memory
from polyc.runtime import memory

BIG = 2**31 + 11
CHOICES = pytest.mark.parametrize("dynamic", [True, False])


def reserve(size: int) -> np.ndarray:
    """Bytes of address space; pages come into being when they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    except OSError:  # a limit on the address space
        pytest.skip(f"no address space of {size} bytes")


@CHOICES
def test_a_loop_of_more_than_two_to_the_31(dynamic):
    ones = np.broadcast_to(np.int8(1), BIG)
    count = polyc.compile("def count(int8(N) X) -> (S) { S +=! int64(X(n)) }", dynamic=dynamic)
    assert count(ones) == BIG


@CHOICES
def test_elements_far_from_the_first_are_read(dynamic):
    far = reserve(2 * BIG)
    places = np.array([0, 3, 2**31 - 1, 2**31, 2**31 + 10])
    far[places] = [1, 2, 3, 4, 5]
    pick = polyc.compile("def pick(uint8(N) X, int64(K) at) -> (Y) { Y(k) = X(at(k)) }", dynamic=dynamic)
    np.testing.assert_array_equal(pick(far, places), [1, 2, 3, 4, 5])
    with pytest.raises(polyc.BoundsError, match=str(2 * BIG)):
        pick(far, np.array([2 * BIG]))
    steps = polyc.compile("def steps(uint8(N) X, uint8(K) Z) -> (Y) { Y(k) = X(k * 2147483648) + Z(k) }", dynamic=dynamic)
    np.testing.assert_array_equal(steps(far, np.zeros(2, np.uint8)), [1, 4])


@CHOICES
def test_strides_of_more_than_two_to_the_31_bytes(dynamic):
    rows = reserve(5 * BIG).reshape(5, BIG)
    rows[:, 7] = [1, 2, 3, 4, 5]
    column_sum = polyc.compile("def f(uint8(N,M) X) -> (Y) { Y(m) +=! X(n,m) }", dynamic=dynamic)
    np.testing.assert_array_equal(column_sum(rows[:, 5:9]), [0, 0, 15, 0])
    np.testing.assert_array_equal(column_sum(rows[::-2, 9:5:-1]), [0, 0, 9, 0])
    add = polyc.compile("def f(uint8(N,M) X) -> (Y) { Y(n,m) = X(n,m) + X(n,m) }", dynamic=dynamic)
    add(rows[:, 5:9], out=rows[:, BIG - 4 :])
    np.testing.assert_array_equal(rows[:, BIG - 2], [2, 4, 6, 8, 10])
    assert rows[:, BIG - 4 :].sum() == 30


@CHOICES
def test_what_does_not_fit_is_refused_before_anything_is_allocated(dynamic, monkeypatch):
    def allocate(*args):
        raise AssertionError("memory was allocated")

    monkeypatch.setattr(memory, "allocate_result", allocate)
    monkeypatch.setattr(memory, "workspace_address", allocate)
    ones = np.broadcast_to(np.float32(1), 2**31)
    outer = polyc.compile("def outer(float(N) X, float(M) Z) -> (Y) { Y(n,m) = X(n) * Z(m) }", dynamic=dynamic)
    with pytest.raises(polyc.ArgumentError, match=r"shape \(2147483648, 2147483648\)"):
        outer(ones, ones)
    # No byte of a temporary of 2⁶⁴ bytes is 0 bytes.
    source = "def f(float(N) X, float(M) Z) -> (A) { T(n,m) = exp(X(n) * Z(m)) S +=! T(n,m) A(m) +=! T(n,m) / S }"
    temporary = polyc.compile(source, dynamic=dynamic)
    with pytest.raises(polyc.ArgumentError, match="with its results and temporaries"):
        temporary(ones, ones)
    # Each fits alone, all three do not.
    a_third = np.broadcast_to(np.float32(1), available_memory() // 4 // 5 * 2)
    three = polyc.compile("def f(float(N) X) -> (A, B, C) { A(n) = X(n) B(n) = -X(n) C(n) = X(n) * X(n) }", dynamic=dynamic)
    with pytest.raises(polyc.ArgumentError, match="with its results and temporaries"):
        three(a_third)


@CHOICES
def test_no_elements_give_empty_results_and_identities(dynamic):
    source = """def f(float(N,M) X) -> (Y, S, P, B) {
      Y(n,m) = exp(X(n,m))  S(n) +=! X(n,m)  P(n) *=! X(n,m)  B(n) max=! X(n,m) }"""
    f = polyc.compile(source, dynamic=dynamic)
    for n, m in ((0, 0), (0, 5), (3, 0), (0, 2**40), (2, 0)):
        y, s, p, b = f(np.broadcast_to(np.float32(2), (n, m)))
        assert y.shape == (n, m) and s.shape == p.shape == b.shape == (n,)
        assert (s == 0).all() and (p == 1).all() and (b == -np.inf).all()
