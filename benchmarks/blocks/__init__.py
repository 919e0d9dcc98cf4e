"""Operators on dask arrays against what one would write with dask.array, SciPy and numba."""

from __future__ import annotations

from benchmarks.blocks import pictures, reductions, steps
from benchmarks.blocks.row import Row

ROWS: dict[str, Row] = {row.name: row for row in (*pictures.ROWS, *reductions.ROWS, *steps.ROWS)}
