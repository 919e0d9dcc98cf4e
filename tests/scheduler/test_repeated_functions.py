"""Functions of few indices: computed once where a statement would compute them anew for each value of its other indices."""

from __future__ import annotations

import pytest

from tests.scheduler.support import check, infer, read, run_pass, statements

STORED = {
    "weights of columns": "def f(float(9,N) C, float(N) F) -> (T) { T(d,v) = C(d,v) * log(2.0 + F(v) * F(v)) }",
    "one side of pairs": "def f(float(5,2) P, float(N,2) Q) -> (D) { D(i,j) = P(i,0) * cos(Q(j,0)) * sin(P(i,1) - Q(j,1)) }",
    "in a sum": "def f(float(30,N) X, float(8,N) V) -> (q) { q(n,k) +=! X(n,d) + log(1.0 + V(k,d) * V(k,d)) }",
    "of an index": "def f(float(N) x, float a) -> (y) { y(i) max=! x(i+k) * exp(-a * float(k)) where k in 0:6 }",
    "in a condition": "def f(float(9,N) C, float(N) F) -> (T) { T(d,v) = exp(F(v)) > C(d,v) ? C(d,v) : 0.0 }",
    "of a triangle": "def f(float(N,N) C, float(N) F) -> (T) { T(i) max=! C(i,j) + sin(F(j)) where j <= i }",
    "of a root": "def f(float(9,N) C, float(N) F) -> (T) { T(d,v) = C(d,v) * (1.0 / sqrt(F(v) * F(v) + 1.0)) }",
    "of the steps of a recurrence": """def f(float(8) K, float u) -> (V) {
        V(0,b,i) = K(b) where i in 0:9
        V(t,b,i) = max(V(t-1,b,i+1) - V(t-1,b,i), K(b) - pow(u, float(t + i))) where t in 1:9, b in 0:8, i in 0:9-t
        V(t,b,i) = 0.0 where t in 1:9, b in 0:8, i in 9-t:9 }""",
    "of parts of a tensor": """def f(float(6,N) q, float(N) a) -> (M) {
        M(b,j,0) = sin(q(b,j)) * cos(a(j))
        M(b,j,1) = cos(q(b,j)) * cos(a(j)) }""",
}

STAY = {
    "innermost loop leaves it by itself": "def f(float(9,N) C, float(9) F) -> (T) { T(d,v) = C(d,v) * exp(F(d)) }",
    "of all indices": "def f(float(9,N) C) -> (T) { T(d,v) = exp(C(d,v)) }",
    "few times": "def f(float(3,N) C, float(N) F) -> (T) { T(d,v) = C(d,v) * exp(F(v)) }",
    "cheap": "def f(float(9,N) C, float(N) F) -> (T) { T(d,v) = C(d,v) / (F(v) * F(v) + 1.0) }",
    "in an arm": "def f(float(9,N) C, float(N) F) -> (T) { T(d,v) = C(d,v) > 0.0 ? exp(F(v)) : 0.0 }",
    "of windows": "def f(float(N) C, float(9) F) -> (T) { T(d,v) max=! F(d) * exp(C(v+k)) where k in 0:3 }",
    "of a product": "def f(float(9,N) A, float(8,N) B) -> (P) { P(i,j) +=! exp(A(i,k)) * B(j,k) }",
    "by data": "def f(float(9,N) C, int32(N) p, float(7) F) -> (T) { T(d,v) = C(d,v) * exp(F(p(v))) }",
    "of its own recurrence": """def f(float(20,N) x) -> (h) {
        h(0,i) = x(0,i)
        s(t,i) max=! x(t,i) + exp(h(t-1,j)) where t in 1:20
        h(t,i) = s(t,i) / 99.0 where t in 1:20 }""",
}


@pytest.mark.parametrize("name", STORED)
def test_every_form(name: str):
    lowered = check(STORED[name], {"N": 37})
    assert [r.message for r in lowered.remarks if r.pass_name == "store-functions"]


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str):
    program, ranges = infer(read(STAY[name]), N=40)
    assert run_pass("store-functions", program, ranges) == (program, ranges, [])


def test_a_function_is_a_tensor_of_its_indices():
    program, ranges = infer(read(STORED["weights of columns"]), N=40)
    new, new_ranges, _ = run_pass("store-functions", program, ranges)
    assert statements(new) == [
        "S0_function(v): T.function[v] = log(2.0 + F[v] * F[v])",
        "S0(d, v): T[d, v] = C[d, v] * T.function[v]",
    ]
    assert set(new_ranges.statements) == {s.name for s in new.statements}


def test_statements_share_a_function():
    program, ranges = infer(read(STORED["of parts of a tensor"]), N=40)
    new, _, remarks = run_pass("store-functions", program, ranges)
    assert len(remarks) == 2 and len(new.statements) == 3
