"""Derivatives of PolyBench's kernels on the board: their workloads, what is compared, and the limits of a process."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import coordinator
from benchmarks.gradients import adjoints
from benchmarks.gradients.adjoints import ADJOINT, JAX, KERNEL, Row, summarise
from benchmarks.gradients.polybench import find_workload, make_workload
from benchmarks.gradients.polybench_in_jax import FORWARD
from benchmarks.polybench import KERNELS
from polyc.api.functions import compile as compile_text


@pytest.mark.parametrize("name", FORWARD)
def test_every_array_is_differentiated_by(name: str) -> None:
    workload = make_workload(name, "MINI", with_scalars=True)
    assert find_workload(workload.name).name == workload.name
    inputs = {n: a for n, a in workload.inputs().items() if not n.startswith("d_")}
    assert workload.gradient is not None
    assert list(workload.gradient.wrt) == [n for n in inputs if n != "steps"]
    assert all(a.dtype == np.float64 for a in inputs.values())
    by_arrays, forward = make_workload(name, "MINI"), make_workload(name, "MINI", is_forward=True)
    assert by_arrays.gradient is not None and by_arrays.gradient.wrt == tuple(
        n for n in workload.gradient.wrt if inputs[n].ndim
    )
    assert list(forward.inputs()) == list(inputs)
    program = compile_text(workload.source).program
    assert [f"d_{r.name}" for r in program.returns] == [n for n in workload.inputs() if n.startswith("d_")]


def test_cotangents_go_to_their_results_whatever_order_jit_gives_them_in() -> None:
    class Recorder:
        @staticmethod
        def vjp(function, *leaves):
            return function(*leaves), lambda cotangents: list(cotangents)

    workload = make_workload("bicg", "MINI")
    inputs = workload.inputs()
    found = workload.peers["jax"](Recorder, None, **dict(sorted(inputs.items())))
    assert [a.shape for a in found] == [inputs["d_s"].shape, inputs["d_q"].shape]


def test_only_kernels_of_whole_numbers_are_left_out() -> None:
    assert KERNELS.keys() - FORWARD.keys() == {"nussinov"}


def test_means_are_of_rounds_that_both_sides_ran() -> None:
    row = Row("gemm", "MINI", 1, {KERNEL: [1.0, 2.0], ADJOINT: [3.0, 6.0], JAX: [6.0, 12.0]})
    slow = Row("atax", "MINI", 1, {KERNEL: [1.0], ADJOINT: [1.0], JAX: [0.5]})
    to_forward, to_jax = summarise([row, slow])
    assert "mean 2.00" in to_forward and "above 2.5: gemm 3.00" in to_forward
    assert "geometric mean 1.00" in to_jax and "below 1: atax 0.50" in to_jax


def test_what_takes_too_long_is_ended() -> None:
    worker = coordinator.Worker(make_workload("gemm", "MINI"), "polyc", 1, True, None, limit=0.01)
    with pytest.raises(coordinator.WorkerFailed, match="not done in 0 s"):
        worker.receive()
    worker.close()


def test_the_table_shows_kernel_and_adjoint(tmp_path) -> None:
    path = tmp_path / "rows.json"
    done = CliRunner().invoke(adjoints.main, ["--size", "mini", "--alone", "--rounds", "1", "--json", str(path), "mvt"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(path.read_text())["rows"]
    assert row["dataset"] == "MINI" and set(row["seconds"]) == {KERNEL, ADJOINT} and not row["failures"]
    assert CliRunner().invoke(adjoints.main, ["nussinov"]).exit_code == 2
