"""Random programs, lowered: the loop nest, run one iteration after the other, gives what the reference interpreter gives.

This separates faults of scheduling and lowering from those of code generation: no LLVM takes part.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from polyc.config import Options
from polyc.driver import lower
from polyc.ir.interpret_loops import interpret_loops
from polyc.ir.interpret_ranges import complete_sizes, solve_ranges
from polyc.ir.loops_text import format_loops
from polyc.ir.text import format_program
from polyc.ir.tolerance import check_results, expect_results
from polyc.ir.verify_loops import verify_loops
from polyc.machine import X86_64_V2, X86_64_V3, X86_64_V4, Machine
from tests.property.strategies import Case, cases

SETTINGS = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def check_loops(case: Case, target: Machine, is_symbolic: bool, options: Options | None = None) -> None:
    """Lower `case` and compare its loop nest with the reference on every element of every result."""
    expected = expect_results(case.program, case.arrays, case.sizes, case.out)
    lowered = lower(case.program, sizes=None if is_symbolic else case.sizes, target=target, options=options or Options())
    nest = lowered.nest
    verify_loops(nest)
    intervals = solve_ranges(case.program, case.sizes).tensors
    results = {}
    for r in case.program.returns:
        shape = [upper - lower for lower, upper in intervals[r.version]]
        garbage = np.full(shape, 99, case.program.tensor(r.version).dtype.numpy)
        results[r.name] = garbage if r.initial is None else case.out[r.name].copy()
    data = [case.arrays[p].copy() for p in case.program.parameters] + list(results.values())
    failures = interpret_loops(nest, data, complete_sizes(lowered.scop.program, case.sizes))
    text = format_program(case.program) + format_loops(nest)
    assert not failures, text
    for name, given_array in zip(case.program.parameters, data, strict=False):
        np.testing.assert_array_equal(given_array, case.arrays[name], err_msg=f"input {name} was written\n{text}")
    message = check_results(results, expected)
    assert message is None, f"{message}\n{case.sizes}\n{text}"


@pytest.mark.parametrize("target", [X86_64_V2, X86_64_V3], ids=lambda t: t.name)
@SETTINGS
@given(case=cases(smallest_size=0))
def test_symbolic_sizes(target: Machine, case: Case) -> None:
    check_loops(case, target, True)


@SETTINGS
@given(case=cases(largest_size=20))
def test_constant_sizes(case: Case) -> None:
    check_loops(case, X86_64_V4, False)


@pytest.mark.parametrize(
    "options",
    [Options(scheduler="isl"), Options(scheduler="source"), Options(inline=False, tile=False), Options(reassociate=False)],
    ids=["isl", "source", "plain", "ordered"],
)
@SETTINGS
@given(case=cases(max_statements=3))
def test_every_rung_of_the_ladder(options: Options, case: Case) -> None:
    check_loops(case, X86_64_V3, True, options)
