"""Patterns of square sparse matrices, and partitions into segments, made by code: the same ones for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns of entries, in any order; in CSR the ends of rows, and columns."""


def draw_uniform(rng: np.random.Generator, rows: int, entries: int) -> Places:
    return rng.integers(0, rows, entries), rng.integers(0, rows, entries)


def draw_powers(rng: np.random.Generator, values: int, count: int) -> np.ndarray:
    """Numbers below `values`, of which the k-th most frequent (at random) comes ``k**(-2/3)`` times as often as the first."""
    return rng.permutation(values)[(values * rng.random(count) ** 3).astype(np.int64)]


def draw_power_law(rng: np.random.Generator, rows: int, entries: int) -> Places:
    return draw_powers(rng, rows, entries), draw_powers(rng, rows, entries)


def draw_band(rng: np.random.Generator, rows: int, entries: int) -> Places:
    row = np.arange(entries) // 10 % rows
    return row, (row + np.arange(entries) % 10 - 5) % rows


def draw_grid(rng: np.random.Generator, rows: int, entries: int) -> Places:
    """Every point, and its neighbours on lines of the grid as long as there are lines."""
    line = math.isqrt(rows)
    row = np.arange(entries) // 5 % rows
    return row, (row + np.array([-line, -1, 0, 1, line])[np.arange(entries) % 5]) % rows


def draw_blocks(rng: np.random.Generator, rows: int, entries: int) -> Places:
    """Dense blocks of 8×8, the last one cut off."""
    block, inside = np.divmod(np.arange(entries), 64)
    corner_row, corner_column = (8 * rng.integers(0, rows // 8, block[-1] + 1) for _ in range(2))
    return corner_row[block] + inside // 8, corner_column[block] + inside % 8


def draw_half(rng: np.random.Generator, rows: int, entries: int) -> Places:
    filled = rng.permutation(rows)[: rows // 2]
    return filled[rng.integers(0, filled.size, entries)], rng.integers(0, rows, entries)


def draw_giant(rng: np.random.Generator, rows: int, entries: int) -> Places:
    row, column = draw_uniform(rng, rows, entries - rows)
    return np.append(row, np.full(rows, rows // 3)), np.append(column, np.arange(rows))


def draw_triangle(rng: np.random.Generator, rows: int, entries: int) -> Places:
    """Below the diagonal and on it: rows grow longer from the first to the last."""
    row = (rows * np.sqrt(rng.random(entries))).astype(np.int64)
    return row, ((row + 1) * rng.random(entries)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Where the entries of a square matrix are.

    A place that is drawn twice is two entries, as in a CSR matrix whose duplicates have not been summed up."""

    what: str
    draw: Callable[[np.random.Generator, int, int], Places]
    per_row: int = 10
    """Entries of a row on average."""

    def rows(self, entries: int) -> int:
        return entries // self.per_row

    def make(self, rng: np.random.Generator, entries: int) -> Places:
        """The matrix in CSR: ends of rows, and columns."""
        rows = self.rows(entries)
        return make_csr(*self.draw(rng, rows, entries), rows)


PATTERNS: Mapping[str, Pattern] = {
    "uniform": Pattern("entries anywhere", draw_uniform),
    "power_law": Pattern("few rows and columns have most entries", draw_power_law),
    "banded": Pattern("ten diagonals", draw_band),
    "grid": Pattern("five-point stencil of a grid", draw_grid, 5),
    "blocks": Pattern("dense blocks of 8×8", draw_blocks, 16),
    "empty_rows": Pattern("half of the rows empty", draw_half),
    "giant_row": Pattern("one row full", draw_giant),
    "short_rows": Pattern("rows of 3 on average", draw_uniform, 3),
    "long_rows": Pattern("rows of 100 on average", draw_uniform, 100),
    "triangle": Pattern("below the diagonal", draw_triangle),
}


def ends_of(segment: np.ndarray, segments: int) -> np.ndarray:
    """Where the segments of sorted numbers begin, and where the last one ends."""
    return np.searchsorted(segment, np.arange(segments + 1)).astype(np.int32)


def make_csr(row: np.ndarray, column: np.ndarray, rows: int) -> Places:
    """Ends of the rows of a square matrix, and columns in ascending order in each row."""
    row, column = np.divmod(np.sort(row * rows + column), rows)
    return ends_of(row, rows), column.astype(np.int32)


def draw_segments(rng: np.random.Generator, segments: int, entries: int, least: int = 0) -> np.ndarray:
    """Ends of segments whose lengths follow a power law; each has `least` entries or more."""
    fixed = np.repeat(np.arange(segments), least)
    return ends_of(np.sort(np.concatenate([fixed, draw_powers(rng, segments, entries - fixed.size)])), segments)


def segment_of(ptr: np.ndarray) -> np.ndarray:
    """The segment of every entry."""
    return np.repeat(np.arange(ptr.size - 1), np.diff(ptr))


def reduce_segments(combine: np.ufunc, values: np.ndarray, ptr: np.ndarray, empty: float = 0.0) -> np.ndarray:
    """Values combined over each segment, along the first dimension; `empty` where a segment has none."""
    filled = ptr[:-1] < ptr[1:]
    result = np.full((filled.size, *values.shape[1:]), empty, values.dtype)
    if filled.any():  # of an empty segment `reduceat` would give the element that comes next
        result[filled] = combine.reduceat(values, ptr[:-1][filled], axis=0)
    return result
