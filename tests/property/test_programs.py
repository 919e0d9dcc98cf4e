"""Random programs: the strategies give valid ones, and texts, sizes and precisions agree about them."""

import numpy as np
from hypothesis import HealthCheck, given, settings

from polyc.ir.expr import int_const
from polyc.ir.interpret import interpret
from polyc.ir.program import specialize_sizes
from polyc.ir.sizes import define_sizes
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.tolerance import check_results, expect_results
from polyc.ir.verify import verify_program
from tests.property.strategies import Case, cases

SETTINGS = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@SETTINGS
@given(cases())
def test_random_programs_are_well_formed_and_run(case: Case) -> None:
    verify_program(case.program)
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    assert check_results(expected.plain, expected) is None


@SETTINGS
@given(cases(smallest_size=0))
def test_text_reads_back_to_an_equal_program(case: Case) -> None:
    text = format_program(case.program)
    again = parse_program(text)
    assert again == case.program
    assert format_program(again) == text


@SETTINGS
@given(cases())
def test_results_are_the_same_with_sizes_as_constants(case: Case) -> None:
    fixed = specialize_sizes(case.program, {n: int_const(v) for n, v in case.sizes.items()})
    one = interpret(case.program, case.arrays, case.sizes, case.out)
    two = interpret(define_sizes(fixed), case.arrays, case.sizes, case.out)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
