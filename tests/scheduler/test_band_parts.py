"""Recurrences whose result is a band: what lies beside it is computed apart, and nothing else is parted."""

from __future__ import annotations

import pytest

from tests.scheduler.support import check, infer, read, run_pass, statements

CHOLESKY = """def f(double(N,N) A) -> (L) {
  S(i,j) +=! L(i,k) * L(j,k) where i in 0:N, j in 0:N, k in 0:N, k < j, j <= i, k + 3 >= i
  L(i,j) = j > i || i > j + 3 ? double(0) : (i == j ? sqrt(A(i,i) * A(i,i) + 9.0 - S(i,i)) : (A(i,j) - S(i,j)) / L(j,j))
    where i in 0:N, j in 0:N }"""

PARTED = {
    "band on one side": CHOLESKY,
    "band asked for": """def f(double(N,N) A) -> (L) {
        L(i,j) = j <= i && i <= j + 2 ? A(i,j) + (j > 0 ? L(i,j-1) : double(0)) : A(j,i) where i in 0:N, j in 0:N }""",
    "band on both sides": """def f(float(N,N) A) -> (U) {
        U(i,j) = i > j + 1 || j > i + 1 ? 0.0 : i > 0 && j > 0 ? A(i,j) - 0.5 * U(i-1,j-1) : A(i,j)
          where i in 0:N, j in 0:N }""",
    "rows as short as pixels, which run as one otherwise": """def f(float(N,8) x) -> (y) {
        y(i,j) = i > 0 && i < 7 ? y(i-1,j) + x(i,j) : x(i,j) where i in 0:N, j in 0:8 }""",
    "a few columns": """def f(float(N,N) x) -> (y) {
        y(i,j) = j > 3 ? x(i,j) : i > 0 ? 0.5 * y(i-1,j) + x(i,j) : x(i,j) where i in 0:N, j in 0:N }""",
}

STAY = {
    "a triangle": """def f(float(N,N) A) -> (L) {
        L(i,j) = j > i ? 0.0 : j > 0 ? 0.5 * L(i,j-1) + A(i,j) : A(i,j) where i in 0:N, j in 0:N }""",
    "a border": "def f(float(N,N) x) -> (y) { y(i,j) = i == 0 ? x(i,j) : y(i-1,j) + x(i,j) where i in 0:N, j in 0:N }",
    "no recurrence": "def f(float(N,N) x) -> (y) { y(i,j) = i > j || j > i + 2 ? 0.0 : x(i,j) where i in 0:N, j in 0:N }",
    "both arms need it": """def f(float(N,N) x) -> (y) {
        y(i,j) = i == 0 ? x(i,j) : (j > 2 ? y(i-1,j) : 0.5 * y(i-1,j)) where i in 0:N, j in 0:N }""",
    "by data": "def f(float(N,N) x) -> (y) { y(i,j) = x(i,j) > 0.0 || i == 0 ? x(i,j) : y(i-1,j) where i in 0:N, j in 0:N }",
    "a temporary": CHOLESKY.replace("-> (L)", "-> (x)").replace("j in 0:N }", "j in 0:N  x(i) = L(i,i) }"),
}


@pytest.mark.parametrize("name", PARTED)
def test_every_form(name: str):
    for n in (33, 40):
        lowered = check(PARTED[name], {"N": n})
        assert [r.message for r in lowered.remarks if r.pass_name == "split-bands"]


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str):
    program, ranges = infer(read(STAY[name]), N=40)
    assert run_pass("split-bands", program, ranges) == (program, ranges, [])


def test_short_rows_and_unknown_sizes_stay():
    for sizes in ({"N": 12}, {}):
        program, ranges = infer(read(CHOLESKY), **sizes)
        assert run_pass("split-bands", program, ranges) == (program, ranges, [])


def test_pieces_beside_a_band_are_statements_without_conditions():
    program, ranges = infer(read(PARTED["band asked for"]), N=40)
    new, new_ranges, _ = run_pass("split-bands", program, ranges)
    lines = [line for line in statements(new) if line.startswith("S")]
    assert lines[0] == "S0(i, j): L[i, j] = A[i, j] + (j > 0 ? L[i, j - 1] : 0.0:f64)"
    assert [line.split(": ", 1)[1] for line in lines[1:]] == ["L[i, j] = A[j, i]"] * 2
    assert set(new_ranges.statements) == {s.name for s in new.statements}
