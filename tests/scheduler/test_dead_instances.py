"""What completes a recurrence's tensor and is never read is not computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from benchmarks.polybench import KERNELS
from polyc.ir.interpret import interpret

TRIANGLE = """def f(double(N) x) -> (y) {
  Y(k, i) = i < k ? 0.5 * Y(k-1, i) + Y(k-1, k-1-i) : (i == k ? x(k) : 0.0) where k in 0:N, i in 0:N
  y(i) = Y(N-1, i)
}"""
PARTS = """def f(double(N, N) x) -> (y) {
  V(0, i, j) = x(i, j)
  V(k + 1, i, j) = 0.5 * V(k, i, j) + V(k, k, j) where i > k, k in 0:N, i in 0:N, j in 0:N
  V(k + 1, i, j) = 0.0 where i <= k, k in 0:N, i in 0:N, j in 0:N
  y(k, j) = V(k, k, j) where k in 0:N
}"""
ALL_READ = """def f(double(N) x) -> (y) {
  Y(0, i) = x(i)
  Y(k, i) = i < k ? 0.5 * Y(k-1, i) : 2.0 * Y(k-1, i) where k in 1:4, i in 0:N
  y(i) = Y(3, i)
}"""
GUARDED = """def f(double(N) x, int32(N) I) -> (y) {
  Y(k, i) = i <= k ? (k > i ? Y(k-1, i) : 0.0) + x(I(k)) : x(I(i)) where k in 0:N, i in 0:N
  y(i) = Y(N-1, i)
}"""


def run(text: str, *inputs: Any, **options: Any) -> Any:
    operator = polyc.compile(text, **options)
    lowered = operator.lower(*inputs)
    program = lowered.program
    (expected,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    np.testing.assert_allclose(operator(*inputs), expected, rtol=1e-13, atol=1e-13)
    return lowered


def dead(lowered: Any) -> list[str]:
    return [r.message for r in lowered.remarks if r.pass_name == "dead"]


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-0.5, 0.5, shape)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}])
def test_half_of_a_square(n: int, options: dict[str, Any]) -> None:
    lowered = run(TRIANGLE, draw(n), **options)
    assert n == 1 or dead(lowered) == ["elements of Y that nothing reads are not computed"]


def test_a_part_that_nothing_reads_keeps_no_steps_alive() -> None:
    lowered = run(PARTS, draw(9, 9))
    assert "V is never read where this statement writes it" in dead(lowered)
    assert lowered.storage["V"].moduli[0] == 1


def test_gramschmidt_keeps_one_step() -> None:
    lowered = polyc.compile(KERNELS["gramschmidt"].source).lower(N=40, M=33)
    assert lowered.storage["V"].moduli[0] == 1


def test_what_is_read_is_computed() -> None:
    assert not dead(run(ALL_READ, draw(9)))


def test_subscripts_are_checked_in_dead_instances_too() -> None:
    operator = polyc.compile(GUARDED)
    index = np.array([0, 1, 2, 9], np.int32)
    with pytest.raises(IndexError):
        operator(draw(4), index)
