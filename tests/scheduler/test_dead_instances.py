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


@pytest.mark.each
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


BAND = """def f(double(N, N) A) -> (L) {
  s(i, j) +=! L(i, k) * L(j, k) where i in 0:N, j in 0:N, k in 0:N, k < j, j <= i, i - k <= 3
  L(i, j) = i == j ? sqrt(A(i, i) - s(i, i)) : (A(i, j) - s(i, j)) / L(j, j) where i in 0:N, j in 0:N, j <= i, i - j <= 3
  L(i, j) = 0.0 where i in 0:N, j in 0:N, i - j > 3
  L(i, j) = 0.0 where i in 0:N, j in 0:N, j > i
}"""


@pytest.mark.each
@pytest.mark.parametrize("n", [1, 3, 4, 5, 33, 130])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}])
def test_sums_beside_a_band_have_no_start(n: int, options: dict[str, Any]) -> None:
    a = draw(n, n)
    lowered = run(BAND, a + a.T + 8 * np.eye(n), **options)
    assert n < 5 or dead(lowered) == ["elements of s that nothing reads have no start"]
    assert not [r for r in lowered.remarks if r.pass_name == "block-recurrences" and r.kind == "passed"]


def test_sums_that_a_result_reads_keep_their_start_where_no_term_reaches() -> None:
    text = "def f(double(N, N) A) -> (T) { s(i, j) +=! A(i, k) where j in 0:N, k < j  T(i, j) = s(i, j) + 1.0 }"
    assert dead(run(text, draw(9, 9))) == []
