"""Arithmetic over sizes: formulas have the values that the same arithmetic gives for numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import gcd

import numpy as np
import pytest

from polyc.ir.expr import Call, Const, Size, evaluate, int_const
from polyc.ir.versions import evaluate_arrays, sizes_as_arrays
from polyc.scheduler import amounts
from polyc.scheduler.amounts import UNIT, Amount, Condition, Formula, as_expr

M, N = Formula(Size("M")), Formula(Size("N"))
VALUES = list(itertools.product((0, 1, 3, 7, 64, 1000, 4096), (1, 2, 5, 48, 4096)))

MODELS: list[Callable[..., Amount]] = [
    lambda m, n: m + n * 3 - 2,
    lambda m, n: 2.5 * m * n + m / 8 + 0.25,
    lambda m, n: 7 - n + m * 0.1,
    lambda m, n: m / n + 3 / n,
    lambda m, n: (1 + 0.8 * (2 / amounts.largest(2, n))) * (3.5 + 0.5 * m),
    lambda m, n: amounts.ceil_div(m, 6) * n + m % 6,
    lambda m, n: amounts.whole_part(m, 10) * amounts.smallest(n, 5.5),
    lambda m, n: amounts.either(m <= 3.5 * n, 0.5 * m, n),
    lambda m, n: amounts.either((m > 60) & (n < 3) | (n >= 4096), 1.75, amounts.common_power(m, 64)),
    lambda m, n: amounts.total([m, n, m]) * amounts.product([n, 4, 0.5]),
]


@pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
def test_a_formula_is_worth_what_the_same_arithmetic_gives_for_numbers(model: Callable[..., Amount]) -> None:
    cost = as_expr(model(M, N))
    wanted = [model(m, n) for m, n in VALUES]
    found = [evaluate(cost, {"M": m, "N": n}) / UNIT for m, n in VALUES]
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
    samples = [{"M": m, "N": n} for m, n in VALUES]
    np.testing.assert_allclose(evaluate_arrays(cost, sizes_as_arrays(samples, ())) / UNIT, wanted, rtol=2e-3, atol=2e-3)


def test_counts_are_exact() -> None:
    cost = as_expr(amounts.ceil_div(M * N + 5, 3) - M % 7, 1)
    for m, n in VALUES:
        assert evaluate(cost, {"M": m, "N": n}) == -(-(m * n + 5) // 3) - m % 7


def test_constants_of_sums_and_products_are_taken_together() -> None:
    assert as_expr(M * 3 * 5, 1) == Call("mul", (Size("M"), Const(15)))
    assert as_expr(M + 2 + 5 + M * 3, 1) == Call("add", (Call("mul", (Size("M"), Const(4))), Const(7)))
    assert M * 0 == 0 and M - M == 0 and amounts.ceil_div(M, 1) is M
    assert amounts.total([]) == 0 and amounts.product([]) == 1
    assert as_expr(1.5) == int_const(3 * UNIT // 2)


def test_the_common_power_is_that_of_gcd() -> None:
    cost = as_expr(amounts.common_power(M, 2048), 1)
    for m in (*range(70), 2048, 3072, 1 << 20):
        assert amounts.common_power(m, 2048) == evaluate(cost, {"M": m}) == gcd(m, 2048)


def test_a_condition_over_sizes_is_no_answer_before_the_call() -> None:
    condition = M < 3
    assert isinstance(condition, Condition)
    with pytest.raises(TypeError, match="sizes of a call"):
        bool(condition)
    assert (condition & False) is False and (True | condition) is True and (True & condition) is condition


def test_no_call_divides_by_a_size_of_zero() -> None:
    for amount, wanted in ((1024 / M, 1024), (N / M, 3), ((N * 0.5) / M, 1.5)):
        cost = as_expr(amount)
        assert evaluate(cost, {"M": 0, "N": 3}) / UNIT == wanted
        assert evaluate_arrays(cost, sizes_as_arrays([{"M": 0, "N": 3}], ()))[0] / UNIT == wanted
