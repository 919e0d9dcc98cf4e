"""The ladder of schedules: a fault of a pass costs speed, not the program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyc
from polyc.codegen.nests.pipeline import LOOPS
from polyc.diagnostics import InternalError
from polyc.driver import ladder
from polyc.ir.expr import int_const
from polyc.ir.loops import Loop, LoopNest

TEXT = "def f(float(M,N) X) -> (Y) { Y(j,i) = X(i,j) }"


def hide(nest: LoopNest) -> LoopNest:
    """The nest with a loop of the same name around its first one, as of a pass that takes a name twice."""
    first = next(n for n in nest.body if isinstance(n, Loop))
    around = Loop(first.var, int_const(0), int_const(1), 1, "serial", nest.body)
    return replace(nest, body=(around,))


@pytest.fixture
def faulty(monkeypatch):
    """A pass that is at fault."""
    steps = tuple(replace(p, run=lambda nest, ctx: hide(nest)) if p.name == "align-reads" else p for p in LOOPS.passes)
    monkeypatch.setattr(ladder, "LOOPS", replace(LOOPS, passes=steps))


def test_a_loop_that_hides_another_costs_the_pass_that_made_it(faulty, monkeypatch):
    monkeypatch.delenv("POLYC_DEBUG", raising=False)
    f = polyc.compile(TEXT)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(f(x), x.T)
    assert "missed   align-reads: left out" in f.explain(x) and "hides another variable" in f.explain(x)


def test_a_loop_that_hides_another_surfaces_when_debugging(faulty, monkeypatch):
    monkeypatch.setenv("POLYC_DEBUG", "1")
    with pytest.raises(InternalError, match="hides another variable"):
        polyc.compile(TEXT).lower(np.zeros((5, 7), np.float32))
