"""The programs of NPBench: operators and loops against NumPy at small sizes, and the board."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import coordinator, sides
from benchmarks.npbench import PROGRAMS, SIZES, command, polybench
from benchmarks.polybench import KERNELS
from benchmarks.worker import largest_error, result_type
from benchmarks.workload import as_tuple

OUTSIDE = sorted(PROGRAMS.keys() - {p.name for p in polybench.PROGRAMS})
"""Those that PolyBench does not have; its kernels have tests of their own."""


ONE_WAY = dict.fromkeys(("cavity_flow", "channel_flow", "nbody", "stockham_fft"), True) | dict.fromkeys(
    ("contour_integral", "conv2d_bias", "lenet", "mlp", "resnet", "scattering_self_energies"), False
)
"""Programs of which one kernel is compiled here, for any sizes (True) or for these: the other takes seconds."""


@pytest.mark.parametrize("name", OUTSIDE)
def test_operator_computes_what_numpy_does_at_these_sizes_and_at_any(name: str) -> None:
    workload = PROGRAMS[name].make_workload("tiny")
    inputs, exact = workload.inputs(), list(coordinator.exact_results(workload))
    before = {n: a.copy() for n, a in inputs.items()}
    for dynamic in (ONE_WAY[name],) if name in ONE_WAY else (False, True):
        found = as_tuple(sides.make_operator(workload, dynamic=dynamic)(*inputs.values()))
        assert [f.dtype for f in found] == [result_type(e.dtype, workload) for e in exact]
        assert largest_error(list(found), exact) <= workload.tolerance
    assert all(np.array_equal(before[n], inputs[n]) for n in inputs)


@pytest.mark.each
@pytest.mark.parametrize("name", OUTSIDE)
def test_loops_for_numba_compute_what_numpy_does(name: str, loops: None) -> None:
    workload = PROGRAMS[name].make_workload("tiny")
    inputs, exact = workload.inputs(), list(coordinator.exact_results(workload))
    peer = workload.peers["numba"]
    found = peer(None, None, **inputs)
    assert largest_error(list(as_tuple(found)), exact) <= workload.tolerance
    peer(None, found, **inputs)  # with results and temporaries that were used before
    assert largest_error(list(as_tuple(found)), exact) <= workload.tolerance


def test_kernels_of_polybench_are_joined() -> None:
    names = {"k2mm", "k3mm", "cholesky2", "covariance2"}
    assert {p.name.replace("_", "-") for p in polybench.PROGRAMS} - names == set(KERNELS) - {"2mm", "3mm"}
    for name, kernel in (("trisolv", "trisolv"), ("covariance2", "covariance")):  # those that NPBench has another version of
        inputs = PROGRAMS[name].make_workload("tiny").inputs()
        np.testing.assert_allclose(PROGRAMS[name].numpy(**inputs), KERNELS[kernel].reference(**inputs), rtol=0, atol=1e-12)


def test_all_programs_are_there_in_all_sizes() -> None:
    assert (len(OUTSIDE), len(polybench.PROGRAMS)) == (22, 32)
    for program in PROGRAMS.values():
        assert all(len(values) == len(SIZES) for values in program.sizes.values())
        assert set(program.constants) <= set(program.sizes)


def test_board_checks_results_and_says_how_far_ahead_polyc_is(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    args = ["compute", "--size", "tiny", "--peers", "numpy", "--rounds", "2", "--dynamic", "--json", str(path)]
    result = CliRunner().invoke(command.main, args)
    assert result.exit_code == 0, result.output
    assert "tiny, 1 thread(s): geometric means others (1)" in result.output
    (row,) = json.loads(path.read_text())["results"]
    assert row["workload"] == "npbench_compute_tiny" and row["sides"]["polyc"]["error"] == 0
    assert len(row["sides"]["numpy"]["seconds"]) == 2


@pytest.mark.parametrize("args", [["computes"], ["--size", "L"], ["--peers", "torch"], ["--threads", "1000"]])
def test_board_names_what_it_does_not_know(args: list[str]) -> None:
    result = CliRunner().invoke(command.main, args)
    assert result.exit_code == 2 and args[-1] in result.output


def test_board_lists_its_programs() -> None:
    result = CliRunner().invoke(command.main, ["--list"])
    assert result.exit_code == 0 and len(result.output.splitlines()) == len(PROGRAMS)
