"""Pipelines over pictures: operators and loops against NumPy at small sizes, and what is there to measure."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import coordinator, sides
from benchmarks.engines import HALIDE
from benchmarks.pipelines import GROUPS, PIPELINES, resampling
from benchmarks.worker import largest_error, result_type
from benchmarks.workload import Workload, as_tuple
from benchmarks.workloads import BOARD, WORKLOADS

QUICK = (
    "bilateral_grid",
    "camera_pipe",
    "depthwise_separable",
    "distance",
    "harris",
    "histogram_equalisation",
    "iir_blur",
    "linear_blur",
    "resize_3.3_lanczos",
    "wavelet",
)
"""Those that compile in a moment; ``python -m benchmarks pipelines_small`` tries all of them."""


def of_size(name: str, size: tuple[int, int] | None = None) -> tuple[dict[str, np.ndarray], list[np.ndarray], Workload]:
    workload = PIPELINES[name].make_workload(name, size or PIPELINES[name].small)
    return workload.inputs(), list(coordinator.exact_results(workload)), workload


@pytest.mark.parametrize("name", QUICK)
def test_operator_computes_what_numpy_does(name: str) -> None:
    inputs, exact, workload = of_size(name)
    before = {n: a.copy() for n, a in inputs.items()}
    found = as_tuple(sides.make_operator(workload)(*inputs.values()))
    assert [f.dtype for f in found] == [result_type(e.dtype, workload) for e in exact] == [PIPELINES[name].result_type]
    assert [f.shape for f in found] == [PIPELINES[name].result(*PIPELINES[name].small)]
    assert largest_error(list(found), exact) <= workload.tolerance
    assert all(np.array_equal(before[n], inputs[n]) for n in inputs)


@pytest.mark.parametrize("name", [n for n, p in PIPELINES.items() if p.numba])
def test_loops_for_numba_compute_what_numpy_does(name: str, loops: None) -> None:
    inputs, exact, workload = of_size(name, (2, 3))
    peer = workload.peers["numba"]
    found = peer(None, None, **inputs)
    assert largest_error([found], exact) <= max(workload.tolerance, 1e-5)
    peer(None, found, **inputs)  # with a result and temporaries that were used before
    assert largest_error([found], exact) <= max(workload.tolerance, 1e-5)


@pytest.mark.parametrize("factor", resampling.FACTORS)
def test_weights_of_resizing_keep_what_is_even(factor: str) -> None:
    for kernel in resampling.KERNELS:
        even = np.full((1, 20, 30), 0.5)
        p, q = resampling.FACTORS[factor]
        resized = resampling.resize(even, factor, kernel)
        assert resized.shape == (1, 20 * p // q, 30 * p // q)
        np.testing.assert_allclose(resized, 0.5)


def test_pipelines_are_asked_for_by_their_group() -> None:
    assert not set(BOARD) & {*GROUPS["pipelines"], *GROUPS["pipelines_small"]}
    assert len(GROUPS["pipelines"]) == len(GROUPS["pipelines_small"]) == len(PIPELINES)
    for name, pipeline in PIPELINES.items():
        workload = WORKLOADS[f"pipeline_{name}"]
        shape = pipeline.result(*pipeline.full)
        assert workload.bytes_written == np.prod(shape) * np.dtype(pipeline.result_type).itemsize
        assert {side for side in HALIDE if side in workload.peers} == (
            set(HALIDE[not pipeline.has_schedule :]) if pipeline.halide else set()
        )
