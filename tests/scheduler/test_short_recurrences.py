"""Stencils over few steps as chains of statements: the same results, and tiles that need nothing of each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.interpret import interpret
from polyc.machine import X86_64_V3, X86_64_V4, Machine
from polyc.records import replace
from tests.scheduler.test_recurrence_ends import AROUND, BEFORE, BOX, LAST, PLANE, PLANES, plane, step

MORE = {
    "forced": plane(PLANE, f"A(t,i,j) = steps(t-1) + 0.25 * ({BEFORE}) where t in 1:T+1, i in 1:N-1, j in 1:M-1",
                    "A(t,0,j) = 1.0 where t in 1:T+1, j in 0:M", "A(t,N-1,j) = 2.0 where t in 1:T+1, j in 0:M",
                    "A(t,i,0) = 3.0 where t in 1:T+1, i in 1:N-1", "A(t,i,M-1) = 4.0 where t in 1:T+1, i in 1:N-1", LAST),
    "sum-of-each-step": plane(PLANE, step(f"0.25 * ({BEFORE})"), LAST, "E(t) +=! A(t,i,j) where t in 0:T+1", results="Y, E"),
    "first-step-known": plane(
        PLANE, f"A(t,i,j) = i >= 1 && i < N-1 && j >= 1 && j < M-1 ? 0.25 * ({BEFORE}) + A(0,i,j) : A(t-1,i,j)"
        f" where t in 1:T+1, {BOX}", LAST),
}  # fmt: skip


def small_cache(target: Machine) -> Machine:
    return replace(target, l1=1 << 9, l2=1 << 11, l3=1 << 13)


def lower(text: str, n: int, m: int, t: int, target: Machine, **options: Any) -> Any:
    program = polyc.compile(text).program
    chosen = default_options().replace(**options)
    return driver.lower(program, sizes={"N": n, "M": m, "T": t}, options=chosen, target=target)


def is_written_out(lowered: Any) -> bool:
    return any(r.pass_name == "short-recurrences" and r.kind == "passed" for r in lowered.remarks)


@pytest.mark.parametrize("name", [*PLANES, *MORE])
def test_few_steps_are_those_of_the_interpreter(name: str) -> None:
    text = {**PLANES, **MORE}[name]
    target = small_cache(host_target())
    rng = np.random.default_rng(0)
    for n, m, t in [(23, 41, 1), (19, 37, 4)]:
        x, steps = rng.standard_normal((n, m)).astype(np.float32), rng.standard_normal(t).astype(np.float32)
        lowered = lower(text, n, m, t, target)
        found = lowered.compile()(x, steps)
        expected = interpret(lowered.program, {"X": x, "steps": steps})
        for r, result in zip(lowered.program.returns, found if isinstance(found, tuple) else (found,), strict=True):
            np.testing.assert_allclose(result, expected[r.name], rtol=1e-5, atol=1e-5, err_msg=f"{n}, {m}, {t}")


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4], ids=str)
def test_one_pass_over_memory_whose_tiles_stand_alone(target: Machine) -> None:
    lowered = lower(PLANES["border-copied"], 4096, 4096, 5, target)
    assert is_written_out(lowered)
    assert not [b for b in lowered.nest.buffers if b.space == "shared"]
    assert sum(loop.startswith("  parallel") for loop in lowered.as_text("loops").splitlines()) == 1


@pytest.mark.parametrize("name", ["in-order", "all-steps-returned"])
def test_what_no_chain_is_made_of(name: str) -> None:
    assert not is_written_out(lower(PLANES[name], 40, 64, 4, small_cache(X86_64_V3)))


def test_many_steps_and_small_ones_and_cubes_stay_loops() -> None:
    assert is_written_out(lower(PLANES["two-fields"], 40, 64, 8, small_cache(X86_64_V3)))
    assert not is_written_out(lower(PLANES["two-fields"], 40, 64, 9, small_cache(X86_64_V3)))
    assert not is_written_out(lower(PLANES["border-copied"], 40, 64, 4, X86_64_V3))
    cube = """def f(float(N,M,M) X, float(T) steps) -> (Y) {
      A(0,i,j,k) = X(i,j,k) where i in 0:N, j in 0:M, k in 0:M
      A(t,i,j,k) = i >= 1 ? 0.5 * (A(t-1,i-1,j,k) + A(t-1,i,j,k)) : A(t-1,i,j,k) where t in 1:T+1, i in 0:N, j in 0:M, k in 0:M
      Y(i,j,k) = A(T,i,j,k) where i in 0:N, j in 0:M, k in 0:M }"""
    assert not is_written_out(lower(cube, 16, 16, 4, small_cache(X86_64_V3)))


def test_no_step_of_padded_ones_is_only_copied() -> None:
    around = AROUND.format(a="A", t="t-1").replace("A(t-1,i-1,j)", "pad(A(t-1,i-1,j), wrap)")
    text = plane(PLANE, f"A(t,i,j) = 0.25 * ({around}) where t in 1:T+1, {BOX}".replace("i+1", "min(i+1, N-1)")
                 .replace("j+1", "min(j+1, M-1)").replace("j-1", "max(j-1, 0)"), LAST)  # fmt: skip
    lowered = lower(text, 40, 64, 1, small_cache(X86_64_V3))
    assert is_written_out(lowered) and {b.name for b in lowered.nest.buffers} == {"X", "steps", "Y"}
