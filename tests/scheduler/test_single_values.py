"""Reductions over no index are assignments."""

import numpy as np
import pytest

import polyc
from polyc.poly.infer import infer_ranges
from tests.scheduler.support import run_pass


def rewritten(text: str):
    program = polyc.compile(text).program
    return run_pass("single-values", program, infer_ranges(program))[0]


def test_adding_one_value_for_each_element_is_an_assignment():
    found = rewritten("def f(float(M, N) A, float(N, M) B) -> (y) { y(i, j) = A(i, j)  y(j, i) += B(i, j) }")
    assert all(s.reduction is None for s in found.statements)


@pytest.mark.parametrize(
    "body",
    [
        "y(i) = A(i)  y(i) += A(i) where i in 1:N",  # the other elements stay
        "y(i) = A(i)  y(i) += A(i) where i < 3",
        "y(i) = A(i)  y(i) += A(i) * A(j)",
        "y(i) = A(i)  y(N - 1 - i) += A(i)",
    ],
)
def test_what_combines_more_or_less_than_one_value_stays_a_reduction(body):
    found = rewritten(f"def f(float(N) A) -> (y) {{ {body} }}")
    assert found.statements[-1].reduction is not None


def test_a_chain_of_updates_is_computed_as_written():
    lines = "  ".join(f"y(i) {op} x(i) * {k}.0" for k, op in enumerate(["+=", "*=", "max=", "min="] * 5))
    operator = polyc.compile(f"def f(float(N) x) -> (y) {{ y(i) = x(i)  {lines} }}")
    x = np.linspace(-2, 2, 37, dtype="f4")
    expected = x.copy()
    for k, combine in enumerate([np.add, np.multiply, np.maximum, np.minimum] * 5):
        expected = combine(expected, x * np.float32(k))
    assert np.allclose(operator(x), expected, rtol=1e-5)


def test_hundreds_of_statements_are_cut_into_loops_of_bounded_length():
    """Fused into one loop, 600 statements took isl a quarter of a minute and more."""
    from polyc.scheduler.rows.merge import MAX_TOGETHER

    lines = "  ".join(f"r{k}(i) = x(i) * {k}.0" for k in range(2 * MAX_TOGETHER + 10))
    names = ", ".join(f"r{k}" for k in range(2 * MAX_TOGETHER + 10))
    operator = polyc.compile(f"def f(float(N) x) -> ({names}) {{ {lines} }}")
    x = np.arange(20, dtype="f4")
    loops = operator.lower(x).as_text("loops")
    assert 3 <= loops.count("for ") <= 12
    assert all(np.array_equal(y, x * k) for k, y in enumerate(operator(x)))
