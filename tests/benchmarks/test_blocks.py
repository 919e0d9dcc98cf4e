"""The board of blocks: each row's operator and peers against the peer in float64, and what the command says."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("dask.array")
pytest.importorskip("zarr", minversion="3")

import dask

from benchmarks.blocks import ROWS, command, faults, overhead, schedulers, worker
from benchmarks.blocks.measure import Measured, Result, Runner
from benchmarks.blocks.row import Inputs, Row
from benchmarks.worker import largest_error
from polyc.diagnostics import Diagnostic, UnsupportedError
from tests.blocks.differential import interpreted

PICTURE = {"H": 13, "W": 11, "chunk": 8}
TINY: dict[str, dict[str, int]] = {
    **dict.fromkeys(("blur", "unsharp", "harris", "down"), PICTURE),
    "einsum": {"M": 3, "K": 4, "L": 7, "N": 2, "chunk": 3},
    "covariance": {"N": 23, "D": 3, "chunk": 10},
    "dot": {"N": 23, "D": 3, "chunk": 10},
    "kmeans": {"N": 23, "D": 3, "K": 4, "chunk": 10},
    "histogram": {"N": 101, "B": 5, "chunk": 30},
    "logsumexp": {"M": 3, "N": 29, "chunk": 10},
    "argmax": {"M": 3, "N": 29, "chunk": 10},
    "attention": {"M": 2, "N": 11, "chunk": 4},
    "heat": {"H": 9, "W": 7, "T": 4, "chunk": 6},
    "heat_chain": {"H": 9, "W": 7, "T": 4, "chunk": 6},
}
NEEDS_SCIPY = ("blur", "unsharp", "harris", "down")


def open_tiny(name: str, folder: Path) -> tuple[Row, Inputs]:
    row = replace(ROWS[name], sizes={"small": TINY[name]})
    row.write_inputs("small", folder)
    return row, row.open_inputs("small", folder)


def compute(row: Row, side: str, inputs: Inputs) -> np.ndarray:
    with dask.config.set(scheduler="synchronous"):
        return np.asarray(worker.find_build(row, side)(inputs, row.sizes["small"]).compute())


@pytest.mark.each
@pytest.mark.parametrize("name", ROWS)
def test_operator_and_peers_compute_what_the_first_peer_does_in_float64(name: str, tmp_path: Path, loops: None) -> None:
    row, inputs = open_tiny(name, tmp_path)
    without_scipy = name in NEEDS_SCIPY and find_spec("scipy") is None
    exact = [compute(row, "numba" if without_scipy else "exact", inputs)]
    for peer in [p for p in row.peers if p != "scipy" or not without_scipy]:
        assert largest_error([compute(row, peer, inputs)], exact) <= row.tolerance, peer
    with interpreted():
        assert largest_error([compute(row, "polyc", inputs)], exact) <= row.tolerance


def test_noise_is_the_same_in_each_process_and_another_one_in_each_chunk(tmp_path: Path) -> None:
    _, inputs = open_tiny("argmax", tmp_path)
    first, again = inputs["x"].compute(), open_tiny("argmax", tmp_path)[1]["x"].compute()
    assert np.array_equal(first, again) and not np.array_equal(first[:, :10], first[:, 10:20])
    assert 0 <= first.min() < 0.2 and 0.8 < first.max() < 1


def test_samples_have_corners_and_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WHOLE", 0)
    monkeypatch.setattr(worker, "SAMPLE", {2: 2})
    array = np.arange(63).reshape(7, 9)
    found = worker.sample(array)
    assert {int(s[0, 0]) for s in found} == {9 * i + j for i in (0, 2, 5) for j in (0, 3, 7)}


def test_greatest_memory_is_seen_after_it_was_given_back() -> None:
    memory = schedulers.Memory()
    memory.reset()
    np.ones(64 << 20, np.uint8)
    greatest = memory.peak()
    assert greatest is None or greatest >= 60 << 20


def run_here(runner: Runner, row: Row, size: str, side: str, base: Path, **more: str) -> tuple[dict[str, Any], Path]:
    """`Runner.start` in this process, with blocks that are interpreted."""
    folder = base / f"run{len(list(base.iterdir()))}"
    folder.mkdir()
    job = {
        "row": row.name,
        "size": size,
        "side": side,
        "scheduler": "threads",
        "workers": 1,
        "folder": folder,
        "data": base,
        **more,
    }
    with interpreted():
        return worker.answer_job(job), folder


def invoke(monkeypatch: pytest.MonkeyPatch, *args: str) -> Any:
    monkeypatch.setattr(Runner, "start", run_here)
    return CliRunner().invoke(command.main, ["--size", "small", "--rounds", "1", "--workers", "1", *args])


def test_board_checks_results_and_says_what_was_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    done = invoke(monkeypatch, "dot", "--rounds", "2", "--json", str(path))
    assert done.exit_code == 0, done.output
    assert "1 row(s), geometric mean" in done.stdout and "round 2 of 2" in done.stderr
    (dot,) = json.loads(path.read_text())["results"]
    assert len(dot["sides"]["polyc"]["seconds"]) == 2 and dot["sides"]["polyc"]["planned"] > 0
    assert dot["sides"]["polyc"]["blocks"] == 5 and "not cut" not in done.stdout
    assert dot["sides"]["polyc"]["error"] < 1e-6 and dot["best_peer"] == "dask"


def test_board_compares_with_the_peers_that_are_named_and_the_first_of_them_is_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("not named")

    row, path = ROWS["covariance"], tmp_path / "board.json"
    monkeypatch.setitem(ROWS, "covariance", replace(row, peers=dict(row.peers) | {"dask": fail}))
    done = invoke(monkeypatch, "covariance", "--peers", "products", "--json", str(path))
    assert done.exit_code == 0, done.output
    (result,) = json.loads(path.read_text())["results"]
    assert set(result["sides"]) == {"polyc", "products"}


def test_large_sizes_are_the_full_ones_where_there_are_no_others() -> None:
    assert ROWS["dot"].find_sizes("large") == ROWS["dot"].find_sizes("full")
    assert ROWS["heat"].find_sizes("large")["T"] == 200


def test_board_ends_with_an_error_where_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROWS, "dot", replace(ROWS["dot"], source="xy,xz->y"))
    done = invoke(monkeypatch, "dot")
    assert done.exit_code == 1 and "WRONG" in done.output


def test_board_shows_refusals_by_their_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError(Diagnostic("unsupported-block-axis", "y cannot be cut"))

    monkeypatch.setitem(ROWS, "dot", replace(ROWS["dot"], call=refuse))
    done = invoke(monkeypatch, "dot")
    assert done.exit_code == 0 and "refused: unsupported-block-axis" in done.stdout


def test_process_of_a_side_says_what_it_measured(tmp_path: Path) -> None:
    runner = Runner("threads", 1, 100.0, lambda _: None)
    answer, folder = runner.start(ROWS["argmax"], "small", "dask", tmp_path)
    assert answer["seconds"] > 0 and answer["tasks"] > 1 and "planned" not in answer
    with np.load(folder / "samples.npz") as samples:
        assert samples["arr_0"].shape == (ROWS["argmax"].sizes["small"]["M"],)
    answer, _ = runner.start(replace(ROWS["argmax"], name="lost"), "small", "dask", tmp_path)
    assert answer["failed"] == "KeyError"


def test_wrong_peers_are_no_bar() -> None:
    quick, slow = Measured("dask", [1.0], error=1.0), Measured("numba", [4.0], error=0.0)
    result = Result(ROWS["dot"], "small", {"polyc": Measured("polyc", [2.0], error=0.0), "dask": quick, "numba": slow})
    ratio = result.ratio()
    assert result.best_peer() == "numba" and ratio is not None and ratio.median == 2
    assert any("dask is wrong" in line for line in command.notes([result]))


@pytest.mark.parametrize(
    "args", [["blurs"], ["--size", "huge"], ["--workers", "1000"], ["--peers", "cupy"], ["--scheduler", "magic"]]
)
def test_board_names_what_it_does_not_know(args: list[str]) -> None:
    result = CliRunner().invoke(command.main, args)
    assert result.exit_code == 2 and args[-1] in result.output


def test_board_of_faults_ends_with_an_error_where_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def note(folder: Path) -> bool:
        folders.append(folder)
        return len(folders) != 2

    monkeypatch.setattr(faults, "FAULTS", {"first": note, "second": note, "third": note})
    done = CliRunner().invoke(command.main, ["--faults"])
    assert done.exit_code == 1 and "second: WRONG" in done.output and "third: right" in done.output
    assert len(set(folders)) == 3 and not any(f.exists() for f in folders)


def test_overhead_is_told_of_planning_and_of_tasks() -> None:
    told: list[str] = []
    overhead.run_overhead(told.append, rounds=1, side=3)
    assert len(told) == 5 and told[0].startswith("graph of a blur, 9 blocks") and "dask's own" in told[-1]


def test_board_lists_its_rows() -> None:
    result = CliRunner().invoke(command.main, ["--list"])
    assert result.exit_code == 0 and len(result.output.splitlines()) == len(ROWS)
