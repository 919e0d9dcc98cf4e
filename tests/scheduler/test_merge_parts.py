"""Borders that are parts of their own run in the steps of the interior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.objects.host import host_target
from polyc.config import default_options
from polyc.ir.interpret import interpret
from tests.scheduler.support import infer, read, run_pass

LINE = """def f(double(N) x, double(T) steps) -> (y) {
  A(0, i) = x(i)
  A(t, i) = 0.25 * A(t-1, i-1) + 0.5 * A(t-1, i) + 0.125 * A(t-1, i+1) where t in 1:T+1, i in 1:N-1
  A(t, 0) = A(t-1, 0) where t in 1:T+1
  A(t, N-1) = 0.5 * A(t-1, N-1) where t in 1:T+1
  y(i) = A(T, i)
}"""
PLANE = """def f(double(N, M) x, double(T) steps) -> (y) {
  A(0, i, j) = x(i, j)
  A(t + 1, i, j) = 0.2 * (A(t, i, j) + A(t, i, j-1) + A(t, i, j+1) + A(t, i-1, j) + A(t, i+1, j))
    where t in 0:T, i in 1:N-1, j in 1:M-1
  A(t, 0, j) = A(t-1, 0, j) where t in 1:T+1, j in 0:M
  A(t, N-1, j) = A(t-1, N-1, j) where t in 1:T+1, j in 0:M
  A(t, i, 0) = 1.5 where t in 1:T+1, i in 1:N-1
  A(t, k, M-1) = 0.5 * A(t-1, k, M-2) where t in 1:T+1, k in 1:N-1
  y(i, j) = A(T, i, j)
}"""
FIELDS = """def f(double(N, M) ex, double(N, M) ey, double(N, M) hz, double(T) source) -> (H) {
  X(0, i, j) = ex(i, j)  Y(0, i, j) = ey(i, j)  Z(0, i, j) = hz(i, j)
  Y(t+1, 0, j) = source(t) where t in 0:T, j in 0:M
  Y(t+1, i, j) = Y(t, i, j) - 0.5 * (Z(t, i, j) - Z(t, i-1, j)) where t in 0:T, i in 1:N, j in 0:M
  X(t+1, i, 0) = X(t, i, 0) where t in 0:T, i in 0:N
  X(t+1, i, j) = X(t, i, j) - 0.5 * (Z(t, i, j) - Z(t, i, j-1)) where t in 0:T, i in 0:N, j in 1:M
  Z(t+1, N-1, j) = Z(t, N-1, j) where t in 0:T, j in 0:M
  Z(t+1, i, M-1) = Z(t, i, M-1) where t in 0:T, i in 0:N-1
  Z(t+1, i, j) = Z(t, i, j) - 0.25 * (X(t+1, i, j+1) - X(t+1, i, j) + Y(t+1, i+1, j) - Y(t+1, i, j))
    where t in 0:T, i in 0:N-1, j in 0:M-1
  H(i, j) = Z(T, i, j)
}"""
SAME_STEP = """def f(double(N) x, double(T) steps) -> (y) {
  A(0, i) = x(i)
  A(t, i) = 0.25 * A(t-1, i-1) + 0.5 * A(t-1, i) + 0.125 * A(t-1, i+1) where t in 1:T+1, i in 1:N-1
  A(t, 0) = A(t, 1) where t in 1:T+1
  A(t, N-1) = A(t, N-2) where t in 1:T+1
  y(i) = A(T, i)
}"""
TRIANGLES = """def f(double(N, N) x, double(T) steps) -> (y) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = 0.5 * A(t-1, i, j) + 1.0 where j <= i, t in 1:T+1, i in 0:N, j in 0:N
  A(t, i, j) = 0.25 * A(t-1, j, i) where j > i, t in 1:T+1, i in 0:N, j in 0:N
  y(i, j) = A(T, i, j)
}"""
OTHER_STEPS = """def f(double(N) x) -> (y) {
  A(0, i) = x(i)
  A(t, i) = 0.5 * A(t-1, i) + 1.0 where t in 1:9, i in 1:N
  A(t, 0) = 2.0 where t in 1:4
  A(t, 0) = 3.0 where t in 4:9
  y(i) = A(8, i)
}"""
PREFIX = "def f(double(N) x) -> (y) { A(0) = x(0)  A(i) = 0.5 * A(i-1) + x(i) where i in 1:N  y(i) = A(i) }"


def run(text: str, *inputs: Any, tensors: str = "A", steps: int | None = None, **options: Any) -> list[str]:
    """The remarks about parts; the result is the interpreter's, and `tensors` keep so many steps."""
    operator = polyc.compile(text, **options)
    lowered = operator.lower(*inputs)
    program = lowered.program
    (expected,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    np.testing.assert_allclose(operator(*inputs), expected, rtol=1e-13, atol=1e-13)
    if steps is not None:
        assert all(lowered.storage[name].moduli[0] == steps for name in tensors), lowered.as_text("loops")
    return [r.message for r in lowered.remarks if r.pass_name == "merge-parts"]


def draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape)


@pytest.mark.each
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}])
@pytest.mark.parametrize("n", [3, 8, 33])
def test_the_ends_of_a_line(n: int, options: dict[str, Any]) -> None:
    assert run(LINE, draw(n), draw(6), steps=2, **options) == ["3 parts of a step of A are one statement"]


@pytest.mark.each
@pytest.mark.parametrize("shape", [(3, 3), (4, 17), (30, 33)])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_the_borders_of_a_plane(shape: tuple[int, int], options: dict[str, Any]) -> None:
    assert run(PLANE, draw(*shape), draw(7), steps=2, **options) == ["5 parts of a step of A are one statement"]


def test_borders_are_tiled_with_the_interior() -> None:
    operator, shape = polyc.compile(PLANE), (35, 300)
    target = replace(host_target(), l2=1 << 17)
    lowered = driver.lower(operator.program, sizes={"N": 35, "M": 300, "T": 9}, options=default_options(), target=target)
    x, steps = draw(*shape), draw(9)
    (expected,) = interpret(operator.program, {"x": x, "steps": steps}).values()
    np.testing.assert_allclose(lowered.compile()(x, steps), expected, rtol=1e-13)
    assert any("pipeline" in r.message for r in lowered.remarks) and lowered.storage["A"].moduli[0] == 2


@pytest.mark.parametrize("shape", [(3, 3), (9, 40)])
def test_fields(shape: tuple[int, int]) -> None:
    assert len(run(FIELDS, draw(*shape), draw(*shape), draw(*shape), draw(5), tensors="XYZ", steps=1)) == 3


def test_parts_that_need_the_interior_of_the_same_step_stay_apart() -> None:
    assert not run(SAME_STEP, draw(20), draw(6), steps=2)


def test_halves_on_both_sides_of_a_diagonal() -> None:
    assert run(TRIANGLES, draw(9, 9), draw(5), steps=2)


@pytest.mark.parametrize("text", [OTHER_STEPS, PREFIX])
def test_parts_of_other_steps_stay_apart(text: str) -> None:
    assert not run(text, draw(20))


def test_a_part_with_checks_at_run_time_stays_apart() -> None:
    text = LINE.replace("double(T) steps", "double(T) steps, int32(T) k").replace("A(t-1, 0)", "A(t-1, 0) + x(k(t-1))")
    assert "k(t-1)" in text
    program, ranges = infer(read(text), N=20, T=6)
    merged, _, remarks = run_pass("merge-parts", program, ranges)
    assert [r.message for r in remarks] == ["2 parts of a step of A are one statement"]
    assert sum(bool(ranges.statements[s.name].guards) for s in merged.statements) == 1


def test_a_part_that_reads_steps_to_come_stays_apart() -> None:
    text = LINE.replace("A(t, 0) = A(t-1, 0) where t in 1:T+1", "A(t, 0) = 0.5 * A(t+1, 0) where t in 1:T+1  A(T+1, 0) = 2.0")
    _, _, remarks = run_pass("merge-parts", *infer(read(text), N=20, T=6))
    assert [r.message for r in remarks] == ["2 parts of a step of A are one statement"]


@pytest.mark.parametrize("shape", [(3, 3), (20, 33)])
def test_rows_that_move_with_indices_already_taken(shape: tuple[int, int]) -> None:
    # The second row is 2t + j or the like: which indices are left is a question of independence, not of first appearance.
    text = """def f(double(N, M) x, double(T) s) -> (y) {
      A(0, i, j) = 2.0 * x(i, j)
      A(t, i, j) = 0.125 * A(t-1, i-1, j+1) + 0.5 where t in 1:T+1, i in 1:N-1, j in 1:M-1
      A(t, i, M-1) = 0.5 * A(t-1, i, M-1) where t in 1:T+1, i in 1:N-1
      A(t, 0, j) = 0.5 * A(t-1, 0, j) where t in 1:T+1, j in 0:M
      A(t, i, 0) = A(t-1, i, 0) where t in 1:T+1, i in 1:N-1
      A(t, N-1, j) = 0.5 * A(t-1, N-1, j) where t in 1:T+1, j in 0:M
      y(i, j) = A(T, i, j)
    }"""
    assert run(text, draw(*shape), draw(4))
    remarks = polyc.compile(text).lower(draw(*shape), draw(4)).remarks
    assert [r.message for r in remarks if r.pass_name == "schedule"] == ["ilp: proved by value and by storage"]


@pytest.mark.parametrize("size", [0, 1])
def test_a_part_beside_an_interior_without_points(size: int) -> None:
    """What holds everywhere came as the number 1, which LLVM does not negate."""
    operator = polyc.compile("""def f(int32(N) a, int32(M) c) -> (y) {
      D(i, 0) = a(0) + i where i in 0:N+1
      D(0, j) = j where j in 1:M+1
      D(i, j) = D(i - 1, j) + c(j - 1) where i in 1:N+1, j in 1:M+1
      y = D(N, M)
    }""")
    arrays = [np.full(4, 3, np.int32), np.full(size, 5, np.int32)]
    assert operator(*arrays) == [7, 21][size]
