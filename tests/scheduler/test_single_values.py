"""Chains of updates, and hundreds of statements."""

import numpy as np

import polyc


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
    from polyc.code_limits import MAX_ITEMS

    lines = "  ".join(f"r{k}(i) = x(i) * {k}.0" for k in range(2 * MAX_ITEMS + 10))
    names = ", ".join(f"r{k}" for k in range(2 * MAX_ITEMS + 10))
    operator = polyc.compile(f"def f(float(N) x) -> ({names}) {{ {lines} }}")
    x = np.arange(20, dtype="f4")
    loops = operator.lower(x).as_text("loops")
    assert 3 <= loops.count("for ") <= 12
    assert all(np.array_equal(y, x * k) for k, y in enumerate(operator(x)))
