"""States of recurrences whose readers run in the same loop over steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyc
from polyc.ir.interpret import interpret
from polyc.scheduler.rows import kept_steps, steps
from tests.scheduler.support import check

RETENTION = "S(t,d,e) = (t == 0 ? 0.0 : g(d) * S(t-1,d,e)) + k(t,d) * v(t,e) where t in 0:T"
HEAD = "def f(float(T,D) q, float(T,D) k, float(T,E) v, float(D) g)"
CASES = {
    "sum": f"{HEAD} -> (o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) }}",
    "two readers": f"""{HEAD} -> (o, m) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  m(t,e) max=! S(t,d,e) }}""",
    "last state": f"""{HEAD} -> (o, F) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  F(d,e) = S(T-1,d,e) * 2.0 }}""",
    "read between": f"""{HEAD} -> (o) {{ {RETENTION}
      p(t,d) = exp(q(t,d)) + q(t,d)  o(t,e) +=! p(t,d) * S(t,d,e) }}""",
    "in order of its elements": f"{HEAD} -> (o) {{ {RETENTION}  o(t,d,e) = exp(S(t,d,e)) + q(t,d) }}",
}


@pytest.mark.parametrize("name", CASES)
def test_states_of_one_step_are_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    for sizes in ({"T": 9, "D": 5, "E": 20}, {"T": 1, "D": 1, "E": 1}):
        lowered = check(CASES[name], sizes)
        assert sizes["T"] == 1 or lowered.storage["S"].moduli[0] == 1


REFUSED = {
    "both ends": f"{HEAD} -> (o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) * S(T-1-t,d,e) where t in 0:T }}",
    "a sum over steps": f"{HEAD} -> (o) {{ {RETENTION}  o(d,e) +=! q(t,d) * S(t,d,e) }}",
    "a product": f"{HEAD} -> (o) {{ {RETENTION}  o(t,d,j) +=! S(t,d,e) * v(j,e) }}",
    "one after the other": f"""{HEAD} -> (o, p) {{ {RETENTION}
      o(t,e) +=! q(t,d) * S(t,d,e)  p(t,d) +=! S(t,d,e) * o(T-1-t,e) }}""",
    "is a result": f"{HEAD} -> (S, o) {{ {RETENTION}  o(t,e) +=! q(t,d) * S(t,d,e) }}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_readers_of_other_steps_come_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    check(REFUSED[name], {"T": 6, "D": 4, "E": 17})


LEADERS = """def f(float(N,N) A, float(N) b, float(T) c) -> ({results}) {{
  p(0,i) = b(i)  q(t,i) +=! A(i,j) * p(t,j) where t in 0:T
  p(t,i) = 0.1 * q(t-1,i) + c(t) where t in 1:T  {statements} }}"""
SUM = "x(0,i) = b(i)  x(t,i) = x(t-1,i) + p(t-1,i) where t in 1:T  y(i) = x(T-1,i)"
FOLLOWED = {
    "one": (LEADERS.format(results="y", statements=SUM), "pqx"),
    "one after the other": (
        LEADERS.format(
            results="y, v", statements=f"{SUM}  u(0,i) = b(i)  u(t,i) = 0.5 * u(t-1,i) + x(t,i) where t in 1:T  v(i) = u(T-1,i)"
        ),
        "pqxu",
    ),
    "of several statements": (
        LEADERS.format(
            results="y, v",
            statements="x(0,i) = b(i)  u(0,i) = b(i)  x(t,i) = u(t-1,i) + p(t-1,i) where t in 1:T  y(i) = x(T-1,i)"
            "  u(t,i) = 0.5 * x(t,i) where t in 1:T  v(i) = u(T-1,i)",
        ),
        "pqxu",
    ),
    "what another one stores anyway": (
        LEADERS.format(results="y, z", statements=f"{SUM}  z(t,k) +=! A(k,i) * p(t,i) where t in 0:T"),
        "qx",
    ),
    "beside one that runs backwards": (
        LEADERS.format(
            results="y, v",
            statements=f"{SUM}  w(t) max=! q(t,i) where t in 0:T  g(0) = c(0)  g(t) = g(t-1) + w(t) where t in 1:T"
            "  u(T,i) = b(i)  u(t,i) = 0.5 * u(t+1,i) + p(t,i) where t in 0:T  v(i) = u(0,i) + g(T-1)",
        ),
        "x",
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_recurrences_follow_those_whose_states_they_take(name: str) -> None:
    text, folded = FOLLOWED[name]
    lowered = check(text, {"N": 5, "T": 9})
    assert {state: lowered.storage[state].moduli[0] for state in folded} == dict.fromkeys(folded, 1)


KACZMARZ = """def f(double(T,N) A, double(T) c, double(N) b) -> ({results}) {{
  x(0,i) = b(i)  s(t) +=! A(t,i) * x(t,i) where t in 0:T
  x(t,i) = x(t-1,i) + (c(t-1) - s(t-1)) * A(t-1,i) where t in 1:T+1  y(i) = x(T,i) where i in 0:N  {sums} }}"""
"""Each step takes one row of A."""


@pytest.mark.parametrize("sums", ["r(i) +=! s(t) * A(t,i)", "r(j) max=! s(i) + A(i,j)"])
def test_sums_over_steps_take_rows_while_a_recurrence_reads_them(sums: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were one more pass over the rows of all steps (the adjoint of durbin by its states)."""
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    text = KACZMARZ.format(results="y, r", sums=sums)
    for sizes in ({"T": 9, "N": 20}, {"T": 8, "N": 1}, {"T": 1, "N": 7}, {"T": 0, "N": 5}):
        lowered = check(text, sizes)
        assert min(sizes.values()) < 5 or lowered.storage["s"].moduli[0] == 1


def test_products_over_steps_stay_behind_a_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MANY_STATES", 1)
    lowered = check(KACZMARZ.format(results="y, r", sums="r(i,j) +=! s(t) * A(t,i) * A(t,j)"), {"T": 40, "N": 20})
    assert lowered.storage["s"].moduli[0] is None


def test_a_stencil_that_takes_one_number_of_each_step_keeps_its_tiles() -> None:
    text = """def f(float(N,N) A, float(N) b, float(M) v, int64 T) -> (y) {
      p(0,i) = b(i)  q(t,i) +=! A(i,j) * p(t,j) where t in 0:T  s(t) max=! fabs(q(t,i)) where t in 0:T
      p(t,i) = q(t-1,i) / s(t-1) where t in 1:T
      x(0,m) = v(m)
      x(t,m) = m == 0 || m == M-1 ? x(t-1,m) : 0.25 * s(t-1) * (x(t-1,m-1) + x(t-1,m+1)) where t in 1:T, m in 0:M
      y(m) = x(T-1,m) }"""
    lowered = polyc.compile(text, target="x86-64-v3").lower(
        A=("float32", (50, 50)), b=("float32", (50,)), v=("float32", (10**6,)), T=("int64", ())
    )
    assert "t + m" in lowered.as_text("sched")


def test_states_are_kept_for_few_steps_beside_borders_that_need_none_of_them() -> None:
    """All steps of the borders ran first, so that all states were stored."""
    text = """def f(float(N,M) a, float(T) c) -> (y) {
      P(0,0,j,i) = a(j,i)
      P(n,0,j,i) = P(n-1,3,j,i) where n in 1:T
      P(n,q+1,j,i) = 0.25 * (P(n,q,j-1,i) + P(n,q,j,i-1)) where n in 0:T, q in 0:3, j in 1:N, i in 1:M
      P(n,q+1,j,0) = P(n,q+1,j,1) where n in 0:T, q in 0:3, j in 1:N
      P(n,q+1,0,i) = c(n) where n in 0:T, q in 0:3, i in 0:M
      y(j,i) = P(T-1,3,j,i) }"""
    assert check(text, {"N": 5, "M": 7, "T": 9}).storage["P"].moduli[0] == 1


def test_initial_states_that_are_read_across_rows_are_copied_in_blocks() -> None:
    """Columns of `A` were read one at a time, an element of each line."""
    text = (Path(__file__).parents[2] / "benchmarks/polybench/gramschmidt.tc").read_text()
    lowered = polyc.compile(text, target="x86-64-v4").lower(A=("float64", (72, 40)))
    assert lowered.storage["V"].moduli[1] is None


DEFLATED = """def f(double(N, M) A) -> (W) {
  V(0, j, i) = A(i, j)
  n(k) +=! V(k, k, i) * V(k, k, i) where k in 0:M, i in 0:N
  W(k, i) = V(k, k, i) / sqrt(1.0 + n(k)) where k in 0:M, i in 0:N
  p(k, j) +=! W(k, i) * V(k, j, i) where j > k, k in 0:M, i in 0:N, j in 0:M
  V(k + 1, j, i) = V(k, j, i) - W(k, i) * tanh(p(k, j)) where j > k, k in 0:M, i in 0:N, j in 0:M
  V(k + 1, j, i) = 0.0 where j <= k, k in 0:M, i in 0:N, j in 0:M
}"""


@pytest.mark.parametrize("dynamic", [False, True])
def test_adjoints_of_all_steps_of_all_columns_were_stored(dynamic: bool) -> None:
    """They ran by columns, as what they are adjoints of, and sums over columns for each step read them all later."""
    lowered = polyc.compile(DEFLATED, target="x86-64-v4", dynamic=dynamic).vjp().lower(N=64, M=300)
    assert lowered.storage["d_V"].moduli == (1, None, None)


@pytest.mark.parametrize(("target", "sizes"), [("x86-64-v3", [(13, 17)]), ("x86-64-v4", [(1, 0), (0, 1), (1, 1), (7, 5)])])
def test_adjoints_along_steps_are_those_along_columns(
    target: str, sizes: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_steps, "MANY_STATES", 1)
    gradient = polyc.compile(DEFLATED, target=target, dynamic=len(sizes) > 1).vjp()
    for m, n in sizes:
        rng = np.random.default_rng(m)
        given = {"A": rng.standard_normal((n, m)), "d_W": rng.standard_normal((m, n))}
        expected = interpret(gradient.program, given)["d_A"]
        for threads in (2, None):
            polyc.set_num_threads(threads)
            np.testing.assert_allclose(gradient(*given.values()), expected, rtol=1e-11, atol=1e-13)


def test_sums_that_are_little_beside_the_matrix_stay_along_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_steps, "MANY_STATES", 1)
    text = """def f(double(N, N) L, double(N) b) -> (x) {
      s(i) +=! L(j, i) * x(j) where j < i, i in 0:N, j in 0:N
      x(i) = b(i) - s(i) where i in 0:N }"""
    lowered = polyc.compile(text, target="x86-64-v3").lower(N=200)
    assert "s[c1] += L[c0, c1] * x[c0]" in lowered.as_text("loops")
