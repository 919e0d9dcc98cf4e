"""Reads at places that data decides, held inside of the array: one load for neighbours, and no gather."""

from __future__ import annotations

import numpy as np
import pytest

import polyc

HELD = "def f({0}(N) x, int32(K) s) -> (y) {{ y(k, i) = x(min(max(i + s(k), {1}), N - {2})) where i in 0:N }}"
GUARDED = (
    "def f({0}(N) x, int32(K) s) -> (y) {{ y(k, i) = i + s(k) >= 0 && i + s(k) < N ? x(i + s(k)) : {0}(7) where i in 0:N }}"
)
DTYPES = {"float": np.float32, "double": np.float64, "int16": np.int16}


def shifts(n: int) -> np.ndarray:
    return np.arange(-2 * n, 2 * n + 1, max(1, n // 7)).astype(np.int32)


def row(n: int, name: str) -> np.ndarray:
    return (np.arange(n) * 3 - 5).astype(DTYPES[name])


@pytest.mark.parametrize("name", DTYPES)
def test_shifts_by_data(name: str) -> None:
    held, guarded = polyc.compile(HELD.format(name, 0, 1)), polyc.compile(GUARDED.format(name))
    for n in (1, 17, 64):
        x, s = row(n, name), shifts(n)
        place = np.arange(n) + s[:, None]
        expected = x[np.clip(place, 0, n - 1)]
        np.testing.assert_array_equal(held(x, s), expected)
        inside = (place >= 0) & (place < n)
        np.testing.assert_array_equal(guarded(x, s), np.where(inside, expected, DTYPES[name](7)))


def test_narrower_ends_and_strides() -> None:
    x, s = row(70, "float"), shifts(35)
    place = np.clip(np.arange(35) + s[:, None], 2, 32)
    np.testing.assert_array_equal(polyc.compile(HELD.format("float", 2, 3))(x[::2], s), x[::2][place])


def test_the_least_shift_is_not_taken_for_a_long_one() -> None:
    least = np.iinfo(np.int64).min
    s = np.array([least, least + 1, least + 5, -8, 0, 8, -least - 40], np.int64)
    held = polyc.compile(HELD.format("float", 0, 1).replace("int32", "int64"))
    for n in (1, 7, 33):
        place = [[min(max(i + int(k), 0), n - 1) for i in range(n)] for k in s]
        np.testing.assert_array_equal(held(row(n, "float"), s), row(n, "float")[place])


def test_no_gathers() -> None:
    x, s = row(100, "float"), shifts(100)
    for text in (HELD.format("float", 0, 1), GUARDED.format("float")):
        lowered = polyc.compile(text, target="x86-64-v4").lower(x, s)
        assert "masked.load" in lowered.as_text("ll")
        assert "gather" not in lowered.as_text("ll")
