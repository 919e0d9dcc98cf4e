"""Pipelines over pictures, as people schedule them by hand in Halide."""

from __future__ import annotations

from benchmarks.pipelines import filters, layers, photographs, resampling
from benchmarks.pipelines.pipeline import Pipeline

PIPELINES: dict[str, Pipeline] = {p.name: p for module in (filters, resampling, photographs, layers) for p in module.PIPELINES}
WORKLOADS = tuple(
    w
    for p in PIPELINES.values()
    for w in (p.make_workload(f"pipeline_{p.name}", p.full), p.make_workload(f"pipeline_{p.name}_small", p.small))
)
GROUPS = {
    "pipelines": tuple(f"pipeline_{name}" for name in PIPELINES),
    # What `pipelines` computes, of pictures so small that all results are seen in seconds.
    "pipelines_small": tuple(f"pipeline_{name}_small" for name in PIPELINES),
}
