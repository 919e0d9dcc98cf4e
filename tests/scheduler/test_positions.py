"""Blocks for the positions of extremes: what they apply to, and what they leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc


def remarks(text: str, *arrays: Any, **options: Any) -> list[str]:
    lowered = polyc.compile(text, **options).lower(*arrays)
    return [r.message for r in lowered.remarks if r.pass_name == "positions"]


ROWS = "def f(float(M, N) X) -> (p) { p(i) argmax=! X(i, j) }"


@pytest.mark.parametrize(
    ("shape", "words"),
    [((50, 1024), "blocks of 256 points of j"), ((1, 1 << 20), "blocks of 4096 points of j"), ((50, 300), "32 bits")],
)
def test_rows(shape: tuple[int, int], words: str) -> None:
    (message,) = remarks(ROWS, np.zeros(shape, "f4"))
    assert words in message


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
