"""Derivatives of random programs: both modes agree with each other and with differences, in the program's texts and in kernels.

Twenty by default (ten with whole numbers, and ten that mix features: complex numbers, monoids, what data chooses),
``POLYC_EXAMPLES`` of them otherwise; ``python -m tests.gradients.matrix random mixed`` counts what 500 of both come to."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from polyc.gradients import vjp
from polyc.ir.program import Program
from polyc.ir.text import format_program
from polyc.ir.text_reader import parse_program
from polyc.ir.types import BOOL, F32, F64, I32
from polyc.ir.verify import verify_program
from tests.gradients.helpers import RIGHT, check_derivatives, check_exactly, float_inputs, is_polynomial, perturbed, refusal
from tests.gradients.sources import mixed_case
from tests.property.strategies import Case, cases

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "20"))
SETTINGS = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
TYPES = (F32, F64, F64, I32, BOOL)


@SETTINGS
@given(cases(dtypes=TYPES))
def test_both_modes_agree_with_differences(case: Case) -> None:
    found = check_derivatives(perturbed(case))
    if is_polynomial(case.program) and RIGHT in (found.forward, found.reverse):
        check_exactly(case)


@settings(SETTINGS, max_examples=max(1, EXAMPLES // 2))
@given(cases(dtypes=TYPES))
def test_both_modes_agree_where_values_are_equal(case: Case) -> None:
    """Whole numbers of one digit: operands of maxima, and what is reduced by them, are equal more often than not."""
    whole = {n: np.rint(a).astype(a.dtype) for n, a in case.arrays.items()}
    check_derivatives(Case(case.program, case.sizes, whole, case.out))


@pytest.mark.parametrize("seed", range(max(1, EXAMPLES // 2)))
def test_both_modes_agree_in_texts_that_mix_features(seed: int) -> None:
    """Every other one with whole numbers, of which many are equal."""
    check_derivatives(mixed_case(seed, is_whole=bool(seed % 2)))


@SETTINGS
@given(cases(max_statements=2, dtypes=TYPES, smallest_size=0))
def test_gradients_are_well_formed_programs_that_read_back(case: Case) -> None:
    wrt = float_inputs(case.program)
    gradient = refusal(lambda: vjp(case.program, wrt)) if wrt else "nothing"
    if isinstance(gradient, Program):
        verify_program(gradient)
        assert parse_program(format_program(gradient)) == gradient
