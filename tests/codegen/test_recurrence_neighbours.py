"""What a step reads of another element is not what its own element was one step before."""

import numpy as np
import pytest

import polyc

SOURCE = """
def f(double(N) x, double(N) c, int64 T) -> (Y) {
  A(0, i) = x(i) where i in 0:N
  A(t, i) = A(t-1, i) + c(i) * A(t-1, max(i - 1, 0)) where t in 1:T+1, i in 0:N
  Y(i) = A(T, i) where i in 0:N
}
"""


@pytest.mark.parametrize("n", [1, 5, 9])
def test_a_clamped_neighbour_is_not_read_as_the_element_itself(n: int) -> None:
    step = polyc.compile(SOURCE, dynamic="T")
    rng = np.random.default_rng(n)
    x, c = rng.random(n), rng.random(n)
    expected = x
    for _ in range(9):
        expected = expected + c * expected[np.maximum(np.arange(n) - 1, 0)]
    np.testing.assert_allclose(step(x, c, 9), expected)
