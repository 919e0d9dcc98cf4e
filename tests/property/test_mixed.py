"""Random programs that mix every feature, at every level of the instruction set: kernels against the reference interpreter.

By hand, for a longer run: ``POLYC_EXAMPLES=5000 pytest tests/property/test_mixed.py``.
"""

from __future__ import annotations

import os
import random
import warnings
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyc
from polyc.diagnostics import PolycError
from polyc.ir.tolerance import check_results, expect_results
from polyc.runtime.threads import set_num_threads
from tests.property.mixed import make_arrays, make_program
from tests.property.pipeline import LEVELS, small_thresholds

EXAMPLES = int(os.environ.get("POLYC_EXAMPLES", "30"))


@settings(max_examples=EXAMPLES, deadline=None, derandomize="POLYC_EXAMPLES" not in os.environ, database=None)
@given(st.integers(0, 1 << 30), st.sampled_from([0, 1, 2, 3, 5, 8, 16, 17, 33]))
def test_kernels_and_interpreter_agree(seed: int, n: int) -> None:
    check_program(seed, n)


def check_program(seed: int, n: int) -> None:
    """Compile and run the program of `seed` for size `n`, and compare; AssertionError with the text where they differ."""
    source = random.Random(seed)
    text = make_program(source)
    level, dynamic, eager = source.choice(LEVELS), source.random() < 0.3, source.random() < 0.3
    arrays = make_arrays(seed, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", polyc.PolycWarning)
        operator = polyc.compile(text, "f", target=level, dynamic=dynamic)
    set_num_threads(source.choice([1, 2]))
    code, expected, results = None, None, ()
    try:
        expected = expect_results(operator.program, arrays)
    except PolycError as error:
        code = error.code
    try:
        with small_thresholds() if eager else nullcontext():
            got = operator(**arrays)
        results = got if isinstance(got, tuple) else (got,)
    except PolycError as error:
        codes = [d.code for d in error.diagnostics]  # the compiler finds all errors, the interpreter the first
        assert expected is None and code in codes, f"{level} n={n} seed={seed}\n{text}\n{error}"
        return
    finally:
        set_num_threads(None)
    assert expected is not None, f"n={n} seed={seed} should be refused ({code})\n{text}"
    names = [r.name for r in operator.program.returns]
    problem = check_results(dict(zip(names, results, strict=True)), expected)
    assert problem is None, f"{problem}\n{level} dynamic={dynamic} eager={eager} n={n} seed={seed}\n{text}"


@pytest.mark.parametrize("seed", [4000012, 7702197])
def test_a_recurrence_beside_the_update_of_a_diagonal_is_refused(seed: int) -> None:
    """What starts the elements off the diagonal stood in a loop shared with their reader; the order of the source cannot run
    the recurrence beside it."""
    check_program(seed, 1)


def test_completeness_of_tiles_of_odd_sizes_is_proved_at_once() -> None:
    """isl searched for hours, out of reach of its quota, whether times modulo 32766 are single-valued: rows in steps of two in
    blocks of 16383."""
    check_program(633423, 8)
