"""Derivatives of long expressions, of products, and of derivatives of both."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.gradients import jvp, sharing, vjp
from polyc.gradients.sharing import share_values
from polyc.ir.interpret import interpret
from polyc.ir.program import Program
from polyc.ir.verify import verify_program
from tests.gradients.helpers import RIGHT, Case, check_derivatives
from tests.gradients.sources import compile_text

RNG = np.random.default_rng(11)


def nested(step: str, start: str, depth: int) -> str:
    """`step`, an expression of V, applied `depth` times."""
    for _ in range(depth):
        start = step.replace("V", f"({start})")
    return start


LONG = {
    "polynomials": f"def f(double(N) x) -> (y) {{ y(n) = {nested('0.25 * (V * V + V)', 'x(n)', 2)} }}",
    "sums": "def f(double(N, K) x, double(K) w) -> (y) { y(n) +=! w(k) * "
    + nested("V * V + V", "0.5 * x(n, k)", 2)
    + " where k < n + 2 }",
    "chosen": f"def f(double(N) x) -> (y) {{ y(n) = {nested('V > 0.25 ? V * V : sin(V)', 'x(n)', 2)} }}",
    "borders": "def f(double(N) x) -> (y) { y(n) = "
    + nested("V * V + 0.5 * V", "n > 0 ? x(n - 1) * x(n - 1) : 0.5 * x(n)", 2)
    + " where n in 0:N }",
    "factors": "def f(double(N) x, double(N) z) -> (y) { y(n) = "
    + " * ".join(f"(x(n) + {k}.0 * z(n))" for k in range(8))
    + " * 0.01 }",
    "steps": "def f(double(N) x) -> (double(4, N) y) { y(0, n) = x(n)  y(t, n) = "
    + nested("0.25 * (V * V + V)", "y(t - 1, n)", 2)
    + " where t in 1:4 }",
}


def case_of(program: Program, **sizes: int) -> Case:
    arrays = {p: RNG.uniform(-0.9, 0.9, [sizes[e.name] for e in program.tensor(p).shape]) for p in program.parameters}
    return Case(program, {n: sizes[n] for n in program.sizes}, arrays, {})


def check_twice(case: Case, wrt: tuple[str, ...]) -> None:
    """Both modes of both modes are right."""
    assert check_derivatives(case).reverse == RIGHT
    for mode in (vjp, jvp):
        derivative = mode(case.program, wrt)
        verify_program(derivative)
        values = interpret(case.program, case.arrays, case.sizes)
        more = values if mode is vjp else {n: case.arrays[n] for n in wrt}
        drawn = [RNG.standard_normal(a.shape) for a in more.values()]
        arrays = case.arrays | dict(zip(derivative.parameters[len(case.arrays) :], drawn, strict=True))
        found = check_derivatives(Case(derivative, case.sizes, arrays, {}), wrt)
        assert (found.forward, found.reverse) == (RIGHT, RIGHT)


@pytest.mark.parametrize("name", LONG)
def test_parts_of_long_expressions_are_differentiated_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MAX_NODES", 10)
    program = compile_text(LONG[name]).program
    for derivative in (vjp(program, ("x",)), jvp(program, ("x",))):
        assert len(derivative.statements) > len(program.statements) + 1
    check_twice(case_of(program, N=3, K=4), ("x",))


def test_derivatives_of_long_expressions_do_not_grow_with_the_ways_through_them() -> None:
    """The adjoint of six levels had 90,000 nodes, a tangent 10,000."""
    program = compile_text(f"def f(double(N) x) -> (y) {{ y(n) = {nested('0.25 * (V * V + V)', 'x(n)', 6)} }}").program
    for derivative in (vjp(program, ("x",)), jvp(program, ("x",))):
        statements = [s for s in derivative.statements if s.target != "y"]
        assert len(statements) > 6
        assert sum(len(str(s)) for s in statements) < 40_000


def test_values_beyond_a_border_are_not_computed_apart_from_their_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MAX_NODES", 10)
    program = compile_text(LONG["borders"]).program
    parts = [s for s in share_values(program).statements if s.target != "y"]
    assert all("n > 0" in str(s) for s in parts if "x[n - 1]" in str(s))
    assert parts


# --- Products --------------------------------------------------------------------------------------------------------

PRODUCTS = {
    "vectors": "def f(double(N) x) -> (y) { y *=! x(n) }",
    "rows": "def f(double(N, K) x) -> (y) { y(n) *=! x(n, k) * x(n, k) }",
    "matrices": "def f(double(N, K) x) -> (y) { y *=! x(n, k) }",
    "running": "def f(double(N) x) -> (y) { y(i) *=! x(j) where j <= i, i in 0:N }",
    "from the end": "def f(double(N) x) -> (y) { y(i) *=! x(j) where i + j < N, i in 0:N }",
    "triangles": "def f(double(N, N) x) -> (y) { y(i) *=! x(i, j) where j < i, i in 0:N }",
    "chosen": "def f(double(N, K) x) -> (y) { y(n) *=! x(n, k) where k < n + 2 }",
    "started": "def f(double(N, K) x) -> (y) { y(n) = x(n, 0) * x(n, 0)  y(n) *= x(n, k) where n in 0:N }",
    "parts": "def f(double(N, K) x) -> (double(N) y) { y(0) = x(0, 0)  y(n) *=! x(n, k) where n in 1:N }",
    "complex": "def f(double(N) x) -> (y) { y *=! x(n) * x(n) + 1.0 }",
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_have_first_and_second_derivatives_with_any_number_of_zeros(name: str) -> None:
    zeros = 0 if name == "complex" else 2
    program = compile_text(PRODUCTS[name]).program
    case = case_of(program, N=3, K=4)
    case.arrays["x"].reshape(-1)[:zeros] = 0.0
    check_twice(case, ("x",))


def test_third_derivatives_of_products_across_zeros() -> None:
    gradient = compile_text(PRODUCTS["vectors"]).grad()
    x, unit = np.array([0.0, 0.0, 0.0, 3.0]), np.eye(4)
    third = jvp(jvp(gradient.program, ("x",)), ("x", "t_x"))
    given = [x, unit[0], unit[1], np.zeros(4)]
    found = interpret(third, dict(zip(third.parameters, given, strict=True)))
    np.testing.assert_array_equal(list(found.values())[-1], [0.0, 0.0, 3.0, 0.0])


@pytest.mark.parametrize("n", [0, 1])
def test_products_of_nothing_and_of_one_factor(n: int) -> None:
    text = "def f(double(M, N) x, double(M) s) -> (y) { y(m) = s(m)  y(m) *= x(m, n) }"
    program = compile_text(text).program
    check_twice(case_of(program, M=2, N=n), ("x", "s"))


def test_products_that_are_lost_in_rounding_have_derivatives() -> None:
    """The product of all factors is 0, which says nothing of those of all but one."""
    found = compile_text(PRODUCTS["vectors"]).grad()(np.array([1e-200, 1e-200, 1e180]))
    np.testing.assert_allclose(found, [1e-20, 1e-20, 0.0])
