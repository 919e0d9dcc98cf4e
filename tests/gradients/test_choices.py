"""Recurrences of which the adjoint needs comparisons alone: these are stored, in bytes, and give what the values would."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyc
from polyc.gradients import reverse, vjp
from polyc.ir.interpret import interpret
from tests.gradients.helpers import RIGHT, Case, check_derivatives
from tests.gradients.sources import compile_text

PATHS = """
def paths(double(N, N) A) -> (D) {
  P(0, i, j) = A(i, j)
  P(k + 1, i, j) = min(P(k, i, j), P(k, i, k) + P(k, k, j)) where k in 0:N, i in 0:N, j in 0:N
  D(i, j) = P(N, i, j)
}
"""


def steps(value: str) -> str:
    """A recurrence over five steps of a row, of which the last one is returned."""
    return f"""
def steps(double(N, N) A) -> (D) {{
  P(0, i, j) = A(i, j)
  P(t, i, j) = {value} where t in 1:6, i in 0:N, j in 0:N
  D(i, j) = P(5, i, j)
}}
"""


STORED = {
    "shortest paths": PATHS,
    "the last step as well": PATHS.replace("= P(N, i, j)", "= P(N, i, j) * P(N, j, i)"),
    "clipped": steps("min(max(2.0 * P(t-1, i, j), 0.0 - A(i, j)), P(t-1, j, i))"),
    "chosen": steps(
        "P(t-1, i, j) <= A(j, i) ? P(t-1, j, i) + A(i, j) : (P(t-1, i, j) >= 2.0 ? -P(t-1, i, j) : P(t-1, i, N-1-j))"
    ),
    "equal or not": steps("P(t-1, i, j) == P(t-1, j, i) ? A(i, j) : (P(t-1, i, j) != 1.0 ? 2.0 * P(t-1, i, j) : 0.5)"),
    "three orders": steps("max(P(t-1, i, j), max(P(t-1, j, i) - 1.0, max(A(i, j), 0.5 * P(t-1, i, N-1-j))))"),
}
KEPT = {
    "values as well": steps("max(P(t-1, i, j) * P(t-1, i, j), P(t-1, j, i))"),
    "beyond borders": steps("i > 0 ? max(P(t-1, i-1, j), A(i, j)) : P(t-1, i, j) + A(i, j)"),
    "too many": steps("+".join(f"max(P(t-1, i, j), {k}.0)" for k in range(5))),
}


def inputs(n: int, what: str) -> np.ndarray:
    rng = np.random.default_rng(n)
    drawn = rng.uniform(0.1, 2.0, (n, n)) if what == "different" else rng.integers(-2, 4, (n, n)).astype(np.float64)
    return np.where(rng.random((n, n)) < 0.2, np.nan, drawn) if what == "nan" else drawn


@pytest.mark.parametrize("name", STORED)
def test_bytes_give_what_values_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, also where operands are equal or no numbers."""
    program = compile_text(STORED[name]).program
    found = vjp(program, ("A",))
    assert any(t.name == "P.order" for t in found.tensors)
    adjoints = [str(s) for s in found.statements if s.target.startswith("d_")]
    assert not any(re.search(r"\bP\[(?!N,|5,)", text) for text in adjoints)
    monkeypatch.setattr(reverse, "store_choices", lambda program, ranges, parts, others, names: (parts, [], []))
    expected = vjp(program, ("A",))
    for n, what in ((0, "equal"), (1, "equal"), (4, "equal"), (5, "different"), (4, "nan")):
        given = {"A": inputs(n, what), "d_D": np.random.default_rng(1).standard_normal((n, n))}
        np.testing.assert_array_equal(interpret(found, given)["d_A"], interpret(expected, given)["d_A"])
    case = Case(program, {"N": 4}, {"A": inputs(4, "different")}, {})
    assert check_derivatives(case).reverse == RIGHT


@pytest.mark.parametrize("name", KEPT)
def test_values_stay_where_they_are_needed(name: str) -> None:
    program = compile_text(KEPT[name]).program
    assert not any("order" in t.name for t in vjp(program, ("A",)).tensors)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_bytes_of_steps_are_stored_where_steps_were(target: str) -> None:
    """In the loop over steps, of which two are kept."""
    n = 43
    gradient = polyc.compile(PATHS, target=target).vjp()
    lowered = gradient.lower(np.zeros((n, n)), np.zeros((n, n))).as_text("loops")
    assert "P: f64[2, 43, 43]" in lowered
    assert "P.order: u8[43, 43, 43]" in lowered


@pytest.mark.parametrize("sizes", [(0, 1, 7), (43,)])
def test_kernels_give_what_the_interpreter_gives(sizes: tuple[int, ...]) -> None:
    """One for several sizes, and one for a size at which steps share a loop."""
    gradient = polyc.compile(PATHS, target="x86-64-v3", dynamic=len(sizes) > 1).vjp()
    for n in sizes:
        given = {"A": inputs(n, "equal"), "d_D": np.random.default_rng(2).standard_normal((n, n))}
        expected = interpret(gradient.program, given)["d_A"]
        for threads in (2, None):
            polyc.set_num_threads(threads)
            np.testing.assert_allclose(gradient(*given.values()), expected, rtol=1e-9, atol=1e-12)
