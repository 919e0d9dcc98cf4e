"""What only rearranges an input is a view of it, exactly where the interpreter gives the same elements."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import driver
from polyc.ir.interpret import interpret
from polyc.ir.views import find_view

REARRANGED = (
    "def f(float(6, 5) x) -> (y) { y(j, i) = x(i, j) where i in 0:6, j in 0:5 }",
    "def f(float(2, 24) x) -> (y) { y(j, k, i) = x(1, i + 4*j + 12*k) where i in 0:4, j in 0:3, k in 0:2 }",
    "def f(float(9) x) -> (y) { y(i) = x(8 - i) where i in 0:9 }",
    "def f(float(9) x) -> (y) { y(i, j) = x(i + j) where i in 0:5, j in 0:4 }",
    "def f(float(3) x) -> (y) { y(i, j) = x(i) where i in 0:3, j in 0:4 }",
    "def f(float(4, 4) x) -> (y) { y(i) = x(i, i) where i in 0:4 }",
)
OTHERS = (
    "def f(float(6) x) -> (y) { y(i) = x(i) + 1.0 where i in 0:6 }",
    "def f(float(6, 5) x) -> (y) { y(i) +=! x(i, j) where i in 0:6, j in 0:5 }",
    "def f(float(6) x) -> (y) { y(i) = x(i / 2) where i in 0:6 }",
    "def f(float(6) x, int32(6) k) -> (y) { y(i) = x(k(i)) where i in 0:6 }",
    "def f(float(N) x) -> (y) { y(i) = x(i) where i in 0:N }",
    "def f(float(6) x) -> (y) { y(i) = x(i) where i in 0:6\n y(i) = x(i - 6) where i in 6:12 }",
)


@pytest.mark.parametrize("text", REARRANGED)
def test_views_have_the_elements_of_the_program(text):
    (program,) = driver.read_tc(text, "<test>")
    shape = {"x(i, j)": (6, 5), "x(1,": (2, 24), "x(i, i)": (4, 4)}
    extents = next((s for k, s in shape.items() if k in text), None) or ((3,) if "float(3)" in text else (9,))
    x = np.random.default_rng(0).standard_normal(extents).astype(np.float32)
    for given in (x, np.asfortranarray(x)):
        view = find_view(program, program.returns[0].version)
        assert view is not None
        np.testing.assert_array_equal(view.take(given), interpret(program, {"x": x})["y"])


@pytest.mark.parametrize("text", OTHERS)
def test_what_computes_or_chooses_is_no_view(text):
    (program,) = driver.read_tc(text, "<test>")
    assert find_view(program, program.returns[0].version) is None


def test_a_view_never_reaches_outside():
    (program,) = driver.read_tc(REARRANGED[0], "<test>")
    view = find_view(program, program.returns[0].version)
    assert view is not None and view.take(np.zeros((5, 5), np.float32)) is None
