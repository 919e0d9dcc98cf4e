"""The pass manager: switches, remarks, what becomes of a fault, and what the command line shows."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import polyc
from polyc import driver, passes
from polyc.cli import main
from polyc.codegen.nests import pipeline
from polyc.config import RENAMED, Options
from polyc.diagnostics import InternalError, Remark
from polyc.driver import ladder
from polyc.passes import Level, Pass, Session

BLUR = "def blur(float(H,W) x) -> (y) { t(i,j) = x(i,j) + x(i,j+1)  y(i,j) = t(i,j) + t(i+1,j) }"
LONG = {"H": 4000, "W": 5000}
"""Sizes whose result is written by non-temporal stores on the pinned machine."""


def add(n: int) -> Pass[int, None]:
    return Pass(f"add-{n}", lambda value, ctx: value + n, f"adds {n}")


def fail(value: int, ctx: None) -> int:
    raise KeyError("broken")


def check_even(value: int) -> None:
    if value % 2:
        raise InternalError(polyc.Diagnostic("internal-invalid-loops", "odd"))


def numbers(*steps: Pass[int, None]) -> Level[int, None]:
    return Level("program", steps, check_even, str)


@pytest.fixture(autouse=True)
def without_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYC_DEBUG", raising=False)


def test_a_pass_that_changes_its_value_is_told_and_one_that_does_not_is_not() -> None:
    session = Session()
    assert passes.run(numbers(add(2), add(0)), 2, None, session) == 4
    assert session.remarks == [Remark("passed", "add-2", "adds 2")]


def test_a_remark_of_a_pass_bears_its_name_and_stands_for_the_general_one() -> None:
    session = Session()

    def tell(value: int, ctx: None) -> int:
        session.remarks.append(Remark("passed", "other", "six more", "S0"))
        return value + 6

    assert passes.run(numbers(Pass("tell", tell, "adds six")), 0, None, session) == 6
    assert session.remarks == [Remark("passed", "tell", "six more", "S0")]


def test_a_pass_that_is_disabled_or_of_no_use_does_not_run() -> None:
    level = numbers(add(2), replace(add(4), when=lambda ctx: False), replace(add(8), required=True))
    assert passes.run(level, 0, None, Session(frozenset({"add-2", "add-8"}))) == 8


def test_a_fault_in_an_optional_pass_costs_the_pass_alone() -> None:
    session = Session()
    assert passes.run(numbers(add(2), Pass("bad", fail, "fails"), add(4)), 0, None, session) == 6
    assert [(r.kind, r.pass_name) for r in session.remarks] == [("passed", "add-2"), ("missed", "bad"), ("passed", "add-4")]
    assert "KeyError" in session.remarks[1].message and session.has_failed


def test_a_fault_in_a_required_pass_surfaces_and_with_debugging_any_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        passes.run(numbers(Pass("bad", fail, "fails", required=True)), 0, None, Session())
    monkeypatch.setenv("POLYC_DEBUG", "1")
    with pytest.raises(KeyError):
        passes.run(numbers(Pass("bad", fail, "fails")), 0, None, Session())


def test_a_value_that_is_not_well_formed_costs_the_pass_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    assert passes.run(numbers(add(1), add(4)), 0, None, session) == 4
    assert [(r.kind, r.pass_name) for r in session.remarks] == [("missed", "add-1"), ("passed", "add-4")]
    monkeypatch.setenv("POLYC_DEBUG", "1")
    with pytest.raises(InternalError, match="odd"):
        passes.run(numbers(add(1), add(4)), 0, None, Session())


def test_a_fault_in_a_pass_over_loops_does_not_cost_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(nest: object, ctx: object) -> object:
        raise IndexError("far out")

    steps = tuple(replace(p, run=broken) if p.name == "stream-stores" else p for p in pipeline.LOOPS.passes)
    monkeypatch.setattr(ladder, "LOOPS", replace(pipeline.LOOPS, passes=steps))
    op = polyc.compile(BLUR, target="x86-64-v3")
    lowered = op.lower(**LONG)
    messages = {(r.kind, r.pass_name): r.message for r in lowered.remarks}
    assert "IndexError: far out" in messages["missed", "stream-stores"]
    assert messages["passed", "schedule"].startswith("ilp:")
    assert not lowered.is_reproducible, "what failed today may work tomorrow, so it is not cached"
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    rows = x[:, :-1] + x[:, 1:]
    np.testing.assert_array_equal(op(x), rows[:-1] + rows[1:])


def test_options_disable_passes_of_both_levels() -> None:
    lowered = polyc.compile(BLUR, target="x86-64-v3", disable=("inline", "overlap")).lower(**LONG)
    assert "inline" not in {r.pass_name for r in lowered.remarks} and "t" in lowered.as_text("loops")
    assert "stream" in polyc.compile(BLUR, target="x86-64-v3").lower(**LONG).as_text("loops")
    assert "stream" not in polyc.compile(BLUR, target="x86-64-v3", disable="stream-stores").lower(**LONG).as_text("loops")


def test_former_names_of_passes_disable_what_does_the_same_now() -> None:
    assert polyc.compile(BLUR, disable=("split-interior", "unswitch-selects")).options.disable == ("partition-loops",)


@pytest.mark.parametrize("name, help", [("stream-store", "did you mean stream-stores?"), ("verify", "part of the translation")])
def test_what_is_no_optional_pass_cannot_be_disabled(name: str, help: str) -> None:
    with pytest.raises(polyc.PolycError) as caught:
        polyc.compile(BLUR, disable=name)
    assert caught.value.code == "argument-option" and help in str(caught.value)


def test_switches_of_the_release_before_are_names_now_and_say_so() -> None:
    with pytest.warns(DeprecationWarning, match="disable=.'factor-sums',."):
        op = polyc.compile(BLUR, factor_sums=False)
    assert op.options.disable == ("factor-sums",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert polyc.compile(BLUR, factor_sums=True).options.disable == ()
    with pytest.raises(polyc.PolycError, match="True or False"):
        polyc.compile(BLUR, factor_sums=1)


def test_former_names_of_passes_are_still_accepted() -> None:
    names = {p.name for level in driver.pass_levels() for p in level.passes if not p.required}
    assert names.isdisjoint(RENAMED) and names.issuperset(RENAMED.values())
    assert Options().replace(disable=("prefetch-steps", "merge")).disable == ("merge", "prefetch-accesses")


def test_names_are_unique_over_all_levels_and_every_pass_has_a_reason() -> None:
    found = [p for level in driver.pass_levels() for p in level.passes]
    assert len({p.name for p in found}) == len(found)
    assert all(p.why and p.why[0].islower() for p in found)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "blur.tc"
    path.write_text(BLUR)
    return str(path)


SIZED = ("--size", "H=4000,W=5000", "--target", "x86-64-v3")


def test_texts_before_and_after_a_pass_are_emitted(source: str) -> None:
    before = invoke("compile", source, *SIZED, "--emit", "loops:before=stream-stores").stdout
    after = invoke("compile", source, *SIZED, "--emit", "loops:after=stream-stores").stdout
    assert "stream y" in after and "stream y" not in before and before.startswith("nest blur")
    assert "temporary t" in invoke("compile", source, *SIZED, "--emit", "program:before=inline").stdout
    assert "temporary t" not in invoke("compile", source, *SIZED, "--emit", "program:after=inline").stdout


def test_a_pass_that_did_not_run_has_no_text(source: str) -> None:
    done = invoke("compile", source, *SIZED, "--emit", "loops:after=stream-stores", "--disable-pass", "stream-stores")
    assert done.exit_code == 1 and done.stdout == "" and "no pass stream-stores over loops ran" in done.stderr
    assert invoke("compile", source, "--emit", "sched:after=x").exit_code == 2


def test_changes_and_times_go_to_standard_error(source: str) -> None:
    done = invoke("compile", source, *SIZED, "--emit", "loops", "--print-changed", "--time-passes")
    assert done.exit_code == 0 and done.stdout.startswith("nest blur")
    assert "*** loops after stream-stores" in done.stderr and "+" in done.stderr
    assert "loops:stream-stores" in done.stderr and "all passes" in done.stderr


def test_passes_are_listed(source: str) -> None:
    rows = json.loads(invoke("passes", "--json").stdout)
    assert len(rows) >= 60 and {"name", "level", "required", "why"} == set(rows[0])
    assert {r["level"] for r in rows} == {"program", "plan", "loops"}
    text = invoke("passes", "--level", "loops").stdout
    assert "stream-stores" in text and "single-pass-moments" not in text


@pytest.mark.parametrize("value", [5, None])
def test_what_is_disabled_is_a_name_or_several(value: object) -> None:
    with pytest.raises(TypeError, match=f"option disable is the name of a pass, or several, not {value}"):
        Options().replace(disable=value)
