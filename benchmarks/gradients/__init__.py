"""Gradients of layers, losses and grids, against PyTorch and JAX."""

from __future__ import annotations

from benchmarks.gradients import grids, layers
from benchmarks.gradients.gradient import Row

ROWS: dict[str, Row] = {row.name: row for row in (*layers.ROWS, *grids.ROWS)}
WORKLOADS = tuple(row.make_workload() for row in ROWS.values())
GROUPS = {"gradients": tuple(w.name for w in WORKLOADS)}
