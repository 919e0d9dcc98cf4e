"""Complex numbers that are only moved are moved as one element of eight bytes, wherever they begin."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.machines import stream_all_results

TURN = "def f(complex64(M, N) X) -> (Y) { Y(j, i) = X(i, j) }"
JOIN = "def f(complex64(M, N) X, complex64(K, N) Z) -> (Y) { Y(i, j) = X(i, j)  Y(M + k, j) = Z(k, j) }"


def numbers(*shape: int) -> np.ndarray:
    """Any bits, NaN with payloads among them."""
    return np.random.default_rng(3).integers(0, 1 << 64, shape, dtype=np.uint64).view(np.complex64)


def at_offset(values: np.ndarray, offset: int) -> np.ndarray:
    """The same numbers at that many bytes from the beginning of a line."""
    raw = np.zeros(values.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    array = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


def assert_same_bits(result: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(result.view(np.uint64), np.ascontiguousarray(expected).view(np.uint64))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v4"])
def test_bits_arrive_wherever_arrays_begin(level: str):
    op = polyc.compile(TURN, target=level)
    x = numbers(19, 37)
    assert "u64[19, 37]" in op.lower(x).as_text("loops")
    for offset in (0, 4, 8, 60):
        y = at_offset(np.zeros((37, 19), np.complex64), 64 - offset)
        op(at_offset(x, offset), out=y)
        assert_same_bits(y, x.T)
    assert_same_bits(op(numbers(38, 37)[::2]), numbers(38, 37)[::2].T)


def test_long_results_are_not_streamed_where_elements_may_lie_across_lines(monkeypatch: pytest.MonkeyPatch):
    stream_all_results(monkeypatch)
    monkeypatch.setenv("POLYC_CACHE", "0")
    op = polyc.compile(TURN, target="x86-64-v4")
    x = numbers(70, 96)
    assert "stream" not in op.lower(x).as_text("loops")
    y = at_offset(np.zeros((96, 70), np.complex64), 4)
    op(at_offset(x, 4), out=y)
    assert_same_bits(y, x.T)


def test_arrays_are_joined_whole():
    op = polyc.compile(JOIN)
    x, z = numbers(5, 7), numbers(3, 7)
    lowered = op.lower(x, z)
    assert "u64[8, 7]" in lowered.as_text("loops") or "u64[56]" in lowered.as_text("loops")
    assert_same_bits(lowered.compile()(x, z), np.concatenate([x, z]))


@pytest.mark.parametrize(
    "text",
    [
        "def f(complex64(M, N) X) -> (Y) { Y(j, i) = conj(X(i, j)) }",
        "def f(complex64(M, N) X) -> (Y, S) { Y(j, i) = X(i, j)  S(i) +=! X(i, j) }",
        "def f(complex128(M, N) X) -> (Y) { Y(j, i) = X(i, j) }",
    ],
)
def test_what_computes_sees_both_parts(text: str):
    x = np.random.default_rng(1).standard_normal((6, 10)).view(np.complex128).astype("c16" if "128" in text else "c8")
    op = polyc.compile(text)
    assert "u64" not in op.lower(x).as_text("loops")
    result = op(x)
    if isinstance(result, tuple):
        np.testing.assert_allclose(result[1], x.sum(axis=1), rtol=1e-5)
    y = result[0] if isinstance(result, tuple) else result
    np.testing.assert_array_equal(y, x.conj().T if "conj" in text else x.T)
