"""Expressions in Python's arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from polyc.ir.expr import Call, Const, Index, Size, ceil_div, eq, evaluate, ge, gt, int_const, le, lt, maximum, minimum, ne
from polyc.ir.traced import Trace, Traced

I, N = Index("i"), Size("N")
VALUES = [{"i": i, "N": n} for i in (-5, 0, 3) for n in (-2, 0, 4)]


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (2 * I + 1 - N, lambda i, n: 2 * i + 1 - n),
        (-(I - N) * 3, lambda i, n: -(i - n) * 3),
        (10 - I // 4 % 3, lambda i, n: 10 - i // 4 % 3),
        (7 // (N * N + 1), lambda i, n: 7 // (n * n + 1)),
        (minimum(I, 2, N) + maximum(0, I), lambda i, n: min(i, 2, n) + max(0, i)),
        (ceil_div(I, 4), lambda i, n: -(-i // 4)),
        (
            lt(I, N) + le(I, N) + gt(I, 0) + ge(0, N) + eq(I, N) + ne(I, N),
            lambda i, n: (i < n) + (i <= n) + (i > 0) + (n <= 0) + 1,
        ),
    ],
)
def test_operators_mean_what_they_mean_for_numbers(expr: Any, value: Any) -> None:
    assert [evaluate(expr, v) for v in VALUES] == [value(v["i"], v["N"]) for v in VALUES]


def test_operators_make_the_trees_that_are_written() -> None:
    assert Call("add", (I, int_const(1))) == I + 1
    assert Call("sub", (int_const(1), I)) == 1 - I
    assert minimum(I, 2, N) == Call("min", (Call("min", (I, int_const(2))), N))


def test_equality_stays_that_of_trees() -> None:
    assert (Index("i") == I) is True
    assert (I + 1 == I + 2) is False
    assert len({I, Index("i"), Size("i"), I + 1, Index("i") + 1}) == 3


def test_sizes_that_are_traced_stay_traced() -> None:
    (size,) = Trace((6,)).numbers()
    for made in (I + size, size * I):
        assert isinstance(made, Call)
        (number,) = (a.value for a in made.args if isinstance(a, Const))
        assert type(number) is Traced


@pytest.mark.parametrize("other", [0.5, "1", None, [1]])
def test_nothing_else_becomes_a_constant(other: Any) -> None:
    with pytest.raises(TypeError):
        I + other
    with pytest.raises(TypeError):
        other * I if not isinstance(other, (str, list)) else other - I
