"""The derivative table against differences, where functions are smooth, and at the places that are named."""

from __future__ import annotations

import numpy as np
import pytest

from polyc.gradients import jvp, rules
from polyc.ir.expr import Call, Cast, Const, Index, Read, Select, Size
from polyc.ir.interpret import interpret
from polyc.ir.operators import COMPLEX_OPERATORS, OPERATORS
from polyc.ir.program import Program, Return, Statement, Tensor
from polyc.ir.types import C128, F64, DType

KNOWN = {*rules._ONE, *rules._TWO, *rules.CONSTANT, *rules.LINEAR, "fma", "tuple"}
UNIT = {"asin", "acos", "atanh"}
"""Defined between -1 and 1."""
ABOVE_ONE = {"acosh"}
POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt"}
STEPPING = {"mod", "fmod", "remainder", "max", "min", "fmax", "fmin", "fdim", "abs", "copysign"}
"""Smooth but where operands meet."""


def program_of(op: str, dtype: DType = F64) -> Program:
    """``y[i] = op(x0[i], …)``."""
    names = tuple(f"x{k}" for k in range(OPERATORS[op].arity))
    reads = tuple(Read(n, (Index("i"),)) for n in names)
    value = Call(op, reads)
    inputs = tuple(Tensor(n, dtype, 1, (Size("N"),), "input", n) for n in names)
    output = Tensor("y", dtype, 1, None, "output", "y")
    return Program(
        "f", ("N",), (*inputs, output), names, (Return("y", "y"),), (Statement("S0", "y", (Index("i"),), ("i",), value),)
    )


def directional(op: str, points: list[np.ndarray], directions: list[np.ndarray], dtype: DType = F64) -> np.ndarray:
    program = program_of(op, dtype)
    moved = jvp(program, program.parameters)
    return interpret(moved, dict(zip(moved.parameters, (*points, *directions), strict=True)))["t_y"]


def difference(op: str, points: list[np.ndarray], directions: list[np.ndarray], dtype: DType = F64) -> np.ndarray:
    program, h = program_of(op, dtype), 1e-6

    def at(by: float) -> np.ndarray:
        moved = [p + by * d for p, d in zip(points, directions, strict=True)]
        return interpret(program, dict(zip(program.parameters, moved, strict=True)))["y"]

    return (at(h) - at(-h)) / (2 * h)


def draw(op: str, rng: np.random.Generator) -> list[np.ndarray]:
    low, high = (-0.9, 0.9) if op in UNIT else (1.1, 3.0) if op in ABOVE_ONE else (0.1, 3.0) if op in POSITIVE else (-2.9, 2.9)
    points = [rng.uniform(low, high, 50) for _ in range(OPERATORS[op].arity)]
    if op == "pow":
        points[0] = np.abs(points[0]) + 0.1
    if op in ("lgamma", "tgamma"):
        points[0] += 0.05 * (np.abs(points[0] - np.rint(points[0])) < 0.05)
    return points


def test_every_function_of_the_language_has_an_entry() -> None:
    assert set(OPERATORS) == KNOWN | {"once_differentiable"}  # which refuses


@pytest.mark.parametrize("op", sorted({*rules._ONE, *rules._TWO, "fma"}))
def test_derivatives_are_differences(op: str) -> None:
    rng = np.random.default_rng(1)
    points = draw(op, rng)
    directions = [rng.standard_normal(50) for _ in points]
    if op == "nextafter":
        directions[1][:] = 0.0
    found, wanted = directional(op, points, directions), difference(op, points, directions)
    near = np.ones(50, bool)
    if op in STEPPING:  # a step may lie within the difference
        near = np.abs(wanted) < 1e4
    np.testing.assert_allclose(found[near], wanted[near], rtol=2e-5, atol=2e-5)
    assert near.sum() > 45


@pytest.mark.parametrize("op", sorted(COMPLEX_OPERATORS & {*rules._ONE, *rules._TWO}))
def test_derivatives_of_complex_functions_are_differences_in_any_direction(op: str) -> None:
    rng = np.random.default_rng(2)
    n = OPERATORS[op].arity
    points, directions = ([rng.standard_normal(20) + 1j * rng.standard_normal(20) for _ in range(n)] for _ in range(2))
    points = [p + 2.5 for p in points]  # away from the cut of log and sqrt
    found, wanted = directional(op, points, directions, C128), difference(op, points, directions, C128)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_derivatives_without_a_slope_are_what_the_page_says() -> None:
    one, zero = np.ones(1), np.zeros(1)
    assert directional("abs", [zero], [one]) == 0
    for op in ("max", "min", "fmax", "fmin"):
        assert directional(op, [one, one], [one, zero]) == directional(op, [one, one], [zero, one]) == 0.5
    assert directional("fmax", [one, np.full(1, np.nan)], [one, one]) == 1
    assert directional("hypot", [zero, zero], [one, one]) == 0
    assert directional("pow", [zero, 2 * one], [zero, one]) == 0
    assert directional("pow", [zero, zero], [one, zero]) == 0
    assert np.isinf(directional("sqrt", [zero], [one]))


def test_what_is_not_taken_contributes_nothing_though_it_is_infinite() -> None:
    """``max(sqrt(x), y)`` at x = 0: the root has no finite slope, and y is larger."""
    inner = Call("sqrt", (Read("x", (Index("i"),)),))
    program = program_of("max")
    (s,) = program.statements
    value = Call("max", (inner, Const(1.0, F64)))
    x, y = program.tensors[0], program.tensors[2]
    program = Program(
        "f",
        ("N",),
        (Tensor("x", F64, 1, x.shape, "input", "x"), y),
        ("x",),
        program.returns,
        (Statement(s.name, s.target, s.subscripts, s.indices, value),),
    )
    found = interpret(jvp(program, ("x",)), {"x": np.array([0.0, 4.0]), "t_x": np.ones(2)})["t_y"]
    np.testing.assert_array_equal(found, [0.0, 0.25])


def test_products_leave_ones_and_zeros_out() -> None:
    t = Read("t", ())
    one, zero = Const(1.0, F64), Const(0.0, F64)
    assert rules.times(t, one) is t
    assert rules.times(None, t) is None
    assert rules.times(t, Const(-1.0, F64)) == Call("neg", (t,))
    choice = Select(Call("gt", (t, zero)), one, zero)
    assert rules.times(t, choice) == Select(choice.condition, t, zero)
    assert rules.tangent(Cast(t, F64), {"t": F64}, lambda e: None) is None
