"""Conditions on indices leave vector loops; what is computed stays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from tests.codegen.support import LEVELS

CASES = {
    "rows": "i == 2 || j == 0 || j == M-1 ? x(i, j) : 2 * x(i, j)",
    "first": "j == 0 ? x(i, j) : x(i, j) + x(i, j-1)",
    "last": "M-1 == j ? x(i, j) : x(i, j) + x(i, j+1)",
    "fixed": "i < 2 ? x(i, j) : x(i-2, j)",
    "both_ways": "i == 0 || j < 5 ? x(i, j) : x(i-1, j-5)",
    "up_to": "j <= i ? x(i, j) : 3 * x(i, j)",
    "from": "j >= i ? x(i, j) : 3 * x(i, j)",
    "beyond": "3 < j ? x(i, j) : 3 * x(i, j)",
    "not_beyond": "i + 2 >= j ? x(i, j) : 3 * x(i, j)",
    "all_but_one": "j < M-1 ? x(i, j) : 3 * x(i, j)",
    "counted_backwards": "M - j < 6 ? x(i, j) : 3 * x(i, j)",
    "three_parts": "j < 4 ? x(i, j) : (j == i ? 5.0 * x(i, j) : (j > i + 2 ? x(i, j) : 3 * x(i, j)))",
    "diagonal": "i == j ? 1.0 : x(i, j)",
    "every_second": "j % 2 == 0 ? x(i, j) : 0.0 - x(i, j)",
    "wide_borders": "i < 2 || i >= N-2 || j < 2 || j >= M-2 ? x(i, j) : x(i, j-2) + x(i, j+2)",
    "wider_borders": "j < 3 || M-7 <= j ? 2 * x(i, j) : x(i, j-3) + x(i, j+7)",
    "borders_in_borders": "j < 3 || j == 0 || j <= 1 || j > M-4 ? x(i, j) : x(i, j-3) + x(i, j+3)",
    "mostly_border": "j < 17 || j >= M-3 ? 3 * x(i, j) : x(i, j)",
    "twice": "j == 0 || 2 * j == 0 ? x(i, j) : x(i, j-1)",
    "data": "x(i, j) > 0.0 || j == 0 ? x(i, j) : 0.0",
}


@pytest.mark.pairs
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (5, 16), (5, 17), (9, 100), (40, 259)])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v2"}], ids=str)
def test_values_are_those_of_the_interpreter(name: str, shape: tuple[int, int], options: dict[str, Any]) -> None:
    text = f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES[name]} where i in 0:N, j in 0:M }}"
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    operator = polyc.compile(text, **options)
    (expected,) = interpret(operator.program, {"x": x}).values()
    np.testing.assert_array_equal(operator(x), expected)


BESIDE = {
    "chosen alike": "{condition} ? y(i, j) : y(i, j) + x(i, j)",
    "always": "y(i, j) + 2 * x(i, j)",
    "chosen otherwise": "j == 1 ? y(i, j) : y(i, j) + x(i, j)",
}


@pytest.mark.pairs
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", ["rows", "first", "fixed", "all_but_one", "wide_borders", "mostly_border", "diagonal"])
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (5, 16), (5, 17), (9, 100), (40, 259)])
@pytest.mark.parametrize("options", [{}, {"target": "x86-64-v2"}], ids=str)
def test_values_of_statements_in_one_loop(name: str, beside: str, shape: tuple[int, int], options: dict[str, Any]) -> None:
    second = BESIDE[beside].format(condition=CASES[name].partition("?")[0])
    ranges = "where i in 0:N, j in 0:M"
    operator = polyc.compile(
        f"def f(float(N, M) x) -> (y, z) {{ y(i, j) = {CASES[name]} {ranges}  z(i, j) = {second} {ranges} }}", **options
    )
    x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    for found, expected in zip(operator(x), interpret(operator.program, {"x": x}).values(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_two_statements_that_share_borders_ask_nothing_inside() -> None:
    border, ranges = "i == 2 || j == 0 || j == M-1", "where i in 0:N, j in 0:M"
    y, z = f"{border} ? x(i, j) : 2 * x(i, j) {ranges}", f"{border} ? y(i, j) : y(i, j) + x(i, j) {ranges}"
    text = f"def f(float(N, M) x) -> (y, z) {{ y(i, j) = {y}  z(i, j) = {z} }}"
    loops = polyc.compile(text).lower(N=50, M=300).as_text("loops")
    assert "?" not in loops and loops.count("vector(") == 2 and " == 2" in loops


def test_the_loop_in_the_middle_asks_nothing() -> None:
    text = f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES['rows']} where i in 0:N, j in 0:M }}"
    loops = polyc.compile(text).lower(N=50, M=300).as_text("loops")
    assert "?" not in loops and loops.count("vector(") == 2 and " == 2" in loops


def test_the_loop_inside_of_wide_borders_asks_nothing() -> None:
    text = f"def f(float(N, M) x) -> (y) {{ y(i, j) = {CASES['wider_borders']} where i in 0:N, j in 0:M }}"
    loops = polyc.compile(text).lower(N=50, M=300).as_text("loops")
    assert "?" not in loops and loops.count("vector(") == 3


IN_PLACE = """def sweeps(double(N, M) x, double(T) steps) -> (y) {
  A(0, i, j) = x(i, j)
  A(t, i, j) = i == 0 || i == N-1 || j == 0 || j == M-1 ? A(t-1, i, j)
    : (A(t, i-1, j-1) + A(t, i-1, j) + A(t, i, j-1) + A(t-1, i, j) + A(t-1, i, j+1) + A(t-1, i+1, j)) / 6.0
    where t in 1:T+1, i in 0:N, j in 0:M
  y(i, j) = A(T, i, j)
}"""


def test_sweeps_over_rows_of_any_length_run_in_vectors() -> None:
    # With borders of unknown place inside of the loop, a sweep took 13 times as long as one over rows of known length.
    sweeps = polyc.compile(IN_PLACE, dynamic=True)
    rng = np.random.default_rng(3)
    lowered = sweeps.lower(rng.uniform(-1, 1, (40, 300)), np.zeros(4))
    long = re.search(r"scan\(lanes \d+\) for .*\n(.*)", lowered.as_text("loops"))
    assert long is not None and "?" not in long[1]
    assert "shufflevector <8 x double>" in lowered.as_text("ll") or "shufflevector <4 x double>" in lowered.as_text("ll")
    for n, m in [(1, 1), (2, 2), (3, 3), (5, 14), (5, 15), (5, 16), (5, 17), (7, 33), (40, 300), (0, 4), (4, 0)]:
        x, steps = rng.uniform(-1, 1, (n, m)), np.zeros(3)
        (expected,) = interpret(sweeps.program, {"x": x, "steps": steps}).values()
        np.testing.assert_allclose(sweeps(x, steps), expected, rtol=1e-12, atol=1e-14)


LEVINSON = """def levinson(double(N) r) -> (double(N) y) {
  a(0) = -r(0)
  b(0) = double(1)
  b(k) = (1.0 - a(k-1) * a(k-1)) * b(k-1) where k in 1:N
  s(k) +=! r(k-1-i) * Y(k-1, i) where i < k, k in 1:N, i in 0:N
  a(k) = -(r(k) + s(k)) / b(k) where k in 1:N
  Y(k, i) = i < k ? Y(k-1, i) + a(k) * Y(k-1, k-1-i) : (i == k ? a(k) : 0.0) where k in 0:N, i in 0:N
  y(i) = Y(N-1, i) }"""


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 150])
def test_a_sum_and_the_values_it_takes_share_a_loop_without_tests(n: int) -> None:
    r = np.random.default_rng(n).uniform(-1, 1, n) / (4 * n)
    toeplitz = np.array([[1.0 if i == j else r[abs(i - j) - 1] for j in range(n)] for i in range(n)])
    for options in ({}, {"dynamic": True}, {"target": "x86-64-v3"}):
        np.testing.assert_allclose(polyc.compile(LEVINSON, **options)(r), np.linalg.solve(toeplitz, -r), rtol=1e-12, atol=1e-14)
    loops = polyc.compile(LEVINSON).lower(r).as_text("loops")
    vectors = [line for line in loops.splitlines() if "vector(" in line]
    assert n < 64 or any("registers s" in line for line in vectors)
    assert n < 64 or "?" not in loops


@pytest.mark.parametrize("first", ["i >= 2 ? A(key(i), i - 2) : 0.25", "pad(A(key(i), i - 2), 0.25)"])
@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"target": "x86-64-v3"}, {"target": "x86-64-v2"}], ids=str)
def test_a_place_that_one_arm_reads_where_it_holds_is_read_in_full_by_others(first: str, options: dict[str, Any]) -> None:
    text = f"def f(double(N, N) A, int16(N) key) -> (y) {{ y(i) = ({first}) >= 0.25 ? A(0, key(i)) : 9.0 where i in 0:N }}"
    a, key = np.arange(1.0, 122.0).reshape(11, 11), (np.arange(11) * 7 % 11).astype(np.int16)
    key[:2] = 5, 8
    np.testing.assert_array_equal(polyc.compile(text, **options)(a, key), a[0, key])


FAR_ROWS = {
    "padded": "pad(X(a-5,b-5,c-1), 0.0)",
    "the other arm": "a < 5 || a >= 17 || b < 5 || b >= 7558 || c < 1 || c >= 9 ? 0.0 : X(a-5,b-5,c-1)",
    "every second element": "pad(X(a-5,b-5,2*c-1), 0.0)",
}


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("form", FAR_ROWS)
def test_rows_beyond_a_short_padded_row_are_not_looked_for_where_no_page_is(form, level):
    # Masked off, their loads raise no fault, but take a hundred times as long there.
    text = f"def f(float(12,7553,8) X) -> (Y) {{ Y(a,b,c) = {FAR_ROWS[form]} where a in 0:19, b in 0:7563, c in 0:14 }}"
    x = np.arange(1, 12 * 7553 * 8 + 1, dtype=np.float32).reshape(12, 7553, 8)
    op = polyc.compile(text, target=level)
    if form != "every second element" or level == "x86-64-v4":  # elsewhere those are read one by one
        ir = op.lower(x).as_text("ll")
        (spare,) = set(re.findall(r"(%slot\d+) = alloca \[1024 x i8\]", ir))
        chosen = set(re.findall(rf"(%v\d+) = select i1 %v\d+, ptr %v\d+, ptr {spare}", ir))
        chosen |= {v for v, base in re.findall(r"(%v\d+) = getelementptr i8, ptr (%v\d+), i64 \d+", ir) if base in chosen}
        loaded = re.findall(r"call <8 x float> @llvm\.masked\.load\.\S+\(ptr (%v\d+),", ir)
        assert loaded and set(loaded) <= chosen
    wide = np.pad(x, ((5, 2), (5, 5), (1, 30)))
    found = op(x) if level in LEVELS else polyc.compile(text)(x)
    np.testing.assert_array_equal(found, wide[..., :28:2] if "2*c" in FAR_ROWS[form] else wide[..., :14])
