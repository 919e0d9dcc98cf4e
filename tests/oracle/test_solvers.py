"""Iterations as one operator each: conjugate gradients, power iteration, means of clusters, Newton's method.

Same results and same number of steps as loops that break, one step's state in memory, and no loops in steps behind the last.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import polyc
from benchmarks.workloads.solvers import SOLVERS
from polyc.scheduler.rewriting import recurrence_ends
from tests.oracle.test_recurrence_ends import system

MATRIX, RIGHT = system(13)
POINTS = np.random.default_rng(3).random((61, 3))
CASES: dict[str, tuple[tuple[Any, ...], tuple[float, ...]]] = {
    "gradients": ((MATRIX + MATRIX.T, RIGHT), (1e-12,)),
    "power": ((MATRIX + np.diag(RIGHT), RIGHT), (1e-3,)),
    "means": ((POINTS, POINTS[:5].copy()), ()),
    "newton": ((MATRIX, RIGHT), (1e-9,)),
}
"""Of the board's solvers: arrays, and bounds behind the number of steps.  The solution of conjugate gradients, the eigenvalue,
and the clusters of the last step follow: nothing of the next step asks for them."""


@functools.cache
def operator(name: str) -> Any:
    return polyc.compile(SOLVERS[name].source, dynamic=True)


@pytest.mark.parametrize("name", CASES)
def test_an_iteration_takes_the_steps_of_its_loop(name: str) -> None:
    arrays, bounds = CASES[name]
    taken = set()
    for limit in (1, 2, 3, 5, 90):
        expected = SOLVERS[name].solve(*arrays, limit, *bounds)
        result = operator(name)(*arrays, limit, *bounds)
        assert int(result[-1]) == expected[-1]
        for own, other in zip(result, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)
        taken.add(expected[-1])
    assert 3 < max(taken) < 89


STATES = {"gradients": "xrpq", "power": "vwmg", "means": "B"}


@pytest.mark.parametrize("name", STATES)
def test_an_iteration_keeps_one_step_and_runs_no_loops_behind_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps as long as for which the last one would be computed where it is read, beside those loops."""
    monkeypatch.setattr(recurrence_ends, "LEAST_ELEMENTS", 1)
    arrays, bounds = CASES[name]
    lowered = polyc.compile(SOLVERS[name].source, target="x86-64-v3").lower(*arrays, 90, *bounds)
    assert "= true;" in lowered.as_text("loops")
    assert {state: lowered.storage[state].moduli[0] for state in STATES[name]} == dict.fromkeys(STATES[name], 1)
