"""Recurrences whose first step reads the caller's arrays, and whose last one writes them."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.ir.expr import Read
from polyc.ir.interpret import interpret
from polyc.ir.loops import Store
from polyc.ir.walk import walk_nodes
from tests.scheduler.support import infer, read, run_pass

AROUND = "{a}({t},i-1,j) + {a}({t},i+1,j) + {a}({t},i,j-1) + {a}({t},i,j+1)"
INSIDE = "i >= 1 && i < N-1 && j >= 1 && j < M-1"
BOX = "i in 0:N, j in 0:M"
BEFORE = AROUND.format(a="A", t="t-1")
PLANE = "A(0,i,j) = X(i,j) where i in 0:N, j in 0:M"
LAST = f"Y(i,j) = A(T,i,j) where {BOX}"


def step(value: str, border: str = "A(t-1,i,j)") -> str:
    return f"A(t,i,j) = {INSIDE} ? {value} : {border} where t in 1:T+1, {BOX}"


def plane(*statements: str, results: str = "Y") -> str:
    return f"def f(float(N,M) X, float(T) steps) -> ({results}) {{ {'  '.join(statements)} }}"


PLANES = {
    "border-copied": plane(PLANE, step(f"0.2 * (A(t-1,i,j) + {BEFORE})"), LAST),
    "border-of-zeros": plane(PLANE, step(f"0.25 * ({BEFORE})", "0.0"), LAST),
    "border-by-or": plane(
        PLANE,
        f"A(t,i,j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1,i,j) : 0.25 * ({BEFORE}) where t in 1:T+1, {BOX}",
        LAST,
    ),
    "border-of-initial-state": plane(PLANE, step(f"0.25 * ({BEFORE})", "A(0,i,j)"), LAST),
    "border-padded": plane(
        PLANE,
        "A(t+1,i,j) = 0.25 * (pad(A(t,i-1,j), 0.0) + pad(A(t,i+1,j), 0.0) + pad(A(t,i,j-1), 0.0) + A(t,i,j))"
        f" where t in 0:T, {BOX}",
        LAST,
    ),
    "border-wrapped": plane(
        PLANE,
        f"A(t+1,i,j) = 0.5 * (pad(A(t,i-1,j), wrap) + pad(A(t,i,j+1), wrap)) where t in 0:T, {BOX}",
        LAST,
    ),
    "border-mirrored": plane(
        PLANE,
        "A(t+1,i,j) = 0.25 * (A(t,max(i-1,0),j) + A(t,min(i+1,N-1),j) + A(t,i,max(j-1,0)) + A(t,i,min(j+1,M-1)))"
        f" where t in 0:T, {BOX}",
        LAST,
    ),
    "border-apart": plane(
        PLANE,
        f"A(t,i,j) = 0.25 * ({BEFORE}) where t in 1:T+1, i in 1:N-1, j in 1:M-1",
        "A(t,0,j) = A(t-1,0,j) where t in 1:T+1, j in 0:M",
        "A(t,N-1,j) = 2.0 where t in 1:T+1, j in 0:M",
        "A(t,i,0) = A(t-1,i,0) where t in 1:T+1, i in 1:N-1",
        "A(t,i,M-1) = A(t-1,i,M-1) where t in 1:T+1, i in 1:N-1",
        LAST,
    ),
    "counted-from-next": plane(
        PLANE,
        f"A(t+1,i,j) = {INSIDE} ? 0.25 * ({AROUND.format(a='A', t='t')}) : A(t,i,j) where t in 0:T, {BOX}",
        LAST,
    ),
    "constant-start": plane(
        f"A(0,i,j) = 1.0 where {BOX}", f"A(t,i,j) = {INSIDE} ? X(i,j) + 0.25 * ({BEFORE}) : 0.5 where t in 1:T+1, {BOX}", LAST
    ),
    "turned-start": plane(f"A(0,i,j) = X(N-1-i,j) where {BOX}", step(f"0.25 * ({BEFORE})"), LAST),
    "last-step-changed": plane(PLANE, step(f"0.25 * ({BEFORE})"), f"Y(i,j) = 2.0 * A(T,i,j) + X(i,j) where {BOX}"),
    "last-step-inside": plane(PLANE, step(f"0.25 * ({BEFORE})"), "Y(i,j) = A(T,i+1,j+1) where i in 0:N-2, j in 0:M-2"),
    "two-steps-returned": plane(
        PLANE,
        f"A(1,i,j) = 0.5 * X(i,j) where {BOX}",
        f"A(t,i,j) = {INSIDE} ? A(t-2,i,j) + 0.1 * ({BEFORE}) : A(t-1,i,j) where t in 2:T+2, {BOX}",
        f"Y(i,j) = A(T+1,i,j) where {BOX}",
        f"Z(i,j) = A(T,i,j) where {BOX}",
        results="Y, Z",
    ),
    "last-step-twice": plane(PLANE, step(f"0.25 * ({BEFORE})"), LAST, f"Z(i,j) = A(T,i,j) + 1.0 where {BOX}", results="Y, Z"),
    "all-steps-returned": plane(PLANE, step(f"0.25 * ({BEFORE})"), results="A"),
    "all-steps-read": plane(
        PLANE, step(f"0.25 * ({BEFORE})"), LAST, "Z(t,i) = A(t,i,0) where t in 0:T+1, i in 0:N", results="Y, Z"
    ),
    "in-order": plane(
        PLANE,
        f"A(t,i,j) = {INSIDE} ? 0.25 * (A(t,i-1,j) + A(t-1,i+1,j) + A(t,i,j-1) + A(t-1,i,j+1)) : A(t-1,i,j)"
        f" where t in 1:T+1, {BOX}",
        LAST,
    ),
    "two-fields": plane(
        PLANE,
        f"B(0,i,j) = 0.5 * X(i,j) where {BOX}",
        step(f"min(A(t-1,i,j) * B(t-1,i,j), 2.0) + 0.1 * ({BEFORE})"),
        f"B(t,i,j) = {INSIDE} ? A(t-1,i,j) - 0.1 * ({AROUND.format(a='B', t='t-1')}) : B(t-1,i,j) where t in 1:T+1, {BOX}",
        LAST,
        f"Z(i,j) = B(T,i,j) where {BOX}",
        results="Y, Z",
    ),
    "staggered-fields": plane(
        PLANE,
        f"B(0,i,j) = X(i,j) where {BOX}",
        f"A(t,i,j) = {INSIDE} ? B(t-1,i-1,j) + 0.1 * A(t-1,i,j) : A(t-1,i,j) where t in 1:T+1, {BOX}",
        f"B(t,i,j) = {INSIDE} ? A(t,i+1,j) - 0.1 * B(t-1,i,j) : B(t-1,i,j) where t in 1:T+1, {BOX}",
        LAST,
        f"Z(i,j) = B(T,i,j) where {BOX}",
        results="Y, Z",
    ),
}


@pytest.mark.parametrize("name", PLANES)
def test_steps_at_any_sizes(name: str) -> None:
    operator = polyc.compile(PLANES[name], dynamic=True)
    program = operator.program
    rng = np.random.default_rng(0)
    for n, m, t in [(2, 3, 1), (5, 2, 2), (7, 13, 0), (7, 13, 1), (13, 37, 2), (13, 37, 3), (11, 40, 9)]:
        x, steps = rng.standard_normal((n, m)).astype(np.float32), np.zeros(t, np.float32)
        found = operator(x, steps)
        expected = interpret(program, {"X": x, "steps": steps})
        for r, result in zip(program.returns, found if isinstance(found, tuple) else (found,), strict=True):
            np.testing.assert_allclose(result, expected[r.name], rtol=1e-5, atol=1e-5, err_msg=f"{n}, {m}, {t}")


@pytest.mark.parametrize("t", [1, 2, 5])
def test_no_step_is_only_copied(t: int) -> None:
    x, steps = np.ones((64, 96), np.float32), np.zeros(t, np.float32)
    nest = polyc.compile(PLANES["border-of-zeros"], target="x86-64-v3").lower(x, steps).nest
    stores = [node for node in walk_nodes(nest.body) if isinstance(node, Store)]
    assert not [s for s in stores if isinstance(s.value, Read)]
    assert ("A" in {b.name for b in nest.buffers}) == (t > 1)


IN_PARTS = plane(
    "A(0,i,j) = X(i,j) where i in 0:N-1, j in 0:M", "A(0,N-1,j) = 1.0 where j in 0:M", step(f"0.25 * ({BEFORE})"), LAST
)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (PLANES["last-step-twice"], "last step"),
        (PLANES["all-steps-read"], "last step"),
        (PLANES["in-order"], "first step"),
        (PLANES["staggered-fields"], "first step"),
        (IN_PARTS, "first step"),
    ],
    ids=["read twice", "read with the others", "one statement in order", "two statements in order", "two initial values"],
)
def test_steps_that_are_stored(text: str, end: str) -> None:
    _, _, remarks = run_pass("recurrence-ends", *infer(read(text), N=64, M=96, T=5))
    assert not any(end in r.message for r in remarks)


@pytest.mark.parametrize(("t", "name"), [(1, "border-copied"), (2, "counted-from-next"), (5, "border-copied")])
def test_results_in_the_place_of_inputs(t: int, name: str) -> None:
    x = np.random.default_rng(t).standard_normal((40, 50)).astype(np.float32)
    operator, steps = polyc.compile(PLANES[name], dynamic=False), np.zeros(t, np.float32)
    (expected,) = interpret(operator.program, {"X": x.copy(), "steps": steps}).values()
    operator(x, steps, out=x)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
