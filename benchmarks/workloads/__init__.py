"""All workloads by name, in the order they are reported."""

from __future__ import annotations

from benchmarks.workload import Workload
from benchmarks.workloads import contractions, convolutions, layers, normalisations, stencils

WORKLOADS: dict[str, Workload] = {
    w.name: w for module in (normalisations, contractions, convolutions, layers, stencils) for w in module.WORKLOADS
}

__all__ = ["WORKLOADS"]
