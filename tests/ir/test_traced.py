"""Traced numbers compute as integers do, and what was decided by them is a condition."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from polyc.ir.traced import Trace, combine, has_traced, is_same, is_traced, plain, whole_array


def test_arithmetic_is_computed_anew_for_other_sizes():
    trace = Trace((7, 3))
    a, b = trace.numbers()
    numbers = [a + b, 2 - a, -a * b, (a + 5) // 2, (a + 5) % 4, prod((a, 64, b)) // b, 100 // a, a - a + 4]
    compute = trace.function(numbers)
    for x, y in [(7, 3), (8, 1), (12, 9)]:
        assert compute((x, y)) == (x + y, 2 - x, -x * y, (x + 5) // 2, (x + 5) % 4, 64 * x, 100 // x, 4)
    assert compute((7, 0)) is None  # it would divide by 0
    assert compute((0, 3)) is None


def choose(a, b):
    """Decisions of every kind."""
    found = max(a, b) if a != b else 0
    if a // 2 > b:
        found += 10
    if not a % 3:
        found += 100
    if a in (4, b):
        found += 1000
    return found + (b if b >= 5 else -b)


@pytest.mark.parametrize("seed", range(5))
def test_where_the_conditions_hold_the_result_is_that_of_the_code(seed):
    draw = random.Random(seed)
    n_held = 0
    for _ in range(40):
        sizes = (draw.randint(1, 12), draw.randint(1, 12))
        trace = Trace(sizes)
        compute = trace.function([choose(*trace.numbers())])
        assert compute(sizes) == (choose(*sizes),)
        for _ in range(40):
            other = (draw.randint(0, 14), draw.randint(0, 14))
            found = compute(other)
            n_held += found is not None
            assert found is None or found == (choose(*other),)
    assert n_held > 100


@pytest.mark.parametrize(
    "look",
    [
        range,
        hash,
        str,
        float,
        bool,
        np.zeros,
        lambda n: [0] * n,
        lambda n: f"{n}",
        lambda n: {n: 1},
        lambda n: n / 2,
        lambda n: n < 2.5,
    ],
)
def test_who_looks_at_a_number_makes_it_a_condition(look):
    trace = Trace((6,))
    (n,) = trace.numbers()
    look(n + 1)
    compute = trace.function([n])
    assert compute((6,)) == (6,)
    assert (compute((-1,)) if look is bool else compute((5,))) is None


def test_numbers_that_are_equal_for_all_sizes_are_no_condition():
    trace = Trace((6, 2))
    a, b = trace.numbers()
    assert a * b + a == a * (b + 1) and a + 1 > a and is_same(a + b - b, a) and not is_same(a, 3 * b)
    assert not trace.conditions
    assert combine([a], 4 * a + 3) == (((0, 4),), 3) and combine([a], b) is None and combine([2 * a], a) is None
    assert combine([a, b + 1], 2 * a + b) == (((0, 2), (1, 1)), -1) and combine([a, b], a * b) is None
    assert a == 3 * b and list(trace.conditions)


def test_arrays_of_traced_numbers():
    trace = Trace((6,))
    (n,) = trace.numbers()
    assert isinstance(n, int) and is_traced(n) and plain(n) == 6
    array = whole_array((n, 4))
    assert has_traced(array) and not has_traced(whole_array((3, 4))) and not trace.conditions
