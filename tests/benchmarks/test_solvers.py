"""Iterative solvers of the board: operators and loops for numba against NumPy, with the same number of steps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import sides
from benchmarks.worker import largest_error
from benchmarks.workload import as_tuple
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.solvers import SOLVERS

SMALL = {"gradients": (19, 60), "poisson": (5, 60), "power": (17, 400), "means": (200, 2, 5, 60), "newton": (9, 20)}


@pytest.mark.each
@pytest.mark.parametrize("name", SOLVERS)
def test_loops_for_numba_compute_what_numpy_does(name: str, loops: None) -> None:
    solver = SOLVERS[name]
    inputs = solver.make(np.random.default_rng(5), *SMALL[name])
    exact = [np.asarray(r) for r in solver.solve(**inputs)]
    workload = WORKLOADS[f"solver_{name}_{next(iter(solver.sizes))}"]
    assert 2 < int(exact[-1]) < inputs["T"] - 1
    for _ in range(2):
        assert largest_error(list(as_tuple(workload.peers["numba"](None, None, **inputs))), exact) <= workload.tolerance


def test_columns_of_a_stencil_are_chosen_by_data() -> None:
    workload, solver = WORKLOADS["solver_poisson_900"], SOLVERS["poisson"]
    inputs = solver.make(np.random.default_rng(5), *SMALL["poisson"])
    exact = [np.asarray(r) for r in solver.solve(**inputs)]
    assert largest_error(list(as_tuple(sides.make_operator(workload)(*inputs.values()))), exact) <= workload.tolerance
