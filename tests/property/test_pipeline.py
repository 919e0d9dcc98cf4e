"""Random programs through every stage: each gives what the reference interpreter gives, on every machine model.

``POLYC_EXAMPLES=20`` runs twenty times as many programs, drawn anew each time.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyc.config import Options
from polyc.diagnostics import RangeError
from polyc.ir.tolerance import expect_results
from polyc.ir.types import F32, F64
from tests.property.pipeline import LEVELS, check, falls, lower_case, profile, run_kernel, run_nest, same_bits
from tests.property.strategies import Case, cases

SCHEDULERS = ["ilp", "isl", "source"]


def run_everywhere(case: Case, options: Options, level: str, is_fixed: bool, is_eager: bool) -> None:
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    try:
        lowered = lower_case(case, options, level, is_fixed, is_eager)
    except RangeError:
        # Reads that leave their tensor at every size at which they happen: refused, though at these sizes nothing is read.
        assert not is_fixed
        return
    # isl schedules only what has instances; an empty statement leaves it to the rung below.
    assert options.scheduler == "isl" or not falls(lowered), lowered.as_text("program")
    check(run_nest(lowered, case), expected, "loop nest", lowered)
    kernel = lowered.compile()
    one, two = run_kernel(kernel, case, 1), run_kernel(kernel, case, 2)
    check(one, expected, "kernel", lowered)
    assert same_bits(one, two), f"other bits on two threads\n{lowered.as_text('loops')}"


@profile(50)
@given(cases(), st.sampled_from(LEVELS), st.booleans())
def test_default_schedules_with_constant_and_symbolic_sizes(case: Case, level: str, is_fixed: bool) -> None:
    run_everywhere(case, Options(), level, is_fixed, is_eager=False)


@profile(50)
@given(cases(largest_size=19), st.sampled_from(LEVELS), st.booleans())
def test_threads_and_partial_sums_from_the_first_iteration(case: Case, level: str, is_fixed: bool) -> None:
    run_everywhere(case, Options(), level, is_fixed, is_eager=True)


@profile(40)
@given(cases(smallest_size=0, largest_size=5), st.sampled_from(LEVELS), st.booleans(), st.booleans())
def test_sizes_of_zero_and_one(case: Case, level: str, is_fixed: bool, is_eager: bool) -> None:
    run_everywhere(case, Options(), level, is_fixed, is_eager)


@profile(40)
@given(
    cases(smallest_size=0),
    st.sampled_from(LEVELS),
    st.booleans(),
    st.builds(
        Options,
        scheduler=st.sampled_from(SCHEDULERS),
        reassociate=st.booleans(),
        inline=st.booleans(),
        tile=st.booleans(),
        vectorize=st.booleans(),
        parallel=st.booleans(),
    ),
)
def test_all_options(case: Case, level: str, is_fixed: bool, options: Options) -> None:
    run_everywhere(case, options, level, is_fixed, is_eager=True)


@profile(20)
@given(cases(max_statements=6, dtypes=(F32, F64), largest_size=40), st.booleans())
def test_wide_floating_point_programs(case: Case, is_fixed: bool) -> None:
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    for level in LEVELS:
        try:
            lowered = lower_case(case, Options(), level, is_fixed, is_eager=True)
        except RangeError:
            assert not is_fixed
            return
        check(run_kernel(lowered.compile(), case, 2), expected, level, lowered)


@profile(15)
@given(cases(dtypes=(F32, F64)))
def test_source_order_gives_the_same_bits_on_every_schedule(case: Case) -> None:
    """Without reassociation a sum has one order: scheduler, tiles, vectors and threads do not show in the result."""
    results = []
    for options in (
        Options(),
        Options(scheduler="isl"),
        Options(scheduler="source", tile=False, vectorize=False, parallel=False),
    ):
        lowered = lower_case(case, options.replace(reassociate=False), LEVELS[-1], is_fixed=True, is_eager=True)
        results.append(run_kernel(lowered.compile(), case, 2))
    assert all(same_bits(results[0], r) for r in results[1:]), case


@pytest.mark.parametrize("level", LEVELS)
def test_every_pinned_model_that_this_machine_can_run_is_covered(level: str) -> None:
    assert level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
