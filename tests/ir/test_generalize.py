"""One program for programs that differ in numbers: exactly those, and never a program that is none of them."""

from __future__ import annotations

import pytest

from polyc.driver import read_tc
from polyc.ir.expr import int_const
from polyc.ir.generalize import Follows, generalize, take_numbers
from polyc.ir.program import specialize_sizes
from polyc.ir.verify import verify_program


def conv(size, rows=3):
    text = f"""
    def f(float({rows}, {2 * size + 1}) X, float({size}) B) -> (Y) {{
        Y(i, j) = X(i, 2 * j) * {float(max(size, 1))} + B(j) where i in 0:{rows}, j in 0:{size}
    }}
    """
    return read_tc(text, "f.tc")[0]


def test_what_follows_from_a_size_needs_no_size_of_its_own():
    programs = [conv(n) for n in (4, 9)]
    made = generalize(programs[0], [take_numbers(p)[1] for p in programs])
    assert made is not None and made.names == ("n0",)
    assert {n for n in made.numbers if isinstance(n, Follows)} == {Follows(((0, 1),), 0), Follows(((0, 2),), 1)}
    verify_program(made.program)
    for n in (1, 4, 17):
        assert made.sizes_of(take_numbers(conv(n))[1]) == {"n0": n}
        again = specialize_sizes(made.program, {"n0": int_const(n)})
        assert again.tensors[1].shape == conv(n).tensors[1].shape


def test_sizes_that_vary_apart_become_two():
    programs = [conv(4, 3), conv(9, 3), conv(9, 5)]
    made = generalize(programs[0], [take_numbers(p)[1] for p in programs])
    assert made is not None and len(made.names) == 2
    assert sorted(made.sizes_of(take_numbers(conv(6, 7))[1]).values()) == [6, 7]


@pytest.mark.parametrize("other", [conv(4, 4), conv(0)], ids=["another number differs", "no size is zero"])
def test_a_program_that_is_no_instance_gets_no_sizes(other):
    made = generalize(conv(4), [take_numbers(conv(n))[1] for n in (4, 9)])
    form, numbers = take_numbers(other)
    assert form == take_numbers(conv(4))[0]
    assert made is not None and made.sizes_of(numbers) is None


def test_a_literal_zero_is_not_the_place_of_a_number():
    text = "def f(float(9) X) -> (Y) {{ Y(i) = X(i) * {} where i in 0:9 }}"
    forms = {take_numbers(read_tc(text.format(v), "f.tc")[0]) for v in ("0.0", "1.0", "2.0")}
    assert len(forms) == 3 and len({form for form, _ in forms}) == 2


def test_equal_programs_have_nothing_to_make_symbolic():
    assert generalize(conv(4), [take_numbers(conv(4))[1]] * 2) is None


def test_numbers_that_are_no_sizes_stay():
    def shift(by):
        text = f"def f(float(9) X) -> (Y) {{ Y(i) = X(i + {by}) where i in 4:6 }}".replace("+ -", "- ")
        return read_tc(text, "f.tc")[0]

    samples = [take_numbers(shift(by)) for by in (1, 0)]
    assert samples[0][0] == samples[1][0]
    assert generalize(shift(1), [n for _, n in samples]) is None
