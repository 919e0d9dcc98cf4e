"""The ladder of schedules: each rung is taken when the one above fails, and what runs is always proved."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.nests import pipeline
from polyc.codegen.objects import jit
from polyc.config import Options
from polyc.diagnostics import ArgumentError, CompileBudgetError, Diagnostic, InternalError, UnsupportedError
from polyc.driver import forms, ladder, stages
from polyc.ir.expr import int_const
from polyc.machine import X86_64_V3
from polyc.poly.instances import Violation
from polyc.scheduler.rewriting.pipeline import PROGRAM
from polyc.scheduler.rows import fallback, ilp
from polyc.scheduler.size_classes import SizeClasses, Version
from tests.scheduler.support import check_nest, lower, read

SOFTMAX = """def softmax(float(N, D) X) -> (O) {
  M(n) max=! X(n, d)  E(n, d) = exp(X(n, d) - M(n))  Z(n) +=! E(n, d)  O(n, d) = E(n, d) / Z(n) }"""
SIZES = {"N": 9, "D": 37}


@pytest.fixture(autouse=True)
def _no_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYC_DEBUG", raising=False)


def said(lowered: driver.Lowered, kind: str) -> list[str]:
    return [r.message for r in lowered.remarks if r.pass_name == "schedule" and r.kind == kind]


def works(lowered: driver.Lowered) -> None:
    """The nest gives the right results whatever the ladder said."""
    lowered.remarks = ()
    check_nest(lowered, SIZES)


def fail_first(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, times: int, failure: Callable[[], Any]) -> list[int]:
    """Let the first calls of a function end in `failure()`; the list counts the calls."""
    original, calls = getattr(module, name), [0]

    def replaced(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        return failure() if calls[0] <= times else original(*args, **named)

    monkeypatch.setattr(module, name, replaced)
    return calls


def raise_budget() -> None:
    raise CompileBudgetError(Diagnostic("budget-test", "too much work"))


def raise_fault() -> None:
    raise KeyError("a fault")


def test_the_first_rung_is_the_ilp():
    lowered = lower(SOFTMAX, SIZES)
    assert said(lowered, "passed") == ["ilp: proved by value and by storage"] and not said(lowered, "missed")
    works(lowered)


LADDER = [
    "ilp: proved by value and by storage",
    "ilp, simplified: proved by value and by storage",
    "isl: proved by value and by storage",
    "source: proved by value and by storage",
    "source, simplified: proved by value and by storage",
]


@pytest.mark.parametrize("n", range(len(LADDER)))
@pytest.mark.parametrize(
    "failure", [lambda: Violation("not today"), raise_budget, raise_fault], ids=["proof", "budget", "fault"]
)
def test_a_rung_that_fails_leads_to_the_next(monkeypatch, n, failure):
    calls = fail_first(monkeypatch, ladder, "prove_values", n, failure)
    lowered = lower(SOFTMAX, SIZES)
    assert said(lowered, "passed") == [LADDER[n]]
    assert len(said(lowered, "missed")) == n and calls[0] == n + 1
    works(lowered)


def test_the_proof_by_storage_is_asked_as_well(monkeypatch):
    fail_first(monkeypatch, ladder, "prove_storage", 1, lambda: Violation("two values meet"))
    lowered = lower(SOFTMAX, SIZES)
    assert said(lowered, "missed") == ["ilp is not proved: two values meet"]
    works(lowered)


def test_a_scheduler_that_finds_nothing(monkeypatch):
    monkeypatch.setattr(ilp, "schedule_statements", lambda scop, dependences, **_: None)
    monkeypatch.setattr(fallback, "schedule_with_isl", lambda scop, dependences: None)
    lowered = lower(SOFTMAX, SIZES)
    assert said(lowered, "missed") == ["ilp found no schedule", "ilp found no schedule", "isl found no schedule"]
    assert said(lowered, "passed") == [LADDER[3]]
    works(lowered)


def test_too_much_code_is_a_reason_to_climb_down(monkeypatch):
    fail_first(monkeypatch, pipeline, "check_code_size", 1, raise_budget)
    lowered = lower(SOFTMAX, SIZES)
    assert said(lowered, "missed") == ["ilp: too much work"] and said(lowered, "passed") == [LADDER[1]]
    works(lowered)


def test_nothing_runs_that_is_not_proved(monkeypatch):
    fail_first(monkeypatch, ladder, "prove_values", 99, lambda: Violation("not today"))
    with pytest.raises(InternalError, match="internal-schedule") as caught:
        lower(SOFTMAX, SIZES)
    assert "no schedule of softmax could be proved" in str(caught.value) and "not today" in str(caught.value)


def test_faults_surface_when_debugging(monkeypatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")
    fail_first(monkeypatch, ladder, "prove_values", 1, raise_fault)
    with pytest.raises(KeyError, match="a fault"):
        lower(SOFTMAX, SIZES)


def test_budgets_and_refused_proofs_do_not_surface_when_debugging(monkeypatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")
    fail_first(monkeypatch, ladder, "prove_values", 1, raise_budget)
    works(lower(SOFTMAX, SIZES))


@pytest.mark.parametrize(("name", "rung"), [("ilp", 0), ("isl", 2), ("source", 3)])
def test_the_option_chooses_the_first_rung(name, rung):
    lowered = lower(SOFTMAX, SIZES, options=Options(scheduler=name))
    assert said(lowered, "passed") == [LADDER[rung]]
    works(lowered)


def test_without_tiles_there_is_no_rung_without_tiles(monkeypatch):
    fail_first(monkeypatch, ladder, "prove_values", 1, lambda: Violation("not today"))
    assert said(lower(SOFTMAX, SIZES, options=Options(tile=False)), "passed") == [LADDER[2]]


@pytest.mark.parametrize("option", ["inline", "tile", "vectorize", "parallel", "reassociate"])
def test_every_option_alone(option):
    lowered = lower(SOFTMAX, SIZES, options=Options().replace(**{option: False}))
    assert not said(lowered, "missed")
    works(lowered)


def test_stages_and_their_names():
    lowered = driver.lower(read(SOFTMAX), target=X86_64_V3)
    for stage in ("program", "scop", "sched", "loops", "ll"):
        assert lowered.as_text(stage).strip()
    with pytest.raises(ArgumentError, match="did you mean loops"):
        lowered.as_text("loop")


def test_unknown_targets_are_named():
    with pytest.raises(ArgumentError, match="no target 'arm'"):
        driver.select_target(Options(target="arm"))


def test_shapes_of_results():
    program = read("def f(float(N) X) -> (O) { O(i) = X(i-1) where i in 1:N }")
    assert driver.infer_shapes(program, {"N": 5}) == {"O": ((1,), (4,))}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_in_the_middle_of_a_compilation_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cached property of the object code has a lock of its own before Python 3.12, as have modules being imported."""
    compiling, release = threading.Event(), threading.Event()
    make = jit.compile_object

    def slow(*arguments: Any) -> bytes:
        compiling.set()
        release.wait(0.2)
        return make(*arguments)

    monkeypatch.setattr(jit, "compile_object", slow)
    monkeypatch.setenv("POLYC_CACHE", "0")
    x = np.arange(4, dtype=np.float32)
    other = polyc.compile("def f(float(N) x) -> (y) { y(i) = x(i) + 1.0 }")
    own = polyc.compile("def f(float(N) x) -> (y) { y(i) = x(i) + 2.0 }")
    thread = threading.Thread(target=other, args=(x,))
    thread.start()
    compiling.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if np.array_equal(own(x), x + 2) else 1)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_scheduled_as_written_stays_so_for_every_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice of a better size class started over with the rewritings that had found no order of loops."""
    monkeypatch.setenv("POLYC_CACHE", "0")
    asked: list[bool] = []
    run, climb = forms.passes.run, stages.climb_down

    def record(level: Any, value: Any, context: Any, session: Any) -> Any:
        if level is PROGRAM:
            asked.append(context.as_written)
        return run(level, value, context, session)

    def refuse_what_was_rewritten(*arguments: Any) -> Any:
        if not asked[-1]:
            raise UnsupportedError(Diagnostic("unsupported-recurrence", "no order of loops was found"))
        return climb(*arguments)

    monkeypatch.setattr(forms.passes, "run", record)

    def prefer_others(*_: Any) -> SizeClasses | None:
        return SizeClasses((Version({"M": 9, "N": 9, "K": 9}),), (int_const(0),)) if asked[-1] else None

    monkeypatch.setattr(stages, "climb_down", refuse_what_was_rewritten)
    monkeypatch.setattr(stages, "find_size_classes", prefer_others)
    product = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(i, j) +=! A(i, k) * B(k, j) }"
    a, b = (np.arange(12, dtype=np.float32).reshape(shape) for shape in ((3, 4), (4, 3)))
    lowered = polyc.compile(product, dynamic=True).lower(a, b)
    assert any("scheduled as written" in str(remark) for remark in lowered.remarks)
    assert asked[:1] == [False] and len(asked) > 2 and all(asked[1:])
    np.testing.assert_array_equal(lowered.compile()(a, b), a @ b)
