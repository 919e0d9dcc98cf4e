"""Recurrences: skewed bands by integer programming, scans below parallel loops, and what stays outside a time loop."""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl
import pytest

from polyc.poly.dependences import compute_dependences
from polyc.poly.farkas import Piece, nonnegative_cone, respects
from polyc.poly.legality import prove_values
from polyc.poly.rows import Row, format_rows
from polyc.scheduler.rows.groups import RowFinder
from polyc.scheduler.rows.ilp import schedule_statements
from polyc.scheduler.rows.model import Model
from polyc.scheduler.rows.solver import Budget, Problem, solve
from polyc.scheduler.rows.union_find import ClassFinder
from tests.poly.trees import build_tree
from tests.scheduler.corpus import parse_line
from tests.scheduler.integer_rows import integer_programs
from tests.scheduler.programs import make_scop
from tests.scheduler.support import check, lower

GRID = "  where 1<=t<T and 1<=i<N-1"
CUBE = "  where 1<=t<T and 1<=i<N-1 and 1<=j<N-1"
CROSS = "{0}[{1},i-1,j] {0}[{1},i,j] {0}[{1},i+1,j] {0}[{1},i,j-1] {0}[{1},i,j+1]"

CASES = {
    "scan": (["S: j:N -> s[j] = x[j] s[j-1]"], "[S:j] S"),
    "scan and reader": (["S: j:N -> s[j] = x[j] s[j-1]", "O: j:N -> o[j] = s[j]"], "[S:j] S ; [P:j] O"),
    "reversed scan": (["S: j:N -> s[j] = x[j] s[j+1]"], "[S:-j] S"),
    "reversed in one dimension": (["S: t i -> a[t,i] = a[t+1,i-1] a[t+1,i+1]" + GRID], "[S:-t, S:-t+i] S"),
    # Below a parallel loop the neighbours of a scan join its loop: no parallelism is lost.
    "prefix sum": (
        ["E: i:N j:T -> e[i,j] = x[i,j]", "S: i:N j:T -> s[i,j] = e[i,j] s[i,j-1]", "O: i:N j:T -> o[i,j] = s[i,j]"],
        "[P:i, S:j]{ E ; S ; O }",
    ),
    "jacobi": (["S: t i -> a[t,i] = a[t-1,i-1] a[t-1,i] a[t-1,i+1]" + GRID], "[S:t, S:t+i] S"),
    "gauss seidel": (["S: t i -> a[t,i] = a[t,i-1] a[t-1,i] a[t-1,i+1]" + GRID], "[S:t, S:t+i] S"),
    "jacobi in two halves": (
        [
            "S0: t i -> b[t,i] = a[t-1,i-1] a[t-1,i] a[t-1,i+1]" + GRID,
            "S1: t i -> a[t,i] = b[t,i-1] b[t,i] b[t,i+1]" + GRID,
        ],
        "[S:t, S:{S0: 2t+i, S1: 2t+i+1}]{ S0 ; S1 }",
    ),
    "jacobi in the plane": (
        [
            f"S0: t i j -> b[t,i,j] = {CROSS.format('a', 't-1')}" + CUBE,
            f"S1: t i j -> a[t,i,j] = {CROSS.format('b', 't')}" + CUBE,
        ],
        "[S:t, S:{S0: 2t+i, S1: 2t+i+1}, S:{S0: 2t+i+j, S1: 2t+i+j+1}]{ S0 ; S1 }",
    ),
    # Each needs the other one a step before: no statement is a step ahead, or tests of which one it is stay in all loops.
    "two fields": (
        [
            f"S0: t i j -> a[t,i,j] = {CROSS.format('a', 't-1')} b[t-1,i,j]" + CUBE,
            f"S1: t i j -> b[t,i,j] = {CROSS.format('b', 't-1')} a[t-1,i,j]" + CUBE,
        ],
        "[S:t, S:t+i, S:t+j]{ S0 ; S1 }",
    ),
    # Distances (2, -1) are 0 along t+2i; but a loop that is skewed by one is as parallel inside t, and has unit strides.
    "no larger skew than it takes": (
        ["S: t i -> a[t,i] = a[t-2,i+1]  where 2<=t<T and 1<=i<N-1"],
        "[S:t, S:t+i] S",
    ),
    "time loop of a column": (["S: t:T i:N -> a[t,i] = a[t-1,i] x[i]"], "[P:i, S:t] S"),
}
"""Single-assignment forms; the boundary values are never written and count as inputs."""


@pytest.mark.parametrize("make_finder", [ClassFinder, integer_programs()], ids=["classes", "ilp"])
@pytest.mark.parametrize("name", CASES)
def test_bands_of_recurrences(name: str, make_finder: Callable[[Model], RowFinder]) -> None:
    lines, expected = CASES[name]
    scop = make_scop([parse_line(line) for line in lines], {"T": 20, "N": 100})
    dependences = compute_dependences(scop)
    node = schedule_statements(scop, dependences, make_finder=make_finder)
    assert format_rows(node, scop) == expected
    assert prove_values(scop, dependences, build_tree(scop, expected)) is None


def test_the_input_projection_stays_out_of_the_time_loop() -> None:
    lines = [
        "GX: t:T b:B g:4 n:N k:I -> gx[t,b,g,n] += x[t,b,k] w[g,n,k]",
        "GH: t:T b:B g:4 n:N k:N -> gh[t,b,g,n] += h[t-1,b,k] u[g,n,k]",
        "G: t:T b:B g:4 n:N -> ga[t,b,g,n] = gx[t,b,g,n] gh[t,b,g,n] bias[g,n]",
        "Ce: t:T b:B n:N -> c[t,b,n] = c[t-1,b,n] ga[t,b,0,n] ga[t,b,1,n] ga[t,b,2,n]",
        "Hh: t:T b:B n:N -> h[t,b,n] = c[t,b,n] ga[t,b,3,n]",
    ]
    scop = make_scop([parse_line(line) for line in lines], {"T": 32, "B": 16, "N": 256, "I": 256})
    text = format_rows(schedule_statements(scop, compute_dependences(scop)), scop)
    assert text.startswith("[P:b]{ [P:t, P:g, P:n, R:k] GX ; [S:t]{ ")
    assert "[R:k] GH ; G }" in text


def test_the_cone_of_a_dependence() -> None:
    """Forms a + b i + c j that are not negative where j = i + 1 and i >= 0: b + c >= 0 and a + c >= 0."""
    rows = nonnegative_cone(isl.Map("{ S[i] -> S[j] : j = i + 1 and i >= 0 }"))

    def holds(a: int, b: int, c: int) -> bool:
        values = [sum(f * x for f, x in zip(row.factors, (a, b, c), strict=True)) for row in rows]
        return all(v == 0 if row.is_equality else v >= 0 for v, row in zip(values, rows, strict=True))

    for a in range(-2, 3):
        for b in range(-2, 3):
            for c in range(-2, 3):
                assert holds(a, b, c) == (b + c >= 0 and a + c >= 0)


def test_rows_are_checked_exactly() -> None:
    scop = make_scop([parse_line(CASES["jacobi"][0][0])], {"T": 20, "N": 100})
    (piece,) = (Piece(flow.source, flow.sink, flow.relation) for flow in compute_dependences(scop).flows)
    assert respects({"S": Row((1, 1))}, piece)
    assert not respects({"S": Row((0, 1))}, piece)


def test_the_solver_rounds_and_keeps_its_budget() -> None:
    problem = Problem()
    x, y = problem.add_variable(-1, 0, 10), problem.add_variable(-1, 0, 10)
    problem.add_row(-1e9, 7, [(x, 2), (y, 2)])  # the relaxation takes 3.5
    values = solve(problem, Budget())
    assert values is not None and sum(values) == 3
    assert solve(problem, Budget(max_solves=0)) is None
    problem.add_row(8, 1e9, [(x, 2), (y, 2)])
    assert solve(problem, Budget()) is None


GAIN = """def f(float(N) z, float q, float r) -> (x) {
  p(0) = 1.0
  g(i) = (p(i-1) + q) / (p(i-1) + q + r) where i in 1:N
  p(i) = (1.0 - g(i)) * (p(i-1) + q) where i in 1:N
  x(0) = z(0)
  x(i) = x(i-1) + g(i) * (z(i) - x(i-1)) where i in 1:N }"""
BACKWARDS = """def f(float(N) z) -> (x) {
  p(0) = z(0)
  p(i) = z(i) / (1.0 + p(i-1)) where i in 1:N
  x(0) = p(N-1)
  x(i) = p(N-1-i) - z(i) / (2.0 + x(i-1)) where i in 1:N }"""
SUMS = """def f(int32(N) z) -> (p, x) {
  p(0) = z(0)
  p(i) = p(i-1) + z(i) where i in 1:N
  x(0) = p(0)
  x(i) = x(i-1) + p(i) where i in 1:N }"""


def test_recurrences_that_wait_for_each_step_run_in_one_loop() -> None:
    for n in (1, 2, 9, 40):
        lowered = check(GAIN, {"N": n})
        assert n < 4 or lowered.storage["p"].moduli[0] == 2  # of this step and the one before, not all


@pytest.mark.parametrize("text", [BACKWARDS, SUMS])
def test_recurrences_that_share_no_loop_run_one_after_the_other(text: str) -> None:
    for n in (1, 2, 9, 40):
        lowered = check(text, {"N": n})
    assert lowered.as_text("loops").count("c0++) {") >= 2
    assert text != SUMS or lowered.as_text("loops").count("scan(") == 2


def test_a_triangular_solve_reads_the_matrix_along_its_rows_whichever_triangle_it_is():
    text = """def f(double(N, N) L, double(N) b) -> (x) {
      s(i) +=! L(i, j) * x(j) where j < i, i in 0:N, j in 0:N
      x(i) = b(i) - s(i) where i in 0:N }"""
    turned = text.replace("L(i, j)", "L(j, i)")
    for source, read in ((text, "s[0] += L[c0, c1] * x[c1]"), (turned, "s[c1] += L[c0, c1] * x[c0]")):
        assert read in lower(source, {"N": 200}).as_text("loops")
