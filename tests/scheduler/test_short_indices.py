"""Statements over components of points, written out: which, and that every form of them keeps its results."""

from __future__ import annotations

import pytest

from polyc.machine import X86_64_V2, X86_64_V3
from polyc.scheduler.rewriting.short_indices import write_out_short_indices
from tests.scheduler.support import check, infer, read, statements

NORMALISED = "def f(float(N,3) X) -> (Y) { q(n) +=! X(n,k) * X(n,k)  Y(n,k) = X(n,k) / sqrt(q(n)) }"

WRITTEN_OUT = {
    "cross product": """def f(double(N,3) A, double(N,3) B) -> (C) {
        C(n,k) = A(n,(k+1)%3) * B(n,(k+2)%3) - A(n,(k+2)%3) * B(n,(k+1)%3) where k in 0:3 }""",
    "normal": """def f(float(N,3,3) T) -> (M) {
        u(n,k) = T(n,1,k) - T(n,0,k)
        v(n,k) = T(n,2,k) - T(n,0,k)
        c(n,k) = u(n,(k+1)%3) * v(n,(k+2)%3) - u(n,(k+2)%3) * v(n,(k+1)%3) where k in 0:3
        q(n) +=! c(n,k) * c(n,k)
        M(n,k) = c(n,k) / sqrt(q(n) + 1.0) }""",
    "normalised": NORMALISED,
    "softmax": "def f(float(N,3) X) -> (Y) { m(n) max=! X(n,k)  z(n) +=! exp(X(n,k)-m(n))  Y(n,k) = exp(X(n,k)-m(n)) / z(n) }",
    "rotated": "def f(double(N,3,3) R, double(N,3) X) -> (Y) { Y(n,i) +=! R(n,i,j) * X(n,j) }",
    "product": "def f(float(N,4) X) -> (Y) { Y(n) *=! X(n,k) }",
    "integers": "def f(int32(N,4) X) -> (Y) { Y(n) min=! X(n,k) }",
    "halves": "def f(int32(N,4) X) -> (Y) { Y(n,k) = X(n,k/2) - X(n,3-k) where k in 0:4 }",
    "shifted": "def f(float(N,4) X) -> (Y) { t(n,k) = X(n,k) * 2.0 where k in 1:3  Y(n,k) = t(n,1+k%2) where k in 0:4 }",
    "one component of a vector": """def f(float(N,3) a, float(N,3) b) -> (z) {
        c(n,k) = a(n,(k+1)%3) * b(n,(k+2)%3) - a(n,(k+2)%3) * b(n,(k+1)%3) where k in 0:3
        z(n) = c(n,2) }""",
    "components from which a sum begins": """def f(float(N,3) a, float(5,N) b) -> (z) {
        c(n,k) = a(n,(k+1)%3) * a(n,(k+2)%3) where k in 0:3
        z(n) = c(n,1)
        z(n) += b(m,n) * c(n,0) }""",
    "tests of three edges": """def f(float(N,3,2) v, float(9) y, float(20) x) -> (D) {
        e(t,k,i,j) = (v(t,(k+1)%3,0) - v(t,k,0)) * y(i) - (v(t,(k+1)%3,1) - v(t,k,1)) * x(j) where k in 0:3
        D(i,j) +=! (e(t,0,i,j) >= 0.0 && e(t,1,i,j) >= 0.0 && e(t,2,i,j) >= 0.0 ? 1.0 : 0.0) }""",
    "a component beyond a border": """def f(float(N,3) a) -> (z) {
        c(n,k) = a(n,(k+1)%3) * a(n,(k+2)%3) where k in 0:3
        z(n) = pad(c(n-1,1), 2.0) where n in 0:N }""",
    "behind a condition": """def f(float(N,3) A) -> (Y) {
        C(n,k) = A(n,(k+1)%3) where k in 0:3
        Y(n,k) = k < 2 ? C(n,k+1) : 0.0 where n in 0:N, k in 0:3 }""",
    "places that data chooses": """def f(float(N,3) A, int32(N) key) -> (Y) {
        C(n,k) = A(n,(k+1)%3) where k in 0:3
        Y(n) = C(n,min(key(n),2)) + C(n,1) }""",
    "a recurrence of two states": """def f(double(N) u, double(2,2) A) -> (x) {
        x(0,i) = u(i) where i in 0:2
        s(t,i) +=! A(i,k) * x(t-1,k) where t in 1:N, i in 0:2
        x(t,i) = s(t,i) + u(t) where t in 1:N, i in 0:2 }""",
    "states in turn": "def f(float(N,3) X) -> (Y) { Y(0,k) = X(0,k)  Y(n,k) = Y(n-1,(k+1)%3) where n in 1:N, k in 0:3 }",
    "two fields that need each other": """def f(double(N,2) u, double(2,2) A, double(2,2) B) -> (y) {
        x(0,i) = u(0,i)
        y(t,i) +=! A(i,k) * x(t,k) where t in 0:N, i in 0:2
        x(t,i) +=! B(i,k) * y(t-1,k) + u(t,i) where t in 1:N, i in 0:2 }""",
    "the best of three states before": """def f(float(N,3) u, float(3,3) A) -> (v) {
        v(0,i) = u(0,i)
        v(t,i) max=! A(i,k) + v(t-1,k) + u(t,i) where t in 1:N, i in 0:3 }""",
    "a window of steps": """def f(float(N) u, float(3) w) -> (y) {
        A(0,i) = u(i)
        A(t,i) +=! pad(A(t-1,i+k-1), 0.0) * w(k) where t in 1:9, i in 0:N
        y(i) = A(8,i) }""",
    "read whole": """def f(float(N,3) X) -> (Y, Z) {
        Y(n,k) = X(n,(k+1)%3) where k in 0:3
        Z(n,k) = Y(n,k) + Y(n,2-k) where k in 0:3 }""",
}

STAY = {
    "a shared matrix": "def f(float(N,3) X, float(3,3) M) -> (Y) { Y(n,i) +=! X(n,j) * M(i,j) }",
    "windows": "def f(float(N) X) -> (Y) { Y(n) +=! X(n+k) * X(n+k) where k in 0:3 }",
    "results along memory": "def f(float(N,3,3) X) -> (Y) { Y(n,c) +=! X(n,k,c) }",
    "few points": "def f(float(8,3) X) -> (Y) { q(n) +=! X(n,k) * X(n,k)  Y(n,k) = X(n,k) / q(n) }",
    "long rows": "def f(float(N,5) X) -> (Y) { Y(n) +=! X(n,k) * X(n,k) }",
    "many terms": "def f(float(N,3,3,3) X) -> (Y) { Y(n) +=! X(n,a,b,c) }",
    "states of their own": "def f(float(N,3) X) -> (Y) { Y(0,k) = X(0,k)  Y(n,k) = 2 * Y(n-1,k) where n in 1:N, k in 0:3 }",
    "a triangle": "def f(float(N,3,3) X) -> (Y) { Y(n) +=! X(n,i,j) where j in 0:3, j <= i }",
    "rows of vectors": "def f(double(N,4) X, double(N,4) Z) -> (Y) { Y(n) +=! X(n,k) * Z(n,k) }",
    "a long sum of states": """def f(float(N) u, float(5,5) A) -> (x) {
        x(0,i) = u(i) where i in 0:5
        x(t,i) +=! A(i,k) * x(t-1,k) where t in 1:N, i in 0:5 }""",
    "sums that meet": "def f(float(N,3) X) -> (Y) { Y(n+k) +=! X(n,(k+1)%3) where k in 0:3 }",
    "sums at half the places": "def f(float(N,4) X) -> (Y) { Y(n/2) +=! X(n,(k+1)%3) where k in 0:3 }",
    "padding": "def f(float(N,3) X) -> (Y) { Y(n,k) = pad(X(n,k-1), 0.0) + X(n,(k+1)%3) where n in 0:N, k in 0:3 }",
}


def test_before_and_after():
    program, ranges = infer(read(NORMALISED), N=40)
    new, new_ranges, remarks = write_out_short_indices(program, ranges, X86_64_V3, True)
    assert statements(new) == [
        "S0(n): q[n] = fma(X[n, 2], X[n, 2], fma(X[n, 1], X[n, 1], fma(X[n, 0], X[n, 0], 0.0)))",
        *(f"S1.at{k}(n): Y[n, {k}] = X[n, {k}] / sqrt(q[n])" for k in range(3)),
    ]
    assert set(new_ranges.statements) == {s.name for s in new.statements}
    assert [r.pass_name for r in remarks] == ["short-indices", "short-indices"]


def test_terms_of_a_sum_inside_of_a_recurrence_are_one_expression():
    program, ranges = infer(read(WRITTEN_OUT["a recurrence of two states"]), N=40)
    new, new_ranges, _ = write_out_short_indices(program, ranges, X86_64_V3, True)
    assert "S1.at1(t): s.at1[t] = fma(A[1, 1], x[t - 1, 1], fma(A[1, 0], x[t - 1, 0], 0.0:f64))" in statements(new)
    assert set(new_ranges.statements) == {s.name for s in new.statements}


def test_sums_without_fused_products_where_the_target_has_none():
    program, ranges = infer(read(NORMALISED), N=40)
    new, _, _ = write_out_short_indices(program, ranges, X86_64_V2, True)
    assert statements(new)[0] == "S0(n): q[n] = 0.0 + X[n, 0] * X[n, 0] + X[n, 1] * X[n, 1] + X[n, 2] * X[n, 2]"


def test_components_of_temporaries_are_tensors_of_their_own():
    program, ranges = infer(read(WRITTEN_OUT["normal"]), N=40)
    new, new_ranges, _ = write_out_short_indices(program, ranges, X86_64_V3, True)
    assert {t.name for t in new.tensors} == {"T", "M", "q", *(f"{t}.at{k}" for t in "uvc" for k in range(3))}
    assert set(new_ranges.tensors) == {t.name for t in new.tensors}


def test_sums_that_keep_a_loop_are_written_out_only_where_their_order_may_change():
    text = "def f(double(N,3) X, double(N,3) Z) -> (E) { E(m) +=! X(n,(k+1)%3) * Z(m,k) where k in 0:3 }"
    program, ranges = infer(read(text), N=40)
    assert write_out_short_indices(program, ranges, X86_64_V3, False) == (program, ranges, [])
    assert len(write_out_short_indices(program, ranges, X86_64_V3, True)[0].statements[0].indices) == 2


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_every_form(name: str):
    for n in (17, 70):
        lowered = check(WRITTEN_OUT[name], {"N": n})
        assert any(r.pass_name == "short-indices" for r in lowered.remarks)


@pytest.mark.parametrize("op", ["+=!", "max=!"])
def test_sums_of_several_components_into_one_element_keep_all_of_them(op: str):
    check("def f(float(N,3) X) -> (Y) { Y(n+k) " + op + " X(n,(k+1)%3) where k in 0:3 }", {"N": 19})
    check(
        """def f(float(N,3) X, float(N,2) Z) -> (Y) {
            T(n,k) = X(n,(k+1)%3) where k in 0:3
            Y(n,k+l) """
        + op
        + """ T(n,k) * Z(n,l) }""",
        {"N": 19},
    )


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name: str):
    program, ranges = infer(read(STAY[name]), N=40)
    assert write_out_short_indices(program, ranges, X86_64_V3, True) == (program, ranges, [])
