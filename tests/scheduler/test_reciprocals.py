"""Terms of sums that are multiplied by the reciprocal of a number: which, and that quotients which are results stay divided."""

from __future__ import annotations

import numpy as np
import pytest

import polyc
from tests.scheduler.support import check, infer, read, run_pass, statements

HEAD = "def f(float(N, M) X, float(M) s) -> (Y) { "

SUMS = {
    "by a size": HEAD + "Y(j) +=! X(i, j) / float(N) }",
    "by a product of sizes": HEAD + "Y(j) +=! X(i, j) / float(N * M) }",
    "by sizes converted one by one": HEAD + "Y(j) +=! X(i, j) / (float(N) * float(M)) }",
    "by a literal": HEAD + "Y(j) +=! X(i, j) / 961.0 }",
    "of squares": HEAD + "Y(j) +=! (X(i, j) - s(j)) * (X(i, j) - s(j)) / float(N) }",
    "below a sum": HEAD + "Y(j) +=! X(i, j) / 3.0 - (X(i, j) * s(j)) / float(N) }",
    "of some terms": HEAD + "Y(j) +=! i == 1 ? X(i, j) / 3.0 : s(j) }",
    "on top of a start": HEAD + "Y(j) = s(j) / 3.0  Y(j) += X(i, j) / 7.0 }",
}

OTHERS = {
    "a quotient that is a result": HEAD + "Y(i, j) = X(i, j) / 3.0 + s(j) }",
    "a maximum": HEAD + "Y(j) max=! X(i, j) / 3.0 }",
    "of what stays the same along the sum": HEAD + "Y(j) +=! (X(i, j) - s(j) / 3.0) * X(i, j) }",
    "by data": HEAD + "Y(j) +=! X(i, j) / s(j) }",
    "in a function": HEAD + "Y(j) +=! exp(X(i, j) / 3.0) }",
    "by zero": HEAD + "Y(j) +=! X(i, j) / 0.0 }",
    "by nearly nothing": HEAD + "Y(j) +=! X(i, j) / 1e-39 }",
    "integers": "def f(int32(N, M) X) -> (Y) { Y(j) +=! X(i, j) / 3 }",
}


def test_before_and_after():
    program, ranges = infer(read(SUMS["by a literal"].replace("961.0", "8.0")), M=3, N=9)
    new, _, remarks = run_pass("reciprocals", program, ranges)
    assert statements(new) == ["S0(j, i): Y[j] += X[i, j] * 0.125 init 0.0"]
    assert [(r.kind, r.pass_name) for r in remarks] == [("passed", "reciprocals")]


@pytest.mark.parametrize("name", SUMS)
def test_terms_are_multiplied_and_agree(name: str):
    for n, m in ((1, 1), (7, 5), (33, 70), (0, 3), (3, 0)):
        lowered = check(SUMS[name], {"N": n, "M": m})
        if n > 1 and m:
            assert any(r.pass_name == "reciprocals" for r in lowered.remarks)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_divided(name: str):
    program, ranges = infer(read(OTHERS[name]), M=3, N=9)
    new, _, remarks = run_pass("reciprocals", program, ranges)
    assert new == program and not remarks


def test_the_order_of_the_source_keeps_its_divisions():
    program = polyc.compile(SUMS["by a size"], reassociate=False)
    x = np.random.default_rng(0).standard_normal((11, 3)).astype("f4")
    total = np.zeros(3, "f4")
    for row in x:
        total += row / np.float32(11)
    assert np.array_equal(program(x, np.zeros(3, "f4")), total)


def test_terms_of_a_mean_do_not_overflow():
    mean = polyc.compile(SUMS["by a size"])
    assert np.allclose(mean(np.full((100, 5), 3e38, "f4"), np.zeros(5, "f4")), 3e38)


def test_infinities_and_nan_are_as_written():
    x = np.array([[np.inf, -np.inf, np.nan, np.inf], [1, 1, 1, -np.inf]], "f4")
    found = polyc.compile(SUMS["by a literal"])(x, np.zeros(4, "f4"))
    assert np.array_equal(found, np.array([np.inf, -np.inf, np.nan, np.nan], "f4"), equal_nan=True)
