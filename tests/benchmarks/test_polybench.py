"""The kernels of PolyBench: results against NumPy, the rung of the scheduler that each needs, peers in C and in numba."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyc
from benchmarks import coordinator, environments, sides
from benchmarks.polybench import DATASETS, KERNELS, native
from benchmarks.worker import prepare
from benchmarks.workloads import GROUPS, WORKLOADS
from benchmarks.workloads.polybench import run_numba


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
def test_kernel_computes_what_numpy_does_in_a_schedule_of_polyc_itself(name: str) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    lowered = polyc.compile(kernel.source).lower(*inputs.values())
    (proved,) = (r.message for r in lowered.remarks if r.pass_name == "schedule" and r.kind == "passed")
    assert proved == "ilp: proved by value and by storage"
    assert_equal_up_to_rounding(lowered.compile()(*inputs.values()), kernel.reference(**inputs))


@pytest.mark.parametrize(
    ("side", "name"), [(s, n) for s in native.SIDES for n, k in KERNELS.items() if native.is_written(s, k)]
)
def test_kernel_in_c_computes_what_numpy_does(side: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.find_compiler(side) is None:
        pytest.skip(f"no {side}")
    if native.POLLY[-1] in native.SIDES[side]:  # Polly takes 25 s for three products in a row, and 6 s for all other kernels
        monkeypatch.setitem(native.SIDES, side, (*native.SIDES[side], "-mllvm", "-polly-ignore-func=k_3mm"))
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    expected = as_tuple(kernel.reference(**inputs))
    found = tuple(np.full_like(e, -1) for e in expected)
    native.call(side, kernel, kernel.sizes_of("MINI"), inputs, found)
    assert_equal_up_to_rounding(found, expected)


def test_stencils_are_tiled_by_hand() -> None:
    assert {n for n in GROUPS["polybench"] if "tiled_c" in WORKLOADS[n].peers} == {"polybench_jacobi_2d", "polybench_heat_3d"}


@pytest.mark.parametrize(
    ("name", "n"), [("jacobi-2d", n) for n in (3, 66, 67, 200)] + [("heat-3d", n) for n in (3, 18, 19, 51)]
)
def test_tiles_cover_every_step_at_every_size(name: str, n: int) -> None:
    """Grids of one element, of one tile and one more, and of several; more steps than a block has."""
    if native.find_compiler("tiled_c") is None:
        pytest.skip("no tiled_c")
    kernel, sizes = KERNELS[name], {"TSTEPS": 19, "N": n}
    inputs = kernel.make_inputs(np.random.default_rng(3), **sizes)
    expected = kernel.reference(**inputs)
    found = np.full_like(expected, -1)
    native.call("tiled_c", kernel, sizes, inputs, (found,))
    assert_equal_up_to_rounding(found, expected)


@pytest.mark.each
@pytest.mark.parametrize("name", KERNELS)
def test_loops_for_numba_compute_what_numpy_does(name: str, loops: None) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    peer = run_numba(kernel, "MINI")
    expected = kernel.reference(**inputs)
    assert_equal_up_to_rounding(peer(None, None, **inputs), expected)
    found = tuple(np.full_like(e, -1) for e in as_tuple(expected))
    peer(None, found, **inputs)  # with temporaries that were used before
    assert_equal_up_to_rounding(found, expected)


def test_loops_for_numba_are_compiled() -> None:
    """By numba, where there is one: kernels that deal out triangles, sums and diagonals, on two threads."""
    python = sides.interpreter("numba")
    if python is None:
        pytest.skip("no numba")
    code = """
import json, sys, numpy as np
from benchmarks.polybench import KERNELS
from benchmarks.workloads.polybench import run_numba
for name in json.loads(sys.argv[1]):
    kernel = KERNELS[name]
    inputs = kernel.inputs("MINI")
    expected, found = kernel.reference(**inputs), run_numba(kernel, "MINI")(None, None, **inputs)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
"""
    environment = environments.clean(python, os.environ) | sides.environment("numba", 2)
    names = json.dumps(["trmm", "atax", "nussinov", "jacobi-2d"])
    subprocess.run([python, "-c", code, names], check=True, env=environment, cwd=Path(__file__).parents[2])


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
