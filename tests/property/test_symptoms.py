"""Faults that random programs found, by symptom."""

import numpy as np
import pytest

from polyc.ir.text import parse_program
from polyc.target import X86_64_V3
from tests.property.strategies import Case
from tests.property.test_loops import check_loops


@pytest.mark.xfail(strict=True, raises=TypeError, reason="poly.isl builds constants above 2^63 from Python integers")
def test_clamped_gather_through_u64() -> None:
    program = parse_program(
        """program p(A: f32[N], I: u64[M]) -> (O)
             sizes N, M
             output O: f32[?]
             S0(i): O[i] = A[max(min(i64(I[i]), N - 1), 0)]"""
    )
    arrays = {"A": np.arange(3, dtype=np.float32), "I": np.array([0, 2, 7, 1], np.uint64)}
    check_loops(Case(program, {"N": 3, "M": 4}, arrays, {}), X86_64_V3, True)


@pytest.mark.xfail(strict=True, raises=ZeroDivisionError, reason="scheduler.split divides by an extent of zero")
def test_reduction_over_a_range_that_is_always_empty() -> None:
    program = parse_program(
        """program p(A: f32[N]) -> (O)
             sizes N
             output O: f32[]
             S0(i, j): O[] += A[i] init 2.0
               where j in 1:1"""
    )
    check_loops(Case(program, {"N": 3}, {"A": np.ones(3, np.float32)}, {}), X86_64_V3, True)
