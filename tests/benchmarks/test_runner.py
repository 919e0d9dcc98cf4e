"""The benchmark runner itself; no time is asserted."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import coordinator, report, roofline, statistics, steadiness
from benchmarks.__main__ import main
from benchmarks.coordinator import Measurement, Side
from benchmarks.worker import largest_error, prepare, relative_error
from benchmarks.workload import Workload
from benchmarks.workloads import BOARD, GROUPS, WORKLOADS, table
from polyc.ir.expr import Size


def measurement(**sides: list[float]) -> Measurement:
    return Measurement(WORKLOADS["tmm"], 1, False, {n: Side(n, list(s), error=0.0) for n, s in sides.items()})


@pytest.mark.parametrize(
    ("read", "written", "mix"),
    [(1, 1, (1, 1)), (2, 1, (2, 1)), (5, 0, (1, 0)), (0, 8, (0, 1)), (1000, 1, (1, 0)), (4, 1, (4, 1))],
)
def test_mix_is_the_closest_ratio(read: float, written: float, mix: tuple[int, int]) -> None:
    assert roofline.mix_of(read, written) == mix


@pytest.mark.parametrize("nontemporal", [False, True])
def test_stream_kernel_adds_what_it_reads(nontemporal: bool) -> None:
    lanes, _ = roofline.host()
    kernel = roofline.load(roofline.stream_ir(2, 1, lanes, nontemporal), "stream", ctypes.c_void_p, *[ctypes.c_int64] * 3)
    a, b, c = (roofline.aligned_array(1024) for _ in range(3))
    a[:] = np.arange(1024)
    c[:] = -1
    kernel((ctypes.c_void_p * 3)(*(x.ctypes.data for x in (a, b, c))), 256, 768, 1)
    np.testing.assert_array_equal(c[256:768], a[256:768] + 1)
    assert (c[:256] == -1).all() and (c[768:] == -1).all()


def test_read_only_stream_sums() -> None:
    lanes, _ = roofline.host()
    kernel = roofline.load(roofline.stream_ir(1, 0, lanes, False), "stream", ctypes.c_void_p, *[ctypes.c_int64] * 3)
    a = roofline.aligned_array(1024)
    assert kernel((ctypes.c_void_p * 1)(a.ctypes.data), 0, 1024, 2) == 2 * 1024 / lanes


def test_relative_error() -> None:
    exact = np.array([1.0, -4.0])
    assert relative_error(np.array([1.0, -4.0], np.float32), exact) == 0
    assert relative_error(np.array([1.0, -3.0], np.float32), exact) == 0.25
    assert relative_error(np.array([1.0, np.nan], np.float32), exact) == np.inf
    assert relative_error(np.zeros(3, np.float32), exact) == np.inf


def test_error_of_several_results_is_the_largest() -> None:
    exact = [np.array([1.0, 2.0]), np.array([3, 4])]
    assert largest_error([np.array([1.0, 2.0]), np.array([3, 4])], exact) == 0
    assert largest_error([np.array([1.0, 2.0]), np.array([3, 2])], exact) == 0.5
    assert largest_error([np.array([1.0, 2.0])], exact) == np.inf


def small(source: str, exact: Any, peers: dict[str, Any]) -> Workload:
    inputs = {"X": np.arange(12, dtype=np.float32).reshape(3, 4)}
    return Workload("small", "for tests", "tc", source, lambda rng: inputs, exact, 1.0, 1.0, 1.0, peers, 1e-6)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("side", ["polyc", "numpy"])
def test_worker_checks_every_result_in_its_own_type(tmp_path: Path, side: str, fresh: bool) -> None:
    source = "def f(float(N, D) X) -> (S, P) { S(n) +=! X(n, d) P(n) argmax=! X(n, d) }"
    places: list[Any] = []

    def exact(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X.sum(axis=1), X.argmax(axis=1)

    def peer(np: Any, out: Any, X: Any) -> Any:
        places.append(out)
        return exact(X)

    workload = small(source, exact, {"numpy": peer})
    with coordinator.reference_file(workload) as path:
        job = {"side": side, "fresh": fresh, "exact": str(path), "threads": 1}
        _, ready = prepare(workload, job)
    assert ready["error"] <= workload.tolerance
    assert (ready["memory"] is None) == (side != "polyc")
    if side == "numpy" and not fresh:
        assert [(p.shape, p.dtype) for p in places[0]] == [((3,), np.float32), ((3,), np.int64)]


def test_worker_sees_a_wrong_second_result(tmp_path: Path) -> None:
    workload = small("-", lambda X: (X, X), {"numpy": lambda np, out, X: (X, X + 1)})
    with coordinator.reference_file(workload) as path:
        _, ready = prepare(workload, {"side": "numpy", "fresh": True, "exact": str(path), "threads": 1})
    assert ready["error"] == pytest.approx(1 / 11)


@pytest.mark.parametrize(("n_bytes", "text"), [(None, "–"), (0, "0 KiB"), (3000, "3 KiB"), (5 << 19, "2.5 MiB")])
def test_sizes_for_people(n_bytes: int | None, text: str) -> None:
    assert report.size(n_bytes) == text


def test_ratio_is_paired_by_round() -> None:
    summary = statistics.summarise(measurement(polyc=[1, 2, 4], numpy=[2, 4, 8], torch=[9, 9, 9]), "polyc")
    assert summary.best_peer == "numpy"
    assert summary.ratio == statistics.Quartiles(2, 2, 2)


def test_roofline_is_the_slower_bound() -> None:
    summary = statistics.summarise(measurement(polyc=[4.0], stream=[1.0], fma=[3.0]), "polyc")
    assert (summary.bound, summary.roof) == ("fma", 0.75)


def test_bars_are_the_best_peer_or_a_share_of_the_roofline() -> None:
    for peer, stream, missed in ((4.1, 1.0, False), (3.9, 3.7, False), (3.9, 3.5, True)):
        m = measurement(polyc=[4.0], numpy=[peer], stream=[stream])
        assert report.misses_bars(m, statistics.summarise(m, "polyc")) == missed
        _, line = report.group_lines([m], "polyc", {"all": ["tmm"]})
        assert ("tmm 0.97 (88% of 90%)" in line) == missed


def test_fresh_stream_writes_to_new_arrays() -> None:
    arrays = [roofline.aligned_array(1024) for _ in range(3)]
    kept, table = list(arrays), (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    calls: list[int] = []
    roofline.with_fresh_arrays(calls.append, arrays, table, 2)(3)
    assert calls == [1, 1, 1]
    assert [a is b for a, b in zip(arrays, kept, strict=True)] == [True, True, False]
    assert list(table) == [a.ctypes.data for a in arrays]


def test_failed_side_is_a_note() -> None:
    m = measurement(polyc=[1.0])
    m.sides["torch"] = Side("torch", failure="no such thing")
    assert report.notes([m], "polyc") == ["tmm, 1 thread(s): torch left out: no such thing"]


@pytest.mark.parametrize("workload", [WORKLOADS[n] for n in BOARD], ids=lambda w: w.name)
def test_workloads_are_well_formed(workload: Workload) -> None:
    assert workload.flops > 0 and workload.bytes_read > 0 and workload.tolerance < 1e-3
    assert "numpy" in workload.peers
    assert workload.source.strip()


def test_one_run_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ["tmm", "--subject", "numpy", "--peers", "numpy,no_such_package", "--rounds", "2", "--json", str(path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "no_such_package is not installed" in result.output
    (row,) = json.loads(path.read_text())["results"]
    assert len(row["sides"]["numpy"]["seconds"]) == 2
    assert row["sides"]["numpy"]["error"] <= WORKLOADS["tmm"].tolerance
    assert row["sides"]["stream"]["seconds"] and row["sides"]["fma"]["seconds"]


def test_worker_reports_its_failure(tmp_path: Path) -> None:
    workload = WORKLOADS["tmm"]
    with coordinator.reference_file(workload) as exact:
        worker = coordinator.Worker(workload, "no_such_package", 1, False, exact)
        with pytest.raises(coordinator.WorkerFailed, match="no_such_package"):
            worker.receive()
        worker.close()


def test_failure_is_the_line_that_names_the_error() -> None:
    text = "Traceback …\n  frame\npolyc.X: error[range-unsolved]: no range for i\n  help: give one\n"
    assert coordinator.failure_line(text) == "polyc.X: error[range-unsolved]: no range for i"
    assert coordinator.failure_line("") == ""


def test_unknown_workload_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["no_such_workload"])
    assert result.exit_code == 2
    assert "no_such_workload" in result.output


def test_groups_hold_both_precisions_of_known_workloads() -> None:
    assert set(GROUPS["contraction"]) == {n for g, names in GROUPS.items() if g.startswith("contraction_") for n in names}
    for group, names in GROUPS.items():
        assert all(n in WORKLOADS for n in names) and len(set(names)) == len(names)
        if group.startswith("contraction"):  # others are in one precision, and named without it
            assert [n for n in names if n.endswith("_f64")] == [n for n in names if WORKLOADS[n].dtype == "float64"]


def test_double_precision_has_its_own_inputs_and_bytes() -> None:
    single, double = WORKLOADS["mlp3"], WORKLOADS["mlp3_f64"]
    assert {a.dtype for a in double.inputs().values()} == {np.dtype("float64")}
    assert double.bytes_read == 2 * single.bytes_read and double.flops == single.flops
    assert "float(" not in double.source and "double(" in double.source


def test_group_summary_names_who_stays_behind() -> None:
    ahead, behind = measurement(polyc=[1, 1], numpy=[2, 2]), measurement(polyc=[2, 2], numpy=[1, 1])
    behind.workload = WORKLOADS["tbmm"]
    (line,) = report.group_lines([ahead, behind], "polyc", {"some": ["tmm", "tbmm"]})
    assert line == (
        "some, float32, 1 thread(s): 2 workloads, geometric mean of the ratios 1.00, of their lower quartiles 1.00; "
        "below 0.97: tbmm 0.50"
    )


def test_a_group_runs_in_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    arguments = ["contraction_new_shapes", "--dtype", "float64", "--threads", "1", "--subject", "numpy", "--peers", "numpy"]
    result = CliRunner().invoke(main, [*arguments, "--rounds", "2", "--no-roofline", "--json", str(path)])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(path.read_text())["results"]
    assert (row["workload"], row["dtype"], row["threads"]) == ("einsum_new_shapes_f64", "float64", 1)


def test_calls_on_new_shapes_are_all_different() -> None:
    base = np.arange(25.0**3)
    seen = {(s, tuple(a.shape for a in arrays)) for s, arrays in (table.new_call(n, base) for n in range(table.N_NEW))}
    assert len(seen) == table.N_NEW


TEXTS = [n for n in GROUPS["programs"] if WORKLOADS[n].notation == "tc"]


@pytest.mark.parametrize("name", ["resnet3x3_7", "conv1x1_s2", "grouped", "depthwise_pad", "dilated", *TEXTS])
def test_texts_have_the_shape_of_their_reference(name: str) -> None:
    import polyc

    workload = WORKLOADS[name]
    inputs = workload.inputs()
    program = polyc.compile(workload.source).program
    pairs = [p for t in program.parameters for p in zip(program.tensor(t).shape, inputs[t].shape, strict=True)]
    sizes = {n.name: e for n, e in pairs if isinstance(n, Size)}
    from polyc import driver

    ((_, shape),) = driver.infer_shapes(program, sizes).values()
    assert shape == workload.exact(**inputs).shape


def test_percentiles_of_calls_are_not_below_their_median() -> None:
    result = CliRunner().invoke(steadiness.main, ["pipeline_blur_small", "--calls", "20", "--processes", "1"])
    assert result.exit_code == 0, result.output
    row = next(line for line in result.output.splitlines() if "pipeline_blur_small" in line)
    tail, peak, spread = (float(cell) for cell in row.replace("│", " ").split()[-3:])
    assert 1 <= tail <= peak
    assert spread == 1


def test_steadiness_names_what_is_no_workload() -> None:
    result = CliRunner().invoke(steadiness.main, ["no_such_workload"])
    assert result.exit_code == 2
    assert "no_such_workload" in result.output
