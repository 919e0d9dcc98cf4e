"""Blocks for the positions of extremes: what they apply to, and what they leave alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyc


def remarks(text: str, *arrays: Any, **options: Any) -> list[str]:
    lowered = polyc.compile(text, **options).lower(*arrays)
    return [r.message for r in lowered.remarks if r.pass_name == "block-positions"]


ROWS = "def f(float(M, N) X) -> (p) { p(i) argmax=! X(i, j) }"


@pytest.mark.parametrize(
    ("shape", "words"),
    [((50, 1024), "blocks of 256 points of j"), ((1, 1 << 20), "blocks of 4096 points of j"), ((50, 200), "32 bits")],
)
def test_rows(shape: tuple[int, int], words: str) -> None:
    (message,) = remarks(ROWS, np.zeros(shape, "f4"))
    assert words in message


@pytest.mark.parametrize("word", ["argmax", "argmin"])
@pytest.mark.parametrize("kind", ["float", "uint8"])
def test_one_row_of_any_length(kind: str, word: str) -> None:
    """Its kernel went over all points twice, in 64 bits: 16 to 47 times as long as with the length known."""
    text = f"def f({kind}(N) X) -> (v, p) {{ (v, p) {word}=! X(i) }}"
    operator = polyc.compile(text, dynamic=True)
    dtype = "f4" if kind == "float" else "u1"
    (message,) = remarks(text, np.zeros(1 << 17, dtype), dynamic=True)
    assert "blocks of 4096 points of i" in message
    rng = np.random.default_rng(0)
    for n in (1 << 17, 1, 2, 4095, 4096, 4097, 8192, 12289, 100_003):
        for values in (rng.integers(0, 256, n), rng.integers(1, 3, n), np.arange(n) % 5, np.full(n, 7)):
            x = values.astype(dtype)
            for y in (x, x[::-1].copy()):
                value, place = operator(y)
                assert place == getattr(y, word)() and value == y[place]
        if kind == "float":
            x[n // 2] = np.nan
            assert operator(x)[1] == n // 2
    assert operator(np.zeros(0, dtype))[1] == np.iinfo(np.int64).max


def test_rows_of_any_length() -> None:
    """All points of all rows were gone over twice, in 64 bits: two to three times as long as with the length known."""
    operator = polyc.compile(ROWS, dynamic=True)
    (message,) = remarks(ROWS, np.zeros((50, 1217), "f4"), dynamic=True)
    assert "blocks of 256 points of j" in message
    rng = np.random.default_rng(0)
    for shape in ((50, 1217), (3, 1), (2, 255), (2, 257), (1, 512), (3, 5000), (0, 9)):
        x = rng.integers(0, 99, shape).astype("f4")
        np.testing.assert_array_equal(operator(x), x.argmax(1))
    assert np.all(operator(np.zeros((2, 0), "f4")) == np.iinfo(np.int64).max)


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_the_block_with_the_extreme_is_searched_in_whole_vectors(level: str) -> None:
    """Where it begins is a number of 64 bits, and half of the lanes were left unused."""
    loops = polyc.compile(ROWS, target=level).lower(np.zeros((50, 1024), "f4")).as_text("loops")
    assert set(re.findall(r"lanes (\d+)", loops)) == {"8" if level == "x86-64-v3" else "16"}


def test_columns_are_only_narrowed() -> None:
    (message,) = remarks("def f(float(M, N) X) -> (p) { p(j) argmax=! X(i, j) }", np.zeros((4096, 20), "f4"))
    assert "32 bits" in message


def test_the_order_of_the_source_is_kept_where_asked_for() -> None:
    assert remarks(ROWS, np.zeros((50, 1024), "f4"), reassociate=False) == []


@pytest.mark.parametrize(
    "value", ["X(i) == m ? i : 7", "X(i) == m ? i + 1 : 2147483647", "X(i) == m ? i : 2147483647", "X(i) >= m ? i : 2147483647"]
)
def test_what_only_looks_alike_is_left_alone(value: str) -> None:
    """Without a test for NaN the position of a NaN is the start value, and stays so."""
    text = f"def f(float(N) X) -> (p) {{ m max=! X(i)  p min=! {value} }}"
    x = np.arange(1 << 16, dtype="f4")
    assert remarks(text, x) == []
    x[5] = np.nan
    starts_at = np.iinfo(np.int32).max
    assert polyc.compile(text)(x) == (7 if value.endswith(": 7") else starts_at)


def test_a_position_is_found_where_the_value_reads_another_extreme():
    text = "def f(float(N, K) A) -> (Y, M) { M(i) max=! A(i, k)  Y(i) argmax=! A(i, k) - M(i) }"
    f = polyc.compile(text)
    a = np.random.default_rng(5).integers(0, 50, (2, 9000)).astype(np.float32)
    assert any(r.pass_name == "block-positions" and r.kind == "passed" for r in f.lower(a).remarks)
    np.testing.assert_array_equal(f(a)[0], a.argmax(1))
