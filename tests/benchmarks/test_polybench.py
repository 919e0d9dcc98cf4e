"""The kernels of PolyBench: results against NumPy, the rung of the scheduler that each needs, and the peer in C."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from benchmarks import coordinator, sides
from benchmarks.polybench import DATASETS, KERNELS, native
from benchmarks.worker import prepare
from benchmarks.workloads import WORKLOADS


def as_tuple(results: Any) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


def assert_equal_up_to_rounding(found: Any, expected: Any) -> None:
    for f, e in zip(as_tuple(found), as_tuple(expected), strict=True):
        assert f.dtype == e.dtype and f.shape == e.shape
        np.testing.assert_allclose(f, e, rtol=0, atol=1e-12 * np.abs(e).max())


def test_all_thirty_are_there() -> None:
    assert len(KERNELS) == 30
    for kernel in KERNELS.values():
        assert all(len(values) == len(DATASETS) and sorted(values) == list(values) for values in kernel.sizes.values())


@pytest.mark.parametrize("name", KERNELS)
def test_declared_shapes_are_those_of_the_arrays(name: str) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    results = as_tuple(kernel.reference(**inputs))
    assert kernel.shapes("MINI") == ([a.shape for a in inputs.values()], [r.shape for r in results])
    assert {a.itemsize for a in results} == {kernel.itemsize}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_computes_what_numpy_does(name: str) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    operator = polyc.compile(kernel.source)
    assert_equal_up_to_rounding(operator(**inputs), kernel.reference(**inputs))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_is_scheduled_by_polyc_itself(name: str) -> None:
    kernel = KERNELS[name]
    remarks = polyc.compile(kernel.source).lower(*kernel.inputs("MINI").values()).remarks
    (proved,) = (r.message for r in remarks if r.pass_name == "schedule" and r.kind == "passed")
    assert proved == "ilp: proved by value and by storage"


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("side", native.SIDES)
def test_kernel_in_c_computes_what_numpy_does(side: str, name: str) -> None:
    if native.find_compiler(side) is None:
        pytest.skip(f"no {side}")
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    expected = as_tuple(kernel.reference(**inputs))
    found = tuple(np.full_like(e, -1) for e in expected)
    native.call(side, kernel, kernel.sizes_of("MINI"), inputs, found)
    assert_equal_up_to_rounding(found, expected)


@pytest.mark.parametrize("side", ["polyc", "numpy", "gcc", "clang"])
def test_runner_checks_every_result(side: str) -> None:
    workload = WORKLOADS["polybench_bicg_medium"]  # two results, of different sizes
    if sides.interpreter(side) is None:
        pytest.skip(f"no {side}")
    with coordinator.reference_file(workload) as exact:
        run, ready = prepare(workload, {"side": side, "threads": 1, "fresh": False, "exact": str(exact)})
        assert ready["error"] <= workload.tolerance and len(run(1)) == 2
    wrong = replace(workload, exact=lambda **inputs: (workload.exact(**inputs)[0], 1 + workload.exact(**inputs)[1]))
    with coordinator.reference_file(wrong) as exact:
        _, ready = prepare(workload, {"side": side, "threads": 1, "fresh": True, "exact": str(exact)})
        assert ready["error"] > 1e-3
