"""Random programs through every stage: each gives what the reference interpreter gives, on every machine model.

``POLYC_EXAMPLES=20`` runs twenty times as many programs, drawn anew each time.
"""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polyc.api.operator import Operator
from polyc.api.sources import FixedSource
from polyc.config import Options
from polyc.diagnostics import RangeError
from polyc.ir.tolerance import check_results, expect_results
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


def relayout(draw: st.DataObject, array: np.ndarray) -> np.ndarray:
    """The same values with other strides: permuted, reversed, spread out, and 0 where all elements along a dimension agree."""
    order = draw.draw(st.permutations(range(array.ndim)))
    steps = [draw.draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in order]
    memory = np.full([array.shape[d] * abs(step) for d, step in zip(order, steps, strict=True)], 63).astype(array.dtype)
    view = memory[(*(slice(None, None, step) for step in steps), ...)].transpose(np.argsort(order))
    view[...] = array
    for d in range(array.ndim):
        first = array.take([0], axis=d) if array.shape[d] else array
        if array.shape[d] > 1 and first.tobytes() * array.shape[d] == np.moveaxis(array, d, 0).tobytes():
            return np.broadcast_to(first, array.shape)
    return view


@profile(30)
@given(cases(smallest_size=0, largest_size=9), st.data())
def test_views_through_operators_and_symbolic_kernels(case: Case, data: st.DataObject) -> None:
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    arrays = {name: relayout(data, array) for name, array in case.arrays.items()}
    viewed = Case(case.program, case.sizes, arrays, case.out)
    operator = Operator(FixedSource(case.program), "case", Options())
    kernels = [operator]
    with contextlib.suppress(RangeError):
        kernels.append(operator.lower().compile())
    names = [r.name for r in case.program.returns]
    for kernel in kernels:
        out = {n: relayout(data, np.array(case.out.get(n, np.zeros_like(expected.plain[n])))) for n in names}
        out = {n: array if array.flags.writeable else array.copy() for n, array in out.items()}
        free = {n: v for n, v in viewed.sizes.items() if n in viewed.program.sizes}
        kernel(*arrays.values(), out=out, **free)
        problem = check_results(out, expected)
        assert problem is None, problem
