"""``python -m benchmarks ablate``: digests, turns, intervals and tables; no time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import ablate, ablation
from benchmarks.ablation import Entry, Record
from benchmarks.worker import relative_error, result_type
from benchmarks.workloads import GROUPS, WORKLOADS
from polyc.driver import pass_levels

STEPS = {p.name: p for level in pass_levels() for p in level.passes}
V3 = {"target": "x86-64-v3"}


@pytest.mark.parametrize("name", [*GROUPS["programs"], "mlp3_f64", "polybench_gemm_medium", "embedding_sum"])
def test_signature_is_that_of_the_inputs(name: str) -> None:
    inputs = WORKLOADS[name].inputs()
    assert WORKLOADS[name].signature() == {n: (a.dtype, a.shape) for n, a in inputs.items()}


def test_what_a_pass_changes_and_whether_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ablation.compare("tmm", V3, frozenset({"pack", "stream-stores"}), None)
    assert "pack" in entry.differs and "pack" in entry.changed and "stream-stores" not in entry.changed
    assert not {*entry.same, *entry.differs, *entry.fails} - {"pack"}  # others were not asked for
    monkeypatch.setattr(ablation, "lower", lambda *_: pytest.fail("known already"))
    assert ablation.compare("tmm", V3, frozenset({"pack"}), entry) is entry


def test_a_pass_without_which_nothing_can_be_lowered_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(workload: Any, options: Any) -> str:
        if options["disable"] == ("slow",):
            raise ablation._TooLong
        raise ValueError("no schedule\nmore")

    monkeypatch.setattr(ablation, "lower", lower)
    entry = ablation.compare("tmm", V3, frozenset({"pack", "slow"}), Entry("", {"pack": 0.1, "slow": 0.1}))
    assert entry.fails == {"pack": "ValueError: no schedule", "slow": f"not lowered in {ablation.LIMIT} s"}


@pytest.mark.parametrize(("n", "outside"), [(1, 0), (6, 0), (8, 0), (9, 1), (20, 5)])
def test_interval_of_a_median(n: int, outside: int) -> None:
    ratios = [float(x) for x in range(n)]
    assert ablation.interval(ratios[::-1]) == ((n - 1) / 2, outside, n - 1 - outside)


def test_lines_are_those_of_the_functions_own_modules() -> None:
    assert ablation.modules_of(STEPS["jam-rows"]) == {"polyc.codegen.nests.row_pairs"}
    assert ablation.modules_of(STEPS["overlap"]) == {"polyc.scheduler.rewriting.overlap.overlap"}
    assert ablation.modules_of(STEPS["separate-tiles"]) == {"polyc.codegen.nests.tiles"}
    assert all(ablation.lines_of(p) > 0 for p in STEPS.values() if not p.required)


ENTRIES = {
    "tmm": Entry("a", {"pack": 0.5}, differs={"pack": {"1": (1.5, 1.4, 1.6), "2": (0.96, 0.9, 1.0)}}),
    "tbmm": Entry("b", {"pack": 0.25, "jam-rows": 1.0}, ["jam-rows"], {"pack": {}}),
    "dot": Entry("c", {"pack": 0.25}, fails={"pack": "why"}),
}


def test_worth_of_a_pass() -> None:
    worth = ablation.assess("pack", ENTRIES)
    assert (worth.changed, worth.compared, worth.differs, worth.fails, worth.seconds) == (3, 3, 2, 1, 1.0)
    assert (worth.measured, worth.best, worth.worst) == (2, (1.5, "tmm"), (0.96, "tmm, 2 threads"))
    assert worth.mean == pytest.approx(1.2)
    assert ablation.assess("jam-rows", ENTRIES) == ablation.Worth(1, 1, 0, 0, 1.0)


def test_what_is_measured() -> None:
    passes = frozenset({"pack", "jam-rows"})
    assert ablate.select(ENTRIES, passes, None, None) == {"tmm": ["pack"], "tbmm": ["pack"]}
    assert ablate.select(ENTRIES, passes, 1, None) == {}
    assert ablate.select(ENTRIES, passes, 2, 1) == {"tmm": ["pack"]}


class FakeWorker:
    """Tells which kernels ran, in order; its errors and times are those of its pass."""

    ran: ClassVar[list[str]] = []

    def __init__(self, workload: Any, side: str, threads: int, fresh: bool, exact: Any, options: dict[str, Any]) -> None:
        self.name = options.get("disable", ["none"])[0]

    def receive(self) -> dict[str, float]:
        return {"error": 1.0 if self.name == "wrong" else 0.0}

    def run_round(self, clock: str) -> float:
        self.ran.append(self.name)
        return {"none": 1.0, "a": 1.5, "b": 0.5}[self.name]

    def wait_until_idle(self) -> None: ...

    def close(self) -> None: ...


def test_kernels_take_turns_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate.coordinator, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "ran", [])
    found = ablate.measure(WORKLOADS["tmm"], ["a", "b"], {}, 1, 20)
    assert found == {"a": (1.5, 1.5, 1.5), "b": (0.5, 0.5, 0.5)}
    assert FakeWorker.ran == ["none", "a", "b", "b", "a", "none"] * ablate.LEAST_ROUNDS


def test_a_wrong_result_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate.coordinator, "Worker", FakeWorker)
    with pytest.raises(ablate.WrongResult, match="tmm without wrong"):
        ablate.measure(WORKLOADS["tmm"], ["wrong"], {}, 1, 20)


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate.coordinator, "Worker", FakeWorker)
    kept, summary = Record(tmp_path / "kept.json"), tmp_path / "summary.json"
    kept.entries["x86-64-v3"] = {"tmm": Entry("a", {"pack": 0.5, "a": 0.1}, differs={"pack": {}, "a": {}})}
    kept.save()
    monkeypatch.setattr(ablate, "select", lambda entries, passes, at_most, sample: {n: ["a"] for n in entries})
    arguments = ["tmm", "--pass", "pack", "--target", "x86-64-v3", "--record", str(kept.path), "--summary", str(summary)]
    result = CliRunner().invoke(ablate.main, arguments)
    assert result.exit_code == 0, result.output
    assert "tmm, 1 thread(s), a: 1.500" in result.output and "jam-rows" not in result.output
    assert Record(kept.path).entries["x86-64-v3"]["tmm"].differs == {"pack": {}, "a": {"1": [1.5, 1.5, 1.5]}}
    read = json.loads(summary.read_text())
    assert read["settings"] == {"x86-64-v3": 1} and read["passes"]["pack"]["x86-64-v3"]["differs"] == 1


def test_a_summary_keeps_the_times_that_a_record_lacks(tmp_path: Path) -> None:
    steps = [(level.name, p) for level in pass_levels() for p in level.passes if p.name == "pack"]
    record = Record(None)
    record.entries["host"] = {"tmm": Entry("a", {"pack": 0.5}, differs={"pack": {"1": (1.5, 1.5, 1.5)}})}
    first = ablate.summarise(record, steps, {})
    record.entries = {"host": {"tmm": Entry("b", {"pack": 0.5}, differs={"pack": {}})}, "x86-64-v3": {}}
    second = ablate.summarise(record, steps, first)
    assert second["passes"]["pack"]["host"]["best"] == (1.5, "tmm") and second["settings"] == {"host": 1, "x86-64-v3": 0}
    record.entries["host"]["tmm"] = Entry("b", {"pack": 0.5})  # not lowered without it
    assert ablate.summarise(record, steps, second)["passes"] == second["passes"]


def test_results_without_a_pass_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "polybench_atax_medium"
    kept = Record(tmp_path / "kept.json")
    kept.entries["host"] = {name: Entry("a", {"inline": 0.5}, differs={"inline": {}})}
    kept.save()
    arguments = [name, "--pass", "inline", "--record", str(kept.path), "--check"]
    result = CliRunner().invoke(ablate.main, arguments)
    assert result.exit_code == 0 and "1 kernels, 0 with a wrong result; 0 that could not be lowered" in result.output
    monkeypatch.setitem(WORKLOADS, name, replace(WORKLOADS[name], tolerance=0.0))
    result = CliRunner().invoke(ablate.main, arguments)
    assert result.exit_code == 1 and f"{name} without inline: an error of" in result.output


def test_what_cannot_be_lowered_without_a_pass_is_no_success(tmp_path: Path) -> None:
    kept = Record(tmp_path / "kept.json")
    kept.entries["host"] = {"tmm": Entry("a", {"inline": 0.5}, fails={"inline": "InternalError: no order"})}
    kept.save()
    result = CliRunner().invoke(ablate.main, ["tmm", "--pass", "inline", "--record", str(kept.path), "--check"])
    assert result.exit_code == 1 and "tmm without inline: InternalError: no order" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pass", "jam-row"], "there is no pass 'jam-row'"),
        (["--pass", "plan-loops"], "plan-loops is part of the translation"),
        (["no_such"], "no workload 'no_such'"),
        (["--threads", "0"], "numbers of threads"),
        (["--check", "--digests-only"], "--check runs kernels"),
        (["--rounds", "3"], "Invalid value"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(ablate.main, arguments)
    assert result.exit_code == 2 and said in result.output


def test_complex_results_are_compared_whole() -> None:
    exact = np.array([1 + 2j, 3j])
    assert result_type(exact.dtype, WORKLOADS["complex_matmul"]) == "complex64"
    assert relative_error(np.array([1 + 2j, 3j], np.complex64), exact) == 0
    assert relative_error(np.array([1, 3j], np.complex64), exact) == pytest.approx(2 / 3)
