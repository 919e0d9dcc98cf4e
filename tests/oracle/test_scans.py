"""Scans in vectors: every residue of the lanes, both directions, values that no grouping may change."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import driver
from polyc.config import default_options
from polyc.ir.interpret import interpret
from polyc.machine import X86_64_V3

Array = np.ndarray[Any, Any]

FORWARD = "def f({t}(N) x) -> (S) {{ S(0) = x(0)  S(i) = {step} where i in 1:N }}"
BACKWARD = "def f({t}(N) x) -> (S) {{ S(N-1) = x(N-1)  S(i) = {step} where i in 0:N-1 }}"
ROWS = "def f(float(M, N) x) -> (S) { S(m, 0) = x(m, 0)  S(m, i) = S(m, i-1) + x(m, i) where i in 1:N, m in 0:M }"
COLUMNS = "def f(float(M, N) x) -> (S) { S(0, j) = x(0, j)  S(i, j) = S(i-1, j) + x(i, j) where i in 1:M, j in 0:N }"
LINEAR = "def f(double(N) x, double(N) a) -> (S) { S(0) = x(0)  S(i) = a(i) * S(i-1) + x(i) where i in 1:N }"

STEPS = {
    "sum": "S(i-1) + x(i)",
    "sum_of_more": "x(i) * 2 + S(i-1) - x(i-1)",
    "difference": "S(i-1) - x(i)",
    "product": "S(i-1) * x(i)",
    "maximum": "fmax(x(i), S(i-1))",
    "minimum": "fmin(S(i-1), x(i))",
    "average": "0.5 * S(i-1) + 0.5 * x(i)",
    "leaving": "x(i) - (S(i-1) - x(i)) * 0.25",
    "quotient": "(x(i) + S(i-1)) / 3.0",
    "quotient_of_data": "(S(i-1) - 1.0) / (x(i) + 1.0)",
    "shrinking": "S(i-1) / 2.0",
}


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape)


def run(text: str, *inputs: Array, **options: Any) -> tuple[Array, Array, str]:
    """Result of the kernel, of the interpreter, and the loops."""
    lowered = polyc.compile(text, **options).lower(*inputs)
    program = lowered.program
    (expected,) = interpret(program, dict(zip(program.parameters, inputs, strict=True))).values()
    return lowered.compile()(*inputs), expected, lowered.as_text("loops")


@pytest.mark.pairs
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("target", ["host", "x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 17, 30, 100])
@pytest.mark.parametrize("form", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_every_residue_of_the_lanes(name: str, target: str, n: int, form: str) -> None:
    step = STEPS[name] if form is FORWARD else STEPS[name].replace("i-1", "i+1")
    got, expected, loops = run(form.format(t="float", step=step), draw(n).astype(np.float32), target=target)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-30)
    assert n < 3 or "scan(" in loops


@pytest.mark.each
@pytest.mark.parametrize("kind", ["int32", "int64", "uint32"])
@pytest.mark.parametrize("step", ["S(i-1) + x(i)", "S(i-1) * x(i)", "S(i-1) * x(i) + x(i)", "max(S(i-1), x(i))"])
def test_integers_are_exact_in_any_order(kind: str, step: str) -> None:
    values = np.random.default_rng(3).integers(0, 1 << 31, 77).astype(kind)
    for reassociate in (True, False):
        got, expected, loops = run(FORWARD.format(t=kind, step=step), values, reassociate=reassociate)
        assert "scan(" in loops
        np.testing.assert_array_equal(got, expected)


def test_floats_keep_the_order_of_the_source_where_it_is_asked_for() -> None:
    x = draw(100).astype(np.float32)
    got, _, loops = run(FORWARD.format(t="float", step=STEPS["sum"]), x, reassociate=False)
    assert "scan(" not in loops
    np.testing.assert_array_equal(got, np.cumsum(x))
    got, _, loops = run(FORWARD.format(t="float", step=STEPS["maximum"]), x, reassociate=False)
    assert "scan(" in loops
    np.testing.assert_array_equal(got, np.maximum.accumulate(x))


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (9, 64), (40, 33), (5, 300), (30, 1030)])
def test_along_either_axis(shape: tuple[int, int]) -> None:
    x = draw(*shape).astype(np.float32)
    for text in (ROWS, COLUMNS):
        for operator in (polyc.compile(text), polyc.compile(text, dynamic=True)):
            np.testing.assert_allclose(operator(x), np.cumsum(x, axis=1 if text is ROWS else 0), rtol=1e-5)


def loops_of_columns(m: int, n: int, cores: int, l2: int = 1 << 20) -> str:
    program, target = polyc.compile(COLUMNS).program, replace(X86_64_V3, cores=cores, l2=l2)
    return driver.lower(program, sizes={"M": m, "N": n}, options=default_options(), target=target).as_text("loops")


def test_columns_walk_together_in_vectors() -> None:
    loops = loops_of_columns(500, 4096, cores=2)
    assert "parallel" in loops and " for (c0 = 0; c0 < 4096; c0 += 2048)" in loops
    assert loops.index("for (c1 = 0; c1 < 499") < loops.rindex("vector(")


def test_short_rows_stay_whole_where_they_come_from_afar() -> None:
    assert "c0 += " not in loops_of_columns(20000, 300, cores=2)
    assert " for (c0 = 0; c0 < 304; c0 += 152)" in loops_of_columns(20000, 304, cores=2, l2=1 << 26)


def test_rows_that_leave_the_cache_are_cut_in_equal_parts() -> None:
    found = re.search(r"c0 \+= (\d+)", loops_of_columns(50, 1 << 20, cores=2))
    assert found is not None
    size = int(found[1])
    assert size * 4 <= 1 << 19 and -(-(1 << 20) // size) % 2 == 0


def test_not_a_number_goes_on_from_where_it_is() -> None:
    x = draw(60)
    x[37] = np.nan
    for step in ("S(i-1) + x(i)", "fmax(S(i-1), x(i))", "S(i-1) * x(i)"):
        got, expected, _ = run(FORWARD.format(t="double", step=step), x)
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_products_that_leave_the_range_change_nothing() -> None:
    """Sixteen factors of 1e300 have no product; the values they act on do."""
    x, factors = np.zeros(80), np.full(80, 1e300)
    got, expected, loops = run(LINEAR, x, factors)
    assert "scan(" in loops
    np.testing.assert_array_equal(got, expected)
    x[3], factors[10:40:2], factors[11:40:2] = 1.0, 1e-200, 1e200
    factors[:10] = factors[40:] = 0.5
    factors[50], factors[60] = 0.0, np.nan
    got, expected, _ = run(LINEAR, x, factors)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    tiny = np.where(np.arange(80) % 2, 1e-200, 1e200)
    got, expected, _ = run(FORWARD.format(t="double", step="S(i-1) * x(i)"), tiny)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    zero = np.where(np.arange(80) < 20, 0.0, 1e300)
    np.testing.assert_array_equal(polyc.compile(FORWARD.format(t="double", step="S(i-1) * x(i)"))(zero), 0)


@pytest.mark.parametrize(
    "step",
    ["S(i-1) * S(i-1) + x(i)", "x(i) - S(i-1)", "exp(S(i-1)) + x(i)", "S(i-1) + x(i) * S(i-1)", "S(i-1)"],
)
def test_what_is_no_scan_stays_in_order_or_is_one_by_another_name(step: str) -> None:
    got, expected, _ = run(FORWARD.format(t="double", step=step), draw(50) * 0.1)
    np.testing.assert_allclose(got, expected, rtol=1e-11)


def test_over_its_own_input() -> None:
    x = draw(1000).astype(np.float32)
    expected = np.cumsum(x)
    operator = polyc.compile(FORWARD.format(t="float", step=STEPS["sum"]))
    np.testing.assert_allclose(operator(x, out=x), expected, rtol=1e-5)


def test_rows_of_a_view() -> None:
    x = draw(40, 66).astype(np.float32)[::2, ::-3]
    np.testing.assert_allclose(polyc.compile(ROWS)(x), np.cumsum(x, 1), rtol=1e-5)


def test_a_temporary_that_is_a_scan() -> None:
    text = """def f(float(N) x) -> (y) {
      S(0) = x(0)
      S(i) = S(i-1) + x(i) where i in 1:N
      y(i) = S(i) / (i + 1)
    }"""
    x = draw(101).astype(np.float32)
    np.testing.assert_allclose(polyc.compile(text)(x), np.cumsum(x) / np.arange(1, 102), rtol=1e-5)


def test_elements_two_behind_are_part_of_a_scan_and_others_of_none() -> None:
    text = """def f(double(N) x) -> (S) { S(0) = x(0)  S(1) = x(1)  S(2) = x(2)
      S(i) = 0.5 * S(i-1) + 0.25 * S(i-%d) + x(i) where i in 3:N }"""
    for distance in (2, 3):
        got, expected, loops = run(text % distance, draw(77))
        np.testing.assert_allclose(got, expected, rtol=1e-13)
        assert ("scan(" in loops) == (distance == 2)


def test_rows_of_the_same_tensor_take_part_in_a_scan() -> None:
    text = """def f(double(M, N) x) -> (S) { S(m, n) = m == 0 || n == 0 ? x(m, n)
      : 0.5 * S(m, n-1) + 0.25 * S(m-1, n) + 0.125 * S(m-1, n-1) + x(m, n) where m in 0:M, n in 0:N }"""
    for n in (3, 16, 17, 40, 131):
        got, expected, loops = run(text, draw(6, n))
        np.testing.assert_allclose(got, expected, rtol=1e-14)
        assert "scan(" in loops


def test_one_walk_forwards_and_one_backwards() -> None:
    # A tridiagonal solver in each of several steps: no loop is common to both walks.
    text = """def f(double(N, M) x, double(T) steps) -> (y) {
      U(0, i, j) = x(i, j)
      q(t, i, j) = U(t, i, j) + (j > 0 ? 0.5 * q(t, i, j-1) : 0.0) where t in 0:T, i in 0:N, j in 0:M
      U(t + 1, i, j) = q(t, i, j) + (j < M-1 ? 0.25 * U(t + 1, i, j+1) : 0.0) where t in 0:T, i in 0:N, j in 0:M
      y(i, j) = U(T, i, j) }"""
    x, steps = draw(7, 33), draw(5)
    operator = polyc.compile(text)
    (expected,) = interpret(operator.program, {"x": x, "steps": steps}).values()
    lowered = operator.lower(x, steps)
    np.testing.assert_allclose(lowered.compile()(x, steps), expected, rtol=1e-13)
    remarks = [r.message for r in lowered.remarks if r.pass_name == "schedule"]
    assert remarks == ["ilp: proved by value and by storage"]


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "host"])
@pytest.mark.parametrize("columns", [1, 2, 3, 6, 8, 9, 15, 16, 20, 25, 33])
def test_sums_down_a_few_columns_walk_all_of_them_at_once(columns: int, target: str) -> None:
    """They went down one column after the other, and read every cache line once for each."""
    text = "def f(float(R, C) x) -> (S) { S(0, c) = x(0, c)  S(i, c) = S(i - 1, c) + x(i, c) where i in 1:R }"
    op = polyc.compile(text, target=target)
    x = np.random.default_rng(columns).integers(-99, 99, (57, columns)).astype(np.float32)
    lowered = op.lower(x)
    np.testing.assert_array_equal(np.asarray(lowered.compile()(x)), np.cumsum(x, axis=0))
    loops = lowered.as_text("loops")
    rows_around_columns = r"< 56; c\d\+\+\) \{\n *(for|vector|unroll)"
    assert columns == 1 or re.search(rows_around_columns, loops)
