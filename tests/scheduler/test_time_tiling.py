"""Tiles of time: small caches make them appear at sizes that the interpreter can follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.codegen.host import host_target
from polyc.config import default_options
from polyc.ir.interpret import interpret
from polyc.poly.tree import Plan, PlanLoop, PlanSequence
from polyc.target import Target, restrict

Array = np.ndarray[Any, Any]

LINE = """def f(double(N) x, double(T) steps) -> (B) {
  A(0, i) = x(i)
  A(t, i) = i == 0 || i == N-1 ? A(t-1, i) : 0.25 * (A(t-1, i-1) + A(t-1, i)) + 0.5 * A(t-1, i+1) where t in 1:T+1, i in 0:N
  B(i) = A(T, i)
}"""
PLANE = """def f(double(N, M) x, double(T) steps) -> (B) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : 0.25 * (A(t-1, i-1, j) + A(t-1, i+1, j) + A(t-1, i, j-1)) + 0.125 * A(t-1, i, j+1) + x(i, j)
    where t in 1:T+1, i in 0:N, j in 0:M
  B(i, j) = A(T, i, j)
}"""
CUBE = """def f(double(N, M, K) x, double(T) steps) -> (B) {
  A(0, i, j, k) = x(i, j, k)
  A(t, i, j, k) = i == 0 || i == N-1 || j == 0 || j == M-1 || k == 0 || k == K-1 ? A(t-1, i, j, k)
    : 0.125 * (A(t-1, i-1, j, k) + A(t-1, i+1, j, k) + A(t-1, i, j-1, k) + A(t-1, i, j+1, k) + A(t-1, i, j, k-1))
    + 0.375 * A(t-1, i, j, k+1) where t in 1:T+1, i in 0:N, j in 0:M, k in 0:K
  B(i, j, k) = A(T, i, j, k)
}"""
FIELDS = """def f(double(N, M) ex, double(N, M) ey, double(N, M) hz, double(T) steps) -> (H) {
  X(0, i, j) = ex(i, j)
  Y(0, i, j) = ey(i, j)
  Z(0, i, j) = hz(i, j)
  Y(t, i, j) = Y(t-1, i, j) - 0.5 * (Z(t-1, i, j) - pad(Z(t-1, i-1, j), 0.0)) where t in 1:T+1, i in 0:N, j in 0:M
  X(t, i, j) = X(t-1, i, j) - 0.5 * (Z(t-1, i, j) - pad(Z(t-1, i, j-1), 0.0)) where t in 1:T+1, i in 0:N, j in 0:M
  Z(t, i, j) = Z(t-1, i, j) - 0.25 * (pad(X(t, i, j+1), 0.0) - X(t, i, j) + pad(Y(t, i+1, j), 0.0) - Y(t, i, j))
    where t in 1:T+1, i in 0:N, j in 0:M
  H(i, j) = Z(T, i, j)
}"""


def small_cache(name: str = "host", l2: int = 1 << 12) -> Target:
    return replace(restrict(host_target(), name) if name != "host" else host_target(), l2=l2)


def check(text: str, *inputs: Array, is_tiled: bool = True, target: Target | None = None, **options: Any) -> Any:
    operator = polyc.compile(text)
    program = operator.lower(*inputs).program
    sizes = {
        name: n for a, spec in zip(inputs, operator.program.parameters, strict=True) for name, n in _sizes(operator, spec, a)
    }
    chosen = default_options().replace(**options)
    lowered = driver.lower(operator.program, sizes=sizes, options=chosen, target=target or small_cache())
    text = lowered.as_text("loops")
    (expected,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    np.testing.assert_allclose(lowered.compile()(*inputs), expected, rtol=1e-12, atol=1e-12)
    parts = {loop.part for loop in _loops(lowered.plan)}
    assert ("wave" in parts) == (is_tiled and chosen.parallel), text
    return lowered


def _sizes(operator: Any, name: str, array: Array) -> list[tuple[str, int]]:
    shape = operator.program.tensor(name).shape
    return [(e.name, n) for e, n in zip(shape, array.shape, strict=True)]


def _loops(plan: Plan) -> Iterator[PlanLoop]:
    if isinstance(plan, PlanLoop):
        yield plan
        yield from _loops(plan.child)
    elif isinstance(plan, PlanSequence):
        for child in plan.children:
            yield from _loops(child)


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape)


@pytest.mark.parametrize("steps", [4, 5, 7, 8, 9, 17])
@pytest.mark.parametrize("n", [400, 511, 512, 513, 700])
def test_a_line(n: int, steps: int) -> None:
    check(LINE, draw(n), draw(steps), target=small_cache(l2=1 << 13))


@pytest.mark.parametrize("shape", [(18, 160), (17, 260), (31, 300), (33, 257), (40, 131)])
@pytest.mark.parametrize("steps", [4, 8, 9])
def test_a_plane(shape: tuple[int, int], steps: int) -> None:
    check(PLANE, draw(*shape), draw(steps), target=small_cache(l2=1 << 17))


@pytest.mark.parametrize("shape", [(16, 16, 9), (24, 19, 11)])
def test_a_cube(shape: tuple[int, int, int]) -> None:
    check(CUBE, draw(*shape), draw(6), target=small_cache(l2=1 << 16))


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3"])
def test_other_machines(name: str) -> None:
    check(PLANE, draw(35, 300), draw(6), target=small_cache(name, 1 << 17))


def test_fields_that_depend_on_each_other() -> None:
    check(FIELDS, draw(20, 150), draw(20, 150), draw(20, 150), draw(6), target=small_cache(l2=1 << 16), is_tiled=False)


def test_one_thread_has_no_wavefront() -> None:
    lowered = check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 17), parallel=False)
    assert "parallel" not in lowered.as_text("loops")
    assert lowered.as_text("loops").count("for (c") >= 3 + 2 + 2


def test_two_planes_are_kept() -> None:
    lowered = check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 17))
    assert lowered.storage["A"].moduli[0] == 2


def test_what_fits_into_the_cache_is_not_tiled() -> None:
    check(PLANE, draw(35, 300), draw(9), target=small_cache(l2=1 << 20), is_tiled=False)
