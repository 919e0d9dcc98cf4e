"""Recurrences whose distance is a size: `poly.delays`."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from polyc.diagnostics import PolycError
from polyc.frontends.tc import read_tc
from polyc.poly.infer import infer_ranges

COMB = "y(n) = x(n) + (n >= D ? 0.5 * y(n - D) : 0.0) where n in 0:N"
TWO = "d(n) = n >= D ? y(n - D) : 0.0 where n in 0:N  y(n) = x(n) + 0.5 * d(n)"
BACKWARDS = "y(n) = x(n) + (n < N - D ? 0.5 * y(n + D) : 0.0) where n in 0:N"


def text(body: str) -> str:
    return f"def f(float(N) x, float(D) taps) -> (y) {{ {body} }}"


@pytest.mark.parametrize("body", [COMB, TWO, BACKWARDS])
def test_a_delay_of_any_size_was_refused_as_it_may_be_none(body: str) -> None:
    operator = polyc.compile(text(body), dynamic=True)
    for n, delay in ((9, 1), (40, 3), (5, 7)):
        x = np.arange(n, dtype=np.float32)
        expected = x[::-1].copy() if body == BACKWARDS else x.copy()
        for k in range(delay, n):
            expected[k] += np.float32(0.5) * expected[k - delay]
        found = operator(x, np.ones(delay, np.float32))
        np.testing.assert_allclose(found, expected[::-1] if body == BACKWARDS else expected, rtol=1e-5)
    with pytest.raises(PolycError, match=r"needs its own value at these sizes \(D = 0\)") as caught:
        operator(np.ones(4, np.float32), np.ones(0, np.float32))
    assert caught.value.code == "range-circular"


@pytest.mark.parametrize(
    "body", ["y(n) = x(n) + taps(0) * y(N - 1 - n) where n in 0:N", "y(0) = x(0) y(n) = y(n - 1) + x(n) where n in 1:N"]
)
def test_what_needs_itself_at_most_sizes_or_at_none_is_no_condition(body: str) -> None:
    (program,) = read_tc(text(body))
    assert all(check.code != "range-circular" for check in infer_ranges(program).checks)
